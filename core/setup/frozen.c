/* See frozen.h. Values come one tensor after the other, so the host never has all of them. */
#include "setup/frozen.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/convert.h"
#include "base/text.h"
#include "exec/initialize.h"
#include "setup/setup_weights.h"

typedef struct reader {
  const brim_setup *setup;
  const brim_graph *graph;
  const brim_frozen_sink *sink;
  brim_setup_weights weights;
  size_t next; /* of the weights' parameters */
  uint64_t hash;
} reader;

static void add_hash(reader *r, const brim_parameter *p, uint32_t dtype, const void *values, float *narrow)
{
  const brim_shape *shape = &p->value->shape;
  const size_t count = (size_t)brim_shape_count(shape);
  if (r->hash == 0) r->hash = BRIM_HASH_START;
  if (dtype != BRIM_DTYPE_F32) brim_convert(BRIM_DTYPE_F32, narrow, dtype, values, count);
  r->hash = brim_hash(r->hash, p->value->name, strlen(p->value->name) + 1);
  r->hash = brim_hash(r->hash, shape->dim, (size_t)shape->rank * sizeof shape->dim[0]);
  r->hash = brim_hash(r->hash, dtype != BRIM_DTYPE_F32 ? narrow : values, count * sizeof *narrow);
}

static brim_status read_values(reader *r, const brim_parameter *p, uint32_t dtype, void *values)
{
  const size_t at = r->next;
  const bool listed = r->weights.weights && r->graph->parameter + r->weights.index[at] == p;
  if (listed) r->next++;
  if (listed && brim_weights_source(r->weights.weights, at)) return brim_weights_read(r->weights.weights, at, values);
  brim_first_values(p, (uint64_t)r->setup->settings->seed, dtype, values);
  return BRIM_OK;
}

static brim_status read_one(reader *r, const brim_parameter *p)
{
  const uint32_t dtype = r->graph->real;
  const size_t count = (size_t)brim_shape_count(&p->value->shape);
  void *values = brim_try_malloc(count * brim_dtype_bytes(dtype));
  float *narrow = brim_try_malloc(count * sizeof *narrow);
  brim_status status = BRIM_OK;
  if (!values || !narrow) status = brim_fail(BRIM_ENOMEM_HOST, "no host memory for the values of '%s'", p->value->name);
  if (status == BRIM_OK) status = read_values(r, p, dtype, values);
  if (status == BRIM_OK) add_hash(r, p, dtype, values, narrow);
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
  if (p->value->dtype == dtype) return brim_exec_write(w->exec, w->program, p->value, values);
  void *small = brim_try_malloc(p->value->bytes);
  if (!small) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the values of '%s'", p->value->name);
  brim_convert(p->value->dtype, small, dtype, values, (size_t)brim_shape_count(&p->value->shape));
  const brim_status status = brim_exec_write(w->exec, w->program, p->value, small);
  free(small);
  return status;
}

brim_status brim_frozen_write(const brim_setup *s, brim_exec *exec, const brim_program *program, uint64_t *hash)
{
  writer w = {exec, program};
  return brim_frozen_read(s, program->graph, &(brim_frozen_sink){write_one, &w}, hash);
}
