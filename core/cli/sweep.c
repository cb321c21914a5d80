/* Runs a sweep: expands the words; loads every job's configuration, so that mistakes are reported at once and not after
 * hours; makes the folder; runs the jobs as child processes; prints the results.
 *
 * A job is this program with the same words, each sweep replaced by one value, and `run.dir` set to the job's folder.
 * Options of the sweep itself are replaced by --job, so that the argument numbers in messages are those of the line
 * that the user typed. With `repeats`, each job runs with several seeds, through added words. */
#include "cli/sweep.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "config/compose.h"
#include "store/rundir.h"

#define LEFT_SHOWN_MAX 20 /* jobs listed after an interruption */

/* ---- expansion ---- */

static bool group_options(void *context, const char *group, const char *const **option, size_t *count)
{
  const brim_composition *c = context;
  const char **name = NULL;
  if (!brim_compose_is_group(c, group)) return false;
  *count = brim_compose_options(c, group, &name);
  *option = name;
  return true;
}

/* Loads a job's configuration from the words expanded so far. */
static brim_status load_job(const brim_cli *cli, const brim_sweep_words_given *given, const brim_sweep *sweep,
                            size_t job, brim_config **config)
{
  const size_t count = sweep->axis_count;
  const char **word = brim_xcalloc(count + 1, sizeof *word);
  int *number = brim_xcalloc(count + 1, sizeof *number);
  const size_t first = given->from_file != NULL; /* skips the word that clears the old run's folder */
  word[0] = "run.dir=";
  brim_sweep_words(sweep, job, word + first);
  for (size_t i = 0; i < count; i++)
    number[first + i] = i < given->count ? given->number[i] : given->argc + (int)(i - given->count);
  const brim_status status = brim_cli_config(cli, given->from_file, word, number, count + first, config);
  free(word);
  free(number);
  return status;
}

/* Reads `repeats` from the first job's configuration. If that is invalid, the error is reported with those of the other
 * jobs. */
static void repeat(const brim_cli *cli, const brim_sweep_words_given *given, brim_problems *problems,
                   brim_sweep_run *run)
{
  brim_config *config = NULL;
  brim_cli_hush(cli, true);
  const brim_status status = load_job(cli, given, &run->sweep, 0, &config);
  brim_cli_hush(cli, false);
  run->repeats = status == BRIM_OK ? config->settings.repeats : 1;
  brim_sweep_repeat(&run->arena, config ? config->settings.seed : 0, run->repeats, problems, &run->sweep);
  brim_config_free(config);
}

static brim_status expand(const brim_cli *cli, const brim_sweep_words_given *given, brim_sweep_run *run)
{
  brim_cli_search search;
  brim_cli_search_path(cli, &search);
  const brim_config_request request = {.search = search.folder, .search_count = search.count};
  brim_composition c = {.arena = &run->arena, .request = &request, .registry = cli->registry};
  const brim_sweep_groups groups = {group_options, &c};
  brim_problems problems = {.arena = &run->arena};
  brim_sweep_expand(&run->arena, given->operand, given->number, given->count, &groups, &problems, &run->sweep);
  BRIM_TRY(brim_problems_status(&problems));
  repeat(cli, given, &problems, run);
  BRIM_TRY(brim_problems_status(&problems));
  run->job = BRIM_ARENA_NEW(&run->arena, brim_sweep_job, run->sweep.jobs);
  for (size_t i = 0; i < run->sweep.jobs; i++) brim_summary_read("", &run->job[i].summary);
  return BRIM_OK;
}

/* ---- configurations ---- */

/* Loads a job's configuration; its run.dir names the sweep's folder. */
static brim_status check_job(const brim_cli *cli, const brim_sweep_words_given *given, const brim_sweep_run *run,
                             size_t job, char *dir, size_t room)
{
  brim_config *config = NULL;
  brim_status status = load_job(cli, given, &run->sweep, job, &config);
  /* Only options that the first job lacks can have set `repeats`. */
  if (status == BRIM_OK && config->settings.repeats > 1)
    status = brim_fail(BRIM_ECONFIG,
                       "'repeats' is %lld here and 1 in job 0\n"
                       "to repeat all jobs, write repeats=N on the command line",
                       (long long)config->settings.repeats);
  if (config) snprintf(dir, room, "%s", config->settings.run.dir);
  brim_config_free(config);
  return status;
}

static void report_failure(brim_sweep_run *run, size_t i, const char *why)
{
  const brim_sweep_job *job = &run->job[i];
  if (job->state == BRIM_JOB_KILLED)
    brim_log(BRIM_LOG_ERROR, "job %zu was killed by %s (%s): %s%s", i, brim_sweep_signal_name(run, job->end.signal),
             strsignal(job->end.signal), brim_sweep_label(run, i), why);
  else
    brim_log(BRIM_LOG_ERROR, "job %zu failed with exit status %d: %s%s", i, job->end.exit_status,
             brim_sweep_label(run, i), why);
}

/* Rejects jobs with an invalid configuration. If all are invalid, the first one's problems are the error. */
static brim_status check_jobs(const brim_cli *cli, const brim_sweep_words_given *given, brim_sweep_run *run, char *dir,
                              size_t room)
{
  const size_t jobs = run->sweep.jobs;
  const char **why = BRIM_ARENA_NEW(&run->arena, const char *, jobs);
  size_t good = 0;
  brim_status first = BRIM_OK;
  for (size_t i = 0; i < jobs; i++) {
    char job_dir[4096] = "";
    const brim_status status = check_job(cli, given, run, i, job_dir, sizeof job_dir);
    if (status == BRIM_OK && good++ == 0) snprintf(dir, room, "%s", job_dir);
    if (status == BRIM_OK) continue;
    if (first == BRIM_OK) first = status;
    why[i] = brim_arena_string(&run->arena, brim_error_text());
    run->job[i].state = BRIM_JOB_FAILED;
    run->job[i].refused = true;
    run->job[i].end.exit_status = brim_status_exit(status);
    snprintf(run->job[i].summary.error, sizeof run->job[i].summary.error, "%s", why[i]);
  }
  if (good == 0) return brim_fail(first, "%s", why[0]);
  for (size_t i = 0; i < jobs; i++)
    if (why[i]) report_failure(run, i, brim_arena_printf(&run->arena, "\n%s", why[i]));
  return BRIM_OK;
}

/* ---- the folder ---- */

static brim_status make_folder(brim_sweep_run *run, const char *dir)
{
  if (dir[0]) {
    BRIM_TRY(brim_run_check_dir(dir));
    snprintf(run->folder, sizeof run->folder, "%s", dir);
    static const char *const marks[] = {"sweep.json", "config.yaml"};
    char path[4200];
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
      snprintf(path, sizeof path, "%s/%s", run->folder, marks[i]);
      if (access(path, F_OK) == 0)
        return brim_fail(BRIM_ECONFIG, "'%s' holds a %s already (it has %s)\nfor a new sweep: another run.dir, or none",
                         run->folder, i == 0 ? "sweep" : "run", marks[i]);
    }
    return brim_make_folders(run->folder);
  }
  BRIM_TRY(brim_make_folders("multirun"));
  return brim_make_stamped_folder("multirun/", run->folder, sizeof run->folder);
}

/* ---- a job ---- */

/* Makes run.dir as a quoted value, for paths with any characters. */
static const char *folder_word(brim_sweep_run *run, size_t job)
{
  brim_text text = {0};
  brim_text_add(&text, "run.dir='");
  for (const char *s = run->folder; *s; s++) brim_text_add_n(&text, *s == '\'' ? "''" : s, *s == '\'' ? 2 : 1);
  brim_text_printf(&text, "/%zu'", job);
  const char *out = brim_arena_string(&run->arena, brim_text_str(&text));
  brim_text_release(&text);
  return out;
}

static bool is_of_the_sweep(const char *word)
{
  return strcmp(word, "-m") == 0 || strcmp(word, "--multirun") == 0 || strcmp(word, "--fail-fast") == 0;
}

/* Makes the words of a job, ended by NULL: the typed ones, those added for repeats, and the job's folder. */
static const char **job_words(const brim_cli *cli, const brim_sweep_words_given *given, brim_sweep_run *run, size_t job)
{
  const size_t count = run->sweep.axis_count, added = count - given->count;
  const char **out = BRIM_ARENA_NEW(&run->arena, const char *, BRIM_CLI_GLOBAL_WORDS + given->argc + added + 3);
  const char **word = BRIM_ARENA_NEW(&run->arena, const char *, count + 1);
  brim_sweep_words(&run->sweep, job, word);
  size_t n = 1 + brim_cli_global_words(cli, out + 1), next = 0;
  out[0] = "brim";
  for (int i = 0; i < given->argc; i++) {
    if (next < given->count && given->number[next] == i)
      out[n++] = word[next++];
    else
      out[n++] = is_of_the_sweep(given->argv[i]) ? "--job" : given->argv[i];
  }
  while (next < count) out[n++] = word[next++];
  out[n] = folder_word(run, job);
  return out;
}

/* Exit status 0 alone does not prove that a run finished, because a plugin can end the process with it. */
static const char *check_finished(brim_sweep_job *job)
{
  if (job->end.exit_status != 0 || strcmp(job->summary.status, "finished") == 0) return "";
  job->end.exit_status = brim_status_exit(BRIM_EPLUGIN);
  snprintf(job->summary.error, sizeof job->summary.error,
           "its process ended with exit status 0 before the run was finished: does a plugin call _exit()?");
  return job->summary.error;
}

static void take_end(brim_sweep_run *run, size_t i)
{
  brim_sweep_job *job = &run->job[i];
  const bool stopped = brim_jobs_stop_signal() != 0;
  char dir[4200];
  snprintf(dir, sizeof dir, "%s/%zu", run->folder, i);
  brim_summary_read(dir, &job->summary);
  const char *why = check_finished(job);
  if (job->end.exit_status == 0)
    job->state = BRIM_JOB_FINISHED;
  else if (job->end.exit_status == brim_status_exit(BRIM_EINTERRUPTED) || (stopped && job->end.signal))
    job->state = BRIM_JOB_INTERRUPTED;
  else
    job->state = job->end.signal ? BRIM_JOB_KILLED : BRIM_JOB_FAILED;
  if (job->state == BRIM_JOB_FAILED || job->state == BRIM_JOB_KILLED)
    report_failure(run, i, why[0] ? brim_arena_printf(&run->arena, "\n%s", why) : "");
}

static brim_status run_jobs(const brim_cli *cli, const brim_sweep_words_given *given, brim_sweep_run *run)
{
  const size_t jobs = run->sweep.jobs;
  for (size_t i = 0; i < jobs && !brim_jobs_stop_signal(); i++) {
    brim_sweep_job *job = &run->job[i];
    if (!job->refused) {
      brim_log(BRIM_LOG_INFO, "[%zu/%zu] job %zu: %s", i + 1, jobs, i, brim_sweep_label(run, i));
      const brim_status status = brim_job_run(job_words(cli, given, run, i), &job->end);
      if (status == BRIM_EINTERRUPTED) return BRIM_OK;
      BRIM_TRY(status);
      take_end(run, i);
      if (brim_sweep_write(run) != BRIM_OK) brim_log(BRIM_LOG_WARN, "%s", brim_error_text());
    }
    if (given->fail_fast && job->state != BRIM_JOB_FINISHED) return BRIM_OK;
  }
  return BRIM_OK;
}

/* ---- the end ---- */

static size_t count_state(const brim_sweep_run *run, enum brim_job_state state)
{
  size_t count = 0;
  for (size_t i = 0; i < run->sweep.jobs; i++) count += run->job[i].state == state;
  return count;
}

/* Whether a job is left to do: it was not started, or was stopped before it had a checkpoint to resume from. */
static bool is_left(const brim_sweep_job *job)
{
  return job->state == BRIM_JOB_WAITING || (job->state == BRIM_JOB_INTERRUPTED && job->end.signal != 0);
}

static void log_jobs_left(brim_sweep_run *run)
{
  size_t left = 0;
  brim_text text = {0};
  for (size_t i = 0; i < run->sweep.jobs; i++) {
    const bool is = is_left(&run->job[i]);
    if (run->job[i].state == BRIM_JOB_INTERRUPTED && !is) {
      char folder[BRIM_PATH_MAX], name[32];
      snprintf(name, sizeof name, "%zu", i);
      if (brim_path_join(folder, run->folder, name) == BRIM_OK)
        brim_text_printf(&text, "\nresume job %zu with: %s %s", i, brim_run_resume_words(folder), BRIM_QUOTED(folder));
    }
    if (is && left++ < LEFT_SHOWN_MAX) brim_text_printf(&text, "\nleft: job %zu: %s", i, brim_sweep_label(run, i));
  }
  if (left > LEFT_SHOWN_MAX)
    brim_text_printf(&text, "\nand %zu more, in %s/sweep.json", left - LEFT_SHOWN_MAX, run->folder);
  brim_log(BRIM_LOG_WARN, "the sweep was %s; %zu of %zu jobs %s left%s",
           brim_jobs_stop_signal() ? "interrupted" : "ended by a failure (--fail-fast)", left, run->sweep.jobs,
           left == 1 ? "is" : "are", brim_text_str(&text));
  brim_text_release(&text);
}

static brim_status finish(brim_sweep_run *run)
{
  const brim_status status = brim_sweep_write(run);
  brim_sweep_print(run); /* also if the file could not be written, for example on a full disk */
  if (brim_jobs_stop_signal() || count_state(run, BRIM_JOB_WAITING)) log_jobs_left(run);
  char time[32];
  brim_text text = {0};
  for (int state = BRIM_JOB_FINISHED; state <= BRIM_JOB_INTERRUPTED; state++) {
    const size_t count = count_state(run, (enum brim_job_state)state);
    if (count)
      brim_text_printf(&text, "%s%zu %s", text.length ? ", " : "", count,
                       brim_sweep_state_name((enum brim_job_state)state));
  }
  brim_say("%zu job%s in %s: %s; results in %s", run->sweep.jobs, brim_plural((int64_t)run->sweep.jobs),
           brim_format_seconds(time, sizeof time, brim_now() - run->start), brim_text_str(&text), run->folder);
  brim_text_release(&text);
  return status;
}

static brim_status sweep(brim_cli *cli, const brim_sweep_words_given *given, brim_sweep_run *run)
{
  char dir[4096] = "";
  BRIM_TRY(expand(cli, given, run));
  BRIM_TRY(check_jobs(cli, given, run, dir, sizeof dir));
  BRIM_TRY(make_folder(run, dir));
  BRIM_TRY(brim_sweep_write(run));
  brim_jobs_begin();
  const bool start = !given->fail_fast || count_state(run, BRIM_JOB_FAILED) == 0;
  brim_status status = start ? run_jobs(cli, given, run) : BRIM_OK;
  if (status == BRIM_OK) status = finish(run);
  brim_jobs_end();
  return status;
}

int brim_cli_sweep(brim_cli *cli, const brim_sweep_words_given *given)
{
  brim_sweep_run run = {.start = cli->start};
  const brim_status status = sweep(cli, given, &run);
  const int exit_status = status == BRIM_OK ? brim_sweep_exit_status(&run) : brim_cli_fail(status);
  brim_arena_release(&run.arena);
  return exit_status;
}
