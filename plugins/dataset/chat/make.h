/* Makes the packed documents of a split from its files. */
#ifndef CHAT_MAKE_H
#define CHAT_MAKE_H
#include "set.h"
#include "spans.h"

enum chat_too_long { CHAT_TOO_LONG_REFUSE, CHAT_TOO_LONG_CUT, CHAT_TOO_LONG_SKIP };

/* The files of a split, and which of their rows belong to it. */
typedef struct chat_source {
  const char *const *file;
  size_t files;
  double share; /* fraction of the rows for the test split, evenly spread over the files; 0: all are in the split */
  bool is_rest; /* the split has the rows that do not go to the test split */
} chat_source;

typedef struct chat_options {
  int64_t context;
  enum chat_too_long too_long;
  bool apart; /* a row for each document */
  uint64_t key;
} chat_options;

/* [init] Reads all rows; ELOAD, with file and line, if one of them cannot be used. The maker's vocabulary and encoder
 * are set. EINTERRUPTED. */
brim_status chat_make(chat_maker *m, const chat_source *source, const chat_options *options, chat_set *out);
#endif
