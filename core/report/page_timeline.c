/* The section "What happened": a paragraph, a picture (page_timeline_svg.c), and a row in plain words per event. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page_parts.h"

#define ROWS_MAX 200 /* limit: half of them for the first events, half for the last */

/* ---- words for events ---- */

/* Returns the bytes in a field of an event as text, such as "44.6 MiB"; "" if the event lacks the field. */
static const char *bytes_of(brim_arena *arena, const json_t *event, const char *key)
{
  char text[32];
  const double bytes = brim_json_number(event, key);
  return bytes > 0 ? brim_arena_string(arena, brim_figure_bytes(text, sizeof text, bytes)) : "";
}

static const char *seconds_of(brim_arena *arena, double seconds)
{
  char text[32];
  return brim_arena_string(arena, brim_figure_seconds(text, sizeof text, seconds));
}

/* Describes the place: "on lab7, cpu:0 (AMD EPYC), micro-batch 64, 44.6 MiB planned", with the parts that the
 * environment gives. */
static const char *describe_place(brim_arena *arena, const json_t *here)
{
  const char *host = brim_json_string(here, "host"), *device = brim_json_string(here, "device");
  const double batch = brim_json_number(here, "micro_batch");
  const char *bytes = bytes_of(arena, here, "planned_peak_bytes");
  if (!host[0]) return "";
  return brim_arena_printf(arena, "on %s, %s%s%s", host, device,
                           batch > 0 ? brim_arena_printf(arena, ", micro-batch %.0f", batch) : "",
                           bytes[0] ? brim_arena_printf(arena, ", %s planned", bytes) : "");
}

static const char *tell_begin(brim_arena *arena, const json_t *event, const brim_page_process *p)
{
  const char *place = describe_place(arena, p->environment);
  if (!p->is_resumed) return place;
  const double step = brim_json_number(event, "step");
  return brim_arena_printf(arena, "%s%s%s",
                           step > 0 ? brim_arena_printf(arena, "from the checkpoint of step %.15g", step)
                                    : "from the beginning: there was no checkpoint",
                           place[0] ? ", " : "", place);
}

static const char *tell_wait(brim_arena *arena, const json_t *event, const brim_page_process *p)
{
  const char *bytes = bytes_of(arena, event, "need_bytes"), *detail = brim_json_string(event, "detail");
  const char *device = brim_json_string(event, "device");
  (void)p;
  return brim_arena_printf(arena, "for %s%s%s%s%s", strcmp(device, "auto") == 0 ? "a device" : device,
                           bytes[0] ? " with " : "", bytes, detail[0] ? ": " : "", detail);
}

static const char *tell_claim(brim_arena *arena, const json_t *event, const brim_page_process *p)
{
  (void)p;
  return brim_arena_printf(arena, "%s, after %s in the queue", brim_json_string(event, "device"),
                           seconds_of(arena, brim_json_number(event, "queue_seconds")));
}

/* Formats "auto_plan: micro-batch 64: the largest that fits". */
static const char *tell_decision(brim_arena *arena, const json_t *event, const brim_page_process *p)
{
  const char *by = brim_json_string(event, "by"), *choice = brim_json_string(event, "choice");
  const char *reason = brim_json_string(event, "reason");
  (void)p;
  return brim_arena_printf(arena, "%s: %s%s%s", by, choice, reason[0] ? ": " : "", reason);
}

static const char *tell_recovered(brim_arena *arena, const json_t *event, const brim_page_process *p)
{
  const char *what = brim_json_string(event, "detail");
  const double seconds = brim_json_number(event, "recovered_seconds");
  (void)p;
  if (!isfinite(seconds)) return what;
  return brim_arena_printf(arena, "%s can be repeated, %s after it failed", what, seconds_of(arena, seconds));
}

static const char *tell_detail(brim_arena *arena, const json_t *event, const brim_page_process *p)
{
  (void)arena, (void)p;
  return brim_json_string(event, "detail");
}

static const char *tell_interrupted(brim_arena *arena, const json_t *event, const brim_page_process *p)
{
  const char *signal = brim_json_string(event, "detail");
  (void)p;
  return brim_arena_printf(arena, "by the signal %s, with a checkpoint of this step", signal[0] ? signal : "(unknown)");
}

/* Known kinds of events; other events keep their names. tell NULL: not shown, because it is routine or has a section of
 * its own. */
static const struct kind {
  const char *event, *label, *tone;
  const char *(*tell)(brim_arena *, const json_t *, const brim_page_process *);
} kinds[] = {{"started", "started", "good", tell_begin},
             {"resumed", "resumed", "good", tell_begin},
             {"finished", "finished", "good", tell_detail},
             {"interrupted", "interrupted", "warn", tell_interrupted},
             {"failed", "failed", "bad", tell_detail},
             {"waiting", "waiting", "warn", tell_wait},
             {"claimed", "got a device", "good", tell_claim},
             {"decision", "decision", "", tell_decision},
             {"recovered", "recovered", "good", tell_recovered},
             {"redone", "repeated", "warn", tell_detail},
             {"memory_warning", "memory is short", "warn", tell_detail},
             {"memory_critical", "memory is critical", "bad", tell_detail},
             {"skipped_step", "step skipped", "warn", tell_detail},
             {"scores_left_out", "figures left out", "", tell_detail},
             {"traced", "traced", "", tell_detail},
             {"hook_failed", "hook failed", "warn", tell_detail},
             {"checkpoint", "", "", NULL},
             {"rank", "", "", NULL},
             {"seen", "", "", NULL}};

static const struct kind *kind_of(const json_t *event)
{
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
    if (brim_page_is_event(event, kinds[i].event)) return &kinds[i];
  return NULL;
}

static bool is_shown(const json_t *event)
{
  const struct kind *kind = kind_of(event);
  return !kind || kind->tell;
}

static bool is_recovery(const json_t *event)
{
  return brim_page_is_event(event, "decision") && strcmp(brim_json_string(event, "by"), "recovery") == 0;
}

/* ---- rows ---- */

typedef struct row {
  double time, step;
  const char *label, *tone, *detail;
} row;

/* Describes a rung of a recovery: the failure with brim's first measure, or a further measure. */
static void tell_rung(brim_arena *arena, const json_t *event, bool is_first, row *out)
{
  const char *reason = brim_json_string(event, "reason"), *choice = brim_json_string(event, "choice");
  if (strcmp(brim_json_string(event, "action"), "rewind") == 0) {
    out->label = "went back";
    out->tone = "warn";
    out->detail = brim_arena_printf(arena, "%s, from where brim repeats the steps", choice);
    return;
  }
  out->label = is_first ? "out of memory" : "still out of memory";
  out->tone = "bad";
  out->detail = brim_arena_printf(arena, "%s; what brim did: %s", reason[0] ? reason : "unknown cause", choice);
}

/* *in_recovery: whether the events before belong to a recovery that has not ended. */
static row row_of(brim_arena *arena, const json_t *event, const brim_page_process *p, bool *in_recovery)
{
  const struct kind *kind = kind_of(event);
  row out = {brim_json_number(event, "time"), brim_json_number(event, "step"),
             kind ? kind->label : brim_json_string(event, "event"), kind ? kind->tone : "",
             kind ? kind->tell(arena, event, p) : brim_json_string(event, "detail")};
  if (is_recovery(event)) tell_rung(arena, event, !*in_recovery, &out);
  *in_recovery = is_recovery(event);
  return out;
}

/* Whether a process ended without recording its end: a later one replaced it, or it is known to be gone. */
static bool is_lost(const brim_page_run *page, size_t process)
{
  const brim_page_process *p = &page->process[process];
  return !p->how && (process + 1 < page->process_count || page->state == BRIM_PAGE_LOST);
}

static row row_of_loss(brim_arena *arena, const brim_page_run *page, size_t process)
{
  const brim_page_process *p = &page->process[process];
  const bool is_last = process + 1 == page->process_count;
  const double next = is_last ? NAN : page->process[process + 1].from_step;
  const char *again =
      p->to_step > next ? brim_arena_printf(arena, "; the steps after step %.15g are repeated", next) : "";
  return (row){is_last ? p->end : NAN, p->to_step, "stopped", "bad",
               brim_arena_printf(arena,
                                 "without recording its end, at this step or later: the process was killed or crashed, "
                                 "or the machine stopped%s",
                                 again)};
}

static int by_time(const void *a, const void *b)
{
  const row *x = a, *y = b;
  return (x->time > y->time) - (x->time < y->time); /* 0 without a time */
}

/* Lists the rows of a process. Rows of a wait come before the start that recorded them. */
static size_t list_process(const brim_page_run *page, size_t process, row *out)
{
  brim_arena *arena = &page->all->arena;
  const brim_page_process *p = &page->process[process];
  const size_t events = json_array_size(page->events);
  size_t count = 0;
  bool in_recovery = false;
  for (size_t i = p->first; i < p->first + p->count && i < events; i++) {
    const json_t *event = json_array_get(page->events, i);
    if (is_shown(event)) out[count++] = row_of(arena, event, p, &in_recovery);
  }
  size_t early = 1; /* the waits that directly follow the start */
  while (early < count && out[early].time < out[0].time) early++;
  if (count > 0) qsort(out, early, sizeof *out, by_time);
  if (is_lost(page, process)) out[count++] = row_of_loss(arena, page, process);
  return count;
}

static row *list_rows(const brim_page_run *page, size_t *count)
{
  brim_arena *arena = &page->all->arena;
  static const brim_page_process unknown;
  const size_t events = json_array_size(page->events);
  const size_t before = page->process_count > 0 ? page->process[0].first : events;
  row *out = BRIM_ARENA_NEW(arena, row, events + page->process_count);
  bool in_recovery = false;
  *count = 0;
  for (size_t i = 0; i < before; i++)
    if (is_shown(json_array_get(page->events, i)))
      out[(*count)++] = row_of(arena, json_array_get(page->events, i), &unknown, &in_recovery);
  for (size_t i = 0; i < page->process_count; i++) *count += list_process(page, i, out + *count);
  return out;
}

static void add_cell(brim_text *out, const char *attributes, const char *text)
{
  brim_text_printf(out, "<td%s>", attributes);
  brim_svg_escape(out, text);
  brim_text_add(out, "</td>");
}

static void add_row(const row *r, brim_text *out)
{
  char time[32], step[32] = "";
  if (isfinite(r->step)) snprintf(step, sizeof step, "%.15g", r->step);
  brim_text_add(out, "<tr>");
  add_cell(out, " class=\"when\"", brim_page_format_time(time, sizeof time, r->time));
  add_cell(out, " class=\"number\"", step);
  brim_text_printf(out, "<td class=\"event %s\">", r->tone);
  brim_svg_escape(out, r->label);
  brim_text_add(out, "</td>");
  add_cell(out, "", r->detail);
  brim_text_add(out, "</tr>\n");
}

static void add_table(const brim_page_run *page, brim_text *out)
{
  size_t count;
  const row *rows = list_rows(page, &count);
  if (count == 0) return;
  if (count > ROWS_MAX)
    brim_text_printf(out, "<p>The first %d and the last %d of %zu events; events.jsonl has all.</p>\n", ROWS_MAX / 2,
                     ROWS_MAX / 2, count);
  brim_text_printf(out,
                   "<div class=\"tall\"><table class=\"events\">\n<thead><tr><th>time (UTC)</th><th "
                   "class=\"number\">%s</th><th>event</th><th></th></tr></thead>\n<tbody>\n",
                   brim_compare_step(page->all));
  for (size_t i = 0; i < count; i++)
    if (i < ROWS_MAX / 2 || count - i <= ROWS_MAX / 2) add_row(&rows[i], out);
  brim_text_add(out, "</tbody>\n</table></div>\n");
}

/* ---- the paragraph ---- */

/* "It was resumed twice." */
static const char *times_word(brim_arena *arena, size_t count)
{
  return count == 1 ? "once" : count == 2 ? "twice" : brim_arena_printf(arena, "%zu times", count);
}

static size_t count_recoveries(const brim_page_run *page)
{
  size_t out = 0;
  for (size_t i = 0; i < page->process_count; i++) out += (size_t)page->process[i].recoveries;
  return out;
}

static size_t count_losses(const brim_page_run *page)
{
  size_t out = 0;
  for (size_t i = 0; i < page->process_count; i++) out += is_lost(page, i);
  return out;
}

static void tell_whole(const brim_page_run *page, brim_text *out)
{
  brim_arena *arena = &page->all->arena;
  char from[32], to[32];
  const brim_page_process *first = &page->process[0], *last = &page->process[page->process_count - 1];
  const size_t recoveries = count_recoveries(page), losses = count_losses(page);
  if (!(first->begin <= last->end)) return; /* no times */
  brim_page_format_time(from, sizeof from, first->begin);
  brim_page_format_time(to, sizeof to, last->end);
  brim_text_printf(out, "<p>From %s to %s UTC: %s of work", from, to, seconds_of(arena, page->work_seconds));
  if (page->queue_seconds > 0)
    brim_text_printf(out, ", after %s in the queue for a device", seconds_of(arena, page->queue_seconds));
  const double away = last->end - first->begin - page->work_seconds - page->queue_seconds;
  if (page->process_count > 1 && away >= 0.1)
    brim_text_printf(out, ", and %s in which no process ran", seconds_of(arena, away));
  brim_text_add(out, ".");
  if (page->process_count > 1)
    brim_text_printf(out, " The run was resumed %s.", times_word(arena, page->process_count - 1));
  if (losses > 0) brim_text_printf(out, " It stopped %s without recording its end.", times_word(arena, losses));
  if (recoveries > 0)
    brim_text_printf(out, " Memory ran out %s; brim repeated the work that failed, with the same result.",
                     times_word(arena, recoveries));
  brim_text_add(out, "</p>\n");
}

void brim_page_timeline(const brim_page_run *page, brim_text *out)
{
  if (json_array_size(page->events) == 0) return;
  brim_page_begin(out, "What happened");
  if (page->process_count > 0) {
    tell_whole(page, out);
    brim_page_timeline_picture(page, out);
  }
  add_table(page, out);
  brim_page_end(out);
}
