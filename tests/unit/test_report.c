/* Tests reports: epochs from records, number formats, and escaping of text. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "report/page_parts.h"
#include "scratch.h"

static brim_arena arena;
static brim_metrics metrics;
static brim_epoch *epoch;
static bool by_evaluation;

static size_t epochs_of(const char *records)
{
  FILE *file = fopen(scratch("metrics.jsonl"), "w");
  assert_non_null(file);
  assert_true(fputs(records, file) >= 0);
  fclose(file);
  assert_int_equal(brim_metrics_read(&arena, scratch("metrics.jsonl"), &metrics), BRIM_OK);
  return brim_epochs_list(&arena, &metrics, &epoch, &by_evaluation);
}

static void assert_near(double found, double expected)
{
  if (!(fabs(found - expected) < 1e-12)) fail_msg("%.17g instead of %.17g", found, expected);
}

/* ---- metrics.jsonl ---- */

static void records_are_read_with_all_their_numbers(void **state)
{
  epochs_of("{\"step\":1,\"split\":\"test\",\"loss\":2,\"note\":\"x\"}\n"
            "{\"step\":2,\"split\":\"test\",\"perplexity\":7.5,\"loss\":null}\n");
  const brim_series *s = &metrics.split[BRIM_PART_TEST];
  assert_int_equal(s->count, 2);
  assert_int_equal(s->columns, 2);
  assert_near(brim_series_values(s, "loss")[0], 2);
  assert_true(isnan(brim_series_values(s, "loss")[1]));
  assert_true(isnan(brim_series_values(s, "perplexity")[0]));
  assert_near(brim_series_last(s, "perplexity"), 7.5);
  assert_null(brim_series_values(s, "note"));
  assert_null(brim_series_values(s, "step"));
}

static void lines_that_are_no_records_are_skipped(void **state)
{
  epochs_of("\n[]\n7\n{\"split\":\"train\"}\n{\"step\":\"1\",\"split\":\"train\"}\n{\"step\":1,\"split\":\"other\"}\n"
            "{\"step\":1,\"split\":5}\n\xff\n{\"step\":3,\"split\":\"train\",\"loss\":1}\n{\"step\":4,\"split\":"
            "\"train\",\"lo");
  assert_int_equal(metrics.split[BRIM_PART_TRAIN].count, 1);
  assert_near(metrics.split[BRIM_PART_TRAIN].step[0], 3);
}

static void a_file_of_too_many_numbers_keeps_the_first(void **state)
{
  brim_text text = {0};
  brim_text_add(&text, "{\"step\":1,\"split\":\"train\"");
  for (int i = 0; i < 2 * BRIM_SERIES_COLUMNS_MAX; i++) brim_text_printf(&text, ",\"x%d\":%d", i, i);
  brim_text_add(&text, "}\n");
  epochs_of(text.s);
  brim_text_release(&text);
  const brim_series *s = &metrics.split[BRIM_PART_TRAIN];
  assert_int_equal(s->columns, BRIM_SERIES_COLUMNS_MAX);
  assert_near(brim_series_last(s, "x63"), 63);
  assert_null(brim_series_values(s, "x64"));
}

/* ---- epochs ---- */

static void an_epoch_is_the_mean_over_its_samples_and_the_sum_of_its_time(void **state)
{
  const size_t count = epochs_of(
      "{\"step\":2,\"epoch\":0.6666666666666666,\"split\":\"train\",\"loss\":1,\"accuracy\":0.5,\"samples\":20,"
      "\"seconds\":2}\n"
      "{\"step\":3,\"epoch\":1,\"split\":\"train\",\"loss\":4,\"accuracy\":0.2,\"samples\":10,\"seconds\":1}\n"
      "{\"step\":3,\"epoch\":1,\"split\":\"validation\",\"loss\":3,\"samples\":5,\"seconds\":0.25}\n"
      "{\"step\":5,\"epoch\":1.6666666666666667,\"split\":\"train\",\"loss\":1,\"samples\":20,\"seconds\":4}\n"
      "{\"step\":6,\"epoch\":2,\"split\":\"train\",\"loss\":1,\"samples\":10,\"seconds\":1}\n"
      "{\"step\":6,\"epoch\":2,\"split\":\"validation\",\"loss\":2,\"samples\":5,\"seconds\":0.5}\n");
  assert_int_equal(count, 2);
  assert_near(epoch[0].number, 1);
  assert_near(epoch[0].step, 3);
  assert_near(epoch[0].loss, 2);
  assert_near(epoch[0].accuracy, 0.4);
  assert_near(epoch[0].samples, 30);
  assert_near(epoch[0].seconds, 3);
  assert_int_equal(epoch[0].evaluation, 0);
  assert_near(epoch[0].evaluation_seconds, 0.25);
  assert_true(isnan(epoch[1].accuracy));
  assert_int_equal(epoch[1].evaluation, 1);
  assert_near(brim_epochs_mean_seconds(&metrics), 4);
}

static void records_without_samples_weigh_by_their_steps(void **state)
{
  assert_int_equal(epochs_of("{\"step\":30,\"epoch\":0.75,\"split\":\"train\",\"loss\":1}\n"
                             "{\"step\":40,\"epoch\":1,\"split\":\"train\",\"loss\":5}\n"),
                   1);
  assert_near(epoch[0].loss, 2);
  assert_true(isnan(epoch[0].seconds));
  assert_true(isnan(brim_epochs_mean_seconds(&metrics)));
  assert_int_equal(epoch[0].evaluation, SIZE_MAX);
}

static void a_single_epoch_is_shown_by_evaluations(void **state)
{
  const size_t count = epochs_of("{\"step\":1,\"epoch\":0.25,\"split\":\"train\",\"loss\":4,\"seconds\":1}\n"
                                 "{\"step\":2,\"epoch\":0.5,\"split\":\"train\",\"loss\":3,\"seconds\":1}\n"
                                 "{\"step\":2,\"epoch\":0.5,\"split\":\"test\",\"loss\":9,\"seconds\":1}\n"
                                 "{\"step\":3,\"epoch\":0.75,\"split\":\"train\",\"loss\":2,\"seconds\":1}\n"
                                 "{\"step\":4,\"epoch\":1,\"split\":\"train\",\"loss\":1,\"seconds\":1}\n"
                                 "{\"step\":4,\"epoch\":1,\"split\":\"test\",\"loss\":8,\"seconds\":1}\n");
  assert_int_equal(count, 2);
  assert_near(epoch[0].loss, 3.5);
  assert_near(epoch[1].loss, 1.5);
  assert_int_equal(epoch[1].evaluation, 1);
  assert_near(brim_epochs_mean_seconds(&metrics), 4);
}

/* Evaluations every 75 steps, records every 50, in one epoch or in epochs of 100 steps. */
static void evaluations_between_records_have_rows_of_their_own(void **state)
{
  for (int epochs = 0; epochs < 2; epochs++) {
    const double each = epochs ? 100 : 400;
    brim_text text = {0};
    for (int step = 50; step <= 250; step += 50)
      brim_text_printf(&text, "{\"step\":%d,\"epoch\":%g,\"split\":\"train\",\"loss\":%d,\"seconds\":1}\n", step,
                       step / each, step);
    for (int step = 75; step <= 225; step += 75)
      brim_text_printf(&text, "{\"step\":%d,\"epoch\":%g,\"split\":\"test\",\"loss\":9,\"seconds\":%d}\n", step,
                       step / each, step);
    const double steps[] = {75, 150, 225, 250}, loss[] = {50, 125, 200, 250};
    assert_int_equal(epochs_of(text.s), 4);
    assert_true(by_evaluation);
    for (int i = 0; i < 4; i++) {
      assert_near(epoch[i].step, steps[i]);
      assert_near(epoch[i].number, steps[i] / each);
      assert_near(epoch[i].loss, loss[i]);
      assert_true(epoch[i].evaluation == (i < 3 ? (size_t)i : SIZE_MAX));
    }
    assert_near(epoch[1].evaluation_seconds, 150);
    if (epochs) assert_near(brim_epochs_mean_seconds(&metrics), 2);
    brim_text_release(&text);
  }
}

static void an_evaluation_without_a_record_of_training_has_a_row(void **state)
{
  assert_int_equal(epochs_of("{\"step\":2,\"epoch\":0.5,\"split\":\"test\",\"loss\":9,\"seconds\":1}\n"
                             "{\"step\":3,\"epoch\":0.75,\"split\":\"train\",\"loss\":2,\"seconds\":1}\n"
                             "{\"step\":4,\"epoch\":1,\"split\":\"test\",\"loss\":8,\"seconds\":1}\n"),
                   2);
  assert_true(isnan(epoch[0].loss) && isnan(epoch[0].seconds));
  assert_near(epoch[0].step, 2);
  assert_near(epoch[0].number, 0.5);
  assert_near(epoch[1].loss, 2);
  assert_near(epoch[1].step, 4);
}

static void an_epoch_of_which_some_time_is_unknown_has_no_time(void **state)
{
  const size_t count = epochs_of("{\"step\":1,\"epoch\":0.5,\"split\":\"train\",\"loss\":4,\"seconds\":null}\n"
                                 "{\"step\":2,\"epoch\":1,\"split\":\"train\",\"loss\":3,\"seconds\":1}\n"
                                 "{\"step\":4,\"epoch\":2,\"split\":\"train\",\"loss\":3,\"seconds\":5}\n"
                                 "{\"step\":5,\"epoch\":2.5,\"split\":\"train\",\"loss\":3,\"seconds\":50}\n");
  assert_int_equal(count, 3);
  assert_true(isnan(epoch[0].seconds));
  assert_near(brim_epochs_mean_seconds(&metrics), 5);
}

static void without_records_there_are_no_epochs(void **state)
{
  assert_int_equal(epochs_of(""), 0);
  assert_int_equal(epochs_of("{\"step\":1,\"split\":\"train\",\"loss\":4}\n"), 0);
  assert_int_equal(epochs_of("{\"step\":1,\"split\":\"test\",\"epoch\":1,\"loss\":4}\n"), 0);
  assert_true(isnan(brim_epochs_mean_seconds(&metrics)));
}

/* ---- figures ---- */

static void figures_are_formatted_by_kind(void **state)
{
  static const struct {
    const char *name, *title, *text;
    double value;
  } cases[] = {
      {"loss", "loss", "0.1235", 0.12345678},
      {"loss", "loss", "-", NAN},
      {"loss", "loss", "1.2346e+08", 123456789},
      {"accuracy", "accuracy", "92.15 %", 0.92153},
      {"accuracy_top5", "top-5 accuracy", "100.00 %", 1},
      {"accuracy", "accuracy", "1e+300", 1e300},
      {"perplexity", "perplexity", "17.345", 17.3449},
      {"samples_per_second", "samples/s", "12346", 12345.6},
      {"lr", "learning rate", "0.001", 0.001},
      {"of_a_task_to_come", "of_a_task_to_come", "3", 3},
      {"f1", "F1", "-", INFINITY},
  };
  char text[64];
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    assert_string_equal(brim_figure_title(&arena, cases[i].name), cases[i].title);
    assert_string_equal(brim_figure_format(text, sizeof text, cases[i].name, cases[i].value), cases[i].text);
  }
  assert_string_equal(brim_figure_bytes(text, sizeof text, NAN), "-");
  assert_string_equal(brim_figure_bytes(text, sizeof text, -1), "-");
  assert_string_equal(brim_figure_bytes(text, sizeof text, 1e300), "-");
  assert_string_equal(brim_figure_seconds(text, sizeof text, 0.25), "0.250 s");
  assert_string_equal(brim_figure_seconds(text, sizeof text, 61), "1:01");
  assert_string_equal(brim_figure_seconds(text, sizeof text, NAN), "-");
}

/* ---- text ---- */

static void expect_text(const char *from, const char *expected)
{
  brim_text out = {0};
  brim_page_text(&out, from);
  assert_string_equal(brim_text_str(&out), expected);
  brim_text_release(&out);
}

static void text_is_never_markup(void **state)
{
  expect_text("<script>\"x\" & 'y'</script>", "&lt;script&gt;&quot;x&quot; &amp; 'y'&lt;/script&gt;");
  expect_text("one\ntwo\n\nthree", "one\ntwo\n\nthree");
  expect_text("tab\tbell\a end\x7f", "tab bell  end ");
  expect_text("Größe 中文 😀", "Größe 中文 😀");
  expect_text("latin\xe9 cut\xe4\xb8", "latin\xef\xbf\xbd cut\xef\xbf\xbd\xef\xbf\xbd");
  expect_text("over\xc0\xbc surrogate\xed\xa0\x80",
              "over\xef\xbf\xbd\xef\xbf\xbd surrogate\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  expect_text("\xef\xbf\xbf", "\xef\xbf\xbd");
}

static int release(void **state)
{
  brim_arena_release(&arena);
  return scratch_teardown(state);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(records_are_read_with_all_their_numbers),
      cmocka_unit_test(lines_that_are_no_records_are_skipped),
      cmocka_unit_test(a_file_of_too_many_numbers_keeps_the_first),
      cmocka_unit_test(an_epoch_is_the_mean_over_its_samples_and_the_sum_of_its_time),
      cmocka_unit_test(records_without_samples_weigh_by_their_steps),
      cmocka_unit_test(a_single_epoch_is_shown_by_evaluations),
      cmocka_unit_test(evaluations_between_records_have_rows_of_their_own),
      cmocka_unit_test(an_evaluation_without_a_record_of_training_has_a_row),
      cmocka_unit_test(an_epoch_of_which_some_time_is_unknown_has_no_time),
      cmocka_unit_test(without_records_there_are_no_epochs),
      cmocka_unit_test(figures_are_formatted_by_kind),
      cmocka_unit_test(text_is_never_markup),
  };
  return cmocka_run_group_tests(tests, scratch_setup, release);
}
