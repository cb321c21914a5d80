/* Runs side by side: the tables of brim compare and of reports. See runs.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/runs.h"

#define LEGEND_BYTES_MAX 64

enum brim_score brim_compare_score(const brim_comparison *c)
{
  const enum brim_score first = brim_summary_score(&c->run[0].summary);
  for (size_t i = 1; i < c->count; i++)
    if (brim_summary_score(&c->run[i].summary) != first) return BRIM_SCORE_ACCURACY;
  return first;
}

static void add_figures(brim_comparison *c, brim_table *table, const brim_compared *run)
{
  const brim_summary *s = &run->summary;
  const enum brim_score kind = brim_compare_score(c);
  const int digits = kind == BRIM_SCORE_MAE ? 4 : 2;
  char bytes[32] = "-", time[32] = "-";
  double score[3];
  brim_summary_scores(s, kind, score);
  if (s->device_peak_bytes > 0) brim_format_bytes(bytes, sizeof bytes, (uint64_t)s->device_peak_bytes);
  if (s->wall_seconds >= 60) brim_format_seconds(time, sizeof time, s->wall_seconds);
  if (s->wall_seconds < 60) snprintf(time, sizeof time, "%.1f s", s->wall_seconds);
  brim_table_add(table, run->name);
  brim_table_add(table, s->status);
  brim_table_add(table, brim_compare_value(c, run, "model.id"));
  brim_table_add(table, brim_compare_dataset(c, run));
  brim_table_number(table, s->steps, 0);
  brim_table_number(table, s->train_loss, 4);
  brim_table_number(table, score[0], digits);
  brim_table_number(table, s->validation_loss, 4);
  brim_table_number(table, score[1], digits);
  brim_table_number(table, s->test_loss, 4);
  brim_table_number(table, score[2], digits);
  brim_table_number(table, s->samples_per_second, 0);
  brim_table_number(table, brim_epochs_mean_seconds(&run->metrics), 2);
  brim_table_add(table, bytes);
  brim_table_add(table, time);
}

brim_table brim_compare_figures(brim_comparison *c)
{
  const char *score = brim_score_name(brim_compare_score(c));
  const char *const head[] = {"run", "status",    "model", "dataset",   "steps",   "train loss", score, "val. loss",
                              score, "test loss", score,   "samples/s", "s/epoch", "memory",     "time"};
  brim_table table = {.arena = &c->arena, .columns = sizeof head / sizeof head[0]};
  for (size_t i = 0; i < table.columns; i++) brim_table_add(&table, head[i]);
  for (size_t i = 0; i < c->count; i++) add_figures(c, &table, &c->run[i]);
  return table;
}

brim_table brim_compare_keys(brim_comparison *c)
{
  const bool by_run = c->count > c->key_count;
  brim_table table = {.arena = &c->arena, .columns = 1 + (by_run ? c->key_count : c->count)};
  if (c->key_count == 0) return table;
  brim_table_add(&table, by_run ? "run" : "key");
  for (size_t i = 0; i < table.columns - 1; i++) brim_table_add(&table, by_run ? c->key[i] : c->run[i].name);
  for (size_t row = 0; row < (by_run ? c->count : c->key_count); row++) {
    brim_table_add(&table, by_run ? c->run[row].name : c->key[row]);
    for (size_t i = 0; i < table.columns - 1; i++)
      brim_table_add(&table, brim_compare_value(c, &c->run[by_run ? row : i], c->key[by_run ? i : row]));
  }
  return table;
}

const char *brim_compare_legend(brim_comparison *c, const brim_compared *run)
{
  brim_text text = {0};
  brim_text_add(&text, run->name);
  for (size_t i = 0; i < c->key_count; i++)
    brim_text_printf(&text, "%s%s=%s", i ? " " : ": ", c->key[i], brim_compare_value(c, run, c->key[i]));
  const char *out = text.length <= LEGEND_BYTES_MAX ? brim_arena_string(&c->arena, text.s) : run->name;
  brim_text_release(&text);
  return out;
}
