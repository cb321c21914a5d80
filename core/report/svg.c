/* Draws charts: axes with round ticks, grid lines, a line for each curve. Long curves are reduced to the lowest and
 * highest point of each piece, so that spikes stay visible. */
#include "report/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* pixels */
#define PANEL_WIDTH 460
#define PANEL_HEIGHT 300
#define MARGIN_LEFT 62
#define MARGIN_RIGHT 18
#define MARGIN_TOP 44
#define MARGIN_BOTTOM 50
#define LEGEND_ROW 22
#define LEGEND_CHARACTER 7.2 /* approximate width of a character */

#define VALUE_MAX 1e100  /* beyond it, differences would overflow */
#define VALUE_MIN 1e-100 /* smaller differences count as none */
#define TICKS 5          /* approximate number */
#define PIECES_MAX 400   /* pieces of a curve; each has two points */

/* Okabe and Ito's colours, which colour-blind people can distinguish, with brighter ones for a dark background. Further
 * curves are dashed. */
static const struct {
  const char *light, *dark;
} colors[] = {{"#0072b2", "#4aa8e0"}, {"#d55e00", "#ff8a3d"}, {"#009e73", "#2cc79c"}, {"#cc79a7", "#e59bc6"},
              {"#e69f00", "#f0b93a"}, {"#56b4e9", "#8fd0f5"}, {"#7f3c8d", "#bd85c9"}, {"#444444", "#b8b8b8"}};
#define COLORS (sizeof colors / sizeof colors[0])
static const char *const dashes[] = {"", " stroke-dasharray=\"7 3\"", " stroke-dasharray=\"2 3\"",
                                     " stroke-dasharray=\"9 3 2 3\""};
#define DASHES (sizeof dashes / sizeof dashes[0])

/* Maps values to pixels in one direction. */
typedef struct axis {
  double low, high, tick; /* values */
  double first;           /* value of the first tick */
  double from, to;        /* pixels of low and high */
} axis;

static double place(const axis *a, double value)
{
  return a->from + (value - a->low) / (a->high - a->low) * (a->to - a->from);
}

/* Makes an axis that ends at round numbers around the values; an axis that counts something ends at the values. */
static axis make_axis(double low, double high, bool whole, double from, double to)
{
  if (!(low <= high)) low = 0, high = 1; /* no values */
  if (high - low < fmax(1e-12 * fabs(high), VALUE_MIN)) {
    const double room = fabs(high) > VALUE_MIN ? 0.1 * fabs(high) : 1;
    low -= room;
    high += room;
  }
  const double rough = (high - low) / TICKS;
  const double power = pow(10, floor(log10(rough)));
  const double digit = rough / power;
  double tick = power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
  if (whole && tick < 1) tick = 1;
  const double end = whole ? high : ceil(high / tick - 1e-9) * tick;
  const double begin = floor(low / tick + 1e-9) * tick;
  return (axis){begin, end, tick, begin, from, to};
}

/* Bars are centred on their values, so the first bar begins before its value. */
static void begin_at(axis *a, double low)
{
  a->low = low;
  a->first = ceil(low / a->tick - 1e-9) * a->tick;
}

void brim_svg_escape(brim_text *out, const char *s)
{
  brim_svg_escape_n(out, s, strlen(s));
}

void brim_svg_escape_n(brim_text *out, const char *s, size_t bytes)
{
  const char *end = s + bytes;
  char shown[BRIM_SHOWN_BYTES];
  while (s < end) {
    const char *from = s;
    const char *entity = *s == '&' ? "&amp;" : *s == '<' ? "&lt;" : *s == '>' ? "&gt;" : *s == '"' ? "&quot;" : NULL;
    const int32_t c = brim_utf8_next(&s, end);
    if (c < 0) s++; /* this byte is not part of a valid character */
    if (entity)
      brim_text_add(out, entity);
    else if (c < 0 || c == 0xfffe || c == 0xffff)
      brim_text_add(out, "\xef\xbf\xbd");
    else if (brim_is_control(c) && c > 0x7f)
      brim_text_add_n(out, shown, brim_shown_take(&from, end, "", shown));
    else if (c >= 0x20 && c != 0x7f)
      brim_text_add_n(out, from, (size_t)(s - from));
    else
      brim_text_add(out, " "); /* XML does not allow control characters */
  }
}

static void add_label(brim_text *out, double x, double y, const char *attributes, const char *text)
{
  brim_text_printf(out, "<text x=\"%.1f\" y=\"%.1f\"%s>", x, y, attributes);
  brim_svg_escape(out, text);
  brim_text_add(out, "</text>\n");
}

static const char *format_tick(char *out, size_t room, double value, double tick)
{
  const double rounded = fabs(value) < 1e-9 * tick ? 0 : value;
  if (fabs(rounded) >= 1e6)
    snprintf(out, room, "%gM", rounded / 1e6);
  else if (fabs(rounded) >= 1e4)
    snprintf(out, room, "%gk", rounded / 1e3);
  else
    snprintf(out, room, "%g", rounded);
  return out;
}

/* Returns the number of ticks; their values are first, first + tick, ... up to high. */
static int tick_count(const axis *a)
{
  return (int)floor((a->high - a->first) / a->tick + 1e-6) + 1;
}

static void draw_axes(brim_text *out, const brim_chart *chart, const axis *x, const axis *y)
{
  char text[32];
  for (int i = 0; i < tick_count(y); i++) {
    const double v = y->first + i * y->tick;
    brim_text_printf(out, "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", x->from,
                     place(y, v), x->to, place(y, v));
    add_label(out, x->from - 8, place(y, v) + 4, " text-anchor=\"end\"", format_tick(text, sizeof text, v, y->tick));
  }
  for (int i = 0; i < tick_count(x); i++) {
    const double v = x->first + i * x->tick;
    brim_text_printf(out, "<line class=\"axis\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", place(x, v),
                     y->from, place(x, v), y->from + 5);
    add_label(out, place(x, v), y->from + 20, " text-anchor=\"middle\"", format_tick(text, sizeof text, v, x->tick));
  }
  brim_text_printf(out, "<path class=\"axis\" d=\"M%.1f %.1fV%.1fH%.1f\"/>\n", x->from, y->to, y->from, x->to);
  add_label(out, (x->from + x->to) / 2, y->from + 40, " text-anchor=\"middle\"", chart->x_label);
  add_label(out, (x->from + x->to) / 2, y->to - 18, " text-anchor=\"middle\" class=\"title\"", chart->title);
}

static bool is_point(const brim_curve *c, size_t i)
{
  return fabs(c->x[i]) < VALUE_MAX && fabs(c->y[i]) < VALUE_MAX; /* false for NaN too */
}

static void add_point(brim_text *out, const brim_curve *c, size_t i, const axis *x, const axis *y, bool *pen_down)
{
  brim_text_printf(out, "%s%.1f %.1f", *pen_down ? "L" : "M", place(x, c->x[i]), place(y, c->y[i]));
  *pen_down = true;
}

/* Draws all bars as one path; wide ones have gaps between them. */
static void draw_bars(brim_text *out, const brim_curve *c, const axis *x, const axis *y)
{
  const double width = place(x, x->low + c->bar) - place(x, x->low), gap = width > 4 ? 1 : 0;
  brim_text_printf(out, "<path class=\"bars color%zu\" d=\"", c->name % COLORS);
  for (size_t i = 0; i < c->count; i++)
    if (is_point(c, i) && c->y[i] != 0)
      brim_text_printf(out, "M%.1f %.1fV%.1fh%.2fV%.1fz", place(x, c->x[i] - c->bar / 2), place(y, 0),
                       place(y, c->y[i]), width - gap, place(y, 0));
  brim_text_add(out, "\"/>\n");
}

static size_t points_a_piece(const brim_curve *c)
{
  return c->count > 2 * PIECES_MAX ? (c->count + PIECES_MAX - 1) / PIECES_MAX : 1;
}

static bool has_spread(const brim_curve *c, size_t i)
{
  return c->spread && is_point(c, i) && c->spread[i] < VALUE_MAX;
}

/* Draws a closed path, forward along the upper edge and back along the lower, for each uninterrupted part of the curve.
 * A long curve has one point per piece. */
static void draw_band(brim_text *out, const brim_curve *c, const axis *x, const axis *y)
{
  const size_t step = points_a_piece(c);
  if (!c->spread) return;
  brim_text_printf(out, "<path class=\"band color%zu\" d=\"", c->name % COLORS);
  for (size_t first = 0, end; first < c->count; first = end + step) {
    for (end = first; end < c->count && has_spread(c, end); end += step)
      brim_text_printf(out, "%s%.1f %.1f", end == first ? "M" : "L", place(x, c->x[end]),
                       place(y, c->y[end] + c->spread[end]));
    for (size_t i = end; i > first; i -= step)
      brim_text_printf(out, "L%.1f %.1f", place(x, c->x[i - step]), place(y, c->y[i - step] - c->spread[i - step]));
    if (end > first) brim_text_add(out, "z");
  }
  brim_text_add(out, "\"/>\n");
}

static void draw_curve(brim_text *out, const brim_curve *c, const axis *x, const axis *y)
{
  if (c->bar > 0) {
    draw_bars(out, c, x, y);
    return;
  }
  const size_t piece = points_a_piece(c);
  bool pen_down = false;
  brim_text_printf(out, "<path class=\"%s color%zu\"%s d=\"", c->faint ? "faint" : "curve", c->name % COLORS,
                   dashes[c->name / COLORS % DASHES]);
  for (size_t start = 0; start < c->count; start += piece) {
    const size_t end = start + piece < c->count ? start + piece : c->count;
    size_t low = end, high = end;
    for (size_t i = start; i < end; i++) {
      if (!is_point(c, i)) continue;
      if (low == end || c->y[i] < c->y[low]) low = i;
      if (high == end || c->y[i] > c->y[high]) high = i;
    }
    if (low == end) {
      pen_down = false;
      continue;
    }
    add_point(out, c, low < high ? low : high, x, y, &pen_down);
    if (low != high) add_point(out, c, low < high ? high : low, x, y, &pen_down);
  }
  brim_text_add(out, "\"/>\n");
  const bool dots = !c->faint && c->count <= 60; /* makes a few points clearer, and a single one visible */
  for (size_t i = 0; dots && i < c->count; i++)
    if (is_point(c, i))
      brim_text_printf(out, "<circle class=\"color%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\"/>\n", c->name % COLORS,
                       place(x, c->x[i]), place(y, c->y[i]));
}

static void draw_chart(brim_text *out, const brim_chart *chart, double left)
{
  double low_x = INFINITY, high_x = -INFINITY, low_y = INFINITY, high_y = -INFINITY;
  bool has_bars = false;
  for (size_t i = 0; i < chart->count; i++) {
    const brim_curve *c = &chart->curve[i];
    has_bars = has_bars || c->bar > 0;
    for (size_t k = 0; k < c->count; k++) {
      if (!is_point(c, k)) continue;
      low_x = fmin(low_x, c->x[k] - c->bar / 2);
      high_x = fmax(high_x, c->x[k] + c->bar / 2);
      const double spread = has_spread(c, k) ? c->spread[k] : 0;
      low_y = fmin(low_y, c->bar > 0 ? fmin(0, c->y[k]) : c->y[k] - spread);
      high_y = fmax(high_y, c->y[k] + spread);
    }
  }
  axis x =
      make_axis(has_bars ? low_x : fmin(low_x, 0), high_x, true, left + MARGIN_LEFT, left + PANEL_WIDTH - MARGIN_RIGHT);
  const bool counts_few = has_bars && high_y < TICKS;
  const axis y = make_axis(low_y, high_y, counts_few, PANEL_HEIGHT - MARGIN_BOTTOM, MARGIN_TOP);
  if (has_bars && low_x < high_x) begin_at(&x, low_x);
  draw_axes(out, chart, &x, &y);
  for (size_t i = 0; i < chart->count; i++) draw_band(out, &chart->curve[i], &x, &y);
  for (int pass = 0; pass < 2; pass++)
    for (size_t i = 0; i < chart->count; i++)
      if (chart->curve[i].faint == (pass == 0)) draw_curve(out, &chart->curve[i], &x, &y);
}

static size_t legend_columns(const char *const *legend, size_t count, double width)
{
  size_t longest = 1;
  for (size_t i = 0; i < count; i++) longest = strlen(legend[i]) > longest ? strlen(legend[i]) : longest;
  const size_t columns = (size_t)(width / (44 + LEGEND_CHARACTER * (double)longest));
  return columns == 0 ? 1 : columns < count ? columns : count ? count : 1;
}

/* Draws the sample line of a legend entry. */
static void add_sample(brim_text *out, size_t name, double x, double y, double to)
{
  brim_text_printf(out, "<path class=\"curve color%zu\"%s d=\"M%.1f %.1fH%.1f\"/>\n", name % COLORS,
                   dashes[name / COLORS % DASHES], x, y, to);
}

static void draw_legend(brim_text *out, const char *const *legend, size_t count, size_t columns, double width)
{
  for (size_t i = 0; i < count; i++) {
    const double x = MARGIN_LEFT + (double)(i % columns) * width / (double)columns;
    const double y = PANEL_HEIGHT + LEGEND_ROW * (double)(i / columns) + 8;
    add_sample(out, i, x, y, x + 28);
    add_label(out, x + 36, y + 4, "", legend[i]);
  }
}

void brim_svg_style(brim_text *out, bool dark)
{
  for (size_t i = 0; i < COLORS; i++)
    brim_text_printf(out, ".color%zu{color:%s}", i, dark ? colors[i].dark : colors[i].light);
  if (dark) return;
  brim_text_add(out, ".title{font-size:14px;font-weight:600}"
                     ".curve{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}"
                     ".faint{fill:none;stroke:currentColor;stroke-width:1.6;stroke-linejoin:round;opacity:.75}"
                     "circle,.bars,.band{fill:currentColor}"
                     ".band{opacity:.15}");
}

void brim_svg_chart(const brim_chart *chart, brim_text *out)
{
  brim_text_printf(out, "<svg class=\"chart\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", PANEL_WIDTH,
                   PANEL_HEIGHT);
  brim_svg_escape(out, chart->title);
  brim_text_add(out, "\">\n");
  draw_chart(out, chart, 0);
  brim_text_add(out, "</svg>\n");
}

void brim_svg_sample(size_t name, brim_text *out)
{
  brim_text_add(out, "<svg class=\"sample\" viewBox=\"0 0 28 8\">");
  add_sample(out, name, 0, 4, 28);
  brim_text_add(out, "</svg>");
}

void brim_svg_charts(const brim_chart *chart, size_t charts, const char *const *legend, size_t legend_count,
                     const char *note, brim_text *out)
{
  const int width = PANEL_WIDTH * (int)charts;
  const size_t columns = legend_columns(legend, legend_count, width - MARGIN_LEFT);
  const int rows = (int)((legend_count + columns - 1) / columns);
  const int height = PANEL_HEIGHT + LEGEND_ROW * (rows + 1) + 8;
  brim_text_printf(out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                   "font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"12\" fill=\"#333\">\n"
                   "<style>.grid{stroke:#e4e4e4}.axis{stroke:#555;fill:none}.note{fill:#777;font-size:11px}",
                   width, height, width, height);
  brim_svg_style(out, false);
  brim_text_printf(out, "</style>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", width, height);
  for (size_t i = 0; i < charts; i++) draw_chart(out, &chart[i], PANEL_WIDTH * (double)i);
  draw_legend(out, legend, legend_count, columns, width - MARGIN_LEFT);
  add_label(out, MARGIN_LEFT, height - 10, " class=\"note\"", note);
  brim_text_add(out, "</svg>\n");
}
