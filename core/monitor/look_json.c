/* The JSON form of a look. Writer and reader use the same table for each struct, so that the reader accepts everything
 * that the writer writes. A member that is missing, or null, is unknown; the reader ignores members that the table
 * lacks. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brim/backend.h"
#include "monitor/look.h"

#define VERSION_KEY "brim_look"
#define WHOLE_MAX 9007199254740992.0 /* 2^53 */

/* The type of a member of a struct. LIST: an array of another table's objects, with the count at `count`. */
enum kind { TEXT, NUMBER, COUNT, BYTES, BOOL, STATE, HOST, DEVICE, RUN, PLACES, POINTS, LIST };

typedef struct row {
  const char *key;
  enum kind kind;
  size_t offset, count; /* offsets of the member, and of its count */
  const struct table *of;
} row;

typedef struct table {
  const row *row; /* ends with key NULL */
  size_t bytes, most;
} table;

#define ROW(T, key, kind, field)                                                                                       \
  {                                                                                                                    \
    key, kind, offsetof(T, field), 0, NULL                                                                             \
  }
#define ARRAY(T, key, kind, field, count, table)                                                                       \
  {                                                                                                                    \
    key, kind, offsetof(T, field), offsetof(T, count), table                                                           \
  }
#define END                                                                                                            \
  {                                                                                                                    \
    NULL, TEXT, 0, 0, NULL                                                                                             \
  }

static const row host_rows[] = {ROW(brim_look_host, "name", TEXT, name),
                                ROW(brim_look_host, "time", NUMBER, time),
                                ROW(brim_look_host, "load", NUMBER, load),
                                ROW(brim_look_host, "processors", NUMBER, processors),
                                ROW(brim_look_host, "ram_used_bytes", BYTES, ram_used_bytes),
                                ROW(brim_look_host, "ram_total_bytes", BYTES, ram_total_bytes),
                                ROW(brim_look_host, "swap_used_bytes", BYTES, swap_used_bytes),
                                ROW(brim_look_host, "swap_total_bytes", BYTES, swap_total_bytes),
                                ROW(brim_look_host, "failure", TEXT, failure),
                                END};

static const row owner_rows[] = {ROW(brim_look_owner, "pid", COUNT, pid),
                                 ROW(brim_look_owner, "bytes", BYTES, bytes),
                                 ROW(brim_look_owner, "brim", BOOL, is_brim),
                                 ROW(brim_look_owner, "mine", BOOL, is_mine),
                                 ROW(brim_look_owner, "user", TEXT, user),
                                 ROW(brim_look_owner, "name", TEXT, name),
                                 END};
static const table owner_table = {owner_rows, sizeof(brim_look_owner), BRIM_LOOK_OWNERS_MAX};

static const row device_rows[] = {ROW(brim_look_device, "host", HOST, host),
                                  ROW(brim_look_device, "device", TEXT, label),
                                  ROW(brim_look_device, "name", TEXT, name),
                                  ROW(brim_look_device, "uuid", TEXT, uuid),
                                  ROW(brim_look_device, "is_host", BOOL, is_host),
                                  ROW(brim_look_device, "total_bytes", BYTES, total_bytes),
                                  ROW(brim_look_device, "mine_bytes", BYTES, mine_bytes),
                                  ROW(brim_look_device, "brim_bytes", BYTES, brim_bytes),
                                  ROW(brim_look_device, "libraries_bytes", BYTES, libraries_bytes),
                                  ROW(brim_look_device, "other_bytes", BYTES, other_bytes),
                                  ROW(brim_look_device, "free_bytes", BYTES, free_bytes),
                                  ROW(brim_look_device, "load_percent", NUMBER, load),
                                  ROW(brim_look_device, "celsius", NUMBER, celsius),
                                  ROW(brim_look_device, "watts", NUMBER, watts),
                                  ROW(brim_look_device, "watts_max", NUMBER, watts_max),
                                  ROW(brim_look_device, "idle_seconds", NUMBER, idle_seconds),
                                  ARRAY(brim_look_device, "processes", LIST, owner, owners, &owner_table),
                                  END};

static const row ticket_rows[] = {ROW(brim_look_ticket, "host", HOST, host),
                                  ROW(brim_look_ticket, "place", COUNT, place),
                                  ROW(brim_look_ticket, "claimed", DEVICE, device),
                                  ROW(brim_look_ticket, "run", RUN, run),
                                  ROW(brim_look_ticket, "pid", COUNT, pid),
                                  ROW(brim_look_ticket, "user", TEXT, user),
                                  ROW(brim_look_ticket, "mine", BOOL, is_mine),
                                  ROW(brim_look_ticket, "process", TEXT, process),
                                  ROW(brim_look_ticket, "backend", TEXT, backend),
                                  ROW(brim_look_ticket, "wish", TEXT, wish),
                                  ROW(brim_look_ticket, "need_bytes", BYTES, need_bytes),
                                  ROW(brim_look_ticket, "since", NUMBER, since),
                                  ROW(brim_look_ticket, "starts", NUMBER, starts),
                                  ARRAY(brim_look_ticket, "accepts", PLACES, accepts, accept_count, NULL),
                                  END};

static const row class_rows[] = {ROW(brim_look_class, "class", TEXT, name), ROW(brim_look_class, "bytes", BYTES, bytes),
                                 END};
static const table class_table = {class_rows, sizeof(brim_look_class), BRIM_LOOK_CLASSES_MAX};

static const row curve_rows[] = {ROW(brim_look_curve, "curve", TEXT, name),
                                 ARRAY(brim_look_curve, "step", POINTS, step, count, NULL),
                                 ARRAY(brim_look_curve, "value", POINTS, value, count, NULL), END};
static const table curve_table = {curve_rows, sizeof(brim_look_curve), BRIM_LOOK_CURVES_MAX};

static const row event_rows[] = {ROW(brim_look_event, "time", NUMBER, time), ROW(brim_look_event, "step", COUNT, step),
                                 ROW(brim_look_event, "event", TEXT, kind), ROW(brim_look_event, "text", TEXT, text),
                                 END};
static const table event_table = {event_rows, sizeof(brim_look_event), BRIM_LOOK_EVENTS_MAX};

static const row decision_rows[] = {ROW(brim_look_decision, "policy", TEXT, policy),
                                    ROW(brim_look_decision, "kind", TEXT, kind),
                                    ROW(brim_look_decision, "count", COUNT, count), END};
static const table decision_table = {decision_rows, sizeof(brim_look_decision), BRIM_LOOK_DECISIONS_MAX};

static const row run_rows[] = {ROW(brim_look_run, "host", HOST, host),
                               ROW(brim_look_run, "name", TEXT, name),
                               ROW(brim_look_run, "state", STATE, state),
                               ROW(brim_look_run, "pid", COUNT, pid),
                               ROW(brim_look_run, "user", TEXT, user),
                               ROW(brim_look_run, "mine", BOOL, is_mine),
                               ROW(brim_look_run, "rank", COUNT, rank),
                               ROW(brim_look_run, "ranks", COUNT, ranks),
                               ROW(brim_look_run, "device_index", DEVICE, device),
                               ROW(brim_look_run, "device", TEXT, device_text),
                               ROW(brim_look_run, "command", TEXT, command),
                               ROW(brim_look_run, "started", NUMBER, started),
                               ROW(brim_look_run, "since", NUMBER, since),
                               ROW(brim_look_run, "changed", NUMBER, changed),
                               ROW(brim_look_run, "silent_seconds", NUMBER, silent_seconds),
                               ROW(brim_look_run, "stopped", BOOL, is_stopped),
                               ROW(brim_look_run, "step", COUNT, step),
                               ROW(brim_look_run, "steps", COUNT, steps),
                               ROW(brim_look_run, "federated", BOOL, is_federated),
                               ROW(brim_look_run, "rate", NUMBER, rate),
                               ROW(brim_look_run, "counts_tokens", BOOL, counts_tokens),
                               ROW(brim_look_run, "seconds_left", NUMBER, seconds_left),
                               ROW(brim_look_run, "device_bytes", BYTES, device_bytes),
                               ROW(brim_look_run, "libraries_bytes", BYTES, libraries_bytes),
                               ARRAY(brim_look_run, "memory", LIST, memory, classes, &class_table),
                               ROW(brim_look_run, "folder", TEXT, folder),
                               ROW(brim_look_run, "model", TEXT, model),
                               ROW(brim_look_run, "dataset", TEXT, dataset),
                               ROW(brim_look_run, "loss", NUMBER, loss),
                               ROW(brim_look_run, "score", NUMBER, score),
                               ROW(brim_look_run, "score_name", TEXT, score_name),
                               ROW(brim_look_run, "epoch", NUMBER, epoch),
                               ROW(brim_look_run, "epochs", NUMBER, epochs),
                               ROW(brim_look_run, "queue_seconds", NUMBER, queue_seconds),
                               ARRAY(brim_look_run, "curves", LIST, curve, curves, &curve_table),
                               ARRAY(brim_look_run, "events", LIST, event, events, &event_table),
                               ROW(brim_look_run, "retries", COUNT, retries),
                               ROW(brim_look_run, "decisions", COUNT, decisions),
                               ARRAY(brim_look_run, "decided", LIST, decided, decided_count, &decision_table),
                               ROW(brim_look_run, "micro_batch", COUNT, micro_batch),
                               ROW(brim_look_run, "batch", COUNT, batch),
                               ROW(brim_look_run, "step_seconds", NUMBER, step_seconds),
                               ROW(brim_look_run, "predicted_step_seconds", NUMBER, predicted_step_seconds),
                               ROW(brim_look_run, "loader_share", NUMBER, loader_share),
                               ROW(brim_look_run, "workers", COUNT, workers),
                               ROW(brim_look_run, "smaller_micro_batch", COUNT, smaller_micro_batch),
                               ROW(brim_look_run, "smaller_bytes", BYTES, smaller_bytes),
                               ROW(brim_look_run, "elastic", BOOL, is_elastic),
                               END};

static const row advice_rows[] = {ROW(brim_look_advice, "text", TEXT, text),
                                  ROW(brim_look_advice, "command", TEXT, command), END};

static const struct {
  const char *key;
  table of;
  size_t at, count; /* in brim_look */
} parts[] = {
    {"hosts",
     {host_rows, sizeof(brim_look_host), BRIM_LOOK_HOSTS_MAX},
     offsetof(brim_look, host),
     offsetof(brim_look, hosts)},
    {"devices",
     {device_rows, sizeof(brim_look_device), BRIM_LOOK_DEVICES_MAX},
     offsetof(brim_look, device),
     offsetof(brim_look, devices)},
    {"queue",
     {ticket_rows, sizeof(brim_look_ticket), BRIM_LOOK_TICKETS_MAX},
     offsetof(brim_look, ticket),
     offsetof(brim_look, tickets)},
    {"runs",
     {run_rows, sizeof(brim_look_run), BRIM_LOOK_RUNS_MAX},
     offsetof(brim_look, run),
     offsetof(brim_look, runs)},
};
enum { HOSTS, DEVICES, QUEUE, RUNS, PARTS };
static const table advice_table = {advice_rows, sizeof(brim_look_advice), BRIM_LOOK_ADVICE_MAX};

static size_t count_of(const void *from, size_t offset)
{
  size_t count;
  memcpy(&count, (const char *)from + offset, sizeof count);
  return count;
}

/* ---- writing ---- */

/* JSON has neither NaN nor infinities. Whole numbers are shorter as integers. */
static json_t *number_json(double value)
{
  if (!isfinite(value)) return json_null();
  if (value == floor(value) && fabs(value) < WHOLE_MAX) return json_integer((json_int_t)value);
  return json_real(value);
}

/* Writes six digits, which are enough for a picture. */
static json_t *points_json(const float *value, size_t count)
{
  json_t *out = json_array();
  for (size_t i = 0; i < count; i++) {
    char text[32];
    snprintf(text, sizeof text, "%.6g", (double)value[i]);
    json_array_append_new(out, number_json(strtod(text, NULL)));
  }
  return out;
}

static json_t *text_json(const char *text)
{
  if (!text || !text[0]) return json_null();
  json_t *out = json_string(text);
  return out ? out : json_string("?"); /* the text is not UTF-8 */
}

static json_t *list_json(const table *t, const void *first, size_t count);

static json_t *member_json(const row *r, const void *from)
{
  const char *at = (const char *)from + r->offset;
  const size_t count = r->count ? count_of(from, r->count) : 0;
  switch (r->kind) {
  case TEXT:
    return text_json(*(const char *const *)(const void *)at);
  case NUMBER:
    return number_json(*(const double *)(const void *)at);
  case COUNT:
    return json_integer(*(const int64_t *)(const void *)at);
  case BYTES: {
    const uint64_t bytes = *(const uint64_t *)(const void *)at;
    return bytes > INT64_MAX ? json_null() : json_integer((json_int_t)bytes);
  }
  case BOOL:
    return json_boolean(*(const bool *)(const void *)at);
  case STATE:
    return json_string(brim_look_state_names[*(const enum brim_look_state *)(const void *)at]);
  case HOST:
  case DEVICE:
  case RUN: {
    const size_t index = *(const size_t *)(const void *)at;
    return index == BRIM_LOOK_NONE ? json_null() : json_integer((json_int_t)index);
  }
  case PLACES: {
    json_t *out = json_array();
    for (size_t i = 0; i < count; i++)
      json_array_append_new(out, json_integer((json_int_t)(*(const size_t *const *)(const void *)at)[i]));
    return out;
  }
  case POINTS:
    return points_json(*(const float *const *)(const void *)at, count);
  case LIST:
    return list_json(r->of, *(const void *const *)(const void *)at, count);
  }
  return json_null();
}

static json_t *list_json(const table *t, const void *first, size_t count)
{
  json_t *out = json_array();
  for (size_t i = 0; i < count; i++) {
    json_t *object = json_object();
    for (const row *r = t->row; r->key; r++)
      json_object_set_new(object, r->key, member_json(r, (const char *)first + i * t->bytes));
    json_array_append_new(out, object);
  }
  return out;
}

json_t *brim_look_json(const brim_look *look)
{
  json_t *root = json_object(), *problems = json_array();
  json_object_set_new(root, VERSION_KEY, json_integer(BRIM_LOOK_VERSION));
  for (size_t i = 0; i < PARTS; i++) {
    const void *first = *(const void *const *)(const void *)((const char *)look + parts[i].at);
    json_object_set_new(root, parts[i].key, list_json(&parts[i].of, first, count_of(look, parts[i].count)));
  }
  json_object_set_new(root, "advice", list_json(&advice_table, look->advice, look->advices));
  for (size_t i = 0; i < look->problems; i++) json_array_append_new(problems, text_json(look->problem[i]));
  json_object_set_new(root, "problems", problems);
  return root;
}

/* ---- reading ---- */

typedef struct reader {
  brim_arena *arena;
  size_t base[PARTS], count[PARTS]; /* number of elements before this object's, and of its own */
  char path[128];                   /* path of the member being read, for messages */
} reader;

static brim_status refuse(const reader *in, const char *what)
{
  return brim_fail(BRIM_ELOAD, "%s: %s is expected", in->path, what);
}

static brim_status read_index(reader *in, const json_t *value, int part, size_t *out)
{
  const json_int_t index = json_integer_value(value);
  if (!json_is_integer(value) || index < 0 || (uint64_t)index >= in->count[part])
    return brim_fail(BRIM_ELOAD, "%s: an index into the %zu %s is expected", in->path, in->count[part],
                     parts[part].key);
  *out = in->base[part] + (size_t)index;
  return BRIM_OK;
}

static brim_status read_state(reader *in, const json_t *value, enum brim_look_state *out)
{
  const char *name = json_string_value(value);
  for (int i = 0; name && i < BRIM_LOOK_STATES; i++)
    if (strcmp(name, brim_look_state_names[i]) == 0) {
      *out = (enum brim_look_state)i;
      return BRIM_OK;
    }
  return refuse(in, "a state such as \"training\"");
}

/* The arrays of a curve have the same length; the first one sets `count`. */
static brim_status read_points(reader *in, const json_t *value, size_t *count, bool is_first, float **out)
{
  const size_t n = json_array_size(value);
  if (!json_is_array(value)) return refuse(in, "an array of numbers");
  if (n > BRIM_LOOK_POINTS_MAX || (!is_first && n != *count))
    return brim_fail(BRIM_ELOAD, "%s: %zu points are more than the maximum, or differ in number from the steps",
                     in->path, n);
  *count = n;
  *out = BRIM_ARENA_NEW(in->arena, float, n);
  for (size_t i = 0; i < n; i++) {
    const json_t *point = json_array_get(value, i);
    if (!json_is_number(point) && !json_is_null(point)) return refuse(in, "an array of numbers");
    (*out)[i] = json_is_null(point) ? NAN : (float)json_number_value(point);
  }
  return BRIM_OK;
}

static brim_status read_places(reader *in, const json_t *value, size_t *count, size_t **out)
{
  const size_t n = json_array_size(value);
  if (!json_is_array(value) || n > BRIM_LOOK_DEVICES_MAX) return refuse(in, "an array of numbers of devices");
  *count = n;
  *out = BRIM_ARENA_NEW(in->arena, size_t, n);
  for (size_t i = 0; i < n; i++) BRIM_TRY(read_index(in, json_array_get(value, i), DEVICES, &(*out)[i]));
  return BRIM_OK;
}

static brim_status read_list(reader *in, const json_t *value, const table *t, size_t *count, void **out);

static brim_status read_member(reader *in, const row *r, const json_t *value, void *to)
{
  void *at = (char *)to + r->offset;
  size_t *count = (size_t *)(void *)((char *)to + r->count);
  static const int part_of[] = {[HOST] = HOSTS, [DEVICE] = DEVICES, [RUN] = RUNS};
  switch (r->kind) {
  case TEXT:
    if (!json_is_string(value)) return refuse(in, "a text");
    *(const char **)at = brim_arena_string(in->arena, json_string_value(value));
    return BRIM_OK;
  case NUMBER:
    if (!json_is_number(value)) return refuse(in, "a number");
    *(double *)at = json_number_value(value);
    return BRIM_OK;
  case COUNT:
    if (!json_is_integer(value)) return refuse(in, "a whole number");
    *(int64_t *)at = json_integer_value(value);
    return BRIM_OK;
  case BYTES:
    if (!json_is_integer(value) || json_integer_value(value) < 0) return refuse(in, "a number of bytes");
    *(uint64_t *)at = (uint64_t)json_integer_value(value);
    return BRIM_OK;
  case BOOL:
    if (!json_is_boolean(value)) return refuse(in, "true or false");
    *(bool *)at = json_is_true(value);
    return BRIM_OK;
  case STATE:
    return read_state(in, value, at);
  case HOST:
  case DEVICE:
  case RUN:
    return read_index(in, value, part_of[r->kind], at);
  case PLACES:
    return read_places(in, value, count, at);
  case POINTS:
    return read_points(in, value, count, r->offset == offsetof(brim_look_curve, step), at);
  case LIST:
    return read_list(in, value, r->of, count, at);
  }
  return BRIM_OK;
}

/* Sets the value of a member that is missing or null. */
static void set_unknown(const row *r, void *to)
{
  void *at = (char *)to + r->offset;
  if (r->kind == TEXT) *(const char **)at = "";
  if (r->kind == NUMBER) *(double *)at = NAN;
  if (r->kind == BYTES) *(uint64_t *)at = BRIM_BYTES_UNKNOWN;
  if (r->kind == DEVICE || r->kind == RUN) *(size_t *)at = BRIM_LOOK_NONE;
}

static brim_status read_object(reader *in, const json_t *value, const table *t, void *to)
{
  const size_t length = strlen(in->path);
  if (!json_is_object(value)) return refuse(in, "an object");
  for (const row *r = t->row; r->key; r++) {
    const json_t *member = json_object_get(value, r->key);
    set_unknown(r, to);
    snprintf(in->path + length, sizeof in->path - length, ".%s", r->key);
    const bool is_missing = !member || json_is_null(member);
    if (is_missing && (r->kind == HOST || r->kind == STATE || r->kind == POINTS)) /* has no unknown value */
      return brim_fail(BRIM_ELOAD, "%s is missing", in->path);
    if (!is_missing) BRIM_TRY(read_member(in, r, member, to));
  }
  in->path[length] = '\0';
  return BRIM_OK;
}

static brim_status read_list(reader *in, const json_t *value, const table *t, size_t *count, void **out)
{
  const size_t n = json_array_size(value), length = strlen(in->path);
  if (!json_is_array(value)) return refuse(in, "an array");
  if (n > t->most) return brim_fail(BRIM_ELOAD, "%s: %zu are more than the maximum, %zu", in->path, n, t->most);
  char *list = brim_arena_alloc(in->arena, n * t->bytes);
  for (size_t i = 0; i < n; i++) {
    snprintf(in->path + length, sizeof in->path - length, "[%zu]", i);
    BRIM_TRY(read_object(in, json_array_get(value, i), t, list + i * t->bytes));
  }
  in->path[length] = '\0';
  *count = n;
  *out = list;
  return BRIM_OK;
}

static brim_status check_version(const json_t *root)
{
  const json_t *version = json_object_get(root, VERSION_KEY);
  if (!json_is_integer(version) || json_integer_value(version) < 1)
    return brim_fail(BRIM_ELOAD, "it is not JSON of `brim monitor --json`: it has no member \"" VERSION_KEY "\"");
  if (json_integer_value(version) <= BRIM_LOOK_VERSION) return BRIM_OK;
  return brim_fail(BRIM_ELOAD,
                   "its format is version %" JSON_INTEGER_FORMAT
                   " of `brim monitor --json`, but this brim reads up to %d"
                   "\nuse the brim that wrote it, or a later version",
                   json_integer_value(version), BRIM_LOOK_VERSION);
}

/* Joins the old and the new elements of a part. */
static brim_status join(reader *in, brim_look *look, int part, const void *added)
{
  const size_t bytes = parts[part].of.bytes, old = in->base[part], count = in->count[part];
  void **at = (void **)(void *)((char *)look + parts[part].at);
  char *all = brim_arena_alloc(in->arena, (old + count) * bytes);
  if (old) memcpy(all, *at, old * bytes);
  if (count) memcpy(all + old * bytes, added, count * bytes);
  *at = all;
  *(size_t *)(void *)((char *)look + parts[part].count) = old + count;
  return BRIM_OK;
}

/* Checks that lists do not exceed their limits together either. */
static brim_status count_parts(reader *in, const json_t *root, const brim_look *look)
{
  for (int i = 0; i < PARTS; i++) {
    const json_t *list = json_object_get(root, parts[i].key);
    in->base[i] = count_of(look, parts[i].count);
    in->count[i] = json_array_size(list);
    if (list && !json_is_array(list)) return brim_fail(BRIM_ELOAD, "%s: an array is expected", parts[i].key);
    if (in->count[i] <= parts[i].of.most - in->base[i]) continue;
    return brim_fail(BRIM_ELOAD, "%s: %zu are more than the maximum, %zu", parts[i].key, in->base[i] + in->count[i],
                     parts[i].of.most);
  }
  return BRIM_OK;
}

brim_status brim_look_add_json(const json_t *root, brim_look *look)
{
  reader in = {.arena = &look->arena};
  void *list[PARTS] = {NULL}, *advice = NULL;
  size_t advices = 0;
  BRIM_TRY(check_version(root));
  BRIM_TRY(count_parts(&in, root, look));
  for (int i = 0; i < PARTS; i++) {
    size_t count = 0;
    const json_t *value = json_object_get(root, parts[i].key);
    snprintf(in.path, sizeof in.path, "%s", parts[i].key);
    if (value) BRIM_TRY(read_list(&in, value, &parts[i].of, &count, &list[i]));
  }
  snprintf(in.path, sizeof in.path, "advice");
  if (json_object_get(root, "advice"))
    BRIM_TRY(read_list(&in, json_object_get(root, "advice"), &advice_table, &advices, &advice));
  for (int i = 0; i < PARTS; i++) BRIM_TRY(join(&in, look, i, list[i]));
  for (size_t i = 0; i < advices && look->advices < BRIM_LOOK_ADVICE_MAX; i++)
    look->advice[look->advices++] = ((brim_look_advice *)advice)[i];
  const json_t *problems = json_object_get(root, "problems");
  for (size_t i = 0; i < json_array_size(problems); i++) {
    const char *text = json_string_value(json_array_get(problems, i));
    if (text) brim_look_problem(look, "%s", text);
  }
  return BRIM_OK;
}
