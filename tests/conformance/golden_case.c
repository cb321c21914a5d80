/* See golden_case.h. */
#include "conformance/golden_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/load.h"

static golden fixture;
static loaded plugin;
static backend reference;
static const char *prefix = ""; /* prefix of the current case */

int golden_case_set_up(void **state)
{
  golden_read(&fixture, golden_case_fixture);
  if (!load_plugin(&plugin, "backend", "reference", NULL)) return -1;
  reference = (backend){"reference", plugin.plugin->ops, plugin.self};
  return 0;
}

int golden_case_tear_down(void **state)
{
  unload_plugin(&plugin);
  brim_arena_release(&fixture.arena);
  return 0;
}

const backend *golden_case_backend(void)
{
  return &reference;
}

const char *golden_case_prefix(void)
{
  return prefix;
}

/* ---- sources ---- */

const golden_tensor *golden_case_find(const char *name)
{
  return golden_find(&fixture, prefix, name);
}

brim_tensor *golden_case_input(bench *b, const char *name)
{
  return bench_input(b, &golden_case_find(name)->shape, name);
}

brim_tensor *golden_case_parameter(bench *b, const char *name)
{
  const brim_shape shape = golden_case_find(name)->shape;
  return brim_parameter_new(b->g, name, shape.rank, shape.dim, (brim_init){BRIM_INIT_UNIFORM, 1});
}

brim_tensor *golden_case_indices(bench *b, const char *name)
{
  return bench_indices(b, &golden_case_find(name)->shape, 1, name);
}

void golden_case_put(const bench *b, const brim_tensor *t, const char *name)
{
  const golden_tensor *from = golden_case_find(name);
  assert_true(brim_shape_equal(&from->shape, &t->shape));
  for (int64_t i = 0; i < brim_shape_count(&t->shape); i++)
    if (t->dtype == BRIM_DTYPE_I32)
      ((int32_t *)b->memory[t->id])[i] = (int32_t)from->value[i];
    else
      ((double *)b->memory[t->id])[i] = from->value[i];
}

static const char *without_layer(const brim_tensor *t)
{
  const char *dot = strrchr(t->name, '.');
  return dot ? dot + 1 : t->name;
}

void golden_case_fill(const bench *b)
{
  for (size_t i = 0; i < b->g->tensor_count; i++) {
    const brim_tensor *t = b->g->tensor[i];
    const brim_parameter *p = brim_graph_parameter_of(b->g, t);
    if (t->role == BRIM_ROLE_DATA || (p && !p->is_buffer))
      golden_case_put(b, t, t == b->seed ? "dy" : without_layer(t));
  }
}

/* ---- a case ---- */

void golden_case_compare(const bench *b, const brim_tensor *t, const char *name)
{
  assert_non_null(t);
  double *values = bench_values_of(b, t);
  golden_check(&fixture, prefix, name, &t->shape, values);
  free(values);
}

bench *golden_case_create(const bench_row *row, bool evaluate)
{
  prefix = row->name;
  bench *b = bench_create(&(bench_options){.backend = &reference,
                                           .row = row,
                                           .seed = 1,
                                           .batch = golden_case_find("y")->shape.dim[0],
                                           .gradients_at_zero = true,
                                           .evaluate = evaluate});
  golden_case_fill(b);
  return b;
}

/* Returns whether the tensor is a source with a gradient. The gradients of batch norm's running averages do not count:
 * they are sums over a step. */
static bool has_gradient(const bench *b, const brim_tensor *x)
{
  const brim_parameter *p = brim_graph_parameter_of(b->g, x);
  if (p) return !p->is_buffer;
  return x->role == BRIM_ROLE_DATA && x->dtype == BRIM_DTYPE_F64 && x != b->seed;
}

void golden_case_run(bench *b)
{
  const brim_graph *g = b->g;
  bench_run(b, 0, g->node_count);
  golden_case_compare(b, b->result, "y");
  for (size_t i = 0; i < g->gradient_count; i++) {
    const brim_tensor *x = g->tensor[i];
    char name[32];
    if (!has_gradient(b, x)) continue;
    snprintf(name, sizeof name, "d%s", without_layer(x));
    golden_case_compare(b, x->role == BRIM_ROLE_PARAMETER ? brim_graph_gradient(g, x) : brim_autodiff_gradient(g, x),
                        name);
  }
}

void golden_case_check(const char *of, brim_tensor *(*make)(bench *b))
{
  const bench_row row = {of, make};
  bench *b = golden_case_create(&row, false);
  golden_case_run(b);
  bench_free(b);
}
