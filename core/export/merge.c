/* See merge.h. Sums are computed in double precision and rounded once. */
#include "export/merge.h"

#include <string.h>

#include "base/alloc.h"
#include "base/convert.h"
#include "base/text.h"
#include "graph/wrap.h"
#include "setup/setup_weights.h"
#include "store/checkpoint.h"

typedef struct merger {
  const brim_graph *graph;
  const brim_parameters *trained;
  brim_arena *arena;
  brim_safetensor *tensor;
  size_t count;
} merger;

static const brim_safetensor *find_tensor(const brim_parameters *p, const char *name)
{
  for (size_t i = 0; i < p->count; i++)
    if (strcmp(p->tensor[i].name, name) == 0) return &p->tensor[i];
  return NULL;
}

/* Finds a tensor in the checkpoint, with the shape that it has in the graph. */
static brim_status find_trained(const brim_parameters *p, const brim_tensor *t, const brim_safetensor **out)
{
  *out = find_tensor(p, t->name);
  if (*out && brim_shape_equal(&(*out)->shape, &t->shape)) return BRIM_OK;
  return brim_fail(
      BRIM_ELOAD,
      "the checkpoint %s '%s' in the shape that the run's configuration gives it; it belongs to another model",
      *out ? "does not have" : "lacks", t->name);
}

/* Computes values [O, F] += scale * up [o, r] down [r, F], beginning at a row. */
static void add_product(const brim_wrap_change *c, const double *up, const double *down, double *values)
{
  const int64_t rows = c->up->shape.dim[0], rank = c->down->shape.dim[0], columns = c->down->shape.dim[1];
  for (int64_t o = 0; o < rows; o++)
    for (int64_t k = 0; k < rank; k++) {
      const double factor = c->scale * up[o * rank + k];
      for (int64_t f = 0; f < columns; f++) values[(c->first_row + o) * columns + f] += factor * down[k * columns + f];
    }
}

static brim_status widen(const merger *m, const brim_tensor *t, brim_arena *scratch, double **out)
{
  const brim_safetensor *from;
  const size_t count = (size_t)brim_shape_count(&t->shape);
  BRIM_TRY(find_trained(m->trained, t, &from));
  *out = brim_arena_try(scratch, count * sizeof **out);
  if (!*out) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for '%s'", t->name);
  brim_convert(BRIM_DTYPE_F64, *out, from->dtype, from->data, count);
  return BRIM_OK;
}

static brim_status add_changes(const merger *m, const brim_tensor *weight, brim_arena *scratch, double *values)
{
  size_t count;
  const brim_wrap_change *change = brim_wrap_changes(m->graph, &count);
  for (size_t i = 0; i < count; i++) {
    double *up, *down;
    if (change[i].weight != weight) continue;
    BRIM_TRY(widen(m, change[i].up, scratch, &up));
    BRIM_TRY(widen(m, change[i].down, scratch, &down));
    add_product(&change[i], up, down, values);
  }
  return BRIM_OK;
}

static brim_status put_tensor(merger *m, const char *name, const brim_shape *shape, uint32_t dtype, const void *values)
{
  const size_t count = (size_t)brim_shape_count(shape);
  float *copy = brim_arena_try(m->arena, count * sizeof *copy);
  if (!copy) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for '%s'", name);
  brim_convert(BRIM_DTYPE_F32, copy, dtype, values, count);
  m->tensor[m->count++] = (brim_safetensor){
      .name = brim_arena_string(m->arena, name), .dtype = BRIM_DTYPE_F32, .shape = *shape, .data = copy};
  return BRIM_OK;
}

static brim_status take_frozen(void *context, const brim_parameter *p, uint32_t dtype, const void *values)
{
  merger *m = context;
  brim_arena scratch = {0};
  const size_t count = (size_t)brim_shape_count(&p->value->shape);
  double *wide = brim_arena_try(&scratch, count * sizeof *wide);
  brim_status status = wide ? BRIM_OK : brim_fail(BRIM_ENOMEM_HOST, "no host memory for '%s'", p->value->name);
  if (status == BRIM_OK) {
    brim_convert(BRIM_DTYPE_F64, wide, dtype, values, count);
    status = add_changes(m, p->value, &scratch, wide);
  }
  if (status == BRIM_OK) status = put_tensor(m, p->value->name, &p->value->shape, BRIM_DTYPE_F64, wide);
  brim_arena_release(&scratch);
  return status;
}

static bool is_of_change(const brim_graph *g, const brim_tensor *t)
{
  size_t count;
  const brim_wrap_change *change = brim_wrap_changes(g, &count);
  for (size_t i = 0; i < count; i++)
    if (change[i].up == t || change[i].down == t) return true;
  return false;
}

/* Adds the trained head, under the name of the backbone's head. */
static brim_status add_head(merger *m)
{
  const brim_graph *g = m->graph;
  const char *head = brim_wrap_head(g);
  for (size_t i = 0; i < g->parameter_count; i++) {
    const brim_tensor *t = g->parameter[i].value;
    const brim_safetensor *from;
    if (g->parameter[i].is_frozen || is_of_change(g, t)) continue;
    BRIM_TRY(find_trained(m->trained, t, &from));
    const bool renamed = head && strncmp(t->name, "head.", 5) == 0;
    const char *name = renamed ? brim_arena_printf(m->arena, "%s%s", head, t->name + 4) : t->name;
    BRIM_TRY(put_tensor(m, name, &t->shape, from->dtype, from->data));
  }
  return BRIM_OK;
}

static brim_status check_weights(const brim_setup *s, const brim_graph *g, const char *checkpoint, uint64_t hash)
{
  brim_train_state state;
  bool same;
  BRIM_TRY(brim_checkpoint_read_state(checkpoint, &state));
  BRIM_TRY(brim_frozen_check(s, g, &state, hash, &same));
  if (same) return BRIM_OK;
  return brim_fail(BRIM_ELOAD,
                   "checkpoint '%s' was trained on a backbone with other weights than its run's model.weights and seed "
                   "give now\nset the path of the run's weights: model.weights=PATH",
                   checkpoint);
}

brim_status brim_merge_graph(const brim_setup *s, brim_graph **out)
{
  brim_graph_options options = brim_setup_graph_options(s, brim_setup_precision(s));
  options.batch = 1;
  if (brim_config_backbone(s->config)) return brim_graph_build(&options, out);
  return brim_fail(BRIM_ECONFIG, "model=%s does not wrap another model: the checkpoint already holds the whole model",
                   brim_config_choice_of(s->config, "model")->plugin->id);
}

brim_status brim_merge(const brim_setup *s, const char *checkpoint, const brim_parameters *trained, brim_arena *arena,
                       brim_parameters *out)
{
  brim_graph *g = NULL;
  uint64_t hash;
  BRIM_TRY(brim_merge_graph(s, &g));
  merger m = {g, trained, arena, BRIM_ARENA_NEW(arena, brim_safetensor, g->parameter_count + 1), 0};
  brim_status status = brim_frozen_read(s, g, &(brim_frozen_sink){.take = take_frozen, .context = &m}, &hash);
  if (status == BRIM_OK) status = check_weights(s, g, checkpoint, hash);
  if (status == BRIM_OK) status = add_head(&m);
  brim_graph_free(g);
  *out = (brim_parameters){.tensor = m.tensor, .count = m.count};
  return status;
}
