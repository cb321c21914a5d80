/* The norm of all gradients together, and the factor that limits it: torch.nn.utils.clip_grad_norm_ (Pascanu, Mikolov
 * and Bengio, On the difficulty of training recurrent neural networks, ICML 2013). There is one squared_norm per
 * gradient, in the order of the parameters; each adds to the sum of the ones before. gradient_scale follows. */
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
