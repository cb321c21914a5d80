/* For authors of models: a model plugin builds a forward graph and nothing else; brim derives the
 * backward pass, the memory plan and everything after it.
 *
 *     static brim_status build(const void *self, brim_graph *g)
 *     {
 *       brim_tensor *x = brim_input(g);
 *       x = brim_relu(g, brim_linear(g, "fc1", brim_flatten(g, x), 128));
 *       brim_output(g, brim_linear(g, "fc2", x, brim_classes(g)));
 *       return BRIM_OK;
 *     }
 *
 * The graph keeps its first error and every later call returns NULL quietly, so calls need no checks, and NULL that
 * came from a failed call may be passed on. Errors name the operation, the shapes, and the file and line of the call.
 * All functions: [init], the thread that called build. Tensors belong to the graph. A name has no spaces, quotes or
 * backslashes, and at most 200 bytes. Parameters are named as PyTorch's state_dict names them ("fc1.weight",
 * "fc1.bias") and initialised as PyTorch's modules of the same name are. */
#ifndef BRIM_MODEL_H
#define BRIM_MODEL_H
#include "brim/ops.h"
#include "brim/plugin.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_graph brim_graph;

/* What a model does with the model of the group `backbone`. Since ABI 1.5 */
enum brim_wraps {
  BRIM_WRAPS_NOTHING,
  BRIM_WRAPS_BACKBONE, /* it builds it, by brim_backbone */
  BRIM_WRAPS_FEATURES  /* likewise, and nothing in front of its features is trained: so they are computed once */
};

typedef struct brim_model_ops {
  uint32_t size;
  /* [init] Called once per batch shape, on any thread; must build the same graph each time, but for N.
   * `self` is the instance, or the parameters where create is NULL. */
  brim_status (*build)(const void *self, brim_graph *g);
  int32_t wraps; /* enum brim_wraps. Since ABI 1.5 */
} brim_model_ops;

/* The samples: [N, ...] as the dataset describes them, real numbers; of tokens [N, T] I32, for brim_embedding. */
BRIM_EXPORT brim_tensor *brim_input(brim_graph *g);
/* How many numbers the model is to answer with: the dataset's classes; of tokens how many there are in the vocabulary;
 * of real numbers (BRIM_TASK_VALUES) its targets. */
BRIM_EXPORT int64_t brim_classes(const brim_graph *g);
/* What samples are answered with: enum brim_task (brim/dataset.h). Since ABI 1.5 */
BRIM_EXPORT int32_t brim_task_of(const brim_graph *g);
/* Names the result: logits [N, classes], from which the losses make probabilities themselves; of tokens [N, T,
 * vocabulary], one after another: the one at t answers for the label at t; of real numbers [N, targets], as they are.
 * Exactly once. */
BRIM_EXPORT void brim_output(brim_graph *g, brim_tensor *logits);
/* A block of the model ends with x, which is returned: memory.recompute=blocks and full then keep the x of these calls,
 * and make again what lies between them. Without any such call, blocks end where a single tensor goes on. */
BRIM_EXPORT brim_tensor *brim_block(brim_graph *g, brim_tensor *x);
/* A tensor's shape; a shape of rank 0 for NULL. */
BRIM_EXPORT brim_shape brim_shape_of(const brim_tensor *x);

/* ---- models around a model; since ABI 1.5 ---- */

/* What the model knows of a sample, x [N, ..., F], in front of its head; returned. Every model that has a head calls it
 * once, so that it can be another's backbone; else nothing happens:
 *     brim_output(g, brim_linear(g, "head", brim_features(g, x), brim_classes(g))); */
BRIM_EXPORT brim_tensor *brim_features(brim_graph *g, brim_tensor *x);
/* Builds the model of the group `backbone` on brim_input and returns its features; what it has behind them is left out.
 * Its parameters keep their names and are frozen: no gradient, no optimizer state. In training too its norms go by
 * running statistics, which do not move, and nothing is dropped. Once, by a model whose table says what it wraps. */
BRIM_EXPORT brim_tensor *brim_backbone(brim_graph *g);
/* In its place: the backbone with all that it has behind its features, frozen too, and its output. For what was learnt
 * to answer so before, as language models were: their head is the embedding of the tokens. Not where features are
 * computed once (BRIM_WRAPS_FEATURES). */
BRIM_EXPORT brim_tensor *brim_backbone_output(brim_graph *g);
typedef struct brim_lora_options {
  uint32_t size;  /* sizeof(brim_lora_options) */
  int64_t r;      /* rank of a change of weights; at least 1 */
  double alpha;   /* it counts alpha / r times */
  double dropout; /* of what goes into it, while training; [0, 1) */
  /* Linear layers, by name: those called so, or whose names end in ".<target>". With ":q", ":k" or ":v" behind it, the
   * first, second or last third of the results of a layer that makes all three. */
  brim_names targets;
} brim_lora_options;
/* Before the backbone: each of its linear layers in front of its features that is a target gets a change of low rank
 * that is trained (Hu et al., LoRA, arXiv:2106.09685): y = W x + b + alpha / r * B A dropout(x). Parameters
 * "<layer>.lora_A.weight" [r, F], which starts as torch.nn.Linear's, and "<layer>.lora_B.weight" [O, r] from 0; of a
 * third "<layer>.q.lora_A.weight". An error of building the backbone if no layer is a target; it lists them. */
BRIM_EXPORT void brim_lora(brim_graph *g, const brim_lora_options *options);

/* ---- parameters ---- */

/* How a parameter starts. uniform: in [-value, value]; normal: mean 0, standard deviation `value`. */
enum brim_init_kind { BRIM_INIT_CONSTANT, BRIM_INIT_UNIFORM, BRIM_INIT_NORMAL };
typedef struct brim_init {
  int32_t kind; /* enum brim_init_kind */
  double value;
} brim_init;
/* A parameter of the model's own, `rank` dimensions from dim[], none of which is N: a position embedding for brim_add,
 * weights for brim_linear_with and brim_embedding_with.
 *
 * It may be used several times, as tied weights are: what the uses send back is added up once a step, and each use
 * after the first takes as much memory for that as the parameter. A tensor made of parameters alone (a slice of one,
 * its norm, the product of two) may be an operand of brim_add, brim_sub, brim_mul and brim_div beside samples, and each
 * such use takes as much memory as the operand; brim_concat, brim_matmul, brim_attention and others do not mix the two.
 * Results and gradients do not depend on the micro-batch (see training.grain), to the last bit. */
BRIM_EXPORT brim_tensor *brim_parameter_new(brim_graph *g, const char *name, int32_t rank, const int64_t *dim,
                                            brim_init init);
/* Has a layer's parameter start otherwise than PyTorch's modules do; `name` is the parameter's, of a layer that is
 * there: x = brim_conv2d(g, "conv1", ...); brim_set_init(g, "conv1.weight", (brim_init){BRIM_INIT_NORMAL, 0.1}); Since
 * ABI 1.5. */
BRIM_EXPORT void brim_set_init(brim_graph *g, const char *name, brim_init init);

/* ---- products ---- */

/* x [N, ..., F], of any rank from 2 on -> the same with out_features for F, the last dimension. So for images
 * brim_flatten comes first, or brim_permute where channels are to be mixed at each pixel. */
BRIM_EXPORT brim_tensor *brim_linear(brim_graph *g, const char *name, brim_tensor *x, int64_t out_features);
BRIM_EXPORT brim_tensor *brim_linear_no_bias(brim_graph *g, const char *name, brim_tensor *x, int64_t out_features);
/* With parameters that exist, as tied weights: weight [O, F], bias [O] or NULL. x [..., F] of any rank from 2 on. */
BRIM_EXPORT brim_tensor *brim_linear_with(brim_graph *g, const char *name, brim_tensor *x, brim_tensor *weight,
                                          brim_tensor *bias);
/* a [N, ..., M, K] times b [N, ..., K, P]; transposed: of their last two dimensions, before the product. */
BRIM_EXPORT brim_tensor *brim_matmul(brim_graph *g, brim_tensor *a, brim_tensor *b, int transpose_a, int transpose_b);
typedef struct brim_conv2d_options {
  int64_t kernel[2];                          /* height, width: always both */
  int64_t stride[2], padding[2], dilation[2]; /* stride and dilation: 0 means 1 */
  int64_t groups;                             /* 0 means 1 */
  int32_t no_bias;
} brim_conv2d_options;
/* x [N,C,H,W] -> [N, out_channels, P, Q], as torch.nn.Conv2d:
 *     brim_conv2d(g, "conv1", x, 32, (brim_conv2d_options){.kernel = {3, 3}, .padding = {1, 1}}) */
BRIM_EXPORT brim_tensor *brim_conv2d(brim_graph *g, const char *name, brim_tensor *x, int64_t out_channels,
                                     brim_conv2d_options options);
typedef struct brim_conv1d_options {
  int64_t kernel, stride, padding, dilation, groups; /* stride, dilation, groups: 0 means 1 */
  int32_t no_bias;
} brim_conv1d_options;
/* x [N,C,L] -> [N, out_channels, M], as torch.nn.Conv1d. */
BRIM_EXPORT brim_tensor *brim_conv1d(brim_graph *g, const char *name, brim_tensor *x, int64_t out_channels,
                                     brim_conv1d_options options);
typedef struct brim_conv_transpose2d_options {
  int64_t kernel[2];                                             /* height, width: always both */
  int64_t stride[2], padding[2], output_padding[2], dilation[2]; /* stride and dilation: 0 means 1 */
  int64_t groups;                                                /* 0 means 1 */
  int32_t no_bias;
} brim_conv_transpose2d_options;
/* x [N,C,H,W] -> [N, out_channels, P, Q] with P = (H-1)*stride - 2*padding + dilation*(kernel-1) + 1 + output_padding,
 * as torch.nn.ConvTranspose2d; output_padding is less than the stride or the dilation. Twice as high and wide:
 *     brim_conv_transpose2d(g, "up1", x, 32, (brim_conv_transpose2d_options){.kernel = {2, 2}, .stride = {2, 2}})
 * Since ABI 1.7. */
BRIM_EXPORT brim_tensor *brim_conv_transpose2d(brim_graph *g, const char *name, brim_tensor *x, int64_t out_channels,
                                               brim_conv_transpose2d_options options);
typedef struct brim_conv_transpose1d_options {
  int64_t kernel, stride, padding, output_padding, dilation, groups; /* stride, dilation, groups: 0 means 1 */
  int32_t no_bias;
} brim_conv_transpose1d_options;
/* x [N,C,L] -> [N, out_channels, M], as torch.nn.ConvTranspose1d. Since ABI 1.7. */
BRIM_EXPORT brim_tensor *brim_conv_transpose1d(brim_graph *g, const char *name, brim_tensor *x, int64_t out_channels,
                                               brim_conv_transpose1d_options options);
/* index [N, ...] (i32) -> [N, ..., dim]: rows of a parameter [count, dim], or of one that exists. An index outside of
 * [0, count) stops the run with an error. Of a dataset of tokens brim_input is such an index. */
BRIM_EXPORT brim_tensor *brim_embedding(brim_graph *g, const char *name, brim_tensor *index, int64_t count,
                                        int64_t dim);
BRIM_EXPORT brim_tensor *brim_embedding_with(brim_graph *g, brim_tensor *index, brim_tensor *weight);

/* ---- pooling, and its opposite ---- */

typedef struct brim_pool2d_options {
  int64_t kernel[2], stride[2], padding[2]; /* stride 0: the kernel's */
  int32_t exclude_padding;                  /* average: torch's count_include_pad=False */
} brim_pool2d_options;
/* x [N,C,H,W] -> [N, C, (H+2p-k)/s+1, (W+2p-k)/s+1]; padding is at most half the kernel, and a window of max_pool has
 * at most 256 values. */
BRIM_EXPORT brim_tensor *brim_max_pool2d(brim_graph *g, brim_tensor *x, brim_pool2d_options options);
BRIM_EXPORT brim_tensor *brim_avg_pool2d(brim_graph *g, brim_tensor *x, brim_pool2d_options options);
/* x [N,C,L] -> [N,C,M]; stride 0: the kernel's. */
BRIM_EXPORT brim_tensor *brim_max_pool1d(brim_graph *g, brim_tensor *x, int64_t kernel, int64_t stride,
                                         int64_t padding);
/* x [N,C,H,W] -> [N,C,height,width], whatever H and W are. */
BRIM_EXPORT brim_tensor *brim_adaptive_avg_pool2d(brim_graph *g, brim_tensor *x, int64_t height, int64_t width);
/* x [N,C,...] -> [N,C], the mean over all places. */
BRIM_EXPORT brim_tensor *brim_global_avg_pool(brim_graph *g, brim_tensor *x);

typedef struct brim_upsample2d_options {
  int64_t size[2];       /* of the result: height, width. For each of the two, either this */
  int64_t factor[2];     /* or how many times as long it is as x's; the other is 0 */
  int32_t mode;          /* enum brim_upsample_mode (brim/ops.h); LINEAR: bilinear */
  int32_t align_corners; /* of LINEAR: the outermost values lie over each other */
} brim_upsample2d_options;
/* x [N,C,H,W] -> [N, C, P, Q], as torch.nn.functional.interpolate:
 *     brim_upsample2d(g, x, (brim_upsample2d_options){.factor = {2, 2}, .mode = BRIM_UPSAMPLE_LINEAR})
 * It makes images smaller too, by the same formula. Since ABI 1.7. */
BRIM_EXPORT brim_tensor *brim_upsample2d(brim_graph *g, brim_tensor *x, brim_upsample2d_options options);
typedef struct brim_upsample1d_options {
  int64_t size, factor; /* as of two dimensions */
  int32_t mode, align_corners;
} brim_upsample1d_options;
/* x [N,C,L] -> [N,C,M]. Since ABI 1.7. */
BRIM_EXPORT brim_tensor *brim_upsample1d(brim_graph *g, brim_tensor *x, brim_upsample1d_options options);

/* ---- normalisation; PyTorch's eps is 1e-5, its momentum 0.1 ---- */

/* x [N,C] or [N,C,...]. While training, statistics are taken over groups of training.norm_group samples, so they do
 * not depend on the micro-batch. Parameters weight, bias; buffers running_mean, running_var. */
BRIM_EXPORT brim_tensor *brim_batch_norm(brim_graph *g, const char *name, brim_tensor *x, double eps, double momentum);
/* x [N,C,...]; groups divides C. */
BRIM_EXPORT brim_tensor *brim_group_norm(brim_graph *g, const char *name, brim_tensor *x, int64_t groups, double eps);
/* x [...,F], over the last dimension. */
BRIM_EXPORT brim_tensor *brim_layer_norm(brim_graph *g, const char *name, brim_tensor *x, double eps);
BRIM_EXPORT brim_tensor *brim_rms_norm(brim_graph *g, const char *name, brim_tensor *x, double eps);

/* ---- element by element ---- */

BRIM_EXPORT brim_tensor *brim_relu(brim_graph *g, brim_tensor *x);
BRIM_EXPORT brim_tensor *brim_leaky_relu(brim_graph *g, brim_tensor *x, double slope);
/* kind: enum brim_gelu */
BRIM_EXPORT brim_tensor *brim_gelu(brim_graph *g, brim_tensor *x, int32_t kind);
BRIM_EXPORT brim_tensor *brim_silu(brim_graph *g, brim_tensor *x);
BRIM_EXPORT brim_tensor *brim_sigmoid(brim_graph *g, brim_tensor *x);
BRIM_EXPORT brim_tensor *brim_tanh(brim_graph *g, brim_tensor *x);
BRIM_EXPORT brim_tensor *brim_exp(brim_graph *g, brim_tensor *x);
BRIM_EXPORT brim_tensor *brim_scale(brim_graph *g, brim_tensor *x, double factor);
/* Drops elements of samples, x [N, ...], with probability p in [0, 1) while training and scales the others by 1/(1-p);
 * x itself in evaluation. */
BRIM_EXPORT brim_tensor *brim_dropout(brim_graph *g, brim_tensor *x, double p);

/* What a name in a formula stands for: the elements of a tensor, or a number. Since ABI 1.10. */
typedef struct brim_operand {
  const char *name;
  brim_tensor *elements;
  double number;
  int32_t is_number;
} brim_operand;
#define BRIM_ELEMENTS(name, tensor)                                                                                    \
  {                                                                                                                    \
    (name), (tensor), 0, 0                                                                                             \
  }
#define BRIM_NUMBER(name, value)                                                                                       \
  {                                                                                                                    \
    (name), NULL, (value), 1                                                                                           \
  }
#define BRIM_OPERANDS_MAX 9 /* tensors */
/* Computes each element of a new tensor by a formula (brim/formula.h), which gives the name y its value:
 *     brim_elementwise(g, "y = a * exp(-b * b / (2 * s * s))", BRIM_ELEMENTS("a", a), BRIM_ELEMENTS("b", b),
 *                      BRIM_NUMBER("s", 0.5))
 * The tensors are samples, [N, ...], and have one shape. Every backend runs it, and brim derives its gradient: 0
 * through comparisons and sign(), that of the operand that is taken through min, max and where, half to each if the
 * operands of min or max are equal. As in PyTorch a derivative may be infinite where the formula is finite (sqrt at 0).
 * `name` names the operation in messages; `operands` end with one whose name is NULL; the macros fill in both. Since
 * ABI 1.10. */
BRIM_EXPORT brim_tensor *brim_elementwise(brim_graph *g, const char *name, const char *formula,
                                          const brim_operand *operands);
#define brim_elementwise(g, formula, ...) BRIM_ELEMENTWISE(g, "elementwise", formula, __VA_ARGS__)
#define BRIM_ELEMENTWISE(g, name, formula, ...)                                                                        \
  (brim_elementwise)(brim_at((g), __FILE__, __LINE__), (name), (formula),                                              \
                     (const brim_operand[]){__VA_ARGS__, {NULL, NULL, 0, 0}})

/* Functions that are formulas. One line adds a function to every backend, with its gradient; a plugin may have lines of
 * its own. As torch.nn.functional's of the same names. Since ABI 1.10. */
#define BRIM_FUNCTION(g, name, x, formula) BRIM_ELEMENTWISE(g, name, formula, BRIM_ELEMENTS("x", (x)))
#define brim_softplus(g, x) BRIM_FUNCTION(g, "softplus", x, "y = where(x > 20, x, log1p(exp(where(x > 20, 0, x))))")
#define brim_mish(g, x) BRIM_FUNCTION(g, "mish", x, "y = x * tanh(log1p(exp(where(x > 20, 20, x))))")
#define brim_hardswish(g, x) BRIM_FUNCTION(g, "hardswish", x, "y = where(x < 3, where(x > -3, x * (x + 3) / 6, 0), x)")

/* Of shapes that broadcast to each other as NumPy's do; one of them may be a parameter. */
BRIM_EXPORT brim_tensor *brim_add(brim_graph *g, brim_tensor *a, brim_tensor *b);
BRIM_EXPORT brim_tensor *brim_sub(brim_graph *g, brim_tensor *a, brim_tensor *b);
BRIM_EXPORT brim_tensor *brim_mul(brim_graph *g, brim_tensor *a, brim_tensor *b);
BRIM_EXPORT brim_tensor *brim_div(brim_graph *g, brim_tensor *a, brim_tensor *b);
/* Over the last dimension. */
BRIM_EXPORT brim_tensor *brim_softmax(brim_graph *g, brim_tensor *x);
BRIM_EXPORT brim_tensor *brim_log_softmax(brim_graph *g, brim_tensor *x);

/* ---- sums, and moving values about. An axis may be negative: from the end. The first dimension is N and stays. ----
 */

/* Over `count` axes; with `keep` they stay, as dimensions of 1. */
BRIM_EXPORT brim_tensor *brim_sum(brim_graph *g, brim_tensor *x, int32_t count, const int32_t *axes, int keep);
BRIM_EXPORT brim_tensor *brim_mean(brim_graph *g, brim_tensor *x, int32_t count, const int32_t *axes, int keep);
/* The same elements in another shape; one dimension may be -1. dim[0] must be N. */
BRIM_EXPORT brim_tensor *brim_reshape(brim_graph *g, brim_tensor *x, int32_t rank, const int64_t *dim);
/* [N, ...] -> [N, product of the rest]. */
BRIM_EXPORT brim_tensor *brim_flatten(brim_graph *g, brim_tensor *x);
/* Two axes change places. */
BRIM_EXPORT brim_tensor *brim_transpose(brim_graph *g, brim_tensor *x, int32_t axis_a, int32_t axis_b);
/* Dimension d of the result is dimension order[d] of x; order has as many numbers as x has dimensions. */
BRIM_EXPORT brim_tensor *brim_permute(brim_graph *g, brim_tensor *x, const int32_t *order);
/* One after the other along `axis`; all other dimensions are equal. */
BRIM_EXPORT brim_tensor *brim_concat(brim_graph *g, int32_t count, brim_tensor *const *x, int32_t axis);
/* `length` values from `start` on along `axis`; of a parameter, or a tensor made of parameters alone, along axis 0 too.
 */
BRIM_EXPORT brim_tensor *brim_slice(brim_graph *g, brim_tensor *x, int32_t axis, int64_t start, int64_t length);
/* Into `count` equal parts along `axis`, which out[] gets. */
BRIM_EXPORT void brim_split(brim_graph *g, brim_tensor *x, int32_t axis, int32_t count, brim_tensor **out);
/* before[d] and after[d] times `value` in front of and behind dimension d; both 0 for dimension 0. */
BRIM_EXPORT brim_tensor *brim_pad(brim_graph *g, brim_tensor *x, const int64_t *before, const int64_t *after,
                                  double value);
/* index i32, of x's shape but along `axis`: result[i][j] = x[i][index[i][j]] along `axis`, as torch.gather. */
BRIM_EXPORT brim_tensor *brim_gather(brim_graph *g, brim_tensor *x, int32_t axis, brim_tensor *index);

/* ---- sequences ---- */

typedef struct brim_attention_options {
  int64_t heads;
  int64_t kv_heads; /* 0: heads; else divides it */
  int32_t causal;
  double scale;   /* 0: 1 / sqrt of a head's size */
  double dropout; /* of the attention's weights, while training */
} brim_attention_options;
/* q [N,T,heads*D], k and v [N,S,kv_heads*D] -> [N,T,heads*D]. No parameters. */
BRIM_EXPORT brim_tensor *brim_attention(brim_graph *g, brim_tensor *q, brim_tensor *k, brim_tensor *v,
                                        brim_attention_options options);
typedef struct brim_rotary_options {
  int64_t heads;
  int64_t dims;        /* of each head that are turned; 0: all */
  double base;         /* 0: 10000 */
  int32_t interleaved; /* 1: neighbours are a pair; 0: halves */
} brim_rotary_options;
/* Rotary position embedding of q or k: x [N,T,heads*D]. */
BRIM_EXPORT brim_tensor *brim_rotary(brim_graph *g, brim_tensor *x, brim_rotary_options options);
typedef struct brim_lstm_options {
  int32_t layers; /* 0 means 1 */
  int32_t bidirectional;
  double dropout; /* between layers, while training */
} brim_lstm_options;
/* x [N,T,F] -> [N, T, hidden] (twice hidden if bidirectional), as torch.nn.LSTM(batch_first=True), from state 0. */
BRIM_EXPORT brim_tensor *brim_lstm(brim_graph *g, const char *name, brim_tensor *x, int64_t hidden,
                                   brim_lstm_options options);

/* Remembers where in the author's file the next operation stands; the macros below call it. */
BRIM_EXPORT brim_graph *brim_at(brim_graph *g, const char *file, int line);
#define brim_parameter_new(g, ...) brim_parameter_new(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_set_init(g, ...) brim_set_init(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_linear(g, ...) brim_linear(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_linear_no_bias(g, ...) brim_linear_no_bias(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_linear_with(g, ...) brim_linear_with(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_matmul(g, ...) brim_matmul(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_conv2d(g, ...) brim_conv2d(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_conv1d(g, ...) brim_conv1d(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_conv_transpose2d(g, ...) brim_conv_transpose2d(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_conv_transpose1d(g, ...) brim_conv_transpose1d(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_embedding(g, ...) brim_embedding(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_embedding_with(g, ...) brim_embedding_with(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_max_pool2d(g, ...) brim_max_pool2d(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_avg_pool2d(g, ...) brim_avg_pool2d(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_max_pool1d(g, ...) brim_max_pool1d(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_adaptive_avg_pool2d(g, ...) brim_adaptive_avg_pool2d(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_global_avg_pool(g, ...) brim_global_avg_pool(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_upsample2d(g, ...) brim_upsample2d(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_upsample1d(g, ...) brim_upsample1d(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_batch_norm(g, ...) brim_batch_norm(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_group_norm(g, ...) brim_group_norm(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_layer_norm(g, ...) brim_layer_norm(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_rms_norm(g, ...) brim_rms_norm(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_relu(g, ...) brim_relu(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_leaky_relu(g, ...) brim_leaky_relu(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_gelu(g, ...) brim_gelu(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_silu(g, ...) brim_silu(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_sigmoid(g, ...) brim_sigmoid(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_tanh(g, ...) brim_tanh(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_exp(g, ...) brim_exp(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_scale(g, ...) brim_scale(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_dropout(g, ...) brim_dropout(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_add(g, ...) brim_add(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_sub(g, ...) brim_sub(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_mul(g, ...) brim_mul(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_div(g, ...) brim_div(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_softmax(g, ...) brim_softmax(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_log_softmax(g, ...) brim_log_softmax(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_sum(g, ...) brim_sum(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_mean(g, ...) brim_mean(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_reshape(g, ...) brim_reshape(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_flatten(g, ...) brim_flatten(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_transpose(g, ...) brim_transpose(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_permute(g, ...) brim_permute(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_concat(g, ...) brim_concat(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_slice(g, ...) brim_slice(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_split(g, ...) brim_split(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_pad(g, ...) brim_pad(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_gather(g, ...) brim_gather(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_attention(g, ...) brim_attention(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_rotary(g, ...) brim_rotary(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_lstm(g, ...) brim_lstm(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_block(g, ...) brim_block(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_output(g, ...) brim_output(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_features(g, ...) brim_features(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_backbone(g) brim_backbone(brim_at((g), __FILE__, __LINE__))
#define brim_backbone_output(g) brim_backbone_output(brim_at((g), __FILE__, __LINE__))
#define brim_lora(g, ...) brim_lora(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)

#ifdef __cplusplus
}
#endif
#endif
