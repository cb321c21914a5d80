/* brim doctor: checks whether this machine is ready for runs, and names remedies for problems. It changes nothing. Each
 * check adds findings; none ends the others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/doctor/doctor.h"

#define JOB_SECONDS 2
#define JOB_SECONDS_MAX 3600
#define AREA_WIDTH 14

static const struct {
  const char *name, *mark;
} levels[] = {[BRIM_FINDING_OK] = {"ok", "ok"},
              [BRIM_FINDING_NOTE] = {"note", "note"},
              [BRIM_FINDING_WARNING] = {"warning", "warn"},
              [BRIM_FINDING_PROBLEM] = {"problem", "FAIL"}};

static void (*const checks[])(brim_doctor *d) = {brim_doctor_plugins, brim_doctor_configuration, brim_doctor_devices,
                                                 brim_doctor_run,     brim_doctor_ranks,         brim_doctor_shared,
                                                 brim_doctor_runs,    brim_doctor_cache,         brim_doctor_memory,
                                                 brim_doctor_limits,  brim_doctor_environment,   brim_doctor_terminal};

static size_t count_of(const brim_doctor *d, enum brim_finding_level level)
{
  size_t count = 0;
  for (size_t i = 0; i < d->count; i++) count += d->finding[i].level == level;
  return count;
}

/* ---- printing ---- */

/* Adds a text, and indents its further lines like the first. */
static void add_lines(brim_text *out, const char *text, const char *first, const char *indent)
{
  const char *lead = first;
  for (const char *at = text; *at;) {
    at += strspn(at, " ");
    const size_t length = strcspn(at, "\n");
    brim_text line = {0};
    brim_text_add_n(&line, at, length);
    brim_text_printf(out, "%s%s\n", lead, brim_text_str(&line));
    brim_text_release(&line);
    at += length + (at[length] == '\n');
    lead = indent;
  }
}

static void print_text(const brim_doctor *d, bool brief)
{
  static const char indent[] = "                    ", arrow[] = "                 -> ";
  brim_text out = {0};
  for (size_t i = 0; i < d->count; i++) {
    const brim_finding *f = &d->finding[i];
    char first[64];
    if (brief && f->level < BRIM_FINDING_WARNING) continue;
    snprintf(first, sizeof first, "%-4s  %-*s", levels[f->level].mark, AREA_WIDTH, f->area);
    add_lines(&out, f->text, first, indent);
    if (f->remedy) add_lines(&out, f->remedy, arrow, indent);
  }
  brim_cli_print(brim_text_str(&out));
  brim_text_release(&out);
}

static brim_status print_json(const brim_doctor *d)
{
  json_t *list = json_array();
  for (size_t i = 0; i < d->count; i++) {
    const brim_finding *f = &d->finding[i];
    json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:o}", "area", f->area, "level", levels[f->level].name,
                                          "text", f->text, "remedy", f->remedy ? json_string(f->remedy) : json_null()));
  }
  return brim_cli_print_json(json_pack("{s:i, s:s, s:o, s:I, s:I}", "brim_doctor", 1, "version", BRIM_VERSION,
                                       "findings", list, "problems", (json_int_t)count_of(d, BRIM_FINDING_PROBLEM),
                                       "warnings", (json_int_t)count_of(d, BRIM_FINDING_WARNING)));
}

/* Returns an exit status, which tells scripts whether runs can work here. */
static brim_status sum_up(const brim_doctor *d)
{
  const size_t problems = count_of(d, BRIM_FINDING_PROBLEM), warnings = count_of(d, BRIM_FINDING_WARNING);
  if (problems == 0) {
    if (warnings > 0) brim_log(BRIM_LOG_INFO, "%zu warning%s", warnings, brim_plural((int64_t)warnings));
    return BRIM_OK;
  }
  return brim_fail(BRIM_ELOAD, "%zu problem%s and %zu warning%s", problems, brim_plural((int64_t)problems), warnings,
                   brim_plural((int64_t)warnings));
}

/* ---- the command ---- */

typedef struct wishes {
  bool json, brief;
  const char *job_seconds;
} wishes;

static const brim_option options[] = {
    {"--json", BRIM_CLI_FLAG(wishes, json), NULL, "print JSON, for programs"},
    {"--brief", BRIM_CLI_FLAG(wishes, brief), NULL, "print only warnings and problems"},
    {"--job-seconds", BRIM_CLI_STRING(wishes, job_seconds), "N",
     "limit for a job of two ranks (default: 2); 0: start none"},
    {NULL},
};

static int run_command(brim_cli *cli, int argc, char **argv)
{
  wishes wish = {0};
  brim_operands words;
  int64_t seconds = JOB_SECONDS;
  brim_doctor d = {.cli = cli, .words = &words};
  brim_status status = brim_cli_parse(argc, argv, options, &wish, &words);
  if (status == BRIM_OK)
    status = brim_cli_whole_number("--job-seconds", wish.job_seconds, 0, JOB_SECONDS_MAX, &seconds);
  if (status == BRIM_OK) {
    d.job_seconds = (double)seconds;
    brim_cli_hush(d.cli, true);
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) checks[i](&d);
    brim_cli_hush(d.cli, false);
    if (wish.json)
      status = print_json(&d);
    else
      print_text(&d, wish.brief);
    const brim_status found = sum_up(&d);
    if (status == BRIM_OK) status = found;
  }
  brim_config_free(d.config);
  free(d.finding);
  brim_arena_release(&d.arena);
  return brim_cli_end(status, &words);
}

const brim_command brim_command_doctor = {
    "doctor", "check whether this machine is ready for runs", run_command,
    "usage: brim doctor [group=option | key=value]... [--brief] [--job-seconds N] [--json]\n"
    "\n"
    "  brim doctor                            check this machine for the default configuration\n"
    "  brim doctor backend=cuda dataset=cifar10    for another one\n"
    "  brim doctor --brief                    print only warnings and problems\n"
    "\n"
    "Checks plugins, configuration, devices with their drivers and libraries, data and memory of the run, MPI and "
    "NCCL\n"
    "by a job of two ranks that trains one step, the shared folder, the folder of runs with its locks and disk space,\n"
    "the cache with the device profiles, memory and control groups, limits of the process, environment and terminal.\n"
    "Each problem has a remedy. brim doctor writes only temporary files. The exit status is 0 if there is no problem, "
    "else "
    "3;\n"
    "warnings and notes do not count.\n",
    options};
