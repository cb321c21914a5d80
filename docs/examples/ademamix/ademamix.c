/* AdEMAMix (Pagliardini, Ablin and Grangier: The AdEMAMix Optimizer: Better, Faster, Older, 2024): AdamW with a second,
 * much slower mean of the gradients. Over `warmup` steps alpha, the weight of the slow mean, rises linearly from 0, and
 * the half-life of its decay beta3 rises linearly from that of beta1. */
#include <math.h>

#include <brim/brim.h>

typedef struct settings {
  double lr, beta1, beta2, beta3, alpha, eps, weight_decay;
  int64_t warmup;
  const char *no_decay;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(F64, settings, lr, "0.001", "[0,inf)", "learning rate, multiplied by the schedule"),
    BRIM_PARAM(F64, settings, beta1, "0.9", "(0,1)", "decay of the fast mean of the gradients"),
    BRIM_PARAM(F64, settings, beta2, "0.999", "[0,1)", "decay of the mean of their squares"),
    BRIM_PARAM(F64, settings, beta3, "0.9999", "(0,1)", "decay of the slow mean, after the warm-up"),
    BRIM_PARAM(F64, settings, alpha, "8", "[0,inf)", "weight of the slow mean, after the warm-up"),
    BRIM_PARAM(I64, settings, warmup, "0", "[0,inf)", "steps in which alpha and beta3 rise"),
    BRIM_PARAM(F64, settings, eps, "1e-8", "(0,inf)", "added to the denominator"),
    BRIM_PARAM(F64, settings, weight_decay, "0", "[0,inf)", "decoupled weight decay"),
    BRIM_PARAM(STR, settings, no_decay, "", NULL, "names of parameters without weight decay: '*.bias'"),
    BRIM_PARAMS_END,
};

/* Returns beta3 when the share `risen` of the warm-up is over. A half-life is a multiple of 1 / log(beta); the authors'
 * program adds 1e-8 to beta. */
static double beta3_at(const settings *s, double risen)
{
  if (risen >= 1) return s->beta3;
  return exp(1 / ((1 - risen) / log(s->beta1 + 1e-8) + risen / log(s->beta3 + 1e-8)));
}

static const char *const states[] = {"exp_avg_fast", "exp_avg_slow", "exp_avg_sq", NULL};
static const char *const scalars[] = {"lr",  "beta1",        "beta2", "beta3", "alpha",
                                      "eps", "weight_decay", "bias1", "bias2", NULL};
static void step(const void *self, const brim_optimizer_step *at, double *scalar)
{
  const settings *s = self;
  const double t = (double)at->step + 1;
  const double risen = t < (double)s->warmup ? t / (double)s->warmup : 1;
  scalar[0] = s->lr * at->factor;
  scalar[1] = s->beta1;
  scalar[2] = s->beta2;
  scalar[3] = beta3_at(s, risen);
  scalar[4] = s->alpha * risen;
  scalar[5] = s->eps;
  scalar[6] = s->weight_decay;
  scalar[7] = 1 - pow(s->beta1, t);
  scalar[8] = 1 - pow(s->beta2, t);
}

static void form(const void *self, const brim_tensor *parameter, brim_update_form *out)
{
  const settings *s = self;
  out->number_name[out->number_count] = "decays";
  out->number[out->number_count++] = !brim_matches_any(s->no_decay, parameter->name);
}

static const brim_optimizer_ops ops = {
    .size = sizeof ops,
    .states = states,
    .scalars = scalars,
    .step = step,
    .form = form,
    .formula = "exp_avg_fast = beta1 * exp_avg_fast + (1 - beta1) * g\n"
               "exp_avg_slow = beta3 * exp_avg_slow + (1 - beta3) * g\n"
               "exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g * g\n"
               "change = (exp_avg_fast / bias1 + alpha * exp_avg_slow) / (sqrt(exp_avg_sq) / sqrt(bias2) + eps)\n"
               "p = p - lr * (change + weight_decay * decays * p)"};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_OPTIMIZER,
                                   .id = "ademamix",
                                   .ops = &ops,
                                   .help = "AdamW with a second, slow mean of the gradients (Pagliardini et al., 2024)",
                                   .params_size = sizeof(settings),
                                   .params = table};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("ademamix", "1.0", plugins)
