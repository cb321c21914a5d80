/* See setup_weights.h. Frozen values are read one tensor at a time, so the host never holds all of them. */
#include "setup/setup_weights.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/convert.h"
#include "base/text.h"
#include "exec/initialize.h"
#include "setup/features.h"

/* A frozen parameter is read in its full type even if it is stored in a smaller one. The copy outlives the graph. */
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
  const brim_model_settings *m = &s->settings->model;
  const bool wrapped = brim_config_backbone(s->config) != NULL;
  *out = (brim_setup_weights){0};
  if (!m->weights[0]) return BRIM_OK;
  if (s->features) {
    *out = s->features->frozen;
    out->is_borrowed = true;
    return BRIM_OK;
  }
  const brim_weights_request request = {.path = m->weights,
                                        .map = m->weights_map,
                                        .except = m->weights_except,
                                        .search = {s->config->request.search, s->config->request.search_count},
                                        .of_part = wrapped};
  out->parameter = brim_xcalloc(g->parameter_count + 1, sizeof *out->parameter);
  out->index = brim_xcalloc(g->parameter_count + 1, sizeof *out->index);
  for (size_t i = 0; i < g->parameter_count; i++) {
    if (wrapped != g->parameter[i].is_frozen) continue;
    out->parameter[out->count] = wrapped ? wide_copy(out, g, g->parameter[i].value) : g->parameter[i].value;
    out->index[out->count++] = i;
  }
  const brim_status status = brim_weights_open(&request, out->parameter, out->count, &out->weights);
  if (status != BRIM_OK && access(m->weights, F_OK) != 0)
    brim_fail_add(
        status,
        "this file is the configuration's model.weights%s; if it was moved, set model.weights=PATH to its new place",
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

/* ---- frozen parameters ---- */

typedef struct reader {
  const brim_setup *setup;
  const brim_graph *graph;
  const brim_frozen_sink *sink;
  brim_setup_weights weights;
  size_t next; /* of the weights' parameters */
  uint64_t hash;
} reader;

static brim_status read_one(reader *r, const brim_parameter *p)
{
  const uint32_t dtype = r->graph->real;
  const brim_shape *shape = &p->value->shape;
  const size_t count = (size_t)brim_shape_count(shape), at = r->next;
  const bool is_listed = r->weights.weights && r->graph->parameter + r->weights.index[at] == p;
  void *values = brim_try_malloc(count * brim_dtype_bytes(dtype));
  float *narrow = brim_try_malloc(count * sizeof *narrow);
  brim_status status = BRIM_OK;
  if (!values || !narrow) status = brim_fail(BRIM_ENOMEM_HOST, "no host memory for the values of '%s'", p->value->name);
  if (is_listed) r->next++;
  if (status == BRIM_OK && is_listed && brim_weights_source(r->weights.weights, at))
    status = brim_weights_read(r->weights.weights, at, values);
  else if (status == BRIM_OK)
    brim_first_values(p, (uint64_t)r->setup->settings->seed, dtype, values);
  if (status == BRIM_OK) {
    if (r->hash == 0) r->hash = BRIM_HASH_START;
    if (dtype != BRIM_DTYPE_F32) brim_convert(BRIM_DTYPE_F32, narrow, dtype, values, count);
    r->hash = brim_hash(r->hash, p->value->name, strlen(p->value->name) + 1);
    r->hash = brim_hash(r->hash, shape->dim, (size_t)shape->rank * sizeof shape->dim[0]);
    r->hash = brim_hash(r->hash, dtype != BRIM_DTYPE_F32 ? narrow : values, count * sizeof *narrow);
  }
  if (status == BRIM_OK && r->sink) status = r->sink->take(r->sink->context, p, dtype, values);
  free(values);
  free(narrow);
  return status;
}

brim_status brim_frozen_read(const brim_setup *s, const brim_graph *g, const brim_frozen_sink *sink, uint64_t *hash)
{
  reader r = {.setup = s, .graph = g, .sink = sink};
  bool any = false;
  *hash = 0;
  for (size_t i = 0; i < g->parameter_count; i++) any = any || g->parameter[i].is_frozen;
  if (!any) return BRIM_OK;
  BRIM_TRY(brim_setup_weights_open(s, g, &r.weights));
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < g->parameter_count && status == BRIM_OK; i++)
    if (g->parameter[i].is_frozen) status = read_one(&r, &g->parameter[i]);
  brim_setup_weights_close(&r.weights);
  *hash = r.hash;
  return status;
}

/* ---- to a device ---- */

typedef struct writer {
  brim_exec *exec;
  const brim_program *program;
} writer;

static brim_status write_one(void *context, const brim_parameter *p, uint32_t dtype, const void *values)
{
  const writer *w = context;
  return brim_exec_write_as(w->exec, w->program, p->value, dtype, values);
}

brim_status brim_frozen_write(const brim_setup *s, brim_exec *exec, const brim_program *program, uint64_t *hash)
{
  writer w = {exec, program};
  return brim_frozen_read(s, program->graph, &(brim_frozen_sink){write_one, &w}, hash);
}
