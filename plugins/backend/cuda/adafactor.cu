/* Adafactor's update (Shazeer and Stern, 2018), in place; plugins/backend/reference/update_small.c has the complete
 * formulas. The parameter is a matrix; a vector is a matrix of one row, without a mean of rows. With g the gradient
 * times gradient_scale's factor:
 *
 *     row, column: moving means of g^2 over columns and rows; second moment = row * column / mean of row
 *     u = g / sqrt(second moment), scaled by the size of the parameter and by at most d / rms(u)
 *     p = p - lr * weight_decay * p - u, or less a moving mean of u
 *
 * Bytes per element: 24 (reads g and p; g; g and p, writes p), and 8 more with the mean of u. Each pass needs a sum of
 * the pass before, so there are several launches. A row is divided into stripes of 4096 columns, each added up by a
 * block; columns are added up by neighbouring threads, in at most 32 bands of rows; one block adds up the partial sums.
 * Sums of blocks are in double precision, and the shape determines the order of all. */
#include "kernel.cuh"

enum { STRIPE = 4096, STRIPES_AT_ONCE = 64, BANDS = 32, MERGE_THREADS = 1024 };
enum result { ROW_FACTOR, SIZE, SCALE, RESULTS };

typedef struct matrix {
  int64_t rows, columns, stripes, band, bands;
  bool has_rows;
} matrix;

typedef struct job {
  matrix of;
  const float *g;
  float *p, *row, *column, *m;
  /* [rows * stripes]: square: sums of squares of g, later of u; parameter: sums of squares of p. */
  double *square, *parameter;
  float *part; /* [bands][columns] */
  double *result;
  const double *scale;
  cuda_control *control;
  double clip, least;
  bool no_decay;
} job;

static matrix matrix_of(const brim_tensor *t)
{
  matrix m = {};
  m.has_rows = t->shape.rank > 1;
  m.rows = m.has_rows ? t->shape.dim[0] : 1;
  m.columns = brim_shape_count(&t->shape) / m.rows;
  m.stripes = cuda_divide_up(m.columns, STRIPE);
  m.band = cuda_divide_up(m.rows, BANDS);
  m.bands = cuda_divide_up(m.rows, m.band);
  return m;
}

static uint64_t lay_out(const matrix *of, job *j, void *scratch)
{
  const uint64_t parts = (uint64_t)(of->rows * of->stripes);
  double *at = static_cast<double *>(scratch);
  if (j) {
    j->result = at;
    j->square = at + RESULTS;
    j->parameter = j->square + parts;
    j->part = reinterpret_cast<float *>(j->parameter + parts);
  }
  return (RESULTS + 2 * parts) * sizeof(double) + (uint64_t)(of->bands * of->columns) * sizeof(float);
}

static CUDA_PREPARE(prepare)
{
  (void)self, (void)program, (void)state;
  const matrix of = matrix_of(node->in[0]);
  need->workspace_bytes = lay_out(&of, nullptr, nullptr);
  return BRIM_OK;
}

static __device__ inline float factor_of(const job &j)
{
  return j.scale ? (float)j.scale[1] : 1;
}

/* The grid's x goes over rows and its y over the stripes of a row, because 64-bit divisions take registers. */
#define EACH_PART(j, r, s)                                                                                             \
  for (int64_t r = blockIdx.x; r < (j).of.rows; r += gridDim.x)                                                        \
    for (int64_t s = blockIdx.y; s < (j).of.stripes; s += gridDim.y)

static __device__ inline int64_t end_of(const matrix &of, int64_t s)
{
  return cuda_min(of.columns, (s + 1) * STRIPE);
}

static __global__ void __launch_bounds__(CUDA_THREADS) sum_rows(const __grid_constant__ job j)
{
  const float factor = factor_of(j);
  EACH_PART(j, r, s)
  {
    double square = 0, parameter = 0;
    for (int64_t c = s * STRIPE + threadIdx.x; c < end_of(j.of, s); c += CUDA_THREADS) {
      const double g = (double)(factor * j.g[r * j.of.columns + c]), p = (double)j.p[r * j.of.columns + c];
      square = fma(g, g, square);
      parameter = fma(p, p, parameter);
    }
    square = cuda_block_sum(square);
    parameter = cuda_block_sum(parameter);
    if (threadIdx.x > 0) continue;
    j.square[r * j.of.stripes + s] = square;
    j.parameter[r * j.of.stripes + s] = parameter;
  }
}

static __global__ void __launch_bounds__(CUDA_THREADS) sum_columns(const __grid_constant__ job j)
{
  const float factor = factor_of(j);
  for (int64_t i = cuda_first(); i < j.of.bands * j.of.columns; i += cuda_step_width()) {
    const int64_t band = i / j.of.columns, c = i % j.of.columns, end = cuda_min(j.of.rows, (band + 1) * j.of.band);
    float sum = 0;
    for (int64_t r = band * j.of.band; r < end; r++) {
      const float g = factor * j.g[r * j.of.columns + c];
      sum = fmaf(g, g, sum);
    }
    j.part[i] = sum;
  }
}

static __device__ inline float moved(const job &j, float mean, double sum, int64_t count)
{
  const double beta2 = j.control->step.beta2;
  return (float)fma(beta2, (double)mean, (1 - beta2) * sum / (double)count);
}

static __global__ void __launch_bounds__(CUDA_THREADS) merge_columns(const __grid_constant__ job j)
{
  if (cuda_refused(j.control)) return;
  for (int64_t c = cuda_first(); c < j.of.columns; c += cuda_step_width()) {
    double sum = 0;
    for (int64_t b = 0; b < j.of.bands; b++) sum += (double)j.part[b * j.of.columns + c];
    j.column[c] = moved(j, j.column[c], sum, j.of.rows);
  }
}

/* Runs as one block. */
static __global__ void __launch_bounds__(MERGE_THREADS) merge_rows(const __grid_constant__ job j)
{
  if (cuda_refused(j.control)) return;
  double mean = 0, parameter = 0;
  for (int64_t r = threadIdx.x; r < j.of.rows; r += MERGE_THREADS) {
    double sum = 0;
    for (int64_t s = r * j.of.stripes; s < (r + 1) * j.of.stripes; s++) {
      sum += j.square[s];
      parameter += j.parameter[s];
    }
    if (!j.of.has_rows) continue;
    j.row[r] = moved(j, j.row[r], sum, j.of.columns);
    mean += (double)j.row[r] / (double)j.of.rows;
  }
  mean = cuda_block_sum(mean);
  parameter = cuda_block_sum(parameter);
  if (threadIdx.x > 0) return;
  j.result[ROW_FACTOR] = j.of.has_rows ? 1 / fmax(mean, j.control->step.eps) : 1;
  j.result[SIZE] = fmax(j.least, sqrt(parameter / ((double)j.of.rows * (double)j.of.columns)));
}

static __device__ inline float row_of(const job &j, int64_t row)
{
  const float factor = (float)j.result[ROW_FACTOR];
  return j.of.has_rows ? factor * j.row[row] : factor;
}

/* Returns the minimum of a second moment. */
static __device__ inline float least_of(const job &j)
{
  const double eps = j.control->step.eps;
  return fmaxf((float)(eps * eps), 1.17549435e-38f);
}

static __global__ void __launch_bounds__(CUDA_THREADS, 1) measure(const __grid_constant__ job j)
{
  const float factor = factor_of(j), least = least_of(j);
  if (cuda_refused(j.control)) return;
  EACH_PART(j, r, s)
  {
    const float row = row_of(j, r);
    double sum = 0;
    for (int64_t c = s * STRIPE + threadIdx.x; c < end_of(j.of, s); c += CUDA_THREADS) {
      const float g = factor * j.g[r * j.of.columns + c];
      sum += (double)(g * g / cuda_greater(row * j.column[c], least));
    }
    sum = cuda_block_sum(sum);
    if (threadIdx.x == 0) j.square[r * j.of.stripes + s] = sum;
  }
}

/* Runs as one block. */
static __global__ void __launch_bounds__(MERGE_THREADS) finish(const __grid_constant__ job j)
{
  const brim_step *s = &j.control->step;
  double sum = 0;
  if (cuda_refused(j.control)) return;
  for (int64_t part = threadIdx.x; part < j.of.rows * j.of.stripes; part += MERGE_THREADS) sum += j.square[part];
  sum = cuda_block_sum(sum);
  const double length = sqrt(sum / ((double)j.of.rows * (double)j.of.columns));
  if (threadIdx.x == 0)
    j.result[SCALE] = j.result[SIZE] * fmin(s->lr, 1 / sqrt((double)s->step + 1)) / fmax(1.0, length / j.clip);
}

static __global__ void __launch_bounds__(CUDA_THREADS) apply(const __grid_constant__ job j)
{
  if (cuda_refused(j.control)) return;
  const brim_step *step = &j.control->step;
  const float least = least_of(j), scale = factor_of(j) * (float)j.result[SCALE];
  const float kept = j.no_decay ? 1 : (float)(1 - step->lr * step->weight_decay);
  const float beta1 = (float)step->beta1, rest1 = (float)(1 - step->beta1);
  EACH_PART(j, r, s)
  {
    const float row = row_of(j, r);
    for (int64_t c = s * STRIPE + threadIdx.x; c < end_of(j.of, s); c += CUDA_THREADS) {
      const int64_t i = r * j.of.columns + c;
      float u = scale * j.g[i] * rsqrtf(cuda_greater(row * j.column[c], least));
      if (j.m) u = j.m[i] = fmaf(beta1, j.m[i], rest1 * u);
      j.p[i] = fmaf(kept, j.p[i], -u);
    }
  }
}

static CUDA_RUN(run)
{
  cuda_backend *b = static_cast<cuda_backend *>(self);
  const brim_node *n = launch->node;
  const brim_update_attr *attr = &n->attr.update;
  job j = {};
  j.of = matrix_of(n->in[0]);
  j.g = static_cast<const float *>(launch->in[1]);
  j.p = static_cast<float *>(launch->out[0]);
  j.row = j.of.has_rows ? static_cast<float *>(launch->out[1]) : nullptr;
  j.column = static_cast<float *>(launch->out[1 + j.of.has_rows]);
  j.m = attr->averages ? static_cast<float *>(launch->out[2 + j.of.has_rows]) : nullptr;
  lay_out(&j.of, &j, launch->workspace);
  j.scale = attr->scaled ? static_cast<const double *>(launch->in[n->in_count - 1]) : nullptr;
  j.control = cuda_control_of(b, launch);
  if (!j.control) return BRIM_EDEVICE;
  j.clip = attr->clip;
  j.least = attr->least;
  j.no_decay = attr->no_decay;
  cuda_geometry parts = cuda_stride(j.of.rows * CUDA_THREADS, 1, b->processors);
  parts.blocks[1] = (unsigned)cuda_min(j.of.stripes, STRIPES_AT_ONCE);
  const cuda_geometry merge = {{1, 1, 1}, MERGE_THREADS, 0};
  BRIM_TRY(cuda_launch(b, sum_rows, parts, j));
  BRIM_TRY(cuda_launch(b, sum_columns, cuda_stride(j.of.bands * j.of.columns, 1, b->processors), j));
  BRIM_TRY(cuda_launch(b, merge_columns, cuda_stride(j.of.columns, 1, b->processors), j));
  BRIM_TRY(cuda_launch(b, merge_rows, merge, j));
  BRIM_TRY(cuda_launch(b, measure, parts, j));
  BRIM_TRY(cuda_launch(b, finish, merge, j));
  return cuda_launch(b, apply, parts, j);
}
BRIM_KERNEL(adafactor) = {.op = "adafactor", .prepare = prepare, .run = run};
