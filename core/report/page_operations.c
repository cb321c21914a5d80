/* Shows the time of a step by operation: measured in a traced step, predicted from the device profile, and the lower
 * bound at the rates that the device reaches. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/page_parts.h"

#define ROWS_MAX 14          /* most kinds of operations shown; the others are summed */
#define NODES_MAX 60         /* rows of the folded table */
#define OPERATIONS_MAX 20000 /* limit for operations in the file; more are ignored */

/* Times that can be added; NAN plus any time is NAN. */
typedef struct times {
  const char *name, *detail;
  double runs, measured, predicted, least; /* seconds per step */
  bool guessed;
} times;

static double seconds_of(const json_t *row, const char *key)
{
  const double seconds = brim_json_number(row, key);
  return seconds >= 0 && seconds < 1e9 ? seconds : NAN;
}

static times times_of(const json_t *row)
{
  const double least = seconds_of(row, "least_seconds"), runs = brim_json_number(row, "runs");
  return (times){brim_json_string(row, "op"),
                 brim_json_string(row, "name"),
                 runs > 0 ? runs : 1,
                 seconds_of(row, "seconds"),
                 seconds_of(row, "predicted_seconds"),
                 least > 0 ? least : NAN,
                 json_is_true(json_object_get(row, "guessed"))};
}

static void add_to(times *sum, const times *one)
{
  sum->runs += one->runs;
  sum->measured += one->measured;
  sum->predicted += one->predicted;
  sum->least += one->least;
  sum->guessed = sum->guessed || one->guessed;
}

static int most_first(const void *a, const void *b)
{
  const times *x = a, *y = b;
  return (x->measured < y->measured) - (x->measured > y->measured);
}

/* Adds the rows of each kind of operation together. */
static size_t group(const times *node, size_t count, times *out)
{
  size_t groups = 0;
  for (size_t i = 0; i < count; i++) {
    size_t k = 0;
    while (k < groups && strcmp(out[k].name, node[i].name) != 0) k++;
    if (k < groups)
      add_to(&out[k], &node[i]);
    else {
      out[groups] = node[i];
      out[groups++].detail = "";
    }
  }
  qsort(out, groups, sizeof *out, most_first);
  return groups;
}

/* ---- bars ---- */

static void add_ms(double seconds, bool guessed, brim_text *out)
{
  const double ms = 1e3 * seconds;
  if (!isfinite(ms))
    brim_text_add(out, "<td></td>");
  else
    brim_text_printf(out, "<td class=\"number\">%s%.*f</td>", guessed ? "~" : "", ms >= 100 ? 1 : ms >= 1 ? 2 : 3, ms);
}

/* Draws the measured time as a bar, with a mark for the prediction and a darker part for the lower bound. */
static void add_bar(const times *t, double longest, brim_text *out)
{
  const double unit = longest > 0 ? 100 / longest : 0;
  brim_text_printf(out,
                   "<td class=\"meter\"><svg viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\"><rect class=\"o-all\" "
                   "width=\"%.2f\" height=\"10\"/>",
                   unit * t->measured);
  if (isfinite(t->least))
    brim_text_printf(out, "<rect class=\"o-least\" width=\"%.2f\" height=\"10\"/>", unit * fmin(t->least, t->measured));
  if (isfinite(t->predicted))
    brim_text_printf(out, "<rect class=\"o-plan\" x=\"%.2f\" width=\"0.8\" height=\"10\"/>",
                     fmin(unit * t->predicted, 99.2));
  brim_text_add(out, "</svg></td>");
}

/* The scales of all rows of a table. */
typedef struct scale {
  double whole, longest; /* seconds: of a step, and of the longest bar */
  bool has_least;        /* if false, those columns are left out */
} scale;

static void add_row(const times *t, const scale *s, brim_text *out)
{
  brim_text_add(out, "<tr><td>");
  brim_svg_escape(out, t->name);
  if (t->detail[0]) {
    brim_text_add(out, " '");
    brim_svg_escape(out, t->detail);
    brim_text_add(out, "'");
  }
  brim_text_printf(out, "</td><td class=\"number\">%.0f</td>", t->runs);
  add_bar(t, s->longest, out);
  add_ms(t->measured, false, out);
  brim_text_printf(out, "<td class=\"number\">%.1f</td>", s->whole > 0 ? 100 * t->measured / s->whole : 0);
  add_ms(t->predicted, t->guessed, out);
  if (s->has_least) add_ms(t->least, false, out);
  if (s->has_least && t->least > 0)
    brim_text_printf(out, "<td class=\"number\">%.1f</td>", t->measured / t->least);
  else if (s->has_least)
    brim_text_add(out, "<td></td>");
  brim_text_add(out, "</tr>\n");
}

static bool has_least(const times *t, size_t count)
{
  for (size_t i = 0; i < count; i++)
    if (t[i].least > 0) return true;
  return false;
}

static void add_rows(const times *t, size_t count, size_t most, double whole, brim_text *out)
{
  times others = {.name = "other operations", .detail = ""};
  scale s = {.whole = whole, .has_least = has_least(t, count)};
  for (size_t i = 0; i < count && i < most; i++) s.longest = fmax(s.longest, fmax(t[i].measured, t[i].predicted));
  brim_text_printf(out,
                   "<div class=\"wide\"><table class=\"ops\">\n<thead><tr><th>operation</th><th "
                   "class=\"number\">runs</th><th></th><th class=\"number\">measured, ms</th><th "
                   "class=\"number\">%%</th><th class=\"number\">predicted, ms</th>%s</tr></thead>\n<tbody>\n",
                   s.has_least ? "<th class=\"number\">least, ms</th><th class=\"number\">times the least</th>" : "");
  for (size_t i = 0; i < count; i++) {
    if (i < most)
      add_row(&t[i], &s, out);
    else
      add_to(&others, &t[i]);
  }
  if (count > most) add_row(&others, &s, out);
  brim_text_add(out, "</tbody>\n</table></div>\n");
}

/* ---- the section ---- */

static times *read_nodes(const brim_page_run *page, size_t *count)
{
  const json_t *rows = json_object_get(page->operations, "operations");
  const size_t all = json_array_size(rows), most = all < OPERATIONS_MAX ? all : OPERATIONS_MAX;
  times *out = BRIM_ARENA_NEW(&page->all->arena, times, most);
  *count = 0;
  for (size_t i = 0; i < most; i++) {
    const times one = times_of(json_array_get(rows, i));
    if (one.name[0] && isfinite(one.measured)) out[(*count)++] = one;
  }
  qsort(out, *count, sizeof *out, most_first);
  return out;
}

static void add_source(const brim_page_run *page, double whole, bool knows_least, brim_text *out)
{
  const json_t *steps = json_object_get(page->operations, "steps");
  const double first = json_number_value(json_array_get(steps, 0)), last = json_number_value(json_array_get(steps, 1));
  const double covered = brim_json_number(page->operations, "covered");
  const char *by = brim_json_string(page->operations, "measured_by"),
             *trace = brim_json_string(page->operations, "trace");
  char text[32];
  brim_text_printf(out, "<p>Steps %.15g to %.15g, traced: %s a step", first, last,
                   brim_figure_seconds(text, sizeof text, whole));
  if (covered > 0) brim_text_printf(out, ", of which %.1f %% in operations", 100 * covered);
  if (by[0]) brim_text_add(out, "; measured by ");
  brim_svg_escape(out, by);
  if (trace[0]) {
    brim_text_add(out, "; every operation is in <code>");
    brim_svg_escape(out, trace);
    brim_text_add(out, "</code>, for ui.perfetto.dev");
  }
  brim_text_add(out, ".</p>\n<p class=\"legend\"><span><i class=\"swatch o-all\"></i>measured</span>\n");
  if (knows_least)
    brim_text_add(out, "<span><i class=\"swatch o-least\"></i>the least possible at the rates of this device</span>\n");
  brim_text_add(out, "<span><i class=\"swatch o-plan\"></i>predicted (~: estimated)</span></p>\n");
  if (!knows_least)
    brim_text_add(out,
                  "<p class=\"what\">The least possible times are unknown until <code>brim plan --times</code> has "
                  "measured the rates of this device.</p>\n");
}

/* Predicts the time of the traced step from the device profile; NAN unless every operation has a prediction. */
double brim_page_traced_prediction(const brim_page_run *page)
{
  size_t i;
  json_t *row;
  double sum = 0;
  json_array_foreach(json_object_get(page->operations, "operations"), i, row)
  {
    const times one = times_of(row);
    sum += one.guessed ? NAN : one.predicted;
  }
  return sum > 0 ? sum : NAN;
}

void brim_page_operations(const brim_page_run *page, brim_text *out)
{
  size_t count;
  const times *node = read_nodes(page, &count);
  if (count == 0) return;
  double whole = brim_json_number(page->operations, "step_seconds");
  times *kinds = BRIM_ARENA_NEW(&page->all->arena, times, count);
  const size_t groups = group(node, count, kinds);
  if (!(whole > 0)) {
    whole = 0;
    for (size_t i = 0; i < count; i++) whole += node[i].measured;
  }
  brim_page_begin(out, "Time by operation");
  add_source(page, whole, has_least(node, count), out);
  add_rows(kinds, groups, ROWS_MAX, whole, out);
  brim_page_begin_folded(out, "The slowest operations, one by one");
  add_rows(node, count, NODES_MAX, whole, out);
  brim_page_end_folded(out);
  brim_page_end(out);
}
