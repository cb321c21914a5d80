/* See golden_case.h. */
#include "conformance/golden_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "conformance/golden.h"
#include "conformance/load.h"

static golden fixture;
static loaded plugin;
static const char *prefix; /* of the current case */

int golden_case_open(const char *name)
{
  golden_read(&fixture, name);
  return load_plugin(&plugin, "backend", "reference", NULL) ? 0 : -1;
}

void golden_case_close(void)
{
  unload_plugin(&plugin);
  brim_arena_release(&fixture.arena);
}

const char *golden_case_prefix(void)
{
  return prefix;
}

brim_tensor *golden_case_input(bench *b, const char *name)
{
  return bench_input(b, &golden_find(&fixture, prefix, name)->shape, name);
}

brim_tensor *golden_case_parameter(bench *b, const char *name)
{
  const brim_shape shape = golden_find(&fixture, prefix, name)->shape;
  return brim_parameter_new(b->g, name, shape.rank, shape.dim, (brim_init){BRIM_INIT_UNIFORM, 1});
}

brim_tensor *golden_case_indices(bench *b, const char *name)
{
  return bench_indices(b, &golden_find(&fixture, prefix, name)->shape, 1, name);
}

static void put(bench *b, const brim_tensor *t, const char *name)
{
  const golden_tensor *from = golden_find(&fixture, prefix, name);
  for (int64_t i = 0; i < brim_shape_count(&t->shape); i++)
    if (t->dtype == BRIM_DTYPE_I32)
      ((int32_t *)b->memory[t->id])[i] = (int32_t)from->value[i];
    else
      ((double *)b->memory[t->id])[i] = from->value[i];
}

static void check(const bench *b, const char *name, const brim_tensor *t)
{
  double *values = bench_values_of(b, t);
  golden_check(&fixture, prefix, name, &t->shape, values);
  free(values);
}

void golden_case_check(const char *of, brim_tensor *(*make)(bench *b))
{
  const backend reference = {"reference", plugin.plugin->ops, plugin.self};
  const bench_row row = {of, make};
  prefix = of;
  bench *b = bench_create(&(bench_options){.backend = &reference,
                                           .row = &row,
                                           .seed = 1,
                                           .batch = golden_find(&fixture, prefix, "y")->shape.dim[0],
                                           .gradients_at_zero = true});
  const brim_graph *g = b->g;
  put(b, b->seed, "dy");
  for (size_t i = 0; i < g->gradient_count; i++)
    if (g->tensor[i]->producer < 0 && g->tensor[i]->role != BRIM_ROLE_GRADIENT && g->tensor[i] != b->seed)
      put(b, g->tensor[i], g->tensor[i]->name);
  bench_run(b, 0, g->node_count);
  check(b, "y", b->result);
  for (size_t i = 0; i < g->gradient_count; i++) {
    const brim_tensor *x = g->tensor[i];
    const brim_tensor *gradient =
        x->role == BRIM_ROLE_PARAMETER ? brim_graph_gradient(g, x) : brim_autodiff_gradient(g, x);
    char name[32];
    snprintf(name, sizeof name, "d%s", x->name);
    if (x->producer < 0 && gradient && x->dtype == BRIM_DTYPE_F64 && x != b->seed) check(b, name, gradient);
  }
  bench_free(b);
}
