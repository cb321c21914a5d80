/* See run.h. */
#include "cpu/run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void run_start(run *r, const bench_options *options, const char *id, const char *settings)
{
  assert_true(load_plugin(&r->plugin, "backend", id, settings));
  r->on = (backend){id, r->plugin.plugin->ops, r->plugin.self};
  bench_options own = *options;
  own.backend = &r->on;
  own.seed = 3;
  r->b = bench_create(&own);
}

void run_finish(run *r)
{
  bench_run(r->b, 0, r->b->g->node_count);
}

void run_stop(run *r)
{
  bench_free(r->b);
  unload_plugin(&r->plugin);
}

double run_difference(const run *a, const run *b, size_t id, double least)
{
  const int64_t count = brim_shape_count(&a->b->g->tensor[id]->shape);
  double *x = bench_values_of(a->b, a->b->g->tensor[id]), *y = bench_values_of(b->b, b->b->g->tensor[id]);
  double error = 0, norm = 0;
  for (int64_t i = 0; i < count; i++) {
    error += (x[i] - y[i]) * (x[i] - y[i]);
    norm += y[i] * y[i];
  }
  free(x);
  free(y);
  return sqrt(error) / fmax(sqrt(norm), least * sqrt((double)count));
}

void run_check_same_bits(const bench_options *options, const char *const *settings, size_t count)
{
  run one;
  run_start(&one, options, "cpu", "{threads: 1}");
  run_finish(&one);
  for (size_t i = 0; i < count; i++) {
    run many;
    run_start(&many, options, "cpu", settings[i]);
    run_finish(&many);
    for (size_t t = 0; t < one.b->g->tensor_count; t++)
      if (memcmp(one.b->memory[t], many.b->memory[t], one.b->g->tensor[t]->bytes) != 0)
        fail_msg("%s, %s: '%s' differs", options->row->name, settings[i], one.b->g->tensor[t]->name);
    run_stop(&many);
  }
  run_stop(&one);
}
