/* The list of the core's own plugins. */
#include "builtin/builtin.h"

#include "dist/dist.h"

const brim_plugin *const brim_core_plugins[] = {&brim_optimizer_adamw,
                                                &brim_optimizer_adam,
                                                &brim_optimizer_sgd,
                                                &brim_optimizer_yogi,
                                                &brim_optimizer_adagrad,
                                                &brim_optimizer_lion,
                                                &brim_optimizer_adafactor,
                                                &brim_optimizer_adamw8bit,
                                                &brim_optimizer_muon,
                                                &brim_schedule_constant,
                                                &brim_schedule_cosine,
                                                &brim_schedule_linear,
                                                &brim_schedule_step,
                                                &brim_schedule_polynomial,
                                                &brim_schedule_wsd,
                                                &brim_schedule_restarts,
                                                &brim_loss_cross_entropy,
                                                &brim_loss_mse,
                                                &brim_loss_mae,
                                                &brim_loss_huber,
                                                &brim_loss_bce,
                                                &brim_loss_focal,
                                                &brim_loss_sigmoid_focal,
                                                &brim_selector_random,
                                                &brim_selector_round_robin,
                                                &brim_selector_proportional,
                                                &brim_comm_auto,
                                                NULL};
