/* A round of federated learning (McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized
 * Data, AISTATS 2017): a client adopts the global model and trains, and its update is folded into the round's sum, from
 * which the server computes the next global model. fold rounds every weighted update to a multiple of 2^-42, so that
 * the sum is exact and does not depend on the order of the clients. steer keeps a client near the global model
 * (FedProx: Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020), or corrects its gradient by a
 * control variate (SCAFFOLD: Karimireddy et al., Stochastic Controlled Averaging for Federated Learning, ICML 2020). */
#include "graph/op.h"

static void cost_adopt(const brim_node *n, brim_cost *out)
{
  (void)n;
  out->flops = 0; /* adopt only copies */
}
static void cost_steer(const brim_node *n, brim_cost *out)
{
  out->flops = (n->in_count > 3 ? 5 : 3) * (uint64_t)brim_shape_count(&n->in[0]->shape);
}

BRIM_OP(adopt) = {
    .name = "adopt", .kind = BRIM_KIND_COPY, .wide_in = BRIM_OP_FROM(0), .signature = "x -> y", .cost = cost_adopt};
BRIM_OP(distance) = {.name = "distance",
                     .kind = BRIM_KIND_REDUCTION,
                     .wide_in = BRIM_OP_FROM(0),
                     .signature = "w, g, [before f64 [2]] -> sum of squares and largest",
                     .inplace = BRIM_OP_INPLACE(2),
                     .flops = 4};
BRIM_OP(steer) = {.name = "steer",
                  .kind = BRIM_KIND_UPDATE,
                  .wide_in = BRIM_OP_FROM(0),
                  .signature = "w, g, gradient, [control] -> gradient",
                  .cost = cost_steer};
BRIM_OP(fold) = {.name = "fold",
                 .kind = BRIM_KIND_UPDATE,
                 .wide_in = BRIM_OP_FROM(0),
                 .signature = "w, g, sum f64 -> sum",
                 .flops = 5};
BRIM_OP(serve) = {.name = "serve",
                  .kind = BRIM_KIND_UPDATE,
                  .wide_in = BRIM_OP_FROM(0),
                  .signature = "sum f64, [x] -> gradient | x",
                  .flops = 2};
