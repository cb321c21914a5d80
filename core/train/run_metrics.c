/* observe.metrics_file: the run's newest figures as OpenMetrics. If the file cannot be written, brim warns once, and
 * the run tries again each time. */
#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "train/run_parts.h"

#define INTERVAL_SECONDS 15.0

static const char *const phases[] = {"training", "finished", "interrupted", "failed"};

void brim_running_open_metrics(brim_running *r)
{
  brim_run_metrics *m = &r->live_metrics;
  if (!r->settings->observe.metrics_file[0] || !brim_running_prints(r)) return;
  const struct passwd *user = getpwuid(geteuid());
  snprintf(m->user, sizeof m->user, "%s", user ? user->pw_name : "");
  if (gethostname(m->host, sizeof m->host) != 0) m->host[0] = '\0';
  m->host[sizeof m->host - 1] = '\0';
  brim_text_reserve(&m->text, BRIM_OPENMETRICS_ROOM);
  brim_text_clear(&m->text);
}

/* Returns the end of the folder's path. */
static const char *name_of(const char *dir)
{
  const char *slash = strrchr(dir, '/');
  return slash && slash[1] ? slash + 1 : dir;
}

static void describe(brim_running *r, const char *phase, brim_openmetrics_run *out)
{
  const brim_evaluation *e = &r->report.figures[BRIM_PART_TRAIN];
  const brim_plan *plan = brim_trainer_plan(r->trainer);
  const brim_train_state *s = r->state;
  const double steps = (double)r->drive->order.steps;
  char *device = r->live_metrics.device;
  const bool is_values = e->task == BRIM_TASK_VALUES;
  snprintf(device, sizeof r->live_metrics.device, "%s:%d", brim_setup_backend_id(r->drive->setup),
           r->drive->planner.device);
  *out = (brim_openmetrics_run){.host = r->live_metrics.host,
                                .run = name_of(r->dir),
                                .user = r->live_metrics.user,
                                .pid = getpid(),
                                .model = brim_config_choice_of(r->config, "model")->name,
                                .dataset = brim_config_choice_of(r->config, "dataset")->name,
                                .device = device,
                                .command = brim_setup_is_federated(r->drive->setup) ? "federate" : "train",
                                .phase = phase,
                                .score_name = is_values ? "mae" : "accuracy",
                                .unit = r->report.tokens_each > 0 ? "tokens" : "samples",
                                .step = (double)s->step,
                                .steps = steps,
                                .epoch = (double)s->step / (double)r->drive->order.steps_per_epoch,
                                .loss = e->loss,
                                .score = is_values ? e->mae : e->accuracy,
                                .samples = (double)s->samples,
                                .rate = brim_report_rate(&r->report) *
                                        (double)(r->report.tokens_each > 0 ? r->report.tokens_each : 1),
                                .seconds_left = brim_progress_left(&r->progress, brim_now()),
                                .queue_seconds = r->drive->planner.queue_seconds,
                                .rank_wait_seconds = r->options->dist ? brim_trainer_waited(r->trainer) : NAN,
                                .retries = (double)r->report.retries,
                                .decisions = &r->live_metrics.decisions};
  for (uint32_t role = 0; plan && role < BRIM_ROLE_COUNT && out->classes < BRIM_OPENMETRICS_COUNTS_MAX; role++) {
    if (!brim_plan_has_role(plan, role)) continue;
    out->memory[out->classes].name = brim_role_name(role);
    out->memory[out->classes++].bytes = (double)plan->class_bytes[role];
  }
}

static void write_file(brim_running *r, const char *phase)
{
  brim_run_metrics *m = &r->live_metrics;
  brim_openmetrics_run run;
  if (m->text.room == 0) return;
  describe(r, phase, &run);
  brim_text_clear(&m->text);
  brim_openmetrics_runs(&run, 1, phases, sizeof phases / sizeof phases[0], &m->text);
  brim_openmetrics_finish(&m->text);
  const brim_status status = brim_openmetrics_write(r->settings->observe.metrics_file, &m->text);
  if (status != BRIM_OK && !m->has_failed)
    brim_log(BRIM_LOG_WARN, "the run continues without observe.metrics_file, and tries again every %.0f s: %s",
             INTERVAL_SECONDS, brim_error_text());
  m->has_failed = status != BRIM_OK;
}

void brim_running_update_metrics(brim_running *r)
{
  const double now = brim_now();
  if (r->live_metrics.written > 0 && now - r->live_metrics.written < INTERVAL_SECONDS) return;
  r->live_metrics.written = now;
  write_file(r, "training");
}

void brim_running_close_metrics(brim_running *r, const char *phase)
{
  if (r->trainer) write_file(r, phase);
  brim_text_release(&r->live_metrics.text);
}
