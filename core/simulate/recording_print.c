/* Prints a recording as a scenario's YAML. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "config/settings.h"
#include "observe/metrics.h"
#include "simulate/recording_parts.h"

/* Returns the mean seconds per sample over all training records; 0: unknown. */
static double seconds_of_sample(const brim_recording *r)
{
  char path[BRIM_PATH_MAX];
  brim_metrics metrics;
  double all = 0, samples = 0;
  if (brim_path_join(path, r->run, "metrics.jsonl") != BRIM_OK ||
      brim_metrics_read(r->arena, path, &metrics) != BRIM_OK)
    return 0;
  const brim_series *train = &metrics.split[BRIM_PART_TRAIN];
  const double *seconds = brim_series_values(train, "seconds"), *count = brim_series_values(train, "samples");
  for (size_t i = 0; seconds && count && i < train->count; i++) {
    if (!isfinite(seconds[i]) || !isfinite(count[i])) continue;
    all += seconds[i];
    samples += count[i];
  }
  return samples > 0 && all > 0 ? fmin(fmax(all / samples, 1e-6), 3600) : 0;
}

static void print_head(const brim_recording *r, brim_text *out)
{
  char start[64] = "2025-01-06 09:00";
  struct tm utc;
  const time_t at = r->start > 0 && r->start < 1e11 ? (time_t)r->start : 0;
  const brim_record_device *d = &r->device[0];
  if (at > 0 && gmtime_r(&at, &utc)) strftime(start, sizeof start, "%Y-%m-%d %H:%M:%S", &utc);
  brim_text_printf(out, "# The data that the policies of a run received, recorded by brim simulate --record.\n");
  brim_text_printf(out, "about: a recorded run\nstart: %s\n", start);
  brim_text_printf(out, "backend: %.*s\n", (int)strcspn(d->name, ":"), d->name);
  brim_text_printf(out, "kind: %s\n", !d->on_host ? "gpu" : d->is_shared ? "share" : "host");
  brim_text_printf(out, "samples: %lld\n", (long long)(r->samples > 0 ? r->samples : 1));
  brim_text_printf(out, "grain: %lld\nnorm_group: %lld\n", (long long)r->grain, (long long)r->norm_group);
  brim_text_printf(out, "plan_time: %.3fs\nreplan_time: %.3fs\n", r->plan_time, r->replan_time);
}

static void print_use(const brim_record_series *s, const char *indent, brim_text *out)
{
  if (s->count == 0) return;
  brim_text_printf(out, "%suse:\n", indent);
  for (size_t i = 0; i < s->count; i++)
    brim_text_printf(out, "%s  - {at: %.3fs, bytes: %llu}\n", indent, s->change[i].at,
                     (unsigned long long)s->change[i].bytes);
}

static void print_devices(const brim_recording *r, brim_text *out)
{
  brim_text_add(out, "devices:\n");
  for (size_t i = 0; i < r->devices; i++) {
    brim_text_printf(out, "  - memory: %llu\n", (unsigned long long)r->device[i].total);
    print_use(&r->device[i].use, "    ", out);
    const brim_record_series *line = &r->device[i].line;
    if (line->count == 0 || (line->count == 1 && line->change[0].waiting == 0)) continue;
    brim_text_add(out, "    line:\n");
    for (size_t k = 0; k < line->count; k++)
      brim_text_printf(out, "      - {at: %.3fs, waiting: %lld, bytes: %llu}\n", line->change[k].at,
                       (long long)line->change[k].waiting, (unsigned long long)line->change[k].bytes);
  }
  if (r->host_total == 0 || r->host_total > UINT64_C(1) << 60) return;
  brim_text_printf(out, "host:\n  memory: %llu\n  process: %llu\n", (unsigned long long)r->host_total,
                   (unsigned long long)r->process);
  print_use(&r->host, "  ", out);
}

static void print_events(const brim_recording *r, brim_text *out)
{
  if (r->failures > 0) brim_text_add(out, "failures:\n");
  for (size_t i = 0; i < r->failures; i++) {
    brim_text_printf(out, "  - {step: %lld, times: %lld%s, says: '", (long long)r->failure[i].step,
                     (long long)r->failure[i].times, r->failure[i].loses ? ", loses: true" : "");
    for (const char *c = r->failure[i].says + strspn(r->failure[i].says, " "); *c; c++)
      brim_text_add_n(out, *c == '\'' ? "''" : c, *c == '\'' ? 2 : 1);
    brim_text_add(out, "'}\n");
  }
  if (r->looks > 0) brim_text_add(out, "looks:\n");
  /* Printed with a slightly later time, so that everything that was seen then has happened. */
  for (size_t i = 0; i < r->looks; i++)
    brim_text_printf(out, "  - {at: %.3fs, step: %lld}\n", fmax(0, r->look[i].at - r->start) + 0.001,
                     (long long)r->look[i].step);
  if (r->pressures > 0) brim_text_add(out, "pressures:\n");
  for (size_t i = 0; i < r->pressures; i++)
    brim_text_printf(out, "  - {step: %lld, bytes: %llu}\n", (long long)r->pressure[i].step,
                     (unsigned long long)r->pressure[i].bytes);
}

static void print_setting(const char *key, const brim_yaml *config, brim_text *out)
{
  const brim_yaml *value = brim_yaml_get_path(config, key);
  if (!value || value->kind != BRIM_YAML_SCALAR) return;
  const bool chooses = strcmp(key, "memory.recompute") == 0; /* "none" must not be read as the user's choice */
  if (!chooses || strcmp(value->scalar, "none") != 0)
    brim_text_printf(out, "  %s: %s\n", key, value->scalar[0] ? value->scalar : "''");
}

/* Prints the keys of the run's configuration that affect its decisions. */
static void print_settings(const brim_recording *r, const brim_yaml *config, brim_text *out)
{
  char key[128];
  brim_text_printf(out, "settings:\n  training.steps: %lld\n", (long long)r->steps);
  for (const brim_section *s = brim_settings_sections; s->path; s++)
    for (const brim_setting *row = s->table; row->param.key; row++) {
      snprintf(key, sizeof key, "%s%s%s", s->path, s->path[0] ? "." : "", row->param.key);
      if (row->replayed) print_setting(key, config, out);
    }
}

void brim_recording_print(const brim_recording *r, const brim_yaml *config, brim_text *out)
{
  print_head(r, out);
  print_devices(r, out);
  static const char *const basis[] = {"timed", "derived", "guessed"};
  const brim_yaml *id = brim_yaml_get_path(config, "model.id");
  const double time = seconds_of_sample(r);
  brim_text_printf(out, "model:\n  id: %s\n", id && id->kind == BRIM_YAML_SCALAR ? id->scalar : "model");
  if (time > 0) brim_text_printf(out, "  sample_time: %.9gs\n", time);
  if (r->plans > 0) brim_text_add(out, "  peaks:\n");
  for (size_t i = 0; i < r->plans; i++) {
    brim_text_printf(out, "    - {micro_batch: %lld, bytes: %llu", (long long)r->plan[i].micro_batch,
                     (unsigned long long)r->plan[i].bytes);
    if (r->plan[i].time > 0)
      brim_text_printf(out, ", time: %.17gs, basis: %s", r->plan[i].time, basis[r->plan[i].basis]);
    brim_text_add(out, "}\n");
  }
  print_events(r, out);
  print_settings(r, config, out);
}
