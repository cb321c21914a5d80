/* Reads a template: tokens become a tree, by the grammar of jinja2.parser. See template.h. */
#include <stdio.h>
#include <stdlib.h>

#include "brim/host.h"
#include "template_parts.h"

#define NESTED_MAX 200 /* of statements and expressions in the source */

typedef struct parser {
  template *t;
  tokens tokens;
  size_t at;
  int nested, loops;
  bool in_block; /* in a macro or another block whose text has no place in the output yet */
  node *macro;   /* around this place, or NULL */
} parser;

/* ---- errors ---- */

brim_status template_fail(const template *t, size_t at, const char *format, ...)
{
  char what[1024];
  size_t line = 1, column = 1;
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  for (size_t i = 0; i < at && i < t->source.bytes; i++) {
    column += (t->source.text[i] & 0xc0) != 0x80;
    if (t->source.text[i] == '\n') {
      line++;
      column = 1;
    }
  }
  return brim_fail(BRIM_ELOAD, "'%s', line %zu, column %zu: %s", t->title, line, column, what);
}

static const token *now(const parser *p)
{
  return &p->tokens.token[p->at];
}
static const token *ahead(const parser *p)
{
  return &p->tokens.token[p->at + (now(p)->kind != TOKEN_END)];
}
static void skip(parser *p)
{
  if (now(p)->kind != TOKEN_END) p->at++;
}

#define SHOWN_MAX 40
static brim_status unexpected(const parser *p, const char *wanted)
{
  const token *k = now(p);
  if (k->kind == TOKEN_END) return template_fail(p->t, k->at, "the template ends where %s is needed", wanted);
  const size_t bytes = k->text.bytes < SHOWN_MAX ? k->text.bytes : SHOWN_MAX;
  return template_fail(p->t, k->at, "%s is needed, but '%.*s' is here", wanted, (int)bytes, k->text.text);
}

static brim_status no_memory(const parser *p)
{
  return brim_fail(BRIM_ENOMEM_HOST, "no memory for the template '%s'", p->t->title);
}

/* ---- tokens ---- */

static bool is_word(const token *k, const char *word)
{
  return k->kind == TOKEN_NAME && slice_is(k->text, word);
}
static bool accept(parser *p, int32_t kind)
{
  if (now(p)->kind != kind) return false;
  skip(p);
  return true;
}
static bool accept_word(parser *p, const char *word)
{
  if (!is_word(now(p), word)) return false;
  skip(p);
  return true;
}
static brim_status expect(parser *p, int32_t kind, const char *wanted)
{
  return accept(p, kind) ? BRIM_OK : unexpected(p, wanted);
}
static brim_status expect_word(parser *p, const char *word)
{
  return accept_word(p, word) ? BRIM_OK : unexpected(p, word);
}

/* ---- nodes ---- */

static brim_status make(parser *p, enum node_kind kind, size_t at, node **out)
{
  node *n = memory_take(&p->t->memory, sizeof *n);
  if (!n) return no_memory(p);
  *n = (node){.kind = (uint8_t)kind, .at = at, .name = -1};
  *out = n;
  return BRIM_OK;
}

static brim_status name_number(parser *p, slice name, int32_t *out)
{
  template *t = p->t;
  for (*out = 0; *out < t->name_count; ++*out)
    if (t->name[*out].bytes == name.bytes && memcmp(t->name[*out].text, name.text, name.bytes) == 0) return BRIM_OK;
  if (t->name_count == NAMES_MAX)
    return template_fail(t, now(p)->at, "a template may have at most %d different names", NAMES_MAX);
  t->name[t->name_count++] = name;
  if (slice_is(name, "loop")) t->loop = *out;
  if (slice_is(name, "caller")) t->caller = *out;
  return BRIM_OK;
}

static brim_status enter(parser *p)
{
  if (++p->nested <= NESTED_MAX) return BRIM_OK;
  return template_fail(p->t, now(p)->at, "more than %d nested statements and expressions", NESTED_MAX);
}

static brim_status read_expression(parser *p, node **out);
static brim_status read_or(parser *p, node **out);
static brim_status read_unary(parser *p, bool with_filter, node **out);

/* ---- primary expressions ---- */

static brim_status read_name(parser *p, node **out)
{
  const token *k = now(p);
  static const struct {
    const char *word;
    value value;
  } constants[] = {{"true", {.kind = VALUE_BOOL, .integer = 1}},
                   {"True", {.kind = VALUE_BOOL, .integer = 1}},
                   {"false", {.kind = VALUE_BOOL, .integer = 0}},
                   {"False", {.kind = VALUE_BOOL, .integer = 0}},
                   {"none", {.kind = VALUE_NONE}},
                   {"None", {.kind = VALUE_NONE}}};
  for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++) {
    if (!accept_word(p, constants[i].word)) continue;
    BRIM_TRY(make(p, NODE_CONST, k->at, out));
    (*out)->constant = constants[i].value;
    return BRIM_OK;
  }
  skip(p);
  if (p->macro && (slice_is(k->text, "varargs") || slice_is(k->text, "kwargs")))
    return template_fail(p->t, k->at, "'%.*s' of a macro is not supported", (int)k->text.bytes, k->text.text);
  for (node *m = p->macro; m && slice_is(k->text, "caller"); m = m->e) m->flag = true;
  BRIM_TRY(make(p, NODE_NAME, k->at, out));
  (*out)->text = k->text;
  return name_number(p, k->text, &(*out)->name);
}

/* Adjacent strings are one string. */
static brim_status read_string(parser *p, node **out)
{
  const size_t first = p->at;
  size_t bytes = 0;
  for (; now(p)->kind == TOKEN_STRING; skip(p)) bytes += now(p)->text.bytes;
  BRIM_TRY(make(p, NODE_CONST, p->tokens.token[first].at, out));
  (*out)->constant = value_slice(p->tokens.token[first].text.text, bytes);
  if (p->at == first + 1) return BRIM_OK;
  char *text = memory_take(&p->t->memory, bytes + 1);
  if (!text) return no_memory(p);
  (*out)->constant.text.text = text;
  for (size_t i = first; i < p->at; i++) {
    const slice part = p->tokens.token[i].text;
    if (part.bytes) memcpy(text, part.text, part.bytes);
    text += part.bytes;
  }
  return BRIM_OK;
}

static brim_status read_number(parser *p, node **out)
{
  const token *k = now(p);
  skip(p);
  BRIM_TRY(make(p, NODE_CONST, k->at, out));
  (*out)->constant = k->kind == TOKEN_INT ? value_int(k->integer) : value_real(k->real);
  return BRIM_OK;
}

typedef brim_status (*read_fn)(parser *p, node **out);

/* Expressions with commas between them make a tuple; `simple`: only names and constants, as targets are. */
static brim_status read_tuple(parser *p, read_fn part, bool in_brackets, node **out)
{
  const size_t at = now(p)->at;
  node *first = NULL, **end = &first;
  bool is_tuple = false;
  for (;;) {
    const int32_t kind = now(p)->kind;
    if (kind == TOKEN_CLOSE || kind == ')' || is_word(now(p), "in") || is_word(now(p), "recursive")) break;
    BRIM_TRY(part(p, end));
    end = &(*end)->next;
    if (!accept(p, ',')) break;
    is_tuple = true;
  }
  if (!is_tuple && first) {
    *out = first;
    return BRIM_OK;
  }
  if (!is_tuple && !in_brackets) return unexpected(p, "an expression");
  BRIM_TRY(make(p, NODE_TUPLE, at, out));
  (*out)->a = first;
  return BRIM_OK;
}

static brim_status read_list(parser *p, node **out)
{
  const size_t at = now(p)->at;
  skip(p);
  BRIM_TRY(make(p, NODE_LIST, at, out));
  node **end = &(*out)->a;
  while (!accept(p, ']')) {
    BRIM_TRY(read_expression(p, end));
    end = &(*end)->next;
    if (now(p)->kind != ']') BRIM_TRY(expect(p, ',', "',' or ']'"));
  }
  return BRIM_OK;
}

static brim_status read_dict(parser *p, node **out)
{
  const size_t at = now(p)->at;
  skip(p);
  BRIM_TRY(make(p, NODE_DICT, at, out));
  node **end = &(*out)->a;
  while (!accept(p, '}')) {
    BRIM_TRY(read_expression(p, end));
    BRIM_TRY(expect(p, ':', "':'"));
    end = &(*end)->next;
    BRIM_TRY(read_expression(p, end));
    end = &(*end)->next;
    if (now(p)->kind != '}') BRIM_TRY(expect(p, ',', "',' or '}'"));
  }
  return BRIM_OK;
}

static brim_status read_primary(parser *p, node **out)
{
  switch (now(p)->kind) {
  case TOKEN_NAME:
    return read_name(p, out);
  case TOKEN_STRING:
    return read_string(p, out);
  case TOKEN_INT:
  case TOKEN_FLOAT:
    return read_number(p, out);
  case '[':
    return read_list(p, out);
  case '{':
    return read_dict(p, out);
  case '(':
    skip(p);
    BRIM_TRY(read_tuple(p, read_expression, true, out));
    return expect(p, ')', "')'");
  default:
    return unexpected(p, "an expression");
  }
}

/* ---- suffixes of expressions ---- */

static brim_status read_argument(parser *p, bool *named, node **out)
{
  const token *k = now(p);
  if (k->kind == '*' || k->kind == OP2('*', '*'))
    return template_fail(p->t, k->at, "arguments with * are not supported");
  if (k->kind == TOKEN_NAME && ahead(p)->kind == '=') {
    *named = true;
    BRIM_TRY(make(p, NODE_KEYWORD, k->at, out));
    (*out)->text = k->text;
    skip(p);
    skip(p);
    return read_expression(p, &(*out)->a);
  }
  if (*named) return template_fail(p->t, k->at, "an argument without a name follows one with a name");
  return read_expression(p, out);
}

static brim_status read_arguments(parser *p, node **out)
{
  bool named = false;
  BRIM_TRY(expect(p, '(', "'('"));
  while (!accept(p, ')')) {
    BRIM_TRY(read_argument(p, &named, out));
    out = &(*out)->next;
    if (now(p)->kind != ')') BRIM_TRY(expect(p, ',', "',' or ')'"));
  }
  return BRIM_OK;
}

/* A part of a slice, which may be absent. */
static brim_status read_bound(parser *p, node **out)
{
  const int32_t kind = now(p)->kind;
  return kind == ':' || kind == ']' || kind == ',' ? BRIM_OK : read_expression(p, out);
}

static brim_status read_index(parser *p, node **out)
{
  const size_t at = now(p)->at;
  node *first = NULL;
  BRIM_TRY(read_bound(p, &first));
  if (first && now(p)->kind != ':') {
    *out = first;
    return BRIM_OK;
  }
  BRIM_TRY(expect(p, ':', "an index"));
  BRIM_TRY(make(p, NODE_SLICE, at, out));
  (*out)->a = first;
  BRIM_TRY(read_bound(p, &(*out)->b));
  return accept(p, ':') ? read_bound(p, &(*out)->c) : BRIM_OK;
}

static brim_status read_subscript(parser *p, node **inout)
{
  const size_t at = now(p)->at;
  const bool dot = accept(p, '.');
  const token *k = now(p);
  node *n = NULL;
  BRIM_TRY(make(p, dot && k->kind == TOKEN_NAME ? NODE_ATTRIBUTE : NODE_ITEM, at, &n));
  n->a = *inout;
  *inout = n;
  if (n->kind == NODE_ATTRIBUTE) {
    n->text = k->text;
    skip(p);
    return BRIM_OK;
  }
  if (dot) return k->kind == TOKEN_INT ? read_number(p, &n->b) : unexpected(p, "a name");
  skip(p);
  BRIM_TRY(read_index(p, &n->b));
  if (now(p)->kind == ',') return template_fail(p->t, now(p)->at, "an index with several parts is not supported");
  return expect(p, ']', "']'");
}

static brim_status read_call(parser *p, node **inout)
{
  node *n = NULL;
  BRIM_TRY(make(p, NODE_CALL, (*inout)->at, &n));
  n->a = *inout;
  *inout = n;
  return read_arguments(p, &n->b);
}

static brim_status read_postfix(parser *p, node **inout)
{
  for (;;) {
    const int32_t kind = now(p)->kind;
    if (kind == '.' || kind == '[')
      BRIM_TRY(read_subscript(p, inout));
    else if (kind == '(')
      BRIM_TRY(read_call(p, inout));
    else
      return BRIM_OK;
  }
}

static brim_status unknown(const parser *p, const token *k, const char *what)
{
  return template_fail(p->t, k->at, "the %s '%.*s' is not supported", what, (int)k->text.bytes, k->text.text);
}

/* A filter after "|". */
static brim_status read_filter(parser *p, node **inout)
{
  const token *k = now(p);
  node *n = NULL;
  if (k->kind != TOKEN_NAME) return unexpected(p, "the name of a filter");
  BRIM_TRY(make(p, NODE_FILTER, k->at, &n));
  n->builtin = library_filter(k->text);
  if (!n->builtin || ahead(p)->kind == '.') return unknown(p, k, "filter");
  skip(p);
  n->a = *inout;
  *inout = n;
  return now(p)->kind == '(' ? read_arguments(p, &n->b) : BRIM_OK;
}

static bool begins_argument(const parser *p)
{
  const token *k = now(p);
  if (k->kind == TOKEN_NAME) return !is_word(k, "else") && !is_word(k, "or") && !is_word(k, "and");
  return k->kind == TOKEN_STRING || k->kind == TOKEN_INT || k->kind == TOKEN_FLOAT || k->kind == '(' ||
         k->kind == '[' || k->kind == '{';
}

/* A test after "is". */
static brim_status read_test(parser *p, node **inout)
{
  const bool negated = accept_word(p, "not");
  const token *k = now(p);
  node *n = NULL;
  if (k->kind != TOKEN_NAME) return unexpected(p, "the name of a test");
  BRIM_TRY(make(p, NODE_TEST, k->at, &n));
  n->builtin = library_test(k->text);
  if (!n->builtin || ahead(p)->kind == '.') return unknown(p, k, "test");
  skip(p);
  n->a = *inout;
  *inout = n;
  if (now(p)->kind == '(') {
    BRIM_TRY(read_arguments(p, &n->b));
  } else if (begins_argument(p)) {
    if (is_word(now(p), "is")) return unexpected(p, "an argument of the test");
    BRIM_TRY(read_primary(p, &n->b));
    BRIM_TRY(read_postfix(p, &n->b));
  }
  if (!negated) return BRIM_OK;
  BRIM_TRY(make(p, NODE_NOT, k->at, inout));
  (*inout)->a = n;
  return BRIM_OK;
}

static brim_status read_filters(parser *p, node **inout)
{
  for (;;) {
    if (accept(p, '|'))
      BRIM_TRY(read_filter(p, inout));
    else if (accept_word(p, "is"))
      BRIM_TRY(read_test(p, inout));
    else if (now(p)->kind == '(')
      BRIM_TRY(read_call(p, inout));
    else
      return BRIM_OK;
  }
}

/* ---- operators, the loosest last ---- */

static brim_status read_signed(parser *p, bool with_filter, node **out)
{
  const token *k = now(p);
  if (k->kind == '-' || k->kind == '+') {
    skip(p);
    BRIM_TRY(make(p, NODE_SIGN, k->at, out));
    (*out)->op = k->kind;
    BRIM_TRY(read_unary(p, false, &(*out)->a));
  } else {
    BRIM_TRY(read_primary(p, out));
  }
  BRIM_TRY(read_postfix(p, out));
  return with_filter ? read_filters(p, out) : BRIM_OK;
}

static brim_status read_unary(parser *p, bool with_filter, node **out)
{
  BRIM_TRY(enter(p));
  const brim_status status = read_signed(p, with_filter, out);
  p->nested--;
  return status;
}

/* Operators that are evaluated from the left, the tightest level first; ops end in 0. */
static const int32_t levels[][5] = {{OP2('*', '*'), 0}, {'*', '/', OP2('/', '/'), '%', 0}, {'~', 0}, {'+', '-', 0}};
#define LEVEL_CONCAT 2
#define LEVELS 4

static bool is_of_level(int level, int32_t op)
{
  for (const int32_t *o = levels[level]; *o; o++)
    if (*o == op) return true;
  return false;
}

static brim_status read_level(parser *p, int level, node **out)
{
  if (level < 0) return read_unary(p, true, out);
  BRIM_TRY(read_level(p, level - 1, out));
  while (is_of_level(level, now(p)->kind)) {
    const token *k = now(p);
    node *n = *out;
    if (n->kind != NODE_CONCAT || level != LEVEL_CONCAT || !n->flag) {
      BRIM_TRY(make(p, level == LEVEL_CONCAT ? NODE_CONCAT : NODE_BINARY, k->at, &n));
      n->op = k->kind;
      n->a = *out;
      n->flag = true; /* further operands of ~ join this node */
      *out = n;
    }
    node **right = level == LEVEL_CONCAT ? &n->a->next : &n->b;
    while (*right) right = &(*right)->next;
    skip(p);
    BRIM_TRY(read_level(p, level - 1, right));
  }
  if ((*out)->kind == NODE_CONCAT) (*out)->flag = false;
  return BRIM_OK;
}

static bool accept_comparison(parser *p, int32_t *op)
{
  static const int32_t ops[] = {OP2('=', '='), OP2('!', '='), OP2('<', '='), OP2('>', '='), '<', '>'};
  if (is_word(now(p), "not") && is_word(ahead(p), "in")) {
    skip(p);
    skip(p);
    *op = OP_NOT_IN;
    return true;
  }
  *op = OP_IN;
  if (accept_word(p, "in")) return true;
  for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
    *op = ops[i];
    if (accept(p, ops[i])) return true;
  }
  return false;
}

static brim_status read_comparison(parser *p, node **out)
{
  int32_t op;
  node **end = NULL;
  BRIM_TRY(read_level(p, LEVELS - 1, out));
  for (;;) {
    const size_t at = now(p)->at;
    if (!accept_comparison(p, &op)) return BRIM_OK;
    if (!end) {
      node *n = NULL;
      BRIM_TRY(make(p, NODE_COMPARE, at, &n));
      n->a = *out;
      *out = n;
      end = &n->b;
    }
    BRIM_TRY(make(p, NODE_BINARY, at, end));
    (*end)->op = op;
    BRIM_TRY(read_level(p, LEVELS - 1, &(*end)->a));
    end = &(*end)->next;
  }
}

static brim_status read_not(parser *p, node **out)
{
  const size_t at = now(p)->at;
  if (!accept_word(p, "not")) return read_comparison(p, out);
  BRIM_TRY(make(p, NODE_NOT, at, out));
  BRIM_TRY(enter(p));
  const brim_status status = read_not(p, &(*out)->a);
  p->nested--;
  return status;
}

static brim_status read_both(parser *p, const char *word, enum node_kind kind, read_fn part, node **out)
{
  BRIM_TRY(part(p, out));
  while (is_word(now(p), word)) {
    node *n = NULL;
    BRIM_TRY(make(p, kind, now(p)->at, &n));
    skip(p);
    n->a = *out;
    *out = n;
    BRIM_TRY(part(p, &n->b));
  }
  return BRIM_OK;
}

static brim_status read_and(parser *p, node **out)
{
  return read_both(p, "and", NODE_AND, read_not, out);
}
static brim_status read_or(parser *p, node **out)
{
  return read_both(p, "or", NODE_OR, read_and, out);
}

static brim_status read_condition(parser *p, node **out)
{
  BRIM_TRY(read_or(p, out));
  while (is_word(now(p), "if")) {
    node *n = NULL;
    BRIM_TRY(make(p, NODE_CONDITION, now(p)->at, &n));
    skip(p);
    n->b = *out;
    *out = n;
    BRIM_TRY(read_or(p, &n->a));
    if (accept_word(p, "else")) BRIM_TRY(read_expression(p, &n->c));
  }
  return BRIM_OK;
}

static brim_status read_expression(parser *p, node **out)
{
  BRIM_TRY(enter(p));
  const brim_status status = read_condition(p, out);
  p->nested--;
  return status;
}

/* ---- statements ---- */

/* Reads statements until a tag that begins with one of the words (a list that ends in NULL); that word is then the
 * current token. Without words, reads until the end of the template. */
static brim_status read_body(parser *p, const char *const *ends, node **out);

/* Reads the end of a tag, statements, and the closing word. */
static brim_status read_block(parser *p, const char *const *ends, node **out)
{
  (void)accept(p, ':');
  BRIM_TRY(expect(p, TOKEN_CLOSE, "'%}'"));
  return read_body(p, ends, out);
}

/* The same for a body whose text is not written at its place. */
static brim_status read_apart(parser *p, const char *end, node **out)
{
  const char *const ends[] = {end, NULL};
  const int loops = p->loops;
  const bool in_block = p->in_block;
  p->loops = 0;
  p->in_block = true;
  BRIM_TRY(read_block(p, ends, out));
  p->loops = loops;
  p->in_block = in_block;
  return expect_word(p, end);
}

static brim_status read_if(parser *p, node *n)
{
  static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif", NULL};
  for (;;) {
    n->kind = NODE_IF;
    BRIM_TRY(read_tuple(p, read_or, false, &n->a));
    BRIM_TRY(read_block(p, ends, &n->b));
    const size_t at = now(p)->at;
    if (!accept_word(p, "elif")) break;
    BRIM_TRY(make(p, NODE_IF, at, &n->c));
    n = n->c;
  }
  if (accept_word(p, "else")) BRIM_TRY(read_block(p, last, &n->c));
  return expect_word(p, "endif");
}

static brim_status check_target(const parser *p, const node *target)
{
  if (target->kind == NODE_NAME && slice_is(target->text, "loop"))
    return template_fail(p->t, target->at, "'loop' cannot be assigned to");
  if (target->kind == NODE_NAME || target->kind == NODE_FIELD) return BRIM_OK;
  if (target->kind != NODE_TUPLE) return template_fail(p->t, target->at, "this cannot be assigned to");
  for (const node *n = target->a; n; n = n->next) BRIM_TRY(check_target(p, n));
  return BRIM_OK;
}

static brim_status read_for(parser *p, node *n)
{
  static const char *const ends[] = {"endfor", "else", NULL}, *const last[] = {"endfor", NULL};
  n->kind = NODE_FOR;
  BRIM_TRY(read_tuple(p, read_primary, false, &n->a));
  BRIM_TRY(check_target(p, n->a));
  BRIM_TRY(expect_word(p, "in"));
  BRIM_TRY(read_tuple(p, read_or, false, &n->b));
  if (accept_word(p, "if")) BRIM_TRY(read_expression(p, &n->e));
  if (is_word(now(p), "recursive")) return template_fail(p->t, now(p)->at, "recursive loops are not supported");
  p->loops++;
  BRIM_TRY(read_block(p, ends, &n->c));
  p->loops--;
  if (accept_word(p, "else")) BRIM_TRY(read_block(p, last, &n->d));
  return expect_word(p, "endfor");
}

/* A target of set: a name, or a member of a namespace. */
static brim_status read_target(parser *p, node **out)
{
  const token *k = now(p);
  if (k->kind != TOKEN_NAME || ahead(p)->kind != '.') return read_primary(p, out);
  skip(p);
  skip(p);
  if (now(p)->kind != TOKEN_NAME) return unexpected(p, "a name");
  BRIM_TRY(make(p, NODE_FIELD, k->at, out));
  BRIM_TRY(name_number(p, k->text, &(*out)->name));
  (*out)->text = now(p)->text;
  skip(p);
  return BRIM_OK;
}

static brim_status read_set(parser *p, node *n)
{
  n->kind = NODE_SET;
  BRIM_TRY(read_tuple(p, read_target, false, &n->a));
  BRIM_TRY(check_target(p, n->a));
  if (accept(p, '=')) return read_tuple(p, read_expression, false, &n->b);
  n->kind = NODE_SET_BLOCK;
  while (accept(p, '|')) BRIM_TRY(read_filter(p, &n->b));
  return read_apart(p, "endset", &n->c);
}

static brim_status read_parameters(parser *p, node **out)
{
  bool defaults = false;
  BRIM_TRY(expect(p, '(', "'('"));
  while (!accept(p, ')')) {
    const token *k = now(p);
    if (k->kind != TOKEN_NAME) return unexpected(p, "the name of a parameter");
    BRIM_TRY(make(p, NODE_NAME, k->at, out));
    (*out)->text = k->text;
    BRIM_TRY(name_number(p, k->text, &(*out)->name));
    skip(p);
    if (accept(p, '=')) {
      defaults = true;
      BRIM_TRY(read_expression(p, &(*out)->a));
    } else if (defaults) {
      return template_fail(p->t, k->at, "a parameter without a default follows one with a default");
    }
    out = &(*out)->next;
    if (now(p)->kind != ')') BRIM_TRY(expect(p, ',', "',' or ')'"));
  }
  return BRIM_OK;
}

static brim_status read_macro(parser *p, node *n)
{
  node *outer = p->macro;
  n->kind = NODE_MACRO;
  n->text = now(p)->text;
  if (now(p)->kind != TOKEN_NAME) return unexpected(p, "the name of a macro");
  BRIM_TRY(name_number(p, n->text, &n->name));
  skip(p);
  n->e = outer;
  p->macro = n;
  BRIM_TRY(read_parameters(p, &n->a));
  BRIM_TRY(read_apart(p, "endmacro", &n->c));
  p->macro = outer;
  return BRIM_OK;
}

static brim_status read_call_block(parser *p, node *n)
{
  node *outer = p->macro;
  n->kind = NODE_CALL_BLOCK;
  if (now(p)->kind == '(') BRIM_TRY(read_parameters(p, &n->a));
  BRIM_TRY(read_expression(p, &n->b));
  if (n->b->kind != NODE_CALL) return template_fail(p->t, n->b->at, "{%% call %%} needs the call of a macro");
  n->e = outer;
  p->macro = n;
  BRIM_TRY(read_apart(p, "endcall", &n->c));
  p->macro = outer;
  return BRIM_OK;
}

static brim_status read_filter_block(parser *p, node *n)
{
  n->kind = NODE_FILTER_BLOCK;
  do BRIM_TRY(read_filter(p, &n->b));
  while (accept(p, '|'));
  return read_apart(p, "endfilter", &n->c);
}

static brim_status read_generation(parser *p, node *n)
{
  if (p->in_block)
    return template_fail(p->t, n->at, "{%% generation %%} in a macro or another block has no place in the output");
  n->kind = NODE_GENERATION;
  p->t->generates = true;
  return read_apart(p, "endgeneration", &n->c);
}

static brim_status read_break(parser *p, node *n)
{
  n->kind = NODE_BREAK;
  return p->loops > 0 ? BRIM_OK : template_fail(p->t, n->at, "'break' is not in a loop");
}
static brim_status read_continue(parser *p, node *n)
{
  n->kind = NODE_CONTINUE;
  return p->loops > 0 ? BRIM_OK : template_fail(p->t, n->at, "'continue' is not in a loop");
}

static const struct {
  const char *word;
  brim_status (*read)(parser *p, node *n);
} statements[] = {{"if", read_if},
                  {"for", read_for},
                  {"set", read_set},
                  {"macro", read_macro},
                  {"call", read_call_block},
                  {"filter", read_filter_block},
                  {"generation", read_generation},
                  {"break", read_break},
                  {"continue", read_continue}};

static brim_status read_statement(parser *p, node **out)
{
  const token *k = now(p);
  if (k->kind != TOKEN_NAME) return unexpected(p, "the name of a statement");
  for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
    if (!accept_word(p, statements[i].word)) continue;
    BRIM_TRY(make(p, NODE_DATA, k->at, out));
    BRIM_TRY(enter(p));
    const brim_status status = statements[i].read(p, *out);
    p->nested--;
    BRIM_TRY(status);
    return expect(p, TOKEN_CLOSE, "'%}'");
  }
  return unknown(p, k, "statement");
}

static brim_status read_part(parser *p, node **out)
{
  const token *k = now(p);
  skip(p);
  if (k->kind == TOKEN_BLOCK) return read_statement(p, out);
  BRIM_TRY(make(p, k->kind == TOKEN_DATA ? NODE_DATA : NODE_PRINT, k->at, out));
  (*out)->text = k->text;
  if (k->kind == TOKEN_DATA) return BRIM_OK;
  BRIM_TRY(read_tuple(p, read_expression, false, &(*out)->a));
  return expect(p, TOKEN_CLOSE, "'}}'");
}

static bool is_end(const parser *p, const char *const *ends)
{
  for (size_t i = 0; ends && ends[i] && now(p)->kind == TOKEN_BLOCK; i++)
    if (is_word(ahead(p), ends[i])) return true;
  return false;
}

static brim_status read_body(parser *p, const char *const *ends, node **out)
{
  while (!is_end(p, ends)) {
    if (now(p)->kind == TOKEN_END && !ends) return BRIM_OK;
    if (now(p)->kind == TOKEN_END) return unexpected(p, ends[0]);
    BRIM_TRY(read_part(p, out));
    out = &(*out)->next;
  }
  skip(p);
  return BRIM_OK;
}

/* ---- the whole ---- */

/* Copies the text with "\n" as the end of each line, without one at the end of the text. */
static brim_status take_source(template *t, const char *text, size_t bytes)
{
  char *to = memory_take(&t->memory, bytes + 1);
  size_t used = 0;
  if (!to) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the template '%s'", t->title);
  for (size_t i = 0; i < bytes; i++) {
    to[used++] = text[i] == '\r' ? '\n' : text[i];
    if (text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n') i++;
  }
  if (used > 0 && to[used - 1] == '\n') used--;
  t->source = (slice){to, used};
  return BRIM_OK;
}

static brim_status read_template(template *t, const char *text, size_t bytes)
{
  parser p = {.t = t};
  if (bytes > TEMPLATE_BYTES_MAX)
    return brim_fail(BRIM_ELOAD, "the template '%s' has %zu bytes, at most %d are read", t->title, bytes,
                     TEMPLATE_BYTES_MAX);
  const size_t wrong = utf8_check(text, bytes);
  if (wrong < bytes) return brim_fail(BRIM_ELOAD, "'%s' is not UTF-8 at byte %zu", t->title, wrong);
  t->name = memory_take(&t->memory, NAMES_MAX * sizeof *t->name);
  if (!t->name) return no_memory(&p);
  BRIM_TRY(take_source(t, text, bytes));
  brim_status status = template_scan(t, &p.tokens);
  if (status == BRIM_OK) status = read_body(&p, NULL, &t->body);
  free(p.tokens.token);
  return status;
}

brim_status template_read(const char *name, const char *text, size_t bytes, template **out)
{
  template *t = brim_try_calloc(1, sizeof *t);
  if (t) t->title = brim_try_calloc(strlen(name) + 1, 1);
  if (!t || !t->title) {
    free(t);
    return brim_fail(BRIM_ENOMEM_HOST, "no memory for the template '%s'", name);
  }
  memcpy(t->title, name, strlen(name));
  t->memory.most = TEMPLATE_MEMORY_MAX;
  t->loop = t->caller = -1;
  const brim_status status = read_template(t, text, bytes);
  if (status == BRIM_OK)
    *out = t;
  else
    template_free(t);
  return status;
}

void template_free(template *t)
{
  if (!t) return;
  memory_free(&t->memory);
  free(t->title);
  free(t);
}

int template_has_generation(const template *t)
{
  return t->generates;
}
