#include "train/snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define ALIGNMENT 64u

static brim_safetensor describe(brim_snapshot *s, const brim_tensor *t, const char *name)
{
  return (brim_safetensor){brim_arena_string(&s->arena, name), t->dtype, t->shape, NULL};
}

/* Adds the states of a parameter; `next`: the first that may be its. Returns the one behind them. */
static size_t add_states(brim_snapshot *s, size_t parameter, size_t next, brim_safetensor *to, size_t *count)
{
  const brim_graph *update = s->update_program->graph;
  for (; next < update->state_count && update->state[next].parameter == parameter; next++) {
    const brim_tensor *t = update->state[next].tensor;
    s->optimizer[*count] = t;
    to[(*count)++] = describe(s, t, t->name);
  }
  return next;
}

/* All but the values. */
static void list(brim_snapshot *s, const brim_plan *plan)
{
  s->update_program = brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0);
  const brim_graph *g = plan->program[0].graph, *update = s->update_program ? s->update_program->graph : NULL;
  const bool averages = update && update->first_average < update->node_count;
  const size_t count = g->parameter_count, room = (update ? update->state_count : 0) + (averages ? count : 0);
  brim_safetensor *model = BRIM_ARENA_NEW(&s->arena, brim_safetensor, count);
  brim_safetensor *state = BRIM_ARENA_NEW(&s->arena, brim_safetensor, room);
  size_t optimizer_count = 0, next = 0;
  s->model_program = averages ? s->update_program : &plan->program[0];
  s->model = BRIM_ARENA_NEW(&s->arena, const brim_tensor *, count);
  s->optimizer = BRIM_ARENA_NEW(&s->arena, const brim_tensor *, room);
  for (size_t i = 0; i < count; i++) {
    const char *name = g->parameter[i].value->name;
    s->model[i] = averages ? update->node[update->first_average + i]->out[0] : g->parameter[i].value;
    model[i] = describe(s, s->model[i], name);
    if (update) next = add_states(s, i, next, state, &optimizer_count);
    if (!averages) continue;
    s->optimizer[optimizer_count] = update->parameter[i].value;
    state[optimizer_count++] = describe(s, update->parameter[i].value, brim_arena_printf(&s->arena, "%s.raw", name));
  }
  s->tensors = (brim_checkpoint_tensors){model, state, count, optimizer_count};
}

/* Of the k-th of all tensors, the model's first. */
static const brim_tensor *tensor_at(const brim_snapshot *s, size_t k)
{
  return k < s->tensors.model_count ? s->model[k] : s->optimizer[k - s->tensors.model_count];
}
static brim_safetensor *item_at(const brim_checkpoint_tensors *t, size_t k)
{
  return (brim_safetensor *)(k < t->model_count ? &t->model[k] : &t->optimizer[k - t->model_count]);
}
static size_t count_of(const brim_checkpoint_tensors *t)
{
  return t->model_count + t->optimizer_count;
}

static uint64_t rounded(uint64_t bytes)
{
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

brim_status brim_snapshot_make(const brim_plan *plan, brim_snapshot *s)
{
  uint64_t bytes = 0, at = 0;
  *s = (brim_snapshot){.arena = {0}};
  list(s, plan);
  for (size_t k = 0; k < count_of(&s->tensors); k++) bytes += rounded(tensor_at(s, k)->bytes);
  s->values = brim_try_aligned(ALIGNMENT, bytes > 0 ? bytes : ALIGNMENT);
  if (!s->values) {
    brim_snapshot_release(s);
    return brim_fail(BRIM_ENOMEM_HOST, "no %llu bytes of host memory for a copy of the parameters",
                     (unsigned long long)bytes);
  }
  for (size_t k = 0; k < count_of(&s->tensors); k++) {
    item_at(&s->tensors, k)->data = (char *)s->values + at;
    at += rounded(tensor_at(s, k)->bytes);
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
    same = strcmp(was->name, is->name) == 0 && was->dtype == is->dtype && brim_shape_equal(&was->shape, &is->shape);
    is->data = was->data;
  }
  if (same) return BRIM_OK;
  s->tensors = old;
  return brim_fail(BRIM_EINTERNAL, "another plan of the same training keeps other tensors");
}

void brim_snapshot_release(brim_snapshot *s)
{
  free(s->values);
  s->values = NULL;
  brim_arena_release(&s->arena);
}

/* Moves between device and snapshot. */
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
