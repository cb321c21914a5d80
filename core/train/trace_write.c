/* Writes the events of a trace as JSON, compressed at once. See trace_write.h. */
#include "train/trace_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "train/trace_parts.h"

/* Tracks of a rank. */
enum { HOST = 1, OPERATIONS, COPIES_IN, COPIES_OUT, LOADERS = 100, LANES = 1000 };

/* ---- the compressed text ---- */

brim_status brim_trace_fail_memory(void)
{
  return brim_fail(BRIM_ENOMEM_HOST, "no host memory to write a trace");
}

static brim_status grow(brim_trace_writer *w)
{
  if (w->out_room - w->out_bytes >= BRIM_TRACE_CHUNK) return BRIM_OK;
  const size_t room = 2 * w->out_room + BRIM_TRACE_CHUNK;
  uint8_t *more = brim_try_realloc(w->out, room);
  if (!more) return brim_trace_fail_memory();
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
    w->stream.avail_out = (uInt)BRIM_TRACE_CHUNK;
    const int code = deflate(&w->stream, flush);
    w->out_bytes += BRIM_TRACE_CHUNK - w->stream.avail_out;
    if (code == Z_STREAM_ERROR) return brim_fail(BRIM_EINTERNAL, "zlib refused to compress a trace");
    if (code == Z_STREAM_END || (flush == Z_NO_FLUSH && w->stream.avail_out > 0)) return BRIM_OK;
  }
}

/* Ends the object in w->line and adds it to the list. */
static brim_status put_line(brim_trace_writer *w)
{
  if (w->line.length == 0) return BRIM_OK;
  const brim_status status = compress_text(w, w->line.s, w->line.length, Z_NO_FLUSH);
  brim_text_clear(&w->line);
  return status;
}

/* ---- JSON ---- */

void brim_trace_add_string(brim_text *out, const char *s)
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

/* Names the process (`what` "process") or a track ("thread"), and sets its place in the order of tracks. */
static brim_status name_track(brim_trace_writer *w, const char *what, int track, const char *name, int order)
{
  begin_event(w, "M", w->about.origin, track);
  brim_text_printf(&w->line, ",\"name\":\"%s_name\",\"args\":{\"name\":", what);
  brim_trace_add_string(&w->line, name);
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

/* ---- events ---- */

static int operations_track(const brim_tracing_event *e)
{
  return e->thread >= BRIM_TRACING_LANE ? LANES + (e->thread - BRIM_TRACING_LANE) : OPERATIONS;
}

/* Adds a step of the counter. Lanes have counters of their own, from the start of their part of the arena. */
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

static void add_node(brim_trace_writer *w, const brim_tracing_event *e, brim_trace_program *row)
{
  brim_text *t = &w->line;
  brim_trace_node *n = &row->node[e->value];
  count_live(w, e, row->live[e->value]);
  begin_span(w, e, operations_track(e));
  brim_text_add(t, ",\"name\":");
  brim_text_add(t, n->label);
  brim_text_printf(t, ",\"cat\":\"%s\",\"args\":{\"shape\":",
                   brim_trace_phase_of(row->program, row->program->graph->node[e->value]));
  brim_text_add(t, n->shape);
  if (n->predicted > 0) {
    brim_text_add(t, n->guessed ? ",\"guessed_us\":" : ",\"predicted_us\":");
    add_time(t, (int64_t)(n->predicted * 1e9));
  }
  brim_text_add(t, "}}");
  n->nanoseconds += e->end - e->begin;
  n->runs++;
}

static void add_bytes(brim_trace_writer *w, const brim_tracing_event *e, int track, const char *category)
{
  begin_span(w, e, track);
  brim_text_printf(&w->line, ",\"name\":\"%s\",\"cat\":\"%s\",\"args\":{\"bytes\":%" PRIu64 "}}", (const char *)e->of,
                   category, e->value);
}

/* Adds the start ("s") or the end ("f") of an arrow, at a time inside a span of the host's track, to which it
 * belongs. */
static void add_arrow(brim_trace_writer *w, const char *ph, int64_t at, const char *name, uint64_t number, int32_t from)
{
  begin_event(w, ph, at, HOST);
  brim_text_printf(&w->line, ",\"name\":\"%s\",\"cat\":\"ranks\",\"id\":\"0x%" PRIx64 "\"%s}", name,
                   (uint64_t)from << 32 | (number & UINT32_MAX), ph[0] == 'f' ? ",\"bp\":\"e\"" : "");
}

/* Collectives overlap, so each is an asynchronous event with an id of its own. Its number is the same on all ranks. An
 * arrow leads from the start on each rank to the end of the next rank's wait. */
static void add_collective(brim_trace_writer *w, const brim_tracing_event *e)
{
  const char *name = e->of;
  const uint64_t number = e->value >> 40, bytes = e->value & ((UINT64_C(1) << 40) - 1);
  const int32_t rank = w->about.rank, ranks = w->about.ranks;
  for (int i = 0; i < 2; i++) {
    begin_event(w, i == 0 ? "b" : "e", i == 0 ? e->begin : e->end, HOST);
    brim_text_printf(
        &w->line, ",\"name\":\"%s\",\"cat\":\"collective\",\"id\":\"0x%" PRIx64 "\",\"args\":{\"bytes\":%" PRIu64 "}}",
        name, (uint64_t)rank << 32 | number, bytes);
  }
  if (ranks < 2) return;
  add_arrow(w, "s", e->begin, name, number, rank);
  add_arrow(w, "f", e->end, name, number, (rank + ranks - 1) % ranks);
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
  brim_trace_add_string(&w->line, e->of);
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
    brim_trace_program *row = brim_trace_find_program(w, plan, e->of);
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

/* ---- a rank's part ---- */

brim_status brim_trace_writer_open(const brim_trace_about *about, brim_trace_writer **out)
{
  brim_trace_writer *w = brim_try_calloc(1, sizeof *w);
  if (!w) return brim_trace_fail_memory();
  w->about = *about;
  w->has_stream = deflateInit(&w->stream, Z_BEST_SPEED) == Z_OK;
  const brim_status status = w->has_stream ? name_tracks(w) : brim_trace_fail_memory();
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
  free(w->leaf);
  free(w->out);
  free(w);
}

brim_status brim_trace_writer_add(brim_trace_writer *w, const brim_plan *plan, const brim_tracing_event *event,
                                  size_t count)
{
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < count && status == BRIM_OK; i++) {
    if (!event[i].kind || event[i].end < w->about.origin) continue;
    brim_trace_count(w, &event[i]);
    status = add_event(w, plan, &event[i]);
  }
  brim_trace_keep_rows(w);
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
