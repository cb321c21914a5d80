/* See setup_weights.h. */
#include "setup/setup_weights.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "setup/features.h"

static brim_weights_request request_of(const brim_setup *s)
{
  const brim_model_settings *m = &s->settings->model;
  return (brim_weights_request){.path = m->weights,
                                .map = m->weights_map,
                                .except = m->weights_except,
                                .search = {s->config->request.search, s->config->request.search_count}};
}

/* A frozen parameter is read as it would be if it were not kept in a smaller type. It outlives the graph. */
static const brim_tensor *wide_copy(brim_setup_weights *w, const brim_graph *g, const brim_tensor *t)
{
  brim_tensor *copy = BRIM_ARENA_NEW(&w->arena, brim_tensor, 1);
  *copy = *t;
  copy->name = brim_arena_string(&w->arena, t->name);
  copy->dtype = g->real;
  copy->bytes = (uint64_t)brim_shape_count(&t->shape) * brim_dtype_bytes(g->real);
  return copy;
}

brim_status brim_setup_weights_open(const brim_setup *s, const brim_graph *g, brim_setup_weights *out)
{
  *out = (brim_setup_weights){0};
  if (!s->settings->model.weights[0]) return BRIM_OK;
  if (s->features) {
    *out = *brim_features_frozen(s->features);
    out->is_borrowed = true;
    return BRIM_OK;
  }
  brim_weights_request request = request_of(s);
  request.of_part = brim_config_backbone(s->config) != NULL;
  out->parameter = brim_xcalloc(g->parameter_count + 1, sizeof *out->parameter);
  out->index = brim_xcalloc(g->parameter_count + 1, sizeof *out->index);
  const bool wrapped = brim_config_backbone(s->config) != NULL;
  for (size_t i = 0; i < g->parameter_count; i++) {
    if (wrapped != g->parameter[i].is_frozen) continue;
    out->parameter[out->count] = wrapped ? wide_copy(out, g, g->parameter[i].value) : g->parameter[i].value;
    out->index[out->count++] = i;
  }
  const brim_status status = brim_weights_open(&request, out->parameter, out->count, &out->weights);
  if (status != BRIM_OK && access(request.path, F_OK) != 0)
    brim_fail_add(status,
                  "it is this configuration's model.weights%s; if it was moved, say where it is now: "
                  "model.weights=PATH",
                  wrapped ? ", the backbone's frozen weights" : "");
  if (status != BRIM_OK) brim_setup_weights_close(out);
  return status;
}

void brim_setup_weights_close(brim_setup_weights *w)
{
  if (!w->is_borrowed) {
    brim_weights_close(w->weights);
    free(w->parameter);
    free(w->index);
    brim_arena_release(&w->arena);
  }
  *w = (brim_setup_weights){0};
}
