/* Gathers values by index, and adds up their gradients. Values have four bytes (real or i32), or two if a table is
 * stored in 16 bits.
 *
 *     gather      y[o,j,i] = x[o, index[o,j,i], i]     o and i: all dimensions before and after the axis
 *     embedding   y[r,:]   = weight[index[r],:]        r: all dimensions of the index
 *
 * One thread does all additions to an element, in the order of the indices: a task of gather_grad is a range of o, a
 * task of embedding_grad some columns of the table. */
#include "cpu.h"

enum { TASK_VALUES = 16384, COLUMNS_PER_TASK = 64 };

/* The dataset supplies the indices, so the kernel checks them. */
static brim_status check_index(const brim_node *node, const brim_tensor *index, const int32_t *value, int64_t limit)
{
  const int64_t count = brim_shape_count(&index->shape);
  for (int64_t i = 0; i < count; i++)
    if (value[i] < 0 || value[i] >= limit)
      return brim_fail(BRIM_EINVAL, "%s '%s': index %d in sample %lld of the micro-batch is not in [0, %lld)", node->op,
                       node->name, value[i], (long long)(i / (count / index->shape.dim[0])), (long long)limit);
  return BRIM_OK;
}

/* ---- gather ---- */

typedef struct gathering {
  const int32_t *index;
  const float *from;
  float *to;
  int64_t outer, x_count, y_count, inner, per_task;
} gathering;

static gathering gathering_of(const brim_node *node, const brim_tensor *x, const brim_tensor *index)
{
  const int32_t axis = node->attr.move.axis;
  gathering g = {.outer = 1, .x_count = x->shape.dim[axis], .y_count = index->shape.dim[axis], .inner = 1};
  for (int32_t d = 0; d < axis; d++) g.outer *= x->shape.dim[d];
  for (int32_t d = axis + 1; d < x->shape.rank; d++) g.inner *= x->shape.dim[d];
  g.per_task = cpu_max(1, TASK_VALUES / (cpu_max(g.x_count, g.y_count) * g.inner));
  return g;
}

static void gather_some(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const gathering *g = arg;
  for (int64_t o = task * g->per_task; o < cpu_min((task + 1) * g->per_task, g->outer); o++) {
    const int32_t *index = g->index + o * g->y_count * g->inner;
    const float *from = g->from + o * g->x_count * g->inner;
    float *to = g->to + o * g->y_count * g->inner;
    for (int64_t j = 0; j < g->y_count; j++)
      for (int64_t i = 0; i < g->inner; i++) memcpy(to++, from + *index++ * g->inner + i, sizeof *to);
  }
}

static void gather_grad_some(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const gathering *g = arg;
  for (int64_t o = task * g->per_task; o < cpu_min((task + 1) * g->per_task, g->outer); o++) {
    const int32_t *index = g->index + o * g->y_count * g->inner;
    const float *dy = g->from + o * g->y_count * g->inner;
    float *dx = g->to + o * g->x_count * g->inner;
    memset(dx, 0, (size_t)(g->x_count * g->inner) * sizeof *dx);
    for (int64_t j = 0; j < g->y_count; j++)
      for (int64_t i = 0; i < g->inner; i++) dx[*index++ * g->inner + i] += *dy++;
  }
}

static CPU_RUN(gather_run)
{
  cpu_backend *b = self;
  const brim_node *node = launch->node;
  gathering g = gathering_of(node, node->in[0], node->in[1]);
  g.from = cpu_plain_input(b, launch, 0);
  g.index = cpu_plain_input(b, launch, 1);
  g.to = launch->out[0];
  BRIM_TRY(check_index(node, node->in[1], g.index, g.x_count));
  cpu_pool_run(b->pool, cpu_divide_up(g.outer, g.per_task), gather_some, &g);
  return BRIM_OK;
}

static CPU_RUN(gather_grad_run)
{
  cpu_backend *b = self;
  const brim_node *node = launch->node;
  gathering g = gathering_of(node, node->out[0], node->in[0]);
  g.index = cpu_plain_input(b, launch, 0);
  g.from = cpu_plain_input(b, launch, 1);
  g.to = launch->out[0];
  BRIM_TRY(check_index(node, node->in[0], g.index, g.x_count));
  cpu_pool_run(b->pool, cpu_divide_up(g.outer, g.per_task), gather_grad_some, &g);
  return BRIM_OK;
}

CPU_KERNEL(gather) = {.op = "gather", .prepare = cpu_plain_prepare, .run = gather_run};
CPU_KERNEL(gather_grad) = {.op = "gather_grad", .prepare = cpu_plain_prepare, .run = gather_grad_run};

/* ---- embedding ---- */

typedef struct table {
  const cpu_simd *simd;
  const int32_t *index;
  const void *from;
  void *to;
  int64_t rows, dim, per_task;
  size_t size; /* bytes of a value */
} table;

static void look_up_some(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const table *t = arg;
  for (int64_t r = task * t->per_task; r < cpu_min((task + 1) * t->per_task, t->rows); r++)
    memcpy((char *)t->to + (size_t)(r * t->dim) * t->size,
           (const char *)t->from + (size_t)(t->index[r] * t->dim) * t->size, (size_t)t->dim * t->size);
}

static void add_columns(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const table *t = arg;
  const int64_t at = task * COLUMNS_PER_TASK, count = cpu_min(COLUMNS_PER_TASK, t->dim - at);
  for (int64_t r = 0; r < t->rows; r++) {
    float *to = (float *)t->to + t->index[r] * t->dim + at;
    t->simd->add(to, (const float *)t->from + r * t->dim + at, to, count);
  }
}

static CPU_RUN(embedding_run)
{
  cpu_backend *b = self;
  const brim_node *node = launch->node;
  table t = {.index = cpu_plain_input(b, launch, 0), .from = launch->in[1], .to = launch->out[0]};
  t.rows = brim_shape_count(&node->in[0]->shape);
  t.dim = node->in[1]->shape.dim[1];
  t.size = brim_dtype_bytes(node->in[1]->dtype);
  t.per_task = cpu_max(1, TASK_VALUES / t.dim);
  BRIM_TRY(check_index(node, node->in[0], t.index, node->in[1]->shape.dim[0]));
  cpu_pool_run(b->pool, cpu_divide_up(t.rows, t.per_task), look_up_some, &t);
  return BRIM_OK;
}

static CPU_RUN(embedding_grad_run)
{
  cpu_backend *b = self;
  const brim_node *node = launch->node;
  table t = {.simd = b->simd, .index = cpu_plain_input(b, launch, 0), .to = launch->out[0]};
  t.from = cpu_plain_input(b, launch, 1);
  t.rows = brim_shape_count(&node->in[0]->shape);
  t.dim = node->out[0]->shape.dim[1];
  BRIM_TRY(check_index(node, node->in[0], t.index, node->out[0]->shape.dim[0]));
  cpu_pool_run(b->pool, cpu_divide_up(t.dim, COLUMNS_PER_TASK), add_columns, &t);
  return BRIM_OK;
}

CPU_KERNEL(embedding) = {.op = "embedding", .prepare = cpu_plain_prepare, .run = embedding_run};
CPU_KERNEL(embedding_grad) = {.op = "embedding_grad", .prepare = cpu_plain_prepare, .run = embedding_grad_run};
