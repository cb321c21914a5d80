/* Tests the sampling of tokens, and characters that come in pieces. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/characters.h"
#include "train/generate.h"

#define COUNT 5
static const double share[COUNT] = {0.1, 0.4, 0.2, 0.05, 0.25}; /* probabilities; in order: tokens 1, 4, 2, 0, 3 */

static int32_t sample(brim_sampling how, double uniform)
{
  double logits[COUNT];
  brim_sampling_choice room[COUNT];
  for (int i = 0; i < COUNT; i++) logits[i] = 3 + log(share[i]);
  return brim_sample(&how, logits, COUNT, uniform, room);
}

/* Draws with evenly spaced numbers from [0, 1), and compares the share of each token. */
static void check_shares(brim_sampling how, const double *expected)
{
  enum { DRAWS = 20000 };
  int drawn[COUNT] = {0};
  for (int i = 0; i < DRAWS; i++) drawn[sample(how, (i + 0.5) / DRAWS)]++;
  for (int i = 0; i < COUNT; i++) assert_true(fabs((double)drawn[i] / DRAWS - expected[i]) < 2.0 / DRAWS);
}

static void tokens_are_drawn_by_their_probabilities(void **state)
{
  check_shares((brim_sampling){.temperature = 1, .top_p = 1}, share);
  check_shares((brim_sampling){.temperature = 1, .top_p = 1, .top_k = COUNT + 3}, share);
}

static void temperature_is_an_exponent_of_probabilities(void **state)
{
  double warm[COUNT], sum = 0;
  for (int i = 0; i < COUNT; i++) sum += warm[i] = sqrt(share[i]);
  for (int i = 0; i < COUNT; i++) warm[i] /= sum;
  check_shares((brim_sampling){.temperature = 2, .top_p = 1}, warm);
  check_shares((brim_sampling){.temperature = 0, .top_p = 1}, (double[]){0, 1, 0, 0, 0});
}

static void top_k_keeps_the_most_probable(void **state)
{
  check_shares((brim_sampling){.temperature = 1, .top_p = 1, .top_k = 2}, (double[]){0, 0.4 / 0.65, 0, 0, 0.25 / 0.65});
  check_shares((brim_sampling){.temperature = 1, .top_p = 1, .top_k = 1}, (double[]){0, 1, 0, 0, 0});
}

static void top_p_keeps_the_smallest_set_with_that_probability(void **state)
{
  check_shares((brim_sampling){.temperature = 1, .top_p = 0.3}, (double[]){0, 1, 0, 0, 0});
  check_shares((brim_sampling){.temperature = 1, .top_p = 0.7}, (double[]){0, 0.4 / 0.85, 0.2 / 0.85, 0, 0.25 / 0.85});
  check_shares((brim_sampling){.temperature = 1, .top_k = 2, .top_p = 0.6}, (double[]){0, 1, 0, 0, 0});
}

static void values_that_are_not_finite_are_reported(void **state)
{
  brim_sampling_choice room[2];
  const brim_sampling how = {.temperature = 1, .top_p = 1};
  assert_int_equal(brim_sample(&how, (double[]){0, NAN}, 2, 0, room), -1);
  assert_int_equal(brim_sample(&how, (double[]){INFINITY, 0}, 2, 0, room), -1);
}

/* Prints as much of each piece as possible, and the rest at the end. */
static void check_pieces(const char *const *piece, const char *const *shown)
{
  brim_text bytes = {0}, out = {0};
  for (size_t i = 0; piece[i]; i++) {
    brim_text_add(&bytes, piece[i]);
    brim_characters_take(&bytes, piece[i + 1] == NULL, &out);
    assert_string_equal(brim_text_str(&out), shown[i]);
    brim_text_clear(&out);
  }
  assert_int_equal(bytes.length, 0);
  brim_text_release(&bytes);
  brim_text_release(&out);
}

static void characters_wait_until_they_are_whole(void **state)
{
  check_pieces((const char *const[]){"a\xc3", "\xa9", "\xf0\x9f", "\x99", "\x82", "b", NULL},
               (const char *const[]){"a", "\xc3\xa9", "", "", "\xf0\x9f\x99\x82", "b"});
}

static void invalid_characters_are_replaced(void **state)
{
  check_pieces((const char *const[]){"\xff", "x\xc3", "y", "\xe2\x82", NULL},
               (const char *const[]){"\xef\xbf\xbd", "x", "\xef\xbf\xbdy", "\xef\xbf\xbd\xef\xbf\xbd"});
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tokens_are_drawn_by_their_probabilities),
      cmocka_unit_test(temperature_is_an_exponent_of_probabilities),
      cmocka_unit_test(top_k_keeps_the_most_probable),
      cmocka_unit_test(top_p_keeps_the_smallest_set_with_that_probability),
      cmocka_unit_test(values_that_are_not_finite_are_reported),
      cmocka_unit_test(characters_wait_until_they_are_whole),
      cmocka_unit_test(invalid_characters_are_replaced),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
