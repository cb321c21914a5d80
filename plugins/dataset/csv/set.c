#include "set.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "brim/host.h"

#define NAME_ROOM 8192
#define NAMES_TOLD 6
#define VALUES_MAX (INT64_C(1) << 40) /* maximum values in a sample */

static const char separators[] = {',', ';', '\t', '|', ' '};

/* ---- settings ---- */

static bool is_file(const char *path)
{
  struct stat st;
  return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

bool csv_set_has_test(const csv_params *p)
{
  return p->test_fraction > 0 || (p->test[0] && !is_file(p->path));
}

static int64_t horizon_of(const csv_params *p)
{
  return p->horizon >= 0 ? p->horizon : p->targets.count > 0 ? 1 : 0;
}

/* If a window ends before the row of its answer, past targets are known and may be features. */
static csv_wishes wishes_of(const csv_params *p)
{
  return (csv_wishes){.has_header = p->header,
                      .with_targets = p->sequence > 0 && !p->group[0] && horizon_of(p) > 0,
                      .features = p->features,
                      .targets = p->targets,
                      .label = p->label,
                      .group = p->group,
                      .client = p->client};
}

/* ---- files ---- */

/* Makes the path of a file in dataset.path. */
static void name_file(const csv_params *p, const char *name, char *out)
{
  const bool absolute = name[0] == '/';
  snprintf(out, NAME_ROOM, "%.4000s%s%.4000s", absolute ? "" : p->path, absolute ? "" : "/", name);
}

static brim_status read_file(csv_set *s, const char *file, csv_table *table)
{
  const csv_params *p = s->params;
  const csv_reading how = {separators[p->separator], true, (enum csv_fill)p->fill, &s->wishes};
  return csv_table_read(file, &how, &s->chosen, &s->classes, table);
}

static brim_status read_test(csv_set *s)
{
  char file[NAME_ROOM];
  struct stat st;
  if (!csv_set_has_test(s->params) || s->params->test_fraction > 0) return BRIM_OK;
  name_file(s->params, s->params->test, file);
  if (stat(file, &st) == 0) return read_file(s, file, &s->table[1]);
  return brim_fail(
      BRIM_ELOAD,
      "no file '%s'\nwithout a test file, set dataset.test= (empty), or dataset.test_fraction=0.2 to test on the "
      "last rows",
      file);
}

static brim_status read_files(csv_set *s)
{
  const csv_params *p = s->params;
  char file[NAME_ROOM];
  struct stat st;
  if (stat(p->path, &st) != 0)
    return brim_fail(BRIM_ELOAD, "no file '%s'\nset dataset.path to a CSV file, or to a folder that has '%s'", p->path,
                     p->train);
  if (is_file(p->path)) return read_file(s, p->path, &s->table[0]);
  if (p->train[0] == '\0')
    return brim_fail(BRIM_ECONFIG, "'%s' is a folder: dataset.train must name the training file in it", p->path);
  name_file(p, p->train, file);
  BRIM_TRY(read_file(s, file, &s->table[0]));
  return read_test(s);
}

/* ---- samples ---- */

static int64_t units_of(const csv_table *t)
{
  return t->order ? t->groups : t->rows;
}

/* Returns how many windows of `length` rows fit into `rows` rows, each with an answer `horizon` rows after it. */
static int64_t count_windows(const csv_set *s, int64_t rows, int64_t horizon)
{
  return rows - s->length < horizon ? 0 : (rows - s->length - horizon) / s->params->stride + 1;
}

static brim_status make_part(const csv_set *s, const csv_table *t, int64_t first, int64_t units, int64_t horizon,
                             csv_part *out)
{
  *out = (csv_part){t, first, units, units};
  if (s->length == 0 || t->order) return BRIM_OK;
  out->count = count_windows(s, units, horizon);
  if (out->count > 0 || units == 0) return BRIM_OK;
  return brim_fail(BRIM_ELOAD,
                   "'%s': %" PRId64 " row%s are too few for one window of dataset.sequence=%" PRId64
                   " rows and the row %" PRId64 " after it",
                   t->file, units, units == 1 ? "" : "s", s->length, horizon);
}

static int64_t longest_group(const csv_table *t)
{
  int64_t longest = 0;
  for (int32_t g = 0; g < t->groups; g++)
    if (t->begin[g + 1] - t->begin[g] > longest) longest = t->begin[g + 1] - t->begin[g];
  return longest;
}

static brim_status set_length(csv_set *s)
{
  const int64_t train = longest_group(&s->table[0]), test = longest_group(&s->table[1]); /* 0 without groups */
  s->length = s->params->sequence > 0 ? s->params->sequence : train > test ? train : test;
  int64_t values;
  if (__builtin_mul_overflow(s->length, s->chosen.features, &values) || values > VALUES_MAX)
    return brim_fail(BRIM_ECONFIG, "dataset.sequence=%" PRId64 ": samples of %d features would be too large", s->length,
                     s->chosen.features);
  return BRIM_OK;
}

/* Makes the test part from the last rows or groups of the file. */
static brim_status cut_parts(csv_set *s)
{
  const csv_params *p = s->params;
  const csv_table *t = &s->table[0];
  const int64_t all = units_of(t), test = llround((double)all * p->test_fraction), horizon = horizon_of(p);
  BRIM_TRY(set_length(s));
  if (p->test_fraction > 0 && (test == 0 || test == all))
    return brim_fail(BRIM_ECONFIG,
                     "dataset.test_fraction=%g: of the %" PRId64 " %s of '%s' the test split would get %s",
                     p->test_fraction, all, t->order ? "groups" : "rows", t->file, test ? "all" : "none");
  BRIM_TRY(make_part(s, t, 0, all - test, horizon, &s->train));
  if (test > 0) return make_part(s, t, all - test, test, horizon, &s->test);
  if (s->table[1].rows > 0) return make_part(s, &s->table[1], 0, units_of(&s->table[1]), horizon, &s->test);
  return BRIM_OK;
}

static brim_status normalise(csv_set *s)
{
  const csv_table *t = &s->table[0];
  const int64_t rows = t->order ? t->begin[s->train.rows] : s->train.rows;
  s->mean = brim_try_calloc((size_t)t->features, sizeof *s->mean);
  s->deviation = brim_try_calloc((size_t)t->features, sizeof *s->deviation);
  if (!s->mean || !s->deviation) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the features of '%s'", t->file);
  BRIM_TRY(csv_table_measure(t, &s->chosen, t->order, rows, s->mean, s->deviation));
  for (int i = 0; i < 2; i++) csv_table_fill(&s->table[i], s->mean, s->deviation, s->params->standardise);
  return BRIM_OK;
}

/* Writes "3 features (a, b, c)". If there are many names, writes only the first and the last. */
static size_t list_names(char *const *name, int32_t count, const char *what, char *out, size_t room)
{
  size_t used = (size_t)snprintf(out, room, "%d %s%s (", count, what, count == 1 ? "" : "s");
  for (int32_t i = 0; i < count && used < room; i++) {
    const bool gap = i == NAMES_TOLD - 1 && count > NAMES_TOLD;
    used += (size_t)snprintf(out + used, room - used, "%s%.60s",
                             gap ? ", ..., "
                             : i ? ", "
                                 : "",
                             name[gap ? count - 1 : i]);
    if (gap) break;
  }
  if (used < room) used += (size_t)snprintf(out + used, room - used, ")");
  return used;
}

static void summarise(csv_set *s)
{
  const csv_chosen *c = &s->chosen;
  const size_t room = sizeof s->summary;
  size_t used = list_names(c->feature, c->features, "feature", s->summary, room);
  if (c->targets > 0) {
    used += (size_t)snprintf(s->summary + used, room - used, ", ");
    used += list_names(c->target, c->targets, "target", s->summary + used, room - used);
  } else {
    used += (size_t)snprintf(s->summary + used, room - used, ", label %.60s of %d class%s", c->label, s->classes.count,
                             s->classes.count == 1 ? "" : "es");
  }
  if (c->group[0]) used += (size_t)snprintf(s->summary + used, room - used, ", samples by %.60s", c->group);
  if (c->left_out[0]) snprintf(s->summary + used, room - used, "; left out: %s", c->left_out);
}

brim_status csv_set_begin(const csv_params *params, csv_set *out)
{
  *out = (csv_set){.params = params, .wishes = wishes_of(params)};
  if (params->group[0] && (params->horizon >= 0 || params->stride != 1))
    return brim_fail(BRIM_ECONFIG, "dataset.%s is for windows over rows; with dataset.group a sample is a whole group",
                     params->horizon >= 0 ? "horizon" : "stride");
  if (params->sequence == 0 && !params->group[0] && (params->horizon > 0 || params->stride != 1))
    return brim_fail(BRIM_ECONFIG, "dataset.%s is for windows over rows; dataset.sequence sets their length",
                     params->horizon > 0 ? "horizon" : "stride");
  return BRIM_OK;
}

brim_status csv_set_open(const csv_params *params, csv_set *out)
{
  brim_status status = csv_set_begin(params, out);
  if (status == BRIM_OK) status = read_files(out);
  if (status == BRIM_OK) status = cut_parts(out);
  if (status == BRIM_OK) status = normalise(out);
  if (status == BRIM_OK) summarise(out);
  if (status != BRIM_OK) csv_set_free(out);
  return status;
}

void csv_set_free(csv_set *s)
{
  for (int i = 0; i < 2; i++) csv_table_free(&s->table[i]);
  csv_chosen_free(&s->chosen);
  csv_names_free(&s->classes);
  free(s->mean);
  free(s->deviation);
  *s = (csv_set){0};
}

brim_status csv_set_read_file(const csv_set *s, const char *path, csv_table *table, csv_part *part)
{
  const csv_params *p = s->params;
  const csv_reading how = {separators[p->separator], false, (enum csv_fill)p->fill, &s->wishes};
  csv_chosen chosen = s->chosen; /* `chosen` is not empty, so reading does not change it */
  csv_names classes = {0};
  BRIM_TRY(csv_table_read(path, &how, &chosen, &classes, table));
  csv_table_fill(table, s->mean, s->deviation, p->standardise);
  const brim_status status = make_part(s, table, 0, units_of(table), 0, part);
  if (status != BRIM_OK) csv_table_free(table);
  return status;
}

/* ---- reading ---- */

static void copy_answer(const csv_table *t, const csv_set *s, int64_t row, void *label)
{
  if (t->label)
    *(int32_t *)label = t->label[row];
  else if (t->target)
    memcpy(label, t->target + row * t->targets, (size_t)t->targets * sizeof *t->target);
  else if (s->chosen.targets > 0)
    memset(label, 0, (size_t)s->chosen.targets * sizeof(float));
  else
    *(int32_t *)label = -1;
}

/* Copies the rows of a group, which are cut, or padded with zeros, on one side. The group's last row has the answer. */
static void copy_group(const csv_set *s, const csv_table *t, int64_t group, float *values, void *label)
{
  const int64_t begin = t->begin[group], all = t->begin[group + 1] - begin, f = t->features;
  const int64_t rows = all < s->length ? all : s->length, empty = s->length - rows;
  const int64_t from = s->params->cut == CSV_FRONT ? begin + all - rows : begin;
  const int64_t to = s->params->pad == CSV_FRONT ? empty : 0;
  memset(values, 0, (size_t)(s->length * f) * sizeof *values);
  for (int64_t i = 0; i < rows; i++)
    memcpy(values + (to + i) * f, t->feature + t->order[from + i] * f, (size_t)f * sizeof *values);
  copy_answer(t, s, t->order[begin + all - 1], label);
}

/* Returns the row of a sample's answer. */
static int64_t answer_row(const csv_set *s, const csv_part *part, int64_t index)
{
  const csv_table *t = part->table;
  if (t->order) return t->order[t->begin[part->first + index + 1] - 1];
  const int64_t row = part->first + index * s->params->stride;
  if (s->length == 0) return row;
  return row + s->length - 1 + (t->label || t->target ? horizon_of(s->params) : 0);
}

void csv_set_sample(const csv_set *s, const csv_part *part, int64_t index, float *values, void *label)
{
  const csv_table *t = part->table;
  if (t->order) {
    copy_group(s, t, part->first + index, values, label);
    return;
  }
  const int64_t rows = s->length > 0 ? s->length : 1, row = part->first + index * s->params->stride;
  memcpy(values, t->feature + row * t->features, (size_t)(rows * t->features) * sizeof *values);
  copy_answer(t, s, answer_row(s, part, index), label);
}

int64_t csv_set_client(const csv_set *s, const csv_part *part, int64_t index)
{
  return part->table->client ? part->table->client[answer_row(s, part, index)] : -1;
}
