/* Uniform initialisation from counters. */
#include "train/initialize.h"

#include <stdlib.h>
#include <string.h>

#include "brim/random.h"

static void fill(const brim_parameter *p, uint64_t seed, void *values)
{
  const uint64_t item = brim_hash(BRIM_HASH_START, p->value->name, strlen(p->value->name));
  const int64_t count = brim_shape_count(&p->value->shape);
  for (int64_t i = 0; i < count; i += 4) {
    const brim_philox random = brim_random4(seed, BRIM_STREAM_INIT, 0, item, (uint32_t)(i / 4));
    for (int64_t k = i; k < i + 4 && k < count; k++) {
      const double value = (2 * brim_uniform(random.v[k - i]) - 1) * p->init_bound;
      if (p->value->dtype == BRIM_DTYPE_F64)
        ((double *)values)[k] = value;
      else
        ((float *)values)[k] = (float)value;
    }
  }
}

brim_status brim_initialize_parameters(brim_exec *exec, const brim_program *program, uint64_t seed)
{
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < program->graph->parameter_count && status == BRIM_OK; i++) {
    const brim_parameter *p = &program->graph->parameter[i];
    void *values = brim_xmalloc(p->value->bytes);
    fill(p, seed, values);
    status = brim_exec_write(exec, program, p->value, values);
    free(values);
  }
  return status;
}
