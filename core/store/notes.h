/* Tags and the note of a run: notes.json in its folder, which users may also edit. */
#ifndef BRIM_STORE_NOTES_H
#define BRIM_STORE_NOTES_H
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "brim/status.h"

#define BRIM_NOTES_NAME "notes.json"
#define BRIM_TAG_BYTES_MAX 64
#define BRIM_TAGS_MAX 32
#define BRIM_NOTE_BYTES_MAX 4096

typedef struct brim_notes {
  const char *tag[BRIM_TAGS_MAX]; /* sorted, each once */
  size_t tags;
  const char *note; /* "": none */
} brim_notes;

/* Reads the notes; they are empty if the file is missing. ELOAD, with the place, if it is damaged. `arena` owns the
 * notes. */
brim_status brim_notes_read(brim_arena *arena, const char *run, brim_notes *out);
/* Replaces the file; removes it if the notes are empty. EIO. */
brim_status brim_notes_write(const char *run, const brim_notes *notes);
/* ECONFIG if `tag` cannot be a tag: empty, too long, or with a space, a comma, a quote or a control character. */
brim_status brim_notes_check_tag(const char *tag);
/* Adds or removes a tag; does nothing if the tag is already there, or already missing. ECONFIG: too many tags. */
brim_status brim_notes_set_tag(brim_notes *notes, const char *tag, bool removes);
#endif
