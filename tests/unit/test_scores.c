/* Compares precision, recall and F1 from confusion matrices with scikit-learn (classification_report,
 * f1_score(average="macro"), zero_division 0). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/scores.h"

#define ASSERT_NEAR(a, b) assert_true(fabs((a) - (b)) < 1e-12)

/* labels 0 0 0 1 1 2, predictions 0 0 1 1 2 2 */
static const double mixed[] = {2, 1, 0, 0, 1, 1, 0, 0, 1};

static void a_class_is_scored_by_its_row_and_its_column(void **unused)
{
  (void)unused;
  const brim_class_score first = brim_scores_of(mixed, 3, 0), last = brim_scores_of(mixed, 3, 2);
  ASSERT_NEAR(first.precision, 1);
  ASSERT_NEAR(first.recall, 2.0 / 3);
  ASSERT_NEAR(first.f1, 0.8);
  assert_int_equal(first.support, 3);
  assert_int_equal(first.answered, 2);
  ASSERT_NEAR(last.precision, 0.5);
  ASSERT_NEAR(last.recall, 1);
  ASSERT_NEAR(last.f1, 2.0 / 3);
  assert_int_equal(last.support, 1);
}

static void macro_f1_is_the_mean_over_classes(void **unused)
{
  (void)unused;
  ASSERT_NEAR(brim_scores_macro_f1(mixed, 3), (0.8 + 0.5 + 2.0 / 3) / 3);
}

static void a_class_that_does_not_occur_is_left_out_of_the_mean(void **unused)
{
  (void)unused;
  static const double absent[] = {3, 0, 0, 0, 0, 0, 1, 0, 2}, unlabelled[] = {3, 1, 0, 0};
  ASSERT_NEAR(brim_scores_macro_f1(absent, 3), (6.0 / 7 + 0.8) / 2);
  ASSERT_NEAR(brim_scores_macro_f1(unlabelled, 2), (6.0 / 7 + 0) / 2);
  ASSERT_NEAR(brim_scores_of(absent, 3, 1).precision, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_class_is_scored_by_its_row_and_its_column),
                                     cmocka_unit_test(macro_f1_is_the_mean_over_classes),
                                     cmocka_unit_test(a_class_that_does_not_occur_is_left_out_of_the_mean)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
