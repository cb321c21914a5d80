/* See metrics.h. */
#include "observe/metrics.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

/* Makes room for one more record. */
static void grow(brim_arena *arena, brim_series *s)
{
  for (size_t i = 0; i < s->columns; i++) {
    size_t room = s->room;
    BRIM_ARENA_GROW(arena, s->column[i].value, s->count, room);
  }
  BRIM_ARENA_GROW(arena, s->step, s->count, s->room);
}

/* Returns the index of a column; `columns` if there is none. */
static size_t find_metric(const brim_series *s, const char *name)
{
  size_t i = 0;
  while (i < s->columns && strcmp(s->column[i].name, name) != 0) i++;
  return i;
}

/* Sets a number of the newest record. Records before a new column have no value for it. */
static void set(brim_arena *arena, brim_series *s, const char *name, double value)
{
  const size_t c = find_metric(s, name);
  if (c == BRIM_SERIES_COLUMNS_MAX) return;
  if (c == s->columns) {
    s->column[s->columns++] = (brim_column){brim_arena_string(arena, name), BRIM_ARENA_NEW(arena, double, s->room)};
    for (size_t i = 0; i < s->count; i++) s->column[c].value[i] = NAN;
  }
  s->column[c].value[s->count] = value;
}

static void add(brim_arena *arena, brim_series *s, json_t *record)
{
  const char *key;
  json_t *value;
  const json_t *step = json_object_get(record, "step");
  if (!json_is_number(step)) return;
  grow(arena, s);
  s->step[s->count] = json_number_value(step);
  for (size_t i = 0; i < s->columns; i++) s->column[i].value[s->count] = NAN;
  json_object_foreach(record, key, value)
  {
    if (value != step && json_is_number(value)) set(arena, s, key, json_number_value(value));
  }
  s->count++;
}

static void take_line(brim_arena *arena, const char *line, size_t length, brim_metrics *out)
{
  json_t *record = json_loadb(line, length, 0, NULL);
  const char *split = json_string_value(json_object_get(record, "split"));
  for (int i = 0; split && i < BRIM_PART_COUNT; i++)
    if (strcmp(split, brim_part_names[i]) == 0) add(arena, &out->split[i], record);
  json_decref(record);
}

brim_status brim_metrics_read(brim_arena *arena, const char *path, brim_metrics *out)
{
  *out = (brim_metrics){0};
  FILE *file = brim_fopen_to_read(path);
  if (!file) return brim_fail(BRIM_ELOAD, "cannot read '%s': %s", path, brim_open_reason(errno));
  char *line = NULL;
  size_t room = 0;
  for (ssize_t length; (length = getline(&line, &room, file)) >= 0;) take_line(arena, line, (size_t)length, out);
  const int failed = ferror(file);
  free(line);
  fclose(file);
  return failed ? brim_fail(BRIM_ELOAD, "cannot read '%s' to its end", path) : BRIM_OK;
}

const double *brim_series_values(const brim_series *series, const char *name)
{
  const size_t c = find_metric(series, name);
  return c < series->columns ? series->column[c].value : NULL;
}

double brim_series_last(const brim_series *series, const char *name)
{
  const double *value = brim_series_values(series, name);
  return value ? value[series->count - 1] : NAN;
}
