/* Formulas for one instruction set. Each line of a formula runs over a block of values, which stays in the L1 cache.
 * This file uses no fused multiply-adds, so an element does not depend on the vector length. */
#include "simd_formula.h"

#include "simd_math.h"

static inline vf sign_of(vf x)
{
  const vf zero = {0};
  return choose(x > zero, splat(1), choose(x < zero, splat(-1), zero));
}

#define LINE(name, value)                                                                                              \
  case BRIM_FORMULA_##name:                                                                                            \
    for (int64_t i = 0; i < count; i += LANES) {                                                                       \
      const vf a = load(pa + (i & ma)), b = load(pb + (i & mb));                                                       \
      (void)a, (void)b;                                                                                                \
      store(to + i, value);                                                                                            \
    }                                                                                                                  \
    break

static void run(const cpu_formula *f, const cpu_formula_places *p, int64_t count)
{
  const vf zero = {0}, one = splat(1);
  for (uint32_t k = 0; k < f->lines; k++) {
    const brim_formula_line *l = &f->line[k];
    float *to = p->at[l->to];
    const float *pa = p->at[l->a], *pb = p->at[l->b], *pc = p->at[l->c];
    const int64_t ma = p->mask[l->a], mb = p->mask[l->b], mc = p->mask[l->c];
    switch (l->op) {
      LINE(ADD, a + b);
      LINE(SUB, a - b);
      LINE(MUL, a * b);
      LINE(DIV, a / b);
      LINE(LESS, choose(a < b, one, zero));
      LINE(MIN, min_of(a, b));
      LINE(MAX, max_of(a, b));
      LINE(WHERE, choose(a != zero, b, load(pc + (i & mc))));
      LINE(NEG, -a);
      LINE(ABS, abs_of(a));
      LINE(SIGN, sign_of(a));
      LINE(SQRT, square_root(a));
      LINE(EXP, exponential(a));
      LINE(LOG, log_of(a));
      LINE(LOG1P, log_of_one_plus(a));
      LINE(TANH, tanh_of(a));
      LINE(SIGMOID, sigmoid_of(a));
      LINE(ERF, erf_of(a));
      LINE(STORE, a);
    default:
      break;
    }
  }
}

const cpu_formula_run CPU_NAME(cpu_formula) = run;
