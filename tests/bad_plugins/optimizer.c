/* An optimizer that misbehaves as $BRIM_BAD says: "step" affects the values for a step, "form" the form of an update,
 * "table" the table at load time. Without the variable, it is stochastic gradient descent with momentum and weight
 * decay, except for vectors. */
#include <math.h>

#include "bad.h"

typedef struct settings {
  double lr, keep, decay;
} settings;

static const brim_param table[] = {BRIM_PARAM(F64, settings, lr, "0.05", "[0,1]", "learning rate"),
                                   BRIM_PARAM(F64, settings, keep, "0.9", "[0,1)", "share of momentum that is kept"),
                                   BRIM_PARAM(F64, settings, decay, "0.01", "[0,1]", "of matrices' values"),
                                   BRIM_PARAMS_END};

static void step(const void *self, const brim_optimizer_step *at, double *scalar)
{
  static int calls;
  const settings *s = self;
  scalar[0] = s->lr * at->factor;
  scalar[1] = s->keep;
  scalar[2] = s->decay;
  if (bad_is("step", "nan") && at->step >= 2) scalar[1] = NAN;
  if (bad_is("step", "segv")) *bad_pointer = 1;
  if (bad_is("step", "impure")) scalar[0] += 1e-9 * ++calls;
}

static void form(const void *self, const brim_tensor *parameter, brim_update_form *out)
{
  (void)self;
  out->number_name[out->number_count] = bad_is("form", "name") ? "other" : "decays";
  out->number[out->number_count++] = parameter->shape.rank > 1;
  if (bad_is("form", "shape")) out->state[0].shape = (brim_shape){1, {1}};
  if (bad_is("form", "dtype")) out->state[0].dtype = BRIM_DTYPE_U8;
  if (bad_is("form", "block")) out->state[0].block = 256;
  if (bad_is("form", "states")) out->state_count = 5;
  if (bad_is("form", "unnamed")) out->state[out->state_count++].name = NULL;
  if (bad_is("form", "none")) out->formula = NULL;
  if (bad_is("form", "op")) out->op = "adamw", out->formula = NULL;
}

static const char *const states[] = {"momentum", NULL}, *const scalars[] = {"lr", "keep", "decay", NULL};
static brim_optimizer_ops ops = {.size = sizeof ops,
                                 .states = states,
                                 .scalars = scalars,
                                 .step = step,
                                 .form = form,
                                 .formula = "momentum = keep * momentum + g\n"
                                            "p = (1 - lr * decay * decays) * p - lr * momentum"};
static brim_status create(const void *params, void **self)
{
  (void)params, (void)self;
  return BRIM_OK;
}

static brim_plugin plugin = {.size = sizeof plugin,
                             .kind = BRIM_OPTIMIZER,
                             .id = "bad",
                             .help = "stochastic gradient descent",
                             .params_size = sizeof(settings),
                             .params = table,
                             .ops = &ops};

/* Spoils the table when the file is loaded. */
__attribute__((constructor)) static void spoil(void)
{
  static const char *const many[] = {"a", "b", "c", "d", "e", NULL};
  if (bad_names("table")) ops.form = NULL; /* without form(), brim reads the formula when it loads the file */
  if (bad_is("table", "unknown")) ops.formula = "momentum = keep * momentum + g\np = p - rate * momentum";
  if (bad_is("table", "unset")) ops.formula = "p = p - lr * g * keep * decay";
  if (bad_is("table", "none")) ops.formula = NULL;
  if (bad_is("table", "step")) ops.step = NULL;
  if (bad_is("table", "states")) ops.states = many;
  if (bad_is("table", "kernel")) ops.kernel = (const struct brim_optimizer_kernel *)states;
  if (bad_is("table", "evaluated")) ops.formula = "momentum = keep * momentum + g\np = p - lr * decay * momentum";
  if (bad_is("table", "evaluated") || bad_is("form", "evaluated")) ops.evaluated = "evaluated = p - lr * g";
  if (bad_is("table", "create")) plugin.create = create;
}

static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("bad-optimizer", "0.1", plugins)
