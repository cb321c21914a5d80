/* See feature_file.h. Numbers are in the host's byte order, because the folder belongs to the host. */
#include "store/feature_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "brim/host.h"

#define MAGIC 0x3153544145464D42u /* "BMFEATS1" */
#define HEADER_BYTES 4096u        /* the data after the header begins on a page */
#define WAIT_NANOSECONDS 50000000

typedef struct header {
  uint64_t magic;
  brim_feature_shape shape;
  uint64_t bytes;
} header;

brim_status brim_feature_file_path(uint64_t key, char out[BRIM_PATH_MAX])
{
  char folder[BRIM_PATH_MAX];
  const int folder_length = brim_cache_folder(folder, sizeof folder);
  if (folder_length < 0) return brim_fail(BRIM_ECONFIG, "no folder to keep features in: set XDG_CACHE_HOME or HOME");
  const int length = snprintf(out, BRIM_PATH_MAX, "%s/features/%016llx.bin", folder, (unsigned long long)key);
  if (folder_length < BRIM_PATH_MAX && length < BRIM_PATH_MAX) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "the path of the folder to keep features in is too long: see XDG_CACHE_HOME");
}

/* ---- offsets ---- */

static uint64_t label_offset(const brim_feature_shape *s, enum brim_feature_split split)
{
  return HEADER_BYTES + (split == BRIM_FEATURES_TEST ? sizeof(int32_t) * (uint64_t)s->count[BRIM_FEATURES_TRAIN] : 0);
}

static uint64_t value_offset(const brim_feature_shape *s, enum brim_feature_split split)
{
  const uint64_t all = (uint64_t)(s->count[BRIM_FEATURES_TRAIN] + s->count[BRIM_FEATURES_TEST]);
  const uint64_t labels = (sizeof(int32_t) * all + HEADER_BYTES - 1) / HEADER_BYTES * HEADER_BYTES;
  const uint64_t before = split == BRIM_FEATURES_TEST ? (uint64_t)s->count[BRIM_FEATURES_TRAIN] : 0;
  return HEADER_BYTES + labels + sizeof(float) * (uint64_t)s->values * before;
}

static uint64_t file_bytes(const brim_feature_shape *s)
{
  return value_offset(s, BRIM_FEATURES_TEST) + sizeof(float) * (uint64_t)(s->values * s->count[BRIM_FEATURES_TEST]);
}

static header header_of(const brim_feature_shape *s)
{
  return (header){MAGIC, *s, file_bytes(s)};
}

/* ---- reading ---- */

static bool is_whole(int fd, const header *expected)
{
  header found;
  struct stat info;
  if (fstat(fd, &info) != 0 || (uint64_t)info.st_size != expected->bytes) return false;
  return pread(fd, &found, sizeof found, 0) == (ssize_t)sizeof found && memcmp(&found, expected, sizeof found) == 0;
}

bool brim_feature_file_open(const char *path, const brim_feature_shape *shape, brim_feature_file *out)
{
  const header expected = header_of(shape);
  const int fd = brim_open_to_read(path);
  if (fd < 0) return false;
  void *map = MAP_FAILED;
  if (is_whole(fd, &expected))
    map = mmap(NULL, expected.bytes, PROT_READ, MAP_SHARED, fd, 0);
  else
    brim_log(BRIM_LOG_WARN, "'%s' is not a valid file of features: computing them again", path);
  close(fd);
  if (map == MAP_FAILED) return false;
  *out = (brim_feature_file){*shape, map, expected.bytes};
  return true;
}

void brim_feature_file_close(brim_feature_file *file)
{
  if (file->map) munmap((void *)file->map, file->bytes);
  *file = (brim_feature_file){.map = NULL};
}

const float *brim_feature_file_sample(const brim_feature_file *file, enum brim_feature_split split, int64_t i,
                                      int32_t *label)
{
  const brim_feature_shape *s = &file->shape;
  const char *start = file->map;
  memcpy(label, start + label_offset(s, split) + sizeof *label * (uint64_t)i, sizeof *label);
  return (const float *)(const void *)(start + value_offset(s, split)) + i * s->values;
}

/* ---- writing ---- */

/* Waits until no other process is writing the file. */
static brim_status begin(brim_feature_writer *w, const volatile int *stop)
{
  for (bool logged = false;;) {
    BRIM_TRY(brim_cache_begin(w->path, &w->fd));
    if (w->fd >= 0) return BRIM_OK;
    if (stop && *stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted while another run computed the features");
    if (!logged) brim_log(BRIM_LOG_INFO, "features: waiting for another run that computes them");
    logged = true;
    nanosleep(&(struct timespec){.tv_nsec = WAIT_NANOSECONDS}, NULL);
  }
}

brim_status brim_feature_writer_open(brim_feature_writer *w, const char *path, const brim_feature_shape *shape,
                                     const volatile int *stop)
{
  *w = (brim_feature_writer){.shape = *shape, .fd = -1};
  snprintf(w->path, sizeof w->path, "%s", path);
  BRIM_TRY(begin(w, stop));
  const brim_status status = brim_file_set_length(w->fd, w->path, file_bytes(shape));
  if (status != BRIM_OK) brim_feature_writer_cancel(w);
  return status;
}

brim_status brim_feature_writer_put(brim_feature_writer *w, enum brim_feature_split split, int64_t i,
                                    const float *values, int32_t label)
{
  const brim_feature_shape *s = &w->shape;
  const uint64_t row = sizeof *values * (uint64_t)s->values;
  BRIM_TRY(brim_file_write_at(w->fd, w->path, values, row, value_offset(s, split) + row * (uint64_t)i));
  return brim_file_write_at(w->fd, w->path, &label, sizeof label, label_offset(s, split) + sizeof label * (uint64_t)i);
}

brim_status brim_feature_writer_close(brim_feature_writer *w)
{
  const header head = header_of(&w->shape);
  const brim_status status = brim_file_write_at(w->fd, w->path, &head, sizeof head, 0);
  if (status != BRIM_OK) brim_feature_writer_cancel(w);
  return status == BRIM_OK ? brim_cache_end(w->path, &w->fd, true) : status;
}

void brim_feature_writer_cancel(brim_feature_writer *w)
{
  (void)brim_cache_end(w->path, &w->fd, false);
}
