/* See summary.h. Figures that a summary of another brim version lacks are NAN. */
#include "store/summary.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "store/record.h"

static const struct {
  const char *key;
  size_t offset;
} figures[] = {
#define FIGURE(name)                                                                                                   \
  {                                                                                                                    \
#name, offsetof(brim_summary, name)                                                                                \
  }
    FIGURE(steps),
    FIGURE(train_loss),
    FIGURE(train_accuracy),
    FIGURE(validation_loss),
    FIGURE(validation_accuracy),
    FIGURE(test_loss),
    FIGURE(test_accuracy),
    FIGURE(train_perplexity),
    FIGURE(validation_perplexity),
    FIGURE(test_perplexity),
    FIGURE(train_mae),
    FIGURE(validation_mae),
    FIGURE(test_mae),
    FIGURE(samples_per_second),
    FIGURE(device_peak_bytes),
    FIGURE(rss_peak_bytes),
    FIGURE(wall_seconds),
    FIGURE(client_accuracy_mean),
    FIGURE(client_accuracy_variance),
    FIGURE(client_accuracy_gini),
#undef FIGURE
};

enum brim_score brim_summary_score(const brim_summary *s)
{
  if (isfinite(s->train_mae) || isfinite(s->validation_mae) || isfinite(s->test_mae)) return BRIM_SCORE_MAE;
  if (isfinite(s->train_perplexity) || isfinite(s->validation_perplexity) || isfinite(s->test_perplexity))
    return BRIM_SCORE_PERPLEXITY;
  return BRIM_SCORE_ACCURACY;
}

const char *brim_score_name(enum brim_score score)
{
  static const char *const names[BRIM_SCORE_COUNT] = {"acc. %", "ppl.", "MAE"};
  return names[score];
}

void brim_summary_scores(const brim_summary *s, enum brim_score score, double out[3])
{
  const double of[BRIM_SCORE_COUNT][3] = {
      {100 * s->train_accuracy, 100 * s->validation_accuracy, 100 * s->test_accuracy},
      {s->train_perplexity, s->validation_perplexity, s->test_perplexity},
      {s->train_mae, s->validation_mae, s->test_mae}};
  memcpy(out, of[score], sizeof of[score]);
}

static void copy_string(const json_t *root, const char *key, char *out, size_t room)
{
  const char *text = json_string_value(json_object_get(root, key));
  snprintf(out, room, "%s", text ? text : "");
}

static json_t *load(const char *dir)
{
  char path[BRIM_PATH_MAX];
  struct stat info;
  if (brim_path_join(path, dir, "summary.json") != BRIM_OK) return NULL;
  if (stat(path, &info) != 0 || info.st_size > BRIM_SUMMARY_BYTES_MAX) return NULL;
  return brim_json_load(path, 0, NULL);
}

void brim_summary_clear(brim_summary *s)
{
  *s = (brim_summary){0};
  for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) *(double *)((char *)s + figures[i].offset) = NAN;
}

bool brim_summary_read(const char *dir, brim_summary *out)
{
  brim_summary_clear(out);
  json_t *root = load(dir);
  for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
    const json_t *value = json_object_get(root, figures[i].key);
    if (json_is_number(value)) *(double *)((char *)out + figures[i].offset) = json_number_value(value);
  }
  copy_string(root, "status", out->status, sizeof out->status);
  copy_string(root, "error", out->error, sizeof out->error);
  json_decref(root);
  return out->status[0] != '\0';
}
