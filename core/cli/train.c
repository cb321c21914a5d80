/* brim train, and brim federate, which trains a federation: a new run, a run from another run's configuration (--from),
 * a resumed run (--resume), or many runs (-m). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/host.h"
#include "base/log.h"
#include "base/table.h"
#include "cli/cli.h"
#include "cli/live_page.h"
#include "cli/run_folder.h"
#include "cli/sweep.h"
#include "config/config.h"
#include "dist/dist.h"
#include "dist/line.h"
#include "dist/started.h"
#include "launch/launch.h"
#include "memory/choose.h"
#include "report/page.h"
#include "store/checkpoint.h"
#include "store/rundir.h"
#include "train/run.h"

typedef struct train_options {
  const char *resume, *from, *export_partition;
  bool multirun, fail_fast, job, debug_launches;
  bool federates; /* brim federate */
  bool list_methods, list_runs, force;
} train_options;

/* Whether a word changes results at most by rounding. Files may have moved since a run began, and hashes check their
 * contents; any number of ranks, or of clients' processes, can resume. */
static bool may_change_on_resume(const char *word)
{
  static const char *const keys[] = {"model.weights=", "dataset.path=", "dist.ranks=", "federate.mode=", "hooks."};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
    if (brim_starts_with(word, keys[i])) return true;
  return false;
}

static brim_status check_options(const train_options *o, const brim_operands *operands)
{
  if (o->resume && o->from) return brim_fail(BRIM_ECONFIG, "--resume and --from exclude each other");
  if (o->resume && o->multirun)
    return brim_fail(BRIM_ECONFIG, "--resume continues one run and --multirun starts several: leave one out");
  if (o->multirun && brim_dist_started() > 1)
    return brim_fail(BRIM_ECONFIG, "every rank would start its own sweep: start the sweep alone, and its jobs with "
                                   "ranks: brim train -m dist.ranks=N");
  if (o->export_partition && (o->resume || o->multirun))
    return brim_fail(BRIM_ECONFIG, "--export-partition writes one partition and trains nothing: leave out %s",
                     o->resume ? "--resume" : "-m");
  if (o->force && !o->export_partition)
    return brim_fail(BRIM_ECONFIG, "--force needs --export-partition FILE, whose file it replaces");
  if (o->export_partition) {
    BRIM_TRY(brim_cli_check_folder(o->export_partition));
    BRIM_TRY(brim_cli_check_absent(o->export_partition, o->force));
  }
  if (o->fail_fast && !o->multirun)
    return brim_fail(BRIM_ECONFIG, "--fail-fast ends a sweep at its first failure: add -m");
  if (o->list_runs && operands->count > 1)
    return brim_fail(BRIM_ECONFIG, "--list-runs takes one folder, or none: runs");
  for (size_t i = 0; o->resume && i < operands->count; i++)
    if (!may_change_on_resume(operands->word[i]))
      return brim_fail(
          BRIM_ECONFIG,
          "--resume uses the run's own configuration, so '%s' cannot be set\n"
          "to train with another one, start a new run: brim train --from %s %s\n"
          "only these may change: model.weights=PATH and dataset.path=PATH, if files have moved, dist.ranks=N, "
          "federate.mode=MODE and hooks.*=COMMAND",
          operands->word[i], BRIM_QUOTED(o->resume), BRIM_QUOTED(operands->word[i]));
  return BRIM_OK;
}

/* Inserts the override for --debug-launches at its position among the others, where the option left room for it. */
static void add_debug_launches(char **argv, brim_operands *operands)
{
  int number = 1;
  while (strcmp(argv[number], "--debug-launches") != 0) number++;
  size_t at = operands->count++;
  for (; at > 0 && operands->number[at - 1] > number; at--) {
    operands->word[at] = operands->word[at - 1];
    operands->number[at] = operands->number[at - 1];
  }
  operands->word[at] = "backend.debug_launches=true";
  operands->number[at] = number;
}

/* Prints, in one line, why the run is not on a GPU. On a machine without an NVIDIA GPU only --verbose shows it, unless
 * CUDA_VISIBLE_DEVICES names one. */
static void log_auto_backend(const brim_config *config)
{
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (!config->auto_reason) return;
  const bool is_news = (visible && visible[0]) || brim_host_has_nvidia(BRIM_PCI_BUS);
  brim_log(is_news ? BRIM_LOG_INFO : BRIM_LOG_DEBUG, "backend=auto uses '%s', as cuda cannot be used: %.*s",
           brim_config_choice_of(config, "backend")->plugin->id, (int)strcspn(config->auto_reason, "\n"),
           config->auto_reason);
}

/* Reports environment variables that change the run, and variables for dynamic allocators, which have no effect. */
static void log_environment(void)
{
  if (brim_fault_text())
    brim_log(BRIM_LOG_WARN, "%s=%s is set: it makes some calls of this run fail, for a test", BRIM_FAULT_ENVIRONMENT,
             brim_fault_text());
  static const char name[] = "PYTORCH_CUDA_ALLOC_CONF";
  const char *value = getenv(name);
  if (value && value[0])
    brim_log(BRIM_LOG_INFO, "%s is set but has no effect: brim allocates the planned memory once", name);
}

/* Returns the words of this command again, with the global options. */
static const char **repeat_words(const brim_cli *cli, int argc, char **argv, brim_arena *arena)
{
  const char **out = BRIM_ARENA_NEW(arena, const char *, BRIM_CLI_GLOBAL_WORDS + argc + 2);
  size_t n = 1 + brim_cli_global_words(cli, out + 1);
  out[0] = "brim";
  for (int i = 0; i < argc; i++) out[n++] = argv[i];
  return out;
}

/* Loads the configuration and checks everything that is known before a run. Ranks that brim started log nothing about
 * it, as the launcher has already done so. */
/* The configuration of another user's run must not run commands as this user, unless the command line sets them. */
static brim_status check_hooks(const char *file, const brim_operands *operands, const brim_hooks_settings *hooks)
{
  const struct {
    const char *key, *command;
  } all[] = {{"hooks.on_start=", hooks->on_start},
             {"hooks.on_evaluation=", hooks->on_evaluation},
             {"hooks.on_checkpoint=", hooks->on_checkpoint},
             {"hooks.on_oom=", hooks->on_oom},
             {"hooks.on_end=", hooks->on_end}};
  struct stat info;
  if (!file || stat(file, &info) != 0 || info.st_uid == geteuid()) return BRIM_OK;
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    bool is_own = !all[i].command[0];
    for (size_t k = 0; k < operands->count; k++) is_own = is_own || brim_starts_with(operands->word[k], all[i].key);
    if (!is_own)
      return brim_fail(BRIM_ECONFIG,
                       "'%s' belongs to another user and would run a command as you: %s%s\n"
                       "if you do not want that, add %s ; if you do, add %s'%s'",
                       file, all[i].key, all[i].command, all[i].key, all[i].key, all[i].command);
  }
  return BRIM_OK;
}

static brim_status load(const brim_cli *cli, const train_options *o, const char *file, const brim_operands *operands,
                        brim_config **config)
{
  const size_t first = o->from != NULL; /* "run.dir=" removes the old run's folder; a later word overrides it */
  if (first) operands->word[-1] = "run.dir=";
  brim_cli_hush(cli, brim_line_is_open());
  const brim_status status =
      brim_cli_config(cli, file, operands->word - first, operands->number - first, operands->count + first, config);
  brim_cli_hush(cli, false);
  BRIM_TRY(status);
  BRIM_TRY(check_hooks(file, operands, &(*config)->settings.hooks));
  if (o->federates && (*config)->settings.total_clients == 0)
    return brim_fail(BRIM_ECONFIG, "there are no clients: 'total_clients' is 0\n"
                                   "set total_clients=N, or train without a federation: brim train");
  if (!o->resume) BRIM_TRY(brim_run_check_dir((*config)->settings.run.dir));
  /* A run can be resumed with any number of ranks. */
  if (o->resume && !brim_isolate_is_wanted(*config) && brim_dist_started() > 1) (*config)->settings.dist.ranks = -1;
  return o->resume ? brim_cli_check_edits(cli, o->resume, *config) : brim_config_anchor_paths(*config);
}

/* The end of the process, which may be a rank of a job. */
typedef struct train_end {
  bool joined;  /* the ranks have connected, and decide together which one reports an error */
  int reported; /* the exit status if the error was already printed; 0: not yet */
} train_end;

static brim_status join(const brim_config *config, brim_dist **out)
{
  const brim_config_choice *comm = brim_config_choice_of(config, "comm");
  const brim_dist_options options = {.registry = config->registry,
                                     .comm = comm->plugin,
                                     .params = comm->params,
                                     .configuration = config->root,
                                     .ranks = config->settings.dist.ranks,
                                     .timeout_seconds = config->settings.dist.timeout_seconds,
                                     .bucket_bytes = config->settings.dist.bucket_mb << 20,
                                     .by_messages = config->settings.federate.mode == BRIM_FEDERATE_PROCESSES};
  return brim_dist_open(&options, out);
}

/* The report is optional, so if it fails, brim only warns. */
static void write_page(const char *run)
{
  brim_live_page_end();
  if (brim_page_write(run) != BRIM_OK)
    brim_log(BRIM_LOG_WARN, "cannot write " BRIM_REPORT_NAME " of the run: %s", brim_error_text());
}

/* Trains as a rank of a job, or alone. All messages of a job are printed before any rank ends, because mpirun then ends
 * the others. */
static brim_status run_here(const brim_cli *cli, const train_options *o, brim_config *config, train_end *ending)
{
  brim_run_options options = {.config = config,
                              .resume = o->resume,
                              .quiet = cli->quiet,
                              .start = cli->start,
                              .write_page = config->settings.observe.report ? write_page : NULL,
                              .follow_page = config->settings.observe.report ? brim_live_page_begin : NULL};
  log_auto_backend(config);
  log_environment();
  ending->joined = true;
  brim_status status = join(config, &options.dist);
  if (status != BRIM_OK && !options.dist) return status;
  if (status == BRIM_OK) status = brim_run(&options);
  if (status == BRIM_ECOMM) brim_dist_give_up(options.dist, status);
  if (status != BRIM_OK && options.dist) ending->reported = brim_cli_fail(status);
  brim_dist_close(options.dist, false, ending->reported);
  return ending->reported ? BRIM_OK : status;
}

/* Runs several seeds, each as a job of a sweep. */
static brim_status repeat(brim_cli *cli, const brim_sweep_words_given *given, int64_t repeats, train_end *ending)
{
  if (brim_dist_started() > 1)
    return brim_fail(BRIM_ECONFIG,
                     "every rank would start its own runs with %lld seeds: start the command alone, and its runs "
                     "with ranks: dist.ranks=N",
                     (long long)repeats);
  ending->reported = brim_cli_sweep(cli, given);
  return BRIM_OK;
}

/* For a process of a client that the user's mpirun has started: sets its name and device. Libraries of devices may be
 * open already, so if the process must see only one GPU, the program starts again. */
static brim_status isolate(const brim_cli *cli, const brim_config *config, const brim_sweep_words_given *given)
{
  const int32_t ranks = brim_dist_started();
  if (!brim_isolate_is_wanted(config) || ranks == 1 || brim_line_is_open() || getenv(BRIM_SHARE_DEVICE)) return BRIM_OK;
  if (ranks != config->settings.dist.ranks) return BRIM_OK; /* the error is printed when the ranks have joined */
  brim_isolated *all = brim_xcalloc((size_t)ranks, sizeof *all);
  brim_arena words = {0};
  const brim_status status = brim_isolate_plan(config, ranks, all);
  const brim_isolated *own = &all[brim_dist_started_rank()];
  if (status == BRIM_OK) brim_isolate_set(own);
  if (status == BRIM_OK && own->visible[0])
    execv("/proc/self/exe", (char *const *)repeat_words(cli, given->argc, given->argv, &words));
  brim_arena_release(&words);
  free(all);
  return status;
}

static brim_status train_once(brim_cli *cli, const train_options *o, const brim_sweep_words_given *given,
                              const brim_operands *operands, brim_rank_launch *launch, train_end *ending)
{
  brim_config *config = NULL;
  if (o->resume && brim_run_is_finished(o->resume)) {
    brim_say("'%s' is finished; its results are in %s/summary.json", o->resume, o->resume);
    return BRIM_OK;
  }
  brim_status status = load(cli, o, given->from_file, operands, &config);
  if (o->export_partition) {
    if (status == BRIM_OK) status = brim_cli_export_partition(config, o->export_partition);
    brim_config_free(config);
    return status;
  }
  const int64_t repeats = status == BRIM_OK && !o->resume ? config->settings.repeats : 1;
  if (repeats > 1) {
    brim_config_free(config);
    return repeat(cli, given, repeats, ending);
  }
  if (status == BRIM_OK) status = isolate(cli, config, given);
  if (status == BRIM_OK) status = brim_launch_plan(config, o->resume, launch);
  if (status == BRIM_OK && launch->ranks == 1) status = run_here(cli, o, config, ending);
  brim_config_free(config);
  return status;
}

/* Starts the ranks of a job. If one was lost, adds how to resume the run, because ranks that died cannot print that. */
static brim_status start_ranks(brim_rank_launch *launch, const char *const *word, train_end *ending)
{
  const brim_status status = brim_launch_run(launch, word, &ending->reported);
  if (status != BRIM_ECOMM || !launch->folder[0] || !brim_checkpoint_exists(launch->folder)) return status;
  return brim_fail_add(status, "resume with: %s %s", brim_run_resume_words(launch->folder),
                       BRIM_QUOTED(launch->folder));
}

/* [init] Rank 0 prints for all. */
static brim_status begin_rank(void)
{
  brim_log_set_rank(brim_dist_started_rank());
  return brim_line_open();
}

/* Ends a rank or a single process. If an error occurs before the ranks connect, one of them prints it, and none waits
 * for another. After that, the ranks agree which one prints it. */
static int end(brim_status status, const train_end *how, brim_operands *operands)
{
  const bool alone = status != BRIM_OK && !how->joined;
  const int exit_status = status == BRIM_OK ? how->reported : brim_status_exit(status);
  if (alone && !brim_line_may_print())
    brim_arena_release(&operands->arena);
  else
    (void)brim_cli_end(status, operands);
  if (alone) brim_line_end(exit_status);
  brim_line_leave(exit_status);
  return exit_status;
}

/* Prints the methods of a federation with their help. */
static void list_methods(const brim_registry *registry)
{
  brim_arena arena = {0};
  brim_text out = {0};
  brim_table table = {.arena = &arena, .columns = 2};
  brim_table_add(&table, "method");
  brim_table_add(&table, "the clients of a round");
  for (size_t i = 0; i < brim_registry_count(registry); i++) {
    const brim_plugin *plugin = brim_registry_at(registry, i)->plugin;
    if (plugin->kind != BRIM_SELECTOR) continue;
    brim_table_add(&table, plugin->id);
    brim_table_add(&table, plugin->help);
  }
  brim_table_print(&table, &out);
  brim_cli_print(brim_text_str(&out));
  brim_text_release(&out);
  brim_arena_release(&arena);
}

#define OPTIONS                                                                                                        \
  {"--resume", BRIM_CLI_STRING(train_options, resume), "RUN", "resume a stopped run; the result is bit-identical"},    \
      {"--from", BRIM_CLI_STRING(train_options, from), "RUN",                                                          \
       "start a new run with the configuration of another, plus changes"},                                             \
      {"-m", BRIM_CLI_FLAG(train_options, multirun), NULL, NULL},                                                      \
      {"--multirun", BRIM_CLI_FLAG(train_options, multirun), NULL,                                                     \
       "run a sweep: one run per combination of values, in sequence"},                                                 \
      {"--fail-fast", BRIM_CLI_FLAG(train_options, fail_fast), NULL, "end a sweep at the first failure"},              \
      {"--debug-launches", BRIM_CLI_FLAG(train_options, debug_launches), NULL,                                         \
       "wait after every operation, so that an error names the operation that failed; this is slow"},                  \
  {                                                                                                                    \
    "--job", BRIM_OPTION_HIDDEN, offsetof(train_options, job)                                                          \
  } /* replace the sweep's own options */
static const brim_option options[] = {OPTIONS, {NULL}};
static const brim_option federate_options[] = {
    OPTIONS,
    {"--list-methods", BRIM_CLI_FLAG(train_options, list_methods), NULL, "list the methods that select clients"},
    {"--list-runs", BRIM_CLI_FLAG(train_options, list_runs), NULL, "list the federations in a folder (default: runs)"},
    {"--export-partition", BRIM_CLI_STRING(train_options, export_partition), "FILE",
     "write the samples of each client as CSV, without training"},
    {"--force", BRIM_CLI_FLAG(train_options, force), NULL, "overwrite the file of --export-partition"},
    {NULL}};
#undef OPTIONS

static int run(brim_cli *cli, int argc, char **argv, bool federates)
{
  train_options o = {.federates = federates};
  brim_operands operands;
  brim_arena words = {0};
  char path[4096];
  const char *file = NULL;
  train_end ending = {0}; /* jobs of a sweep and ranks use it too, though they have printed their errors themselves */
  brim_rank_launch launch = {.ranks = 1};
  char filler[] = "--job"; /* replaces a value, so that the words keep their positions */
  if (federates) brim_cli_take_dashes(argc, argv, federate_options, filler, &words);
  brim_status status = brim_cli_parse(argc, argv, federates ? federate_options : options, &o, &operands);
  if (status == BRIM_OK) status = check_options(&o, &operands);
  if (federates && !o.resume && !o.from && !cli->config_name) cli->config_name = "federate";
  if (status == BRIM_OK && o.debug_launches) add_debug_launches(argv, &operands);
  if (status == BRIM_OK && (o.resume || o.from)) {
    file = path;
    status = brim_cli_run_config(cli, o.resume ? o.resume : o.from, path, sizeof path);
  }
  const brim_sweep_words_given given = {argc, argv, operands.word, operands.number, operands.count, file, o.fail_fast};
  if (status == BRIM_OK && o.list_methods) {
    list_methods(cli->registry);
  } else if (status == BRIM_OK && o.list_runs) {
    status = brim_cli_list_runs(operands.count ? operands.word[0] : "runs");
  } else if (status == BRIM_OK && o.multirun) {
    ending.reported = brim_cli_sweep(cli, &given);
  } else if (status == BRIM_OK) {
    status = brim_dist_started() > 1 ? begin_rank() : BRIM_OK;
    if (status == BRIM_OK) status = train_once(cli, &o, &given, &operands, &launch, &ending);
    if (status == BRIM_OK && launch.ranks > 1)
      status = start_ranks(&launch, repeat_words(cli, argc, argv, &operands.arena), &ending);
  }
  const int exit_status = end(status, &ending, &operands);
  free(launch.isolated);
  brim_arena_release(&words);
  return exit_status;
}

static int run_train(brim_cli *cli, int argc, char **argv)
{
  return run(cli, argc, argv, false);
}

static int run_federate(brim_cli *cli, int argc, char **argv)
{
  return run(cli, argc, argv, true);
}

const brim_command brim_command_federate = {
    "federate",
    "train a federation: simulated clients on one device",
    run_federate,
    "usage: brim federate [group=option | key=value]... [--resume RUN | --from RUN] [-m [--fail-fast]]\n"
    "\n"
    "  brim federate                                  100 clients, of which 10 train in each of 100 rounds\n"
    "  brim federate partition=dirichlet partition.alpha=0.1   with very different classes per client\n"
    "  brim federate server_optimizer=adam federate.local_epochs=5\n"
    "  brim federate parallel_clients=1               one client at a time: identical results, less memory\n"
    "  brim federate federate.mode=processes total_clients=2 clients_per_round=2   a process for each client\n"
    "  brim federate --resume runs/a                  resume a stopped federation\n"
    "  brim federate -m method=random,proportional    a sweep\n"
    "  brim federate repeats=3                        three seeds, with mean and standard deviation; also in a sweep\n"
    "  brim federate --list-methods                   list the methods that select clients\n"
    "  brim federate --list-runs multirun/methods     list the federations in a folder, with their results\n"
    "  brim federate partition=classes --export-partition clients.csv   only write the samples of each client\n"
    "\n"
    "The training samples are divided among total_clients clients. In each round clients_per_round of them start from\n"
    "the global model and train on their own samples; then the server updates the global model with the weighted mean\n"
    "of their changes. The result is bit-identical for any number of clients that train at a time.\n"
    "\n"
    "The command reads the configuration `federate` instead of `config`; otherwise it works like `brim train`. `brim\n"
    "eval`, `predict`, `export` and `plan --config-name federate` support federations too.\n",
    federate_options,
    true};

const brim_command brim_command_train = {
    "train",
    "train a model",
    run_train,
    "usage: brim train [group=option | key=value]... [--resume RUN | --from RUN] [-m [--fail-fast]]\n"
    "                  [--debug-launches]\n"
    "\n"
    "  brim train                                     the default configuration\n"
    "  brim train model=mlp training.epochs=2         another model, two epochs\n"
    "  brim train optimizer.lr=5e-4 run.dir=runs/a    in a folder of your choice\n"
    "  brim train --resume runs/a                     resume a stopped run\n"
    "  brim train --resume runs/a model.weights=FILE  with frozen weights that were moved; also dataset.path=PATH\n"
    "  brim train --from runs/a seed=2                a new run with the same configuration, changed\n"
    "  brim train dist.ranks=4                        four processes that train one model\n"
    "  brim train -m model=mlp,cnn 'seed=range(3)'    a sweep: one run per combination, in sequence\n"
    "\n"
    "A sweep (-m, --multirun) expands key=a,b, key=range(START,STOP,STEP) and group=glob(*). Each run is a separate\n"
    "process with a folder below multirun/<date>-<time>, or below run.dir. If a run fails, the sweep reports it and\n"
    "continues; with --fail-fast it ends.\n"
    "\n"
    "dist.ranks=N divides each step's samples among N processes on this machine, started with mpirun, or without it\n"
    "if each has a GPU. By default brim uses all visible GPUs; dist.ranks=1 uses one. For several machines start brim\n"
    "with mpirun or srun.\n"
    "\n"
    "--debug-launches sets backend.debug_launches=true, to find the operation that caused a GPU error.\n"
    "\n"
    "`brim config --schema` lists every key; `brim config --groups` lists groups and options.\n",
    options,
    true};
