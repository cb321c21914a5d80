/* See setup_weights.h. Frozen values are read one tensor at a time, so the host never has all of them in memory. */
#include "setup/setup_weights.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/convert.h"
#include "base/text.h"
#include "base/thread.h"
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

/* Values that a thread hashes while the next ones are read, because both take about as long. */
typedef struct hashing {
  pthread_t thread;
  bool runs;
  uint64_t hash;
  void *values, *narrow; /* narrow: the values in single precision, if they have another type; else NULL */
  size_t bytes;
} hashing;

typedef struct reader {
  const brim_setup *setup;
  const brim_graph *graph;
  const brim_frozen_sink *sink;
  brim_setup_weights weights;
  size_t next; /* of the weights' parameters */
  hashing hashing;
  uint64_t bytes_most; /* bytes of the largest parameter; and of those that are in memory at the same time */
} reader;

static void *hash_values(void *context)
{
  hashing *h = context;
  h->hash = brim_hash(h->hash, h->narrow ? h->narrow : h->values, h->bytes);
  return NULL;
}

static void begin_hashing(hashing *h, const brim_parameter *p)
{
  const brim_shape *shape = &p->value->shape;
  if (h->hash == 0) h->hash = BRIM_HASH_START;
  h->hash = brim_hash(h->hash, p->value->name, strlen(p->value->name) + 1);
  h->hash = brim_hash(h->hash, shape->dim, (size_t)shape->rank * sizeof shape->dim[0]);
  h->runs = brim_thread_start(&h->thread, "brim-hash", hash_values, h) == 0;
  if (!h->runs) hash_values(h);
}

/* Waits for the hash and frees the values. */
static void end_hashing(hashing *h)
{
  if (h->runs) pthread_join(h->thread, NULL);
  free(h->values);
  free(h->narrow);
  *h = (hashing){.hash = h->hash};
}

static brim_status read_values(reader *r, const brim_parameter *p, void *values)
{
  const size_t at = r->next;
  const bool is_listed = r->weights.weights && r->graph->parameter + r->weights.index[at] == p;
  if (is_listed) r->next++;
  if (is_listed && brim_weights_source(r->weights.weights, at))
    return brim_weights_read(r->weights.weights, at, values);
  brim_first_values(p, (uint64_t)r->setup->settings->seed, r->graph->real, values);
  return BRIM_OK;
}

/* Passes the values to the thread that hashes them. */
static brim_status read_one(reader *r, const brim_parameter *p)
{
  const uint32_t dtype = r->graph->real;
  const size_t count = (size_t)brim_shape_count(&p->value->shape), bytes = count * sizeof(float);
  if (r->hashing.bytes + bytes > r->bytes_most) end_hashing(&r->hashing);
  void *values = brim_try_malloc(count * brim_dtype_bytes(dtype)), *narrow = NULL;
  if (dtype != BRIM_DTYPE_F32) narrow = brim_try_malloc(bytes);
  brim_status status = BRIM_OK;
  if (!values || (dtype != BRIM_DTYPE_F32 && !narrow))
    status = brim_fail(BRIM_ENOMEM_HOST, "no host memory for the values of '%s'", p->value->name);
  if (status == BRIM_OK) status = read_values(r, p, values);
  if (status == BRIM_OK && narrow) brim_convert(BRIM_DTYPE_F32, narrow, dtype, values, count);
  end_hashing(&r->hashing);
  r->hashing.values = values;
  r->hashing.narrow = narrow;
  r->hashing.bytes = bytes;
  if (status != BRIM_OK) return status;
  begin_hashing(&r->hashing, p);
  return r->sink ? r->sink->take(r->sink->context, p, dtype, values) : BRIM_OK;
}

brim_status brim_frozen_read(const brim_setup *s, const brim_graph *g, const brim_frozen_sink *sink, uint64_t *hash)
{
  reader r = {.setup = s, .graph = g, .sink = sink};
  bool any = false;
  *hash = 0;
  for (size_t i = 0; i < g->parameter_count; i++) {
    const uint64_t bytes = (uint64_t)brim_shape_count(&g->parameter[i].value->shape) * sizeof(float);
    any = any || g->parameter[i].is_frozen;
    if (g->parameter[i].is_frozen && bytes > r.bytes_most) r.bytes_most = bytes;
  }
  if (!any) return BRIM_OK;
  BRIM_TRY(brim_setup_weights_open(s, g, &r.weights));
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < g->parameter_count && status == BRIM_OK; i++)
    if (g->parameter[i].is_frozen) status = read_one(&r, &g->parameter[i]);
  end_hashing(&r.hashing);
  brim_setup_weights_close(&r.weights);
  *hash = r.hashing.hash;
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
