/* The events of a run: decisions of policies, recoveries, warnings, interruptions; and the ranks of a job. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "report/page_parts.h"

#define ROWS_MAX 200   /* half of them the first, half the last */
#define RANKS_MAX 4096 /* more would be unreadable */
#define TIME_MAX 4e9   /* maximum plausible seconds since 1970 */

static const char *kind_of(const json_t *event)
{
  return brim_page_string(event, "event");
}

/* Excludes checkpoints, which are routine, ranks, which have their own table, and the records of what policies saw,
 * which only simulations read. */
static bool is_shown(const json_t *event)
{
  static const char *const kept[] = {"checkpoint", "rank", "seen"};
  for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
    if (strcmp(kind_of(event), kept[i]) == 0) return false;
  return true;
}

static void add_time(brim_table *table, double seconds)
{
  char text[32] = "";
  struct tm utc;
  const time_t at = seconds > 0 && seconds < TIME_MAX ? (time_t)seconds : 0;
  if (at > 0 && gmtime_r(&at, &utc)) strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &utc);
  brim_table_add(table, text);
}

static void add_step(brim_table *table, const json_t *event)
{
  char text[32];
  const double step = brim_page_number(event, "step");
  snprintf(text, sizeof text, "%.15g", step);
  brim_table_add(table, isfinite(step) ? text : "-");
}

/* The text of an event: "auto_plan: micro-batch 64: the largest that fits". */
static const char *detail_of(brim_arena *arena, const json_t *event)
{
  const char *by = brim_page_string(event, "by"), *choice = brim_page_string(event, "choice");
  const char *reason = brim_page_string(event, "reason"), *detail = brim_page_string(event, "detail");
  const double seconds = brim_page_number(event, "recovered_seconds");
  if (by[0] || choice[0]) return brim_arena_printf(arena, "%s: %s%s%s", by, choice, reason[0] ? ": " : "", reason);
  if (isfinite(seconds)) return brim_arena_printf(arena, "%s, in %.3f s", detail, seconds);
  return detail;
}

static void add_event(brim_table *table, const json_t *event)
{
  add_time(table, brim_page_number(event, "time"));
  add_step(table, event);
  brim_table_add(table, kind_of(event));
  brim_table_add(table, detail_of(table->arena, event));
}

static void add_timeline(const brim_page_run *page, size_t shown, brim_text *out)
{
  const char *const head[] = {"time (UTC)", brim_compare_step(page->all), "event", ""};
  brim_table table = {.arena = &page->all->arena, .columns = sizeof head / sizeof head[0]};
  size_t index, number = 0;
  json_t *event;
  for (size_t i = 0; i < table.columns; i++) brim_table_add(&table, head[i]);
  json_array_foreach(page->events, index, event)
  {
    if (!is_shown(event)) continue;
    if (number < ROWS_MAX / 2 || shown - number <= ROWS_MAX / 2) add_event(&table, event);
    number++;
  }
  if (shown > ROWS_MAX)
    brim_text_printf(out, "<p>The first %d and the last %d of %zu; events.jsonl has all.</p>\n", ROWS_MAX / 2,
                     ROWS_MAX / 2, shown);
  brim_page_table(out, &table);
}

/* ---- ranks ---- */

/* The newest event of each rank; *count: number of ranks. */
static const json_t **newest_of_ranks(const brim_page_run *page, size_t *count)
{
  const json_t **out = BRIM_ARENA_NEW(&page->all->arena, const json_t *, RANKS_MAX);
  size_t index;
  json_t *event;
  *count = 0;
  json_array_foreach(page->events, index, event)
  {
    const double rank = brim_page_number(event, "rank");
    if (strcmp(kind_of(event), "rank") != 0 || !(rank >= 0 && rank < RANKS_MAX)) continue;
    out[(size_t)rank] = event;
    if ((size_t)rank >= *count) *count = (size_t)rank + 1;
  }
  return out;
}

static void add_ranks(const brim_page_run *page, brim_text *out)
{
  static const char *const head[] = {"rank",       "micro-batch", "samples per step", "busy, s",
                                     "waiting, s", "placed",      "resident"};
  char text[32];
  size_t count;
  const json_t **newest = newest_of_ranks(page, &count);
  brim_table table = {.arena = &page->all->arena, .columns = sizeof head / sizeof head[0]};
  for (size_t i = 0; i < table.columns; i++) brim_table_add(&table, head[i]);
  for (size_t i = 0; i < count; i++) {
    if (!newest[i]) continue;
    brim_table_number(&table, (double)i, 0);
    brim_table_number(&table, brim_page_number(newest[i], "micro_batch"), 0);
    brim_table_number(&table, brim_page_number(newest[i], "step_samples"), 0);
    brim_table_number(&table, brim_page_number(newest[i], "busy_seconds"), 2);
    brim_table_number(&table, brim_page_number(newest[i], "waiting_seconds"), 2);
    brim_table_add(&table, brim_figure_bytes(text, sizeof text, brim_page_number(newest[i], "device_bytes")));
    brim_table_add(&table, brim_figure_bytes(text, sizeof text, brim_page_number(newest[i], "rss_bytes")));
  }
  if (count == 0) return;
  brim_text_add(out, "<h3>Ranks, in the last round</h3>\n");
  brim_page_table(out, &table);
}

void brim_page_events(const brim_page_run *page, brim_text *out)
{
  size_t index, shown = 0;
  const size_t all = json_array_size(page->events);
  const double retries = brim_page_number(page->summary, "retries");
  json_t *event;
  if (all == 0) return;
  json_array_foreach(page->events, index, event)
  {
    shown += is_shown(event);
  }
  brim_page_begin(out, "Events");
  if (retries > 0) brim_text_printf(out, "<p>Repeated after running out of memory: %.15g.</p>\n", retries);
  add_timeline(page, shown, out);
  add_ranks(page, out);
  brim_page_end(out);
}
