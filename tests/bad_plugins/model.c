/* A model of one linear layer that misbehaves as $BRIM_BAD says (see bad.h). */
#include "bad.h"

static brim_status build(const void *self, brim_graph *g)
{
  static int calls;
  (void)self;
  BRIM_TRY(bad_in("build", 0));
  brim_tensor *x = brim_flatten(g, brim_input(g));
  if (bad_is("build", "moves") && calls++ % 2) x = brim_relu(g, x);
  if (bad_is("build", "mute")) return BRIM_OK;
  if (bad_is("build", "odd")) x = brim_linear(g, "odd", x, -brim_shape_of(brim_input(g)).dim[1]);
  brim_output(g, brim_linear(g, "fc", x, brim_classes(g)));
  return BRIM_OK;
}

static const brim_model_ops ops = {.size = sizeof ops, .build = build};
static const brim_plugin plugin = {
    .size = sizeof plugin, .kind = BRIM_MODEL, .id = "bad", .help = "behaves as badly as a test says", .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("bad-model", "1.0", plugins)
