/* The table of commands, and the program around them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crash.h"
#include "base/fault.h"
#include "base/guard.h"
#include "base/log.h"
#include "cli/cli.h"

#define LARGE_BLOCK_BYTES (128 * 1024)

const brim_command brim_commands[] = {
    {"train", "train a model", brim_command_train,
     "usage: brim train [group=option | key=value]... [--resume RUN | --from RUN] [-m [--fail-fast]]\n"
     "                  [--debug-launches]\n"
     "\n"
     "  brim train                                     the default configuration\n"
     "  brim train model=mlp training.epochs=2         another model, two epochs\n"
     "  brim train optimizer.lr=5e-4 run.dir=runs/a    with a folder of your choice\n"
     "  brim train --resume runs/a                     go on with a run that was stopped\n"
     "  brim train --resume runs/a model.weights=FILE  whose frozen weights were moved; also dataset.path=PATH\n"
     "  brim train --from runs/a seed=2                the same configuration again, changed\n"
     "  brim train dist.ranks=4                        four processes that train one model together\n"
     "  brim train -m model=mlp,cnn 'seed=range(3)'    a sweep: every combination, one run after another\n"
     "\n"
     "A sweep (-m, --multirun) goes over key=a,b, key=range(START,STOP,STEP) and group=glob(*). Each run is a\n"
     "process of its own, in a folder below multirun/<date>-<time>, or below run.dir. A failure is told at once, and\n"
     "the sweep goes on; with --fail-fast it ends there.\n"
     "\n"
     "dist.ranks=N shares each step's samples among N processes of this machine, by mpirun, or between GPUs without.\n"
     "Several GPUs are all used if nothing else is said; dist.ranks=1 takes one. Over several machines, start brim by\n"
     "mpirun or srun itself.\n"
     "\n"
     "--debug-launches is backend.debug_launches=true, for errors of a GPU.\n"
     "\n"
     "`brim config --schema` lists every key; `brim config --groups` lists groups and options.\n"},
    {"start", "ask for device, precision and batch size, then train", brim_command_start,
     "usage: brim start [group=option | key=value]... [--yes]\n"
     "\n"
     "  brim start                                     shows the devices and what fits on them, asks, and trains\n"
     "  brim start model=mlp training.epochs=2         what the command line says is not asked\n"
     "  brim start --yes                               takes every default\n"
     "\n"
     "Enter takes the default in brackets. Before it starts, it prints the `brim train` command that does the same,\n"
     "the only line on standard output. Where it is answered with no, nothing is made.\n"},
    {"eval", "evaluate a run's checkpoint", brim_command_eval,
     "usage: brim eval RUN [key=value]... [--checkpoint best|last|PATH] [--split test|validation] [--json]\n"
     "\n"
     "  brim eval runs/a                               the best checkpoint, or else the last, on the test data\n"
     "  brim eval runs/a --split validation            on the data that was kept for validation\n"
     "  brim eval runs/a --checkpoint step-00000050    one of the run's checkpoints; a path will do too\n"
     "  brim eval runs/a dataset.path=other --json     on other data of the same shape, for programs\n"
     "\n"
     "Prints loss and accuracy, samples, precision, recall and F1 of each class, and for up to 256 classes the\n"
     "confusion matrix; with 4096 classes or more loss and accuracy only. Of tokens it prints loss, perplexity and\n"
     "accuracy, of real numbers loss, mean absolute error (also in percent), root mean square error and R2. Takes\n"
     "the memory of evaluation alone, and writes nothing.\n"},
    {"predict", "class and probability, or numbers, of samples in files", brim_command_predict,
     "usage: brim predict RUN FILE... [key=value]... [--checkpoint best|last|PATH] [-o FILE] [--force]\n"
     "                    [--json]\n"
     "\n"
     "  brim predict runs/a t10k-images-idx3-ubyte     file,index,class,probability on standard output\n"
     "  brim predict runs/a a.idx b.idx.gz -o out.csv  two files, into a third\n"
     "  brim predict runs/a a.idx --json               as JSON\n"
     "\n"
     "Of a model that answers with real numbers: file,index,value0,... instead.\n"
     "Files are of the kind that the run's dataset reads: for dataset idx, images in IDX files, plain or gzip. A word\n"
     "with '=' is an override; write ./a=b for a file of such a name.\n"},
    {"export", "write a run's parameters for other programs", brim_command_export,
     "usage: brim export RUN [key=value]... [-o FILE.safetensors] [--format brim|timm|torchvision|hf|peft]\n"
     "                   [--dtype fp32|bf16|fp16] [--checkpoint best|last|PATH] [--merge] [--force]\n"
     "\n"
     "  brim export runs/a                             the best checkpoint, or else the last, to model.safetensors\n"
     "  brim export runs/a --format timm -o vit.safetensors   names and order of timm's files\n"
     "  brim export runs/a --dtype bf16 --force        half the size; a file that is there is replaced\n"
     "  brim export runs/lora --merge                  of model=lora or linear_probe: with the backbone, as one plain "
     "model\n"
     "  brim export runs/lora --format peft -o adapter    what was trained, in a folder as PEFT's\n"
     "  brim export runs/lora --merge model.weights=there/clip.safetensors   where the backbone's weights are now\n"
     "\n"
     "PyTorch reads the file with safetensors.torch.load_file, brim with model.weights=FILE. Formats are those of the\n"
     "name maps in configs/weights; a map's own name will do too, or the path of one that ends in .yaml. Beside GPT-2\n"
     "in Hugging Face's format there is its config.json.\n"},
    {"generate", "go on with a text, by a run's language model", brim_command_generate,
     "usage: brim generate RUN [key=value]... [--prompt TEXT | --prompt-file FILE] [--tokens N] [--temperature T]\n"
     "                     [--top-k K] [--top-p P] [--seed S] [--num-samples N] [--checkpoint best|last|PATH] "
     "[--json]\n"
     "\n"
     "  brim generate runs/a --prompt 'Once upon'      200 tokens more, drawn by their probabilities\n"
     "  brim generate runs/a --prompt-file f --tokens 50 --temperature 0   always the most probable one\n"
     "  brim generate runs/a --top-k 50 --top-p 0.9 --num-samples 3        three texts, of probable tokens\n"
     "  brim generate runs/a --seed 2 --json           other ones, as JSON with the tokens' numbers\n"
     "  Ctrl-C ends the text where it is, with exit status 130.\n"
     "\n"
     "The text appears as it is made. The same seed gives the same text. The model sees as many of the last tokens as\n"
     "its samples had (dataset.context). Without a prompt a text begins. Where tokens have no text, as in files of\n"
     "tokens, prompt and output are their numbers.\n"},
    {"plan", "show the memory of a run before it starts", brim_command_plan,
     "usage: brim plan [group=option | key=value]... [-o FILE.svg] [--force] [--times]\n"
     "                 [--no-timing] [--json]\n"
     "\n"
     "  brim plan                                      of the default configuration\n"
     "  brim plan model=mlp training.batch_size=512    with changes\n"
     "  brim plan memory.limit_mb=64 --json            does it fit? for programs\n"
     "  brim plan -o plan.svg                          and a picture: every buffer by time and place\n"
     "  brim plan --times                              and where a step's time goes: each operation beside what it\n"
     "                                                 would take if nothing but its work took time\n"
     "\n"
     "Computes where every tensor will lie, without allocating it: the peak by class, the operation at which\n"
     "the peak lies, what other micro-batches would take, and the largest one that fits on each device here, now and\n"
     "if it were empty. * marks what the run would take. Then what nothing beats in memory and predicted time of a\n"
     "step; kernels that the device profile lacks are timed, which takes some seconds the first time: --no-timing "
     "goes\n"
     "by what there is.\n"},
    {"simulate", "what policies would decide, in a made-up world", brim_command_simulate,
     "usage: brim simulate scenario=NAME|FILE [policy=ID | group=option | key=value]... [--json]\n"
     "       brim simulate --record RUN [-o FILE.yaml] [--force] | --keys\n"
     "\n"
     "  brim simulate scenario=all_busy policy=robust          what the policy decides, when, and what it costs\n"
     "  brim simulate scenario=all_busy policy=robust,swarm,elastic    several, as a table\n"
     "  brim simulate scenario=my.yaml policy=[capped,robust] max_retries=1\n"
     "  brim simulate --record runs/a -o a.yaml                what a run met with, as a scenario\n"
     "  brim simulate --keys                                   every key of a scenario\n"
     "\n"
     "Trains nothing: devices, neighbours that come and go, failures and rounds are a script, and time passes by it. "
     "What\n"
     "asks the policies is what asks them in a run. The same line gives the same output.\n"},
    {"compare", "compare runs: figures, differing keys, curves", brim_command_compare,
     "usage: brim compare RUN... [-o FILE.svg] [--force] [--json]\n"
     "\n"
     "  brim compare runs/a runs/b                     figures, and the keys whose values differ\n"
     "  brim compare multirun/20250101-120000          the runs of a sweep\n"
     "  brim compare runs/a runs/b -o curves.svg       loss and accuracy over steps, as SVG too;\n"
     "                                                 perplexity or mean absolute error, where runs are about "
     "these\n"},

    {"report", "runs as a page for a browser", brim_command_report,
     "usage: brim report RUN... [-o FILE.html] [--force]\n"
     "\n"
     "  brim report runs/a                             report.html here: figures, curves, epochs, confusion matrix,\n"
     "                                                 memory, events, configuration\n"
     "  brim report runs/a runs/b -o both.html         several: figures side by side, curves, differing keys\n"
     "  brim report multirun/20250101-120000           the runs of a sweep\n"
     "\n"
     "One HTML file that needs nothing else. A run writes the same into its folder when it ends (observe.report); "
     "this\n"
     "is for runs that go on or were killed, too.\n"},
    {"config", "show the configuration that a run would have", brim_command_config,
     "usage: brim config [group=option | key=value]... [--origins | --groups | --schema]\n"
     "\n"
     "  brim config                                  the values of a run, as YAML that is itself a configuration\n"
     "  brim config model=mlp 'run.name=x-${seed}'   with changes, and with ${...} replaced\n"
     "  brim --config-path my config --origins       of your own folder, with where each value comes from\n"
     "\n"
     "A mandatory value that nobody gave is shown as ???; a run needs it.\n"},
    {"plugins", "list plugins and their parameters", brim_command_plugins,
     "usage: brim plugins [KIND[/ID]] [--json]\n"
     "\n"
     "  brim plugins                 all\n"
     "  brim plugins model           of one kind\n"
     "  brim plugins dataset/idx     one, with its parameters\n"},
    {"new", "a plugin of your own to begin with", brim_command_new,
     "usage: brim new policy|model|dataset NAME [--into FOLDER]\n"
     "\n"
     "  brim new policy night_shift            night_shift/ here: a memory policy, and what it is built and tested "
     "with\n"
     "  brim new model mynet --into plugins    plugins/mynet/: a model\n"
     "  brim new dataset points                points/: a dataset\n"
     "\n"
     "Makes a folder with a plugin that works, its parameters, a configuration, tests and a README.md, and prints the\n"
     "commands that build, test and use it. NAME has characters a-z, 0-9 and _. Nothing that is there is written "
     "over.\n"},
    {"check", "try a plugin's file: every function, with edge cases", brim_command_check,
     "usage: brim check FILE.so [key=value]... [--json]\n"
     "\n"
     "  brim check mine.so                             its tables, then each function of its plugins\n"
     "  brim check mine.so policy.mine.reserve_mb=512  with other parameters than its defaults\n"
     "  brim check mine.so dataset.path=data --json    a dataset that needs files; for programs\n"
     "\n"
     "Nothing of the plugin runs in this process: it starts itself again, within limits of time and memory, and tells\n"
     "what crashed, did not come back, or answered what cannot be done, a line for each check: ok, warning or FAILED.\n"
     "Policies are asked about made-up devices, plans and memory; models are built for samples of several kinds and\n"
     "planned; of datasets all splits are opened and samples read, also by several threads. Of backends and\n"
     "communicators only tables are looked at. Exit status 0: brim would run it; 3: it cannot be loaded; 5: a check\n"
     "failed.\n"},
    {"devices", "list what there is to compute on", brim_command_devices,
     "usage: brim devices [--json] [overrides]\n"
     "\n"
     "  brim devices           each backend's devices, with memory free and in all, and who uses them\n"
     "  brim devices backend=cpu backend.devices=2 backend.memory_mb=4096\n"
     "                         the same, of the backend that a run with these words would have\n"
     "  brim devices --json    the same in bytes, for programs\n"
     "\n"
     "A backend that cannot be used here is a line with the reason.\n"},
    {"ops", "list operations, and which backends have them", brim_command_ops,
     "usage: brim ops [OPERATION] [--json]\n"
     "\n"
     "  brim ops           all: tensors that go in and come out, whether gradients flow, and each backend\n"
     "  brim ops conv2d    one\n"
     "\n"
     "What each means, to the letter, is in brim/ops.h; what models call, in brim/model.h.\n"},
    {"complete", "list what a command line can go on with; for shells", brim_command_complete,
     "usage: brim complete -- LINE\n"
     "\n"
     "  brim complete -- 'brim train mod'       groups and keys that begin so\n"
     "  brim complete -- 'brim train model='    the options of a group\n"
     "\n"
     "LINE is the command line up to the cursor. Bash calls this from share/bash-completion/completions/brim.\n"},
    {"version", "show the version", brim_command_version,
     "usage: brim version [--json]\n"
     "\n"
     "  brim version           the version, the plugin ABI and the compiler\n"
     "  brim version --json    the same for programs\n"},
    {NULL, NULL, NULL, NULL},
};

static brim_status check_config_path(const brim_cli *cli)
{
  for (size_t i = 0; i < cli->config_path_count; i++) {
    const char *path = cli->config_path[i];
    DIR *folder = opendir(path);
    if (!folder) return brim_fail(BRIM_ELOAD, "cannot look for configurations in '%s': %s", path, strerror(errno));
    closedir(folder);
  }
  return BRIM_OK;
}

/* What other programs call commands, and overrides without one. */
static const char *other_command(const char *word)
{
  static const struct {
    const char *name, *here;
  } others[] = {{"sweep", "brim train -m KEY=A,B"},
                {"multirun", "brim train -m KEY=A,B"},
                {"resume", "brim train --resume RUN"},
                {"evaluate", "brim eval RUN"},
                {"test", "brim eval RUN"},
                {"infer", "brim predict RUN FILE..."},
                {"run", "brim train"},
                {"fit", "brim train"}};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
    if (brim_typo_distance(word, others[i].name) == 0) return others[i].here;
  return NULL;
}

static int unknown_command(const char *word, const char *next)
{
  const char *best = NULL, *other = other_command(word);
  int distance = INT_MAX;
  if (word[0] == '-')
    return brim_cli_fail(
        brim_fail_add(brim_cli_unknown_word(word, next), "`brim --help` lists the commands and options"));
  for (const brim_command *c = brim_commands; c->name; c++) brim_suggest(word, c->name, &distance, &best);
  brim_fail(BRIM_ECONFIG, "unknown command '%s'", word);
  if (other)
    brim_fail_add(BRIM_ECONFIG, "in brim this is: %s", other);
  else if (strchr(word, '='))
    brim_fail_add(BRIM_ECONFIG, "an override goes after a command: brim train %s", word);
  else if (best)
    brim_fail_add(BRIM_ECONFIG, "did you mean 'brim %s'?", best);
  return brim_cli_fail(brim_fail_add(BRIM_ECONFIG, "`brim --help` lists the commands"));
}

static bool asks_for_help(int argc, char **argv)
{
  for (int i = 1; i < argc; i++)
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
  return false;
}

static int run_command(brim_cli *cli, int argc, char **argv)
{
  for (const brim_command *c = brim_commands; c->name; c++) {
    if (strcmp(argv[0], c->name) != 0) continue;
    if (asks_for_help(argc, argv)) return brim_cli_print_command_help(cli, c);
    brim_status status = check_config_path(cli);
    if (status == BRIM_OK) status = brim_registry_open(cli->plugin_path, cli->plugin_path_count, &cli->registry);
    if (status != BRIM_OK) return brim_cli_fail(status);
    const int result = c->run(cli, argc, argv);
    brim_registry_free(cli->registry);
    return result;
  }
  return unknown_command(argv[0], argv[1]);
}

/* Closed standard streams would give their numbers to files of the run, which messages would then go into. */
static void open_standard_streams(void)
{
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) return;
}

static int run_program(brim_cli *cli, int argc, char **argv)
{
  brim_status status = brim_fault_open(getenv(BRIM_FAULT_ENVIRONMENT), getenv(BRIM_FAULT_REPORT_ENVIRONMENT));
  if (status == BRIM_OK) status = brim_cli_take_globals(cli, &argc, argv);
  if (status != BRIM_OK) return brim_cli_fail(status);
  if (argc < 2) {
    brim_cli_print_help(stderr);
    return brim_status_exit(BRIM_ECONFIG);
  }
  if (argc > 2 && strcmp(argv[1], "help") == 0 && argv[2][0] != '-') { /* brim help COMMAND */
    argv[1] = argv[2];
    argv[2] = (char *)"--help";
  } else if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
    brim_cli_print_help(stdout);
    return 0;
  }
  if (strcmp(argv[1], "--version") == 0) argv[1] = (char *)"version";
  return run_command(cli, argc - 1, argv + 1);
}

/* Large blocks go back to the system when they are freed. By default glibc would keep blocks of the size of the largest
 * one freed so far, up to 64 MiB, and what the process takes would depend on the order of what it did before. */
static void give_back_large_blocks(void)
{
#ifdef M_MMAP_THRESHOLD
  mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES);
#endif
}

static int check_output(int result, bool is_written, const char *why)
{
  if (result != 0 || is_written) return result;
  return brim_cli_fail(brim_fail(BRIM_EIO, "cannot write to standard output: %s", why));
}

/* A thread that was given up may hold whatever lock exit() wants. */
static void leave_lost_threads(int result)
{
  if (!brim_guard_any_lost()) return;
  const bool is_free = ftrylockfile(stdout) == 0;
  const bool is_written = is_free && fflush_unlocked(stdout) == 0 && !ferror_unlocked(stdout);
  const char *why = is_free ? strerror(errno) : "a thread that was given up holds it";
  if (ftrylockfile(stderr) == 0) result = check_output(result, is_written, why);
  _exit(result != 0 || is_written ? result : brim_status_exit(BRIM_EIO));
}

int brim_main(int argc, char **argv)
{
  brim_cli cli = {.start = brim_now()};
  brim_crash_watch();
  brim_log_read_environment();
  give_back_large_blocks();
  open_standard_streams();
  signal(SIGXFSZ, SIG_IGN); /* a file-size limit is an error of write(), not the end of the process */
  const int result = run_program(&cli, argc, argv);
  brim_fault_close();
  leave_lost_threads(result);
  brim_crash_allow_exit();
  if (result != 0) return result;
  const bool is_written = fflush(stdout) == 0 && !ferror(stdout);
  return check_output(result, is_written, strerror(errno));
}
