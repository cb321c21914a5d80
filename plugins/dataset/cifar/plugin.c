/* CIFAR-10 and CIFAR-100 (Krizhevsky, 2009) in their binary version: 50000 + 10000 colour images of 32x32 pixels.
 *
 *     CIFAR-10     data_batch_1.bin ... data_batch_5.bin, test_batch.bin, batches.meta.txt
 *     CIFAR-100    train.bin, test.bin, fine_label_names.txt (100 classes), coarse_label_names.txt (20)
 *
 * The files are in dataset.path, or in the folder of the archive within dataset.path. A whole split stays in memory. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "brim/brim.h"
#include "records.h"

#define HOME "https://www.cs.toronto.edu/~kriz/cifar.html"
#define NAME_ROOM 4096
#define CLASSES_MAX 100
#define CLASS_NAME_ROOM 64

enum { VERSION_10, VERSION_100 };
enum { LABEL_FINE, LABEL_COARSE };
enum { TRAIN, TEST, SPLITS };

typedef struct cifar_params {
  const char *path;
  int32_t version, label;
} cifar_params;

static const brim_param table[] = {
    BRIM_PARAM(PATH, cifar_params, path, NULL, NULL,
               "folder of the files from cifar-10-binary.tar.gz or cifar-100-binary.tar.gz, from " HOME),
    BRIM_PARAM(ENUM, cifar_params, version, "10", "10|100", "10: CIFAR-10; 100: CIFAR-100"),
    BRIM_PARAM(ENUM, cifar_params, label, "fine", "fine|coarse",
               "for version 100: the 100 classes (fine), or the 20 superclasses (coarse)"),
    BRIM_PARAMS_END,
};

static const struct {
  const char *archive, *folder;
  int labels, classes[2]; /* the labels in a record (coarse and fine, or only one), and the number of classes of each */
  const char *train[6], *test[2], *names[2];
} versions[] = {
    {"cifar-10-binary.tar.gz",
     "cifar-10-batches-bin",
     1,
     {10},
     {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
     {"test_batch.bin"},
     {"batches.meta.txt", NULL}},
    {"cifar-100-binary.tar.gz",
     "cifar-100-binary",
     2,
     {20, 100},
     {"train.bin"},
     {"test.bin"},
     {"fine_label_names.txt", "coarse_label_names.txt"}},
};

typedef struct cifar {
  const cifar_params *params;
  cifar_records split[SPLITS];
  bool opened[SPLITS], has_names;
  char name[CLASSES_MAX][CLASS_NAME_ROOM];
  const char *names[CLASSES_MAX];
} cifar;

/* Returns the position of the label that dataset.label selects in a record. */
static int label_place(const cifar_params *p)
{
  return p->version == VERSION_100 && p->label == LABEL_FINE ? 1 : 0;
}

static int class_count(const cifar_params *p)
{
  return versions[p->version].classes[label_place(p)];
}

static int split_of(const char *split)
{
  return strcmp(split, "train") == 0 ? TRAIN : strcmp(split, "test") == 0 ? TEST : -1;
}

static const char *const *files_of(const cifar *d, int which)
{
  return which == TRAIN ? versions[d->params->version].train : versions[d->params->version].test;
}

/* Finds a file in dataset.path, or in the folder of the archive within it. Returns ELOAD if it is in neither. */
static brim_status find_file(const cifar *d, const char *file, char *out)
{
  const char *path = d->params->path, *archive = versions[d->params->version].archive;
  const char *folder = versions[d->params->version].folder;
  struct stat s;
  for (int in = 0; in < 2; in++) {
    snprintf(out, NAME_ROOM, "%.3000s/%s%s%s", path, in ? folder : "", in ? "/" : "", file);
    if (stat(out, &s) == 0) return BRIM_OK;
  }
  if (stat(path, &s) != 0)
    return brim_fail(BRIM_ELOAD,
                     "cannot open the dataset's folder '%s': %s\nset dataset.path to it; %s, which holds its "
                     "files, is at " HOME,
                     path, strerror(errno), archive);
  return brim_fail(BRIM_ELOAD, "no file '%s' in '%s' or in its folder '%s'\n%s, which holds it, is at " HOME, file,
                   path, folder, archive);
}

/* ---- Names of classes ---- */

static brim_status read_names(cifar *d, const char *path, FILE *file)
{
  const int classes = class_count(d->params);
  char line[256];
  int count = 0;
  while (fgets(line, sizeof line, file)) {
    line[strcspn(line, "\r\n")] = '\0';
    if (line[0] == '\0') continue;
    if (count == classes || strlen(line) >= CLASS_NAME_ROOM)
      return brim_fail(BRIM_ELOAD, "'%s': line %d, '%.100s', is not one of %d names of classes", path, count + 1, line,
                       classes);
    memcpy(d->name[count], line, strlen(line) + 1);
    d->names[count] = d->name[count];
    count++;
  }
  if (count != classes)
    return brim_fail(BRIM_ELOAD, "'%s' has %d names, but there are %d classes", path, count, classes);
  d->has_names = true;
  return BRIM_OK;
}

/* Loads the class names. If the file is missing, classes have no names. */
static brim_status load_names(cifar *d)
{
  const cifar_params *p = d->params;
  char path[NAME_ROOM];
  const int which = p->version == VERSION_100 && p->label == LABEL_COARSE ? 1 : 0;
  if (d->has_names || find_file(d, versions[p->version].names[which], path) != BRIM_OK) return BRIM_OK;
  FILE *file = fopen(path, "re");
  if (!file) return BRIM_OK;
  const brim_status status = read_names(d, path, file);
  fclose(file);
  return status;
}

/* ---- Ops ---- */

static brim_status create(const void *params, void **self)
{
  cifar *d = brim_try_calloc(1, sizeof *d);
  if (!d) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the dataset");
  d->params = params;
  const brim_status status = load_names(d); /* loaded before open(), because describe() also returns the names */
  if (status != BRIM_OK) {
    free(d);
    return status;
  }
  *self = d;
  return BRIM_OK;
}

static void destroy(void *self)
{
  cifar *d = self;
  for (int i = 0; d && i < SPLITS; i++) cifar_records_free(&d->split[i]);
  free(d);
}

static brim_status open_split(void *self, const char *split)
{
  cifar *d = self;
  const int which = split_of(split);
  if (which < 0) return brim_fail(BRIM_ENOTSUP, "the dataset has no split '%s'", split);
  if (d->opened[which]) return BRIM_OK;
  cifar_records records = {0};
  brim_status status = BRIM_OK;
  for (const char *const *file = files_of(d, which); *file && status == BRIM_OK; file++) {
    char path[NAME_ROOM];
    status = find_file(d, *file, path);
    if (status == BRIM_OK)
      status =
          cifar_records_add(path, versions[d->params->version].labels, versions[d->params->version].classes, &records);
  }
  if (status != BRIM_OK) {
    cifar_records_free(&records);
    return status;
  }
  d->split[which] = records;
  d->opened[which] = true;
  return BRIM_OK;
}

/* Returns the number of records, from the sizes of the files if they have not been read. */
static brim_status count_of(const cifar *d, int which, int64_t *out)
{
  *out = d->split[which].count;
  for (const char *const *file = files_of(d, which); *file && !d->opened[which]; file++) {
    char path[NAME_ROOM];
    int64_t count;
    BRIM_TRY(find_file(d, *file, path));
    BRIM_TRY(cifar_records_count(path, versions[d->params->version].labels, &count));
    *out += count;
  }
  return BRIM_OK;
}

static brim_status describe(const void *self, const char *split, brim_dataset_info *out)
{
  const cifar *d = self;
  const int which = split_of(split);
  int64_t count;
  if (which < 0) return brim_fail(BRIM_ENOTSUP, "the dataset has no split '%s'", split);
  BRIM_TRY(count_of(d, which, &count));
  *out = (brim_dataset_info){.count = count,
                             .sample = {.rank = 3, .dim = {3, 32, 32}},
                             .dtype = BRIM_DTYPE_U8,
                             .classes = class_count(d->params),
                             .class_names = d->has_names ? d->names : NULL};
  return BRIM_OK;
}

static brim_status host_bytes(const void *self, const char *split, uint64_t *out)
{
  const cifar *d = self;
  int64_t count;
  BRIM_TRY(count_of(d, split_of(split), &count));
  *out = (uint64_t)count * (uint64_t)(versions[d->params->version].labels + CIFAR_PIXEL_BYTES);
  return BRIM_OK;
}

static brim_status read_sample(const void *self, const char *split, int64_t index, void *values, void *label)
{
  const cifar *d = self;
  const int which = split_of(split), labels = versions[d->params->version].labels;
  if (which < 0 || !d->opened[which]) return brim_fail(BRIM_EINVAL, "split '%s' is not open", split);
  if (index < 0 || index >= d->split[which].count)
    return brim_fail(BRIM_EINVAL, "sample %" PRId64 " of %" PRId64 ": out of range", index, d->split[which].count);
  const uint8_t *record = d->split[which].bytes + index * (labels + CIFAR_PIXEL_BYTES);
  memcpy(values, record + labels, CIFAR_PIXEL_BYTES);
  *(int32_t *)label = record[label_place(d->params)];
  return BRIM_OK;
}

static const brim_dataset_ops ops = {.size = sizeof(brim_dataset_ops),
                                     .open = open_split,
                                     .describe = describe,
                                     .read = read_sample,
                                     .host_bytes = host_bytes};

static const brim_plugin plugin = {
    .size = sizeof(brim_plugin),
    .kind = BRIM_DATASET,
    .id = "cifar",
    .help = "CIFAR-10 and CIFAR-100, binary version",
    .params_size = sizeof(cifar_params),
    .params = table,
    .create = create,
    .destroy = destroy,
    .ops = &ops,
};

static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-cifar", "0.1", plugins)
