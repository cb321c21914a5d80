/* Draws histograms of weights, gradients and updates by layer, from histograms.jsonl (train/histograms.h): the last
 * ones as areas, the first ones as outlines, and the ratio of update to weight over the run. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "observe/histogram.h"
#include "report/page_parts.h"

#define FILE_BYTES_MAX (64 << 20)
#define TENSORS_MAX 4096 /* read; more are ignored */
#define ROWS_MAX 80      /* shown */
#define POINTS_MAX 64    /* points of the ratio over the run */
#define KINDS 3
#define WIDTH 132.0 /* size of a picture, in its own units */
#define HALF 15.0   /* height above and below its line */
#define TAIL 0.002  /* bins at the ends with a smaller fraction are left out */

/* One histogram; count 0: none. */
typedef struct shape {
  double count, rms, zeros, broken; /* broken: NaN and infinite */
  float negative[BRIM_HISTOGRAM_BINS], positive[BRIM_HISTOGRAM_BINS];
} shape;

typedef struct row {
  const char *name;
  bool is_matrix;
  shape first[KINDS], last[KINDS];
  double ratio[POINTS_MAX]; /* rms of the update / rms of the weights, oldest first; NAN: unknown */
  size_t points;
} row;

typedef struct table {
  const brim_page_run *page;
  row *row;
  size_t count, next; /* next: index at which the next line's tensor is expected */
  double first_step, last_step;
  int low[KINDS], high[KINDS]; /* bins shown */
} table;

static const char *const kinds[KINDS] = {"weights", "gradients", "updates"};
static const char *const titles[KINDS] = {"weights", "gradients", "update/weight"};

const char *const brim_page_histograms_style =
    ".histograms svg{display:block;width:8.8em;height:2em}.histograms td,.histograms th{padding:.1rem .45rem;"
    "vertical-align:middle}.histograms thead th{white-space:nowrap}.histograms "
    "th[scope=row]{font-weight:400;white-space:nowrap}"
    ".histograms thead svg{height:1.1em}.histograms .run{width:4.4em}"
    ".histograms .up{fill:rgb(var(--right))}.histograms .down{fill:rgb(var(--wrong))}"
    ".histograms .was{fill:none;stroke:var(--faint);stroke-width:1}.histograms .line{stroke:var(--line)}"
    ".histograms .trend{fill:none;stroke:var(--ink);stroke-width:1.2}.histograms svg text{font-size:10px;"
    "fill:var(--faint)}";

/* ---- reading ---- */

static row *find_row(table *t, const char *name)
{
  for (size_t i = 0; i < t->count; i++) { /* lines have the order of the tensors, so it is usually the next one */
    row *r = &t->row[(t->next + i) % t->count];
    if (strcmp(r->name, name) != 0) continue;
    t->next = (size_t)(r - t->row);
    return r;
  }
  if (t->count == TENSORS_MAX) return NULL;
  t->next = t->count;
  t->row[t->count] = (row){.name = brim_arena_string(&t->page->all->arena, name)};
  return &t->row[t->count++];
}

static double number_of(const json_t *object, const char *key)
{
  const double value = brim_json_number(object, key);
  return value > 0 && value < 1e15 ? value : 0;
}

static void read_bins(const json_t *line, const char *key, float *bin)
{
  const json_t *list = json_object_get(line, key);
  const double first = brim_json_number(line, "first") - BRIM_HISTOGRAM_FIRST;
  for (size_t i = 0; i < json_array_size(list) && first >= 0 && first + (double)i < BRIM_HISTOGRAM_BINS; i++) {
    const json_t *value = json_array_get(list, i);
    const double count = json_is_number(value) ? json_number_value(value) : 0;
    bin[(size_t)first + i] = count > 0 && count < 1e15 ? (float)count : 0;
  }
}

static void read_shape(const json_t *line, shape *out)
{
  *out = (shape){.count = number_of(line, "counted"),
                 .rms = brim_json_number(line, "rms"),
                 .zeros = number_of(line, "zeros"),
                 .broken = number_of(line, "nan") + number_of(line, "infinite")};
  read_bins(line, "negative", out->negative);
  read_bins(line, "positive", out->positive);
}

static int kind_of(const char *name)
{
  for (int k = 0; k < KINDS; k++)
    if (strcmp(kinds[k], name) == 0) return k;
  return -1;
}

/* From lines that belong neither to the first nor to the last step, reads only the updates, for their ratio. */
static void read_line(table *t, const char *text, size_t length, double step)
{
  static const char updates[] = "\"of\":\"updates\"";
  const bool is_whole = step == t->first_step || step == t->last_step;
  if (!is_whole && !memmem(text, length, updates, sizeof updates - 1)) return;
  json_t *line = json_loadb(text, length, 0, NULL);
  const int kind = kind_of(brim_json_string(line, "of"));
  row *r = kind >= 0 && brim_json_string(line, "tensor")[0] ? find_row(t, brim_json_string(line, "tensor")) : NULL;
  if (r && kind == 2 && r->points < POINTS_MAX) r->ratio[r->points++] = brim_json_number(line, "ratio");
  if (r && step == t->first_step) read_shape(line, &r->first[kind]);
  if (r && step == t->last_step) read_shape(line, &r->last[kind]);
  if (r && json_array_size(json_object_get(line, "shape")) > 1) r->is_matrix = true;
  json_decref(line);
}

static double step_of(const char *line)
{
  static const char begin[] = "{\"step\":";
  return strncmp(line, begin, sizeof begin - 1) == 0 ? strtod(line + sizeof begin - 1, NULL) : NAN;
}

/* Reads the whole lines of `text`, which ends in NUL. */
static void read_lines(table *t, char *text)
{
  char *last = NULL;
  t->first_step = step_of(text);
  for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) last = line;
  t->last_step = last ? step_of(last) : NAN;
  for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1)
    read_line(t, line, (size_t)(end - line), step_of(line));
}

static bool read_file(table *t, const brim_page_run *page)
{
  char path[BRIM_PATH_MAX];
  if (brim_path_join(path, page->run->dir, "histograms.jsonl") != BRIM_OK) return false;
  FILE *file = brim_fopen_to_read(path);
  size_t room = 1 << 16, length = 0;
  if (!file) return false;
  char *text = brim_xmalloc(room);
  for (size_t n; length < FILE_BYTES_MAX && (n = fread(text + length, 1, room - length - 1, file)) > 0;) {
    length += n;
    if (room - length < room / 4) text = brim_xrealloc(text, room *= 2);
  }
  text[length] = '\0';
  fclose(file);
  read_lines(t, text);
  free(text);
  return t->count > 0;
}

/* ---- the range of a column ---- */

static double share(const shape *s, int bin)
{
  return s->count > 0 ? ((double)s->negative[bin] + s->positive[bin]) / s->count : 0;
}

static void find_ranges(table *t)
{
  for (int k = 0; k < KINDS; k++) {
    t->low[k] = BRIM_HISTOGRAM_BINS - 1;
    t->high[k] = 0;
    for (size_t i = 0; i < t->count; i++)
      for (int bin = 0; bin < BRIM_HISTOGRAM_BINS; bin++) {
        if (share(&t->row[i].last[k], bin) < TAIL && share(&t->row[i].first[k], bin) < TAIL) continue;
        if (bin < t->low[k]) t->low[k] = bin;
        if (bin > t->high[k]) t->high[k] = bin;
      }
    if (t->low[k] > t->high[k]) t->low[k] = t->high[k] = -BRIM_HISTOGRAM_FIRST;
  }
}

/* ---- pictures ---- */

static double x_of(const table *t, int kind, double bin)
{
  return WIDTH * (bin - t->low[kind]) / (t->high[kind] + 1 - t->low[kind]);
}

static float most_of(const shape *s)
{
  float most = 0;
  for (int i = 0; i < BRIM_HISTOGRAM_BINS; i++) {
    if (s->negative[i] > most) most = s->negative[i];
    if (s->positive[i] > most) most = s->positive[i];
  }
  return most;
}

/* Adds steps along the bins, from the line at y = 0 and back to it. side: -1 up, 1 down. */
static void add_steps(const table *t, int kind, const float *bin, double scale, int side, double base, brim_text *out)
{
  double at = base;
  brim_text_printf(out, "M0 %.3g", base);
  for (int i = t->low[kind]; i <= t->high[kind]; i++) {
    const double y = base + side * scale * bin[i];
    if (fabs(y - at) > 0.05) brim_text_printf(out, "V%.3g", at = y);
    brim_text_printf(out, "H%.4g", x_of(t, kind, i + 1));
  }
  brim_text_printf(out, "V%.3gz", base);
}

static void add_path(const table *t, int kind, const shape *s, const char *up, const char *down, brim_text *out)
{
  const float most = most_of(s);
  const bool both = kind != 2; /* ratios are never negative */
  const double base = both ? HALF : 2 * HALF, scale = most > 0 ? (base - 1) / most : 0;
  if (most <= 0) return;
  brim_text_printf(out, "<path class=\"%s\" d=\"", up);
  add_steps(t, kind, s->positive, scale, -1, base, out);
  brim_text_add(out, "\"/>");
  if (!both) return;
  brim_text_printf(out, "<path class=\"%s\" d=\"", down);
  add_steps(t, kind, s->negative, scale, 1, base, out);
  brim_text_add(out, "\"/>");
}

static void add_picture(const table *t, const row *r, int kind, brim_text *out)
{
  brim_text_add(out, "<td>");
  if (r->last[kind].count > 0) {
    brim_text_printf(out, "<svg viewBox=\"0 0 %g %g\" preserveAspectRatio=\"none\">", WIDTH, 2 * HALF);
    add_path(t, kind, &r->last[kind], "up", "down", out);
    if (t->first_step < t->last_step) add_path(t, kind, &r->first[kind], "was", "was", out);
    brim_text_add(out, "</svg>");
  }
  brim_text_add(out, "</td>");
}

/* Draws the ratio over the run, on a logarithmic scale. */
static void add_trend(const row *r, brim_text *out)
{
  double low = INFINITY, high = -INFINITY;
  for (size_t i = 0; i < r->points; i++) {
    const double y = r->ratio[i] > 0 ? log10(r->ratio[i]) : NAN;
    if (y < low) low = y;
    if (y > high) high = y;
  }
  brim_text_add(out, "<td>");
  if (r->points > 1 && low <= high) {
    if (high - low < 1) { /* show at least one decade, so that noise looks small */
      low = (low + high) / 2 - 0.5;
      high = low + 1;
    }
    bool is_down = false;
    brim_text_add(out,
                  "<svg class=\"run\" viewBox=\"0 0 66 30\" preserveAspectRatio=\"none\"><path class=\"trend\" d=\"");
    for (size_t i = 0; i < r->points; i++) {
      const bool is_here = r->ratio[i] > 0;
      if (is_here)
        brim_text_printf(out, "%c%.3g %.3g", is_down ? 'L' : 'M', 1 + 64.0 * (double)i / (double)(r->points - 1),
                         2 + 26 * (high - log10(r->ratio[i])) / (high - low));
      is_down = is_here;
    }
    brim_text_add(out, "\"/></svg>");
  }
  brim_text_add(out, "</td>");
}

/* Draws the axis of a column: some powers of ten. */
static void add_axis(const table *t, int kind, brim_text *out)
{
  const double ten = log2(10), from = t->low[kind] + BRIM_HISTOGRAM_FIRST,
               to = t->high[kind] + 1 + BRIM_HISTOGRAM_FIRST;
  const int decades = (int)((to - from) / ten), every = decades / 3 + 1;
  brim_text_printf(out, "<th>%s<svg viewBox=\"0 0 %g 16\">", titles[kind], WIDTH);
  for (int e = (int)ceil(from / ten); e * ten <= to; e++) {
    const double x = x_of(t, kind, e * ten - BRIM_HISTOGRAM_FIRST);
    const char *anchor = x < 14 ? "start" : x > WIDTH - 14 ? "end" : "middle";
    char power[16];
    snprintf(power, sizeof power, "1e%d", e);
    if (((e % every) + every) % every == 0)
      brim_text_printf(out, "<text x=\"%.4g\" y=\"11\" text-anchor=\"%s\">%s</text>", x, anchor, e == 0 ? "1" : power);
  }
  brim_text_add(out, "</svg></th>");
}

/* ---- the table ---- */

static void add_number(brim_text *out, double value)
{
  if (isfinite(value))
    brim_text_printf(out, "<td class=\"number\">%.2g</td>", value);
  else
    brim_text_add(out, "<td></td>");
}

/* Adds the fraction of zeros in the gradient. */
static void add_zeros(const row *r, brim_text *out)
{
  const shape *gradient = &r->last[1];
  if (gradient->count > 0)
    brim_text_printf(out, "<td class=\"number\">%.0f %%</td>", 100 * gradient->zeros / gradient->count);
  else
    brim_text_add(out, "<td></td>");
}

static void add_row(const table *t, const row *r, brim_text *out)
{
  const double broken = r->last[0].broken + r->last[1].broken;
  brim_text_add(out, "<tr><th scope=\"row\">");
  brim_svg_escape(out, r->name);
  if (broken > 0) brim_text_printf(out, " <b class=\"failed\">%.15g not finite</b>", broken);
  brim_text_add(out, "</th>");
  add_picture(t, r, 0, out);
  add_number(out, r->last[0].count > 0 ? r->last[0].rms : NAN);
  add_picture(t, r, 1, out);
  add_number(out, r->last[1].count > 0 ? r->last[1].rms : NAN);
  add_zeros(r, out);
  add_picture(t, r, 2, out);
  add_number(out, r->points > 0 && r->last[2].count > 0 ? r->ratio[r->points - 1] : NAN);
  add_trend(r, out);
  brim_text_add(out, "</tr>\n");
}

static void add_table(const table *t, brim_text *out)
{
  static const char *const numbers[KINDS] = {"rms", "rms", "ratio"};
  size_t matrices = 0, shown = 0;
  for (size_t i = 0; i < t->count; i++) matrices += t->row[i].is_matrix;
  const bool only_matrices = t->count > ROWS_MAX && matrices > 0;
  brim_text_add(out, "<div class=\"wide tall\"><table class=\"histograms\">\n<thead><tr><th>tensor</th>");
  for (int k = 0; k < KINDS; k++) {
    add_axis(t, k, out);
    brim_text_printf(out, "<th class=\"number\">%s</th>", numbers[k]);
    if (k == 1) brim_text_add(out, "<th class=\"number\">zeros</th>");
  }
  brim_text_add(out, "<th>over the run</th></tr></thead>\n<tbody>\n");
  for (size_t i = 0; i < t->count && shown < ROWS_MAX; i++) {
    if (only_matrices && !t->row[i].is_matrix) continue;
    add_row(t, &t->row[i], out);
    shown++;
  }
  brim_text_add(out, "</tbody>\n</table></div>\n");
  if (shown < t->count)
    brim_text_printf(out, "<p>%zu of %zu tensors, %s; histograms.jsonl has all.</p>\n", shown, t->count,
                     only_matrices ? "those with two or more dimensions" : "the first ones");
}

void brim_page_histograms(const brim_page_run *page, brim_text *out)
{
  table t = {.page = page, .row = brim_xcalloc(TENSORS_MAX, sizeof *t.row)};
  if (read_file(&t, page)) {
    find_ranges(&t);
    brim_page_begin(out, "Layers");
    brim_text_printf(out,
                     "<p class=\"what\">After %s %.15g, by magnitude on a logarithmic scale: positive values above the "
                     "line, negative ones below it%s. A ratio of update to weight near 0.001 is usual; far above it "
                     "training is unstable, far below it a layer hardly learns.</p>\n",
                     brim_compare_step(page->all), t.last_step,
                     t.first_step < t.last_step ? "; outlines: the first record" : "");
    add_table(&t, out);
    brim_page_end(out);
  }
  free(t.row);
}
