/* Lays out a program's transient memory in three steps:
 *   1. Buffers: every activation and input gets one; a view shares its input's, and an in-place result takes over that
 *      of the first of its inputs that no later node needs (a second result also that of a first that is never read). A
 *      node's workspace is a buffer of its own.
 *   2. Lifetimes: from the first node that writes a buffer to the last that reads any tensor in it; for optimizer
 * states in host memory, the lifetime of their group (graph/offload.h).
 *   3. Offsets: several orders of placing are tried, each greedily (the lowest gap that fits among the buffers alive at
 * the same time). The best order is then improved by changes that let the highest buffers lie lower. The general
 * problem is
 *      NP-hard; greedy by size is within a few percent on training graphs (Pisarchyk and Lee, Efficient Memory
 *      Management for Deep Neural Net Inference, 2020). */
#include "graph/layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "graph/counts.h"
#include "graph/offload.h"
#include "graph/room.h"

/* Limit for improving a placement: about this many pairs of buffers are examined. */
#define CLIMB_STEPS (4 << 20)

static bool is_persistent(const brim_graph *g, const brim_tensor *t)
{
  if (brim_graph_offloaded(g, t) >= 0) return false;
  return t == g->metrics || t == g->squares || t == g->class_weight || t == g->proof ||
         t->role == BRIM_ROLE_PARAMETER || t->role == BRIM_ROLE_OPTIMIZER || t->role == BRIM_ROLE_CACHE ||
         (t->role == BRIM_ROLE_GRADIENT && !brim_graph_is_brief(g, t));
}

static int32_t new_buffer(brim_program *p, uint64_t bytes, uint64_t alignment, uint32_t role, int32_t first)
{
  brim_buffer *b = &p->buffer[p->buffer_count];
  *b = (brim_buffer){brim_round_up(bytes, alignment), 0, role, first, first};
  return (int32_t)p->buffer_count++;
}

/* Finds the last node that reads each tensor; the number of nodes for a tensor that is read after the program. */
static int32_t *find_last_uses(const brim_graph *g, brim_arena *arena)
{
  int32_t *last = BRIM_ARENA_NEW(arena, int32_t, g->tensor_count);
  for (size_t i = 0; i < g->tensor_count; i++) last[i] = g->tensor[i]->producer < 0 ? 0 : g->tensor[i]->producer;
  for (size_t i = 0; i < g->node_count; i++)
    for (uint32_t k = 0; k < g->node[i]->in_count; k++) last[g->node[i]->in[k]->id] = (int32_t)i;
  if (g->kept) last[g->kept->id] = (int32_t)g->node_count;
  if (g->kept_answers) last[g->kept_answers->id] = (int32_t)g->node_count;
  return last;
}

/* Whether the node's `out` may share the memory of `in`. */
static bool may_share(const brim_program *p, const brim_node *n, const brim_tensor *in, const brim_tensor *out)
{
  const bool view = n->descriptor->traits.view;
  if (in->bytes != out->bytes || in->dtype != out->dtype) return false;
  /* A view keeps the order of the elements only if both shapes and layouts are equal, or both layouts are plain. */
  if (in->channel_block != out->channel_block) return false;
  if (view && in->channel_block != 1 && !brim_shape_equal(&in->shape, &out->shape)) return false;
  const int32_t buffer = p->tensor_buffer[in->id];
  if (buffer < 0) return false; /* persistent */
  /* An input may be viewed with another shape, but not overwritten. */
  if (!view && p->buffer[buffer].role == BRIM_ROLE_DATA) return false;
  if (!view && p->buffer[buffer].last > (int32_t)n->index) return false; /* another node still needs it */
  for (const brim_tensor *const *o = (const brim_tensor *const *)n->out; *o != out; o++)
    if (p->tensor_buffer[(*o)->id] == buffer) return false; /* the previous output has it */
  return true;
}

/* Whether the first of two results is never read, so that the second may take its memory. */
static bool may_replace_first(const brim_node *n, const int32_t *last)
{
  const brim_tensor *first = n->out[0], *second = n->out[1];
  return last[first->id] == (int32_t)n->index && first->bytes == second->bytes && first->dtype == second->dtype &&
         first->channel_block == second->channel_block;
}

/* Whether the kernel, while it writes, still needs the memory of `in` for another input. */
static bool is_reread(const brim_program *p, const brim_node *n, const brim_tensor *in)
{
  for (uint32_t i = 0; i < n->in_count && i < 32; i++)
    if (n->descriptor->reread >> i & 1 && p->tensor_buffer[n->in[i]->id] == p->tensor_buffer[in->id]) return true;
  return false;
}

/* Returns the tensor whose buffer out[k] of this node takes over, or NULL. */
static const brim_tensor *shared_tensor(const brim_program *p, const brim_node *n, uint32_t k, const int32_t *last)
{
  const brim_op *op = n->descriptor;
  const brim_tensor *out = n->out[k];
  uint32_t inputs = k == 0 ? op->inplace : k == 1 ? op->inplace_second : 0;
  if (op->traits.view && k == 0) inputs = BRIM_OP_INPLACE(0);
  if (inputs == 0 || p->need[n->index].no_inplace) return NULL;
  if (k == 1 && may_replace_first(n, last)) return n->out[0];
  for (uint32_t i = 0; i < n->in_count && i < 32; i++)
    if (inputs & BRIM_OP_INPLACE(i) && may_share(p, n, n->in[i], out) && !is_reread(p, n, n->in[i])) return n->in[i];
  return NULL;
}

/* Puts a gradient that is part of a larger one into the larger one's buffer, which exists by now. */
static void join_larger(brim_program *p, const brim_tensor *t, const int32_t *last)
{
  const brim_tensor *larger = brim_graph_within(p->graph, t);
  if (!larger || larger == t) return;
  const int32_t buffer = p->tensor_buffer[t->id] = p->tensor_buffer[larger->id];
  if (p->buffer[buffer].last < last[t->id]) p->buffer[buffer].last = last[t->id];
}

static void assign_buffers(brim_program *p, uint64_t alignment)
{
  brim_graph *g = p->graph;
  const int32_t *last = find_last_uses(g, &g->arena);
  p->tensor_buffer = BRIM_ARENA_NEW(&g->arena, int32_t, g->tensor_count);
  p->tensor_offset = BRIM_ARENA_NEW(&g->arena, uint64_t, g->tensor_count);
  p->workspace_buffer = BRIM_ARENA_NEW(&g->arena, int32_t, g->node_count);
  p->buffer = BRIM_ARENA_NEW(&g->arena, brim_buffer, g->tensor_count + g->node_count);
  for (size_t i = 0; i < g->tensor_count; i++) {
    const brim_tensor *t = g->tensor[i];
    p->tensor_buffer[i] = -1;
    if (is_persistent(g, t) || t->producer >= 0 || brim_graph_offloaded(g, t) >= 0 || brim_graph_within(g, t)) continue;
    p->tensor_buffer[i] = new_buffer(p, t->bytes, alignment, t->role, 0); /* inputs, uploaded before node 0 */
    p->buffer[p->tensor_buffer[i]].last = last[i];
  }
  for (size_t i = 0; i < g->node_count; i++) {
    const brim_node *n = g->node[i];
    for (uint32_t k = 0; k < n->in_count; k++) join_larger(p, n->in[k], last);
    for (uint32_t k = 0; k < n->out_count; k++) {
      const brim_tensor *t = n->out[k];
      join_larger(p, t, last);
      if (is_persistent(g, t) || p->tensor_buffer[t->id] >= 0)
        continue; /* another node has made the tensor's buffer, and this node only adds to it */
      const brim_tensor *shared = shared_tensor(p, n, k, last);
      const int32_t buffer =
          shared ? p->tensor_buffer[shared->id] : new_buffer(p, t->bytes, alignment, t->role, (int32_t)i);
      p->tensor_buffer[t->id] = buffer;
      if (p->buffer[buffer].last < last[t->id]) p->buffer[buffer].last = last[t->id];
    }
    p->workspace_buffer[i] = -1;
    if (p->need[i].workspace_bytes)
      p->workspace_buffer[i] = new_buffer(p, p->need[i].workspace_bytes, alignment, BRIM_ROLE_WORKSPACE, (int32_t)i);
  }
}

/* Bytes alive at each node. */
static int64_t *count_live(brim_program *p)
{
  const size_t nodes = p->graph->node_count;
  int64_t *live = BRIM_ARENA_NEW(&p->graph->arena, int64_t, nodes + 2);
  for (size_t b = 0; b < p->buffer_count; b++) {
    live[p->buffer[b].first] += (int64_t)p->buffer[b].bytes;
    live[p->buffer[b].last + 1] -= (int64_t)p->buffer[b].bytes;
  }
  for (size_t i = 1; i < nodes; i++) live[i] += live[i - 1];
  return live;
}

/* Finds the node with the most bytes alive, and their classes. */
static void find_live(brim_program *p)
{
  const int64_t *live = count_live(p);
  for (size_t i = 0; i < p->graph->node_count; i++) {
    if ((uint64_t)live[i] <= p->live_bytes) continue;
    p->live_bytes = (uint64_t)live[i];
    p->live_node = (int32_t)i;
  }
  for (size_t b = 0; b < p->buffer_count; b++)
    if (p->buffer[b].first <= p->live_node && p->live_node <= p->buffer[b].last)
      p->live_class[p->buffer[b].role] += p->buffer[b].bytes;
}

enum order { ORDER_SIZE, ORDER_AREA, ORDER_FIRST, ORDER_LIFE, ORDER_COUNT };

/* The placing order: larger keys first. Equal keys keep the order of the indices, so that the plan depends only on the
 * graph. */
typedef struct ranked {
  double key;
  uint32_t index;
} ranked;

static double rank_of(const brim_buffer *b, enum order order)
{
  const double life = (double)(b->last - b->first + 1), bytes = (double)b->bytes;
  switch (order) {
  case ORDER_SIZE:
    return bytes;
  case ORDER_AREA:
    return bytes * life;
  case ORDER_FIRST:
    return -(double)b->first;
  default:
    return life;
  }
}

static int by_rank(const void *a, const void *b)
{
  const ranked *x = a, *y = b;
  if (x->key != y->key) return x->key > y->key ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
}

/* Returns the number of buffers, without those of kept casts. */
static size_t sort_buffers(const brim_buffer *buffer, size_t count, enum order order, ranked *out)
{
  size_t sorted = 0;
  for (size_t i = 0; i < count; i++)
    if (!buffer[i].kept) out[sorted++] = (ranked){rank_of(&buffer[i], order), (uint32_t)i};
  qsort(out, sorted, sizeof *out, by_rank);
  return sorted;
}

/* Places the buffers in the given order, each at the lowest offset that is free for its whole life. Returns the height,
 * or UINT64_MAX as soon as it reaches `most`. */
static uint64_t place_in_order(const brim_buffer *buffer, const ranked *order, size_t count, uint64_t *offset,
                               brim_room *room, uint64_t most)
{
  uint64_t height = 0;
  brim_room_clear(room);
  for (size_t n = 0; n < count; n++) {
    const brim_buffer *b = &buffer[order[n].index];
    const uint64_t start = offset[order[n].index] = brim_room_take(room, b->bytes, b->first, b->last);
    if (start + b->bytes > height) height = start + b->bytes;
    if (height >= most) return UINT64_MAX;
  }
  return height;
}

/* The buffers to place, and the best result so far. */
typedef struct placement {
  const brim_buffer *buffer;
  size_t buffers, count; /* all; those to place */
  ranked *order, *best_order;
  uint64_t *offset, *best_offset;
  brim_room *room;
  uint64_t height;
} placement;

/* Places in this order, and keeps the result if it is below `most`. */
static void try_order(placement *s, uint64_t most)
{
  const uint64_t height = place_in_order(s->buffer, s->order, s->count, s->offset, s->room, most);
  if (height >= most) return;
  s->height = height;
  memcpy(s->best_order, s->order, s->count * sizeof *s->order);
  memcpy(s->best_offset, s->offset, s->buffers * sizeof *s->offset);
}

/* Picks one of the candidates by a random number; -1 if there is none. */
static int64_t pick(const placement *s, const ranked *top, uint32_t random)
{
  int64_t passing = 0, chosen = -1;
  for (int pass = 0; pass < 2; pass++) {
    int64_t at = pass == 0 ? INT64_MAX : passing > 0 ? random % passing : -1;
    for (size_t i = 0; i < s->count; i++) {
      const brim_buffer *b = &s->buffer[s->order[i].index], *t = top ? &s->buffer[top->index] : NULL;
      const bool passes = top ? i < (size_t)(top - s->order) && b->first <= t->last && t->first <= b->last
                              : s->best_offset[s->order[i].index] + b->bytes == s->height;
      if (passes && pass == 0) passing++;
      if (passes && pass == 1 && at-- == 0) chosen = (int64_t)i;
    }
  }
  return chosen;
}

/* Hill climbing over orders: repeatedly places a buffer that reaches the top before one that was in its way, as long as
 * the height does not grow. The random numbers are the same in every run. */
static void climb(placement *s, uint64_t enough)
{
  uint32_t random = 1;
  const size_t tries = CLIMB_STEPS / (s->count * s->count + 1);
  for (size_t i = 0; i < tries && s->height > enough; i++) {
    memcpy(s->order, s->best_order, s->count * sizeof *s->order);
    const int64_t top = pick(s, NULL, (random = random * 1664525 + 1013904223) >> 8);
    const int64_t to = pick(s, &s->order[top], (random = random * 1664525 + 1013904223) >> 8);
    if (to < 0) continue;
    const ranked moved = s->order[top];
    memmove(&s->order[to + 1], &s->order[to], (size_t)(top - to) * sizeof moved);
    s->order[to] = moved;
    try_order(s, s->height + 1);
  }
}

/* Places the buffers of kept casts, in their order. Returns their height. */
static uint64_t place_kept(brim_program *p)
{
  uint64_t height = 0;
  for (size_t i = 0; i < p->buffer_count; i++) {
    if (!p->buffer[i].kept) continue;
    p->buffer[i].offset = height;
    height += p->buffer[i].bytes;
  }
  return height;
}

static void choose_offsets(brim_program *p)
{
  const size_t count = p->buffer_count;
  const uint64_t kept = place_kept(p), enough = p->live_bytes - kept;
  brim_arena scratch = {0};
  brim_count(BRIM_COUNTED_PLACED);
  placement s = {.buffer = p->buffer, .buffers = count, .height = UINT64_MAX};
  s.order = BRIM_ARENA_NEW(&scratch, ranked, count);
  s.best_order = BRIM_ARENA_NEW(&scratch, ranked, count);
  s.offset = BRIM_ARENA_NEW(&scratch, uint64_t, count);
  s.best_offset = BRIM_ARENA_NEW(&scratch, uint64_t, count);
  s.room = brim_room_create(count, (int32_t)p->graph->node_count, &scratch);
  for (int o = 0; o < ORDER_COUNT && s.height > enough; o++) {
    s.count = sort_buffers(p->buffer, count, (enum order)o, s.order);
    try_order(&s, s.height);
  }
  climb(&s, enough);
  p->transient_bytes = kept + s.height;
  for (size_t i = 0; i < count; i++)
    if (!p->buffer[i].kept) p->buffer[i].offset = kept + s.best_offset[i];
  brim_arena_release(&scratch);
}

/* Extends the lifetimes of the first group's states to as early before their updates in the backward pass as there is
 * room: then updates need not wait for their copies, and the plan does not grow. */
static void fetch_first_early(brim_program *p)
{
  if (!p->ahead || !p->graph->passes) return;
  const int64_t *live = count_live(p);
  const uint64_t height = p->transient_bytes;
  brim_offload_group *group = &p->group[0];
  const int32_t first = group->first;
  while (group->first > (int32_t)brim_graph_to_loss(p->graph) &&
         (uint64_t)live[group->first - 1] + group->bytes <= p->live_bytes)
    group->first--;
  if (group->first == first) return;
  uint64_t *offset = BRIM_ARENA_NEW(&p->graph->arena, uint64_t, p->buffer_count);
  for (size_t i = 0; i < p->buffer_count; i++) offset[i] = p->buffer[i].offset;
  brim_offload_set_lifetimes(p);
  choose_offsets(p);
  if (p->transient_bytes <= height) return;
  group->first = first;
  brim_offload_set_lifetimes(p);
  p->transient_bytes = height;
  for (size_t i = 0; i < p->buffer_count; i++) p->buffer[i].offset = offset[i];
}

void brim_layout_find(brim_program *p, uint64_t alignment)
{
  assign_buffers(p, alignment);
  brim_offload_set_lifetimes(p);
  find_live(p);
  p->transient_bytes = BRIM_LAYOUT_UNPLACED;
}

void brim_layout_place(brim_program *p)
{
  if (p->transient_bytes != BRIM_LAYOUT_UNPLACED) return;
  choose_offsets(p);
  fetch_first_early(p);
}

/* ---- casts first ---- */

/* The places of a program's buffers, and their lifetimes. */
typedef struct placed {
  uint64_t height;
  brim_buffer *buffer;
} placed;

static placed save(const brim_program *p)
{
  return (placed){p->transient_bytes,
                  brim_arena_copy(&p->graph->arena, p->buffer, p->buffer_count * sizeof *p->buffer)};
}

static void restore(brim_program *p, const placed *s)
{
  p->transient_bytes = s->height;
  memcpy(p->buffer, s->buffer, p->buffer_count * sizeof *p->buffer);
}

/* Returns the buffer of a copy of a parameter in a smaller type, or NULL. */
static brim_buffer *buffer_of_copy(const brim_program *p, const brim_node *n)
{
  if (!n->descriptor->converts || n->in[0]->role != BRIM_ROLE_PARAMETER || p->need[n->index].workspace_bytes)
    return NULL;
  const int32_t buffer = p->tensor_buffer[n->out[0]->id];
  return buffer >= 0 ? &p->buffer[buffer] : NULL;
}

/* Lets the lifetimes of such copies begin at node 0, as long as no more bytes are alive at any node than at the peak.
 * Returns their number. moved: by node. */
static size_t extend_copies(brim_program *p, bool *moved)
{
  const brim_graph *g = p->graph;
  const int64_t *live = count_live(p);
  int64_t most = 0; /* bytes alive at the nodes before this one, with the copies extended so far */
  size_t count = 0;
  for (size_t i = 0; i < g->forward_count; i++) {
    brim_buffer *b = buffer_of_copy(p, g->node[i]);
    if (b && b->first == (int32_t)i && (uint64_t)most + b->bytes <= p->live_bytes) {
      most += (int64_t)b->bytes;
      b->first = 0;
      moved[i] = true;
      count++;
    }
    if (live[i] > most) most = live[i];
  }
  return count;
}

static int by_offset(const void *a, const void *b)
{
  const brim_buffer *x = *(const brim_buffer *const *)a, *y = *(const brim_buffer *const *)b;
  return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Returns the lowest offset at which `b` could lie from node 0 on, between the other buffers in their places. others:
 * room for all buffers. */
static uint64_t find_gap(const brim_program *p, const brim_buffer *b, const brim_buffer **others)
{
  uint64_t at = 0;
  size_t count = 0;
  for (size_t i = 0; i < p->buffer_count; i++)
    if (&p->buffer[i] != b && p->buffer[i].first <= b->last) others[count++] = &p->buffer[i];
  qsort(others, count, sizeof(brim_buffer *), by_offset);
  for (size_t i = 0; i < count && others[i]->offset < at + b->bytes; i++)
    if (others[i]->offset + others[i]->bytes > at) at = others[i]->offset + others[i]->bytes;
  return at;
}

/* Moves copies into gaps that are free from node 0 on, if no other buffer has to move and the height does not change.
 * Returns their number. moved: by node. */
static size_t fill_gaps(brim_program *p, bool *moved)
{
  const brim_graph *g = p->graph;
  brim_arena scratch = {0};
  const brim_buffer **others = BRIM_ARENA_NEW(&scratch, const brim_buffer *, p->buffer_count);
  size_t count = 0;
  for (size_t i = 0; i < g->forward_count; i++) {
    brim_buffer *b = buffer_of_copy(p, g->node[i]);
    moved[i] = false;
    if (!b || b->first != (int32_t)i) continue;
    const uint64_t at = find_gap(p, b, others);
    if (at + b->bytes > p->transient_bytes) continue;
    b->offset = at;
    b->first = 0;
    moved[i] = true;
    count++;
  }
  brim_arena_release(&scratch);
  return count;
}

/* Moves these nodes before all others. */
static void move_first(brim_program *p, const bool *moved, size_t count)
{
  brim_graph *g = p->graph;
  brim_arena scratch = {0};
  int32_t *to = BRIM_ARENA_NEW(&scratch, int32_t, g->node_count);
  const brim_program was = *p;
  brim_node **node = brim_arena_copy(&scratch, g->node, g->node_count * sizeof(brim_node *));
  p->kernel = BRIM_ARENA_NEW(&g->arena, const brim_kernel *, g->node_count);
  p->state = BRIM_ARENA_NEW(&g->arena, void *, g->node_count);
  p->need = BRIM_ARENA_NEW(&g->arena, brim_kernel_need, g->node_count);
  p->workspace_buffer = BRIM_ARENA_NEW(&g->arena, int32_t, g->node_count);
  for (size_t i = 0, first = 0, next = count; i < g->node_count; i++) {
    const size_t at = moved[i] ? first++ : next++;
    to[i] = (int32_t)at;
    node[i]->index = (uint32_t)at;
    g->node[at] = node[i];
    p->kernel[at] = was.kernel[i];
    p->state[at] = was.state[i];
    p->need[at] = was.need[i];
    p->workspace_buffer[at] = was.workspace_buffer[i];
  }
  for (size_t i = 0; i < g->tensor_count; i++)
    if (g->tensor[i]->producer >= 0) g->tensor[i]->producer = to[g->tensor[i]->producer];
  for (size_t i = 0; i < p->buffer_count; i++) {
    brim_buffer *b = &p->buffer[i];
    if (b->first > 0) b->first = to[b->first]; /* 0 stays: inputs, too, exist from the start */
    b->last = b->last < (int32_t)g->node_count ? to[b->last] : b->last;
  }
  p->live_node = to[p->live_node];
  brim_arena_release(&scratch);
}

void brim_layout_place_casts_first(brim_program *p)
{
  const placed before = save(p);
  bool *moved = BRIM_ARENA_NEW(&p->graph->arena, bool, p->graph->node_count + 1);
  size_t count = p->group_count > 0 || p->graph->passes ? 0 : extend_copies(p, moved);
  if (count == 0) {
    brim_layout_place(p);
    return;
  }
  choose_offsets(p);
  const placed first = save(p);
  if (first.height > before.height || first.height > p->live_bytes) {
    restore(p, &before);
    brim_layout_place(p);
    if (p->transient_bytes < first.height)
      count = fill_gaps(p, moved);
    else
      restore(p, &first);
  }
  if (count > 0) move_first(p, moved, count);
}

/* ---- casts that stay ---- */

/* The result of a cast at a program's start. */
typedef struct copy {
  const brim_tensor *parameter, *tensor;
  brim_buffer *buffer;
  uint32_t node;
  bool stays;
} copy;

static size_t list_copies(brim_program *p, copy *out)
{
  const brim_graph *g = p->graph;
  size_t count = 0;
  for (brim_buffer *b; count < g->forward_count && (b = buffer_of_copy(p, g->node[count])) && b->first == 0; count++)
    out[count] = (copy){g->node[count]->in[0], g->node[count]->out[0], b, (uint32_t)count, true};
  return count;
}

/* Finds another program's copy of the same parameter, from `*at` on, because all programs of a model have the same
 * order. Returns NULL if that program does not keep one. */
static copy *find_copy(copy *list, size_t count, size_t *at, const copy *of)
{
  for (size_t i = *at; i < count; i++) {
    if (strcmp(list[i].parameter->name, of->parameter->name) != 0) continue;
    *at = i + 1;
    return list[i].tensor->bytes == of->tensor->bytes && list[i].tensor->dtype == of->tensor->dtype ? &list[i] : NULL;
  }
  return NULL;
}

/* Whether a later node, other than a view, overwrites a copy's memory. */
static bool is_replaced(const brim_program *p, const copy *c)
{
  const brim_graph *g = p->graph;
  for (size_t i = 0; i < g->tensor_count; i++) {
    const brim_tensor *t = g->tensor[i];
    if (p->tensor_buffer[i] < 0 || &p->buffer[p->tensor_buffer[i]] != c->buffer || t == c->tensor) continue;
    if (!g->node[t->producer]->descriptor->traits.view) return true;
  }
  return false;
}

/* Lets a copy live to the program's end, unless more than `most` bytes would be alive then. */
static bool extend_to_end(const brim_program *p, copy *c, int64_t *live, uint64_t most)
{
  const int32_t end = (int32_t)p->graph->node_count;
  if (is_replaced(p, c)) return false;
  for (int32_t i = c->buffer->last + 1; i < end; i++)
    if ((uint64_t)live[i] + c->buffer->bytes > most) return false;
  for (int32_t i = c->buffer->last + 1; i < end; i++) live[i] += (int64_t)c->buffer->bytes;
  return true;
}

/* Removes copies that cannot stay in this program from the list. */
static void drop_copies(brim_program *p, copy *list, size_t count, uint64_t most)
{
  copy *own = BRIM_ARENA_NEW(&p->graph->arena, copy, p->graph->node_count + 1);
  int64_t *live = count_live(p);
  const size_t owns = list_copies(p, own);
  for (size_t i = 0, at = 0; i < count; i++) {
    copy *here = find_copy(own, owns, &at, &list[i]);
    list[i].stays = list[i].stays && here && extend_to_end(p, here, live, most);
  }
}

/* Places a program with the copies that stay, and marks their nodes. */
static void place_with_copies(brim_program *p, const copy *list, size_t count, bool *stays)
{
  copy *own = BRIM_ARENA_NEW(&p->graph->arena, copy, p->graph->node_count + 1);
  const size_t owns = list_copies(p, own);
  for (size_t i = 0, at = 0; i < count; i++) {
    if (!list[i].stays) continue;
    copy *here = find_copy(own, owns, &at, &list[i]);
    here->buffer->kept = stays[here->node] = true;
    here->buffer->last = (int32_t)p->graph->node_count;
  }
  p->live_bytes = 0;
  memset(p->live_class, 0, sizeof p->live_class);
  find_live(p);
  choose_offsets(p);
}

/* Copies that do not fit, or do not fit in every training program, are made in every micro-batch. */
void brim_layout_keep_casts(brim_plan *plan)
{
  brim_program *train[BRIM_PROGRAMS_MAX], before[BRIM_PROGRAMS_MAX];
  placed placed_before[BRIM_PROGRAMS_MAX];
  bool *stays[BRIM_PROGRAMS_MAX];
  size_t trains = 0, staying = 0;
  uint64_t most = 0;
  for (size_t i = 0; i < plan->program_count; i++) {
    brim_program *p = &plan->program[i];
    if (p->transient_bytes > most) most = p->transient_bytes;
    if (p->kind == BRIM_PROGRAM_TRAIN) train[trains++] = p;
  }
  if (trains == 0) return;
  copy *list = BRIM_ARENA_NEW(&plan->arena, copy, train[0]->graph->node_count + 1);
  const size_t count = list_copies(train[0], list);
  for (size_t t = 0; t < trains; t++) drop_copies(train[t], list, count, most);
  for (size_t i = 0; i < count; i++) staying += list[i].stays;
  bool fits = staying > 0;
  size_t tried = 0;
  for (; fits && tried < trains; tried++) {
    brim_program *p = train[tried];
    before[tried] = *p;
    placed_before[tried] = save(p);
    stays[tried] = BRIM_ARENA_NEW(&p->graph->arena, bool, p->graph->node_count + 1);
    place_with_copies(p, list, count, stays[tried]);
    fits = p->transient_bytes <= most;
  }
  for (size_t t = 0; t < tried; t++) {
    if (!fits) {
      *train[t] = before[t];
      restore(train[t], &placed_before[t]);
    } else {
      move_first(train[t], stays[t], staying);
      train[t]->kept_casts = staying;
    }
  }
}
