/* Fuzzes scenarios: every text is refused with a position, or makes a world that can be simulated for a second. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simulate/scenario.h"
#include "simulate/world.h"

#define WORDS_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_scenario: %s\n", what);
  abort();
}

static void hear(void *context, const char *source, const char *what)
{
  int *heard = context;
  *heard += source[0] != '\0' || what[0] != '\0';
}

static void pass_a_second(const brim_scenario *s)
{
  int heard = 0;
  brim_scene *scene = brim_scene_open(s, hear, &heard);
  brim_scene_advance(scene, 1);
  check(brim_scene_next(scene) > 1, "a due event has not happened");
  for (size_t i = 0; i < s->device_count; i++) {
    brim_device_info info;
    brim_scene_describe(scene, (int)i, &info);
    check(info.free_bytes <= info.total_bytes, "more is free than there is");
  }
  brim_scene_close(scene);
}

static void check_words(brim_scenario *s)
{
  const char *word[WORDS_MAX];
  const size_t count = brim_scenario_words(&s->arena, s->settings, word, WORDS_MAX);
  for (size_t i = 0; i < count; i++) check(strchr(word[i], '=') != NULL, "a setting without a value");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  brim_scenario *s = NULL;
  if (brim_scenario_parse((const char *)data, size, "fuzz.yaml", &s) != BRIM_OK) {
    check(strstr(brim_error_text(), "fuzz.yaml") != NULL, "an error that does not say where");
    return 0;
  }
  check(s->device_count > 0 && s->job_count > 0, "a world without devices or jobs");
  check_words(s);
  pass_a_second(s);
  brim_scenario_free(s);
  return 0;
}
