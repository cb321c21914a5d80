/* Traces a run's steps, for observe.trace and for requests from `brim trace`. All ranks begin and end a trace at the
 * same step; rank 0 collects the parts and writes the files. See run_parts.h, train/trace_write.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/tracing.h"
#include "planner/figures.h"
#include "store/rundir.h"
#include "store/trace_files.h"
#include "train/clocks.h"
#include "train/run_parts.h"
#include "train/trace_write.h"

#define LOOK_SECONDS 0.5              /* seconds between two looks for a request */
#define EVENTS_MIN ((size_t)16 << 10) /* room of a ring */
#define EVENTS_MAX ((size_t)1 << 20)
#define EVENTS_OF_ROUND ((size_t)256 << 10)  /* events of a federation's round */
#define PART_BYTES_MAX ((uint64_t)256 << 20) /* limit for the part of a rank */

struct brim_run_trace {
  int64_t first, end; /* first and end: steps [first, end) of observe.trace, from 1; end 0: none */
  int64_t asked;      /* number of requested steps; 0: none */
  double looked;      /* brim_now() at the last look for a request */
  bool has_warned;    /* a bad request was reported */
  bool is_on;
  int64_t from, until; /* steps [from, until) of the trace in progress */
  uint64_t lost;       /* events */
  size_t device_room;  /* limit for the pieces of work that the device measures; 0: it measures none */
  const char *how;
  brim_clock_offset offset;
  char place[300];
  brim_trace_writer *writer; /* NULL: this rank's part cannot be written */
};

static const char *const by_clock = "the host's clock around each operation";

/* Warns that a part of a trace failed. The run continues without it. */
static void warn(brim_running *r)
{
  brim_log(BRIM_LOG_WARN, "the run continues without this trace: %s", brim_error_text());
  brim_running_event(r, "trace_failed", brim_error_text());
}

/* ---- the configuration ---- */

static bool take_number(const char **s, int64_t *out)
{
  char *end;
  if (**s < '0' || **s > '9') return false;
  errno = 0;
  *out = strtoll(*s, &end, 10);
  *s = end;
  return errno == 0;
}

/* "100:103" or "100". */
static brim_status parse_steps(const char *text, int64_t *first, int64_t *end)
{
  const char *s = text;
  bool is_right = take_number(&s, first);
  *end = *first + 1;
  if (is_right && *s == ':') {
    s++;
    is_right = take_number(&s, end);
  }
  if (!is_right || *s)
    return brim_fail(BRIM_ECONFIG,
                     "observe.trace=%s: expected FIRST:END or one step, at character %d\n"
                     "observe.trace=100:103 traces steps 100, 101 and 102",
                     text, (int)(s - text) + 1);
  if (*first < 1 || *end <= *first)
    return brim_fail(
        BRIM_ECONFIG,
        "observe.trace=%s has no step: FIRST must be at least 1, and END, the step after the last, larger than FIRST\n"
        "observe.trace=100:103 traces steps 100, 101 and 102",
        text);
  return BRIM_OK;
}

/* Warns of a trace of steps that are over, or will never come; the run continues. */
static void check_steps(const brim_running *r, const char *text)
{
  struct brim_run_trace *t = r->trace;
  const long long step = (long long)r->state->step, steps = (long long)r->drive->order.steps;
  if (t->end - 1 <= step)
    brim_log(BRIM_LOG_WARN,
             "observe.trace=%s: these steps are over, as the run continues after step %lld; to trace its next steps: "
             "brim trace %s",
             text, step, BRIM_QUOTED(r->dir));
  else if (t->first > steps)
    brim_log(BRIM_LOG_WARN, "observe.trace=%s: the run has only %lld steps, so nothing will be traced", text, steps);
  else if (t->end - 1 > steps)
    brim_log(BRIM_LOG_INFO, "observe.trace=%s: the run ends after step %lld, and so does its trace", text, steps);
}

brim_status brim_running_trace_check(const brim_running *r)
{
  int64_t first, end;
  const char *text = r->settings->observe.trace;
  return text[0] ? parse_steps(text, &first, &end) : BRIM_OK;
}

void brim_running_trace_begin(brim_running *r)
{
  const char *text = r->settings->observe.trace;
  struct brim_run_trace *t = r->trace = brim_xcalloc(1, sizeof *t);
  if (r->settings->observe.nvtx && !brim_tracing_use_nvtx())
    brim_log(BRIM_LOG_WARN, "observe.nvtx has no effect: this brim was built without the CUDA toolkit's NVTX headers");
  if (text[0] && parse_steps(text, &t->first, &t->end) == BRIM_OK && brim_running_prints(r)) check_steps(r, text);
}

/* ---- requests ---- */

void brim_running_trace_look(brim_running *r)
{
  struct brim_run_trace *t = r->trace;
  const double now = brim_now();
  if (!brim_running_prints(r) || t->is_on || t->asked > 0 || now - t->looked < LOOK_SECONDS) return;
  t->looked = now;
  brim_error before;
  brim_error_take(&before);
  if (brim_trace_request_take(r->dir, &t->asked) != BRIM_OK && !t->has_warned) {
    t->has_warned = true;
    brim_log(BRIM_LOG_WARN, "%s", brim_error_text());
  }
  brim_error_put(&before);
  if (t->asked > 0 && r->options->dist) r->trace_wish = BRIM_WISH_TRACE | (uint32_t)t->asked << BRIM_WISH_STEPS_AT;
}

/* Returns the number of steps to trace from the next one on; 0: none. All ranks get the same number. */
static int64_t wanted(const brim_running *r)
{
  const struct brim_run_trace *t = r->trace;
  const int64_t next = r->state->step + 1;
  if (next >= t->first && next < t->end) return t->end - next;
  if (!r->options->dist) return t->asked;
  const uint32_t wishes = brim_trainer_verdict(r->trainer)->wishes;
  return wishes & BRIM_WISH_TRACE ? wishes >> BRIM_WISH_STEPS_AT & 0xff : 0;
}

bool brim_running_trace_stops_ahead(const brim_running *r)
{
  const struct brim_run_trace *t = r->trace;
  const int64_t made = r->state->step + 1; /* the number of the step that is made next */
  if (t->is_on) return made + 1 >= t->until;
  return made + 1 == t->first || t->asked > 0;
}

/* ---- the beginning ---- */

/* Returns the number of events of a step, with room for votes, phases and micro-batches that are decoded. */
static size_t events_of_step(const brim_running *r)
{
  const brim_plan *plan = brim_trainer_plan(r->trainer);
  const size_t micros = (size_t)brim_setup_step_micros(r->drive->setup, r->drive->choice.micro_batch) + 1;
  size_t train = 0, other = 0;
  if (brim_setup_is_federated(r->drive->setup)) return EVENTS_OF_ROUND;
  for (size_t i = 0; i < plan->program_count; i++) {
    const size_t nodes = plan->program[i].graph->node_count;
    if (plan->program[i].kind == BRIM_PROGRAM_TRAIN && nodes > train) train = nodes;
    if (plan->program[i].kind == BRIM_PROGRAM_UPDATE || plan->program[i].kind == BRIM_PROGRAM_CHECK) other += nodes;
  }
  /* with several ranks, each collective adds two events, and each node of the last micro-batch one */
  const size_t together = r->options->dist ? train + 2 * plan->bucket_count : 0;
  return micros * (train + plan->bucket_count + 16) + together + other + 64;
}

static brim_status reserve(brim_running *r)
{
  const struct brim_run_trace *t = r->trace;
  const size_t steps = (size_t)(t->until - t->from), each = events_of_step(r);
  size_t room = steps > EVENTS_MAX / each ? EVENTS_MAX : steps * each + steps * each / 4;
  if (room > EVENTS_MAX) room = EVENTS_MAX;
  return brim_tracing_reserve(room < EVENTS_MIN ? EVENTS_MIN : room);
}

static brim_status open_writer(brim_running *r, int64_t origin)
{
  struct brim_run_trace *t = r->trace;
  const brim_world world = brim_dist_world(r->options->dist);
  char host[128] = "";
  if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  BRIM_TRY(reserve(r));
  BRIM_TRY(brim_planner_open_profile(&r->drive->planner));
  snprintf(t->place, sizeof t->place, "%s:%d %s on %s", brim_config_choice_of(r->config, "backend")->plugin->id,
           r->drive->planner.device, r->drive->planner.device_info.name, host);
  const brim_trace_about about = {.rank = world.rank,
                                  .ranks = world.ranks,
                                  .place = t->place,
                                  .how = t->how,
                                  .first = t->from,
                                  .end = t->until,
                                  .origin = origin + t->offset.nanoseconds,
                                  .adds_up = t->how == by_clock && !brim_setup_is_federated(r->drive->setup),
                                  .planner = &r->drive->planner};
  return brim_trace_writer_open(&about, &t->writer);
}

static const brim_backend_ops *device_of(const brim_running *r, void **self)
{
  const brim_plan *plan = brim_trainer_plan(r->trainer);
  const brim_backend_ops *ops = plan->request.backend;
  *self = plan->request.backend_self;
  return BRIM_HAS(brim_backend_ops, ops, trace_begin) ? ops : NULL;
}

static void begin_device(brim_running *r)
{
  struct brim_run_trace *t = r->trace;
  void *self;
  const brim_backend_ops *ops = device_of(r, &self);
  t->how = brim_exec_is_asynchronous(brim_trainer_exec(r->trainer)) ? "nothing: the backend has no traces" : by_clock;
  t->device_room = 0;
  if (!ops) return;
  t->device_room = events_of_step(r) * (size_t)(t->until - t->from);
  if (t->device_room > EVENTS_MAX / 16) t->device_room = EVENTS_MAX / 16;
  if (ops->trace_begin(self, t->device_room, &t->how) == BRIM_OK) return;
  t->device_room = 0;
  t->how = "nothing: the device could not measure";
  brim_log(BRIM_LOG_WARN, "the trace has no times of the device: %s", brim_error_text());
}

brim_status brim_running_trace_before(brim_running *r)
{
  struct brim_run_trace *t = r->trace;
  int64_t now = 0;
  if (t->is_on || brim_trainer_is_ahead(r->trainer)) return BRIM_OK;
  const int64_t steps = wanted(r);
  if (steps == 0) return BRIM_OK;
  if (r->options->dist) BRIM_TRY(brim_trainer_meet(r->trainer, BRIM_MEET_CHECK, BRIM_OK));
  BRIM_TRY(brim_clocks_compare(r->options->dist, &t->offset, &now));
  t->asked = 0;
  r->trace_wish = 0;
  t->from = r->state->step + 1;
  t->until = t->from + steps;
  if (t->until > r->drive->order.steps + 1) t->until = r->drive->order.steps + 1;
  t->is_on = true;
  t->lost = 0;
  begin_device(r);
  if (open_writer(r, now) != BRIM_OK) warn(r);
  brim_tracing_clear();
  if (t->writer) brim_tracing_start();
  return BRIM_OK;
}

/* ---- the end ---- */

/* Adds the times that the device measured, as events of nodes and copies. */
static void take_device(brim_running *r, const brim_plan *plan)
{
  struct brim_run_trace *t = r->trace;
  void *self;
  size_t count = 0;
  const brim_backend_ops *ops = device_of(r, &self);
  if (t->device_room == 0 || !ops) return;
  brim_device_work *work = brim_try_calloc(t->device_room, sizeof *work);
  brim_tracing_event *event = brim_try_calloc(t->device_room, sizeof *event);
  brim_status status = ops->trace_end(self, work, work ? t->device_room : 0, &count);
  if (count > t->device_room) t->lost += count - t->device_room;
  if (count > t->device_room) count = t->device_room;
  if (!work || !event) count = 0;
  for (size_t i = 0; i < count; i++) event[i] = brim_trace_event_of(plan, &work[i]);
  if (status == BRIM_OK) status = brim_trace_writer_add(t->writer, plan, event, count);
  if (status != BRIM_OK || !work || !event)
    brim_log(BRIM_LOG_WARN, "the trace has no times of the device: %s",
             status == BRIM_OK ? "no host memory" : brim_error_text());
  t->device_room = 0;
  free(event);
  free(work);
}

void brim_running_trace_seal(brim_running *r)
{
  struct brim_run_trace *t = r->trace;
  size_t count;
  uint64_t lost;
  const brim_plan *plan = brim_trainer_plan(r->trainer);
  if (!t || !t->is_on || !t->writer || !plan) return;
  brim_error before;
  brim_error_take(&before);
  brim_tracing_stop();
  const brim_tracing_event *event = brim_tracing_events(&count, &lost);
  t->lost += lost;
  if (brim_trace_writer_add(t->writer, plan, event, count) != BRIM_OK) warn(r);
  take_device(r, plan);
  brim_tracing_clear();
  brim_tracing_start();
  brim_error_put(&before);
}

/* Exchanges the parts of all ranks; only rank 0 keeps them. */
static brim_status collect(brim_running *r, brim_trace_part own, brim_trace_part *part, uint8_t **memory)
{
  brim_dist *dist = r->options->dist;
  const brim_world world = brim_dist_world(dist);
  const size_t ranks = (size_t)world.ranks;
  uint64_t mine = own.bytes, most = 0, total = 0;
  uint64_t *bytes = brim_xcalloc(ranks, sizeof *bytes);
  uint8_t *all = brim_xcalloc(ranks, BRIM_EXCHANGE_BYTES), piece[BRIM_EXCHANGE_BYTES] = {0};
  brim_status status = brim_dist_exchange(dist, &mine, sizeof mine, bytes);
  for (size_t i = 0; i < ranks; i++) {
    if (bytes[i] > PART_BYTES_MAX) bytes[i] = 0;
    if (bytes[i] > most) most = bytes[i];
    total += bytes[i];
  }
  uint8_t *to = *memory = world.rank == 0 && status == BRIM_OK ? brim_try_malloc(total + 1) : NULL;
  for (uint64_t at = 0; at < most && status == BRIM_OK; at += sizeof piece) {
    const uint64_t rest = at < own.bytes ? own.bytes - at : 0;
    if (rest > 0) memcpy(piece, (const uint8_t *)own.data + at, rest < sizeof piece ? rest : sizeof piece);
    status = brim_dist_exchange(dist, piece, sizeof piece, all);
    uint8_t *start = to;
    for (size_t i = 0; to && i < ranks && status == BRIM_OK; start += bytes[i++])
      if (at < bytes[i])
        memcpy(start + at, all + i * sizeof piece, bytes[i] - at < sizeof piece ? bytes[i] - at : sizeof piece);
  }
  for (size_t i = 0; to && i < ranks; to += bytes[i++]) part[i] = (brim_trace_part){to, bytes[i]};
  free(all);
  free(bytes);
  return status;
}

static json_t *describe(const brim_running *r)
{
  const struct brim_run_trace *t = r->trace;
  const brim_plan *plan = brim_trainer_plan(r->trainer);
  json_t *note = json_pack("{s:s, s:[I, I], s:s, s:i, s:I}", "brim", BRIM_VERSION, "steps", (json_int_t)t->from,
                           (json_int_t)t->until - 1, "measured_by", t->how, "ranks",
                           (int)brim_dist_world(r->options->dist).ranks, "lost_events", (json_int_t)t->lost);
  if (plan) json_object_set_new(note, "planned_peak_bytes", json_integer((json_int_t)plan->peak_bytes));
  return note;
}

static brim_status write_table(const brim_running *r, const char *trace)
{
  char path[BRIM_PATH_MAX];
  BRIM_TRY(brim_path_join(path, r->dir, BRIM_OPERATIONS_NAME));
  json_t *table = brim_trace_writer_table(r->trace->writer, trace);
  char *text = table ? json_dumps(table, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
  const brim_status status = text ? brim_file_write_atomic(path, text, strlen(text))
                                  : brim_fail(BRIM_ENOMEM_HOST, "no host memory for the table of operations");
  free(text);
  json_decref(table);
  return status;
}

static brim_status write_files(brim_running *r, const brim_trace_part *part, int32_t ranks)
{
  const struct brim_run_trace *t = r->trace;
  char name[80], path[BRIM_PATH_MAX];
  snprintf(name, sizeof name, "trace-%" PRId64 "-%" PRId64 ".json.gz", t->from, t->until - 1);
  BRIM_TRY(brim_path_join(path, r->dir, name));
  json_t *note = describe(r);
  brim_status status = brim_trace_write(path, part, ranks, note);
  json_decref(note);
  if (status == BRIM_OK) status = write_table(r, name);
  if (status != BRIM_OK) return status;
  if (t->lost > 0)
    brim_log(BRIM_LOG_WARN, "%s lacks %" PRIu64 " events, because its memory was full: trace fewer steps", path,
             t->lost);
  brim_running_event(r, "traced", name);
  brim_say("trace of %s %" PRId64 " to %" PRId64 " in %s",
           brim_setup_is_federated(r->drive->setup) ? "rounds" : "steps", t->from, t->until - 1, path);
  return BRIM_OK;
}

/* Ends the trace. `together`: with the other ranks, if there are any. */
static brim_status end_trace(brim_running *r, bool together)
{
  struct brim_run_trace *t = r->trace;
  const brim_world world = brim_dist_world(r->options->dist);
  brim_trace_part own = {NULL, 0};
  uint8_t *memory = NULL;
  brim_running_trace_seal(r);
  brim_tracing_stop();
  t->is_on = false;
  brim_trace_part *part = brim_xcalloc((size_t)world.ranks, sizeof *part);
  if (t->writer && brim_trace_writer_finish(t->writer, &own.data, &own.bytes) != BRIM_OK) {
    warn(r);
    own = (brim_trace_part){NULL, 0};
  }
  part[0] = own;
  const brim_status status = world.ranks > 1 && together ? collect(r, own, part, &memory) : BRIM_OK;
  if (status == BRIM_OK && brim_running_prints(r) && t->writer && part[0].bytes > 0 &&
      write_files(r, part, world.ranks) != BRIM_OK)
    warn(r);
  brim_trace_writer_close(t->writer);
  t->writer = NULL;
  free(part);
  free(memory);
  return status;
}

brim_status brim_running_trace_after(brim_running *r)
{
  const struct brim_run_trace *t = r->trace;
  if (!t->is_on || r->state->step + 1 < t->until || brim_trainer_is_ahead(r->trainer)) return BRIM_OK;
  /* A rank that failed does not reach this point. */
  if (r->options->dist) BRIM_TRY(brim_trainer_meet(r->trainer, BRIM_MEET_CHECK, BRIM_OK));
  return end_trace(r, true);
}

void brim_running_trace_end(brim_running *r)
{
  struct brim_run_trace *t = r->trace;
  if (!t) return;
  if (t->is_on && r->options->dist)
    brim_log(BRIM_LOG_WARN, "the trace from step %" PRId64 " on was not written: the run ended in it", t->from);
  else if (t->is_on) {
    if (t->until > r->state->step + 1) t->until = r->state->step + 1;
    if (t->until > t->from) (void)end_trace(r, false);
  }
  brim_tracing_stop();
  brim_trace_writer_close(t->writer);
  free(t);
  r->trace = NULL;
}
