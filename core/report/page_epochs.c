/* Shows the table of epochs, or of evaluations: see brim_epochs_list. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>

#include "report/page_parts.h"

#define ROWS_MAX 1000 /* if a run has more epochs, some are omitted */

typedef struct columns {
  const brim_series *judged;
  const char *split;
  brim_names scores; /* names of the scores of evaluations */
  bool is_federated;
} columns;

static columns columns_of(const brim_page_run *page)
{
  const brim_metrics *m = &page->run->metrics;
  const enum brim_part split = brim_compare_judged(m);
  columns out = {.judged = &m->split[split], .split = brim_part_names[split], .is_federated = page->clients != NULL};
  for (size_t i = 0; i < out.judged->columns; i++)
    if (brim_figure_is_score(out.judged->column[i].name)) brim_names_add(&out.scores, out.judged->column[i].name);
  return out;
}

static void add_head(brim_table *table, const columns *c)
{
  const char *const head[] = {c->is_federated ? "" : "epoch", c->is_federated ? "round" : "step", "training loss",
                              "training accuracy"};
  for (size_t i = 0; i < sizeof head / sizeof head[0]; i++) brim_table_add(table, head[i]);
  for (size_t i = 0; i < c->scores.count; i++)
    brim_table_add(
        table, brim_arena_printf(table->arena, "%s %s", c->split, brim_figure_title(table->arena, c->scores.name[i])));
  brim_table_add(table, "seconds");
  brim_table_add(table, "samples/s");
  brim_table_add(table, "evaluation seconds");
}

static void add_figure(brim_table *table, const char *name, double value)
{
  char text[64];
  brim_table_add(table, brim_figure_format(text, sizeof text, name, value));
}

static void add_row(brim_table *table, const columns *c, const brim_epoch *e)
{
  char text[64];
  snprintf(text, sizeof text, "%.4g", e->number);
  brim_table_add(table, c->is_federated ? "" : text); /* in a federation a round is also an epoch */
  snprintf(text, sizeof text, "%.15g", e->step);
  brim_table_add(table, text);
  add_figure(table, "loss", e->loss);
  add_figure(table, "accuracy", e->accuracy);
  for (size_t i = 0; i < c->scores.count; i++)
    add_figure(table, c->scores.name[i],
               e->evaluation < c->judged->count ? brim_series_values(c->judged, c->scores.name[i])[e->evaluation]
                                                : NAN);
  brim_table_number(table, e->seconds, 2);
  add_figure(table, "samples_per_second", e->samples / e->seconds);
  brim_table_number(table, e->evaluation < SIZE_MAX ? e->evaluation_seconds : NAN, 2);
}

void brim_page_epochs(const brim_page_run *page, brim_text *out)
{
  const brim_compared *run = page->run;
  if (run->epoch_count == 0) return;
  const bool is_evaluations = run->by_evaluation && run->epoch_count > 1;
  const columns c = columns_of(page);
  const size_t stride = (run->epoch_count + ROWS_MAX - 1) / ROWS_MAX;
  brim_table table = {.arena = &page->all->arena, .columns = 7 + c.scores.count};
  add_head(&table, &c);
  for (size_t i = 0; i < run->epoch_count; i++)
    if ((run->epoch_count - 1 - i) % stride == 0) add_row(&table, &c, &run->epoch[i]);
  const char *rows = is_evaluations ? "evaluations" : c.is_federated ? "rounds" : "epochs";
  brim_page_begin(out, is_evaluations ? "Evaluations" : c.is_federated ? "Rounds" : "Epochs");
  if (stride > 1)
    brim_text_printf(out, "<p>One in %zu of %zu %s; metrics.jsonl has all.</p>\n", stride, run->epoch_count, rows);
  brim_text_add(out, "<div class=\"tall\">\n");
  brim_page_table(out, &table);
  brim_text_add(out, "</div>\n");
  brim_page_end(out);
}
