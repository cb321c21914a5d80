/* A static graph: the nodes that a model builds and those that autodiff adds, in the order of execution.
 *
 * A graph is for one batch shape. Parameters are the same, in the same order, in every graph of a model; they are
 * identified by their index. */
#ifndef BRIM_GRAPH_GRAPH_H
#define BRIM_GRAPH_GRAPH_H
#include <stdbool.h>

#include "base/arena.h"
#include "brim/dataset.h"
#include "brim/loss.h"
#include "brim/model.h"
#include "brim/optimizer.h"
#include "brim/plugin.h"
#include "graph/op.h"

/* A parameter and its gradient, both persistent. */
typedef struct brim_parameter {
  brim_tensor *value, *gradient; /* gradient: NULL in evaluation graphs */
  brim_init init;
  /* A buffer as in PyTorch: a moving average that no optimizer changes. Its "gradient" is the sum over the norm groups
   * of a step, and its update is the operation moving_average. */
  bool is_buffer;
  bool is_frozen;     /* belongs to a backbone: never changed, without a gradient, not in checkpoints */
  bool is_local;      /* in a federation's client: not sent, and the global model's value does not change */
  bool is_small;      /* frozen, and rounded to g->frozen_type and stored in it: see graph/lower.h */
  double momentum;    /* for a buffer */
  uint64_t name_hash; /* a hash that tells most names apart without comparing them */
  uint32_t uses;      /* nodes that add to its gradient */
} brim_parameter;

/* Whether an optimizer changes the parameter. */
static inline bool brim_parameter_is_trained(const brim_parameter *p)
{
  return !p->is_buffer && !p->is_frozen;
}

/* Whether the clients of a federation send the parameter. */
static inline bool brim_parameter_is_sent(const brim_parameter *p)
{
  return !p->is_frozen && !p->is_local;
}

/* Whether the parameter's gradients have a control, if clients have controls. */
static inline bool brim_parameter_is_controlled(const brim_parameter *p)
{
  return brim_parameter_is_trained(p) && brim_parameter_is_sent(p);
}

/* An additional sum of gradients over the samples of a step, in the order of the samples, independent of the
 * micro-batch. It belongs to one of:
 *   - a use of a parameter after its first; the update adds it to the parameter's gradient.
 *   - a use, together with samples, of a tensor computed from parameters alone (such as a slice). The gradients of
 *     these parameters are computed from the sum, once a step: see brim_graph_fold. */
typedef struct brim_further {
  brim_tensor *gradient; /* "<name>.grad.2"; NULL in a graph without it */
  size_t parameter;      /* index; BRIM_NO_PARAMETER: the sum belongs to a tensor made of parameters */
  brim_tensor *of;       /* that tensor, else NULL */
} brim_further;
#define BRIM_NO_PARAMETER SIZE_MAX

/* An optimizer state of a parameter; its tensor has its name in checkpoints: "<parameter>.exp_avg". */
typedef struct brim_state {
  brim_tensor *tensor;
  size_t parameter; /* index */
  int64_t first;    /* index of the tensor's first element in the whole state; more than 0 only for a slice */
} brim_state;

/* The part of a parameter that a rank updates: see graph/shard.h. The tensors lie in the parameter's own, from element
 * `first` on. */
typedef struct brim_own_slice {
  brim_tensor *value, *gradient; /* NULL: nothing */
  int64_t first;
} brim_own_slice;

/* The gradients of some parameters, one after another, and this rank's part of their sum over all ranks. */
typedef struct brim_gradient_shard {
  brim_tensor *all, *part; /* in training with sharded gradients: this rank's own gradients, and its part of them */
  brim_tensor *own;        /* this rank's part of the sum over all ranks, persistent */
} brim_gradient_shard;

/* The place of a gradient within a larger one. */
typedef struct brim_within {
  const brim_tensor *of; /* the larger gradient, possibly the tensor itself; NULL: none */
  uint64_t at;           /* bytes */
} brim_within;

typedef struct brim_wrap brim_wrap;

/* Sizes of a graph that continues texts: see graph/generate.h. */
typedef struct brim_generation {
  int64_t capacity; /* tokens of a text, with the prompt; 0: the graph does not generate */
  int64_t chunk;    /* most tokens of a text in one program; at least 1 */
  int64_t tokens;   /* tokens of a text in this graph; the output is kept if it is one */
  bool checks;      /* the graph only serves to check whether the model can have caches */
} brim_generation;

struct brim_graph {
  brim_arena arena;
  brim_status status; /* the first error; its text in `error` */
  const char *error;
  const char *file; /* with `line`: the position of the model's current call, for messages */
  int line;
  int64_t capacity;       /* see brim_capacity; 0: T of the input */
  int64_t batch, classes; /* classes: size of the model's output, see brim_classes */
  int32_t task;           /* enum brim_task */
  int64_t norm_group;     /* samples; at least 1 */
  bool uses_norm_group;   /* an operation computes statistics over groups of samples */
  uint32_t real;          /* dtype of real numbers */
  bool training;
  bool folds_later; /* see brim_graph_options */
  bool merges_loss; /* has a node of brim_graph_fuse_loss, which plans with recompute do not have */
  bool builds_loss; /* the loss of a plugin is being built: see graph/loss_build.h */
  brim_tensor **tensor;
  bool *has_samples; /* by tensor id: see brim_graph_has_samples */
  size_t tensor_count, tensor_room;
  brim_node **node;
  size_t node_count, node_room, forward_count; /* nodes before the backward pass */
  size_t first_update,
      first_average; /* for an update: the first nodes of parameters and of averages, of which there may be none */
  brim_parameter *parameter; /* in ascending order of their values' ids */
  size_t parameter_count, parameter_room;
  uint32_t *slot; /* parameters by name: index + 1, or 0; see brim_graph_named_parameter */
  size_t slot_room;
  brim_further *further; /* in training: in the order of their gradients */
  size_t further_count, further_room;
  brim_tensor *tokens, *places; /* brim_input and brim_positions, if not the input and NULL: see graph/documents.h */
  brim_tensor *input, *label, *output, *loss, *metrics; /* label: i32; real: BRIM_TASK_VALUES, or soft labels */
  brim_generation generation;
  brim_tensor *squares;        /* sum of the squares of a step's sample losses: f64 [1], persistent; NULL: not needed */
  brim_tensor *class_weight;   /* [classes], persistent, written once; or NULL */
  brim_tensor *gradient_scale; /* for an update: norm and factor, f64 [2], persistent; NULL: gradients are not scaled */
  brim_state *state;           /* for an update: optimizer states, in the order of the parameters */
  size_t state_count;
  bool offloads; /* the states live in host memory, and in the arena only during their parameter's update */
  bool *passes;  /* by tensor id: a gradient that exists only until its update in the backward pass; NULL: none */
  size_t passes_count;
  brim_own_slice *slice;      /* for an update: by parameter; NULL: whole parameters are updated */
  brim_gradient_shard *shard; /* sharded gradients, in the order of graph/shard.h; or NULL */
  size_t shard_count;
  brim_within *within; /* by tensor id: gradients that exist only until they are summed over the ranks; or NULL */
  size_t within_count;
  brim_tensor *proof;                /* for a check: f64 [1], persistent; see brim_graph_build_check; or NULL */
  uint32_t shared_first, shared_end; /* ids of tensors in another plan's arena: see graph/federate.h */
  brim_tensor **global;              /* by parameter: its counterpart in the global model; NULL: no node needs it */
  brim_tensor **control;       /* by parameter: the term that steer adds to its gradient; for a server, the sum of these
                                  terms; NULL: none */
  const brim_tensor *uncapped; /* the input and the cap of the last brim_softcap; NULL: none */
  double softcap;
  const brim_tensor *kept; /* stays in memory until it is read after the program; or NULL */
  /* If `kept` are losses of tokens: the model's answers, to be read: the logits or, if the loss includes their product,
   * the rank of the label, which is the number of tokens with a greater logit. Else NULL. */
  const brim_tensor *kept_answers;
  uint64_t dropout_streams;
  brim_wrap *wrap;               /* for a model with a backbone: graph/wrap.c; else NULL */
  bool freezing;                 /* parameters created now are frozen, and their layers work as in evaluation */
  uint32_t frozen_type;          /* the type in which frozen weights are stored; 0: `real` */
  const brim_tensor **block_end; /* ends of blocks, as marked with brim_block */
  size_t block_end_count, block_end_room;
  bool (*offers)(const void *arg, const char *op); /* whether the backend has an operation; NULL: it has all */
  const void *offers_arg;
  size_t recomputed_count;   /* nodes that are clones, without views; see graph/recompute.h */
  uint64_t recomputed_flops; /* work of these clones */
  brim_node **plain;         /* the nodes without clones, as soon as there are clones; else NULL */
  size_t plain_nodes, plain_tensors;
  bool *want;             /* by tensor id: brim_autodiff_want; allocated at its first call */
  brim_tensor **gradient; /* by tensor id, set by brim_autodiff_run */
  size_t want_count, gradient_count;
};

/* With this many classes or more, brim avoids memory that grows with their number: the logits, if the loss can include
 * the product that makes them (build.c), and always the confusion matrix. */
#define BRIM_MANY_CLASSES 4096
/* With more classes a confusion matrix is counted for the metrics that follow from it, but not written to files. */
#define BRIM_MATRIX_CLASSES_MAX 256
/* Number of metrics of an evaluation with `targets` real targets: see regression_metrics in brim/ops.h. */
#define BRIM_ERRORS_COUNT(targets) (3 + 3 * (targets))

/* A loss: an operation, or a plugin's graph (brim_loss_describe). */
typedef struct brim_graph_loss {
  const char *op;             /* "softmax_cross_entropy"; NULL: `built` builds it */
  const brim_loss_ops *built; /* called with `self` */
  const void *self;
  const char *id; /* the plugin's */
  brim_loss_attr attr;
} brim_graph_loss;

typedef struct brim_graph_options {
  const brim_model_ops *model;
  const void *model_self;
  const brim_model_ops *backbone; /* the model that this one wraps, or NULL */
  const void *backbone_self;
  const char *backbone_id;
  uint32_t frozen_type; /* the type in which the backbone's weights are stored; 0: `real` */
  const char *local;    /* shell patterns of the parameters with is_local; NULL, "": none */
  bool given_features;  /* samples are the backbone's features: see BRIM_WRAPS_FEATURES */
  brim_graph_loss loss;
  int32_t top_k;          /* for evaluation; 0: off */
  bool class_weights;     /* the loss has an input with weights [classes] */
  bool soft_labels;       /* for BRIM_TASK_CLASS: training labels are class probabilities, [N, classes] */
  brim_shape sample;      /* without N */
  int32_t task;           /* enum brim_task */
  bool documents;         /* samples consist of documents: brim_dataset_info.documents */
  int64_t classes, batch; /* classes: see brim_classes */
  int64_t norm_group;     /* samples that share batch norm's statistics; 0: all samples */
  uint32_t real;
  uint32_t activations;   /* storage type of activations; 0: `real`. See graph/lower.h */
  bool training;          /* build dropout and the backward pass too */
  bool folds_later;       /* the backward pass ends at tensors made of parameters; the update computes the rest */
  bool squares;           /* builds the sum of the squares of the losses too */
  bool keep_output;       /* the output is read after the program */
  bool keep_features;     /* the backbone's features are read after the program */
  bool keep_token_losses; /* the loss of each token is read after the program, with the answers that `kept_answers`
                             describes */
  bool keep_losses;       /* for tokens: the loss is -log(probability) of each token, and is read after the program */
  brim_generation generation;
  uint64_t fuse; /* bits of enum brim_fusion_kind: allowed fusions */
  /* Whether the backend has an operation; NULL: it has all. Fusion needs the fused operation. */
  bool (*offers)(const void *arg, const char *op);
  const void *offers_arg;
} brim_graph_options;

/* Builds a model's graph with its loss and metrics, and for training its backward pass. ECONFIG/EINVAL with the
 * author's file and line. *out is set only on success. */
brim_status brim_graph_build(const brim_graph_options *options, brim_graph **out);
/* The optimizer's pass over the parameters. */
typedef struct brim_update_options {
  const char *op;                /* for one parameter: "adamw"; "formula" for formulas; NULL: no training */
  const char *formula;           /* brim/optimizer.h; NULL if `op` is not "formula" */
  const char *const *scalars;    /* names for the formula, NULL-terminated */
  uint32_t state_count;          /* the optimizer's states; each has the parameter's type and shape */
  const char *const *state_name; /* NULL: they are numbered */
  /* Adapts *out, which has the fields above, to a parameter; NULL: all parameters use those fields. */
  void (*form)(const void *params, const brim_tensor *parameter, brim_update_form *out);
  /* Sets attributes that differ between parameters; NULL: none. */
  void (*attr)(const void *params, const brim_tensor *parameter, brim_update_attr *out);
  /* Updates of several operations: brim_optimizer_ops.build. */
  void (*build)(const void *params, const brim_tensor *parameter, brim_update *u);
  const char *evaluated; /* brim_optimizer_ops.evaluated */
  const void *params;
  bool in_backward; /* each parameter is updated in the backward pass, as soon as its gradient is complete */
  bool steered;     /* for a client: steer changes the gradients first, so that the norm includes its term */
  bool controlled;  /* for a client: steer has a control; for a server: there are sums for controls */
  bool scaled;      /* gradients are multiplied by step.gradient_scale and by the norm limit's factor */
  double max_norm;  /* limit for the norm of all scaled gradients; 0: none. Needs `scaled` */
  double ema_decay; /* decay of moving averages of the parameters, which evaluation uses instead; 0: none */
  bool checked;     /* a program before the update checks that all gradients are finite */
  bool offloaded;   /* states are in host memory: see brim_graph_offloaded */
  const struct brim_shards *shards; /* parts of parameters to update, see graph/shard.h; NULL: all */
} brim_update_options;
/* Whether evaluation uses averages, or values that the optimizer derives, instead of the parameters. */
static inline bool brim_update_has_averages(const brim_update_options *options)
{
  return options->ema_decay > 0 || options->evaluated;
}
/* Builds one node for each parameter of `like`, and one for its average, after nodes that steer gradients and compute
 * their scale, if needed. With `in_backward` only buffers and averages have nodes here. */
brim_status brim_graph_build_update(const brim_graph *like, const brim_update_options *options, brim_graph **out);
/* Builds the check that an update may depend on. It computes `proof`: the sum of the step's losses and of the squares
 * of all gradients, including buffers'. The proof is finite only if all of these are. With `shards` (else NULL) it
 * covers this rank's part, and the proof is the sum over all ranks. */
brim_status brim_graph_build_check(const brim_graph *like, const struct brim_shards *shards, brim_graph **out);
/* With `in_backward`: inserts the updates into a training graph, each after the last node that uses the parameter or
 * adds to its gradient. `passes` marks these gradients, which exist from the first such node to the update. */
brim_status brim_graph_update_in_backward(brim_graph *g, const brim_update_options *options);
/* Checks that only averages read a parameter after its update. EINTERNAL naming both nodes. */
brim_status brim_graph_check_updates(const brim_graph *g);
static inline bool brim_graph_passes(const brim_graph *g, const brim_tensor *t)
{
  return t->id < g->passes_count && g->passes[t->id];
}
/* The larger gradient that contains a tensor, or NULL. */
static inline const brim_tensor *brim_graph_within(const brim_graph *g, const brim_tensor *t)
{
  return t->id < g->within_count ? g->within[t->id].of : NULL;
}
/* Whether a gradient is transient; other gradients are persistent. */
static inline bool brim_graph_is_brief(const brim_graph *g, const brim_tensor *t)
{
  return brim_graph_passes(g, t) || brim_graph_within(g, t);
}
/* The index of an optimizer state that lives in host memory; -1 for any other tensor. States are created one after
 * another, so their ids are consecutive too. */
static inline int64_t brim_graph_offloaded(const brim_graph *g, const brim_tensor *t)
{
  if (!g->offloads || t->role != BRIM_ROLE_OPTIMIZER || g->state_count == 0) return -1;
  const int64_t i = (int64_t)t->id - (int64_t)g->state[0].tensor->id;
  return i >= 0 && i < (int64_t)g->state_count ? i : -1;
}
void brim_graph_free(brim_graph *g);

/* Makes an empty graph, for tests and for graphs that no model builds. */
brim_graph *brim_graph_create(uint32_t real, int64_t batch, bool training);
/* Appends a node; the operation's infer makes its outputs. On error returns NULL, and the graph holds the error. */
brim_node *brim_graph_node(brim_graph *g, const char *op, const char *name, brim_tensor *const *in, uint32_t in_count,
                           const brim_attr *attr);
/* Whether an operation accepts x; false once the graph has failed. Sets an error if x is NULL or belongs to another
 * graph. */
bool brim_graph_accepts(brim_graph *g, const char *op, const char *name, const brim_tensor *x);
/* Whether an operation on real numbers accepts x; it rejects indices too. */
bool brim_graph_accepts_real(brim_graph *g, const char *op, const char *name, const brim_tensor *x);
/* Sets the error "axes is NULL" if the author passed NULL for a list. */
bool brim_graph_needs_list(brim_graph *g, const char *op, const char *name, const void *list, const char *what);
/* Sets an error unless x has samples. */
bool brim_graph_needs_samples(brim_graph *g, const char *op, const char *name, const brim_tensor *x);
/* Sets an error unless all or none of the tensors have samples: otherwise a tensor without samples would fit only one
 * N. */
bool brim_graph_accepts_together(brim_graph *g, const char *op, const char *name, brim_tensor *const *x, size_t count);
/* Sets an error unless a layer with parameters may have this name. */
bool brim_graph_named(brim_graph *g, const char *op, const char *name);
/* Appends a node with the given outputs. */
brim_node *brim_graph_node_into(brim_graph *g, const char *op, const char *name, brim_tensor *const *in,
                                uint32_t in_count, brim_tensor *const *out, uint32_t out_count, const brim_attr *attr);
brim_tensor *brim_graph_tensor(brim_graph *g, uint32_t role, uint32_t dtype, const brim_shape *shape, const char *name);
/* Adds a parameter. NULL on error. */
brim_tensor *brim_graph_parameter(brim_graph *g, const char *name, const brim_shape *shape, brim_init init);
/* Adds a buffer, a moving average: see brim_parameter. */
brim_tensor *brim_graph_buffer(brim_graph *g, const char *name, const brim_shape *shape, brim_init init,
                               double momentum);
/* Adds a layer's parameter "<name>.<what>", initially uniform in [-bound, bound], as in PyTorch's modules. */
brim_tensor *brim_graph_weight(brim_graph *g, const char *name, const char *what, const brim_shape *shape,
                               double bound);
/* Whether an activation is data, or computed from data, so that its first dimension is N. A tensor made of parameters
 * alone has no samples: it is the same in every micro-batch. False for everything but activations. */
static inline bool brim_graph_has_samples(const brim_graph *g, const brim_tensor *t)
{
  return g->has_samples[t->id];
}
/* Whether the outputs of a node of the forward pass have samples. */
static inline bool brim_node_has_samples(const brim_graph *g, const brim_node *n)
{
  return brim_graph_has_samples(g, n->out[0]);
}
/* Whether the backend has an operation that the core can do without, such as a fused one. */
static inline bool brim_graph_offers(const brim_graph *g, const char *op)
{
  return !g->offers || g->offers(g->offers_arg, op);
}
/* Removes the parameters from index `count` on, and frees their names. */
void brim_graph_cut_parameters(brim_graph *g, size_t count);
/* The parameter of this name, or NULL. */
brim_parameter *brim_graph_named_parameter(const brim_graph *g, const char *name);
/* The gradient of a parameter; NULL if x is not a parameter, or in graphs for evaluation. */
brim_tensor *brim_graph_gradient(const brim_graph *g, const brim_tensor *x);
/* Returns the gradient to which the next node that uses x adds. x is a tensor without samples, or a parameter: its
 * first use gets the parameter's own gradient, and each further use another one (see brim_further). */
brim_tensor *brim_graph_next_gradient(brim_graph *g, brim_tensor *x);
/* The parameter whose value is this tensor, or NULL. */
const brim_parameter *brim_graph_parameter_of(const brim_graph *g, const brim_tensor *x);
bool brim_graph_is_frozen(const brim_graph *g, const brim_tensor *x);
/* Appends an existing node; for passes that rebuild the list of nodes. */
void brim_graph_append(brim_graph *g, brim_node *node);
/* Removes the nodes of the backward pass, for passes that append them again from a copy of the list, with new nodes in
 * between. Until then the outputs of these nodes have no producer. */
void brim_graph_cut_backward(brim_graph *g);
/* The number of nodes of a training graph up to the one that adds up its metrics: the forward pass and, if
 * brim_graph_fuse_loss merged the loss with its gradient, that node too. After these nodes, the step's loss is
 * known. */
size_t brim_graph_to_loss(const brim_graph *g);
/* Appends a node like brim_graph_node, but returns its only output; NULL on error. */
brim_tensor *brim_graph_apply(brim_graph *g, const char *op, const char *name, brim_tensor *const *in,
                              uint32_t in_count, const brim_attr *attr);
/* Makes an activation of in[0]'s type with the given shape; for the infer functions of operations. */
brim_tensor *brim_graph_like(brim_graph *g, const brim_node *node, const brim_shape *shape);
/* The axis, counted from the end if negative; -1 with an error in the graph if x has no such axis. */
int32_t brim_graph_axis(brim_graph *g, const char *op, const brim_tensor *x, int32_t axis);
/* Sets the graph's error if it has none yet: "conv2d 'conv1': ..." with file and line of the author's call. Returns the
 * status. */
brim_status brim_graph_fail(brim_graph *g, const char *op, const char *name, const char *format, ...) BRIM_PRINTF(4, 5);
/* For losses: sets the error that the model's output has the wrong shape for the task. */
brim_status brim_graph_fail_output(brim_graph *g, const brim_node *node, const brim_shape *shape);
/* Appends the backward pass of `loss`. `seed`: its gradient, or NULL if the loss is a loss operation, which computes
 * its own; EINVAL if such a loss depends on no trained parameter. */
brim_status brim_autodiff_run(brim_graph *g, brim_tensor *loss, brim_tensor *seed);
/* Appends the backward pass through tensors without samples: from the sums in g->further to the parameters, which
 * thereby get further gradients. brim_autodiff_run calls it, unless folds_later is set. */
brim_status brim_graph_fold(brim_graph *g);
/* Requests the gradient of a tensor that is not a parameter; call before brim_autodiff_run. */
void brim_autodiff_want(brim_graph *g, brim_tensor *x);
/* The requested gradient of a tensor; NULL if there is none. */
brim_tensor *brim_autodiff_gradient(const brim_graph *g, const brim_tensor *x);

/* A 64-bit hash of the parameters' names and shapes, which identifies models in checkpoints. */
uint64_t brim_graph_hash(const brim_graph *g);
/* Formats "[16, 3, 32, 32]" into `out`, and returns it. */
const char *brim_shape_format(char *out, size_t room, const brim_shape *shape);
#endif
