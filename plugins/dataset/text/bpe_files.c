/* Finding and reading a vocabulary's files. See bpe.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bpe.h"
#include "brim/host.h"

#define NAME_ROOM 4096
#define FILE_BYTES_MAX ((size_t)256 << 20)
#define WHERE_FROM                                                                                                     \
  "Hugging Face has vocab.json and merges.txt at https://huggingface.co/openai-community/gpt2, OpenAI encoder.json "   \
  "and vocab.bpe at https://openaipublic.blob.core.windows.net/gpt-2/models/124M"

/* The pairs of files that a folder may have. */
static const char *const pairs[][2] = {{"vocab.json", "merges.txt"}, {"encoder.json", "vocab.bpe"}};
#define PAIRS (sizeof pairs / sizeof pairs[0])

typedef struct file {
  char name[NAME_ROOM];
  char *bytes;
  size_t count;
} file;

static brim_status read_all(int fd, file *f)
{
  struct stat st;
  if (fstat(fd, &st) != 0) return brim_fail(BRIM_ELOAD, "cannot read '%s': %s", f->name, strerror(errno));
  if (!S_ISREG(st.st_mode) || (size_t)st.st_size > FILE_BYTES_MAX)
    return brim_fail(BRIM_ELOAD, "'%s' is not a regular file of at most 256 MiB", f->name);
  f->bytes = brim_try_calloc((size_t)st.st_size + 1, 1);
  if (!f->bytes) return brim_fail(BRIM_ENOMEM_HOST, "no memory for '%s'", f->name);
  f->count = (size_t)st.st_size;
  return brim_read_whole(f->name, fd, f->count, f->bytes);
}

static brim_status read_file(file *f)
{
  const int fd = open(f->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return brim_fail(BRIM_ELOAD, "cannot open '%s': %s", f->name, strerror(errno));
  const brim_status status = read_all(fd, f);
  close(fd);
  return status;
}

static bool join(char *out, const char *folder, const char *name)
{
  return snprintf(out, NAME_ROOM, "%s/%s", folder, name) < NAME_ROOM;
}

/* Finds the files' names; an empty second name means that the first is a tokenizer.json. */
static brim_status find(const char *path, file *vocabulary, file *merges)
{
  struct stat st;
  if (stat(path, &st) != 0)
    return brim_fail(BRIM_ELOAD, "cannot find the vocabulary '%s': %s\nset dataset.tokenizer to its folder; %s", path,
                     strerror(errno), WHERE_FROM);
  merges->name[0] = '\0';
  if (!S_ISDIR(st.st_mode)) {
    if (snprintf(vocabulary->name, NAME_ROOM, "%s", path) < NAME_ROOM) return BRIM_OK;
    return brim_fail(BRIM_EINVAL, "path '%.100s...' is too long", path);
  }
  for (size_t i = 0; i < PAIRS; i++)
    if (join(vocabulary->name, path, pairs[i][0]) && join(merges->name, path, pairs[i][1]) &&
        access(vocabulary->name, F_OK) == 0 && access(merges->name, F_OK) == 0)
      return BRIM_OK;
  merges->name[0] = '\0';
  if (join(vocabulary->name, path, "tokenizer.json") && access(vocabulary->name, F_OK) == 0) return BRIM_OK;
  return brim_fail(BRIM_ELOAD,
                   "no vocabulary in '%s'\nlooked for vocab.json and merges.txt, encoder.json and vocab.bpe, "
                   "tokenizer.json\n%s",
                   path, WHERE_FROM);
}

brim_status bpe_open(const char *path, bpe **out)
{
  file vocabulary = {.bytes = NULL}, merges = {.bytes = NULL};
  brim_status status = find(path, &vocabulary, &merges);
  if (status == BRIM_OK) status = read_file(&vocabulary);
  if (status == BRIM_OK && merges.name[0]) status = read_file(&merges);
  if (status == BRIM_OK) {
    const bpe_source v = {vocabulary.name, vocabulary.bytes, vocabulary.count};
    const bpe_source m = {merges.name, merges.bytes, merges.count};
    status = bpe_build(&v, merges.name[0] ? &m : NULL, out);
  }
  free(vocabulary.bytes);
  free(merges.bytes);
  return status;
}
