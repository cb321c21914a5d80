/* Operations of a trace: their texts, predictions and measured times, and the other parts of a step. See
 * trace_parts.h. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "exec/ceiling.h"
#include "graph/signature.h"
#include "planner/figures.h"
#include "train/trace_parts.h"

#define SHAPE_BYTES 300 /* limit for the text of the types and shapes of a node's tensors in the file */

/* ---- programs ---- */

const char *brim_trace_phase_of(const brim_program *p, const brim_node *n)
{
  switch (p->kind) {
  case BRIM_PROGRAM_TRAIN:
    return n->index < p->graph->forward_count ? "forward" : "backward";
  case BRIM_PROGRAM_EVALUATE:
    return "evaluation";
  case BRIM_PROGRAM_GENERATE:
    return "generation";
  case BRIM_PROGRAM_CHECK:
    return "check";
  case BRIM_PROGRAM_UPDATE:
    return "update";
  default:
    return "client";
  }
}

static void add_tensors(brim_text *out, brim_tensor *const *t, uint32_t count)
{
  char shape[96];
  for (uint32_t i = 0; i < count && out->length < SHAPE_BYTES; i++)
    brim_text_printf(out, "%s%s%s", out->length > 0 ? " " : "", brim_dtype_name(t[i]->dtype),
                     brim_shape_format(shape, sizeof shape, &t[i]->shape));
  if (out->length >= SHAPE_BYTES) brim_text_add(out, " ...");
}

static char *keep_string(brim_trace_writer *w, const char *s)
{
  brim_text text = {0};
  brim_trace_add_string(&text, s);
  char *kept = brim_arena_string(&w->arena, brim_text_str(&text));
  brim_text_release(&text);
  return kept;
}

static void describe_node(brim_trace_writer *w, const brim_trace_program *row, const brim_node *n,
                          const brim_ceiling *ceiling)
{
  brim_trace_node *to = &row->node[n->index];
  brim_planner *planner = w->about.planner;
  brim_prediction time = {0};
  brim_text text = {0};
  if (strcmp(n->op, n->name) == 0)
    brim_text_add(&text, n->op);
  else
    brim_text_printf(&text, "%s '%s'", n->op, n->name);
  to->label = keep_string(w, brim_text_str(&text));
  brim_text_clear(&text);
  add_tensors(&text, n->in, n->in_count);
  brim_text_add(&text, " >");
  add_tensors(&text, n->out, n->out_count);
  to->shape = keep_string(w, brim_text_str(&text));
  brim_text_clear(&text);
  if (planner->profile) {
    const brim_rates rates = brim_rates_of(&planner->device_info);
    brim_signature_print(row->program, n, &text);
    brim_predict_other(planner->profile, brim_text_str(&text), row->program->info.batch,
                       brim_rates_seconds(&rates, brim_op_cost(n)), 1, &time);
    to->least = brim_ceiling_seconds(ceiling, brim_op_cost(n));
  }
  to->predicted = time.seconds;
  to->guessed = time.guessed_seconds > 0;
  brim_text_release(&text);
}

void brim_trace_live_bytes(const brim_plan *plan, const brim_program *p, uint64_t *live)
{
  const size_t nodes = p->graph->node_count;
  for (size_t i = 0; i < nodes; i++) live[i] = plan->persistent_bytes;
  for (size_t b = 0; b < p->buffer_count; b++) {
    const brim_buffer *of = &p->buffer[b];
    const size_t from = of->first < 0 ? 0 : (size_t)of->first;
    for (size_t i = from; i < nodes && (int64_t)i <= of->last; i++) live[i] += of->bytes;
  }
  if (p->live_node >= 0 && (size_t)p->live_node < nodes)
    live[p->live_node] = plan->persistent_bytes + p->transient_bytes; /* includes the gaps between buffers, if any */
}

/* Returns the plan, `plan` or one of its lanes, that has the program; NULL if none has. */
static const brim_plan *plan_of(const brim_plan *plan, const brim_program *p)
{
  const uintptr_t at = (uintptr_t)p, from = (uintptr_t)plan->program;
  if (at >= from && at < from + plan->program_count * sizeof *p) return plan;
  for (int32_t i = 0; i < plan->lane_count; i++) {
    const brim_plan *found = plan_of(plan->lane[i], p);
    if (found) return found;
  }
  return NULL;
}

/* Returns the program to which this node belongs; NULL if there is none. */
static const brim_program *program_of(const brim_plan *plan, const brim_node *n)
{
  for (size_t i = 0; i < plan->program_count; i++) {
    const brim_graph *g = plan->program[i].graph;
    if (n->index < g->node_count && g->node[n->index] == n) return &plan->program[i];
  }
  for (int32_t i = 0; i < plan->lane_count; i++) {
    const brim_program *found = program_of(plan->lane[i], n);
    if (found) return found;
  }
  return NULL;
}

brim_tracing_event brim_trace_event_of(const brim_plan *plan, const brim_device_work *w)
{
  static const char *const names[BRIM_QUEUES] = {"move", "copy in", "copy out", "communicate"};
  brim_tracing_event e = {.begin = (int64_t)(w->begin * 1e9), .end = (int64_t)(w->end * 1e9)};
  if (w->node) {
    const brim_program *p = program_of(plan, w->node);
    e.kind = p ? BRIM_TRACING_NODE : 0;
    e.of = p;
    e.value = w->node->index;
    return e;
  }
  const uint32_t queue = w->queue < BRIM_QUEUES ? w->queue : BRIM_QUEUE_COMPUTE;
  e.kind = queue == BRIM_QUEUE_IN ? BRIM_TRACING_IN : queue == BRIM_QUEUE_OUT ? BRIM_TRACING_OUT : BRIM_TRACING_WORK;
  e.of = names[queue];
  e.value = w->bytes;
  return e;
}

brim_trace_program *brim_trace_find_program(brim_trace_writer *w, const brim_plan *all, const brim_program *p)
{
  for (size_t i = 0; i < w->program_count; i++)
    if (w->program[i].program == p) return &w->program[i];
  const brim_plan *plan = plan_of(all, p);
  if (!plan) return NULL;
  if (w->program_count == w->program_room) {
    const size_t room = 2 * w->program_room + 8;
    brim_trace_program *more = brim_try_realloc(w->program, room * sizeof *more);
    if (!more) return NULL;
    w->program = more;
    w->program_room = room;
  }
  brim_trace_program *row = &w->program[w->program_count++];
  const size_t nodes = p->graph->node_count;
  *row = (brim_trace_program){.program = p,
                              .plan = plan,
                              .node = BRIM_ARENA_NEW(&w->arena, brim_trace_node, nodes),
                              .live = BRIM_ARENA_NEW(&w->arena, uint64_t, nodes)};
  brim_ceiling ceiling = {0};
  if (w->about.planner->profile) ceiling = brim_ceiling_find(w->about.planner->profile, &plan->request);
  for (size_t i = 0; i < nodes; i++) describe_node(w, row, p->graph->node[i], &ceiling);
  brim_trace_live_bytes(plan, p, row->live);
  return row;
}

/* ---- times ---- */

static brim_trace_phase *find_phase(brim_trace_writer *w, const char *name)
{
  for (size_t i = 0; i < w->phases; i++)
    if (strcmp(w->phase[i].name, name) == 0) return &w->phase[i];
  if (w->phases == BRIM_TRACE_PHASES_MAX) return NULL;
  w->phase[w->phases] = (brim_trace_phase){.name = name};
  return &w->phase[w->phases++];
}

/* The spans in a step have all ended before the step's own event. */
static void count_step(brim_trace_writer *w, const brim_tracing_event *e)
{
  w->step_nanoseconds += e->end - e->begin;
  w->steps++;
  for (size_t i = 0; i < w->leaves; i++) {
    const brim_trace_leaf *l = &w->leaf[i];
    if (l->begin < e->begin) continue; /* an evaluation or a checkpoint before the step */
    if (l->is_work) w->operation_nanoseconds += l->end - l->begin;
    brim_trace_phase *phase = l->name ? find_phase(w, l->name) : NULL;
    if (!phase) continue;
    phase->nanoseconds += l->end - l->begin;
    phase->runs++;
  }
  w->leaves = 0;
}

static void add_leaf(brim_trace_writer *w, const brim_tracing_event *e, bool is_work)
{
  if (w->leaves == w->leaf_room) {
    const size_t room = 2 * w->leaf_room + 256;
    brim_trace_leaf *more = brim_try_realloc(w->leaf, room * sizeof *more);
    if (!more) return; /* the figures then cover less */
    w->leaf = more;
    w->leaf_room = room;
  }
  w->leaf[w->leaves++] =
      (brim_trace_leaf){e->kind == BRIM_TRACING_NODE ? NULL : (const char *)e->of, e->begin, e->end, is_work};
}

/* If the device runs operations while the host continues, or lanes run them, only sums are known. */
static void count_apart(brim_trace_writer *w, const brim_tracing_event *e, bool is_work)
{
  const bool is_evaluation =
      e->kind == BRIM_TRACING_NODE && ((const brim_program *)e->of)->kind == BRIM_PROGRAM_EVALUATE;
  if (is_work && !is_evaluation) w->operation_nanoseconds += e->end - e->begin;
  if (e->kind != BRIM_TRACING_STEP) return;
  w->step_nanoseconds += e->end - e->begin;
  w->steps++;
}

void brim_trace_count(brim_trace_writer *w, const brim_tracing_event *e)
{
  const bool is_work = e->kind == BRIM_TRACING_NODE || e->kind == BRIM_TRACING_WORK || e->kind == BRIM_TRACING_IN ||
                       e->kind == BRIM_TRACING_OUT;
  const bool is_span = is_work || e->kind == BRIM_TRACING_PHASE || e->kind == BRIM_TRACING_LOADED;
  if (e->thread != BRIM_TRACING_MAIN) return;
  if (!w->about.adds_up) {
    count_apart(w, e, is_work);
    return;
  }
  if (e->kind == BRIM_TRACING_STEP) count_step(w, e);
  /* A span that began earlier contains other spans. */
  if (is_span && (is_work || e->begin >= w->last_end)) add_leaf(w, e, is_work);
  if (is_span || e->kind == BRIM_TRACING_STEP) w->last_end = e->end;
}

/* ---- the table ---- */

static json_t *row_of(const brim_trace_program *row, size_t node, double steps)
{
  const brim_trace_node *n = &row->node[node];
  const brim_node *of = row->program->graph->node[node];
  json_t *shape = json_loads(n->shape, JSON_DECODE_ANY, NULL), *name = json_string(of->name);
  if (!name) name = json_string("?"); /* not UTF-8 */
  const double runs = (double)n->runs / steps;
  return json_pack("{s:s, s:o, s:s, s:o, s:f, s:f, s:f, s:b, s:f}", "op", of->op, "name", name, "phase",
                   brim_trace_phase_of(row->program, of), "shape", shape ? shape : json_string(""), "runs", runs,
                   "seconds", (double)n->nanoseconds * 1e-9 / steps, "predicted_seconds", n->predicted * runs,
                   "guessed", n->guessed, "least_seconds", n->least * runs);
}

static bool is_same(const json_t *a, const json_t *b)
{
  static const char *const keys[] = {"op", "name", "phase", "shape"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
    if (!json_equal(json_object_get(a, keys[i]), json_object_get(b, keys[i]))) return false;
  return true;
}

/* Adds a row, or adds its figures to the row of the same operation: lanes of a federation have programs of their own,
 * and the plan may change between two steps. */
static void add_row(json_t *rows, json_t *row)
{
  static const char *const sums[] = {"runs", "seconds", "predicted_seconds", "least_seconds"};
  size_t i;
  json_t *old;
  json_array_foreach(rows, i, old)
  {
    if (!is_same(old, row)) continue;
    for (size_t k = 0; k < sizeof sums / sizeof sums[0]; k++)
      json_object_set_new(old, sums[k],
                          json_real(json_number_value(json_object_get(old, sums[k])) +
                                    json_number_value(json_object_get(row, sums[k]))));
    json_decref(row);
    return;
  }
  json_array_append_new(rows, row);
}

void brim_trace_keep_rows(brim_trace_writer *w)
{
  const double steps = (double)(w->about.end - w->about.first);
  if (!w->rows) w->rows = json_array();
  for (size_t p = 0; p < w->program_count; p++)
    for (size_t i = 0; i < w->program[p].program->graph->node_count; i++)
      if (w->program[p].node[i].runs > 0) add_row(w->rows, row_of(&w->program[p], i, steps));
  w->program_count = 0;
}

static int by_seconds(const void *a, const void *b)
{
  const double x = json_number_value(json_object_get(*(json_t *const *)a, "seconds"));
  const double y = json_number_value(json_object_get(*(json_t *const *)b, "seconds"));
  return (x < y) - (x > y);
}

static json_t *sorted_rows(const brim_trace_writer *w)
{
  const size_t count = json_array_size(w->rows);
  json_t **row = brim_try_calloc(count + 1, sizeof(json_t *)), *sorted = json_array();
  for (size_t i = 0; row && i < count; i++) row[i] = json_array_get(w->rows, i);
  if (row) qsort(row, count, sizeof *row, by_seconds);
  for (size_t i = 0; row && i < count; i++) json_array_append(sorted, row[i]);
  free(row);
  return sorted;
}

/* Returns the phases only if the host runs the operations itself: then operations and phases add up to the step. */
static json_t *phases_json(const brim_trace_writer *w, double steps)
{
  json_t *out = json_array();
  for (size_t i = 0; i < w->phases; i++)
    json_array_append_new(out, json_pack("{s:s, s:f, s:f}", "name", w->phase[i].name, "runs",
                                         (double)w->phase[i].runs / steps, "seconds",
                                         (double)w->phase[i].nanoseconds * 1e-9 / steps));
  return out;
}

json_t *brim_trace_writer_table(const brim_trace_writer *w, const char *trace)
{
  const brim_planner *p = w->about.planner;
  const double steps = w->steps > 0 ? (double)w->steps : 1;
  const double covered = w->step_nanoseconds > 0 ? (double)w->operation_nanoseconds / (double)w->step_nanoseconds : 0;
  json_t *out = json_pack("{s:i, s:[I, I], s:i, s:s, s:s, s:s, s:s, s:f, s:f, s:o}", "brim_operations", 1, "steps",
                          (json_int_t)w->about.first, (json_int_t)w->about.end - 1, "ranks", (int)w->about.ranks,
                          "backend", brim_config_choice_of(p->setup->config, "backend")->plugin->id, "device",
                          p->device_info.name, "measured_by", w->about.how, "trace", trace, "step_seconds",
                          (double)w->step_nanoseconds * 1e-9 / steps, "covered", covered, "operations", sorted_rows(w));
  if (w->about.adds_up) json_object_set_new(out, "host", phases_json(w, steps));
  return out;
}
