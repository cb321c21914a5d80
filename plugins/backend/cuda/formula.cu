/* Formulas (brim/formula.h), which lines of text define, for single elements.
 *
 * A thread runs all lines for an element. The formula's registers are in shared memory, beside those of neighbouring
 * threads, because the processor's registers cannot be indexed at run time. All threads of a block read the same line
 * from the kernel's arguments. One thread of a block computes the values that are the same for all elements, in double
 * precision. AdamW moves 28 bytes of memory per element, and about 50 of shared memory, which is 9 times as fast, so
 * memory's speed is the limit, as in update.cu. As in update.cu, nodes of one formula share a launch. Every line is one
 * operation and is rounded by itself, so nothing is contracted. */
#include <string.h>

#include "kernel.cuh"
extern "C" {
#include "update.h"
}

enum { OPERANDS = BRIM_FORMULA_OPERANDS_MAX, ENTRIES_MAX = 128, ENTRIES_FEW = 4 };

/* A node: its tensors, and their number of elements. */
typedef struct entry {
  const void *in[OPERANDS];
  void *out[OPERANDS];
  int64_t count;
  uint32_t first, singles; /* first: the node's first part; singles: a bit for each input that has one element */
} entry;

CUDA_PART_FIND(find_entry, entry)

template <int ENTRIES> struct table {
  brim_formula formula;
  uint32_t entries, parts;
  entry node[ENTRIES];
};
static_assert(sizeof(table<ENTRIES_MAX>) + 64 <= CUDA_PARAMETER_BYTES, "it is a kernel's argument");

static __device__ inline float value_of(uint32_t op, float a, float b, float c)
{
  switch (op) {
  case BRIM_FORMULA_ADD:
    return a + b;
  case BRIM_FORMULA_SUB:
    return a - b;
  case BRIM_FORMULA_MUL:
    return a * b;
  case BRIM_FORMULA_DIV:
    return a / b;
  case BRIM_FORMULA_LESS:
    return a < b ? 1.0f : 0.0f;
  case BRIM_FORMULA_MIN:
    return b < a ? b : a;
  case BRIM_FORMULA_MAX:
    return a < b ? b : a;
  case BRIM_FORMULA_WHERE:
    return a != 0 ? b : c;
  case BRIM_FORMULA_NEG:
    return -a;
  case BRIM_FORMULA_ABS:
    return fabsf(a);
  case BRIM_FORMULA_SIGN:
    return (float)((a > 0) - (a < 0));
  case BRIM_FORMULA_SQRT:
    return sqrtf(a);
  case BRIM_FORMULA_EXP:
    return expf(a);
  case BRIM_FORMULA_LOG:
    return logf(a);
  case BRIM_FORMULA_LOG1P:
    return log1pf(a);
  case BRIM_FORMULA_TANH:
    return tanhf(a);
  case BRIM_FORMULA_SIGMOID:
    return 1.0f / (1.0f + expf(-a));
  default:
    return erff(a);
  }
}

static __device__ inline float operand(uint8_t of, const float (*registers)[CUDA_THREADS], const float *uniform)
{
  return of < BRIM_FORMULA_UNIFORM ? registers[of][threadIdx.x] : uniform[of - BRIM_FORMULA_UNIFORM];
}

/* T: the type of all elements. */
template <typename T, typename TABLE>
static __global__ void __launch_bounds__(CUDA_THREADS)
    formula_kernel(const __grid_constant__ TABLE table, const cuda_control *control)
{
  __shared__ float uniform[BRIM_FORMULA_UNIFORMS_MAX];
  __shared__ float registers[BRIM_FORMULA_REGISTERS_MAX][CUDA_THREADS];
  if (cuda_refused(control)) return;
  const brim_formula &f = table.formula;
  if (threadIdx.x == 0) {
    double value[BRIM_FORMULA_UNIFORMS_MAX];
    brim_formula_uniforms(&f, control->step.scalar, table.node[0].in, value);
    for (uint32_t i = 0; i < f.uniforms; i++) uniform[i] = (float)value[i];
  }
  __syncthreads();
  for (uint32_t part = blockIdx.x; part < table.parts; part += gridDim.x) {
    const entry &e = table.node[find_entry(table.node, table.entries, part)];
    const int64_t start = (int64_t)(part - e.first) * CUDA_UPDATE_PIECE;
    const int64_t end = cuda_min(e.count, start + CUDA_UPDATE_PIECE);
    for (int64_t i = start + threadIdx.x; i < end; i += CUDA_THREADS)
      for (uint32_t k = 0; k < f.lines; k++) {
        const brim_formula_line l = f.line[k];
        if (l.op == BRIM_FORMULA_LOAD)
          registers[l.to][threadIdx.x] = cuda_load(static_cast<const T *>(e.in[l.a]) + (e.singles >> l.a & 1 ? 0 : i));
        else if (l.op == BRIM_FORMULA_STORE)
          cuda_store(static_cast<T *>(e.out[l.to]) + i, operand(l.a, registers, uniform));
        else
          registers[l.to][threadIdx.x] = value_of(l.op, operand(l.a, registers, uniform),
                                                  operand(l.b, registers, uniform), operand(l.c, registers, uniform));
      }
  }
}

/* ---- launching ---- */

template <typename T>
static brim_status launch_type(cuda_backend *b, const table<ENTRIES_MAX> *all, const cuda_control *control)
{
  const cuda_geometry g = cuda_stride((int64_t)all->parts * CUDA_THREADS, 1, b->processors);
  if (all->entries > ENTRIES_FEW) return cuda_launch(b, formula_kernel<T, table<ENTRIES_MAX>>, g, *all, control);
  table<ENTRIES_FEW> few;
  memcpy(&few, all, sizeof few);
  return cuda_launch(b, formula_kernel<T, table<ENTRIES_FEW>>, g, few, control);
}

static brim_status launch_table(cuda_backend *b, uint32_t dtype, const table<ENTRIES_MAX> *all,
                                const cuda_control *control)
{
  if (all->parts == 0) return BRIM_OK;
  CUDA_WITH_TYPE(dtype, T, return launch_type<T>(b, all, control));
}

/* Returns false with an error set if an input could not be converted into the order of the first. */
static bool make_entry(cuda_backend *b, const brim_launch *launch, entry *out)
{
  const brim_node *n = launch->node;
  entry e = {};
  e.count = brim_shape_count(&n->out[0]->shape);
  for (uint32_t i = 0; i < n->in_count; i++) {
    e.in[i] = cuda_same_order_input(b, launch, i);
    if (!e.in[i]) return false;
    if (brim_shape_count(&n->in[i]->shape) == 1) e.singles |= 1u << i;
  }
  for (uint32_t k = 0; k < n->out_count; k++) e.out[k] = launch->out[k];
  *out = e;
  return true;
}

/* Whether one launch can run both: they compute the same for each element. */
static bool is_alike(const brim_launch *a, const brim_launch *b)
{
  const brim_formula *f = a->node->attr.formula.formula, *other = b->node->attr.formula.formula;
  if (a->node->in[0]->dtype != b->node->in[0]->dtype) return false;
  if (f != other && !brim_formula_equal(f, other)) return false;
  for (uint32_t i = 0; i < f->uniforms; i++)
    if (f->uniform[i].op == BRIM_FORMULA_LOAD && a->in[f->uniform[i].a] != b->in[f->uniform[i].a]) return false;
  return true;
}

static brim_status run_all(cuda_backend *b, const brim_launch *const *launch, size_t count)
{
  table<ENTRIES_MAX> all;
  const cuda_control *control = cuda_control_of(b, launch[0]);
  if (!control) return BRIM_EDEVICE;
  uint32_t dtype = BRIM_DTYPE_F32;
  all.entries = all.parts = 0;
  for (size_t i = 0; i < count; i++) {
    entry e;
    if (!make_entry(b, launch[i], &e)) return BRIM_EDEVICE;
    const int64_t parts = cuda_update_parts(e.count);
    if (all.entries == ENTRIES_MAX || (all.entries > 0 && !is_alike(launch[i - 1], launch[i])) ||
        all.parts + parts > CUDA_TABLE_PARTS_MAX) {
      BRIM_TRY(launch_table(b, dtype, &all, control));
      all.entries = all.parts = 0;
    }
    if (all.entries == 0) {
      all.formula = *launch[i]->node->attr.formula.formula;
      dtype = launch[i]->node->in[0]->dtype;
    }
    e.first = all.parts;
    all.node[all.entries++] = e;
    all.parts += (uint32_t)parts;
  }
  return launch_table(b, dtype, &all, control);
}

static CUDA_RUN(run)
{
  return run_all(static_cast<cuda_backend *>(self), &launch, 1);
}
BRIM_KERNEL(formula) = {.op = "formula", .prepare = cuda_same_order_prepare, .run = run};
CUDA_GATHERING(formula, run_all, true);
