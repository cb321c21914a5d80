/* Sums and means over axes; sum_to, the gradient of repetition; accumulate. They move the bytes of x once.
 *
 * Every output is the sum of its terms in double precision. If terms are contiguous in memory, lanes of a warp or
 * threads of a block add them up together. If outputs are contiguous, neighbouring threads have neighbouring outputs,
 * each output has several threads, and a thread steps through its terms by a stride. Many terms are divided into parts,
 * so that a few long sums also fill the device: the sums of the parts go to scratch, and a second kernel adds them up.
 * The choice depends on the number of terms alone (reduce_geometry.h), and no sum depends on the order in which threads
 * run.
 *
 * The samples are added to a parameter's gradient one after another, in order and in fp32, so its bits do not depend on
 * the micro-batch. Before that, the terms within each sample are summed into scratch. */
#include "reduce_geometry.h"
#include "values.cuh"

static __device__ inline double load_double(const double *p)
{
  return *p;
}
template <typename T> static __device__ inline double load_double(const T *p)
{
  return (double)cuda_load(p);
}

/* The destination of sums. */
typedef struct target {
  void *y;
  uint32_t dtype; /* F32, BF16 or F16; F64 for parts */
  bool adds;      /* adds to y; only for fp32 */
  double factor;
} target;

static __device__ inline void store_sum(target t, int64_t at, double sum)
{
  sum *= t.factor;
  if (t.dtype == BRIM_DTYPE_F64) {
    ((double *)t.y)[at] = sum;
  } else if (t.dtype == BRIM_DTYPE_BF16) {
    cuda_store((cuda_bf16 *)t.y + at, (float)sum);
  } else if (t.dtype == BRIM_DTYPE_F16) {
    cuda_store((cuda_f16 *)t.y + at, (float)sum);
  } else {
    float *y = (float *)t.y + at;
    *y = t.adds ? *y + (float)sum : (float)sum;
  }
}

/* output_of returns the position of an output's first term in x, and sets the output's place in y. term_of returns the
 * position of a term, relative to the first. */
static __device__ inline int64_t output_of(const cuda_reduction &r, int64_t o, int64_t *y)
{
  int64_t x = 0;
  *y = 0;
  for (int d = r.kept_rank - 1; d >= 0; d--) {
    const int64_t place = cuda_take(&r.kept[d], &o);
    x += place * r.kept_x[d];
    *y += place * r.kept_y[d];
  }
  return x;
}
static __device__ inline int64_t term_of(const cuda_reduction &r, int64_t t)
{
  int64_t x = 0;
  for (int d = r.summed_rank - 1; d >= 0; d--) x += cuda_take(&r.summed[d], &t) * r.summed_x[d];
  return x;
}

template <typename T, int V> static __device__ inline double sum_values(const T *x)
{
  if constexpr (V == 1) {
    return load_double(x);
  } else {
    float v[V];
    double sum = 0;
    cuda_load_values<V>(x, v);
#pragma unroll
    for (int k = 0; k < V; k++) sum += (double)v[k];
    return sum;
  }
}

/* Returns one thread's part of an output's sum. The thread adds V terms from `from` on, and then skips the terms that
 * the other threads add. */
template <typename T, int V>
static __device__ inline double sum_terms(const T *x, const cuda_reduction &r, int64_t from, int64_t end, int threads)
{
  const int64_t step = (int64_t)threads * V;
  double sum = 0;
  if (r.summed_rank == 1) { /* nearly always true */
    const int64_t apart = r.summed_x[0];
#pragma unroll 4
    for (int64_t t = from; t < end; t += step) sum += sum_values<T, V>(x + t * apart);
  } else {
#pragma unroll 1
    for (int64_t t = from; t < end; t += step) sum += sum_values<T, V>(x + term_of(r, t));
  }
  return sum;
}

template <typename T, int V>
static __global__ void __launch_bounds__(CUDA_THREADS)
    lanes_kernel(target to, const T *x, const __grid_constant__ cuda_reduction r, int lanes)
{
  /* `before`: outputs before this one in its warp. */
  const int lane = threadIdx.x % lanes, before = threadIdx.x % CUDA_WARP / lanes;
  const int outputs = CUDA_THREADS / lanes; /* outputs of a block */
  const int64_t step = (int64_t)gridDim.x * outputs;
  for (int64_t o = (int64_t)blockIdx.x * outputs + threadIdx.x / lanes; o - before < r.outputs;
       o += step) { /* all lanes of a warp take part in the sum */
    int64_t y = 0;
    double sum = 0;
    if (o < r.outputs) sum = sum_terms<T, V>(x + output_of(r, o, &y), r, lane * V, r.terms, lanes);
    for (int other = lanes / 2; other > 0; other /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, other);
    if (o < r.outputs && lane == 0) store_sum(to, y, sum);
  }
}

/* Stores the sum of a part. The parts of an output are contiguous in scratch; an output with a single part goes
 * directly to its destination. */
static __device__ inline void store_part(target to, int64_t output, int64_t y, int64_t part, int64_t splits, double sum)
{
  store_sum(to, splits > 1 ? output * splits + part : y, sum);
}

template <typename T, int V>
static __global__ void __launch_bounds__(CUDA_THREADS)
    block_kernel(target to, const T *x, const __grid_constant__ cuda_reduction r,
                 const __grid_constant__ cuda_divider splits, int64_t segment)
{
  for (int64_t i = blockIdx.x; i < r.outputs * splits.by; i += gridDim.x) {
    int64_t o = i, y;
    const int64_t part = cuda_take(&splits, &o), from = part * segment;
    const T *terms = x + output_of(r, o, &y);
    const double sum = cuda_block_sum(
        sum_terms<T, V>(terms, r, from + (int64_t)threadIdx.x * V, cuda_min(from + segment, r.terms), blockDim.x));
    if (threadIdx.x == 0) store_part(to, o, y, part, splits.by, sum);
  }
}

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    columns_kernel(target to, const T *x, const __grid_constant__ cuda_reduction r, int lanes,
                   const __grid_constant__ cuda_divider splits, int64_t segment)
{
  __shared__ double sums[CUDA_THREADS];
  const int threads = CUDA_THREADS / lanes, column = threadIdx.x % lanes, thread = threadIdx.x / lanes;
  const int64_t tiles = cuda_divide_up(r.outputs, lanes);
  for (int64_t i = blockIdx.x; i < tiles * splits.by; i += gridDim.x) {
    int64_t tile = i, y = 0;
    const int64_t part = cuda_take(&splits, &tile), from = part * segment, o = tile * lanes + column;
    double sum = 0;
    if (o < r.outputs)
      sum = sum_terms<T, 1>(x + output_of(r, o, &y), r, from + thread, cuda_min(from + segment, r.terms), threads);
    sums[threadIdx.x] = sum;
    for (int half = threads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (thread < half) sums[threadIdx.x] += sums[threadIdx.x + half * lanes];
    }
    if (thread == 0 && o < r.outputs) store_part(to, o, y, part, splits.by, sums[threadIdx.x]);
    __syncthreads();
  }
}

template <typename T, int V>
static brim_status launch_rows(cuda_backend *b, target to, const T *x, const cuda_reduction *r, cuda_reduction_plan p)
{
  if (p.by == CUDA_BY_LANES) {
    const cuda_geometry g = cuda_stride(r->outputs * p.lanes, 1, b->processors);
    return cuda_launch(b, lanes_kernel<T, V>, g, to, x, *r, p.lanes);
  }
  return cuda_launch(b, block_kernel<T, V>, cuda_rows(r->outputs * p.splits, CUDA_THREADS), to, x, *r,
                     cuda_divider_of(p.splits), p.segment);
}

template <typename T>
static brim_status launch_sums(cuda_backend *b, target to, const T *x, const cuda_reduction *r, cuda_reduction_plan p)
{
  if (p.by == CUDA_BY_COLUMNS) {
    const int64_t tiles = cuda_divide_up(r->outputs, p.lanes);
    return cuda_launch(b, columns_kernel<T>, cuda_rows(tiles * p.splits, CUDA_THREADS), to, x, *r, p.lanes,
                       cuda_divider_of(p.splits), p.segment);
  }
  if (p.vector > 1) return launch_rows<T, cuda_pack<T>::count>(b, to, x, r, p);
  return launch_rows<T, 1>(b, to, x, r, p);
}

static cuda_reduction_plan plan_of(const cuda_reduction *r, uint32_t dtype)
{
  return cuda_reduction_plan_of(r, 16 / (int)brim_dtype_bytes(dtype));
}

static uint64_t parts_bytes(const cuda_reduction *r, uint32_t dtype)
{
  const int64_t splits = plan_of(r, dtype).splits;
  return splits > 1 ? cuda_round_up((uint64_t)(r->outputs * splits) * sizeof(double), CUDA_ALIGNMENT) : 0;
}

/* Returns the reduction that adds up the parts: its outputs are in the same order, and the terms of each are
 * contiguous. */
static cuda_reduction reduction_of_parts(const cuda_reduction *r, int64_t splits)
{
  cuda_reduction parts = *r;
  int64_t step = splits;
  parts.terms = splits;
  for (int32_t d = r->kept_rank - 1; d >= 0; d--) {
    parts.kept_x[d] = step;
    step *= r->kept[d].by;
  }
  parts.summed_rank = 1;
  parts.summed[0] = cuda_divider_of(splits);
  parts.summed_x[0] = 1;
  return parts;
}

static brim_status reduce(cuda_backend *b, target to, const void *x, uint32_t dtype, const cuda_reduction *r,
                          void *parts)
{
  const cuda_reduction_plan p = plan_of(r, dtype);
  const target first = p.splits > 1 ? (target){parts, BRIM_DTYPE_F64, false, 1} : to;
  CUDA_WITH_TYPE(dtype, T, BRIM_TRY(launch_sums(b, first, (const T *)x, r, p)));
  if (p.splits == 1) return BRIM_OK;
  const cuda_reduction of_parts = reduction_of_parts(r, p.splits);
  const cuda_reduction_plan one = {CUDA_BY_LANES, 1, cuda_power_of_2_from(p.splits, CUDA_WARP), 1, p.splits};
  return launch_rows<double, 1>(b, to, (const double *)parts, &of_parts, one);
}

/* ---- sum_to, accumulate ---- */

/* y += x or y = x, in fp32. x and y have the same order. */
template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS) add_kernel(float *y, const T *x, bool adds, int64_t count)
{
  constexpr int P = cuda_pack<T>::count;
  const int64_t whole = count / P;
  for (int64_t i = cuda_first(); i < whole; i += cuda_step_width()) {
    float v[P], sum[P] = {};
    cuda_load_values<P>(x + i * P, v);
    if (adds) cuda_load_values<P>(y + i * P, sum);
#pragma unroll
    for (int k = 0; k < P; k++) sum[k] += v[k];
    cuda_store_values<P>(y + i * P, sum);
  }
  for (int64_t i = whole * P + cuda_first(); i < count; i += cuda_step_width())
    y[i] = (adds ? y[i] : 0) + cuda_load(&x[i]);
}

enum { TILE = 8192 }; /* values that a block of add_samples_kernel loads at a time: 32 KiB */

/* y[o] = (adds ? y[o] : 0) + x[0][o] + x[1][o] + ..., in this order. So one thread must add up a column. The block
 * loads tiles of samples, so that this thread does not wait for each sample. */
template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    add_samples_kernel(float *y, const T *x, bool adds, int64_t samples, int64_t outputs, int columns)
{
  __shared__ float tile[TILE];
  const int threads = CUDA_THREADS / columns, column = threadIdx.x % columns, thread = threadIdx.x / columns;
  const int64_t rows = TILE / columns;
  for (int64_t first = (int64_t)blockIdx.x * columns; first < outputs; first += (int64_t)gridDim.x * columns) {
    const int64_t o = first + column;
    float sum = adds && thread == 0 && o < outputs ? y[o] : 0;
    for (int64_t n = 0; n < samples; n += rows) {
      const int count = (int)cuda_min(rows, samples - n);
#pragma unroll 8
      for (int i = thread; i < count; i += threads)
        if (o < outputs) tile[i * columns + column] = cuda_load(&x[(n + i) * outputs + o]);
      __syncthreads();
#pragma unroll 8
      for (int i = 0; i < count && thread == 0; i++) sum += tile[i * columns + column];
      __syncthreads();
    }
    if (thread == 0 && o < outputs) y[o] = sum;
  }
}

/* The reductions of a sum_to, in the order in which they run. */
typedef struct summing {
  cuda_reduction whole;  /* x to y */
  cuda_reduction within; /* by_sample: x to [samples, outputs] */
  bool by_sample;        /* y is a parameter's gradient and sums over samples */
  bool within_is_copy;   /* there is nothing to sum within a sample */
} summing;

static summing summing_of(const brim_node *node)
{
  const brim_tensor *x = node->in[0], *y = node->out[0];
  const bool last = cuda_channels_last(x);
  summing s = {};
  cuda_reduction_init(&s.whole, &x->shape, last, &y->shape);
  const bool across = y->shape.rank < x->shape.rank || (x->shape.rank > 0 && y->shape.dim[0] == 1);
  s.by_sample = cuda_adds(y) && across && x->shape.rank > 0 && x->shape.dim[0] > 1;
  if (!s.by_sample) return s;
  brim_shape sums = x->shape; /* the shape of y, aligned at the right, without summing over samples */
  for (int32_t d = 1; d < sums.rank; d++) {
    const int32_t at = d - (sums.rank - y->shape.rank);
    sums.dim[d] = at < 0 ? 1 : y->shape.dim[at];
  }
  cuda_reduction_init(&s.within, &x->shape, last, &sums);
  s.within_is_copy = cuda_reduction_is_copy(&s.within);
  return s;
}

static uint64_t samples_bytes(const summing *s)
{
  return s->within_is_copy ? 0 : cuda_round_up((uint64_t)s->within.outputs * sizeof(float), CUDA_ALIGNMENT);
}

static CUDA_PREPARE(sum_to_prepare)
{
  (void)self, (void)program, (void)state;
  need->overwrites = 1;
  const summing s = summing_of(node);
  const uint32_t dtype = node->in[0]->dtype;
  need->workspace_bytes =
      s.by_sample ? samples_bytes(&s) + parts_bytes(&s.within, dtype) : parts_bytes(&s.whole, dtype);
  return BRIM_OK;
}

static brim_status add_samples(cuda_backend *b, float *y, const void *x, uint32_t dtype, bool adds, int64_t samples,
                               int64_t outputs)
{
  const int columns = cuda_power_of_2_from(outputs, CUDA_WARP);
  const cuda_geometry g = cuda_rows(cuda_divide_up(outputs, columns), CUDA_THREADS);
  CUDA_WITH_TYPE(dtype, T,
                 return cuda_launch(b, add_samples_kernel<T>, g, y, (const T *)x, adds, samples, outputs, columns));
}

static CUDA_RUN(sum_to_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const brim_tensor *x = launch->node->in[0], *y = launch->node->out[0];
  const summing s = summing_of(launch->node);
  const target to = {launch->out[0], y->dtype, cuda_adds_to(b, launch, 0), 1};
  if (s.by_sample) {
    const void *sums = launch->in[0];
    if (!s.within_is_copy) {
      const target within = {launch->workspace, BRIM_DTYPE_F32, false, 1};
      BRIM_TRY(reduce(b, within, sums, x->dtype, &s.within, (char *)launch->workspace + samples_bytes(&s)));
      sums = launch->workspace;
    }
    return add_samples(b, (float *)launch->out[0], sums, s.within_is_copy ? x->dtype : (uint32_t)BRIM_DTYPE_F32,
                       to.adds, x->shape.dim[0], s.whole.outputs);
  }
  if (cuda_reduction_is_copy(&s.whole) && y->dtype == BRIM_DTYPE_F32)
    CUDA_WITH_TYPE(x->dtype, T,
                   return cuda_launch(b, add_kernel<T>,
                                      cuda_stride(s.whole.outputs, cuda_pack<T>::count, b->processors),
                                      (float *)launch->out[0], (const T *)launch->in[0], to.adds, s.whole.outputs));
  return reduce(b, to, launch->in[0], x->dtype, &s.whole, launch->workspace);
}
BRIM_KERNEL(sum_to) = {.op = "sum_to", .prepare = sum_to_prepare, .run = sum_to_run};
/* x has y's shape, so there is nothing to sum. */
BRIM_KERNEL(accumulate) = {.op = "accumulate", .prepare = sum_to_prepare, .run = sum_to_run};

/* ---- sum, mean ---- */

static cuda_reduction over_axes(const brim_node *node)
{
  const brim_tensor *x = node->in[0];
  const brim_shape y = cuda_reduced_shape(&x->shape, node->attr.reduce.axes);
  cuda_reduction r;
  cuda_reduction_init(&r, &x->shape, cuda_channels_last(x), &y);
  return r;
}

static CUDA_PREPARE(reduce_prepare)
{
  (void)self, (void)program, (void)state;
  const cuda_reduction r = over_axes(node);
  need->workspace_bytes = parts_bytes(&r, node->in[0]->dtype);
  return BRIM_OK;
}

static brim_status reduce_axes(cuda_backend *b, const brim_launch *launch, bool is_mean)
{
  const brim_tensor *x = launch->node->in[0], *y = launch->node->out[0];
  const cuda_reduction r = over_axes(launch->node);
  const target to = {launch->out[0], y->dtype, cuda_adds(y), is_mean ? 1 / (double)r.terms : 1};
  return reduce(b, to, launch->in[0], x->dtype, &r, launch->workspace);
}

static CUDA_RUN(sum_run)
{
  return reduce_axes((cuda_backend *)self, launch, false);
}
BRIM_KERNEL(sum) = {.op = "sum", .prepare = reduce_prepare, .run = sum_run};

static CUDA_RUN(mean_run)
{
  return reduce_axes((cuda_backend *)self, launch, true);
}
BRIM_KERNEL(mean) = {.op = "mean", .prepare = reduce_prepare, .run = mean_run};
