/* numbers: a dataset whose samples [2] have their sum and their difference as targets; and files of such samples, two
 * floats each, for brim predict. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brim/brim.h"

#define COUNT 256
#define FILE_MAX 64 /* samples of a file */

typedef struct numbers {
  float file[2 * FILE_MAX];
  int64_t file_count;
  char split[64]; /* the name that the core gives to the file's data */
} numbers;

static brim_status create(const void *params, void **self)
{
  (void)params;
  *self = calloc(1, sizeof(numbers));
  return *self ? BRIM_OK : BRIM_ENOMEM_HOST;
}

static void destroy(void *self)
{
  free(self);
}

static brim_status open_split(void *self, const char *split)
{
  (void)self;
  (void)split;
  return BRIM_OK;
}

static brim_status open_file(void *self, const char *path, const char *split)
{
  numbers *d = self;
  FILE *file = fopen(path, "rb");
  if (!file) return brim_fail(BRIM_ELOAD, "cannot read '%s'", path);
  d->file_count = (int64_t)fread(d->file, 2 * sizeof *d->file, FILE_MAX, file);
  fclose(file);
  snprintf(d->split, sizeof d->split, "%s", split);
  return BRIM_OK;
}

static brim_status describe(const void *self, const char *split, brim_dataset_info *out)
{
  const numbers *d = self;
  *out = (brim_dataset_info){.count = strcmp(split, d->split) == 0 ? d->file_count : COUNT,
                             .sample = {.rank = 1, .dim = {2}},
                             .dtype = BRIM_DTYPE_F32,
                             .task = BRIM_TASK_VALUES,
                             .targets = 2};
  return BRIM_OK;
}

static brim_status read_sample(const void *self, const char *split, int64_t index, void *values, void *label)
{
  const numbers *d = self;
  float *x = values, *y = label;
  const bool is_file = strcmp(split, d->split) == 0;
  x[0] = is_file ? d->file[2 * index] : (float)(index % 16) / 8 - 1;
  x[1] = is_file ? d->file[2 * index + 1] : (float)(index / 16) / 8 - 1;
  y[0] = x[0] + x[1];
  y[1] = x[0] - x[1];
  return BRIM_OK;
}

static const brim_dataset_ops ops = {
    .size = sizeof ops, .open = open_split, .describe = describe, .read = read_sample, .open_file = open_file};
static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_DATASET,
    .id = "numbers",
    .help = "the sum and the difference of two numbers",
    .create = create,
    .destroy = destroy,
    .ops = &ops,
};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("tests-numbers", "0.1", plugins)
