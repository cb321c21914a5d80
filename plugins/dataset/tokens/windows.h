/* Samples of language modelling: windows over files of tokens. Window i begins at token i * stride of its file and has
 * `context` tokens to read and as many to answer, which are those one place further. A window lies in one file; what is
 * left at a file's end and is too short for one is not used. */
#ifndef WINDOWS_H
#define WINDOWS_H
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
  int64_t count, tokens; /* windows; tokens of all files */
  uint64_t bytes;        /* of all files */
} windows;

/* Windows in a file of `tokens` tokens; only context and stride count. */
int64_t windows_in(const windows *w, int64_t tokens);
/* Takes over a file, which is closed with the windows, behind those there are. `name` is copied. context, stride and
 * vocabulary are set, all at least 1. ENOMEM_HOST; then the file is closed. */
brim_status windows_add(windows *w, token_file *file, const char *name);
/* ELOAD: of a file, or of `more` than that, `tokens` tokens are too few for a window. `what` names them, "the training
 * tokens". */
brim_status windows_fail_few(const windows *w, const char *what, const char *name, int more, int64_t tokens);
/* The same if there is no window at all. */
brim_status windows_check(const windows *w, const char *what);
/* ELOAD naming the first token that is not in the vocabulary. Reads all tokens. */
brim_status windows_scan(const windows *w);
/* [any thread] Window `index` in [0, count): `context` tokens and answers. ELOAD naming a token that is not in the
 * vocabulary. Does not allocate. */
brim_status windows_read(const windows *w, int64_t index, int32_t *tokens, int32_t *answers);
/* [any thread] Which part window `index` lies in; -1: there is no such window. */
int64_t windows_part_of(const windows *w, int64_t index);
void windows_free(windows *w);
#endif
