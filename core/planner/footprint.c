/* See footprint.h. */
#include "planner/footprint.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "exec/exec.h"
#include "graph/federate.h"
#include "observe/histogram.h"
#include "planner/updates.h"
#include "store/checkpoint.h"

/* Pages that each loader thread touches: descriptor, thread-local variables, end of the stack. */
#define THREAD_PAGES 3

static uint64_t larger(uint64_t a, uint64_t b)
{
  return a > b ? a : b;
}

static uint64_t page_bytes(void)
{
  return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Memory that kernels allocate when they are realized. */
static uint64_t realized_bytes(const brim_plan *plan)
{
  uint64_t bytes = 0;
  for (int32_t i = 0; i < plan->lane_count && plan->request.lanes > 0; i++) bytes += realized_bytes(plan->lane[i]);
  for (size_t i = 0; i < plan->program_count; i++)
    for (size_t k = 0; k < plan->program[i].graph->node_count; k++) bytes += plan->program[i].need[k].host_bytes;
  return bytes;
}

static uint64_t kernel_bytes(const brim_plan *plan)
{
  return brim_exec_table_bytes(plan) + realized_bytes(plan);
}

static const brim_dataset_info *info_of(const brim_data *data, enum brim_part part)
{
  if (part == BRIM_PART_TEST) return &data->test;
  return part == BRIM_PART_VALIDATION && data->validation.count > 0 ? &data->validation : &data->train;
}

static uint64_t loader_bytes(const brim_loader_options *options)
{
  const uint64_t threads = (uint64_t)options->threads, readers = threads > 0 ? threads : 1;
  return brim_loader_bytes(options) + threads * THREAD_PAGES * page_bytes() +
         readers * info_of(options->data, options->part)->decoding_bytes;
}

/* The memory for reading samples in training: a loader's, or the buffers into which a federation's lanes read
 * samples. */
static uint64_t reading_bytes(const brim_setup *s, int64_t batch, int32_t lanes)
{
  if (brim_setup_is_federated(s)) return (uint64_t)lanes * brim_setup_client_bytes(s, batch);
  const brim_loader_options train = brim_setup_train_loader(s, batch);
  return loader_bytes(&train);
}

/* Bytes of the index of client states, whose file is on disk; of each lane's buffers for them; and of the server's
 * controls. */
static uint64_t clients_bytes(const brim_setup *s, int32_t lanes)
{
  if (brim_setup_kept_bytes(s) == 0) return 0;
  const brim_states_layout layout = brim_setup_states_layout(s);
  return brim_states_host_bytes(&layout) + (uint64_t)lanes * s->kept_scratch_bytes + s->control_bytes;
}

/* Bytes of twice the largest parameter in each lane, for the client's and the global model's values
 * (federate/client.c), plus the memory of an aggregator that gets all updates of a round. */
static uint64_t updates_bytes(const brim_setup *s, const brim_plan *plan)
{
  if (plan->lane_count == 0 || !brim_setup_reads_updates(s)) return 0;
  const brim_graph *g = brim_plan_program(plan->lane[0], BRIM_PROGRAM_ADOPT, 0)->graph;
  const uint64_t largest = (uint64_t)brim_graph_largest(g, false) * brim_dtype_bytes(s->backend_ops->real);
  return 2 * (uint64_t)plan->lane_count * largest + brim_updates_plan_of(s, plan).host_bytes;
}

/* Bytes in each lane of a federation with which it compresses its clients' updates. */
static uint64_t compressing_bytes(const brim_setup *s, const brim_plan *plan)
{
  if (plan->lane_count == 0) return 0;
  const brim_graph *g = brim_plan_program(plan->lane[0], BRIM_PROGRAM_FOLD, 0)->graph;
  return (uint64_t)plan->lane_count * brim_setup_compressing_bytes(s, brim_graph_largest(g, true));
}

/* With federate.edge_rounds: bytes of the global model while edges train, and of their sum; see
 * federate/round_edges.c. */
static uint64_t edges_bytes(const brim_setup *s, const brim_graph *g)
{
  const brim_federate_settings *f = &s->settings->federate;
  const uint64_t values = (uint64_t)brim_graph_sent(g, true), largest = (uint64_t)brim_graph_largest(g, true),
                 of_edge = sizeof(double) + sizeof(int32_t), of_value = brim_dtype_bytes(g->real) + sizeof(double);
  if (f->edge_rounds == 1 || !f->train) return 0;
  return values * of_value + 3 * largest * sizeof(double) + (uint64_t)f->edges * of_edge;
}

/* With federate.async: bytes for clients that are in flight. */
static uint64_t versions_bytes(const brim_setup *s, const brim_plan *plan)
{
  if (plan->lane_count == 0) return 0;
  const brim_graph *g = brim_plan_program(plan->lane[0], BRIM_PROGRAM_ADOPT, 0)->graph;
  return edges_bytes(s, g) + (uint64_t)(brim_setup_versions(s) * brim_graph_sent(g, false)) * brim_dtype_bytes(g->real);
}

static uint64_t noise_bytes(const brim_setup *s, const brim_plan *plan)
{
  const brim_program *serve = brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0);
  if (!serve || !brim_setup_is_federated(s) || !brim_privacy_has_noise(s->settings) || !s->settings->federate.train)
    return 0;
  return (uint64_t)brim_graph_largest(serve->graph, true) * sizeof(double);
}

static uint64_t evaluation_bytes(const brim_setup *p, int64_t batch)
{
  uint64_t bytes = 0;
  for (int part = BRIM_PART_VALIDATION; part <= BRIM_PART_TEST; part++) {
    if (p->data.count[part] == 0) continue;
    const brim_loader_options options = brim_setup_part_loader(p, (enum brim_part)part, batch);
    bytes = larger(bytes, loader_bytes(&options));
  }
  return bytes;
}

/* Bytes for histograms (train/histograms.h): the sampled values of all tensors before a step, which the first rank
 * keeps, and those of one tensor. Bytes for worst answers (train/samples.h): the answers of a micro-batch, or the
 * losses of its tokens. */
static uint64_t insight_bytes(const brim_planner *p, const brim_plan *plan)
{
  const brim_observe_settings *o = &p->setup->settings->observe;
  const brim_program *evaluate = brim_plan_program(plan, BRIM_PROGRAM_EVALUATE, 0);
  const brim_graph *update = brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0)->graph;
  uint64_t bytes = evaluate && evaluate->graph->kept && o->samples > 0 ? evaluate->graph->kept->bytes : 0;
  if (evaluate && evaluate->graph->kept_answers) /* adds the memory for one token's answers */
    bytes += (uint64_t)p->setup->data.train.classes * brim_dtype_bytes(evaluate->graph->kept_answers->dtype);
  if (!o->histograms) return bytes;
  bytes += BRIM_HISTOGRAM_VALUES_MAX * (sizeof(float) + sizeof(double)) + 2 * sizeof(brim_histogram);
  for (size_t i = 0; p->setup->world.rank == 0 && i < update->parameter_count; i++) {
    const uint64_t values = (uint64_t)brim_shape_count(&update->parameter[i].value->shape);
    if (!brim_parameter_is_trained(&update->parameter[i])) continue;
    bytes += sizeof(float) * (values < BRIM_HISTOGRAM_VALUES_MAX ? values : BRIM_HISTOGRAM_VALUES_MAX);
  }
  return bytes;
}

int64_t brim_footprint_cells(const brim_setup *p)
{
  const brim_dataset_info *info = &p->data.train;
  return info->task == BRIM_TASK_CLASS && info->classes < BRIM_MANY_CLASSES ? info->classes * info->classes : 0;
}

/* Bytes that are allocated for the first evaluation, and kept. */
static uint64_t score_bytes(const brim_planner *p)
{
  const bool tests = p->setup->data.count[BRIM_PART_TEST] > 0,
             validates = p->setup->data.count[BRIM_PART_VALIDATION] > 0;
  const uint64_t matrix = (uint64_t)brim_footprint_cells(p->setup) * sizeof(double);
  return tests ? 2 * matrix : validates ? matrix : 0;
}

static uint64_t mapped_bytes(const brim_planner *p)
{
  const brim_data *d = &p->setup->data;
  const uint64_t mapped = d->train.mapped_bytes + d->validation.mapped_bytes + d->test.mapped_bytes;
  return mapped < p->data_bytes ? mapped : p->data_bytes;
}

/* Bytes of the matrix and of each class's figures as JSON. A jansson value takes a block of 32 bytes, and a pointer in
 * an array whose size doubles; its line is in memory twice as text (store/record.c). A class is an object of five
 * values. */
static uint64_t summary_bytes(const brim_planner *p)
{
  enum { CELL_BYTES = 72, CLASS_BYTES = 1536 };
  const uint64_t cells = (uint64_t)brim_footprint_cells(p->setup), classes = (uint64_t)p->setup->data.train.classes;
  if (p->setup->data.count[BRIM_PART_TEST] == 0 || cells == 0) return 0;
  return classes * CLASS_BYTES + (classes > BRIM_MATRIX_CLASSES_MAX ? 0 : cells * CELL_BYTES);
}

static uint64_t piece_of(uint64_t bytes)
{
  return bytes < BRIM_CHECKPOINT_PIECE_BYTES ? bytes : BRIM_CHECKPOINT_PIECE_BYTES;
}

/* Adds the largest piece of a checkpoint's tensors that is copied at a time. Values in a host's arena are not copied,
 * except offloaded states. A resume also has a piece of the file in memory. A federation's file also has its clients'
 * tensors, which are not copied in pieces. */
static void add_pieces(brim_footprint *f, const brim_planner *p, const brim_plan *plan)
{
  const brim_graph *update = brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0)->graph;
  uint64_t value = 0, state = 0;
  for (size_t i = 0; i < update->parameter_count; i++)
    if (!update->parameter[i].is_frozen) value = larger(value, update->parameter[i].value->bytes);
  for (size_t i = 0; i < update->state_count; i++) state = larger(state, update->state[i].tensor->bytes);
  const uint64_t largest = larger(value, state);
  f->piece_bytes = piece_of(!p->device_info.on_host ? largest : update->offloads ? state : 0);
  f->resume_bytes = f->piece_bytes + piece_of(larger(largest, f->clients_bytes + f->versions_bytes));
}

/* Bytes outside the arena while a frozen weight is placed; see setup/setup_weights.c. A host's arena takes values in
 * the type of computation without a copy; those of another type than single precision have one for their hash. */
static uint64_t placing_bytes(const brim_planner *p, const brim_graph *g, const brim_tensor *t)
{
  const uint64_t count = (uint64_t)brim_shape_count(&t->shape), wide = count * brim_dtype_bytes(g->real);
  if (!p->device_info.on_host || t->dtype != g->real) return wide + (t->dtype == g->real ? 0 : t->bytes);
  return g->real == BRIM_DTYPE_F32 ? 0 : count * sizeof(float);
}

/* The largest placing_bytes() of all frozen weights. */
static uint64_t frozen_bytes(const brim_planner *p, const brim_plan *plan)
{
  const brim_graph *g = plan->program[0].graph;
  uint64_t bytes = 0;
  for (size_t i = 0; i < g->parameter_count; i++)
    if (g->parameter[i].is_frozen) bytes = larger(bytes, placing_bytes(p, g, g->parameter[i].value));
  return bytes;
}

/* The bytes that stay allocated from the first step on, without training's loader. */
static uint64_t kept_bytes(const brim_footprint *f)
{
  return f->process_bytes + f->arena_bytes + f->state_bytes + f->kernel_bytes + f->compressing_bytes + f->data_bytes +
         f->clients_bytes + f->updates_bytes + f->versions_bytes + f->noise_bytes;
}

/* The largest of the temporary amounts, which are needed one after another. */
static uint64_t passing_bytes(const brim_footprint *f)
{
  return larger(larger(f->evaluation_bytes, f->piece_bytes), f->summary_bytes);
}

/* Temporary memory during training. */
static uint64_t running_bytes(const brim_footprint *f)
{
  return f->score_bytes + f->insight_bytes + f->loader_bytes + passing_bytes(f);
}

static uint64_t most_bytes(const brim_footprint *f)
{
  return kept_bytes(f) + larger(running_bytes(f), f->frozen_bytes);
}

static void add_up(brim_footprint *f)
{
  f->total_bytes = larger(f->total_bytes, most_bytes(f));
}

void brim_footprint_predict(const brim_planner *p, const brim_plan *plan, int64_t batch, brim_footprint *out)
{
  *out = (brim_footprint){.process_bytes = p->resident_bytes,
                          .arena_bytes = p->device_info.on_host ? plan->peak_bytes : 0,
                          .state_bytes = plan->host_bytes,
                          .kernel_bytes = kernel_bytes(plan),
                          .compressing_bytes = compressing_bytes(p->setup, plan),
                          .data_bytes = p->data_bytes,
                          .mapped_bytes = mapped_bytes(p),
                          .score_bytes = score_bytes(p),
                          .insight_bytes = insight_bytes(p, plan),
                          .loader_bytes = reading_bytes(p->setup, batch, plan->request.lanes),
                          .clients_bytes = clients_bytes(p->setup, plan->request.lanes),
                          .updates_bytes = updates_bytes(p->setup, plan),
                          .versions_bytes = versions_bytes(p->setup, plan),
                          .noise_bytes = noise_bytes(p->setup, plan),
                          .evaluation_bytes = evaluation_bytes(p->setup, batch),
                          .summary_bytes = summary_bytes(p),
                          .frozen_bytes = frozen_bytes(p, plan)};
  add_pieces(out, p, plan);
  out->total_bytes = brim_rss_peak_bytes(); /* the peak so far, from timing kernels */
  add_up(out);
}

void brim_footprint_follow_data(const brim_setup *p, const brim_choice *choice, brim_footprint *f)
{
  f->loader_bytes = reading_bytes(p, choice->micro_batch, choice->lanes);
  f->evaluation_bytes = evaluation_bytes(p, choice->micro_batch);
  add_up(f);
}

/* The memory that training with a plan needs. */
static uint64_t training_bytes(const brim_planner *p, const brim_plan *plan, int64_t batch)
{
  brim_footprint f;
  brim_footprint_predict(p, plan, batch, &f);
  return most_bytes(&f) - f.process_bytes - f.arena_bytes - f.mapped_bytes;
}

brim_status brim_planner_measure(brim_planner *p)
{
  if (p->model) return BRIM_OK;
  brim_touch_code();
  p->resident_bytes = brim_rss_bytes();
  return p->setup->data.opened ? BRIM_OK : brim_data_host_bytes(&p->setup->data, &p->data_bytes);
}

brim_status brim_planner_foresee(brim_planner *p, const brim_plan *plan, int64_t batch)
{
  if (p->has_begun || p->model) return BRIM_OK;
  BRIM_TRY(brim_planner_measure(p));
  p->besides_bytes = brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0)
                         ? training_bytes(p, plan, batch)
                         : kernel_bytes(plan) + p->data_bytes - mapped_bytes(p) + evaluation_bytes(p->setup, batch) +
                               frozen_bytes(p, plan);
  return BRIM_OK;
}

void brim_footprint_add_resume(brim_footprint *f)
{
  f->total_bytes = larger(f->total_bytes, kept_bytes(f) + f->resume_bytes);
}

/* The terms, in the order of the report. */
static const struct {
  const char *key, *text;
  size_t offset;
} terms[] = {
#define TERM(name, text)                                                                                               \
  {                                                                                                                    \
#name, text, offsetof(brim_footprint, name)                                                                        \
  }
    TERM(process_bytes, "program and libraries"),
    TERM(arena_bytes, "arena"),
    TERM(state_bytes, "optimizer's state"),
    TERM(kernel_bytes, "kernels"),
    TERM(compressing_bytes, "compression of updates"),
    TERM(data_bytes, "data"),
    TERM(clients_bytes, "clients' states"),
    TERM(updates_bytes, "clients' updates"),
    TERM(versions_bytes, "versions of the global model"),
    TERM(noise_bytes, "noise"),
    TERM(score_bytes, "confusion matrix"),
    TERM(insight_bytes, "histograms and worst answers"),
    TERM(loader_bytes, "micro-batches ahead"),
    TERM(evaluation_bytes, "micro-batches ahead, in an evaluation"),
    TERM(summary_bytes, "confusion matrix for the summary"),
    TERM(piece_bytes, "a piece of a checkpoint"),
    TERM(frozen_bytes, "largest frozen weight, while it is placed"),
#undef TERM
};
#define TERM_COUNT (sizeof terms / sizeof terms[0])

static uint64_t term_of(const brim_footprint *f, size_t i)
{
  uint64_t bytes;
  memcpy(&bytes, (const char *)f + terms[i].offset, sizeof bytes);
  return bytes;
}

/* Whether a term counts at the peak. The peak is the larger of two moments: the placing of the frozen weights, or the
 * run afterwards, with the loader, the counts of evaluations and the largest of evaluation, checkpoint and summary.
 * Other terms always count. */
static bool adds(const brim_footprint *f, size_t i)
{
  const size_t at = terms[i].offset;
  const bool running = running_bytes(f) >= f->frozen_bytes;
  const size_t passing = passing_bytes(f) == f->evaluation_bytes ? offsetof(brim_footprint, evaluation_bytes)
                         : passing_bytes(f) == f->piece_bytes    ? offsetof(brim_footprint, piece_bytes)
                                                                 : offsetof(brim_footprint, summary_bytes);
  const bool passes = at == offsetof(brim_footprint, evaluation_bytes) || at == offsetof(brim_footprint, piece_bytes) ||
                      at == offsetof(brim_footprint, summary_bytes);
  if (term_of(f, i) == 0) return false;
  if (at == offsetof(brim_footprint, frozen_bytes)) return !running;
  if (at == offsetof(brim_footprint, loader_bytes) || at == offsetof(brim_footprint, score_bytes) ||
      at == offsetof(brim_footprint, insight_bytes))
    return running;
  return !passes || (running && at == passing);
}

void brim_footprint_print(const brim_footprint *f, brim_text *out)
{
  char bytes[32];
  const char *before = ": ";
  brim_text_printf(out, "the process will take about %s of host memory",
                   brim_format_bytes(bytes, sizeof bytes, f->total_bytes));
  for (size_t i = 0; i < TERM_COUNT; i++) {
    if (!adds(f, i)) continue;
    brim_text_printf(out, "%s%s %s", before, brim_format_bytes(bytes, sizeof bytes, term_of(f, i)), terms[i].text);
    before = ", ";
  }
}

json_t *brim_footprint_json(const brim_footprint *f)
{
  json_t *o = json_object();
  for (size_t i = 0; i < TERM_COUNT; i++) json_object_set_new(o, terms[i].key, json_integer((json_int_t)term_of(f, i)));
  json_object_set_new(o, "resume_bytes", json_integer((json_int_t)f->resume_bytes));
  json_object_set_new(o, "total_bytes", json_integer((json_int_t)f->total_bytes));
  return o;
}
