/* upsample2d and its gradient. A task has some planes; a plane is one sample and one block of channels. The taps of
 * each row and column of y are computed once per run.
 *
 * Workspace: the taps of rows and then of columns | for each thread a row of x. */
#include "cpu.h"
#include "simd_upsample.h"

#define TASK_FLOATS 8192 /* minimum floats of y per task */

typedef struct planes {
  const cpu_upsampling *simd;
  cpu_upsample_plane plane;
  int64_t count, per_task;
  const float *from;
  float *to;
  char *rows; /* one row of x for each thread */
  bool back;
} planes;

static uint64_t taps_bytes(const brim_shape *y)
{
  return cpu_aligned((uint64_t)(y->dim[2] + y->dim[3]) * sizeof(cpu_tap));
}

static uint64_t row_bytes(int64_t width, int64_t lanes)
{
  return cpu_aligned((uint64_t)(width * lanes) * sizeof(float));
}

/* Returns the rows (or columns) of x from which output place p is interpolated, and their weights. The position in x
 * (see brim/ops.h) is the fraction above / below, in integers. */
static cpu_tap tap_of(const brim_upsample2d_attr *attr, int64_t extent, int64_t places, int64_t p)
{
  int64_t above = p * extent, below = places;
  if (attr->mode == BRIM_UPSAMPLE_LINEAR && attr->align_corners) {
    above = p * (extent - 1);
    below = cpu_max(1, places - 1);
  } else if (attr->mode == BRIM_UPSAMPLE_LINEAR) {
    above = cpu_max(0, (2 * p + 1) * extent - places);
    below = 2 * places;
  }
  const int64_t at = above / below;
  const double next = (double)(above % below) / (double)below;
  if (attr->mode == BRIM_UPSAMPLE_NEAREST || at >= extent - 1) return (cpu_tap){cpu_min(at, extent - 1), 1, 0};
  return (cpu_tap){at, (float)(1 - next), (float)next};
}

static void find_taps(const brim_upsample2d_attr *attr, cpu_upsample_plane *plane, cpu_tap *taps)
{
  plane->row = taps;
  plane->column = taps + plane->places[0];
  for (int d = 0; d < 2; d++)
    for (int64_t p = 0; p < plane->places[d]; p++) *taps++ = tap_of(attr, plane->extent[d], plane->places[d], p);
}

static void run_task(void *arg, int64_t task, int32_t thread)
{
  const planes *v = arg;
  const cpu_upsample_plane *plane = &v->plane;
  const int64_t x_floats = plane->extent[0] * plane->extent[1] * plane->lanes;
  const int64_t y_floats = plane->places[0] * plane->places[1] * plane->lanes;
  float *row = (float *)(void *)(v->rows + (uint64_t)thread * row_bytes(plane->extent[1], plane->lanes));
  for (int64_t i = task * v->per_task; i < cpu_min((task + 1) * v->per_task, v->count); i++)
    if (v->back)
      v->simd->upsample_grad(plane, v->from + i * y_floats, v->to + i * x_floats, row);
    else
      v->simd->upsample(plane, v->from + i * x_floats, v->to + i * y_floats, row);
}

/* Runs a node on x and y, or on their gradients. */
static brim_status run(cpu_backend *b, const brim_launch *launch, const brim_tensor *x, const brim_tensor *y)
{
  static const cpu_upsampling *const tables[] = {CPU_OF_ISAS(&, cpu_upsampling)};
  const int64_t lanes = launch->node->in[0]->channel_block;
  planes v = {.simd = tables[b->isa],
              .plane = {.extent = {x->shape.dim[2], x->shape.dim[3]},
                        .places = {y->shape.dim[2], y->shape.dim[3]},
                        .lanes = lanes},
              .count = x->shape.dim[0] * x->shape.dim[1] / lanes,
              .from = launch->in[0],
              .to = launch->out[0],
              .rows = (char *)launch->workspace + taps_bytes(&y->shape),
              .back = x == launch->node->out[0]};
  v.per_task = cpu_divide_up(TASK_FLOATS, v.plane.places[0] * v.plane.places[1] * lanes);
  find_taps(&launch->node->attr.upsample2d, &v.plane, launch->workspace);
  cpu_pool_run(b->pool, cpu_divide_up(v.count, v.per_task), run_task, &v);
  return BRIM_OK;
}

static brim_status prepare(cpu_backend *b, const brim_node *node, const brim_shape *x, const brim_shape *y,
                           brim_kernel_need *need)
{
  const int64_t lanes = node->in[0]->channel_block;
  cpu_layout_set(node->out[0], lanes);
  need->workspace_bytes = taps_bytes(y) + (uint64_t)b->threads * row_bytes(x->dim[3], lanes);
  return BRIM_OK;
}

static CPU_PREPARE(upsample2d_prepare)
{
  (void)program;
  (void)state;
  return prepare(self, node, &node->in[0]->shape, &node->out[0]->shape, need);
}
static CPU_RUN(upsample2d_run)
{
  return run(self, launch, launch->node->in[0], launch->node->out[0]);
}
CPU_KERNEL(upsample2d) = {.op = "upsample2d", .prepare = upsample2d_prepare, .run = upsample2d_run};

static CPU_PREPARE(upsample2d_grad_prepare)
{
  (void)program;
  (void)state;
  return prepare(self, node, &node->out[0]->shape, &node->in[0]->shape, need);
}
static CPU_RUN(upsample2d_grad_run)
{
  return run(self, launch, launch->node->out[0], launch->node->in[0]);
}
CPU_KERNEL(upsample2d_grad) = {.op = "upsample2d_grad", .prepare = upsample2d_grad_prepare, .run = upsample2d_grad_run};
