/* softmax and its logarithm over the last dimension, and their gradients. A task has some rows. */
#include "broadcast.h"

enum { PIECE = 16384 }; /* elements per task; at least one row */

typedef struct rows {
  void (*forward)(const float *x, float *y, int64_t count); /* either `forward` or `backward` is set */
  void (*backward)(const float *y, const float *dy, float *dx, int64_t count);
  const float *in[2];
  float *out;
  int64_t rows, length, rows_per_task;
} rows;

static void run_rows(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const rows *v = arg;
  const int64_t end = cpu_min((task + 1) * v->rows_per_task, v->rows);
  for (int64_t r = task * v->rows_per_task; r < end; r++) {
    const int64_t at = r * v->length;
    if (v->forward)
      v->forward(v->in[0] + at, v->out + at, v->length);
    else
      v->backward(v->in[0] + at, v->in[1] + at, v->out + at, v->length);
  }
}

static brim_status run(cpu_backend *b, const brim_launch *launch, rows v)
{
  const brim_tensor *t = launch->node->in[0];
  for (uint32_t i = 0; i < launch->node->in_count; i++) v.in[i] = cpu_plain_input(b, launch, i);
  v.out = launch->out[0];
  v.rows = cpu_rows(t);
  v.length = t->shape.dim[t->shape.rank - 1];
  v.rows_per_task = cpu_max(1, PIECE / v.length);
  cpu_pool_run(b->pool, cpu_divide_up(v.rows, v.rows_per_task), run_rows, &v);
  return BRIM_OK;
}

static CPU_RUN(softmax_run)
{
  return run(self, launch, (rows){.forward = cpu_broadcast_table(self)->softmax});
}
CPU_KERNEL(softmax) = {.op = "softmax", .prepare = cpu_plain_prepare, .run = softmax_run};

static CPU_RUN(softmax_grad_run)
{
  return run(self, launch, (rows){.backward = cpu_broadcast_table(self)->softmax_grad});
}
CPU_KERNEL(softmax_grad) = {.op = "softmax_grad", .prepare = cpu_plain_prepare, .run = softmax_grad_run};

static CPU_RUN(log_softmax_run)
{
  return run(self, launch, (rows){.forward = cpu_broadcast_table(self)->log_softmax});
}
CPU_KERNEL(log_softmax) = {.op = "log_softmax", .prepare = cpu_plain_prepare, .run = log_softmax_run};

static CPU_RUN(log_softmax_grad_run)
{
  return run(self, launch, (rows){.backward = cpu_broadcast_table(self)->log_softmax_grad});
}
CPU_KERNEL(log_softmax_grad) = {.op = "log_softmax_grad", .prepare = cpu_plain_prepare, .run = log_softmax_grad_run};
