/* The table of operations: the linker gathers the pointers that BRIM_OP() leaves in section brim_ops. */
#include "graph/op.h"

#include <string.h>

extern const brim_op *const __start_brim_ops[];
extern const brim_op *const __stop_brim_ops[];

size_t brim_op_count(void)
{
  return (size_t)(__stop_brim_ops - __start_brim_ops);
}
const brim_op *brim_op_at(size_t i)
{
  return __start_brim_ops[i];
}

const brim_op *brim_op_find(const char *name)
{
  for (size_t i = 0; i < brim_op_count(); i++)
    if (strcmp(__start_brim_ops[i]->name, name) == 0) return __start_brim_ops[i];
  return NULL;
}

brim_cost brim_op_cost(const brim_node *node)
{
  brim_cost cost = {0};
  for (uint32_t i = 0; i < node->in_count; i++) cost.bytes += node->in[i]->bytes;
  for (uint32_t i = 0; i < node->out_count; i++) cost.bytes += node->out[i]->bytes;
  if (node->out_count) cost.flops = (uint64_t)brim_shape_count(&node->out[0]->shape);
  if (node->descriptor->cost) node->descriptor->cost(node, &cost);
  return cost;
}
