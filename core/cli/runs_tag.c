/* brim runs tag and note: changes tags and notes. See runs.h. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/log.h"
#include "cli/runs.h"
#include "store/notes.h"
#include "store/rundir.h"

static brim_status check_run(const char *run)
{
  if (brim_is_run(AT_FDCWD, run, 0)) return BRIM_OK;
  return brim_fail(BRIM_ELOAD,
                   errno == EACCES ? "cannot read '%s': permission denied" : "'%s' is not the folder of a run", run);
}

/* Adds or removes the tags of a list with commas. */
static brim_status set_tags(brim_arena *arena, brim_notes *notes, const char *list, bool removes)
{
  for (const char *s = list;; s++) {
    const char *tag = brim_arena_string_n(arena, s, strcspn(s, ","));
    BRIM_TRY(brim_notes_check_tag(tag));
    BRIM_TRY(brim_notes_set_tag(notes, tag, removes));
    s += strlen(tag);
    if (!*s) return BRIM_OK;
  }
}

/* Changes the tags (`list`), or the note, of one run. */
static brim_status change(brim_runs *runs, const char *run, const char *list, const char *note)
{
  brim_notes notes;
  BRIM_TRY(check_run(run));
  BRIM_TRY(brim_notes_read(runs->arena, run, &notes));
  if (list) BRIM_TRY(set_tags(runs->arena, &notes, list, runs->options->remove));
  if (note) notes.note = note;
  return brim_notes_write(run, &notes);
}

static brim_status change_all(brim_runs *runs, const char *const *operand, size_t operands, const char *verb,
                              const char *list, const char *note)
{
  const char **path;
  size_t count;
  BRIM_TRY(brim_runs_list(runs, operand, operands, verb, &path, &count));
  for (size_t i = 0; i < count; i++) BRIM_TRY(change(runs, path[i], list, note));
  if (count > 1 || runs->options->where) brim_say("%zu run%s changed", count, brim_plural((int64_t)count));
  return BRIM_OK;
}

brim_status brim_runs_tag(brim_runs *runs, const char *const *operand, size_t operands)
{
  brim_notes none = {.note = ""};
  if (operands == 0)
    return brim_fail(BRIM_ECONFIG, "no tag is named: brim runs tag TAG[,TAG...] RUN..., with --remove to remove it");
  BRIM_TRY(set_tags(runs->arena, &none, operand[0], false)); /* checked first, so that an invalid tag changes no run */
  return change_all(runs, operand + 1, operands - 1, "tag TAG", operand[0], NULL);
}

brim_status brim_runs_note(brim_runs *runs, const char *const *operand, size_t operands)
{
  if (operands == 0)
    return brim_fail(BRIM_ECONFIG, "no text is given: brim runs note 'TEXT' RUN...; '' removes a note");
  if (strlen(operand[0]) > BRIM_NOTE_BYTES_MAX)
    return brim_fail(BRIM_ECONFIG, "a note can have %d bytes; this text has %zu", BRIM_NOTE_BYTES_MAX,
                     strlen(operand[0]));
  return change_all(runs, operand + 1, operands - 1, "note TEXT", NULL, operand[0]);
}
