/* See notes.h. */
#include "store/notes.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "store/record.h"

#define FILE_BYTES_MAX ((off_t)64 << 10)

brim_status brim_notes_check_tag(const char *tag)
{
  if (!tag[0]) return brim_fail(BRIM_ECONFIG, "a tag must have at least one character");
  if (strlen(tag) > BRIM_TAG_BYTES_MAX)
    return brim_fail(BRIM_ECONFIG, "tag '%.20s...' is longer than %d bytes", tag, BRIM_TAG_BYTES_MAX);
  const char *bad = strpbrk(tag, " ,'\"()=!<>~&|");
  if (bad)
    return brim_fail(BRIM_ECONFIG, "tag '%s' contains '%c'\nuse letters, digits, '-', '_', '.', '/' or ':'", tag, *bad);
  if (brim_has_control(tag)) return brim_fail(BRIM_ECONFIG, "a tag must not contain control characters");
  return BRIM_OK;
}

brim_status brim_notes_set_tag(brim_notes *notes, const char *tag, bool removes)
{
  size_t i = 0;
  while (i < notes->tags && strcmp(notes->tag[i], tag) < 0) i++;
  const bool has = i < notes->tags && strcmp(notes->tag[i], tag) == 0;
  if (has != removes) return BRIM_OK;
  if (removes) {
    notes->tags--;
    memmove(&notes->tag[i], &notes->tag[i + 1], (notes->tags - i) * sizeof *notes->tag);
    return BRIM_OK;
  }
  if (notes->tags == BRIM_TAGS_MAX) return brim_fail(BRIM_ECONFIG, "a run can have %d tags", BRIM_TAGS_MAX);
  memmove(&notes->tag[i + 1], &notes->tag[i], (notes->tags - i) * sizeof *notes->tag);
  notes->tag[i] = tag;
  notes->tags++;
  return BRIM_OK;
}

static brim_status take(brim_arena *arena, const json_t *root, const char *path, brim_notes *out)
{
  size_t i;
  const json_t *item, *tags = json_object_get(root, "tags"), *note = json_object_get(root, "note");
  if (!json_is_object(root) || (tags && !json_is_array(tags)) || (note && !json_is_string(note)))
    return brim_fail(BRIM_ELOAD, "'%s' is not like {\"tags\": [\"paper\"], \"note\": \"text\"}", path);
  json_array_foreach(tags, i, item)
  {
    const char *tag = json_string_value(item);
    if (!tag) return brim_fail(BRIM_ELOAD, "'%s': tag %zu is not a text", path, i + 1);
    if (brim_notes_check_tag(tag) != BRIM_OK)
      return brim_fail(BRIM_ELOAD, "'%s': tag %zu is not valid: %s", path, i + 1, brim_error_text());
    BRIM_TRY(brim_notes_set_tag(out, brim_arena_string(arena, tag), false));
  }
  if (note) out->note = brim_arena_string(arena, json_string_value(note));
  return BRIM_OK;
}

brim_status brim_notes_read(brim_arena *arena, const char *run, brim_notes *out)
{
  char path[BRIM_PATH_MAX];
  struct stat info;
  json_error_t problem;
  *out = (brim_notes){.note = ""};
  BRIM_TRY(brim_path_join(path, run, BRIM_NOTES_NAME));
  if (stat(path, &info) != 0 && errno == ENOENT) return BRIM_OK;
  if (info.st_size > FILE_BYTES_MAX) return brim_fail(BRIM_ELOAD, "'%s' is larger than 64 KiB", path);
  json_t *root = brim_json_load(path, 0, &problem);
  if (!root)
    return problem.line < 0 ? brim_fail(BRIM_ELOAD, "cannot read '%s': %s", path, problem.text)
                            : brim_fail(BRIM_ELOAD, "%s:%d:%d: %s", path, problem.line, problem.column, problem.text);
  const brim_status status = take(arena, root, path, out);
  json_decref(root);
  return status;
}

brim_status brim_notes_write(const char *run, const brim_notes *notes)
{
  char path[BRIM_PATH_MAX];
  if (notes->tags == 0 && !notes->note[0]) {
    BRIM_TRY(brim_path_join(path, run, BRIM_NOTES_NAME));
    if (unlink(path) == 0 || errno == ENOENT) return BRIM_OK;
    return brim_fail(BRIM_EIO, "cannot remove '%s': %s", path, strerror(errno));
  }
  json_t *tags = json_array();
  for (size_t i = 0; i < notes->tags; i++) json_array_append_new(tags, json_string(notes->tag[i]));
  json_t *root = json_pack("{s:o, s:s}", "tags", tags, "note", notes->note);
  if (!root) return brim_fail(BRIM_ECONFIG, "a tag or the note is not UTF-8");
  const brim_status status = brim_record_write(run, BRIM_NOTES_NAME, root);
  json_decref(root);
  return status;
}
