/* Fuzzes the looks that `brim monitor --from FILE` and other hosts give: each look is refused as a whole with a reason,
 * or is written and read back unchanged, drawn in any size with any keys, and written as metrics. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "monitor/draw.h"
#include "monitor/metrics.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_look: %s: %s\n", what, brim_error_text());
  abort();
}

static char *dump(const brim_look *look)
{
  json_t *root = brim_look_json(look);
  char *out = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17));
  json_decref(root);
  check(out != NULL, "cannot be written");
  return out;
}

static void check_reads_back(const brim_look *look)
{
  brim_look again = {0};
  char *text = dump(look);
  json_t *root = json_loads(text, 0, NULL);
  check(root && brim_look_add_json(root, &again) == BRIM_OK, "the reader refuses the writer's text");
  char *other = dump(&again);
  check(strcmp(text, other) == 0, "reads back as another look");
  json_decref(root);
  brim_look_release(&again);
  free(other);
  free(text);
}

/* Checks that no cell of a screen contains a control character. */
static void check_cells(const brim_cells *cells)
{
  for (int i = 0; i < cells->columns * cells->rows; i++) {
    const uint32_t glyph = cells->cell[i].glyph;
    check(glyph == 0 || (glyph >= 0x20 && glyph != 0x7f && (glyph < 0x80 || glyph >= 0xa0)), "a control character");
    check(cells->unicode || (glyph > 0 && glyph < 0x7f), "is not ASCII");
  }
}

static void draw(const brim_look *look, const uint8_t *keys, size_t count)
{
  static const int sizes[][2] = {{40, 8}, {40, 10}, {80, 24}, {200, 50}};
  brim_view view = {.is_fixed = true};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    brim_cells cells;
    brim_cells_init(&cells, sizes[i][0], sizes[i][1], i % 2 == 0);
    brim_picture_draw(look, &view, &cells);
    check_cells(&cells);
    brim_cells_release(&cells);
    for (size_t k = i; k < count && k < 64; k += sizeof sizes / sizeof sizes[0])
      (void)brim_view_key(&view, look, keys[k]);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  brim_look look = {0};
  json_t *root = json_loadb((const char *)data, size, 0, NULL);
  if (!root) return 0;
  if (brim_look_add_json(root, &look) == BRIM_OK) {
    brim_text text = {0};
    check_reads_back(&look);
    brim_look_expect(&look);
    brim_look_advise(&look);
    draw(&look, data + size - (size < 64 ? size : 64), size < 64 ? size : 64);
    brim_picture_text(&look, 80, true, true, &text);
    brim_look_metrics(&look, &text);
    brim_text_release(&text);
  } else {
    check(brim_error_text()[0] && look.hosts + look.devices + look.tickets + look.runs == 0, "refused in part");
  }
  brim_look_release(&look);
  json_decref(root);
  return 0;
}
