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
  uint64_t hash;  /* of names, sizes and when they were changed last */
} text_files;

/* `path`: a file, or a folder whose files `pattern` chooses. `option` is the option that named it, for messages. ELOAD
 * if there is none. On failure *out is empty. */
brim_status text_files_find(const char *path, const char *pattern, const char *option, text_files *out);
void text_files_free(text_files *files);
#endif
