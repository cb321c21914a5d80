/* Reads a template: makes a tree from tokens, by the grammar of jinja2.parser. See template.h. */
#include <stdio.h>
#include <stdlib.h>

#include "brim/host.h"
#include "template_parts.h"

#define NESTED_MAX 200 /* maximum depth of nested statements and expressions in the source */

typedef struct parser {
  template *t;
  const token *now; /* the last is TOKEN_END */
  int nested, loops, macros;
  bool in_block; /* in a macro, or in another block whose text is not written at its place */
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

brim_status template_no_memory(const template *t)
{
  return brim_fail(BRIM_ENOMEM_HOST, "no memory for the template '%s'", t->title);
}

#define SHOWN_MAX 40
static brim_status unexpected(const parser *p, const char *wanted)
{
  slice text = p->now->text;
  if (p->now->kind == TOKEN_END) return template_fail(p->t, p->now->at, "the template ends where %s is needed", wanted);
  if (text.bytes > SHOWN_MAX) text.bytes = SHOWN_MAX;
  return template_fail(p->t, p->now->at, "%s is needed, but '%.*s' is here", wanted, SHOWN(text));
}

/* ---- tokens ---- */

static const token *ahead(const parser *p)
{
  return p->now + (p->now->kind != TOKEN_END);
}
static const token *take(parser *p)
{
  const token *k = p->now;
  p->now = ahead(p);
  return k;
}
static bool is_word(const token *k, const char *word)
{
  return k->kind == TOKEN_NAME && slice_is(k->text, word);
}
static bool accept(parser *p, int32_t kind)
{
  const bool is = p->now->kind == kind;
  if (is) take(p);
  return is;
}
static bool accept_word(parser *p, const char *word)
{
  const bool is = is_word(p->now, word);
  if (is) take(p);
  return is;
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
  if (!n) return template_no_memory(p->t);
  *n = (node){.kind = (uint8_t)kind, .at = at, .name = -1};
  *out = n;
  return BRIM_OK;
}

/* Puts a node around the expression *inout. */
static brim_status wrap(parser *p, enum node_kind kind, size_t at, node **inout)
{
  node *n = NULL;
  BRIM_TRY(make(p, kind, at, &n));
  n->a = *inout;
  *inout = n;
  return BRIM_OK;
}

/* Makes a node from the name at the current token. */
static brim_status make_name(parser *p, enum node_kind kind, const char *wanted, node **out)
{
  template *t = p->t;
  const token *k = p->now;
  int32_t number = 0;
  BRIM_TRY(expect(p, TOKEN_NAME, wanted));
  BRIM_TRY(make(p, kind, k->at, out));
  while (number < t->name_count && !slice_same(t->name[number], k->text)) number++;
  if (number == NAMES_MAX) return template_fail(t, k->at, "a template may have at most %d different names", NAMES_MAX);
  if (number == t->name_count) t->name[t->name_count++] = k->text;
  if (slice_is(k->text, "loop")) t->loop = number;
  (*out)->name = number;
  (*out)->text = k->text;
  return BRIM_OK;
}

static brim_status enter(parser *p)
{
  if (++p->nested <= NESTED_MAX) return BRIM_OK;
  return template_fail(p->t, p->now->at, "more than %d nested statements and expressions", NESTED_MAX);
}

static brim_status read_expression(parser *p, node **out);
static brim_status read_unary(parser *p, bool with_filter, node **out);

/* Reads items that are separated by commas until `close`, and adds them to the list that begins at *out. */
static brim_status read_list(parser *p, int32_t close, const char *wanted, brim_status (*item)(parser *p, node **out),
                             node **out)
{
  while (!accept(p, close)) {
    BRIM_TRY(item(p, out));
    while (*out) out = &(*out)->next;
    if (p->now->kind != close) BRIM_TRY(expect(p, ',', wanted));
  }
  return BRIM_OK;
}

/* ---- primary expressions ---- */

static brim_status read_name(parser *p, node **out)
{
  const token *k = p->now;
  static const char *const constants[] = {"none None ", "false False ", "true True "};
  for (int i = 0; i < 3; i++) {
    if (!slice_in_words(k->text, constants[i])) continue;
    BRIM_TRY(make(p, NODE_CONST, take(p)->at, out));
    (*out)->constant = i == 0 ? value_of(VALUE_NONE) : value_bool(i == 2);
    return BRIM_OK;
  }
  if (p->macros && slice_in_words(k->text, "varargs kwargs caller "))
    return template_fail(p->t, k->at, "'%.*s' in a macro is not supported", SHOWN(k->text));
  return make_name(p, NODE_NAME, "a name", out);
}

/* Adjacent strings form one string. */
static brim_status read_string(parser *p, node **out)
{
  const token *first = p->now;
  size_t bytes = 0;
  while (p->now->kind == TOKEN_STRING) bytes += take(p)->text.bytes;
  BRIM_TRY(make(p, NODE_CONST, first->at, out));
  (*out)->constant = value_text((slice){first->text.text, bytes});
  if (p->now == first + 1) return BRIM_OK;
  char *text = memory_take(&p->t->memory, bytes + 1);
  if (!text) return template_no_memory(p->t);
  (*out)->constant.text.text = text;
  for (const token *k = first; k < p->now; text += k++->text.bytes)
    if (k->text.bytes) memcpy(text, k->text.text, k->text.bytes);
  return BRIM_OK;
}

static brim_status read_number(parser *p, node **out)
{
  const token *k = take(p);
  char text[320]; /* room for the longest number that template_scan accepts, and a 0 byte */
  memcpy(text, k->text.text, k->text.bytes);
  text[k->text.bytes] = '\0';
  BRIM_TRY(make(p, NODE_CONST, k->at, out));
  if (k->kind == TOKEN_FLOAT) {
    (*out)->constant = value_real(strtod(text, NULL));
    return BRIM_OK;
  }
  if (k->text.bytes > 18) return template_fail(p->t, k->at, "an integer of more than 18 digits is not supported");
  (*out)->constant = value_int(strtoll(text, NULL, 10));
  return BRIM_OK;
}

/* Expressions separated by commas form a tuple. */
static brim_status read_tuple(parser *p, node **out)
{
  const token *k = p->now;
  node *first = NULL, **end = &first;
  bool is_tuple = false;
  while (p->now->kind != TOKEN_CLOSE && p->now->kind != ')') {
    BRIM_TRY(read_expression(p, end));
    end = &(*end)->next;
    if (!accept(p, ',')) break;
    is_tuple = true;
  }
  *out = first;
  if (!is_tuple && first) return BRIM_OK;
  if (k->kind == TOKEN_CLOSE) return unexpected(p, "an expression");
  return wrap(p, NODE_TUPLE, k->at, out);
}

static brim_status read_pair(parser *p, node **out)
{
  BRIM_TRY(read_expression(p, out));
  BRIM_TRY(expect(p, ':', "':'"));
  return read_expression(p, &(*out)->next);
}

static brim_status read_primary(parser *p, node **out)
{
  switch (p->now->kind) {
  case TOKEN_NAME:
    return read_name(p, out);
  case TOKEN_STRING:
    return read_string(p, out);
  case TOKEN_INT:
  case TOKEN_FLOAT:
    return read_number(p, out);
  case '[':
    BRIM_TRY(make(p, NODE_LIST, take(p)->at, out));
    return read_list(p, ']', "',' or ']'", read_expression, &(*out)->a);
  case '{':
    BRIM_TRY(make(p, NODE_DICT, take(p)->at, out));
    return read_list(p, '}', "',' or '}'", read_pair, &(*out)->a);
  case '(':
    take(p);
    BRIM_TRY(read_tuple(p, out));
    return expect(p, ')', "')'");
  default:
    return unexpected(p, "an expression");
  }
}

/* ---- suffixes of expressions ---- */

static brim_status read_argument(parser *p, node **out)
{
  if (p->now->kind != TOKEN_NAME || ahead(p)->kind != '=') return read_expression(p, out);
  const token *k = take(p);
  take(p);
  BRIM_TRY(make(p, NODE_KEYWORD, k->at, out));
  (*out)->text = k->text;
  return read_expression(p, &(*out)->a);
}

static brim_status read_arguments(parser *p, node **out)
{
  BRIM_TRY(expect(p, '(', "'('"));
  BRIM_TRY(read_list(p, ')', "',' or ')'", read_argument, out));
  for (const node *n = *out; n && n->next; n = n->next)
    if (n->kind == NODE_KEYWORD && n->next->kind != NODE_KEYWORD)
      return template_fail(p->t, n->next->at, "an argument without a name follows one with a name");
  return BRIM_OK;
}

/* Reads one of the parts of a slice, which may be missing. */
static brim_status read_bound(parser *p, node **out)
{
  const int32_t kind = p->now->kind;
  return kind == ':' || kind == ']' ? BRIM_OK : read_expression(p, out);
}

static brim_status read_index(parser *p, node **out)
{
  const size_t at = p->now->at;
  BRIM_TRY(read_bound(p, out));
  if (!*out || p->now->kind == ':') {
    BRIM_TRY(expect(p, ':', "an index"));
    BRIM_TRY(wrap(p, NODE_SLICE, at, out));
    BRIM_TRY(read_bound(p, &(*out)->b));
    if (accept(p, ':')) BRIM_TRY(read_bound(p, &(*out)->c));
  }
  return expect(p, ']', "']'");
}

static brim_status read_member(parser *p, node **inout)
{
  const token *dot = take(p), *k = p->now;
  BRIM_TRY(wrap(p, k->kind == TOKEN_INT ? NODE_ITEM : NODE_ATTRIBUTE, dot->at, inout));
  if (k->kind == TOKEN_INT) return read_number(p, &(*inout)->b);
  (*inout)->text = k->text;
  return expect(p, TOKEN_NAME, "a name");
}

static brim_status read_postfix(parser *p, node **inout)
{
  for (;;) {
    const size_t at = p->now->at;
    if (p->now->kind == '.') {
      BRIM_TRY(read_member(p, inout));
    } else if (accept(p, '[')) {
      BRIM_TRY(wrap(p, NODE_ITEM, at, inout));
      BRIM_TRY(read_index(p, &(*inout)->b));
    } else if (p->now->kind == '(') {
      BRIM_TRY(wrap(p, NODE_CALL, (*inout)->at, inout));
      BRIM_TRY(read_arguments(p, &(*inout)->b));
    } else {
      return BRIM_OK;
    }
  }
}

/* Reads a filter after "|", or a test after "is". */
static brim_status read_builtin(parser *p, bool is_test, node **inout)
{
  const token *k = p->now;
  BRIM_TRY(expect(p, TOKEN_NAME, is_test ? "the name of a test" : "the name of a filter"));
  const builtin *b = is_test ? library_test(k->text) : library_filter(k->text);
  if (!b)
    return template_fail(p->t, k->at, "the %s '%.*s' is not supported", is_test ? "test" : "filter", SHOWN(k->text));
  BRIM_TRY(wrap(p, NODE_BUILTIN, k->at, inout));
  (*inout)->builtin = b;
  return p->now->kind == '(' ? read_arguments(p, &(*inout)->b) : BRIM_OK;
}

static brim_status read_filters(parser *p, node **inout)
{
  for (;;) {
    const size_t at = p->now->at;
    if (accept(p, '|')) {
      BRIM_TRY(read_builtin(p, false, inout));
    } else if (accept_word(p, "is")) {
      const bool negated = accept_word(p, "not");
      BRIM_TRY(read_builtin(p, true, inout));
      if (negated) BRIM_TRY(wrap(p, NODE_NOT, at, inout));
    } else {
      return BRIM_OK;
    }
  }
}

/* ---- operators ---- */

static brim_status read_signed(parser *p, bool with_filter, node **out)
{
  if (p->now->kind == '-' || p->now->kind == '+') {
    const token *sign = take(p);
    BRIM_TRY(make(p, NODE_SIGN, sign->at, out));
    (*out)->op = sign->kind;
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

/* The levels of operators; those that bind least come first. Operators of a level are evaluated from left to right. */
enum { LEVEL_OR, LEVEL_AND, LEVEL_NOT, LEVEL_COMPARE, LEVEL_SUM, LEVEL_CONCAT, LEVEL_PRODUCT, LEVELS };
static const char *const operators[LEVELS] = {[LEVEL_OR] = "or ",
                                              [LEVEL_AND] = "and ",
                                              [LEVEL_NOT] = "",
                                              [LEVEL_COMPARE] = "in not == != <= >= < > ",
                                              [LEVEL_SUM] = "+ - ",
                                              [LEVEL_CONCAT] = "~ ",
                                              [LEVEL_PRODUCT] = "* / // % "};

/* If the next token is an operator of this level, consumes and returns it. Otherwise returns 0. */
static int32_t accept_operator(parser *p, int level)
{
  const token *k = p->now;
  const bool is_not = is_word(k, "not"), is_text = k->kind >= TOKEN_END && k->kind != TOKEN_NAME;
  if (is_text || !slice_in_words(k->text, operators[level])) return 0;
  if (is_not && !is_word(ahead(p), "in")) return 0;
  take(p);
  if (is_not) take(p);
  return k->text.bytes == 1 ? k->kind : OP2(k->text.text[0], k->text.text[1]);
}

static brim_status read_level(parser *p, int level, node **out)
{
  const size_t begin = p->now->at;
  if (level == LEVELS) return read_unary(p, true, out);
  if (level == LEVEL_NOT && accept_word(p, "not")) {
    BRIM_TRY(enter(p));
    BRIM_TRY(read_level(p, level, out));
    p->nested--;
    return wrap(p, NODE_NOT, begin, out);
  }
  BRIM_TRY(read_level(p, level + 1, out));
  for (bool again = false;; again = true) {
    const size_t at = p->now->at;
    const int32_t op = accept_operator(p, level);
    if (!op) return BRIM_OK;
    if (again && level == LEVEL_COMPARE)
      return template_fail(p->t, at, "a chain of comparisons is not supported: use 'and'");
    BRIM_TRY(wrap(p, NODE_BINARY, at, out));
    (*out)->op = op;
    BRIM_TRY(read_level(p, level + 1, &(*out)->b));
  }
}

static brim_status read_condition(parser *p, node **out)
{
  BRIM_TRY(read_level(p, LEVEL_OR, out));
  while (is_word(p->now, "if")) {
    node *n = NULL;
    BRIM_TRY(make(p, NODE_CONDITION, take(p)->at, &n));
    n->b = *out;
    *out = n;
    BRIM_TRY(read_level(p, LEVEL_OR, &n->a));
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

/* Reads statements up to a tag that begins with one of the words `ends`, which is then the current token. Without
 * words, reads up to the end of the template. */
static brim_status read_body(parser *p, const char *ends, node **out);

/* Reads the end of a tag, statements, and one of the words that end them. */
static brim_status read_block(parser *p, const char *ends, node **out)
{
  BRIM_TRY(expect(p, TOKEN_CLOSE, "'%}'"));
  return read_body(p, ends, out);
}

/* Does the same for a body whose text is not written at its place. */
static brim_status read_apart(parser *p, const char *ends, node **out)
{
  const parser before = *p;
  p->loops = 0;
  p->in_block = true;
  BRIM_TRY(read_block(p, ends, out));
  p->loops = before.loops;
  p->in_block = before.in_block;
  take(p);
  return BRIM_OK;
}

static brim_status read_if(parser *p, node *n)
{
  for (;;) {
    n->kind = NODE_IF;
    BRIM_TRY(read_level(p, LEVEL_OR, &n->a));
    BRIM_TRY(read_block(p, "elif else endif ", &n->b));
    const size_t at = p->now->at;
    if (!accept_word(p, "elif")) break;
    BRIM_TRY(make(p, NODE_IF, at, &n->c));
    n = n->c;
  }
  if (accept_word(p, "else")) BRIM_TRY(read_block(p, "endif ", &n->c));
  return expect_word(p, "endif");
}

/* Reads a name or, with `fields`, a member of a namespace. */
static brim_status read_target(parser *p, bool fields, node **out)
{
  static const char reserved[] = "true True false False none None loop not and or in is if else ";
  const bool field = fields && ahead(p)->kind == '.';
  if (p->now->kind == TOKEN_NAME && !field && slice_in_words(p->now->text, reserved))
    return template_fail(p->t, p->now->at, "'%.*s' cannot be assigned to", SHOWN(p->now->text));
  BRIM_TRY(make_name(p, field ? NODE_FIELD : NODE_NAME, "a name", out));
  if (!field) return BRIM_OK;
  take(p);
  (*out)->text = p->now->text;
  return expect(p, TOKEN_NAME, "a name");
}

static brim_status read_targets(parser *p, bool fields, node **out)
{
  const size_t at = p->now->at;
  BRIM_TRY(read_target(p, fields, out));
  if (p->now->kind != ',') return BRIM_OK;
  for (node **end = out; accept(p, ',');) {
    end = &(*end)->next;
    BRIM_TRY(read_target(p, fields, end));
  }
  return wrap(p, NODE_TUPLE, at, out);
}

static brim_status read_for(parser *p, node *n)
{
  n->kind = NODE_FOR;
  BRIM_TRY(read_targets(p, false, &n->a));
  BRIM_TRY(expect_word(p, "in"));
  BRIM_TRY(read_level(p, LEVEL_OR, &n->b));
  if (accept_word(p, "if")) BRIM_TRY(read_expression(p, &n->e));
  p->loops++;
  BRIM_TRY(read_block(p, "endfor else ", &n->c));
  p->loops--;
  if (accept_word(p, "else")) BRIM_TRY(read_block(p, "endfor ", &n->d));
  return expect_word(p, "endfor");
}

static brim_status read_set(parser *p, node *n)
{
  n->kind = NODE_SET;
  BRIM_TRY(read_targets(p, true, &n->a));
  if (accept(p, '=')) return read_tuple(p, &n->b);
  n->kind = NODE_SET_BLOCK;
  return read_apart(p, "endset ", &n->c);
}

static brim_status read_parameter(parser *p, node **out)
{
  BRIM_TRY(make_name(p, NODE_NAME, "the name of a parameter", out));
  return accept(p, '=') ? read_expression(p, &(*out)->a) : BRIM_OK;
}

static brim_status read_macro(parser *p, node *n)
{
  node *name = NULL;
  int count = 0;
  n->kind = NODE_MACRO;
  BRIM_TRY(make_name(p, NODE_NAME, "the name of a macro", &name));
  n->name = name->name;
  n->text = name->text;
  BRIM_TRY(expect(p, '(', "'('"));
  BRIM_TRY(read_list(p, ')', "',' or ')'", read_parameter, &n->a));
  for (const node *a = n->a; a; a = a->next) {
    if (++count > PARAMETERS_MAX)
      return template_fail(p->t, a->at, "more than %d parameters are not supported", PARAMETERS_MAX);
    if (a->a && a->next && !a->next->a)
      return template_fail(p->t, a->next->at, "a parameter without a default follows one with a default");
  }
  p->macros++;
  BRIM_TRY(read_apart(p, "endmacro ", &n->c));
  p->macros--;
  return BRIM_OK;
}

static brim_status read_generation(parser *p, node *n)
{
  if (p->in_block)
    return template_fail(p->t, n->at, "{%% generation %%} in a macro or another block has no place in the output");
  n->kind = NODE_GENERATION;
  p->t->generates = true;
  return read_apart(p, "endgeneration ", &n->c);
}

static brim_status read_jump(parser *p, node *n)
{
  n->kind = p->now[-1].text.text[0] == 'b' ? NODE_BREAK : NODE_CONTINUE;
  return p->loops > 0 ? BRIM_OK : template_fail(p->t, n->at, "'%.*s' is not in a loop", SHOWN(p->now[-1].text));
}

static const struct {
  const char *word;
  brim_status (*read)(parser *p, node *n);
} statements[] = {{"if", read_if},        {"for", read_for},    {"set", read_set},
                  {"macro", read_macro},  {"break", read_jump}, {"generation", read_generation},
                  {"continue", read_jump}};

static brim_status read_statement(parser *p, node **out)
{
  const token *k = p->now;
  for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
    if (!accept_word(p, statements[i].word)) continue;
    BRIM_TRY(make(p, NODE_DATA, k->at, out));
    BRIM_TRY(enter(p));
    BRIM_TRY(statements[i].read(p, *out));
    p->nested--;
    return expect(p, TOKEN_CLOSE, "'%}'");
  }
  if (k->kind != TOKEN_NAME) return unexpected(p, "the name of a statement");
  return template_fail(p->t, k->at, "the statement '%.*s' is not supported", SHOWN(k->text));
}

static brim_status read_part(parser *p, node **out)
{
  const token *k = take(p);
  if (k->kind == TOKEN_BLOCK) return read_statement(p, out);
  BRIM_TRY(make(p, k->kind == TOKEN_DATA ? NODE_DATA : NODE_PRINT, k->at, out));
  (*out)->text = k->text;
  if (k->kind == TOKEN_DATA) return BRIM_OK;
  BRIM_TRY(read_tuple(p, &(*out)->a));
  return expect(p, TOKEN_CLOSE, "'}}'");
}

static brim_status read_body(parser *p, const char *ends, node **out)
{
  for (; p->now->kind != TOKEN_END; out = &(*out)->next) {
    const bool at_tag = p->now->kind == TOKEN_BLOCK && ahead(p)->kind == TOKEN_NAME;
    if (at_tag && slice_in_words(ahead(p)->text, ends)) {
      take(p);
      return BRIM_OK;
    }
    BRIM_TRY(read_part(p, out));
  }
  return ends[0] ? template_fail(p->t, p->now->at, "the template ends where one of these is needed: %s", ends)
                 : BRIM_OK;
}

/* ---- the whole ---- */

/* Copies the text, with "\n" as the end of each line. Drops a line end at the end of the text. */
static brim_status take_source(template *t, const char *text, size_t bytes)
{
  char *to = memory_take(&t->memory, bytes + 1);
  size_t used = 0;
  if (!to) return template_no_memory(t);
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
  buffer tokens = {0};
  if (bytes > TEMPLATE_BYTES_MAX)
    return brim_fail(BRIM_ELOAD, "the template '%s' has %zu bytes, at most %d are read", t->title, bytes,
                     TEMPLATE_BYTES_MAX);
  const size_t wrong = utf8_check(text, bytes);
  if (wrong < bytes) return brim_fail(BRIM_ELOAD, "'%s' is not UTF-8 at byte %zu", t->title, wrong);
  t->name = memory_take(&t->memory, NAMES_MAX * sizeof *t->name);
  if (!t->name) return template_no_memory(t);
  BRIM_TRY(take_source(t, text, bytes));
  brim_status status = template_scan(t, &tokens);
  p.now = (const token *)(const void *)tokens.data;
  if (status == BRIM_OK) status = read_body(&p, "", &t->body);
  free(tokens.data);
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
  t->loop = -1;
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
