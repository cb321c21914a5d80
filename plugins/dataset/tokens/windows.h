/* Samples for language modelling: windows over files of tokens. Window i begins at token i * stride of its file and has
 * `context` tokens and as many labels, each the next token. A window lies in one file; the rest at a file's end that is
 * too short for a window is not used.
 *
 * With documents, one begins at each separator, and at the start of a window. So the token before a separator learns
 * that the text ends, and the separator learns how texts begin. */
#ifndef WINDOWS_H
#define WINDOWS_H
#include <stdbool.h>

#include "token_file.h"

typedef struct windows_part {
  token_file file;
  char *name;    /* owned */
  int64_t first; /* number of its first window */
} windows_part;

typedef struct windows {
  windows_part *part;
  size_t part_count;
  int64_t context, stride, vocabulary;
  bool documents;
  int64_t separator;     /* token that begins a document */
  int64_t count, tokens; /* windows; tokens of all files */
  uint64_t bytes;        /* of all files */
} windows;

/* Returns the number of windows in a file of `tokens` tokens; uses only context and stride. */
int64_t windows_in(const windows *w, int64_t tokens);
/* Appends a file and takes ownership of it. Copies `name`. context, stride and vocabulary must be set, all at least 1.
 * ENOMEM_HOST; then the file is closed. */
brim_status windows_add(windows *w, token_file *file, const char *name);
/* Fails with ELOAD: the `tokens` tokens of a file (and others, if `more`) are too few for a window. `what` names them:
 * "the training tokens". */
brim_status windows_fail_few(const windows *w, const char *what, const char *name, int more, int64_t tokens);
/* Fails in the same way if there is no window. */
brim_status windows_check(const windows *w, const char *what);
/* ELOAD naming the first token that is not in the vocabulary. Reads all tokens. */
brim_status windows_scan(const windows *w);
/* [any thread] Reads window `index` in [0, count): `context` tokens and answers, and with documents as many places
 * after the tokens (brim_dataset_info.documents). ELOAD naming a token that is not in the vocabulary. Does not
 * allocate. */
brim_status windows_read(const windows *w, int64_t index, int32_t *tokens, int32_t *answers);
/* [any thread] Returns the part of window `index`, or -1 if there is no such window. */
int64_t windows_part_of(const windows *w, int64_t index);
void windows_free(windows *w);
#endif
