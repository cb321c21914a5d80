/* Tests the picture of `brim monitor`: recorded looks (tests/monitor/states) drawn in several sizes must equal recorded
 * pictures (tests/monitor/golden). BRIM_WRITE_GOLDEN=1 writes these anew: look at them before you commit them. */
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

/* ---- recorded pictures ---- */

static char *read_golden(const char *path)
{
  FILE *file = fopen(path, "r");
  char *text = test_calloc(1, 1 << 20);
  if (!file) return text;
  const size_t bytes = fread(text, 1, (1 << 20) - 1, file);
  text[bytes] = '\0';
  fclose(file);
  return text;
}

static void compare(const char *name, const brim_text *drawn)
{
  char path[512];
  snprintf(path, sizeof path, "%s/monitor/golden/%s.txt", BRIM_TESTS_DIR, name);
  if (getenv("BRIM_WRITE_GOLDEN")) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(drawn->s, file);
    fclose(file);
    return;
  }
  char *golden = read_golden(path);
  if (strcmp(golden, drawn->s) != 0) fail_msg("%s differs:\n%s\nexpected:\n%s", name, drawn->s, golden);
  test_free(golden);
}

/* Presses the keys of `keys`, in which '\n' is enter and 'D' is the key down, and draws. */
static void draw(const char *state, int columns, int rows, bool unicode, const char *keys, brim_text *out)
{
  brim_look *look = open_look(state);
  brim_view view = {.is_fixed = true};
  brim_cells cells;
  brim_cells_init(&cells, columns, rows, unicode);
  brim_picture_draw(look, &view, &cells);
  brim_cells_release(&cells);
  for (const char *key = keys; *key; key++) brim_view_key(&view, look, *key == 'D' ? (int)BRIM_KEY_DOWN : *key);
  brim_cells_init(&cells, columns, rows, unicode);
  brim_picture_draw(look, &view, &cells);
  brim_cells_text(&cells, false, out);
  brim_cells_release(&cells);
  close_look(look);
}

static const int sizes[][2] = {{40, 10}, {80, 24}, {200, 50}};
static const struct {
  const char *name, *state, *keys;
} pictures[] = {{"list", "lab", ""},
                {"detail", "lab", "D\n"},
                {"empty", "empty", ""},
                {"one", "one", ""},
                {"one_detail", "one", "\n"},
                {"broken", "broken", ""},
                {"broken_detail", "broken", "D\n"},
                {"hosts", "hosts", ""},
                {"help", "lab", "?"},
                {"filter", "lab", "ss/mine\n/vit"},
                {"waiting_detail", "lab", "DDDDDDDDDD\n"},
                {"advice", "lab", "2"}};

static void test_pictures_of_recorded_looks(void **state)
{
  setenv("TZ", "UTC", 1);
  for (size_t i = 0; i < sizeof pictures / sizeof pictures[0]; i++)
    for (size_t j = 0; j < sizeof sizes / sizeof sizes[0]; j++) {
      char name[64];
      brim_text out = {0};
      snprintf(name, sizeof name, "%s_%dx%d", pictures[i].name, sizes[j][0], sizes[j][1]);
      draw(pictures[i].state, sizes[j][0], sizes[j][1], true, pictures[i].keys, &out);
      compare(name, &out);
      brim_text_release(&out);
    }
}

static void test_pictures_without_utf8(void **state)
{
  static const char *const names[] = {"ascii_list", "ascii_detail"};
  for (size_t i = 0; i < 2; i++) {
    brim_text out = {0};
    draw("lab", 80, 24, false, i ? "\n" : "", &out);
    for (size_t j = 0; j < out.length; j++) assert_in_range((unsigned char)out.s[j], '\n', '~');
    compare(names[i], &out);
    brim_text_release(&out);
  }
}

/* Even if the name of the process is long, the row shows the process that a yes interrupts, and both answers. */
static void test_the_question_before_an_interrupt_fits_40_columns(void **state)
{
  static const struct {
    const char *name;
    int64_t pid;
    const char *row;
  } asked[] = {{"cnn", 702, "interrupt cnn (pid 702)? y yes  n no"},
               {"vit-b-mixup-of-all-classes", 7702, "interrupt vit-… (pid 7702)? y yes  n no"},
               {"vit\033[2J\nb-mixup", 4194304, "interrupt v… (pid 4194304)? y yes  n no"}};
  brim_look *look = open_look("lab");
  for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
    brim_view view = {.question = BRIM_VIEW_ASK_INTERRUPT, .asked.pid = asked[i].pid};
    brim_cells cells;
    brim_text out = {0};
    snprintf(view.asked_name, sizeof view.asked_name, "%s", asked[i].name);
    brim_cells_init(&cells, 40, 8, true);
    brim_picture_draw(look, &view, &cells);
    brim_cells_text(&cells, false, &out);
    if (!strstr(out.s, asked[i].row)) fail_msg("no '%s' in:\n%s", asked[i].row, out.s);
    brim_cells_release(&cells);
    brim_text_release(&out);
  }
  close_look(look);
}

static void test_text_for_a_pipe(void **state)
{
  static const char *const states[] = {"lab", "empty", "one", "broken", "hosts"};
  for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
    char name[64];
    brim_text out = {0};
    brim_look *look = open_look(states[i]);
    snprintf(name, sizeof name, "text_%s", states[i]);
    brim_picture_text(look, 100, true, false, &out);
    compare(name, &out);
    brim_text_release(&out);
    close_look(look);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pictures_of_recorded_looks), cmocka_unit_test(test_pictures_without_utf8),
      cmocka_unit_test(test_the_question_before_an_interrupt_fits_40_columns), cmocka_unit_test(test_text_for_a_pipe)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
