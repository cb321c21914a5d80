/* @NAME@: the Cauchy loss, whose slope decreases for large errors:
 *
 *     loss = mean over the outputs of width^2 / 2 * log(1 + ((output - target) / width)^2)
 *
 * brim/loss.h is the interface of losses; brim/model.h has the operations for graphs. */
#include <brim/brim.h>

typedef struct settings { /* brim fills this struct from the table below */
  double width;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(F64, settings, width, "1", "[0.01,100]", "errors well below the width count by their square"),
    BRIM_PARAMS_END,
};

/* Builds one number for each sample. brim derives the gradient and takes the mean over the samples. */
static brim_tensor *build(const void *self, brim_graph *g, brim_tensor *output, brim_tensor *target)
{
  const settings *s = self;
  brim_tensor *each =
      brim_elementwise(g,
                       "e = (o - t) / width\n"
                       "y = width * width / 2 * log1p(e * e)",
                       BRIM_ELEMENTS("o", output), BRIM_ELEMENTS("t", target), BRIM_NUMBER("width", s->width));
  return brim_mean(g, each, 1, (const int32_t[]){-1}, 0);
}

static const brim_loss_ops ops = {
    .size = sizeof ops, .takes = BRIM_TAKES(BRIM_TASK_CLASS) | BRIM_TAKES(BRIM_TASK_VALUES), .build = build};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_LOSS,
                                   .id = "@NAME@",
                                   .ops = &ops,
                                   .help = "the Cauchy loss",
                                   .params_size = sizeof(settings),
                                   .params = table};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("@NAME@", "0.1", plugins)
