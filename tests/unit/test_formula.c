/* Tests reading formulas: their results compared with plain C, the position of mistakes, and that subexpressions equal
 * for all elements are computed once. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/formula.h"
#include "base/text.h"
#include "brim/random.h"

static const brim_formula_name names[] = {{.name = "x", .kind = BRIM_NAME_ELEMENT, .index = 0, .output = -1},
                                          {.name = "y", .kind = BRIM_NAME_ELEMENT, .index = 1, .output = 0},
                                          {.name = "a", .kind = BRIM_NAME_SCALAR, .index = 0},
                                          {.name = "b", .kind = BRIM_NAME_SCALAR, .index = 1},
                                          {.name = "two", .kind = BRIM_NAME_NUMBER, .number = 2}};
#define NAMES (sizeof names / sizeof names[0])
static const double scalar[] = {0.75, -1.5};

/* Computes y of one element. */
static double run(const brim_formula *f, double x, double y)
{
  double uniform[BRIM_FORMULA_UNIFORMS_MAX], r[BRIM_FORMULA_REGISTERS_MAX], result = NAN;
  const double element[] = {x, y};
  brim_formula_uniforms(f, scalar, NULL, uniform);
  for (uint32_t k = 0; k < f->lines; k++) {
    const brim_formula_line *l = &f->line[k];
    const uint8_t operand[] = {l->a, l->b, l->c};
    double value[3] = {0};
    for (int i = 0; i < 3 && l->op != BRIM_FORMULA_LOAD; i++)
      value[i] = operand[i] < BRIM_FORMULA_UNIFORM ? r[operand[i]] : uniform[operand[i] - BRIM_FORMULA_UNIFORM];
    if (l->op == BRIM_FORMULA_LOAD)
      r[l->to] = element[l->a];
    else if (l->op == BRIM_FORMULA_STORE)
      result = value[0];
    else
      r[l->to] = brim_formula_value(l->op, value[0], value[1], value[2]);
  }
  return result;
}

static void check(const char *text, double x, double y, double expected)
{
  brim_formula f;
  if (brim_formula_read(text, names, NAMES, &f) != BRIM_OK) fail_msg("%s: %s", text, brim_error_text());
  const double got = run(&f, x, y);
  if (!(fabs(got - expected) <= 1e-15 * fmax(1, fabs(expected)))) fail_msg("%s: %.17g, not %.17g", text, got, expected);
}

static void formulas_equal_c(void **state)
{
  const double x = 1.25, y = -0.5, a = scalar[0], b = scalar[1];
  check("y = x + y * a - b / x", x, y, x + y * a - b / x);
  check("y = (x + y) * (a - b)", x, y, (x + y) * (a - b));
  check("y = x - y - a - b", x, y, x - y - a - b);
  check("y = x / y / a * b", x, y, x / y / a * b);
  check("y = -x * -y", x, y, -x * -y);
  check("y = --x - -y", x, y, x + y);
  check("y = 2.5e-1 * x + .5", x, y, 0.25 * x + 0.5);
  check("y = two * x", x, y, 2 * x);
  check("y = (x < y) + 2 * (x > y)", x, y, 2);
  check("y = where(x > 1, abs(y), sign(y)) + where(x < 1, 5, 7)", x, y, 7.5);
  check("y = min(x, y) + 10 * max(x, y)", x, y, fmin(x, y) + 10 * fmax(x, y));
  check("y = pow(a, 3) * x + pow(two, b)", x, y, pow(a, 3) * x + pow(2, b));
  check("y = sqrt(x) + exp(y) + log(x) + log1p(y) + tanh(x) + sigmoid(y) + erf(x)", x, y,
        sqrt(x) + exp(y) + log(x) + log1p(y) + tanh(x) + 1 / (1 + exp(-y)) + erf(x));
}

static void lines_may_use_earlier_lines(void **state)
{
  check("t = x * x # a name of its own\n\n  y = t + y ; y = y * 2\n# the end", 3, 1, 20);
  check("y = y + 1\nu = y\ny = u * y", 0, 2, 9);
}

/* Writes a random sum of `depth` operations and returns its value. */
static double draw(brim_text *out, uint32_t *drawn, int depth, double x, double y)
{
  const brim_philox random = brim_philox4x32((*drawn)++, 0, 0, 0, 3, 5);
  if (depth == 0) {
    static const char *const leaves[] = {"x", "y", "a", "b", "two", "0.3"};
    const double values[] = {x, y, scalar[0], scalar[1], 2, 0.3};
    brim_text_add(out, leaves[random.v[0] % 6]);
    return values[random.v[0] % 6];
  }
  static const char *const signs[] = {" + ", " - ", " * "};
  brim_text_add(out, "(");
  const double left = draw(out, drawn, depth - 1, x, y);
  brim_text_add(out, signs[random.v[0] % 3]);
  const double right = draw(out, drawn, random.v[1] % (uint32_t)depth, x, y);
  brim_text_add(out, ")");
  return random.v[0] % 3 == 0 ? left + right : random.v[0] % 3 == 1 ? left - right : left * right;
}

static void random_formulas_equal_c(void **state)
{
  uint32_t drawn = 0;
  for (int i = 0; i < 2000; i++) {
    brim_text text = {0};
    const double x = (i % 17 - 8) / 4.0, y = (i % 13 - 6) / 8.0;
    brim_text_add(&text, "y = ");
    const double expected = draw(&text, &drawn, 1 + i % 4, x, y);
    check(brim_text_str(&text), x, y, expected);
    brim_text_release(&text);
  }
}

static void common_subexpressions_are_computed_once(void **state)
{
  brim_formula f;
  assert_int_equal(brim_formula_read("y = a * b * two * x + sqrt(1 - a) * y + sqrt(1 - a)", names, NAMES, &f), BRIM_OK);
  assert_int_equal(f.loads, 2);
  assert_int_equal(f.lines, 2 + 2 + 2 + 1); /* loads, products, sums, a store */
  assert_int_equal(brim_formula_read("z = x * x\ny = x * x", names, NAMES, &f), BRIM_OK);
  assert_int_equal(f.lines, 3); /* the product is computed once */
  assert_true(brim_formula_equal(&f, &f));
}

static void refused(const char *text, const char *why)
{
  brim_formula f;
  assert_int_equal(brim_formula_read(text, names, NAMES, &f), BRIM_EINVAL);
  if (!strstr(brim_error_text(), why)) fail_msg("%s: '%s' is not in '%s'", text, why, brim_error_text());
}

static void mistakes_are_named_with_their_place(void **state)
{
  refused("y = x +", "line 1, column 8 of the formula: a number, a name or '(' is missing");
  refused("y = x\ny = q", "line 2, column 5 of the formula: unknown name 'q'");
  refused("y = (x", "line 1, column 7 of the formula: a ')' is missing");
  refused("y = min(x)", "a comma and one more operand are missing for 'min'");
  refused("y = sqrt(x, y)", "a ')' is missing after the operands of 'sqrt'");
  refused("y = cosine(x)", "line 1, column 5 of the formula: unknown function 'cosine'");
  refused("y x", "line 1, column 3 of the formula: a '=' is missing after 'y'");
  refused("= x", "line 1, column 1 of the formula: expected a name to assign to");
  refused("y = x y", "line 1, column 7 of the formula: a line break or ';' is missing");
  refused("y = pow(x, 2)", "line 1, column 5 of the formula: pow() takes numbers that are the same for all elements");
  refused("y = 1e999 * x", "a number is too large");
  refused("t = x", "the formula gives 'y' no new value");
  refused("", "the formula gives 'y' no new value");
}

static void too_large_formulas_are_refused(void **state)
{
  brim_text text = {0};
  brim_text_add(&text, "y = ");
  for (int i = 0; i < 100; i++) brim_text_add(&text, "(");
  refused(brim_text_str(&text), "it is nested too deeply");
  brim_text_clear(&text);
  brim_text_add(&text, "y = x");
  for (int i = 0; i < 120; i++) brim_text_printf(&text, " + x * y * %d", i + 3);
  refused(brim_text_str(&text), "it is too long: shorten it or split it into two");
  brim_text_clear(&text);
  for (int i = 0; i < 80; i++) brim_text_printf(&text, "t%d = x\n", i);
  brim_text_add(&text, "y = x");
  refused(brim_text_str(&text), "there are too many names");
  brim_text_release(&text);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(formulas_equal_c),
      cmocka_unit_test(lines_may_use_earlier_lines),
      cmocka_unit_test(random_formulas_equal_c),
      cmocka_unit_test(common_subexpressions_are_computed_once),
      cmocka_unit_test(mistakes_are_named_with_their_place),
      cmocka_unit_test(too_large_formulas_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
