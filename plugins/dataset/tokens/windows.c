/* Windows over files of tokens. See windows.h. */
#include "windows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "brim/host.h"

int64_t windows_in(const windows *w, int64_t tokens)
{
  return tokens <= w->context ? 0 : (tokens - 1 - w->context) / w->stride + 1;
}

brim_status windows_add(windows *w, token_file *file, const char *name)
{
  const int refused = brim_fault_hit(BRIM_FAULT_ALLOC, NULL);
  windows_part *grown = refused ? NULL : realloc(w->part, (w->part_count + 1) * sizeof *grown);
  if (grown) w->part = grown;
  char *copy = grown ? strdup(name) : NULL;
  if (!copy) {
    token_file_close(file);
    return brim_fail(BRIM_ENOMEM_HOST, "no memory for the name of '%s'", name);
  }
  w->part[w->part_count++] = (windows_part){*file, copy, w->count};
  w->count += windows_in(w, file->count);
  w->tokens += file->count;
  w->bytes += (uint64_t)file->count * (uint64_t)file->width;
  return BRIM_OK;
}

brim_status windows_fail_few(const windows *w, const char *what, const char *name, int more, int64_t tokens)
{
  return brim_fail(BRIM_ELOAD,
                   "%s, '%s'%s, are too few: a sample needs %" PRId64 " consecutive tokens, dataset.context + 1, but "
                   "there are %" PRId64,
                   what, name, more ? " and others" : "", w->context + 1, tokens);
}

brim_status windows_check(const windows *w, const char *what)
{
  return w->count > 0 ? BRIM_OK : windows_fail_few(w, what, w->part[0].name, w->part_count > 1, w->tokens);
}

static brim_status fail_beyond(const windows *w, const windows_part *p, int64_t at)
{
  return brim_fail(BRIM_ELOAD,
                   "'%s': token %" PRId64 " is %" PRIu32 ", but the vocabulary has %" PRId64 " tokens, 0 to %" PRId64
                   "\ncheck dataset.vocabulary and dataset.format",
                   p->name, at, token_file_at(&p->file, at), w->vocabulary, w->vocabulary - 1);
}

brim_status windows_scan(const windows *w)
{
  for (size_t i = 0; i < w->part_count; i++) {
    const int64_t at = token_file_find_beyond(&w->part[i].file, w->vocabulary);
    if (at >= 0) return fail_beyond(w, &w->part[i], at);
  }
  return BRIM_OK;
}

/* Returns the file of a window: the last file whose first window is at or before it. */
static const windows_part *part_of(const windows *w, int64_t index)
{
  size_t low = 0, high = w->part_count;
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    if (w->part[middle].first <= index)
      low = middle;
    else
      high = middle;
  }
  return &w->part[low];
}

int64_t windows_part_of(const windows *w, int64_t index)
{
  return index < 0 || index >= w->count ? -1 : part_of(w, index) - w->part;
}

static void find_places(const windows *w, const int32_t *tokens, int32_t *places)
{
  for (int64_t i = 0; i < w->context; i++) places[i] = i == 0 || tokens[i] == w->separator ? 0 : places[i - 1] + 1;
}

brim_status windows_read(const windows *w, int64_t index, int32_t *tokens, int32_t *answers)
{
  if (index < 0 || index >= w->count) return brim_fail(BRIM_EINVAL, "sample %" PRId64 " of %" PRId64, index, w->count);
  const windows_part *p = part_of(w, index);
  const int64_t start = (index - p->first) * w->stride;
  uint32_t most = 0;
  for (int64_t i = 0; i <= w->context; i++) {
    const uint32_t t = token_file_at(&p->file, start + i);
    most = t > most ? t : most;
    if (i < w->context) tokens[i] = (int32_t)t;
    if (i > 0) answers[i - 1] = (int32_t)t;
  }
  if (w->documents) find_places(w, tokens, tokens + w->context);
  if (most < w->vocabulary) return BRIM_OK;
  int64_t at = start;
  while (token_file_at(&p->file, at) < w->vocabulary) at++;
  return fail_beyond(w, p, at);
}

void windows_free(windows *w)
{
  for (size_t i = 0; i < w->part_count; i++) {
    token_file_close(&w->part[i].file);
    free(w->part[i].name);
  }
  free(w->part);
  *w = (windows){.context = w->context,
                 .stride = w->stride,
                 .vocabulary = w->vocabulary,
                 .documents = w->documents,
                 .separator = w->separator};
}
