/* The losses, with their parameters as attributes of the operations in core/graph/ops, or as graphs. */
#include "builtin/builtin.h"

/* ---- softmax cross-entropy ---- */

typedef struct cross_entropy {
  double label_smoothing;
  brim_list class_weights;
  int64_t ignore_index;
} cross_entropy;

static const brim_param cross_entropy_table[] = {
    BRIM_PARAM(F64, cross_entropy, label_smoothing, "0", "[0,1)",
               "share of each label that is spread evenly over all classes"),
    BRIM_PARAM(LIST, cross_entropy, class_weights, "[]", "[0,inf)",
               "weight per class; the mean divides by the sum of the weights; empty: all 1"),
    BRIM_PARAM(I64, cross_entropy, ignore_index, "-100", "[-2147483648,2147483647]",
               "class or token that the loss ignores; a number that is not a label, such as -100: no class"),
    BRIM_PARAMS_END};

static void fill_cross_entropy(const void *params, brim_loss_attr *attr)
{
  const cross_entropy *p = params;
  attr->smoothing = p->label_smoothing;
  attr->ignores = 1;
  attr->ignore_index = (int32_t)p->ignore_index;
}

static void weights_cross_entropy(const void *params, brim_list *out)
{
  *out = ((const cross_entropy *)params)->class_weights;
}

#define CLASSES BRIM_TAKES(BRIM_TASK_CLASS)
#define TOKENS BRIM_TAKES(BRIM_TASK_TOKENS)
#define VALUES BRIM_TAKES(BRIM_TASK_VALUES)

static const brim_loss_kernel cross_entropy_kernel = {"softmax_cross_entropy", fill_cross_entropy};
static const brim_loss_ops cross_entropy_ops = {.size = sizeof(brim_loss_ops),
                                                .takes = CLASSES | TOKENS,
                                                .class_weights = weights_cross_entropy,
                                                .kernel = &cross_entropy_kernel};
const brim_plugin brim_loss_cross_entropy = {
    .size = sizeof(brim_plugin),
    .kind = BRIM_LOSS,
    .id = "cross_entropy",
    .help = "softmax cross-entropy with class labels, averaged over samples or tokens",
    .params_size = sizeof(cross_entropy),
    .params = cross_entropy_table,
    .ops = &cross_entropy_ops};

/* ---- means over the outputs, compared with real numbers, or with 1 for the label's class and 0 for the others ---- */

typedef struct huber {
  double delta;
} huber;

static const brim_param huber_table[] = {
    BRIM_PARAM(F64, huber, delta, "1", "(0,inf)",
               "difference up to which the loss is quadratic; beyond it the loss is linear"),
    BRIM_PARAMS_END};

static void fill_huber(const void *params, brim_loss_attr *attr)
{
  attr->delta = ((const huber *)params)->delta;
}

#define MEAN_LOSS(name, its_takes, text, bytes, table, its_fill)                                                       \
  static const brim_loss_kernel name##_kernel = {#name, its_fill};                                                     \
  static const brim_loss_ops name##_ops = {                                                                            \
      .size = sizeof(brim_loss_ops), .takes = its_takes, .kernel = &name##_kernel};                                    \
  const brim_plugin brim_loss_##name = {.size = sizeof(brim_plugin),                                                   \
                                        .kind = BRIM_LOSS,                                                             \
                                        .id = #name,                                                                   \
                                        .help = text,                                                                  \
                                        .params_size = bytes,                                                          \
                                        .params = table,                                                               \
                                        .ops = &name##_ops}
MEAN_LOSS(mse, CLASSES | VALUES,
          "mean squared error between outputs and real numbers, or between outputs and 1 for the label's class and 0 "
          "for others",
          0, NULL, NULL);
MEAN_LOSS(mae, CLASSES | VALUES,
          "mean absolute error between outputs and real numbers, or between outputs and 1 for the label's class and 0 "
          "for others",
          0, NULL, NULL);
MEAN_LOSS(
    huber, CLASSES | VALUES,
    "Huber loss between outputs and real numbers, or between outputs and 1 for the label's class and 0 for others",
    sizeof(huber), huber_table, fill_huber);
MEAN_LOSS(bce, CLASSES,
          "binary cross-entropy of each output's sigmoid; the target is 1 for the label's class and 0 for others", 0,
          NULL, NULL);

/* ---- focal losses (Lin et al., 2017): well-classified samples count less ---- */

typedef struct focal {
  double gamma;
  brim_list alpha;
} focal;

static const brim_param focal_table[] = {
    BRIM_PARAM(F64, focal, gamma, "2", "[0,100]",
               "the cross-entropy is multiplied by (1 - p)^gamma, where p is the label's probability"),
    BRIM_PARAM(LIST, focal, alpha, "[]", "[0,inf)",
               "weight per class; the mean divides by the sum of the weights; empty: all 1"),
    BRIM_PARAMS_END};

static const int32_t last_axis[] = {-1};

/* The power is computed as exp of a multiple of the logarithm, which this keeps finite: if 1 - p is 0, the power is
 * 0. */
#define LEAST "1e-30"

static brim_tensor *build_focal(const void *self, brim_graph *g, brim_tensor *output, brim_tensor *target)
{
  brim_tensor *each = brim_elementwise(g, "y = -t * l * exp(gamma * log(max(1 - exp(l), " LEAST ")))",
                                       BRIM_ELEMENTS("t", target), BRIM_ELEMENTS("l", brim_log_softmax(g, output)),
                                       BRIM_NUMBER("gamma", ((const focal *)self)->gamma));
  return brim_sum(g, each, 1, last_axis, 0);
}

static void weights_focal(const void *self, brim_list *out)
{
  *out = ((const focal *)self)->alpha;
}

static const brim_loss_ops focal_ops = {
    .size = sizeof(brim_loss_ops), .takes = CLASSES | TOKENS, .build = build_focal, .class_weights = weights_focal};
const brim_plugin brim_loss_focal = {.size = sizeof(brim_plugin),
                                     .kind = BRIM_LOSS,
                                     .id = "focal",
                                     .help = "focal loss: softmax cross-entropy times (1 - p)^gamma (Lin et al., 2017)",
                                     .params_size = sizeof(focal),
                                     .params = focal_table,
                                     .ops = &focal_ops};

typedef struct sigmoid_focal {
  double gamma, alpha;
} sigmoid_focal;

static const brim_param sigmoid_focal_table[] = {
    BRIM_PARAM(F64, sigmoid_focal, gamma, "2", "[0,100]", "the cross-entropy is multiplied by (1 - p)^gamma"),
    BRIM_PARAM(F64, sigmoid_focal, alpha, "0.25", "[-1,1]",
               "weight of the label's class; the others have 1 - alpha; below 0: no weights"),
    BRIM_PARAMS_END};

/* p: probability of the correct answer; c = -log(p), as in BCE; 1 - p = sigmoid(-x) or sigmoid(x). */
static brim_tensor *build_sigmoid_focal(const void *self, brim_graph *g, brim_tensor *output, brim_tensor *target)
{
  const sigmoid_focal *s = self;
  brim_tensor *each = brim_elementwise(g,
                                       "c = max(x, 0) - x * t + log1p(exp(-abs(x)))\n"
                                       "q = sigmoid(x) * (1 - t) + sigmoid(-x) * t\n"
                                       "y = c * exp(gamma * log(max(q, " LEAST "))) * (t * a + (1 - t) * b)",
                                       BRIM_ELEMENTS("x", output), BRIM_ELEMENTS("t", target),
                                       BRIM_NUMBER("gamma", s->gamma), BRIM_NUMBER("a", s->alpha < 0 ? 1 : s->alpha),
                                       BRIM_NUMBER("b", s->alpha < 0 ? 1 : 1 - s->alpha));
  return brim_mean(g, each, 1, last_axis, 0);
}

static const brim_loss_ops sigmoid_focal_ops = {
    .size = sizeof(brim_loss_ops), .takes = CLASSES, .build = build_sigmoid_focal};
const brim_plugin brim_loss_sigmoid_focal = {
    .size = sizeof(brim_plugin),
    .kind = BRIM_LOSS,
    .id = "sigmoid_focal",
    .help = "focal loss of each output's sigmoid, as torchvision's sigmoid_focal_loss, averaged over the classes",
    .params_size = sizeof(sigmoid_focal),
    .params = sigmoid_focal_table,
    .ops = &sigmoid_focal_ops};

/* ---- distillation (Hinton et al., 2015) ---- */

typedef struct kl {
  double temperature;
} kl;

static const brim_param kl_table[] = {
    BRIM_PARAM(F64, kl, temperature, "1", "(0,inf)",
               "temperature that divides both logits; the loss is multiplied by its square"),
    BRIM_PARAMS_END};

static brim_tensor *build_kl(const void *self, brim_graph *g, brim_tensor *output, brim_tensor *target)
{
  const double temperature = ((const kl *)self)->temperature;
  brim_tensor *teacher = brim_log_softmax(g, brim_scale(g, target, 1 / temperature));
  brim_tensor *student = brim_log_softmax(g, brim_scale(g, output, 1 / temperature));
  brim_tensor *each =
      brim_elementwise(g, "y = factor * exp(teacher) * (teacher - student)", BRIM_ELEMENTS("teacher", teacher),
                       BRIM_ELEMENTS("student", student), BRIM_NUMBER("factor", temperature * temperature));
  return brim_sum(g, each, 1, last_axis, 0);
}

static const brim_loss_ops kl_ops = {.size = sizeof(brim_loss_ops), .takes = VALUES, .build = build_kl};
const brim_plugin brim_loss_kl = {
    .size = sizeof(brim_plugin),
    .kind = BRIM_LOSS,
    .id = "kl",
    .help = "KL divergence from a teacher, whose logits are the targets (distillation, Hinton et al., 2015)",
    .params_size = sizeof(kl),
    .params = kl_table,
    .ops = &kl_ops};

/* ---- descriptions for graphs ---- */

#define NO_LABEL (-100) /* the default ignore_index of cross_entropy in PyTorch */

brim_graph_loss brim_loss_describe(const brim_plugin *plugin, const void *self, brim_list *class_weights)
{
  const brim_loss_ops *ops = plugin->ops;
  const brim_loss_kernel *kernel = ops->kernel;
  brim_graph_loss loss = {
      .op = kernel ? kernel->op : NULL, .built = kernel ? NULL : ops, .self = self, .id = plugin->id};
  *class_weights = (brim_list){0};
  if (ops->class_weights) ops->class_weights(self, class_weights);
  if (!kernel)
    loss.attr = (brim_loss_attr){.ignores = 1, .ignore_index = NO_LABEL};
  else if (kernel->fill)
    kernel->fill(self, &loss.attr);
  return loss;
}
