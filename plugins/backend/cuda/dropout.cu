/* Dropout and its gradient, which both multiply by the mask; and dropout with an addition or relu.
 *
 *     y = x * (kept ? 1 / (1 - p) : 0)          y = a + x * (kept ? 1 / (1 - p) : 0)
 *
 * The mask is a function of seed, step, sample and logical coordinate (brim/random.h), so it is not stored: the
 * gradient computes it again. Bytes: those of x, a and y. A Philox block costs about 70 instructions and gives the
 * numbers of four elements, neighbours along the channels, so a thread always uses all four:
 *   - where neighbours are neighbours in memory too, a thread takes 16 bytes, one block of numbers for each four;
 *   - rows of other lengths (channels-last with odd channels): four elements, one by one;
 *   - planes of single channels (NCHW): four channels of 16 bytes of pixels each, so that reads still go along rows;
 *     its mask fits into a word. Each thread makes the key from the step's seed and number, on the device. */
#include "arithmetic.h"
#include "kernel.cuh"

/* The way in which blocks of random numbers cover a tensor. Rows: `length` elements and `groups` blocks each, `rows` in
 * a sample. Planes: `length` pixels, `groups` blocks for each pixel, `rows` channels in a sample. */
typedef struct pattern {
  double p;
  uint64_t stream;
  float scale;
  bool relu; /* follows */
  int64_t samples, rows, length, groups;
} pattern;

/* ---- for all of them ---- */

typedef struct mask {
  brim_dropout_key key;
  int64_t first_sample;
} mask;

static __device__ inline mask make_mask(const cuda_control *control, const pattern &d)
{
  return {brim_dropout_key_make(control->step.seed, control->step.step, d.stream, d.p), control->step.first_sample};
}

/* Returns a bit for each of the four elements of a block: 1 if it is kept. */
static __device__ inline uint32_t kept4(const mask &m, int64_t sample, int64_t block)
{
  const brim_philox r = brim_dropout_block(&m.key, m.first_sample + sample, block);
  uint32_t bits = 0;
#pragma unroll
  for (int j = 0; j < 4; j++) bits |= (uint32_t)(r.v[j] >= m.key.threshold) << j;
  return bits;
}

/* Returns the value as stored in T. The product is rounded as if it were stored, which gives the same bits as dropout
 * followed by an addition. */
template <typename T> static __device__ inline float rounded(float value)
{
  T stored;
  cuda_store(&stored, value);
  return cuda_load(&stored);
}
static __device__ inline float dropped(const pattern &d, float x, uint32_t kept)
{
  const float y = __fmul_rn(x, kept & 1 ? d.scale : 0); /* NaN is passed on */
  return d.relu ? cuda_activate({CUDA_RELU, 0}, y) : y;
}

/* a: added, unless NULL. Bit k of `bits` belongs to element k. */
template <typename T>
static __device__ inline void drop_pack(T *y, const T *x, const T *a, uint32_t bits, const pattern &d)
{
  cuda_pack<T> v, w;
  v.load(x);
  if (a) w.load(a);
#pragma unroll
  for (int k = 0; k < cuda_pack<T>::count; k++) {
    v.v[k] = dropped(d, v.v[k], bits >> k);
    if (a) v.v[k] = __fadd_rn(w.v[k], rounded<T>(v.v[k]));
  }
  v.store(y);
}
template <typename T>
static __device__ inline void drop_one(T *y, const T *x, const T *a, uint32_t kept, const pattern &d)
{
  float v = dropped(d, cuda_load(x), kept);
  if (a) v = __fadd_rn(cuda_load(a), rounded<T>(v));
  cuda_store(y, v);
}

/* i = quotient * divisor + remainder. Divides in 32 bits if they are enough, as usual. */
static __device__ inline int64_t divide(int64_t i, int64_t divisor, int64_t *remainder)
{
  if (((uint64_t)i | (uint64_t)divisor) >> 32 == 0) {
    const uint32_t quotient = (uint32_t)i / (uint32_t)divisor;
    *remainder = (uint32_t)i - quotient * (uint32_t)divisor;
    return quotient;
  }
  *remainder = i % divisor;
  return i / divisor;
}

/* ---- kernels ---- */

/* For tensors in which each sample is one row of whole packs. */
template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    packs_kernel(T *y, const T *x, const T *a, pattern d, const cuda_control *control)
{
  constexpr int P = cuda_pack<T>::count;
  const mask m = make_mask(control, d);
  const int64_t packs = d.length / P, count = d.samples * packs;
  for (int64_t i = cuda_first(); i < count; i += cuda_step_width()) {
    int64_t at;
    const int64_t n = divide(i, packs, &at);
    uint32_t bits = 0;
#pragma unroll
    for (int j = 0; j < P / 4; j++) bits |= kept4(m, n, at * (P / 4) + j) << 4 * j;
    drop_pack(y + i * P, x + i * P, a ? a + i * P : nullptr, bits, d);
  }
}

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    rows_kernel(T *y, const T *x, const T *a, pattern d, const cuda_control *control)
{
  const mask m = make_mask(control, d);
  const int64_t blocks = d.rows * d.groups, count = d.samples * blocks;
  for (int64_t i = cuda_first(); i < count; i += cuda_step_width()) {
    int64_t block, group;
    const int64_t n = divide(i, blocks, &block), row = divide(block, d.groups, &group);
    const int64_t at = (n * d.rows + row) * d.length + 4 * group;
    const uint32_t bits = kept4(m, n, block);
#pragma unroll
    for (int j = 0; j < 4; j++)
      if (4 * group + j < d.length) drop_one(y + at + j, x + at + j, a ? a + at + j : nullptr, bits >> j, d);
  }
}

/* A thread has V pixels of four channels; V divides the number of pixels. Bit j*V + k belongs to channel j, pixel k. */
template <typename T, int V>
static __global__ void __launch_bounds__(CUDA_THREADS)
    planes_kernel(T *y, const T *x, const T *a, pattern d, const cuda_control *control)
{
  const mask m = make_mask(control, d);
  const int64_t packs = d.length / V, items = d.groups * packs, count = d.samples * items;
  for (int64_t i = cuda_first(); i < count; i += cuda_step_width()) {
    int64_t item, pack;
    const int64_t n = divide(i, items, &item), group = divide(item, packs, &pack);
    uint32_t bits = 0;
#pragma unroll
    for (int k = 0; k < V; k++) {
      const uint32_t four = kept4(m, n, (pack * V + k) * d.groups + group);
#pragma unroll
      for (int j = 0; j < 4; j++) bits |= (four >> j & 1) << (j * V + k);
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int64_t at = (n * d.rows + 4 * group + j) * d.length + pack * V;
      if (4 * group + j >= d.rows) break;
      if constexpr (V == 1)
        drop_one(y + at, x + at, a ? a + at : nullptr, bits >> j, d);
      else
        drop_pack(y + at, x + at, a ? a + at : nullptr, bits >> (j * V), d);
    }
  }
}

/* ---- launching ---- */

static bool in_planes(const brim_tensor *y)
{
  return y->shape.rank == 4 && !cuda_channels_last(y) && y->shape.dim[2] * y->shape.dim[3] > 1;
}

static pattern make_pattern(const brim_node *node, bool relu)
{
  const brim_tensor *y = node->out[0];
  const int64_t samples = y->shape.dim[0], size = brim_shape_count(&y->shape) / samples;
  const brim_dropout_attr *attr = &node->attr.dropout;
  pattern d = {attr->p, attr->stream, (float)(1 / (1 - attr->p)), relu, samples, 1, size, cuda_divide_up(size, 4)};
  if (y->shape.rank != 4) return d;
  const int64_t channels = y->shape.dim[1], pixels = size / channels;
  if (in_planes(y)) {
    d.rows = channels;
    d.length = pixels;
    d.groups = cuda_divide_up(channels, 4);
  } else if (channels % 4 != 0) { /* each pixel begins a new block */
    d.rows = pixels;
    d.length = channels;
    d.groups = cuda_divide_up(channels, 4);
  }
  return d;
}

template <typename T>
static brim_status drop(cuda_backend *b, const brim_launch *l, const void *from, const void *add, bool relu)
{
  constexpr int P = cuda_pack<T>::count;
  const pattern d = make_pattern(l->node, relu);
  const cuda_control *control = cuda_control_of(b, l);
  if (!control) return BRIM_EDEVICE;
  T *y = static_cast<T *>(l->out[0]);
  const T *x = static_cast<const T *>(from), *a = static_cast<const T *>(add);
  const int64_t planes = d.samples * d.groups;
  if (in_planes(l->node->out[0])) {
    if (d.length % P == 0)
      return cuda_launch(b, planes_kernel<T, P>, cuda_stride(planes * (d.length / P), 1, b->processors), y, x, a, d,
                         control);
    return cuda_launch(b, planes_kernel<T, 1>, cuda_stride(planes * d.length, 1, b->processors), y, x, a, d, control);
  }
  if (d.rows == 1 && d.length % P == 0)
    return cuda_launch(b, packs_kernel<T>, cuda_stride(d.samples * d.length, P, b->processors), y, x, a, d, control);
  return cuda_launch(b, rows_kernel<T>, cuda_stride(planes * d.rows, 1, b->processors), y, x, a, d, control);
}

static CUDA_RUN(dropout_run)
{
  cuda_backend *b = static_cast<cuda_backend *>(self);
  CUDA_WITH_TYPE(launch->node->in[0]->dtype, T, return drop<T>(b, launch, launch->in[0], nullptr, false));
}

static CUDA_RUN(dropout_relu_run)
{
  cuda_backend *b = static_cast<cuda_backend *>(self);
  CUDA_WITH_TYPE(launch->node->in[0]->dtype, T, return drop<T>(b, launch, launch->in[0], nullptr, true));
}

static CUDA_RUN(dropout_add_run)
{
  cuda_backend *b = static_cast<cuda_backend *>(self);
  const void *x = cuda_same_order_input(b, launch, 1);
  if (!x) return BRIM_EDEVICE;
  CUDA_WITH_TYPE(launch->node->in[0]->dtype, T, return drop<T>(b, launch, x, launch->in[0], false));
}

BRIM_KERNEL(dropout) = {.op = "dropout", .prepare = cuda_follow_prepare, .run = dropout_run};
BRIM_KERNEL(dropout_relu) = {.op = "dropout+relu", .prepare = cuda_follow_prepare, .run = dropout_relu_run};
BRIM_KERNEL(dropout_grad) = {.op = "dropout_grad", .prepare = cuda_follow_prepare, .run = dropout_run};
BRIM_KERNEL(dropout_add) = {.op = "dropout+add", .prepare = cuda_same_order_prepare, .run = dropout_add_run};
