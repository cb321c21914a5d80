/* AdamW as an author outside the tree writes it, to be compared with the core's own. */
#ifndef TESTS_FORMULA_ADAMW_H
#define TESTS_FORMULA_ADAMW_H
#include "brim/brim.h"

typedef struct formula_adamw {
  double lr, weight_decay, beta1, beta2, eps;
} formula_adamw;

static const brim_param formula_table[] = {BRIM_PARAM(F64, formula_adamw, lr, "0.001", "[0,inf)", "learning rate"),
                                           BRIM_PARAM(F64, formula_adamw, weight_decay, "0.01", "[0,inf)", "decoupled"),
                                           BRIM_PARAM(F64, formula_adamw, beta1, "0.9", "[0,1)", "of the mean"),
                                           BRIM_PARAM(F64, formula_adamw, beta2, "0.999", "[0,1)", "of squares"),
                                           BRIM_PARAM(F64, formula_adamw, eps, "1e-8", "(0,inf)", "added"),
                                           BRIM_PARAMS_END};

static void step_formula(const void *self, const brim_optimizer_step *at, double *scalar)
{
  const formula_adamw *p = self;
  scalar[0] = p->lr * at->factor;
  scalar[1] = p->weight_decay;
  scalar[2] = p->beta1;
  scalar[3] = p->beta2;
  scalar[4] = p->eps;
  scalar[5] = (double)at->step + 1;
}

static const char *const formula_states[] = {"m", "v", NULL}, *const formula_scalars[] = {
                                                                  "lr", "weight_decay", "beta1", "beta2", "eps", "t",
                                                                  NULL};
static const brim_optimizer_ops formula_ops = {
    .size = sizeof formula_ops,
    .states = formula_states,
    .scalars = formula_scalars,
    .step = step_formula,
    .formula = "m = beta1 * m + (1 - beta1) * g\n"
               "v = beta2 * v + (1 - beta2) * (g * g)\n"
               "rate = lr / (1 - pow(beta1, t))\n"
               "p = (1 - lr * weight_decay) * p - rate * m / (sqrt(v) / sqrt(1 - pow(beta2, t)) + eps)"};
static const brim_plugin formula_plugin = {.size = sizeof formula_plugin,
                                           .kind = BRIM_OPTIMIZER,
                                           .id = "formula",
                                           .help = "AdamW",
                                           .params_size = sizeof(formula_adamw),
                                           .params = formula_table,
                                           .ops = &formula_ops};
#endif
