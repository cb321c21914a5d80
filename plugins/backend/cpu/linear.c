/* linear and its gradients: y = x W^T + b, dx = dy W, dW += dy^T x, db += sum of dy, with x [rows,F] and W [O,F]. All
 * leading dimensions of x together are the rows.
 *
 * Each element of a result adds its products in one fixed order: over features for y, over outputs for dx, and for dW
 * sample after sample onto the present value. So any micro-batch, divided into any tasks, gives the same bits, without
 * a second buffer for the sums of a grain. In linear+add and linear_grad_input+add each sum begins with the value to
 * add to. */
#include "cpu.h"
#include "half.h"

static brim_status multiply(cpu_backend *b, const brim_launch *launch, const cpu_gemm *g)
{
  cpu_multiply(b, &(cpu_products){.gemm = *g, .count = 1}, cpu_plain_end(launch));
  return BRIM_OK;
}

static CPU_PREPARE(linear_prepare)
{
  BRIM_TRY(cpu_plain_prepare(self, program, node, need, state));
  need->workspace_bytes += cpu_multiply_bytes(self);
  return BRIM_OK;
}

/* Runs linear with or without a fused activation. If the activation's input is kept, it is the product's result. */
static CPU_RUN(linear_run)
{
  const brim_shape *w = &launch->node->in[1]->shape;
  const cpu_epilogue epilogue = cpu_epilogue_of(self, launch->node);
  const cpu_gemm g = {.m = cpu_rows(launch->node->in[0]),
                      .n = w->dim[0],
                      .k = w->dim[1],
                      .a = cpu_plain_input(self, launch, 0),
                      .lda = w->dim[1],
                      .b = launch->in[1],
                      .ldb = w->dim[1],
                      .b_transposed = true,
                      .c = launch->out[launch->node->out_count - 1],
                      .ldc = w->dim[0],
                      .bias = launch->node->in_count > 2 ? launch->in[2] : NULL,
                      .relu = epilogue.relu};
  const cpu_products products = {
      .gemm = g, .count = 1, .function = epilogue.function, .factor = epilogue.factor, .y = launch->out[0]};
  cpu_multiply(self, &products, cpu_plain_end(launch));
  return BRIM_OK;
}

/* Copies in[0] to the result, unless they share memory; the product is then added to it. */
static void copy_first(cpu_backend *b, const brim_launch *launch)
{
  const brim_tensor *y = launch->node->out[0];
  const void *a = cpu_plain_input(b, launch, 0);
  if (a != launch->out[0]) memcpy(launch->out[0], a, (size_t)brim_shape_count(&y->shape) * sizeof(float));
}

static CPU_RUN(linear_add_run)
{
  const brim_shape *w = &launch->node->in[2]->shape, *y = &launch->node->out[0]->shape;
  const cpu_gemm g = {.m = cpu_rows(launch->node->in[1]),
                      .n = w->dim[0],
                      .k = w->dim[1],
                      .a = cpu_plain_input(self, launch, 1),
                      .lda = w->dim[1],
                      .b = launch->in[2],
                      .ldb = w->dim[1],
                      .b_transposed = true,
                      .c = (float *)launch->out[0] + launch->node->attr.linear.first,
                      .ldc = y->dim[y->rank - 1],
                      .accumulate = true};
  copy_first(self, launch);
  return multiply(self, launch, &g);
}

/* The inputs from `first` on are dy and weight. With `adds`, the sums of dx begin with in[0]. */
static brim_status find_dx(cpu_backend *b, const brim_launch *launch, uint32_t first, bool adds)
{
  const brim_shape *w = &launch->node->in[first + 1]->shape;
  const cpu_gemm g = {.m = cpu_rows(launch->node->in[first]),
                      .n = w->dim[1],
                      .k = w->dim[0],
                      .a = cpu_plain_input(b, launch, first),
                      .lda = w->dim[0],
                      .b = launch->in[first + 1],
                      .ldb = w->dim[1],
                      .c = launch->out[0],
                      .ldc = w->dim[1],
                      .accumulate = adds};
  if (adds) copy_first(b, launch);
  return multiply(b, launch, &g);
}

static CPU_RUN(linear_grad_input_run)
{
  return find_dx(self, launch, 0, false);
}

static CPU_RUN(linear_grad_input_add_run)
{
  return find_dx(self, launch, 1, true);
}

/* A task has some columns and adds up the rows of each column in their order. */
typedef struct column_sums {
  const cpu_simd *simd;
  const cpu_half *half; /* converts bfloat16 values; NULL if values are fp32 */
  const void *values;
  float *sum;
  int64_t rows, columns;
} column_sums;

enum { COLUMNS_PER_TASK = 256 };

static void sum_columns(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const column_sums *v = arg;
  const int64_t at = task * COLUMNS_PER_TASK, count = cpu_min(COLUMNS_PER_TASK, v->columns - at);
  float wide[COLUMNS_PER_TASK];
  for (int64_t n = 0, from = at; n < v->rows; n++, from += v->columns) {
    if (v->half) v->half->widen((const uint16_t *)v->values + from, wide, count);
    v->simd->add(v->sum + at, v->half ? wide : (const float *)v->values + from, v->sum + at, count);
  }
}

void cpu_add_rows(cpu_backend *b, bool small, const void *values, int64_t rows, int64_t columns, float *sum)
{
  const cpu_half *half = small ? cpu_half_of(b->isa, BRIM_DTYPE_BF16) : NULL;
  column_sums sums = {b->simd, half, values, sum, rows, columns};
  cpu_pool_run(b->pool, cpu_divide_up(columns, COLUMNS_PER_TASK), sum_columns, &sums);
}

static CPU_PREPARE(linear_grad_weight_prepare)
{
  need->overwrites = 1;
  return linear_prepare(self, program, node, need, state);
}

static CPU_RUN(linear_grad_weight_run)
{
  cpu_backend *b = self;
  const brim_shape *w = &launch->node->out[0]->shape;
  const int64_t rows = cpu_rows(launch->node->in[0]), outputs = w->dim[0];
  const float *dy = cpu_plain_input(b, launch, 1);
  const cpu_gemm g = {.m = outputs,
                      .n = w->dim[1],
                      .k = rows,
                      .a = dy,
                      .lda = outputs,
                      .a_transposed = true,
                      .b = cpu_plain_input(b, launch, 0),
                      .ldb = w->dim[1],
                      .c = launch->out[0],
                      .ldc = w->dim[1],
                      .accumulate = cpu_adds(launch, 0)};
  if (launch->node->out_count > 1) {
    cpu_begin_sum(launch, 1);
    cpu_add_rows(b, false, dy, rows, outputs, launch->out[1]);
  }
  return multiply(b, launch, &g);
}

CPU_KERNEL(linear) = {.op = "linear", .prepare = linear_prepare, .run = linear_run};
CPU_KERNEL(linear_relu) = {.op = "linear+relu", .prepare = linear_prepare, .run = linear_run};
CPU_KERNEL(linear_leaky_relu) = {.op = "linear+leaky_relu", .prepare = linear_prepare, .run = linear_run};
CPU_KERNEL(linear_sigmoid) = {.op = "linear+sigmoid", .prepare = linear_prepare, .run = linear_run};
CPU_KERNEL(linear_tanh) = {.op = "linear+tanh", .prepare = linear_prepare, .run = linear_run};
CPU_KERNEL(linear_gelu) = {.op = "linear+gelu", .prepare = linear_prepare, .run = linear_run};
CPU_KERNEL(linear_silu) = {.op = "linear+silu", .prepare = linear_prepare, .run = linear_run};
CPU_KERNEL(linear_add) = {.op = "linear+add", .prepare = linear_prepare, .run = linear_add_run};
CPU_KERNEL(linear_grad_input_add) = {
    .op = "linear_grad_input+add", .prepare = linear_prepare, .run = linear_grad_input_add_run};
CPU_KERNEL(linear_grad_input) = {.op = "linear_grad_input", .prepare = linear_prepare, .run = linear_grad_input_run};
CPU_KERNEL(linear_grad_weight) = {
    .op = "linear_grad_weight", .prepare = linear_grad_weight_prepare, .run = linear_grad_weight_run};
