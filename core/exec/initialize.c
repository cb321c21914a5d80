/* Initialises parameters from counters: a value depends only on the seed, the parameter's name and the element's
 * index. */
#include "exec/initialize.h"

#include <stdlib.h>
#include <string.h>

#include "base/parallel.h"
#include "brim/host.h"
#include "brim/random.h"
#include "exec/normal.h"

enum {
  TASK = 1 << 18, /* number of values that a thread computes at a time, a multiple of 4 */
  PIECE = 1 << 22 /* number of values that are in host memory at a time on their way to the device */
};

/* Converts four random numbers of the parameter's stream to values; normal values by Box and Muller, in pairs. */
static void make_values(const brim_init *init, brim_philox random, double out[4])
{
  for (int i = 0; i < 4; i += 2) {
    const double u = brim_uniform(random.v[i]), w = brim_uniform(random.v[i + 1]);
    switch (init->kind) {
    case BRIM_INIT_UNIFORM:
      out[i] = (2 * u - 1) * init->value;
      out[i + 1] = (2 * w - 1) * init->value;
      break;
    case BRIM_INIT_NORMAL:
      brim_normal_pair(init->value, u, w, out + i);
      break;
    default:
      out[i] = out[i + 1] = init->value;
      break;
    }
  }
}

/* Values [first, end) of a parameter; first is a multiple of 4. */
typedef struct range {
  const brim_init *init;
  uint64_t seed, item;
  int64_t first, end, base; /* base: the element at `values` */
  uint32_t dtype;
  void *values;
} range;

/* Computes normal values in single precision, block by block; returns the first element that is left. */
static int64_t make_blocks(const range *r)
{
  int64_t i = r->first;
  if (r->init->kind != BRIM_INIT_NORMAL || r->dtype == BRIM_DTYPE_F64) return i;
  for (; i + BRIM_NORMAL_BLOCK <= r->end; i += BRIM_NORMAL_BLOCK)
    brim_normal_block(r->seed, r->item, r->init->value, i, (float *)r->values + (i - r->base));
  return i;
}

static void make_task(void *whole, int64_t task)
{
  range part = *(const range *)whole;
  part.first += task * TASK;
  if (part.end > part.first + TASK) part.end = part.first + TASK;
  for (int64_t i = make_blocks(&part); i < part.end; i += 4) {
    double value[4];
    make_values(part.init, brim_random4(part.seed, BRIM_STREAM_INIT, 0, part.item, (uint32_t)(i / 4)), value);
    for (int64_t k = i; k < i + 4 && k < part.end; k++) {
      if (part.dtype == BRIM_DTYPE_F64)
        ((double *)part.values)[k - part.base] = value[k - i];
      else
        ((float *)part.values)[k - part.base] = (float)value[k - i];
    }
  }
}

/* Divides a range among threads. */
static void make_parts(range *whole)
{
  brim_in_parallel("brim-init", brim_host_threads(), (whole->end - whole->first + TASK - 1) / TASK, make_task, whole);
}

static range range_of(const brim_parameter *p, uint64_t seed, uint32_t dtype)
{
  const uint64_t item = brim_hash(BRIM_HASH_START, p->value->name, strlen(p->value->name));
  return (range){
      .init = &p->init, .seed = seed, .item = item, .end = brim_shape_count(&p->value->shape), .dtype = dtype};
}

void brim_first_values(const brim_parameter *p, uint64_t seed, uint32_t dtype, void *values)
{
  range whole = range_of(p, seed, dtype);
  whole.values = values;
  make_parts(&whole);
}

/* Values for a device go through a small buffer, because the first use of host memory takes longer than drawing
 * values. */
static brim_status copy_pieces(brim_exec *exec, const brim_program *program, const brim_parameter *p, range *piece)
{
  const uint64_t each = brim_dtype_bytes(p->value->dtype);
  const int64_t count = piece->end, most = count < PIECE ? count : PIECE;
  void *values = brim_try_malloc((uint64_t)most * each);
  if (!values) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the first values of '%s'", p->value->name);
  brim_status status = BRIM_OK;
  piece->values = values;
  for (; piece->first < count && status == BRIM_OK; piece->first = piece->end) {
    piece->base = piece->first;
    piece->end = piece->first + most < count ? piece->first + most : count;
    make_parts(piece);
    status = brim_exec_write_part(exec, program, p->value, (uint64_t)piece->first * each,
                                  (uint64_t)(piece->end - piece->first) * each, values);
  }
  free(values);
  return status;
}

brim_status brim_initialize_parameter(brim_exec *exec, const brim_program *program, const brim_parameter *p,
                                      uint64_t seed)
{
  range whole = range_of(p, seed, p->value->dtype);
  whole.values = brim_exec_host_values(exec, program, p->value);
  if (!whole.values) return copy_pieces(exec, program, p, &whole);
  make_parts(&whole);
  return BRIM_OK;
}

brim_status brim_initialize_parameters(brim_exec *exec, const brim_program *program, uint64_t seed)
{
  for (size_t i = 0; i < program->graph->parameter_count; i++)
    if (!program->graph->parameter[i].is_frozen)
      BRIM_TRY(brim_initialize_parameter(exec, program, &program->graph->parameter[i], seed));
  return BRIM_OK;
}
