/* Statuses, error text, strings and the host arena. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/text.h"

static void errors_keep_text_origin_and_added_lines(void **unused)
{
  (void)unused;
  assert_int_equal(brim_fail(BRIM_EIO, "cannot read '%s'", "a"), BRIM_EIO);
  assert_int_equal(brim_fail_add(BRIM_EIO, "while %s", "loading"), BRIM_EIO);
  assert_string_equal(brim_error_text(), "cannot read 'a'\nwhile loading");
  assert_true(brim_starts_with(brim_error_origin(), "test_base.c:"));
}

/* A text may be made from the error that it replaces. */
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

static void overlong_errors_are_cut_not_overrun(void **unused)
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

static void bytes_and_seconds_read_well(void **unused)
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

static void arena_memory_is_zeroed_aligned_and_its_own(void **unused)
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

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(errors_keep_text_origin_and_added_lines),
                                     cmocka_unit_test(an_error_can_quote_the_one_before),
                                     cmocka_unit_test(every_status_has_a_name_a_text_and_an_exit_status),
                                     cmocka_unit_test(overlong_errors_are_cut_not_overrun),
                                     cmocka_unit_test(edit_distance_counts_swaps_as_one),
                                     cmocka_unit_test(short_words_are_suggested_only_if_they_begin_alike),
                                     cmocka_unit_test(the_nearest_word_is_suggested),
                                     cmocka_unit_test(bytes_and_seconds_read_well),
                                     cmocka_unit_test(arena_memory_is_zeroed_aligned_and_its_own)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
