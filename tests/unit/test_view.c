/* Tests the keys of `brim monitor`, and the cells that it draws on. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "monitor/draw.h"
#include "recorded_looks.h"

static const char *chosen_name(const brim_view *view, const brim_look *look)
{
  for (size_t i = 0; view->has_chosen && i < look->runs; i++)
    if (brim_view_is(&view->chosen, &look->run[i])) return look->run[i].name;
  return "";
}

static enum brim_view_action type(brim_view *view, const brim_look *look, const char *keys)
{
  enum brim_view_action last = BRIM_VIEW_NOTHING;
  for (; *keys; keys++) last = brim_view_key(view, look, *keys);
  return last;
}

static void test_the_choice_moves_and_stays_with_its_run(void **state)
{
  brim_look *look = open_look("lab");
  brim_view view = {.page = 5};
  type(&view, look, "jj");
  assert_string_equal(chosen_name(&view, look), "gpt2-medium");
  type(&view, look, "k");
  assert_string_equal(chosen_name(&view, look), "vit-b-mixup");
  type(&view, look, "sssss"); /* in another order, the same run stays selected */
  assert_string_equal(chosen_name(&view, look), "vit-b-mixup");
  brim_view_key(&view, look, BRIM_KEY_END);
  brim_view_key(&view, look, BRIM_KEY_DOWN); /* the selection stays at the end */
  brim_view_key(&view, look, BRIM_KEY_HOME);
  brim_view_key(&view, look, BRIM_KEY_PAGE_DOWN);
  brim_view_key(&view, look, BRIM_KEY_PAGE_UP);
  brim_view_key(&view, look, BRIM_KEY_UP);
  size_t list[64];
  const size_t count = brim_view_list(&view, look, list);
  assert_int_equal(brim_view_position(&view, look, list, count), 0);
  close_look(look);
}

static void test_filter_mine_and_sort(void **state)
{
  brim_look *look = open_look("lab");
  brim_view view = {0};
  size_t list[64];
  type(&view, look, "/VIT");
  assert_int_equal(brim_view_list(&view, look, list), 3); /* two match by name, one by model and name */
  type(&view, look, "\n");
  assert_int_equal(view.question, BRIM_VIEW_NO_QUESTION);
  type(&view, look, "/x");
  assert_int_equal(brim_view_list(&view, look, list), 1); /* mixup */
  brim_view_key(&view, look, BRIM_KEY_ERASE);
  assert_int_equal(brim_view_list(&view, look, list), look->runs);
  brim_view_key(&view, look, BRIM_KEY_ESCAPE);
  assert_string_equal(view.filter, "VIT"); /* the filter stays as before */
  brim_view_key(&view, look, BRIM_KEY_ESCAPE);
  assert_string_equal(view.filter, "");
  type(&view, look, "m");
  const size_t mine = brim_view_list(&view, look, list);
  assert_in_range(mine, 1, look->runs - 1);
  for (size_t i = 0; i < mine; i++) assert_true(look->run[list[i]].is_mine);
  view.sort = BRIM_SORT_LOSS;
  for (size_t i = 1; i < brim_view_list(&view, look, list); i++)
    assert_true(!(look->run[list[i]].loss < look->run[list[i - 1]].loss)); /* unknown ones come last */
  close_look(look);
}

static void test_a_filter_is_bounded_and_counts_whole_characters(void **state)
{
  brim_look *look = open_look("lab");
  brim_view view = {0};
  type(&view, look, "/");
  for (int i = 0; i < 200; i++) brim_view_key(&view, look, 0x6f22);
  assert_true(strlen(view.filter) < sizeof view.filter && strlen(view.filter) % 3 == 0);
  const size_t length = strlen(view.filter);
  brim_view_key(&view, look, BRIM_KEY_ERASE);
  assert_int_equal(strlen(view.filter), length - 3);
  brim_view_key(&view, look, 21);
  assert_string_equal(view.filter, "");
  close_look(look);
}

static void test_an_interrupt_needs_an_answer_and_a_run_of_mine(void **state)
{
  brim_look *look = open_look("lab");
  brim_view view = {0};
  type(&view, look, "g");
  assert_int_equal(type(&view, look, "i"), BRIM_VIEW_NOTHING);
  assert_int_equal(view.question, BRIM_VIEW_ASK_INTERRUPT);
  assert_int_equal(view.asked.pid, 7630);
  static const int refusals[] = {'n', 'x', BRIM_KEY_ENTER, BRIM_KEY_ESCAPE, BRIM_KEY_DOWN, 'q'};
  for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
    view.question = BRIM_VIEW_ASK_INTERRUPT;
    assert_int_equal(brim_view_key(&view, look, refusals[i]), BRIM_VIEW_NOTHING);
    assert_int_equal(view.question, BRIM_VIEW_NO_QUESTION);
    assert_string_equal(view.message, "not interrupted");
  }
  assert_int_equal(type(&view, look, "iy"), BRIM_VIEW_INTERRUPT);
  type(&view, look, "jji"); /* the run belongs to bob */
  assert_int_equal(view.question, BRIM_VIEW_NO_QUESTION);
  assert_string_equal(view.message, "only your own runs on this host can be interrupted");
  type(&view, look, "Gi"); /* the run was killed */
  assert_int_equal(view.question, BRIM_VIEW_NO_QUESTION);
  assert_string_equal(view.message, "this run has ended");
  view.is_fixed = true;
  type(&view, look, "gi");
  assert_int_equal(view.question, BRIM_VIEW_NO_QUESTION);
  close_look(look);
}

static void test_back_and_quit(void **state)
{
  brim_look *look = open_look("lab");
  brim_view view = {0};
  type(&view, look, "g\n");
  assert_int_equal(view.mode, BRIM_VIEW_DETAIL);
  type(&view, look, "?");
  assert_int_equal(view.mode, BRIM_VIEW_HELP);
  assert_int_equal(type(&view, look, "q"), BRIM_VIEW_NOTHING);
  assert_int_equal(view.mode, BRIM_VIEW_DETAIL);
  assert_int_equal(type(&view, look, "q"), BRIM_VIEW_NOTHING);
  assert_int_equal(view.mode, BRIM_VIEW_LIST);
  assert_int_equal(type(&view, look, "p"), BRIM_VIEW_NOTHING);
  assert_int_equal(type(&view, look, "p"), BRIM_VIEW_LOOK);
  assert_int_equal(type(&view, look, "q"), BRIM_VIEW_QUIT);
  close_look(look);
}

static void test_no_key_and_no_size_breaks_any_look(void **state)
{
  static const char *const states[] = {"lab", "empty", "one", "broken", "hosts"};
  static const int keys[] = {
      'j',           'G',  '\n', 'i', 'y', '/', 'v', BRIM_KEY_ESCAPE, 's',           '?', 'q', 'm',
      BRIM_KEY_LEFT, '\n', 'j',  'k', '2', '9', 'p', BRIM_KEY_RIGHT,  BRIM_KEY_NONE, 'g', 's', 0};
  for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
    brim_look *look = open_look(states[i]);
    brim_view view = {0};
    for (int turn = 0; turn < 300; turn++) {
      brim_cells cells;
      brim_cells_init(&cells, turn * 7 % 211, turn * 5 % 61, turn % 3 > 0);
      brim_picture_draw(look, &view, &cells);
      for (int j = 0; j < cells.columns * cells.rows; j++)
        assert_true(cells.cell[j].glyph == 0 || cells.cell[j].glyph >= ' '); /* no character moves the cursor */
      brim_cells_release(&cells);
      brim_view_key(&view, look, keys[turn % (int)(sizeof keys / sizeof keys[0])]);
    }
    close_look(look);
  }
}

/* ---- cells ---- */

static void test_text_of_strangers_in_cells(void **state)
{
  brim_cells cells;
  brim_text out = {0};
  /* without a width: an accent on e, and U+202E, which reverses the direction of text */
  static const char turned[] = {'e', '\xcc', '\x81', '\xe2', '\x80', '\xae', 'a', '\0'};
  brim_cells_init(&cells, 10, 8, true);
  brim_cells_put(&cells, 0, 0, 10, BRIM_PAINT_PLAIN, "\033[2J\a\n\x7f"); /* control characters */
  brim_cells_put(&cells, 1, 0, 10, BRIM_PAINT_PLAIN, turned);
  brim_cells_put(&cells, 2, 0, 10, BRIM_PAINT_PLAIN, "\xff\xc3(");  /* not UTF-8 */
  brim_cells_put(&cells, 3, 0, 10, BRIM_PAINT_PLAIN, "0123456789"); /* the text just fits */
  brim_cells_put(&cells, 4, 0, 10, BRIM_PAINT_PLAIN, "0123456789a");
  /* Half of a wide character does not fit. */
  brim_cells_put(&cells, 5, 0, 6, BRIM_PAINT_PLAIN, "\u6f22\u5b57\u6f22\u5b57");
  brim_cells_put(&cells, 6, 8, 99, BRIM_PAINT_PLAIN, "abc");
  brim_cells_put(&cells, 99, 0, 10, BRIM_PAINT_PLAIN, "outside");
  brim_cells_put_right(&cells, 7, 0, 10, BRIM_PAINT_PLAIN, "right");
  brim_cells_text(&cells, false, &out);
  assert_string_equal(out.s, "?[2J??"
                             "?\nea\n??"
                             "(\n0123456789\n012345678\u2026\n\u6f22\u5b57\u2026\n        a\u2026\n"
                             "     right\n");
  brim_text_release(&out);
  brim_cells_release(&cells);
}

/* Returns the relative luminance, as WCAG 2 defines it, of a colour of the cube or the greys. */
static double luminance(int color)
{
  int level[3];
  const int cube = color - 16;
  for (int i = 0; i < 3; i++) {
    const int step = i == 0 ? cube / 36 : i == 1 ? cube / 6 % 6 : cube % 6;
    level[i] = color >= 232 ? 8 + 10 * (color - 232) : step ? 55 + 40 * step : 0;
  }
  double out = 0;
  static const double weight[3] = {0.2126, 0.7152, 0.0722};
  for (int i = 0; i < 3; i++) {
    const double v = level[i] / 255.0;
    out += weight[i] * (v <= 0.03928 ? v / 12.92 : pow((v + 0.055) / 1.055, 2.4));
  }
  return out;
}

static void test_colours_are_legible_on_light_and_dark_grounds(void **state)
{
  for (int i = 0; i < BRIM_PAINT_COUNT; i++) {
    if (brim_paints[i].color < 0) continue;
    const double l = luminance(brim_paints[i].color);
    assert_true((l + 0.05) / 0.05 >= 3.5);
    assert_true(1.05 / (l + 0.05) >= 3.5);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_choice_moves_and_stays_with_its_run),
                                     cmocka_unit_test(test_filter_mine_and_sort),
                                     cmocka_unit_test(test_a_filter_is_bounded_and_counts_whole_characters),
                                     cmocka_unit_test(test_an_interrupt_needs_an_answer_and_a_run_of_mine),
                                     cmocka_unit_test(test_back_and_quit),
                                     cmocka_unit_test(test_no_key_and_no_size_breaks_any_look),
                                     cmocka_unit_test(test_text_of_strangers_in_cells),
                                     cmocka_unit_test(test_colours_are_legible_on_light_and_dark_grounds)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
