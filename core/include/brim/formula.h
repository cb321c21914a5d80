/* Formulas: elementwise computations, written as text.
 *
 *     m = beta1 * m + (1 - beta1) * g
 *     v = beta2 * v + (1 - beta2) * g * g
 *     p = p - lr * m / (sqrt(v) + eps)
 *
 * Each line assigns a value to a name, and creates unknown names. Lines end with a line break or a semicolon; # begins
 * a comment. Expressions have + - * /, unary minus, parentheses, numbers, a < b and a > b (1 if true, else 0), and the
 * functions below. where(c, a, b) is a if c is not 0, else b. pow(a, b) requires operands that are the same for all
 * elements. The core parses the text once, when it makes a plan (core/base/formula.c), and gives backends the structs
 * below. Values that are the same for all elements (uniforms) come first; they are computed once per launch, in double
 * precision. Since ABI 1.10. */
#ifndef BRIM_FORMULA_H
#define BRIM_FORMULA_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define BRIM_FORMULA_ANYWHERE static __host__ __device__ inline
#else
#define BRIM_FORMULA_ANYWHERE static inline
#endif
#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_SCALARS_MAX 16 /* numbers that a step passes to formulas: brim_step.scalar */
#define BRIM_FORMULA_UNIFORMS_MAX 64
#define BRIM_FORMULA_LINES_MAX 96
#define BRIM_FORMULA_REGISTERS_MAX 24
#define BRIM_FORMULA_OPERANDS_MAX 10 /* inputs; also the limit for outputs */

/* name, number of operands, value for operands a, b, c in double precision */
#define BRIM_FORMULA_FUNCTIONS(X)                                                                                      \
  X(ADD, add, 2, a + b)                                                                                                \
  X(SUB, sub, 2, a - b)                                                                                                \
  X(MUL, mul, 2, a *b)                                                                                                 \
  X(DIV, div, 2, a / b)                                                                                                \
  X(LESS, less, 2, a < b ? 1 : 0)                                                                                      \
  X(MIN, min, 2, b < a ? b : a)                                                                                        \
  X(MAX, max, 2, a < b ? b : a)                                                                                        \
  X(POW, pow, 2, pow(a, b))                                                                                            \
  X(WHERE, where, 3, a != 0 ? b : c)                                                                                   \
  X(NEG, neg, 1, -a)                                                                                                   \
  X(ABS, abs, 1, fabs(a))                                                                                              \
  X(SIGN, sign, 1, (a > 0) - (a < 0))                                                                                  \
  X(SQRT, sqrt, 1, sqrt(a))                                                                                            \
  X(EXP, exp, 1, exp(a))                                                                                               \
  X(LOG, log, 1, log(a))                                                                                               \
  X(LOG1P, log1p, 1, log1p(a))                                                                                         \
  X(TANH, tanh, 1, tanh(a))                                                                                            \
  X(SIGMOID, sigmoid, 1, 1 / (1 + exp(-a)))                                                                            \
  X(ERF, erf, 1, erf(a))

enum brim_formula_op {
  BRIM_FORMULA_LOAD,   /* loads an element of input a; in a uniform line: element b of input a, of type f64 */
  BRIM_FORMULA_STORE,  /* stores a to output `to`; stores are the last lines */
  BRIM_FORMULA_SCALAR, /* uniform: step.scalar[a] */
  BRIM_FORMULA_NUMBER, /* uniform: number[own index] */
#define X(name, text, operands, value) BRIM_FORMULA_##name,
  BRIM_FORMULA_FUNCTIONS(X)
#undef X
      BRIM_FORMULA_OPS
};

/* One operation. In a uniform line, operands are indices of earlier uniforms, and the result is stored at the line's
 * own index. In an element line, `to` is a register, and an operand is a register or a uniform (its index plus
 * BRIM_FORMULA_UNIFORM). A line may write a register that it reads. */
#define BRIM_FORMULA_UNIFORM 128
typedef struct brim_formula_line {
  uint8_t op, to, a, b, c; /* op: enum brim_formula_op */
} brim_formula_line;

typedef struct brim_formula {
  uint32_t uniforms, lines, registers;
  uint32_t loads; /* the number of loads, which are the first lines: one per input that is read, in any order */
  brim_formula_line uniform[BRIM_FORMULA_UNIFORMS_MAX], line[BRIM_FORMULA_LINES_MAX];
  double number[BRIM_FORMULA_UNIFORMS_MAX]; /* the values of uniforms that are numbers */
} brim_formula;

/* Evaluates a function in double precision. */
BRIM_FORMULA_ANYWHERE double brim_formula_value(uint32_t op, double a, double b, double c)
{
  (void)b, (void)c;
  switch (op) {
#define X(name, text, operands, value)                                                                                 \
  case BRIM_FORMULA_##name:                                                                                            \
    return value;
    BRIM_FORMULA_FUNCTIONS(X)
#undef X
  default:
    return 0;
  }
}

/* 1 if both formulas have the same operations, else 0. */
static inline int brim_formula_equal(const brim_formula *a, const brim_formula *b)
{
  if (a->uniforms != b->uniforms || a->lines != b->lines ||
      memcmp(a->uniform, b->uniform, a->uniforms * sizeof *a->uniform) != 0 ||
      memcmp(a->line, b->line, a->lines * sizeof *a->line) != 0)
    return 0;
  for (uint32_t i = 0; i < a->uniforms; i++)
    if (a->number[i] < b->number[i] || a->number[i] > b->number[i]) return 0;
  return 1;
}

/* Evaluates all uniforms, into value[f->uniforms]. */
BRIM_FORMULA_ANYWHERE void brim_formula_uniforms(const brim_formula *f, const double *scalar, const void *const *in,
                                                 double *value)
{
  for (uint32_t i = 0; i < f->uniforms; i++) {
    const brim_formula_line *l = &f->uniform[i];
    if (l->op == BRIM_FORMULA_LOAD)
      value[i] = ((const double *)in[l->a])[l->b];
    else if (l->op == BRIM_FORMULA_SCALAR)
      value[i] = scalar[l->a];
    else if (l->op == BRIM_FORMULA_NUMBER)
      value[i] = f->number[i];
    else
      value[i] = brim_formula_value(l->op, value[l->a], value[l->b], value[l->c]);
  }
}

#ifdef __cplusplus
}
#endif
#endif
