/* brim simulate: runs policies in a scripted world. See simulate/simulate.h. */
#include "cli/simulate.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "cli/run_folder.h"
#include "config/compose.h"
#include "config/sweep.h"
#include "simulate/recording.h"
#include "store/rundir.h"

#define SCENARIO "scenario="
#define FOLDER "scenario"

typedef struct command {
  brim_cli *cli;
  const char *run, *file; /* run: the run to record; file: the output file; NULL: not given */
  bool json, keys, force;
  brim_operands operands;
  brim_sweep sweep;
  brim_sim_shown *shown;
  size_t count;     /* number of simulated combinations */
  double simulated; /* seconds of simulated time */
} command;

/* ---- scenarios by name ---- */

/* The folders to search for scenarios, besides those of the groups. The struct must not be copied. */
typedef struct names {
  brim_cli_search search;
  brim_config_request request;
  brim_composition composition;
} names;

static void find_names(const brim_cli *cli, brim_arena *arena, names *out)
{
  *out = (names){.composition = {.arena = arena, .registry = cli->registry}};
  brim_cli_search_path(cli, &out->search);
  out->request = (brim_config_request){.search = out->search.folder, .search_count = out->search.count};
  out->composition.request = &out->request;
}

void brim_cli_list_scenarios(const brim_cli *cli, brim_arena *arena, const char ***name, size_t *count)
{
  names all;
  find_names(cli, arena, &all);
  *count = brim_compose_options(&all.composition, FOLDER, name);
}

static brim_status unknown_scenario(command *c, const char *written)
{
  const char **name = NULL;
  size_t count = 0;
  brim_text all = {0};
  brim_cli_list_scenarios(c->cli, &c->operands.arena, &name, &count);
  const char *best = brim_suggest_of(written, name, count);
  for (size_t i = 0; i < count; i++) brim_text_printf(&all, "%s%s", i ? ", " : "", name[i]);
  if (written[0])
    (void)brim_fail(BRIM_ECONFIG, "there is no scenario '%s', nor a file of that name", written);
  else
    (void)brim_fail(BRIM_ECONFIG, "no scenario is given: write scenario=NAME or scenario=FILE");
  if (best) (void)brim_fail_add(BRIM_ECONFIG, "did you mean '%s'?", best);
  (void)brim_fail_add(BRIM_ECONFIG, "there are: %s", brim_text_str(&all));
  brim_text_release(&all);
  return BRIM_ECONFIG;
}

/* A name is searched in the folders of configurations; a word with '/' or ending in .yaml is a file. */
static brim_status read_scenario(command *c, const char *written, brim_scenario **out)
{
  names all;
  if (strchr(written, '/') || brim_ends_with(written, ".yaml")) return brim_scenario_read(written, out);
  find_names(c->cli, &c->operands.arena, &all);
  const char *path = brim_compose_option_file(&all.composition, FOLDER, written);
  return path ? brim_scenario_read(path, out) : unknown_scenario(c, written);
}

/* ---- words ---- */

/* Lists the options of a group; scenarios count as a group. */
static bool group_options(void *context, const char *group, const char *const **option, size_t *count)
{
  const brim_composition *all = context;
  const char **name = NULL;
  if (strcmp(group, FOLDER) != 0 && !brim_compose_is_group(all, group)) return false;
  *count = brim_compose_options(all, group, &name);
  *option = name;
  return true;
}

/* Rejects words that set a scenario's key, because they must not be added to a configuration. */
static brim_status check_keys(command *c, const names *all)
{
  for (size_t i = 0; i < c->operands.count; i++) {
    const char *word = c->operands.word[i];
    const char *key = brim_arena_string_n(&c->operands.arena, word, strcspn(word, ".="));
    if (!brim_scenario_has_key(key) || brim_compose_is_group(&all->composition, key)) continue;
    return brim_fail(BRIM_ECONFIG,
                     "'%s' is a key of scenarios: only their files can set it\n  command line, argument %d: %s\n"
                     "  to change it, edit a copy of the file: scenario=FILE.yaml",
                     key, c->operands.number[i], word);
  }
  return BRIM_OK;
}

/* Returns the words that differ between combinations: "policy=robust max_retries=1"; if only policies differ, just
 * "robust". */
static const char *label_of(command *c, const char *const *word)
{
  size_t swept = 0;
  brim_text text = {0};
  for (size_t i = 0; i < c->sweep.axis_count; i++) swept += c->sweep.axis[i].count > 1;
  for (size_t i = 0; i < c->sweep.axis_count; i++) {
    if (c->sweep.axis[i].count == 1 || !word[i][0]) continue;
    const char *value = strchr(word[i], '=');
    brim_text_printf(&text, "%s%s", text.length ? " " : "", swept == 1 && value ? value + 1 : word[i]);
  }
  const char *label = brim_arena_string(&c->operands.arena, brim_text_str(&text));
  brim_text_release(&text);
  return label;
}

/* Whether a word names a policy: "policy=[capped,robust]" names robust. */
static bool names_policy(const char *word, const char *id, size_t length)
{
  const char *at = strchr(word, '=');
  for (at = at ? at + 1 : ""; *at; at += strcspn(at, "[], ")) {
    at += strspn(at, "[], ");
    if (strcspn(at, "[], ") == length && strncmp(at, id, length) == 0) return true;
  }
  return false;
}

/* Whether the word sets a parameter of a policy that only other combinations use: policy=fixed,mine
 * policy.mine.share=0.5. */
static bool is_of_another(const command *c, const char *const *word_of, const char *word)
{
  static const char policy[] = "policy.";
  if (!brim_starts_with(word, policy)) return false;
  const char *id = word + strlen(policy);
  const size_t length = strcspn(id, ".=");
  bool others = false;
  for (size_t i = 0; i < c->sweep.axis_count; i++) {
    const brim_sweep_axis *axis = &c->sweep.axis[i];
    if (strcmp(axis->key, "policy") != 0) continue;
    if (names_policy(word_of[i], id, length)) return false;
    for (size_t k = 0; k < axis->count; k++) others = others || names_policy(axis->choice[k], id, length);
  }
  return others;
}

/* Returns whether the word of a scenario, which all policies share, belongs to a policy that is not in the list. */
static bool is_unlisted(const char *const *set, size_t count, const brim_sim_shown *shown, const char *word)
{
  static const char policy[] = "policy.", list[] = "policy=";
  if (!brim_starts_with(word, policy)) return false;
  const char *id = word + strlen(policy);
  bool listed = false;
  for (size_t i = 0; i < count + shown->words; i++) {
    const char *other = i < count ? set[i] : shown->word[i - count];
    if (!brim_starts_with(other, list)) continue;
    if (names_policy(other, id, strcspn(id, ".="))) return false;
    listed = true;
  }
  return listed;
}

/* The words in order: the scenario's settings, the job's, the command line's. */
typedef struct line {
  const char **word;
  int *number;
  size_t count;
} line;

static void add_word(line *l, const char *word, int number)
{
  l->word[l->count] = word;
  l->number[l->count++] = number;
}

static line make_line(command *c, const brim_sim_shown *shown, const brim_scene_job *job)
{
  brim_arena *arena = &c->operands.arena;
  const char *set[2 * BRIM_SCENE_SETTINGS_MAX];
  const size_t room = 1 + sizeof set / sizeof set[0] + shown->words;
  line l = {BRIM_ARENA_NEW(arena, const char *, room), BRIM_ARENA_NEW(arena, int, room), 0};
  size_t count = brim_scenario_words(arena, shown->scenario->settings, set, BRIM_SCENE_SETTINGS_MAX);
  count += brim_scenario_words(arena, job->settings, set + count, BRIM_SCENE_SETTINGS_MAX);
  add_word(&l, "backend=cpu", 0); /* no search for GPUs */
  for (size_t i = 0; i < count; i++)
    if (!is_unlisted(set, count, shown, set[i])) add_word(&l, set[i], 0);
  for (size_t i = 0; i < shown->words; i++)
    if (shown->word[i][0] && !brim_starts_with(shown->word[i], SCENARIO))
      add_word(&l, shown->word[i], c->operands.number[i]);
  return l;
}

/* A word from the scenario is reported with its place there. */
static void add_with_origins(command *c, const brim_yaml *settings, const char *error, brim_text *out)
{
  static const char prefix[] = "brim's choice: ";
  const char *word[BRIM_SCENE_SETTINGS_MAX];
  const size_t count = brim_scenario_words(&c->operands.arena, settings, word, BRIM_SCENE_SETTINGS_MAX);
  for (const char *at; (at = strstr(error, prefix)) != NULL;) {
    const char *written = at + strlen(prefix);
    size_t i = 0;
    while (i < count && !brim_starts_with(written, word[i])) i++;
    brim_text_add_n(out, error, (size_t)(at - error));
    if (i < count) {
      const brim_yaml_origin origin = brim_yaml_key_origin(settings->item[i]);
      brim_yaml_print_origin(&origin, out);
      brim_text_add(out, ": ");
    } else {
      brim_text_add(out, prefix);
    }
    error = written;
  }
  brim_text_add(out, error);
}

static brim_status add_origins(command *c, const brim_sim_shown *shown, const brim_scene_job *job, brim_status status)
{
  brim_text first = {0}, second = {0};
  add_with_origins(c, job->settings, brim_error_text(), &first);
  add_with_origins(c, shown->scenario->settings, brim_text_str(&first), &second);
  (void)brim_fail(status, "%s", brim_text_str(&second));
  brim_text_release(&first);
  brim_text_release(&second);
  return status;
}

static brim_status load(command *c, const brim_sim_shown *shown, size_t job, brim_config **out)
{
  const brim_scene_job *settings = &shown->scenario->job[job];
  const line l = make_line(c, shown, settings);
  const brim_status status = brim_cli_config(c->cli, NULL, l.word, l.number, l.count, out);
  return status == BRIM_ECONFIG ? add_origins(c, shown, settings, status) : status;
}

/* ---- simulating ---- */

/* Whether the command line names a model or data, so that plans must be real ones. */
static bool names_model(const brim_sim_shown *shown)
{
  for (size_t i = 0; i < shown->words; i++)
    if (brim_starts_with(shown->word[i], "model=") || brim_starts_with(shown->word[i], "dataset=")) return true;
  return false;
}

/* Loads the configuration for real plans, without devices of this machine and without policies. */
static brim_status load_real_plans(command *c, const brim_sim_shown *shown, brim_config **out)
{
  static const char *const own[] = {"policy=fixed", "device=auto", "wait_for_gpu=false"};
  brim_arena *arena = &c->operands.arena;
  const line whole = make_line(c, shown, &shown->scenario->job[0]);
  const size_t room = whole.count + sizeof own / sizeof own[0];
  line l = {BRIM_ARENA_NEW(arena, const char *, room), BRIM_ARENA_NEW(arena, int, room), 0};
  for (size_t i = 0; i < whole.count; i++)
    if (!brim_starts_with(whole.word[i] + strspn(whole.word[i], "+~"), "policy"))
      add_word(&l, whole.word[i], whole.number[i]);
  for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) add_word(&l, own[i], 0);
  return brim_cli_config(c->cli, NULL, l.word, l.number, l.count, out);
}

static brim_status open_real_plans(command *c, const brim_sim_shown *shown, brim_config **config, brim_real_plans **out)
{
  if (!names_model(shown)) return BRIM_OK;
  BRIM_TRY(load_real_plans(c, shown, config));
  return brim_real_plans_open(*config, out);
}

static const char *scenario_of(const brim_sim_shown *shown)
{
  const char *written = "";
  for (size_t i = 0; i < shown->words; i++)
    if (brim_starts_with(shown->word[i], SCENARIO)) written = shown->word[i] + strlen(SCENARIO);
  return written;
}

/* Returns the words of a combination; a word that does not apply to it is "". */
static const char *const *words_of(const command *c, brim_arena *arena, size_t combination)
{
  const char **word = BRIM_ARENA_NEW(arena, const char *, c->sweep.axis_count + 1);
  brim_sweep_words(&c->sweep, combination, word);
  for (size_t i = 0; i < c->sweep.axis_count; i++)
    if (is_of_another(c, word, word[i])) word[i] = "";
  return word;
}

/* Whether a combination is listed already: policy=fixed,mine policy.mine.share=0.5,1 simulates `fixed` only once. */
static bool is_there(const command *c, const char *const *word)
{
  for (size_t i = 0; i < c->count; i++) {
    size_t k = 0;
    while (k < c->sweep.axis_count && strcmp(c->shown[i].word[k], word[k]) == 0) k++;
    if (k == c->sweep.axis_count) return true;
  }
  return false;
}

static brim_status simulate_one(command *c, size_t combination)
{
  brim_scenario *scenario = NULL;
  brim_sim_shown *shown = &c->shown[c->count];
  const char *const *word = words_of(c, &c->operands.arena, combination);
  if (is_there(c, word)) return BRIM_OK;
  *shown = (brim_sim_shown){.label = label_of(c, word), .word = word, .words = c->sweep.axis_count};
  BRIM_TRY(read_scenario(c, scenario_of(shown), &scenario));
  shown->scenario = scenario;
  c->count++;
  brim_config *config[BRIM_SCENE_JOBS_MAX] = {NULL}, *planned = NULL;
  brim_real_plans *real = NULL;
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < shown->scenario->job_count && status == BRIM_OK; i++) status = load(c, shown, i, &config[i]);
  const double start = brim_now();
  brim_cli_hush(c->cli, true);
  if (status == BRIM_OK) status = open_real_plans(c, shown, &planned, &real);
  if (status == BRIM_OK) status = brim_simulate(shown->scenario, config, real, &shown->result);
  brim_cli_hush(c->cli, false);
  brim_real_plans_close(real);
  brim_config_free(planned);
  c->simulated += brim_now() - start;
  for (size_t i = 0; i < shown->scenario->job_count; i++) brim_config_free(config[i]);
  return status;
}

static void say_time(const command *c)
{
  int64_t decisions = 0, questions = 0;
  for (size_t i = 0; i < c->count; i++) {
    questions += c->shown[i].result.questions;
    for (size_t k = 0; k < c->shown[i].result.job_count; k++) decisions += c->shown[i].result.job[k].costs.decided;
  }
  brim_log(BRIM_LOG_INFO, "%lld decision%s and %lld question%s between steps and rounds in %.1f ms",
           (long long)decisions, brim_plural(decisions), (long long)questions, brim_plural(questions),
           1e3 * c->simulated);
}

static brim_status print(const command *c)
{
  if (c->json) return brim_cli_print_json(brim_cli_simulations_json(c->shown, c->count));
  brim_text out = {0};
  brim_cli_print_simulations(c->shown, c->count, &out);
  brim_cli_print(brim_text_str(&out));
  fflush(stdout); /* so that messages on standard error come after the table, also in a pipe */
  brim_text_release(&out);
  return BRIM_OK;
}

/* If nothing fits in a world, that is a result; it is an error if a policy crashes or gives an invalid answer. */
static brim_status check_policies(const command *c)
{
  for (size_t i = 0; i < c->count; i++)
    for (size_t k = 0; k < c->shown[i].result.job_count; k++) {
      const brim_sim_job_result *job = &c->shown[i].result.job[k];
      if (job->status == BRIM_EPLUGIN || job->status == BRIM_ECONFIG) return brim_fail(job->status, "%s", job->error);
    }
  return BRIM_OK;
}

static brim_status run(command *c)
{
  unsetenv("GPU_DEVICE_ID"); /* the variable names a device of this machine */
  names all;
  brim_arena *arena = &c->operands.arena;
  find_names(c->cli, arena, &all);
  const brim_sweep_groups groups = {group_options, &all.composition};
  brim_problems problems = {.arena = arena};
  BRIM_TRY(check_keys(c, &all));
  brim_sweep_expand(arena, c->operands.word, c->operands.number, c->operands.count, &groups, &problems, &c->sweep);
  BRIM_TRY(brim_problems_status(&problems));
  c->shown = BRIM_ARENA_NEW(arena, brim_sim_shown, c->sweep.jobs);
  for (size_t i = 0; i < c->sweep.jobs; i++) BRIM_TRY(simulate_one(c, i));
  BRIM_TRY(print(c));
  say_time(c);
  return check_policies(c);
}

static brim_status print_keys(void)
{
  brim_text out = {0};
  brim_scenario_print_keys(&out);
  brim_cli_print(brim_text_str(&out));
  brim_text_release(&out);
  return BRIM_OK;
}

/* Writes the scenario to a file or standard output, and prints how to simulate it. */
static brim_status record(command *c)
{
  const char *word[BRIM_RECORD_WORDS_MAX + 4] = {"brim", "simulate"};
  char path[BRIM_PATH_MAX];
  brim_text out = {0}, again = {0};
  if (c->operands.count > 0)
    return brim_fail(BRIM_ECONFIG, "unexpected '%s': --record RUN takes -o FILE and no other arguments",
                     c->operands.word[0]);
  if (c->file) BRIM_TRY(brim_cli_check_output(c->file, ".yaml", "a scenario is YAML", c->force));
  BRIM_TRY(brim_cli_run_config(c->cli, c->run, path, sizeof path));
  brim_status status = brim_scene_record(&c->operands.arena, c->run, &out, word + 3);
  word[2] = brim_arena_printf(&c->operands.arena, SCENARIO "%s", c->file ? c->file : "FILE.yaml");
  if (status == BRIM_OK && c->file) status = brim_file_write_atomic(c->file, brim_text_str(&out), out.length);
  if (status == BRIM_OK && !c->file) fputs(brim_text_str(&out), stdout);
  if (status == BRIM_OK) {
    brim_cli_quote(word, &again);
    brim_log(BRIM_LOG_INFO, "the run's own policies: %s", brim_text_str(&again));
  }
  brim_text_release(&again);
  brim_text_release(&out);
  return status;
}

static const brim_option options[] = {
    {"--json", BRIM_CLI_FLAG(command, json), NULL, "print JSON"},
    {"--keys", BRIM_CLI_FLAG(command, keys), NULL, "list the keys of scenarios, with their meaning"},
    {"--record", BRIM_CLI_STRING(command, run), "RUN", "write a scenario of the conditions that a run met"},
    {"-o", BRIM_CLI_STRING(command, file), "FILE.yaml", "output file of --record (default: standard output)"},
    {"--force", BRIM_CLI_FLAG(command, force), NULL, BRIM_CLI_FORCE_HELP},
    {NULL}};

static int run_command(brim_cli *cli, int argc, char **argv)
{
  command c = {.cli = cli};
  brim_status status = brim_cli_parse(argc, argv, options, &c, &c.operands);
  if (status == BRIM_OK && c.file && !c.run)
    status = brim_fail(BRIM_ECONFIG, "-o FILE needs --record RUN: it is the file of the recorded scenario");
  if (status == BRIM_OK) status = c.keys ? print_keys() : c.run ? record(&c) : run(&c);
  for (size_t i = 0; i < c.count; i++) {
    brim_simulation_release(&c.shown[i].result);
    brim_scenario_free((brim_scenario *)(uintptr_t)c.shown[i].scenario);
  }
  return brim_cli_end(status, &c.operands);
}

const brim_command brim_command_simulate = {
    "simulate", "simulate the decisions of policies in a scenario", run_command,
    "usage: brim simulate scenario=NAME|FILE [policy=ID | group=option | key=value]... [--json]\n"
    "       brim simulate --record RUN [-o FILE.yaml] [--force] | --keys\n"
    "\n"
    "  brim simulate scenario=all_busy policy=robust          the policy's decisions and their cost\n"
    "  brim simulate scenario=all_busy policy=robust,swarm,elastic    compare policies in a table\n"
    "  brim simulate scenario=my.yaml policy=[capped,robust] max_retries=1\n"
    "  brim simulate --record runs/a -o a.yaml                write a scenario from a run\n"
    "  brim simulate --keys                                   list the keys of scenarios\n"
    "\n"
    "Trains nothing: the scenario scripts devices, other processes, failures and rounds, and time is simulated. The\n"
    "policies are called by the same code as in a run. The same command always gives the same output.\n",
    options};
