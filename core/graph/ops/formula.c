/* What a formula computes of each element. See brim/formula.h. */
#include "graph/op.h"

enum { FLOPS_OF_LINE = 2 }; /* most are one; a root or an exponential are many */

static void cost_formula(const brim_node *n, brim_cost *out)
{
  out->flops = FLOPS_OF_LINE * n->attr.formula.formula->lines * (uint64_t)brim_shape_count(&n->out[0]->shape);
}

BRIM_OP(formula) = {.name = "formula",
                    .wide_in = BRIM_OP_FROM(0),
                    .signature = "x, ... -> y, ...",
                    .in_count = 1,
                    .variadic = true,
                    .out_count = 1,
                    .cost = cost_formula};
