/* The core's own plugins: optimizers, learning-rate schedules, losses, the choice of a communicator. They have
 * parameter tables like any plugin; these are their ops tables. */
#ifndef BRIM_BUILTIN_BUILTIN_H
#define BRIM_BUILTIN_BUILTIN_H
#include "brim/backend.h"
#include "brim/loss.h"
#include "brim/optimizer.h"
#include "brim/plugin.h"
#include "brim/schedule.h"
#include "builtin/augment.h"
#include "graph/graph.h"

/* Of optimizers that have an operation of the backends' own, one kernel, in the place of a formula. */
typedef struct brim_optimizer_kernel {
  const char *op; /* that updates one parameter; in: parameter, gradient, states */
  /* [step] Fills the hyperparameters of a step; `factor` is the schedule's. step->step is set. */
  void (*fill)(const void *params, double factor, brim_step *step);
  /* [init] What differs from parameter to parameter, on *out, which is zero before. NULL: nothing. */
  void (*attr)(const void *params, const brim_tensor *parameter, brim_update_attr *out);
} brim_optimizer_kernel;

/* Fills what a plan is to know of an optimizer; the rest of *out stays. */
void brim_optimizer_describe(const brim_optimizer_ops *ops, const void *self, brim_update_options *out);
/* [step] Fills what a step brings to its updates; step->step is set. ENUMERIC, naming it, if a number that a formula
 * gets is not finite. */
brim_status brim_optimizer_fill(const brim_plugin *plugin, const void *self, double factor, brim_step *step);

/* [step] What a schedule multiplies the learning rate by in a step. ENUMERIC, naming it and the step, if that is
 * negative or not finite. */
brim_status brim_schedule_factor(const brim_plugin *plugin, const void *self, int64_t step, int64_t steps, double *out);
/* [init] The same of all steps of a run, or of many of them, before it begins. */
brim_status brim_schedule_check(const brim_plugin *plugin, const void *self, int64_t steps);

/* Of losses that have an operation of the backends' own, one kernel, in the place of a graph. */
typedef struct brim_loss_kernel {
  const char *op; /* in: output, label, weights if there are some; out: one loss a sample */
  /* [init] What the parameters say of the operation, on *attr, which is zero before. NULL: nothing. */
  void (*fill)(const void *params, brim_loss_attr *attr);
} brim_loss_kernel;

/* [init] Returns what a graph is to know of a loss. The weights of the classes come to *class_weights (count 0: none).
 */
brim_graph_loss brim_loss_describe(const brim_plugin *plugin, const void *self, brim_list *class_weights);

/* All of them, NULL-terminated. */
extern const brim_plugin *const brim_core_plugins[];

extern const brim_plugin brim_optimizer_adamw, brim_optimizer_adam, brim_optimizer_sgd, brim_optimizer_lion,
    brim_optimizer_adafactor, brim_optimizer_adamw8bit, brim_optimizer_yogi, brim_optimizer_adagrad,
    brim_optimizer_muon, brim_optimizer_adan, brim_optimizer_schedulefree;
extern const brim_plugin brim_schedule_constant, brim_schedule_cosine, brim_schedule_linear, brim_schedule_step,
    brim_schedule_polynomial, brim_schedule_wsd, brim_schedule_restarts;
extern const brim_plugin brim_selector_random, brim_selector_round_robin, brim_selector_proportional;
extern const brim_plugin brim_loss_cross_entropy, brim_loss_mse, brim_loss_mae, brim_loss_huber, brim_loss_bce,
    brim_loss_focal, brim_loss_sigmoid_focal, brim_loss_kl;
extern const brim_plugin brim_augment_color_jitter, brim_augment_erase, brim_augment_mixup, brim_augment_cutmix,
    brim_augment_gaussian_blur, brim_augment_randaugment;
#endif
