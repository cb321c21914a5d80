/* linear_probe: one linear layer on the features of a frozen model. The group `backbone` selects that model. The
 * features of a sample never change, so brim computes them once and trains on them. */
#include "brim/model.h"
#include "brim/plugin.h"

static brim_status build(const void *self, brim_graph *g)
{
  (void)self;
  brim_output(g, brim_linear(g, "head", brim_backbone(g), brim_classes(g)));
  return BRIM_OK;
}

static const brim_model_ops ops = {.size = sizeof ops, .build = build, .wraps = BRIM_WRAPS_FEATURES};
static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_MODEL,
    .id = "linear_probe",
    .help = "a linear layer on a frozen backbone, whose features are computed once",
    .ops = &ops,
};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-linear-probe", "0.1", plugins)
