/* The MNIST family: images and labels in IDX files, two for each split, plain or gzip.
 *
 * The plugin looks for a file under its name, with ".gz", and with a dot before "idx", as some mirrors write it
 * (train-images.idx3-ubyte). open() reads and checks a whole split; the pixels stay in memory as bytes, and read()
 * copies them. A file of images to predict is a split without labels. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "brim/brim.h"
#include "idx_file.h"

#define NAME_ROOM 4096
#define DEBIAN_FOLDER "/usr/share/datasets/fashion-mnist"

typedef struct idx_params {
  const char *path, *train_images, *train_labels, *test_images, *test_labels;
  int64_t classes;
  brim_names class_names;
} idx_params;

static const brim_param table[] = {
    BRIM_PARAM(PATH, idx_params, path, NULL, NULL, "folder of the files"),
    BRIM_PARAM(STR, idx_params, train_images, "train-images-idx3-ubyte", NULL,
               "file of training images, [n,rows,columns] or [n,channels,rows,columns], plain or .gz"),
    BRIM_PARAM(STR, idx_params, train_labels, "train-labels-idx1-ubyte", NULL, "file of training labels, [n]"),
    BRIM_PARAM(STR, idx_params, test_images, "t10k-images-idx3-ubyte", NULL,
               "file of test images; empty: no test split"),
    BRIM_PARAM(STR, idx_params, test_labels, "t10k-labels-idx1-ubyte", NULL, "file of test labels"),
    BRIM_PARAM(I64, idx_params, classes, "10", "[2,256]", "number of classes; labels are 0 to classes-1"),
    BRIM_PARAM(NAMES, idx_params, class_names, "[]", NULL,
               "names of the classes, in the order of labels; empty: no names"),
    BRIM_PARAMS_END};

enum { TRAIN, TEST, FILES }; /* from FILES on, splits of new samples */

typedef struct idx_split {
  bool opened;
  char *name; /* name of a split of new samples; NULL for TRAIN and TEST */
  idx_file images, labels;
  size_t sample_bytes;
} idx_split;

typedef struct idx_dataset {
  const idx_params *params;
  idx_split *split;
  int splits;
} idx_dataset;

static int split_of(const idx_dataset *d, const char *split)
{
  if (strcmp(split, "train") == 0) return TRAIN;
  if (strcmp(split, "test") == 0) return TEST;
  for (int i = FILES; i < d->splits; i++)
    if (strcmp(d->split[i].name, split) == 0) return i;
  return -1;
}

static brim_status split_find(const idx_dataset *d, const char *split, int *out)
{
  *out = split_of(d, split);
  if (*out < 0 || (*out == TEST && d->params->test_images[0] == '\0'))
    return brim_fail(BRIM_ENOTSUP, "the dataset has no split '%s'", split);
  return BRIM_OK;
}

/* Makes spelling `which` of a file's name: as configured, with ".gz", with a dot before "idx", with both. Returns false
 * if there is no such spelling. */
static bool spell(const char *base, int which, char *out, size_t room)
{
  const char *dash = strstr(base, "-idx");
  if (which >= 2 && !dash) return false;
  snprintf(out, room, "%s%s", base, which & 1 ? ".gz" : "");
  if (which >= 2 && (size_t)(dash - base) < room) out[dash - base] = '.';
  return true;
}

static brim_status fail_missing(const char *folder, const char *what, const char *base)
{
  char name[NAME_ROOM], looked[NAME_ROOM / 2];
  size_t used = 0;
  for (int which = 0; which < 4 && spell(base, which, name, sizeof name) && used < sizeof looked; which++)
    used += (size_t)snprintf(looked + used, sizeof looked - used, "%s%s", which ? ", " : "", name);
  const bool debian = strncmp(folder, DEBIAN_FOLDER, strlen(DEBIAN_FOLDER)) == 0;
  return brim_fail(BRIM_ELOAD, "no %s in '%s'\nlooked for %s\n%s", what, folder, looked,
                   debian ? "Debian's package dataset-fashion-mnist installs them there"
                          : "set dataset.path to the folder that holds the files");
}

/* Opens one of a split's files under any of its spellings, and writes its full name to `name`. */
static brim_status file_open(const char *folder, const char *what, const char *base, char *name, int *fd)
{
  /* With O_PATH, opening files in a folder needs only search permission. */
  const int dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) {
    const int reason = errno;
    if (reason == ENOENT && strncmp(folder, DEBIAN_FOLDER, strlen(DEBIAN_FOLDER)) == 0)
      return brim_fail(BRIM_ELOAD, "no folder '%s'\nDebian's package dataset-fashion-mnist installs it", folder);
    return brim_fail(BRIM_ELOAD, "cannot open the dataset's folder '%s': %s\nset dataset.path to the folder", folder,
                     strerror(reason));
  }
  char spelled[NAME_ROOM];
  *fd = -1;
  int reason = ENOENT;
  for (int which = 0; which < 4 && reason == ENOENT && spell(base, which, spelled, sizeof spelled); which++) {
    /* O_NONBLOCK: if the file is a pipe, openat() does not wait for its other end. */
    *fd = openat(dir, spelled, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    reason = *fd < 0 ? errno : 0;
  }
  close(dir);
  if (reason == ENOENT) return fail_missing(folder, what, base);
  const bool absolute = spelled[0] == '/';
  snprintf(name, NAME_ROOM, "%.3000s%s%.1000s", absolute ? "" : folder, absolute ? "" : "/", spelled);
  if (reason != 0) return brim_fail(BRIM_ELOAD, "cannot open '%s': %s", name, strerror(reason));
  return BRIM_OK;
}

static brim_status images_open(const idx_dataset *d, int split, char *name, int *fd)
{
  return file_open(d->params->path, split == TRAIN ? "training images" : "test images",
                   split == TRAIN ? d->params->train_images : d->params->test_images, name, fd);
}

static brim_status labels_open(const idx_dataset *d, int split, char *name, int *fd)
{
  return file_open(d->params->path, split == TRAIN ? "training labels" : "test labels",
                   split == TRAIN ? d->params->train_labels : d->params->test_labels, name, fd);
}

static brim_status check_images(const char *name, const idx_file *images)
{
  if (images->rank != 3 && images->rank != 4)
    return brim_fail(BRIM_ELOAD,
                     "'%s' has %d dimension%s; images have 3, [count, rows, columns], or 4, [count, channels, rows, "
                     "columns]",
                     name, images->rank, images->rank == 1 ? "" : "s");
  for (int32_t i = 1; i < images->rank; i++)
    if (images->dim[i] == 0) return brim_fail(BRIM_ELOAD, "'%s': images of size 0 in dimension %d", name, i);
  return BRIM_OK;
}

static brim_status check_labels(const char *name, const idx_file *labels, int64_t classes)
{
  unsigned char most = 0; /* this loop has no branch, so compilers vectorise it */
  for (uint64_t i = 0; i < labels->bytes; i++) most = labels->values[i] > most ? labels->values[i] : most;
  if (most < classes) return BRIM_OK;
  uint64_t i = 0;
  while (labels->values[i] < classes) i++;
  return brim_fail(BRIM_ELOAD,
                   "'%s': label %d of sample %" PRIu64 " is out of range: with dataset.classes=%" PRId64
                   ", labels are 0 to %" PRId64,
                   name, labels->values[i], i, classes, classes - 1);
}

static brim_status labels_load(const idx_dataset *d, int which, char *name, idx_file *labels)
{
  int fd = -1;
  BRIM_TRY(labels_open(d, which, name, &fd));
  brim_status status = idx_file_read(fd, name, labels);
  close(fd);
  BRIM_TRY(status);
  if (labels->rank != 1)
    return brim_fail(BRIM_ELOAD, "'%s' has %d dimensions; labels have 1, [count]", name, labels->rank);
  return check_labels(name, labels, d->params->classes);
}

/* Loads the labels first: they are small, so a mismatch of the files is found before pixels are inflated. */
static brim_status split_load(const idx_dataset *d, int which, idx_split *s)
{
  char images_name[NAME_ROOM], labels_name[NAME_ROOM];
  int fd = -1;
  BRIM_TRY(images_open(d, which, images_name, &fd));
  brim_status status = labels_load(d, which, labels_name, &s->labels);
  idx_file header = {0};
  if (status == BRIM_OK) status = idx_file_header(fd, images_name, &header);
  if (status == BRIM_OK) status = check_images(images_name, &header);
  if (status == BRIM_OK && header.dim[0] != s->labels.dim[0])
    status = brim_fail(BRIM_ELOAD, "'%s' holds %" PRId64 " images but '%s' holds %" PRId64 " labels", images_name,
                       header.dim[0], labels_name, s->labels.dim[0]);
  if (status == BRIM_OK) status = idx_file_read(fd, images_name, &s->images);
  close(fd);
  if (status == BRIM_OK && s->images.dim[0] > 0) s->sample_bytes = s->images.bytes / (uint64_t)s->images.dim[0];
  return status;
}

static void split_free(idx_split *s)
{
  idx_file_free(&s->images);
  idx_file_free(&s->labels);
  free(s->name);
  *s = (idx_split){0};
}

static brim_status idx_create(const void *params, void **self)
{
  const idx_params *p = params;
  if (p->class_names.count > 0 && (int64_t)p->class_names.count != p->classes)
    return brim_fail(BRIM_ECONFIG, "dataset.class_names has %zu names, but dataset.classes is %" PRId64,
                     p->class_names.count, p->classes);
  idx_dataset *d = brim_try_calloc(1, sizeof *d);
  if (!d) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the dataset");
  d->params = params;
  d->splits = FILES;
  d->split = brim_try_calloc(FILES, sizeof *d->split);
  if (!d->split) {
    free(d);
    return brim_fail(BRIM_ENOMEM_HOST, "no memory for the dataset");
  }
  *self = d;
  return BRIM_OK;
}

static void idx_destroy(void *self)
{
  idx_dataset *d = self;
  if (!d) return;
  for (int i = 0; i < d->splits; i++) split_free(&d->split[i]);
  free(d->split);
  free(d);
}

static brim_status idx_open(void *self, const char *split)
{
  idx_dataset *d = self;
  int which = 0;
  BRIM_TRY(split_find(d, split, &which));
  idx_split *s = &d->split[which];
  if (s->opened) return BRIM_OK;
  const brim_status status = split_load(d, which, s);
  if (status != BRIM_OK) split_free(s);
  s->opened = status == BRIM_OK;
  return status;
}

/* Returns the header of a split's images. If the split is not open, reads it from the file. */
static brim_status images_header(const idx_dataset *d, int which, idx_file *header)
{
  char name[NAME_ROOM];
  int fd = -1;
  *header = d->split[which].images;
  if (d->split[which].opened) return BRIM_OK;
  BRIM_TRY(images_open(d, which, name, &fd));
  const brim_status status = idx_file_header(fd, name, header);
  close(fd);
  return status == BRIM_OK ? check_images(name, header) : status;
}

static brim_status idx_describe(const void *self, const char *split, brim_dataset_info *out)
{
  const idx_dataset *d = self;
  int which = 0;
  idx_file header;
  BRIM_TRY(split_find(d, split, &which));
  BRIM_TRY(images_header(d, which, &header));
  *out = (brim_dataset_info){.count = header.dim[0], .dtype = BRIM_DTYPE_U8, .classes = d->params->classes};
  if (d->params->class_names.count > 0) out->class_names = d->params->class_names.item;
  out->sample.rank = 3;
  out->sample.dim[0] = header.rank == 4 ? header.dim[1] : 1;
  out->sample.dim[1] = header.dim[header.rank - 2];
  out->sample.dim[2] = header.dim[header.rank - 1];
  return BRIM_OK;
}

/* Counts the pixels and one byte for each label. */
static brim_status idx_host_bytes(const void *self, const char *split, uint64_t *out)
{
  const idx_dataset *d = self;
  int which = 0;
  idx_file header;
  BRIM_TRY(split_find(d, split, &which));
  BRIM_TRY(images_header(d, which, &header));
  *out = header.bytes + (d->split[which].name ? 0 : (uint64_t)header.dim[0]);
  return BRIM_OK;
}

static brim_status idx_read(const void *self, const char *split, int64_t index, void *values, void *label)
{
  const idx_dataset *d = self;
  const int which = split_of(d, split);
  if (which < 0 || !d->split[which].opened) return brim_fail(BRIM_EINVAL, "split '%s' is not open", split);
  const idx_split *s = &d->split[which];
  if (index < 0 || index >= s->images.dim[0])
    return brim_fail(BRIM_EINVAL, "sample %" PRId64 " of %" PRId64 ": out of range", index, s->images.dim[0]);
  memcpy(values, s->images.values + (size_t)index * s->sample_bytes, s->sample_bytes);
  *(int32_t *)label = s->name ? -1 : s->labels.values[index];
  return BRIM_OK;
}

static brim_status file_load(const char *path, idx_split *s)
{
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return brim_fail(BRIM_ELOAD, "cannot open '%s': %s", path, strerror(errno));
  idx_file header = {0};
  brim_status status = idx_file_header(fd, path, &header);
  if (status == BRIM_OK && header.rank == 1)
    status = brim_fail(BRIM_ELOAD, "'%s' has 1 dimension, like labels; a file of images is needed", path);
  if (status == BRIM_OK) status = check_images(path, &header);
  if (status == BRIM_OK) status = idx_file_read(fd, path, &s->images);
  close(fd);
  if (status == BRIM_OK && s->images.dim[0] > 0) s->sample_bytes = s->images.bytes / (uint64_t)s->images.dim[0];
  return status;
}

static brim_status idx_open_file(void *self, const char *path, const char *split)
{
  idx_dataset *d = self;
  if (split_of(d, split) >= 0) return brim_fail(BRIM_EINVAL, "split '%s' already exists", split);
  idx_split s = {.opened = true, .name = strdup(split)};
  const bool refused = !s.name || brim_fault_hit(BRIM_FAULT_ALLOC, NULL);
  idx_split *grown = refused ? NULL : realloc(d->split, (size_t)(d->splits + 1) * sizeof *grown);
  if (grown) d->split = grown;
  const brim_status status = grown ? file_load(path, &s) : brim_fail(BRIM_ENOMEM_HOST, "no memory for '%s'", path);
  if (status == BRIM_OK)
    d->split[d->splits++] = s;
  else
    split_free(&s);
  return status;
}

static const brim_dataset_ops ops = {.size = sizeof(brim_dataset_ops),
                                     .open = idx_open,
                                     .describe = idx_describe,
                                     .read = idx_read,
                                     .open_file = idx_open_file,
                                     .host_bytes = idx_host_bytes};

static const brim_plugin idx = {
    .size = sizeof(brim_plugin),
    .kind = BRIM_DATASET,
    .id = "idx",
    .help = "images and labels in IDX files, plain or gzip (MNIST, Fashion-MNIST, KMNIST, EMNIST)",
    .params_size = sizeof(idx_params),
    .params = table,
    .create = idx_create,
    .destroy = idx_destroy,
    .ops = &ops,
};

static const brim_plugin *const plugins[] = {&idx, NULL};
BRIM_MODULE("brim-idx", "0.1", plugins)
