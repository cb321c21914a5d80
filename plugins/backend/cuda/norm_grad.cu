/* The gradients of layer norm and RMS norm. For each row, with h = (x - mean) * rstd and g = dy * weight (for RMS norm
 * g = dy * (weight + offset)):
 *
 *     dx       = rstd * (g - mean of g - h * mean of g*h)       RMS norm: mean is 0, and the mean of g is omitted
 *     dweight += sum of dy * h      dbias += sum of dy          over the rows
 *
 * x and dy are read once and dx is written once: a warp or a block holds a row of both, as in norm.cu. Each thread also
 * keeps the sums of its columns over all rows of its team, so the parameters' gradients need no second pass. Every
 * block writes one sum for each column to scratch. A second kernel adds these up in double precision, in a fixed order,
 * and adds the result to the gradient. There are as many of these sums per column as an H100 can run blocks at a time,
 * so they take some percent of the memory of the rows.
 *
 * layer_norm_grad+add and rms_norm_grad+add write a + dx, which saves a pass over both. a is the gradient of x from
 * later nodes, for instance if a residual sum is also normalised.
 *
 * Rows that are too long for registers are read twice for dx. A separate kernel adds up the columns first, because dx
 * may overwrite dy. */
#include "norm.cuh"

typedef struct backward {
  const void *x, *dy, *a; /* a: added to dx, or NULL; dx may share memory with a or dy */
  void *dx;
  const float *weight, *mean, *rstd; /* mean is NULL for RMS norm */
  float offset;                      /* added to weight */
  float *part;                       /* [parts][2][length]: parts of dweight and of dbias */
  int64_t rows, length;
} backward;

typedef struct row_values {
  float mean, rstd;
} row_values;

static __device__ inline row_values values_of(const backward &v, int64_t row)
{
  return {v.mean ? v.mean[row] : 0.0f, v.rstd[row]};
}

/* Writes dx of W values. It is given the means over the row of g and of g * h. g is rounded by itself, without a fused
 * multiply-add, so that it equals its mean if a row has one value. */
template <typename T, int W>
static __device__ inline void write_gradient(const backward &v, int64_t at, int64_t i, row_values r, const float *x,
                                             const float *dy, float mean_g, float mean_gh)
{
  float weight[W], dx[W];
  cuda_load_values<W>(v.weight + i * W, weight);
#pragma unroll
  for (int k = 0; k < W; k++)
    dx[k] = r.rstd * (__fmul_rn(dy[k], weight[k] + v.offset) - mean_g - (x[k] - r.mean) * r.rstd * mean_gh);
  if (v.a) {
    float a[W];
    cuda_load_values<W>((const T *)v.a + at + i * W, a);
#pragma unroll
    for (int k = 0; k < W; k++) dx[k] = __fadd_rn(a[k], dx[k]);
  }
  cuda_store_values<W>((T *)v.dx + at + i * W, dx);
}

/* Adds up the sums of a column over the warps, in their order, and writes the block's part. */
template <int W, int PACKS>
static __device__ void write_parts_of_warps(const backward &v, const float (*sum)[W], int which)
{
  __shared__ float of_warp[CUDA_NORM_WARPS][CUDA_WARP * CUDA_NORM_GRAD_HELD];
  const int lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP;
  __syncthreads();
#pragma unroll
  for (int j = 0; j < PACKS; j++)
#pragma unroll
    for (int k = 0; k < W; k++) of_warp[warp][(lane + j * CUDA_WARP) * W + k] = sum[j][k];
  __syncthreads();
  for (int i = threadIdx.x; i < v.length; i += blockDim.x) {
    float all = 0;
    for (int w = 0; w < CUDA_NORM_WARPS; w++) all += of_warp[w][i];
    v.part[((int64_t)blockIdx.x * 2 + which) * v.length + i] = all;
  }
}

template <typename T, int W, bool WARP>
static __global__ void __launch_bounds__(WARP ? CUDA_THREADS : CUDA_NORM_ROW_THREADS) held_rows_grad(backward v)
{
  constexpr int PACKS = W > 1 ? CUDA_NORM_GRAD_HELD / W : CUDA_NORM_NARROW_HELD;
  const int lane = team_lane<WARP>(), threads = team_size<WARP>(), packs = (int)(v.length / W);
  float x[PACKS][W], dy[PACKS][W], dweight[PACKS][W] = {}, dbias[PACKS][W] = {};

  for (int64_t row = team_index<WARP>(); row < v.rows; row += team_count<WARP>()) {
    const int64_t at = row * v.length;
    const row_values r = values_of(v, row);
    float sum = 0, product = 0;
#pragma unroll
    for (int j = 0; j < PACKS; j++)
      if (lane + j * threads < packs) {
        cuda_load_values<W>((const T *)v.x + at + (lane + j * threads) * W, x[j]);
        cuda_load_values<W>((const T *)v.dy + at + (lane + j * threads) * W, dy[j]);
      }
#pragma unroll
    for (int j = 0; j < PACKS; j++)
      if (lane + j * threads < packs) {
        float weight[W];
        cuda_load_values<W>(v.weight + (lane + j * threads) * W, weight);
#pragma unroll
        for (int k = 0; k < W; k++) {
          const float h = (x[j][k] - r.mean) * r.rstd, g = __fmul_rn(dy[j][k], weight[k] + v.offset);
          sum += g;
          product += g * h;
          dweight[j][k] += dy[j][k] * h;
          dbias[j][k] += dy[j][k];
        }
      }
    const float mean_g = v.mean ? cuda_team_sum<!WARP>(sum) / (float)v.length : 0.0f;
    const float mean_gh = cuda_team_sum<!WARP>(product) / (float)v.length;
#pragma unroll
    for (int j = 0; j < PACKS; j++)
      if (lane + j * threads < packs) write_gradient<T, W>(v, at, lane + j * threads, r, x[j], dy[j], mean_g, mean_gh);
  }
  if constexpr (WARP) {
    write_parts_of_warps<W, PACKS>(v, dweight, 0);
    if (v.mean) write_parts_of_warps<W, PACKS>(v, dbias, 1);
  } else {
    float *part = v.part + (int64_t)blockIdx.x * 2 * v.length;
#pragma unroll
    for (int j = 0; j < PACKS; j++)
#pragma unroll
      for (int k = 0; k < W; k++) {
        if (lane + j * threads >= packs) continue;
        part[(lane + j * threads) * W + k] = dweight[j][k];
        if (v.mean) part[v.length + (lane + j * threads) * W + k] = dbias[j][k];
      }
  }
}

/* ---- long rows ---- */

template <typename T, int W> static __global__ void __launch_bounds__(CUDA_NORM_ROW_THREADS) long_rows_grad(backward v)
{
  const int64_t packs = v.length / W;
  for (int64_t row = blockIdx.x; row < v.rows; row += gridDim.x) {
    const int64_t at = row * v.length;
    const row_values r = values_of(v, row);
    float x[W], dy[W], weight[W], sum = 0, product = 0;
    for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
      cuda_load_values<W>((const T *)v.x + at + i * W, x);
      cuda_load_values<W>((const T *)v.dy + at + i * W, dy);
      cuda_load_values<W>(v.weight + i * W, weight);
#pragma unroll
      for (int k = 0; k < W; k++) {
        const float g = __fmul_rn(dy[k], weight[k] + v.offset);
        sum += g;
        product += g * ((x[k] - r.mean) * r.rstd);
      }
    }
    const float mean_g = v.mean ? cuda_block_sum(sum) / (float)v.length : 0.0f;
    const float mean_gh = cuda_block_sum(product) / (float)v.length;
    for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
      cuda_load_values<W>((const T *)v.x + at + i * W, x);
      cuda_load_values<W>((const T *)v.dy + at + i * W, dy);
      write_gradient<T, W>(v, at, i, r, x, dy, mean_g, mean_gh);
    }
  }
}

/* Each block has a strip of columns, and each gridDim.y-th row of it. */
template <typename T, int W> static __global__ void __launch_bounds__(CUDA_THREADS) sum_columns(backward v)
{
  const int64_t i = cuda_first() * W;
  if (i >= v.length) return;
  float dweight[W] = {}, dbias[W] = {};
  for (int64_t row = blockIdx.y; row < v.rows; row += gridDim.y) {
    const row_values r = values_of(v, row);
    float x[W], dy[W];
    cuda_load_values<W>((const T *)v.x + row * v.length + i, x);
    cuda_load_values<W>((const T *)v.dy + row * v.length + i, dy);
#pragma unroll
    for (int k = 0; k < W; k++) {
      dweight[k] += dy[k] * ((x[k] - r.mean) * r.rstd);
      dbias[k] += dy[k];
    }
  }
  float *part = v.part + (int64_t)blockIdx.y * 2 * v.length + i;
#pragma unroll
  for (int k = 0; k < W; k++) {
    part[k] = dweight[k];
    if (v.mean) part[v.length + k] = dbias[k];
  }
}

/* ---- adding up the sums of blocks ---- */

/* A block has 32 columns. Each warp adds up every PART_WARPS-th part; then the sums of the warps are added. blockIdx.y
 * selects dweight or dbias. Blocks are as large as possible, because there are few of them. */
enum { PART_WARPS = 32 };
static __global__ void __launch_bounds__(PART_WARPS *CUDA_WARP)
    add_parts(float *dweight, float *dbias, bool adds_weight, bool adds_bias, const float *part, int64_t parts,
              int64_t length)
{
  __shared__ double of_warp[PART_WARPS][CUDA_WARP];
  const int lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP;
  const int64_t column = (int64_t)blockIdx.x * CUDA_WARP + lane;
  double sum = 0;
  if (column < length)
#pragma unroll 8
    for (int64_t p = warp; p < parts; p += PART_WARPS) sum += (double)part[(p * 2 + blockIdx.y) * length + column];
  of_warp[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || column >= length) return;
  for (int w = 1; w < PART_WARPS; w++) sum += of_warp[w][lane];
  float *gradient = blockIdx.y ? dbias : dweight;
  gradient[column] = ((blockIdx.y ? adds_bias : adds_weight) ? gradient[column] : 0) + (float)sum;
}

/* ---- operations ---- */

template <typename T, int W> static brim_status launch_rows(cuda_backend *b, const cuda_norm_rows *r, const backward &v)
{
  switch (r->team) {
  case CUDA_NORM_WARP:
    return cuda_launch(b, held_rows_grad<T, W, true>, r->geometry, v);
  case CUDA_NORM_BLOCK:
    return cuda_launch(b, held_rows_grad<T, W, false>, r->geometry, v);
  default:
    BRIM_TRY(cuda_launch(b, sum_columns<T, W>, cuda_norm_columns_of(v.rows, v.length, W), v));
    return cuda_launch(b, long_rows_grad<T, W>, r->geometry, v);
  }
}

static brim_status launch_typed(cuda_backend *b, uint32_t dtype, const cuda_norm_rows *r, const backward &v)
{
  CUDA_WITH_TYPE(dtype, T, CUDA_WITH_WIDTH(r->wide, T, W, return (launch_rows<T, W>(b, r, v))));
}

/* adds: 1 if dx is added to in[0], else 0. */
static brim_status run(cuda_backend *b, const brim_launch *launch, bool centred, uint32_t adds)
{
  const brim_tensor *x = launch->node->in[adds];
  void *const *in = launch->in + adds;
  backward v = {};
  v.rows = cuda_rows_of(x);
  v.length = cuda_last(x);
  v.x = cuda_plain_input(b, launch, adds);
  v.dy = cuda_plain_input(b, launch, adds + (centred ? 4 : 3));
  v.a = adds ? cuda_plain_input(b, launch, 0) : NULL;
  if (!v.x || !v.dy || (adds && !v.a)) return BRIM_EDEVICE;
  v.weight = (const float *)in[1];
  v.offset = (float)launch->node->attr.norm.offset;
  v.mean = centred ? (const float *)in[2] : NULL;
  v.rstd = (const float *)in[centred ? 3 : 2];
  v.dx = launch->out[0];
  v.part = (float *)cuda_scratch_end(launch, true);
  const int64_t pack = pack_of(x->dtype);
  const cuda_norm_rows r = cuda_norm_grad_rows_of(v.rows, v.length, pack);
  BRIM_TRY(launch_typed(b, x->dtype, &r, v));
  cuda_geometry g = cuda_rows(cuda_divide_up(v.length, CUDA_WARP), PART_WARPS * CUDA_WARP);
  g.blocks[1] = centred ? 2 : 1;
  return cuda_launch(b, add_parts, g, (float *)launch->out[1], centred ? (float *)launch->out[2] : NULL,
                     cuda_adds_to(b, launch, 1), centred && cuda_adds_to(b, launch, 2), v.part,
                     cuda_norm_parts_of(v.rows, v.length, pack), v.length);
}

static CUDA_PREPARE(grad_prepare)
{
  BRIM_TRY(cuda_plain_prepare(self, program, node, need, state));
  const brim_tensor *x = node->in[0];
  const int64_t length = cuda_last(x), parts = cuda_norm_parts_of(cuda_rows_of(x), length, pack_of(x->dtype));
  need->workspace_bytes += (uint64_t)(parts * 2 * length) * sizeof(float);
  need->overwrites = 1;
  return BRIM_OK;
}

static CUDA_RUN(layer_norm_grad_run)
{
  return run((cuda_backend *)self, launch, true, 0);
}
static CUDA_RUN(layer_norm_grad_add_run)
{
  return run((cuda_backend *)self, launch, true, 1);
}
static CUDA_RUN(rms_norm_grad_run)
{
  return run((cuda_backend *)self, launch, false, 0);
}
static CUDA_RUN(rms_norm_grad_add_run)
{
  return run((cuda_backend *)self, launch, false, 1);
}
BRIM_KERNEL(layer_norm_grad) = {.op = "layer_norm_grad", .prepare = grad_prepare, .run = layer_norm_grad_run};
BRIM_KERNEL(layer_norm_grad_add) = {
    .op = "layer_norm_grad+add", .prepare = grad_prepare, .run = layer_norm_grad_add_run};
BRIM_KERNEL(rms_norm_grad) = {.op = "rms_norm_grad", .prepare = grad_prepare, .run = rms_norm_grad_run};
BRIM_KERNEL(rms_norm_grad_add) = {.op = "rms_norm_grad+add", .prepare = grad_prepare, .run = rms_norm_grad_add_run};
