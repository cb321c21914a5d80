/* Initialisation from counters: a value depends on seed, parameter's name and place alone. */
#include "session/initialize.h"

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

void brim_first_values(const brim_parameter *p, uint64_t seed, uint32_t dtype, void *values)
{
  const uint64_t item = brim_hash(BRIM_HASH_START, p->value->name, strlen(p->value->name));
  const int64_t count = brim_shape_count(&p->value->shape);
  for (int64_t i = 0; i < count; i += 4) {
    double value[4];
    make_values(&p->init, brim_random4(seed, BRIM_STREAM_INIT, 0, item, (uint32_t)(i / 4)), value);
    for (int64_t k = i; k < i + 4 && k < count; k++) {
      if (dtype == BRIM_DTYPE_F64)
        ((double *)values)[k] = value[k - i];
      else
        ((float *)values)[k] = (float)value[k - i];
    }
  }
}

brim_status brim_initialize_parameters(brim_exec *exec, const brim_program *program, uint64_t seed)
{
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < program->graph->parameter_count && status == BRIM_OK; i++) {
    const brim_parameter *p = &program->graph->parameter[i];
    if (p->is_frozen) continue;
    void *values = brim_try_malloc(p->value->bytes);
    if (!values) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the first values of '%s'", p->value->name);
    brim_first_values(p, seed, p->value->dtype, values);
    status = brim_exec_write(exec, program, p->value, values);
    free(values);
  }
  return status;
}
