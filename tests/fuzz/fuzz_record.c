/* Fuzzes a run's events as brim simulate --record reads them: every input is refused, or gives a scenario that is valid
 * or is refused with a position. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "scratch.h"
#include "simulate/recording.h"
#include "simulate/scenario.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_record: %s: %s\n", what, brim_error_text());
  abort();
}

static void delete_folder(void)
{
  scratch_delete(scratch_root);
}

static void begin(void)
{
  static const char config[] = "model: {id: mlp}\npolicy: {id: [robust], robust: {allow_cpu: false}}\n";
  static bool begun;
  if (begun) return;
  begun = true;
  brim_log_set_level(BRIM_LOG_ERROR);
  scratch_setup(NULL);
  atexit(delete_folder);
  scratch_write(scratch("%s", "config.yaml"), config, strlen(config));
}

static void check_text(const brim_text *text)
{
  brim_scenario *s = NULL;
  check(brim_starts_with(brim_text_str(text), "# "), "no scenario");
  if (brim_scenario_parse(text->s, text->length, "fuzz.yaml", &s) == BRIM_OK)
    brim_scenario_free(s);
  else
    check(strstr(brim_error_text(), "fuzz.yaml") != NULL, "an error that does not say where");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  const char *word[BRIM_RECORD_WORDS_MAX + 1];
  brim_arena arena = {0};
  brim_text text = {0};
  begin();
  scratch_write(scratch("%s", "events.jsonl"), data, size);
  if (brim_scene_record(&arena, scratch_root, &text, word) == BRIM_OK) check_text(&text);
  brim_text_release(&text);
  brim_arena_release(&arena);
  return 0;
}
