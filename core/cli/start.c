/* brim start: shows the devices, asks for the device, the precision and the micro-batch, and continues as `brim train`,
 * with the answers as overrides. Does not ask for settings that are given on the command line.
 *
 * Standard output gets one line, the command that does the same without questions, so that users can store it in a
 * file. The questions go to standard error. brim tries every answer as a plan before the next question. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/plan_print.h"
#include "drive/placement.h"
#include "planner/room.h"

#define BATCHES_SHOWN_MAX 12

/* Each answer adds a word to the command line, in its own place of `word`; NULL: the command line sets the value
 * already. */
enum answer_place { BACKEND, DEVICE, PRECISION, BATCH, ACCUMULATION, ANSWERS };

typedef struct start {
  brim_cli *cli;
  const brim_operands *given;
  brim_arena *arena;
  bool yes; /* take the defaults */
  const char *answer[ANSWERS];
  brim_config *config; /* the configuration with the answers so far */
  brim_drive *drive;
  /* the configuration without any answers */
  brim_config *own;
  brim_fits fits;
  char *line; /* the last line read */
  size_t line_room;
} start;

/* ---- configuration and plan with the answers so far ---- */

/* Lists the words of the command line and of the answers, and their numbers for messages. */
static size_t list_words(const start *s, const char ***word, int **number)
{
  size_t n = 0;
  *word = BRIM_ARENA_NEW(s->arena, const char *, s->given->count + ANSWERS);
  *number = BRIM_ARENA_NEW(s->arena, int, s->given->count + ANSWERS);
  for (; n < s->given->count; n++) {
    (*word)[n] = s->given->word[n];
    (*number)[n] = s->given->number[n];
  }
  for (size_t i = 0; i < ANSWERS; i++) {
    if (!s->answer[i]) continue;
    (*word)[n] = s->answer[i];
    (*number)[n] = n ? (*number)[n - 1] + 1 : 1;
    n++;
  }
  return n;
}

static brim_status compose(const start *s, brim_config **out)
{
  const char **word;
  int *number;
  const size_t count = list_words(s, &word, &number);
  return brim_cli_config(s->cli, NULL, word, number, count, out);
}

static void drop_drive(start *s)
{
  brim_drive_close(s->drive);
  brim_config_free(s->config);
  s->drive = NULL;
  s->config = NULL;
}

/* Opens a drive with the answers so far: devices, and the choices of policies. Suppresses its log, because the run will
 * print it. */
static brim_status open_drive(start *s)
{
  drop_drive(s);
  brim_cli_hush(s->cli, true);
  brim_status status = compose(s, &s->config);
  if (status == BRIM_OK) status = brim_drive_open(s->config, &(brim_setup_options){0}, &s->drive);
  if (status == BRIM_OK) status = brim_placement_try(&s->drive);
  brim_cli_hush(s->cli, false);
  return status;
}

/* Whether the answers so far make a run that can be placed. */
static brim_status try_plan(start *s, uint64_t *peak)
{
  brim_plan *plan = NULL;
  BRIM_TRY(open_drive(s));
  BRIM_TRY(brim_planner_plan(&s->drive->planner, &s->drive->choice, false, &plan));
  *peak = plan->peak_bytes;
  const brim_status status = brim_planner_check(&s->drive->planner, &s->drive->choice, plan);
  brim_plan_free(plan);
  return status;
}

/* Whether the command line sets this key, under any of its names. */
static bool is_given(const start *s, const char *path)
{
  const brim_yaml *node = brim_yaml_get_path(s->own->root, path);
  return node && node->origin.file && strcmp(node->origin.file, "command line") == 0;
}

/* Whether the command line sets any key of this group. */
static bool is_group_given(const start *s, const char *group)
{
  const size_t length = strlen(group);
  for (size_t i = 0; i < s->given->count; i++) {
    const char *key = s->given->word[i] + strspn(s->given->word[i], "+~");
    if (strncmp(key, group, length) == 0 && strchr(".=", key[length])) return true;
  }
  return false;
}

/* Opens a drive on a device before a precision is chosen. If the device lacks the precision of a configuration file,
 * the question is still asked. */
static brim_status open_device(start *s)
{
  s->answer[PRECISION] = NULL;
  const brim_status status = open_drive(s);
  const int32_t own = s->own->settings.precision;
  if (status != BRIM_ECONFIG || (own != BRIM_PRECISION_BF16 && own != BRIM_PRECISION_FP16) || is_given(s, "precision"))
    return status;
  s->answer[PRECISION] = "precision=fp32";
  return open_drive(s);
}

/* ---- questions ---- */

/* Reads an answer without surrounding spaces; the default if it is empty. Valid until the next question. */
static brim_status ask_user(start *s, const char *question, const char *choices, const char *def, const char **answer)
{
  *answer = def;
  if (s->yes) return BRIM_OK;
  fprintf(stderr, "%s (%s) [%s]: ", question, choices, def);
  errno = 0;
  const ssize_t length = getline(&s->line, &s->line_room, stdin);
  if (length < 0) {
    if (isatty(STDIN_FILENO)) fputs("\n", stderr);
    return brim_fail(BRIM_ECONFIG,
                     "standard input ended without an answer to '%s': nothing was started\n"
                     "--yes accepts all defaults",
                     question);
  }
  char *text = s->line + strspn(s->line, " \t\r\n");
  size_t end = strlen(text);
  while (end > 0 && strchr(" \t\r\n", text[end - 1])) end--;
  text[end] = '\0';
  if (end > 0) *answer = text;
  /* The answer was not typed on this terminal, so this prints it. */
  if (!isatty(STDIN_FILENO)) fprintf(stderr, "%s\n", *answer);
  return BRIM_OK;
}

/* Prints why an answer is invalid. True: ask again; with --yes there are no questions. */
static bool explain(const start *s)
{
  if (!s->yes) brim_log_error();
  return !s->yes;
}

/* ---- device ---- */

static const brim_device_fit *find_device(const start *s, const char *name)
{
  for (size_t i = 0; i < s->fits.count; i++)
    if (strcmp(s->fits.device[i].name, name) == 0) return &s->fits.device[i];
  for (size_t i = 0; i < s->fits.count; i++) /* "cpu" means its first device */
    if (strcmp(s->fits.device[i].backend, name) == 0) return &s->fits.device[i];
  return NULL;
}

/* Shows the devices once, although the question may be repeated. */
static brim_status show_devices(start *s)
{
  brim_text text = {0};
  if (s->fits.count > 0) return BRIM_OK;
  BRIM_TRY(brim_cli_find_fits(s->cli, s->drive, !is_group_given(s, "backend"), &s->fits));
  brim_cli_print_fits(&s->fits, &text);
  if (!s->cli->quiet) fprintf(stderr, "%s\n", brim_text_str(&text));
  brim_text_release(&text);
  return BRIM_OK;
}

/* Sets the words that choose a device, and its backend if the configuration would use another. */
static brim_status choose_device(start *s, const char *name)
{
  const brim_device_fit *d = find_device(s, name);
  brim_config *config = NULL;
  s->answer[BACKEND] = s->answer[DEVICE] = NULL;
  if (strcmp(name, s->own->settings.device) == 0) return open_device(s);
  if (!d && strcmp(name, "auto") != 0)
    return brim_fail(BRIM_ECONFIG, "there is no device '%s'\nchoose one from the table, or auto", name);
  s->answer[DEVICE] = brim_arena_printf(s->arena, "device=%s", d ? d->name : name);
  if (d) {
    brim_cli_hush(s->cli, true);
    const brim_status status = compose(s, &config);
    brim_cli_hush(s->cli, false);
    BRIM_TRY(status);
    if (strcmp(brim_config_choice_of(config, "backend")->plugin->id, d->backend) != 0)
      s->answer[BACKEND] = brim_arena_printf(s->arena, "backend=%s", d->backend);
    brim_config_free(config);
  }
  return open_device(s);
}

static brim_status ask_device(start *s)
{
  const char *answer;
  BRIM_TRY(show_devices(s));
  if (is_given(s, "device")) return BRIM_OK;
  for (;;) {
    BRIM_TRY(ask_user(s, "device", "auto, or one of these", s->own->settings.device, &answer));
    const brim_status status = choose_device(s, answer);
    if (status == BRIM_OK || !explain(s)) return status;
  }
}

/* ---- precision ---- */

/* Lists the precisions that the backend has: "fp32, bf16". */
static const char *list_precisions(const start *s)
{
  const char *list = "";
  const uint32_t has = brim_setup_precisions(s->drive->setup);
  for (size_t i = 0; i < BRIM_PRECISIONS; i++)
    if (has >> i & 1) list = brim_arena_printf(s->arena, "%s%s%s", list, list[0] ? ", " : "", brim_precision_names[i]);
  return list;
}

/* Returns the precision without an answer: the configured one, or the device's. */
static int32_t own_precision(const start *s)
{
  const int32_t own = s->own->settings.precision;
  const uint32_t has = brim_setup_precisions(s->drive->setup);
  if (own == BRIM_PRECISION_AUTO) return brim_setup_auto_precision(s->drive->setup, &s->drive->planner.device_info);
  return own < BRIM_PRECISIONS && has >> own & 1 ? own : BRIM_PRECISION_FP32;
}

static brim_status choose_precision(start *s, uint32_t has, const char *choices, const char *name)
{
  for (size_t i = 0; i < BRIM_PRECISIONS; i++) {
    if (!(has >> i & 1) || strcmp(brim_precision_names[i], name) != 0) continue;
    const int32_t own = s->own->settings.precision;
    const bool is_so = (int32_t)i == (own == BRIM_PRECISION_AUTO ? own_precision(s) : own);
    s->answer[PRECISION] = is_so ? NULL : brim_arena_printf(s->arena, "precision=%s", name);
    return open_drive(s);
  }
  return brim_fail(BRIM_ECONFIG, "this device does not support precision '%s'\nit supports %s", name, choices);
}

static brim_status ask_precision(start *s)
{
  const char *answer;
  const uint32_t has = brim_setup_precisions(s->drive->setup);
  const char *choices = list_precisions(s);
  if (is_given(s, "precision")) return BRIM_OK;
  for (;;) {
    BRIM_TRY(ask_user(s, "precision", choices, brim_precision_names[own_precision(s)], &answer));
    const brim_status status = choose_precision(s, has, choices, answer);
    if (status == BRIM_OK || !explain(s)) return status;
  }
}

/* ---- batch size ---- */

/* ENOMEM_DEVICE if no micro-batch fits on the chosen device in the chosen precision. */
static brim_status check_room(start *s)
{
  const brim_drive *drive = s->drive;
  const uint64_t room = brim_planner_room(&drive->planner, true);
  uint64_t peak = 0, nearest = UINT64_MAX;
  char a[32], b[32];
  if (is_given(s, "training.batch_size")) return BRIM_OK; /* the plan of a given batch size is checked later */
  for (size_t i = brim_planner_list_cuts(&s->drive->planner); i-- > 0;) {
    const brim_choice c = brim_choice_cut(&drive->choice, drive->planner.micro_batch[i]);
    BRIM_TRY(brim_planner_peak(&drive->planner, &c, &peak));
    if (peak <= room) return BRIM_OK;
    if (peak < nearest) nearest = peak;
  }
  return brim_fail(BRIM_ENOMEM_DEVICE, "nothing fits on %s:%d in %s: at least %s are needed, and there is room for %s",
                   brim_setup_backend_id(drive->setup), drive->planner.device,
                   brim_precision_names[brim_setup_precision(drive->setup)], brim_format_bytes(a, sizeof a, nearest),
                   brim_format_bytes(b, sizeof b, room));
}

/* Asks for the device and the precision until a micro-batch fits. */
static brim_status ask_place(start *s)
{
  for (;;) {
    BRIM_TRY(ask_device(s));
    BRIM_TRY(ask_precision(s));
    const brim_status status = check_room(s);
    if (status == BRIM_OK || (is_given(s, "device") && is_given(s, "precision")) || !explain(s)) return status;
  }
}

/* Shows the micro-batches that fit, largest first. */
static brim_status show_batches(start *s)
{
  brim_drive *drive = s->drive;
  const uint64_t room = brim_planner_room(&drive->planner, true);
  const size_t count = brim_planner_list_cuts(&drive->planner);
  const long long effective = (long long)drive->setup->settings->training.effective_batch_size;
  char bytes[32];
  size_t shown = 0;
  if (s->cli->quiet || s->yes) return BRIM_OK;
  fprintf(stderr, "\n  a step has %lld samples; these micro-batches fit in %s:\n", effective,
          brim_format_bytes(bytes, sizeof bytes, room));
  for (size_t i = 0; i < count && shown < BATCHES_SHOWN_MAX; i++) {
    uint64_t peak;
    const brim_choice c = brim_choice_cut(&drive->choice, drive->planner.micro_batch[i]);
    BRIM_TRY(brim_planner_peak(&drive->planner, &c, &peak));
    if (peak > room) continue;
    fprintf(stderr, "  %8lld x %-8lld %10s\n", (long long)drive->planner.micro_batch[i],
            effective / (long long)drive->planner.micro_batch[i], brim_format_bytes(bytes, sizeof bytes, peak));
    shown++;
  }
  fputs("\n", stderr);
  return BRIM_OK;
}

/* Returns a number of samples; 0: the text is not one. */
static int64_t number_of(const char *text)
{
  char *end = NULL;
  errno = 0;
  const long long value = strtoll(text, &end, 10);
  return *end || errno || value < 1 ? 0 : value;
}

/* Sets the words for a micro-batch. The effective batch does not change. */
static brim_status set_batch(start *s, const char *text)
{
  const brim_training_settings *own = &s->own->settings.training;
  const bool is_auto = strcmp(text, "auto") == 0;
  const int64_t batch = is_auto ? -1 : number_of(text), effective = own->effective_batch_size;
  s->answer[BATCH] = s->answer[ACCUMULATION] = NULL;
  if (batch == 0) return brim_fail(BRIM_ECONFIG, "'%s' is not a number of samples\nwrite 1 or more, or auto", text);
  if (batch == own->batch_size) return BRIM_OK;
  if (!is_auto && effective % batch != 0)
    return brim_fail(BRIM_ECONFIG,
                     "a step has %lld samples, which %lld does not divide\nwrite a number that does, or auto",
                     (long long)effective, (long long)batch);
  s->answer[BATCH] =
      is_auto ? "training.batch_size=auto" : brim_arena_printf(s->arena, "training.batch_size=%lld", (long long)batch);
  if (!is_auto && !is_given(s, "training.effective_batch_size"))
    s->answer[ACCUMULATION] =
        brim_arena_printf(s->arena, "training.gradient_accumulation_steps=%lld", (long long)(effective / batch));
  return BRIM_OK;
}

/* Returns the default answer: "auto" or, if no policy chooses micro-batches, the configured value. */
static const char *default_batch(start *s)
{
  const int64_t own = s->own->settings.training.batch_size;
  if (own < 0 || (set_batch(s, "auto") == BRIM_OK && open_drive(s) != BRIM_ECONFIG)) return "auto";
  return brim_arena_printf(s->arena, "%lld", (long long)own);
}

/* Asks the last question that affects the plan, which then fits. */
static brim_status ask_batch(start *s, uint64_t *peak)
{
  const char *answer;
  if (is_given(s, "training.batch_size")) return try_plan(s, peak);
  BRIM_TRY(show_batches(s));
  const char *def = default_batch(s);
  for (;;) {
    BRIM_TRY(ask_user(s, "batch size", "samples in a micro-batch, or auto", def, &answer));
    brim_status status = set_batch(s, answer);
    if (status == BRIM_OK) status = try_plan(s, peak);
    if (status == BRIM_OK || !explain(s)) return status;
  }
}

/* ---- starting ---- */

/* Returns the command that does the same without questions: words, ended by NULL. */
static const char **command_words(const start *s)
{
  const char **word;
  int *number;
  const size_t count = list_words(s, &word, &number);
  const char **out = BRIM_ARENA_NEW(s->arena, const char *, BRIM_CLI_GLOBAL_WORDS + count + 3);
  size_t n = 0;
  out[n++] = "brim";
  n += brim_cli_global_words(s->cli, out + n);
  out[n++] = "train";
  for (size_t i = 0; i < count; i++) out[n++] = word[i];
  return out;
}

static brim_status print_command(const char *const *word)
{
  brim_text line = {0};
  brim_cli_quote(word, &line);
  const bool written = puts(brim_text_str(&line)) >= 0 && fflush(stdout) == 0;
  brim_text_release(&line);
  return written ? BRIM_OK : brim_fail(BRIM_EIO, "cannot write to standard output: %s", strerror(errno));
}

/* Replaces this process, because a GPU's context exists until its process ends, and may be on a device that the run
 * does not use. */
static brim_status become(const char *const *word)
{
  execv("/proc/self/exe", (char *const *)word);
  return brim_fail(BRIM_ELOAD, "cannot start /proc/self/exe: %s", strerror(errno));
}

static void show_plan(const start *s, uint64_t peak)
{
  const brim_drive *drive = s->drive;
  const brim_config *config = drive->setup->config; /* the configuration after the policies' choices */
  char a[32], b[32], cut[BRIM_CUT_ROOM];
  if (s->cli->quiet) return;
  fprintf(stderr, "\n%s on %s, on %s:%d in %s: micro-batch %s, peak %s of %s free\n",
          brim_config_choice_of(config, "model")->plugin->id, brim_config_choice_of(config, "dataset")->name,
          brim_setup_backend_id(drive->setup), drive->planner.device,
          brim_precision_names[brim_setup_precision(drive->setup)],
          brim_setup_format_cut(drive->setup, drive->choice.micro_batch, cut, sizeof cut),
          brim_format_bytes(a, sizeof a, peak), brim_format_bytes(b, sizeof b, drive->planner.device_info.free_bytes));
}

static brim_status ask_to_start(start *s, bool *go)
{
  const char *answer;
  for (;;) {
    BRIM_TRY(ask_user(s, "start", "yes, no", "yes", &answer));
    *go = strcmp(answer, "yes") == 0 || strcmp(answer, "y") == 0;
    if (*go || strcmp(answer, "no") == 0 || strcmp(answer, "n") == 0) return BRIM_OK;
    fprintf(stderr, "'%s' is neither yes nor no\n", answer);
  }
}

static brim_status ask_all(start *s, bool *go)
{
  uint64_t peak = 0;
  BRIM_TRY(compose(s, &s->own));
  BRIM_TRY(open_device(s));
  BRIM_TRY(ask_place(s));
  BRIM_TRY(ask_batch(s, &peak));
  show_plan(s, peak);
  BRIM_TRY(print_command(command_words(s)));
  return ask_to_start(s, go);
}

static const brim_option options[] = {
    {"--yes", BRIM_CLI_FLAG(start, yes), NULL, "accept every default without a question"}, {NULL}};

static int run_command(brim_cli *cli, int argc, char **argv)
{
  start s = {.cli = cli};
  brim_operands operands;
  bool go = false;
  brim_status status = brim_cli_parse(argc, argv, options, &s, &operands);
  s.given = &operands;
  s.arena = &operands.arena;
  if (status == BRIM_OK) status = ask_all(&s, &go);
  drop_drive(&s);
  brim_fits_release(&s.fits);
  brim_config_free(s.own);
  free(s.line);
  if (status == BRIM_OK && go) status = become(command_words(&s));
  return brim_cli_end(status, &operands);
}

const brim_command brim_command_start = {
    "start",
    "ask for device, precision and batch size, then train",
    run_command,
    "usage: brim start [group=option | key=value]... [--yes]\n"
    "\n"
    "  brim start                                     show the devices and what fits on them, ask, then train\n"
    "  brim start model=mlp training.epochs=2         do not ask for settings on the command line\n"
    "  brim start --yes                               accept every default\n"
    "\n"
    "Enter accepts the default in brackets. Before training, the command prints the equivalent `brim train` command,\n"
    "the only line on standard output. If you answer no to the last question, nothing is created.\n",
    options,
    true};
