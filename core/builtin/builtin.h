/* The core's own plugins: optimizers, learning-rate schedules, losses and others. They have parameter tables like any
 * plugin; this header declares their ops tables. */
#ifndef BRIM_BUILTIN_BUILTIN_H
#define BRIM_BUILTIN_BUILTIN_H
#include "brim/backend.h"
#include "brim/loss.h"
#include "brim/optimizer.h"
#include "brim/plugin.h"
#include "brim/schedule.h"
#include "builtin/augment.h"
#include "graph/graph.h"

/* For optimizers that use a backend's operation, which has a kernel, instead of a formula. */
typedef struct brim_optimizer_kernel {
  const char *op; /* the operation that updates one parameter; in: parameter, gradient, states */
  /* [step] Fills the hyperparameters of a step; `factor` is the schedule's. The caller has set step->step. */
  void (*fill)(const void *params, double factor, brim_step *step);
  /* [init] Fills the attributes that differ between parameters in *out, which is zeroed. NULL: no attribute differs. */
  void (*attr)(const void *params, const brim_tensor *parameter, brim_update_attr *out);
} brim_optimizer_kernel;

/* Fills the fields of *out that a plan needs from an optimizer; leaves the others unchanged. */
void brim_optimizer_describe(const brim_optimizer_ops *ops, const void *self, brim_update_options *out);
/* [step] Fills the numbers that a step passes to its updates. The caller has set step->step. ENUMERIC, naming the
 * number, if one that a formula uses is not finite. */
brim_status brim_optimizer_fill(const brim_plugin *plugin, const void *self, double factor, brim_step *step);
/* [step] The distance by which `steps` steps with the learning rate `rate` move a parameter whose gradient is always 1,
 * divided by `rate`. With sgd it depends on the momentum and on FedProx's mu; with other optimizers it is `steps`. */
double brim_optimizer_reach(const brim_plugin *plugin, const void *self, double rate, double mu, int64_t steps);

/* [step] The factor of the learning rate in a step. ENUMERIC, naming schedule and step, if it is negative or not
 * finite. */
brim_status brim_schedule_factor(const brim_plugin *plugin, const void *self, int64_t step, int64_t steps, double *out);
/* [init] Checks the factors of all steps of a run, or of a sample of them, before the run begins. */
brim_status brim_schedule_check(const brim_plugin *plugin, const void *self, int64_t steps);

/* For losses that use a backend's operation, which has a kernel, instead of a graph. */
typedef struct brim_loss_kernel {
  const char *op; /* in: output, label, weights if given; out: one loss per sample */
  /* [init] Fills the operation's attributes from the parameters in *attr, which is zeroed. NULL: there are none. */
  void (*fill)(const void *params, brim_loss_attr *attr);
} brim_loss_kernel;

/* [init] Returns the description of a loss for a graph. Sets *class_weights to the weights of the classes (count 0:
 * none). */
brim_graph_loss brim_loss_describe(const brim_plugin *plugin, const void *self, brim_list *class_weights);

/* The core's plugins, NULL-terminated. */
extern const brim_plugin *const brim_core_plugins[];

extern const brim_plugin brim_optimizer_adamw, brim_optimizer_adam, brim_optimizer_sgd, brim_optimizer_lion,
    brim_optimizer_adafactor, brim_optimizer_adamw8bit, brim_optimizer_yogi, brim_optimizer_adagrad,
    brim_optimizer_muon, brim_optimizer_adan, brim_optimizer_schedulefree;
extern const brim_plugin brim_schedule_constant, brim_schedule_cosine, brim_schedule_linear, brim_schedule_step,
    brim_schedule_polynomial, brim_schedule_wsd, brim_schedule_restarts;
extern const brim_plugin brim_selector_random, brim_selector_round_robin, brim_selector_proportional;
extern const brim_plugin brim_aggregator_fedavg, brim_aggregator_uniform, brim_aggregator_qfedavg,
    brim_aggregator_fednova;
extern const brim_plugin brim_aggregator_median, brim_aggregator_trimmed_mean, brim_aggregator_krum,
    brim_aggregator_multi_krum;
extern const brim_plugin brim_loss_cross_entropy, brim_loss_mse, brim_loss_mae, brim_loss_huber, brim_loss_bce,
    brim_loss_focal, brim_loss_sigmoid_focal, brim_loss_kl;
extern const brim_plugin brim_augment_color_jitter, brim_augment_erase, brim_augment_mixup, brim_augment_cutmix,
    brim_augment_gaussian_blur, brim_augment_randaugment;
#endif
