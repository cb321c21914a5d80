/* The norm of all gradients together, and the factor that limits it: torch.nn.utils.clip_grad_norm_ (Pascanu, Mikolov
 * and Bengio, On the difficulty of training recurrent neural networks, ICML 2013). One squared_norm per gradient, each
 * adding to the sum of those before, in the order of the parameters; then gradient_scale. */
#include "graph/op.h"

BRIM_OP(squared_norm) = {.name = "squared_norm",
                         .kind = BRIM_KIND_UPDATE,
                         .wide_in = BRIM_OP_FROM(0),
                         .signature = "x, [sum] -> sum",
                         .inplace = BRIM_OP_INPLACE(1),
                         .flops = 2};
BRIM_OP(gradient_scale) = {.name = "gradient_scale",
                           .kind = BRIM_KIND_UPDATE,
                           .wide_in = BRIM_OP_FROM(0),
                           .signature = "[sum] -> norm and factor"};
