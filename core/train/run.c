/* A run: its beginning (run_begin.c), the loop over its steps (drive/loop.c, run_work.c), and its end. */
#include "train/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crash.h"
#include "base/error.h"
#include "observe/events.h"
#include "planner/figures.h"
#include "store/rundir.h"
#include "train/run_parts.h"
#include "train/stop.h"

/* Records failures of hooks after the run has ended, in its events and on its page, unless the folder is gone or
 * another process has it. */
static void record_late(const brim_running *r, const brim_hook_failure *failure, size_t count)
{
  char path[BRIM_PATH_MAX];
  brim_jsonl events;
  int lock;
  if (count == 0 || !brim_running_prints(r) || brim_run_lock(r->dir, &lock) != BRIM_OK) return;
  if (brim_path_join(path, r->dir, "events.jsonl") == BRIM_OK && access(path, F_OK) == 0 &&
      brim_jsonl_open(&events, path, BRIM_JSONL_ALL) == BRIM_OK) {
    for (size_t i = 0; i < count; i++) brim_report_event(&events, BRIM_HOOK_FAILED, failure[i].step, failure[i].detail);
    brim_jsonl_close(&events);
    if (r->options->write_page) r->options->write_page(r->dir);
  }
  close(lock);
}

/* Runs the last hook, and waits for all queued hooks. Keeps the error. */
static void end_hooks(brim_running *r, brim_hook_facts *last, brim_status status)
{
  brim_error first;
  brim_hook_failure failure[BRIM_HOOK_COUNT];
  if (!r->hooks) return;
  brim_error_take(&first);
  last->status = brim_report_ending(status);
  if (status != BRIM_OK) snprintf(last->detail, sizeof last->detail, "%.1000s", first.text);
  brim_hooks_post(r->hooks, BRIM_HOOK_END, last);
  record_late(r, failure, brim_hooks_close(r->hooks, r->stop, failure));
  r->hooks = NULL;
  brim_error_put(&first);
}

static brim_status close_run(brim_running *r, brim_status status)
{
  brim_error first; /* the error to show */
  brim_hook_facts last = {.status = ""};
  brim_error_take(&first);
  brim_progress_finish(&r->progress);
  /* If the run is not opened, the folder belongs to another run, and this one must not write to it. */
  const bool opened = r->lock >= 0 && r->state;
  if (!opened) brim_report_release(&r->report);
  if (opened) {
    const char *error = status == BRIM_OK ? "" : first.text;
    if (status != BRIM_OK && status != BRIM_EINTERRUPTED) brim_running_event(r, "failed", error);
    if (status == BRIM_OK) brim_running_event(r, "finished", NULL);
    brim_running_collect(r);
    brim_running_close_metrics(r, brim_report_ending(status));
    if (r->hooks) brim_running_hook_facts(r, &last);
    const brim_status written = brim_report_write_summary(&r->report, r->dir, brim_trainer_plan(r->trainer), status,
                                                          error, r->state->step, brim_running_own_seconds(r));
    if (status == BRIM_OK) {
      status = written;
      brim_error_take(&first);
    }
  }
  brim_running_trace_end(r);
  brim_running_hook_failures(r);
  brim_jsonl_close(&r->metrics);
  brim_jsonl_close(&r->events);
  brim_participants_close(&r->participants);
  brim_histograms_close(&r->histograms);
  brim_samples_release(&r->samples);
  if (r->tensorboard.fd >= 0)
    brim_running_heed_tensorboard(r, brim_tensorboard_end(&r->tensorboard, status == BRIM_OK));
  brim_tensorboard_close(&r->tensorboard);
  brim_pressure_close(r->pressure); /* closed before the objects that its thread reads */
  brim_trainer_close(r->trainer);
  brim_drive_close(r->drive);
  if (opened && r->options->write_page) r->options->write_page(r->dir);
  if (status != BRIM_OK) brim_error_put(&first);
  if (r->lock >= 0) close(r->lock);
  end_hooks(r, &last, status); /* the devices and the run's folder are already free */
  brim_out_of_memory_advice(NULL);
  brim_crash_advice(NULL);
  brim_reserve_give();
  return status;
}

brim_status brim_run(const brim_run_options *options)
{
  brim_running *r = brim_xcalloc(1, sizeof *r);
  r->options = options;
  r->config = options->config;
  r->settings = &options->config->settings;
  r->stop = brim_stop_watch(brim_running_prints(r));
  signal(SIGPIPE, SIG_IGN); /* a closed pipe must not end the run */
  r->lock = -1;
  r->metrics.fd = r->events.fd = r->participants.log.fd = r->tensorboard.fd = r->histograms.log.fd = -1;
  r->reported_step = -1;
  r->work = brim_running_work(r);
  brim_report_init(&r->report);
  brim_status status = brim_running_begin(r);
  if (status == BRIM_OK) status = brim_loop_run(&r->loop);
  brim_stop_doing(BRIM_STOP_ENDING);
  brim_live_now(BRIM_LIVE_STOPPING);
  status = brim_running_end_together(r, status);
  if (status == BRIM_OK && r->recent_count >= BRIM_STEPS_RECENT)
    brim_planner_compare_times(&r->drive->planner, brim_trainer_plan(r->trainer), r->drive->choice.micro_batch,
                               brim_running_step_seconds(r));
  if (status == BRIM_OK && brim_running_prints(r)) {
    brim_progress_finish(&r->progress);
    brim_running_collect(r);
    brim_report_say(&r->report, r->dir, brim_running_own_seconds(r));
  }
  status = close_run(r, status);
  free(r);
  return status;
}
