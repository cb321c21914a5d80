/* Fuzzes formulas: every text is read, or refused with a position. A formula that was read computes the same bits as an
 * evaluation of its text from left to right, and its gradient equals the slopes of forward differentiation. */
#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/formula.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { IN_X, IN_Z, IN_FIXED, IN_FLOW, INPUTS };
static const brim_formula_name names[] = {
    {.name = "x", .kind = BRIM_NAME_ELEMENT, .index = IN_X, .output = -1, .is_wanted = true},
    {.name = "z", .kind = BRIM_NAME_ELEMENT, .index = IN_Z, .output = -1, .is_wanted = true},
    {.name = "y", .kind = BRIM_NAME_ELEMENT, .index = -1, .output = 0},
    {.name = "f", .kind = BRIM_NAME_FIXED, .index = IN_FIXED},
    {.name = "s", .kind = BRIM_NAME_SCALAR, .index = 0},
    {.name = "n", .kind = BRIM_NAME_NUMBER, .number = 2}};
#define NAMES (sizeof names / sizeof names[0])
static const double points[][INPUTS] = {{0.75, -1.25, 0.5, 1}, {0, 0, 0, 1}, {-2, 3, 1e-3, 1}, {30, 1e-9, -4, 1}};
static const double scalars[] = {1.5};

static const char *text;

static void check(bool condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_formula: %s: %s\n%s\n", what, brim_error_text(), text);
  abort();
}

/* ---- the formula that was read ---- */

static void check_line(const brim_formula *f, const brim_formula_line *l, const bool *written)
{
  const uint8_t operand[] = {l->a, l->b, l->c};
  int count = 1; /* a store has one result */
#define X(id, name, operands, value)                                                                                   \
  if (l->op == BRIM_FORMULA_##id) count = operands;
  BRIM_FORMULA_FUNCTIONS(X)
#undef X
  for (int k = 0; k < count; k++)
    check(operand[k] < BRIM_FORMULA_UNIFORM ? operand[k] < f->registers && written[operand[k]]
                                            : operand[k] - BRIM_FORMULA_UNIFORM < (int)f->uniforms,
          "a line reads an undefined value");
}

static void check_lines(const brim_formula *f, int outputs)
{
  bool written[BRIM_FORMULA_REGISTERS_MAX] = {false};
  check(f->uniforms <= BRIM_FORMULA_UNIFORMS_MAX && f->lines <= BRIM_FORMULA_LINES_MAX &&
            f->registers <= BRIM_FORMULA_REGISTERS_MAX && (int)f->loads + outputs <= (int)f->lines,
        "more than there is room for");
  for (uint32_t k = 0; k < f->lines; k++) {
    const brim_formula_line *l = &f->line[k];
    const bool is_store = k >= f->lines - (uint32_t)outputs;
    check((l->op == BRIM_FORMULA_LOAD) == (k < f->loads), "loads are not first");
    check((l->op == BRIM_FORMULA_STORE) == is_store, "stores are not last");
    check(l->to < (is_store ? (uint32_t)outputs : f->registers), "a line writes outside");
    if (k >= f->loads) check_line(f, l, written);
    if (!is_store) written[l->to] = true;
  }
}

static void run(const brim_formula *f, const double *point, double *out)
{
  const void *const in[INPUTS] = {[IN_FIXED] = &point[IN_FIXED]};
  double uniform[BRIM_FORMULA_UNIFORMS_MAX], r[BRIM_FORMULA_REGISTERS_MAX];
  brim_formula_uniforms(f, scalars, in, uniform);
  for (uint32_t k = 0; k < f->lines; k++) {
    const brim_formula_line *l = &f->line[k];
    const uint8_t operand[] = {l->a, l->b, l->c};
    double v[3];
    for (int i = 0; i < 3 && l->op != BRIM_FORMULA_LOAD; i++)
      v[i] = operand[i] >= BRIM_FORMULA_UNIFORM    ? uniform[operand[i] - BRIM_FORMULA_UNIFORM]
             : i == 0 || operand[i] < f->registers ? r[operand[i]]
                                                   : 0;
    if (l->op == BRIM_FORMULA_LOAD)
      r[l->to] = point[l->a];
    else if (l->op == BRIM_FORMULA_STORE)
      out[l->to] = v[0];
    else
      r[l->to] = brim_formula_value(l->op, v[0], v[1], v[2]);
  }
}

/* ---- evaluation of the text from left to right; it was read before, so it is valid ---- */

typedef struct number {
  double value, slope; /* slope: with respect to the chosen input */
  double size;         /* sum of the absolute values of the slope's terms */
} number;

typedef struct variable {
  const char *name;
  size_t bytes;
  number is;
} variable;

static const char *at;
static variable variables[128];
static size_t variable_count;
static bool is_rounded; /* a slope has left the range in which products keep their digits */

static number read_comparison(void);

/* True if products of such numbers, in any order, neither overflow nor underflow. */
static bool is_moderate(double x)
{
  return x == 0 || (fabs(x) > 1e-60 && fabs(x) < 1e60);
}

static void add_slope(number *to, const number *of, double by)
{
  if (of->size == 0) return; /* the same for every element, so it has no slope */
  if (!is_moderate(by) || !is_moderate(of->slope) || !is_moderate(of->size)) is_rounded = true;
  to->slope += of->slope * by;
  to->size += fabs(of->size * by);
}

static number apply(uint32_t op, number a, number b, number c)
{
  number y = {.value = brim_formula_value(op, a.value, b.value, c.value)};
  const double v = y.value, x = a.value, less = x < b.value, more = b.value < x;
  if (op == BRIM_FORMULA_ADD) add_slope(&y, &a, 1), add_slope(&y, &b, 1);
  if (op == BRIM_FORMULA_SUB) add_slope(&y, &a, 1), add_slope(&y, &b, -1);
  if (op == BRIM_FORMULA_MUL) add_slope(&y, &a, b.value), add_slope(&y, &b, x);
  if (op == BRIM_FORMULA_DIV) add_slope(&y, &a, 1 / b.value), add_slope(&y, &b, -v / b.value);
  if (op == BRIM_FORMULA_MIN) add_slope(&y, &a, (1 + less - more) / 2), add_slope(&y, &b, (1 + more - less) / 2);
  if (op == BRIM_FORMULA_MAX) add_slope(&y, &a, (1 + more - less) / 2), add_slope(&y, &b, (1 + less - more) / 2);
  if (op == BRIM_FORMULA_WHERE) add_slope(&y, x != 0 ? &b : &c, 1);
  if (op == BRIM_FORMULA_NEG) add_slope(&y, &a, -1);
  if (op == BRIM_FORMULA_ABS) add_slope(&y, &a, (x > 0) - (x < 0));
  if (op == BRIM_FORMULA_SQRT) add_slope(&y, &a, 0.5 / v);
  if (op == BRIM_FORMULA_EXP) add_slope(&y, &a, v);
  if (op == BRIM_FORMULA_LOG) add_slope(&y, &a, 1 / x);
  if (op == BRIM_FORMULA_LOG1P) add_slope(&y, &a, 1 / (1 + x));
  if (op == BRIM_FORMULA_TANH) add_slope(&y, &a, 1 - v * v);
  if (op == BRIM_FORMULA_SIGMOID) add_slope(&y, &a, v * (1 - v));
  if (op == BRIM_FORMULA_ERF) add_slope(&y, &a, 2 / sqrt(acos(-1.0)) * exp(-x * x));
  return y;
}

static char next(void)
{
  while (*at == ' ' || *at == '\t' || *at == '\r') at++;
  if (*at == '#') at += strcspn(at, "\n");
  return *at;
}

static size_t name_bytes(void)
{
  size_t n = 0;
  if (isdigit((unsigned char)*at)) return 0;
  while (isalnum((unsigned char)at[n]) || at[n] == '_') n++;
  return n;
}

static variable *find(const char *name, size_t bytes)
{
  for (size_t i = 0; i < variable_count; i++)
    if (variables[i].bytes == bytes && memcmp(variables[i].name, name, bytes) == 0) return &variables[i];
  check(variable_count < sizeof variables / sizeof *variables, "more names than it may have");
  variables[variable_count] = (variable){.name = name, .bytes = bytes};
  return &variables[variable_count++];
}

static number read_operand(void)
{
  next();
  const char *name = at;
  const size_t bytes = name_bytes();
  number v[3] = {{0}};
  if (bytes == 0 && *at != '(') return (number){.value = strtod(at, (char **)&at)};
  at += bytes;
  if (bytes > 0 && next() != '(') return find(name, bytes)->is;
  int count = 0;
  do {
    at++; /* '(' or ',' */
    v[count++] = read_comparison();
  } while (count < 3 && next() == ',');
  check(next() == ')', "it has been read without a ')'");
  at++;
#define X(id, word, operands, value)                                                                                   \
  if (bytes == strlen(#word) && memcmp(name, #word, bytes) == 0) return apply(BRIM_FORMULA_##id, v[0], v[1], v[2]);
  BRIM_FORMULA_FUNCTIONS(X)
#undef X
  check(bytes == 0, "an unknown function");
  return v[0];
}

static number read_sign(void)
{
  if (next() != '-') return read_operand();
  at++;
  return apply(BRIM_FORMULA_NEG, read_sign(), (number){0}, (number){0});
}

static number read_product(void)
{
  number v = read_sign();
  for (char c = next(); c == '*' || c == '/'; c = next()) {
    at++;
    v = apply(c == '*' ? BRIM_FORMULA_MUL : BRIM_FORMULA_DIV, v, read_sign(), (number){0});
  }
  return v;
}

static number read_sum(void)
{
  number v = read_product();
  for (char c = next(); c == '+' || c == '-'; c = next()) {
    at++;
    v = apply(c == '+' ? BRIM_FORMULA_ADD : BRIM_FORMULA_SUB, v, read_product(), (number){0});
  }
  return v;
}

static number read_comparison(void)
{
  const number a = read_sum();
  const char c = next();
  if (c != '<' && c != '>') return a;
  at++;
  const number b = read_sum();
  return c == '<' ? apply(BRIM_FORMULA_LESS, a, b, (number){0}) : apply(BRIM_FORMULA_LESS, b, a, (number){0});
}

/* y at a point, and its slope with respect to an input. */
static number evaluate(const double *point, int by)
{
  at = text;
  variable_count = 0;
  is_rounded = false;
  find("x", 1)->is = (number){point[IN_X], by == IN_X, by == IN_X};
  find("z", 1)->is = (number){point[IN_Z], by == IN_Z, by == IN_Z};
  find("f", 1)->is.value = point[IN_FIXED];
  find("s", 1)->is.value = scalars[0];
  find("n", 1)->is.value = 2;
  for (;;) {
    while (next() == '\n' || *at == ';') at++;
    if (!*at) return find("y", 1)->is;
    const char *name = at;
    const size_t bytes = name_bytes();
    at += bytes;
    check(next() == '=', "it has been read without a '='");
    at++;
    const number v = read_comparison();
    find(name, bytes)->is = v;
  }
}

static void check_numbers(const brim_formula *f, const brim_formula *gradient)
{
  for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
    double y = NAN, slope[2] = {NAN, NAN};
    run(f, points[i], &y);
    if (gradient) run(gradient, points[i], slope);
    for (int by = IN_X; by <= IN_Z; by++) {
      const number n = evaluate(points[i], by);
      check(y == n.value || (isnan(y) && isnan(n.value)), "another value");
      /* The branch that where() does not take may have a NaN slope; times 0 it is still NaN. */
      if (!gradient || is_rounded || !isfinite(n.value) || !isfinite(n.slope) || !isfinite(slope[by])) continue;
      check(fabs(slope[by] - n.slope) <= 1e-9 * n.size, "another slope");
    }
  }
}

static void check_text(const char *formula)
{
  brim_formula f, again, gradient;
  text = formula;
  const brim_status status = brim_formula_read(text, names, NAMES, &f);
  if (status != BRIM_OK) {
    check(status == BRIM_EINVAL && strstr(brim_error_text(), "the formula"), "refused without a place");
    return;
  }
  check_lines(&f, 1);
  check(brim_formula_read(text, names, NAMES, &again) == BRIM_OK && brim_formula_equal(&f, &again),
        "another formula the second time");
  const brim_status derived = brim_formula_read_gradient(text, names, NAMES, IN_FLOW, &gradient);
  check(derived == BRIM_OK || strstr(brim_error_text(), " of the formula: it "), "a gradient refused without a reason");
  if (derived == BRIM_OK) check_lines(&gradient, 2);
  check_numbers(&f, derived == BRIM_OK ? &gradient : NULL);
}

/* ---- formulas from bytes, since few mutations of a formula are valid ---- */

typedef struct writer {
  const uint8_t *data, *end;
  char text[2048];
  size_t length;
  int depth;
} writer;

static int choose(writer *w, int count)
{
  return w->data < w->end ? *w->data++ % count : 0;
}

static void put(writer *w, const char *word)
{
  const size_t bytes = strlen(word);
  if (w->length + bytes >= sizeof w->text) return;
  memcpy(w->text + w->length, word, bytes);
  w->length += bytes;
}

static void put_value(writer *w)
{
  static const char *const simple[] = {"x", "z", "f", "s", "n", "t", "1", "0", "0.3", "2e1"};
  static const char *const joined[] = {" + ", " - ", " * ", " / ", " < ", " > ", ", "};
  static const struct {
    const char *name;
    int operands;
  } functions[] = {{"(", 1},
                   {"-(", 1},
#define X(id, name, operands, value) {#name "(", operands},
                   BRIM_FORMULA_FUNCTIONS(X)
#undef X
  };
  const int which = w->depth < 6 && w->data < w->end ? choose(w, 3) : 0;
  w->depth++;
  if (which == 0) {
    put(w, simple[choose(w, 10)]);
  } else if (which == 1) { /* in parentheses, because a comparison has only one < */
    put(w, "(");
    put_value(w);
    put(w, joined[choose(w, 6)]);
    put_value(w);
    put(w, ")");
  } else {
    const int f = choose(w, (int)(sizeof functions / sizeof functions[0]));
    put(w, functions[f].name);
    for (int k = 0; k < functions[f].operands; k++) {
      if (k > 0) put(w, joined[6]);
      put_value(w);
    }
    put(w, ")");
  }
  w->depth--;
}

static void check_made(const uint8_t *data, size_t size)
{
  writer w = {.data = data, .end = data + size};
  const int lines = choose(&w, 4);
  put(&w, "t = x * z");
  for (int i = 0; i < lines; i++) {
    put(&w, choose(&w, 2) ? "\nt = " : "\nx = ");
    put_value(&w);
  }
  put(&w, "\ny = ");
  put_value(&w);
  check_text(w.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char *copy = malloc(size + 1);
  text = "";
  check(copy != NULL, "no memory");
  if (size) memcpy(copy, data, size);
  copy[size] = '\0';
  check_text(copy);
  check_made(data, size);
  free(copy);
  return 0;
}
