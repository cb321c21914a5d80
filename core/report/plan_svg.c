/* Draws the arena: operations of a step from left to right, offsets upwards, and a rectangle for each buffer from the
 * operation that makes it to the last that needs it. Recomputed buffers are hatched, with a dashed line from where
 * they were dropped. Rectangles too small to see are omitted and counted.
 *
 * The lanes of a federation are stacked on the server's memory; their clients' steps need not be synchronous as
 * drawn. */
#include "report/plan_svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/svg.h"

/* pixels */
#define WIDTH 1180
#define LEFT 92
#define RIGHT 1150
#define TOP 92
#define BOTTOM 560
#define LEGEND_Y 622
#define HEIGHT 666

#define DRAWN_MAX 4000 /* rectangles; limits the picture to a megabyte or two */
#define LINKS_MAX 48   /* dashed lines; more would hide too much */
#define SIDE_MIN 0.3   /* minimum side of a drawn rectangle */
#define SIDE_THIN 3.0  /* thinner rectangles have no edge, which would hide the colour */

#define SERVERS "server's "

enum kind { PARAMETER, GRADIENT, OPTIMIZER, DATA, FORWARD, AGAIN, BACKWARD, SCRATCH, KINDS };

/* Fills for light and dark backgrounds: Okabe and Ito's colours, paler for large areas. */
static const struct {
  const char *class, *text, *light, *dark;
} kinds[KINDS] = {
    {"kp", "parameters", "#8fb8d8", "#2f5f86"},
    {"kg", "gradients", "#e8b48a", "#8f5426"},
    {"ko", "optimizer", "#8fcbb4", "#2b6d57"},
    {"kd", "data, metrics", "#f0e08a", "#7d6f1e"},
    {"kf", "activations", "#56b4e9", "#2f86bd"},
    {"ka", "recomputed", "url(#hatch)", "url(#hatch)"},
    {"kb", "gradients of activations", "#d98cb8", "#a14d80"},
    {"ks", "workspace", "#a8a8a8", "#777777"},
};

typedef struct piece {
  uint64_t offset, bytes;
  int32_t first, last; /* operations, inclusive */
  enum kind kind;
  const brim_tensor *tensor; /* NULL: workspace, or persistent */
  const brim_node *node;     /* the node that made it; may be NULL */
  int32_t from;              /* of a recomputed piece: the piece that was dropped; -1: none */
} piece;

typedef struct ranked {
  double area; /* square pixels */
  uint32_t piece;
} ranked;

typedef struct picture {
  const brim_plan *plan; /* in a federation a lane's, except for the server's part */
  const brim_program *p;
  uint64_t base_bytes; /* offset of the plan in the arena */
  uint64_t top_bytes, peak_bytes;
  const char *whose; /* "server's ", before the names of persistent parts; "" without a federation */
  piece *piece;      /* by buffer */
  ranked *order;
  size_t count, drawn;
  int links;
} picture;

static double x_of(const picture *pic, double node)
{
  const double nodes = (double)pic->p->graph->node_count;
  return LEFT + (nodes > 0 ? node / nodes : 0) * (RIGHT - LEFT);
}

static double y_of(const picture *pic, uint64_t bytes)
{
  return BOTTOM - (double)(pic->base_bytes + bytes) / (double)pic->top_bytes * (BOTTOM - TOP);
}

/* ---- collecting pieces ---- */

/* The forward node of which a backward node is a clone, or NULL. Clones share the name of their nodes. */
static const brim_node *original_of(const brim_graph *g, const brim_node *n)
{
  if (g->recomputed_count == 0 || n->index < g->forward_count) return NULL;
  for (size_t i = 0; i < g->forward_count; i++)
    if (g->node[i]->name == n->name && g->node[i]->descriptor == n->descriptor &&
        strcmp(g->node[i]->out[0]->name, n->out[0]->name) == 0)
      return g->node[i];
  return NULL;
}

static void add_tensor(picture *pic, const brim_tensor *t, const brim_node *n, uint32_t out)
{
  const brim_program *p = pic->p;
  const int32_t buffer = p->tensor_buffer[t->id];
  if (buffer < 0 || pic->piece[buffer].tensor) return; /* persistent, or already assigned to an earlier tensor */
  piece *to = &pic->piece[buffer];
  const brim_node *original = n ? original_of(p->graph, n) : NULL;
  to->tensor = t;
  to->node = n;
  to->kind = t->role == BRIM_ROLE_OPTIMIZER       ? OPTIMIZER
             : !n || t->role == BRIM_ROLE_DATA    ? DATA
             : original                           ? AGAIN
             : n->index < p->graph->forward_count ? FORWARD
                                                  : BACKWARD;
  if (original && out < original->out_count) to->from = p->tensor_buffer[original->out[out]->id];
}

static void collect(picture *pic)
{
  const brim_program *p = pic->p;
  const brim_graph *g = p->graph;
  pic->count = p->buffer_count;
  for (size_t i = 0; i < p->buffer_count; i++) {
    const brim_buffer *b = &p->buffer[i];
    pic->piece[i] = (piece){b->offset, b->bytes, b->first, b->last, SCRATCH, NULL, NULL, -1};
  }
  if (g->input) add_tensor(pic, g->input, NULL, 0);
  if (g->label) add_tensor(pic, g->label, NULL, 0);
  for (size_t i = 0; i < g->node_count; i++) {
    for (uint32_t k = 0; k < g->node[i]->out_count; k++) add_tensor(pic, g->node[i]->out[k], g->node[i], k);
    if (p->workspace_buffer[i] >= 0) pic->piece[p->workspace_buffer[i]].node = g->node[i];
  }
}

static int by_area(const void *a, const void *b)
{
  const ranked *x = a, *y = b;
  if (x->area != y->area) return x->area > y->area ? -1 : 1;
  return x->piece < y->piece ? -1 : x->piece > y->piece;
}

/* Sorts the largest first, so that small ones are drawn above them; those too small to see come last. */
static void sort_pieces(picture *pic, size_t drawn_max)
{
  for (size_t i = 0; i < pic->count; i++) {
    const piece *x = &pic->piece[i];
    const double width = x_of(pic, x->last + 1) - x_of(pic, x->first), height = y_of(pic, 0) - y_of(pic, x->bytes);
    const bool seen = width >= SIDE_MIN && height >= SIDE_MIN;
    pic->order[i] = (ranked){seen ? width * height : 0, (uint32_t)i};
    pic->drawn += seen;
  }
  qsort(pic->order, pic->count, sizeof *pic->order, by_area);
  if (pic->drawn > drawn_max) pic->drawn = drawn_max;
}

/* ---- drawing ---- */

static void draw_rect(const picture *pic, const piece *x, brim_text *out)
{
  const double left = x_of(pic, x->first), top = y_of(pic, x->offset + x->bytes);
  const double width = x_of(pic, x->last + 1) - left, height = y_of(pic, x->offset) - top;
  const bool thin = width < SIDE_THIN || height < SIDE_THIN;
  brim_text_printf(out, "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"%s><title>",
                   kinds[x->kind].class, left, top, width, height,
                   thin ? " style=\"stroke:none\" shape-rendering=\"crispEdges\"" : "");
}

static void draw_piece(const picture *pic, const piece *x, brim_text *out)
{
  char bytes[32], offset[32];
  draw_rect(pic, x, out);
  if (x->tensor) brim_svg_escape(out, x->tensor->name);
  if (x->node) {
    brim_text_add(out, x->tensor ? ", of " : "workspace of ");
    brim_svg_escape(out, x->node->op);
    brim_text_add(out, " '");
    brim_svg_escape(out, x->node->name);
    brim_text_add(out, "'");
  }
  brim_text_printf(out, "&#10;%s: %s at %s&#10;operations %d to %d of %zu", kinds[x->kind].text,
                   brim_format_bytes(bytes, sizeof bytes, x->bytes),
                   brim_format_bytes(offset, sizeof offset, pic->base_bytes + x->offset), x->first, x->last,
                   pic->p->graph->node_count);
  if (x->from >= 0) brim_text_printf(out, "&#10;dropped after operation %d", pic->piece[x->from].last);
  brim_text_add(out, "</title></rect>\n");
}

/* The name of a persistent part: "server's sum of updates". */
static const char *name_of(const picture *pic, enum kind kind)
{
  return kind == GRADIENT && strcmp(pic->whose, SERVERS) == 0 ? "sum of updates" : kinds[kind].text;
}

/* The persistent parts, over the whole width. */
static void draw_persistent(const picture *pic, brim_text *out)
{
  const brim_plan *plan = pic->plan;
  const uint64_t at[] = {plan->frozen_offset, plan->gradient_offset, plan->optimizer_offset, plan->metrics_offset,
                         plan->persistent_bytes};
  static const enum kind kind[] = {PARAMETER, GRADIENT, OPTIMIZER, DATA};
  char bytes[32];
  for (int i = 0; i < 4; i++) {
    const piece x = {
        .offset = at[i], .bytes = at[i + 1] - at[i], .last = (int32_t)pic->p->graph->node_count - 1, .kind = kind[i]};
    if (x.bytes == 0) continue;
    draw_rect(pic, &x, out);
    brim_text_printf(out, "%s%s: %s, persistent</title></rect>\n", pic->whose, name_of(pic, kind[i]),
                     brim_format_bytes(bytes, sizeof bytes, x.bytes));
    const double height = y_of(pic, x.offset) - y_of(pic, x.offset + x.bytes);
    if (height >= 13)
      brim_text_printf(out, "<text class=\"in\" x=\"%d\" y=\"%.1f\">%s%s, %s</text>\n", LEFT + 8,
                       y_of(pic, x.offset + x.bytes / 2) + 4, pic->whose, name_of(pic, kind[i]), bytes);
  }
}

/* Draws lines from where the largest results were dropped to where they are recomputed. */
static void draw_links(picture *pic, brim_text *out)
{
  for (size_t i = 0; i < pic->drawn && pic->links < LINKS_MAX; i++) {
    const piece *x = &pic->piece[pic->order[i].piece];
    if (x->from < 0 || pic->piece[x->from].last >= x->first) continue;
    const piece *from = &pic->piece[x->from];
    brim_text_printf(out, "<path class=\"link\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", x_of(pic, from->last + 1),
                     y_of(pic, from->offset + from->bytes / 2), x_of(pic, x->first),
                     y_of(pic, x->offset + x->bytes / 2));
    pic->links++;
  }
}

/* The bytes alive at each operation, wherever they are: the distance to the pieces above shows the cost of gaps. */
static void draw_alive(const picture *pic, brim_text *out)
{
  const brim_program *p = pic->p;
  const size_t nodes = p->graph->node_count;
  int64_t *change = brim_xcalloc(nodes + 2, sizeof *change), live = 0;
  for (size_t b = 0; b < p->buffer_count; b++) {
    change[p->buffer[b].first] += (int64_t)p->buffer[b].bytes;
    change[p->buffer[b].last + 1] -= (int64_t)p->buffer[b].bytes;
  }
  brim_text_add(out, "<path class=\"alive\" d=\"");
  for (size_t i = 0; i < nodes; i++) {
    live += change[i];
    if (i > 0 && change[i] == 0) continue;
    brim_text_printf(out, i ? "H%.1fV%.1f" : "M%.1f %.1f", x_of(pic, (double)i),
                     y_of(pic, pic->plan->persistent_bytes + (uint64_t)live));
  }
  brim_text_printf(out, "H%d\"/>\n", RIGHT);
  free(change);
}

/* A distance between lines of 1, 2 or 5 times a power of two units. */
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
  const brim_graph *g = pic->p->graph;
  char bytes[32];
  const uint64_t step = choose_step(pic->top_bytes);
  for (uint64_t at = 0; at <= pic->top_bytes; at += step)
    brim_text_printf(out,
                     "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                     "text-anchor=\"end\">%s</text>\n",
                     LEFT, y_of(pic, at), RIGHT, LEFT - 8, y_of(pic, at) + 4,
                     brim_format_bytes(bytes, sizeof bytes, at));
  size_t nodes_step = 1;
  while (g->node_count / nodes_step > 12) nodes_step *= nodes_step % 4 == 0 || nodes_step % 3 ? 2 : 5;
  for (size_t i = 0; i <= g->node_count; i += nodes_step)
    brim_text_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%zu</text>\n", x_of(pic, (double)i),
                     BOTTOM + 18, i);
  brim_text_printf(
      out,
      "<path class=\"axis\" d=\"M%d %dV%dH%d\"/><text x=\"%d\" y=\"%d\" text-anchor=\"middle\">operations%s, "
      "in execution order</text>\n<text transform=\"translate(14 %d)rotate(-90)\" "
      "text-anchor=\"middle\">offset in the arena</text>\n",
      LEFT, TOP, BOTTOM, RIGHT, (LEFT + RIGHT) / 2, BOTTOM + 36, pic->plan->request.server ? " of a client's step" : "",
      (TOP + BOTTOM) / 2);
  if (g->forward_count == 0 || g->forward_count == g->node_count) return;
  const double middle = x_of(pic, (double)g->forward_count);
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
  const uint64_t peak = pic->peak_bytes;
  const double x = x_of(pic, pic->p->live_node + 0.5);
  const bool left = x > (LEFT + RIGHT) / 2.0;
  const bool limit = say->limit_bytes > 0 && say->limit_bytes <= pic->top_bytes;
  const bool close = limit && say->limit_bytes >= peak && y_of(pic, peak) - y_of(pic, say->limit_bytes) < 20;
  draw_level(pic, peak, "peak", "peak", close, out);
  if (limit) draw_level(pic, say->limit_bytes, "limit", "limit", say->limit_bytes < peak, out);
  brim_text_printf(out, "<path class=\"peak\" d=\"M%.1f %.1fV%d\"/>", x, y_of(pic, peak), BOTTOM);
  const brim_node *n = pic->p->graph->node[pic->p->live_node];
  brim_text_printf(out, "<text class=\"peak-text\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">most memory in use: ",
                   x + (left ? -6 : 6), BOTTOM - 8, left ? "end" : "start");
  brim_svg_escape(out, n->op);
  brim_text_add(out, " '");
  brim_svg_escape(out, n->name);
  brim_text_add(out, "'</text>\n");
}

static void find_persistent(const brim_plan *plan, bool there[KINDS])
{
  there[PARAMETER] |= plan->gradient_offset > plan->frozen_offset;
  there[GRADIENT] |= plan->gradient_bytes > 0;
  there[OPTIMIZER] |= plan->metrics_offset > plan->optimizer_offset;
}

static void draw_legend(const picture *pic, const brim_plan *whole, brim_text *out)
{
  bool there[KINDS] = {false};
  find_persistent(pic->plan, there);
  find_persistent(whole, there);
  for (size_t i = 0; i < pic->count; i++) there[pic->piece[i].kind] = true;
  double x = LEFT;
  for (int k = 0; k < KINDS; k++) {
    if (!there[k]) continue;
    brim_text_printf(
        out, "<rect class=\"%s\" x=\"%.0f\" y=\"%d\" width=\"16\" height=\"12\"/><text x=\"%.0f\" y=\"%d\">%s</text>\n",
        kinds[k].class, x, LEGEND_Y - 10, x + 22, LEGEND_Y, kinds[k].text);
    x += 40 + 6.1 * (double)strlen(kinds[k].text);
  }
  brim_text_printf(out, "<path class=\"alive\" d=\"M%.0f %dh20\"/><text x=\"%.0f\" y=\"%d\">memory in use</text>\n", x,
                   LEGEND_Y - 4, x + 26, LEGEND_Y);
  const size_t small = pic->count - pic->drawn;
  brim_text_printf(out, "<text class=\"note\" x=\"%d\" y=\"%d\">", LEFT, LEGEND_Y + 24);
  if (pic->links > 0)
    brim_text_printf(out, "dashed: from where %s dropped to where it is recomputed%s",
                     pic->links < LINKS_MAX ? "a result was" : "one of the largest results was", small > 0 ? "; " : "");
  if (small > 0)
    brim_text_printf(out, "%zu buffer%s too small to see %s not drawn", small, brim_plural((int64_t)small),
                     small == 1 ? "is" : "are");
  brim_text_add(out, "</text>\n");
}

static void draw_head(const picture *pic, const brim_plan_picture *say, brim_text *out)
{
  brim_text_printf(
      out,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
      "font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"12\">\n<style>"
      "text{fill:#333}.bg{fill:#fff}.title{font-size:16px;font-weight:600}.note{fill:#777;font-size:11px}"
      ".grid{stroke:#e6e6e6}.axis{stroke:#555;fill:none}.phase{stroke:#999;stroke-dasharray:2 3}"
      ".link{stroke:#7f3c8d;stroke-dasharray:3 4;opacity:.45}.alive{stroke:#222;fill:none;stroke-width:1.2}"
      ".peak{stroke:#333;stroke-dasharray:5 3;fill:none}"
      ".peak-text{font-weight:600;paint-order:stroke;stroke:#fff;stroke-width:3}"
      ".limit{stroke:#d11;stroke-width:1.6}.limit-text{fill:#d11;font-weight:600}.in{font-size:11px}",
      WIDTH, HEIGHT, WIDTH, HEIGHT);
  for (int k = 0; k < KINDS; k++)
    brim_text_printf(out, ".%s{fill:%s;stroke:#fff;stroke-width:.4}", kinds[k].class, kinds[k].light);
  brim_text_add(
      out, "@media(prefers-color-scheme:dark){text{fill:#ddd}.bg{fill:#16181c}.note{fill:#999}.grid{stroke:#2b2f36}"
           ".axis{stroke:#999}.alive{stroke:#f4f4f4}.peak{stroke:#ddd}.peak-text{stroke:#16181c}.link{stroke:#c79bd1}"
           ".limit{stroke:#ff6b6b}.limit-text{fill:#ff6b6b}");
  for (int k = 0; k < KINDS; k++) brim_text_printf(out, ".%s{fill:%s;stroke:#16181c}", kinds[k].class, kinds[k].dark);
  brim_text_printf(
      out,
      "}</style>\n<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
      "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#b48bc0\"/><rect width=\"2.4\" "
      "height=\"6\" fill=\"#7f3c8d\"/></pattern></defs>\n"
      "<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n<text class=\"title\" x=\"%d\" y=\"30\">",
      WIDTH, HEIGHT, LEFT);
  brim_svg_escape(out, say->title);
  brim_text_printf(out, "</text>\n<text x=\"%d\" y=\"50\">", LEFT);
  brim_text share = {0};
  brim_recompute_print(pic->p, pic->plan->request.recompute, &share);
  if (share.length > 0) brim_text_printf(out, "%s; ", share.s);
  brim_text_release(&share);
  char bytes[32];
  brim_text_printf(out, "%zu operations, %zu buffers", pic->p->graph->node_count, pic->count);
  if (say->limit_bytes > pic->top_bytes)
    brim_text_printf(out, "; the limit, %s, is far above", brim_format_bytes(bytes, sizeof bytes, say->limit_bytes));
  brim_text_add(out, "</text>\n");
}

/* Draws one plan at its offset: persistent parts, and its program's buffers. */
static void draw_plan(picture *pic, brim_text *out)
{
  draw_persistent(pic, out);
  for (size_t i = 0; i < pic->drawn; i++) draw_piece(pic, &pic->piece[pic->order[i].piece], out);
  draw_links(pic, out);
  draw_alive(pic, out);
}

/* Draws the server's part, and a lane for each client that trains in parallel. */
static void draw_lanes(picture *pic, const brim_plan *server, brim_text *out)
{
  const brim_plan *lane = pic->plan;
  pic->plan = server;
  pic->whose = SERVERS;
  draw_persistent(pic, out);
  pic->plan = lane;
  for (int32_t i = 0; i < server->request.lanes; i++) {
    pic->base_bytes = server->persistent_bytes + (uint64_t)i * server->lane_bytes;
    pic->whose = "client's ";
    draw_plan(pic, out);
    brim_text_printf(out,
                     "<path class=\"peak\" d=\"M%d %.1fH%d\"/><text class=\"peak-text\" x=\"%d\" y=\"%.1f\" "
                     "text-anchor=\"end\">lane %d</text>\n",
                     LEFT, y_of(pic, 0), RIGHT, RIGHT - 6, y_of(pic, 0) - 5, i + 1);
  }
  pic->base_bytes = 0;
}

void brim_plan_svg(const brim_plan *plan, const brim_program *p, const brim_plan_picture *say, brim_text *out)
{
  brim_arena scratch = {0};
  const bool federated = plan->lane_count > 0;
  const uint64_t peak = federated ? plan->peak_bytes : plan->persistent_bytes + p->transient_bytes;
  picture pic = {.plan = federated ? plan->lane[0] : plan, .p = p, .peak_bytes = peak, .whose = ""};
  pic.top_bytes = say->limit_bytes > peak && say->limit_bytes < 2 * peak ? say->limit_bytes : peak;
  pic.top_bytes += pic.top_bytes / 24 + 1;
  pic.piece = BRIM_ARENA_NEW(&scratch, piece, p->buffer_count + 1);
  pic.order = BRIM_ARENA_NEW(&scratch, ranked, p->buffer_count + 1);
  collect(&pic);
  sort_pieces(&pic, federated && plan->request.lanes > 0 ? DRAWN_MAX / (size_t)plan->request.lanes : DRAWN_MAX);
  draw_head(&pic, say, out);
  draw_axes(&pic, out);
  if (federated)
    draw_lanes(&pic, plan, out);
  else
    draw_plan(&pic, out);
  draw_marks(&pic, say, out);
  draw_legend(&pic, plan, out);
  brim_text_add(out, "</svg>\n");
  brim_arena_release(&scratch);
}
