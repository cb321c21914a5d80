/* Optimizers: their parameters, and the numbers that a step brings to their update kernels. Defaults are PyTorch's. */
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "train/builtin.h"

/* Does the name match one of the patterns of the shell, which spaces or commas part? */
static bool matches_any(const char *patterns, const char *name)
{
  static const char parts[] = ", \t\n";
  for (const char *at = patterns + strspn(patterns, parts); *at; at += strspn(at, parts)) {
    const size_t length = strcspn(at, parts);
    char *pattern = brim_xmalloc(length + 1);
    memcpy(pattern, at, length);
    pattern[length] = '\0';
    const bool matches = fnmatch(pattern, name, 0) == 0;
    free(pattern);
    if (matches) return true;
    at += length;
  }
  return false;
}

#define NO_DECAY_HELP "names of parameters without weight decay, as patterns of the shell: '*.bias norm?.*'"

typedef struct adam {
  double lr, weight_decay, beta1, beta2, eps;
  const char *no_decay;
} adam;

#define ADAM_ROWS(decay, decay_help)                                                                                   \
  BRIM_PARAM(F64, adam, lr, "0.001", "[0,inf)", "learning rate, multiplied by the schedule"),                          \
      BRIM_PARAM(F64, adam, weight_decay, decay, "[0,inf)", decay_help),                                               \
      BRIM_PARAM(F64, adam, beta1, "0.9", "[0,1)", "decay of the mean of gradients"),                                  \
      BRIM_PARAM(F64, adam, beta2, "0.999", "[0,1)", "decay of the mean of squared gradients"),                        \
      BRIM_PARAM(F64, adam, eps, "1e-8", "(0,inf)", "added to the denominator"),                                       \
      BRIM_PARAM(STR, adam, no_decay, "", NULL, NO_DECAY_HELP), BRIM_PARAMS_END

static const brim_param adamw_table[] = {ADAM_ROWS("0.01", "decoupled weight decay")};
static const brim_param adam_table[] = {ADAM_ROWS("0", "L2 penalty, added to the gradient")};

static void fill_adam(const void *params, double factor, brim_step *step)
{
  const adam *p = params;
  const double t = (double)step->step + 1;
  step->lr = p->lr * factor;
  step->weight_decay = p->weight_decay;
  step->beta1 = p->beta1;
  step->beta2 = p->beta2;
  step->eps = p->eps;
  step->bias_correction1 = 1 - pow(p->beta1, t);
  step->bias_correction2 = 1 - pow(p->beta2, t);
}

static void attr_adam(const void *params, const brim_tensor *parameter, brim_update_attr *out)
{
  const adam *p = params;
  out->no_decay = matches_any(p->no_decay, parameter->name);
}

typedef struct sgd {
  double lr, weight_decay, momentum;
  bool nesterov;
  const char *no_decay;
} sgd;

static const brim_param sgd_table[] = {
    BRIM_PARAM(F64, sgd, lr, "0.01", "[0,inf)", "learning rate, multiplied by the schedule"),
    BRIM_PARAM(F64, sgd, weight_decay, "0", "[0,inf)", "L2 penalty, added to the gradient"),
    BRIM_PARAM(F64, sgd, momentum, "0.9", "[0,1)", "share of the velocity that is kept"),
    BRIM_PARAM(BOOL, sgd, nesterov, "false", NULL, "Nesterov's momentum"),
    BRIM_PARAM(STR, sgd, no_decay, "", NULL, NO_DECAY_HELP),
    BRIM_PARAMS_END};

static void fill_sgd(const void *params, double factor, brim_step *step)
{
  const sgd *p = params;
  step->lr = p->lr * factor;
  step->weight_decay = p->weight_decay;
  step->momentum = p->momentum;
}

static void attr_sgd(const void *params, const brim_tensor *parameter, brim_update_attr *out)
{
  const sgd *p = params;
  out->no_decay = matches_any(p->no_decay, parameter->name);
  out->nesterov = p->nesterov;
}

#define OPTIMIZER(name, type, text, states, ...)                                                                       \
  static const brim_optimizer_ops name##_ops = {                                                                       \
      sizeof(brim_optimizer_ops), #name, states, {__VA_ARGS__}, fill_##type, attr_##type};                             \
  const brim_plugin brim_optimizer_##name = {.size = sizeof(brim_plugin),                                              \
                                             .kind = BRIM_OPTIMIZER,                                                   \
                                             .id = #name,                                                              \
                                             .help = text,                                                             \
                                             .params_size = sizeof(type),                                              \
                                             .params = name##_table,                                                   \
                                             .ops = &name##_ops}
OPTIMIZER(adamw, adam, "Adam with decoupled weight decay (Loshchilov and Hutter, 2019)", 2, "exp_avg", "exp_avg_sq");
OPTIMIZER(adam, adam, "Adam (Kingma and Ba, 2015); weight decay is an L2 penalty", 2, "exp_avg", "exp_avg_sq");
OPTIMIZER(sgd, sgd, "stochastic gradient descent with momentum", 1, "momentum_buffer");
