/* Schedule-free AdamW (Defazio et al., The Road Less Scheduled, 2024), as AdamWScheduleFree of the authors' program,
 * github facebookresearch/schedule_free: gradients are taken at y, between z, where steps are taken, and x, the mean of
 * all z so far. Evaluation uses x, which checkpoints store as the model; in training, the parameter is y.
 *
 *     z = z - lr u,   x = (1 - c) x + c z,   y = (1 - beta1) z + beta1 x,   c = lr^2 / (the sum of all lr^2)
 *
 * x is not stored: it follows from y and z. */
#include <math.h>

#include "builtin/builtin.h"

typedef struct schedulefree {
  double lr, weight_decay, beta1, beta2, eps;
  int64_t warmup_steps;
  const char *no_decay;
} schedulefree;

static const brim_param table[] = {
    BRIM_PARAM(F64, schedulefree, lr, "0.0025", "[0,inf)",
               "learning rate; use schedule=constant without warm-up, as the mean of weights ignores the schedule"),
    BRIM_PARAM(F64, schedulefree, weight_decay, "0", "[0,inf)",
               "weight decay, applied at the weights where gradients are computed"),
    BRIM_PARAM(F64, schedulefree, beta1, "0.9", "(0,1)",
               "weight of the mean in the weights where gradients are computed"),
    BRIM_PARAM(F64, schedulefree, beta2, "0.999", "[0,1)", "decay of the mean of squared gradients"),
    BRIM_PARAM(F64, schedulefree, eps, "1e-8", "(0,inf)", "added to the denominator"),
    BRIM_PARAM(I64, schedulefree, warmup_steps, "0", "[0,inf)",
               "steps in which the learning rate rises to lr; they have less weight in the mean"),
    BRIM_PARAM(STR, schedulefree, no_decay, "", NULL,
               "shell patterns of parameters without weight decay: '*.bias norm?.*'; empty: all have it"),
    BRIM_PARAMS_END};

static const char *const states[] = {"z", "exp_avg_sq", NULL};
static const char *const scalars[] = {"lr", "weight_decay", "beta1", "beta2", "eps", "t", "first", "share", NULL};

/* The weight of step t, counted from 1, in the mean: its squared learning rate, divided by the sum of the squared rates
 * of steps 1 to t. Both are in units of lr^2; the warm-up contributes the sum of the squares of 1 .. warmup, divided by
 * warmup^2. */
static double share_of(double t, double warmup)
{
  const double risen = fmin(t, warmup), squares = risen * (risen + 1) * (2 * risen + 1) / 6;
  const double rate = t < warmup ? t / warmup : 1, warm = warmup > 0 ? squares / (warmup * warmup) : 0;
  return rate * rate / (warm + (t - risen));
}

static void step(const void *self, const brim_optimizer_step *at, double *scalar)
{
  const schedulefree *p = self;
  const double t = (double)at->step + 1, warmup = (double)p->warmup_steps;
  const double values[] = {p->lr * at->factor * (t < warmup ? t / warmup : 1),
                           p->weight_decay,
                           p->beta1,
                           p->beta2,
                           p->eps,
                           t,
                           at->step == 0,
                           share_of(t, warmup)};
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) scalar[i] = values[i];
}

static void form(const void *self, const brim_tensor *parameter, brim_update_form *out)
{
  const schedulefree *p = self;
  out->number_count = 1;
  out->number_name[0] = "decays";
  out->number[0] = !brim_matches_any(p->no_decay, parameter->name);
}

static const brim_optimizer_ops ops = {.size = sizeof ops,
                                       .states = states,
                                       .scalars = scalars,
                                       .step = step,
                                       .form = form,
                                       .formula = "z = where(first, p, z)\n" /* states are 0 at first */
                                                  "exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * (g * g)\n"
                                                  "u = g / (sqrt(exp_avg_sq / (1 - pow(beta2, t))) + eps)\n"
                                                  "u = u + weight_decay * decays * p\n"
                                                  "p = p + share * (z - p) + lr * (beta1 * (1 - share) - 1) * u\n"
                                                  "z = z - lr * u",
                                       .evaluated = "evaluated = p + (1 - 1 / beta1) * (z - p)"};
const brim_plugin brim_optimizer_schedulefree = {.size = sizeof(brim_plugin),
                                                 .kind = BRIM_OPTIMIZER,
                                                 .id = "schedulefree",
                                                 .help =
                                                     "AdamW without a schedule, evaluated at the mean of its weights "
                                                     "(Defazio et al., 2024); two states for each parameter",
                                                 .params_size = sizeof(schedulefree),
                                                 .params = table,
                                                 .ops = &ops};
