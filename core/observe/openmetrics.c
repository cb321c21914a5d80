/* See openmetrics.h. */
#include "observe/openmetrics.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

/* ---- decisions ---- */

void brim_openmetrics_decided(brim_openmetrics_counts *counts, const char *policy, const char *action)
{
  const char *kind = action ? action : "choice";
  size_t i = 0;
  while (i < counts->count && (strcmp(counts->of[i].policy, policy) != 0 || strcmp(counts->of[i].kind, kind) != 0)) i++;
  if (i == BRIM_OPENMETRICS_COUNTS_MAX) return;
  brim_openmetrics_count *c = &counts->of[i];
  if (i == counts->count) {
    counts->count++;
    snprintf(c->policy, sizeof c->policy, "%s", policy);
    snprintf(c->kind, sizeof c->kind, "%s", kind);
  }
  c->count++;
}

/* ---- samples ---- */

void brim_openmetrics_family(brim_text *out, const char *name, const char *help, const char *type)
{
  if (type) brim_text_printf(out, "# TYPE %s %s\n", name, type);
  brim_text_printf(out, "# HELP %s %s\n", name, help);
}

void brim_openmetrics_begin(brim_text *out, const char *name)
{
  brim_text_add(out, name);
  brim_text_add(out, "{");
}

/* Labels may come from other users, so bytes that are not UTF-8 are replaced, and the format's own characters are
 * escaped. */
void brim_openmetrics_label(brim_text *out, const char *key, const char *value)
{
  const char *end = value + strlen(value);
  if (!value[0]) return;
  if (out->s[out->length - 1] != '{') brim_text_add(out, ",");
  brim_text_printf(out, "%s=\"", key);
  for (const char *s = value; s < end;) {
    char shown[BRIM_SHOWN_BYTES];
    const char *escape = *s == '\n' ? "\\n" : *s == '"' ? "\\\"" : *s == '\\' ? "\\\\" : NULL;
    if (escape) {
      brim_text_add(out, escape);
      s++;
      continue;
    }
    const size_t bytes = brim_shown_take(&s, end, "", shown);
    if (shown[0] == '\\')
      brim_text_add(out, "?"); /* a control character, whose escape this format does not have */
    else
      brim_text_add_n(out, shown, bytes);
  }
  brim_text_add(out, "\"");
}

void brim_openmetrics_end(brim_text *out, double value)
{
  brim_text_printf(out, "} %.15g\n", value);
}

void brim_openmetrics_finish(brim_text *out)
{
  brim_text_add(out, "# EOF\n");
}

/* ---- runs ---- */

static void begin_run(brim_text *out, const char *name, const brim_openmetrics_run *run)
{
  char number[32];
  brim_openmetrics_begin(out, name);
  brim_openmetrics_label(out, "Hostname", run->host);
  brim_openmetrics_label(out, "run", run->run);
  brim_openmetrics_label(out, "user", run->user);
  snprintf(number, sizeof number, "%" PRId64, run->pid);
  brim_openmetrics_label(out, "pid", number);
  snprintf(number, sizeof number, "%" PRId64, run->rank);
  brim_openmetrics_label(out, "rank", number);
}

static void add_info(brim_text *out, const char *name, const brim_openmetrics_run *run)
{
  begin_run(out, name, run);
  brim_openmetrics_label(out, "model", run->model);
  brim_openmetrics_label(out, "dataset", run->dataset);
  brim_openmetrics_label(out, "backend_device", run->device);
  brim_openmetrics_label(out, "command", run->command);
  brim_openmetrics_end(out, 1);
}

/* A family with one sample for each run. */
static const struct {
  const char *name, *help;
  size_t offset;
  bool is_counter;
  const char *label; /* name of a label whose value is the text at `value`; NULL: no label */
  size_t value;
} figures[] = {
#define AT(field) offsetof(brim_openmetrics_run, field)
    {"brim_run_step", "steps that the run has made; rounds of a federation", AT(step), false, NULL, 0},
    {"brim_run_steps", "steps that the run will make in total", AT(steps), false, NULL, 0},
    {"brim_run_epoch", "epochs that the run has made, with their fraction", AT(epoch), false, NULL, 0},
    {"brim_run_loss", "training loss, mean of the last record", AT(loss), false, NULL, 0},
    {"brim_run_score", "the metric of the task on training data, besides the loss", AT(score), false, "score",
     AT(score_name)},
    {"brim_run_samples_total", "samples that the run has trained on", AT(samples), true, NULL, 0},
    {"brim_run_rate", "samples or tokens in a second", AT(rate), false, "unit", AT(unit)},
    {"brim_run_left_seconds", "expected time until the last step", AT(seconds_left), false, NULL, 0},
    {"brim_run_queue_seconds", "time that the run has waited for devices", AT(queue_seconds), false, NULL, 0},
    {"brim_retries_total", "steps, evaluations and checkpoints that ran out of memory and were repeated", AT(retries),
     true, NULL, 0},
    {"brim_rank_wait_seconds_total", "time that the rank has waited for other ranks", AT(rank_wait_seconds), true, NULL,
     0},
#undef AT
};

static void add_memory(const brim_openmetrics_run *run, size_t count, brim_text *out)
{
  static const char name[] = "brim_plan_bytes";
  bool has_family = false;
  for (size_t i = 0; i < count; i++)
    for (size_t k = 0; k < run[i].classes; k++) {
      if (!isfinite(run[i].memory[k].bytes)) continue;
      if (!has_family) brim_openmetrics_family(out, name, "device memory of the plan at its peak, by class", "gauge");
      has_family = true;
      begin_run(out, name, &run[i]);
      brim_openmetrics_label(out, "class", run[i].memory[k].name);
      brim_openmetrics_end(out, run[i].memory[k].bytes);
    }
}

static void add_decisions(const brim_openmetrics_run *run, size_t count, brim_text *out)
{
  static const char name[] = "brim_decisions_total";
  bool has_family = false;
  for (size_t i = 0; i < count; i++)
    for (size_t k = 0; run[i].decisions && k < run[i].decisions->count; k++) {
      const brim_openmetrics_count *c = &run[i].decisions->of[k];
      if (!has_family) brim_openmetrics_family(out, name, "decisions about the run, by policy and kind", NULL);
      has_family = true;
      begin_run(out, name, &run[i]);
      brim_openmetrics_label(out, "policy", c->policy);
      brim_openmetrics_label(out, "kind", c->kind);
      brim_openmetrics_end(out, (double)c->count);
    }
}

void brim_openmetrics_runs(const brim_openmetrics_run *run, size_t count, const char *const *phases, size_t phase_count,
                           brim_text *out)
{
  if (count == 0) return;
  brim_openmetrics_family(out, "brim_run_info", "1 for each run; its labels describe it", "gauge");
  for (size_t i = 0; i < count; i++) add_info(out, "brim_run_info", &run[i]);
  static const char name[] = "brim_run_phase";
  brim_openmetrics_family(out, name, "1 for the state of the run, 0 for all other states", "gauge");
  for (size_t i = 0; i < count; i++)
    for (size_t k = 0; k < phase_count; k++) {
      begin_run(out, name, &run[i]);
      brim_openmetrics_label(out, "phase", phases[k]);
      brim_openmetrics_end(out, strcmp(run[i].phase, phases[k]) == 0);
    }
  for (size_t k = 0; k < sizeof figures / sizeof figures[0]; k++) {
    bool has_family = false;
    for (size_t i = 0; i < count; i++) {
      const char *at = (const char *)&run[i];
      const double value = *(const double *)(const void *)(at + figures[k].offset);
      if (!isfinite(value)) continue;
      if (!has_family)
        brim_openmetrics_family(out, figures[k].name, figures[k].help, figures[k].is_counter ? NULL : "gauge");
      has_family = true;
      begin_run(out, figures[k].name, &run[i]);
      if (figures[k].label)
        brim_openmetrics_label(out, figures[k].label, *(const char *const *)(const void *)(at + figures[k].value));
      brim_openmetrics_end(out, value);
    }
  }
  add_memory(run, count, out);
  add_decisions(run, count, out);
}

/* ---- the file ---- */

brim_status brim_openmetrics_write(const char *path, const brim_text *text)
{
  char aside[BRIM_PATH_MAX];
  int fd;
  const char *slash = strrchr(path, '/');
  const int folder = slash ? (int)(slash - path) + 1 : 0;
  if (snprintf(aside, sizeof aside, "%.*s.%s.tmp", folder, path, path + folder) >= (int)sizeof aside)
    return brim_fail(BRIM_EIO, "the name '%.100s...' is too long", path);
  BRIM_TRY(brim_file_create(aside, &fd));
  brim_status status = brim_file_write_all(fd, aside, brim_text_str(text), text->length);
  close(fd);
  if (status == BRIM_OK && rename(aside, path) != 0)
    status = brim_fail(BRIM_EIO, "cannot rename '%s' to '%s': %s", aside, path, strerror(errno));
  if (status != BRIM_OK) brim_file_discard(aside);
  return status;
}
