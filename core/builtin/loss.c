/* The losses: what their parameters say of the operations in core/graph/ops. */
#include "builtin/builtin.h"

/* ---- softmax cross-entropy ---- */

typedef struct cross_entropy {
  double label_smoothing;
  brim_list class_weights;
  int64_t ignore_index;
} cross_entropy;

static const brim_param cross_entropy_table[] = {
    BRIM_PARAM(F64, cross_entropy, label_smoothing, "0", "[0,1)",
               "share of each label that is spread over all classes"),
    BRIM_PARAM(LIST, cross_entropy, class_weights, "[]", "[0,inf)",
               "of each class's samples; the mean is weighted likewise; empty: all the same"),
    BRIM_PARAM(I64, cross_entropy, ignore_index, "-100", "[-2147483648,2147483647]",
               "the class, or token, that counts for nothing in the loss; one that does not exist, as -100: none"),
    BRIM_PARAMS_END};

static void fill_cross_entropy(const void *params, brim_loss_attr *attr, brim_list *class_weights)
{
  const cross_entropy *p = params;
  attr->smoothing = p->label_smoothing;
  attr->ignores = 1;
  attr->ignore_index = (int32_t)p->ignore_index;
  *class_weights = p->class_weights;
}

static const brim_loss_ops cross_entropy_ops = {sizeof(brim_loss_ops), "softmax_cross_entropy", fill_cross_entropy};
const brim_plugin brim_loss_cross_entropy = {
    .size = sizeof(brim_plugin),
    .kind = BRIM_LOSS,
    .id = "cross_entropy",
    .help = "softmax cross-entropy with class labels, mean over samples, or over tokens",
    .params_size = sizeof(cross_entropy),
    .params = cross_entropy_table,
    .ops = &cross_entropy_ops};

/* ---- means over the outputs, which are compared with real numbers, or with 1 for the label's class and 0 for the
 * others ---- */

typedef struct huber {
  double delta;
} huber;

static const brim_param huber_table[] = {
    BRIM_PARAM(F64, huber, delta, "1", "(0,inf)",
               "a difference up to this counts by its square, a larger one linearly"),
    BRIM_PARAMS_END};

static void fill_huber(const void *params, brim_loss_attr *attr, brim_list *class_weights)
{
  attr->delta = ((const huber *)params)->delta;
  *class_weights = (brim_list){0};
}

static void fill_nothing(const void *params, brim_loss_attr *attr, brim_list *class_weights)
{
  (void)params;
  (void)attr;
  *class_weights = (brim_list){0};
}

#define MEAN_LOSS(name, text, bytes, table, fill)                                                                      \
  static const brim_loss_ops name##_ops = {sizeof(brim_loss_ops), #name, fill};                                        \
  const brim_plugin brim_loss_##name = {.size = sizeof(brim_plugin),                                                   \
                                        .kind = BRIM_LOSS,                                                             \
                                        .id = #name,                                                                   \
                                        .help = text,                                                                  \
                                        .params_size = bytes,                                                          \
                                        .params = table,                                                               \
                                        .ops = &name##_ops}
MEAN_LOSS(mse,
          "mean squared error of the outputs from real numbers; of classes from 1 for the label's and 0 for the others",
          0, NULL, fill_nothing);
MEAN_LOSS(
    mae, "mean absolute error of the outputs from real numbers; of classes from 1 for the label's and 0 for the others",
    0, NULL, fill_nothing);
MEAN_LOSS(huber, "Huber loss of the outputs from real numbers; of classes from 1 for the label's and 0 for the others",
          sizeof(huber), huber_table, fill_huber);
MEAN_LOSS(bce, "binary cross-entropy of each output's sigmoid, with 1 for the label's class and 0 for the others", 0,
          NULL, fill_nothing);
