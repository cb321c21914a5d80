/* See setup_weights.h. If the arena is host memory, all threads read frozen values directly into it; for other devices
 * one thread reads one tensor at a time, so the host never has all of them in memory. */
#include "setup/setup_weights.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY /* for states on the stack */
#include <xxhash.h>

#include "base/alloc.h"
#include "base/convert.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/text.h"
#include "brim/host.h"
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

#define NONE ((size_t)-1)

typedef struct job {
  const brim_parameter *parameter;
  size_t source; /* its index among the weights' parameters; NONE: the parameter has its first values */
  void *place;   /* address for the values; NULL: they pass through a buffer */
  uint64_t hash;
} job;

typedef struct reader {
  const brim_setup *setup;
  const brim_graph *graph;
  const brim_frozen_sink *sink;
  brim_setup_weights weights;
  job *job;
  size_t count;
  uint64_t *chain; /* the hash of older checkpoints, over all parameters, instead of the jobs' hashes */
  /* The first parameter, by index, that could not be read. */
  pthread_mutex_t lock;
  int64_t failed;
  brim_status status;
  brim_error error;
} reader;

/* Hashes a parameter's name, shape, and values in single precision. */
static void hash_narrow(const reader *r, job *j, const float *values)
{
  const brim_tensor *t = j->parameter->value;
  const struct {
    const void *data;
    size_t bytes;
  } part[] = {{t->name, strlen(t->name) + 1},
              {t->shape.dim, (size_t)t->shape.rank * sizeof t->shape.dim[0]},
              {values, (size_t)brim_shape_count(&t->shape) * sizeof *values}};
  XXH64_state_t x;
  (void)XXH64_reset(&x, 0);
  for (size_t i = 0; i < sizeof part / sizeof part[0]; i++)
    if (r->chain)
      *r->chain = brim_hash(*r->chain, part[i].data, part[i].bytes);
    else
      (void)XXH64_update(&x, part[i].data, part[i].bytes);
  j->hash = XXH64_digest(&x);
}

static brim_status no_room(const job *j)
{
  return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the values of '%s'", j->parameter->value->name);
}

static brim_status read_to(const reader *r, job *j, void *values)
{
  if (j->source == NONE)
    brim_first_values(j->parameter, (uint64_t)r->setup->settings->seed, r->graph->real, values);
  else
    BRIM_TRY(brim_weights_read(r->weights.weights, j->source, values));
  const uint32_t dtype = r->graph->real;
  const size_t count = (size_t)brim_shape_count(&j->parameter->value->shape);
  float *narrow = NULL;
  if (dtype != BRIM_DTYPE_F32) {
    narrow = brim_try_malloc(count * sizeof *narrow);
    if (!narrow) return no_room(j);
    brim_convert(BRIM_DTYPE_F32, narrow, dtype, values, count);
  }
  hash_narrow(r, j, narrow ? narrow : values);
  free(narrow);
  return BRIM_OK;
}

static brim_status read_through_buffer(const reader *r, job *j)
{
  const uint32_t dtype = r->graph->real;
  void *values = brim_try_malloc((size_t)brim_shape_count(&j->parameter->value->shape) * brim_dtype_bytes(dtype));
  if (!values) return no_room(j);
  brim_status status = read_to(r, j, values);
  if (status == BRIM_OK && r->sink) status = r->sink->take(r->sink->context, j->parameter, dtype, values);
  free(values);
  return status;
}

static void do_job(void *context, int64_t i)
{
  reader *r = context;
  job *j = &r->job[i];
  pthread_mutex_lock(&r->lock);
  const bool is_over = r->failed < i;
  pthread_mutex_unlock(&r->lock);
  if (is_over) return;
  const brim_status status = j->place ? read_to(r, j, j->place) : read_through_buffer(r, j);
  if (status == BRIM_OK) return;
  pthread_mutex_lock(&r->lock);
  if (i < r->failed) {
    r->failed = i;
    r->status = status;
    brim_error_take(&r->error);
  }
  pthread_mutex_unlock(&r->lock);
}

/* Lists the frozen parameters. Returns the number of threads that may read them: one, if values pass through a buffer,
 * so that there is one buffer, or if they are drawn, which several threads do already. */
static int32_t list_jobs(reader *r)
{
  const brim_graph *g = r->graph;
  const brim_setup_weights *w = &r->weights;
  bool apart = g->real == BRIM_DTYPE_F32; /* values of other types are narrowed in a buffer */
  size_t next = 0;                        /* index among the weights' parameters */
  for (size_t i = 0; i < g->parameter_count; i++) {
    if (!g->parameter[i].is_frozen) continue;
    job *j = &r->job[r->count++];
    const bool is_listed = w->weights && next < w->count && w->index[next] == i;
    *j = (job){.parameter = &g->parameter[i], .source = NONE};
    if (is_listed && brim_weights_source(w->weights, next)) j->source = next;
    if (is_listed) next++;
    if (r->sink && r->sink->place) j->place = r->sink->place(r->sink->context, j->parameter);
    apart = apart && j->place && j->source != NONE;
  }
  return apart ? brim_host_threads() : 1;
}

static brim_status read_all(reader *r, uint64_t *hash)
{
  *hash = 0;
  r->job = brim_xcalloc(r->graph->parameter_count + 1, sizeof *r->job);
  r->failed = INT64_MAX;
  pthread_mutex_init(&r->lock, NULL);
  const int32_t threads = list_jobs(r);
  brim_in_parallel("brim-weights", threads, (int64_t)r->count, do_job, r);
  if (r->status != BRIM_OK) brim_error_put(&r->error);
  if (r->count > 0) *hash = BRIM_HASH_START;
  for (size_t i = 0; i < r->count; i++) *hash = brim_hash(*hash, &r->job[i].hash, sizeof r->job[i].hash);
  pthread_mutex_destroy(&r->lock);
  free(r->job);
  return r->status;
}

static bool has_frozen(const brim_graph *g)
{
  bool any = false;
  for (size_t i = 0; i < g->parameter_count; i++) any = any || g->parameter[i].is_frozen;
  return any;
}

/* chain: as in `reader`. */
static brim_status read_frozen(const brim_setup *s, const brim_graph *g, const brim_frozen_sink *sink, uint64_t *chain,
                               uint64_t *hash)
{
  reader r = {.setup = s, .graph = g, .sink = sink, .chain = chain};
  *hash = 0;
  if (!has_frozen(g)) return BRIM_OK;
  BRIM_TRY(brim_setup_weights_open(s, g, &r.weights));
  const brim_status status = read_all(&r, hash);
  brim_setup_weights_close(&r.weights);
  return status;
}

brim_status brim_frozen_read(const brim_setup *s, const brim_graph *g, const brim_frozen_sink *sink, uint64_t *hash)
{
  return read_frozen(s, g, sink, NULL, hash);
}

/* The hash that older checkpoints have. */
static brim_status hash_as_before(const brim_setup *s, const brim_graph *g, uint64_t *hash)
{
  brim_graph *features = NULL;
  uint64_t unused;
  *hash = BRIM_HASH_START;
  if (!s->features) return read_frozen(s, g, NULL, hash, &unused);
  brim_graph_options options = brim_setup_graph_options(&s->features->raw, brim_setup_precision(s));
  options.batch = 1;
  options.keep_features = true;
  BRIM_TRY(brim_graph_build(&options, &features));
  const brim_status status = read_frozen(&s->features->raw, features, NULL, hash, &unused);
  brim_graph_free(features);
  return status;
}

brim_status brim_frozen_check(const brim_setup *s, const brim_graph *g, const brim_train_state *state, uint64_t hash,
                              bool *same)
{
  uint64_t before = 0;
  *same = state->frozen_xxh64 == hash;
  if (state->frozen_xxh64 != 0 || state->frozen_hash == 0 || hash == 0) return BRIM_OK;
  BRIM_TRY(hash_as_before(s, g, &before));
  *same = before == state->frozen_hash;
  return BRIM_OK;
}

/* ---- to a device ---- */

typedef struct writer {
  brim_exec *exec;
  const brim_program *program;
} writer;

static void *place_of(void *context, const brim_parameter *p)
{
  const writer *w = context;
  return p->value->dtype == w->program->graph->real ? brim_exec_host_values(w->exec, w->program, p->value) : NULL;
}

static brim_status write_one(void *context, const brim_parameter *p, uint32_t dtype, const void *values)
{
  const writer *w = context;
  return brim_exec_write_as(w->exec, w->program, p->value, dtype, values);
}

brim_status brim_frozen_write(const brim_setup *s, brim_exec *exec, const brim_program *program, uint64_t *hash)
{
  writer w = {exec, program};
  const brim_frozen_sink sink = {.take = write_one, .place = place_of, .context = &w};
  return brim_frozen_read(s, program->graph, &sink, hash);
}
