/* Tests statuses, error text, strings and the host arena. */
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/exact.h"
#include "base/parallel.h"
#include "base/spread.h"
#include "base/table.h"
#include "base/text.h"
#include "brim/random.h"

static void errors_keep_text_origin_and_added_lines(void **unused)
{
  (void)unused;
  assert_int_equal(brim_fail(BRIM_EIO, "cannot read '%s'", "a"), BRIM_EIO);
  assert_int_equal(brim_fail_add(BRIM_EIO, "while %s", "loading"), BRIM_EIO);
  assert_string_equal(brim_error_text(), "cannot read 'a'\nwhile loading");
  assert_true(brim_starts_with(brim_error_origin(), "test_base.c:"));
}

/* An error text may be built from the error that it replaces. */
static void an_error_can_quote_the_one_before(void **unused)
{
  (void)unused;
  (void)brim_fail(BRIM_EIO, "inner");
  (void)brim_fail(BRIM_ELOAD, "outer: %s", brim_error_text());
  assert_string_equal(brim_error_text(), "outer: inner");
}

static void every_status_has_a_name_a_text_and_an_exit_status(void **unused)
{
  (void)unused;
  for (brim_status s = BRIM_OK; s <= BRIM_ENODEVICE; s++) {
    assert_string_not_equal(brim_status_name(s), "EUNKNOWN");
    assert_true(brim_status_exit(s) >= 0 && brim_status_exit(s) <= 6);
    assert_true(brim_status_exit(s) == 0 ? s == BRIM_OK : s != BRIM_OK);
  }
  assert_string_equal(brim_status_name(12345), "EUNKNOWN");
  assert_int_equal(brim_status_exit(BRIM_ENOMEM_DEVICE), 4);
  assert_int_equal(brim_status_exit(BRIM_EINTERRUPTED), 6);
}

static void overlong_errors_are_truncated(void **unused)
{
  (void)unused;
  char big[9000];
  memset(big, 'x', sizeof big - 1);
  big[sizeof big - 1] = '\0';
  (void)brim_fail(BRIM_EIO, "%s", big);
  (void)brim_fail_add(BRIM_EIO, "%s", big);
  assert_true(strlen(brim_error_text()) < 4096);
}

static void short_words_are_suggested_only_if_they_begin_alike(void **unused)
{
  (void)unused;
  assert_int_equal(brim_typo_distance("lr", "lr"), 0);
  assert_int_equal(brim_typo_distance("lrr", "lr"), 1);
  assert_int_equal(brim_typo_distance("di", "dir"), 1);
  assert_int_equal(brim_typo_distance("lo", "lr"), INT_MAX);
  assert_int_equal(brim_typo_distance("fun", "run"), INT_MAX);
  assert_int_equal(brim_typo_distance("x", "lr"), INT_MAX);
  assert_int_equal(brim_typo_distance("epcohs", "epochs"), 1);
  assert_int_equal(brim_typo_distance("modle", "model"), 1);
  assert_int_equal(brim_typo_distance("learning", "training"), INT_MAX);
  assert_int_equal(brim_typo_distance("", ""), 0);
  assert_int_equal(brim_typo_distance("x", ""), INT_MAX);
}

static void case_dashes_and_underscores_do_not_matter(void **unused)
{
  (void)unused;
  assert_int_equal(brim_typo_distance("AdamW", "adamw"), 0);
  assert_int_equal(brim_typo_distance("batch-size", "batch_size"), 0);
  assert_int_equal(brim_typo_distance("OneCycle", "one_cycle"), 0);
  assert_int_equal(brim_typo_distance("Adam-W", "adam"), 1);
  static const char *const optimizers[] = {"adam", "adamw", "adamw8bit", "lion", "sgd"};
  assert_string_equal(brim_suggest_of("AdamW", optimizers, 5), "adamw");
  assert_string_equal(brim_suggest_of("ADAMW_8bit", optimizers, 5), "adamw8bit");
  assert_string_equal(brim_suggest_of("Adamw8", optimizers, 5), "adamw");
}

static void check_shown(const char *text, const char *kept, const char *want)
{
  brim_text out = {0};
  brim_text_add_shown(&out, text, kept);
  assert_string_equal(brim_text_str(&out), want);
  brim_text_release(&out);
}

/* Escape sequences begin with ESC or with a C1 control; both must be printed as text in every context. */
static void control_characters_are_escaped(void **unused)
{
  (void)unused;
  check_shown("red \033[31m", "", "red \\x1b[31m");
  check_shown("title \xc2\x9d"
              "0;x\007",
              "", "title \\x9d0;x\\x07");
  check_shown("a\r\tb\n\x7f", "\n\t", "a\\x0d\tb\n\\x7f");
  check_shown("a\tb\n", "", "a\\x09b\\x0a");
  check_shown("\xc2\xa0 \xc3\xa9 \xe3\x81\x82 \xf0\x9f\x90\x88", "", "\xc2\xa0 \xc3\xa9 \xe3\x81\x82 \xf0\x9f\x90\x88");
  check_shown("\x9b"
              "2J",
              "",
              "\xef\xbf\xbd"
              "2J"); /* an 8-bit terminal reads this byte as a C1 control */
  check_shown("\xe3\x81", "", "\xef\xbf\xbd\xef\xbf\xbd");
  for (int c = 1; c < 0xa0; c++) {
    const char one[3] = {(char)(c < 0x80 ? c : 0xc2), (char)(c < 0x80 ? 0 : c), '\0'};
    brim_text out = {0};
    brim_text_add_shown(&out, one, "");
    assert_int_equal(brim_has_control(one), c < 0x20 || c >= 0x7f);
    assert_false(brim_has_control(brim_text_str(&out)));
    brim_text_release(&out);
  }
}

static void tables_show_control_characters(void **unused)
{
  (void)unused;
  brim_arena arena = {0};
  brim_text out = {0};
  brim_table table = {.arena = &arena, .columns = 2};
  static const char *const cell[] = {"name", "n", "cat\n\033[2Jdog", "1"};
  for (size_t i = 0; i < 4; i++) brim_table_add(&table, cell[i]);
  brim_table_print(&table, &out);
  assert_string_equal(brim_text_str(&out), "name               n\ncat\\x0a\\x1b[2Jdog  1\n");
  brim_text_release(&out);
  brim_arena_release(&arena);
}

static void the_nearest_word_is_suggested(void **unused)
{
  (void)unused;
  const char *const known[] = {"train", "eval", "predict", "plan", "plugins"};
  const struct {
    const char *written, *meant;
  } cases[] = {{"trian", "train"}, {"pred", "predict"}, {"plam", "plan"},
               {"a", NULL},        {"pl", NULL},        {"plu", "plugins"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const char *best = NULL;
    int distance = INT_MAX;
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
      brim_suggest(cases[i].written, known[k], &distance, &best);
    if (cases[i].meant)
      assert_string_equal(best, cases[i].meant);
    else
      assert_null(best);
  }
}

static void edit_distance_counts_swaps_as_one(void **unused)
{
  (void)unused;
  assert_int_equal(brim_edit_distance("", ""), 0);
  assert_int_equal(brim_edit_distance("lr", ""), 2);
  assert_int_equal(brim_edit_distance("epochs", "epcohs"), 1);
  assert_int_equal(brim_edit_distance("kitten", "sitting"), 3);
}

static void bytes_and_seconds_are_formatted(void **unused)
{
  (void)unused;
  char s[32];
  assert_string_equal(brim_format_bytes(s, sizeof s, 0), "0 B");
  assert_string_equal(brim_format_bytes(s, sizeof s, 1023), "1023 B");
  assert_string_equal(brim_format_bytes(s, sizeof s, 1024), "1.0 KiB");
  assert_string_equal(brim_format_bytes(s, sizeof s, (1u << 20) - 1), "1.0 MiB");
  assert_string_equal(brim_format_bytes(s, sizeof s, UINT64_MAX), "16.0 EiB");
  assert_string_equal(brim_format_seconds(s, sizeof s, 59.6), "1:00");
  assert_string_equal(brim_format_seconds(s, sizeof s, 3723), "1:02:03");
  assert_string_equal(brim_format_seconds(s, sizeof s, -1), "?");
}

static void arena_memory_is_zeroed_aligned_and_separate(void **unused)
{
  (void)unused;
  brim_arena arena = {0};
  unsigned char *p[200];
  for (size_t i = 0; i < 200; i++) {
    const size_t bytes = i % 7 == 0 ? 20000 : i;
    p[i] = brim_arena_alloc(&arena, bytes);
    assert_int_equal((uintptr_t)p[i] % 16, 0);
    for (size_t k = 0; k < bytes; k++) assert_int_equal(p[i][k], 0);
    memset(p[i], (int)i, bytes);
  }
  for (size_t i = 1; i < 200; i++)
    for (size_t k = 0; k < (i % 7 == 0 ? 20000 : i); k++) assert_int_equal(p[i][k], (unsigned char)i);
  brim_arena_release(&arena);
  assert_null(arena.head);
}

static void numbers_are_printed_as_printf_does(void **unused)
{
  (void)unused;
  const int64_t some[] = {0, 1, -1, 9, 10, -10, 123456789, INT64_MAX, INT64_MIN};
  brim_text text = {0}, expected = {0};
  for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
    brim_text_int(&text, some[i]);
    brim_text_printf(&expected, "%lld", (long long)some[i]);
  }
  assert_string_equal(brim_text_str(&text), brim_text_str(&expected));
  for (int width = 1; width < 300; width++) { /* lengths that fit into the first buffer and lengths that do not */
    char padded[300];
    brim_text_clear(&text);
    brim_text_printf(&text, "%*d", width, 7);
    snprintf(padded, sizeof padded, "%*d", width, 7);
    assert_string_equal(brim_text_str(&text), padded);
    assert_int_equal(text.length, width);
  }
  brim_text_release(&text);
  brim_text_release(&expected);
}

/* Computes the Gini coefficient over all pairs. */
static void a_tally_has_the_spread_of_its_values(void **unused)
{
  (void)unused;
  enum { VALUES = 700 };
  for (uint32_t kinds = 1; kinds < 5000; kinds *= 3) {
    double value[VALUES], sum = 0, squares = 0, apart = 0;
    brim_tally t = {0};
    for (uint32_t i = 0; i < VALUES; i++) {
      value[i] = (double)(i * 2654435761u % kinds) / 7;
      sum += value[i];
      assert_int_equal(brim_tally_add(&t, value[i]), BRIM_OK);
    }
    for (int i = 0; i < VALUES; i++) {
      squares += pow(value[i] - sum / VALUES, 2);
      for (int k = 0; k < VALUES; k++) apart += fabs(value[i] - value[k]);
    }
    const brim_spread s = brim_tally_spread(&t);
    assert_true(fabs(s.mean - sum / VALUES) <= 1e-12 * sum);
    assert_true(fabs(s.variance - squares / VALUES) <= 1e-12 * squares);
    assert_true(kinds == 1 ? isnan(s.gini) : fabs(s.gini - apart / (2 * VALUES * sum)) < 1e-12);
    brim_tally_release(&t);
  }
}

/* The sum must be the same in any order and in any parts, even if magnitudes differ a lot. */
static void exact_sums_do_not_depend_on_the_order(void **state)
{
  enum { NUMBERS = 2000 };
  double number[NUMBERS], first = 0;
  long double sum = 0;
  for (uint32_t i = 0; i < NUMBERS; i++) {
    const brim_philox r = brim_random4(3, 1, 0, i, 0);
    number[i] = ldexp((double)r.v[0] - (double)(r.v[1] >> 1), -(int)(r.v[2] % 70));
    sum += (long double)number[i];
  }
  for (uint32_t order = 0; order < 50; order++) {
    brim_exact part[3] = {{{0}}};
    for (uint32_t i = 0; i < NUMBERS; i++)
      brim_exact_add(&part[brim_random4(4, 1, order, i, 0).v[0] % 3], number[(i * 7 + order * 13) % NUMBERS]);
    brim_exact_merge(&part[0], &part[1]);
    brim_exact_merge(&part[0], &part[2]);
    if (order == 0) first = brim_exact_value(&part[0]);
    assert_true(brim_exact_value(&part[0]) == first);
  }
  assert_true(fabs(first - (double)sum) <= 1e-15 * fabs(first));
  brim_exact odd = {{0}};
  brim_exact_add(&odd, 0.25);
  brim_exact_add(&odd, 1e300);
  assert_true(brim_exact_value(&odd) == 1e300);
  brim_exact_add(&odd, NAN);
  assert_true(isnan(brim_exact_value(&odd)));
}

static void count_task(void *counts, int64_t task)
{
  ((int *)counts)[task]++;
}

static void each_task_runs_once(void **unused)
{
  (void)unused;
  for (int32_t threads = 1; threads < 100; threads += 9)
    for (int64_t tasks = 0; tasks < 20; tasks++) {
      int count[21] = {0};
      brim_in_parallel("test", threads, tasks, count_task, count);
      for (int64_t i = 0; i < 21; i++) assert_int_equal(count[i], i < tasks);
    }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(errors_keep_text_origin_and_added_lines),
      cmocka_unit_test(an_error_can_quote_the_one_before),
      cmocka_unit_test(every_status_has_a_name_a_text_and_an_exit_status),
      cmocka_unit_test(overlong_errors_are_truncated),
      cmocka_unit_test(edit_distance_counts_swaps_as_one),
      cmocka_unit_test(short_words_are_suggested_only_if_they_begin_alike),
      cmocka_unit_test(case_dashes_and_underscores_do_not_matter),
      cmocka_unit_test(control_characters_are_escaped),
      cmocka_unit_test(tables_show_control_characters),
      cmocka_unit_test(the_nearest_word_is_suggested),
      cmocka_unit_test(bytes_and_seconds_are_formatted),
      cmocka_unit_test(numbers_are_printed_as_printf_does),
      cmocka_unit_test(a_tally_has_the_spread_of_its_values),
      cmocka_unit_test(arena_memory_is_zeroed_aligned_and_separate),
      cmocka_unit_test(exact_sums_do_not_depend_on_the_order),
      cmocka_unit_test(each_task_runs_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
