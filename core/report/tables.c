/* Makes tables that compare runs, for `brim compare` and for reports. See runs.h. */
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
  if (s->device_peak_bytes > 0) brim_format_bytes(bytes, sizeof bytes, (uint64_t)s->device_peak_bytes);
  if (s->wall_seconds >= 60) brim_format_seconds(time, sizeof time, s->wall_seconds);
  if (s->wall_seconds < 60) snprintf(time, sizeof time, "%.1f s", s->wall_seconds);
  brim_table_add(table, run->name);
  brim_table_add(table, s->status);
  brim_table_add(table, brim_compare_value(c, run, "model.id"));
  brim_table_add(table, brim_compare_dataset(c, run));
  brim_table_number(table, s->steps, 0);
  for (enum brim_part part = 0; part < BRIM_PART_COUNT; part++) {
    brim_table_number(table, s->loss[part], 4);
    brim_table_number(table, brim_summary_shown(s, kind, part), digits);
  }
  brim_table_number(table, s->samples_per_second, 0);
  brim_table_number(table, brim_epochs_mean_seconds(&run->metrics), 2);
  brim_table_add(table, bytes);
  brim_table_add(table, time);
}

brim_table brim_compare_figures(brim_comparison *c)
{
  const char *score = brim_score_name(brim_compare_score(c));
  const bool rounds = strcmp(brim_compare_step(c), "round") == 0;
  const char *const head[] = {
      "run", "status",    "model", "dataset",   rounds ? "rounds" : "steps",    "train loss", score, "val. loss",
      score, "test loss", score,   "samples/s", rounds ? "s/round" : "s/epoch", "memory",     "time"};
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

/* ---- runs that differ in their seeds ---- */

/* Returns the differing keys of a run except the seed: "method=random model.width=8". */
static const char *without_seed(brim_comparison *c, const brim_compared *run)
{
  brim_text text = {0};
  for (size_t i = 0; i < c->key_count; i++)
    if (strcmp(c->key[i], "seed") != 0)
      brim_text_printf(&text, "%s%s=%s", text.length ? " " : "", c->key[i], brim_compare_value(c, run, c->key[i]));
  const char *out = brim_arena_string(&c->arena, brim_text_str(&text));
  brim_text_release(&text);
  return out;
}

brim_mean brim_mean_of(const double *value, size_t count)
{
  double sum = 0, squares = 0;
  for (size_t i = 0; i < count; i++) sum += value[i];
  const double mean = sum / (double)count;
  for (size_t i = 0; i < count; i++) squares += (value[i] - mean) * (value[i] - mean);
  return (brim_mean){mean, count > 1 ? sqrt(squares / (double)(count - 1)) : NAN};
}

void brim_table_mean(brim_table *table, brim_mean m, int decimals)
{
  if (!isfinite(m.deviation) || !isfinite(m.mean))
    brim_table_number(table, m.mean, decimals);
  else
    brim_table_add(table,
                   brim_arena_printf(table->arena, "%.*f \xc2\xb1 %.*f", decimals, m.mean, decimals, m.deviation));
}

/* Adds the runs from `first` on that differ from it only in their seeds; adds none if an earlier run is one of them. */
static void add_seeds(brim_comparison *c, brim_table *table, const char *const *group, size_t first, double *value)
{
  const enum brim_score kind = brim_compare_score(c);
  const enum brim_part judged = brim_compare_judged(&c->run[first].metrics);
  double *loss = value, *score = value + c->count;
  size_t count = 0;
  for (size_t i = 0; i < first; i++)
    if (strcmp(group[i], group[first]) == 0) return;
  for (size_t i = first; i < c->count; i++) {
    const brim_summary *s = &c->run[i].summary;
    if (strcmp(group[i], group[first]) != 0) continue;
    loss[count] = s->loss[judged];
    score[count++] = brim_summary_shown(s, kind, judged);
  }
  brim_table_add(table, group[first]);
  brim_table_number(table, (double)count, 0);
  brim_table_mean(table, brim_mean_of(loss, count), 4);
  brim_table_mean(table, brim_mean_of(score, count), kind == BRIM_SCORE_MAE ? 4 : 2);
}

brim_table brim_compare_seeds(brim_comparison *c)
{
  const char *split = brim_part_names[brim_compare_judged(&c->run[0].metrics)];
  const char *const head[] = {"group of runs", "seeds", brim_arena_printf(&c->arena, "%s loss", split),
                              brim_score_name(brim_compare_score(c))};
  brim_table table = {.arena = &c->arena, .columns = sizeof head / sizeof head[0]};
  const char **group = BRIM_ARENA_NEW(&c->arena, const char *, c->count);
  double *value = BRIM_ARENA_NEW(&c->arena, double, 2 * c->count);
  bool differs = false;
  for (size_t i = 0; i < c->key_count; i++) differs = differs || strcmp(c->key[i], "seed") == 0;
  if (!differs) return table;
  for (size_t i = 0; i < c->count; i++) group[i] = without_seed(c, &c->run[i]);
  for (size_t i = 0; i < table.columns; i++) brim_table_add(&table, head[i]);
  for (size_t i = 0; i < c->count; i++) add_seeds(c, &table, group, i, value);
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
