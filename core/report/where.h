/* The expressions of `brim runs --where`: model=vit and (test.accuracy>90% or tag=paper) and not note
 *
 *     expression := term { or term }      term := factor { and factor }
 *     factor     := not factor | ( expression ) | key | key operator value
 *
 * operator: = != < <= > >=, ~ (contains, or matches a shell pattern), !~. A key alone holds if the run has it and it is
 * neither false nor empty. Two numbers compare as numbers; 90% means 0.9. A number is also equal to the rounded number
 * that lists show for it. Seconds compare with seconds or with a time such as 1:30. A date compares with a date or with
 * the beginning of one, and is equal if it has that beginning. A path is equal to its last parts. Other texts have no
 * order. A run without the key matches only != and !~. */
#ifndef BRIM_REPORT_WHERE_H
#define BRIM_REPORT_WHERE_H
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "brim/status.h"

#define BRIM_WHERE_BYTES_MAX 4096
#define BRIM_WHERE_DEPTH_MAX 64
#define BRIM_WHERE_KEYS_MAX 32

typedef struct brim_where_value {
  bool has;
  bool is_list;     /* the text is a list with commas: = and ~ hold if they hold for one item */
  const char *text; /* NULL: only a number */
  double number;    /* NAN: only text */
} brim_where_value;

/* The kind of a key's values in the runs. A comparison with a value of another kind cannot hold for any run. */
enum brim_where_kind {
  BRIM_WHERE_MIXED, /* numbers and texts */
  BRIM_WHERE_NUMBERS,
  BRIM_WHERE_SECONDS, /* 90.5; a list shows 1:31 */
  BRIM_WHERE_TEXTS,
  BRIM_WHERE_DATES, /* 2026-11-27 14:30:59 */
  BRIM_WHERE_NAMES, /* one of a list of names */
  BRIM_WHERE_PATHS
};
typedef struct brim_where_values {
  enum brim_where_kind kind;
  const char *const *name; /* NAMES: all allowed values; TEXTS: values that runs have, or none */
  size_t names;
} brim_where_values;

typedef struct brim_where {
  const struct brim_where_node *root; /* NULL: matches every run */
  const char *text;
  const char *key[BRIM_WHERE_KEYS_MAX]; /* each once */
  size_t at[BRIM_WHERE_KEYS_MAX];       /* position in the expression where the key first occurs */
  size_t keys;
  brim_where_values values[BRIM_WHERE_KEYS_MAX]; /* the caller sets these before brim_where_check */
} brim_where;

/* `arena` owns the result. An error is ECONFIG with the place: "--where, character 12: ...", and a line that points
 * there. */
brim_status brim_where_parse(brim_arena *arena, const char *text, brim_where *out);
/* Reports the same kind of error for a key that the caller does not know. */
brim_status brim_where_fail(const brim_where *filter, size_t at, const char *problem);
/* Returns ECONFIG, with the place in the text, if a value cannot match, such as a word for a key with numbers. Warns of
 * a text that no run has, but that resembles one that runs have. */
brim_status brim_where_check(brim_arena *arena, const brim_where *filter);
/* Whether a run matches; `value` has one element for each key of the filter. */
bool brim_where_matches(const brim_where *filter, const brim_where_value *value);
/* Returns the value of a text that is a number, such as 1e-3 or 90%; NAN for other texts. */
double brim_where_number(const char *text);
/* Writes a number as lists show it: as an integer, or with five digits; seconds as a time. Returns `out`. */
#define BRIM_WHERE_SHOWN_BYTES 32
const char *brim_where_show(enum brim_where_kind kind, double number, char out[BRIM_WHERE_SHOWN_BYTES]);
#endif
