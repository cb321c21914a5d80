/* Collects the errors that are found while a configuration is made, and reports them together. */
#ifndef BRIM_PARAM_PROBLEMS_H
#define BRIM_PARAM_PROBLEMS_H
#include "param/yaml.h"

typedef struct brim_problems {
  brim_arena *arena;
  const char **text; /* each: a line with the error, and indented lines with its position and hints */
  size_t count, room;
  bool load; /* at least one problem is a failure to load something */
} brim_problems;

/* Adds a problem, unless the same text was added before. `status` is ECONFIG or ELOAD. */
void brim_problem(brim_problems *problems, brim_status status, const char *format, ...) BRIM_PRINTF(3, 4);
/* Does the same, and adds a line with the position `origin`, which may be NULL. */
void brim_problem_at(brim_problems *problems, const brim_yaml_origin *origin, const char *format, ...)
    BRIM_PRINTF(3, 4);
/* Adds a line to the last problem. */
void brim_problem_hint(brim_problems *problems, const char *format, ...) BRIM_PRINTF(2, 3);
/* Adds names after a head, such as "available: a b c", on as many lines as necessary. Appends `tail`, if not NULL, to
 * the last line, or as a new line if that line is full. Omits lines that an earlier problem already has. */
void brim_problem_hint_names(brim_problems *problems, const char *head, const char *const *name, size_t count,
                             const char *tail);
/* Adds the thread's error text as a problem. */
void brim_problem_last_error(brim_problems *problems, brim_status status);
/* Returns OK if there are no problems; else ELOAD or ECONFIG, with all problems in the thread's error text as far as it
 * has room. */
brim_status brim_problems_status(const brim_problems *problems);
#endif
