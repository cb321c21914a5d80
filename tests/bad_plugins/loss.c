/* A loss that misbehaves as $BRIM_BAD says, "build:WHAT". Without the variable, it is the sum of squared errors. */
#include "bad.h"

typedef struct settings {
  double factor;
} settings;

static const brim_param table[] = {BRIM_PARAM(F64, settings, factor, "1", "[0.5,2]", "of all of it"), BRIM_PARAMS_END};
static const int32_t last[] = {-1};

static brim_tensor *build(const void *self, brim_graph *g, brim_tensor *output, brim_tensor *target)
{
  const char *formula = "e = o - t; y = factor * e * e";
  if (bad_is("build", "segv")) *bad_pointer = 1;
  if (bad_is("build", "none")) return NULL;
  if (bad_is("build", "elements")) return output;
  if (bad_is("build", "target")) return brim_sum(g, target, 1, last, 0);
  if (bad_is("build", "parameter")) output = brim_linear(g, "own", output, brim_classes(g));
  if (bad_is("build", "name")) formula = "y = o * unknown";
  if (bad_is("build", "step")) formula = "y = factor * sign(o - t)";
  if (bad_is("build", "nan")) formula = "y = factor * log(o - t)";
  if (bad_is("build", "count") && brim_shape_of(output).dim[0] > 1) output = brim_scale(g, output, 2);
  if (bad_is("build", "shapes")) output = brim_sum(g, output, 1, last, 1);
  brim_tensor *each = brim_elementwise(g, formula, BRIM_ELEMENTS("o", output), BRIM_ELEMENTS("t", target),
                                       BRIM_NUMBER("factor", ((const settings *)self)->factor));
  return brim_sum(g, each, 1, last, 0);
}

static brim_loss_ops ops = {.size = sizeof ops,
                            .takes = BRIM_TAKES(BRIM_TASK_CLASS) | BRIM_TAKES(BRIM_TASK_TOKENS) |
                                     BRIM_TAKES(BRIM_TASK_VALUES),
                            .build = build};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_LOSS,
                                   .id = "bad",
                                   .help = "squared errors",
                                   .ops = &ops,
                                   .params_size = sizeof(settings),
                                   .params = table};

__attribute__((constructor)) static void spoil(void)
{
  if (bad_is("table", "build")) ops.build = NULL;
  if (bad_is("table", "takes")) ops.takes = 0;
  if (bad_is("table", "kernel")) ops.kernel = (const void *)&ops;
}

static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("bad-loss", "0.1", plugins)
