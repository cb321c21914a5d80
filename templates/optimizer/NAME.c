/* @NAME@: an optimizer whose step has the sign of the mean gradient, and is larger the better the recent gradients
 * agree with each other:
 *
 *     m = keep m + (1 - keep) g        v = keep v + (1 - keep) |g|
 *     p = p - lr (m / (v + eps) + weight_decay p)
 *
 * brim/formula.h defines the language of formulas; brim/optimizer.h is the interface of optimizers. */
#include <brim/brim.h>

typedef struct settings { /* brim fills this struct from the table below */
  double lr, weight_decay, keep, eps;
  const char *no_decay;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(F64, settings, lr, "0.001", "[0,inf)", "learning rate, multiplied by the schedule"),
    BRIM_PARAM(F64, settings, weight_decay, "0.01", "[0,inf)", "decoupled weight decay"),
    BRIM_PARAM(F64, settings, keep, "0.95", "[0,1)", "decay of the means"),
    BRIM_PARAM(F64, settings, eps, "1e-8", "(0,inf)", "added to the denominator"),
    BRIM_PARAM(STR, settings, no_decay, "", NULL, "names of parameters without weight decay: '*.bias'"),
    BRIM_PARAMS_END};

/* Names for the formula: the states, which brim keeps for each parameter, 0 at first; the numbers that step() sets. */
static const char *const states[] = {"m", "v", NULL};
static const char *const scalars[] = {"lr", "weight_decay", "keep", "eps", NULL};
static void step(const void *self, const brim_optimizer_step *at, double *scalar)
{
  const settings *s = self;
  scalar[0] = s->lr * at->factor;
  scalar[1] = s->weight_decay;
  scalar[2] = s->keep;
  scalar[3] = s->eps;
}

/* Numbers that differ from parameter to parameter. The formula uses them by name too. */
static void form(const void *self, const brim_tensor *parameter, brim_update_form *out)
{
  const settings *s = self;
  out->number_name[out->number_count] = "decays";
  out->number[out->number_count++] = !brim_matches_any(s->no_decay, parameter->name);
}

static const brim_optimizer_ops ops = {.size = sizeof ops,
                                       .states = states,
                                       .scalars = scalars,
                                       .step = step,
                                       .form = form,
                                       .formula = "m = keep * m + (1 - keep) * g\n"
                                                  "v = keep * v + (1 - keep) * abs(g)\n"
                                                  "p = p - lr * (m / (v + eps) + weight_decay * decays * p)"};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_OPTIMIZER,
                                   .id = "@NAME@",
                                   .ops = &ops,
                                   .help = "larger steps where recent gradients agree",
                                   .params_size = sizeof(settings),
                                   .params = table};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("@NAME@", "0.1", plugins)
