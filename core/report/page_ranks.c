/* Shows the ranks of a job, or the processes of a federation's clients. */
#include <math.h>
#include <stdio.h>

#include "report/page_parts.h"

#define RANKS_MAX 4096 /* limit for ranks, because a table of more would be unreadable */

/* Finds the newest event of each rank; *count: number of ranks. */
static const json_t **newest_of_ranks(const brim_page_run *page, size_t *count)
{
  const json_t **out = BRIM_ARENA_NEW(&page->all->arena, const json_t *, RANKS_MAX);
  size_t index;
  json_t *event;
  *count = 0;
  json_array_foreach(page->events, index, event)
  {
    const double rank = brim_json_number(event, "rank");
    if (!brim_page_is_event(event, "rank") || !(rank >= 0 && rank < RANKS_MAX)) continue;
    out[(size_t)rank] = event;
    if ((size_t)rank >= *count) *count = (size_t)rank + 1;
  }
  return out;
}

void brim_page_ranks(const brim_page_run *page, brim_text *out)
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
    brim_table_number(&table, brim_json_number(newest[i], "micro_batch"), 0);
    brim_table_number(&table, brim_json_number(newest[i], "step_samples"), 0);
    brim_table_number(&table, brim_json_number(newest[i], "busy_seconds"), 2);
    brim_table_number(&table, brim_json_number(newest[i], "waiting_seconds"), 2);
    brim_table_add(&table, brim_figure_bytes(text, sizeof text, brim_json_number(newest[i], "device_bytes")));
    brim_table_add(&table, brim_figure_bytes(text, sizeof text, brim_json_number(newest[i], "rss_bytes")));
  }
  if (count == 0) return;
  brim_page_begin(out, "Ranks");
  brim_text_add(out, "<p>In the last round.</p>\n");
  brim_page_table(out, &table);
  brim_page_end(out);
}
