/* Layer norm and RMS norm over the last dimension, and their gradients. Some are fused with a sum before them or relu
 * after them, which are computed for each row while it is in the cache.
 *
 * A sample's rows are divided into pieces of a fixed number of rows. The gradients of weight and bias are first summed
 * within each piece, in scratch, and the sums of the pieces are then added in order. So the gradients depend neither on
 * the threads nor on the micro-batch. Scratch has room for a fixed number of pieces, which are computed together. */
#include "cpu.h"
#include "simd_norm.h"

enum {
  PIECE_ROWS = 64,
  PIECES = 64,           /* pieces computed together */
  TASK_ELEMENTS = 16384, /* minimum per task in the forward pass */
  STRIP = 512            /* columns of a task that adds up the sums of pieces */
};

static const cpu_norm_simd *simd_of(const cpu_backend *b)
{
  static const cpu_norm_simd *const tables[] = {CPU_OF_ISAS(&, cpu_norm)};
  return tables[b->isa];
}

typedef struct rows {
  const cpu_norm_simd *simd;
  const cpu_simd *pointwise;
  cpu_norm_row row;
  const float *x, *dy;
  float *y; /* y; backward: dx */
  float *mean, *rstd;
  const float *given_mean, *given_rstd;
  int64_t count, per_task;
  const float *a, *b; /* the operands if x is computed as a sum, else NULL; backward: dx is added to a */
  float *sum;
  bool relu;
  /* backward */
  int64_t sample_rows, sample_pieces, pieces, first; /* first: the first of the pieces computed together */
  float *sums;                                       /* for each piece: dweight [F], dbias [F], a row [F] */
  float *dweight, *dbias;
} rows;

static void normalise_rows(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const rows *v = arg;
  cpu_norm_row row = v->row;
  for (int64_t r = task * v->per_task; r < cpu_min((task + 1) * v->per_task, v->count); r++) {
    const int64_t at = r * row.count;
    if (v->sum) v->pointwise->add(v->a + at, v->b + at, v->sum + at, row.count);
    v->simd->row(&row, v->x + at, v->y + at);
    if (v->relu) v->pointwise->relu(v->y + at, v->y + at, row.count);
    if (v->mean) v->mean[r] = row.mean;
    v->rstd[r] = row.rstd;
  }
}

static void differentiate_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const rows *v = arg;
  cpu_norm_row row = v->row;
  const int64_t piece = v->first + task, sample = piece / v->sample_pieces;
  const int64_t from = piece % v->sample_pieces * PIECE_ROWS, to = cpu_min(from + PIECE_ROWS, v->sample_rows);
  float *dweight = v->sums + task * 3 * row.count, *dbias = v->dbias ? dweight + row.count : NULL;
  memset(dweight, 0, (size_t)(2 * row.count) * sizeof *dweight);
  for (int64_t r = sample * v->sample_rows + from; r < sample * v->sample_rows + to; r++) {
    const int64_t at = r * row.count;
    row.mean = v->given_mean ? v->given_mean[r] : 0;
    row.rstd = v->given_rstd[r];
    float *dx = v->a ? dweight + 2 * row.count : v->y + at;
    v->simd->row_grad(&row, v->x + at, v->dy + at, dx, dweight, dbias);
    if (v->a) v->pointwise->add(v->a + at, dx, v->y + at, row.count);
  }
}

static void add_strip(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const rows *v = arg;
  const int64_t from = task * STRIP, to = cpu_min(from + STRIP, v->row.count);
  for (int64_t i = 0; i < cpu_min(PIECES, v->pieces - v->first); i++) {
    const float *sums = v->sums + i * 3 * v->row.count;
    for (int64_t f = from; f < to; f++) v->dweight[f] += sums[f];
    for (int64_t f = from; v->dbias && f < to; f++) v->dbias[f] += sums[v->row.count + f];
  }
}

/* input: the index of x, the tensor that is normalised; the weight is the next input. */
static rows rows_from(cpu_backend *b, const brim_launch *launch, bool centred, uint32_t input)
{
  const brim_tensor *x = launch->node->in[input];
  rows v = {.simd = simd_of(b), .pointwise = b->simd, .y = launch->out[0], .count = cpu_rows(x)};
  v.x = cpu_plain_input(b, launch, input);
  v.row = (cpu_norm_row){.count = x->shape.dim[x->shape.rank - 1],
                         .weight = launch->in[input + 1],
                         .eps = launch->node->attr.norm.eps,
                         .offset = (float)launch->node->attr.norm.offset,
                         .centred = centred};
  v.per_task = cpu_max(1, TASK_ELEMENTS / v.row.count);
  v.sample_rows = v.count / x->shape.dim[0];
  v.sample_pieces = cpu_divide_up(v.sample_rows, PIECE_ROWS);
  v.pieces = x->shape.dim[0] * v.sample_pieces;
  return v;
}

static rows rows_of(cpu_backend *b, const brim_launch *launch, bool centred)
{
  return rows_from(b, launch, centred, 0);
}

/* `adds`: adds dx to in[0]. */
static brim_status run_grad(cpu_backend *b, const brim_launch *launch, bool centred, bool adds)
{
  void *const *in = launch->in + adds;
  rows given = rows_from(b, launch, centred, adds), *v = &given;
  v->a = adds ? cpu_plain_input(b, launch, 0) : NULL;
  v->given_mean = centred ? in[2] : NULL;
  v->given_rstd = in[centred ? 3 : 2];
  v->dy = cpu_plain_input(b, launch, adds + (centred ? 4 : 3));
  v->dweight = launch->out[1];
  v->dbias = centred ? launch->out[2] : NULL;
  v->sums = cpu_plain_end(launch);
  for (; v->first < v->pieces; v->first += PIECES) {
    cpu_pool_run(b->pool, cpu_min(PIECES, v->pieces - v->first), differentiate_piece, v);
    cpu_pool_run(b->pool, cpu_divide_up(v->row.count, STRIP), add_strip, v);
  }
  return BRIM_OK;
}

static brim_status run_layer_norm(cpu_backend *b, const brim_launch *launch, bool relu)
{
  rows v = rows_of(b, launch, true);
  v.row.bias = launch->in[2];
  v.mean = launch->out[1];
  v.rstd = launch->out[2];
  v.relu = relu;
  cpu_pool_run(b->pool, cpu_divide_up(v.count, v.per_task), normalise_rows, &v);
  return BRIM_OK;
}

static CPU_RUN(layer_norm_run)
{
  return run_layer_norm(self, launch, false);
}

static CPU_RUN(layer_norm_relu_run)
{
  return run_layer_norm(self, launch, true);
}

static CPU_RUN(rms_norm_run)
{
  cpu_backend *b = self;
  rows v = rows_of(b, launch, false);
  v.rstd = launch->out[1];
  cpu_pool_run(b->pool, cpu_divide_up(v.count, v.per_task), normalise_rows, &v);
  return BRIM_OK;
}

/* Computes a + b and its norm. The sum and the norm may share memory with a and b, because a row of both is read before
 * either result is written. */
static brim_status run_sum(cpu_backend *b, const brim_launch *launch, bool centred)
{
  rows v = rows_of(b, launch, centred);
  v.a = v.x;
  v.b = cpu_plain_input(b, launch, 1);
  v.x = v.sum = launch->out[0];
  v.row.weight = launch->in[2];
  v.row.bias = centred ? launch->in[3] : NULL;
  v.y = launch->out[1];
  v.mean = centred ? launch->out[2] : NULL;
  v.rstd = launch->out[centred ? 3 : 2];
  cpu_pool_run(b->pool, cpu_divide_up(v.count, v.per_task), normalise_rows, &v);
  return BRIM_OK;
}

static CPU_RUN(add_layer_norm_run)
{
  return run_sum(self, launch, true);
}

static CPU_RUN(add_rms_norm_run)
{
  return run_sum(self, launch, false);
}

static CPU_PREPARE(grad_prepare)
{
  BRIM_TRY(cpu_plain_prepare(self, program, node, need, state));
  const brim_shape *x = &node->in[0]->shape;
  const int64_t F = x->dim[x->rank - 1], sample_rows = brim_shape_count(x) / F / x->dim[0];
  const int64_t pieces = cpu_min(PIECES, x->dim[0] * cpu_divide_up(sample_rows, PIECE_ROWS));
  need->workspace_bytes += (uint64_t)(pieces * 3 * F) * sizeof(float);
  return BRIM_OK;
}

static CPU_RUN(layer_norm_grad_run)
{
  return run_grad(self, launch, true, false);
}

static CPU_RUN(layer_norm_grad_add_run)
{
  return run_grad(self, launch, true, true);
}

static CPU_RUN(rms_norm_grad_run)
{
  return run_grad(self, launch, false, false);
}

static CPU_RUN(rms_norm_grad_add_run)
{
  return run_grad(self, launch, false, true);
}

CPU_KERNEL(layer_norm) = {.op = "layer_norm", .prepare = cpu_plain_prepare, .run = layer_norm_run};
CPU_KERNEL(layer_norm_grad) = {.op = "layer_norm_grad", .prepare = grad_prepare, .run = layer_norm_grad_run};
CPU_KERNEL(layer_norm_grad_add) = {
    .op = "layer_norm_grad+add", .prepare = grad_prepare, .run = layer_norm_grad_add_run};
CPU_KERNEL(rms_norm) = {.op = "rms_norm", .prepare = cpu_plain_prepare, .run = rms_norm_run};
CPU_KERNEL(rms_norm_grad) = {.op = "rms_norm_grad", .prepare = grad_prepare, .run = rms_norm_grad_run};
CPU_KERNEL(rms_norm_grad_add) = {.op = "rms_norm_grad+add", .prepare = grad_prepare, .run = rms_norm_grad_add_run};
CPU_KERNEL(layer_norm_relu) = {.op = "layer_norm+relu", .prepare = cpu_plain_prepare, .run = layer_norm_relu_run};
CPU_KERNEL(add_layer_norm) = {.op = "add+layer_norm", .prepare = cpu_plain_prepare, .run = add_layer_norm_run};
CPU_KERNEL(add_rms_norm) = {.op = "add+rms_norm", .prepare = cpu_plain_prepare, .run = add_rms_norm_run};
