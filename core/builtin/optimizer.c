/* Optimizers: their parameters, and the numbers that a step passes to their update kernels. Defaults are PyTorch's. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/text.h"
#include "brim/code8.h"
#include "builtin/builtin.h"

#define NO_DECAY_HELP "shell patterns of parameters without weight decay: '*.bias norm?.*'; empty: all have it"

typedef struct adam {
  double lr, weight_decay, beta1, beta2, eps;
  const char *no_decay;
  bool bias_correction;
  double initial_accumulator; /* yogi's */
} adam;

#define ADAM_ROWS(rate, decay, decay_help, least)                                                                      \
  BRIM_PARAM(F64, adam, lr, rate, "[0,inf)", "learning rate, multiplied by the schedule"),                             \
      BRIM_PARAM(F64, adam, weight_decay, decay, "[0,inf)", decay_help),                                               \
      BRIM_PARAM(F64, adam, beta1, "0.9", "[0,1)", "decay of the mean of gradients"),                                  \
      BRIM_PARAM(F64, adam, beta2, "0.999", "[0,1)", "decay of the mean of squared gradients"),                        \
      BRIM_PARAM(F64, adam, eps, least, "(0,inf)", "added to the denominator"),                                        \
      BRIM_PARAM(STR, adam, no_decay, "", NULL, NO_DECAY_HELP),                                                        \
      BRIM_PARAM(BOOL, adam, bias_correction, "true", NULL,                                                            \
                 "true: divide both means by 1 - beta^step; false: do not, as in adaptive federated optimizers")

static const brim_param adamw_table[] = {ADAM_ROWS("0.001", "0.01", "decoupled weight decay", "1e-8"), BRIM_PARAMS_END};
static const brim_param adam_table[] = {ADAM_ROWS("0.001", "0", "L2 penalty, added to the gradient", "1e-8"),
                                        BRIM_PARAMS_END};

static void fill_adam(const void *params, double factor, brim_step *step)
{
  const adam *p = params;
  const double t = (double)step->step + 1;
  step->lr = p->lr * factor;
  step->weight_decay = p->weight_decay;
  step->beta1 = p->beta1;
  step->beta2 = p->beta2;
  step->eps = p->eps;
  step->bias_correction1 = p->bias_correction ? 1 - pow(p->beta1, t) : 1;
  step->bias_correction2 = p->bias_correction ? 1 - pow(p->beta2, t) : 1;
}

static void attr_adam(const void *params, const brim_tensor *parameter, brim_update_attr *out)
{
  const adam *p = params;
  out->no_decay = brim_matches_any(p->no_decay, parameter->name);
}

/* ---- yogi: defaults of torch_optimizer and optax, which also start the mean of gradients at initial_accumulator
 * ---- */

static const brim_param yogi_table[] = {
    ADAM_ROWS("0.01", "0", "L2 penalty, added to the gradient", "0.001"),
    BRIM_PARAM(F64, adam, initial_accumulator, "1e-6", "[0,inf)", "initial value of the mean of squared gradients"),
    BRIM_PARAMS_END};

/* States are 0 when a plan is placed, so the first update adds their initial value. */
static double added_to_squares(const brim_step *step, double initial)
{
  return step->step == 0 ? initial : 0;
}

static void fill_yogi(const void *params, double factor, brim_step *step)
{
  fill_adam(params, factor, step);
  step->initial_accumulator = added_to_squares(step, ((const adam *)params)->initial_accumulator);
}

/* ---- sgd ---- */

typedef struct sgd {
  double lr, weight_decay, momentum;
  bool nesterov;
  const char *no_decay;
} sgd;

static const brim_param sgd_table[] = {
    BRIM_PARAM(F64, sgd, lr, "0.01", "[0,inf)", "learning rate, multiplied by the schedule"),
    BRIM_PARAM(F64, sgd, weight_decay, "0", "[0,inf)", "L2 penalty, added to the gradient"),
    BRIM_PARAM(F64, sgd, momentum, "0.9", "[0,1)", "momentum: factor for the velocity in each step"),
    BRIM_PARAM(BOOL, sgd, nesterov, "false", NULL, "use Nesterov momentum"),
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
  out->no_decay = brim_matches_any(p->no_decay, parameter->name);
  out->nesterov = p->nesterov;
}

/* ---- adagrad ---- */

typedef struct adagrad {
  double lr, lr_decay, weight_decay, initial_accumulator, eps;
  const char *no_decay;
} adagrad;

static const brim_param adagrad_table[] = {
    BRIM_PARAM(F64, adagrad, lr, "0.01", "[0,inf)", "learning rate, multiplied by the schedule"),
    BRIM_PARAM(F64, adagrad, lr_decay, "0", "[0,inf)",
               "the learning rate is divided by 1 + lr_decay * number of earlier updates; 0: off"),
    BRIM_PARAM(F64, adagrad, weight_decay, "0", "[0,inf)", "L2 penalty, added to the gradient"),
    BRIM_PARAM(F64, adagrad, initial_accumulator, "0", "[0,inf)", "initial value of the sum of squared gradients"),
    BRIM_PARAM(F64, adagrad, eps, "1e-10", "(0,inf)", "added to the denominator"),
    BRIM_PARAM(STR, adagrad, no_decay, "", NULL, NO_DECAY_HELP),
    BRIM_PARAMS_END};

static void fill_adagrad(const void *params, double factor, brim_step *step)
{
  const adagrad *p = params;
  step->lr = p->lr * factor / (1 + (double)step->step * p->lr_decay);
  step->weight_decay = p->weight_decay;
  step->eps = p->eps;
  step->initial_accumulator = added_to_squares(step, p->initial_accumulator);
}

static void attr_adagrad(const void *params, const brim_tensor *parameter, brim_update_attr *out)
{
  const adagrad *p = params;
  out->no_decay = brim_matches_any(p->no_decay, parameter->name);
}

/* ---- lion ---- */

typedef struct lion {
  double lr, weight_decay, beta1, beta2;
  const char *no_decay;
} lion;

static const brim_param lion_table[] = {
    BRIM_PARAM(F64, lion, lr, "0.0001", "[0,inf)",
               "learning rate, multiplied by the schedule; use about a tenth of adamw's"),
    BRIM_PARAM(F64, lion, weight_decay, "0", "[0,inf)", "decoupled weight decay; use about ten times adamw's"),
    BRIM_PARAM(F64, lion, beta1, "0.9", "[0,1)", "weight of the mean of gradients in the direction of a step"),
    BRIM_PARAM(F64, lion, beta2, "0.99", "[0,1)", "decay of the mean of gradients"),
    BRIM_PARAM(STR, lion, no_decay, "", NULL, NO_DECAY_HELP),
    BRIM_PARAMS_END};

static void fill_lion(const void *params, double factor, brim_step *step)
{
  const lion *p = params;
  step->lr = p->lr * factor;
  step->weight_decay = p->weight_decay;
  step->beta1 = p->beta1;
  step->beta2 = p->beta2;
}

static void attr_lion(const void *params, const brim_tensor *parameter, brim_update_attr *out)
{
  const lion *p = params;
  out->no_decay = brim_matches_any(p->no_decay, parameter->name);
}

/* ---- adafactor ---- */

typedef struct adafactor {
  double lr, weight_decay, beta1, beta2_decay, eps1, eps2, d;
  const char *no_decay;
} adafactor;

static const brim_param adafactor_table[] = {
    BRIM_PARAM(
        F64, adafactor, lr, "0.01", "[0,inf)",
        "learning rate relative to the size of the parameter, multiplied by the schedule; at most 1 / sqrt(step)"),
    BRIM_PARAM(F64, adafactor, weight_decay, "0", "[0,inf)", "decoupled weight decay"),
    BRIM_PARAM(F64, adafactor, beta1, "0", "[0,1)", "decay of the mean of updates, which needs a state; 0: no mean"),
    BRIM_PARAM(F64, adafactor, beta2_decay, "-0.8", "[-10,0]",
               "step^beta2_decay is the weight of new squares in their means"),
    BRIM_PARAM(F64, adafactor, eps1, "1.1920929e-07", "(0,1)",
               "minimum of the root of a mean of squares, by which the gradient is divided"),
    BRIM_PARAM(F64, adafactor, eps2, "0.001", "[0,inf)",
               "minimum size of a parameter (root mean square) that lr is relative to"),
    BRIM_PARAM(F64, adafactor, d, "1", "(0,inf)", "largest root mean square of an update, before lr"),
    BRIM_PARAM(STR, adafactor, no_decay, "", NULL, NO_DECAY_HELP),
    BRIM_PARAMS_END};

static void fill_adafactor(const void *params, double factor, brim_step *step)
{
  const adafactor *p = params;
  step->lr = p->lr * factor;
  step->weight_decay = p->weight_decay;
  step->beta1 = p->beta1;
  step->beta2 = 1 - pow((double)step->step + 1, p->beta2_decay);
  step->eps = p->eps1;
}

static void attr_adafactor(const void *params, const brim_tensor *parameter, brim_update_attr *out)
{
  const adafactor *p = params;
  out->no_decay = brim_matches_any(p->no_decay, parameter->name);
  out->averages = p->beta1 > 0;
  out->clip = p->d;
  out->least = p->eps2;
}

/* Appends a state. */
static void add_state(brim_update_form *form, const char *name, uint32_t dtype, const brim_shape *shape)
{
  form->state[form->state_count].name = name;
  form->state[form->state_count].dtype = dtype;
  form->state[form->state_count++].shape = *shape;
}

/* The second moments of a matrix are stored as means of its rows and columns. A tensor of more dimensions counts as a
 * matrix of its first dimension by all others. */
static void form_adafactor(const void *params, const brim_tensor *parameter, brim_update_form *out)
{
  const adafactor *p = params;
  const brim_shape *shape = &parameter->shape;
  const int64_t rows = shape->rank > 0 ? shape->dim[0] : 1;
  const brim_shape row = {1, {rows}}, column = {1, {brim_shape_count(shape) / rows}};
  out->state_count = 0;
  out->is_whole = true;
  if (shape->rank < 2) {
    add_state(out, "exp_avg_sq", parameter->dtype, shape);
  } else {
    add_state(out, "exp_avg_sq_row", parameter->dtype, &row);
    add_state(out, "exp_avg_sq_col", parameter->dtype, &column);
  }
  if (p->beta1 > 0) add_state(out, "exp_avg", parameter->dtype, shape);
}

/* ---- adamw8bit ---- */

/* Small tensors use adamw's states, because they take little memory, and biases and norms need more than 8 bits. */
static void form_adamw8bit(const void *params, const brim_tensor *parameter, brim_update_form *out)
{
  (void)params;
  const int64_t count = brim_shape_count(&parameter->shape);
  const brim_shape blocks = {1, {brim_code8_blocks(count)}};
  out->state_count = 0;
  if (count < BRIM_CODE8_VALUES_MIN) {
    out->op = "adamw";
    add_state(out, "exp_avg", parameter->dtype, &parameter->shape);
    add_state(out, "exp_avg_sq", parameter->dtype, &parameter->shape);
    return;
  }
  add_state(out, "exp_avg", BRIM_DTYPE_U8, &parameter->shape);
  add_state(out, "exp_avg_absmax", parameter->dtype, &blocks);
  add_state(out, "exp_avg_sq", BRIM_DTYPE_U8, &parameter->shape);
  add_state(out, "exp_avg_sq_absmax", parameter->dtype, &blocks);
  out->state[1].block = out->state[3].block = BRIM_CODE8_BLOCK;
}

/* ---- descriptions for plans and steps ---- */

void brim_optimizer_describe(const brim_optimizer_ops *ops, const void *self, brim_update_options *out)
{
  out->op = ops->kernel ? ops->kernel->op : "formula";
  out->attr = ops->kernel ? ops->kernel->attr : NULL;
  out->formula = ops->formula;
  out->scalars = ops->scalars;
  out->state_name = ops->states;
  out->state_count = 0;
  while (ops->states && ops->states[out->state_count]) out->state_count++;
  out->form = ops->form;
  out->build = BRIM_HAS(brim_optimizer_ops, ops, build) ? ops->build : NULL;
  out->evaluated = BRIM_HAS(brim_optimizer_ops, ops, evaluated) ? ops->evaluated : NULL;
  out->params = self;
}

brim_status brim_optimizer_fill(const brim_plugin *plugin, const void *self, double factor, brim_step *step)
{
  const brim_optimizer_ops *ops = plugin->ops;
  if (ops->kernel) {
    ops->kernel->fill(self, factor, step);
    return BRIM_OK;
  }
  const brim_optimizer_step at = {.step = step->step, .factor = factor};
  ops->step(self, &at, step->scalar);
  for (int k = 0; ops->scalars && ops->scalars[k]; k++) {
    if (!(step->scalar[k] - step->scalar[k] == 0))
      return brim_fail(BRIM_ENUMERIC, "optimizer '%s': '%s' is %g in step %" PRIu64, plugin->id, ops->scalars[k],
                       step->scalar[k], step->step);
    if (strcmp(ops->scalars[k], "lr") == 0) step->lr = step->scalar[k];
  }
  return BRIM_OK;
}

double brim_optimizer_reach(const brim_plugin *plugin, const void *self, double rate, double mu, int64_t steps)
{
  if (plugin != &brim_optimizer_sgd) return (double)steps;
  const sgd *p = self;
  double moved = 0, velocity = 0;
  for (int64_t i = 0; i < steps; i++) {
    const double gradient = 1 - mu * rate * moved;
    velocity = p->momentum * velocity + gradient;
    moved += p->nesterov ? gradient + p->momentum * velocity : velocity;
  }
  return moved;
}

#define STATES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define OPTIMIZER(name, type, table, text, its_states, its_fill, its_attr, its_form)                                   \
  static const brim_optimizer_kernel name##_kernel = {#name, its_fill, its_attr};                                      \
  static const brim_optimizer_ops name##_ops = {                                                                       \
      .size = sizeof(brim_optimizer_ops), .states = its_states, .form = its_form, .kernel = &name##_kernel};           \
  const brim_plugin brim_optimizer_##name = {.size = sizeof(brim_plugin),                                              \
                                             .kind = BRIM_OPTIMIZER,                                                   \
                                             .id = #name,                                                              \
                                             .help = text,                                                             \
                                             .params_size = sizeof(type),                                              \
                                             .params = table,                                                          \
                                             .ops = &name##_ops}
OPTIMIZER(adamw, adam, adamw_table, "Adam with decoupled weight decay (Loshchilov and Hutter, 2019)",
          STATES("exp_avg", "exp_avg_sq"), fill_adam, attr_adam, NULL);
OPTIMIZER(adam, adam, adam_table, "Adam (Kingma and Ba, 2015); weight decay is an L2 penalty",
          STATES("exp_avg", "exp_avg_sq"), fill_adam, attr_adam, NULL);
OPTIMIZER(sgd, sgd, sgd_table, "stochastic gradient descent with momentum", STATES("momentum_buffer"), fill_sgd,
          attr_sgd, NULL);
OPTIMIZER(yogi, adam, yogi_table, "Yogi (Zaheer et al., 2018): Adam with smaller changes of the second moment",
          STATES("exp_avg", "exp_avg_sq"), fill_yogi, attr_adam, NULL);
OPTIMIZER(adagrad, adagrad, adagrad_table,
          "Adagrad (Duchi et al., 2011): divides the learning rate by the root of the sum of squared gradients",
          STATES("sum"), fill_adagrad, attr_adagrad, NULL);
OPTIMIZER(lion, lion, lion_table,
          "Lion (Chen et al., 2023): steps by the sign of a mean of gradients; half of adamw's states",
          STATES("exp_avg"), fill_lion, attr_lion, NULL);
OPTIMIZER(adafactor, adafactor, adafactor_table,
          "Adafactor (Shazeer and Stern, 2018): second moments as means of rows and columns, very little state", NULL,
          fill_adafactor, attr_adafactor, form_adafactor);
OPTIMIZER(adamw8bit, adam, adamw_table,
          "AdamW with 8-bit moments in blocks of 256 (Dettmers et al., 2022): a quarter of adamw's states", NULL,
          fill_adam, attr_adam, form_adamw8bit);
