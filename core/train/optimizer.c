/* Optimizers: their parameters, and the numbers that a step brings to their update kernels. Defaults are PyTorch's. */
#include <math.h>

#include "train/builtin.h"

typedef struct adamw {
  double lr, weight_decay, beta1, beta2, eps;
} adamw;

static const brim_param adamw_table[] = {
    BRIM_PARAM(F64, adamw, lr, "0.001", "[0,inf)", "learning rate, multiplied by the schedule"),
    BRIM_PARAM(F64, adamw, weight_decay, "0.01", "[0,inf)", "decoupled weight decay"),
    BRIM_PARAM(F64, adamw, beta1, "0.9", "[0,1)", "decay of the mean of gradients"),
    BRIM_PARAM(F64, adamw, beta2, "0.999", "[0,1)", "decay of the mean of squared gradients"),
    BRIM_PARAM(F64, adamw, eps, "1e-8", "(0,inf)", "added to the denominator"),
    BRIM_PARAMS_END};

static void fill_adamw(const void *params, double factor, brim_step *step)
{
  const adamw *p = params;
  const double t = (double)step->step + 1;
  step->lr = p->lr * factor;
  step->weight_decay = p->weight_decay;
  step->beta1 = p->beta1;
  step->beta2 = p->beta2;
  step->eps = p->eps;
  step->bias_correction1 = 1 - pow(p->beta1, t);
  step->bias_correction2 = 1 - pow(p->beta2, t);
}

static const brim_optimizer_ops adamw_ops = {
    sizeof(brim_optimizer_ops), "adamw", 2, {"exp_avg", "exp_avg_sq"}, fill_adamw};
const brim_plugin brim_optimizer_adamw = {.size = sizeof(brim_plugin),
                                          .kind = BRIM_OPTIMIZER,
                                          .id = "adamw",
                                          .help = "Adam with decoupled weight decay (Loshchilov and Hutter, 2019)",
                                          .params_size = sizeof(adamw),
                                          .params = adamw_table,
                                          .ops = &adamw_ops};

typedef struct sgd {
  double lr, weight_decay, momentum;
} sgd;

static const brim_param sgd_table[] = {
    BRIM_PARAM(F64, sgd, lr, "0.01", "[0,inf)", "learning rate, multiplied by the schedule"),
    BRIM_PARAM(F64, sgd, weight_decay, "0", "[0,inf)", "L2 penalty, added to the gradient"),
    BRIM_PARAM(F64, sgd, momentum, "0.9", "[0,1)", "share of the velocity that is kept"), BRIM_PARAMS_END};

static void fill_sgd(const void *params, double factor, brim_step *step)
{
  const sgd *p = params;
  step->lr = p->lr * factor;
  step->weight_decay = p->weight_decay;
  step->momentum = p->momentum;
}

static const brim_optimizer_ops sgd_ops = {sizeof(brim_optimizer_ops), "sgd", 1, {"momentum_buffer"}, fill_sgd};
const brim_plugin brim_optimizer_sgd = {.size = sizeof(brim_plugin),
                                        .kind = BRIM_OPTIMIZER,
                                        .id = "sgd",
                                        .help = "stochastic gradient descent with momentum",
                                        .params_size = sizeof(sgd),
                                        .params = sgd_table,
                                        .ops = &sgd_ops};
