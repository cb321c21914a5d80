/* Inputs and outputs of a loss plugin's graph: its target, 1 at the label and 0 elsewhere; and each sample's loss,
 * times the weight of its class. The gradient of a sample's loss is loss_scale times that weight. A thread writes one
 * element of the target; the rest is one number for each sample. */
#include "kernel.cuh"

typedef struct labels {
  const int32_t *label;         /* NULL if targets are real and all samples count */
  const float *weight;          /* weight of each class, or NULL if all are 1 */
  int64_t count, classes, each; /* each: labels of a sample */
  int32_t ignores, ignore_index;
  uint64_t node;
  cuda_control *control;
} labels;

static __global__ void __launch_bounds__(CUDA_THREADS) one_hot_kernel(float *__restrict__ y, const labels p)
{
  for (int64_t at = cuda_first(); at < p.count * p.classes; at += cuda_step_width()) {
    const int64_t i = at / p.classes, k = at % p.classes;
    const int32_t label = p.label[i];
    const bool ignored = p.ignores && label == p.ignore_index;
    if (k == 0 && !ignored && (label < 0 || label >= p.classes))
      cuda_report_label(p.control, p.node, i / p.each, label, p.classes);
    y[at] = !ignored && k == label ? 1 : 0;
  }
}

/* Returns the weight of sample i. A label that one_hot has reported is not used as an index. */
static __device__ inline float weight_of(const labels &p, int64_t i)
{
  if (!p.label) return 1;
  const int32_t label = p.label[i];
  if (p.ignores && label == p.ignore_index) return 0;
  return p.weight ? label >= 0 && label < p.classes ? p.weight[label] : 0 : 1;
}

static __global__ void __launch_bounds__(CUDA_THREADS)
    sample_loss_kernel(float *__restrict__ loss, const float *__restrict__ x, const labels p)
{
  for (int64_t i = cuda_first(); i < p.count; i += cuda_step_width()) {
    const float weight = weight_of(p, i);
    loss[i] = weight > 0 ? weight * x[i] : 0;
  }
}

static __global__ void __launch_bounds__(CUDA_THREADS)
    sample_loss_grad_kernel(float *__restrict__ dx, double loss_scale, const labels p)
{
  for (int64_t i = cuda_first(); i < p.count; i += cuda_step_width())
    dx[i] = (float)(loss_scale * (double)weight_of(p, i));
}

static CUDA_RUN(one_hot_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const brim_node *n = launch->node;
  labels p = {(const int32_t *)launch->in[0], NULL, brim_shape_count(&n->in[0]->shape)};
  p.classes = brim_shape_count(&n->out[0]->shape) / p.count;
  p.each = p.count / n->in[0]->shape.dim[0];
  p.ignores = n->attr.loss.ignores;
  p.ignore_index = n->attr.loss.ignore_index;
  p.node = (uint64_t)(uintptr_t)n;
  p.control = cuda_control_of(b, launch);
  if (!p.control) return BRIM_EDEVICE;
  const cuda_geometry g = cuda_stride(p.count * p.classes, 1, b->processors);
  return cuda_launch(b, one_hot_kernel, g, (float *)launch->out[0], p);
}
BRIM_KERNEL(one_hot) = {.op = "one_hot", .run = one_hot_run};

static labels labels_of(const brim_launch *launch)
{
  const brim_node *n = launch->node;
  labels p = {};
  p.count = brim_shape_count(&n->in[0]->shape);
  if (n->in_count > 1) p.label = (const int32_t *)launch->in[1];
  if (n->in_count > 2) p.weight = (const float *)launch->in[2];
  if (n->in_count > 2) p.classes = brim_shape_count(&n->in[2]->shape);
  p.ignores = n->attr.loss.ignores;
  p.ignore_index = n->attr.loss.ignore_index;
  return p;
}

static CUDA_RUN(sample_loss_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const labels p = labels_of(launch);
  return cuda_launch(b, sample_loss_kernel, cuda_stride(p.count, 1, b->processors), (float *)launch->out[0],
                     (const float *)launch->in[0], p);
}
BRIM_KERNEL(sample_loss) = {.op = "sample_loss", .run = sample_loss_run};

static CUDA_RUN(sample_loss_grad_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const labels p = labels_of(launch);
  return cuda_launch(b, sample_loss_grad_kernel, cuda_stride(p.count, 1, b->processors), (float *)launch->out[0],
                     launch->step->loss_scale, p);
}
BRIM_KERNEL(sample_loss_grad) = {.op = "sample_loss_grad", .run = sample_loss_grad_run};
