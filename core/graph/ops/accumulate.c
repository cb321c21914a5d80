/* Sums over a step: into the gradient of a parameter, and from there into a moving average. */
#include "graph/op.h"

BRIM_OP(accumulate) = {
    .name = "accumulate", .kind = BRIM_KIND_UPDATE, .signature = "x -> gradient", .accumulates = BRIM_OP_FROM(0)};
/* The buffers of batch norm (Ioffe and Szegedy, 2015), once per commit. */
BRIM_OP(moving_average) = {
    .name = "moving_average", .kind = BRIM_KIND_UPDATE, .wide_in = BRIM_OP_FROM(0), .signature = "value, sum -> value"};

/* The start of a gradient that is not zeroed with the others: see core/graph/update_backward.c. */
BRIM_OP(zero) = {.name = "zero", .kind = BRIM_KIND_COPY, .signature = "nothing -> gradient"};
