/* Rows of CSV files: features with classes or real numbers, time series, sequences. A sample is
 *
 *     a row         [features], with the class or targets of the same row
 *     a window      with dataset.sequence: [length, features], with the class or targets of the row `horizon` after its
 * last
 *     a group       with dataset.group: all rows with one id, [length, features], with the class or targets of the last
 * row
 *
 * The first call of open() reads the whole files; its errors name the place in the file. The values stay in memory as
 * floats. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "brim/brim.h"
#include "kept.h"

static const brim_param table[] = {
    BRIM_PARAM(PATH, csv_params, path, NULL, NULL, "folder of the files, or a single file"),
    BRIM_PARAM(STR, csv_params, train, "train.csv", NULL, "training file in the folder"),
    BRIM_PARAM(STR, csv_params, test, "test.csv", NULL, "test file in the folder; empty: no test split"),
    BRIM_PARAM(F64, csv_params, test_fraction, "0", "[0,1)",
               "share of the training file's last rows (with group: last groups) that becomes the test split, instead "
               "of the test file; 0: off"),
    BRIM_PARAM(ENUM, csv_params, separator, "comma", "comma|semicolon|tab|pipe|space", "character between fields"),
    BRIM_PARAM(BOOL, csv_params, header, "true", NULL,
               "true: the first line has the columns' names; false: they are 1, 2, ..."),
    BRIM_PARAM(NAMES, csv_params, features, "[]", NULL,
               "input columns, by name or as a range from..to; empty: all columns without another role"),
    BRIM_PARAM(NAMES, csv_params, targets, "[]", NULL, "columns of real numbers to predict"),
    BRIM_PARAM(STR, csv_params, label, "", NULL, "column of classes (names or numbers) to predict, instead of targets"),
    BRIM_PARAM(
        STR, csv_params, group, "", NULL,
        "column of ids: the rows with one id form a sample, with the target or label of the last row; empty: off"),
    BRIM_PARAM(STR, csv_params, client, "", NULL,
               "column of ids of a federation's clients, for partition=natural; empty: no clients"),
    BRIM_PARAM(I64, csv_params, sequence, "0", "[0,1000000000]",
               "rows in a sample (sliding windows); 0: single rows, with group the length of the longest group"),
    BRIM_PARAM(I64, csv_params, stride, "1", "[1,1000000000]", "rows from the start of a window to that of the next"),
    BRIM_PARAM(I64, csv_params, horizon, "auto", "auto|[0,1000000000]",
               "row with a window's target or label, counted from its last row; auto: 1 with targets, 0 with a label"),
    BRIM_PARAM(ENUM, csv_params, pad, "front", "front|behind",
               "where to add rows of zeros to short groups: at the start (front) or end (behind)"),
    BRIM_PARAM(ENUM, csv_params, cut, "front", "front|behind",
               "where to remove rows from groups longer than dataset.sequence: at the start (front) or end (behind)"),
    BRIM_PARAM(ENUM, csv_params, fill, "none", "none|mean|zero",
               "replacement for missing features: the column's mean or zero; none: report an error"),
    BRIM_PARAM(BOOL, csv_params, standardise, "true", NULL,
               "scale each feature to mean 0 and standard deviation 1 over the training rows; targets do not change"),
    BRIM_PARAMS_END,
};

/* A file of new samples (open_file). */
typedef struct csv_extra {
  char *name; /* name of its split */
  csv_table table;
  csv_part part;
} csv_extra;

typedef struct csv_dataset {
  const csv_params *params;
  bool opened;   /* the set was read from files */
  bool recalled; /* the set was read from a run's record, so it has no samples */
  csv_set set;
  char *kept;        /* see csv_kept_make */
  csv_extra **extra; /* allocated one by one, because each holds a pointer to its own table and so must not move */
  int32_t extras;
} csv_dataset;

static brim_status csv_create(const void *params, void **self)
{
  csv_dataset *d = brim_try_calloc(1, sizeof *d);
  if (!d) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the dataset");
  d->params = params;
  *self = d;
  return BRIM_OK;
}

static void extra_free(csv_extra *e)
{
  if (!e) return;
  csv_table_free(&e->table);
  free(e->name);
  free(e);
}

static void csv_destroy(void *self)
{
  csv_dataset *d = self;
  if (!d) return;
  for (int32_t i = 0; i < d->extras; i++) extra_free(d->extra[i]);
  free(d->extra);
  csv_set_free(&d->set);
  free(d->kept);
  free(d);
}

/* Returns NULL if there is no such split, or if it is not open. */
static const csv_part *part_of(const csv_dataset *d, const char *split)
{
  if (strcmp(split, "train") == 0) return d->opened ? &d->set.train : NULL;
  if (strcmp(split, "test") == 0) return d->opened && d->set.test.table ? &d->set.test : NULL;
  for (int32_t i = 0; i < d->extras; i++)
    if (strcmp(d->extra[i]->name, split) == 0) return &d->extra[i]->part;
  return NULL;
}

static brim_status check_split(const csv_dataset *d, const char *split)
{
  if (strcmp(split, "train") == 0 || (strcmp(split, "test") == 0 && csv_set_has_test(d->params)) || part_of(d, split))
    return BRIM_OK;
  return brim_fail(BRIM_ENOTSUP, "the dataset has no split '%s'", split);
}

/* Opens both splits at once, because the training rows standardise the features, and the longest group of both splits
 * sets the length. */
static brim_status csv_open(void *self, const char *split)
{
  csv_dataset *d = self;
  BRIM_TRY(check_split(d, split));
  if (d->opened) return BRIM_OK;
  if (d->recalled) csv_set_free(&d->set); /* the dataset's own files replace the run's record */
  BRIM_TRY(csv_set_open(d->params, &d->set));
  d->opened = true;
  return BRIM_OK;
}

static brim_status find_part(const csv_dataset *d, const char *split, const csv_part **out)
{
  BRIM_TRY(check_split(d, split));
  *out = part_of(d, split);
  return *out ? BRIM_OK : brim_fail(BRIM_EINVAL, "split '%s' is not open", split);
}

static brim_status csv_describe(const void *self, const char *split, brim_dataset_info *out)
{
  const csv_dataset *d = self;
  const csv_part *part;
  BRIM_TRY(find_part(d, split, &part));
  const csv_set *s = &d->set;
  const bool is_values = s->chosen.targets > 0;
  *out = (brim_dataset_info){.count = part->count,
                             .dtype = BRIM_DTYPE_F32,
                             .classes = s->classes.count,
                             .class_names = is_values ? NULL : (const char *const *)s->classes.item,
                             .task = is_values ? BRIM_TASK_VALUES : BRIM_TASK_CLASS,
                             .targets = s->chosen.targets,
                             .summary = d->recalled ? NULL : s->summary};
  out->sample =
      s->length > 0 ? (brim_shape){2, {s->length, s->chosen.features}} : (brim_shape){1, {s->chosen.features}};
  return BRIM_OK;
}

/* A table that both splits share counts only for training. */
static brim_status csv_host_bytes(const void *self, const char *split, uint64_t *out)
{
  const csv_dataset *d = self;
  const csv_part *part;
  BRIM_TRY(find_part(d, split, &part));
  *out = part == &d->set.test && part->table == d->set.train.table ? 0 : part->table->bytes;
  return BRIM_OK;
}

static brim_status csv_read(const void *self, const char *split, int64_t index, void *values, void *label)
{
  const csv_dataset *d = self;
  const csv_part *part = part_of(d, split);
  if (!part) return brim_fail(BRIM_EINVAL, "split '%s' is not open", split);
  if (index < 0 || index >= part->count)
    return brim_fail(BRIM_EINVAL, "sample %" PRId64 " of %" PRId64 ": out of range", index, part->count);
  csv_set_sample(&d->set, part, index, values, label);
  return BRIM_OK;
}

static brim_status csv_client(const void *self, const char *split, int64_t index, int64_t *out)
{
  const csv_dataset *d = self;
  const csv_part *part;
  BRIM_TRY(find_part(d, split, &part));
  *out = csv_set_client(&d->set, part, index);
  if (*out >= 0) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "partition=natural needs a column of clients, but 'dataset.client' is empty\n"
                                 "set dataset.client=NAME");
}

static brim_status add_extra(csv_dataset *d, csv_extra *e)
{
  csv_extra **grown = brim_try_calloc((size_t)d->extras + 1, sizeof *grown);
  if (!grown) return brim_fail(BRIM_ENOMEM_HOST, "no memory for another file");
  if (d->extras) memcpy(grown, d->extra, (size_t)d->extras * sizeof *grown);
  free(d->extra);
  d->extra = grown;
  d->extra[d->extras++] = e;
  return BRIM_OK;
}

/* The training file defines the columns, so it is opened first, unless a run has saved the columns. */
static brim_status csv_open_file(void *self, const char *path, const char *split)
{
  csv_dataset *d = self;
  if (part_of(d, split)) return brim_fail(BRIM_EINVAL, "split '%s' already exists", split);
  if (!d->recalled) BRIM_TRY(csv_open(d, "train"));
  csv_extra *e = brim_try_calloc(1, sizeof *e);
  if (!e) return brim_fail(BRIM_ENOMEM_HOST, "no memory for '%s'", path);
  const size_t bytes = strlen(split) + 1;
  e->name = brim_try_calloc(bytes, 1);
  if (e->name) memcpy(e->name, split, bytes);
  brim_status status = e->name ? csv_set_read_file(&d->set, path, &e->table, &e->part)
                               : brim_fail(BRIM_ENOMEM_HOST, "no memory for '%s'", path);
  if (status == BRIM_OK) status = add_extra(d, e);
  if (status != BRIM_OK) extra_free(e);
  return status;
}

static brim_status csv_keep(void *self, const char **json)
{
  csv_dataset *d = self;
  if (!d->kept) BRIM_TRY(csv_kept_make(&d->set, &d->kept));
  *json = d->kept;
  return BRIM_OK;
}

static brim_status csv_recall(void *self, const char *json)
{
  csv_dataset *d = self;
  BRIM_TRY(csv_kept_read(d->params, json, &d->set));
  d->recalled = true;
  return BRIM_OK;
}

static const brim_dataset_ops ops = {.size = sizeof ops,
                                     .open = csv_open,
                                     .describe = csv_describe,
                                     .read = csv_read,
                                     .open_file = csv_open_file,
                                     .host_bytes = csv_host_bytes,
                                     .keep = csv_keep,
                                     .recall = csv_recall,
                                     .client = csv_client};

static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_DATASET,
    .id = "csv",
    .help = "rows of CSV files, time series and sequences, with classes or real numbers to predict",
    .params_size = sizeof(csv_params),
    .params = table,
    .create = csv_create,
    .destroy = csv_destroy,
    .ops = &ops,
};

static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-csv", "0.1", plugins)
