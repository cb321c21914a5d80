/* The operations that move values: reshape, concat, slice, pad. Each reads the values that it keeps once, and writes
 * its result once.
 *
 * All except pad copy runs of bytes at constant strides in the source and in the target. Threads move the widest words
 * that fit the runs, for any type of values. In memory, a channels-last tensor of rank 4 is a plain tensor [N,H,W,C],
 * so these operations keep that order without special cases. */
#include "move_geometry.h"
#include "words.cuh"

/* ---- runs ---- */

/* `count` runs. All sizes are in bytes. */
typedef struct runs {
  int64_t count, run, from_stride, to_stride;
} runs;

template <typename U>
static __global__ void __launch_bounds__(CUDA_THREADS)
    copy_runs_kernel(U *__restrict__ to, const U *__restrict__ from, int64_t count, cuda_divider run,
                     int64_t from_stride, int64_t to_stride)
{
  for (int64_t i = cuda_first(); i < count; i += cuda_step_width()) {
    int64_t row = i;
    const int64_t at = cuda_take(&run, &row);
    to[row * to_stride + at] = from[row * from_stride + at];
  }
}

template <typename U> static brim_status copy_words(cuda_backend *b, runs r, char *to, const char *from)
{
  const int64_t width = (int64_t)sizeof(U), run = r.run / width;
  return cuda_launch(b, copy_runs_kernel<U>, cuda_stride(r.count * run, 1, b->processors), (U *)(void *)to,
                     (const U *)(const void *)from, r.count * run, cuda_divider_of(run), r.from_stride / width,
                     r.to_stride / width);
}

/* to_offset and from_offset are the bytes from the starts of the tensors, which are aligned, to the first run. */
static brim_status copy_runs(cuda_backend *b, runs r, void *to, int64_t to_offset, const void *from,
                             int64_t from_offset)
{
  const int64_t unit = cuda_unit_bytes(r.run | r.from_stride | r.to_stride | to_offset | from_offset);
  CUDA_WITH_WORD(unit, U, return copy_words<U>(b, r, (char *)to + to_offset, (const char *)from + from_offset));
}

/* ---- reshape ---- */

/* Returns whether the result has the bytes of x in the same order: both are plain, or both are channels-last and only
 * the dimensions of the pixels change. */
static bool keeps_bytes(const brim_tensor *x, const brim_tensor *y)
{
  if (cuda_in_order(x, false) && cuda_in_order(y, false)) return true;
  return cuda_channels_last(x) && cuda_channels_last(y);
}

/* If x is plain, the result is a view of x and costs no time. If a later operation needs another order, it converts the
 * result, which takes as long as converting it here. Channels-last images stay channels-last if the number of channels
 * stays. */
static CUDA_PREPARE(reshape_prepare)
{
  (void)self, (void)program, (void)state;
  const brim_tensor *x = node->in[0];
  brim_tensor *y = node->out[0];
  cuda_layout_set(y, cuda_channels_last(x) && y->shape.rank == 4 && x->shape.dim[1] == y->shape.dim[1]);
  need->no_inplace = !keeps_bytes(x, y);
  return BRIM_OK;
}

static CUDA_RUN(reshape_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const brim_tensor *x = launch->node->in[0], *y = launch->node->out[0];
  if (!keeps_bytes(x, y)) return cuda_layout_convert(b, &x->shape, x->dtype, launch->in[0], launch->out[0], false);
  if (launch->in[0] == launch->out[0]) return BRIM_OK;
  return cuda_copy(b, launch->out[0], launch->in[0], y->bytes, "moving a tensor");
}
BRIM_KERNEL(reshape) = {.op = "reshape", .prepare = reshape_prepare, .run = reshape_run};

/* ---- concat, slice ---- */

static CUDA_RUN(concat_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const brim_node *node = launch->node;
  const brim_tensor *y = node->out[0];
  const bool channels_last = cuda_channels_last(node->in[0]);
  const int32_t axis = node->attr.move.axis;
  const cuda_view view = cuda_view_of(&y->shape, channels_last);
  const cuda_around around = cuda_around_of(&view, axis);
  const int64_t inner = around.inner * brim_dtype_bytes(y->dtype);
  int64_t offset = 0;
  for (uint32_t i = 0; i < node->in_count; i++) {
    const int64_t run = node->in[i]->shape.dim[axis] * inner;
    const void *from = cuda_same_order_input(b, launch, i);
    if (!from) return BRIM_EDEVICE;
    const runs r = {around.outer, run, run, y->shape.dim[axis] * inner};
    BRIM_TRY(copy_runs(b, r, launch->out[0], offset, from, 0));
    offset += run;
  }
  return BRIM_OK;
}
BRIM_KERNEL(concat) = {.op = "concat", .prepare = cuda_same_order_prepare, .run = concat_run};

static CUDA_RUN(slice_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const brim_node *node = launch->node;
  const brim_tensor *x = node->in[0], *y = node->out[0];
  const int32_t axis = node->attr.move.axis;
  const cuda_view view = cuda_view_of(&x->shape, cuda_channels_last(x));
  const cuda_around around = cuda_around_of(&view, axis);
  const int64_t inner = around.inner * brim_dtype_bytes(x->dtype), run = y->shape.dim[axis] * inner;
  const runs r = {around.outer, run, x->shape.dim[axis] * inner, run};
  return copy_runs(b, r, launch->out[0], 0, launch->in[0], node->attr.move.start * inner);
}
BRIM_KERNEL(slice) = {.op = "slice", .prepare = cuda_follow_prepare, .run = slice_run};

/* ---- pad ---- */

template <typename U>
static __global__ void __launch_bounds__(CUDA_THREADS)
    pad_kernel(U *__restrict__ y, const U *__restrict__ x, const cuda_padding p, const uint4 value)
{
  U filling;
  memcpy(&filling, &value, sizeof filling);
  for (int64_t i = cuda_first(); i < p.count; i += cuda_step_width()) {
    const int64_t at = cuda_padding_source(&p, i);
    y[i] = at < 0 ? filling : x[at];
  }
}

/* Returns a value in the format of the type, repeated to fill 16 bytes. */
static uint4 filling_of(uint32_t dtype, double value)
{
  const float real = (float)value;
  const int32_t whole = dtype == BRIM_DTYPE_I32 ? (int32_t)value : 0;
  const uint8_t byte = dtype == BRIM_DTYPE_U8 ? (uint8_t)value : 0;
  const cuda_bf16 bf16 = __float2bfloat16_rn(real);
  const cuda_f16 f16 = __float2half_rn(real);
  const void *bits = dtype == BRIM_DTYPE_F64    ? (const void *)&value
                     : dtype == BRIM_DTYPE_I32  ? (const void *)&whole
                     : dtype == BRIM_DTYPE_U8   ? (const void *)&byte
                     : dtype == BRIM_DTYPE_BF16 ? (const void *)&bf16
                     : dtype == BRIM_DTYPE_F16  ? (const void *)&f16
                                                : (const void *)&real;
  uint4 filling;
  const size_t bytes = brim_dtype_bytes(dtype);
  for (size_t i = 0; i < sizeof filling; i += bytes) memcpy((char *)&filling + i, bits, bytes);
  return filling;
}

template <typename U> static brim_status pad_words(cuda_backend *b, const brim_launch *launch, const cuda_padding *p)
{
  const brim_node *node = launch->node;
  return cuda_launch(b, pad_kernel<U>, cuda_stride(p->count, 1, b->processors), (U *)launch->out[0],
                     (const U *)launch->in[0], *p, filling_of(node->out[0]->dtype, node->attr.move.value));
}

static CUDA_RUN(pad_run)
{
  const brim_node *node = launch->node;
  const brim_tensor *x = node->in[0], *y = node->out[0];
  const cuda_padding p =
      cuda_padding_of(&x->shape, &y->shape, node->attr.move.before, cuda_channels_last(x), brim_dtype_bytes(y->dtype));
  CUDA_WITH_WORD(p.unit_bytes, U, return pad_words<U>((cuda_backend *)self, launch, &p));
}
BRIM_KERNEL(pad) = {.op = "pad", .prepare = cuda_follow_prepare, .run = pad_run};
