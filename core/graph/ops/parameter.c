/* Parameters that a model makes itself, for operations that take a parameter. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "graph/graph.h"

#undef brim_parameter_new
#undef brim_set_init

/* Sets the graph's error if the initialisation is not valid. */
static bool is_good_start(brim_graph *g, const char *name, brim_init init)
{
  const bool known = init.kind >= BRIM_INIT_CONSTANT && init.kind <= BRIM_INIT_NORMAL;
  if (known && isfinite(init.value) && (init.kind == BRIM_INIT_CONSTANT || init.value >= 0)) return true;
  brim_graph_fail(g, "parameter", name,
                  "it must start as BRIM_INIT_CONSTANT with a finite value, or as BRIM_INIT_UNIFORM or "
                  "BRIM_INIT_NORMAL with a value of at least 0; got kind %d and value %g",
                  init.kind, init.value);
  return false;
}

brim_tensor *brim_parameter_new(brim_graph *g, const char *name, int32_t rank, const int64_t *dim, brim_init init)
{
  if (!brim_graph_named(g, "parameter", name)) return NULL;
  if (rank < 1 || rank > BRIM_DIMS_MAX) {
    brim_graph_fail(g, "parameter", name, "the number of dimensions must be in [1,%d], got %d", BRIM_DIMS_MAX, rank);
    return NULL;
  }
  if (!brim_graph_needs_list(g, "parameter", name, dim, "dim")) return NULL;
  brim_shape shape = {rank, {0}};
  bool good = true;
  for (int32_t d = 0; d < rank; d++) {
    shape.dim[d] = dim[d];
    good = good && dim[d] >= 1;
  }
  char text[160];
  if (!good) {
    brim_graph_fail(g, "parameter", name, "%s: every dimension must be at least 1",
                    brim_shape_format(text, sizeof text, &shape));
    return NULL;
  }
  if (!is_good_start(g, name, init)) return NULL;
  return brim_graph_parameter(g, name, &shape, init);
}

void brim_set_init(brim_graph *g, const char *name, brim_init init)
{
  if (!brim_graph_named(g, "parameter", name) || !is_good_start(g, name, init)) return;
  brim_parameter *p = brim_graph_named_parameter(g, name);
  if (p)
    p->init = init;
  else
    brim_graph_fail(g, "parameter", name,
                    "there is no parameter of this name yet, so its initial values cannot be set");
}
