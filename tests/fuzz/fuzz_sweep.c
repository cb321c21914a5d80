/* Fuzzes sweeps: the input's lines are words. Every input gives at most 10,000 jobs or an error, and no word of a job
 * is still a sweep. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/override.h"
#include "config/sweep.h"

#define WORDS_MAX 16
#define JOBS_LOOKED_AT 50

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_sweep: %s\n", what);
  abort();
}

static bool options(void *context, const char *group, const char *const **option, size_t *count)
{
  static const char *const models[] = {"cnn", "mlp", "resnet18"};
  (void)context;
  *option = models;
  *count = sizeof models / sizeof models[0];
  return strcmp(group, "model") == 0;
}

static void check_job(brim_arena *arena, const brim_sweep *sweep, size_t job)
{
  const char *word[WORDS_MAX];
  brim_sweep_words(sweep, job, word);
  for (size_t i = 0; i < sweep->axis_count; i++) {
    check(word[i] != NULL, "a job without a word");
    const char *value = word[i] + strcspn(word[i], "=");
    if (*value == '\0') continue;
    value++;
    value += strspn(value, " \t");
    size_t length = strlen(value);
    while (length > 0 && strchr(" \t", value[length - 1])) length--;
    value = brim_arena_string_n(arena, value, length);
    check(brim_override_item_length(value) == length, "a job's word still has several values");
    check(!brim_override_is_sweep_function(value), "a job's word is still a function");
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static const brim_sweep_groups groups = {options, NULL};
  brim_arena arena = {0};
  brim_problems problems = {.arena = &arena};
  brim_sweep sweep;
  const char *word[WORDS_MAX];
  size_t count = 0;
  for (const char *s = brim_arena_string_n(&arena, (const char *)data, size); *s && count < WORDS_MAX;) {
    const size_t length = strcspn(s, "\n");
    word[count++] = brim_arena_string_n(&arena, s, length);
    s += length + (s[length] != '\0');
  }
  brim_sweep_expand(&arena, word, NULL, count, &groups, &problems, &sweep);
  check(sweep.jobs >= 1 && sweep.jobs <= BRIM_SWEEP_JOBS_MAX, "too many jobs, or none");
  check(sweep.axis_count == count, "a word was lost");
  if (problems.count == 0)
    for (size_t i = 0; i < sweep.jobs && i < JOBS_LOOKED_AT; i++) check_job(&arena, &sweep, sweep.jobs - 1 - i);
  for (size_t i = 0; i < problems.count; i++) check(problems.text[i][0] != '\0', "a problem without a text");
  brim_arena_release(&arena);
  return 0;
}
