/* Tokenized text: windows over files of token ids, which are mapped into memory.
 *
 * llm.c (dev/data/NAME.py) and nanoGPT (data/NAME/prepare.py) write such files. Opening a split checks all ids against
 * the vocabulary, unless the files are too large; then the ids are checked when they are read. */
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brim/brim.h"
#include "splits.h"
#include "windows.h"

#define NAME_ROOM 4096
#define SCAN_BYTES ((uint64_t)256 << 20) /* maximum bytes of a split whose ids open() checks */

typedef struct tokens_params {
  const char *path, *train, *validation, *test;
  int64_t vocabulary, context, stride, separator;
  int32_t format;
} tokens_params;

static const brim_param table[] = {
    BRIM_PARAM(PATH, tokens_params, path, NULL, NULL,
               "folder of the files, as written by llm.c's dev/data and nanoGPT's prepare.py"),
    BRIM_PARAM(STR, tokens_params, train, "*train*.bin", NULL, "training files: a name or pattern"),
    BRIM_PARAM(STR, tokens_params, validation, "auto", NULL,
               "validation files; auto: *val*.bin if there are any; empty: no validation split"),
    BRIM_PARAM(STR, tokens_params, test, "", NULL, "test files; empty: no test split"),
    BRIM_PARAM(I64, tokens_params, vocabulary, "50257", "[2,2147483647]",
               "size of the vocabulary; token ids are 0 to vocabulary-1"),
    BRIM_PARAM(I64, tokens_params, context, "1024", "[1,16777216]", "tokens in a sample"),
    BRIM_PARAM(I64, tokens_params, stride, "0", "[0,16777216]",
               "tokens from the start of a sample to that of the next; 0: context, so that samples do not overlap"),
    BRIM_PARAM(
        I64, tokens_params, separator, "-1", "[-1,2147483647]",
        "token that begins a document (GPT-2's end of text is 50256): tokens then see no other document of their "
        "sample; -1: a sample is one document"),
    BRIM_PARAM(ENUM, tokens_params, format, "auto", "auto|uint16|uint32",
               "type of a token; auto: from the header of llm.c's format, without one uint16"),
    BRIM_PARAMS_END};

static const char *const split_whats[SPLITS] = {"the training tokens", "the validation tokens", "the test tokens"};

typedef struct tokens_dataset {
  const tokens_params *params;
  windows split[SPLITS]; /* part_count is 0 if the split is not open */
} tokens_dataset;

/* ---- which files ---- */

static bool is_auto(const tokens_params *p, int split)
{
  return split == VALIDATION && strcmp(p->validation, "auto") == 0;
}

static const char *pattern_of(const tokens_params *p, int split)
{
  if (split == TRAIN) return p->train;
  if (split == TEST) return p->test;
  return is_auto(p, split) ? "*val*.bin" : p->validation;
}

static brim_status split_find(const tokens_params *p, const char *name, int *out)
{
  *out = split_by_name(name);
  return *out < SPLITS && pattern_of(p, *out)[0] ? BRIM_OK : split_missing(name);
}

/* Splits a pattern into its folder and the pattern of names in that folder; a pattern may begin with folders. */
static brim_status folder_of(const tokens_params *p, const char *pattern, char *folder, const char **name)
{
  const char *slash = strrchr(pattern, '/');
  int length;
  if (!slash)
    length = snprintf(folder, NAME_ROOM, "%s", p->path);
  else if (pattern[0] == '/')
    length = snprintf(folder, NAME_ROOM, "%.*s", (int)(slash == pattern ? 1 : slash - pattern), pattern);
  else
    length = snprintf(folder, NAME_ROOM, "%s/%.*s", p->path, (int)(slash - pattern), pattern);
  if (length < 0 || length >= NAME_ROOM) return brim_fail(BRIM_EINVAL, "path '%.100s...' is too long", folder);
  *name = slash ? slash + 1 : pattern;
  return BRIM_OK;
}

static brim_status add_file(const tokens_params *p, const char *folder, const char *name, windows *w)
{
  char path[NAME_ROOM];
  token_file file;
  const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
  if (length < 0 || (size_t)length >= sizeof path) return brim_fail(BRIM_EINVAL, "path '%.100s...' is too long", path);
  BRIM_TRY(token_file_open(path, (enum token_format)p->format, &file));
  return windows_add(w, &file, path);
}

/* Adds all files of a folder whose names match, in the order of their names. */
static brim_status add_files(const tokens_params *p, const char *folder, const char *pattern, windows *w)
{
  struct dirent **entry = NULL;
  brim_status status = BRIM_OK;
  const int count = scandir(folder, &entry, NULL, alphasort);
  if (count < 0)
    return brim_fail(BRIM_ELOAD, "cannot read the dataset's folder '%s': %s\nset dataset.path to the folder", folder,
                     strerror(errno));
  for (int i = 0; i < count; i++) {
    if (status == BRIM_OK && fnmatch(pattern, entry[i]->d_name, FNM_PERIOD) == 0)
      status = add_file(p, folder, entry[i]->d_name, w);
    free(entry[i]);
  }
  free(entry);
  return status;
}

static brim_status check_files(const tokens_params *p, int split, const char *folder, const char *name,
                               const windows *w)
{
  if (w->part_count > 0) return windows_check(w, split_whats[split]);
  if (is_auto(p, split)) return split_missing(split_names[split]);
  return brim_fail(BRIM_ELOAD,
                   "no file '%s' in '%s'\ndataset.%s names files in the folder dataset.path; llm.c "
                   "(dev/data/tinyshakespeare.py) and nanoGPT (data/openwebtext/prepare.py) make such files",
                   name, folder, split_names[split]);
}

/* Maps a split's files and reads their headers. Returns ENOTSUP if there is no such split. *w is empty after a
 * failure. */
static brim_status map_files(const tokens_params *p, int split, windows *w)
{
  char folder[NAME_ROOM];
  const char *name = NULL;
  *w = (windows){.context = p->context,
                 .stride = p->stride ? p->stride : p->context,
                 .vocabulary = p->vocabulary,
                 .documents = p->separator >= 0,
                 .separator = p->separator};
  BRIM_TRY(folder_of(p, pattern_of(p, split), folder, &name));
  brim_status status = add_files(p, folder, name, w);
  if (status == BRIM_OK) status = check_files(p, split, folder, name, w);
  if (status != BRIM_OK) windows_free(w);
  return status;
}

/* ---- the plugin ---- */

static brim_status tokens_create(const void *params, void **self)
{
  const tokens_params *p = params;
  if (p->separator >= p->vocabulary)
    return brim_fail(BRIM_ECONFIG, "dataset.separator is %lld, but tokens are 0 to %lld (dataset.vocabulary)",
                     (long long)p->separator, (long long)p->vocabulary - 1);
  tokens_dataset *d = brim_try_calloc(1, sizeof *d);
  if (!d) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the dataset");
  d->params = params;
  *self = d;
  return BRIM_OK;
}

static void tokens_destroy(void *self)
{
  tokens_dataset *d = self;
  for (int i = 0; d && i < SPLITS; i++) windows_free(&d->split[i]);
  free(d);
}

static brim_status tokens_open(void *self, const char *split)
{
  tokens_dataset *d = self;
  windows w;
  int which = 0;
  BRIM_TRY(split_find(d->params, split, &which));
  if (d->split[which].part_count > 0) return BRIM_OK;
  BRIM_TRY(map_files(d->params, which, &w));
  const brim_status status = w.bytes <= SCAN_BYTES ? windows_scan(&w) : BRIM_OK;
  if (status == BRIM_OK)
    d->split[which] = w;
  else
    windows_free(&w);
  return status;
}

/* Counts windows and bytes. If the split is not open, uses the files' headers. */
static brim_status measure(const tokens_dataset *d, const char *split, int64_t *count, uint64_t *bytes)
{
  windows w;
  int which = 0;
  BRIM_TRY(split_find(d->params, split, &which));
  const bool opened = d->split[which].part_count > 0;
  if (!opened) BRIM_TRY(map_files(d->params, which, &w));
  const windows *from = opened ? &d->split[which] : &w;
  *count = from->count;
  *bytes = from->bytes;
  if (!opened) windows_free(&w);
  return BRIM_OK;
}

static brim_status tokens_describe(const void *self, const char *split, brim_dataset_info *out)
{
  const tokens_dataset *d = self;
  *out = (brim_dataset_info){.sample = {1, {d->params->context}},
                             .dtype = BRIM_DTYPE_I32,
                             .classes = d->params->vocabulary,
                             .task = BRIM_TASK_TOKENS,
                             .documents = d->params->separator >= 0};
  return measure(d, split, &out->count, &out->mapped_bytes);
}

/* Counts mapped bytes, because pages that were read stay in memory until the system needs it. */
static brim_status tokens_host_bytes(const void *self, const char *split, uint64_t *out)
{
  int64_t count = 0;
  return measure(self, split, &count, out);
}

static brim_status tokens_read(const void *self, const char *split, int64_t index, void *values, void *label)
{
  const tokens_dataset *d = self;
  int which = 0;
  BRIM_TRY(split_find(d->params, split, &which));
  if (d->split[which].part_count == 0) return brim_fail(BRIM_EINVAL, "split '%s' is not open", split);
  return windows_read(&d->split[which], index, values, label);
}

/* Each file is a client. */
static brim_status tokens_client(const void *self, const char *split, int64_t index, int64_t *out)
{
  const tokens_dataset *d = self;
  int which = 0;
  BRIM_TRY(split_find(d->params, split, &which));
  *out = windows_part_of(&d->split[which], index);
  return *out >= 0 ? BRIM_OK : brim_fail(BRIM_EINVAL, "split '%s' has no sample %lld", split, (long long)index);
}

static const brim_dataset_ops ops = {.size = sizeof ops,
                                     .open = tokens_open,
                                     .describe = tokens_describe,
                                     .read = tokens_read,
                                     .host_bytes = tokens_host_bytes,
                                     .validation_split = "validation",
                                     .client = tokens_client};

static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_DATASET,
    .id = "tokens",
    .help = "files of token ids in the formats of llm.c and nanoGPT, for language models",
    .params_size = sizeof(tokens_params),
    .params = table,
    .create = tokens_create,
    .destroy = tokens_destroy,
    .ops = &ops,
};

static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-tokens", "0.1", plugins)
