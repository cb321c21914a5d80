#include "train/snapshot.h"

static brim_safetensor describe(brim_snapshot *s, const brim_tensor *t, const char *name)
{
  return (brim_safetensor){brim_arena_string(&s->arena, name), t->dtype, t->shape,
                           brim_arena_alloc(&s->arena, t->bytes)};
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

void brim_snapshot_make(const brim_plan *plan, brim_snapshot *s)
{
  *s = (brim_snapshot){.update_program = brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0)};
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

void brim_snapshot_release(brim_snapshot *s)
{
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
