/* See offload.h. */
#include "exec/offload.h"

#include <string.h>
#include <sys/mman.h>

#include "base/fault.h"
#include "base/tracing.h"
#include "graph/offload.h"

/* Marks. At most two groups are being copied in at once, and the copies out of at most two are pending. */
#define FREE 0 /* marks the last use of the window */
#define DONE 1 /* marks the end of a group's kernels */
#define IN(group) (2 + (uint32_t)(group) % 3)
#define OUT(group) (5 + (uint32_t)(group) % 3)

static bool is_ahead(const brim_offload *o)
{
  return o->state && BRIM_HAS(brim_backend_ops, o->backend, run_program);
}

/* ---- host memory ---- */

brim_status brim_offload_open(brim_offload *o, const brim_plan *plan)
{
  const uint64_t bytes = plan->host_bytes;
  void *at = MAP_FAILED;
  *o = (brim_offload){.plan = plan, .backend = plan->request.backend, .self = plan->request.backend_self};
  if (bytes == 0) return BRIM_OK;
  if (brim_fault_hit(BRIM_FAULT_ALLOC, NULL)) {
    /* leaves `at` at MAP_FAILED */
  } else if (BRIM_HAS(brim_backend_ops, o->backend, run_program)) {
    BRIM_TRY(o->backend->place_host(o->self, bytes, &at));
    memset(at, 0, bytes); /* the programs' first run reads this memory */
  } else {
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  }
  if (at == MAP_FAILED)
    return brim_fail(BRIM_ENOMEM_HOST, "no host memory for %llu bytes of optimizer state (memory.offload)",
                     (unsigned long long)bytes);
  o->state = at;
  return BRIM_OK;
}

void brim_offload_close(brim_offload *o)
{
  if (!o->state) return;
  if (is_ahead(o))
    o->backend->unplace_host(o->self, o->state, o->plan->host_bytes);
  else
    (void)munmap(o->state, o->plan->host_bytes);
  o->state = NULL;
}

void *brim_offload_pointer(const brim_offload *o, const brim_program *p, const brim_tensor *t)
{
  const int64_t state = brim_graph_offloaded(p->graph, t);
  return state < 0 ? NULL : o->state + o->plan->host_offset[state];
}

/* ---- copies ---- */

static brim_status copy_node(const brim_offload *o, const brim_program *p, const brim_node *n, uint32_t queue)
{
  const bool in = queue == BRIM_QUEUE_IN;
  brim_copy copy[1 + BRIM_OPTIMIZER_STATES_MAX];
  size_t count = 0;
  for (uint32_t k = 0; k < n->out_count; k++) {
    void *host = brim_offload_pointer(o, p, n->out[k]), *device = o->base + p->tensor_offset[n->out[k]->id];
    if (host) copy[count++] = (brim_copy){in ? device : host, in ? host : device, n->out[k]->bytes};
  }
  if (count > 0 && is_ahead(o)) return o->backend->copy(o->self, queue, copy, count);
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < count && status == BRIM_OK; i++) {
    const char *name = in ? "copy state in" : "copy state out";
    const int64_t began = brim_tracing_begin(name);
    status = in ? o->backend->upload(o->self, copy[i].to, copy[i].from, copy[i].bytes)
                : o->backend->download(o->self, copy[i].to, copy[i].from, copy[i].bytes);
    brim_tracing_end(began, in ? BRIM_TRACING_IN : BRIM_TRACING_OUT, name, copy[i].bytes);
  }
  return status;
}

static brim_status copy_group(const brim_offload *o, const brim_program *p, const brim_offload_group *group,
                              uint32_t queue)
{
  for (int32_t i = group->from; i < group->to; i++) BRIM_TRY(copy_node(o, p, p->graph->node[i], queue));
  return BRIM_OK;
}

/* Orders later work in `queue` after the work that `other` has now. */
static brim_status follow(const brim_offload *o, uint32_t queue, uint32_t other, uint32_t mark)
{
  BRIM_TRY(o->backend->mark(o->self, other, mark));
  return o->backend->wait(o->self, queue, mark);
}

static brim_status wait_for(const brim_offload *o, uint32_t queue, uint32_t marks)
{
  for (uint32_t m = 0; m < BRIM_MARKS; m++)
    if (marks & 1u << m) BRIM_TRY(o->backend->wait(o->self, queue, m));
  return BRIM_OK;
}

/* Orders later kernels after these copies out. */
static brim_status settle(brim_offload *o, uint32_t marks)
{
  BRIM_TRY(wait_for(o, BRIM_QUEUE_COMPUTE, marks));
  o->pending &= ~marks;
  return BRIM_OK;
}

/* ---- pieces ---- */

brim_offload_piece brim_offload_describe(const brim_program *p, size_t from, size_t to)
{
  const int32_t first = (int32_t)from, count = (int32_t)p->group_count;
  brim_offload_piece piece = {.group = -1};
  if (!p->cut) return piece;
  for (int32_t i = 0; i < count; i++) {
    const brim_offload_group *g = &p->group[i];
    if (g->from == first) piece.group = i;
    if (g->first < first) piece.in_from = i + 1;
    if (g->first <= first) piece.in_to = i + 1;
    if (g->last + 1 < first) piece.done_from = i + 1;
    if (g->last + 1 <= first) piece.done_to = i + 1;
  }
  piece.uses_window = first >= p->window_first && first <= p->window_last;
  piece.ends = count > 0 && to == p->graph->node_count;
  return piece;
}

/* An update's first group waits for the last use of the window, even if other work was started since, and for pending
 * copies out, which may be copies of the same states. All other groups follow the kernels before them. */
static brim_status start_in(brim_offload *o, const brim_program *p, int32_t group)
{
  if (group == 0) BRIM_TRY(wait_for(o, BRIM_QUEUE_IN, o->pending));
  if (group == 0) BRIM_TRY(settle(o, o->pending));
  if (group > 0 || p->group[0].first > 0) BRIM_TRY(o->backend->mark(o->self, BRIM_QUEUE_COMPUTE, FREE));
  BRIM_TRY(o->backend->wait(o->self, BRIM_QUEUE_IN, FREE));
  BRIM_TRY(copy_group(o, p, &p->group[group], BRIM_QUEUE_IN));
  return o->backend->mark(o->self, BRIM_QUEUE_IN, IN(group));
}

static brim_status start_out(brim_offload *o, const brim_program *p, int32_t group)
{
  BRIM_TRY(follow(o, BRIM_QUEUE_OUT, BRIM_QUEUE_COMPUTE, DONE));
  BRIM_TRY(copy_group(o, p, &p->group[group], BRIM_QUEUE_OUT));
  BRIM_TRY(o->backend->mark(o->self, BRIM_QUEUE_OUT, OUT(group)));
  o->pending |= 1u << OUT(group);
  return BRIM_OK;
}

brim_status brim_offload_begin(brim_offload *o, const brim_program *p, const brim_offload_piece *piece)
{
  if (!is_ahead(o)) return BRIM_OK;
  if (piece->uses_window) BRIM_TRY(settle(o, o->pending));
  for (int32_t i = piece->done_from; i < piece->done_to; i++) BRIM_TRY(settle(o, o->pending & 1u << OUT(i)));
  for (int32_t i = piece->in_from; i < piece->in_to; i++) BRIM_TRY(start_in(o, p, i));
  return piece->group < 0 ? BRIM_OK : o->backend->wait(o->self, BRIM_QUEUE_COMPUTE, IN(piece->group));
}

brim_status brim_offload_end(brim_offload *o, const brim_program *p, const brim_offload_piece *piece)
{
  if (!is_ahead(o)) return BRIM_OK;
  if (piece->group >= 0) BRIM_TRY(start_out(o, p, piece->group));
  return piece->uses_window || piece->ends ? o->backend->mark(o->self, BRIM_QUEUE_COMPUTE, FREE) : BRIM_OK;
}

/* ---- ordering with everything else ---- */

static bool overlaps(const brim_offload *o, const void *at, uint64_t bytes)
{
  return is_ahead(o) && brim_offload_in_window(o->plan, (uint64_t)((const uint8_t *)at - o->base), bytes);
}

brim_status brim_offload_begin_use(brim_offload *o, const void *at, uint64_t bytes)
{
  return overlaps(o, at, bytes) ? settle(o, o->pending) : BRIM_OK;
}

brim_status brim_offload_end_use(brim_offload *o, const void *at, uint64_t bytes)
{
  return overlaps(o, at, bytes) ? o->backend->mark(o->self, BRIM_QUEUE_COMPUTE, FREE) : BRIM_OK;
}

static bool has_states(const brim_program *p, const brim_node *n)
{
  for (uint32_t k = 0; k < n->out_count; k++)
    if (brim_graph_offloaded(p->graph, n->out[k]) >= 0) return true;
  return false;
}

brim_status brim_offload_begin_node(brim_offload *o, const brim_program *p, const brim_node *n)
{
  if (!o->state) return BRIM_OK;
  if (!is_ahead(o)) return copy_node(o, p, n, BRIM_QUEUE_IN);
  BRIM_TRY(settle(o, o->pending));
  if (!has_states(p, n)) return BRIM_OK;
  BRIM_TRY(follow(o, BRIM_QUEUE_IN, BRIM_QUEUE_COMPUTE, FREE));
  BRIM_TRY(copy_node(o, p, n, BRIM_QUEUE_IN));
  return follow(o, BRIM_QUEUE_COMPUTE, BRIM_QUEUE_IN, IN(0));
}

brim_status brim_offload_end_node(brim_offload *o, const brim_program *p, const brim_node *n)
{
  if (!o->state) return BRIM_OK;
  if (!is_ahead(o)) return copy_node(o, p, n, BRIM_QUEUE_OUT);
  if (has_states(p, n)) {
    BRIM_TRY(follow(o, BRIM_QUEUE_OUT, BRIM_QUEUE_COMPUTE, DONE));
    BRIM_TRY(copy_node(o, p, n, BRIM_QUEUE_OUT));
    BRIM_TRY(follow(o, BRIM_QUEUE_COMPUTE, BRIM_QUEUE_OUT, OUT(0)));
  }
  return o->backend->mark(o->self, BRIM_QUEUE_COMPUTE, FREE);
}
