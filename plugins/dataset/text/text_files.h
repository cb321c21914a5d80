/* The files of a text: one, or those of a folder whose names match, in the order of their names. */
#ifndef TEXT_FILES_H
#define TEXT_FILES_H
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

typedef struct text_files {
  char **name;    /* owned */
  uint64_t *size; /* owned: bytes of each */
  size_t count;
  uint64_t bytes; /* of all */
  uint64_t key;   /* of names, sizes and times of the last change (cache.h) */
} text_files;

/* `path`: a file, or a folder in which `pattern` selects files. `option` is the option with the path, for messages.
 * ELOAD without a file. On failure *out is empty. */
brim_status text_files_find(const char *path, const char *pattern, const char *option, text_files *out);
void text_files_free(text_files *files);
#endif
