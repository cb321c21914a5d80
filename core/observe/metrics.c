/* See metrics.h. */
#include "observe/metrics.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double *grown(brim_arena *arena, const double *old, size_t count, size_t room)
{
  double *out = BRIM_ARENA_NEW(arena, double, room);
  if (count) memcpy(out, old, count * sizeof *out);
  return out;
}

static double number(const json_t *record, const char *key)
{
  const json_t *value = json_object_get(record, key);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

static void add(brim_arena *arena, brim_series *s, const json_t *record)
{
  if (s->count == s->room) {
    const size_t room = s->room ? s->room * 2 : 64;
    s->step = grown(arena, s->step, s->count, room);
    s->loss = grown(arena, s->loss, s->count, room);
    s->accuracy = grown(arena, s->accuracy, s->count, room);
    s->room = room;
  }
  s->step[s->count] = number(record, "step");
  s->loss[s->count] = number(record, "loss");
  s->accuracy[s->count] = number(record, "accuracy");
  if (isfinite(s->step[s->count])) s->count++;
}

static void take_line(brim_arena *arena, const char *line, size_t length, brim_metrics *out)
{
  static const char *const names[BRIM_SPLIT_COUNT] = {"train", "validation", "test"};
  json_t *record = json_loadb(line, length, 0, NULL);
  const char *split = json_string_value(json_object_get(record, "split"));
  for (int i = 0; split && i < BRIM_SPLIT_COUNT; i++)
    if (strcmp(split, names[i]) == 0) add(arena, &out->split[i], record);
  json_decref(record);
}

brim_status brim_metrics_read(brim_arena *arena, const char *path, brim_metrics *out)
{
  *out = (brim_metrics){0};
  FILE *file = fopen(path, "re");
  if (!file) return brim_fail(BRIM_ELOAD, "cannot read '%s': %s", path, strerror(errno));
  char *line = NULL;
  size_t room = 0;
  for (ssize_t length; (length = getline(&line, &room, file)) >= 0;) take_line(arena, line, (size_t)length, out);
  const int failed = ferror(file);
  free(line);
  fclose(file);
  return failed ? brim_fail(BRIM_ELOAD, "cannot read '%s' to its end", path) : BRIM_OK;
}
