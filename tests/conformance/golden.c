/* Reads fixtures, and compares tensors with them. */
#include "conformance/golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ERROR_MAX 1e-9
#define VALUES_MAX 1000000

static void read_tensor(golden *g, FILE *file, int rank)
{
  golden_tensor *t = &g->tensor[g->count++];
  assert_in_range(g->count, 1, GOLDEN_TENSORS_MAX);
  assert_in_range(rank, 1, BRIM_DIMS_MAX);
  t->shape.rank = rank;
  for (int d = 0; d < rank; d++) assert_int_equal(fscanf(file, "%ld", &t->shape.dim[d]), 1);
  const int64_t count = brim_shape_count(&t->shape);
  assert_in_range(count, 1, VALUES_MAX);
  t->value = BRIM_ARENA_NEW(&g->arena, double, count);
  for (int64_t i = 0; i < count; i++) assert_int_equal(fscanf(file, "%lf", &t->value[i]), 1);
}

void golden_read(golden *g, const char *name)
{
  char path[1024];
  int rank = 0;
  *g = (golden){0};
  snprintf(path, sizeof path, "%s/golden/%s", BRIM_TESTS_DIR, name);
  FILE *file = fopen(path, "r");
  if (!file) fail_msg("cannot read %s", path);
  while (fscanf(file, "%95s %d", g->tensor[g->count].name, &rank) == 2) read_tensor(g, file, rank);
  assert_true(feof(file));
  fclose(file);
}

const golden_tensor *golden_find(const golden *g, const char *prefix, const char *name)
{
  char full[128];
  snprintf(full, sizeof full, "%s%s", prefix, name);
  for (size_t i = 0; i < g->count; i++)
    if (strcmp(g->tensor[i].name, full) == 0) return &g->tensor[i];
  fail_msg("the fixture has no tensor '%s'", full);
  return NULL;
}

void golden_check(const golden *g, const char *prefix, const char *name, const brim_shape *shape, const double *got)
{
  golden_check_least(g, prefix, name, shape, got, 0);
}

void golden_check_least(const golden *g, const char *prefix, const char *name, const brim_shape *shape,
                        const double *got, double least)
{
  const golden_tensor *t = golden_find(g, prefix, name);
  double difference = 0, norm = 0;
  assert_int_equal(t->shape.rank, shape->rank);
  for (int32_t d = 0; d < shape->rank; d++) assert_int_equal(t->shape.dim[d], shape->dim[d]);
  for (int64_t i = 0; i < brim_shape_count(shape); i++) {
    difference += (got[i] - t->value[i]) * (got[i] - t->value[i]);
    norm += t->value[i] * t->value[i];
  }
  if (!(sqrt(difference) <= ERROR_MAX * fmax(sqrt(norm), least)))
    fail_msg("%s%s: relative error %g", prefix, name, sqrt(difference / norm));
}
