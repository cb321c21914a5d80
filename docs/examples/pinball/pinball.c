/* The pinball loss (Koenker and Bassett, 1978): a model that is trained with it predicts a quantile of the targets
 * instead of their mean. With e = target - output,
 *
 *     loss = mean over the outputs of max(quantile e, (quantile - 1) e)
 */
#include <brim/brim.h>

typedef struct settings {
  double quantile;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(F64, settings, quantile, "0.9", "(0,1)", "share of the targets below the output"),
    BRIM_PARAMS_END,
};

static brim_tensor *build(const void *self, brim_graph *g, brim_tensor *output, brim_tensor *target)
{
  const settings *s = self;
  brim_tensor *each =
      brim_elementwise(g,
                       "e = t - o\n"
                       "y = max(q * e, (q - 1) * e)",
                       BRIM_ELEMENTS("o", output), BRIM_ELEMENTS("t", target), BRIM_NUMBER("q", s->quantile));
  return brim_mean(g, each, 1, (const int32_t[]){-1}, 0);
}

static const brim_loss_ops ops = {.size = sizeof ops, .takes = BRIM_TAKES(BRIM_TASK_VALUES), .build = build};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_LOSS,
                                   .id = "pinball",
                                   .ops = &ops,
                                   .help = "the pinball loss: outputs are a quantile of the targets",
                                   .params_size = sizeof(settings),
                                   .params = table};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("pinball", "1.0", plugins)
