/* See overwritten.h. */
#include "graph/overwritten.h"

#include <stdlib.h>

#include "base/align.h"

/* Parts that are this close are zeroed together: on a device, a launch takes as long as zeroing some MiB. Kernels
 * overwrite the memory between them afterwards. */
#define BETWEEN_MAX ((uint64_t)1 << 20)

/* Whether a node overwrites a gradient in the first micro-batch. In a program of two halves, only the first half gets
 * the information that it is the first of its step. */
static bool writes(const brim_program *p, const brim_node *n, const brim_tensor *t)
{
  const brim_graph *g = p->graph;
  if (t->role != BRIM_ROLE_GRADIENT || t->producer != (int32_t)n->index || !p->need[n->index].overwrites) return false;
  return !brim_graph_is_brief(g, t) && (!g->passes || n->index < brim_graph_to_loss(g));
}

/* Counts only outputs that brim_op_cost counts twice. */
uint64_t brim_overwritten_bytes(const brim_program *p, const brim_node *n)
{
  uint64_t bytes = 0;
  for (uint32_t k = 0; k < n->out_count; k++)
    if (n->descriptor->accumulates & 1u << k && writes(p, n, n->out[k])) bytes += n->out[k]->bytes;
  return bytes;
}

static int by_offset(const void *a, const void *b)
{
  const brim_range *x = a, *y = b;
  return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Lists the places of the gradients that a program overwrites, in the order of the arena. */
static size_t list_written(const brim_plan *plan, const brim_program *p, brim_range *out)
{
  const brim_graph *g = p->graph;
  size_t count = 0;
  for (size_t i = 0; i < g->node_count; i++)
    for (uint32_t k = 0; k < g->node[i]->out_count; k++) {
      const brim_tensor *t = g->node[i]->out[k];
      if (writes(p, g->node[i], t))
        out[count++] = (brim_range){p->tensor_offset[t->id], brim_round_up(t->bytes, plan->request.backend->alignment)};
    }
  qsort(out, count, sizeof *out, by_offset);
  return count;
}

static void zero(brim_plan *plan, uint64_t from, uint64_t to)
{
  if (from < to) plan->zeroed[plan->zeroed_count++] = (brim_range){from, to - from};
}

/* Adds the gradients that a program does not overwrite. */
static void add_rest(brim_plan *plan, const brim_program *p, brim_range *scratch)
{
  const size_t count = list_written(plan, p, scratch);
  uint64_t at = plan->gradient_offset;
  for (size_t i = 0; i < count; i++) {
    zero(plan, at, scratch[i].offset);
    at = scratch[i].offset + scratch[i].bytes;
  }
  zero(plan, at, plan->gradient_offset + plan->gradient_bytes);
}

static void join(brim_plan *plan)
{
  brim_range *range = plan->zeroed;
  size_t count = 0;
  qsort(range, plan->zeroed_count, sizeof *range, by_offset);
  for (size_t i = 0; i < plan->zeroed_count; i++) {
    brim_range *last = count > 0 ? &range[count - 1] : NULL;
    const uint64_t end = range[i].offset + range[i].bytes;
    if (!last || range[i].offset > last->offset + last->bytes + BETWEEN_MAX)
      range[count++] = range[i];
    else if (end > last->offset + last->bytes)
      last->bytes = end - last->offset;
  }
  plan->zeroed_count = count;
  for (size_t i = 0; i < count; i++) plan->zeroed_bytes += range[i].bytes;
}

/* Any training program may be the first of a step, so all of them must overwrite the gradients that are not zeroed. */
void brim_overwritten_find(brim_plan *plan)
{
  size_t room = 1, trains = 0;
  for (size_t i = 0; i < plan->program_count; i++) room += plan->program[i].graph->tensor_count + 1;
  brim_arena scratch = {0};
  brim_range *written = BRIM_ARENA_NEW(&scratch, brim_range, room);
  plan->zeroed = BRIM_ARENA_NEW(&plan->arena, brim_range, room);
  for (size_t i = 0; i < plan->program_count; i++) {
    if (plan->program[i].kind != BRIM_PROGRAM_TRAIN) continue;
    add_rest(plan, &plan->program[i], written);
    trains++;
  }
  if (trains == 0) zero(plan, plan->gradient_offset, plan->gradient_offset + plan->gradient_bytes);
  join(plan);
  brim_arena_release(&scratch);
}
