/* Expands sweeps: splits each word at its top-level commas, and replaces range() and glob() by their values. Numbers of
 * a range are exact decimals (digits and a power of ten), so that 0.1, 0.2, 0.3 stay exact. */
#include "config/sweep.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "config/override.h"

#define DIGITS_MAX 15 /* of a range's number */
/* Limit for digits after the point, or zeros at the end before it; more would overflow anyway. */
#define PLACES_MAX 40
#define PATTERNS_MAX 64     /* in a glob */
#define FUNCTION_ARGS_MAX 4 /* arguments of range and glob, one more than their maximum */

typedef struct expansion {
  brim_arena *arena;
  brim_problems *problems;
  const brim_sweep_groups *groups;
  const char *word; /* the override that is being parsed */
  int argument;
  size_t key_length; /* of its part before '=' */
  const char **choice;
  size_t count, room;
} expansion;

static void problem(expansion *e, const char *what)
{
  const brim_yaml_origin origin = {.file = "command line", .line = e->argument, .text = e->word};
  brim_problem_at(e->problems, &origin, "%s", what);
}

static void add_choice(expansion *e, const char *value)
{
  BRIM_ARENA_GROW(e->arena, e->choice, e->count, e->room);
  e->choice[e->count++] = brim_arena_printf(e->arena, "%.*s=%s", (int)e->key_length, e->word, value);
}

static const char *trimmed(brim_arena *arena, const char *s, size_t length)
{
  while (length > 0 && strchr(" \t", *s)) s++, length--;
  while (length > 0 && strchr(" \t", s[length - 1])) length--;
  return brim_arena_string_n(arena, s, length);
}

/* Splits at top-level commas into at most `room` parts; returns their number. */
static size_t split(brim_arena *arena, const char *s, const char **part, size_t room)
{
  size_t count = 0;
  for (;;) {
    const size_t length = brim_override_item_length(s);
    if (count < room) part[count] = trimmed(arena, s, length);
    count++;
    if (!s[length]) return count;
    s += length + 1;
  }
}

/* ---- range ---- */

typedef struct decimal {
  int64_t digits; /* the number is digits * 10^-places */
  int places;
  bool whole; /* the number has neither a point nor an exponent */
} decimal;

/* Reads the digits of a number, before and after the point. Advances *s past them; false if the number has no
 * digits, or too many. */
static bool read_digits(const char **s, decimal *out)
{
  int seen = 0;
  bool point = false;
  for (; (**s >= '0' && **s <= '9') || (**s == '.' && !point); (*s)++) {
    if (**s == '.') {
      point = true;
      out->whole = false;
      continue;
    }
    if (out->digits >= INT64_C(100000000000000)) return false;
    out->digits = out->digits * 10 + (**s - '0');
    out->places += point;
    seen++;
  }
  return seen > 0;
}

static bool read_decimal(const char *s, decimal *out)
{
  *out = (decimal){.whole = true};
  const bool negative = *s == '-';
  s += *s == '-' || *s == '+';
  if (!read_digits(&s, out)) return false;
  if (*s == 'e' || *s == 'E') {
    int exponent = 0;
    const bool down = *++s == '-';
    s += *s == '-' || *s == '+';
    if (*s < '0' || *s > '9') return false;
    for (; *s >= '0' && *s <= '9'; s++) {
      exponent = exponent * 10 + (*s - '0');
      if (exponent > PLACES_MAX) return false;
    }
    out->places += down ? exponent : -exponent;
    out->whole = false;
  }
  if (negative) out->digits = -out->digits;
  return *s == '\0' && out->places <= PLACES_MAX && out->places >= -PLACES_MAX;
}

/* Converts a number to `places`; false if it does not fit. */
static bool rescale(decimal *d, int places)
{
  for (; d->places < places; d->places++) {
    if (d->digits > INT64_MAX / 100 || d->digits < INT64_MIN / 100) return false;
    d->digits *= 10;
  }
  return true;
}

static void add_number(expansion *e, int64_t digits, int places, bool whole)
{
  char text[64], out[72];
  const bool negative = digits < 0;
  int length = snprintf(text, sizeof text, "%0*" PRIu64, places + 1, (uint64_t)(negative ? -digits : digits));
  int decimals = places;
  while (decimals > 1 && text[length - 1] == '0') length--, decimals--;
  if (whole || places == 0)
    snprintf(out, sizeof out, "%s%s%s", negative ? "-" : "", text, whole ? "" : ".0");
  else
    snprintf(out, sizeof out, "%s%.*s.%.*s", negative ? "-" : "", length - decimals, text, decimals,
             text + length - decimals);
  add_choice(e, out);
}

/* Converts the three numbers to one power of ten. False, with a problem added, if they are not numbers or do not
 * fit. */
static bool read_range(expansion *e, const char *const *arg, size_t count, decimal number[3])
{
  number[0] = (decimal){.whole = true};
  number[2] = (decimal){.digits = 1, .whole = true};
  int places = 0;
  for (size_t i = 0; i < count; i++) {
    decimal *d = &number[count == 1 ? 1 : i];
    if (!read_decimal(arg[i], d)) {
      problem(e,
              brim_arena_printf(e->arena, "'%s' in a range is not a number of at most %d digits", arg[i], DIGITS_MAX));
      return false;
    }
  }
  for (int i = 0; i < 3; i++) places = number[i].places > places ? number[i].places : places;
  for (int i = 0; i < 3; i++) {
    if (rescale(&number[i], places)) continue;
    problem(e, "the numbers of a range differ too much in size");
    return false;
  }
  return true;
}

static void expand_range(expansion *e, const char *inside)
{
  const char *arg[FUNCTION_ARGS_MAX] = {0};
  decimal number[3];
  const size_t count = split(e->arena, inside, arg, FUNCTION_ARGS_MAX);
  if (count > 3) {
    problem(e, "a range is written range(START,STOP,STEP), range(START,STOP) or range(STOP)");
    return;
  }
  if (!read_range(e, arg, count, number)) return;
  const int64_t start = number[0].digits, stop = number[1].digits, step = number[2].digits;
  const bool whole = number[0].whole && number[1].whole && number[2].whole;
  if (step == 0 || (step > 0 ? start >= stop : start <= stop)) {
    problem(e, step == 0 ? "a range's step must not be 0" : "the range is empty: its end is not included");
    return;
  }
  const uint64_t span = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
  const uint64_t stride = step > 0 ? (uint64_t)step : (uint64_t)-step;
  const uint64_t values = span / stride + (span % stride != 0);
  if (values > BRIM_SWEEP_JOBS_MAX) {
    problem(e, brim_arena_printf(e->arena, "the range has %" PRIu64 " values; a sweep has at most %d jobs", values,
                                 BRIM_SWEEP_JOBS_MAX));
    return;
  }
  for (uint64_t i = 0; i < values; i++) add_number(e, start + (int64_t)i * step, number[0].places, whole);
}

/* ---- glob ---- */

/* Reads a pattern, or a list of patterns in brackets. */
static size_t read_patterns(brim_arena *arena, const char *text, const char **pattern)
{
  const size_t length = strlen(text);
  if (text[0] == '[' && text[length - 1] == ']') text = brim_arena_string_n(arena, text + 1, length - 2);
  const size_t count = split(arena, text, pattern, PATTERNS_MAX);
  for (size_t i = 0; i < count && i < PATTERNS_MAX; i++) {
    const char *p = pattern[i];
    const size_t n = strlen(p);
    if (n >= 2 && (p[0] == '\'' || p[0] == '"') && p[n - 1] == p[0])
      pattern[i] = brim_arena_string_n(arena, p + 1, n - 2);
  }
  return count < PATTERNS_MAX ? count : PATTERNS_MAX;
}

static bool matches(const char *name, const char *const *pattern, size_t count)
{
  for (size_t i = 0; i < count; i++)
    if (fnmatch(pattern[i], name, 0) == 0) return true;
  return false;
}

static void expand_glob(expansion *e, const char *inside)
{
  const char *arg[FUNCTION_ARGS_MAX] = {0}, *take[PATTERNS_MAX], *leave[PATTERNS_MAX];
  const size_t args = split(e->arena, inside, arg, FUNCTION_ARGS_MAX);
  const bool excludes = args == 2 && brim_starts_with(arg[1], "exclude=");
  if (args > 2 || (args == 2 && !excludes) || arg[0][0] == '\0') {
    problem(e, "a glob is written glob(PATTERN), glob([PATTERN,PATTERN]) or glob(PATTERN,exclude=PATTERN)");
    return;
  }
  const size_t takes = read_patterns(e->arena, arg[0], take);
  const size_t leaves = excludes ? read_patterns(e->arena, arg[1] + strlen("exclude="), leave) : 0;
  const size_t skip = strspn(e->word, "+");
  const char *group = brim_arena_string_n(e->arena, e->word + skip, e->key_length - skip);
  const char *const *option = NULL;
  size_t options = 0;
  if (!e->groups || !e->groups->options(e->groups->context, group, &option, &options)) {
    problem(e, brim_arena_printf(e->arena, "glob() expands to the options of a group, and '%s' is not a group", group));
    return;
  }
  const size_t before = e->count;
  for (size_t i = 0; i < options; i++)
    if (matches(option[i], take, takes) && !matches(option[i], leave, leaves)) add_choice(e, option[i]);
  if (e->count > before) return;
  brim_text available = {0};
  for (size_t i = 0; i < options; i++) brim_text_printf(&available, " %s", option[i]);
  problem(e, brim_arena_printf(e->arena, "no option of group '%s' matches glob(%s)", group, inside));
  brim_problem_hint(e->problems, "available:%s", options ? brim_text_str(&available) : " none");
  brim_text_release(&available);
}

/* ---- words ---- */

static void expand_item(expansion *e, const char *item, bool single)
{
  if (brim_override_is_sweep_function(item)) {
    const char *open = strchr(item, '(') + 1;
    const char *inside = brim_arena_string_n(e->arena, open, strlen(open) - 1);
    if (item[0] == 'r')
      expand_range(e, inside);
    else
      expand_glob(e, inside);
  } else if (item[0] == '\0' && !single) {
    problem(e, "a value between the commas is missing: write '' for an empty one");
  } else {
    add_choice(e, item);
  }
}

static void expand_value(expansion *e, const char *value)
{
  const size_t whole = strlen(value);
  const size_t first = brim_override_item_length(value);
  for (const char *s = value;;) {
    const size_t length = brim_override_item_length(s);
    expand_item(e, trimmed(e->arena, s, length), first == whole);
    if (!s[length]) return;
    s += length + 1;
  }
}

static void expand_word(expansion *e, brim_sweep_axis *axis)
{
  const size_t problems = e->problems->count;
  e->key_length = strcspn(e->word, "=");
  const char *value = e->word[e->key_length] ? e->word + e->key_length + 1 : NULL;
  axis->key = brim_arena_string_n(e->arena, e->word, e->key_length);
  if (value) expand_value(e, value);
  if (value && e->word[0] == '~' && e->count > 1) problem(e, "a removal cannot be swept: write one '~' for each job");
  if (value && strcmp(axis->key, "run.dir") == 0 && e->count > 1)
    problem(e, "'run.dir' cannot be swept: it is the sweep's folder, and each job has a numbered one in it");
  if (!value || e->problems->count > problems) {
    e->choice = BRIM_ARENA_NEW(e->arena, const char *, 1);
    e->choice[0] = e->word;
    e->count = 1;
  }
  axis->choice = e->choice;
  axis->count = e->count;
}

/* Returns the key without its prefix; an appending `key+=` differs from `key=`. */
static const char *key_set_by(const brim_sweep_axis *axis)
{
  return axis->key + strspn(axis->key, "+~");
}

/* Rejects a swept value that a later word overrides: several jobs would be the same under different names. */
static void refuse_overridden(const brim_sweep *sweep, const char *const *word, const int *argument,
                              brim_problems *problems)
{
  for (size_t i = 0; i < sweep->axis_count; i++) {
    const brim_sweep_axis *axis = &sweep->axis[i];
    for (size_t k = i + 1; axis->count > 1 && k < sweep->axis_count; k++) {
      if (strcmp(key_set_by(axis), key_set_by(&sweep->axis[k])) != 0) continue;
      const brim_yaml_origin origin = {
          .file = "command line", .line = argument ? argument[k] : (int)k + 1, .text = word[k]};
      brim_problem_at(problems, &origin, "'%s' overrides the sweep '%s': leave out one of them", word[k], word[i]);
      break;
    }
  }
}

void brim_sweep_expand(brim_arena *arena, const char *const *word, const int *argument, size_t count,
                       const brim_sweep_groups *groups, brim_problems *problems, brim_sweep *out)
{
  brim_text factors = {0};
  uint64_t jobs = 1;
  *out = (brim_sweep){.axis = BRIM_ARENA_NEW(arena, brim_sweep_axis, count), .axis_count = count};
  for (size_t i = 0; i < count; i++) {
    expansion e = {.arena = arena,
                   .problems = problems,
                   .groups = groups,
                   .word = brim_arena_string(arena, word[i]),
                   .argument = argument ? argument[i] : (int)i + 1};
    expand_word(&e, &out->axis[i]);
    const uint64_t n = out->axis[i].count;
    if (n > 1) brim_text_printf(&factors, "%s%" PRIu64, factors.length ? " x " : "", n);
    jobs = jobs > UINT64_MAX / n ? UINT64_MAX : jobs * n;
  }
  refuse_overridden(out, word, argument, problems);
  if (jobs > BRIM_SWEEP_JOBS_MAX)
    brim_problem(problems, BRIM_ECONFIG,
                 "the sweep has %s jobs; at most %d are allowed\n  sweep over fewer values, or "
                 "in several commands",
                 brim_text_str(&factors), BRIM_SWEEP_JOBS_MAX);
  out->jobs = jobs > BRIM_SWEEP_JOBS_MAX ? BRIM_SWEEP_JOBS_MAX : (size_t)jobs;
  brim_text_release(&factors);
}

/* ---- repeats ---- */

static bool is_key(const brim_sweep_axis *axis, const char *key)
{
  return strcmp(axis->key + strspn(axis->key, "+"), key) == 0;
}

static bool can_repeat(const brim_sweep *sweep, int64_t repeats, brim_problems *problems)
{
  const size_t before = problems->count;
  for (size_t i = 0; i < sweep->axis_count; i++) {
    const brim_sweep_axis *axis = &sweep->axis[i];
    if (axis->count == 1) continue;
    if (is_key(axis, "repeats"))
      brim_problem(problems, BRIM_ECONFIG, "'repeats' cannot be swept: it is the number of times that each job runs");
    if (is_key(axis, "seed") && repeats > 1)
      brim_problem(problems, BRIM_ECONFIG,
                   "repeats=%" PRId64 " gives each job seeds of its own, and 'seed' is swept over %zu values\n"
                   "  leave out one of them",
                   repeats, axis->count);
  }
  if (problems->count == before && (uint64_t)repeats > BRIM_SWEEP_JOBS_MAX / sweep->jobs)
    brim_problem(problems, BRIM_ECONFIG, "%zu job%s with repeats=%" PRId64 " are too many; at most %d are allowed",
                 sweep->jobs, brim_plural((int64_t)sweep->jobs), repeats, BRIM_SWEEP_JOBS_MAX);
  return problems->count == before;
}

void brim_sweep_repeat(brim_arena *arena, int64_t seed, int64_t repeats, brim_problems *problems, brim_sweep *sweep)
{
  if (!can_repeat(sweep, repeats, problems) || repeats == 1) return;
  brim_sweep_axis *axis = BRIM_ARENA_NEW(arena, brim_sweep_axis, sweep->axis_count + 2);
  for (size_t i = 0; i < sweep->axis_count; i++) axis[i] = sweep->axis[i];
  const char **once = BRIM_ARENA_NEW(arena, const char *, 1), **seeds = BRIM_ARENA_NEW(arena, const char *, repeats);
  once[0] = "repeats=1";
  for (int64_t i = 0; i < repeats; i++) seeds[i] = brim_arena_printf(arena, "seed=%" PRId64, seed + i);
  axis[sweep->axis_count++] = (brim_sweep_axis){"repeats", once, 1};
  axis[sweep->axis_count++] = (brim_sweep_axis){"seed", seeds, (size_t)repeats};
  sweep->axis = axis;
  sweep->jobs *= (size_t)repeats;
}

void brim_sweep_words(const brim_sweep *sweep, size_t job, const char **out)
{
  for (size_t i = sweep->axis_count; i-- > 0;) {
    const brim_sweep_axis *axis = &sweep->axis[i];
    out[i] = axis->choice[job % axis->count];
    job /= axis->count;
  }
}
