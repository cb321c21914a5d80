/* See offload.h. */
#include "graph/offload.h"

#include "base/align.h"

/* ---- groups ---- */

static uint64_t states_of(const brim_graph *g, const brim_node *n, uint64_t alignment)
{
  uint64_t bytes = 0;
  for (uint32_t k = 0; k < n->out_count; k++)
    if (brim_graph_offloaded(g, n->out[k]) >= 0) bytes += brim_round_up(n->out[k]->bytes, alignment);
  return bytes;
}

/* Whether a node may lie between two updates of a group. Nodes of moving averages may, because they lie between the
 * weights of layers. */
static bool makes_nothing_else(const brim_node *n)
{
  for (uint32_t k = 0; k < n->out_count; k++)
    if (n->out[k]->role != BRIM_ROLE_PARAMETER) return false;
  return true;
}

static uint64_t largest_of(const brim_graph *g, uint64_t alignment)
{
  uint64_t largest = 0;
  for (size_t i = 0; i < g->node_count; i++) {
    const uint64_t bytes = states_of(g, g->node[i], alignment);
    if (bytes > largest) largest = bytes;
  }
  return largest;
}

/* Whether states of this size may join a group. States of biases do, so that kernels need not wait for each of them. */
static bool may_join(const brim_offload_group *group, uint64_t bytes, uint64_t largest)
{
  const uint64_t all = group->bytes + bytes;
  return all <= largest && (all <= BRIM_OFFLOAD_GROUP_BYTES || bytes <= BRIM_OFFLOAD_SMALL_BYTES);
}

/* Lists the groups of a program. `largest`: limit for the bytes of a group with several updates. */
static void gather(brim_program *p, uint64_t alignment, uint64_t largest)
{
  const brim_graph *g = p->graph;
  bool open = false;
  for (size_t i = 0; i < g->node_count; i++) {
    const uint64_t bytes = states_of(g, g->node[i], alignment);
    if (bytes == 0) {
      open = open && makes_nothing_else(g->node[i]);
      continue;
    }
    if (!open || !may_join(&p->group[p->group_count - 1], bytes, largest))
      p->group[p->group_count++] = (brim_offload_group){.from = (int32_t)i};
    brim_offload_group *group = &p->group[p->group_count - 1];
    group->to = (int32_t)i + 1;
    group->bytes += bytes;
    open = true;
  }
}

/* Extends the life of each group's states from the previous group to the next. In the update's own program the first
 * group's begins at node 0; its copies are ordered after earlier uses of the window. */
static void extend(brim_program *p)
{
  brim_offload_group *group = p->group;
  const size_t count = p->group_count;
  const int32_t end = (int32_t)p->graph->node_count - 1;
  for (size_t i = 0; i < count; i++) {
    group[i].first = i > 0 ? group[i - 1].from : p->graph->passes ? group[i].from : 0;
    group[i].last = i + 1 < count ? group[i + 1].to - 1 : end;
  }
}

void brim_offload_find_groups(brim_program *p, uint64_t alignment, bool ahead)
{
  const brim_graph *g = p->graph;
  if (!g->offloads) return;
  p->group = BRIM_ARENA_NEW(&p->graph->arena, brim_offload_group, g->node_count);
  gather(p, alignment, ahead ? largest_of(g, alignment) : 0);
  for (size_t i = 0; i < p->group_count; i++) {
    p->group[i].first = p->group[i].from;
    p->group[i].last = p->group[i].to - 1;
  }
  p->ahead = ahead && p->group_count > 0;
  if (p->ahead) extend(p);
}

/* Returns the buffer of the state that is a node's k-th output, or NULL. */
static brim_buffer *buffer_of(const brim_program *p, int32_t node, uint32_t k)
{
  const brim_tensor *t = p->graph->node[node]->out[k];
  return brim_graph_offloaded(p->graph, t) < 0 ? NULL : &p->buffer[p->tensor_buffer[t->id]];
}

void brim_offload_set_lifetimes(brim_program *p)
{
  for (size_t i = 0; i < p->group_count; i++)
    for (int32_t n = p->group[i].from; n < p->group[i].to; n++)
      for (uint32_t k = 0; k < p->graph->node[n]->out_count; k++) {
        brim_buffer *b = buffer_of(p, n, k);
        if (!b) continue;
        b->first = p->group[i].first;
        b->last = p->group[i].last;
      }
}

/* ---- the window ---- */

bool brim_offload_in_window(const brim_plan *plan, uint64_t offset, uint64_t bytes)
{
  return offset < plan->window_offset + plan->window_bytes && plan->window_offset < offset + bytes;
}

static void widen(brim_plan *plan, const brim_buffer *b)
{
  uint64_t start = plan->window_offset, end = start + plan->window_bytes;
  if (start == end || b->offset < start) start = b->offset;
  if (b->offset + b->bytes > end) end = b->offset + b->bytes;
  plan->window_offset = start;
  plan->window_bytes = end - start;
}

/* Adds the buffers of the first and the last two groups to the window, because all other groups are copied while their
 * program runs. */
static void add_program(brim_plan *plan, const brim_program *p)
{
  for (size_t i = 0; i < p->group_count; i++) {
    if (i > 0 && i + 2 < p->group_count) continue;
    for (int32_t n = p->group[i].from; n < p->group[i].to; n++)
      for (uint32_t k = 0; k < p->graph->node[n]->out_count; k++)
        if (buffer_of(p, n, k)) widen(plan, buffer_of(p, n, k));
  }
}

/* Finds the nodes before a program's first group that use the window; from the first group on, lifetimes protect the
 * memory. */
static void find_users(const brim_plan *plan, brim_program *p)
{
  const int32_t end = p->group_count > 0 ? p->group[0].first : (int32_t)p->graph->node_count;
  p->window_first = end;
  p->window_last = -1;
  for (size_t i = 0; i < p->buffer_count; i++) {
    const brim_buffer *b = &p->buffer[i];
    if (b->first >= end || !brim_offload_in_window(plan, b->offset, b->bytes)) continue;
    if (b->first < p->window_first) p->window_first = b->first;
    if (b->last > p->window_last) p->window_last = b->last < end ? b->last : end - 1;
  }
}

static void cut_at(brim_program *p, int32_t node)
{
  if (node < (int32_t)p->graph->node_count) p->cut[node] = true;
}

static void cut(brim_program *p)
{
  p->cut = BRIM_ARENA_NEW(&p->graph->arena, bool, p->graph->node_count + 1);
  cut_at(p, p->window_first);
  cut_at(p, p->window_last + 1);
  for (size_t i = 0; i < p->group_count; i++) {
    cut_at(p, p->group[i].first);
    cut_at(p, p->group[i].from);
    cut_at(p, p->group[i].to);
  }
}

void brim_offload_find_window(brim_plan *plan)
{
  for (size_t i = 0; i < plan->program_count; i++) add_program(plan, &plan->program[i]);
  for (size_t i = 0; i < plan->program_count; i++) {
    find_users(plan, &plan->program[i]);
    cut(&plan->program[i]);
  }
}
