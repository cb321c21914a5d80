/* Adan (Xie et al., Adan: Adaptive Nesterov Momentum Algorithm for Faster Optimizing Deep Models, 2022): in addition to
 * the mean of gradients it keeps the mean of their differences between steps. It follows the authors' program, github
 * sail-sg/Adan, whose beta1, beta2 and beta3 are 1 minus those of the paper. */
#include <math.h>

#include "builtin/builtin.h"

typedef struct adan {
  double lr, weight_decay, beta1, beta2, beta3, eps;
  bool no_prox;
  const char *no_decay;
} adan;

static const brim_param table[] = {
    BRIM_PARAM(F64, adan, lr, "0.001", "[0,inf)", "learning rate, multiplied by the schedule"),
    BRIM_PARAM(F64, adan, weight_decay, "0", "[0,inf)",
               "weight decay: parameters are divided by 1 + lr * weight_decay"),
    BRIM_PARAM(F64, adan, beta1, "0.98", "[0,1)", "decay of the mean of gradients"),
    BRIM_PARAM(F64, adan, beta2, "0.92", "[0,1)", "decay of the mean of differences of gradients"),
    BRIM_PARAM(F64, adan, beta3, "0.99", "[0,1)", "decay of the mean of squares"),
    BRIM_PARAM(F64, adan, eps, "1e-8", "(0,inf)", "added to the denominator"),
    BRIM_PARAM(BOOL, adan, no_prox, "false", NULL,
               "true: weight decay as in AdamW: parameters are multiplied by 1 - lr * weight_decay before the step"),
    BRIM_PARAM(STR, adan, no_decay, "", NULL,
               "shell patterns of parameters without weight decay: '*.bias norm?.*'; empty: all have it"),
    BRIM_PARAMS_END};

/* first: 1 in the first step, which has no previous gradient; the state is 0 then */
static const char *const states[] = {"exp_avg", "exp_avg_sq", "exp_avg_diff", "pre_grad", NULL};
static const char *const scalars[] = {"lr", "weight_decay", "beta1", "beta2", "beta3", "eps", "t", "first", NULL};

static void step(const void *self, const brim_optimizer_step *at, double *scalar)
{
  const adan *p = self;
  const double values[] = {p->lr * at->factor,   p->weight_decay, p->beta1, p->beta2, p->beta3, p->eps,
                           (double)at->step + 1, at->step == 0};
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) scalar[i] = values[i];
}

static void form(const void *self, const brim_tensor *parameter, brim_update_form *out)
{
  const adan *p = self;
  const bool decays = !brim_matches_any(p->no_decay, parameter->name);
  out->number_count = 2;
  out->number_name[0] = "shrinks"; /* weight decay before the step, or after it */
  out->number[0] = decays && p->no_prox;
  out->number_name[1] = "divides";
  out->number[1] = decays && !p->no_prox;
}

static const brim_optimizer_ops ops = {
    .size = sizeof ops,
    .states = states,
    .scalars = scalars,
    .step = step,
    .form = form,
    .formula = "diff = where(first, 0, g - pre_grad)\n"
               "exp_avg = beta1 * exp_avg + (1 - beta1) * g\n"
               "exp_avg_diff = beta2 * exp_avg_diff + (1 - beta2) * diff\n"
               "ahead = g + beta2 * diff\n"
               "exp_avg_sq = beta3 * exp_avg_sq + (1 - beta3) * (ahead * ahead)\n"
               "root = sqrt(exp_avg_sq) / sqrt(1 - pow(beta3, t)) + eps\n"
               "move = lr / (1 - pow(beta1, t)) * exp_avg + lr * beta2 / (1 - pow(beta2, t)) * exp_avg_diff\n"
               "p = (1 - lr * weight_decay * shrinks) * p - move / root\n"
               "p = p / (1 + lr * weight_decay * divides)\n"
               "pre_grad = g"};
const brim_plugin brim_optimizer_adan = {
    .size = sizeof(brim_plugin),
    .kind = BRIM_OPTIMIZER,
    .id = "adan",
    .help = "Adan (Xie et al., 2022): Nesterov momentum from differences of gradients; twice adamw's states",
    .params_size = sizeof(adan),
    .params = table,
    .ops = &ops};
