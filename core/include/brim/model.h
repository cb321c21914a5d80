/* For authors of models: a model plugin only builds the forward graph. brim derives the backward pass and the memory
 * plan.
 *
 *     static brim_status build(const void *self, brim_graph *g)
 *     {
 *       brim_tensor *x = brim_input(g);
 *       x = brim_relu(g, brim_linear(g, "fc1", brim_flatten(g, x), 128));
 *       brim_output(g, brim_linear(g, "fc2", x, brim_classes(g)));
 *       return BRIM_OK;
 *     }
 *
 * The graph records the first error, and every later call returns NULL. So calls need no checks: the NULL from a failed
 * call may be passed to the next one. Errors name the operation, the shapes, and the file and line of the call. All
 * functions are [init], on the thread that called build. The graph owns its tensors. A name must not contain spaces,
 * quotes or backslashes, and has at most 200 bytes. Parameters have the names of PyTorch's state_dict ("fc1.weight",
 * "fc1.bias") and the initial values of the PyTorch modules of the same name. */
#ifndef BRIM_MODEL_H
#define BRIM_MODEL_H
#include "brim/ops.h"
#include "brim/plugin.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_graph brim_graph;

/* How a model uses the model of the group `backbone`. Since ABI 1.5 */
enum brim_wraps {
  BRIM_WRAPS_NOTHING,
  BRIM_WRAPS_BACKBONE, /* builds it with brim_backbone */
  BRIM_WRAPS_FEATURES  /* also builds it, but trains nothing before its features: brim computes the features once */
};

typedef struct brim_model_ops {
  uint32_t size;
  /* [init] Builds the model's graph; called once per batch shape, on any thread. Must build the same graph each time,
   * apart from N. `self` is the instance, or the parameters if create is NULL. */
  brim_status (*build)(const void *self, brim_graph *g);
  int32_t wraps; /* enum brim_wraps. Since ABI 1.5 */
  /* [init] The result of brim_classes for BRIM_TASK_TOKENS. `tokens`: the dataset's number of tokens, and the least
   * allowed result; an embedding may have more rows than the tokenizer has tokens. NULL: `tokens`. Since ABI 1.12. */
  int64_t (*classes)(const void *self, int64_t tokens);
} brim_model_ops;

/* The input samples: real numbers [N, ...], in the shape that the dataset describes, or tokens [N, T] (I32) for
 * brim_embedding. */
BRIM_EXPORT brim_tensor *brim_input(brim_graph *g);
/* The place of each token in its document, [N, T] (I32), if samples consist of several documents
 * (brim_dataset_info.documents); else NULL. brim_attention and brim_rotary use the places by themselves, so only a
 * model that adds embeddings of positions calls this:
 *
 *     brim_tensor *places = brim_positions(g);
 *     x = brim_add(g, x, places ? brim_embedding_with(g, places, table) : brim_slice(g, table, 0, 0, T));
 *
 * With documents, building a model that does not use the places fails. Since ABI 1.12. */
BRIM_EXPORT brim_tensor *brim_positions(brim_graph *g);
/* The maximum number of tokens of a text: T of the input [N, T] or, in generation with a cache of keys and values, the
 * cache's capacity. Models need it if their rotary embedding depends on this length. Since ABI 1.12. */
BRIM_EXPORT int64_t brim_capacity(const brim_graph *g);
/* The size of the model's output: the number of classes, of tokens in the vocabulary, or of targets
 * (BRIM_TASK_VALUES). */
BRIM_EXPORT int64_t brim_classes(const brim_graph *g);
/* The task: enum brim_task (brim/dataset.h). Since ABI 1.5 */
BRIM_EXPORT int32_t brim_task_of(const brim_graph *g);
/* Sets the model's output; call it exactly once. For classes: logits [N, classes], without softmax, which the losses
 * apply. For tokens: logits [N, T, vocabulary]; those at position t predict the label at t. For real numbers: [N,
 * targets]. */
BRIM_EXPORT void brim_output(brim_graph *g, brim_tensor *logits);
/* Marks x as the end of a block, and returns it: memory.recompute=blocks and full keep the ends of blocks and recompute
 * the activations between them. If a model never calls it, a block ends wherever all later operations depend on a
 * single tensor. */
BRIM_EXPORT brim_tensor *brim_block(brim_graph *g, brim_tensor *x);
/* The shape of a tensor; rank 0 for NULL. */
BRIM_EXPORT brim_shape brim_shape_of(const brim_tensor *x);

/* ---- models that wrap another model; since ABI 1.5 ---- */

/* Marks x [N, ..., F], the input of the model's head, as the model's features, and returns it. A model with a head
 * calls it once, so that it can be the backbone of another model; otherwise it has no effect:
 *     brim_output(g, brim_linear(g, "head", brim_features(g, x), brim_classes(g))); */
BRIM_EXPORT brim_tensor *brim_features(brim_graph *g, brim_tensor *x);
/* Builds the model of the group `backbone` on brim_input, without its head, and returns its features. Its parameters
 * keep their names and are frozen: they have no gradient and no optimizer state. Its batch norms use their running
 * statistics and do not update them, and its dropout is off, in training too. May be called once, by a model whose
 * `wraps` is set. */
BRIM_EXPORT brim_tensor *brim_backbone(brim_graph *g);
/* Builds the whole backbone instead of calling brim_backbone, with its head, which is frozen too, and returns its
 * output. For models whose pretrained head is kept, such as language models, whose head is the token embedding. Not
 * allowed with BRIM_WRAPS_FEATURES. */
BRIM_EXPORT brim_tensor *brim_backbone_output(brim_graph *g);
typedef struct brim_lora_options {
  uint32_t size;  /* sizeof(brim_lora_options) */
  int64_t r;      /* rank of the weight update; at least 1 */
  double alpha;   /* the update is scaled by alpha / r */
  double dropout; /* dropout of the update's input in training; [0, 1) */
  /* Names of linear layers: a target matches its own name and names that end in ".<target>". The suffix ":q", ":k" or
   * ":v" selects the first, second or last third of the outputs of a layer that computes all three. */
  brim_names targets;
} brim_lora_options;
/* Adds trainable low-rank updates to the backbone (Hu et al., LoRA, arXiv:2106.09685). Call it before brim_backbone.
 * Each linear layer before the features that matches a target computes y = W x + b + alpha / r * B A dropout(x). The
 * parameters are "<layer>.lora_A.weight" [r, F], initialised as torch.nn.Linear's weight, and "<layer>.lora_B.weight"
 * [O, r], initialised to 0; for a third of a layer "<layer>.q.lora_A.weight". If no layer matches, building the
 * backbone fails with an error that lists the layers. */
BRIM_EXPORT void brim_lora(brim_graph *g, const brim_lora_options *options);

/* ---- parameters ---- */

/* Initial values of a parameter. constant: `value`; uniform: in [-value, value]; normal: mean 0, standard deviation
 * `value`. */
enum brim_init_kind { BRIM_INIT_CONSTANT, BRIM_INIT_UNIFORM, BRIM_INIT_NORMAL };
typedef struct brim_init {
  int32_t kind; /* enum brim_init_kind */
  double value;
} brim_init;
/* Creates a parameter with `rank` dimensions from dim[], none of which is N: for example a position embedding for
 * brim_add, or weights for brim_linear_with and brim_embedding_with.
 *
 * A parameter may be used several times (tied weights). The gradients of all uses are added up once a step, and each
 * use after the first needs as much memory as the parameter. A tensor computed from parameters alone (a slice of one,
 * its norm, the product of two) may be combined with samples in brim_add, brim_sub, brim_mul and brim_div; each such
 * use needs as much memory as the operand. brim_concat, brim_matmul, brim_attention and others do not combine the two.
 * Results and gradients are bit-identical for all micro-batches (see training.grain). */
BRIM_EXPORT brim_tensor *brim_parameter_new(brim_graph *g, const char *name, int32_t rank, const int64_t *dim,
                                            brim_init init);
/* Replaces the default initial values of a layer's parameter. `name` is the parameter's; the layer must exist:
 *     x = brim_conv2d(g, "conv1", ...);
 *     brim_set_init(g, "conv1.weight", (brim_init){BRIM_INIT_NORMAL, 0.1});
 * Since ABI 1.5. */
BRIM_EXPORT void brim_set_init(brim_graph *g, const char *name, brim_init init);

/* ---- products ---- */

/* x [N, ..., F], rank 2 or more -> [N, ..., out_features]. It works on the last dimension: for images call brim_flatten
 * first, or brim_permute to mix the channels of each pixel. */
BRIM_EXPORT brim_tensor *brim_linear(brim_graph *g, const char *name, brim_tensor *x, int64_t out_features);
BRIM_EXPORT brim_tensor *brim_linear_no_bias(brim_graph *g, const char *name, brim_tensor *x, int64_t out_features);
/* A linear layer with existing parameters (tied weights): weight [O, F], bias [O] or NULL. x [..., F] has rank 2 or
 * more. */
BRIM_EXPORT brim_tensor *brim_linear_with(brim_graph *g, const char *name, brim_tensor *x, brim_tensor *weight,
                                          brim_tensor *bias);
/* a [N, ..., M, K] times b [N, ..., K, P]; transpose_a and transpose_b first swap the operand's last two dimensions. */
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
 * as torch.nn.ConvTranspose2d; output_padding is less than the stride or the dilation. To double height and width:
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
/* index [N, ...] (i32) -> [N, ..., dim]: looks up rows of a new parameter [count, dim], or of an existing one. An index
 * outside [0, count) stops the run with an error. With a dataset of tokens, brim_input is such an index. */
BRIM_EXPORT brim_tensor *brim_embedding(brim_graph *g, const char *name, brim_tensor *index, int64_t count,
                                        int64_t dim);
BRIM_EXPORT brim_tensor *brim_embedding_with(brim_graph *g, brim_tensor *index, brim_tensor *weight);

/* ---- pooling and upsampling ---- */

typedef struct brim_pool2d_options {
  int64_t kernel[2], stride[2], padding[2]; /* stride 0: the kernel's */
  int32_t exclude_padding;                  /* average pooling: PyTorch's count_include_pad=False */
} brim_pool2d_options;
/* x [N,C,H,W] -> [N, C, (H+2p-k)/s+1, (W+2p-k)/s+1]; padding is at most half the kernel. A window of max_pool has at
 * most 256 values. */
BRIM_EXPORT brim_tensor *brim_max_pool2d(brim_graph *g, brim_tensor *x, brim_pool2d_options options);
BRIM_EXPORT brim_tensor *brim_avg_pool2d(brim_graph *g, brim_tensor *x, brim_pool2d_options options);
/* x [N,C,L] -> [N,C,M]; stride 0: the kernel's. */
BRIM_EXPORT brim_tensor *brim_max_pool1d(brim_graph *g, brim_tensor *x, int64_t kernel, int64_t stride,
                                         int64_t padding);
/* x [N,C,H,W] -> [N,C,height,width], for any H and W. */
BRIM_EXPORT brim_tensor *brim_adaptive_avg_pool2d(brim_graph *g, brim_tensor *x, int64_t height, int64_t width);
/* x [N,C,...] -> [N,C], the mean over all positions. */
BRIM_EXPORT brim_tensor *brim_global_avg_pool(brim_graph *g, brim_tensor *x);

typedef struct brim_upsample2d_options {
  int64_t size[2];       /* height and width of the result. For each dimension set either this */
  int64_t factor[2];     /* or the factor by which it is larger than x's; leave the other 0 */
  int32_t mode;          /* enum brim_upsample_mode (brim/ops.h); LINEAR: bilinear */
  int32_t align_corners; /* LINEAR only: align the centers of the corner values of x and y */
} brim_upsample2d_options;
/* x [N,C,H,W] -> [N, C, P, Q], as torch.nn.functional.interpolate:
 *     brim_upsample2d(g, x, (brim_upsample2d_options){.factor = {2, 2}, .mode = BRIM_UPSAMPLE_LINEAR})
 * It also shrinks images, by the same formula. Since ABI 1.7. */
BRIM_EXPORT brim_tensor *brim_upsample2d(brim_graph *g, brim_tensor *x, brim_upsample2d_options options);
typedef struct brim_upsample1d_options {
  int64_t size, factor; /* set one of them, as for two dimensions */
  int32_t mode, align_corners;
} brim_upsample1d_options;
/* x [N,C,L] -> [N,C,M]. Since ABI 1.7. */
BRIM_EXPORT brim_tensor *brim_upsample1d(brim_graph *g, brim_tensor *x, brim_upsample1d_options options);

/* ---- normalisation; PyTorch's eps is 1e-5, its momentum 0.1 ---- */

/* x [N,C] or [N,C,...]. In training, statistics are taken over groups of training.norm_group samples, so they do not
 * depend on the micro-batch. Parameters: weight, bias. Buffers: running_mean, running_var. */
BRIM_EXPORT brim_tensor *brim_batch_norm(brim_graph *g, const char *name, brim_tensor *x, double eps, double momentum);
/* x [N,C,...]; groups divides C. */
BRIM_EXPORT brim_tensor *brim_group_norm(brim_graph *g, const char *name, brim_tensor *x, int64_t groups, double eps);
/* x [...,F]; normalises over the last dimension. */
BRIM_EXPORT brim_tensor *brim_layer_norm(brim_graph *g, const char *name, brim_tensor *x, double eps);
BRIM_EXPORT brim_tensor *brim_rms_norm(brim_graph *g, const char *name, brim_tensor *x, double eps);
/* Like brim_rms_norm, with weight + offset instead of weight; the initial weight is 1 - offset. Gemma's norms have the
 * offset 1. The sum is not rounded to the type of stored weights. Since ABI 1.12. */
BRIM_EXPORT brim_tensor *brim_rms_norm_offset(brim_graph *g, const char *name, brim_tensor *x, double eps,
                                              double offset);

/* ---- elementwise ---- */

BRIM_EXPORT brim_tensor *brim_relu(brim_graph *g, brim_tensor *x);
BRIM_EXPORT brim_tensor *brim_leaky_relu(brim_graph *g, brim_tensor *x, double slope);
/* kind: enum brim_gelu */
BRIM_EXPORT brim_tensor *brim_gelu(brim_graph *g, brim_tensor *x, int32_t kind);
BRIM_EXPORT brim_tensor *brim_silu(brim_graph *g, brim_tensor *x);
BRIM_EXPORT brim_tensor *brim_sigmoid(brim_graph *g, brim_tensor *x);
BRIM_EXPORT brim_tensor *brim_tanh(brim_graph *g, brim_tensor *x);
BRIM_EXPORT brim_tensor *brim_exp(brim_graph *g, brim_tensor *x);
BRIM_EXPORT brim_tensor *brim_scale(brim_graph *g, brim_tensor *x, double factor);
/* cap * tanh(x / cap), which keeps values between -cap and cap. brim may fuse a call directly before brim_output with
 * the loss. Since ABI 1.12. */
BRIM_EXPORT brim_tensor *brim_softcap(brim_graph *g, brim_tensor *x, double cap);
/* In training, sets elements of x [N, ...] to 0 with probability p in [0, 1) and scales the others by 1/(1-p); in
 * evaluation returns x. */
BRIM_EXPORT brim_tensor *brim_dropout(brim_graph *g, brim_tensor *x, double p);

/* A named operand of a formula: the elements of a tensor, or a number. Since ABI 1.10. */
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
 * The tensors are samples, [N, ...], all of the same shape. Every backend supports it, and brim derives the gradient:
 * it is 0 through comparisons and sign(); min, max and where pass it to the selected operand, and min and max split it
 * in halves if their operands are equal. As in PyTorch, a derivative may be infinite where the formula is finite (sqrt
 * at 0). `name` is the operation's name in messages, and an operand whose name is NULL ends `operands`; the macros fill
 * in both. Since ABI 1.10. */
BRIM_EXPORT brim_tensor *brim_elementwise(brim_graph *g, const char *name, const char *formula,
                                          const brim_operand *operands);
#define brim_elementwise(g, formula, ...) BRIM_ELEMENTWISE(g, "elementwise", formula, __VA_ARGS__)
#define BRIM_ELEMENTWISE(g, name, formula, ...)                                                                        \
  (brim_elementwise)(brim_at((g), __FILE__, __LINE__), (name), (formula),                                              \
                     (const brim_operand[]){__VA_ARGS__, {NULL, NULL, 0, 0}})

/* Functions defined by formulas, equal to those of the same names in torch.nn.functional. One line adds a function with
 * its gradient to every backend; plugins can define their own in the same way. Since ABI 1.10. */
#define BRIM_FUNCTION(g, name, x, formula) BRIM_ELEMENTWISE(g, name, formula, BRIM_ELEMENTS("x", (x)))
#define brim_softplus(g, x) BRIM_FUNCTION(g, "softplus", x, "y = where(x > 20, x, log1p(exp(where(x > 20, 0, x))))")
#define brim_mish(g, x) BRIM_FUNCTION(g, "mish", x, "y = x * tanh(log1p(exp(where(x > 20, 20, x))))")
#define brim_hardswish(g, x) BRIM_FUNCTION(g, "hardswish", x, "y = where(x < 3, where(x > -3, x * (x + 3) / 6, 0), x)")

/* The product of an activation and a second tensor, as in gated MLPs (Shazeer, GLU Variants Improve Transformer,
 * arXiv:2002.05202). Only the two tensors are kept for the gradient. Since ABI 1.12. */
#define brim_silu_mul(g, gate, up)                                                                                     \
  BRIM_ELEMENTWISE(g, "silu_mul", "y = a * sigmoid(a) * b", BRIM_ELEMENTS("a", (gate)), BRIM_ELEMENTS("b", (up)))
#define brim_gelu_tanh_mul(g, gate, up)                                                                                \
  BRIM_ELEMENTWISE(g, "gelu_tanh_mul", "y = a * sigmoid(1.5957691216057308 * (a + 0.044715 * a * a * a)) * b",         \
                   BRIM_ELEMENTS("a", (gate)), BRIM_ELEMENTS("b", (up)))

/* The shapes broadcast as in NumPy. One operand may be a parameter. */
BRIM_EXPORT brim_tensor *brim_add(brim_graph *g, brim_tensor *a, brim_tensor *b);
BRIM_EXPORT brim_tensor *brim_sub(brim_graph *g, brim_tensor *a, brim_tensor *b);
BRIM_EXPORT brim_tensor *brim_mul(brim_graph *g, brim_tensor *a, brim_tensor *b);
BRIM_EXPORT brim_tensor *brim_div(brim_graph *g, brim_tensor *a, brim_tensor *b);
/* Over the last dimension. */
BRIM_EXPORT brim_tensor *brim_softmax(brim_graph *g, brim_tensor *x);
BRIM_EXPORT brim_tensor *brim_log_softmax(brim_graph *g, brim_tensor *x);

/* ---- reductions and shapes; a negative axis counts from the end; dimension 0 is N and does not change ---- */

/* Reduces over `count` axes; `keep`: keeps them as dimensions of size 1. */
BRIM_EXPORT brim_tensor *brim_sum(brim_graph *g, brim_tensor *x, int32_t count, const int32_t *axes, int keep);
BRIM_EXPORT brim_tensor *brim_mean(brim_graph *g, brim_tensor *x, int32_t count, const int32_t *axes, int keep);
/* Returns the same elements in another shape; one dimension may be -1. dim[0] must be N. */
BRIM_EXPORT brim_tensor *brim_reshape(brim_graph *g, brim_tensor *x, int32_t rank, const int64_t *dim);
/* [N, ...] -> [N, product of the other dimensions]. */
BRIM_EXPORT brim_tensor *brim_flatten(brim_graph *g, brim_tensor *x);
/* Swaps two axes. */
BRIM_EXPORT brim_tensor *brim_transpose(brim_graph *g, brim_tensor *x, int32_t axis_a, int32_t axis_b);
/* Dimension d of the result is dimension order[d] of x; order has one number per dimension of x. */
BRIM_EXPORT brim_tensor *brim_permute(brim_graph *g, brim_tensor *x, const int32_t *order);
/* Concatenates along `axis`; all other dimensions must be equal. */
BRIM_EXPORT brim_tensor *brim_concat(brim_graph *g, int32_t count, brim_tensor *const *x, int32_t axis);
/* `length` values along `axis`, beginning at `start`. Axis 0 is allowed only for a parameter, or a tensor computed from
 * parameters alone. */
BRIM_EXPORT brim_tensor *brim_slice(brim_graph *g, brim_tensor *x, int32_t axis, int64_t start, int64_t length);
/* Splits x into `count` equal parts along `axis`, and writes them to out[]. */
BRIM_EXPORT void brim_split(brim_graph *g, brim_tensor *x, int32_t axis, int32_t count, brim_tensor **out);
/* Adds before[d] values `value` at the start and after[d] at the end of dimension d; both must be 0 for dimension 0. */
BRIM_EXPORT brim_tensor *brim_pad(brim_graph *g, brim_tensor *x, const int64_t *before, const int64_t *after,
                                  double value);
/* Gathers as torch.gather does: result[i][j] = x[i][index[i][j]] along `axis`. index is I32; its shape may differ from
 * x's only along `axis`. */
BRIM_EXPORT brim_tensor *brim_gather(brim_graph *g, brim_tensor *x, int32_t axis, brim_tensor *index);

/* ---- sequences ---- */

typedef struct brim_attention_options {
  int64_t heads;
  int64_t kv_heads; /* 0: same as heads; otherwise must divide heads */
  int32_t causal;
  double scale;   /* 0: 1 / sqrt(size of a head) */
  double dropout; /* of the attention weights, in training */
} brim_attention_options;
/* q [N,T,heads*D], k and v [N,S,kv_heads*D] -> [N,T,heads*D]. No parameters. If samples consist of several documents, a
 * query sees its own document only, and the attention must be causal, with S = T: see brim_positions. */
BRIM_EXPORT brim_tensor *brim_attention(brim_graph *g, brim_tensor *q, brim_tensor *k, brim_tensor *v,
                                        brim_attention_options options);
typedef struct brim_attention_limits {
  uint32_t size;
  int64_t window; /* a query sees at most the last `window` keys, itself included; needs causal. 0: no limit */
  double softcap; /* scores x become softcap * tanh(x / softcap), as in Gemma 2; 0: no cap */
} brim_attention_limits;
/* limits NULL: brim_attention. Since ABI 1.12 */
BRIM_EXPORT brim_tensor *brim_attention_limited(brim_graph *g, brim_tensor *q, brim_tensor *k, brim_tensor *v,
                                                brim_attention_options options, const brim_attention_limits *limits);
typedef struct brim_rotary_options {
  int64_t heads;
  int64_t dims;        /* leading elements of each head to rotate; 0: all */
  double base;         /* 0: 10000 */
  int32_t interleaved; /* 1: pairs are neighbours; 0: one element from each half */
} brim_rotary_options;
/* Rotary position embedding of q or k: x [N,T,heads*D]. A token's position is its place in its document: see
 * brim_positions. */
BRIM_EXPORT brim_tensor *brim_rotary(brim_graph *g, brim_tensor *x, brim_rotary_options options);
/* Frequencies for samples that are longer than those of the first training, as the rope_type of Hugging Face's
 * transformers: linear (Chen et al. 2023, arXiv:2306.15595), llama3 (Llama 3.1), yarn (Peng et al. 2023,
 * arXiv:2309.00071), longrope (Ding et al. 2024, arXiv:2402.13753), which divides each frequency by a number of its
 * own. A frequency's turns are the rotations within `original` positions. */
enum brim_rotary_kind {
  BRIM_ROTARY_PLAIN,
  BRIM_ROTARY_LINEAR,
  BRIM_ROTARY_LLAMA3,
  BRIM_ROTARY_YARN,
  BRIM_ROTARY_LONGROPE
};
typedef struct brim_rotary_scaling {
  uint32_t size;
  int32_t kind;          /* enum brim_rotary_kind */
  double factor;         /* at least 1: divides frequencies; with llama3 and yarn, those of few turns */
  double low, high;      /* turns: frequencies below `low` are divided, those above `high` are not */
  double original;       /* positions of the first training */
  double amplitude;      /* multiplies the rotated elements; 0: 1 */
  const double *divisor; /* longrope: each above 0; copied */
  int64_t divisors;      /* longrope: half of brim_rotary_options.dims, at most BRIM_ROTARY_DIVISORS_MAX */
} brim_rotary_scaling;
/* scaling NULL: brim_rotary. Since ABI 1.12 */
BRIM_EXPORT brim_tensor *brim_rotary_scaled(brim_graph *g, brim_tensor *x, brim_rotary_options options,
                                            const brim_rotary_scaling *scaling);
typedef struct brim_lstm_options {
  int32_t layers; /* 0 means 1 */
  int32_t bidirectional;
  double dropout; /* between layers, in training */
} brim_lstm_options;
/* x [N,T,F] -> [N, T, hidden] (twice hidden if bidirectional), as torch.nn.LSTM(batch_first=True), from state 0. */
BRIM_EXPORT brim_tensor *brim_lstm(brim_graph *g, const char *name, brim_tensor *x, int64_t hidden,
                                   brim_lstm_options options);

/* Records the source position of the next operation; the macros below call it. */
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
#define brim_rms_norm_offset(g, ...) brim_rms_norm_offset(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_relu(g, ...) brim_relu(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_leaky_relu(g, ...) brim_leaky_relu(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_gelu(g, ...) brim_gelu(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_silu(g, ...) brim_silu(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_sigmoid(g, ...) brim_sigmoid(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_tanh(g, ...) brim_tanh(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_exp(g, ...) brim_exp(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_scale(g, ...) brim_scale(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_softcap(g, ...) brim_softcap(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
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
#define brim_attention_limited(g, ...) brim_attention_limited(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_rotary(g, ...) brim_rotary(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_rotary_scaled(g, ...) brim_rotary_scaled(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
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
