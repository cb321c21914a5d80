/* See export_config.h. */
#include "export/export_config.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "store/rundir.h"

#define SHAPE "shape:"

typedef struct writer {
  const brim_weights_map *map;
  const brim_yaml *run;
  const brim_parameters *parameters;
  brim_arena arena;
} writer;

/* Follows YAML 1.2's rules for plain scalars. */
static json_t *json_of_text(const brim_yaml *node)
{
  char *end;
  const char *s = node->scalar;
  if (node->quoted) return json_string(s);
  if (brim_yaml_is_null(node)) return json_null();
  if (strcmp(s, "true") == 0 || strcmp(s, "false") == 0) return json_boolean(s[0] == 't');
  errno = 0;
  const long long whole = strtoll(s, &end, 10);
  if (!*end && errno == 0) return json_integer(whole);
  const double real = strtod(s, &end);
  json_t *number = !*end ? json_real(real) : NULL; /* NULL also if the number is infinite */
  return number ? number : json_string(s);
}

/* The dimension that "NAME:1" names. */
static json_t *json_of_dimension(const writer *w, const char *what)
{
  const char *colon = strrchr(what, ':');
  for (size_t i = 0; colon && i < w->parameters->count; i++) {
    const brim_safetensor *t = &w->parameters->tensor[i];
    const int dim = colon[1] >= '0' && colon[1] <= '9' && !colon[2] ? colon[1] - '0' : BRIM_DIMS_MAX;
    if (strlen(t->name) != (size_t)(colon - what) || strncmp(t->name, what, (size_t)(colon - what)) != 0) continue;
    return dim < t->shape.rank ? json_integer((json_int_t)t->shape.dim[dim]) : NULL;
  }
  return NULL;
}

static brim_status make_value(writer *w, const brim_yaml *node, json_t **out)
{
  const size_t length = strlen(node->scalar);
  *out = NULL;
  if (strncmp(node->scalar, "${", 2) != 0 || node->scalar[length - 1] != '}') {
    *out = json_of_text(node);
    return BRIM_OK;
  }
  const char *what = brim_arena_string_n(&w->arena, node->scalar + 2, length - 3);
  if (brim_starts_with(what, SHAPE)) {
    *out = json_of_dimension(w, what + strlen(SHAPE));
  } else {
    const brim_yaml *value = brim_yaml_get_path(w->run, what);
    if (value && value->kind == BRIM_YAML_SCALAR) *out = json_of_text(value);
  }
  if (*out) return BRIM_OK;
  brim_text place = {0};
  brim_yaml_print_origin(&node->origin, &place);
  const brim_status status = brim_fail(BRIM_ECONFIG, "the run has no '%s', which config.json of map %s needs\n%s", what,
                                       w->map->name, brim_text_str(&place));
  brim_text_release(&place);
  return status;
}

static brim_status make_list(writer *w, const brim_yaml *node, json_t **out)
{
  *out = json_array();
  for (size_t i = 0; i < node->count; i++) {
    json_t *item;
    BRIM_TRY(make_value(w, node->item[i], &item));
    json_array_append_new(*out, item);
  }
  return BRIM_OK;
}

static brim_status make_object(writer *w, json_t *object)
{
  const brim_yaml *config = w->map->config;
  for (size_t i = 0; i < config->count; i++) {
    const brim_yaml *node = config->item[i];
    json_t *value = NULL;
    const brim_status status = node->kind == BRIM_YAML_LIST ? make_list(w, node, &value) : make_value(w, node, &value);
    if (status == BRIM_OK)
      json_object_set_new(object, config->key[i], value);
    else
      json_decref(value);
    BRIM_TRY(status);
  }
  return BRIM_OK;
}

brim_status brim_export_write_config(const brim_weights_map *map, const brim_yaml *run,
                                     const brim_parameters *parameters, const char *path)
{
  writer w = {map, run, parameters, {0}};
  json_t *object = json_object();
  brim_status status = make_object(&w, object);
  char *dump = status == BRIM_OK ? json_dumps(object, JSON_INDENT(2)) : NULL;
  if (dump) {
    const char *text = brim_arena_printf(&w.arena, "%s\n", dump);
    status = brim_file_write_atomic(path, text, strlen(text));
  } else if (status == BRIM_OK) {
    status = brim_fail(BRIM_EINTERNAL, "cannot format '%s'", path);
  }
  free(dump);
  json_decref(object);
  brim_arena_release(&w.arena);
  return status;
}
