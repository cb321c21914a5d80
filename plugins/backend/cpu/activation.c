/* Functions of single elements: flat loops over memory, whatever its order, in pieces of a fixed size. */
#include "cpu.h"

enum { PIECE = 16384 }; /* elements of a task: 64 KiB of each tensor */

typedef struct flat {
  cpu_function function; /* either `function` or `slope` is set */
  cpu_slope slope;
  const float *x, *dy;
  float *y;
  int64_t count;
  float factor;
} flat;

static void run_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const flat *v = arg;
  const int64_t at = task * PIECE, count = cpu_min(PIECE, v->count - at);
  if (v->function)
    v->function(v->x + at, v->y + at, count, v->factor);
  else
    v->slope(v->x + at, v->dy + at, v->y + at, count, v->factor);
}

static brim_status run_flat(cpu_backend *b, const brim_launch *launch, cpu_function function, cpu_slope slope)
{
  const brim_node *node = launch->node;
  flat v = {.function = function, .slope = slope, .x = launch->in[0], .y = launch->out[0]};
  v.count = brim_shape_count(&node->out[0]->shape);
  v.factor = (float)node->attr.activation.factor;
  if (slope) v.dy = cpu_layout_of(b, node->in[1], launch->in[1], node->in[0]->channel_block, launch->workspace);
  cpu_pool_run(b->pool, cpu_divide_up(v.count, PIECE), run_piece, &v);
  return BRIM_OK;
}

static const cpu_activation *table_of(const cpu_backend *b)
{
  static const cpu_activation *const tables[] = {CPU_OF_ISAS(&, cpu_activation)};
  return tables[b->isa];
}

cpu_epilogue cpu_epilogue_of(const cpu_backend *b, const brim_node *node)
{
  const cpu_activation *t = table_of(b);
  const brim_activation_attr *attr = &node->attr.fused.activation;
  const char *second = strrchr(node->op, '+');
  /* Other operations may have other attributes at this place. */
  const bool is_gelu = second && strcmp(second, "+gelu") == 0;
  const struct {
    const char *op;
    cpu_function function;
  } rows[] = {{"+leaky_relu", t->leaky_relu},
              {"+sigmoid", t->sigmoid},
              {"+tanh", t->tanh},
              {"+silu", t->silu},
              {"+gelu", t->gelu[is_gelu ? attr->approximate : 0]}};
  cpu_epilogue epilogue = {.factor = (float)attr->factor};
  epilogue.relu = second && strcmp(second, "+relu") == 0;
  for (size_t i = 0; second && i < sizeof rows / sizeof rows[0]; i++)
    if (strcmp(second, rows[i].op) == 0) epilogue.function = rows[i].function;
  return epilogue;
}

#define FUNCTION(id, field)                                                                                            \
  static CPU_RUN(id##_run)                                                                                             \
  {                                                                                                                    \
    return run_flat(self, launch, table_of(self)->field, NULL);                                                        \
  }                                                                                                                    \
  CPU_KERNEL(id) = {.op = #id, .prepare = cpu_follow_prepare, .run = id##_run}
#define SLOPE(id, field)                                                                                               \
  static CPU_RUN(id##_run)                                                                                             \
  {                                                                                                                    \
    return run_flat(self, launch, NULL, table_of(self)->field);                                                        \
  }                                                                                                                    \
  CPU_KERNEL(id) = {.op = #id, .prepare = cpu_binary_prepare, .run = id##_run}
FUNCTION(leaky_relu, leaky_relu);
FUNCTION(gelu, gelu[launch->node->attr.activation.approximate]);
FUNCTION(silu, silu);
FUNCTION(sigmoid, sigmoid);
FUNCTION(tanh, tanh);
FUNCTION(exp, exp);
FUNCTION(scale, scale);
SLOPE(leaky_relu_grad, leaky_relu_grad);
SLOPE(gelu_grad, gelu_grad[launch->node->attr.activation.approximate]);
SLOPE(silu_grad, silu_grad);
SLOPE(sigmoid_grad, sigmoid_grad);
SLOPE(tanh_grad, tanh_grad);
