/* Muon (Jordan et al., Muon: An optimizer for hidden layers in neural networks, 2024; Liu et al., Muon is Scalable for
 * LLM Training, 2025): the momentum of a matrix is replaced by the nearest matrix whose singular values are all 1,
 * which a few steps of a Newton-Schulz iteration approach:
 *
 *     x = m / |m|,   then `steps` times   x = a x + (b x x^T + c (x x^T)^2) x
 *
 * It follows torch.optim.Muon, but iterates in fp32, where PyTorch uses bfloat16. Parameters other than hidden matrices
 * (biases, embeddings and the last layer) are updated by AdamW. */
#include <math.h>

#include "builtin/builtin.h"

enum adjust { ORIGINAL, MATCH_RMS_ADAMW };

typedef struct muon {
  double lr, weight_decay, momentum, eps;
  bool nesterov;
  int64_t steps;
  int32_t adjust;
  const char *adamw;
  double adamw_lr, adamw_beta1, adamw_beta2, adamw_eps;
  const char *no_decay;
} muon;

static const brim_param table[] = {
    BRIM_PARAM(F64, muon, lr, "0.02", "[0,inf)", "learning rate of matrices, multiplied by the schedule"),
    BRIM_PARAM(F64, muon, weight_decay, "0", "[0,inf)", "decoupled weight decay, also of AdamW's parameters"),
    BRIM_PARAM(F64, muon, momentum, "0.95", "[0,1)", "decay of the mean of gradients"),
    BRIM_PARAM(BOOL, muon, nesterov, "true", NULL, "use Nesterov momentum"),
    BRIM_PARAM(I64, muon, steps, "5", "[1,20]", "steps of the Newton-Schulz iteration"),
    BRIM_PARAM(F64, muon, eps, "1e-7", "(0,inf)", "minimum norm by which a matrix is divided"),
    BRIM_PARAM(ENUM, muon, adjust, "original", "original|match_rms_adamw",
               "factor for lr of a matrix [R, C]: original: sqrt(max(1, R / C)); match_rms_adamw: 0.2 sqrt(max(R, C)), "
               "for learning rates of adamw"),
    BRIM_PARAM(STR, muon, adamw, "*embed* *wte* *wpe* *head* *classifier*", NULL,
               "shell patterns of matrices to update with AdamW, as all tensors that are not matrices are"),
    BRIM_PARAM(F64, muon, adamw_lr, "0.0003", "[0,inf)", "AdamW's learning rate, multiplied by the schedule"),
    BRIM_PARAM(F64, muon, adamw_beta1, "0.9", "[0,1)", "AdamW's decay of the mean of gradients"),
    BRIM_PARAM(F64, muon, adamw_beta2, "0.95", "[0,1)", "AdamW's decay of the mean of squared gradients"),
    BRIM_PARAM(F64, muon, adamw_eps, "1e-8", "(0,inf)", "AdamW's eps, added to the denominator"),
    BRIM_PARAM(STR, muon, no_decay, "", NULL,
               "shell patterns of parameters without weight decay: '*.bias norm?.*'; empty: all have it"),
    BRIM_PARAMS_END};

static const char *const scalars[] = {"lr",    "weight_decay", "momentum",  "eps", "adamw_lr",
                                      "beta1", "beta2",        "adamw_eps", "t",   NULL};

static void step(const void *self, const brim_optimizer_step *at, double *scalar)
{
  const muon *p = self;
  const double values[] = {p->lr * at->factor,       p->weight_decay, p->momentum,    p->eps,
                           p->adamw_lr * at->factor, p->adamw_beta1,  p->adamw_beta2, p->adamw_eps,
                           (double)at->step + 1};
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) scalar[i] = values[i];
}

static bool is_adamw(const muon *p, const brim_tensor *parameter)
{
  return parameter->shape.rank < 2 || brim_matches_any(p->adamw, parameter->name);
}

/* A tensor of more dimensions counts as a matrix of its first dimension by all others. */
static int64_t rows_of(const brim_tensor *parameter)
{
  return parameter->shape.dim[0];
}
static int64_t columns_of(const brim_tensor *parameter)
{
  return brim_shape_count(&parameter->shape) / rows_of(parameter);
}

static double adjusted(const muon *p, const brim_tensor *parameter)
{
  const double rows = (double)rows_of(parameter), columns = (double)columns_of(parameter);
  return p->adjust == ORIGINAL ? sqrt(fmax(1, rows / columns)) : 0.2 * sqrt(fmax(rows, columns));
}

static void add_state(brim_update_form *form, const char *name, const brim_tensor *parameter)
{
  form->state[form->state_count++] =
      (brim_optimizer_state){.name = name, .dtype = parameter->dtype, .shape = parameter->shape};
}

static void add_number(brim_update_form *form, const char *name, double number)
{
  form->number_name[form->number_count] = name;
  form->number[form->number_count++] = number;
}

static void form(const void *self, const brim_tensor *parameter, brim_update_form *out)
{
  const muon *p = self;
  add_number(out, "decays", !brim_matches_any(p->no_decay, parameter->name));
  if (is_adamw(p, parameter)) {
    add_state(out, "exp_avg", parameter);
    add_state(out, "exp_avg_sq", parameter);
    out->formula = "exp_avg = beta1 * exp_avg + (1 - beta1) * g\n"
                   "exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * (g * g)\n"
                   "root = sqrt(exp_avg_sq) / sqrt(1 - pow(beta2, t))\n"
                   "rate = adamw_lr / (1 - pow(beta1, t))\n"
                   "p = (1 - adamw_lr * weight_decay * decays) * p - rate * exp_avg / (root + adamw_eps)";
    return;
  }
  add_state(out, "momentum_buffer", parameter);
  add_number(out, "adjusted", adjusted(p, parameter));
  out->is_whole = true;
}

/* Uses the smaller of x x^T and x^T x; the iteration gives the same result with either. */
static void build(const void *self, const brim_tensor *parameter, brim_update *u)
{
  const muon *p = self;
  const int64_t rows = rows_of(parameter), columns = columns_of(parameter), least = rows < columns ? rows : columns;
  const bool is_wide = rows <= columns;
  brim_update_matrix(u, "x", rows, columns);
  brim_update_matrix(u, "y", rows, columns);
  brim_update_matrix(u, "gram", least, least);
  brim_update_matrix(u, "square", least, least);
  brim_update_formula(u, p->nesterov ? "momentum_buffer = momentum_buffer + (1 - momentum) * (g - momentum_buffer)\n"
                                       "x = g + momentum * (momentum_buffer - g)"
                                     : "momentum_buffer = momentum_buffer + (1 - momentum) * (g - momentum_buffer)\n"
                                       "x = momentum_buffer");
  brim_update_squares(u, "norm", "x");
  brim_update_formula(u, "x = x / max(sqrt(norm), eps)");
  for (int64_t i = 0; i < p->steps; i++) {
    brim_update_product(u, "gram", "x", "x", is_wide ? BRIM_PRODUCT_B_TRANSPOSED : BRIM_PRODUCT_A_TRANSPOSED);
    brim_update_product(u, "square", "gram", "gram", BRIM_PRODUCT);
    brim_update_formula(u, "gram = -4.775 * gram + 2.0315 * square");
    brim_update_product(u, "y", is_wide ? "gram" : "x", is_wide ? "x" : "gram", BRIM_PRODUCT);
    brim_update_formula(u, "x = 3.4445 * x + y");
  }
  brim_update_formula(u, "p = (1 - lr * weight_decay * decays) * p - lr * adjusted * x");
}

static const brim_optimizer_ops ops = {
    .size = sizeof ops, .scalars = scalars, .step = step, .form = form, .build = build};
const brim_plugin brim_optimizer_muon = {
    .size = sizeof(brim_plugin),
    .kind = BRIM_OPTIMIZER,
    .id = "muon",
    .help =
        "Muon (Jordan et al., 2024): orthogonalised momentum for matrices, AdamW for the rest; half of adamw's states",
    .params_size = sizeof(muon),
    .params = table,
    .ops = &ops};
