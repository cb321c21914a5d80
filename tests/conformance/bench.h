/* A test bench for operations: a small graph on one backend, filled with numbers that depend only on a seed.
 *
 * The same row, seed and batch on two backends is the same graph with the same numbers, so results can be compared
 * tensor by tensor. Numbers of samples are functions of the sample's position in the effective batch, so that a batch
 * may also be run in pieces. Every tensor has separate memory (or, on request, the planner's layout), filled with NaN
 * before the run and followed by a canary. If kernels cannot access the host's memory, each has a twin on the device,
 * and a run copies everything there and back. */
#ifndef TESTS_CONFORMANCE_BENCH_H
#define TESTS_CONFORMANCE_BENCH_H
#include "brim/backend.h"
#include "conformance/load.h"
#include "graph/graph.h"
#include "graph/plan.h"

typedef struct backend {
  const char *name;
  const brim_backend_ops *ops;
  void *self;
} backend;

enum bench_size { SIZE_SMALL, SIZE_ONE, SIZE_ODD, SIZE_BLOCKED, SIZE_ANY, SIZE_COUNT };
enum bench_values {
  VALUES_UNIFORM,  /* in [-1, 1), floats */
  VALUES_DISTINCT, /* different floats, none near 0, so that no value is near a kink of relu or max pool */
  VALUES_TIES,     /* one of -1, -0.5, 0, 0.5, 1, so that windows have several maxima and zeros */
  VALUES_COUNT
};
/* The operations around the tested one, so that it gets the layouts that convolutions choose. */
enum bench_context { BARE = 0, AFTER_CONV = 1, BEFORE_CONV = 2, CONTEXT_COUNT = 4 };

#define INDEX_TENSORS_MAX 64

typedef struct bench bench;

/* A row of the conformance table. */
typedef struct bench_row {
  const char *name;
  /* Builds the operation under test on bench_input()s, with parameters from bench_pick(); returns the result whose
   * gradient is given (or NULL if nothing is differentiated). */
  brim_tensor *(*make)(bench *b);
  bool is_loss;   /* the operation computes its own gradient */
  bool composite; /* several operations: errors add up */
  bool by_sample; /* the batch can be split into pieces of samples */
  bool skips;     /* element 0 of its result may be independent of element 0 of its first input */
  /* A kernel may spread NaN over the gradients of weights, because it transforms both factors instead of adding up term
   * by term, or because it multiplies the padding by NaN. */
  bool spreads_nan;
  bool keeps_logits; /* the loss is one node with its gradient (brim_graph_fuse_loss), without a forward pass */
  bool large;        /* fixed, realistic sizes: few cases, and no finite differences */
  /* Typical size of the terms that are added up for an element of a result. If terms cancel, as in a softmax's gradient
   * for a single key, the error is relative to this size. 0: the error is relative to the result only. */
  double terms;
  /* Bound of the error of cpu against reference; 0: 1e-5. A row with another bound states the reason. */
  double error_max;
  int64_t norm_group; /* samples that share statistics; a batch is split only at multiples; 0: the whole batch */
} bench_row;
/* Puts a row into the table, beside its make function:
 *     BENCH_ROW(relu) = {"relu", make_relu, .by_sample = true}; */
#define BENCH_ROW(id)                                                                                                  \
  static const bench_row row_##id;                                                                                     \
  static const bench_row *const row_entry_##id __attribute__((section("bench_rows"), used)) = &row_##id;               \
  static const bench_row row_##id
/* Weak: programs that use the bench for graphs of their own have no rows. */
extern const bench_row *const __start_bench_rows[] __attribute__((weak));
extern const bench_row *const __stop_bench_rows[] __attribute__((weak));
#define BENCH_EACH_ROW(row)                                                                                            \
  for (const bench_row *const *at = bench_row_from(__start_bench_rows), *row;                                          \
       at < __stop_bench_rows && (row = *at) != NULL; at = bench_row_from(at + 1))
/* The next row from `at` on that the environment selects: BENCH_ROWS has prefixes of names, separated by commas;
 * BENCH_SHARD=2/12 takes the third of every twelve rows. Without them, every row counts. */
const bench_row *const *bench_row_from(const bench_row *const *at);

typedef struct bench_options {
  const backend *backend;
  const bench_row *row;
  uint64_t seed;
  int64_t batch, first_sample, grain;
  enum bench_size size;
  enum bench_values values;
  unsigned context;       /* a value of enum bench_context */
  bool gradients_at_zero; /* otherwise they start at random numbers, and are added to */
  bool shared_memory;     /* use the planner's memory layout */
  /* The kind of recompute of a model in training. `auto` uses the level with the least memory. */
  enum brim_recompute_kind recompute;
  bool drop_any;        /* drop random nodes instead */
  uint32_t drop_seed;   /* selects these nodes; separate from the seed of the values */
  uint32_t activations; /* the type of stored activations, BRIM_DTYPE_BF16 or _F16; 0: that of parameters */
  /* A bench with the same nodes that has run; this one is on a backend in double precision. Each node gets the
   * activations that it had in that bench, and its results are rounded as there. So each operation's arithmetic is
   * compared separately; otherwise, with 8 bits, a maximum that moves because of rounding would make a network's
   * gradients differ by several percent. */
  const bench *follows;
  bool evaluate; /* only the forward pass, as in a program for evaluation */
  /* Instead of the row's operation: a whole model's graph, with loss, metrics and fusion. The bench sets the batch, the
   * type and whether it trains. */
  const brim_graph_options *model;
  int64_t below; /* a model's indices are in [0, below) */
} bench_options;

struct bench {
  bench_options o;
  brim_graph *g;
  brim_tensor *result, *seed; /* seed: the result's gradient; NULL for a loss */
  brim_program program;
  void **memory;                            /* by tensor id; on the host */
  void **workspace;                         /* by node */
  void **device_memory, **device_workspace; /* the same in memory that kernels can access */
  uint32_t *stream;                         /* the stream of random numbers, by tensor id */
  char *arena, *device_arena;               /* used with shared_memory */
  bool on_device;                           /* the device has separate memory */
  brim_step step;
  uint32_t draws;
  int64_t below[INDEX_TENSORS_MAX]; /* by tensor id: bound of indices, or of a row's first place */
  int64_t mean[INDEX_TENSORS_MAX];  /* by tensor id: the mean length of a document, for places; 0 for other indices */
  uint32_t convs_before;            /* number of convolutions added before inputs so far; their names contain it */
};

/* True if a backend has an operation. */
bool bench_offers(const backend *on, const char *op);
/* Builds, prepares and fills. An error fails the test. */
bench *bench_create(const bench_options *options);
void bench_free(bench *b);
/* Prepares another run of a bench: resets the sums of gradients that the backward pass passes on, which start at zero
 * in each step. */
void bench_begin_step(const bench *b);
/* Runs nodes [from, to) and checks the canaries. */
void bench_run(bench *b, size_t from, size_t to);
/* After a run with separate memory: sources that no operation writes must be unchanged. */
void bench_check_sources(const bench *b);
/* Returns a tensor's values in plain order, as doubles; the caller frees them. */
double *bench_values_of(const bench *b, const brim_tensor *t);
/* True if t has the same bits as the elements of u from `skip` on, which begin a sample. */
bool bench_same(const bench *a, const brim_tensor *t, const bench *b, const brim_tensor *u, int64_t skip);
/* True if the tensor is kept across micro-batches and added to. */
bool bench_accumulates(const bench *b, const brim_tensor *t);
/* Copies accumulated values to the bench of the next micro-batch. */
void bench_hand_over(const bench *from, bench *to);

/* For rows. Draws a number in [low, high]; or a channel count, or an extent from `least` on, that suits the bench's
 * size. */
int64_t bench_pick(bench *b, int64_t low, int64_t high);
int64_t bench_pick_channels(bench *b);
int64_t bench_pick_extent(bench *b, int64_t least);
/* Adds an input of the operation, after the context's operation: [N, c, h, w] or [N, f]. */
brim_tensor *bench_input4(bench *b, int64_t c, int64_t h, int64_t w);
brim_tensor *bench_input2(bench *b, int64_t f);
/* Adds an input of any shape whose first dimension is the batch, without context. The suite checks the gradient of a
 * real input. */
brim_tensor *bench_input(bench *b, const brim_shape *shape, const char *name);
/* Adds indices in [0, below), i32. */
brim_tensor *bench_indices(bench *b, const brim_shape *shape, int64_t below, const char *name);
/* Places [N, T] of attention and rotary (brim/ops.h), i32: each row begins at a place in [0, below), and a document
 * begins at each later token with probability 1 / mean. They become the graph's. */
brim_tensor *bench_places(bench *b, int64_t length, int64_t mean, int64_t below);
/* Adds a parameter with numbers uniform in [-bound, bound]. */
brim_tensor *bench_parameter(bench *b, const char *name, const brim_shape *shape, double bound);
brim_tensor *bench_labels(bench *b, int64_t classes);
#endif
