/* permute. The kernel lists the result's dimensions with their strides in x's memory. A channel in blocks counts as two
 * dimensions, so x may have any order; the result is plain. Dimensions that are adjacent in both tensors are merged. If
 * the innermost dimension is then the same in both, the kernel copies runs; otherwise it transposes planes of two
 * dimensions. */
#include "cpu.h"

enum { DIMS = BRIM_DIMS_MAX + 1, TASK_FLOATS = 16384 };

typedef struct dims {
  int32_t rank;
  int64_t dim[DIMS], stride[DIMS]; /* stride: in x's memory */
} dims;

/* Adds a dimension. Merges it with the last one if the two are also neighbours, in the same order, in x. */
static void add_dim(dims *s, int64_t dim, int64_t stride)
{
  if (dim == 1) return;
  const int32_t last = s->rank - 1;
  if (last >= 0 && s->stride[last] == dim * stride) {
    s->dim[last] *= dim;
    s->stride[last] = stride;
    return;
  }
  s->dim[s->rank] = dim;
  s->stride[s->rank++] = stride;
}

static dims dims_of(const brim_node *node)
{
  const brim_tensor *x = node->in[0];
  const int64_t block = x->channel_block;
  int64_t stride[BRIM_DIMS_MAX], inner = block;
  for (int32_t d = x->shape.rank - 1; d >= 0; d--) {
    stride[d] = inner;
    inner *= d == 1 ? x->shape.dim[d] / block : x->shape.dim[d];
  }
  dims s = {0};
  for (int32_t d = 0; d < x->shape.rank; d++) {
    const int32_t from = node->attr.move.order[d];
    if (from == 1 && block != 1) {
      add_dim(&s, x->shape.dim[1] / block, stride[1]);
      add_dim(&s, block, 1);
    } else {
      add_dim(&s, x->shape.dim[from], stride[from]);
    }
  }
  if (s.rank == 0) s = (dims){1, {1}, {1}};
  return s;
}

typedef struct permutation {
  const cpu_simd *simd;
  dims s;           /* all dimensions except those of a plane */
  int64_t to[DIMS]; /* the strides of these dimensions in y's memory */
  int64_t rows;     /* rows of a plane: y's innermost dimension, whose stride in x is row_stride */
  int64_t row_stride;
  int64_t columns, column_stride; /* columns of a plane: x's innermost dimension; 1 if runs are copied */
  int64_t count, per_task;        /* count: planes or runs */
  int64_t parts;                  /* parts of a plane, each with some of its columns */
  const float *x;
  float *y;
} permutation;

/* Finds the start of plane or run `i`. */
static void locate(const permutation *p, int64_t i, const float **from, float **to)
{
  *from = p->x;
  *to = p->y;
  for (int32_t d = p->s.rank - 1; d >= 0; d--) {
    const int64_t at = i % p->s.dim[d];
    *from += at * p->s.stride[d];
    *to += at * p->to[d];
    i /= p->s.dim[d];
  }
}

static void copy_runs(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const permutation *p = arg;
  for (int64_t i = task * p->per_task; i < cpu_min((task + 1) * p->per_task, p->count); i++) {
    const float *from;
    float *to;
    locate(p, i, &from, &to);
    memcpy(to, from, (size_t)p->rows * sizeof *to);
  }
}

static void transpose_planes(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const permutation *p = arg;
  const int64_t part = cpu_divide_up(p->columns, p->parts), first = task % p->parts * part;
  const int64_t columns = cpu_min(part, p->columns - first), begin = task / p->parts * p->per_task;
  for (int64_t i = begin; columns > 0 && i < cpu_min(begin + p->per_task, p->count); i++) {
    const float *from;
    float *to;
    locate(p, i, &from, &to);
    p->simd->transpose(from + first, p->row_stride, to + first * p->column_stride, p->column_stride, p->rows, columns);
  }
}

static void remove_dim(permutation *p, int32_t at)
{
  for (int32_t d = at; d + 1 < p->s.rank; d++) {
    p->s.dim[d] = p->s.dim[d + 1];
    p->s.stride[d] = p->s.stride[d + 1];
    p->to[d] = p->to[d + 1];
  }
  p->s.rank--;
}

static CPU_RUN(permute_run)
{
  cpu_backend *b = self;
  permutation p = {.simd = b->simd, .s = dims_of(launch->node), .x = launch->in[0], .y = launch->out[0], .parts = 1};
  int64_t inner = 1;
  for (int32_t d = p.s.rank - 1; d >= 0; d--) {
    p.to[d] = inner;
    inner *= p.s.dim[d];
  }

  const int32_t last = p.s.rank > 1 ? p.s.rank - 1 : 0;
  int32_t innermost = last; /* the dimension that is innermost in x */
  for (int32_t d = 0; d < last; d++)
    if (p.s.stride[d] == 1) innermost = d;
  p.rows = p.s.dim[last];
  p.row_stride = p.s.stride[last];
  p.columns = innermost == last ? 1 : p.s.dim[innermost];
  p.column_stride = p.to[innermost];
  remove_dim(&p, last);
  if (innermost != last) remove_dim(&p, innermost);
  const int64_t plane = p.rows * p.columns;
  p.count = inner / plane;
  p.per_task = cpu_max(1, TASK_FLOATS / plane);
  if (innermost != last) p.parts = cpu_max(1, cpu_min(p.columns / 16, plane / TASK_FLOATS));
  cpu_pool_run(b->pool, cpu_divide_up(p.count, p.per_task) * p.parts, innermost == last ? copy_runs : transpose_planes,
               &p);
  return BRIM_OK;
}

CPU_KERNEL(permute) = {.op = "permute", .run = permute_run};
