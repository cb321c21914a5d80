/* Max pooling and its gradient: a task is a plane of one sample and one block of channels. */
#include "cpu.h"

typedef struct planes {
  const cpu_simd *simd;
  cpu_pool_plane plane;
  int64_t count, per_task;
  const float *from;
  float *to;
  uint8_t *index;
} planes;

static void pool_planes(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const planes *v = arg;
  const cpu_pool_plane *p = &v->plane;
  const int64_t in = p->height * p->width * p->lanes, out = p->out_height * p->out_width * p->lanes;
  for (int64_t i = task * v->per_task; i < cpu_min((task + 1) * v->per_task, v->count); i++)
    v->simd->max_pool(p, v->from + i * in, v->to + i * out, v->index + i * out);
}

static void pool_planes_grad(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const planes *v = arg;
  const cpu_pool_plane *p = &v->plane;
  const int64_t in = p->height * p->width * p->lanes, out = p->out_height * p->out_width * p->lanes;
  for (int64_t i = task * v->per_task; i < cpu_min((task + 1) * v->per_task, v->count); i++)
    v->simd->max_pool_grad(p, v->from + i * out, v->index + i * out, v->to + i * in);
}

static planes planes_of(const cpu_backend *b, const brim_node *node, const brim_shape *x, const brim_shape *y,
                        int64_t block)
{
  planes v = {.simd = b->simd, .count = x->dim[0] * x->dim[1] / block};
  v.plane = (cpu_pool_plane){.height = x->dim[2], .width = x->dim[3], .out_height = y->dim[2], .out_width = y->dim[3]};
  v.plane.lanes = block;
  for (int i = 0; i < 2; i++) {
    v.plane.kernel[i] = node->attr.pool2d.kernel[i];
    v.plane.stride[i] = node->attr.pool2d.stride[i];
  }
  v.per_task = cpu_max(1, 8192 / cpu_max(1, x->dim[2] * x->dim[3] * block));
  return v;
}

static CPU_RUN(max_pool2d_run)
{
  cpu_backend *b = self;
  const brim_tensor *x = launch->node->in[0];
  planes v = planes_of(b, launch->node, &x->shape, &launch->node->out[0]->shape, x->channel_block);
  v.from = launch->in[0];
  v.to = launch->out[0];
  v.index = launch->out[1];
  cpu_pool_run(b->pool, cpu_divide_up(v.count, v.per_task), pool_planes, &v);
  return BRIM_OK;
}

/* The result takes the order of the index, which is that of the forward pass. */
static CPU_PREPARE(max_pool2d_grad_prepare)
{
  (void)self;
  (void)program;
  (void)state;
  const int64_t block = node->in[1]->channel_block;
  cpu_layout_set(node->out[0], block);
  need->workspace_bytes = cpu_layout_bytes(node->in[0], block);
  return BRIM_OK;
}

static CPU_RUN(max_pool2d_grad_run)
{
  cpu_backend *b = self;
  const brim_node *node = launch->node;
  const int64_t block = node->in[1]->channel_block;
  planes v = planes_of(b, node, &node->out[0]->shape, &node->in[0]->shape, block);
  v.from = cpu_layout_of(b, node->in[0], launch->in[0], block, launch->workspace);
  v.index = launch->in[1];
  v.to = launch->out[0];
  cpu_pool_run(b->pool, cpu_divide_up(v.count, v.per_task), pool_planes_grad, &v);
  return BRIM_OK;
}

BRIM_KERNEL(max_pool2d) = {.op = "max_pool2d", .prepare = cpu_follow_prepare, .run = max_pool2d_run};
BRIM_KERNEL(max_pool2d_grad) = {
    .op = "max_pool2d_grad", .prepare = max_pool2d_grad_prepare, .run = max_pool2d_grad_run};
