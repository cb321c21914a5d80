/* A model outside brim's tree. A build that needs a second model defines ID. */
#include <brim/brim.h>

#ifndef ID
#define ID "outside"
#endif
/* The build may define AFTER as a function of brim that the model applies to its output. */
#ifndef AFTER
#define AFTER(g, x) x
#endif

static brim_status build(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_linear(g, "fc", brim_flatten(g, brim_input(g)), brim_classes(g));
  brim_output(g, AFTER(g, x));
  return BRIM_OK;
}
static const brim_model_ops ops = {sizeof(brim_model_ops), build, BRIM_WRAPS_NOTHING, NULL};
static const brim_plugin model = {
    sizeof(brim_plugin), BRIM_MODEL, ID, "one layer, built outside", 0, NULL, NULL, NULL, &ops};
static const brim_plugin *const plugins[] = {&model, NULL};

BRIM_MODULE("outside", "2.5", plugins)
