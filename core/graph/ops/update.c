/* Optimizers' updates of one parameter, in place. AdamW: Loshchilov and Hutter, Decoupled Weight Decay Regularization,
 * ICLR 2019, as torch.optim.AdamW computes it. Adam: Kingma and Ba, ICLR 2015, with an L2 penalty in the gradient, as
 * torch.optim.Adam. Yogi: Zaheer et al., Adaptive Methods for Nonconvex Optimization, NeurIPS 2018. Adagrad: Duchi et
 * al., Adaptive Subgradient Methods, JMLR 2011, as torch.optim.Adagrad computes it. SGD with momentum, plain or
 * Nesterov's, as torch.optim.SGD computes it (dampening 0). Lion: Chen et al., Symbolic Discovery of Optimization
 * Algorithms, NeurIPS 2023. Adafactor: Shazeer and Stern, Adaptive Learning Rates with Sublinear Memory Cost, ICML
 * 2018, as torch.optim.Adafactor computes it for a matrix. AdamW with 8-bit states: Dettmers et al., 8-bit Optimizers
 * via Block-wise Quantization, ICLR 2022. */
#include "graph/op.h"

#define UPDATE(id, its_flops, its_signature)                                                                           \
  BRIM_OP(id) = {.name = #id,                                                                                          \
                 .kind = BRIM_KIND_UPDATE,                                                                             \
                 .wide_in = BRIM_OP_FROM(0),                                                                           \
                 .signature = its_signature,                                                                           \
                 .flops = its_flops}
UPDATE(adamw, 15, "value, gradient, m, v, [scale] -> value, m, v");
UPDATE(adam, 15, "value, gradient, m, v, [scale] -> value, m, v");
UPDATE(yogi, 15, "value, gradient, m, v, [scale] -> value, m, v");
UPDATE(adagrad, 6, "value, gradient, sum, [scale] -> value, sum");
UPDATE(sgd, 6, "value, gradient, velocity, [scale] -> value, velocity");
UPDATE(lion, 6, "value, gradient, m, [scale] -> value, m");
UPDATE(adafactor, 15, "value, gradient, square | row, column, [m], [scale] -> value, square | row, column, [m]");
/* The flops include the search for two codes per value. */
UPDATE(adamw8bit, 35, "value, gradient, m u8, m_absmax, v u8, v_absmax, [scale] -> value, m, m_absmax, v, v_absmax");
/* Polyak averaging: the exponential moving average of a parameter. */
UPDATE(ema, 3, "value, average -> average");
