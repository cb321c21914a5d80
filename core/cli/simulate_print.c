#include "cli/simulate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/table.h"
#include "cli/characters.h"

#define SHORT_SECONDS 600 /* shorter times are shown with tenths of seconds */

/* ---- text ---- */

static const char *format_time(char *out, size_t room, double seconds, bool is_short)
{
  const long long whole = llround(seconds), days = whole / 86400;
  if (is_short)
    snprintf(out, room, "%.1f s", seconds);
  else if (days > 0)
    snprintf(out, room, "%lldd %lld:%02lld:%02lld", days, whole / 3600 % 24, whole / 60 % 60, whole % 60);
  else
    snprintf(out, room, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
  return out;
}

static bool is_short(const brim_simulation *s)
{
  return s->end_seconds < SHORT_SECONDS;
}

static void print_event(const brim_simulation *s, const brim_simulated *e, int width, brim_text *out)
{
  char time[32];
  const char *job = e->job < s->job_count ? s->job[e->job].name : "";
  format_time(time, sizeof time, e->time, is_short(s));
  brim_text_printf(out, "%12s  ", time);
  if (s->job_count > 1) brim_text_printf(out, "%-*s  ", width, job);
  if (job[0])
    brim_text_printf(out, "step %-7lld ", (long long)e->step);
  else
    brim_text_printf(out, "%13s", "");
  brim_text_printf(out, "%s: %s%s%s\n", e->by, e->choice, e->reason[0] ? ": " : "", e->reason);
}

static void print_timeline(const brim_simulation *s, brim_text *out)
{
  int width = 0;
  for (size_t i = 0; i < s->job_count; i++)
    if ((int)strlen(s->job[i].name) > width) width = (int)strlen(s->job[i].name);
  for (size_t i = 0; i < s->event_count; i++) print_event(s, &s->event[i], width, out);
}

static const char *const heads[] = {"",           "job",    "end",         "steps",   "time",     "waiting",
                                    "redone",     "paused", "ooms",        "retries", "plans",    "cleanups",
                                    "lost steps", "peak",   "micro-batch", "device",  "samples/s"};
#define COLUMNS (sizeof heads / sizeof heads[0])

static void add_time(brim_table *t, double seconds, bool brief)
{
  char text[32];
  brim_table_add(t, seconds > 0 ? format_time(text, sizeof text, seconds, brief) : "-");
}

static void add_count(brim_table *t, int64_t count)
{
  if (count > 0)
    brim_table_number(t, (double)count, 0);
  else
    brim_table_add(t, "-");
}

static void add_row(brim_table *t, const brim_sim_shown *shown, const brim_sim_job_result *job, bool brief)
{
  char bytes[32];
  const brim_sim_costs *c = &job->costs;
  brim_table_add(t, shown->label);
  brim_table_add(t, shown->result.job_count > 1 ? job->name : "");
  brim_table_add(t, brim_sim_end_name(job->end));
  brim_table_number(t, (double)c->steps, 0);
  add_time(t, c->wall_seconds, brief);
  add_time(t, c->waiting_seconds, brief);
  add_time(t, c->redone_seconds, brief);
  add_time(t, c->pausing_seconds, brief);
  add_count(t, c->ooms);
  add_count(t, c->retries);
  add_count(t, c->plan_changes);
  add_count(t, c->cleanups);
  add_count(t, c->lost_steps);
  brim_table_add(t, c->peak_bytes > 0 ? brim_format_bytes(bytes, sizeof bytes, c->peak_bytes) : "-");
  add_count(t, c->micro_batch);
  brim_table_add(t, c->device);
  brim_table_number(t, c->wall_seconds > 0 ? (double)c->samples / c->wall_seconds : NAN, 0);
}

/* For several simulations, prints the errors, which the timeline of a single one would show. */
static void print_failures(const brim_sim_shown *shown, brim_text *out)
{
  const brim_simulation *s = &shown->result;
  for (size_t i = 0; i < s->job_count; i++)
    if (s->job[i].error[0])
      brim_text_printf(out, "%s%s%s: %s: %s\n", shown->label, s->job_count > 1 ? " " : "",
                       s->job_count > 1 ? s->job[i].name : "", brim_sim_end_name(s->job[i].end), s->job[i].error);
}

static void print_others(const brim_sim_shown *shown, brim_text *out)
{
  char time[32];
  const brim_simulation *s = &shown->result;
  const char *lead = shown->label[0] ? shown->label : "others";
  if (s->others.waited > 0)
    brim_text_printf(out, "%s: other runs have waited %s\n", lead,
                     format_time(time, sizeof time, s->others.waited, is_short(s)));
  if (s->others.lacked > 0)
    brim_text_printf(out, "%s: programs have lacked memory for %s, %.0f %% of the time\n", lead,
                     format_time(time, sizeof time, s->others.lacked, is_short(s)),
                     100 * s->others.lacked / s->end_seconds);
}

void brim_cli_print_simulations(const brim_sim_shown *shown, size_t count, brim_text *out)
{
  if (count == 1) {
    if (shown->scenario->about[0]) brim_text_printf(out, "%s\n\n", shown->scenario->about);
    print_timeline(&shown->result, out);
    brim_text_add(out, "\n");
  }
  brim_arena arena = {0};
  brim_table table = {.arena = &arena, .columns = COLUMNS};
  bool brief = true;
  for (size_t i = 0; i < count; i++) brief = brief && is_short(&shown[i].result);
  for (size_t i = 0; i < COLUMNS; i++) brim_table_add(&table, heads[i]);
  for (size_t i = 0; i < count; i++)
    for (size_t k = 0; k < shown[i].result.job_count; k++) add_row(&table, &shown[i], &shown[i].result.job[k], brief);
  brim_table_print(&table, out);
  brim_arena_release(&arena);
  for (size_t i = 0; i < count && count > 1; i++) print_failures(&shown[i], out);
  for (size_t i = 0; i < count; i++) print_others(&shown[i], out);
}

/* ---- JSON ---- */

/* Makes JSON from texts of policies and file names, after making them valid UTF-8. */
static json_t *text_json(const char *s)
{
  brim_text bytes = {0}, text = {0};
  brim_text_add(&bytes, s);
  brim_characters_take(&bytes, true, &text);
  json_t *json = json_string(brim_text_str(&text));
  brim_text_release(&bytes);
  brim_text_release(&text);
  return json;
}

static json_t *event_json(const brim_simulation *s, const brim_simulated *e)
{
  const bool of_job = e->job < s->job_count;
  return json_pack("{s:f, s:o, s:o, s:o, s:o, s:o}", "seconds", e->time, "job",
                   of_job ? json_string(s->job[e->job].name) : json_null(), "step",
                   of_job ? json_integer(e->step) : json_null(), "by", text_json(e->by), "choice", text_json(e->choice),
                   "reason", text_json(e->reason));
}

static json_t *job_json(const brim_sim_job_result *job)
{
  const brim_sim_costs *c = &job->costs;
  json_t *all = json_pack("{s:s, s:s, s:o, s:s}", "job", job->name, "end", brim_sim_end_name(job->end), "error",
                          text_json(job->error), "device", c->device);
  json_t *times =
             json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "wall_seconds", c->wall_seconds, "waiting_seconds",
                       c->waiting_seconds, "training_seconds", c->training_seconds, "redone_seconds", c->redone_seconds,
                       "recompute_seconds", c->again_seconds, "paused_seconds", c->pausing_seconds),
         *counts = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "steps", (json_int_t)c->steps,
                             "steps_all", (json_int_t)c->steps_all, "samples", (json_int_t)c->samples, "lost_steps",
                             (json_int_t)c->lost_steps, "ooms", (json_int_t)c->ooms, "retries", (json_int_t)c->retries,
                             "plan_changes", (json_int_t)c->plan_changes, "cleanups", (json_int_t)c->cleanups,
                             "decisions", (json_int_t)c->decided, "peak_bytes", (json_int_t)c->peak_bytes, "batch_size",
                             (json_int_t)c->micro_batch);
  json_object_update(all, counts);
  json_object_update(all, times);
  json_decref(times);
  json_decref(counts);
  json_object_set_new(all, "samples_per_second",
                      c->wall_seconds > 0 ? json_real((double)c->samples / c->wall_seconds) : json_null());
  return all;
}

static json_t *case_json(const brim_sim_shown *shown)
{
  const brim_simulation *s = &shown->result;
  json_t *words = json_array(), *policies = json_array(), *jobs = json_array(), *timeline = json_array();
  for (size_t i = 0; i < shown->words; i++)
    if (shown->word[i][0]) json_array_append_new(words, text_json(shown->word[i]));
  for (size_t i = 0; i < s->policy_count; i++) json_array_append_new(policies, json_string(s->policy[i]));
  for (size_t i = 0; i < s->job_count; i++) json_array_append_new(jobs, job_json(&s->job[i]));
  for (size_t i = 0; i < s->event_count; i++) json_array_append_new(timeline, event_json(s, &s->event[i]));
  return json_pack("{s:o, s:s, s:o, s:o, s:f, s:I, s:{s:f, s:f}, s:o, s:o}", "scenario",
                   text_json(shown->scenario->file), "about", shown->scenario->about, "words", words, "policies",
                   policies, "end_seconds", s->end_seconds, "questions", (json_int_t)s->questions, "others",
                   "waited_seconds", s->others.waited, "lacked_seconds", s->others.lacked, "jobs", jobs, "timeline",
                   timeline);
}

json_t *brim_cli_simulations_json(const brim_sim_shown *shown, size_t count)
{
  json_t *cases = json_array();
  for (size_t i = 0; i < count; i++) json_array_append_new(cases, case_json(&shown[i]));
  return json_pack("{s:o}", "simulations", cases);
}
