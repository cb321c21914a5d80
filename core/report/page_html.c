/* The building blocks of a page's sections. */
#include <stdlib.h>
#include <string.h>

#include "report/page_parts.h"

void brim_page_text(brim_text *out, const char *text)
{
  while (*text) {
    const size_t length = strcspn(text, "\n");
    brim_svg_escape_n(out, text, length);
    text += length;
    if (*text == '\n') brim_text_add(out, "\n"), text++;
  }
}

#define SECTION "<section id=\""

void brim_page_begin(brim_text *out, const char *heading)
{
  brim_text_add(out, SECTION);
  for (const char *s = heading; *s; s++) {
    const char letter = *s >= 'A' && *s <= 'Z' ? (char)(*s - 'A' + 'a') : *s;
    brim_text_add_n(out, letter >= 'a' && letter <= 'z' ? &letter : "-", 1);
  }
  brim_text_add(out, "\">\n<h2>");
  brim_svg_escape(out, heading);
  brim_text_add(out, "</h2>\n");
}

/* Text from files contains no '<' here, so each mark begins a section. */
void brim_page_jumps(const brim_text *body, brim_text *out)
{
  const char *at = brim_text_str(body);
  brim_text_add(out, "<nav aria-label=\"sections\">\n");
  while ((at = strstr(at, SECTION))) {
    const char *id = at + strlen(SECTION), *heading = strstr(id, "<h2>") + strlen("<h2>");
    brim_text_printf(out, "<a href=\"#%.*s\">%.*s</a>\n", (int)strcspn(id, "\""), id, (int)strcspn(heading, "<"),
                     heading);
    at = heading;
  }
  brim_text_add(out, "</nav>\n");
}

void brim_page_end(brim_text *out)
{
  brim_text_add(out, "</section>\n");
}

void brim_page_begin_folded(brim_text *out, const char *heading)
{
  brim_text_add(out, "<details>\n<summary>");
  brim_svg_escape(out, heading);
  brim_text_add(out, "</summary>\n");
}

void brim_page_end_folded(brim_text *out)
{
  brim_text_add(out, "</details>\n");
}

static void add_row(brim_text *out, const brim_table *table, const brim_table_column *column, size_t row)
{
  const char *tag = row == 0 ? "th" : "td";
  brim_text_add(out, "<tr>");
  for (size_t c = 0; c < table->columns; c++) {
    if (column[c].empty) continue;
    brim_text_printf(out, "<%s%s>", tag, column[c].right ? " class=\"number\"" : "");
    brim_svg_escape(out, table->cell[row * table->columns + c]);
    brim_text_printf(out, "</%s>", tag);
  }
  brim_text_add(out, "</tr>\n");
}

void brim_page_table(brim_text *out, const brim_table *table)
{
  const size_t rows = table->count / table->columns;
  if (rows < 2) return;
  brim_table_column *column = brim_xcalloc(table->columns, sizeof *column);
  for (size_t c = 0; c < table->columns; c++) column[c] = brim_table_measure(table, c);
  brim_text_add(out, "<div class=\"wide\"><table>\n<thead>");
  add_row(out, table, column, 0);
  brim_text_add(out, "</thead>\n<tbody>\n");
  for (size_t row = 1; row < rows; row++) add_row(out, table, column, row);
  brim_text_add(out, "</tbody>\n</table></div>\n");
  free(column);
}

void brim_page_pair(brim_table *table, const char *name, const char *value)
{
  if (!value[0] || strcmp(value, "-") == 0) return;
  brim_table_add(table, name);
  brim_table_add(table, value);
}
