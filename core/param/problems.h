/* Every error found while a configuration is made, kept until all have been found, then told at once. */
#ifndef BRIM_PARAM_PROBLEMS_H
#define BRIM_PARAM_PROBLEMS_H
#include "param/yaml.h"

typedef struct brim_problems {
  brim_arena *arena;
  const char **text; /* each: a line of what is wrong, and indented lines of where it is and what to do */
  size_t count, room;
  bool load; /* one of them is that something could not be loaded */
} brim_problems;

/* Adds one; the same text twice is one problem. `status` ECONFIG or ELOAD. */
void brim_problem(brim_problems *problems, brim_status status, const char *format, ...) BRIM_PRINTF(3, 4);
/* The same with a line of where it is; NULL: none. */
void brim_problem_at(brim_problems *problems, const brim_yaml_origin *origin, const char *format, ...)
    BRIM_PRINTF(3, 4);
/* A line to the last one. */
void brim_problem_hint(brim_problems *problems, const char *format, ...) BRIM_PRINTF(2, 3);
/* Names after a head, as "available: a b c", on as many lines as are needed; `tail` stands on the last if there is
 * room, else on a line of its own; NULL: none. A line that an earlier problem has already is not repeated. */
void brim_problem_hint_names(brim_problems *problems, const char *head, const char *const *name, size_t count,
                             const char *tail);
/* Adds the thread's error text. */
void brim_problem_last_error(brim_problems *problems, brim_status status);
/* OK if there are none; else ELOAD or ECONFIG with all of them as the thread's error text, or as many as it holds. */
brim_status brim_problems_status(const brim_problems *problems);
#endif
