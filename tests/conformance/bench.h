/* A test bench for operations: a small graph on one backend, filled with numbers that depend on a seed alone.
 *
 * The same row, seed and batch on two backends is the same graph with the same numbers, so results can be compared
 * tensor by tensor. Numbers of samples are functions of the sample's position in the effective batch, so that a batch
 * may also be run in pieces. Every tensor has memory of its own (or, if asked for, that of the planner's layout),
 * filled with NaN before the run and followed by a canary. Where kernels cannot reach the host's memory, it has a twin
 * on the device: a run copies everything there first, and back. */
#ifndef TESTS_CONFORMANCE_BENCH_H
#define TESTS_CONFORMANCE_BENCH_H
#include "brim/backend.h"
#include "graph/graph.h"
#include "graph/plan.h"

/* Sanitizers look at memory, not at numbers: one case in so many will do for them. */
#ifdef __SANITIZE_ADDRESS__
#define BENCH_SHARE 4
#else
#define BENCH_SHARE 1
#endif

typedef struct backend {
  const char *name;
  const brim_backend_ops *ops;
  void *self;
} backend;

enum bench_size { SIZE_SMALL, SIZE_ONE, SIZE_ODD, SIZE_BLOCKED, SIZE_ANY, SIZE_COUNT };
enum bench_values {
  VALUES_UNIFORM,  /* in [-1, 1), floats */
  VALUES_DISTINCT, /* floats, all different and none near 0: no kink of relu or max pool is near */
  VALUES_TIES,     /* one of -1, -0.5, 0, 0.5, 1: windows with several greatest values, zeros */
  VALUES_COUNT
};
/* What stands around the operation, so that it meets the layouts that convolutions choose. */
enum bench_context { BARE = 0, BEHIND_CONV = 1, BEFORE_CONV = 2, CONTEXT_COUNT = 4 };

#define INDEX_TENSORS_MAX 64

typedef struct bench bench;

/* A row of the conformance table. */
typedef struct bench_row {
  const char *name;
  /* Builds the operation under test on bench_input()s, by numbers drawn with bench_pick(); returns the result whose
   * gradient is known (or NULL if nothing is differentiated). */
  brim_tensor *(*make)(bench *b);
  bool is_loss;   /* makes its own gradient */
  bool composite; /* several operations: errors add up */
  bool by_sample; /* works on samples, so the batch can be cut */
  bool skips;     /* element 0 of its result need not depend on element 0 of its first input */
  /* Over the gradients of weights: by transforms of both factors, not term by term; or by products of the padding with
   * what is NaN. */
  bool spreads_nan;
  bool keeps_logits; /* the loss is one node with its gradient (brim_graph_fuse_loss): no forward pass by itself */
  bool large;        /* as large as in earnest, one fixed size: few cases, none by finite differences */
  /* Typical size of the terms that a result's elements are sums of: where they cancel out, as a softmax's gradient
   * does for a single key, the error is relative to them. 0: to the result alone. */
  double terms;
  /* Bound of the error of cpu against reference; 0: 1e-5. A row with another says why. */
  double error_max;
  int64_t norm_group; /* samples whose statistics are taken together; a batch is cut at multiples only. 0: all */
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
/* The first row from `at` on that the environment asks for: BENCH_ROWS has prefixes of names, separated by commas;
 * BENCH_SHARD=2/12 takes the third of every twelve rows. Without them, every row counts. */
const bench_row *const *bench_row_from(const bench_row *const *at);

typedef struct bench_options {
  const backend *backend;
  const bench_row *row;
  uint64_t seed;
  int64_t batch, first_sample, grain;
  enum bench_size size;
  enum bench_values values;
  unsigned context;       /* of enum bench_context */
  bool gradients_at_zero; /* else they start at random numbers, to be added to */
  bool shared_memory;     /* memory as the planner lays it out */
  /* Of a model, in training: what is dropped and made again. Of `auto` the level of the least memory. */
  enum brim_recompute_kind recompute;
  bool drop_any;        /* in place of that: nodes by chance, */
  uint32_t drop_seed;   /* by other chances than values, which are the seed's */
  uint32_t activations; /* the type they are kept in, BRIM_DTYPE_BF16 or _F16; 0: that of parameters */
  /* Of a backend in double precision: a bench of the same nodes that has run. Each node gets the activations that it
   * had there, and its results are rounded where they were. So what is compared is each operation's arithmetic; else,
   * with 8 bits, a maximum that is found elsewhere for a rounding alone would make a network's gradients differ by
   * percents. */
  const bench *follows;
  bool evaluate; /* the forward pass alone, as a program for evaluation */
  /* In place of what the row makes: a whole model's graph, with loss, metrics and fusion. Batch, type and whether it
   * is for training are the bench's. */
  const brim_graph_options *model;
  int64_t below; /* of the indices that a model makes */
} bench_options;

struct bench {
  bench_options o;
  brim_graph *g;
  brim_tensor *result, *seed; /* seed: the result's gradient; NULL for a loss */
  brim_program program;
  void **memory;                            /* by tensor id; on the host */
  void **workspace;                         /* by node */
  void **device_memory, **device_workspace; /* the same where kernels see it */
  uint32_t *stream;                         /* by tensor id, of random numbers */
  char *arena, *device_arena;               /* with shared_memory */
  bool on_device;                           /* the device's memory is not the host's */
  brim_step step;
  uint32_t draws;
  int64_t below[INDEX_TENSORS_MAX]; /* of indices, by tensor id */
  uint32_t behind;                  /* convolutions put before inputs so far, for their names */
};

/* Does a backend have an operation? */
bool bench_offers(const backend *on, const char *op);
/* Builds, prepares and fills. Whatever goes wrong fails the test. */
bench *bench_create(const bench_options *options);
void bench_free(bench *b);
/* Before a bench runs once more: sums of gradients that the backward pass sends on begin as zeros in each step. */
void bench_begin_step(const bench *b);
/* Runs nodes [from, to) and checks the canaries. */
void bench_run(bench *b, size_t from, size_t to);
/* After a run with memory of their own: sources that no operation writes must be as they were filled. */
void bench_check_sources(const bench *b);
/* A tensor's values in plain order, as doubles; to be freed. */
double *bench_values_of(const bench *b, const brim_tensor *t);
/* Is this tensor kept from micro-batch to micro-batch and added to? */
bool bench_accumulates(const bench *b, const brim_tensor *t);
/* Hands what has been added up so far to the bench of the next micro-batch. */
void bench_hand_over(const bench *from, bench *to);

/* For rows. A number in [low, high]; one of a channel count or extent in keeping with the size. */
int64_t bench_pick(bench *b, int64_t low, int64_t high);
int64_t bench_pick_channels(bench *b);
int64_t bench_pick_extent(bench *b, int64_t least);
/* An input of the operation, with the context before it: [N, c, h, w] or [N, f]. */
brim_tensor *bench_input4(bench *b, int64_t c, int64_t h, int64_t w);
brim_tensor *bench_input2(bench *b, int64_t f);
/* An input of any shape whose first dimension is the batch, without context; its gradient is checked if it is real. */
brim_tensor *bench_input(bench *b, const brim_shape *shape, const char *name);
/* Indices in [0, below), i32. */
brim_tensor *bench_indices(bench *b, const brim_shape *shape, int64_t below, const char *name);
/* A parameter uniform in [-bound, bound]. */
brim_tensor *bench_parameter(bench *b, const char *name, const brim_shape *shape, double bound);
brim_tensor *bench_labels(bench *b, int64_t classes);
#endif
