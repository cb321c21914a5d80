/* Draws the confusion matrix as a heat map: a table of numbers for few classes, coloured squares for more classes, and
 * for many classes only the pairs that are confused most. Colours show the fraction of a label's samples: blue for
 * correct answers, orange for wrong ones. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page_parts.h"

#define NUMBERS_CLASSES_MAX 24
#define SQUARES_CLASSES_MAX 200
#define PAIRS_MAX 12
#define LABEL_BYTES_MAX 24 /* limit for a class name beside a square */

/* Returns the shade of a cell, 1 to BRIM_PAGE_SHADES; 0: no samples. */
static int shade_of(const brim_confusion *c, size_t label, size_t answer)
{
  const double count = c->count[label * c->classes + answer];
  return count > 0 ? (int)fmax(1, ceil(BRIM_PAGE_SHADES * count / c->of_label[label] - 1e-9)) : 0;
}

/* ---- a table of numbers ---- */

static void add_name(const char *name, const char *scope, brim_text *out)
{
  brim_text_printf(out, "<th scope=\"%s\"><span>", scope);
  brim_svg_escape(out, name);
  brim_text_add(out, "</span></th>");
}

static void add_numbers(const brim_confusion *c, brim_text *out)
{
  brim_text_add(out, "<div class=\"wide\"><table class=\"confusion\">\n<tr><td></td>");
  for (size_t i = 0; i < c->classes; i++) add_name(c->name[i], "col", out);
  brim_text_add(out, "</tr>\n");
  for (size_t i = 0; i < c->classes; i++) {
    brim_text_add(out, "<tr>");
    add_name(c->name[i], "row", out);
    for (size_t k = 0; k < c->classes; k++) {
      const int shade = shade_of(c, i, k);
      if (shade == 0)
        brim_text_add(out, "<td></td>");
      else
        brim_text_printf(out, "<td class=\"%s%d\">%.0f</td>", i == k ? "right" : "wrong", shade,
                         c->count[i * c->classes + k]);
    }
    brim_text_add(out, "</tr>\n");
  }
  brim_text_add(out, "</table></div>\n");
}

/* ---- squares ---- */

/* Adds all squares of one colour as one path, in units of a square. */
static void add_squares(const brim_confusion *c, bool right, int shade, brim_text *out)
{
  bool any = false;
  for (size_t i = 0; i < c->classes; i++)
    for (size_t k = 0; k < c->classes; k++) {
      if ((i == k) != right || shade_of(c, i, k) != shade) continue;
      if (!any) brim_text_printf(out, "<path class=\"%s%d\" d=\"", right ? "right" : "wrong", shade);
      any = true;
      brim_text_printf(out, "M%zu %zuh1v1h-1z", k, i);
    }
  if (any) brim_text_add(out, "\"/>\n");
}

/* Returns the number of bytes of the name to show, without a partial character. */
static size_t label_bytes(const char *name)
{
  size_t n = strlen(name);
  if (n <= LABEL_BYTES_MAX) return n;
  n = LABEL_BYTES_MAX;
  while (n > 0 && ((unsigned char)name[n] & 0xc0) == 0x80) n--;
  return n;
}

static void add_label(const char *name, double x, double y, const char *turn, brim_text *out)
{
  const size_t n = label_bytes(name);
  brim_text_printf(out, "<text x=\"%.1f\" y=\"%.1f\"%s>", x, y, turn);
  brim_svg_escape_n(out, name, n);
  brim_text_add(out, name[n] ? "…</text>\n" : "</text>\n");
}

static void add_map(const brim_confusion *c, brim_text *out)
{
  const double cell = c->classes <= 50 ? 14 : c->classes <= 100 ? 10 : 7;
  size_t longest = 1;
  for (size_t i = 0; i < c->classes; i++)
    if (label_bytes(c->name[i]) > longest) longest = label_bytes(c->name[i]);
  const double room = 12 + 0.62 * cell * (double)longest, size = room + cell * (double)c->classes + 2;
  brim_text_printf(out,
                   "<div class=\"wide\"><svg class=\"map\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
                   "font-size=\"%.1f\" role=\"img\" aria-label=\"confusion matrix\">\n",
                   size, size, size, size, 0.9 * cell);
  char turn[96];
  for (size_t i = 0; i < c->classes; i++) {
    const double middle = room + cell * ((double)i + 0.5), base = middle + 0.32 * cell;
    add_label(c->name[i], room - 4, base, " text-anchor=\"end\"", out);
    snprintf(turn, sizeof turn, " transform=\"rotate(-90 %.1f %.1f)\"", base, room - 4);
    add_label(c->name[i], base, room - 4, turn, out);
  }
  brim_text_printf(out, "<g transform=\"translate(%.1f %.1f) scale(%.0f)\">\n", room, room, cell);
  brim_text_printf(out, "<path class=\"ground\" d=\"M0 0h%zuv%zuh-%zuz\"/>\n", c->classes, c->classes, c->classes);
  for (int shade = 1; shade <= BRIM_PAGE_SHADES; shade++) {
    add_squares(c, true, shade, out);
    add_squares(c, false, shade, out);
  }
  brim_text_add(out, "</g>\n</svg></div>\n");
}

void brim_page_heat_map(const brim_confusion *c, brim_text *out)
{
  if (c->classes > SQUARES_CLASSES_MAX) return;
  brim_text_add(out, "<p>Test data. A row for each label, a column for each answer; the colour shows the share of the "
                     "label's samples.</p>\n");
  if (c->classes <= NUMBERS_CLASSES_MAX)
    add_numbers(c, out);
  else
    add_map(c, out);
}

/* ---- pairs ---- */

typedef struct pair {
  size_t label, answer;
  double count;
} pair;

/* Inserts into a list sorted by count; equal counts keep their order. */
static void insert(pair *list, size_t *count, pair new)
{
  size_t at = *count;
  while (at > 0 && list[at - 1].count < new.count) at--;
  if (at == PAIRS_MAX) return;
  const size_t kept = *count < PAIRS_MAX ? *count : PAIRS_MAX - 1;
  memmove(list + at + 1, list + at, (kept - at) * sizeof *list);
  list[at] = new;
  *count = kept + 1;
}

void brim_page_confused_pairs(brim_arena *arena, const brim_confusion *c, brim_text *out)
{
  pair list[PAIRS_MAX];
  size_t count = 0;
  for (size_t i = 0; i < c->classes; i++)
    for (size_t k = 0; k < c->classes; k++)
      if (i != k && c->count[i * c->classes + k] > 0) insert(list, &count, (pair){i, k, c->count[i * c->classes + k]});
  static const char *const head[] = {"label", "predicted as", "samples", "share of the label's samples"};
  brim_table table = {.arena = arena, .columns = sizeof head / sizeof head[0]};
  for (size_t i = 0; i < table.columns; i++) brim_table_add(&table, head[i]);
  for (size_t i = 0; i < count; i++) {
    brim_table_add(&table, c->name[list[i].label]);
    brim_table_add(&table, c->name[list[i].answer]);
    brim_table_number(&table, list[i].count, 0);
    brim_table_add(&table, brim_arena_printf(arena, "%.1f %%", 100 * list[i].count / c->of_label[list[i].label]));
  }
  if (count > 0) brim_text_add(out, "<h3>Most confused classes</h3>\n");
  brim_page_table(out, &table);
}
