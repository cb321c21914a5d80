/* Fuzzes data.json, a run's record of its data, with the record of dataset csv: a usable description, or an error.
 * Every description is compared with itself and with a missing one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../plugins/dataset/csv/kept.h"
#include "data/keep.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_keep: %s\n", what);
  abort();
}

static brim_status recall(void *self, const char *json)
{
  static const csv_params params = {
      .path = "nowhere", .label = "kind", .group = "", .client = "", .horizon = -1, .stride = 1};
  csv_set *set = self;
  csv_set_free(set);
  return csv_kept_read(&params, json, set);
}

/* The dataset's files are gone. */
static brim_status describe(const void *self, const char *split, brim_dataset_info *out)
{
  (void)self;
  (void)split;
  (void)out;
  return brim_fail(BRIM_ELOAD, "no files");
}

static const brim_dataset_ops ops = {.size = sizeof ops, .describe = describe, .recall = recall};
static const brim_plugin plugin = {.size = sizeof plugin, .kind = BRIM_DATASET, .id = "csv", .ops = &ops};

static void recall_and_look(const json_t *kept)
{
  static const brim_settings settings = {.seed = 1};
  brim_arena arena = {0};
  brim_data opened;
  csv_set set = {0};
  const brim_status status = brim_data_recall_kept(&opened, &plugin, &set, &settings, kept, &arena);
  check(status == BRIM_OK || brim_error_text()[0] != '\0', "refused without a text");
  if (status == BRIM_OK) {
    check(opened.count[BRIM_PART_TRAIN] > 0 && opened.elements > 0, "no samples, or of nothing");
    check(set.chosen.features > 0 && set.length >= 0, "no features");
    for (int64_t i = 0; opened.train.class_names && i < opened.train.classes; i++)
      check(opened.train.class_names[i] != NULL, "a class without its name");
  }
  csv_set_free(&set);
  brim_arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  json_t *kept = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL), *none = json_object();
  check(brim_data_compare(kept, kept, true) == BRIM_OK, "not the same as itself");
  (void)brim_data_compare(kept, none, true);
  (void)brim_data_compare(none, kept, true);
  (void)brim_data_is_kept_of(kept, &plugin);
  recall_and_look(kept);
  json_decref(kept);
  json_decref(none);
  return 0;
}
