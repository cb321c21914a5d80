/* Shows how well the model distinguishes each class from the others, on the test data. */
#include <math.h>
#include <string.h>

#include "report/page_parts.h"

#define CLASSES_MAX 16384

/* ---- precision, recall, F1 ---- */

static void add_classes(const brim_page_run *page, const json_t *classes, brim_text *out)
{
  static const char *const head[] = {"class", "precision", "recall", "F1", "samples"};
  brim_table table = {.arena = &page->all->arena, .columns = sizeof head / sizeof head[0]};
  for (size_t i = 0; i < table.columns; i++) brim_table_add(&table, head[i]);
  for (size_t i = 0; i < json_array_size(classes); i++) {
    const json_t *row = json_array_get(classes, i);
    brim_table_add(&table, brim_json_string(row, "class"));
    brim_table_number(&table, brim_json_number(row, "precision"), 4);
    brim_table_number(&table, brim_json_number(row, "recall"), 4);
    brim_table_number(&table, brim_json_number(row, "f1"), 4);
    brim_table_number(&table, brim_json_number(row, "support"), 0);
  }
  brim_text_add(out, "<div class=\"tall\">\n");
  brim_page_table(out, &table);
  brim_text_add(out, "</div>\n");
}

/* ---- the confusion matrix ---- */

/* Returns a count; 0 if the value is not a count. */
static double count_of(const json_t *value)
{
  const double count = json_is_number(value) ? json_number_value(value) : 0;
  return count > 0 && count < 1e15 ? floor(count) : 0;
}

static bool read_row(const json_t *row, size_t classes, double *count, double *sum)
{
  if (json_array_size(row) != classes) return false;
  *sum = 0;
  for (size_t k = 0; k < classes; k++) {
    count[k] = count_of(json_array_get(row, k));
    *sum += count[k];
  }
  return true;
}

static const char *name_of(brim_arena *arena, const json_t *classes, size_t i)
{
  const char *name = brim_json_string(json_array_get(classes, i), "class");
  return name[0] ? name : brim_arena_printf(arena, "%zu", i);
}

/* Reads the run's confusion matrix; false if it is missing or damaged, or there is no memory for it. */
static bool read_confusion(const brim_page_run *page, brim_confusion *out)
{
  const json_t *rows = json_object_get(page->summary, "test_confusion");
  const size_t n = json_array_size(rows);
  brim_arena *arena = &page->all->arena;
  if (n < 2 || n > CLASSES_MAX) return false;
  double *count = brim_arena_try(arena, n * n * sizeof *count);
  if (!count) return false;
  *out = (brim_confusion){n, count, BRIM_ARENA_NEW(arena, double, n), BRIM_ARENA_NEW(arena, const char *, n)};
  for (size_t i = 0; i < n; i++) {
    if (!read_row(json_array_get(rows, i), n, count + i * n, &out->of_label[i])) return false;
    out->name[i] = name_of(arena, json_object_get(page->summary, "test_classes"), i);
  }
  return true;
}

void brim_page_classes(const brim_page_run *page, brim_text *out)
{
  brim_confusion confusion;
  const json_t *classes = json_object_get(page->summary, "test_classes");
  const char *left_out = brim_json_string(page->summary, "left_out");
  if (read_confusion(page, &confusion)) {
    brim_page_begin(out, "Confusion matrix");
    brim_page_heat_map(&confusion, out);
    brim_page_confused_pairs(&page->all->arena, &confusion, out);
    brim_page_end(out);
  }
  if (json_array_size(classes) == 0 && !left_out[0]) return;
  brim_page_begin(out, "Classes");
  if (left_out[0]) {
    brim_text_add(out, "<p>");
    brim_svg_escape(out, left_out);
    brim_text_add(out, "</p>\n");
  }
  add_classes(page, classes, out);
  brim_page_end(out);
}
