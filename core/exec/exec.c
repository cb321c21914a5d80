/* Pointers are resolved when the plan is placed; a step runs an array of launches one by one, or passes the whole array
 * to the backend. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/tracing.h"
#include "exec/exec_parts.h"
#include "exec/launches.h"
#include "graph/collectives.h"
#include "graph/federate.h"

static size_t index_of(const brim_exec *exec, const brim_program *program)
{
  const ptrdiff_t i = program - exec->plan->program;
  assert(i >= 0 && (size_t)i < exec->plan->program_count);
  return (size_t)i;
}

void *brim_exec_pointer(const brim_exec *exec, const brim_program *program, const brim_tensor *tensor)
{
  return brim_launches_pointer(program, &(brim_bases){exec->base, exec->server_base}, tensor);
}

void brim_exec_range(const brim_program *program, size_t half, size_t *from, size_t *to)
{
  const brim_graph *g = program->graph;
  const bool cut = brim_launches_halves(program) == 2;
  *from = half == 0 ? 0 : brim_graph_to_loss(g);
  *to = half == 0 && cut ? brim_graph_to_loss(g) : g->node_count;
}

/* ---- pieces ---- */

static size_t count_pieces(const brim_program *program)
{
  size_t count = 0;
  for (size_t i = 0; i < program->graph->node_count; i++) count += brim_launches_begin_piece(program, i);
  return count;
}

static void cut(brim_exec *exec, const brim_program *program)
{
  brim_placed_program *placed = &exec->program[index_of(exec, program)];
  placed->piece = BRIM_ARENA_NEW(&exec->host, brim_exec_piece, count_pieces(program));
  for (size_t i = 0; i < program->graph->node_count; i++) {
    if (brim_launches_begin_piece(program, i)) placed->piece[placed->piece_count++].from = i;
    placed->piece[placed->piece_count - 1].to = i + 1;
  }
  for (size_t i = 0; i < placed->piece_count; i++)
    placed->piece[i].offload = brim_offload_describe(program, placed->piece[i].from, placed->piece[i].to);
}

static void resolve(brim_exec *exec, const brim_program *p)
{
  const brim_bases bases = {exec->base, exec->server_base};
  exec->program[index_of(exec, p)].launch = brim_launches_make(p, &bases, &exec->host);
  cut(exec, p);
}

brim_status brim_exec_wait(brim_exec *exec)
{
  BRIM_TRY(brim_reduction_settle(&exec->reduction));
  return exec->backend->synchronize(exec->self);
}

static brim_status zero(brim_exec *exec, void *at, uint64_t bytes)
{
  BRIM_TRY(brim_offload_begin_use(&exec->offload, at, bytes));
  BRIM_TRY(exec->backend->zero(exec->self, at, bytes));
  return brim_offload_end_use(&exec->offload, at, bytes);
}

/* Whether a step's first micro-batch differs from later ones. */
static bool first_differs(const brim_exec *exec)
{
  const brim_plan *plan = exec->plan;
  bool keeps = false;
  for (size_t i = 0; i < plan->program_count; i++) keeps = keeps || plan->program[i].kept_casts > 0;
  return keeps || plan->zeroed_bytes < plan->gradient_bytes;
}

/* first: runs the program as a step's first micro-batch, else as a later one. Training has later ones only with
 * accumulation; other programs have no first one. */
static brim_status warm_up_program(brim_exec *exec, const brim_program *program, bool first)
{
  const brim_step step = {.loss_scale = 1};
  const bool trains = program->kind == BRIM_PROGRAM_TRAIN;
  if (trains ? !first && !exec->plan->request.accumulates : first) return BRIM_OK;
  BRIM_TRY(zero(exec, exec->base, exec->plan->peak_bytes));
  exec->before_first = first && first_differs(exec);
  return brim_exec_run(exec, program, &step, NULL);
}

/* Kernels and recorded programs take device memory at their first run; so this runs every program once before the first
 * step, on zeros, which are valid indices. */
static brim_status warm_up(brim_exec *exec)
{
  for (size_t i = 0; i < exec->plan->program_count; i++)
    for (int first = 1; first >= 0; first--) BRIM_TRY(warm_up_program(exec, &exec->plan->program[i], first));
  return exec->backend->synchronize(exec->self);
}

static brim_status realize(brim_exec *exec)
{
  const brim_plan *plan = exec->plan;
  for (size_t i = 0; i < plan->program_count; i++) {
    const brim_program *p = &plan->program[i];
    for (size_t n = 0; n < p->graph->node_count; n++)
      if (p->kernel[n]->realize) BRIM_TRY(p->kernel[n]->realize(exec->self, p->graph->node[n], p->state[n]));
  }
  return BRIM_OK;
}

/* Opens the programs in the arena at `base`. */
static brim_status open_programs(brim_exec *exec, uint8_t *base)
{
  const brim_plan *plan = exec->plan;
  exec->base = exec->offload.base = exec->reduction.base = base;
  for (size_t i = 0; i < plan->program_count; i++) resolve(exec, &plan->program[i]);
  if (!brim_exec_is_asynchronous(exec)) return BRIM_OK;
  const brim_status status = warm_up(exec);
  return status == BRIM_OK ? BRIM_OK : brim_fail_add(status, "during the first run of the programs, on zeros");
}

static brim_exec *make_exec(const brim_plan *plan)
{
  brim_exec *exec = brim_xcalloc(1, sizeof *exec);
  exec->plan = plan;
  exec->reduction.plan = plan;
  exec->backend = plan->request.backend;
  exec->self = plan->request.backend_self;
  return exec;
}

/* [init] A federation's lanes come after the server's memory. */
static brim_status open_lanes(brim_exec *exec)
{
  const brim_plan *plan = exec->plan;
  if (plan->request.lanes == 0) return BRIM_OK;
  exec->lane = BRIM_ARENA_NEW(&exec->host, brim_exec *, plan->lane_count);
  for (int32_t i = 0; i < plan->lane_count; i++) {
    brim_exec *lane = exec->lane[i] = make_exec(plan->lane[i]);
    lane->server_base = exec->base;
    uint8_t *base = exec->base + plan->persistent_bytes + (uint64_t)i * plan->lane_bytes;
    BRIM_TRY(realize(lane));
    if (lane->self != exec->self && brim_exec_is_asynchronous(lane))
      BRIM_TRY(lane->backend->open_feed(lane->self, base, plan->lane[i]->feed_bytes));
    BRIM_TRY(open_programs(lane, base));
  }
  return BRIM_OK;
}

static brim_status open_exec(brim_exec *exec, int device)
{
  const brim_plan *plan = exec->plan;
  brim_device_info info;
  void *base = NULL;
  BRIM_TRY(exec->backend->describe(exec->self, device, &info));
  exec->on_host = info.on_host;
  BRIM_TRY(realize(exec));
  BRIM_TRY(brim_offload_open(&exec->offload, plan));
  if (brim_fault_hit(BRIM_FAULT_PLACE, NULL))
    return brim_fail(BRIM_ENOMEM_DEVICE,
                     "the device cannot allocate %llu bytes (injected by " BRIM_FAULT_ENVIRONMENT ")",
                     (unsigned long long)plan->peak_bytes);
  BRIM_TRY(exec->backend->place(exec->self, device, plan->peak_bytes, &base));
  exec->base = base;
  if (brim_exec_is_asynchronous(exec)) BRIM_TRY(exec->backend->open_feed(exec->self, base, plan->feed_bytes));
  BRIM_TRY(open_programs(exec, base));
  BRIM_TRY(open_lanes(exec));
  if (exec->offload.state) memset(exec->offload.state, 0, plan->host_bytes);
  return exec->backend->zero(exec->self, exec->base, plan->persistent_bytes);
}

void brim_exec_join(brim_exec *exec, brim_dist *dist)
{
  brim_reduction_join(&exec->reduction, dist, brim_exec_is_asynchronous(exec));
}

brim_status brim_exec_open(const brim_plan *plan, int device, brim_exec **out)
{
  brim_exec *exec = make_exec(plan);
  const brim_status status = open_exec(exec, device);
  if (status != BRIM_OK) {
    brim_exec_close(exec);
    return status;
  }
  *out = exec;
  return BRIM_OK;
}

void brim_exec_close(brim_exec *exec)
{
  if (!exec) return;
  for (int32_t i = 0; exec->lane && i < exec->plan->lane_count; i++) brim_exec_close(exec->lane[i]);
  for (size_t i = 0; i < exec->plan->program_count; i++)
    for (size_t k = 0; k < exec->program[i].piece_count; k++)
      for (int is_first = 0; is_first < 2; is_first++) {
        void *record = exec->program[i].piece[k].record[is_first];
        if (record) exec->backend->drop_record(exec->self, record);
      }
  if (exec->base && !exec->server_base) exec->backend->unplace(exec->self, exec->base, exec->plan->peak_bytes);
  brim_offload_close(&exec->offload);
  brim_arena_release(&exec->host);
  free(exec);
}

brim_exec *brim_exec_lane(const brim_exec *exec, int32_t lane)
{
  assert(exec->lane && lane < exec->plan->lane_count);
  return exec->lane[lane];
}

const brim_plan *brim_exec_plan(const brim_exec *exec)
{
  return exec->plan;
}

uint64_t brim_exec_bytes(const brim_exec *exec)
{
  return exec->base ? exec->plan->peak_bytes : 0;
}

uint64_t brim_exec_table_bytes(const brim_plan *plan)
{
  uint64_t bytes = 0;
  for (size_t i = 0; i < plan->program_count; i++) {
    bytes += count_pieces(&plan->program[i]) * sizeof(brim_exec_piece);
    for (size_t k = 0; k < plan->program[i].graph->node_count; k++) {
      const brim_node *n = plan->program[i].graph->node[k];
      bytes += sizeof(brim_launch) + (n->in_count + n->out_count) * sizeof(void *);
    }
  }
  for (int32_t i = 0; i < plan->lane_count && plan->request.lanes > 0; i++)
    bytes += brim_exec_table_bytes(plan->lane[i]);
  return bytes;
}

static brim_status feed(brim_exec *exec, const brim_copy *copy, size_t count)
{
  uint64_t *ticket = &exec->feed_ticket[exec->fed++ % BRIM_FEEDS];
  BRIM_TRY(brim_reduction_finish_to(&exec->reduction, *ticket));
  *ticket = exec->reduction.ticket;
  for (size_t i = 0; i < count; i++) BRIM_TRY(brim_offload_begin_use(&exec->offload, copy[i].to, copy[i].bytes));
  BRIM_TRY(exec->backend->feed(exec->self, copy, count));
  for (size_t i = 0; i < count; i++) BRIM_TRY(brim_offload_end_use(&exec->offload, copy[i].to, copy[i].bytes));
  return BRIM_OK;
}

static brim_status upload(brim_exec *exec, const brim_copy *copy, size_t count)
{
  for (size_t i = 0; i < count; i++)
    BRIM_TRY(exec->backend->upload(exec->self, copy[i].to, copy[i].from, copy[i].bytes));
  return BRIM_OK;
}

static brim_status load(brim_exec *exec, const brim_copy *copy, size_t count)
{
  static const char *const name = "copy micro-batch in";
  const bool asynchronous = brim_exec_is_asynchronous(exec);
  const int64_t began = brim_tracing_begin(name);
  const brim_status status = asynchronous ? feed(exec, copy, count) : upload(exec, copy, count);
  brim_tracing_end(began, asynchronous ? BRIM_TRACING_PHASE : BRIM_TRACING_IN, name,
                   asynchronous ? 0 : copy[0].bytes + copy[1].bytes);
  return status;
}

brim_status brim_exec_load(brim_exec *exec, const brim_program *program, const void *values, const void *labels)
{
  const brim_graph *g = program->graph;
  const brim_copy copy[] = {{brim_exec_pointer(exec, program, g->input), values, g->input->bytes},
                            {brim_exec_pointer(exec, program, g->label), labels, g->label->bytes}};
  return load(exec, copy, 2);
}

brim_status brim_exec_load_tokens(brim_exec *exec, const brim_program *program, const int32_t *tokens,
                                  const int32_t *places)
{
  const brim_graph *g = program->graph;
  const brim_copy copy[] = {{brim_exec_pointer(exec, program, g->input), tokens, g->input->bytes},
                            {brim_exec_pointer(exec, program, g->places), places, g->places->bytes}};
  return load(exec, copy, 2);
}

static brim_status run_node(brim_exec *exec, const brim_program *p, size_t node, const brim_step *step)
{
  brim_launch launch = exec->program[index_of(exec, p)].launch[node];
  launch.step = step;
  BRIM_TRY(brim_offload_begin_node(&exec->offload, p, launch.node));
  const brim_status status = p->kernel[node]->run(exec->self, &launch);
  if (status != BRIM_OK) return brim_fail_add(status, "in %s '%s'", launch.node->op, launch.node->name);
  return brim_offload_end_node(&exec->offload, p, launch.node);
}

static brim_status run_traced(brim_exec *exec, const brim_program *p, size_t node, const brim_step *step)
{
  const int64_t began = brim_tracing_begin(p->graph->node[node]->op);
  const brim_status status = run_node(exec, p, node, step);
  brim_tracing_end(began, BRIM_TRACING_NODE, p, node);
  return status;
}

brim_status brim_exec_run_node(brim_exec *exec, const brim_program *p, size_t node, const brim_step *step)
{
  BRIM_TRY(brim_exec_settle_gradients(exec));
  exec->casted = false;
  return run_traced(exec, p, node, step);
}

bool brim_exec_is_asynchronous(const brim_exec *exec)
{
  return BRIM_HAS(brim_backend_ops, exec->backend, run_program);
}

/* ---- running ---- */

const double *brim_exec_metrics_at(const brim_exec *exec)
{
  return (const double *)(exec->base + exec->plan->metrics_offset);
}

/* If the plan has no check, the proof is the sum of the losses, which is the first metric. */
const double *brim_exec_proof_at(const brim_exec *exec)
{
  return exec->plan->request.update.checked ? (const double *)(exec->base + exec->plan->proof_offset)
                                            : brim_exec_metrics_at(exec);
}

/* Casts that the plan keeps run only in a step's first micro-batch. */
static brim_status start_piece(brim_exec *exec, const brim_program *program, brim_exec_piece *c, const brim_step *step,
                               const double *proof)
{
  const size_t made = step->is_first_micro_batch ? 0 : program->kept_casts, from = c->from > made ? c->from : made;
  const brim_program_run run = {.launch = exec->program[index_of(exec, program)].launch + from,
                                .kernel = program->kernel + from,
                                .count = from < c->to ? c->to - from : 0,
                                .step = step,
                                .proof = proof,
                                .record = &c->record[step->is_first_micro_batch]};
  BRIM_TRY(brim_offload_begin(&exec->offload, program, &c->offload));
  if (run.count > 0) BRIM_TRY(exec->backend->run_program(exec->self, &run));
  return brim_offload_end(&exec->offload, program, &c->offload);
}

/* Starts the pieces of a program, which end where the ranks communicate. `sums`: also start a step's sums of
 * gradients. */
static brim_status start_pieces(brim_exec *exec, const brim_step *step, const double *proof, size_t half,
                                brim_reduction_walk *walk, bool sums)
{
  static const char *const started = "start operations:";
  const brim_program *program = walk->program;
  brim_placed_program *placed = &exec->program[index_of(exec, program)];
  size_t from, to;
  brim_exec_range(program, half, &from, &to);
  for (size_t i = 0; i < placed->piece_count; i++) {
    brim_exec_piece *c = &placed->piece[i];
    if (c->from < from || c->to > to) continue;
    BRIM_TRY(brim_reduction_before(&exec->reduction, walk, c->from));
    const int64_t began = brim_tracing_begin(started);
    const brim_status status = start_piece(exec, program, c, step, proof);
    brim_tracing_end(began, BRIM_TRACING_PHASE, started, c->to - c->from);
    BRIM_TRY(status);
    if (sums) BRIM_TRY(brim_reduction_after(&exec->reduction, program, c->to - 1));
  }
  return BRIM_OK;
}

/* Runs the nodes one by one. */
static brim_status run_nodes(brim_exec *exec, const brim_step *step, size_t half, brim_reduction_walk *walk, bool sums)
{
  size_t from, to;
  brim_exec_range(walk->program, half, &from, &to);
  for (size_t i = from; i < to; i++) {
    BRIM_TRY(brim_reduction_before(&exec->reduction, walk, i));
    BRIM_TRY(run_traced(exec, walk->program, i, step));
    if (sums) BRIM_TRY(brim_reduction_after(&exec->reduction, walk->program, i));
  }
  static const char *const waiting = "wait for the device";
  const int64_t began = brim_tracing_begin(waiting);
  const brim_status status = exec->backend->synchronize(exec->self);
  brim_tracing_end(began, BRIM_TRACING_PHASE, waiting, 0);
  return status;
}

/* For a rank without a micro-batch, whose sums are zero: runs only the nodes that other ranks need. */
static brim_status run_needed(brim_exec *exec, const brim_step *step, brim_reduction_walk *walk)
{
  const brim_graph *g = walk->program->graph;
  for (size_t i = 0; i < g->node_count; i++) {
    BRIM_TRY(brim_reduction_before(&exec->reduction, walk, i));
    if (brim_collectives_need(g, g->node[i])) BRIM_TRY(brim_exec_run_node(exec, walk->program, i, step));
  }
  return brim_exec_is_asynchronous(exec) ? BRIM_OK : exec->backend->synchronize(exec->self);
}

/* Ends a program's walk. Even if nodes failed, starts the remaining collectives, because all ranks must start the same
 * ones. */
static brim_status end_walk(brim_exec *exec, brim_reduction_walk *walk, brim_status status)
{
  brim_error error;
  if (status == BRIM_OK) return brim_reduction_before(&exec->reduction, walk, walk->program->graph->node_count);
  brim_error_take(&error);
  if (status != BRIM_ECOMM) BRIM_TRY(brim_reduction_before(&exec->reduction, walk, walk->program->graph->node_count));
  brim_error_put(&error);
  return status;
}

/* Makes the casts that a program keeps, unless its run makes them or their memory already has them. A run of any other
 * program may overwrite that memory. */
static brim_status make_casts(brim_exec *exec, const brim_program *program, const brim_step *step)
{
  const bool has = exec->casted || step->is_first_micro_batch;
  for (size_t i = 0; !has && i < program->kept_casts; i++) BRIM_TRY(run_node(exec, program, i, step));
  exec->casted = program->kept_casts > 0;
  return BRIM_OK;
}

/* Whether a run is a micro-batch, or its first half. */
static bool is_micro_batch(const brim_program *program, enum brim_exec_part part)
{
  return program->kind == BRIM_PROGRAM_TRAIN && (part == BRIM_EXEC_WHOLE || part == BRIM_EXEC_FORWARD);
}

brim_status brim_exec_run(brim_exec *exec, const brim_program *program, const brim_step *step,
                          const brim_exec_options *options)
{
  const brim_exec_options o = options ? *options : (brim_exec_options){0};
  brim_step first_step;
  if (exec->before_first && is_micro_batch(program, o.part)) {
    exec->before_first = false;
    first_step = *step;
    first_step.is_first_micro_batch = 1;
    step = &first_step;
  } else if (o.part != BRIM_EXEC_COLLECTIVES) {
    BRIM_TRY(brim_exec_settle_gradients(exec));
  }
  if (o.part != BRIM_EXEC_COLLECTIVES && o.part != BRIM_EXEC_NEEDED) BRIM_TRY(make_casts(exec, program, step));
  const bool asynchronous = brim_exec_is_asynchronous(exec);
  const size_t first = o.part == BRIM_EXEC_BACKWARD,
               end = o.part == BRIM_EXEC_FORWARD ? 1 : brim_launches_halves(program);
  const double *proof = !o.proved ? NULL : first ? brim_exec_metrics_at(exec) : brim_exec_proof_at(exec);
  brim_reduction_walk walk = {.program = program};
  assert(asynchronous || !proof);
  if (o.part == BRIM_EXEC_COLLECTIVES) return end_walk(exec, &walk, BRIM_OK);
  if (o.part == BRIM_EXEC_NEEDED)
    return exec->reduction.dist ? end_walk(exec, &walk, run_needed(exec, step, &walk)) : BRIM_OK;
  for (size_t half = first; half < end; half++) {
    walk = (brim_reduction_walk){.program = program};
    BRIM_TRY(end_walk(exec, &walk,
                      asynchronous ? start_pieces(exec, step, proof, half, &walk, o.sums)
                                   : run_nodes(exec, step, half, &walk, o.sums)));
  }
  return BRIM_OK;
}

brim_status brim_exec_zero(brim_exec *exec, const brim_program *program, const brim_tensor *tensor)
{
  return zero(exec, brim_exec_pointer(exec, program, tensor), tensor->bytes);
}

static brim_status zero_gradients(brim_exec *exec, const brim_range *range, size_t count, uint64_t bytes)
{
  static const char *const name = "zero gradients";
  const int64_t began = brim_tracing_begin(name);
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < count && status == BRIM_OK; i++)
    status = exec->backend->zero(exec->self, exec->base + range[i].offset, range[i].bytes);
  brim_tracing_end(began, BRIM_TRACING_WORK, name, bytes);
  return status;
}

brim_status brim_exec_zero_gradients(brim_exec *exec)
{
  const brim_plan *plan = exec->plan;
  brim_reduction_begin(&exec->reduction); /* the previous step's collectives are over */
  exec->before_first = first_differs(exec);
  exec->casted = false; /* the parameters may have changed */
  return zero_gradients(exec, plan->zeroed, plan->zeroed_count, plan->zeroed_bytes);
}

brim_status brim_exec_settle_gradients(brim_exec *exec)
{
  const brim_range all = {exec->plan->gradient_offset, exec->plan->gradient_bytes};
  if (!exec->before_first) return BRIM_OK;
  exec->before_first = false;
  return zero_gradients(exec, &all, 1, all.bytes);
}

brim_status brim_exec_zero_metrics(brim_exec *exec)
{
  return exec->backend->zero(exec->self, exec->base + exec->plan->metrics_offset, exec->plan->metrics_bytes);
}

brim_status brim_exec_zero_states(brim_exec *exec)
{
  const brim_plan *plan = exec->plan;
  return exec->backend->zero(exec->self, exec->base + plan->optimizer_offset,
                             plan->metrics_offset - plan->optimizer_offset);
}
