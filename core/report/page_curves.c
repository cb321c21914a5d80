/* Draws curves over steps: a chart for each figure of the records. The page of one run has a colour for each split, a
 * page of several runs one for each run. */
#include <math.h>
#include <string.h>

#include "report/methods.h"
#include "report/page_parts.h"

#define MEMORY_CURVES 3
#define MIB 1048576.0

/* Whether a figure has a chart here: not coordinates, constants, and figures that have charts elsewhere. */
static bool is_drawn(const char *name)
{
  static const char *const left_out[] = {"epoch",           "samples",       "tokens",    "seconds",
                                         "simulated_clock", "skipped_steps", "clients",   "clients_left_out",
                                         "planned_bytes",   "device_bytes",  "rss_bytes", "loader_seconds"};
  for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++)
    if (strcmp(left_out[i], name) == 0) return false;
  return true;
}

static void collect(const brim_metrics *metrics, brim_names *names)
{
  for (int i = 0; i < BRIM_PART_COUNT; i++)
    for (size_t k = 0; k < metrics->split[i].columns; k++) {
      const char *name = metrics->split[i].column[k].name;
      if (is_drawn(name) && brim_figure_is_score(name)) brim_names_add(names, name);
    }
  for (size_t k = 0; k < metrics->split[BRIM_PART_TRAIN].columns; k++) {
    const char *name = metrics->split[BRIM_PART_TRAIN].column[k].name;
    if (is_drawn(name)) brim_names_add(names, name);
  }
}

static brim_curve curve_of(const brim_series *series, const char *figure)
{
  const double *value = brim_series_values(series, figure);
  return (brim_curve){.x = series->step, .y = value, .count = value ? series->count : 0};
}

/* A curve needs two points, because one adds nothing to the table of figures. */
static bool is_curve(const brim_curve *c)
{
  size_t points = 0;
  for (size_t i = 0; i < c->count && points < 2; i++) points += isfinite(c->y[i]);
  return points > 1;
}

static void draw(const brim_chart *chart, brim_text *out)
{
  bool is_worth_it = false;
  for (size_t i = 0; i < chart->count; i++) is_worth_it = is_worth_it || is_curve(&chart->curve[i]);
  if (is_worth_it) brim_svg_chart(chart, out);
}

static void add_legend(brim_text *out, size_t index, const char *name)
{
  brim_text_add(out, "<span>");
  brim_svg_sample(index, out);
  brim_svg_escape(out, name);
  brim_text_add(out, "</span>\n");
}

static void begin_charts(brim_text *out)
{
  brim_text_add(out, "</p>\n<div class=\"charts\">\n");
}

/* ---- one run ---- */

static bool any_curve(const brim_metrics *metrics, const brim_names *names)
{
  for (size_t i = 0; i < names->count; i++)
    for (size_t k = 0; k < BRIM_PART_COUNT; k++) {
      const brim_curve curve = curve_of(&metrics->split[k], names->name[i]);
      if (is_curve(&curve)) return true;
    }
  return false;
}

void brim_page_curves(const brim_page_run *page, brim_text *out)
{
  const brim_metrics *metrics = &page->run->metrics;
  brim_names names = {0};
  collect(metrics, &names);
  if (!any_curve(metrics, &names)) return;
  brim_page_begin(out, "Curves");
  brim_text_add(out, "<p class=\"legend\">\n");
  for (size_t i = 0; i < BRIM_PART_COUNT; i++)
    if (metrics->split[i].count > 0) add_legend(out, i, brim_part_titles[i]);
  begin_charts(out);
  for (size_t i = 0; i < names.count; i++) {
    brim_curve curve[BRIM_PART_COUNT];
    const size_t splits = brim_figure_is_score(names.name[i]) ? BRIM_PART_COUNT : 1;
    for (size_t k = 0; k < splits; k++) {
      curve[k] = curve_of(&metrics->split[k], names.name[i]);
      curve[k].name = k;
      curve[k].faint = k == BRIM_PART_TRAIN && splits > 1;
    }
    draw(
        &(brim_chart){brim_figure_title(&page->all->arena, names.name[i]), brim_compare_step(page->all), curve, splits},
        out);
  }
  brim_text_add(out, "</div>\n");
  brim_page_end(out);
}

/* ---- memory ---- */

/* Makes a curve of memory in MiB; without `figure`, of the largest planned peak. */
static brim_curve memory_curve(const brim_page_run *page, const char *figure)
{
  const brim_series *series = &page->run->metrics.split[BRIM_PART_TRAIN];
  const double *bytes = figure ? brim_series_values(series, figure) : NULL;
  const double planned =
      brim_json_number(page->summary ? page->summary : page->plan, page->summary ? "planned_peak_bytes" : "peak_bytes");
  double *mib = BRIM_ARENA_NEW(&page->all->arena, double, series->count + 1);
  for (size_t i = 0; i < series->count; i++) mib[i] = (bytes ? bytes[i] : figure ? NAN : planned) / MIB;
  return (brim_curve){.x = series->step, .y = mib, .count = series->count};
}

void brim_page_memory_curves(const brim_page_run *page, brim_text *out)
{
  static const char *const figure[MEMORY_CURVES] = {NULL, "device_bytes", "rss_bytes"};
  brim_curve curve[MEMORY_CURVES];
  if (!page->clients || !brim_series_values(&page->run->metrics.split[BRIM_PART_TRAIN], figure[1])) return;
  brim_text_add(out, "<h3>By round</h3>\n<p class=\"legend\">\n");
  for (size_t i = 0; i < MEMORY_CURVES; i++) {
    curve[i] = memory_curve(page, figure[i]);
    curve[i].name = i;
    add_legend(out, i, figure[i] ? brim_figure_title(&page->all->arena, figure[i]) : "planned");
  }
  begin_charts(out);
  draw(&(brim_chart){"memory, MiB", brim_compare_step(page->all), curve, MEMORY_CURVES}, out);
  brim_text_add(out, "</div>\n");
}

/* ---- several ---- */

static void draw_all(brim_comparison *c, const char *figure, brim_text *out)
{
  const bool is_score = brim_figure_is_score(figure);
  const size_t each = is_score ? 2 : 1;
  brim_curve *curve = BRIM_ARENA_NEW(&c->arena, brim_curve, each * c->count);
  for (size_t i = 0; i < c->count; i++) {
    const brim_metrics *m = &c->run[i].metrics;
    brim_curve *of_run = curve + each * i;
    of_run[0] = curve_of(&m->split[BRIM_PART_TRAIN], figure);
    if (is_score) of_run[1] = curve_of(brim_compare_judged_series(m), figure);
    for (size_t k = 0; k < each; k++) of_run[k].name = i;
    of_run[0].faint = is_score;
  }
  draw(&(brim_chart){brim_figure_title(&c->arena, figure), brim_compare_step(c), curve, each * c->count}, out);
}

/* Draws the accuracy of runs over the simulated clock. */
static void draw_by_clock(brim_comparison *c, brim_text *out)
{
  brim_curve *curve = BRIM_ARENA_NEW(&c->arena, brim_curve, c->count);
  bool any = false;
  for (size_t i = 0; i < c->count; i++) {
    const brim_series *judged = brim_compare_judged_series(&c->run[i].metrics);
    double *clock = BRIM_ARENA_NEW(&c->arena, double, judged->count);
    curve[i] = curve_of(judged, "accuracy");
    curve[i].name = i;
    curve[i].x = clock;
    for (size_t k = 0; k < judged->count; k++) {
      clock[k] = brim_compare_clock(&c->run[i], judged->step[k]);
      any = any || isfinite(clock[k]);
    }
  }
  if (any) draw(&(brim_chart){"accuracy by simulated time", "simulated seconds", curve, c->count}, out);
}

void brim_page_curves_of_all(brim_comparison *c, brim_text *out)
{
  brim_names names = {0};
  for (size_t i = 0; i < c->count; i++) collect(&c->run[i].metrics, &names);
  if (names.count == 0) return;
  brim_page_begin(out, "Curves");
  if (c->count > BRIM_SVG_CURVES_MAX) {
    brim_text_printf(out, "<p>Curves of %zu runs would be indistinguishable: name at most %d runs.</p>\n", c->count,
                     BRIM_SVG_CURVES_MAX);
    brim_page_end(out);
    return;
  }
  brim_text_add(out, "<p>Strong lines: validation data, or test data if there is none; faint lines: training "
                     "data.</p>\n<p class=\"legend\">\n");
  for (size_t i = 0; i < c->count; i++) add_legend(out, i, brim_compare_legend(c, &c->run[i]));
  begin_charts(out);
  for (size_t i = 0; i < names.count; i++) draw_all(c, names.name[i], out);
  draw_by_clock(c, out);
  brim_text_add(out, "</div>\n");
  brim_page_end(out);
}

/* ---- methods ---- */

void brim_page_curves_of_methods(brim_comparison *c, const brim_method *method, size_t count, brim_text *out)
{
  brim_chart chart[2];
  if (count > BRIM_SVG_CURVES_MAX) return;
  const size_t charts = brim_methods_charts(c, method, count, chart);
  brim_text_add(out, "<p class=\"legend\">\n");
  for (size_t i = 0; i < count; i++) add_legend(out, i, method[i].name);
  begin_charts(out);
  for (size_t i = 0; i < charts; i++) draw(&chart[i], out);
  brim_text_add(out, "</div>\n");
}
