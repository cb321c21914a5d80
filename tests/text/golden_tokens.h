/* Shared by the fixtures of gpt2: tokens, labels of which some are ignored, and the constants of
 * tests/golden/make_gpt2.py. */
#ifndef TESTS_TEXT_GOLDEN_TOKENS_H
#define TESTS_TEXT_GOLDEN_TOKENS_H
#include "brim/dataset.h"
#include "conformance/golden.h"

#define STEPS 20
#define BATCH 6
#define LENGTH 7
#define VOCABULARY 11
#define IGNORED BRIM_NO_TOKEN

typedef struct golden_tokens {
  golden fixture;
  int32_t tokens[BATCH][LENGTH], label[BATCH][LENGTH];
  double counted; /* labels that are not ignored */
} golden_tokens;

static void golden_tokens_read(golden_tokens *t, const char *file)
{
  golden_read(&t->fixture, file);
  const double *tokens = golden_find(&t->fixture, "", "input")->value;
  const golden_tensor *label = golden_find(&t->fixture, "", "label");
  assert_true(brim_shape_equal(&label->shape, &(brim_shape){2, {BATCH, LENGTH}}));
  for (int n = 0; n < BATCH; n++)
    for (int i = 0; i < LENGTH; i++) {
      t->tokens[n][i] = (int32_t)tokens[n * LENGTH + i];
      t->label[n][i] = (int32_t)label->value[n * LENGTH + i];
      t->counted += t->label[n][i] != IGNORED;
    }
  assert_true(t->counted < BATCH * LENGTH);
}
#endif
