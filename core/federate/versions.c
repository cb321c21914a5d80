/* See versions.h. */
#include "federate/versions.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "graph/federate.h"

struct brim_versions {
  int64_t slots, values; /* values: of a version */
  uint64_t bytes;        /* bytes of a version */
  uint32_t dtype;
  int32_t *of_slot; /* [slots] versions; -1: none yet */
  char *data;       /* [slots, bytes] */
};

brim_status brim_versions_open(const brim_setup *setup, const brim_program *serve, brim_versions **out)
{
  *out = NULL;
  if (brim_setup_versions(setup) == 0) return BRIM_OK;
  brim_versions *v = brim_try_calloc(1, sizeof *v);
  if (!v) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for versions of the global model");
  v->slots = brim_setup_versions(setup);
  v->values = brim_graph_sent(serve->graph, false);
  v->dtype = serve->graph->real;
  v->bytes = (uint64_t)v->values * brim_dtype_bytes(v->dtype);
  v->of_slot = brim_try_malloc((size_t)v->slots * sizeof *v->of_slot);
  v->data = brim_try_calloc((size_t)v->slots, v->bytes);
  if (!v->of_slot || !v->data) {
    brim_versions_close(v);
    return brim_fail(BRIM_ENOMEM_HOST, "no host memory for %lld versions of the global model (federate.max_staleness)",
                     (long long)setup->settings->federate.max_staleness);
  }
  for (int64_t i = 0; i < v->slots; i++) v->of_slot[i] = -1;
  *out = v;
  return BRIM_OK;
}

void brim_versions_close(brim_versions *v)
{
  if (!v) return;
  free(v->of_slot);
  free(v->data);
  free(v);
}

static int64_t find(const brim_versions *v, int64_t version)
{
  for (int64_t i = 0; i < v->slots; i++)
    if (v->of_slot[i] == version) return i;
  return -1;
}

brim_status brim_versions_keep(brim_versions *v, brim_exec *exec, const brim_program *serve, int64_t version,
                               brim_version_used_fn is_used, void *context)
{
  const brim_graph *g = serve->graph;
  int64_t slot = find(v, version); /* left by an earlier attempt at the round */
  for (int64_t i = 0; i < v->slots && slot < 0; i++)
    if (v->of_slot[i] < 0 || !is_used(context, v->of_slot[i])) slot = i;
  if (slot < 0) return brim_fail(BRIM_EINTERNAL, "no room for version %lld of the global model", (long long)version);
  char *at = v->data + (uint64_t)slot * v->bytes;
  v->of_slot[slot] = -1; /* invalid until the copy is complete */
  for (size_t i = 0; i < g->parameter_count; i++) {
    if (!brim_parameter_is_controlled(&g->parameter[i])) continue;
    BRIM_TRY(brim_exec_read(exec, serve, g->parameter[i].value, at));
    at += g->parameter[i].value->bytes;
  }
  v->of_slot[slot] = (int32_t)version;
  return BRIM_OK;
}

brim_status brim_versions_load(const brim_versions *v, brim_exec *exec, const brim_program *serve, int64_t version)
{
  const brim_graph *g = serve->graph;
  const int64_t slot = find(v, version);
  if (slot < 0) return brim_fail(BRIM_EINTERNAL, "version %lld of the global model is missing", (long long)version);
  const char *at = v->data + (uint64_t)slot * v->bytes;
  for (size_t i = 0; i < g->parameter_count; i++) {
    if (!brim_parameter_is_controlled(&g->parameter[i])) continue;
    BRIM_TRY(brim_exec_write(exec, serve, g->parameter[i].value, at));
    at += g->parameter[i].value->bytes;
  }
  return BRIM_OK;
}

size_t brim_versions_tensors(brim_versions *v, brim_safetensor *out)
{
  if (!v) return 0;
  if (out) {
    out[0] = (brim_safetensor){
        .name = "versions.rounds", .dtype = BRIM_DTYPE_I32, .shape = {1, {v->slots}}, .data = v->of_slot};
    out[1] = (brim_safetensor){
        .name = "versions.values", .dtype = v->dtype, .shape = {2, {v->slots, v->values}}, .data = v->data};
  }
  return BRIM_VERSION_TENSORS;
}
