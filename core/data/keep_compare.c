/* Finds the differences between data and its stored description, by walking through both as JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "data/keep.h"

#define LISTED_MAX 5   /* differences that a message lists */
#define PLACE_ROOM 256 /* bytes of a place's description */
#define ROUNDING 1e-9  /* relative */

typedef struct differences {
  brim_text text;
  int64_t count;
} differences;

static void compare(differences *d, const char *place, const json_t *was, const json_t *now);

/* ---- words ---- */

static void add_value(brim_text *out, const json_t *value)
{
  if (json_is_string(value)) {
    brim_text_printf(out, "'%s'", json_string_value(value));
  } else if (json_is_number(value)) {
    brim_text_printf(out, "%.12g", json_number_value(value));
  } else if (!value || json_is_null(value)) {
    brim_text_add(out, "nothing");
  } else {
    char *dump = json_dumps(value, JSON_ENCODE_ANY);
    brim_text_add(out, dump ? dump : "something else");
    free(dump);
  }
}

static void add_difference(differences *d, const char *place, const json_t *was, const json_t *now)
{
  if (d->count++ >= LISTED_MAX) return;
  brim_text_printf(&d->text, "\n%s was ", place);
  add_value(&d->text, was);
  brim_text_add(&d->text, ", and is ");
  add_value(&d->text, now);
}

/* Returns the length of a name's singular: "classes" and "class_names" become "class". */
static int singular(const char *name)
{
  if (strcmp(name, "class_names") == 0) return (int)strlen("class");
  const size_t n = strlen(name);
  return (int)(n > 1 && name[n - 1] == 's' ? n - 1 : n);
}

/* ---- the walk ---- */

static bool is_same(const json_t *a, const json_t *b)
{
  if (!json_is_number(a) || !json_is_number(b)) return json_equal(a, b);
  const double x = json_number_value(a), y = json_number_value(b);
  if (json_is_integer(a) && json_is_integer(b)) return json_integer_value(a) == json_integer_value(b);
  return fabs(x - y) <= ROUNDING * fmax(fabs(x), fabs(y));
}

/* Compares key by key; a place is "mean of feature 'x'" if the object describes feature x. */
static void compare_objects(differences *d, const char *place, const json_t *was, const json_t *now)
{
  const char *key;
  json_t *value;
  char at[PLACE_ROOM];
  json_object_foreach((json_t *)was, key, value)
  {
    snprintf(at, sizeof at, "%s%s%s", key, place[0] ? " of " : "", place);
    compare(d, at, value, json_object_get(now, key));
  }
  json_object_foreach((json_t *)now, key, value)
  {
    if (json_object_get(was, key)) continue;
    snprintf(at, sizeof at, "%s%s%s", key, place[0] ? " of " : "", place);
    add_difference(d, at, NULL, value);
  }
}

static void compare_arrays(differences *d, const char *place, const json_t *was, const json_t *now)
{
  const size_t count = json_array_size(was);
  char at[PLACE_ROOM];
  for (size_t i = 0; i < count && i < json_array_size(now); i++) {
    const json_t *a = json_array_get(was, i), *b = json_array_get(now, i);
    const char *name = json_string_value(json_object_get(a, "name")),
               *other = json_string_value(json_object_get(b, "name"));
    snprintf(at, sizeof at, "%.*s %zu", singular(place), place, i);
    if (name && other && strcmp(name, other) != 0) {
      add_difference(d, at, json_object_get(a, "name"), json_object_get(b, "name"));
      continue;
    }
    if (name) snprintf(at, sizeof at, "%.*s '%s'", singular(place), place, name);
    compare(d, at, a, b);
  }
  if (count == json_array_size(now) || d->count++ >= LISTED_MAX) return;
  brim_text_printf(&d->text, "\nthere were %zu %s, now %zu", count, place, json_array_size(now));
}

static void compare(differences *d, const char *place, const json_t *was, const json_t *now)
{
  if (json_is_object(was) && json_is_object(now))
    compare_objects(d, place, was, now);
  else if (json_is_array(was) && json_is_array(now))
    compare_arrays(d, place, was, now);
  else if (!is_same(was, now))
    add_difference(d, place, was, now);
}

/* ---- data ---- */

static void compare_key(differences *d, const char *key, const char *place, const json_t *was, const json_t *now)
{
  const json_t *a = json_object_get(was, key), *b = json_object_get(now, key);
  if (a || b) compare(d, place, a ? a : json_null(), b ? b : json_null());
}

/* Does nothing if the dataset's files have no class names. */
static void compare_names(differences *d, const json_t *was, const json_t *now)
{
  const json_t *a = json_object_get(was, "class_names"), *b = json_object_get(now, "class_names");
  if (json_is_array(a) && json_is_array(b) && json_array_size(a) == json_array_size(b))
    compare_arrays(d, "class_names", a, b);
}

/* Does not report the number of samples to train on if the number of all training samples already differs. */
static void compare_order(differences *d, const json_t *was, const json_t *now)
{
  const int64_t before = d->count;
  compare_key(d, "train", "the number of training samples", json_object_get(was, "samples"),
              json_object_get(now, "samples"));
  if (d->count == before) compare_key(d, "trained", "the number of samples to train on", was, now);
  compare_key(d, "seed", "the seed", was, now);
}

brim_status brim_data_compare(const json_t *kept, const json_t *now, bool order)
{
  differences d = {0};
  compare_key(&d, "task", "the task", kept, now);
  compare_key(&d, "sample", "the shape of a sample, dimension", kept, now);
  compare_key(&d, "dtype", "the type of values", kept, now);
  compare_key(&d, "targets", "the number of targets", kept, now);
  compare_key(&d, "classes", "the number of classes", kept, now);
  compare_names(&d, kept, now);
  if (json_is_object(json_object_get(kept, "kept")) && json_is_object(json_object_get(now, "kept")))
    compare_key(&d, "kept", "", kept, now);
  if (order) compare_order(&d, kept, now);
  if (d.count > LISTED_MAX) brim_text_printf(&d.text, "\n... and %" PRId64 " more", d.count - LISTED_MAX);
  const brim_status status =
      d.count == 0 ? BRIM_OK
                   : brim_fail(BRIM_ELOAD, "the data differs from the run's training data:%s", brim_text_str(&d.text));
  brim_text_release(&d.text);
  return status;
}
