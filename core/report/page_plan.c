/* Shows memory: planned, by class, and by place. */
#include <math.h>
#include <stdio.h>

#include "report/page_parts.h"
#include "report/plan_svg.h"

#define COLORS 8 /* number of colours in charts, one for each class */

static double sum_of(const json_t *classes)
{
  const char *key;
  json_t *value;
  double sum = 0;
  json_object_foreach((json_t *)classes, key, value)
  {
    if (json_number_value(value) > 0) sum += json_number_value(value);
  }
  return sum;
}

static void add_bar(json_t *classes, brim_text *out)
{
  const double sum = sum_of(classes);
  const char *key;
  json_t *value;
  size_t i = 0;
  double x = 0;
  brim_text_add(out, "<svg class=\"bar\" viewBox=\"0 0 1000 24\" preserveAspectRatio=\"none\">\n");
  json_object_foreach(classes, key, value)
  {
    const double width = 1000 * json_number_value(value) / sum;
    const size_t color = i++ % COLORS;
    if (!(width > 0)) continue;
    brim_text_printf(out, "<rect class=\"color%zu\" x=\"%.2f\" width=\"%.2f\" height=\"24\"><title>", color, x, width);
    brim_svg_escape(out, key);
    brim_text_add(out, "</title></rect>\n");
    x += width;
  }
  brim_text_add(out, "</svg>\n");
}

static void add_classes(json_t *classes, brim_text *out)
{
  char bytes[32];
  const char *key;
  json_t *value;
  size_t i = 0;
  if (!(sum_of(classes) > 0)) return;
  add_bar(classes, out);
  brim_text_add(out, "<p class=\"legend\">\n");
  json_object_foreach(classes, key, value)
  {
    const size_t color = i++ % COLORS;
    if (!(json_number_value(value) > 0)) continue;
    brim_text_printf(out, "<span><i class=\"swatch color%zu\"></i>", color);
    brim_svg_escape(out, key);
    brim_text_printf(out, " %s</span>\n", brim_figure_bytes(bytes, sizeof bytes, json_number_value(value)));
  }
  brim_text_add(out, "</p>\n");
}

static void add_bytes(brim_table *table, const char *name, double bytes)
{
  char text[32];
  if (bytes > 0) brim_page_pair(table, name, brim_figure_bytes(text, sizeof text, bytes));
}

static void add_count(brim_table *table, const char *name, double count)
{
  char text[32];
  snprintf(text, sizeof text, "%.15g", count);
  if (isfinite(count)) brim_page_pair(table, name, text);
}

static void add_recompute(brim_table *table, const json_t *recompute)
{
  const double operations = brim_json_number(recompute, "operations"), share = brim_json_number(recompute, "share");
  if (!(operations > 0)) return;
  brim_page_pair(
      table, "recomputed in the backward pass",
      brim_arena_printf(table->arena, "%.15g operations, %.1f %% of the forward pass", operations, 100 * share));
}

/* ---- predicted and measured ---- */

typedef const char *(*format_fn)(char *out, size_t room, double value);

/* Formats the difference for people: "exactly", "+3.1 %". */
static const char *difference(brim_arena *arena, double predicted, double measured)
{
  if (!(predicted > 0) || !(measured > 0)) return "";
  if (predicted == measured) return "exactly";
  return brim_arena_printf(arena, "%+.1f %%", 100 * (measured / predicted - 1));
}

static void compare(brim_table *table, const char *name, format_fn format, double predicted, double measured)
{
  char text[32];
  if (!(predicted > 0) && !(measured > 0)) return;
  brim_table_add(table, name);
  brim_table_add(table, predicted > 0 ? format(text, sizeof text, predicted) : "-");
  brim_table_add(table, measured > 0 ? format(text, sizeof text, measured) : "-");
  brim_table_add(table, difference(table->arena, predicted, measured));
}

static void add_comparison(const brim_page_run *page, brim_text *out)
{
  static const char *const head[] = {"", "predicted", "measured", "difference"};
  brim_table table = {.arena = &page->all->arena, .columns = sizeof head / sizeof head[0]};
  const json_t *s = page->summary, *plan = page->plan;
  const brim_series *train = &page->run->metrics.split[BRIM_PART_TRAIN];
  const double planned = brim_json_number(s, "planned_peak_bytes");
  for (size_t i = 0; i < table.columns; i++) brim_table_add(&table, head[i]);
  compare(&table, "memory of the device, at the peak", brim_figure_bytes,
          planned > 0 ? planned : brim_json_number(plan, "peak_bytes"),
          s ? brim_json_number(s, "device_peak_bytes") : brim_series_last(train, "device_peak_bytes"));
  compare(&table, "memory of the process on the host, at its peak", brim_figure_bytes,
          brim_json_number(s, "predicted_rss_bytes"), brim_json_number(s, "rss_peak_bytes"));
  const double planned_step = brim_json_number(plan, "step_seconds");
  const double step = planned_step > 0 ? planned_step : brim_page_traced_prediction(page);
  compare(&table, brim_compare_is_federated(page->run) ? "a client's step" : "a step", brim_figure_seconds, step,
          brim_compare_is_federated(page->run) ? NAN : brim_page_step_seconds(page));
  if (table.count <= table.columns) return;
  brim_text_add(out, "<h3>Predicted and measured</h3>\n");
  brim_page_table(out, &table);
  if (!(step > 0))
    brim_text_add(out, "<p class=\"what\">The run had no device profile to predict its step from: <code>brim plan "
                       "--times</code> measures one.</p>\n");
}

/* ---- the plan ---- */

static void add_details(const brim_page_run *page, brim_text *out)
{
  const json_t *plan = page->plan, *summary = page->summary;
  brim_table table = {.arena = &page->all->arena, .columns = 2};
  brim_table_add(&table, "the plan");
  brim_table_add(&table, "");
  add_bytes(&table, "peak", brim_json_number(plan, "peak_bytes"));
  brim_page_pair(&table, "operation at the peak", brim_json_string(plan, "peak_operation"));
  if (brim_json_number(plan, "lower_bound_bytes") != brim_json_number(plan, "peak_bytes"))
    add_bytes(&table, "lower bound of any plan", brim_json_number(plan, "lower_bound_bytes"));
  if (brim_json_number(summary, "planned_peak_bytes") != brim_json_number(plan, "peak_bytes"))
    add_bytes(&table, "largest plan of the run", brim_json_number(summary, "planned_peak_bytes"));
  if (brim_json_number(summary, "device_bytes") != brim_json_number(summary, "device_peak_bytes"))
    add_bytes(&table, "placed at the end", brim_json_number(summary, "device_bytes"));
  if (brim_json_number(summary, "device_reserved_bytes") != brim_json_number(summary, "device_bytes"))
    add_bytes(&table, "with driver and libraries", brim_json_number(summary, "device_reserved_bytes"));
  add_bytes(&table, "optimizer state on the host", brim_json_number(plan, "host_state_bytes"));
  add_bytes(&table, "loader, on the host", brim_json_number(summary, "loader_bytes"));
  add_recompute(&table, json_object_get(plan, "recompute"));
  add_count(&table, "parameters", brim_json_number(plan, "parameters"));
  add_count(&table, "samples in a micro-batch", brim_json_number(plan, "batch_size"));
  brim_page_table(out, &table);
}

#define BUFFERS_MAX 450 /* limit for buffers on a page; the picture of `brim plan -o` has more */

static void add_picture(const brim_page_run *page, brim_text *out)
{
  brim_pieces pieces;
  if (!brim_pieces_read(&page->all->arena, page->buffers, &pieces)) return;
  brim_text_add(out, "<h3>The plan</h3>\n<p>Every buffer of a step: from left to right the operations between which it "
                     "lives, upwards its place in the device's memory.</p>\n<div class=\"wide\">\n");
  brim_plan_svg_embedded(&pieces, BUFFERS_MAX, out);
  brim_text_add(out, "</div>\n");
}

void brim_page_plan(const brim_page_run *page, brim_text *out)
{
  if (!page->plan && !page->summary) return;
  brim_page_begin(out, "Memory");
  add_classes(json_object_get(page->plan, "classes"), out);
  brim_page_memory_curves(page, out);
  add_comparison(page, out);
  add_picture(page, out);
  add_details(page, out);
  brim_page_end(out);
}
