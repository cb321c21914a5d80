/* See reduce.h. */
#include "exec/reduce.h"

#include "base/tracing.h"

/* Numbers of marks; offload.c uses the lower ones. The queue of collectives has one order, so if a mark was reused for
 * a later collective, waiting for the mark also waits for the earlier one. */
#define KERNELS 8
#define DONE(ticket) (9 + (uint32_t)((ticket) % 4))

void brim_reduction_join(brim_reduction *r, brim_dist *dist, bool asynchronous)
{
  r->dist = dist;
  r->backend = r->plan->request.backend;
  r->self = r->plan->request.backend_self;
  r->queue = dist && asynchronous ? r->backend->native_queue(r->self, BRIM_QUEUE_COMM) : NULL;
}

void brim_reduction_begin(brim_reduction *r)
{
  r->next = 0;
}

static const char *name_of(uint32_t kind)
{
  static const char *const names[] = {[BRIM_ALL_REDUCE] = "all-reduce",
                                      [BRIM_BROADCAST] = "broadcast",
                                      [BRIM_REDUCE_SCATTER] = "reduce-scatter",
                                      [BRIM_ALL_GATHER] = "all-gather"};
  return kind < sizeof names / sizeof names[0] && names[kind] ? names[kind] : "collective";
}

/* For traces: records a collective that has just started, in a span that began at `begin`. */
static void follow(brim_reduction *r, const brim_collective *what, int64_t began)
{
  if (!brim_tracing_records() || r->open_count == BRIM_REDUCTIONS_OPEN) return;
  r->open[r->open_count].ticket = r->ticket;
  r->open[r->open_count].bytes = what->count * brim_dtype_bytes(what->dtype);
  r->open[r->open_count].began = began;
  r->open[r->open_count++].name = name_of(what->kind);
}

/* For traces: records that the collectives up to this ticket have ended. */
static void end_followed(brim_reduction *r, uint64_t ticket)
{
  size_t kept = 0;
  if (r->open_count == 0) return;
  const int64_t now = brim_tracing_clock();
  for (size_t i = 0; i < r->open_count; i++)
    if (r->open[i].ticket <= ticket)
      brim_tracing_add(r->open[i].began, now, BRIM_TRACING_SUM, r->open[i].name,
                       brim_tracing_sum(r->open[i].ticket, r->open[i].bytes));
    else
      r->open[kept++] = r->open[i];
  r->open_count = kept;
}

static brim_status finish(brim_reduction *r, uint64_t ticket)
{
  static const char *const name = "wait for a collective";
  const int64_t began = brim_tracing_begin(name);
  const brim_status status = brim_dist_finish(r->dist, ticket);
  end_followed(r, ticket); /* called before the span ends, because an arrow from another rank must lead into the span */
  brim_tracing_end(began, BRIM_TRACING_PHASE, name, 0);
  return status;
}

static brim_status start_on_queue(brim_reduction *r, const brim_collective *what)
{
  BRIM_TRY(r->backend->mark(r->self, BRIM_QUEUE_COMPUTE, KERNELS));
  BRIM_TRY(r->backend->wait(r->self, BRIM_QUEUE_COMM, KERNELS));
  BRIM_TRY(brim_dist_start(r->dist, what, r->queue, &r->ticket));
  return r->backend->mark(r->self, BRIM_QUEUE_COMM, DONE(r->ticket));
}

static brim_status start(brim_reduction *r, uint32_t kind, uint32_t dtype, uint64_t offset, uint64_t count)
{
  static const char *const name = "start a collective";
  const brim_collective what = {.kind = kind, .dtype = dtype, .buffer = r->base + offset, .count = count};
  if (!r->dist) return BRIM_OK;
  const int64_t began = brim_tracing_begin(name);
  const brim_status status = r->queue ? start_on_queue(r, &what) : brim_dist_start(r->dist, &what, NULL, &r->ticket);
  if (status == BRIM_OK && began) follow(r, &what, began);
  brim_tracing_end(began, BRIM_TRACING_PHASE, name, 0);
  return status;
}

/* Makes later work wait for a collective. */
static brim_status need(brim_reduction *r, uint64_t ticket)
{
  return r->queue ? r->backend->wait(r->self, BRIM_QUEUE_COMPUTE, DONE(ticket)) : finish(r, ticket);
}

static brim_status start_bucket(brim_reduction *r)
{
  const brim_gradient_bucket *b = &r->plan->bucket[r->next++];
  return start(r, b->kind, b->dtype, b->offset, b->count);
}

/* Starts and finishes the collectives that are due before a node. A collective may be due for both before the same
 * node. */
brim_status brim_reduction_before(brim_reduction *r, brim_reduction_walk *w, size_t node)
{
  const brim_program *p = w->program;
  if (!r->dist) return BRIM_OK;
  for (; w->started < p->collective_count && p->collective[w->started].start <= (int32_t)node; w->started++) {
    const brim_program_collective *c = &p->collective[w->started];
    BRIM_TRY(start(r, c->kind, c->dtype, c->offset, c->count));
    if (w->started == 0) w->ticket = r->ticket;
  }
  while (w->finished < w->started && p->collective[w->finished].finish <= (int32_t)node)
    BRIM_TRY(need(r, w->ticket + w->finished++));
  return BRIM_OK;
}

brim_status brim_reduction_after(brim_reduction *r, const brim_program *program, size_t node)
{
  if (!r->dist) return BRIM_OK;
  while (r->next < r->plan->bucket_count && program->bucket_ready[r->next] <= (int32_t)node) BRIM_TRY(start_bucket(r));
  static const char *const name = "work on collectives";
  const int64_t began = brim_tracing_begin(name);
  const brim_status status = brim_dist_progress(r->dist);
  brim_tracing_end(began, BRIM_TRACING_PHASE, name, 0);
  return status;
}

brim_status brim_reduction_rest(brim_reduction *r)
{
  while (r->next < r->plan->bucket_count) BRIM_TRY(start_bucket(r));
  return BRIM_OK;
}

brim_status brim_reduction_metrics(brim_reduction *r, uint64_t count)
{
  return start(r, BRIM_ALL_REDUCE, BRIM_DTYPE_F64, r->plan->metrics_offset, count);
}

brim_status brim_reduction_broadcast(brim_reduction *r, uint64_t offset, uint64_t bytes)
{
  return start(r, BRIM_BROADCAST, BRIM_DTYPE_U8, offset, bytes);
}

brim_status brim_reduction_order(brim_reduction *r)
{
  return r->queue ? need(r, r->ticket) : BRIM_OK;
}

brim_status brim_reduction_finish_to(brim_reduction *r, uint64_t ticket)
{
  return r->dist ? finish(r, ticket) : BRIM_OK;
}

brim_status brim_reduction_finish(brim_reduction *r)
{
  return brim_reduction_finish_to(r, r->ticket);
}

brim_status brim_reduction_settle(brim_reduction *r)
{
  return r->queue ? brim_reduction_finish(r) : BRIM_OK;
}
