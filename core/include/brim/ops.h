/* Operations: their attributes, and a node of a graph.
 *
 * The descriptor of each operation (shapes, gradient rule, traits, cost) lives in core/graph/ops/, one
 * file a family; what each computes, to the letter, is plugins/backend/reference. Here is what a
 * backend's kernel sees. Tensors are listed in the order of `in` and `out`; N is the micro-batch. */
#ifndef BRIM_OPS_H
#define BRIM_OPS_H
#include "brim/formula.h"
#include "brim/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

/* An operation named after two, "linear+relu", does the work of both (core/graph/fuse.c): unless said otherwise below,
 * it has the inputs, outputs and attributes of the first, and its result is the second's. A backend may lack any of
 * them.
 *     linear+relu, linear+leaky_relu, linear+sigmoid, linear+tanh
 *     conv2d+relu, conv2d+leaky_relu, conv2d+sigmoid, conv2d+tanh
 *     batch_norm+relu, batch_norm_inference+relu, group_norm+relu, layer_norm+relu
 *     linear+gelu, linear+silu   out: y, [before [...,O]]: what linear alone gives, which the gradient needs; in
 *                          training only
 *                          The second's attributes are in attr.fused.activation. leaky_relu's slope is above 0, so
 *                          that y has the sign of its input.
 *     add+layer_norm       in: a, b, weight [F], bias [F]   out: sum = a + b, y = layer_norm of sum, mean, rstd
 *     add+rms_norm         in: a, b, weight [F]             out: sum, y, rstd */

/* An output of role BRIM_ROLE_GRADIENT is the gradient of a parameter, or of a tensor made of parameters alone: kernels
 * add to it (+=), sample by sample or grain by grain in the order of the samples. Every other output is written (=). */

/* conv2d               in: x [N,C,H,W], weight [K,C/g,R,S], [bias [K]]  out: y [N,K,P,Q]
 * conv2d_grad_input    in: dy, weight                                   out: dx
 * conv2d_grad_weight   in: x, dy                                        out: dweight +=, [dbias +=]
 *                      P = (H + 2*padding - dilation*(R-1) - 1) / stride + 1, as torch.nn.Conv2d. A weight of rank
 *                      3, [K,C/g,S], is one of R = 1: conv1d is conv2d on x [N,C,1,L]. In fp16 a library (cuDNN) may
 *                      store 0, not -infinity, for what lies below the range. */
typedef struct brim_conv2d_attr {
  int64_t kernel[2], stride[2], padding[2], dilation[2]; /* height, width; all but padding at least 1 */
  int64_t groups;                                        /* divides C and K; at least 1 */
} brim_conv2d_attr;
/* conv_transpose2d     in: x [N,C,P,Q], weight [C,K/g,R,S], [bias [K]]  out: y [N,K,H,W]   Since ABI 1.7
 *                      conv2d_grad_input of x as a layer, with a bias: as torch.nn.ConvTranspose2d. attr.conv2d is
 *                      that of the convolution that leads back, from y [N,K,H,W] to x [N,C,P,Q]: its formula for P
 *                      holds, and y's shape says which of the H it is that lead to this P. A weight may be of rank 3.
 * conv_transpose2d_grad_bias  in: dy                                    out: dbias +=
 *                      Its other gradients are conv2d of dy, without a bias, and conv2d_grad_weight of dy and x. */
/* max_pool2d           in: x [N,C,H,W]        out: y [N,C,P,Q], index u8 [N,C,P,Q]: row*S+column of the
 *                      first greatest value in its window (window at most 256 values; what is outside of x is not
 *                      in the window)
 * max_pool2d_grad      in: dy, index          out: dx
 * avg_pool2d           in: x                  out: y   mean over R*S values, or over those inside x (exclude_padding)
 * avg_pool2d_grad      in: dy                 out: dx
 *                      P = (H + 2*padding - R) / stride + 1
 * adaptive_avg_pool2d  in: x                  out: y [N,C,P,Q]: window p is rows floor(p*H/P) to ceil((p+1)*H/P), as
 *                      torch.nn.AdaptiveAvgPool2d; the attributes are not used
 * adaptive_avg_pool2d_grad  in: dy            out: dx */
typedef struct brim_pool2d_attr {
  int64_t kernel[2], stride[2], padding[2];
  int32_t exclude_padding; /* avg: torch's count_include_pad=False */
} brim_pool2d_attr;
/* upsample2d           in: x [N,C,H,W]        out: y [N,C,P,Q]        Since ABI 1.7
 * upsample2d_grad      in: dy                 out: dx
 *                      As torch.nn.functional.interpolate, in each of the two dimensions. Place p of y lies at s in x:
 *                          nearest               s = p * H / P;               y = x[floor(s)]
 *                          linear                s = (p + 1/2) * H / P - 1/2, but within [0, H - 1]
 *                          with align_corners    s = p * (H - 1) / (P - 1), 0 if P is 1
 *                      linear: between x[floor(s)] and the next value, by what s is above floor(s). Quotients are
 *                      exact: where s is a whole number, the next value has no influence, not even as NaN. (PyTorch
 *                      rounds those of nearest to single precision, and takes the value before in 2 places of 10,000.)
 */
enum brim_upsample_mode { BRIM_UPSAMPLE_NEAREST, BRIM_UPSAMPLE_LINEAR /* of images: bilinear */ };
typedef struct brim_upsample2d_attr {
  int32_t mode, align_corners; /* mode: enum brim_upsample_mode; align_corners: 0 or 1, of linear */
} brim_upsample2d_attr;
/* clang-format off */
/* batch_norm           in: x [N,C,...], weight [C], bias [C]
 *                      out: y, mean [G,C], rstd [G,C], mean_sum [C] +=, var_sum [C] +=
 *                      Of training: h = (x - mean) * rstd, y = h * weight + bias, rstd = 1 / sqrt(variance + eps), with
 *                      the statistics of each group of `group` samples and all places: G = max(1, N / group) groups,
 *                      and the last also has the rest. The last two outputs are the gradients of running_mean and
 *                      running_var: the groups' means and unbiased variances (of a single value: 0), added up.
 * batch_norm_grad      in: x, weight, mean, rstd, dy           out: dx, dweight +=, dbias +=; group by group
 * batch_norm_inference in: x, weight, bias, running_mean [C], running_var [C]    out: y, by these statistics
 * group_norm           in: x [N,C,...], weight [C], bias [C]   out: y, mean [N,groups], rstd [N,groups]: statistics of
 *                      C / groups channels and all places
 * group_norm_grad      in: x, weight, mean, rstd, dy           out: dx, dweight +=, dbias +=
 * layer_norm           in: x [...,F], weight [F], bias [F]     out: y, mean [...], rstd [...]: over the last dimension
 * layer_norm_grad      in: x, weight, mean, rstd, dy           out: dx, dweight +=, dbias +=
 * rms_norm             in: x [...,F], weight [F]               out: y = x * rstd * weight, rstd [...]: 1 / sqrt(mean of
 *                      squares + eps)
 * rms_norm_grad        in: x, weight, rstd, dy                 out: dx, dweight += */
/* clang-format on */
typedef struct brim_norm_attr {
  double eps;
  int64_t group;  /* batch_norm: samples whose statistics are taken together */
  int64_t groups; /* group_norm: of channels; divides C */
} brim_norm_attr;
/* moving_average       in: value, sum   out: value (in place): value += momentum * (sum / step.norm_groups - value) */
typedef struct brim_moving_average_attr {
  double momentum; /* [0, 1] */
} brim_moving_average_attr;
/* cast                 in: x                  out: y: x's values rounded to a type that is kept in less memory, or
 *                      back in the type of parameters (core/graph/lower.c) */
typedef struct brim_cast_attr {
  uint32_t rounds_to; /* enum brim_dtype, whatever type y is stored in; 0: nothing is lost */
} brim_cast_attr;
/* dropout              in: x                  out: y = x * mask / (1 - p)
 * dropout_grad         in: dy                 out: dx
 * dropout+add          in: a, x               out: y = a + dropout(x); of one shape
 * The mask comes from brim_dropout_keep() in brim/random.h; nothing is stored. */
typedef struct brim_dropout_attr {
  double p;        /* probability of dropping, [0, 1) */
  uint64_t stream; /* tells apart the dropouts of one model */
} brim_dropout_attr;
/* adamw, adam, yogi    in: param, grad, m, v  out: param, m, v (in place)
 * sgd                  in: param, grad, velocity  out: param, velocity (in place)
 * adagrad              in: param, grad, sum   out: param, sum (in place)
 * lion                 in: param, grad, m     out: param, m (in place)
 * adafactor            in: param, grad, row [R], column [C], [m]   out: param, row, column, [m] (in place)
 *                      param of two dimensions or more, seen as a matrix [R, C]: the first dimension and all others.
 *                      in: param, grad, square, [m]   out: param, square, [m] (in place)    of one dimension or none
 *                      step.beta2 is that of this step, step.eps the least root of a second moment
 * adamw8bit            in: param, grad, m u8, m_absmax, v u8, v_absmax   out: param, m, m_absmax, v, v_absmax (in
 *                      place): adamw with moments as codes of brim/code8.h, whose blocks of
 *                      BRIM_CODE8_BLOCK values each have an entry of absmax
 * Their hyperparameters come with the step (brim_step); here is what differs between parameters. All zero: the
 * plain form. */
typedef struct brim_update_attr {
  int32_t no_decay; /* 1: step.weight_decay counts as 0 */
  int32_t nesterov; /* sgd: 1: the gradient is taken where the velocity leads */
  int32_t scaled;   /* 1: one more input, last: f64 [2] of gradient_scale; the gradient is multiplied by its [1] */
  int32_t averages; /* adafactor: 1: with m, which keeps step.beta1 of itself */
  double clip;      /* adafactor: most root mean square of an update, before the learning rate */
  double least;     /* adafactor: least root mean square of the parameter that the learning rate is multiplied by */
} brim_update_attr;
/* zero                 out: gradient = 0 */
/* ema                  in: param, average     out: average (in place): decay * average + (1 - decay) * param; in the
 *                      first step (step.step 0) param, as torch.optim.swa_utils.AveragedModel */
typedef struct brim_ema_attr {
  double decay; /* [0, 1); 0: a copy, as buffers have */
} brim_ema_attr;
/* squared_norm         in: x, [sum f64 [1]]   out: sum f64 [1]: of the squares of x, and the sum before it
 * gradient_scale       in: [sum f64 [1]]      out: f64 [2]: norm, factor
 *                      norm = step.gradient_scale * sqrt(sum), 0 without an input; factor = step.gradient_scale *
 *                      min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ */
typedef struct brim_clip_attr {
  double max_norm; /* 0: no limit */
} brim_clip_attr;
/* adopt                in: x                  out: y = x, of the same type and shape   Since ABI 1.8
 * distance             in: w, g, [before f64 [2]]   out: f64 [2]: the sum of (w - g)^2 and the largest |w - g|, both
 *                      continuing from `before`; in double precision. A NaN makes the sum NaN; the largest ignores it.
 * steer                in: w, g, gradient     out: gradient (in place): gradient += (w - g) * step.federated
 * fold                 in: w, g, sum f64      out: sum (in place): sum += q, where
 *                      v = (w - g) * step.federated and q = (v + 1536) - 1536, in double precision, each operation
 *                      rounded by itself. For |v| < 512, q is v rounded to a multiple of 2^-42. If each |w - g| is
 *                      below 512 and the weights add up to at most 1, sums are exact and their order does not matter.
 * serve                in: sum f64            out: gradient = -(sum * step.federated): written, not added to
 *                      in: sum f64, x         out: x (in place): x += sum * step.federated
 *                      w, g, x: real, of any rank, scalars too; sum has their shape. */
/* classification_metrics  in: loss [...], logits [...,K], label i32 [...] or real [...,K]   out: metrics f64, +=
 *                      metrics[0] += sum of losses, [1] += right answers; with confusion also
 *                      metrics[2 + label*K + predicted] += 1. With top_k the last metric counts the labels that are
 *                      among the k greatest logits (of equal ones, the first). With `ignores` a label of ignore_index
 *                      counts for nothing. A real label, shares of the classes, stands for the class of the greatest
 *                      (of equal ones, the first). Summed in the order of the samples.
 * regression_metrics   in: loss [N], y [N,K], target [N,K]   out: metrics f64, +=   Since ABI 1.5
 *                      metrics[0] += sum of losses, [1] += absolute errors |y - t|, the mean over a sample; with
 *                      `errors` also [2] += |y - t| / max(|t|, 1e-7), the mean over a sample, and of target k
 *                      [3 + 3k] += (y - t)^2, [4 + 3k] += t, [5 + 3k] += t^2. Of numbers in double precision. */
typedef struct brim_metrics_attr {
  int32_t confusion;    /* 0 or 1 */
  int32_t top_k;        /* k; 0: off */
  int32_t ignores;      /* 0 or 1. Since ABI 1.5, as are those that follow */
  int32_t ignore_index; /* the label that does not count, with `ignores` */
  int32_t errors;       /* regression_metrics: 0 or 1 */
} brim_metrics_attr;
/* linear               in: x [...,F], weight [O,F], [bias [O]]  out: y [...,O]
 * linear_grad_input    in: dy, weight                           out: dx
 * linear_grad_weight   in: x, dy                                out: dweight +=, [dbias +=]
 * matmul               in: a [...,M,K], b [...,K,N]             out: [...,M,N]; the same leading dimensions, N first
 *                      With transpose_a a is stored [...,K,M], with transpose_b b is stored [...,N,K].
 * Its gradients are matmuls. */
typedef struct brim_matmul_attr {
  int32_t transpose_a, transpose_b;
} brim_matmul_attr;
/* relu, leaky_relu, gelu, silu, sigmoid, tanh, exp     in: x           out: y
 * relu_grad, sigmoid_grad, tanh_grad                   in: y, dy       out: dx
 * leaky_relu_grad, gelu_grad, silu_grad                in: x, dy       out: dx   (exp's gradient is mul by y)
 *                      gelu: x * Phi(x), the normal distribution function, or one of its approximations below;
 *                      silu: x * sigmoid(x); leaky_relu: x above 0, else factor * x
 * scale                in: x                           out: x * factor
 * add, sub, mul, div   in: a, b                        out: of the shape that both broadcast to, as NumPy: dimensions
 *                      are aligned at the right, and one of 1 or a missing one is repeated
 * sum_to               in: x                           out: y, the sum over what was repeated from y's shape to x's;
 *                      a parameter's gradient is added to, sample by sample
 * accumulate           in: x                           out: a gradient += x
 * softmax, log_softmax in: x [...,F]                   out: y; over the last dimension
 * softmax_grad, log_softmax_grad  in: y, dy            out: dx */
enum brim_gelu {
  BRIM_GELU_EXACT,
  BRIM_GELU_TANH, /* x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2 */
  BRIM_GELU_QUICK /* x * sigmoid(1.702 x) */
};
typedef struct brim_activation_attr {
  double factor;       /* scale; leaky_relu: the slope of negative values */
  int32_t approximate; /* gelu: enum brim_gelu */
} brim_activation_attr;
/* The attributes of a layer with an activation behind it; those of the layer are where they are without it. */
typedef struct brim_fused_attr {
  brim_conv2d_attr conv2d;
  brim_activation_attr activation;
} brim_fused_attr;
/* mean, sum            in: x          out: y, over the axes of the mask; kept as 1 in y's shape or left out
 * mean_grad, sum_grad  in: dy         out: dx, dy repeated (mean: divided by how many were averaged) */
typedef struct brim_reduce_attr {
  uint32_t axes; /* bit d: dimension d of x; never that of the samples, bit 0 */
} brim_reduce_attr;
/* reshape              in: x          out: y, the same values in row-major logical order
 * permute              in: x          out: y; dimension d of y is dimension order[d] of x
 * concat               in: x, ...     out: y; one after the other along `axis`
 * slice                in: x          out: y = x[..., start : start + length of y, ...] along `axis`
 * pad                  in: x          out: y; `before` values of `value` in front of each dimension of x, and as many
 *                      behind as y's shape has more. Its gradient is slices; slice's is pad.
 * gather               in: x, index i32, of x's shape but along `axis`   out: y[i][j] = x[i][index[i][j]], as
 *                      torch.gather
 * gather_grad          in: index, dy  out: dx, added up where an index comes twice
 * No axis is 0, which is N. permute, concat, slice and pad take any type, gather's x too; indices are checked as
 * embedding's are. */
typedef struct brim_move_attr {
  int32_t axis;
  int32_t order[BRIM_DIMS_MAX];
  int64_t start;
  int64_t before[BRIM_DIMS_MAX];
  double value;
} brim_move_attr;
/* embedding            in: index i32 [N,...], weight [V,D]    out: y [N,...,D]
 * embedding_grad       in: index, dy                          out: dweight +=
 * An index outside [0, V) is an error of the data: EINVAL, naming it. */
/* attention            in: q [N,T,heads*D], k [N,S,kv_heads*D], v [N,S,kv_heads*D]
 *                      out: y [N,T,heads*D], lse [N,heads,T]: log of the sum of exp of each row of scores
 * attention_grad       in: q, k, v, y, lse, dy                out: dq, dk, dv
 *                      y = dropout(softmax(scale * q k^T + mask)) v for each head, as
 *                      torch.nn.functional.scaled_dot_product_attention; query head h uses key head
 *                      h / (heads / kv_heads). Causal: query t sees keys 0 .. t + S - T, so the last query sees all;
 *                      a query that sees none has y 0 and lse 0. What is not seen has no influence; in fp32 not even as
 *                      NaN. In 16 bits a library (cuDNN) may multiply a v that is not finite by the weight 0 of a key
 *                      that is not seen, which gives NaN. Memory is linear in T and S. Dropout's element (see
 *                      brim/random.h) is (h*T + t)*S + s.
 * rotary               in: x [N,T,heads*D]                    out: y
 *                      Position t turns pair i of the `dims` leading elements of each head by t * base^(-2i/dims).
 * rotary_grad          in: dy                                 out: dx (turned back) */
typedef struct brim_attention_attr {
  int64_t heads, kv_heads;
  double scale, dropout_p; /* dropout_p: as dropout's p; 0 in evaluation */
  uint64_t stream;         /* as dropout's */
  int32_t causal;
} brim_attention_attr;
typedef struct brim_rotary_attr {
  int64_t heads, dims; /* dims: even, at most D */
  double base;
  int32_t interleaved; /* 1: pairs (2i, 2i+1), as GPT-J; 0: (i, i + dims/2), as GPT-NeoX and LLaMA */
} brim_rotary_attr;
/* lstm                 in: x [N,T,F], weight_ih [4H,F], weight_hh [4H,H], bias_ih [4H], bias_hh [4H]
 *                      out: y [N,T,H], gates [N,T,4H] (i, f, g, o after their activations), cell [N,T,H]
 *                      The equations of torch.nn.LSTM, batch first, from state 0.
 * lstm_grad            in: dy, gates, cell, weight_hh          out: dgates [N,T,4H], before their activations
 * lstm_grad_weight     in: x, y, dgates                        out: dweight_ih +=, dweight_hh +=, dbias_ih +=, dbias_hh
 * += The gradient of x is a linear_grad_input of dgates and weight_ih. */
typedef struct brim_lstm_attr {
  int32_t reverse; /* 1: from the last element to the first */
} brim_lstm_attr;
/* softmax_cross_entropy       in: logits [...,K], label, [weight [K]]            out: loss [...], one per label
 * softmax_cross_entropy_grad  in: logits, label, [weight]                        out: dlogits, times step.loss_scale
 * With attributes (torch.nn.CrossEntropyLoss before its mean; weight 1 if there is none):
 *     loss = (1 - smoothing) * weight[label] * nll[label] + smoothing / K * sum over k of weight[k] * nll[k]
 * With `ignores` a label of ignore_index has loss 0 and gradient 0. Any other label outside [0, K) is an error of the
 * data: EINVAL. label: i32 [...]; or, since ABI 1.5, real and of the logits' shape, never in 16 bits: shares of the
 * classes (class probabilities, in PyTorch). Then
 *     loss = sum over k of weight[k] * ((1 - smoothing) * label[k] + smoothing / K) * nll[k]
 * linear_cross_entropy        in: x [...,F], product [K,F], label i32 [...], [bias [K]]
 *                      out: loss [...], rank i32 [...]: how many classes come before the label (greater logits, and of
 *                      equal ones the first); -1 if ignored
 * linear_cross_entropy_grad   in: x, product, label, loss, [bias]          out: dx, [dproduct +=, [dbias +=]]
 *                      dx alone where the parameters are frozen. softmax_cross_entropy of the logits
 *                      x product^T + bias, which exist in chunks only. product and bias are parameters.
 * linear_cross_entropy+grad   in: x, product, label, [bias]      out: loss, rank, dx, [dproduct +=, [dbias +=]]
 * rank_metrics                in: loss [...], rank [...]                         out: metrics f64, +=
 *                      what classification_metrics says without a confusion matrix, of ranks: metrics[0] += sum of
 *                      losses, [1] += ranks of 0; with top_k [2] += ranks in [0, top_k)
 * mse, mae, huber, bce        in: y [N,...], target                              out: loss [N], the mean over a sample
 * mse_grad, ...               in: y, target                                      out: dy, times step.loss_scale
 *                      target: real, of y's shape and type; or i32 [N] with y [N,K]: 1 at the label, 0 elsewhere. bce
 * takes logits (torch.nn.BCEWithLogitsLoss); huber as torch.nn.HuberLoss with `delta`. Nothing flows back to the
 * target. */
/* Around the losses of plugins (brim/loss.h); with `ignores` and ignore_index as above. Since ABI 1.10
 * one_hot              in: label i32 [...]                    out: y [...,K]: 1 at the label, 0 elsewhere; all 0 if it
 *                      is ignored. Any other label outside [0, K) is an error of the data.
 * sample_loss          in: x [...], [label, [weight [K]]]     out: loss [...]: x, times weight[label]; 0 if ignored
 * sample_loss_grad     in: x, [label, [weight]]               out: dx: step.loss_scale, times weight[label]; 0 if
 *                      ignored. one_hot has checked the label; without the input label, targets are real numbers. */
typedef struct brim_loss_attr {
  double smoothing;     /* [0, 1) */
  double delta;         /* huber: > 0 */
  int32_t ignore_index; /* the label that does not count, if there is one: */
  int32_t ignores;      /* 1: there is; 0: every label counts, whatever ignore_index says */
} brim_loss_attr;

/* formula              in: x, ...            out: y, ...        Since ABI 1.10
 *                      Of each element by itself, what brim/formula.h says. Inputs and outputs are of one shape, but
 *                      for inputs of one element, which every element reads, and f64 inputs that uniforms read. An
 *                      output may be an input. */
typedef struct brim_formula_attr {
  const brim_formula *formula;              /* the graph's; backends may keep it as long as the node */
  const struct brim_formula_source *source; /* the core's; NULL: it has no gradient */
} brim_formula_attr;

typedef union brim_attr {
  brim_conv2d_attr conv2d;
  brim_pool2d_attr pool2d;
  brim_upsample2d_attr upsample2d;
  brim_norm_attr norm;
  brim_moving_average_attr moving_average;
  brim_matmul_attr matmul;
  brim_activation_attr activation;
  brim_fused_attr fused;
  brim_reduce_attr reduce;
  brim_move_attr move;
  brim_attention_attr attention;
  brim_rotary_attr rotary;
  brim_lstm_attr lstm;
  brim_cast_attr cast;
  brim_dropout_attr dropout;
  brim_update_attr update;
  brim_ema_attr ema;
  brim_clip_attr clip;
  brim_loss_attr loss;
  brim_metrics_attr metrics;
  brim_formula_attr formula;
  uint64_t reserve[16]; /* the union's size is part of the ABI */
} brim_attr;

/* What a backend may want to know of an operation besides what it computes. Zero: nothing is said. Since ABI 1.10 */
enum brim_op_sum {
  BRIM_SUM_NONE,
  BRIM_SUM_FIRST, /* out[0] = in[0] + in[1]; the other outputs are computed from out[0] as it is stored */
  BRIM_SUM_LAST   /* out[0] = in[0] + what the operation computes from in[1], rounded to the type of out[0] */
};
typedef struct brim_op_traits {
  /* The inputs and outputs whose first dimension is that of the samples, a bit each (bits of tensors that a node lacks
   * may be set). Such an operation can be run on a part of the samples at a time. Every part needs the other inputs
   * whole; the other outputs are gradients, to which each part is added, in the order of the samples. No bits: it
   * cannot be run so. */
  uint32_t samples_in, samples_out;
  int32_t apart;      /* 1: the results of a sample are the same bits in every part; 0: if parts are whole grains */
  int32_t broadcasts; /* 1: inputs may be repeated to the shape of out[0]; parts need inputs of one shape */
  int32_t view;       /* 1: out[0] has the values of in[0] in the same order: one memory if the layouts agree */
  int32_t sum;        /* enum brim_op_sum */
} brim_op_traits;

typedef struct brim_node {
  uint32_t index;                   /* position in the program */
  const char *op;                   /* "conv2d" */
  const struct brim_op *descriptor; /* the core's; see brim_node_traits() */
  const char *name;                 /* "conv1": the author's name, or made from the operation's */
  brim_attr attr;
  uint32_t in_count, out_count;
  brim_tensor **in, **out;
  const char *file; /* where the model's author wrote it; "" if the core made it */
  int line;
} brim_node;

/* The descriptor begins with the traits. Since ABI 1.10 */
static inline const brim_op_traits *brim_node_traits(const brim_node *node)
{
  return (const brim_op_traits *)(const void *)node->descriptor;
}

#ifdef __cplusplus
}
#endif
#endif
