/* Batch norm's running mean and variance: value += momentum * (sum / groups - value), with the sum over the groups of
 * the effective batch. Part of the update: a step that was refused leaves them as they are. A few kilobytes. */
#include "kernel.cuh"

static __global__ void __launch_bounds__(CUDA_THREADS)
    move_averages(float *value, const float *sum, float momentum, int64_t count, const cuda_control *control)
{
  if (cuda_refused(control)) return;
  const float groups = (float)control->step.norm_groups;
  for (int64_t i = cuda_first(); i < count; i += cuda_step_width()) value[i] += momentum * (sum[i] / groups - value[i]);
}

static CUDA_RUN(moving_average_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const cuda_control *control = cuda_control_of(b, launch);
  if (!control) return BRIM_EDEVICE;
  const int64_t count = brim_shape_count(&launch->node->out[0]->shape);
  const float momentum = (float)launch->node->attr.moving_average.momentum;
  return cuda_launch(b, move_averages, cuda_stride(count, 1, b->processors), (float *)launch->out[0],
                     (const float *)launch->in[1], momentum, count, control);
}
BRIM_KERNEL(moving_average) = {.op = "moving_average", .run = moving_average_run};
