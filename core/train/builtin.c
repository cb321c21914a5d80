/* The list of the core's own plugins, and the losses. */
#include "train/builtin.h"

#include "plugin/registry.h"

typedef struct cross_entropy {
  double label_smoothing;
  brim_list class_weights;
} cross_entropy;

static const brim_param cross_entropy_table[] = {
    BRIM_PARAM(F64, cross_entropy, label_smoothing, "0", "[0,1)",
               "share of each label that is spread over all classes"),
    BRIM_PARAM(LIST, cross_entropy, class_weights, "[]", "[0,inf)",
               "of each class's samples; the mean is weighted likewise; empty: all the same"),
    BRIM_PARAMS_END};

static void fill_cross_entropy(const void *params, brim_loss_attr *attr, brim_list *class_weights)
{
  const cross_entropy *p = params;
  attr->smoothing = p->label_smoothing;
  *class_weights = p->class_weights;
}

static const brim_loss_ops cross_entropy_ops = {sizeof(brim_loss_ops), "softmax_cross_entropy", fill_cross_entropy};
const brim_plugin brim_loss_cross_entropy = {.size = sizeof(brim_plugin),
                                             .kind = BRIM_LOSS,
                                             .id = "cross_entropy",
                                             .help = "softmax cross-entropy with class labels, mean over samples",
                                             .params_size = sizeof(cross_entropy),
                                             .params = cross_entropy_table,
                                             .ops = &cross_entropy_ops};

const brim_plugin *const brim_core_plugins[] = {&brim_optimizer_adamw,    &brim_optimizer_adam,
                                                &brim_optimizer_sgd,      &brim_schedule_constant,
                                                &brim_schedule_cosine,    &brim_schedule_linear,
                                                &brim_schedule_step,      &brim_schedule_polynomial,
                                                &brim_loss_cross_entropy, NULL};
