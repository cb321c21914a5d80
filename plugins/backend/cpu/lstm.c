/* LSTM. First the product with the input is computed for all steps. Then a task runs some samples through all steps,
 * each with the product with the previous state. The states themselves are in y and cell.
 *
 * An element of a product is one chain of sums, independent of other elements (see cpu_gemm), so the number of samples
 * in a task changes no bit. Gradients of weights add up products row after row, in the order of the samples, so a
 * micro-batch of any size gives the same bits. */
#include "cpu.h"
#include "simd_lstm.h"

enum {
  SAMPLES_MAX = 32,      /* maximum samples of a task */
  COLUMNS_PER_TASK = 256 /* columns of a bias's gradient */
};

typedef struct sequences {
  cpu_backend *backend;
  const cpu_lstm_simd *simd;
  int64_t samples, steps, hidden, per_task;
  bool reverse;
  const float *weight_hh, *bias_hh, *dy;
  float *y, *gates, *cell, *dgates;
  float *dh, *dcell; /* [samples, hidden] */
  char *scratch;     /* scratch for products */
} sequences;

static const cpu_lstm_simd *simd_of(const cpu_backend *b)
{
  static const cpu_lstm_simd *const tables[] = {CPU_OF_ISAS(&, cpu_lstm)};
  return tables[b->isa];
}

/* Returns the number of samples per task such that, if possible, every thread has a task. */
static int64_t samples_per_task(const cpu_backend *b, int64_t samples)
{
  return cpu_max(1, cpu_min(SAMPLES_MAX, cpu_divide_up(samples, b->threads)));
}

static sequences sequences_of(cpu_backend *b, const brim_launch *launch, const brim_tensor *y)
{
  const int64_t *dim = y->shape.dim;
  return (sequences){.backend = b,
                     .simd = simd_of(b),
                     .samples = dim[0],
                     .steps = dim[1],
                     .hidden = dim[2],
                     .per_task = samples_per_task(b, dim[0]),
                     .reverse = launch->node->attr.lstm.reverse};
}

static float *scratch_of(const sequences *q, int32_t thread)
{
  return (float *)(void *)(q->scratch + (uint64_t)thread * cpu_aligned(q->backend->simd->gemm_scratch_bytes));
}

/* Returns the row of sample n at step s. */
static int64_t element(const sequences *q, int64_t n, int64_t s)
{
  return n * q->steps + (q->reverse ? q->steps - 1 - s : s);
}

static void multiply(const sequences *q, const cpu_gemm *g, int32_t thread)
{
  q->backend->simd->gemm(g, 0, g->m, 0, g->n, scratch_of(q, thread));
}

/* ---- forward ---- */

static void run_samples(void *arg, int64_t task, int32_t thread)
{
  const sequences *q = arg;
  const int64_t H = q->hidden, first = task * q->per_task, end = cpu_min(first + q->per_task, q->samples);
  for (int64_t s = 0; s < q->steps; s++) {
    if (s > 0) {
      const cpu_gemm g = {.m = end - first,
                          .n = 4 * H,
                          .k = H,
                          .a = q->y + element(q, first, s - 1) * H,
                          .lda = q->steps * H,
                          .b = q->weight_hh,
                          .ldb = H,
                          .b_transposed = true,
                          .c = q->gates + element(q, first, s) * 4 * H,
                          .ldc = q->steps * 4 * H,
                          .accumulate = true};
      multiply(q, &g, thread);
    }
    for (int64_t n = first; n < end; n++) {
      const int64_t t = element(q, n, s);
      const float *before = s > 0 ? q->cell + element(q, n, s - 1) * H : NULL;
      q->simd->step(q->bias_hh, before, q->gates + t * 4 * H, q->cell + t * H, q->y + t * H, H);
    }
  }
}

static CPU_PREPARE(lstm_prepare)
{
  (void)program;
  (void)node;
  (void)state;
  need->workspace_bytes = cpu_multiply_bytes(self);
  return BRIM_OK;
}

static CPU_RUN(lstm_run)
{
  cpu_backend *b = self;
  const int64_t features = launch->node->in[0]->shape.dim[2];
  sequences q = sequences_of(b, launch, launch->node->out[0]);
  q.weight_hh = launch->in[2];
  q.bias_hh = launch->in[4];
  q.y = launch->out[0];
  q.gates = launch->out[1];
  q.cell = launch->out[2];
  q.scratch = launch->workspace;
  const cpu_gemm input = {.m = q.samples * q.steps,
                          .n = 4 * q.hidden,
                          .k = features,
                          .a = launch->in[0],
                          .lda = features,
                          .b = launch->in[1],
                          .ldb = features,
                          .b_transposed = true,
                          .c = q.gates,
                          .ldc = 4 * q.hidden,
                          .bias = launch->in[3]};
  cpu_multiply(b, &(cpu_products){.gemm = input, .count = 1}, launch->workspace);
  cpu_pool_run(b->pool, cpu_divide_up(q.samples, q.per_task), run_samples, &q);
  return BRIM_OK;
}

CPU_KERNEL(lstm) = {.op = "lstm", .prepare = lstm_prepare, .run = lstm_run};

/* ---- backward through the steps ---- */

static void back_samples(void *arg, int64_t task, int32_t thread)
{
  const sequences *q = arg;
  const int64_t H = q->hidden, first = task * q->per_task, end = cpu_min(first + q->per_task, q->samples);
  memset(q->dcell + first * H, 0, (size_t)((end - first) * H) * sizeof(float));
  for (int64_t s = q->steps - 1; s >= 0; s--) {
    for (int64_t n = first; n < end; n++)
      memcpy(q->dh + n * H, q->dy + element(q, n, s) * H, (size_t)H * sizeof(float));
    if (s + 1 < q->steps) {
      const cpu_gemm g = {.m = end - first,
                          .n = H,
                          .k = 4 * H,
                          .a = q->dgates + element(q, first, s + 1) * 4 * H,
                          .lda = q->steps * 4 * H,
                          .b = q->weight_hh,
                          .ldb = H,
                          .c = q->dh + first * H,
                          .ldc = H,
                          .accumulate = true};
      multiply(q, &g, thread);
    }
    for (int64_t n = first; n < end; n++) {
      const int64_t t = element(q, n, s);
      const float *before = s > 0 ? q->cell + element(q, n, s - 1) * H : NULL;
      q->simd->step_back(q->dh + n * H, q->gates + t * 4 * H, before, q->cell + t * H, q->dcell + n * H,
                         q->dgates + t * 4 * H, H);
    }
  }
}

/* Returns the bytes of dh (or of dcell) at one step for all samples. */
static uint64_t state_bytes(const brim_tensor *y)
{
  return cpu_aligned((uint64_t)(y->shape.dim[0] * y->shape.dim[2]) * sizeof(float));
}

static CPU_PREPARE(lstm_grad_prepare)
{
  (void)program;
  (void)state;
  need->workspace_bytes = cpu_multiply_bytes(self) + 2 * state_bytes(node->in[0]);
  return BRIM_OK;
}

static CPU_RUN(lstm_grad_run)
{
  cpu_backend *b = self;
  const brim_tensor *dy = launch->node->in[0];
  sequences q = sequences_of(b, launch, dy);
  char *states = (char *)launch->workspace + cpu_multiply_bytes(b);
  q.dy = launch->in[0];
  q.gates = launch->in[1];
  q.cell = launch->in[2];
  q.weight_hh = launch->in[3];
  q.dgates = launch->out[0]; /* may share memory with gates */
  q.scratch = launch->workspace;
  q.dh = (float *)(void *)states;
  q.dcell = (float *)(void *)(states + state_bytes(dy));
  cpu_pool_run(b->pool, cpu_divide_up(q.samples, q.per_task), back_samples, &q);
  return BRIM_OK;
}

CPU_KERNEL(lstm_grad) = {.op = "lstm_grad", .prepare = lstm_grad_prepare, .run = lstm_grad_run};

/* ---- gradients of the weights ---- */

/* Returns for how many samples one product reads the previous states: together up to 256 rows. */
static int64_t samples_per_product(int64_t samples, int64_t steps)
{
  return cpu_max(1, cpu_min(samples, 256 / steps));
}

static CPU_PREPARE(lstm_grad_weight_prepare)
{
  (void)program;
  (void)state;
  need->overwrites = 1;
  const int64_t *dim = node->in[1]->shape.dim;
  const uint64_t rows = (uint64_t)(samples_per_product(dim[0], dim[1]) * dim[1]);
  need->workspace_bytes = cpu_multiply_bytes(self) + rows * (uint64_t)dim[2] * sizeof(float);
  return BRIM_OK;
}

/* Writes the state before each step of a sample: y shifted by one step, with 0 before the first step. */
static void shift_sample(const sequences *q, int64_t n, float *to)
{
  const int64_t H = q->hidden, first = q->reverse ? q->steps - 1 : 0;
  const size_t all_but_one = (size_t)((q->steps - 1) * H) * sizeof(float);
  memset(to + first * H, 0, (size_t)H * sizeof(float));
  memcpy(to + (q->reverse ? 0 : H), q->y + (n * q->steps + (q->reverse ? 1 : 0)) * H, all_but_one);
}

/* dweight [4H, columns] += dgates^T from, over `rows` rows. Without `adds` it overwrites dweight. */
static void add_products(const sequences *q, int64_t rows, const float *dgates, const float *from, int64_t columns,
                         bool adds, float *dweight)
{
  const cpu_gemm g = {.m = 4 * q->hidden,
                      .n = columns,
                      .k = rows,
                      .a = dgates,
                      .lda = 4 * q->hidden,
                      .a_transposed = true,
                      .b = from,
                      .ldb = columns,
                      .c = dweight,
                      .ldc = columns,
                      .accumulate = adds};
  cpu_multiply(q->backend, &(cpu_products){.gemm = g, .count = 1}, q->scratch);
}

/* The gradients of the two biases, which get the same sums. A task has some columns and adds them row after row. */
typedef struct bias_sums {
  const sequences *sequences;
  float *bias[2];
} bias_sums;

static void sum_columns(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const bias_sums *v = arg;
  const sequences *q = v->sequences;
  const int64_t columns = 4 * q->hidden, at = task * COLUMNS_PER_TASK, count = cpu_min(COLUMNS_PER_TASK, columns - at);
  for (int64_t r = 0; r < q->samples * q->steps; r++)
    for (int i = 0; i < 2; i++)
      q->backend->simd->add(v->bias[i] + at, q->dgates + r * columns + at, v->bias[i] + at, count);
}

static CPU_RUN(lstm_grad_weight_run)
{
  cpu_backend *b = self;
  const int64_t features = launch->node->in[0]->shape.dim[2];
  sequences q = sequences_of(b, launch, launch->node->in[1]);
  q.y = launch->in[1];
  q.dgates = launch->in[2];
  q.scratch = launch->workspace;
  bias_sums sums = {&q, {launch->out[2], launch->out[3]}};
  cpu_begin_sum(launch, 2);
  cpu_begin_sum(launch, 3);
  cpu_pool_run(b->pool, cpu_divide_up(4 * q.hidden, COLUMNS_PER_TASK), sum_columns, &sums);
  add_products(&q, q.samples * q.steps, q.dgates, launch->in[0], features, cpu_adds(launch, 0), launch->out[0]);
  float *shifted = (float *)(void *)((char *)launch->workspace + cpu_multiply_bytes(b));
  const int64_t at_once = samples_per_product(q.samples, q.steps);
  for (int64_t first = 0; first < q.samples; first += at_once) {
    const int64_t count = cpu_min(at_once, q.samples - first);
    for (int64_t i = 0; i < count; i++) shift_sample(&q, first + i, shifted + i * q.steps * q.hidden);
    add_products(&q, count * q.steps, q.dgates + first * q.steps * 4 * q.hidden, shifted, q.hidden,
                 first > 0 || cpu_adds(launch, 1), launch->out[1]);
  }
  return BRIM_OK;
}

CPU_KERNEL(lstm_grad_weight) = {
    .op = "lstm_grad_weight", .prepare = lstm_grad_weight_prepare, .run = lstm_grad_weight_run};
