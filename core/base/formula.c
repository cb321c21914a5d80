/* Reads a formula by recursive descent into values; equal values exist only once. Then puts the values that the outputs
 * need into lines: first those that are the same for all elements, then loads, then the rest, and stores at the end, so
 * that an output may share the memory of an input. A register is reused once its value is no longer needed. */
#include "base/formula.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUES_MAX 256
#define NAMES_MAX 64
#define DEPTH_MAX 64
#define NONE (-1)

/* A value: an operation and its operands. */
typedef struct value {
  enum brim_formula_op op;
  int32_t operand[3]; /* operands are values or NONE; for a load: input and element; for a scalar: its index */
  double number;
  bool is_uniform, is_needed;
  int32_t place, last; /* place: register or uniform; last: the last line that reads it */
} value;

typedef struct name {
  const char *text; /* text of `bytes` bytes */
  size_t bytes;
  int32_t value;
  int32_t output; /* the output in which this value is stored, or NONE */
  bool is_optional, is_set;
} name;

typedef struct reader {
  const char *text, *at;
  int depth;
  value value[VALUES_MAX];
  int32_t values;
  name name[NAMES_MAX];
  size_t names;
  brim_status status;
} reader;

static const struct {
  const char *name;
  uint8_t op;
  int32_t operands;
} functions[] = {
#define X(op, text, operands, value) {#text, BRIM_FORMULA_##op, operands},
    BRIM_FORMULA_FUNCTIONS(X)
#undef X
};

/* ---- errors ---- */

static int32_t fail_at(reader *r, const char *at, const char *what, const char *of, size_t bytes)
{
  int line = 1, column = 1;
  for (const char *s = r->text; s < at; s++) {
    column = *s == '\n' ? 1 : column + 1;
    line += *s == '\n';
  }
  if (r->status == BRIM_OK)
    r->status = brim_fail(BRIM_EINVAL, "line %d, column %d of the formula: %s%s%.*s%s", line, column, what,
                          of ? " '" : "", of ? (int)bytes : 0, of ? of : "", of ? "'" : "");
  return NONE;
}

static int32_t fail(reader *r, const char *what)
{
  return fail_at(r, r->at, what, NULL, 0);
}

/* ---- values ---- */

static int32_t make(reader *r, enum brim_formula_op op, int32_t a, int32_t b, int32_t c, double number)
{
  const int32_t operand[3] = {a, b, c};
  bool is_uniform = true;
  if (op == BRIM_FORMULA_LOAD)
    is_uniform = b != NONE;
  else if (op > BRIM_FORMULA_NUMBER)
    for (int k = 0; k < 3; k++) is_uniform = is_uniform && (operand[k] == NONE || r->value[operand[k]].is_uniform);
  for (int32_t i = 0; i < r->values; i++) {
    const value *v = &r->value[i];
    if (v->op == op && memcmp(v->operand, operand, sizeof operand) == 0 && v->number == number &&
        signbit(v->number) == signbit(number))
      return i;
  }
  if (r->values == VALUES_MAX) return fail(r, "it is too long: shorten it or split it into two");
  value *v = &r->value[r->values];
  *v = (value){.op = op, .operand = {a, b, c}, .number = number, .is_uniform = is_uniform};
  return r->values++;
}

static int32_t apply(reader *r, const char *at, enum brim_formula_op op, int32_t a, int32_t b, int32_t c)
{
  if (r->status != BRIM_OK) return NONE;
  const int32_t made = make(r, op, a, b, c, 0);
  if (op == BRIM_FORMULA_POW && made != NONE && !r->value[made].is_uniform)
    return fail_at(r, at, "pow() takes numbers that are the same for all elements; write products, or exp(b * log(a))",
                   NULL, 0);
  return made;
}

/* ---- text ---- */

static void skip(reader *r)
{
  while (*r->at == ' ' || *r->at == '\t' || *r->at == '\r') r->at++;
  if (*r->at == '#') r->at += strcspn(r->at, "\n");
}

static void skip_ends(reader *r)
{
  for (skip(r); *r->at == '\n' || *r->at == ';'; skip(r)) r->at++;
}

static bool take(reader *r, char c)
{
  skip(r);
  if (*r->at != c) return false;
  r->at++;
  return true;
}

static size_t name_bytes(const char *s)
{
  size_t n = 0;
  if (!isalpha((unsigned char)*s) && *s != '_') return 0;
  while (isalnum((unsigned char)s[n]) || s[n] == '_') n++;
  return n;
}

static name *find(reader *r, const char *text, size_t bytes)
{
  for (size_t i = 0; i < r->names; i++)
    if (r->name[i].bytes == bytes && memcmp(r->name[i].text, text, bytes) == 0) return &r->name[i];
  return NULL;
}

static int32_t read_sum(reader *r);
static int32_t read_comparison(reader *r);

static int32_t read_call(reader *r, const char *text, size_t bytes)
{
  for (size_t f = 0; f < sizeof functions / sizeof functions[0]; f++) {
    if (strlen(functions[f].name) != bytes || memcmp(functions[f].name, text, bytes) != 0) continue;
    int32_t operand[3] = {NONE, NONE, NONE};
    for (int32_t k = 0; k < functions[f].operands; k++) {
      if (k > 0 && !take(r, ',')) return fail_at(r, r->at, "a comma and one more operand are missing for", text, bytes);
      operand[k] = read_comparison(r);
      if (r->status != BRIM_OK) return NONE;
    }
    if (!take(r, ')')) return fail_at(r, r->at, "a ')' is missing after the operands of", text, bytes);
    return apply(r, text, functions[f].op, operand[0], operand[1], operand[2]);
  }
  return fail_at(r, text, "unknown function", text, bytes);
}

static int32_t read_operand(reader *r)
{
  skip(r);
  const char *text = r->at;
  const size_t bytes = name_bytes(text);
  if (bytes > 0) {
    r->at += bytes;
    if (take(r, '(')) return read_call(r, text, bytes);
    const name *n = find(r, text, bytes);
    if (!n) return fail_at(r, text, "unknown name", text, bytes);
    if (n->value == NONE) return fail_at(r, text, "it is read before it has a value:", text, bytes);
    return n->value;
  }
  if (isdigit((unsigned char)*text) || (*text == '.' && isdigit((unsigned char)text[1]))) {
    char *end = NULL;
    const double number = strtod(r->at, &end);
    if (!(number - number == 0)) return fail(r, "a number is too large");
    r->at = end;
    return make(r, BRIM_FORMULA_NUMBER, NONE, NONE, NONE, number);
  }
  if (!take(r, '(')) return fail(r, "a number, a name or '(' is missing");
  const int32_t v = read_comparison(r);
  if (r->status == BRIM_OK && !take(r, ')')) return fail(r, "a ')' is missing");
  return v;
}

static int32_t read_sign(reader *r)
{
  skip(r);
  const char *at = r->at;
  if (++r->depth > DEPTH_MAX) return fail(r, "it is nested too deeply");
  const bool negative = take(r, '-');
  int32_t v = negative ? read_sign(r) : read_operand(r);
  if (negative) v = apply(r, at, BRIM_FORMULA_NEG, v, NONE, NONE);
  r->depth--;
  return v;
}

static int32_t read_product(reader *r)
{
  int32_t v = read_sign(r);
  for (;;) {
    skip(r);
    const char *at = r->at;
    const char c = *at;
    if (r->status != BRIM_OK || (c != '*' && c != '/')) return v;
    r->at++;
    v = apply(r, at, c == '*' ? BRIM_FORMULA_MUL : BRIM_FORMULA_DIV, v, read_sign(r), NONE);
  }
}

static int32_t read_sum(reader *r)
{
  int32_t v = read_product(r);
  for (;;) {
    skip(r);
    const char *at = r->at;
    const char c = *at;
    if (r->status != BRIM_OK || (c != '+' && c != '-')) return v;
    r->at++;
    v = apply(r, at, c == '+' ? BRIM_FORMULA_ADD : BRIM_FORMULA_SUB, v, read_product(r), NONE);
  }
}

static int32_t read_comparison(reader *r)
{
  const int32_t a = read_sum(r);
  skip(r);
  const char *at = r->at;
  const char c = *at;
  if (r->status != BRIM_OK || (c != '<' && c != '>')) return a;
  r->at++;
  const int32_t b = read_sum(r);
  return c == '<' ? apply(r, at, BRIM_FORMULA_LESS, a, b, NONE) : apply(r, at, BRIM_FORMULA_LESS, b, a, NONE);
}

static void read_line(reader *r)
{
  const char *text = r->at;
  const size_t bytes = name_bytes(text);
  if (bytes == 0) {
    fail(r, "expected a name to assign to");
    return;
  }
  r->at += bytes;
  if (!take(r, '=')) {
    fail_at(r, r->at, "a '=' is missing after", text, bytes);
    return;
  }
  const int32_t v = read_comparison(r);
  skip(r);
  if (r->status == BRIM_OK && *r->at && *r->at != '\n' && *r->at != ';') fail(r, "a line break or ';' is missing");
  if (r->status != BRIM_OK) return;
  name *n = find(r, text, bytes);
  if (!n && r->names == NAMES_MAX) {
    fail_at(r, text, "there are too many names; the last is", text, bytes);
    return;
  }
  if (!n) {
    n = &r->name[r->names++];
    *n = (name){.text = text, .bytes = bytes, .output = NONE};
  }
  n->value = v;
  n->is_set = true;
}

/* ---- given names ---- */

static void begin(reader *r, const brim_formula_name *given, size_t count)
{
  for (size_t i = 0; i < count && r->status == BRIM_OK; i++) {
    const brim_formula_name *g = &given[i];
    const bool has_elements = g->kind == BRIM_NAME_ELEMENT || g->kind == BRIM_NAME_FACTOR;
    if (r->names == NAMES_MAX) {
      r->status = brim_fail(BRIM_EINVAL, "a formula has at most %d names", NAMES_MAX);
      return;
    }
    if (find(r, g->name, strlen(g->name))) {
      r->status = brim_fail(BRIM_EINVAL, "the formula declares the name '%s' twice", g->name);
      return;
    }
    name *n = &r->name[r->names++];
    *n = (name){.text = g->name, .bytes = strlen(g->name), .output = has_elements ? g->output : NONE, .value = NONE};
    if (has_elements && g->index >= 0) n->value = make(r, BRIM_FORMULA_LOAD, g->index, NONE, NONE, 0);
    if (g->kind == BRIM_NAME_FACTOR)
      n->value = make(r, BRIM_FORMULA_MUL, n->value, make(r, BRIM_FORMULA_LOAD, g->factor, 1, NONE, 0), NONE, 0);
    n->is_optional = g->is_optional;
    if (g->kind == BRIM_NAME_FIXED) n->value = make(r, BRIM_FORMULA_LOAD, g->index, 0, NONE, 0);
    if (g->kind == BRIM_NAME_SCALAR) n->value = make(r, BRIM_FORMULA_SCALAR, g->index, NONE, NONE, 0);
    if (g->kind == BRIM_NAME_NUMBER) n->value = make(r, BRIM_FORMULA_NUMBER, NONE, NONE, NONE, g->number);
  }
}

/* Drops an optional output that the formula does not set. */
static void check_outputs(reader *r)
{
  for (size_t i = 0; i < r->names && r->status == BRIM_OK; i++) {
    name *n = &r->name[i];
    if (!n->is_set && n->is_optional) n->output = NONE;
    if (n->output != NONE && !n->is_set)
      r->status = brim_fail(BRIM_EINVAL, "the formula gives '%.*s' no new value", (int)n->bytes, n->text);
  }
}

/* ---- lines ---- */

static bool is_operation(const value *v)
{
  return v->op > BRIM_FORMULA_NUMBER;
}

static uint8_t of_uniform(const reader *r, int32_t v)
{
  return v == NONE ? 0 : (uint8_t)r->value[v].place;
}

static void put_uniforms(reader *r, brim_formula *f)
{
  for (int32_t i = 0; i < r->values; i++) {
    value *v = &r->value[i];
    if (!v->is_needed || !v->is_uniform) continue;
    if (f->uniforms == BRIM_FORMULA_UNIFORMS_MAX) {
      fail(r, "it has too many numbers that are the same for all elements");
      return;
    }
    v->place = (int32_t)f->uniforms;
    f->number[f->uniforms] = v->number;
    brim_formula_line *l = &f->uniform[f->uniforms++];
    *l = (brim_formula_line){.op = (uint8_t)v->op};
    if (is_operation(v)) {
      l->a = of_uniform(r, v->operand[0]);
      l->b = of_uniform(r, v->operand[1]);
      l->c = of_uniform(r, v->operand[2]);
    } else if (v->op != BRIM_FORMULA_NUMBER) {
      l->a = (uint8_t)v->operand[0];
      l->b = v->operand[1] == NONE ? 0 : (uint8_t)v->operand[1];
    }
  }
}

/* The order of the lines for elements: loads first, then operations in reading order. */
static int32_t order_lines(reader *r, int32_t *line)
{
  int32_t count = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int32_t i = 0; i < r->values; i++)
      if (r->value[i].is_needed && !r->value[i].is_uniform && is_operation(&r->value[i]) == (pass == 1))
        line[count++] = i;
  for (int32_t at = 0; at < count; at++)
    for (int k = 0; is_operation(&r->value[line[at]]) && k < 3; k++)
      if (r->value[line[at]].operand[k] != NONE) r->value[r->value[line[at]].operand[k]].last = at;
  for (size_t i = 0; i < r->names; i++)
    if (r->name[i].output != NONE) r->value[r->name[i].value].last = INT32_MAX;
  return count;
}

static uint8_t place_of(const reader *r, int32_t v)
{
  if (v == NONE) return 0;
  return (uint8_t)(r->value[v].place + (r->value[v].is_uniform ? BRIM_FORMULA_UNIFORM : 0));
}

static void put_lines(reader *r, brim_formula *f)
{
  int32_t line[VALUES_MAX];
  bool used[BRIM_FORMULA_REGISTERS_MAX] = {false};
  const int32_t count = order_lines(r, line);
  for (int32_t at = 0; at < count && r->status == BRIM_OK; at++) {
    value *v = &r->value[line[at]];
    uint8_t operand[3] = {0};
    for (int k = 0; is_operation(v) && k < 3; k++) {
      value *of = v->operand[k] == NONE ? NULL : &r->value[v->operand[k]];
      operand[k] = place_of(r, v->operand[k]);
      if (of && !of->is_uniform && of->last == at) used[of->place] = false;
    }
    int32_t to = 0;
    while (to < BRIM_FORMULA_REGISTERS_MAX && used[to]) to++;
    if (to == BRIM_FORMULA_REGISTERS_MAX || f->lines == BRIM_FORMULA_LINES_MAX) {
      fail(r, "it is too long: shorten it or split it into two");
      return;
    }
    used[to] = true;
    v->place = to;
    if (f->registers < (uint32_t)to + 1) f->registers = (uint32_t)to + 1;
    if (!is_operation(v)) operand[0] = (uint8_t)v->operand[0];
    f->loads += !is_operation(v);
    f->line[f->lines++] = (brim_formula_line){(uint8_t)v->op, (uint8_t)to, operand[0], operand[1], operand[2]};
  }
}

static void put_stores(reader *r, brim_formula *f)
{
  for (size_t i = 0; i < r->names && r->status == BRIM_OK; i++) {
    if (r->name[i].output == NONE) continue;
    if (f->lines == BRIM_FORMULA_LINES_MAX) {
      fail(r, "it is too long: shorten it or split it into two");
      return;
    }
    f->line[f->lines++] = (brim_formula_line){
        .op = BRIM_FORMULA_STORE, .to = (uint8_t)r->name[i].output, .a = place_of(r, r->name[i].value)};
  }
}

static void read_text(reader *r, const brim_formula_name *given, size_t names)
{
  begin(r, given, names);
  for (skip_ends(r); r->status == BRIM_OK && *r->at; skip_ends(r)) read_line(r);
  if (r->status == BRIM_OK) check_outputs(r);
}

static brim_status put(reader *r, brim_formula *out)
{
  memset(out, 0, sizeof *out);
  if (r->status != BRIM_OK) return r->status;
  for (size_t i = 0; i < r->names; i++)
    if (r->name[i].output != NONE) r->value[r->name[i].value].is_needed = true;
  for (int32_t i = r->values; i-- > 0;)
    for (int k = 0; r->value[i].is_needed && is_operation(&r->value[i]) && k < 3; k++)
      if (r->value[i].operand[k] != NONE) r->value[r->value[i].operand[k]].is_needed = true;
  put_uniforms(r, out);
  if (r->status == BRIM_OK) put_lines(r, out);
  if (r->status == BRIM_OK) put_stores(r, out);
  return r->status;
}

brim_status brim_formula_read(const char *text, const brim_formula_name *given, size_t names, brim_formula *out)
{
  reader r = {.text = text, .at = text};
  read_text(&r, given, names);
  return put(&r, out);
}

/* ---- derivatives ---- */

static int32_t number(reader *r, double n)
{
  return make(r, BRIM_FORMULA_NUMBER, NONE, NONE, NONE, n);
}
static int32_t unary(reader *r, enum brim_formula_op op, int32_t a)
{
  return r->status == BRIM_OK ? make(r, op, a, NONE, NONE, 0) : NONE;
}
static int32_t binary(reader *r, enum brim_formula_op op, int32_t a, int32_t b)
{
  return r->status == BRIM_OK ? make(r, op, a, b, NONE, 0) : NONE;
}
/* Returns d where the condition is true (`holds`) or false, else 0. */
static int32_t gate(reader *r, int32_t condition, bool holds, int32_t d)
{
  const int32_t zero = number(r, 0);
  return r->status == BRIM_OK ? make(r, BRIM_FORMULA_WHERE, condition, holds ? d : zero, holds ? zero : d, 0) : NONE;
}

/* For min and max: passes d to the selected operand (`first`, `second`: conditions), and half of d to each of two equal
 * operands, as torch.maximum does. So the derivative of max(x, 0) + log1p(exp(-abs(x))) at 0 is correct. */
static int32_t flow_to_taken(reader *r, int32_t first, int32_t second, int k, int32_t d)
{
  const int32_t half = binary(r, BRIM_FORMULA_MUL, d, number(r, 0.5)), mine = k == 0 ? first : second;
  const int32_t equal = gate(r, k == 0 ? second : first, false, half);
  return r->status == BRIM_OK ? make(r, BRIM_FORMULA_WHERE, mine, d, equal, 0) : NONE;
}

/* Returns the gradient of operand k of value v, given v's gradient d; NONE: zero. */
static int32_t flow_to(reader *r, int32_t v, int k, int32_t d)
{
  const enum brim_formula_op op = r->value[v].op;
  const int32_t a = r->value[v].operand[0], b = r->value[v].operand[1];
  switch (op) {
  case BRIM_FORMULA_ADD:
    return d;
  case BRIM_FORMULA_SUB:
    return k == 0 ? d : unary(r, BRIM_FORMULA_NEG, d);
  case BRIM_FORMULA_NEG:
    return unary(r, op, d);
  case BRIM_FORMULA_MUL:
    return binary(r, op, d, k == 0 ? b : a);
  case BRIM_FORMULA_DIV: /* -d / b * v */
    d = binary(r, op, d, b);
    return k == 0 ? d : unary(r, BRIM_FORMULA_NEG, binary(r, BRIM_FORMULA_MUL, d, v));
  case BRIM_FORMULA_MIN:
    return flow_to_taken(r, binary(r, BRIM_FORMULA_LESS, a, b), binary(r, BRIM_FORMULA_LESS, b, a), k, d);
  case BRIM_FORMULA_MAX:
    return flow_to_taken(r, binary(r, BRIM_FORMULA_LESS, b, a), binary(r, BRIM_FORMULA_LESS, a, b), k, d);
  case BRIM_FORMULA_WHERE:
    return k == 0 ? NONE : gate(r, a, k == 1, d);
  case BRIM_FORMULA_ABS:
    return binary(r, BRIM_FORMULA_MUL, d, unary(r, BRIM_FORMULA_SIGN, a));
  case BRIM_FORMULA_SQRT:
    return binary(r, BRIM_FORMULA_DIV, binary(r, BRIM_FORMULA_MUL, d, number(r, 0.5)), v);
  case BRIM_FORMULA_EXP:
    return binary(r, BRIM_FORMULA_MUL, d, v);
  case BRIM_FORMULA_LOG:
    return binary(r, BRIM_FORMULA_DIV, d, a);
  case BRIM_FORMULA_LOG1P:
    return binary(r, BRIM_FORMULA_DIV, d, binary(r, BRIM_FORMULA_ADD, number(r, 1), a));
  case BRIM_FORMULA_TANH:
    return binary(r, BRIM_FORMULA_MUL, d, binary(r, BRIM_FORMULA_SUB, number(r, 1), binary(r, BRIM_FORMULA_MUL, v, v)));
  case BRIM_FORMULA_SIGMOID:
    return binary(r, BRIM_FORMULA_MUL, d, binary(r, BRIM_FORMULA_MUL, v, binary(r, BRIM_FORMULA_SUB, number(r, 1), v)));
  case BRIM_FORMULA_ERF:
    d = binary(r, BRIM_FORMULA_MUL, d, number(r, 2 / sqrt(acos(-1.0))));
    return binary(r, BRIM_FORMULA_MUL, d,
                  unary(r, BRIM_FORMULA_EXP, unary(r, BRIM_FORMULA_NEG, binary(r, BRIM_FORMULA_MUL, a, a))));
  default: /* step functions: their slope is 0 */
    return NONE;
  }
}

/* Goes from the last value to the first, because operands precede the values that use them. flow: each value's
 * gradient. */
static void differentiate(reader *r, int32_t output, int32_t *flow)
{
  for (int32_t v = output; v >= 0 && r->status == BRIM_OK; v--) {
    if (flow[v] == NONE || r->value[v].is_uniform || !is_operation(&r->value[v])) continue;
    for (int k = 0; k < 3; k++) {
      const int32_t to = r->value[v].operand[k];
      const int32_t part = to == NONE || r->value[to].is_uniform ? NONE : flow_to(r, v, k, flow[v]);
      if (part != NONE) flow[to] = flow[to] == NONE ? part : binary(r, BRIM_FORMULA_ADD, flow[to], part);
    }
  }
}

brim_status brim_formula_read_gradient(const char *text, const brim_formula_name *given, size_t names, int32_t flow,
                                       brim_formula *out)
{
  reader r = {.text = text, .at = text};
  int32_t flows[VALUES_MAX], output = NONE;
  for (int32_t v = 0; v < VALUES_MAX; v++) flows[v] = NONE;
  read_text(&r, given, names);
  for (size_t i = 0; i < r.names && r.status == BRIM_OK; i++)
    if (r.name[i].output != NONE) output = r.name[i].value;
  if (r.status != BRIM_OK || output == NONE) return r.status;
  flows[output] = make(&r, BRIM_FORMULA_LOAD, flow, NONE, NONE, 0);
  differentiate(&r, output, flows);
  r.names = 0;
  for (size_t i = 0; i < names && r.status == BRIM_OK; i++) {
    if (!given[i].is_wanted) continue;
    const int32_t of = flows[make(&r, BRIM_FORMULA_LOAD, given[i].index, NONE, NONE, 0)];
    const int32_t made = of == NONE ? number(&r, 0) : of;
    r.name[r.names] = (name){.value = made, .output = (int32_t)r.names};
    r.names++;
  }
  return put(&r, out);
}

/* ---- updates ---- */

size_t brim_formula_list_numbers(const brim_update_form *form, const char *const *scalars, brim_formula_name *list)
{
  size_t count = 0;
  for (uint32_t k = 0; k < form->number_count; k++)
    list[count++] =
        (brim_formula_name){.name = form->number_name[k], .kind = BRIM_NAME_NUMBER, .number = form->number[k]};
  for (int32_t k = 0; scalars && scalars[k]; k++)
    list[count++] = (brim_formula_name){.name = scalars[k], .kind = BRIM_NAME_SCALAR, .index = k};
  return count;
}

/* Reads `text`. The list has two names; this appends the states, which are inputs from `index` on and outputs from
 * `output` on (-1: not outputs), and then the numbers. */
static brim_status read_with_states(const char *text, brim_formula_name *list, const brim_update_form *form,
                                    int32_t index, int32_t output, const char *const *scalars, brim_formula *out)
{
  size_t count = 2;
  for (int32_t k = 0; k < (int32_t)form->state_count; k++)
    list[count++] = (brim_formula_name){.name = form->state[k].name,
                                        .kind = BRIM_NAME_ELEMENT,
                                        .index = index + k,
                                        .output = output < 0 ? -1 : output + k};
  count += brim_formula_list_numbers(form, scalars, list + count);
  return brim_formula_read(text, list, count, out);
}

#define UPDATE_NAMES_MAX (2 + BRIM_OPTIMIZER_STATES_MAX + BRIM_FORMULA_NUMBERS_MAX)

brim_status brim_formula_read_update(const brim_update_form *form, const char *const *scalars, bool scaled,
                                     brim_formula *out)
{
  const int32_t factor = 2 + (int32_t)form->state_count;
  brim_formula_name list[UPDATE_NAMES_MAX] = {
      {.name = "p", .kind = BRIM_NAME_ELEMENT, .index = 0, .output = 0},
      {.name = "g", .kind = scaled ? BRIM_NAME_FACTOR : BRIM_NAME_ELEMENT, .index = 1, .output = -1, .factor = factor}};
  return read_with_states(form->formula, list, form, 2, 1, scalars, out);
}

brim_status brim_formula_read_evaluated(const char *text, const brim_update_form *form, const char *const *scalars,
                                        brim_formula *out)
{
  brim_formula_name list[UPDATE_NAMES_MAX] = {
      {.name = "p", .kind = BRIM_NAME_ELEMENT, .index = 0, .output = -1},
      {.name = "evaluated", .kind = BRIM_NAME_ELEMENT, .index = -1, .output = 0}};
  return read_with_states(text, list, form, 1, -1, scalars, out);
}
