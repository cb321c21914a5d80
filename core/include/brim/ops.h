/* Operations: their inputs, outputs and attributes, and the nodes of a graph.
 *
 * This header describes operations for the kernels of backends. Their descriptors (shapes, gradient rule, traits, cost)
 * are in core/graph/ops/, one file per family; plugins/backend/reference defines exactly what each one computes.
 * Tensors are listed in the order of `in` and `out`; N is the micro-batch. */
#ifndef BRIM_OPS_H
#define BRIM_OPS_H
#include "brim/formula.h"
#include "brim/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

/* A fused operation, such as "linear+relu", does the work of two (core/graph/fuse.c). Unless stated otherwise below, it
 * has the inputs, outputs and attributes of the first, and the result of the second. A backend may lack any of them.
 *     linear+relu, linear+leaky_relu, linear+sigmoid, linear+tanh
 *     conv2d+relu, conv2d+leaky_relu, conv2d+sigmoid, conv2d+tanh
 *     batch_norm+relu, batch_norm_inference+relu, group_norm+relu, layer_norm+relu, max_pool2d+relu, dropout+relu
 *     linear+gelu, linear+silu   out: y, [before [...,O]]: the result of linear, needed for the gradient; in training
 *                          only
 *                          attr.fused.activation has the second's attributes. leaky_relu's slope is above 0, so that y
 *                          has the sign of its input.
 *     linear+add, linear_grad_input+add   see linear
 *     batch_norm+add, batch_norm+add+relu, batch_norm_inference+add, batch_norm_inference+add+relu
 *                          in: the norm's, then a, of x's shape   out: the norm's, with y + a, or relu(y + a), for y,
 *                          which is rounded before it is added
 *     add+layer_norm       in: a, b, weight [F], bias [F]   out: sum = a + b, y = layer_norm of sum, mean, rstd
 *     add+rms_norm         in: a, b, weight [F]             out: sum, y, rstd */

/* An output of role BRIM_ROLE_GRADIENT is the gradient of a parameter, or of a tensor computed from parameters alone.
 * Kernels add to it (+=), sample by sample or grain by grain, in the order of the samples. In the first micro-batch of
 * a step they may write it instead: see brim_adds in brim/backend.h. Every other output is written (=). */

/* conv2d               in: x [N,C,H,W], weight [K,C/g,R,S], [bias [K]]  out: y [N,K,P,Q]
 * conv2d_grad_input    in: dy, weight                                   out: dx
 * conv2d_grad_weight   in: x, dy                                        out: dweight +=, [dbias +=]
 *                      P = (H + 2*padding - dilation*(R-1) - 1) / stride + 1, as torch.nn.Conv2d. A weight of rank
 *                      3, [K,C/g,S], has R = 1: conv1d is conv2d on x [N,C,1,L]. In fp16 a library (cuDNN) may store
 *                      0, not -infinity, for values below the range. */
typedef struct brim_conv2d_attr {
  int64_t kernel[2], stride[2], padding[2], dilation[2]; /* height, width; all but padding at least 1 */
  int64_t groups;                                        /* divides C and K; at least 1 */
} brim_conv2d_attr;
/* conv_transpose2d     in: x [N,C,P,Q], weight [C,K/g,R,S], [bias [K]]  out: y [N,K,H,W]   Since ABI 1.7
 *                      As torch.nn.ConvTranspose2d: conv2d_grad_input of x, plus a bias. attr.conv2d is that of the
 *                      convolution in the other direction, from y [N,K,H,W] to x [N,C,P,Q]. Its formula for P holds;
 *                      several H may lead to the same P, and y's shape has the right one. A weight may have rank 3.
 * conv_transpose2d_grad_bias  in: dy                                    out: dbias +=
 *                      Its other gradients are conv2d of dy, without a bias, and conv2d_grad_weight of dy and x. */
/* max_pool2d           in: x [N,C,H,W]        out: y [N,C,P,Q], index u8 [N,C,P,Q]: row*S+column of the
 *                      first greatest value in its window (at most 256 values; positions outside x do not count)
 * max_pool2d_grad      in: dy, index          out: dx
 * max_pool2d+relu_grad in: dy, index, y       out: dx   y: the result of relu
 * avg_pool2d           in: x                  out: y   mean over R*S values, or over those inside x (exclude_padding)
 * avg_pool2d_grad      in: dy                 out: dx
 *                      P = (H + 2*padding - R) / stride + 1
 * adaptive_avg_pool2d  in: x                  out: y [N,C,P,Q]: window p is rows floor(p*H/P) to ceil((p+1)*H/P), as
 *                      torch.nn.AdaptiveAvgPool2d; the attributes are not used
 * adaptive_avg_pool2d_grad  in: dy            out: dx */
typedef struct brim_pool2d_attr {
  int64_t kernel[2], stride[2], padding[2];
  int32_t exclude_padding; /* avg: PyTorch's count_include_pad=False */
} brim_pool2d_attr;
/* upsample2d           in: x [N,C,H,W]        out: y [N,C,P,Q]        Since ABI 1.7
 * upsample2d_grad      in: dy                 out: dx
 *                      As torch.nn.functional.interpolate, in each of the two dimensions. Index p of y is at s in x:
 *                          nearest               s = p * H / P;               y = x[floor(s)]
 *                          linear                s = (p + 1/2) * H / P - 1/2, but within [0, H - 1]
 *                          with align_corners    s = p * (H - 1) / (P - 1), 0 if P is 1
 *                      linear interpolates between x[floor(s)] and the next value, with weight s - floor(s). Quotients
 *                      are exact: if s is an integer, the next value has no influence, not even as NaN. (PyTorch
 *                      rounds the quotients of nearest to single precision, and so takes the value before in 2 of
 *                      10,000 places.) */
enum brim_upsample_mode { BRIM_UPSAMPLE_NEAREST, BRIM_UPSAMPLE_LINEAR /* bilinear for images */ };
typedef struct brim_upsample2d_attr {
  int32_t mode, align_corners; /* mode: enum brim_upsample_mode; align_corners: 0 or 1, with linear */
} brim_upsample2d_attr;
/* clang-format off */
/* batch_norm           in: x [N,C,...], weight [C], bias [C]
 *                      out: y, mean [G,C], rstd [G,C], mean_sum [C] +=, var_sum [C] +=
 *                      For training: h = (x - mean) * rstd, y = h * weight + bias, rstd = 1 / sqrt(variance + eps),
 *                      with statistics over each group of `group` samples and all positions. There are
 *                      G = max(1, N / group) groups; the last also has the remaining samples. The last two outputs are
 *                      the gradients of running_mean and running_var: the sums of the groups' means and unbiased
 *                      variances (0 for a single value).
 * batch_norm_grad      in: x, weight, mean, rstd, dy           out: dx, dweight +=, dbias +=; group by group
 * batch_norm+relu_grad in: x, weight, bias, mean, rstd, dy     out: dx, dweight +=, dbias +=: batch_norm_grad of
 *                      relu_grad of y and dy; y, rounded as it was stored, is computed from x
 * batch_norm+add+relu_grad  in: x, weight, mean, rstd, y, dy   out: da = relu_grad of y and dy; and batch_norm_grad of
 *                      da: dx, dweight +=, dbias +=
 * batch_norm_inference in: x, weight, bias, running_mean [C], running_var [C]    out: y, with these statistics
 * group_norm           in: x [N,C,...], weight [C], bias [C]   out: y, mean [N,groups], rstd [N,groups]: statistics
 *                      over C / groups channels and all positions
 * group_norm_grad      in: x, weight, mean, rstd, dy           out: dx, dweight +=, dbias +=
 * layer_norm           in: x [...,F], weight [F], bias [F]     out: y, mean [...], rstd [...]: over the last dimension
 * layer_norm_grad      in: x, weight, mean, rstd, dy           out: dx, dweight +=, dbias +=
 * rms_norm             in: x [...,F], weight [F]               out: y = x * rstd * (weight + offset), rstd [...]:
 *                      1 / sqrt(mean of squares + eps)
 * rms_norm_grad        in: x, weight, rstd, dy                 out: dx, dweight +=
 * layer_norm_grad+add  in: a, x, weight, mean, rstd, dy        out: a + dx, dweight +=, dbias +=; layer_norm_grad,
 *                      whose dx is added to the gradient that x has from other nodes
 * rms_norm_grad+add    in: a, x, weight, rstd, dy              out: a + dx, dweight += */
/* clang-format on */
typedef struct brim_norm_attr {
  double eps;
  int64_t group;  /* batch_norm: samples in a norm group */
  int64_t groups; /* group_norm: groups of channels; divides C */
  double offset;  /* rms_norm and add+rms_norm: added to weight, in the kernel's arithmetic. Since ABI 1.12 */
} brim_norm_attr;
/* moving_average       in: value, sum   out: value (in place): value += momentum * (sum / step.norm_groups - value) */
typedef struct brim_moving_average_attr {
  double momentum; /* [0, 1] */
} brim_moving_average_attr;
/* cast                 in: x                  out: y: x's values rounded to a smaller type, or converted back to the
 *                      type of parameters (core/graph/lower.c) */
typedef struct brim_cast_attr {
  uint32_t rounds_to; /* enum brim_dtype, which may differ from the type of y; 0: no rounding */
} brim_cast_attr;
/* dropout              in: x                  out: y = x * mask / (1 - p)
 * dropout_grad         in: dy                 out: dx
 * dropout+add          in: a, x               out: y = a + dropout(x); a and x have one shape
 * dropout+relu_grad    in: y, dy              out: dx = dy / (1 - p) where y is above 0, else 0
 * The mask comes from brim_dropout_keep() in brim/random.h; nothing is stored. */
typedef struct brim_dropout_attr {
  double p;        /* probability of dropping, [0, 1) */
  uint64_t stream; /* distinguishes the dropouts of a model */
} brim_dropout_attr;
/* adamw, adam, yogi    in: param, grad, m, v  out: param, m, v (in place)
 * sgd                  in: param, grad, velocity  out: param, velocity (in place)
 * adagrad              in: param, grad, sum   out: param, sum (in place)
 * lion                 in: param, grad, m     out: param, m (in place)
 * adafactor            in: param, grad, row [R], column [C], [m]   out: param, row, column, [m] (in place)
 *                      param of rank 2 or more, as a matrix [R, C] of the first dimension and all others
 *                      in: param, grad, square, [m]   out: param, square, [m] (in place)    param of rank 0 or 1
 *                      step.beta2 is that of this step; step.eps is the lower bound of the root of a second moment
 * adamw8bit            in: param, grad, m u8, m_absmax, v u8, v_absmax   out: param, m, m_absmax, v, v_absmax (in
 *                      place): adamw with moments coded as in brim/code8.h; each block of BRIM_CODE8_BLOCK values
 *                      has an entry of absmax
 * Their hyperparameters are in brim_step; the attributes are the settings that differ between parameters. All zero: the
 * plain form. */
typedef struct brim_update_attr {
  int32_t no_decay; /* 1: no weight decay for this parameter */
  int32_t nesterov; /* sgd: 1: Nesterov momentum */
  int32_t scaled;   /* 1: one more input, last: f64 [2] of gradient_scale; the gradient is multiplied by its [1] */
  int32_t averages; /* adafactor: 1: with first moment m, whose decay is step.beta1 */
  double clip;      /* adafactor: the largest root mean square of an update, before the learning rate */
  double least; /* adafactor: the learning rate is multiplied by the parameter's root mean square, or by this if more */
} brim_update_attr;
/* zero                 out: gradient = 0 */
/* ema                  in: param, average     out: average (in place): decay * average + (1 - decay) * param; in the
 *                      first step (step.step 0) average = param, as torch.optim.swa_utils.AveragedModel */
typedef struct brim_ema_attr {
  double decay; /* [0, 1); 0: average = param, as for buffers */
} brim_ema_attr;
/* squared_norm         in: x, [sum f64 [1]]   out: sum f64 [1]: the sum of the squares of x, plus the input sum
 * gradient_scale       in: [sum f64 [1]]      out: f64 [2]: norm, factor
 *                      norm = step.gradient_scale * sqrt(sum), 0 without the input; factor = step.gradient_scale *
 *                      min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ */
typedef struct brim_clip_attr {
  double max_norm; /* 0: no limit */
} brim_clip_attr;
/* adopt                in: x                  out: y = x, of the same type and shape   Since ABI 1.8
 * distance             in: w, g, [before f64 [2]]   out: f64 [2]: the sum of (w - g)^2 and the largest |w - g|, both
 *                      continuing from `before`; in double precision. A NaN makes the sum NaN; the largest ignores it.
 * steer                in: w, g, gradient, [control]   out: gradient (in place):
 *                      gradient += (w - g) * step.federated + control * step.control; `control` since ABI 1.11
 * fold                 in: w, g, sum f64      out: sum (in place): sum += q, where
 *                      v = (w - g) * step.federated and q = (v + 1536) - 1536, in double precision, with each
 *                      operation rounded separately. For |v| < 512, q is v rounded to a multiple of 2^-42. If each
 *                      |w - g| is below 512 and the weights add up to at most 1, sums are exact in any order.
 * serve                in: sum f64            out: gradient = -(sum * step.federated): written, not added to
 *                      in: sum f64, x         out: x (in place): x += sum * step.federated
 *                      w, g, control, x: real, of any rank, including scalars; sum has their shape. */
/* classification_metrics  in: loss [...], logits [...,K], label i32 [...] or real [...,K]   out: metrics f64, +=
 *                      metrics[0] += sum of losses, [1] += correct predictions; with confusion also
 *                      metrics[2 + label*K + predicted] += 1. With top_k the last metric counts the labels among the
 *                      k greatest logits. With `ignores`, labels equal to ignore_index do not count. A real label
 *                      (class probabilities) counts as its most probable class. Of equal values the first is the
 *                      greatest. Sums are in the order of the samples.
 * regression_metrics   in: loss [N], y [N,K], target [N,K]   out: metrics f64, +=   Since ABI 1.5
 *                      metrics[0] += sum of losses, [1] += |y - t|, averaged over a sample; with `errors` also
 *                      [2] += |y - t| / max(|t|, 1e-7), averaged over a sample, and for target k
 *                      [3 + 3k] += (y - t)^2, [4 + 3k] += t, [5 + 3k] += t^2. In double precision. */
typedef struct brim_metrics_attr {
  int32_t confusion;    /* 0 or 1 */
  int32_t top_k;        /* k; 0: off */
  int32_t ignores;      /* 0 or 1. This and the following fields: since ABI 1.5 */
  int32_t ignore_index; /* the label to ignore, with `ignores` */
  int32_t errors;       /* regression_metrics: 0 or 1 */
} brim_metrics_attr;
/* linear               in: x [...,F], weight [O,F], [bias [O]]  out: y [...,O]
 * linear_grad_input    in: dy, weight                           out: dx
 * linear_grad_weight   in: x, dy                                out: dweight +=, [dbias +=]
 * linear+add           in: a [...,A], x [...,F], weight [O,F]   out: y [...,A] = a, to whose columns first .. first +
 *                      O - 1 the linear of x is added. y may have a's memory. Since ABI 1.12
 * linear_grad_input+add  in: a, dy, weight                      out: dx = a + linear_grad_input. As above
 * matmul               in: a [...,M,K], b [...,K,N]             out: [...,M,N]; equal leading dimensions, N first
 *                      With transpose_a, a is stored [...,K,M]; with transpose_b, b is stored [...,N,K].
 *                      Its gradients are matmuls. */
typedef struct brim_matmul_attr {
  int32_t transpose_a, transpose_b;
} brim_matmul_attr;
typedef struct brim_linear_attr {
  int64_t first; /* linear+add; A - first is at least O */
} brim_linear_attr;
/* relu, leaky_relu, gelu, silu, sigmoid, tanh, exp     in: x           out: y
 * relu_grad, sigmoid_grad, tanh_grad                   in: y, dy       out: dx
 * leaky_relu_grad, gelu_grad, silu_grad                in: x, dy       out: dx   (exp's gradient is mul by y)
 *                      gelu: x * Phi(x), with the normal distribution function Phi, or an approximation below;
 *                      silu: x * sigmoid(x); leaky_relu: x above 0, else factor * x
 * scale                in: x                           out: x * factor
 * add, sub, mul, div   in: a, b                        out: of the shape that both broadcast to, as in NumPy:
 *                      dimensions are aligned at the right, and a missing one or one of size 1 is repeated
 * sum_to               in: x                           out: y, the reverse of broadcasting: the sum over the dimensions
 *                      repeated from y's shape to x's; adds to a parameter's gradient sample by sample
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
/* The attributes of a layer fused with an activation; the layer's are at the same offset as without it. */
typedef struct brim_fused_attr {
  brim_conv2d_attr conv2d;
  brim_activation_attr activation;
} brim_fused_attr;
/* mean, sum            in: x          out: y, over the axes in the mask; y's shape has them as 1 or not at all
 * mean_grad, sum_grad  in: dy         out: dx: dy repeated (mean: divided by the number of averaged values) */
typedef struct brim_reduce_attr {
  uint32_t axes; /* bit d: dimension d of x; bit 0, the samples, is never set */
} brim_reduce_attr;
/* reshape              in: x          out: y, the same values in row-major logical order
 * permute              in: x          out: y; dimension d of y is dimension order[d] of x
 * concat               in: x, ...     out: y; the inputs in sequence along `axis`
 * slice                in: x          out: y = x[..., start : start + length of y, ...] along `axis`
 * pad                  in: x          out: y; adds before[d] values `value` at the start of dimension d, and at its end
 *                      as many as y's shape requires. Its gradient is slice; that of slice is pad.
 * gather               in: x, index i32, whose shape may differ from x's only along `axis`
 *                      out: y[i][j] = x[i][index[i][j]], as torch.gather
 * gather_grad          in: index, dy  out: dx, the sum where an index occurs more than once
 * An axis is never 0, which is N. permute, concat, slice and pad accept any type, as does gather for x. Indices are
 * checked as in embedding. */
typedef struct brim_move_attr {
  int32_t axis;
  int32_t order[BRIM_DIMS_MAX];
  int64_t start;
  int64_t before[BRIM_DIMS_MAX];
  double value;
} brim_move_attr;
/* embedding            in: index i32 [N,...], weight [V,D]    out: y [N,...,D]
 * embedding_grad       in: index, dy                          out: dweight +=
 * An index outside [0, V) is an error in the data: EINVAL, with the index. */
/* cache_write          in: x [N,T,E], places i32 [N,T]         out: cache [N,C,F], whose other rows do not change
 *                      cache[n, places[n][t] mod C] = x[n][t][start .. start + F - 1], with brim_move_attr.start. If
 *                      consecutive tokens have the same place, the last one is written; all other tokens have
 *                      different rows. A place below 0 is an error in the data: EINVAL. Since ABI 1.12 */
/* attention            in: q [N,T,heads*D], k [N,S,kv_heads*D], v [N,S,kv_heads*D], [places i32 [N,T]]
 *                      out: y [N,T,heads*D], lse [N,heads,T]: log of the sum of exp of each row of scores
 * attention_grad       in: q, k, v, y, lse, dy, [places]      out: dq, dk, dv
 *                      y = dropout(softmax(cap(scale * q k^T) + mask)) v for each head, as
 *                      torch.nn.functional.scaled_dot_product_attention; query head h uses key head
 *                      h / (heads / kv_heads). cap(x) = softcap * tanh(x / softcap), or x if softcap is 0. A query sees
 *                      a range of keys, first .. last:
 *                          not causal    0 .. S - 1
 *                          causal        0 .. t + S - T for query t, so the last query sees all
 *                          with places   t - min(place of t, t) .. t (causal, S = T): a place is the token's index in
 *                                        its document, so a query sees its own document only
 *                          cached        0 .. p for a query with place p: see `cached`
 *                      and with a window at most the last `window` of these. A query that sees no key has y 0 and lse
 *                      0. Masked keys have no influence, in fp32 not even as NaN. In 16 bits tensor cores may
 *                      multiply a non-finite v by the weight 0 of a masked key, which gives NaN. Kernels skip tiles of
 *                      queries and keys that do not see each other. Memory is linear in T and S. Dropout's element
 *                      (see brim/random.h) is (h*T + t)*S + s.
 * attention_qkv        in: qkv [N,T,(heads+2*kv_heads)*D], [places i32 [N,T]]      out: y, lse
 *                      cached: qkv, k [N,capacity,kv_heads*D], v [N,capacity,kv_heads*D], places
 * attention_qkv_grad   in: qkv, y, lse, dy, [places]          out: dqkv
 *                      Since ABI 1.12: the same with one tensor for q, k and v, and one for their gradients. A row has
 *                      the query heads, then the key heads, then the values' heads; cached attention reads its queries
 *                      only. If the backend has attention_qkv, the core puts it in place of attention on slices of one
 *                      tensor, so the bits must be the same.
 * rotary               in: x [N,T,heads*D], [places i32 [N,T]]  out: y
 *                      Rotates pair i of the `dims` leading elements of each head by p * brim_rotary_frequency(i)
 *                      (brim/rotary.h), and multiplies the result by amplitude; p is the place of position t, or t.
 *                      If `turned` is not 0, it copies the heads from `turned` on: the values of a qkv.
 * rotary_grad          in: dy, [places]                       out: dx (rotated back, times amplitude)
 *                      A place is at least 0. In a row it is 0 or one more than the place before, and at most t; only
 *                      cached attention and rotary accept other places. */
typedef struct brim_attention_attr {
  int64_t heads, kv_heads;
  double scale, dropout_p; /* dropout_p: as dropout's p; 0 in evaluation */
  uint64_t stream;         /* as dropout's */
  int32_t causal;
  /* 1: k and v [N,capacity,kv_heads*D] hold the keys and values of earlier tokens; that of place p is in row p modulo
   * capacity, and the cache has every place that a query sees. Places are required and count from the beginning of the
   * text; a query sees keys up to its own place. Causal, without dropout and without a gradient. This and the following
   * fields: since ABI 1.12 */
  int32_t cached;
  int64_t window; /* keys that a query sees at most, itself included; causal; 0: no limit */
  double softcap; /* limit of the scores; 0: no limit */
} brim_attention_attr;
typedef struct brim_rotary_attr {
  int64_t heads, dims; /* dims: even, at most D */
  double base;
  int32_t interleaved; /* 1: pairs (2i, 2i+1), as GPT-J; 0: (i, i + dims/2), as GPT-NeoX and LLaMA */
  /* As in brim_rotary_scaling. Since ABI 1.12 */
  int32_t scaling; /* enum brim_rotary_kind */
  double factor, low, high, original, amplitude;
  const double *divisor; /* longrope: [dims/2], at most BRIM_ROTARY_DIVISORS_MAX; owned by the graph; else NULL */
  int64_t turned;        /* number of leading heads that are rotated, or 0: all of them */
} brim_rotary_attr;
#define BRIM_ROTARY_DIVISORS_MAX 256
/* lstm                 in: x [N,T,F], weight_ih [4H,F], weight_hh [4H,H], bias_ih [4H], bias_hh [4H]
 *                      out: y [N,T,H], gates [N,T,4H] (i, f, g, o after their activations), cell [N,T,H]
 *                      The equations of torch.nn.LSTM, batch first, from state 0.
 * lstm_grad            in: dy, gates, cell, weight_hh          out: dgates [N,T,4H], before their activations
 * lstm_grad_weight     in: x, y, dgates
 *                      out: dweight_ih +=, dweight_hh +=, dbias_ih +=, dbias_hh +=
 *                      The gradient of x is a linear_grad_input of dgates and weight_ih. */
typedef struct brim_lstm_attr {
  int32_t reverse; /* 1: from the last position to the first */
} brim_lstm_attr;
/* softmax_cross_entropy       in: logits [...,K], label, [weight [K]]            out: loss [...], one per label
 * softmax_cross_entropy_grad  in: logits, label, [weight]                        out: dlogits, times step.loss_scale
 * As torch.nn.CrossEntropyLoss before its mean; without the input, weight is 1:
 *     loss = (1 - smoothing) * weight[label] * nll[label] + smoothing / K * sum over k of weight[k] * nll[k]
 * With `ignores`, a label equal to ignore_index has loss 0 and gradient 0. Any other label outside [0, K) is an error
 * in the data: EINVAL. label: i32 [...]; or, since ABI 1.5, class probabilities: real, in the logits' shape, not in 16
 * bits. Then loss = sum over k of weight[k] * ((1 - smoothing) * label[k] + smoothing / K) * nll[k]
 * linear_cross_entropy        in: x [...,F], product [K,F], label i32 [...], [bias [K]]
 *                      out: loss [...], rank i32 [...]: the number of classes ranked above the label (with a greater
 *                      logit, or an equal one and a lower index); -1 if ignored
 * linear_cross_entropy_grad   in: x, product, label, loss, [bias]          out: dx, [dproduct +=, [dbias +=]]
 *                      The loss is softmax_cross_entropy of the logits x product^T + bias, which are computed in
 *                      chunks. product and bias are parameters; if they are frozen, the gradient has only dx. With
 *                      softcap each logit z is softcap * tanh(z / softcap) instead, and smoothing is 0.
 * linear_cross_entropy+grad   in: x, product, label, [bias]      out: loss, rank, dx, [dproduct +=, [dbias +=]]
 * rank_metrics                in: loss [...], rank [...]                         out: metrics f64, +=
 *                      classification_metrics from ranks, without a confusion matrix: metrics[0] += sum of losses,
 *                      [1] += number of ranks equal to 0; with top_k [2] += number of ranks in [0, top_k)
 * mse, mae, huber, bce        in: y [N,...], target                              out: loss [N], the mean over a sample
 * mse_grad, ...               in: y, target                                      out: dy, times step.loss_scale
 *                      target: real, of y's shape and type; or labels i32 [N] with y [N,K]: then the target is 1 at
 *                      the label and 0 elsewhere. The target has no gradient. bce takes logits, as
 *                      torch.nn.BCEWithLogitsLoss; huber is torch.nn.HuberLoss with `delta`. */
/* Operations around losses of plugins (brim/loss.h), with `ignores` and ignore_index as above. Since ABI 1.10
 * one_hot              in: label i32 [...]                    out: y [...,K]: 1 at the label, 0 elsewhere; all 0 if it
 *                      is ignored. Any other label outside [0, K) is an error in the data.
 * sample_loss          in: x [...], [label, [weight [K]]]     out: loss [...]: x, times weight[label]; 0 if ignored
 * sample_loss_grad     in: x, [label, [weight]]               out: dx: step.loss_scale, times weight[label]; 0 if
 *                      ignored
 * The last two do not check labels; one_hot does. Without the input label, the targets are real numbers. */
typedef struct brim_loss_attr {
  double smoothing;     /* [0, 1) */
  double delta;         /* huber: > 0 */
  int32_t ignore_index; /* the label to ignore, with `ignores` */
  int32_t ignores;      /* 1: ignore_index applies; 0: every label counts */
  double softcap;       /* linear_cross_entropy*: > 0, or 0 for none. Since ABI 1.12 */
} brim_loss_attr;

/* formula              in: x, ...            out: y, ...        Since ABI 1.10
 *                      Evaluates a formula (brim/formula.h) elementwise. Inputs and outputs have one shape, except
 *                      inputs of one element, which every element reads, and f64 inputs that uniforms read. An output
 *                      may be an input. */
typedef struct brim_formula_attr {
  const brim_formula *formula;              /* owned by the graph; valid as long as the node */
  const struct brim_formula_source *source; /* for the core; NULL: no gradient */
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
  brim_linear_attr linear;
  uint64_t reserve[16]; /* the union's size is part of the ABI */
} brim_attr;

/* Properties of operations that backends may use. Zero: no property holds. Since ABI 1.10 */
enum brim_op_sum {
  BRIM_SUM_NONE,
  BRIM_SUM_FIRST, /* out[0] = in[0] + in[1]; the other outputs are computed from out[0] as it is stored */
  BRIM_SUM_LAST,  /* out[0] = in[0] + the operation on in[1], rounded to the type of out[0] */
  BRIM_SUM_NEXT   /* out[0] = the operation on the other inputs, rounded to the type of out[0], + the last input, or
                     relu of that sum. Since ABI 1.13 */
};
typedef struct brim_op_traits {
  /* A bit for each input and output whose first dimension is N; bits of tensors that a node lacks may be set. Such an
   * operation can run on a part of the samples at a time. Each part needs the other inputs whole, and adds to the other
   * outputs, which are gradients, in the order of the samples. 0: it cannot run in parts. */
  uint32_t samples_in, samples_out;
  int32_t apart;      /* 1: a sample's results are bit-identical in every part; 0: only if parts are whole grains */
  int32_t broadcasts; /* 1: inputs may broadcast to the shape of out[0]; running in parts needs inputs of one shape */
  int32_t view;       /* 1: out[0] has the values of in[0] in the same order: they share memory if the layouts agree */
  int32_t sum;        /* enum brim_op_sum */
  uint32_t copied;    /* a bit for each input of which out[0] holds only copies, possibly of a smaller type than the
                         other inputs. Since ABI 1.12 */
} brim_op_traits;

typedef struct brim_node {
  uint32_t index;                   /* index in the program */
  const char *op;                   /* "conv2d" */
  const struct brim_op *descriptor; /* for the core; see brim_node_traits() */
  const char *name;                 /* "conv1": the author's name, or one derived from the operation */
  brim_attr attr;
  uint32_t in_count, out_count;
  brim_tensor **in, **out;
  const char *file; /* source position in the model; "" if the core created the node */
  int line;
} brim_node;

/* The traits of a node's operation, with which its descriptor begins. Since ABI 1.10 */
static inline const brim_op_traits *brim_node_traits(const brim_node *node)
{
  return (const brim_op_traits *)(const void *)node->descriptor;
}

#ifdef __cplusplus
}
#endif
#endif
