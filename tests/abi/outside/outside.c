/* A model outside brim's tree. ID is defined where a second one is wanted. */
#include <brim/brim.h>

#ifndef ID
#define ID "outside"
#endif

static brim_status build(const void *self, brim_graph *g)
{
  (void)self;
  brim_output(g, brim_linear(g, "fc", brim_flatten(g, brim_input(g)), brim_classes(g)));
  return BRIM_OK;
}
static const brim_model_ops ops = {sizeof(brim_model_ops), build};
static const brim_plugin model = {
    sizeof(brim_plugin), BRIM_MODEL, ID, "one layer, built outside", 0, NULL, NULL, NULL, &ops};
static const brim_plugin *const plugins[] = {&model, NULL};

BRIM_MODULE("outside", "2.5", plugins)
