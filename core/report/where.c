/* A recursive-descent parser, and a walk over its tree. See where.h. */
#include "report/where.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

enum kind { OR, AND, NOT, PRESENT, EQUAL, UNEQUAL, LESS, AT_MOST, GREATER, AT_LEAST, LIKE, UNLIKE };

typedef struct brim_where_node {
  enum kind kind;
  const struct brim_where_node *left, *right;
  size_t key;
  const char *text;
  double number; /* NAN: compares as text */
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

/* The number of characters in the first `bytes` of a text. */
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

/* "expected a value, found 'and'": names the word at the current place. */
static brim_status fail_expected(const parser *p, const char *expected)
{
  char problem[160];
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

/* The length of the unquoted word at the current place. */
static size_t word_length(const parser *p)
{
  return strcspn(p->at, " \t\n()'\"=!<>~&|");
}

static bool take_keyword(parser *p, const char *keyword, const char *sign)
{
  const size_t length = strlen(keyword);
  skip_space(p);
  if (word_length(p) == length && strncasecmp(p->at, keyword, length) == 0) {
    p->at += length;
    return true;
  }
  if (!sign || strncmp(p->at, sign, strlen(sign)) != 0) return false;
  p->at += strlen(sign);
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

static brim_status take_value(parser *p, node *n)
{
  skip_space(p);
  const char quote = *p->at;
  if (quote == '\'' || quote == '"') {
    const char *end = strchr(p->at + 1, quote);
    if (!end) return fail(p, "this quote has no end");
    n->text = brim_arena_string_n(p->arena, p->at + 1, (size_t)(end - p->at - 1));
    n->number = NAN;
    p->at = end + 1;
    return BRIM_OK;
  }
  const size_t length = word_length(p);
  if (length == 0 || is_keyword(p->at, length)) return fail_expected(p, "a value");
  n->text = brim_arena_string_n(p->arena, p->at, length);
  n->number = brim_where_number(n->text);
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
  if (take_keyword(p, "not", NULL)) {
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
  while (take_keyword(p, "and", "&&")) {
    BRIM_TRY(take_factor(p, &right));
    *out = join(p, AND, *out, right);
  }
  return BRIM_OK;
}

static brim_status take_or(parser *p, const node **out)
{
  const node *right;
  BRIM_TRY(take_and(p, out));
  while (take_keyword(p, "or", "||")) {
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

/* ---- evaluation ---- */

static bool is_like(const char *text, const char *pattern)
{
  return strpbrk(pattern, "*?[") ? fnmatch(pattern, text, 0) == 0 : strstr(text, pattern) != NULL;
}

/* = or ~ on one text. */
static bool holds(const node *n, const char *text, double number)
{
  const bool is_equal = n->kind == EQUAL || n->kind == UNEQUAL;
  char buffer[32];
  if (is_equal && isfinite(n->number) && isfinite(number)) return number == n->number;
  if (!text) {
    snprintf(buffer, sizeof buffer, "%.15g", number);
    text = buffer;
  }
  return is_equal ? strcmp(text, n->text) == 0 : is_like(text, n->text);
}

static bool holds_for_one(const node *n, const char *list)
{
  char item[256];
  for (const char *s = list; *s; s += strspn(s, ",")) {
    const size_t length = strcspn(s, ",");
    snprintf(item, sizeof item, "%.*s", (int)(length < sizeof item ? length : sizeof item - 1), s);
    if (holds(n, item, NAN)) return true;
    s += length;
  }
  return false;
}

static bool is_ordered(enum kind kind, double order)
{
  return kind == LESS ? order < 0 : kind == AT_MOST ? order <= 0 : kind == GREATER ? order > 0 : order >= 0;
}

static bool compare(const node *n, const brim_where_value *v)
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
    return negates != (v->is_list ? holds_for_one(n, v->text) : holds(n, v->text, v->number));
  default:
    if (!isnan(n->number)) return !isnan(v->number) && is_ordered(n->kind, v->number - n->number);
    return v->text && is_ordered(n->kind, (double)strcmp(v->text, n->text));
  }
}

static bool matches(const node *n, const brim_where_value *value)
{
  switch (n->kind) {
  case OR:
    return matches(n->left, value) || matches(n->right, value);
  case AND:
    return matches(n->left, value) && matches(n->right, value);
  case NOT:
    return !matches(n->left, value);
  default:
    return compare(n, &value[n->key]);
  }
}

bool brim_where_matches(const brim_where *filter, const brim_where_value *value)
{
  return !filter->root || matches(filter->root, value);
}
