/* Optimizers' updates of one parameter, in place. AdamW: Loshchilov and Hutter, Decoupled Weight Decay Regularization,
 * ICLR 2019, as torch.optim.AdamW computes it. Adam: Kingma and Ba, ICLR 2015, with an L2 penalty in the gradient, as
 * torch.optim.Adam. Yogi: Zaheer et al., Adaptive Methods for Nonconvex Optimization, NeurIPS 2018. Adagrad: Duchi et
 * al., Adaptive Subgradient Methods, JMLR 2011, as torch.optim.Adagrad computes it. SGD with momentum, plain or
 * Nesterov's, as torch.optim.SGD computes it (dampening 0). Lion: Chen et al., Symbolic Discovery of Optimization
 * Algorithms, NeurIPS 2023. Adafactor: Shazeer and Stern, Adaptive Learning Rates with Sublinear Memory Cost, ICML
 * 2018, as torch.optim.Adafactor computes it for a matrix. AdamW with 8-bit states: Dettmers et al., 8-bit Optimizers
 * via Block-wise Quantization, ICLR 2022. */
#include "graph/op.h"

static void cost_adam(const brim_node *n, brim_cost *out)
{
  out->flops = 15 * (uint64_t)brim_shape_count(&n->in[0]->shape);
}
/* The cost of adam, plus the search for two codes per value. */
static void cost_adam8bit(const brim_node *n, brim_cost *out)
{
  out->flops = 35 * (uint64_t)brim_shape_count(&n->in[0]->shape);
}
static void cost_sgd(const brim_node *n, brim_cost *out)
{
  out->flops = 6 * (uint64_t)brim_shape_count(&n->in[0]->shape);
}

BRIM_OP(adamw) = {.name = "adamw",
                  .kind = BRIM_KIND_UPDATE,
                  .wide_in = BRIM_OP_FROM(0),
                  .signature = "value, gradient, m, v, [scale] -> value, m, v",
                  .cost = cost_adam};
BRIM_OP(adam) = {.name = "adam",
                 .kind = BRIM_KIND_UPDATE,
                 .wide_in = BRIM_OP_FROM(0),
                 .signature = "value, gradient, m, v, [scale] -> value, m, v",
                 .cost = cost_adam};
BRIM_OP(yogi) = {.name = "yogi",
                 .kind = BRIM_KIND_UPDATE,
                 .wide_in = BRIM_OP_FROM(0),
                 .signature = "value, gradient, m, v, [scale] -> value, m, v",
                 .cost = cost_adam};
BRIM_OP(adagrad) = {.name = "adagrad",
                    .kind = BRIM_KIND_UPDATE,
                    .wide_in = BRIM_OP_FROM(0),
                    .signature = "value, gradient, sum, [scale] -> value, sum",
                    .cost = cost_sgd};
BRIM_OP(sgd) = {.name = "sgd",
                .kind = BRIM_KIND_UPDATE,
                .wide_in = BRIM_OP_FROM(0),
                .signature = "value, gradient, velocity, [scale] -> value, velocity",
                .cost = cost_sgd};
BRIM_OP(lion) = {.name = "lion",
                 .kind = BRIM_KIND_UPDATE,
                 .wide_in = BRIM_OP_FROM(0),
                 .signature = "value, gradient, m, [scale] -> value, m",
                 .cost = cost_sgd};
BRIM_OP(adafactor) = {
    .name = "adafactor",
    .kind = BRIM_KIND_UPDATE,
    .wide_in = BRIM_OP_FROM(0),
    .signature = "value, gradient, square | row, column, [m], [scale] -> value, square | row, column, [m]",
    .cost = cost_adam};
BRIM_OP(adamw8bit) = {
    .name = "adamw8bit",
    .kind = BRIM_KIND_UPDATE,
    .wide_in = BRIM_OP_FROM(0),
    .signature = "value, gradient, m u8, m_absmax, v u8, v_absmax, [scale] -> value, m, m_absmax, v, v_absmax",
    .cost = cost_adam8bit};

static void cost_ema(const brim_node *n, brim_cost *out)
{
  out->flops = 3 * (uint64_t)brim_shape_count(&n->in[0]->shape);
}
/* Polyak averaging: the exponential moving average of a parameter. */
BRIM_OP(ema) = {.name = "ema",
                .kind = BRIM_KIND_UPDATE,
                .wide_in = BRIM_OP_FROM(0),
                .signature = "value, average -> average",
                .cost = cost_ema};
