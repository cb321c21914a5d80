/* The files of a text: a single file, or the files of a folder whose names match a pattern, in the order of their
 * names. */
#ifndef TEXT_FILES_H
#define TEXT_FILES_H
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

typedef struct text_files {
  char **name;    /* owned */
  uint64_t *size; /* owned: the bytes of each file */
  size_t count;
  uint64_t bytes; /* bytes of all files */
  uint64_t key;   /* a hash of names, sizes and times of the last change (cache.h) */
} text_files;

/* Finds the files. `path`: a file, or a folder in which `pattern` selects files. `option`: the name of the option with
 * the path, for messages. Returns ELOAD if there is no file; *out is then empty. */
brim_status text_files_find(const char *path, const char *pattern, const char *option, text_files *out);
void text_files_free(text_files *files);
#endif
