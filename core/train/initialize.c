/* Initialisation from counters: a value depends on seed, parameter's name and place alone. */
#include "train/initialize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "brim/random.h"

#define TWO_PI 6.283185307179586

/* Four numbers of the parameter's stream, made into values. Normal ones by Box and Muller, in pairs. */
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
      out[i] = init->value * sqrt(-2 * log(1 - u)) * cos(TWO_PI * w);
      out[i + 1] = init->value * sqrt(-2 * log(1 - u)) * sin(TWO_PI * w);
      break;
    default:
      out[i] = out[i + 1] = init->value;
      break;
    }
  }
}

static void fill(const brim_parameter *p, uint64_t seed, float *values, double *wide)
{
  const uint64_t item = brim_hash(BRIM_HASH_START, p->value->name, strlen(p->value->name));
  const int64_t count = brim_shape_count(&p->value->shape);
  for (int64_t i = 0; i < count; i += 4) {
    double value[4];
    make_values(&p->init, brim_random4(seed, BRIM_STREAM_INIT, 0, item, (uint32_t)(i / 4)), value);
    for (int64_t k = i; k < i + 4 && k < count; k++) {
      if (wide) wide[k] = value[k - i];
      if (values) values[k] = (float)value[k - i];
    }
  }
}

/* The upper half of a float, rounded to the nearest, ties to even. Values of parameters are finite. */
static uint16_t round_to_bf16(float value)
{
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

/* Writes a parameter's first values. hash: goes on over them; NULL: nobody asks. */
static brim_status initialize(brim_exec *exec, const brim_program *program, const brim_parameter *p, uint64_t seed,
                              uint64_t *hash)
{
  const size_t count = (size_t)brim_shape_count(&p->value->shape);
  const bool wide = p->value->dtype == BRIM_DTYPE_F64, narrow = hash || !wide;
  float *values = narrow ? brim_try_malloc(count * sizeof *values) : NULL;
  double *doubles = wide ? brim_try_malloc(count * sizeof *doubles) : NULL;
  brim_status status = BRIM_OK;
  if ((narrow && !values) || (wide && !doubles))
    status = brim_fail(BRIM_ENOMEM_HOST, "no host memory for the first values of '%s'", p->value->name);
  if (status == BRIM_OK) {
    fill(p, seed, values, doubles);
    if (hash) {
      *hash = brim_hash(*hash, p->value->name, strlen(p->value->name) + 1);
      *hash = brim_hash(*hash, p->value->shape.dim, (size_t)p->value->shape.rank * sizeof p->value->shape.dim[0]);
      *hash = brim_hash(*hash, values, count * sizeof *values);
    }
    if (p->value->dtype == BRIM_DTYPE_BF16)
      for (size_t i = 0; i < count; i++) ((uint16_t *)values)[i] = round_to_bf16(values[i]);
    if (exec) status = brim_exec_write(exec, program, p->value, wide ? (void *)doubles : (void *)values);
  }
  free(values);
  free(doubles);
  return status;
}

brim_status brim_initialize_parameters(brim_exec *exec, const brim_program *program, uint64_t seed)
{
  const brim_graph *g = program->graph;
  for (size_t i = 0; i < g->parameter_count; i++)
    if (!g->parameter[i].is_frozen) BRIM_TRY(initialize(exec, program, &g->parameter[i], seed, NULL));
  return BRIM_OK;
}

brim_status brim_initialize_frozen(brim_exec *exec, const brim_program *program, const brim_graph *g, uint64_t seed,
                                   uint64_t *hash)
{
  *hash = 0;
  for (size_t i = 0; i < g->parameter_count; i++) {
    if (!g->parameter[i].is_frozen) continue;
    if (*hash == 0) *hash = BRIM_HASH_START;
    BRIM_TRY(initialize(exec, program, &g->parameter[i], seed, hash));
  }
  return BRIM_OK;
}
