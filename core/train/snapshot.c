#include "train/snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/alloc.h"
#include "graph/update.h"

#define ALIGNMENT 64u

/* State of listing a plan's tensors. */
typedef struct listing {
  brim_snapshot *snapshot;
  const brim_plan *plan;
  const brim_graph *update; /* may be NULL */
  brim_safetensor *state;   /* the optimizer's */
  size_t count, next;       /* number of those; index of the first state of the graph that is not listed yet */
} listing;

static brim_safetensor describe(brim_snapshot *s, const brim_tensor *t, const char *name)
{
  return (brim_safetensor){brim_arena_string(&s->arena, name), t->dtype, t->shape, NULL};
}

static void add_optimizer_tensor(listing *l, const brim_tensor *t, brim_safetensor described)
{
  l->snapshot->optimizer[l->count] = t;
  l->state[l->count++] = described;
}

/* Adds the states of a parameter: all of them (a rank may have slices) or none. */
static void add_states(listing *l, size_t parameter)
{
  brim_snapshot *s = l->snapshot;
  const brim_parameter *p = &l->update->parameter[parameter];
  if (!brim_parameter_is_trained(p)) return;
  const brim_update_form form = brim_update_form_of(&l->plan->request.update, p->value);
  for (uint32_t k = 0; k < form.state_count; k++) {
    const bool own = l->next < l->update->state_count && l->update->state[l->next].parameter == parameter;
    const brim_state *state = own ? &l->update->state[l->next++] : NULL;
    brim_safetensor described = {.name = brim_update_state_name(&s->arena, p->value, &form, k),
                                 .dtype = form.state[k].dtype,
                                 .shape = form.state[k].shape,
                                 .is_slice = l->plan->shards != NULL};
    if (described.is_slice && state) {
      described.first = (uint64_t)state->first;
      described.count = (uint64_t)brim_shape_count(&state->tensor->shape);
    }
    add_optimizer_tensor(l, state ? state->tensor : NULL, described);
  }
}

/* Lists the tensors, without values. */
static void list(brim_snapshot *s, const brim_plan *plan)
{
  s->update_program = brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0);
  const brim_graph *g = plan->program[0].graph, *update = s->update_program ? s->update_program->graph : NULL;
  const bool averages = update && update->first_average < update->node_count;
  const size_t count = g->parameter_count, room = update ? count * (BRIM_OPTIMIZER_STATES_MAX + 1) : 0;
  brim_safetensor *model = BRIM_ARENA_NEW(&s->arena, brim_safetensor, count);
  listing l = {s, plan, update, BRIM_ARENA_NEW(&s->arena, brim_safetensor, room), 0, 0};
  s->model_program = averages ? s->update_program : &plan->program[0];
  s->model = BRIM_ARENA_NEW(&s->arena, const brim_tensor *, count);
  s->optimizer = BRIM_ARENA_NEW(&s->arena, const brim_tensor *, room);
  size_t models = 0;
  for (size_t i = 0; i < count; i++) {
    const char *name = g->parameter[i].value->name;
    if (g->parameter[i].is_frozen) continue;
    s->model[models] = averages ? update->node[update->first_average + models]->out[0] : g->parameter[i].value;
    model[models] = describe(s, s->model[models], name);
    models++;
    if (update) add_states(&l, i);
    if (!averages) continue;
    const brim_tensor *raw = update->parameter[i].value;
    add_optimizer_tensor(&l, raw, describe(s, raw, brim_arena_printf(&s->arena, "%s.raw", name)));
  }
  s->tensors = (brim_checkpoint_tensors){model, l.state, models, l.count};
}

/* The bytes of the k-th of all tensors, the model's first, that this rank has. */
static uint64_t bytes_at(const brim_snapshot *s, size_t k)
{
  const size_t models = s->tensors.model_count;
  const brim_tensor *t = k < models ? s->model[k] : s->optimizer[k - models];
  return t ? t->bytes : 0;
}
static brim_safetensor *item_at(const brim_checkpoint_tensors *t, size_t k)
{
  return (brim_safetensor *)(k < t->model_count ? &t->model[k] : &t->optimizer[k - t->model_count]);
}
static size_t count_of(const brim_checkpoint_tensors *t)
{
  return t->model_count + t->optimizer_count;
}

brim_status brim_snapshot_make(const brim_plan *plan, brim_snapshot *s)
{
  uint64_t bytes = 0, at = 0;
  *s = (brim_snapshot){.arena = {0}};
  list(s, plan);
  for (size_t k = 0; k < count_of(&s->tensors); k++) bytes += brim_round_up(bytes_at(s, k), ALIGNMENT);
  s->values = brim_try_aligned(ALIGNMENT, bytes > 0 ? bytes : ALIGNMENT);
  if (!s->values) {
    brim_snapshot_release(s);
    return brim_fail(BRIM_ENOMEM_HOST, "no host memory for a copy of the parameters (%llu bytes)",
                     (unsigned long long)bytes);
  }
  for (size_t k = 0; k < count_of(&s->tensors); k++) {
    item_at(&s->tensors, k)->data = (char *)s->values + at;
    at += brim_round_up(bytes_at(s, k), ALIGNMENT);
  }
  return BRIM_OK;
}

brim_status brim_snapshot_bind(brim_snapshot *s, const brim_plan *plan)
{
  const brim_checkpoint_tensors old = s->tensors;
  list(s, plan);
  bool same = old.model_count == s->tensors.model_count && old.optimizer_count == s->tensors.optimizer_count;
  for (size_t k = 0; same && k < count_of(&old); k++) {
    const brim_safetensor *was = item_at(&old, k);
    brim_safetensor *is = item_at(&s->tensors, k);
    same = strcmp(was->name, is->name) == 0 && was->dtype == is->dtype && brim_shape_equal(&was->shape, &is->shape) &&
           was->first == is->first && was->count == is->count;
    is->data = was->data;
  }
  if (same) return BRIM_OK;
  s->tensors = old;
  return brim_fail(BRIM_EINTERNAL, "another plan of the same training has different tensors");
}

void brim_snapshot_release(brim_snapshot *s)
{
  free(s->values);
  s->values = NULL;
  brim_arena_release(&s->arena);
}

/* Copies between device and snapshot. */
static brim_status transfer(const brim_snapshot *s, brim_exec *exec, bool to_device)
{
  const struct {
    const brim_program *program;
    const brim_tensor *const *tensor;
    const brim_safetensor *host;
    size_t count;
  } sides[] = {{s->model_program, s->model, s->tensors.model, s->tensors.model_count},
               {s->update_program, s->optimizer, s->tensors.optimizer, s->tensors.optimizer_count}};
  for (int k = 0; k < 2; k++)
    for (size_t i = 0; i < sides[k].count; i++) {
      void *host = (void *)sides[k].host[i].data;
      if (!sides[k].tensor[i]) continue; /* of another rank */
      BRIM_TRY(to_device ? brim_exec_write(exec, sides[k].program, sides[k].tensor[i], host)
                         : brim_exec_read(exec, sides[k].program, sides[k].tensor[i], host));
    }
  return BRIM_OK;
}

brim_status brim_snapshot_read(brim_snapshot *s, brim_exec *exec)
{
  return transfer(s, exec, false);
}

brim_status brim_snapshot_write(const brim_snapshot *s, brim_exec *exec)
{
  return transfer(s, exec, true);
}
