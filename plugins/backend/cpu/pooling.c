/* Pooling and its gradients. A task has some planes; a plane is one sample and one block of channels. */
#include "cpu.h"
#include "simd_pool.h"

const cpu_pooling *const cpu_pooling_of_isa[3] = {CPU_OF_ISAS(&, cpu_pooling)};

typedef struct planes {
  const cpu_pooling *simd;
  cpu_pool_plane plane;
  int64_t count, per_task;
  const float *from;
  float *to;
  uint8_t *index;
  int64_t x_floats, y_floats; /* floats of a plane */
} planes;

/* Pools plane `i`, or distributes its gradient. */
typedef void (*plane_fn)(const planes *v, int64_t i);

static void max_plane(const planes *v, int64_t i)
{
  v->simd->max_pool(&v->plane, v->from + i * v->x_floats, v->to + i * v->y_floats, v->index + i * v->y_floats);
}
static void max_plane_grad(const planes *v, int64_t i)
{
  v->simd->max_pool_grad(&v->plane, v->from + i * v->y_floats, v->index + i * v->y_floats, v->to + i * v->x_floats);
}
static void avg_plane(const planes *v, int64_t i)
{
  v->simd->avg_pool(&v->plane, v->from + i * v->x_floats, v->to + i * v->y_floats);
}
static void avg_plane_grad(const planes *v, int64_t i)
{
  v->simd->avg_pool_grad(&v->plane, v->from + i * v->y_floats, v->to + i * v->x_floats);
}

typedef struct job {
  const planes *planes;
  plane_fn fn;
} job;

static void run_task(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const job *j = arg;
  const planes *v = j->planes;
  for (int64_t i = task * v->per_task; i < cpu_min((task + 1) * v->per_task, v->count); i++) j->fn(v, i);
}

static void run_planes(cpu_backend *b, const planes *v, plane_fn fn)
{
  job j = {v, fn};
  cpu_pool_run(b->pool, cpu_divide_up(v->count, v->per_task), run_task, &j);
}

/* Returns the planes of x and y, or of their gradients, which both have the memory order `block`. */
static planes planes_of(const cpu_backend *b, const brim_node *node, const brim_tensor *x, const brim_tensor *y,
                        int64_t block)
{
  const brim_pool2d_attr *attr = &node->attr.pool2d;
  planes v = {.simd = cpu_pooling_of_isa[b->isa], .count = x->shape.dim[0] * x->shape.dim[1] / block};
  v.plane.lanes = block;
  v.plane.adaptive = strncmp(node->op, "adaptive", strlen("adaptive")) == 0;
  v.plane.exclude_padding = attr->exclude_padding;
  for (int d = 0; d < 2; d++) {
    v.plane.extent[d] = x->shape.dim[2 + d];
    v.plane.places[d] = y->shape.dim[2 + d];
    v.plane.kernel[d] = attr->kernel[d];
    v.plane.stride[d] = attr->stride[d];
    v.plane.padding[d] = attr->padding[d];
  }
  v.x_floats = v.plane.extent[0] * v.plane.extent[1] * block;
  v.y_floats = v.plane.places[0] * v.plane.places[1] * block;
  v.per_task = cpu_max(1, 8192 / cpu_max(1, cpu_max(v.x_floats, v.y_floats)));
  return v;
}

static CPU_RUN(max_pool2d_run)
{
  cpu_backend *b = self;
  const brim_node *node = launch->node;
  planes v = planes_of(b, node, node->in[0], node->out[0], node->in[0]->channel_block);
  v.from = launch->in[0];
  v.to = launch->out[0];
  v.index = launch->out[1];
  run_planes(b, &v, max_plane);
  return BRIM_OK;
}

/* The result has the memory order of the index, which the forward pass chose. */
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
  planes v = planes_of(b, node, node->out[0], node->in[0], block);
  v.from = cpu_layout_of(b, node->in[0], launch->in[0], block, launch->workspace);
  v.index = launch->in[1];
  v.to = launch->out[0];
  run_planes(b, &v, max_plane_grad);
  return BRIM_OK;
}

static CPU_RUN(avg_pool2d_run)
{
  cpu_backend *b = self;
  const brim_node *node = launch->node;
  planes v = planes_of(b, node, node->in[0], node->out[0], node->in[0]->channel_block);
  v.from = launch->in[0];
  v.to = launch->out[0];
  run_planes(b, &v, avg_plane);
  return BRIM_OK;
}

static CPU_RUN(avg_pool2d_grad_run)
{
  cpu_backend *b = self;
  const brim_node *node = launch->node;
  planes v = planes_of(b, node, node->out[0], node->in[0], node->in[0]->channel_block);
  v.from = launch->in[0];
  v.to = launch->out[0];
  run_planes(b, &v, avg_plane_grad);
  return BRIM_OK;
}

CPU_KERNEL(max_pool2d) = {.op = "max_pool2d", .prepare = cpu_follow_prepare, .run = max_pool2d_run};
CPU_KERNEL(max_pool2d_grad) = {.op = "max_pool2d_grad", .prepare = max_pool2d_grad_prepare, .run = max_pool2d_grad_run};
CPU_KERNEL(avg_pool2d) = {.op = "avg_pool2d", .prepare = cpu_follow_prepare, .run = avg_pool2d_run};
CPU_KERNEL(avg_pool2d_grad) = {.op = "avg_pool2d_grad", .prepare = cpu_follow_prepare, .run = avg_pool2d_grad_run};
CPU_KERNEL(adaptive_avg_pool2d) = {.op = "adaptive_avg_pool2d", .prepare = cpu_follow_prepare, .run = avg_pool2d_run};
CPU_KERNEL(adaptive_avg_pool2d_grad) = {
    .op = "adaptive_avg_pool2d_grad", .prepare = cpu_follow_prepare, .run = avg_pool2d_grad_run};
