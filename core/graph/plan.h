/* The memory plan: the place of every tensor of a run, before anything is allocated.
 *
 * A run has one arena:
 *     [ reserved | parameters | gradients | optimizer state | metrics | class weights | proof | caches ]   persistent
 *     [ transient: inputs, activations, workspace ]            the maximum over the programs
 * and one program per batch shape (full micro-batch, remainders, evaluation) plus the optimizer's update. Within a
 * program, memory is shared by lifetime: a view or an in-place result shares its input's buffer, a buffer lives
 * from the node that makes it to the last that needs it, and buffers that never live together may overlap.
 *
 * States in host memory have a block of their own there. In the arena they are transient: each has a buffer during its
 * parameter's update (graph/offload.h), and exec copies it in and out.
 *
 * The plan is a pure function of its request. */
#ifndef BRIM_GRAPH_PLAN_H
#define BRIM_GRAPH_PLAN_H
#include "base/text.h"
#include "brim/comm.h"
#include "graph/graph.h"
#include "graph/recompute.h"
#include "graph/shard.h"

#define BRIM_PROGRAMS_MAX 32                       /* batch shapes */
#define BRIM_PROGRAMS_ROOM (BRIM_PROGRAMS_MAX + 6) /* includes check and update, and a client's programs */

/* A region of memory shared by one or more tensors of a program, or a node's workspace. */
typedef struct brim_buffer {
  uint64_t bytes;      /* rounded up to the backend's alignment */
  uint64_t offset;     /* offset from the start of the arena */
  uint32_t role;       /* role of the tensor that made it */
  int32_t first, last; /* nodes between which it lives, inclusive; last may be the number of nodes */
  bool kept;           /* belongs to a cast that stays: it lies at the start of the transient part */
} brim_buffer;

/* A part of the arena. */
typedef struct brim_range {
  uint64_t offset, bytes; /* offset from the start of the arena */
} brim_range;

/* Updates whose states are copied from and to host memory together: see graph/offload.h. */
typedef struct brim_offload_group {
  int32_t from, to;    /* nodes [from, to) */
  int32_t first, last; /* nodes between which the states have buffers, inclusive */
  uint64_t bytes;      /* bytes of these buffers */
} brim_offload_group;

enum brim_program_kind {
  BRIM_PROGRAM_TRAIN,
  BRIM_PROGRAM_EVALUATE,
  BRIM_PROGRAM_GENERATE, /* continues texts: see graph/generate.h */
  BRIM_PROGRAM_CHECK,    /* checks gradients before an update that is `checked`: see brim_graph_build_check */
  BRIM_PROGRAM_UPDATE,   /* for a federation's server: applies the clients' updates */
  /* for a client: see graph/federate.h */
  BRIM_PROGRAM_ADOPT,
  BRIM_PROGRAM_DISTANCE,
  BRIM_PROGRAM_FOLD,
  BRIM_PROGRAM_FOLD_CONTROL
};

/* A collective between nodes of a program, every time the program runs. See graph/collectives.h. */
typedef struct brim_program_collective {
  int32_t start;        /* index of the node before which it starts; the number of nodes: it starts after all nodes */
  int32_t finish;       /* index of the node before which it must be done, or the number of nodes; at least `start` */
  uint32_t kind, dtype; /* see brim/comm.h */
  uint64_t offset;      /* offset of its buffer from the start of the arena */
  uint64_t count;       /* elements */
} brim_program_collective;

typedef struct brim_program {
  enum brim_program_kind kind;
  brim_program_info info;
  brim_graph *graph;
  const brim_kernel **kernel; /* per node */
  void **state;               /* per node: its state, owned by the backend */
  brim_kernel_need *need;     /* per node */
  int32_t *tensor_buffer;     /* per tensor: its buffer; -1: persistent */
  uint64_t *tensor_offset;    /* per tensor: offset from the start of the arena */
  int32_t *workspace_buffer;  /* per node; -1: none */
  brim_buffer *buffer;
  size_t buffer_count;
  brim_offload_group *group; /* in order */
  size_t group_count;
  bool ahead;                          /* copies run concurrently with kernels */
  int32_t window_first, window_last;   /* nodes before the first group that use the window; last < first: none */
  int32_t *bucket_ready;               /* per bucket of the plan: the node after which it is complete; -1: at once */
  brim_program_collective *collective; /* in the order in which they start and end */
  size_t collective_count;
  bool *cut;                            /* per node: copies or waits precede it; NULL: none */
  size_t kept_casts;                    /* number of first nodes that only a step's first micro-batch runs */
  uint64_t transient_bytes;             /* bytes of the transient part, as placed */
  uint64_t live_bytes;                  /* most bytes alive at once: the lower bound for any placement */
  int32_t live_node;                    /* the node at which live_bytes are alive */
  uint64_t live_class[BRIM_ROLE_COUNT]; /* bytes alive there, by role */
  brim_cost cost;
} brim_program;

/* Returns how often a node runs in a step that runs its program `times` times. */
static inline double brim_program_times(const brim_program *p, size_t node, double times)
{
  return node < p->kept_casts && times > 1 ? 1 : times;
}

/* Whether a program uses the parameters that evaluation uses. */
static inline bool brim_program_evaluates(const brim_program *p)
{
  return p->kind == BRIM_PROGRAM_EVALUATE || p->kind == BRIM_PROGRAM_GENERATE;
}

typedef struct brim_batch_shape {
  enum brim_program_kind kind; /* TRAIN, EVALUATE or GENERATE */
  int64_t batch;
  int64_t tokens; /* GENERATE: of each text */
} brim_batch_shape;

typedef struct brim_plan_request {
  brim_graph_options graph; /* batch and training are set per program */
  const brim_backend_ops *backend;
  void *backend_self;
  int64_t grain;
  brim_update_options update; /* op NULL: no training */
  enum brim_recompute_kind recompute;
  uint64_t budget_bytes; /* for `auto`: recompute as little as possible for a peak within this; 0: recompute nothing */
  brim_world world;      /* the rank that the plan is for, and the number of ranks; 0 or 1: a single rank */
  uint32_t shard;        /* enum brim_shard: the state divided among ranks. See graph/shard.h */
  uint64_t bucket_bytes; /* size of gradient buckets: see brim_buckets_size */
  brim_recompute_cache *levels; /* cache for requests with the same model and options; NULL: none */
  bool accumulates;             /* a step may have several micro-batches */
  bool keep_answers;            /* graph.keep_output, for evaluation only */
  bool keep_token_losses;       /* graph.keep_token_losses, for evaluation only */
  brim_batch_shape shape[BRIM_PROGRAMS_MAX];
  size_t shape_count;
  /* For a federation's server, which has no batch shapes for training: the request of a client's plan, without `server`
   * and `backend_self`. `update` above is then the server's optimizer. NULL without a federation. Must be valid during
   * the call. */
  const struct brim_plan_request *client;
  int32_t lanes; /* clients that train at the same time; more than 1 need the backend's `lane`. 0: none; the plan then
                    has one lane for its graphs, which is not placed */
  bool plans_one_lane;            /* plan only one lane, as all are alike and nothing will run */
  const struct brim_plan *server; /* for a client: the plan whose arena contains this plan and the shared tensors */
} brim_plan_request;

/* A range of the gradients: see graph/buckets.h. */
typedef struct brim_gradient_bucket {
  uint64_t offset; /* offset from the start of the arena */
  uint64_t count;  /* elements, including gaps between gradients */
  uint32_t dtype;
  uint32_t kind; /* BRIM_ALL_REDUCE; or BRIM_REDUCE_SCATTER: a rank gets only its part of the sum */
} brim_gradient_bucket;

typedef struct brim_plan {
  brim_plan_request request;
  brim_program program[BRIM_PROGRAMS_ROOM];
  size_t program_count;    /* in the order of the request's shapes; check and update come last */
  uint64_t reserved_bytes; /* the backend's own area at the start of the arena, for feeding inputs */
  uint64_t feed_bytes;     /* bytes of input and labels together, the largest of any program */
  uint64_t persistent_bytes;
  /* starts of the persistent parts */
  uint64_t evaluated_offset; /* start of the parameters that evaluation uses: the parameters or their averages */
  uint64_t frozen_offset;    /* start of the parameters that are not trained; the others follow */
  uint64_t parameter_offset, gradient_offset, optimizer_offset, metrics_offset, squares_offset, class_weight_offset,
      proof_offset, cache_offset;
  uint64_t gradient_bytes;
  uint64_t metrics_bytes; /* zeroed each step */
  brim_range *zeroed;     /* the parts of the gradients that are zeroed each step: see graph/overwritten.h */
  size_t zeroed_count;
  uint64_t zeroed_bytes;        /* bytes of these parts */
  brim_gradient_bucket *bucket; /* in the order in which the ranks add them up */
  size_t bucket_count;
  brim_shards *shards;                   /* NULL: every rank updates all parameters */
  uint64_t *host_offset;                 /* by state: its place in the host block; or NULL */
  uint64_t host_bytes;                   /* bytes of that block, which holds states outside the arena */
  uint64_t window_offset, window_bytes;  /* the window in the arena: see graph/offload.h */
  uint64_t peak_bytes;                   /* the exact bytes of the arena */
  uint64_t lower_bound_bytes;            /* bytes of the persistent part, plus the most live bytes of any program */
  uint64_t class_bytes[BRIM_ROLE_COUNT]; /* bytes at the peak by role; their sum is lower_bound_bytes */
  size_t peak_program;
  const char *peak_op; /* "conv2d_grad_input 'conv2'" at the peak; owned by the plan */
  /* A federation's lanes. They follow the persistent part, where the server's programs also have their transient parts:
   * a lane keeps nothing between rounds. */
  struct brim_plan **lane; /* [lane_count] each with its own backend instance, if there are several */
  int32_t lane_count;      /* planned lanes, of which request.lanes can be placed; 0: no federation */
  uint64_t lane_bytes;     /* bytes of each lane */
  int32_t sharers;         /* holders besides the first */
  brim_arena arena;
} brim_plan;

/* ECONFIG/EINVAL from the model, ENOTSUP if the backend lacks an operation, EINTERNAL. Sets *out only on success. */
brim_status brim_plan_create(const brim_plan_request *request, brim_plan **out);
/* Adds an owner to a plan and returns the plan; each owner calls brim_plan_free. Not thread-safe. */
brim_plan *brim_plan_share(brim_plan *plan);
static inline bool brim_plan_is_shared(const brim_plan *plan)
{
  return plan->sharers > 0;
}
void brim_plan_free(brim_plan *plan);
/* Whether the same request with this budget gives the same plan. False if that is not certain. */
bool brim_plan_is_same_within(const brim_plan *plan, uint64_t budget_bytes);
/* The program for a batch shape; NULL if the plan has none. Not for checks and updates, which have no batch. */
const brim_program *brim_plan_program(const brim_plan *plan, enum brim_program_kind kind, int64_t batch);
/* The program that continues texts by this number of tokens; NULL if the plan has none. */
const brim_program *brim_plan_generation(const brim_plan *plan, int64_t tokens);
/* The number of values in all parameters, without buffers; and in trained parameters. */
uint64_t brim_plan_parameters(const brim_plan *plan);
uint64_t brim_plan_trained(const brim_plan *plan);
const char *brim_role_name(uint32_t role); /* "parameters", ... */
/* Whether tables of the plan's bytes by role show this role: only plans that generate have caches. */
static inline bool brim_plan_has_role(const brim_plan *plan, uint32_t role)
{
  return role != BRIM_ROLE_CACHE || plan->class_bytes[role] > 0;
}
/* Checks a program's placement by brute force: no two buffers alive at one node overlap, and all are inside the arena.
 * EINTERNAL naming the two. For tests and debug builds. */
brim_status brim_plan_check(const brim_plan *plan);
#endif
