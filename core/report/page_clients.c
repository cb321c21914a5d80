/* Shows a federation: how fast its model improved, and its clients' samples and participation. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page_parts.h"

#define PILES_MAX 40 /* maximum number of bars in a chart of clients by value */
#define NAME_BYTES_MAX 24

/* ---- accuracy ---- */

/* Returns the sum of a column over the rounds up to `step`. */
static double sum_until(const brim_series *s, const char *name, double step)
{
  const double *value = brim_series_values(s, name);
  double sum = 0;
  for (size_t i = 0; value && i < s->count && s->step[i] <= step; i++) sum += value[i];
  return value ? sum : NAN;
}

/* Returns the best evaluation; the series' count if there are no accuracies. */
static size_t find_best(const brim_series *judged)
{
  const double *accuracy = brim_series_values(judged, "accuracy");
  size_t best = judged->count;
  for (size_t i = 0; accuracy && i < judged->count; i++)
    if (isfinite(accuracy[i]) && (best == judged->count || accuracy[i] > accuracy[best])) best = i;
  return best;
}

static void add_reached(const brim_compared *run, double accuracy, brim_table *table)
{
  const brim_series *train = &run->metrics.split[BRIM_PART_TRAIN], *judged = brim_compare_judged_series(&run->metrics);
  char text[64];
  const size_t i = brim_compare_reached(run, accuracy);
  const double step = i < judged->count ? judged->step[i] : NAN;
  snprintf(text, sizeof text, "%.0f %%", 100 * accuracy);
  brim_table_add(table, text);
  snprintf(text, sizeof text, "%.15g", step);
  brim_table_add(table, isfinite(step) ? text : "not reached");
  brim_table_add(table,
                 brim_figure_seconds(text, sizeof text, isfinite(step) ? sum_until(train, "seconds", step) : NAN));
  brim_table_number(table, isfinite(step) ? sum_until(train, "samples", step) : NAN, 0);
}

void brim_page_reached(const brim_page_run *page, brim_text *out)
{
  const brim_series *judged = brim_compare_judged_series(&page->run->metrics);
  const size_t best = find_best(judged);
  if (!page->clients || best == judged->count) return;
  brim_table table = {.arena = &page->all->arena, .columns = 4};
  brim_table_add(
      &table, brim_arena_printf(table.arena, "%s accuracy", brim_part_names[brim_compare_judged(&page->run->metrics)]));
  brim_table_add(&table, "round");
  brim_table_add(&table, "training time");
  brim_table_add(&table, "training samples");
  for (size_t i = 0; i < BRIM_GOALS; i++) add_reached(page->run, brim_compare_goals[i], &table);
  brim_page_begin(out, "Accuracy reached");
  brim_text_printf(out, "<p>The best is %.2f %%, in round %.15g.</p>\n",
                   100 * brim_series_values(judged, "accuracy")[best], judged->step[best]);
  brim_page_table(out, &table);
  brim_page_end(out);
}

/* Adds a cell such as "12 (0.34 s)". */
static void add_reached_in_short(const brim_compared *run, double accuracy, brim_table *table)
{
  const brim_series *judged = brim_compare_judged_series(&run->metrics);
  const size_t i = brim_compare_reached(run, accuracy);
  char seconds[64];
  if (i == judged->count) {
    brim_table_add(table, "-");
    return;
  }
  brim_figure_seconds(seconds, sizeof seconds,
                      sum_until(&run->metrics.split[BRIM_PART_TRAIN], "seconds", judged->step[i]));
  brim_table_add(table, brim_arena_printf(table->arena, "%.15g (%s)", judged->step[i], seconds));
}

void brim_page_reached_of_all(brim_comparison *c, brim_text *out)
{
  bool any = false;
  brim_table table = {.arena = &c->arena, .columns = 2 + BRIM_GOALS};
  brim_table_add(&table, "run");
  brim_table_add(&table, "best accuracy");
  for (size_t i = 0; i < BRIM_GOALS; i++)
    brim_table_add(&table, brim_arena_printf(&c->arena, "%.0f %%", 100 * brim_compare_goals[i]));
  for (size_t i = 0; i < c->count; i++) {
    const brim_series *judged = brim_compare_judged_series(&c->run[i].metrics);
    const size_t best = find_best(judged);
    if (!brim_compare_is_federated(&c->run[i]) || best == judged->count) continue;
    any = true;
    brim_table_add(&table, brim_compare_legend(c, &c->run[i]));
    brim_table_add(&table, brim_arena_printf(&c->arena, "%.2f %%", 100 * brim_series_values(judged, "accuracy")[best]));
    for (size_t k = 0; k < BRIM_GOALS; k++) add_reached_in_short(&c->run[i], brim_compare_goals[k], &table);
  }
  if (!any) return;
  brim_page_begin(out, "Accuracy reached");
  brim_text_add(out, "<p>Round and training time.</p>\n");
  brim_page_table(out, &table);
  brim_page_end(out);
}

/* ---- the partition ---- */

static double most_of(const double *value, int64_t count)
{
  double most = 0;
  for (int64_t i = 0; i < count; i++) most = fmax(most, value[i]);
  return most;
}

/* Returns the shade for a fraction of the maximum. It uses the square root, because otherwise a few large numbers would
 * leave all others pale. */
static int shade_of(double share)
{
  return (int)fmax(1, ceil(BRIM_PAGE_SHADES * sqrt(share) - 1e-9));
}

/* Adds all squares of one colour as one path, in units of a square. */
static void add_squares(const brim_page_clients *c, int shade, double most, brim_text *out)
{
  bool any = false;
  for (int64_t k = 0; k < c->classes; k++)
    for (int64_t i = 0; i < c->shown; i++) {
      const double samples = c->of_class[i * BRIM_PAGE_CLASSES_MAX + k];
      if (!(samples > 0) || shade_of(samples / most) != shade) continue;
      if (!any) brim_text_printf(out, "<path class=\"right%d\" d=\"", shade);
      any = true;
      brim_text_printf(out, "M%lld %lldh1v1h-1z", (long long)i, (long long)k);
    }
  if (any) brim_text_add(out, "\"/>\n");
}

/* Returns a class's name from the test data's table, or its number. */
static const char *class_name(const brim_page_run *page, int64_t k)
{
  const char *name =
      brim_json_string(json_array_get(json_object_get(page->summary, "test_classes"), (size_t)k), "class");
  const bool is_short = name[0] && strlen(name) <= NAME_BYTES_MAX;
  return is_short ? name : brim_arena_printf(&page->all->arena, "%lld", (long long)k);
}

static void add_map_labels(const brim_page_run *page, double room, double width, double height, brim_text *out)
{
  const brim_page_clients *c = page->clients;
  int64_t step = 1;
  for (int64_t k = 0; k < c->classes && height >= 10; k++) {
    brim_text_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", room - 6, height * ((double)k + 0.5) + 4);
    brim_svg_escape(out, class_name(page, k));
    brim_text_add(out, "</text>\n");
  }
  while (width * (double)step < 44) step += step < 5 ? 4 : 5;
  for (int64_t i = 0; i < c->shown; i += step)
    brim_text_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%lld</text>\n",
                     room + width * ((double)i + 0.5), height * (double)c->classes + 16,
                     (long long)(i * c->count / c->shown));
  brim_text_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">client</text>\n",
                   room + width * (double)c->shown / 2, height * (double)c->classes + 34);
}

static void add_map(const brim_page_run *page, double most, brim_text *out)
{
  const brim_page_clients *c = page->clients;
  const double width = c->shown <= 25 ? 28 : c->shown <= 50 ? 16 : c->shown <= 100 ? 8 : 4.5;
  const double height = c->classes <= 20 ? 18 : c->classes <= 50 ? 12 : 5;
  size_t longest = 1;
  for (int64_t k = 0; k < c->classes; k++) longest = (size_t)fmax((double)longest, (double)strlen(class_name(page, k)));
  const double room = height >= 10 ? 14 + 7 * (double)longest : 8;
  const double x = room + width * (double)c->shown + 8, y = height * (double)c->classes + 42;
  brim_text_printf(out,
                   "<div class=\"wide\"><svg class=\"map\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
                   "font-size=\"12\" role=\"img\" aria-label=\"samples of each class and client\">\n",
                   x, y, x, y);
  add_map_labels(page, room, width, height, out);
  brim_text_printf(out, "<g transform=\"translate(%.1f 0) scale(%.1f %.1f)\">\n", room, width, height);
  brim_text_printf(out, "<path class=\"ground\" d=\"M0 0h%lldv%lldh-%lldz\"/>\n", (long long)c->shown,
                   (long long)c->classes, (long long)c->shown);
  for (int shade = 1; shade <= BRIM_PAGE_SHADES; shade++) add_squares(c, shade, most, out);
  brim_text_add(out, "</g>\n</svg></div>\n");
}

static void add_partition(const brim_page_run *page, brim_text *out)
{
  const brim_page_clients *c = page->clients;
  if (!c->of_class || c->classes < 2) return;
  brim_text_add(out, "<h3>Classes of the clients' samples</h3>\n");
  if (c->classes > BRIM_PAGE_CLASSES_MAX) {
    brim_text_printf(out, "<p>%lld classes are too many to draw; see partition.csv.</p>\n", (long long)c->classes);
    return;
  }
  const double most = most_of(c->of_class, c->shown * BRIM_PAGE_CLASSES_MAX);
  brim_text_printf(out,
                   "<p>A column for each client, a row for each class. The darkest squares stand for %.0f samples, "
                   "those half as dark for a quarter of that.",
                   most);
  if (c->shown < c->count)
    brim_text_printf(out, " %lld of %lld clients, evenly spaced.", (long long)c->shown, (long long)c->count);
  brim_text_add(out, "</p>\n");
  add_map(page, most, out);
}

/* ---- values per client ---- */

typedef struct spread {
  const char *title, *of_clients; /* titles: of a chart with a bar per value, and of one with a bar per client */
  const char *what;               /* title of the second chart's x axis */
  size_t color;
} spread;

static void draw_bars(const spread *s, const char *title, const char *x_label, const double *x, const double *y,
                      size_t count, double bar, brim_text *out)
{
  const brim_curve curve = {.name = s->color, .x = x, .y = y, .count = count, .bar = bar};
  brim_svg_chart(&(brim_chart){title, x_label, &curve, 1}, out);
}

/* Draws the number of clients by value: whole numbers, with a bar for each value or for a range. */
static void draw_piles(const spread *s, brim_arena *arena, const double *value, int64_t count, brim_text *out)
{
  double least = INFINITY, most = 0;
  for (int64_t i = 0; i < count; i++) {
    least = fmin(least, value[i]);
    most = fmax(most, value[i]);
  }
  const double bar = ceil((most - least + 1) / PILES_MAX);
  const size_t piles = (size_t)((most - least) / bar) + 1;
  double *x = BRIM_ARENA_NEW(arena, double, piles), *y = BRIM_ARENA_NEW(arena, double, piles);
  for (size_t i = 0; i < piles; i++) {
    x[i] = least + bar * (double)i + (bar - 1) / 2;
    y[i] = 0;
  }
  for (int64_t i = 0; i < count; i++) y[(size_t)((value[i] - least) / bar)]++;
  draw_bars(s, s->of_clients, s->what, x, y, piles, bar, out);
}

static void draw_spread(const spread *s, const brim_page_run *page, const double *value, brim_text *out)
{
  const int64_t count = page->clients->count;
  brim_arena *arena = &page->all->arena;
  int64_t alike = 1;
  while (alike < count && value[alike] == value[0]) alike++;
  if (alike == count) return; /* shown by the table */
  if (count > BRIM_PAGE_CLIENTS_MAX) {
    draw_piles(s, arena, value, count, out);
    return;
  }
  double *x = BRIM_ARENA_NEW(arena, double, (size_t)count);
  for (int64_t i = 0; i < count; i++) x[i] = (double)i;
  draw_bars(s, s->title, "client", x, value, (size_t)count, 1, out);
}

static void add_spread(brim_table *table, const char *name, const double *value, int64_t count)
{
  double sum = 0, squares = 0, least = INFINITY;
  for (int64_t i = 0; i < count; i++) {
    sum += value[i];
    least = fmin(least, value[i]);
  }
  const double mean = sum / (double)count, most = most_of(value, count);
  for (int64_t i = 0; i < count; i++) squares += (value[i] - mean) * (value[i] - mean);
  brim_table_add(table, name);
  brim_table_number(table, least, 0);
  brim_table_number(table, mean, 2);
  brim_table_number(table, most, 0);
  brim_table_number(table, sqrt(squares / (double)count), 2);
}

static void add_table(const brim_page_run *page, brim_text *out)
{
  static const char *const head[] = {"per client", "least", "mean", "most", "standard deviation"};
  const brim_page_clients *c = page->clients;
  brim_table table = {.arena = &page->all->arena, .columns = sizeof head / sizeof head[0]};
  int64_t trained = 0;
  for (int64_t i = 0; c->rounds && i < c->count; i++) trained += c->rounds[i] > 0;
  brim_text_printf(out, "<p>%lld clients", (long long)c->count);
  if (c->rounds) brim_text_printf(out, ", of which %lld trained at least once", (long long)trained);
  if (c->left_out > 0) brim_text_printf(out, "; %.0f update%s did not arrive", c->left_out, c->left_out > 1 ? "s" : "");
  if (isfinite(c->coverage))
    brim_text_printf(out, "; the clients of a round together had %.1f %% of the classes (mean)", 100 * c->coverage);
  brim_text_add(out, ".</p>\n");
  for (size_t i = 0; i < table.columns; i++) brim_table_add(&table, head[i]);
  if (c->samples) add_spread(&table, "samples", c->samples, c->count);
  if (c->rounds) add_spread(&table, "rounds in which it trained", c->rounds, c->count);
  brim_page_table(out, &table);
}

void brim_page_clients_section(const brim_page_run *page, brim_text *out)
{
  static const spread samples = {"samples of each client", "clients by their samples", "samples", 0};
  static const spread rounds = {"rounds in which each client trained", "clients by the rounds in which they trained",
                                "rounds", 2};
  const brim_page_clients *c = page->clients;
  if (!c || (!c->samples && !c->rounds)) return;
  brim_page_begin(out, "Clients");
  add_table(page, out);
  brim_text_add(out, "<div class=\"charts\">\n");
  if (c->samples) draw_spread(&samples, page, c->samples, out);
  if (c->rounds) draw_spread(&rounds, page, c->rounds, out);
  brim_text_add(out, "</div>\n");
  add_partition(page, out);
  brim_page_end(out);
}
