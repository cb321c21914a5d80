/* The list of the core's own plugins, and the losses, which have no parameters yet. */
#include "train/builtin.h"

#include "plugin/registry.h"

static const brim_loss_ops cross_entropy_ops = {sizeof(brim_loss_ops), "softmax_cross_entropy"};
const brim_plugin brim_loss_cross_entropy = {.size = sizeof(brim_plugin),
                                             .kind = BRIM_LOSS,
                                             .id = "cross_entropy",
                                             .help = "softmax cross-entropy with class labels, mean over samples",
                                             .ops = &cross_entropy_ops};

const brim_plugin *const brim_core_plugins[] = {&brim_optimizer_adamw,
                                                &brim_optimizer_adam,
                                                &brim_optimizer_sgd,
                                                &brim_schedule_constant,
                                                &brim_schedule_cosine,
                                                &brim_schedule_linear,
                                                &brim_schedule_step,
                                                &brim_schedule_polynomial,
                                                &brim_loss_cross_entropy,
                                                NULL};
