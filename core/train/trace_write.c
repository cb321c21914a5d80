/* See trace_write.h. */
#include "train/trace_write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "exec/ceiling.h"
#include "graph/signature.h"
#include "planner/figures.h"
#include "store/rundir.h"

#define SHAPE_BYTES 300 /* of the types and shapes of a node's tensors in the file */
#define CHUNK ((size_t)64 << 10)

/* Tracks of a rank. */
enum { HOST = 1, OPERATIONS, COPIES_IN, COPIES_OUT, LOADERS = 100, LANES = 1000 };

/* A node of a program, with its texts and times. */
typedef struct node_row {
  char *label, *shape; /* JSON strings with their quotes */
  int64_t nanoseconds; /* measured, all runs */
  uint64_t runs;
  double predicted, least; /* seconds; least 0: unknown */
  bool guessed;            /* no time of this operation and shape was measured before */
} node_row;

typedef struct program_row {
  const brim_program *program;
  const brim_plan *plan;
  node_row *node;
  uint64_t *live;
} program_row;

struct brim_trace_writer {
  brim_trace_about about;
  z_stream stream;
  bool has_stream;
  uint8_t *out; /* compressed */
  size_t out_bytes, out_room;
  brim_text line;
  size_t lines;
  brim_arena arena;
  program_row *program;
  size_t program_count, program_room;
  json_t *rows; /* of programs of plans that are gone */
  uint64_t live_now;
  bool has_loader[256];
  bool has_lane[1024];
  int64_t step_nanoseconds, operation_nanoseconds; /* of traced steps; of operations and copies within them */
  int64_t steps;
  uint64_t sums;
};

/* ---- the compressed text ---- */

static brim_status fail_memory(void)
{
  return brim_fail(BRIM_ENOMEM_HOST, "no host memory to write a trace");
}

static brim_status grow(brim_trace_writer *w)
{
  if (w->out_room - w->out_bytes >= CHUNK) return BRIM_OK;
  const size_t room = 2 * w->out_room + CHUNK;
  uint8_t *more = brim_try_realloc(w->out, room);
  if (!more) return fail_memory();
  w->out = more;
  w->out_room = room;
  return BRIM_OK;
}

static brim_status compress_text(brim_trace_writer *w, const char *text, size_t bytes, int flush)
{
  w->stream.next_in = (Bytef *)(uintptr_t)text;
  w->stream.avail_in = (uInt)bytes;
  for (;;) {
    BRIM_TRY(grow(w));
    w->stream.next_out = w->out + w->out_bytes;
    w->stream.avail_out = (uInt)CHUNK;
    const int code = deflate(&w->stream, flush);
    w->out_bytes += CHUNK - w->stream.avail_out;
    if (code == Z_STREAM_ERROR) return brim_fail(BRIM_EINTERNAL, "zlib refused to compress a trace");
    if (code == Z_STREAM_END || (flush == Z_NO_FLUSH && w->stream.avail_out > 0)) return BRIM_OK;
  }
}

/* Ends the object that is in w->line and adds it to the list. */
static brim_status put_line(brim_trace_writer *w)
{
  if (w->line.length == 0) return BRIM_OK;
  const brim_status status = compress_text(w, w->line.s, w->line.length, Z_NO_FLUSH);
  brim_text_clear(&w->line);
  return status;
}

/* ---- JSON ---- */

static void add_string(brim_text *out, const char *s)
{
  const char *end = s + strlen(s);
  brim_text_add(out, "\"");
  while (s < end) {
    size_t bytes;
    const unsigned char c = (unsigned char)*s;
    if (c < 0x20 || c == '"' || c == '\\' || c == 0x7f) {
      brim_text_printf(out, "\\u%04x", c);
      s++;
      continue;
    }
    const char *shown = brim_utf8_take(&s, end, &bytes);
    brim_text_add_n(out, shown, bytes);
  }
  brim_text_add(out, "\"");
}

/* Microseconds with three decimals. */
static void add_time(brim_text *out, int64_t nanoseconds)
{
  const int64_t n = nanoseconds < 0 ? -nanoseconds : nanoseconds, rest = n % 1000;
  const char digits[] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10), (char)('0' + rest % 10)};
  if (nanoseconds < 0) brim_text_add(out, "-");
  brim_text_int(out, n / 1000);
  brim_text_add_n(out, digits, sizeof digits);
}

static int64_t since_origin(const brim_trace_writer *w, int64_t at)
{
  return at - w->about.origin;
}

/* Begins an event of phase `ph`, without a name. */
static void begin_event(brim_trace_writer *w, const char *ph, int64_t at, int track)
{
  brim_text *t = &w->line;
  brim_text_add(t, w->lines++ ? ",\n{\"ph\":\"" : "{\"ph\":\"");
  brim_text_add(t, ph);
  brim_text_add(t, "\",\"pid\":");
  brim_text_int(t, w->about.rank);
  brim_text_add(t, ",\"tid\":");
  brim_text_int(t, track);
  brim_text_add(t, ",\"ts\":");
  add_time(t, since_origin(w, at));
}

static void begin_span(brim_trace_writer *w, const brim_tracing_event *e, int track)
{
  begin_event(w, "X", e->begin, track);
  brim_text_add(&w->line, ",\"dur\":");
  add_time(&w->line, e->end - e->begin);
}

/* Names the process (`what` "process") or a track ("thread"), and gives its place in the order. */
static brim_status name_track(brim_trace_writer *w, const char *what, int track, const char *name, int order)
{
  begin_event(w, "M", w->about.origin, track);
  brim_text_printf(&w->line, ",\"name\":\"%s_name\",\"args\":{\"name\":", what);
  add_string(&w->line, name);
  brim_text_add(&w->line, "}}");
  begin_event(w, "M", w->about.origin, track);
  brim_text_printf(&w->line, ",\"name\":\"%s_sort_index\",\"args\":{\"sort_index\":%d}}", what, order);
  return put_line(w);
}

static brim_status name_tracks(brim_trace_writer *w)
{
  static const struct {
    int track;
    const char *name;
  } fixed[] = {{HOST, "host"}, {OPERATIONS, "operations"}, {COPIES_IN, "copies in"}, {COPIES_OUT, "copies out"}};
  char name[300];
  snprintf(name, sizeof name, "rank %d: %s", (int)w->about.rank, w->about.place);
  BRIM_TRY(name_track(w, "process", HOST, name, w->about.rank));
  for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
    BRIM_TRY(name_track(w, "thread", fixed[i].track, fixed[i].name, fixed[i].track));
  return BRIM_OK;
}

/* ---- programs ---- */

static const char *phase_of(const brim_program *p, const brim_node *n)
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
  add_string(&text, s);
  char *kept = brim_arena_string(&w->arena, brim_text_str(&text));
  brim_text_release(&text);
  return kept;
}

static void describe_node(brim_trace_writer *w, const program_row *row, const brim_node *n, const brim_ceiling *ceiling)
{
  node_row *to = &row->node[n->index];
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
    live[p->live_node] = plan->persistent_bytes + p->transient_bytes; /* with the gaps between buffers, if any */
}

/* The plan among `plan` and its lanes that has the program; NULL if none has. */
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

/* The program whose node this is; NULL if none has it. */
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

static program_row *find_program(brim_trace_writer *w, const brim_plan *all, const brim_program *p)
{
  for (size_t i = 0; i < w->program_count; i++)
    if (w->program[i].program == p) return &w->program[i];
  const brim_plan *plan = plan_of(all, p);
  if (!plan) return NULL;
  if (w->program_count == w->program_room) {
    const size_t room = 2 * w->program_room + 8;
    program_row *more = brim_try_realloc(w->program, room * sizeof *more);
    if (!more) return NULL;
    w->program = more;
    w->program_room = room;
  }
  program_row *row = &w->program[w->program_count++];
  const size_t nodes = p->graph->node_count;
  *row = (program_row){.program = p,
                       .plan = plan,
                       .node = BRIM_ARENA_NEW(&w->arena, node_row, nodes),
                       .live = BRIM_ARENA_NEW(&w->arena, uint64_t, nodes)};
  brim_ceiling ceiling = {0};
  if (w->about.planner->profile) ceiling = brim_ceiling_find(w->about.planner->profile, &plan->request);
  for (size_t i = 0; i < nodes; i++) describe_node(w, row, p->graph->node[i], &ceiling);
  brim_trace_live_bytes(plan, p, row->live);
  return row;
}

/* ---- events ---- */

static int operations_track(const brim_tracing_event *e)
{
  return e->thread >= BRIM_TRACING_LANE ? LANES + (e->thread - BRIM_TRACING_LANE) : OPERATIONS;
}

/* A step of the counter. Lanes have counters of their own, from the start of their part of the arena. */
static void count_live(brim_trace_writer *w, const brim_tracing_event *e, uint64_t live)
{
  if (e->thread < BRIM_TRACING_LANE && live == w->live_now) return;
  begin_event(w, "C", e->begin, HOST);
  if (e->thread >= BRIM_TRACING_LANE)
    brim_text_printf(&w->line, ",\"name\":\"live bytes of lane %d\"", e->thread - BRIM_TRACING_LANE);
  else
    brim_text_add(&w->line, ",\"name\":\"live bytes\"");
  brim_text_add(&w->line, ",\"args\":{\"bytes\":");
  brim_text_int(&w->line, (int64_t)live);
  brim_text_add(&w->line, "}}");
  if (e->thread < BRIM_TRACING_LANE) w->live_now = live;
}

static void add_node(brim_trace_writer *w, const brim_tracing_event *e, program_row *row)
{
  brim_text *t = &w->line;
  node_row *n = &row->node[e->value];
  count_live(w, e, row->live[e->value]);
  begin_span(w, e, operations_track(e));
  brim_text_add(t, ",\"name\":");
  brim_text_add(t, n->label);
  brim_text_printf(t,
                   ",\"cat\":\"%s\",\"args\":{\"shape\":", phase_of(row->program, row->program->graph->node[e->value]));
  brim_text_add(t, n->shape);
  if (n->predicted > 0) {
    brim_text_add(t, n->guessed ? ",\"guessed_us\":" : ",\"predicted_us\":");
    add_time(t, (int64_t)(n->predicted * 1e9));
  }
  brim_text_add(t, "}}");
  n->nanoseconds += e->end - e->begin;
  n->runs++;
  if (e->thread == BRIM_TRACING_MAIN && row->program->kind != BRIM_PROGRAM_EVALUATE)
    w->operation_nanoseconds += e->end - e->begin;
}

static void add_bytes(brim_trace_writer *w, const brim_tracing_event *e, int track, const char *category)
{
  begin_span(w, e, track);
  brim_text_printf(&w->line, ",\"name\":\"%s\",\"cat\":\"%s\",\"args\":{\"bytes\":%" PRIu64 "}}", (const char *)e->of,
                   category, e->value);
  if (e->thread == BRIM_TRACING_MAIN) w->operation_nanoseconds += e->end - e->begin;
}

/* Collectives overlap, so each is an asynchronous event with an id of its own. */
static void add_collective(brim_trace_writer *w, const brim_tracing_event *e)
{
  const uint64_t id = ((uint64_t)w->about.rank << 32) + ++w->sums;
  for (int i = 0; i < 2; i++) {
    begin_event(w, i == 0 ? "b" : "e", i == 0 ? e->begin : e->end, HOST);
    brim_text_printf(
        &w->line, ",\"name\":\"%s\",\"cat\":\"collective\",\"id\":\"0x%" PRIx64 "\",\"args\":{\"bytes\":%" PRIu64 "}}",
        (const char *)e->of, id, e->value);
  }
}

static void add_phase(brim_trace_writer *w, const brim_tracing_event *e, int track)
{
  begin_span(w, e, track);
  if (e->value > 0)
    brim_text_printf(&w->line, ",\"name\":\"%s %" PRIu64 "\",\"cat\":\"host\"}", (const char *)e->of, e->value);
  else
    brim_text_printf(&w->line, ",\"name\":\"%s\",\"cat\":\"host\"}", (const char *)e->of);
}

static void add_note(brim_trace_writer *w, const brim_tracing_event *e)
{
  begin_event(w, "i", e->begin, HOST);
  brim_text_add(&w->line, ",\"s\":\"p\",\"cat\":\"decision\",\"name\":");
  add_string(&w->line, e->of);
  brim_text_add(&w->line, "}");
}

static void add_decoding(brim_trace_writer *w, const brim_tracing_event *e)
{
  const unsigned loader = e->thread - BRIM_TRACING_LOADER;
  const bool is_thread = e->thread >= BRIM_TRACING_LOADER && e->thread < BRIM_TRACING_LANE;
  if (is_thread && loader < sizeof w->has_loader) w->has_loader[loader] = true;
  begin_span(w, e, is_thread ? LOADERS + (int)loader : HOST);
  brim_text_printf(&w->line, ",\"name\":\"%s\",\"cat\":\"data\",\"args\":{\"samples\":%" PRIu64 "}}",
                   (const char *)e->of, e->value);
}

static brim_status add_event(brim_trace_writer *w, const brim_plan *plan, const brim_tracing_event *e)
{
  const unsigned lane = e->thread - BRIM_TRACING_LANE;
  if (e->thread >= BRIM_TRACING_LANE && lane < sizeof w->has_lane) w->has_lane[lane] = true;
  switch ((enum brim_tracing_kind)e->kind) {
  case BRIM_TRACING_NODE: {
    program_row *row = find_program(w, plan, e->of);
    if (row && e->value < row->program->graph->node_count) add_node(w, e, row);
    break;
  }
  case BRIM_TRACING_WORK:
    add_bytes(w, e, operations_track(e), "memory");
    break;
  case BRIM_TRACING_IN:
    add_bytes(w, e, e->thread >= BRIM_TRACING_LANE ? operations_track(e) : COPIES_IN, "copy");
    break;
  case BRIM_TRACING_OUT:
    add_bytes(w, e, e->thread >= BRIM_TRACING_LANE ? operations_track(e) : COPIES_OUT, "copy");
    break;
  case BRIM_TRACING_SUM:
    add_collective(w, e);
    break;
  case BRIM_TRACING_STEP:
    w->step_nanoseconds += e->end - e->begin;
    w->steps++;
    add_phase(w, e, HOST);
    break;
  case BRIM_TRACING_PHASE:
    add_phase(w, e, e->thread >= BRIM_TRACING_LANE ? LANES + (int)lane : HOST);
    break;
  case BRIM_TRACING_LOADED:
    add_decoding(w, e);
    break;
  case BRIM_TRACING_NOTE:
    add_note(w, e);
    break;
  }
  return put_line(w);
}

/* ---- the table ---- */

static json_t *row_of(const program_row *row, size_t node, double steps)
{
  const node_row *n = &row->node[node];
  const brim_node *of = row->program->graph->node[node];
  json_t *shape = json_loads(n->shape, JSON_DECODE_ANY, NULL), *name = json_string(of->name);
  if (!name) name = json_string("?"); /* not UTF-8 */
  const double runs = (double)n->runs / steps;
  return json_pack("{s:s, s:o, s:s, s:o, s:f, s:f, s:f, s:b, s:f}", "op", of->op, "name", name, "phase",
                   phase_of(row->program, of), "shape", shape ? shape : json_string(""), "runs", runs, "seconds",
                   (double)n->nanoseconds * 1e-9 / steps, "predicted_seconds", n->predicted * runs, "guessed",
                   n->guessed, "least_seconds", n->least * runs);
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

/* Moves the times so far into rows, as the plan of these programs may be released. */
static void keep_rows(brim_trace_writer *w)
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

json_t *brim_trace_writer_table(const brim_trace_writer *w, const char *trace)
{
  const brim_planner *p = w->about.planner;
  const double steps = w->steps > 0 ? (double)w->steps : 1;
  const double covered = w->step_nanoseconds > 0 ? (double)w->operation_nanoseconds / (double)w->step_nanoseconds : 0;
  return json_pack("{s:i, s:[I, I], s:i, s:s, s:s, s:s, s:s, s:f, s:f, s:o}", "brim_operations", 1, "steps",
                   (json_int_t)w->about.first, (json_int_t)w->about.end - 1, "ranks", (int)w->about.ranks, "backend",
                   brim_config_choice_of(p->setup->config, "backend")->plugin->id, "device", p->device_info.name,
                   "measured_by", w->about.how, "trace", trace, "step_seconds",
                   (double)w->step_nanoseconds * 1e-9 / steps, "covered", covered, "operations", sorted_rows(w));
}

/* ---- a rank's part ---- */

brim_status brim_trace_writer_open(const brim_trace_about *about, brim_trace_writer **out)
{
  brim_trace_writer *w = brim_try_calloc(1, sizeof *w);
  if (!w) return fail_memory();
  w->about = *about;
  w->has_stream = deflateInit(&w->stream, Z_BEST_SPEED) == Z_OK;
  const brim_status status = w->has_stream ? name_tracks(w) : fail_memory();
  if (status != BRIM_OK) {
    brim_trace_writer_close(w);
    return status;
  }
  *out = w;
  return BRIM_OK;
}

void brim_trace_writer_close(brim_trace_writer *w)
{
  if (!w) return;
  if (w->has_stream) (void)deflateEnd(&w->stream);
  json_decref(w->rows);
  brim_text_release(&w->line);
  brim_arena_release(&w->arena);
  free(w->program);
  free(w->out);
  free(w);
}

brim_status brim_trace_writer_add(brim_trace_writer *w, const brim_plan *plan, const brim_tracing_event *event,
                                  size_t count)
{
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < count && status == BRIM_OK; i++)
    if (event[i].kind && event[i].end >= w->about.origin) status = add_event(w, plan, &event[i]);
  keep_rows(w);
  return status;
}

brim_status brim_trace_writer_finish(brim_trace_writer *w, const void **part, size_t *bytes)
{
  char name[40];
  for (int i = 0; i < (int)sizeof w->has_loader; i++) {
    snprintf(name, sizeof name, "loader %d", i);
    if (w->has_loader[i]) BRIM_TRY(name_track(w, "thread", LOADERS + i, name, LOADERS + i));
  }
  for (int i = 0; i < (int)sizeof w->has_lane; i++) {
    snprintf(name, sizeof name, "lane %d", i);
    if (w->has_lane[i]) BRIM_TRY(name_track(w, "thread", LANES + i, name, LANES + i));
  }
  BRIM_TRY(compress_text(w, "", 0, Z_FINISH));
  *part = w->out;
  *bytes = w->out_bytes;
  return BRIM_OK;
}

/* ---- the file ---- */

static brim_status put(gzFile to, const char *path, const void *data, size_t bytes)
{
  int code;
  if (bytes == 0 || gzwrite(to, data, (unsigned)bytes) == (int)bytes) return BRIM_OK;
  const char *reason = gzerror(to, &code);
  return brim_fail(BRIM_EIO, "cannot write '%s': %s", path, code == Z_ERRNO ? strerror(errno) : reason);
}

static brim_status put_inflated(gzFile to, const char *path, z_stream *stream, uint8_t *room)
{
  for (;;) {
    stream->next_out = room;
    stream->avail_out = (uInt)CHUNK;
    const int code = inflate(stream, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END) return brim_fail(BRIM_EINVAL, "a rank's part of the trace is damaged");
    BRIM_TRY(put(to, path, room, CHUNK - stream->avail_out));
    if (code == Z_STREAM_END) return BRIM_OK;
  }
}

static brim_status put_part(gzFile to, const char *path, const brim_trace_part *part)
{
  z_stream stream = {.next_in = (Bytef *)(uintptr_t)part->data, .avail_in = (uInt)part->bytes};
  uint8_t *room = brim_try_malloc(CHUNK);
  const bool opened = room && inflateInit(&stream) == Z_OK;
  const brim_status status = opened ? put_inflated(to, path, &stream, room) : fail_memory();
  if (opened) (void)inflateEnd(&stream);
  free(room);
  return status;
}

static brim_status put_all(gzFile to, const char *path, const brim_trace_part *part, int32_t ranks, const json_t *note)
{
  static const char begin[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", middle[] = "\n],\"otherData\":";
  bool is_first = true;
  char *text = json_dumps(note, JSON_COMPACT);
  brim_status status = text ? put(to, path, begin, sizeof begin - 1) : fail_memory();
  for (int32_t i = 0; i < ranks && status == BRIM_OK; i++) {
    if (part[i].bytes == 0) continue; /* that rank had no memory for its part */
    if (!is_first) status = put(to, path, ",\n", 2);
    is_first = false;
    if (status == BRIM_OK) status = put_part(to, path, &part[i]);
  }
  if (status == BRIM_OK) status = put(to, path, middle, sizeof middle - 1);
  if (status == BRIM_OK) status = put(to, path, text, strlen(text));
  if (status == BRIM_OK) status = put(to, path, "}\n", 2);
  free(text);
  return status;
}

brim_status brim_trace_write(const char *path, const brim_trace_part *part, int32_t ranks, const json_t *note)
{
  char folder[BRIM_PATH_MAX], aside[BRIM_PATH_MAX];
  int fd = -1;
  BRIM_TRY(brim_path_aside(path, folder, aside));
  BRIM_TRY(brim_file_create(aside, &fd));
  const int copy = dup(fd); /* gzclose() closes it, and the file is then synced by the other */
  const gzFile to = copy < 0 ? NULL : gzdopen(copy, "wb6");
  brim_status status = to ? put_all(to, path, part, ranks, note) : fail_memory();
  if (to && gzclose(to) != Z_OK && status == BRIM_OK)
    status = brim_fail(BRIM_EIO, "cannot write '%s': %s", path, strerror(errno));
  if (!to && copy >= 0) close(copy);
  BRIM_TRY(brim_file_end(fd, aside, status));
  return brim_file_publish(aside, path, folder);
}
