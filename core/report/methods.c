/* See methods.h. A run's figures come from its records and from the files of its clients. */
#include "report/methods.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/spread.h"
#include "report/page_parts.h"

#define BY_VALUE (-1) /* decimals: four digits */
#define SCORE_PARTS 4

/* Names for programs and for people; `unit`: factor for the value that people see. */
static const struct {
  const char *key, *title;
  int decimals;
  double unit;
} shown[BRIM_METHOD_FIGURES] = {
    {"accuracy", "accuracy, %", 2, 100},
    {"loss", "loss", 4, 1},
    {"f1", "F1", 4, 1},
    {"rounds_to_50", "rounds to 50 %", 1, 1},
    {"rounds_to_80", "rounds to 80 %", 1, 1},
    {"rounds_to_90", "rounds to 90 %", 1, 1},
    {"seconds_to_50", "simulated seconds to 50 %", BY_VALUE, 1},
    {"seconds_to_80", "simulated seconds to 80 %", BY_VALUE, 1},
    {"seconds_to_90", "simulated seconds to 90 %", BY_VALUE, 1},
    {"auc", "AUC of accuracy", 4, 1},
    {"simulated_seconds", "simulated seconds", BY_VALUE, 1},
    {"joules", "joules", BY_VALUE, 1},
    {"bytes", "bytes", 0, 1},
    {"participation_variance", "participation: variance", BY_VALUE, 1},
    {"participation_gini", "participation: Gini", 4, 1},
    {"client_accuracy_variance", "accuracy per client: variance", BY_VALUE, 1},
    {"client_accuracy_gini", "accuracy per client: Gini", 4, 1},
    {"label_coverage", "label coverage, %", 2, 100},
    {"selection_seconds", "selection seconds", BY_VALUE, 1},
    {"score", "score", 4, 1},
};

static const struct {
  enum brim_method_figure figure;
  double weight;
  bool least_is_best;
} score_part[SCORE_PARTS] = {{BRIM_METHOD_ACCURACY, 0.4, false},
                             {BRIM_METHOD_SECONDS_80, 0.3, true},
                             {BRIM_METHOD_GINI, 0.2, true},
                             {BRIM_METHOD_COVERAGE, 0.1, false}};
const char brim_method_score_words[] =
    "Score: 0.4 accuracy + 0.3 simulated seconds to 80 % + 0.2 Gini of participation + 0.1 label coverage,\neach "
    "scaled from 0 (the worst of these methods) to 1 (the best); missing if one of them is missing.";

const char *brim_method_key(enum brim_method_figure figure)
{
  return shown[figure].key;
}

/* ---- a run ---- */

static double sum_of(const brim_series *s, const char *name)
{
  const double *value = brim_series_values(s, name);
  double sum = 0;
  for (size_t i = 0; value && i < s->count; i++) sum += isfinite(value[i]) ? value[i] : 0;
  return value ? sum : NAN;
}

/* Returns the mean value of the curve over rounds. */
static double area(const brim_series *judged)
{
  const double *y = brim_series_values(judged, "accuracy"), *x = judged->step;
  double sum = 0;
  if (!y || judged->count < 2) return NAN;
  for (size_t i = 1; i < judged->count; i++) sum += (x[i] - x[i - 1]) * (y[i] + y[i - 1]) / 2;
  return sum / (x[judged->count - 1] - x[0]);
}

/* The number of times that each client trained. */
static void measure_participation(const brim_page_clients *c, double *figure)
{
  brim_tally times = {0};
  bool is_whole = true;
  for (int64_t i = 0; i < c->count; i++) is_whole = is_whole && brim_tally_add(&times, c->rounds[i]) == BRIM_OK;
  const brim_spread spread = brim_tally_spread(&times);
  if (is_whole) figure[BRIM_METHOD_VARIANCE] = spread.variance;
  if (is_whole) figure[BRIM_METHOD_GINI] = spread.gini; /* NAN: no client trained */
  brim_tally_release(&times);
}

static void measure(const brim_compared *run, double *figure)
{
  const brim_series *train = &run->metrics.split[BRIM_PART_TRAIN];
  const brim_series *judged = brim_compare_judged_series(&run->metrics);
  for (int k = 0; k < BRIM_METHOD_FIGURES; k++) figure[k] = NAN;
  figure[BRIM_METHOD_ACCURACY] = brim_series_last(judged, "accuracy");
  figure[BRIM_METHOD_LOSS] = brim_series_last(judged, "loss");
  figure[BRIM_METHOD_F1] = brim_series_last(judged, "f1");
  for (int k = 0; k < BRIM_GOALS; k++) {
    const size_t i = brim_compare_reached(run, brim_compare_goals[k]);
    if (i == judged->count) continue;
    figure[BRIM_METHOD_ROUNDS_50 + k] = judged->step[i];
    figure[BRIM_METHOD_SECONDS_50 + k] = brim_compare_clock(run, judged->step[i]);
  }
  figure[BRIM_METHOD_AUC] = area(judged);
  figure[BRIM_METHOD_SECONDS] = sum_of(train, "simulated_seconds");
  figure[BRIM_METHOD_JOULES] = sum_of(train, "joules");
  figure[BRIM_METHOD_BYTES] = sum_of(train, "bytes");
  figure[BRIM_METHOD_SELECTING] = sum_of(train, "selection_seconds");
  figure[BRIM_METHOD_CLIENT_VARIANCE] = run->summary.client_accuracy_variance;
  figure[BRIM_METHOD_CLIENT_GINI] = run->summary.client_accuracy_gini;
  brim_comparison own = {0}; /* with an arena that ends with this run */
  brim_page_run page = {.all = &own, .run = run};
  const brim_page_clients *c = brim_page_read_clients(&page);
  if (c->rounds) measure_participation(c, figure);
  if (c->rounds) figure[BRIM_METHOD_COVERAGE] = c->coverage;
  brim_page_release(&page);
  brim_compare_release(&own);
}

/* ---- methods ---- */

/* Runs that do not differ so far have the same number, which is that of the first of them, and the same name. */
typedef struct grouping {
  brim_comparison *c;
  const brim_compared **run;
  size_t count;
  size_t *first;
  const char **name, **value; /* `value`: of the current key */
} grouping;

/* Separates runs by a key, if runs of a group differ in it. */
static void split(grouping *g, const char *key, const char *title)
{
  bool differs = title == NULL;
  for (size_t i = 0; i < g->count; i++) {
    g->value[i] = brim_compare_value(g->c, g->run[i], key);
    differs = differs || strcmp(g->value[i], g->value[g->first[i]]) != 0;
  }
  if (!differs) return;
  size_t *before = BRIM_ARENA_NEW(&g->c->arena, size_t, g->count);
  memcpy(before, g->first, g->count * sizeof *before);
  for (size_t i = 0; i < g->count; i++) {
    size_t k = 0;
    while (before[k] != before[i] || strcmp(g->value[k], g->value[i]) != 0) k++;
    g->first[i] = k;
    if (!title)
      g->name[i] = g->value[i];
    else if (strcmp(g->value[i], "-") != 0) /* has the key */
      g->name[i] = brim_arena_printf(&g->c->arena, "%s %s=%s", g->name[i], title, g->value[i]);
  }
}

static void group(grouping *g, brim_comparison *c)
{
  *g = (grouping){.c = c, .run = BRIM_ARENA_NEW(&c->arena, const brim_compared *, c->count + 1)};
  for (size_t i = 0; i < c->count; i++)
    if (brim_compare_is_federated(&c->run[i]) && strcmp(c->run[i].summary.status, "finished") == 0)
      g->run[g->count++] = &c->run[i];
  g->first = BRIM_ARENA_NEW(&c->arena, size_t, g->count + 1);
  g->name = BRIM_ARENA_NEW(&c->arena, const char *, g->count + 1);
  g->value = BRIM_ARENA_NEW(&c->arena, const char *, g->count + 1);
  for (size_t i = 0; i < g->count; i++) g->first[i] = 0;
  split(g, "method.id", NULL);
  for (size_t i = 0; i < c->key_count; i++)
    if (strcmp(c->key[i], "seed") != 0) split(g, c->key[i], c->key[i]);
}

/* Computes the means over the runs of a group; `value` has room for one figure of each. */
static void add_up(brim_method *m, double figure[][BRIM_METHOD_FIGURES], const grouping *g, size_t first, double *value)
{
  *m = (brim_method){.name = g->name[first], .run = BRIM_ARENA_NEW(&g->c->arena, const brim_compared *, g->count)};
  for (int k = 0; k < BRIM_METHOD_FIGURES; k++) {
    m->runs = 0;
    for (size_t i = first; i < g->count; i++) {
      if (g->first[i] != first) continue;
      m->run[m->runs] = g->run[i];
      value[m->runs++] = figure[i][k];
      m->having[k] += isfinite(figure[i][k]);
    }
    m->of[k] = brim_mean_of(value, m->runs);
  }
}

/* Scales a figure from 0, for the worst of the methods that have it, to 1. */
static double normalised(const brim_method *method, size_t count, int part, double value)
{
  double worst = NAN, best = NAN;
  const bool least = score_part[part].least_is_best;
  for (size_t i = 0; i < count; i++) {
    const double one = method[i].of[score_part[part].figure].mean;
    worst = least ? fmax(worst, one) : fmin(worst, one);
    best = least ? fmin(best, one) : fmax(best, one);
  }
  return isfinite(value) && best == worst ? 1 : (value - worst) / (best - worst);
}

static void add_scores(brim_method *method, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    double score = 0;
    for (int k = 0; k < SCORE_PARTS; k++)
      score += score_part[k].weight * normalised(method, count, k, method[i].of[score_part[k].figure].mean);
    method[i].of[BRIM_METHOD_SCORE] = (brim_mean){count > 1 ? score : NAN, NAN};
    method[i].having[BRIM_METHOD_SCORE] = isfinite(method[i].of[BRIM_METHOD_SCORE].mean) ? method[i].runs : 0;
  }
}

size_t brim_methods_list(brim_comparison *c, brim_method **out)
{
  grouping g;
  size_t count = 0;
  group(&g, c);
  double(*figure)[BRIM_METHOD_FIGURES] = brim_arena_alloc(&c->arena, (g.count + 1) * sizeof *figure);
  double *value = BRIM_ARENA_NEW(&c->arena, double, g.count + 1);
  *out = BRIM_ARENA_NEW(&c->arena, brim_method, g.count + 1);
  for (size_t i = 0; i < g.count; i++) measure(g.run[i], figure[i]);
  for (size_t i = 0; i < g.count; i++)
    if (g.first[i] == i) add_up(&(*out)[count++], figure, &g, i, value);
  add_scores(*out, count);
  return count;
}

/* ---- curves ---- */

/* NAN: not evaluated there */
static double accuracy_at(const brim_compared *run, double round)
{
  const brim_series *judged = brim_compare_judged_series(&run->metrics);
  const double *value = brim_series_values(judged, "accuracy");
  size_t at = 0;
  while (at < judged->count && judged->step[at] < round) at++;
  return value && at < judged->count && judged->step[at] <= round ? value[at] : NAN;
}

/* Computes a method's mean curves at the evaluations of its first run. */
static void mean_curves(brim_arena *arena, const brim_method *m, brim_curve *by_round, brim_curve *by_clock)
{
  const brim_series *first = brim_compare_judged_series(&m->run[0]->metrics);
  double *value = BRIM_ARENA_NEW(arena, double, m->runs), *accuracy = BRIM_ARENA_NEW(arena, double, first->count),
         *deviation = BRIM_ARENA_NEW(arena, double, first->count), *clock = BRIM_ARENA_NEW(arena, double, first->count);
  for (size_t k = 0; k < first->count; k++) {
    for (size_t i = 0; i < m->runs; i++) value[i] = brim_compare_clock(m->run[i], first->step[k]);
    clock[k] = brim_mean_of(value, m->runs).mean;
    for (size_t i = 0; i < m->runs; i++) value[i] = accuracy_at(m->run[i], first->step[k]);
    const brim_mean of = brim_mean_of(value, m->runs);
    accuracy[k] = of.mean;
    deviation[k] = of.deviation;
  }
  *by_round = (brim_curve){.x = first->step, .y = accuracy, .count = first->count};
  if (m->runs > 1) by_round->spread = deviation;
  *by_clock = *by_round;
  by_clock->x = clock;
}

size_t brim_methods_charts(brim_comparison *c, const brim_method *method, size_t count, brim_chart chart[2])
{
  brim_curve *by_round = BRIM_ARENA_NEW(&c->arena, brim_curve, count + 1);
  brim_curve *by_clock = BRIM_ARENA_NEW(&c->arena, brim_curve, count + 1);
  bool has_accuracy = false, has_clock = false;
  for (size_t i = 0; i < count; i++) {
    mean_curves(&c->arena, &method[i], &by_round[i], &by_clock[i]);
    by_round[i].name = by_clock[i].name = i;
    has_accuracy = has_accuracy || method[i].having[BRIM_METHOD_ACCURACY] > 0;
    has_clock = has_clock || method[i].having[BRIM_METHOD_SECONDS] > 0;
  }
  chart[0] = (brim_chart){"mean accuracy of the seeds", "round", by_round, count};
  chart[1] = (brim_chart){"mean accuracy by simulated time", "simulated seconds", by_clock, count};
  return !has_accuracy ? 0 : has_clock ? 2 : 1;
}

/* ---- as text ---- */

static int decimals_of(int figure, double value)
{
  const double size = fabs(value);
  if (shown[figure].decimals != BY_VALUE) return shown[figure].decimals;
  if (!(size > 0)) return 1;
  return (int)fmin(fmax(3 - floor(log10(size)), 0), 8);
}

static void add_cell(brim_table *table, const brim_method *m, int figure)
{
  const double unit = shown[figure].unit;
  const brim_mean of = {unit * m->of[figure].mean, unit * m->of[figure].deviation};
  if (!isfinite(of.mean) && m->having[figure] > 0)
    brim_table_add(table, brim_arena_printf(table->arena, "%zu of %zu", m->having[figure], m->runs));
  else
    brim_table_mean(table, of, decimals_of(figure, of.mean));
}

static void add_runs(brim_table *table, const brim_method *m)
{
  brim_table_number(table, (double)m->runs, 0);
}

static bool has_any(const brim_method *method, size_t count, int figure)
{
  bool any = false;
  for (size_t i = 0; i < count; i++) any = any || method[i].having[figure] > 0;
  return any;
}

static brim_table by_method(brim_comparison *c, const brim_method *method, size_t count)
{
  brim_table table = {.arena = &c->arena, .columns = 2 + BRIM_METHOD_FIGURES};
  brim_table_add(&table, "method");
  brim_table_add(&table, "seeds");
  for (int k = 0; k < BRIM_METHOD_FIGURES; k++) brim_table_add(&table, shown[k].title);
  for (size_t i = 0; i < count; i++) {
    brim_table_add(&table, method[i].name);
    add_runs(&table, &method[i]);
    for (int k = 0; k < BRIM_METHOD_FIGURES; k++) add_cell(&table, &method[i], k);
  }
  return table;
}

brim_table brim_methods_table(brim_comparison *c, const brim_method *method, size_t count)
{
  brim_table table = {.arena = &c->arena, .columns = 1 + count};
  if (count == 0) return table;
  if (count > BRIM_METHOD_FIGURES) return by_method(c, method, count);
  brim_table_add(&table, "method");
  for (size_t i = 0; i < count; i++) brim_table_add(&table, method[i].name);
  brim_table_add(&table, "seeds");
  for (size_t i = 0; i < count; i++) add_runs(&table, &method[i]);
  for (int k = 0; k < BRIM_METHOD_FIGURES; k++) {
    if (!has_any(method, count, k)) continue;
    brim_table_add(&table, shown[k].title);
    for (size_t i = 0; i < count; i++) add_cell(&table, &method[i], k);
  }
  return table;
}

static void add_number(brim_text *out, double value)
{
  brim_text_add(out, ",");
  if (isfinite(value)) brim_text_printf(out, "%.17g", value);
}

void brim_methods_csv(const brim_method *method, size_t count, brim_text *out)
{
  brim_text_add(out, "method,seeds");
  for (int k = 0; k < BRIM_METHOD_SCORE; k++) brim_text_printf(out, ",%s,%s_deviation", shown[k].key, shown[k].key);
  brim_text_printf(out, ",%s\n", shown[BRIM_METHOD_SCORE].key);
  for (size_t i = 0; i < count; i++) {
    brim_text_add_csv(out, method[i].name);
    brim_text_printf(out, ",%zu", method[i].runs);
    for (int k = 0; k < BRIM_METHOD_SCORE; k++) {
      add_number(out, method[i].of[k].mean);
      add_number(out, isfinite(method[i].of[k].mean) ? method[i].of[k].deviation : NAN);
    }
    add_number(out, method[i].of[BRIM_METHOD_SCORE].mean);
    brim_text_add(out, "\n");
  }
}

bool brim_page_methods(brim_comparison *c, brim_text *out)
{
  brim_method *method;
  const size_t count = brim_methods_list(c, &method);
  const brim_table table = brim_methods_table(c, method, count);
  if (table.count == 0) return false;
  brim_page_begin(out, "Methods");
  brim_text_add(out, "<p>Means, and standard deviations where there are several seeds. \"2 of 3\": only this many "
                     "seeds reached the accuracy.</p>\n<p>");
  brim_svg_escape(out, brim_method_score_words);
  brim_text_add(out, "</p>\n");
  brim_page_table(out, &table);
  brim_page_curves_of_methods(c, method, count, out);
  brim_page_end(out);
  return true;
}
