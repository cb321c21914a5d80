/* Initialisation from counters: a value depends only on the seed, the parameter's name and the element's index. */
#include "exec/initialize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "brim/host.h"
#include "brim/random.h"

#define TWO_PI 6.283185307179586

enum {
  THREADS_MAX = 64,
  THREAD_MIN = 1 << 18 /* fewest values that justify a thread */
};

/* Turns four random numbers of the parameter's stream into values; normal ones by Box and Muller, in pairs. */
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

/* Values [first, end) of a parameter; first is a multiple of 4. */
typedef struct range {
  const brim_init *init;
  uint64_t seed, item;
  int64_t first, end;
  uint32_t dtype;
  void *values; /* of the whole parameter */
} range;

static void *make_range(void *arg)
{
  const range *r = arg;
  for (int64_t i = r->first; i < r->end; i += 4) {
    double value[4];
    make_values(r->init, brim_random4(r->seed, BRIM_STREAM_INIT, 0, r->item, (uint32_t)(i / 4)), value);
    for (int64_t k = i; k < i + 4 && k < r->end; k++) {
      if (r->dtype == BRIM_DTYPE_F64)
        ((double *)r->values)[k] = value[k - i];
      else
        ((float *)r->values)[k] = (float)value[k - i];
    }
  }
  return NULL;
}

/* Computes ranges on several threads; the range of a thread that cannot be started is computed here. */
void brim_first_values(const brim_parameter *p, uint64_t seed, uint32_t dtype, void *values)
{
  const int64_t count = brim_shape_count(&p->value->shape);
  const uint64_t item = brim_hash(BRIM_HASH_START, p->value->name, strlen(p->value->name));
  const range whole = {&p->init, seed, item, 0, count, dtype, values};
  range part[THREADS_MAX];
  pthread_t thread[THREADS_MAX];
  bool runs[THREADS_MAX];
  int64_t parts = brim_host_threads();
  if (parts > count / THREAD_MIN) parts = count / THREAD_MIN;
  if (parts > THREADS_MAX) parts = THREADS_MAX;
  for (int64_t i = 1; i < parts; i++) {
    part[i] = whole;
    part[i].first = count / parts * i / 4 * 4;
    part[i].end = i + 1 < parts ? count / parts * (i + 1) / 4 * 4 : count;
    runs[i] = brim_thread_start(&thread[i], "brim-init", make_range, &part[i]) == 0;
  }
  part[0] = whole;
  if (parts > 1) part[0].end = part[1].first;
  make_range(&part[0]);
  for (int64_t i = 1; i < parts; i++) {
    if (runs[i])
      pthread_join(thread[i], NULL);
    else
      make_range(&part[i]);
  }
}

brim_status brim_initialize_parameter(brim_exec *exec, const brim_program *program, const brim_parameter *p,
                                      uint64_t seed)
{
  void *values = brim_try_malloc(p->value->bytes);
  if (!values) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the first values of '%s'", p->value->name);
  brim_first_values(p, seed, p->value->dtype, values);
  const brim_status status = brim_exec_write(exec, program, p->value, values);
  free(values);
  return status;
}

brim_status brim_initialize_parameters(brim_exec *exec, const brim_program *program, uint64_t seed)
{
  for (size_t i = 0; i < program->graph->parameter_count; i++)
    if (!program->graph->parameter[i].is_frozen)
      BRIM_TRY(brim_initialize_parameter(exec, program, &program->graph->parameter[i], seed));
  return BRIM_OK;
}
