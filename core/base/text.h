/* A string that grows, and small helpers on strings. */
#ifndef BRIM_BASE_TEXT_H
#define BRIM_BASE_TEXT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

typedef struct brim_text {
  char *s; /* NUL-terminated; NULL until text is added (see brim_text_str) */
  size_t length, room;
} brim_text;

/* A zeroed text is ready for use. */
void brim_text_release(brim_text *text);
void brim_text_clear(brim_text *text);
/* Reserves room for this many further bytes, so that adding them does not allocate. */
void brim_text_reserve(brim_text *text, size_t more);
void brim_text_add(brim_text *text, const char *s);
/* Adds a decimal number, as "%" PRId64 prints it, but ten times as fast. */
void brim_text_int(brim_text *text, int64_t value);
void brim_text_add_n(brim_text *text, const char *s, size_t bytes);
void brim_text_printf(brim_text *text, const char *format, ...) BRIM_PRINTF(2, 3);
const char *brim_text_str(const brim_text *text); /* "" if no text was added */
/* Reads the next character of untrusted text in a form that is safe for a terminal: a control character (C0, DEL, C1)
 * becomes "\x1b", so that it cannot move the cursor or hide a line; a format character becomes "\u202e", so that it
 * cannot reverse the text after it; and a byte that is not UTF-8 becomes U+FFFD. `kept`: control characters to keep.
 * Writes at most BRIM_SHOWN_BYTES to `out` and returns the number; advances *s, which must be < end. */
#define BRIM_SHOWN_BYTES 10
size_t brim_shown_take(const char **s, const char *end, const char *kept, char *out);
void brim_text_add_shown(brim_text *text, const char *s, const char *kept);
/* Whether the character is one of those: a control character, or a format character that changes the text around it. */
bool brim_is_control(int32_t c);
/* Whether the text contains such a character. */
bool brim_has_control(const char *s);
/* Adds a word so that a POSIX shell reads the same word: unchanged if it has no special characters, else in single
 * quotes. */
void brim_text_add_quoted(brim_text *text, const char *word);
/* Adds a field of CSV (RFC 4180). If it contains a comma, a quote or a line break, quotes it and doubles its quotes. */
void brim_text_add_csv(brim_text *text, const char *field);
/* The name of a file or folder, quoted for a command that the user may copy; a name that begins with '-' gets the
 * prefix "./", so that the command does not take it for an option. Returns `out`. */
const char *brim_format_quoted(char *out, size_t room, const char *path);
/* The same for use in a message; the text is valid until the end of the block. */
#define BRIM_QUOTED_BYTES 5000
#define BRIM_QUOTED(path) brim_format_quoted((char[BRIM_QUOTED_BYTES]){0}, BRIM_QUOTED_BYTES, (path))

bool brim_starts_with(const char *s, const char *prefix);
bool brim_ends_with(const char *s, const char *suffix);
/* Edit distance with transpositions (optimal string alignment), for suggestions; compares at most 64 bytes of each. */
int brim_edit_distance(const char *a, const char *b);
/* The edit distance if `known` is a plausible correction of `written`, else INT_MAX: one change in up to three letters,
 * whose first letters must match, two in up to eight, three in more, and always fewer than half of the letters. Ignores
 * case, '-' and '_'. */
int brim_typo_distance(const char *written, const char *known);
/* Makes `known` the best suggestion so far if, as a correction or completion of `written`, it is closer than *distance
 * (INT_MAX at first). */
void brim_suggest(const char *written, const char *known, int *distance, const char **best);
/* Returns the best suggestion of a list; NULL if none is plausible. */
const char *brim_suggest_of(const char *written, const char *const *known, size_t count);
/* Compares const char * by strcmp, for qsort and bsearch. */
int brim_compare_strings(const void *a, const void *b);
/* The plural suffix for a count: "" or "s". */
const char *brim_plural(int64_t count);
/* Formats a number with the fewest digits that read back as the same double, or, if `is_single`, float; returns `out`.
 */
#define BRIM_NUMBER_BYTES 40
const char *brim_format_number(char out[BRIM_NUMBER_BYTES], double value, bool is_single);
/* Formats a duration as "1:02:03" or "2:03"; returns `out`. */
const char *brim_format_seconds(char *out, size_t room, double seconds);
/* Seconds of CLOCK_MONOTONIC. */
double brim_now(void);
/* Seconds since 1970. */
double brim_wall_now(void);
/* Formats the local time of day of `seconds` since 1970, such as "04:10", into `out`; returns `out`. */
const char *brim_format_hour(char *out, size_t room, double seconds);
/* 64-bit FNV-1a, continued from `hash` (start with BRIM_HASH_START). */
#define BRIM_HASH_START 0xcbf29ce484222325u
uint64_t brim_hash(uint64_t hash, const void *data, size_t bytes);
#endif
