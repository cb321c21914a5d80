/* A static graph: what a model builds, plus what autodiff adds, in the order of execution.
 *
 * A graph holds for one batch shape. Parameters are the same, in the same order, in every graph of a model;
 * they are told apart by their index. */
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
  brim_tensor *value, *gradient; /* gradient: NULL in graphs for evaluation */
  brim_init init;
  /* A buffer in PyTorch's sense: a moving average that no optimizer touches. Its "gradient" is the sum over the norm
   * groups of a step, and the update is the operation moving_average. */
  bool is_buffer;
  bool is_frozen;     /* of a backbone: never changed, without a gradient, and in no checkpoint */
  bool is_small;      /* frozen, and rounded to g->frozen_type, the type that it is kept in: see graph/lower.h */
  double momentum;    /* of a buffer */
  uint64_t name_hash; /* tells most names apart without comparing them */
  uint32_t uses;      /* nodes that add to its gradient */
} brim_parameter;

/* Does an optimizer work on it? */
static inline bool brim_parameter_is_trained(const brim_parameter *p)
{
  return !p->is_buffer && !p->is_frozen;
}

/* One more sum of gradients over the samples of a step, in their order however the batch is cut:
 *   - of a further use of a parameter. The update adds it to the parameter's gradient.
 *   - of a use, beside samples, of a tensor that is made of parameters alone (a slice of one). What flows from there to
 *     the parameters is computed once a step, of the sum: see brim_graph_fold. */
typedef struct brim_further {
  brim_tensor *gradient; /* "<name>.grad.2"; NULL in a graph that does not have it */
  size_t parameter;      /* index; BRIM_NO_PARAMETER: of a tensor that is made of parameters */
  brim_tensor *of;       /* that tensor, else NULL */
} brim_further;
#define BRIM_NO_PARAMETER SIZE_MAX

/* What an optimizer keeps of a parameter; its tensor is named as in checkpoints: "<parameter>.exp_avg". */
typedef struct brim_state {
  brim_tensor *tensor;
  size_t parameter; /* index */
  int64_t first;    /* of all elements of the state, the first that the tensor has: not 0 only with slices */
} brim_state;

/* What a rank updates of a parameter: see graph/shard.h. The tensors lie in those of the parameter, from its element
 * `first` on. */
typedef struct brim_own_slice {
  brim_tensor *value, *gradient; /* NULL: nothing of it */
  int64_t first;
} brim_own_slice;

/* The gradients of some parameters, one behind the other, and what a rank has of their sum over all ranks. */
typedef struct brim_gradient_shard {
  brim_tensor *all, *part; /* in training with gradients that are shared out: of this rank, and of it the own part */
  brim_tensor *own;        /* the own part of the sum, persistent */
} brim_gradient_shard;

/* Where a gradient lies that is part of a larger one. */
typedef struct brim_within {
  const brim_tensor *of; /* perhaps itself; NULL: of none */
  uint64_t at;           /* bytes */
} brim_within;

typedef struct brim_wrap brim_wrap;

struct brim_graph {
  brim_arena arena;
  brim_status status; /* the first error; its text in `error` */
  const char *error;
  const char *file; /* where the author's current call stands */
  int line;
  int64_t batch, classes; /* classes: numbers that the model answers with, see brim_classes */
  int32_t task;           /* enum brim_task */
  int64_t norm_group;     /* samples; at least 1 */
  bool uses_norm_group;   /* some operation has statistics of groups of samples */
  uint32_t real;          /* dtype of real numbers */
  bool training;
  bool folds_later;  /* see brim_graph_options */
  bool keeps_logits; /* brim_graph_fuse_loss has found what it looks for */
  bool builds_loss;  /* the loss is a plugin's graph: see graph/loss_build.h */
  brim_tensor **tensor;
  bool *has_samples; /* by tensor id: see brim_graph_has_samples */
  size_t tensor_count, tensor_room;
  brim_node **node;
  size_t node_count, node_room, forward_count; /* nodes before the backward pass */
  size_t first_update, first_average; /* of an update: the nodes of the first parameter; averages may be none */
  brim_parameter *parameter;          /* in the order of their values' ids */
  size_t parameter_count, parameter_room;
  uint32_t *slot; /* parameters by name: index + 1, or 0; see brim_graph_named_parameter */
  size_t slot_room;
  brim_further *further; /* in training: in the order of their gradients */
  size_t further_count, further_room;
  brim_tensor *input, *label, *output, *loss, *metrics; /* label: i32; real: BRIM_TASK_VALUES, or soft labels */
  brim_tensor *squares;      /* of the losses of a step's samples, their sum: f64 [1], persistent; NULL: nobody asks */
  brim_tensor *class_weight; /* [classes], persistent, written once; NULL: none */
  brim_tensor *gradient_scale; /* of an update: norm and factor, f64 [2], persistent; NULL: gradients as they are */
  brim_state *state;           /* of an update: what the optimizer keeps, in the order of the parameters */
  size_t state_count;
  bool offloads; /* the states live in host memory, and here only while their parameter is updated */
  bool *passes;  /* by tensor id: a gradient that lives only until its update in the backward pass; NULL: none does */
  size_t passes_count;
  brim_own_slice *slice;      /* of an update: by parameter; NULL: all of each */
  brim_gradient_shard *shard; /* of gradients that are shared out, in the order of graph/shard.h; NULL: none are */
  size_t shard_count;
  brim_within *within; /* by tensor id: gradients that live only until they are added up; NULL: none does */
  size_t within_count;
  brim_tensor *proof;                /* of a check: f64 [1], persistent; see brim_graph_build_check. NULL: none */
  uint32_t shared_first, shared_end; /* ids of tensors that lie in another plan's arena: see graph/federate.h */
  brim_tensor **global;              /* by parameter: its own in the global model; NULL: no node needs that */
  const brim_tensor *kept;           /* its memory holds it until the program has ended, to be read; NULL: none */
  uint64_t dropout_streams;
  brim_wrap *wrap;               /* of a model around another: graph/wrap.c; NULL: it is none */
  bool freezing;                 /* parameters made now are frozen, and their layers work as in evaluation */
  uint32_t frozen_type;          /* that frozen weights are kept in; 0: `real` */
  const brim_tensor **block_end; /* brim_block's */
  size_t block_end_count, block_end_room;
  bool (*offers)(const void *arg, const char *op); /* whether the backend has an operation; NULL: it has all */
  const void *offers_arg;
  size_t recomputed_count;   /* nodes that are clones, without views; see graph/recompute.h */
  uint64_t recomputed_flops; /* their work */
  bool *want;                /* by tensor id: brim_autodiff_want; allocated by the first */
  brim_tensor **gradient;    /* by tensor id, left by brim_autodiff_run */
  size_t want_count, gradient_count;
};

/* From so many classes on, what grows with their number is left out where it can be: the logits, if the loss can be
 * computed with the product that makes them inside (build.c), and always the confusion matrix. */
#define BRIM_MANY_CLASSES 4096
/* A confusion matrix of more classes is counted, for the figures that follow from it, and not written. */
#define BRIM_MATRIX_CLASSES_MAX 256
/* Metrics of an evaluation with so many real targets: see regression_metrics in brim/ops.h. */
#define BRIM_ERRORS_COUNT(targets) (3 + 3 * (targets))

/* A loss as a graph has it: an operation, or a plugin's graph (brim_loss_describe). */
typedef struct brim_graph_loss {
  const char *op;             /* "softmax_cross_entropy"; NULL: what `built` builds */
  const brim_loss_ops *built; /* called with `self` */
  const void *self;
  const char *id; /* of the plugin */
  brim_loss_attr attr;
} brim_graph_loss;

typedef struct brim_graph_options {
  const brim_model_ops *model;
  const void *model_self;
  const brim_model_ops *backbone; /* that the model builds its own around; NULL: none */
  const void *backbone_self;
  const char *backbone_id;
  uint32_t frozen_type; /* that weights of the backbone are kept in; 0: `real` */
  bool given_features;  /* the samples are the backbone's features: see BRIM_WRAPS_FEATURES */
  brim_graph_loss loss;
  int32_t top_k;          /* of evaluation; 0: off */
  bool class_weights;     /* the loss has weights [classes] for an input */
  bool soft_labels;       /* of BRIM_TASK_CLASS: in training labels are shares of the classes, [N, classes] */
  brim_shape sample;      /* without N */
  int32_t task;           /* enum brim_task */
  int64_t classes, batch; /* classes: see brim_classes */
  int64_t norm_group;     /* samples whose statistics batch norm takes together; 0: all */
  uint32_t real;
  uint32_t activations; /* the type they are kept in; 0: `real`. See graph/lower.h */
  bool training;        /* with dropout, gradients */
  bool folds_later;     /* the backward pass ends at tensors that are made of parameters; the update does the rest */
  bool squares;         /* of losses are added up too */
  bool keep_output;     /* the output is read after the program */
  bool keep_features;   /* the features of the backbone are */
  uint64_t fuse;        /* of enum brim_fusion_kind: what may become one operation */
  /* Whether the backend has an operation; NULL: it has all. Fusion is done only where it has the fused one. */
  bool (*offers)(const void *arg, const char *op);
  const void *offers_arg;
} brim_graph_options;

/* Builds a model's graph, its loss and metrics, and when training its backward pass. ECONFIG/EINVAL with the
 * author's file and line. *out is set only on success. */
brim_status brim_graph_build(const brim_graph_options *options, brim_graph **out);
/* The optimizer's pass over the parameters. */
typedef struct brim_update_options {
  const char *op;                /* "adamw": of one parameter; "formula" of formulas; NULL: no training */
  const char *formula;           /* brim/optimizer.h; NULL: another `op` */
  const char *const *scalars;    /* names for the formula, NULL behind the last */
  uint32_t state_count;          /* its states, each of the parameter's type and shape */
  const char *const *state_name; /* NULL: they are numbered */
  /* What is otherwise for a parameter, on *out, which says the above; NULL: nothing. */
  void (*form)(const void *params, const brim_tensor *parameter, brim_update_form *out);
  /* What differs from parameter to parameter; NULL: nothing. */
  void (*attr)(const void *params, const brim_tensor *parameter, brim_update_attr *out);
  /* Updates of several operations: brim_optimizer_ops.build. */
  void (*build)(const void *params, const brim_tensor *parameter, brim_update *u);
  const char *evaluated; /* brim_optimizer_ops.evaluated */
  const void *params;
  bool in_backward; /* each parameter is updated in the backward pass, as soon as its gradient is complete */
  bool steered;     /* of a client: gradients first get steer's part, so that it counts in their norm */
  bool scaled;      /* gradients are multiplied by step.gradient_scale, and by what limits their norm */
  double max_norm;  /* of all gradients, so scaled; 0: no limit. Needs `scaled` */
  double ema_decay; /* of moving averages of the parameters, which evaluation uses in their place; 0: none */
  bool checked;     /* a program before the update says whether all gradients are finite */
  bool offloaded;   /* states live in host memory: see brim_graph_offloaded */
  const struct brim_shards *shards; /* what of the parameters is updated; NULL: all of them. See graph/shard.h */
} brim_update_options;
/* Does evaluation use averages, or what the optimizer makes of parameters, in the place of these? */
static inline bool brim_update_has_averages(const brim_update_options *options)
{
  return options->ema_decay > 0 || options->evaluated;
}
/* One node a parameter of `like`, and one for its average; before them those that steer gradients, and find their
 * scale, if they need that. With `in_backward` only buffers and averages have nodes here. */
brim_status brim_graph_build_update(const brim_graph *like, const brim_update_options *options, brim_graph **out);
/* What an update may depend on: `proof`, the sum of the step's losses and of the squares of all gradients, those of
 * buffers too. It is finite if every one of them is. With shards (NULL: none) those of the own part, so the sum over
 * all ranks is the proof. */
brim_status brim_graph_build_check(const brim_graph *like, const struct brim_shards *shards, brim_graph **out);
/* With `in_backward`: puts the updates into a graph of training, each behind the last node that uses the parameter or
 * adds to its gradient. Gradients live from the first such node to the update: `passes` says which. */
brim_status brim_graph_update_in_backward(brim_graph *g, const brim_update_options *options);
/* Does no node read a parameter after its update, but averages? EINTERNAL naming the two. */
brim_status brim_graph_check_updates(const brim_graph *g);
static inline bool brim_graph_passes(const brim_graph *g, const brim_tensor *t)
{
  return t->id < g->passes_count && g->passes[t->id];
}
/* The larger gradient that a tensor lies in; NULL: none. */
static inline const brim_tensor *brim_graph_within(const brim_graph *g, const brim_tensor *t)
{
  return t->id < g->within_count ? g->within[t->id].of : NULL;
}
/* Is it a gradient that lives only for a while? All others are persistent. */
static inline bool brim_graph_is_brief(const brim_graph *g, const brim_tensor *t)
{
  return brim_graph_passes(g, t) || brim_graph_within(g, t);
}
/* The index of the state that a tensor is, if it lives in host memory; -1: it does not. States are made one behind the
 * other, so their ids are too. */
static inline int64_t brim_graph_offloaded(const brim_graph *g, const brim_tensor *t)
{
  if (!g->offloads || t->role != BRIM_ROLE_OPTIMIZER || g->state_count == 0) return -1;
  const int64_t i = (int64_t)t->id - (int64_t)g->state[0].tensor->id;
  return i >= 0 && i < (int64_t)g->state_count ? i : -1;
}
void brim_graph_free(brim_graph *g);

/* An empty graph, for tests and for what is not a model. */
brim_graph *brim_graph_create(uint32_t real, int64_t batch, bool training);
/* Appends a node and makes its outputs by the operation's infer. On error returns NULL and the graph keeps it. */
brim_node *brim_graph_node(brim_graph *g, const char *op, const char *name, brim_tensor *const *in, uint32_t in_count,
                           const brim_attr *attr);
/* May an operation be built on x? False if the graph has failed; a NULL x then is an error of the author's. */
bool brim_graph_accepts(brim_graph *g, const char *op, const char *name, const brim_tensor *x);
/* The same, of an operation on real numbers: indices are an error too. */
bool brim_graph_accepts_real(brim_graph *g, const char *op, const char *name, const brim_tensor *x);
/* Has the author given a list? Else an error of the author's: "axes is NULL". */
bool brim_graph_needs_list(brim_graph *g, const char *op, const char *name, const void *list, const char *what);
/* Has x samples? Else an error of the author's. */
bool brim_graph_needs_samples(brim_graph *g, const char *op, const char *name, const brim_tensor *x);
/* Do either all of them have samples, or none? Otherwise a tensor without samples would fit only for the N that the
 * author wrote down, and the graph has an error. */
bool brim_graph_accepts_together(brim_graph *g, const char *op, const char *name, brim_tensor *const *x, size_t count);
/* May a layer with parameters be called so? If not, the graph has the error. */
bool brim_graph_named(brim_graph *g, const char *op, const char *name);
/* Appends a node whose outputs are given. */
brim_node *brim_graph_node_into(brim_graph *g, const char *op, const char *name, brim_tensor *const *in,
                                uint32_t in_count, brim_tensor *const *out, uint32_t out_count, const brim_attr *attr);
brim_tensor *brim_graph_tensor(brim_graph *g, uint32_t role, uint32_t dtype, const brim_shape *shape, const char *name);
/* NULL on error. */
brim_tensor *brim_graph_parameter(brim_graph *g, const char *name, const brim_shape *shape, brim_init init);
/* A moving average: see brim_parameter. */
brim_tensor *brim_graph_buffer(brim_graph *g, const char *name, const brim_shape *shape, brim_init init,
                               double momentum);
/* A layer's "<name>.<what>" uniform in [-bound, bound], as PyTorch's modules start. */
brim_tensor *brim_graph_weight(brim_graph *g, const char *name, const char *what, const brim_shape *shape,
                               double bound);
/* Is an activation computed from data (or is it data), so that its first dimension is N? A tensor made of parameters
 * alone has no samples: it is the same in every micro-batch. False for all but activations. */
static inline bool brim_graph_has_samples(const brim_graph *g, const brim_tensor *t)
{
  return g->has_samples[t->id];
}
/* Of a node of the forward pass. */
static inline bool brim_node_has_samples(const brim_graph *g, const brim_node *n)
{
  return brim_graph_has_samples(g, n->out[0]);
}
/* Removes the parameters from number `count` on; their names are free again. */
void brim_graph_cut_parameters(brim_graph *g, size_t count);
/* The parameter of this name, or NULL. */
brim_parameter *brim_graph_named_parameter(const brim_graph *g, const char *name);
/* The gradient of a parameter; NULL if x is none, or in graphs for evaluation. */
brim_tensor *brim_graph_gradient(const brim_graph *g, const brim_tensor *x);
/* The same for one more node that adds to it: the first one's is the parameter's own, see brim_further. Also of a
 * tensor without samples. */
brim_tensor *brim_graph_next_gradient(brim_graph *g, brim_tensor *x);
/* The parameter that a tensor is; NULL: it is none. */
const brim_parameter *brim_graph_parameter_of(const brim_graph *g, const brim_tensor *x);
bool brim_graph_is_frozen(const brim_graph *g, const brim_tensor *x);
/* Puts a node behind the others; for passes that go through the nodes again. */
void brim_graph_append(brim_graph *g, brim_node *node);
/* Takes the nodes of the backward pass out, for passes that append them again, from a copy of the list that they have
 * made, with others in between. What these nodes make has no producer until then. */
void brim_graph_cut_backward(brim_graph *g);
/* Nodes of a training graph up to the one that adds up its metrics: the forward pass, and where brim_graph_fuse_loss
 * made the loss and its gradient one node, that one too. The step's loss is known after these. */
size_t brim_graph_to_loss(const brim_graph *g);
/* The one output of brim_graph_node; NULL on error. */
brim_tensor *brim_graph_apply(brim_graph *g, const char *op, const char *name, brim_tensor *const *in,
                              uint32_t in_count, const brim_attr *attr);
/* An activation for an operation's infer: of in[0]'s type and a shape. */
brim_tensor *brim_graph_like(brim_graph *g, const brim_node *node, const brim_shape *shape);
/* Axis counted from the end if negative; -1 with an error in the graph if x has no such axis. */
int32_t brim_graph_axis(brim_graph *g, const char *op, const brim_tensor *x, int32_t axis);
/* Keeps the first error: "conv2d 'conv1': ..." with file and line of the author's call. Returns the status. */
brim_status brim_graph_fail(brim_graph *g, const char *op, const char *name, const char *format, ...) BRIM_PRINTF(4, 5);
/* For the losses: the model's output has another shape than the task asks for. */
brim_status brim_graph_fail_output(brim_graph *g, const brim_node *node, const brim_shape *shape);
/* Appends the backward pass of `loss`. `seed`: its gradient, or NULL if loss makes its own (a loss operation), which
 * then depends on a parameter that is trained, or is EINVAL. */
brim_status brim_autodiff_run(brim_graph *g, brim_tensor *loss, brim_tensor *seed);
/* Appends what flows from the sums of g->further through tensors without samples to the parameters, for which there
 * are further gradients then. brim_autodiff_run does so itself, but for graphs that fold later. */
brim_status brim_graph_fold(brim_graph *g);
/* Asks for the gradient of a tensor that is not a parameter; before brim_autodiff_run. */
void brim_autodiff_want(brim_graph *g, brim_tensor *x);
/* The gradient of a tensor that was asked for; NULL if none flows there. */
brim_tensor *brim_autodiff_gradient(const brim_graph *g, const brim_tensor *x);

/* 64-bit hash of the names and shapes of the parameters: tells models apart in checkpoints. */
uint64_t brim_graph_hash(const brim_graph *g);
/* "[16, 3, 32, 32]" into `out`, returned. */
const char *brim_shape_format(char *out, size_t room, const brim_shape *shape);
#endif
