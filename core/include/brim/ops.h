/* Operations: their attributes, and a node of a graph.
 *
 * The descriptor of each operation (shapes, gradient rule, traits, cost) lives in core/graph/ops/, one
 * file a family; what each computes, to the letter, is plugins/backend/reference. Here is what a
 * backend's kernel sees. Tensors are listed in the order of `in` and `out`; N is the micro-batch. */
#ifndef BRIM_OPS_H
#define BRIM_OPS_H
#include "brim/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_NODE_INPUTS_MAX 8
#define BRIM_NODE_OUTPUTS_MAX 4

/* conv2d               in: x [N,C,H,W], weight [K,C,R,S], bias [K]     out: y [N,K,P,Q]
 * conv2d_grad_input    in: dy, weight                                  out: dx
 * conv2d_grad_weight   in: x, dy                                       out: dweight +=, dbias +=  */
typedef struct brim_conv2d_attr {
  int64_t kernel[2], stride[2], padding[2]; /* height, width */
} brim_conv2d_attr;
/* max_pool2d           in: x [N,C,H,W]        out: y [N,C,P,Q], index u8 [N,C,P,Q]: row*S+column of the
 *                      first greatest value in its window (window at most 256 values; no padding)
 * max_pool2d_grad      in: dy, index          out: dx  */
typedef struct brim_pool2d_attr {
  int64_t kernel[2], stride[2];
} brim_pool2d_attr;
/* dropout              in: x                  out: y = x * mask / (1 - p)
 * dropout_grad         in: dy                 out: dx
 * The mask comes from brim_dropout_keep() in brim/random.h; nothing is stored. */
typedef struct brim_dropout_attr {
  double p;        /* probability of dropping, [0, 1) */
  uint64_t stream; /* tells apart the dropouts of one model */
} brim_dropout_attr;
/* adamw, adam          in: param, grad, m, v  out: param, m, v (in place)
 * sgd                  in: param, grad, velocity  out: param, velocity (in place)
 * Their hyperparameters come with the step (brim_step); here is what differs between parameters. All zero: the
 * plain form. */
typedef struct brim_update_attr {
  int32_t no_decay; /* 1: step.weight_decay counts as 0 */
  int32_t nesterov; /* sgd: 1: the gradient is taken where the velocity leads */
  int32_t scaled;   /* 1: one more input, last: f64 [2] of gradient_scale; the gradient is multiplied by its [1] */
} brim_update_attr;
/* ema                  in: param, average     out: average (in place): decay * average + (1 - decay) * param; in the
 *                      first step (step.step 0) param, as torch.optim.swa_utils.AveragedModel */
typedef struct brim_ema_attr {
  double decay; /* (0, 1) */
} brim_ema_attr;
/* squared_norm         in: x, [sum f64 [1]]   out: sum f64 [1]: of the squares of x, and the sum before it
 * gradient_scale       in: [sum f64 [1]]      out: f64 [2]: norm, factor
 *                      norm = step.gradient_scale * sqrt(sum), 0 without an input; factor = step.gradient_scale *
 *                      min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ */
typedef struct brim_clip_attr {
  double max_norm; /* 0: no limit */
} brim_clip_attr;
/* classification_metrics  in: loss [N], logits [N,K], label i32 [N]   out: metrics f64, +=
 *                      metrics[0] += sum of losses, [1] += right answers; with confusion also
 *                      metrics[2 + label*K + predicted] += 1. With top_k the last metric counts the samples whose
 *                      label is among the k greatest logits (of equal ones, the first). Summed in the order of the
 *                      samples. */
typedef struct brim_metrics_attr {
  int32_t confusion; /* 0 or 1 */
  int32_t top_k;     /* k; 0: off */
} brim_metrics_attr;
/* linear               in: x [N,F], weight [O,F], bias [O]     out: y [N,O]
 * linear_grad_input    in: dy, weight                          out: dx
 * linear_grad_weight   in: x, dy                               out: dweight +=, dbias +=
 * relu                 in: x          out: y                   relu_grad  in: y, dy   out: dx
 * reshape              in: x          out: y, the same values in row-major logical order
 * add                  in: a, b       out: a + b
 * softmax_cross_entropy       in: logits [N,K], label i32 [N], [weight [K]]  out: loss [N], one per sample
 * softmax_cross_entropy_grad  in: logits, label, [weight]                    out: dlogits, times step.loss_scale
 * With attributes (torch.nn.CrossEntropyLoss before its mean; weight 1 if there is none):
 *     loss = (1 - smoothing) * weight[label] * nll[label] + smoothing / K * sum over k of weight[k] * nll[k] */
typedef struct brim_loss_attr {
  double smoothing; /* [0, 1) */
} brim_loss_attr;

typedef union brim_attr {
  brim_conv2d_attr conv2d;
  brim_pool2d_attr pool2d;
  brim_dropout_attr dropout;
  brim_update_attr update;
  brim_ema_attr ema;
  brim_clip_attr clip;
  brim_loss_attr loss;
  brim_metrics_attr metrics;
  uint64_t reserve[16]; /* the union's size is part of the ABI */
} brim_attr;

typedef struct brim_node {
  uint32_t index;   /* position in the program */
  const char *op;   /* "conv2d" */
  const char *name; /* "conv1": the author's name, or made from the operation's */
  brim_attr attr;
  uint32_t in_count, out_count;
  brim_tensor *in[BRIM_NODE_INPUTS_MAX];
  brim_tensor *out[BRIM_NODE_OUTPUTS_MAX];
  const char *file; /* where the model's author wrote it; "" if the core made it */
  int line;
} brim_node;

#ifdef __cplusplus
}
#endif
#endif
