#include "kept.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "brim/host.h"

#define LENGTH_KEY "rows in a sample"

static brim_status fail_memory(void)
{
  return brim_fail(BRIM_ENOMEM_HOST, "no memory for the saved columns");
}

/* ---- making ---- */

brim_status csv_kept_make(const csv_set *s, char **json)
{
  const csv_chosen *c = &s->chosen;
  json_t *features = json_array(), *targets = json_array();
  for (int32_t i = 0; i < c->features; i++)
    json_array_append_new(features, json_pack("{s:s, s:f, s:f}", "name", c->feature[i], "mean", s->mean[i], "deviation",
                                              s->deviation[i]));
  for (int32_t i = 0; i < c->targets; i++) json_array_append_new(targets, json_string(c->target[i]));
  json_t *root =
      json_pack("{s:o, s:o, s:I}", "features", features, "targets", targets, LENGTH_KEY, (json_int_t)s->length);
  *json = root ? json_dumps(root, JSON_REAL_PRECISION(17)) : NULL;
  json_decref(root);
  return *json ? BRIM_OK : fail_memory();
}

/* ---- reading ---- */

static brim_status add_name(char **list, int32_t *count, const char *name)
{
  list[*count] = strdup(name);
  if (!list[*count]) return fail_memory();
  ++*count;
  return BRIM_OK;
}

static brim_status reserve(csv_set *s, size_t features, size_t targets)
{
  csv_chosen *c = &s->chosen;
  c->feature = brim_try_calloc(features, sizeof *c->feature);
  c->target = brim_try_calloc(targets + 1, sizeof *c->target);
  s->mean = brim_try_calloc(features, sizeof *s->mean);
  s->deviation = brim_try_calloc(features, sizeof *s->deviation);
  return c->feature && c->target && s->mean && s->deviation ? BRIM_OK : fail_memory();
}

static brim_status read_feature(csv_set *s, const json_t *from)
{
  const char *name;
  double mean, deviation;
  if (json_unpack((json_t *)from, "{s:s, s:F, s:F}", "name", &name, "mean", &mean, "deviation", &deviation) != 0 ||
      !isfinite(mean) || !(deviation > 0))
    return brim_fail(BRIM_ELOAD, "saved column %d has no name, mean or deviation", s->chosen.features + 1);
  s->mean[s->chosen.features] = mean;
  s->deviation[s->chosen.features] = deviation;
  return add_name(s->chosen.feature, &s->chosen.features, name);
}

static brim_status read_columns(csv_set *s, const json_t *root)
{
  const json_t *features = json_object_get(root, "features"), *targets = json_object_get(root, "targets");
  const size_t count = json_array_size(features), answers = json_array_size(targets);
  if (count == 0 || count > INT32_MAX || answers > INT32_MAX)
    return brim_fail(BRIM_ELOAD, "the saved columns have no features");
  BRIM_TRY(reserve(s, count, answers));
  for (size_t i = 0; i < count; i++) BRIM_TRY(read_feature(s, json_array_get(features, i)));
  for (size_t i = 0; i < answers; i++) {
    const char *name = json_string_value(json_array_get(targets, i));
    if (!name) return brim_fail(BRIM_ELOAD, "saved target %zu is not a name", i + 1);
    BRIM_TRY(add_name(s->chosen.target, &s->chosen.targets, name));
  }
  s->chosen.label = s->params->label;
  s->chosen.group = s->params->group;
  s->length = json_integer_value(json_object_get(root, LENGTH_KEY));
  return s->length >= 0 ? BRIM_OK : brim_fail(BRIM_ELOAD, "the saved length of samples is negative");
}

brim_status csv_kept_read(const csv_params *params, const char *json, csv_set *out)
{
  BRIM_TRY(csv_set_begin(params, out));
  json_t *root = json_loads(json, JSON_DECODE_ANY, NULL);
  const brim_status status = read_columns(out, root);
  json_decref(root);
  if (status != BRIM_OK) csv_set_free(out);
  return status;
}
