/* Parses an expression by recursive descent, and evaluates its tree. See where.h. */
#include "report/where.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/text.h"

enum kind { OR, AND, NOT, PRESENT, EQUAL, UNEQUAL, LESS, AT_MOST, GREATER, AT_LEAST, LIKE, UNLIKE };

typedef struct brim_where_node {
  enum kind kind;
  const struct brim_where_node *left, *right;
  size_t key, at; /* at: position in the expression where the value begins */
  const char *text;
  double number;  /* NAN: compares as text */
  double seconds; /* seconds of a time such as 1:30; NAN: not a time */
} node;

typedef struct parser {
  brim_arena *arena;
  brim_where *filter;
  const char *at;
  int depth;
} parser;

static const struct {
  const char *sign;
  enum kind kind;
} operators[] = {{"!=", UNEQUAL}, {"!~", UNLIKE}, {"<=", AT_MOST}, {">=", AT_LEAST}, {"==", EQUAL},
                 {"=", EQUAL},    {"<", LESS},    {">", GREATER},  {"~", LIKE}};

/* ---- errors ---- */

/* Returns the number of characters in the first `bytes` of a text. */
static int characters(const char *text, size_t bytes)
{
  int count = 0;
  for (size_t i = 0; i < bytes && text[i]; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
  return count;
}

brim_status brim_where_fail(const brim_where *filter, size_t at, const char *problem)
{
  brim_text shown = {0};
  brim_text_add_shown(&shown, filter->text, "");
  const int column = characters(filter->text, at);
  const brim_status status = brim_fail(BRIM_ECONFIG, "--where, character %d: %s\n  %s\n  %*s^", column + 1, problem,
                                       brim_text_str(&shown), column, "");
  brim_text_release(&shown);
  return status;
}

static brim_status fail(const parser *p, const char *problem)
{
  return brim_where_fail(p->filter, (size_t)(p->at - p->filter->text), problem);
}

/* Returns the keyword for an operator of other languages at the current place; NULL: none. */
static const char *keyword_for_sign(const parser *p)
{
  return *p->at == '&'                                         ? "and"
         : *p->at == '|'                                       ? "or"
         : *p->at == '!' && p->at[1] != '=' && p->at[1] != '~' ? "not"
                                                               : NULL;
}

/* Reports "expected a value, found 'and'", with the word at the current place. */
static brim_status fail_expected(const parser *p, const char *expected)
{
  char problem[160];
  const char *keyword = keyword_for_sign(p);
  if (keyword) {
    snprintf(problem, sizeof problem, "write '%s' instead of '%.*s'", keyword, p->at[1] == p->at[0] ? 2 : 1, p->at);
    return fail(p, problem);
  }
  const size_t word = strcspn(p->at, " \t\n()");
  if (!*p->at)
    snprintf(problem, sizeof problem, "expected %s, but the expression ends here", expected);
  else
    snprintf(problem, sizeof problem, "expected %s, found '%.*s'", expected, (int)(word ? (word < 40 ? word : 40) : 1),
             p->at);
  return fail(p, problem);
}

/* ---- words ---- */

static void skip_space(parser *p)
{
  p->at += strspn(p->at, " \t\n");
}

/* Returns the length of the unquoted word at the current place. */
static size_t word_length(const parser *p)
{
  return strcspn(p->at, " \t\n()'\"=!<>~&|");
}

static bool take_keyword(parser *p, const char *keyword)
{
  const size_t length = strlen(keyword);
  skip_space(p);
  if (word_length(p) != length || strncasecmp(p->at, keyword, length) != 0) return false;
  p->at += length;
  return true;
}

static bool is_keyword(const char *word, size_t length)
{
  static const char *const keywords[] = {"and", "or", "not"};
  for (size_t i = 0; i < sizeof keywords / sizeof keywords[0]; i++)
    if (strlen(keywords[i]) == length && strncasecmp(word, keywords[i], length) == 0) return true;
  return false;
}

double brim_where_number(const char *text)
{
  char *end;
  if (!text[0] || strspn(text, "0123456789+-.eEinfaINFA%") != strlen(text)) return NAN;
  double value = strtod(text, &end);
  if (end == text) return NAN;
  if (strcmp(end, "%") == 0) value /= 100;
  return *end == '\0' || strcmp(end, "%") == 0 ? value : NAN;
}

/* Returns the seconds of a time in the form of brim_format_seconds, 1:30 or 2:01:30; NAN for other texts. */
static double seconds_of(const char *text)
{
  double out = 0;
  int parts = 0;
  for (const char *s = text;; s++, parts++) {
    const size_t digits = strspn(s, "0123456789");
    const bool fits = parts == 0 ? digits > 0 && digits < 10 : digits == 2 && s[0] < '6';
    if (!fits) return NAN;
    out = 60 * out + strtod(s, NULL);
    s += digits;
    if (*s == '\0') return parts == 0 || parts > 2 ? NAN : out;
    if (*s != ':') return NAN;
  }
}

const char *brim_where_show(enum brim_where_kind kind, double number, char out[BRIM_WHERE_SHOWN_BYTES])
{
  if (kind == BRIM_WHERE_SECONDS) return brim_format_seconds(out, BRIM_WHERE_SHOWN_BYTES, number);
  const bool whole = number == floor(number) && fabs(number) < 1e15;
  snprintf(out, BRIM_WHERE_SHOWN_BYTES, whole ? "%.0f" : "%.5g", number);
  return out;
}

static brim_status take_key(parser *p, size_t *out)
{
  brim_where *f = p->filter;
  const size_t length = word_length(p);
  skip_space(p);
  if (length == 0 || is_keyword(p->at, length)) return fail_expected(p, "a key such as model or test.accuracy");
  const char *key = brim_arena_string_n(p->arena, p->at, length);
  size_t i = 0;
  while (i < f->keys && strcmp(f->key[i], key) != 0) i++;
  if (i == BRIM_WHERE_KEYS_MAX) return fail(p, "more than 32 different keys");
  if (i == f->keys) {
    f->key[f->keys] = key;
    f->at[f->keys++] = (size_t)(p->at - f->text);
  }
  p->at += length;
  *out = i;
  return BRIM_OK;
}

static void set_value(node *n, const char *text)
{
  n->text = text;
  n->number = brim_where_number(text);
  n->seconds = seconds_of(text);
}

static brim_status take_value(parser *p, node *n)
{
  skip_space(p);
  const char quote = *p->at;
  n->at = (size_t)(p->at - p->filter->text);
  if (quote == '\'' || quote == '"') {
    const char *end = strchr(p->at + 1, quote);
    if (!end) return fail(p, "this quote has no end");
    set_value(n, brim_arena_string_n(p->arena, p->at + 1, (size_t)(end - p->at - 1)));
    p->at = end + 1;
    return BRIM_OK;
  }
  const size_t length = word_length(p);
  if (length == 0 || is_keyword(p->at, length)) return fail_expected(p, "a value");
  set_value(n, brim_arena_string_n(p->arena, p->at, length));
  p->at += length;
  return BRIM_OK;
}

/* ---- the grammar ---- */

static brim_status take_or(parser *p, const node **out);

static brim_status take_comparison(parser *p, const node **out)
{
  node *n = BRIM_ARENA_NEW(p->arena, node, 1);
  n->kind = PRESENT;
  *out = n;
  BRIM_TRY(take_key(p, &n->key));
  skip_space(p);
  for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
    const size_t length = strlen(operators[i].sign);
    if (strncmp(p->at, operators[i].sign, length) != 0) continue;
    p->at += length;
    n->kind = operators[i].kind;
    return take_value(p, n);
  }
  return BRIM_OK;
}

static brim_status take_factor(parser *p, const node **out)
{
  if (p->depth >= BRIM_WHERE_DEPTH_MAX) return fail(p, "more than 64 levels of parentheses");
  p->depth++;
  brim_status status;
  if (take_keyword(p, "not")) {
    node *n = BRIM_ARENA_NEW(p->arena, node, 1);
    n->kind = NOT;
    *out = n;
    status = take_factor(p, &n->left);
  } else if (*p->at == '(') {
    p->at++;
    status = take_or(p, out);
    skip_space(p);
    if (status == BRIM_OK && *p->at != ')') status = fail_expected(p, "')'");
    if (status == BRIM_OK) p->at++;
  } else {
    status = take_comparison(p, out);
  }
  p->depth--;
  return status;
}

static const node *join(parser *p, enum kind kind, const node *left, const node *right)
{
  node *n = BRIM_ARENA_NEW(p->arena, node, 1);
  *n = (node){.kind = kind, .left = left, .right = right};
  return n;
}

static brim_status take_and(parser *p, const node **out)
{
  const node *right;
  BRIM_TRY(take_factor(p, out));
  while (take_keyword(p, "and")) {
    BRIM_TRY(take_factor(p, &right));
    *out = join(p, AND, *out, right);
  }
  return BRIM_OK;
}

static brim_status take_or(parser *p, const node **out)
{
  const node *right;
  BRIM_TRY(take_and(p, out));
  while (take_keyword(p, "or")) {
    BRIM_TRY(take_and(p, &right));
    *out = join(p, OR, *out, right);
  }
  return BRIM_OK;
}

brim_status brim_where_parse(brim_arena *arena, const char *text, brim_where *out)
{
  *out = (brim_where){.text = brim_arena_string(arena, text)};
  parser p = {.arena = arena, .filter = out, .at = out->text};
  if (strlen(text) > BRIM_WHERE_BYTES_MAX)
    return brim_fail(BRIM_ECONFIG, "--where: the expression is longer than %d bytes", BRIM_WHERE_BYTES_MAX);
  const node *root;
  BRIM_TRY(take_or(&p, &root));
  skip_space(&p);
  if (*p.at) return fail_expected(&p, "'and', 'or' or the end");
  out->root = root;
  return BRIM_OK;
}

/* ---- values that can match ---- */

static bool is_order(enum kind kind)
{
  return kind == LESS || kind == AT_MOST || kind == GREATER || kind == AT_LEAST;
}

/* Whether the text is a date or its beginning: 2026, 2026-11, 2026-11-27, 2026-11-27 14:30, 2026-11-27 14:30:59. */
static bool is_date(const char *text)
{
  static const struct {
    char before;
    int digits, least, most;
  } parts[] = {{'\0', 4, 1970, 9999}, {'-', 2, 1, 12}, {'-', 2, 1, 31},
               {' ', 2, 0, 23},       {':', 2, 0, 59}, {':', 2, 0, 60}};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    if (i > 0 && !*text) return i != 4; /* hours alone are no time */
    if (i > 0 && *text++ != parts[i].before) return false;
    if ((int)strspn(text, "0123456789") < parts[i].digits) return false;
    int value = 0;
    for (int k = 0; k < parts[i].digits; k++) value = 10 * value + (*text++ - '0');
    if (value < parts[i].least || value > parts[i].most) return false;
  }
  return !*text;
}

/* "; write 0.5" for 0,5. */
static const char *decimal_point(brim_arena *arena, const char *text)
{
  char *copy = brim_arena_string(arena, text), *comma = strchr(copy, ',');
  if (!comma) return "";
  *comma = '.';
  return isnan(brim_where_number(copy)) ? "" : brim_arena_printf(arena, "; write %s", copy);
}

static const char *list_names(brim_arena *arena, const brim_where_values *v)
{
  const char *out = "";
  for (size_t i = 0; i < v->names; i++)
    out = brim_arena_printf(arena, "%s%s%s", out, i == 0 ? "" : i + 1 < v->names ? ", " : " or ", v->name[i]);
  return out;
}

/* Returns the number with which a value of this kind is compared; NAN: none. */
static double number_of(const node *n, enum brim_where_kind kind)
{
  return kind == BRIM_WHERE_SECONDS && isnan(n->number) ? n->seconds : n->number;
}

static brim_status check_value(brim_arena *arena, const brim_where *f, const node *n)
{
  const brim_where_values *v = &f->values[n->key];
  const char *key = f->key[n->key], *problem = NULL;
  const bool orders = is_order(n->kind), is_number = !isnan(number_of(n, v->kind));
  const bool has_numbers = v->kind == BRIM_WHERE_NUMBERS || v->kind == BRIM_WHERE_SECONDS;
  const char *near = v->names > 0 ? brim_suggest_of(n->text, v->name, v->names) : NULL;
  bool has = false;
  for (size_t i = 0; i < v->names; i++) has = has || strcmp(v->name[i], n->text) == 0;
  if (v->kind == BRIM_WHERE_DATES && !is_date(n->text))
    problem = brim_arena_printf(arena, "'%s' is a date, such as 2026-11-27 or '2026-11-27 14:30', and '%s' is not one",
                                key, n->text);
  else if (orders && (v->kind == BRIM_WHERE_TEXTS || v->kind == BRIM_WHERE_NAMES || v->kind == BRIM_WHERE_PATHS))
    problem =
        brim_arena_printf(arena, "'%s' has no numbers here, so it is neither less nor greater: use =, != or ~", key);
  else if (!is_number && v->kind != BRIM_WHERE_DATES && (orders || has_numbers))
    problem =
        brim_arena_printf(arena, "'%s' is compared with %s, and '%s' is not one%s", key,
                          v->kind == BRIM_WHERE_SECONDS ? "a number of seconds or a time such as 1:30:00" : "a number",
                          n->text, decimal_point(arena, n->text));
  else if (v->kind == BRIM_WHERE_NAMES && !has && near)
    problem = brim_arena_printf(arena, "'%s' is never '%s'; did you mean '%s'?", key, n->text, near);
  else if (v->kind == BRIM_WHERE_NAMES && !has)
    problem = brim_arena_printf(arena, "'%s' is never '%s': it is %s", key, n->text, list_names(arena, v));
  if (problem) return brim_where_fail(f, n->at, problem);
  if (v->kind == BRIM_WHERE_TEXTS && !has && near)
    brim_log(BRIM_LOG_WARN, "--where: no run here has %s=%s; did you mean '%s'?", key, n->text, near);
  return BRIM_OK;
}

static brim_status check(brim_arena *arena, const brim_where *f, const node *n)
{
  if (n->kind == NOT || n->kind == AND || n->kind == OR) {
    BRIM_TRY(check(arena, f, n->left));
    return n->kind == NOT ? BRIM_OK : check(arena, f, n->right);
  }
  return n->kind == PRESENT || n->kind == LIKE || n->kind == UNLIKE ? BRIM_OK : check_value(arena, f, n);
}

brim_status brim_where_check(brim_arena *arena, const brim_where *filter)
{
  return filter->root ? check(arena, filter, filter->root) : BRIM_OK;
}

/* ---- evaluation ---- */

static bool is_like(const char *text, const char *pattern)
{
  return strpbrk(pattern, "*?[") ? fnmatch(pattern, text, 0) == 0 : strstr(text, pattern) != NULL;
}

/* Whether `end`, without "./" at its start and slashes at its end, is the path or the last parts of it. */
static bool is_end_of_path(const char *path, const char *end)
{
  if (brim_starts_with(end, "./")) end += 2;
  size_t length = strlen(end);
  while (length > 1 && end[length - 1] == '/') length--;
  const size_t whole = strlen(path);
  if (length > whole || memcmp(path + whole - length, end, length) != 0) return false;
  return length == whole || path[whole - length - 1] == '/' || end[0] == '/';
}

/* Whether a path, or its last parts, match a pattern; a text without pattern characters need only occur in the path. */
static bool is_path_like(const char *path, const char *pattern)
{
  for (const char *s = path; s; s = strchr(s, '/'), s = s ? s + 1 : NULL)
    if (is_like(s, pattern)) return true;
  return false;
}

/* Whether a list shows the number in the form in which the value is written: 0.95312 for 0.953125, and 1:31 for 90.5
 * seconds. */
static bool is_shown_as(const node *n, enum brim_where_kind kind, double number)
{
  char shown[BRIM_WHERE_SHOWN_BYTES];
  brim_where_show(kind, number, shown);
  return strcmp(shown, n->text) == 0 || brim_where_number(shown) == n->number;
}

/* = or ~ on one text. */
static bool holds(const node *n, enum brim_where_kind kind, const char *text, double number)
{
  const bool is_equal = n->kind == EQUAL || n->kind == UNEQUAL;
  char shown[BRIM_WHERE_SHOWN_BYTES];
  if (kind == BRIM_WHERE_PATHS && text) return is_equal ? is_end_of_path(text, n->text) : is_path_like(text, n->text);
  if (kind == BRIM_WHERE_DATES && is_equal && text) return brim_starts_with(text, n->text);
  if (is_equal && isfinite(number_of(n, kind)) && isfinite(number))
    return number == number_of(n, kind) || (!text && is_shown_as(n, kind, number));
  if (!text) text = brim_where_show(kind, number, shown);
  return is_equal ? strcmp(text, n->text) == 0 : is_like(text, n->text);
}

static bool holds_for_one(const node *n, enum brim_where_kind kind, const char *list)
{
  char item[256];
  for (const char *s = list; *s; s += strspn(s, ",")) {
    const size_t length = strcspn(s, ",");
    snprintf(item, sizeof item, "%.*s", (int)(length < sizeof item ? length : sizeof item - 1), s);
    if (holds(n, kind, item, NAN)) return true;
    s += length;
  }
  return false;
}

static bool is_ordered(enum kind kind, double order)
{
  return kind == LESS ? order < 0 : kind == AT_MOST ? order <= 0 : kind == GREATER ? order > 0 : order >= 0;
}

static bool compare(const node *n, enum brim_where_kind kind, const brim_where_value *v)
{
  const bool negates = n->kind == UNEQUAL || n->kind == UNLIKE;
  if (!v->has) return negates;
  switch (n->kind) {
  case PRESENT:
    return v->text ? v->text[0] && strcmp(v->text, "false") != 0 && strcmp(v->text, "[]") != 0 : true;
  case EQUAL:
  case UNEQUAL:
  case LIKE:
  case UNLIKE:
    return negates != (v->is_list ? holds_for_one(n, kind, v->text) : holds(n, kind, v->text, v->number));
  default:
    if (kind == BRIM_WHERE_DATES) return v->text && is_ordered(n->kind, (double)strcmp(v->text, n->text));
    return !isnan(v->number) && is_ordered(n->kind, v->number - number_of(n, kind));
  }
}

static bool matches(const brim_where *f, const node *n, const brim_where_value *value)
{
  switch (n->kind) {
  case OR:
    return matches(f, n->left, value) || matches(f, n->right, value);
  case AND:
    return matches(f, n->left, value) && matches(f, n->right, value);
  case NOT:
    return !matches(f, n->left, value);
  default:
    return compare(n, f->values[n->key].kind, &value[n->key]);
  }
}

bool brim_where_matches(const brim_where *filter, const brim_where_value *value)
{
  return !filter->root || matches(filter, filter->root, value);
}
