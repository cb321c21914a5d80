/* See summary.h. Figures that a summary of another brim version lacks are NAN. */
#include "store/summary.h"

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/file.h"

const char *const brim_score_keys[BRIM_SCORE_COUNT] = {"accuracy", "perplexity", "mae"};

const char *brim_score_name(enum brim_score score)
{
  static const char *const names[BRIM_SCORE_COUNT] = {"acc. %", "ppl.", "MAE"};
  return names[score];
}

enum brim_score brim_summary_score(const brim_summary *s)
{
  for (int score = BRIM_SCORE_MAE; score > BRIM_SCORE_ACCURACY; score--)
    for (enum brim_part part = 0; part < BRIM_PART_COUNT; part++)
      if (isfinite(s->score[score][part])) return (enum brim_score)score;
  return BRIM_SCORE_ACCURACY;
}

double brim_summary_shown(const brim_summary *s, enum brim_score score, enum brim_part part)
{
  return score == BRIM_SCORE_ACCURACY ? 100 * s->score[score][part] : s->score[score][part];
}

/* ---- files ---- */

static void format_key(char *out, size_t room, enum brim_part part, const char *name)
{
  snprintf(out, room, "%s_%s", brim_part_names[part], name);
}

void brim_summary_set(json_t *object, enum brim_part part, const char *name, double value)
{
  char key[64];
  format_key(key, sizeof key, part, name);
  json_object_set_new(object, key, brim_json_figure(value));
}

double brim_summary_number(const json_t *object, enum brim_part part, const char *name)
{
  char key[128];
  format_key(key, sizeof key, part, name);
  return brim_json_number(object, key);
}

static json_t *load(const char *dir)
{
  char path[BRIM_PATH_MAX];
  struct stat info;
  if (brim_path_join(path, dir, "summary.json") != BRIM_OK) return NULL;
  if (stat(path, &info) != 0 || info.st_size > BRIM_SUMMARY_BYTES_MAX) return NULL;
  return brim_json_load(path, 0, NULL);
}

static void set_all(brim_summary *s, const json_t *root)
{
  snprintf(s->status, sizeof s->status, "%s", brim_json_string(root, "status"));
  snprintf(s->error, sizeof s->error, "%s", brim_json_string(root, "error"));
  s->steps = brim_json_number(root, "steps");
  for (enum brim_part part = 0; part < BRIM_PART_COUNT; part++) {
    s->loss[part] = brim_summary_number(root, part, "loss");
    for (int k = 0; k < BRIM_SCORE_COUNT; k++) s->score[k][part] = brim_summary_number(root, part, brim_score_keys[k]);
  }
  s->client_accuracy_variance = brim_json_number(root, "client_accuracy_variance");
  s->client_accuracy_gini = brim_json_number(root, "client_accuracy_gini");
  s->samples_per_second = brim_json_number(root, "samples_per_second");
  s->device_peak_bytes = brim_json_number(root, "device_peak_bytes");
  s->rss_peak_bytes = brim_json_number(root, "rss_peak_bytes");
  s->wall_seconds = brim_json_number(root, "wall_seconds");
}

void brim_summary_clear(brim_summary *s)
{
  set_all(s, NULL);
}

bool brim_summary_read(const char *dir, brim_summary *out)
{
  json_t *root = load(dir);
  set_all(out, root);
  json_decref(root);
  return out->status[0] != '\0';
}
