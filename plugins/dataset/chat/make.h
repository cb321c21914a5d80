/* Makes the packed documents of a split from its files. */
#ifndef CHAT_MAKE_H
#define CHAT_MAKE_H
#include "set.h"
#include "spans.h"

enum chat_too_long { CHAT_TOO_LONG_REFUSE, CHAT_TOO_LONG_CUT, CHAT_TOO_LONG_SKIP };

/* The files of a split, and the choice of rows that belong to it. */
typedef struct chat_source {
  const char *const *file;
  size_t files;
  double share; /* fraction of rows for the test split, evenly spread over the files; 0: the split has all rows */
  bool is_rest; /* the split has the rows that are not in the test split */
} chat_source;

typedef struct chat_options {
  int64_t context;
  enum chat_too_long too_long;
  bool apart; /* each document has its own row */
  uint64_t key;
} chat_options;

/* [init] Makes the documents of all rows. The maker's vocabulary and encoder must be set. Returns ELOAD, with file and
 * line, if a row cannot be used, or EINTERRUPTED. */
brim_status chat_make(chat_maker *m, const chat_source *source, const chat_options *options, chat_set *out);
#endif
