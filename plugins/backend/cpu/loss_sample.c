/* Operations around the graph of a loss plugin. one_hot makes the graph's target: 1 at the label and 0 elsewhere. The
 * other operation multiplies each sample's loss by the weight of its class. The gradient that enters the graph is
 * loss_scale times the same weight. */
#include "loss.h"

typedef struct labels {
  const int32_t *label;
  float *y;
  int64_t count, classes, per_task;
} labels;

static void one_hot_rows(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const labels *v = arg;
  const int64_t first = task * v->per_task, last = cpu_min(first + v->per_task, v->count);
  memset(v->y + first * v->classes, 0, (size_t)((last - first) * v->classes) * sizeof *v->y);
  for (int64_t i = first; i < last; i++)
    if (v->label[i] >= 0 && v->label[i] < v->classes) v->y[i * v->classes + v->label[i]] = 1;
}

/* An ignored label may also be a valid class; its row is 0 in any case. */
static CPU_RUN(one_hot_run)
{
  cpu_backend *b = self;
  const brim_tensor *label = launch->node->in[0];
  const brim_loss_attr *attr = &launch->node->attr.loss;
  labels v = {.label = launch->in[0], .y = launch->out[0], .count = brim_shape_count(&label->shape)};
  v.classes = brim_shape_count(&launch->node->out[0]->shape) / v.count;
  v.per_task = cpu_max(1, 16384 / v.classes);
  BRIM_TRY(cpu_loss_check_labels(label, v.label, v.classes, attr));
  cpu_pool_run(b->pool, cpu_divide_up(v.count, v.per_task), one_hot_rows, &v);
  for (int64_t i = 0; attr->ignores && i < v.count; i++)
    if (v.label[i] == attr->ignore_index && v.label[i] >= 0 && v.label[i] < v.classes)
      v.y[i * v.classes + v.label[i]] = 0;
  return BRIM_OK;
}
CPU_KERNEL(one_hot) = {.op = "one_hot", .run = one_hot_run};

/* Returns the weight of sample i. */
static float weight_of(const brim_launch *launch, int64_t i)
{
  const brim_loss_attr *attr = &launch->node->attr.loss;
  const int32_t *label = launch->node->in_count > 1 ? launch->in[1] : NULL;
  if (!label) return 1;
  if (attr->ignores && label[i] == attr->ignore_index) return 0;
  return launch->node->in_count > 2 ? ((const float *)launch->in[2])[label[i]] : 1;
}

static CPU_RUN(sample_loss_run)
{
  (void)self;
  const int64_t count = brim_shape_count(&launch->node->in[0]->shape);
  const float *x = launch->in[0];
  float *loss = launch->out[0];
  for (int64_t i = 0; i < count; i++) {
    const float weight = weight_of(launch, i);
    loss[i] = weight > 0 ? weight * x[i] : 0;
  }
  return BRIM_OK;
}
CPU_KERNEL(sample_loss) = {.op = "sample_loss", .run = sample_loss_run};

static CPU_RUN(sample_loss_grad_run)
{
  (void)self;
  const int64_t count = brim_shape_count(&launch->node->in[0]->shape);
  float *dx = launch->out[0];
  for (int64_t i = 0; i < count; i++) dx[i] = (float)(launch->step->loss_scale * (double)weight_of(launch, i));
  return BRIM_OK;
}
CPU_KERNEL(sample_loss_grad) = {.op = "sample_loss_grad", .run = sample_loss_grad_run};
