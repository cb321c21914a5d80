/* Samples for language modelling: windows over files of tokens. Window i begins at token i * stride of its file and has
 * `context` tokens and as many labels, each the next token. A window lies within one file; if the tokens left at the
 * end of a file are too few for a window, they are not used.
 *
 * With documents, a document begins at each separator, and at the start of a window. So the token before a separator
 * learns that the text ends, and the separator learns how texts begin. */
#ifndef WINDOWS_H
#define WINDOWS_H
#include <stdbool.h>

#include "token_file.h"

typedef struct windows_part {
  token_file file;
  char *name;    /* owned */
  int64_t first; /* number of the first window in the part */
} windows_part;

typedef struct windows {
  windows_part *part;
  size_t part_count;
  int64_t context, stride, vocabulary;
  bool documents;
  int64_t separator;     /* the token that begins a document */
  int64_t count, tokens; /* number of windows; tokens of all files */
  uint64_t bytes;        /* bytes of all files */
} windows;

/* Returns the number of windows in a file of `tokens` tokens. Uses only context and stride. */
int64_t windows_in(const windows *w, int64_t tokens);
/* Appends a file and takes ownership of it. Copies `name`. context, stride and vocabulary must be set to at least 1.
 * Returns ENOMEM_HOST if there is no memory, and then closes the file. */
brim_status windows_add(windows *w, token_file *file, const char *name);
/* Fails with ELOAD, because the `tokens` tokens of a file (and of others, if `more`) are too few for a window. `what`
 * is their name in the message: "the training tokens". */
brim_status windows_fail_few(const windows *w, const char *what, const char *name, int more, int64_t tokens);
/* Fails like windows_fail_few if there is no window. */
brim_status windows_check(const windows *w, const char *what);
/* Reads all tokens. Returns ELOAD with the first token that is not in the vocabulary. */
brim_status windows_scan(const windows *w);
/* [any thread] Reads window `index` in [0, count): `context` tokens and answers and, with documents, as many places
 * after the tokens (brim_dataset_info.documents). Returns ELOAD with a token that is not in the vocabulary. Does not
 * allocate. */
brim_status windows_read(const windows *w, int64_t index, int32_t *tokens, int32_t *answers);
/* [any thread] Returns the part of window `index`, or -1 if there is no such window. */
int64_t windows_part_of(const windows *w, int64_t index);
void windows_free(windows *w);
#endif
