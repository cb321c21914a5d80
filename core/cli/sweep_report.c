/* Writes the results of a sweep: sweep.json for programs, a table for people. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/table.h"
#include "cli/sweep.h"
#include "report/methods.h"
#include "store/rundir.h"

const char *brim_sweep_state_name(enum brim_job_state state)
{
  static const char *const names[] = {[BRIM_JOB_WAITING] = "not started",
                                      [BRIM_JOB_FINISHED] = "finished",
                                      [BRIM_JOB_FAILED] = "failed",
                                      [BRIM_JOB_KILLED] = "killed",
                                      [BRIM_JOB_INTERRUPTED] = "interrupted"};
  return names[state];
}

const char *brim_sweep_signal_name(brim_sweep_run *run, int number)
{
  const char *name = sigabbrev_np(number);
  return name ? brim_arena_printf(&run->arena, "SIG%s", name) : brim_arena_printf(&run->arena, "signal %d", number);
}

const char *brim_sweep_label(brim_sweep_run *run, size_t job)
{
  const brim_sweep *sweep = &run->sweep;
  const char **word = BRIM_ARENA_NEW(&run->arena, const char *, sweep->axis_count + 1);
  brim_text text = {0};
  brim_sweep_words(sweep, job, word);
  for (size_t i = 0; i < sweep->axis_count; i++)
    if (sweep->axis[i].count > 1) brim_text_printf(&text, "%s%s", text.length ? " " : "", word[i]);
  const char *out = brim_arena_string(&run->arena, text.length ? text.s : "as given");
  brim_text_release(&text);
  return out;
}

int brim_sweep_exit_status(const brim_sweep_run *run)
{
  int status = 0;
  if (brim_jobs_stop_signal()) return brim_status_exit(BRIM_EINTERRUPTED);
  for (size_t i = 0; i < run->sweep.jobs; i++) {
    const brim_sweep_job *job = &run->job[i];
    if (job->state == BRIM_JOB_FINISHED || job->state == BRIM_JOB_WAITING) continue;
    const int own = job->state == BRIM_JOB_KILLED ? brim_status_exit(BRIM_EINTERNAL) : job->end.exit_status;
    status = status == 0 || status == own ? own : brim_status_exit(BRIM_EINTERNAL);
  }
  return status;
}

/* Returns the score that all jobs so far share; accuracy if they differ. */
static enum brim_score score_of(const brim_sweep_run *run)
{
  enum brim_score kind = BRIM_SCORE_COUNT;
  for (size_t i = 0; i < run->sweep.jobs; i++) {
    if (!isfinite(run->job[i].summary.loss[BRIM_PART_TRAIN])) continue;
    const enum brim_score own = brim_summary_score(&run->job[i].summary);
    kind = kind == BRIM_SCORE_COUNT || kind == own ? own : BRIM_SCORE_ACCURACY;
  }
  return kind == BRIM_SCORE_COUNT ? BRIM_SCORE_ACCURACY : kind;
}

/* ---- repeats ---- */

/* Jobs that differ only in their seed. */
typedef struct repeats {
  size_t finished;
  brim_mean score, loss; /* means on test data; NAN: too few jobs have finished */
} repeats;

static repeats add_up(brim_sweep_run *run, size_t first, enum brim_score kind)
{
  double *score = BRIM_ARENA_NEW(&run->arena, double, run->repeats);
  double *loss = BRIM_ARENA_NEW(&run->arena, double, run->repeats);
  size_t finished = 0;
  for (size_t i = first; i < first + (size_t)run->repeats; i++) {
    const brim_summary *s = &run->job[i].summary;
    if (run->job[i].state != BRIM_JOB_FINISHED) continue;
    score[finished] = brim_summary_shown(s, kind, BRIM_PART_TEST);
    loss[finished++] = s->loss[BRIM_PART_TEST];
  }
  return (repeats){finished, brim_mean_of(score, finished), brim_mean_of(loss, finished)};
}

/* ---- sweep.json ---- */

static json_t *describe_job(brim_sweep_run *run, size_t i)
{
  const brim_sweep_job *job = &run->job[i];
  const brim_summary *s = &job->summary;
  const char **word = BRIM_ARENA_NEW(&run->arena, const char *, run->sweep.axis_count + 1);
  json_t *out = json_object(), *words = json_array();
  brim_sweep_words(&run->sweep, i, word);
  for (size_t k = 0; k < run->sweep.axis_count; k++) json_array_append_new(words, json_string(word[k]));
  json_object_set_new(out, "job", json_integer((json_int_t)i));
  json_object_set_new(out, "overrides", words);
  json_object_set_new(out, "run", json_sprintf("%s/%zu", run->folder, i));
  json_object_set_new(out, "status", json_string(brim_sweep_state_name(job->state)));
  if (job->state == BRIM_JOB_WAITING) return out;
  json_object_set_new(out, "exit_status", job->end.exit_status < 0 ? json_null() : json_integer(job->end.exit_status));
  if (job->end.signal) json_object_set_new(out, "signal", json_string(brim_sweep_signal_name(run, job->end.signal)));
  if (s->error[0]) json_object_set_new(out, "error", json_string(s->error));
  json_object_set_new(out, "wall_seconds", brim_json_figure(job->end.seconds));
  json_object_set_new(out, "steps", isfinite(s->steps) ? json_integer((json_int_t)s->steps) : json_null());
  const enum brim_score kind = brim_summary_score(s);
  for (enum brim_part part = 0; part < BRIM_PART_COUNT; part++) {
    brim_summary_set(out, part, "loss", s->loss[part]);
    if (part == BRIM_PART_TRAIN) continue;
    brim_summary_set(out, part, "accuracy", s->score[BRIM_SCORE_ACCURACY][part]);
  }
  for (enum brim_part part = BRIM_PART_VALIDATION; part < BRIM_PART_COUNT; part++)
    brim_summary_set(out, part, brim_score_keys[kind], s->score[kind][part]);
  return out;
}

/* Returns the label of a set of repeats: the sweep's words without the seed. */
static const char *label_of(brim_sweep_run *run, size_t first)
{
  const char *label = brim_sweep_label(run, first);
  const char *seed = strstr(label, "seed=");
  while (seed && strchr(seed, ' ')) seed = strstr(seed + 1, "seed=");
  return seed && seed > label ? brim_arena_string_n(&run->arena, label, (size_t)(seed - label) - 1) : "as given";
}

static json_t *describe_repeats(brim_sweep_run *run, size_t first)
{
  const enum brim_score kind = score_of(run);
  const repeats r = add_up(run, first, kind);
  const double unit = kind == BRIM_SCORE_ACCURACY ? 0.01 : 1; /* tables show percent */
  const char *deviation = brim_arena_printf(&run->arena, "%s_deviation", brim_score_keys[kind]);
  json_t *out = json_object();
  json_object_set_new(out, "what", json_string(label_of(run, first)));
  json_object_set_new(out, "first_job", json_integer((json_int_t)first));
  json_object_set_new(out, "finished", json_integer((json_int_t)r.finished));
  brim_summary_set(out, BRIM_PART_TEST, brim_score_keys[kind], unit * r.score.mean);
  brim_summary_set(out, BRIM_PART_TEST, deviation, unit * r.score.deviation);
  brim_summary_set(out, BRIM_PART_TEST, "loss", r.loss.mean);
  brim_summary_set(out, BRIM_PART_TEST, "loss_deviation", r.loss.deviation);
  return out;
}

brim_status brim_sweep_write(brim_sweep_run *run)
{
  char path[4200];
  json_t *root = json_object(), *jobs = json_array(), *all = json_array();
  for (size_t i = 0; i < run->sweep.jobs; i++) json_array_append_new(jobs, describe_job(run, i));
  json_object_set_new(root, "folder", json_string(run->folder));
  json_object_set_new(root, "exit_status", json_integer(brim_sweep_exit_status(run)));
  json_object_set_new(root, "wall_seconds", json_real(brim_now() - run->start));
  json_object_set_new(root, "jobs", jobs);
  for (size_t i = 0; run->repeats > 1 && i < run->sweep.jobs; i += (size_t)run->repeats)
    json_array_append_new(all, describe_repeats(run, i));
  if (run->repeats > 1)
    json_object_set_new(root, "repeats", all);
  else
    json_decref(all);
  char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
  json_decref(root);
  if (!text) return brim_fail(BRIM_EINTERNAL, "cannot format sweep.json");
  snprintf(path, sizeof path, "%s/sweep.json", run->folder);
  const brim_status status = brim_file_write_atomic(path, text, strlen(text));
  free(text);
  return status;
}

/* ---- the table ---- */

static const char *describe_end(brim_sweep_run *run, const brim_sweep_job *job)
{
  if (job->state == BRIM_JOB_FAILED) return brim_arena_printf(&run->arena, "failed (%d)", job->end.exit_status);
  if (job->state == BRIM_JOB_KILLED)
    return brim_arena_printf(&run->arena, "killed (%s)", brim_sweep_signal_name(run, job->end.signal));
  return brim_sweep_state_name(job->state);
}

static void add_row(brim_sweep_run *run, brim_table *table, size_t i, enum brim_score kind)
{
  const brim_sweep_job *job = &run->job[i];
  const brim_summary *s = &job->summary;
  const bool started = job->state != BRIM_JOB_WAITING && !job->refused;
  const int digits = kind == BRIM_SCORE_MAE ? 4 : 2;
  const char **word = BRIM_ARENA_NEW(&run->arena, const char *, run->sweep.axis_count + 1);
  brim_sweep_words(&run->sweep, i, word);
  brim_table_add(table, brim_arena_printf(&run->arena, "%zu", i));
  for (size_t k = 0; k < run->sweep.axis_count; k++)
    if (run->sweep.axis[k].count > 1) brim_table_add(table, word[k] + strlen(run->sweep.axis[k].key) + 1);
  brim_table_add(table, describe_end(run, job));
  for (enum brim_part part = 0; part < BRIM_PART_COUNT; part++) {
    brim_table_number(table, s->loss[part], 4);
    if (part != BRIM_PART_TRAIN) brim_table_number(table, brim_summary_shown(s, kind, part), digits);
  }
  brim_table_number(table, started ? job->end.seconds : NAN, 1);
}

/* Prints mean and deviation over the seeds, one row per combination of the other words. */
static void print_repeats(brim_sweep_run *run, enum brim_score kind)
{
  const char *name = brim_score_name(kind);
  const char *const head[] = {"seeds", brim_arena_printf(&run->arena, "test %s", name), "+-", "test loss", "+-"};
  const size_t words = run->sweep.axis_count - 1; /* the last axis is the seed */
  const char **word = BRIM_ARENA_NEW(&run->arena, const char *, run->sweep.axis_count);
  brim_table table = {.arena = &run->arena, .columns = sizeof head / sizeof head[0]};
  brim_text out = {0};
  for (size_t k = 0; k < words; k++) {
    if (run->sweep.axis[k].count == 1) continue;
    brim_table_add(&table, run->sweep.axis[k].key);
    table.columns++;
  }
  for (size_t i = 0; i < sizeof head / sizeof head[0]; i++) brim_table_add(&table, head[i]);
  for (size_t i = 0; i < run->sweep.jobs; i += (size_t)run->repeats) {
    const repeats r = add_up(run, i, kind);
    const int digits = kind == BRIM_SCORE_MAE ? 4 : 2;
    brim_sweep_words(&run->sweep, i, word);
    for (size_t k = 0; k < words; k++)
      if (run->sweep.axis[k].count > 1) brim_table_add(&table, word[k] + strlen(run->sweep.axis[k].key) + 1);
    brim_table_add(&table, brim_arena_printf(&run->arena, "%zu of %lld", r.finished, (long long)run->repeats));
    brim_table_number(&table, r.score.mean, digits);
    brim_table_number(&table, r.score.deviation, digits);
    brim_table_number(&table, r.loss.mean, 4);
    brim_table_number(&table, r.loss.deviation, 4);
  }
  brim_table_print(&table, &out);
  brim_cli_print(brim_text_str(&out));
  brim_text_release(&out);
}

/* Prints the table of methods for federations, which compares whole runs, not only their ends; false: fewer than two
 * have finished. */
static bool print_methods(const brim_sweep_run *run)
{
  brim_comparison c = {0};
  brim_method *method;
  brim_text out = {0};
  size_t count = 0;
  brim_status status = BRIM_OK;
  for (size_t i = 0; status == BRIM_OK && i < run->sweep.jobs; i++)
    if (run->job[i].state == BRIM_JOB_FINISHED)
      status = brim_compare_add(&c, brim_arena_printf(&c.arena, "%s/%zu", run->folder, i));
  if (status != BRIM_OK) brim_log(BRIM_LOG_WARN, "the table of methods is left out: %s", brim_error_text());
  if (status == BRIM_OK && c.count > 1) {
    brim_compare_finish(&c);
    count = brim_methods_list(&c, &method);
  }
  if (count > 0) {
    const brim_table table = brim_methods_table(&c, method, count);
    brim_text_add(&out, "\n");
    brim_table_print(&table, &out);
    if (count > 1) brim_text_printf(&out, "%s\n", brim_method_score_words);
    brim_cli_print(brim_text_str(&out));
  }
  brim_text_release(&out);
  brim_compare_release(&c);
  return count > 0;
}

void brim_sweep_print(brim_sweep_run *run)
{
  const enum brim_score kind = score_of(run);
  const char *name = brim_score_name(kind);
  const brim_sweep *sweep = &run->sweep;
  const char *const head[] = {"status",    "train loss",
                              "val. loss", brim_arena_printf(&run->arena, "val. %s", name),
                              "test loss", brim_arena_printf(&run->arena, "test %s", name),
                              "seconds"};
  brim_table table = {.arena = &run->arena, .columns = 1 + sizeof head / sizeof head[0]};
  brim_text out = {0};
  brim_table_add(&table, "job");
  for (size_t i = 0; i < sweep->axis_count; i++) {
    if (sweep->axis[i].count == 1) continue;
    brim_table_add(&table, sweep->axis[i].key);
    table.columns++;
  }
  for (size_t i = 0; i < sizeof head / sizeof head[0]; i++) brim_table_add(&table, head[i]);
  for (size_t i = 0; i < sweep->jobs; i++) add_row(run, &table, i, kind);
  brim_table_print(&table, &out);
  brim_cli_print(brim_text_str(&out));
  if (!print_methods(run) && run->repeats > 1) print_repeats(run, kind);
  fflush(stdout); /* so that the table comes before the messages that follow */
  brim_text_release(&out);
}
