/* A folder for the files of one test program, and functions for whole files. Failures end the test. */
#ifndef BRIM_TESTS_SCRATCH_H
#define BRIM_TESTS_SCRATCH_H
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCRATCH_PATH 4096
#define SCRATCH_MEMORY "/dev/shm" /* fast for thousands of small files; TMPDIR overrides it */

static char scratch_root[SCRATCH_PATH];

static inline void scratch_check(int ok, const char *what)
{
  if (ok) return;
  fprintf(stderr, "test files: %s: %s\n", what, strerror(errno));
  abort();
}

/* Returns "<root>/<name>"; only the last few results are valid. */
__attribute__((format(printf, 1, 2))) static inline const char *scratch(const char *format, ...)
{
  static char paths[8][SCRATCH_PATH * 2];
  static unsigned next;
  char name[SCRATCH_PATH];
  char *out = paths[next++ % 8];
  va_list list;
  va_start(list, format);
  vsnprintf(name, sizeof name, format, list);
  va_end(list);
  snprintf(out, sizeof paths[0], "%s/%s", scratch_root, name);
  return out;
}

static inline int scratch_setup(void **state)
{
  (void)state;
  const char *base = getenv("TMPDIR");
  if (!base || !base[0]) base = access(SCRATCH_MEMORY, W_OK) == 0 ? SCRATCH_MEMORY : P_tmpdir;
  snprintf(scratch_root, sizeof scratch_root, "%s/brim-test-XXXXXX", base);
  scratch_check(mkdtemp(scratch_root) != NULL, scratch_root);
  return 0;
}

static inline int scratch_delete_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
  (void)info, (void)type, (void)where;
  return remove(path);
}

/* Deletes a file, or a folder with its content; it may be missing. */
static inline void scratch_delete(const char *path)
{
  nftw(path, scratch_delete_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline int scratch_teardown(void **state)
{
  (void)state;
  scratch_delete(scratch_root);
  return 0;
}

static inline void scratch_write(const char *path, const void *bytes, size_t count)
{
  FILE *file = fopen(path, "wb");
  scratch_check(file != NULL, path);
  scratch_check(fwrite(bytes, 1, count, file) == count, path);
  scratch_check(fclose(file) == 0, path);
}

/* Returns the whole file with a final NUL; the caller frees it. */
static inline char *scratch_read(const char *path, size_t *count)
{
  FILE *file = fopen(path, "rb");
  struct stat info;
  scratch_check(file != NULL && fstat(fileno(file), &info) == 0, path);
  char *bytes = malloc((size_t)info.st_size + 1);
  scratch_check(bytes && fread(bytes, 1, (size_t)info.st_size, file) == (size_t)info.st_size, path);
  bytes[info.st_size] = '\0';
  fclose(file);
  if (count) *count = (size_t)info.st_size;
  return bytes;
}

static inline int scratch_exists(const char *path)
{
  struct stat info;
  return lstat(path, &info) == 0;
}

/* Writes a text to a file below the root; creates missing folders. Readers find either the old text or the new one. */
static inline void scratch_put(const char *name, const char *text)
{
  char whole[SCRATCH_PATH], aside[SCRATCH_PATH + 8];
  snprintf(whole, sizeof whole, "%s", scratch("%s", name));
  for (char *slash = strchr(whole + strlen(scratch_root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    mkdir(whole, 0755);
    *slash = '/';
  }
  snprintf(aside, sizeof aside, "%s.aside", whole);
  scratch_write(aside, text, strlen(text));
  scratch_check(rename(aside, whole) == 0, whole);
}
#endif
