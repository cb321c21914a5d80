/* Draws the arena: operations of a step from left to right, offsets upwards, and a rectangle for each buffer from the
 * operation that makes it to the last that needs it. Recomputed buffers are hatched, with a dashed line from the place
 * where they were dropped. Rectangles too small to see are omitted and counted.
 *
 * The lanes of a federation are drawn above the server's memory. In a run, their clients' steps need not be synchronous
 * as in the picture. */
#include "report/plan_svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/plan.h"
#include "report/svg.h"

/* pixels */
#define WIDTH 1180
#define LEFT 92
#define RIGHT 1150
#define TOP 92
#define BOTTOM 560
#define LEGEND_Y 622
#define HEIGHT 666

#define DRAWN_MAX 4000 /* limit for rectangles, so that the picture has a megabyte or two */
#define LINKS_MAX 48   /* limit for dashed lines; more would hide too much */
#define SIDE_MIN 0.3   /* minimum side of a drawn rectangle */
#define SIDE_THIN 3.0  /* thinner rectangles are drawn without an edge, which would hide the colour */

#define SERVERS "server's "

/* Fills for light and dark backgrounds: Okabe and Ito's colours, paler for large areas. */
static const struct {
  const char *class, *text, *light, *dark;
} kinds[BRIM_PIECE_KINDS] = {
    {"kp", "parameters", "#8fb8d8", "#2f5f86"},
    {"kg", "gradients", "#e8b48a", "#8f5426"},
    {"ko", "optimizer", "#8fcbb4", "#2b6d57"},
    {"kd", "data, metrics", "#f0e08a", "#7d6f1e"},
    {"kf", "activations", "#56b4e9", "#2f86bd"},
    {"ka", "recomputed", "#b48bc0", "#7f5a8c"},
    {"kb", "gradients of activations", "#d98cb8", "#a14d80"},
    {"ks", "workspace", "#a8a8a8", "#777777"},
};

typedef struct picture {
  const brim_pieces *d;
  const brim_region *part; /* persistent parts: of the lane or the plan, or of the server */
  uint64_t base_bytes;     /* offset of the plan in the arena */
  uint64_t top_bytes;
  const char *whose; /* "server's ", before the names of persistent parts; "" without a federation */
  size_t end;        /* pieces before this one have been drawn, unless they are too small to see */
  size_t drawn;      /* number of drawn pieces */
  int links;
} picture;

static double x_of(const picture *pic, double node)
{
  const double nodes = (double)pic->d->nodes;
  return LEFT + (nodes > 0 ? node / nodes : 0) * (RIGHT - LEFT);
}

static double y_of(const picture *pic, uint64_t bytes)
{
  return BOTTOM - (double)(pic->base_bytes + bytes) / (double)pic->top_bytes * (BOTTOM - TOP);
}

static bool is_seen(const picture *pic, const brim_piece *x)
{
  const double width = x_of(pic, x->last + 1) - x_of(pic, x->first), height = y_of(pic, 0) - y_of(pic, x->bytes);
  return width >= SIDE_MIN && height >= SIDE_MIN;
}

/* ---- drawing ---- */

static void draw_rect(const picture *pic, const brim_piece *x, brim_text *out)
{
  const double left = x_of(pic, x->first), top = y_of(pic, x->offset + x->bytes);
  const double width = x_of(pic, x->last + 1) - left, height = y_of(pic, x->offset) - top;
  const bool thin = width < SIDE_THIN || height < SIDE_THIN;
  brim_text_printf(out, "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"%s><title>",
                   kinds[x->kind].class, left, top, width, height,
                   thin ? " style=\"stroke:none\" shape-rendering=\"crispEdges\"" : "");
}

static void draw_piece(const picture *pic, const brim_piece *x, brim_text *out)
{
  char bytes[32], offset[32];
  draw_rect(pic, x, out);
  brim_svg_escape(out, x->tensor);
  if (x->op[0]) {
    brim_text_add(out, x->tensor[0] ? ", of " : "workspace of ");
    brim_svg_escape(out, x->op);
    brim_text_add(out, " '");
    brim_svg_escape(out, x->node);
    brim_text_add(out, "'");
  }
  brim_text_printf(out, "&#10;%s: %s at %s&#10;operations %d to %d of %d", kinds[x->kind].text,
                   brim_format_bytes(bytes, sizeof bytes, x->bytes),
                   brim_format_bytes(offset, sizeof offset, pic->base_bytes + x->offset), x->first, x->last,
                   pic->d->nodes);
  if (x->dropped >= 0) brim_text_printf(out, "&#10;dropped after operation %d", x->dropped);
  brim_text_add(out, "</title></rect>\n");
}

/* Writes the name of a persistent part: "server's sum of updates". */
static const char *name_of(const picture *pic, enum brim_piece_kind kind)
{
  return kind == BRIM_PIECE_GRADIENT && strcmp(pic->whose, SERVERS) == 0 ? "sum of updates" : kinds[kind].text;
}

/* Draws the persistent parts, over the whole width. */
static void draw_persistent(const picture *pic, brim_text *out)
{
  char bytes[32];
  for (int i = 0; i < BRIM_PIECE_PERSISTENT; i++) {
    const enum brim_piece_kind kind = (enum brim_piece_kind)i;
    const brim_piece x = {
        .offset = pic->part[i].offset, .bytes = pic->part[i].bytes, .last = pic->d->nodes - 1, .kind = kind};
    if (x.bytes == 0) continue;
    draw_rect(pic, &x, out);
    brim_text_printf(out, "%s%s: %s, persistent</title></rect>\n", pic->whose, name_of(pic, kind),
                     brim_format_bytes(bytes, sizeof bytes, x.bytes));
    const double height = y_of(pic, x.offset) - y_of(pic, x.offset + x.bytes);
    if (height >= 13)
      brim_text_printf(out, "<text class=\"in\" x=\"%d\" y=\"%.1f\">%s%s, %s</text>\n", LEFT + 8,
                       y_of(pic, x.offset + x.bytes / 2) + 4, pic->whose, name_of(pic, kind), bytes);
  }
}

/* Draws lines from the places where the largest results are dropped to those where they are recomputed. */
static void draw_links(picture *pic, brim_text *out)
{
  for (size_t i = 0; i < pic->end && pic->links < LINKS_MAX; i++) {
    const brim_piece *x = &pic->d->piece[i];
    if (x->dropped < 0 || x->dropped >= x->first || !is_seen(pic, x)) continue;
    brim_text_printf(out, "<path class=\"link\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", x_of(pic, x->dropped + 1),
                     y_of(pic, x->dropped_middle), x_of(pic, x->first), y_of(pic, x->offset + x->bytes / 2));
    pic->links++;
  }
}

/* Draws the bytes alive at each operation, wherever they are. The distance to the pieces above shows the cost of
 * gaps. */
static void draw_alive(const picture *pic, brim_text *out)
{
  const brim_pieces *d = pic->d;
  brim_text_add(out, "<path class=\"alive\" d=\"");
  for (int32_t i = 0; i < d->nodes; i++)
    if (i == 0 || d->alive[i] != d->alive[i - 1])
      brim_text_printf(out, i ? "H%.1fV%.1f" : "M%.1f %.1f", x_of(pic, (double)i),
                       y_of(pic, d->persistent_bytes + d->alive[i]));
  brim_text_printf(out, "H%d\"/>\n", RIGHT);
}

/* Returns a distance between lines: 1, 2 or 5 times a power of two units. */
static uint64_t choose_step(uint64_t bytes)
{
  static const int digits[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  uint64_t unit = 1;
  while (bytes / unit >= 6 * 1024) unit *= 1024;
  for (size_t i = 0; i < sizeof digits / sizeof digits[0]; i++)
    if (bytes / (unit * (uint64_t)digits[i]) < 9) return unit * (uint64_t)digits[i];
  return unit * 1024;
}

static void draw_axes(const picture *pic, brim_text *out)
{
  const brim_pieces *d = pic->d;
  char bytes[32];
  const uint64_t step = choose_step(pic->top_bytes);
  for (uint64_t at = 0; at <= pic->top_bytes; at += step)
    brim_text_printf(out,
                     "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                     "text-anchor=\"end\">%s</text>\n",
                     LEFT, y_of(pic, at), RIGHT, LEFT - 8, y_of(pic, at) + 4,
                     brim_format_bytes(bytes, sizeof bytes, at));
  int32_t nodes_step = 1;
  while (d->nodes / nodes_step > 12) nodes_step *= nodes_step % 4 == 0 || nodes_step % 3 ? 2 : 5;
  for (int32_t i = 0; i <= d->nodes; i += nodes_step)
    brim_text_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n", x_of(pic, (double)i),
                     BOTTOM + 18, i);
  brim_text_printf(
      out,
      "<path class=\"axis\" d=\"M%d %dV%dH%d\"/><text x=\"%d\" y=\"%d\" text-anchor=\"middle\">operations%s, "
      "in execution order</text>\n<text transform=\"translate(14 %d)rotate(-90)\" "
      "text-anchor=\"middle\">offset in the arena</text>\n",
      LEFT, TOP, BOTTOM, RIGHT, (LEFT + RIGHT) / 2, BOTTOM + 36, d->lanes > 0 ? " of a client's step" : "",
      (TOP + BOTTOM) / 2);
  if (d->forward == 0 || d->forward == d->nodes) return;
  const double middle = x_of(pic, (double)d->forward);
  brim_text_printf(out,
                   "<path class=\"phase\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"end\">forward "
                   "\xe2\x97\x82</text><text x=\"%.1f\" y=\"%d\">\xe2\x96\xb8 backward</text>\n",
                   middle, TOP - 8, BOTTOM, middle - 6, TOP - 10, middle + 6, TOP - 10);
}

static void draw_level(const picture *pic, uint64_t at, const char *class, const char *what, bool below, brim_text *out)
{
  char bytes[32];
  brim_text_printf(out,
                   "<path class=\"%s\" d=\"M%d %.1fH%d\"/><text class=\"%s-text\" x=\"%d\" y=\"%.1f\" "
                   "text-anchor=\"end\">%s %s</text>\n",
                   class, LEFT, y_of(pic, at), RIGHT, class, RIGHT - 6, y_of(pic, at) + (below ? 14 : -5), what,
                   brim_format_bytes(bytes, sizeof bytes, at));
}

static void draw_marks(const picture *pic, const brim_plan_picture *say, brim_text *out)
{
  const uint64_t peak = pic->d->peak_bytes;
  const double x = x_of(pic, pic->d->live_node + 0.5);
  const bool left = x > (LEFT + RIGHT) / 2.0;
  const bool limit = say->limit_bytes > 0 && say->limit_bytes <= pic->top_bytes;
  const bool close = limit && say->limit_bytes >= peak && y_of(pic, peak) - y_of(pic, say->limit_bytes) < 20;
  draw_level(pic, peak, "peak", "peak", close, out);
  if (limit) draw_level(pic, say->limit_bytes, "limit", "limit", say->limit_bytes < peak, out);
  brim_text_printf(out, "<path class=\"peak\" d=\"M%.1f %.1fV%d\"/>", x, y_of(pic, peak), BOTTOM);
  brim_text_printf(out, "<text class=\"peak-text\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">most memory in use: ",
                   x + (left ? -6 : 6), BOTTOM - 8, left ? "end" : "start");
  brim_svg_escape(out, pic->d->live_op);
  brim_text_add(out, " '");
  brim_svg_escape(out, pic->d->live_name);
  brim_text_add(out, "'</text>\n");
}

static void find_persistent(const brim_region part[BRIM_PIECE_PERSISTENT], bool there[BRIM_PIECE_KINDS])
{
  for (int i = 0; i < BRIM_PIECE_DATA; i++) there[i] |= part[i].bytes > 0;
}

static void draw_legend(const picture *pic, brim_text *out)
{
  const brim_pieces *d = pic->d;
  bool there[BRIM_PIECE_KINDS] = {false};
  find_persistent(d->part, there);
  find_persistent(d->server, there);
  for (size_t i = 0; i < d->count; i++) there[d->piece[i].kind] = true;
  double x = LEFT;
  for (int k = 0; k < BRIM_PIECE_KINDS; k++) {
    if (!there[k]) continue;
    brim_text_printf(
        out, "<rect class=\"%s\" x=\"%.0f\" y=\"%d\" width=\"16\" height=\"12\"/><text x=\"%.0f\" y=\"%d\">%s</text>\n",
        kinds[k].class, x, LEGEND_Y - 10, x + 22, LEGEND_Y, kinds[k].text);
    x += 40 + 6.1 * (double)strlen(kinds[k].text);
  }
  brim_text_printf(out, "<path class=\"alive\" d=\"M%.0f %dh20\"/><text x=\"%.0f\" y=\"%d\">memory in use</text>\n", x,
                   LEGEND_Y - 4, x + 26, LEGEND_Y);
  const size_t small = d->buffers - pic->drawn;
  brim_text_printf(out, "<text class=\"note\" x=\"%d\" y=\"%d\">", LEFT, LEGEND_Y + 24);
  if (pic->links > 0)
    brim_text_printf(out, "dashed: from where %s dropped to where it is recomputed%s",
                     pic->links < LINKS_MAX ? "a result was" : "one of the largest results was", small > 0 ? "; " : "");
  if (small > 0)
    brim_text_printf(out, "%zu small buffer%s %s not drawn", small, brim_plural((int64_t)small),
                     small == 1 ? "is" : "are");
  brim_text_add(out, "</text>\n");
}

/* Adds the rules, each after `scope`, such as ".plan ". */
static void add_rules(brim_text *out, const char *scope, bool dark)
{
  static const struct {
    const char *what, *light, *dark;
  } rules[] = {{"text", "fill:#333", "fill:#ddd"},
               {".bg", "fill:#fff", "fill:#16181c"},
               {".title", "font-size:16px;font-weight:600", ""},
               {".note", "fill:#777;font-size:11px", "fill:#999"},
               {".grid", "stroke:#e6e6e6", "stroke:#2b2f36"},
               {".axis", "stroke:#555;fill:none", "stroke:#999"},
               {".phase", "stroke:#999;stroke-dasharray:2 3", ""},
               {".link", "stroke:#7f3c8d;stroke-dasharray:3 4;opacity:.45", "stroke:#c79bd1"},
               {".alive", "stroke:#222;fill:none;stroke-width:1.2", "stroke:#f4f4f4"},
               {".peak", "stroke:#333;stroke-dasharray:5 3;fill:none", "stroke:#ddd"},
               {".peak-text", "font-weight:600;paint-order:stroke;stroke:#fff;stroke-width:3", "stroke:#16181c"},
               {".limit", "stroke:#d11;stroke-width:1.6", "stroke:#ff6b6b"},
               {".limit-text", "fill:#d11;font-weight:600", "fill:#ff6b6b"},
               {".in", "font-size:11px", ""}};
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
    const char *rule = dark ? rules[i].dark : rules[i].light;
    if (rule[0]) brim_text_printf(out, "%s%s{%s}", scope, rules[i].what, rule);
  }
  for (int k = 0; k < BRIM_PIECE_KINDS; k++)
    brim_text_printf(out, dark ? "%s.%s{fill:%s;stroke:#16181c}" : "%s.%s{fill:%s;stroke:#fff;stroke-width:.4}", scope,
                     kinds[k].class, dark ? kinds[k].dark : kinds[k].light);
}

void brim_plan_svg_style(brim_text *out, bool dark)
{
  if (!dark) brim_text_printf(out, ".plan{display:block;width:100%%;min-width:52rem;font-size:12px}");
  add_rules(out, ".plan ", dark);
}

static void draw_document(const brim_plan_picture *say, brim_text *out)
{
  brim_text_printf(out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                   "font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"12\">\n<style>",
                   WIDTH, HEIGHT, WIDTH, HEIGHT);
  add_rules(out, "", false);
  brim_text_add(out, ".ka{fill:url(#hatch)}@media(prefers-color-scheme:dark){");
  add_rules(out, "", true);
  brim_text_printf(
      out,
      ".ka{fill:url(#hatch)}}</style>\n<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" "
      "patternUnits=\"userSpaceOnUse\" "
      "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#b48bc0\"/><rect width=\"2.4\" "
      "height=\"6\" fill=\"#7f3c8d\"/></pattern></defs>\n"
      "<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n<text class=\"title\" x=\"%d\" y=\"30\">",
      WIDTH, HEIGHT, LEFT);
  brim_svg_escape(out, say->title);
  brim_text_add(out, "</text>\n");
}

/* The line above the picture. */
static void draw_head(const picture *pic, const brim_plan_picture *say, brim_text *out)
{
  const brim_pieces *d = pic->d;
  char bytes[32];
  brim_text_printf(out, "<text x=\"%d\" y=\"50\">", LEFT);
  brim_svg_escape(out, d->recompute);
  brim_text_printf(out, "%s%d operations, %zu buffers", d->recompute[0] ? "; " : "", d->nodes, d->buffers);
  if (say->limit_bytes > pic->top_bytes)
    brim_text_printf(out, "; the limit, %s, is far above", brim_format_bytes(bytes, sizeof bytes, say->limit_bytes));
  brim_text_add(out, "</text>\n");
}

/* Draws one plan at its offset: persistent parts, and its program's buffers. */
static void draw_plan(picture *pic, brim_text *out)
{
  draw_persistent(pic, out);
  for (size_t i = 0; i < pic->end; i++)
    if (is_seen(pic, &pic->d->piece[i])) draw_piece(pic, &pic->d->piece[i], out);
  draw_links(pic, out);
  draw_alive(pic, out);
}

/* Draws the server's part, and a lane for each client that trains in parallel. */
static void draw_lanes(picture *pic, brim_text *out)
{
  const brim_pieces *d = pic->d;
  pic->part = d->server;
  pic->whose = SERVERS;
  draw_persistent(pic, out);
  pic->part = d->part;
  for (int32_t i = 0; i < d->lanes; i++) {
    pic->base_bytes = d->server_bytes + (uint64_t)i * d->lane_bytes;
    pic->whose = "client's ";
    draw_plan(pic, out);
    brim_text_printf(out,
                     "<path class=\"peak\" d=\"M%d %.1fH%d\"/><text class=\"peak-text\" x=\"%d\" y=\"%.1f\" "
                     "text-anchor=\"end\">lane %d</text>\n",
                     LEFT, y_of(pic, 0), RIGHT, RIGHT - 6, y_of(pic, 0) - 5, i + 1);
  }
  pic->base_bytes = 0;
}

/* `is_federated`: the buffers are those of a lane, even if no lane is placed. */
static void draw_all(const brim_pieces *d, bool is_federated, size_t drawn_max, const brim_plan_picture *say,
                     brim_text *out)
{
  const uint64_t peak = d->peak_bytes;
  picture pic = {.d = d, .part = d->part, .whose = ""};
  pic.top_bytes = say->limit_bytes > peak && say->limit_bytes < 2 * peak ? say->limit_bytes : peak;
  pic.top_bytes += pic.top_bytes / 24 + 1;
  if (d->lanes > 0) drawn_max /= (size_t)d->lanes;
  for (; pic.end < d->count && pic.drawn < drawn_max; pic.end++) pic.drawn += is_seen(&pic, &d->piece[pic.end]);
  draw_head(&pic, say, out);
  draw_axes(&pic, out);
  if (is_federated)
    draw_lanes(&pic, out);
  else
    draw_plan(&pic, out);
  draw_marks(&pic, say, out);
  draw_legend(&pic, out);
  brim_text_add(out, "</svg>\n");
}

void brim_plan_svg(const brim_plan *plan, const brim_program *p, const brim_plan_picture *say, brim_text *out)
{
  brim_arena scratch = {0};
  brim_pieces pieces;
  brim_pieces_collect(&scratch, plan, p, &pieces);
  draw_document(say, out);
  draw_all(&pieces, plan->lane_count > 0, DRAWN_MAX, say, out);
  brim_arena_release(&scratch);
}

void brim_plan_svg_embedded(const brim_pieces *pieces, size_t drawn_max, brim_text *out)
{
  static const brim_plan_picture no_words = {.title = ""};
  brim_text_printf(out,
                   "<svg class=\"plan\" viewBox=\"0 32 %d %d\" role=\"img\" aria-label=\"the plan: every buffer "
                   "by operation and place\">\n",
                   WIDTH, HEIGHT - 40);
  draw_all(pieces, pieces->lanes > 0, drawn_max, &no_words, out);
}
