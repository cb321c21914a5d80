/* Finds and reads a tokenizer's files. See tokenizer.h. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "brim/host.h"
#include "parts.h"

#define FILE_BYTES_MAX ((size_t)256 << 20)
#define WHERE_FROM                                                                                                     \
  "Hugging Face has tokenizer.json with most models (https://huggingface.co), and vocab.json and merges.txt of GPT-2 " \
  "at https://huggingface.co/openai-community/gpt2"

/* The files that a folder may have. A tokenizer has one file or a pair of files. */
static const char *const pairs[][2] = {
    {"vocab.json", "merges.txt"}, {"encoder.json", "vocab.bpe"}, {"tokenizer.json", NULL}};
#define PAIRS (sizeof pairs / sizeof pairs[0])

typedef struct file {
  char name[NAME_ROOM]; /* empty if there is no such file */
  char *bytes;
  size_t count;
} file;

/* Sets the name to that of a file in the folder, if the file exists. */
static bool name_file(file *f, const char *folder, size_t folder_bytes, const char *name)
{
  f->name[0] = '\0';
  if (!name) return true;
  const int length = snprintf(f->name, NAME_ROOM, "%.*s%s", (int)folder_bytes, folder, name);
  if (length < NAME_ROOM && access(f->name, F_OK) == 0) return true;
  f->name[0] = '\0';
  return false;
}

static brim_status find_in_folder(const char *path, bool prefer_json, file *vocabulary, file *merges, file *config)
{
  char folder[NAME_ROOM];
  const int bytes = snprintf(folder, sizeof folder, "%s/", path);
  if (bytes >= (int)sizeof folder) return brim_fail(BRIM_EINVAL, "path '%.100s...' is too long", path);
  (void)name_file(config, folder, (size_t)bytes, "tokenizer_config.json");
  for (size_t i = 0; i < PAIRS; i++) {
    const size_t k = prefer_json ? (i + PAIRS - 1) % PAIRS : i;
    if (name_file(vocabulary, folder, (size_t)bytes, pairs[k][0]) &&
        name_file(merges, folder, (size_t)bytes, pairs[k][1]))
      return BRIM_OK;
  }
  const brim_status status =
      brim_fail(BRIM_ELOAD,
                "no vocabulary in '%s'\nlooked for vocab.json and merges.txt, encoder.json and vocab.bpe, "
                "tokenizer.json",
                path);
  if (name_file(merges, folder, (size_t)bytes, "tokenizer.model"))
    return brim_fail_add(
        status,
        "'%s' is for SentencePiece or tiktoken; transformers makes a tokenizer.json of it: python3 -c "
        "\"from transformers import AutoTokenizer as T; T.from_pretrained('%s').save_pretrained('%s')\"",
        merges->name, path, path);
  return brim_fail_add(status, "set dataset.tokenizer to a folder with one of them; %s", WHERE_FROM);
}

static brim_status find(const char *path, bool prefer_json, file *vocabulary, file *merges, file *config)
{
  struct stat st;
  if (stat(path, &st) != 0)
    return brim_fail(
        BRIM_ELOAD,
        "cannot find the vocabulary '%s': %s\nset dataset.tokenizer to its folder, or to a tokenizer.json; if a "
        "model's folder was moved, set model.weights too\n%s",
        path, strerror(errno), WHERE_FROM);
  if (S_ISDIR(st.st_mode)) return find_in_folder(path, prefer_json, vocabulary, merges, config);
  const char *slash = strrchr(path, '/');
  (void)name_file(config, path, slash ? (size_t)(slash - path) + 1 : 0, "tokenizer_config.json");
  if (snprintf(vocabulary->name, NAME_ROOM, "%s", path) < NAME_ROOM) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "path '%.100s...' is too long", path);
}

brim_status tokenizer_open(const char *path, bool prefer_json, tokenizer **out)
{
  if (tokenizer_is_in_gguf(path)) return tokenizer_open_gguf(path, out);
  file f[3] = {{.bytes = NULL}}; /* vocabulary, merges and config */
  tokenizer_source s[3];
  brim_status status = find(path, prefer_json, &f[0], &f[1], &f[2]);
  for (int i = 0; i < 3; i++) {
    if (status == BRIM_OK && f[i].name[0]) status = brim_read_file(f[i].name, FILE_BYTES_MAX, &f[i].bytes, &f[i].count);
    s[i] = (tokenizer_source){f[i].name, f[i].bytes, f[i].count};
  }
  if (status == BRIM_OK) status = tokenizer_build(&s[0], f[1].name[0] ? &s[1] : NULL, f[2].name[0] ? &s[2] : NULL, out);
  for (int i = 0; i < 3; i++) free(f[i].bytes);
  return status;
}
