/* brim generate: continues a text with a run's language model, token by token. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/characters.h"
#include "cli/cli.h"
#include "cli/run_folder.h"
#include "train/generate.h"

#define PROMPT_BYTES_MAX ((size_t)64 << 20)
#define BETWEEN "---\n" /* between texts */

typedef struct generate {
  const char *run, *which; /* as typed; which may be NULL */
  const char *prompt, *prompt_file;
  const char *tokens, *temperature, *top_k, *top_p, *seed, *samples; /* numbers, as typed; NULL: the default */
  bool json;
  char checkpoint[4096];
  brim_generate_options how;
  int64_t sample_count;
  brim_drive *drive;
  bool has_text; /* tokens have text; else they are numbers */
  brim_text prompt_text;
  int32_t *prompt_tokens;
  int64_t prompt_count;
  brim_text bytes, shown; /* of the new tokens: bytes of an incomplete character; complete characters */
  json_t *numbers;        /* with json: tokens of the current text */
} generate;

#define INTERRUPTED_EXIT (128 + SIGINT) /* the status that shells use; an interrupted text cannot be resumed */

static volatile sig_atomic_t stopped;
static void on_signal(int number)
{
  (void)number;
  stopped = 1;
}

/* ---- words ---- */

static brim_status whole_number(const char *option, const char *text, int64_t least, int64_t most, int64_t *out)
{
  char *end = NULL;
  if (!text) return BRIM_OK;
  errno = 0;
  const long long value = strtoll(text, &end, 10);
  if (end == text || *end || errno || value < least || value > most)
    return brim_fail(BRIM_ECONFIG, "%s must be a whole number in [%" PRId64 ",%" PRId64 "], got '%s'", option, least,
                     most, text);
  *out = value;
  return BRIM_OK;
}

static brim_status number(const char *option, const char *text, double least, double most, double *out)
{
  char *end = NULL;
  if (!text) return BRIM_OK;
  const double value = strtod(text, &end);
  if (end == text || *end || !(value >= least && value <= most))
    return brim_fail(BRIM_ECONFIG, "%s must be a number in [%g,%g], got '%s'", option, least, most, text);
  *out = value;
  return BRIM_OK;
}

static brim_status take_numbers(generate *g)
{
  int64_t seed = 0;
  g->how = (brim_generate_options){.sampling = {.temperature = 1, .top_p = 1}, .tokens = 200, .stop = -1};
  g->sample_count = 1;
  BRIM_TRY(whole_number("--tokens", g->tokens, 1, INT32_MAX, &g->how.tokens));
  BRIM_TRY(whole_number("--num-samples", g->samples, 1, 1 << 24, &g->sample_count));
  BRIM_TRY(whole_number("--top-k", g->top_k, 0, INT32_MAX, &g->how.sampling.top_k));
  BRIM_TRY(whole_number("--seed", g->seed, 0, INT64_MAX, &seed));
  BRIM_TRY(number("--temperature", g->temperature, 0, 1000, &g->how.sampling.temperature));
  BRIM_TRY(number("--top-p", g->top_p, 0, 1, &g->how.sampling.top_p));
  if (g->how.sampling.top_p == 0) return brim_fail(BRIM_ECONFIG, "--top-p must be greater than 0");
  if (g->prompt && g->prompt_file) return brim_fail(BRIM_ECONFIG, "--prompt and --prompt-file exclude each other");
  g->how.seed = (uint64_t)seed;
  return BRIM_OK;
}

/* ---- the prompt ---- */

static brim_status read_prompt_file(generate *g)
{
  char part[4096];
  FILE *file = fopen(g->prompt_file, "re");
  if (!file) return brim_fail(BRIM_ELOAD, "cannot open '%s': %s", g->prompt_file, strerror(errno));
  for (size_t got; (got = fread(part, 1, sizeof part, file)) > 0 && g->prompt_text.length <= PROMPT_BYTES_MAX;)
    brim_text_add_n(&g->prompt_text, part, got);
  const bool failed = ferror(file) != 0;
  const int reason = errno;
  fclose(file);
  if (failed) return brim_fail(BRIM_ELOAD, "cannot read '%s': %s", g->prompt_file, strerror(reason));
  if (g->prompt_text.length > PROMPT_BYTES_MAX)
    return brim_fail(BRIM_ELOAD, "'%s' is too long for a prompt", g->prompt_file);
  return BRIM_OK;
}

/* Reads token numbers such as "464 1917 318". */
static brim_status read_token_numbers(generate *g)
{
  const char *s = brim_text_str(&g->prompt_text);
  for (;;) {
    char *end = NULL;
    s += strspn(s, " \t\r\n,");
    if (!*s) break;
    errno = 0;
    const long long value = strtoll(s, &end, 10);
    if (end == s || errno || value < 0 || value > INT32_MAX || !(*end == '\0' || strchr(" \t\r\n,", *end)))
      return brim_fail(BRIM_ECONFIG,
                       "the tokens of this run's dataset are numbers, so the prompt must be numbers too, and "
                       "'%.20s' is not one",
                       s);
    g->prompt_tokens[g->prompt_count++] = (int32_t)value;
    s = end;
  }
  if (g->prompt_count > 0) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "the tokens of this run's dataset are numbers: give the first ones as --prompt "
                                 "\"464 1917\"");
}

/* Room for the tokens of a prompt: normal forms and templates may make more tokens than bytes. */
#define PROMPT_ROOM(bytes) (16 * (bytes) + 64)

/* Without a prompt, starts a new text: after the token that separates texts, or at a new line. */
static brim_status start_of_text(generate *g, const brim_dataset_ops *ops)
{
  size_t count = PROMPT_ROOM(1);
  g->prompt_count = 1;
  if (g->how.stop >= 0) {
    g->prompt_tokens[0] = g->how.stop;
    return BRIM_OK;
  }
  const brim_status status = ops->encode(g->drive->setup->data.self, "\n", 1, g->prompt_tokens, &count);
  g->prompt_count = (int64_t)count;
  return status;
}

static brim_status make_tokens(generate *g)
{
  const brim_data *data = &g->drive->setup->data;
  const brim_dataset_ops *ops = data->ops;
  size_t count = PROMPT_ROOM(g->prompt_text.length);
  brim_status status =
      BRIM_HAS(brim_dataset_ops, ops, encode) ? ops->end_of_text(data->self, &g->how.stop) : BRIM_ENOTSUP;
  g->has_text = status == BRIM_OK;
  if (status != BRIM_OK && status != BRIM_ENOTSUP) return status;
  if (!g->has_text) g->how.stop = -1;
  g->prompt_tokens = brim_try_calloc(count, sizeof *g->prompt_tokens);
  if (!g->prompt_tokens) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the prompt's tokens");
  if (!g->has_text) return read_token_numbers(g);
  if (g->prompt_text.length == 0) return start_of_text(g, ops);
  status = ops->encode(data->self, brim_text_str(&g->prompt_text), g->prompt_text.length, g->prompt_tokens, &count);
  g->prompt_count = (int64_t)count;
  return status;
}

/* ---- output ---- */

/* Writes complete characters to standard output and removes them from the buffer; for JSON it keeps them. */
static brim_status show(generate *g, bool last)
{
  brim_characters_take(&g->bytes, last, &g->shown);
  if (g->json) return BRIM_OK;
  const bool failed =
      fwrite(brim_text_str(&g->shown), 1, g->shown.length, stdout) != g->shown.length || fflush(stdout) != 0;
  brim_text_clear(&g->shown);
  return failed ? brim_fail(BRIM_EIO, "cannot write to standard output: %s", strerror(errno)) : BRIM_OK;
}

static brim_status add_token(generate *g, int32_t token, bool first)
{
  const char *text = NULL;
  size_t bytes = 0;
  if (!g->has_text) {
    brim_text_printf(&g->bytes, first ? "%" PRId32 : " %" PRId32, token);
    return BRIM_OK;
  }
  BRIM_TRY(g->drive->setup->data.ops->decode(g->drive->setup->data.self, token, &text, &bytes));
  brim_text_add_n(&g->bytes, text, bytes);
  return BRIM_OK;
}

static brim_status take_token(void *context, int32_t token)
{
  generate *g = context;
  BRIM_TRY(add_token(g, token, g->json && json_array_size(g->numbers) == 0));
  if (g->json) json_array_append_new(g->numbers, json_integer(token));
  return show(g, false);
}

static brim_status show_prompt(generate *g)
{
  if (g->json) return BRIM_OK;
  if (g->has_text) {
    brim_text_add_n(&g->bytes, brim_text_str(&g->prompt_text), g->prompt_text.length);
  } else {
    for (int64_t i = 0; i < g->prompt_count; i++) BRIM_TRY(add_token(g, g->prompt_tokens[i], i == 0));
  }
  return show(g, false);
}

static brim_status make_text(generate *g, brim_generator *generator, json_t *texts)
{
  if (g->how.number > 0) brim_text_add(&g->shown, g->json ? "" : BETWEEN);
  g->numbers = json_array();
  brim_status status = show_prompt(g);
  if (status == BRIM_OK) status = brim_generator_run(generator, g->prompt_tokens, g->prompt_count, &g->how);
  const bool whole =
      status == BRIM_OK || status == BRIM_EINTERRUPTED; /* an interrupted text ends like a complete one */
  if (whole && !g->json) brim_text_add(&g->bytes, "\n");
  const brim_status shown = whole ? show(g, true) : BRIM_OK;
  if (shown != BRIM_OK) status = shown;
  json_array_append_new(
      texts, json_pack("{s:s%, s:O}", "text", brim_text_str(&g->shown), g->shown.length, "tokens", g->numbers));
  json_decref(g->numbers);
  brim_text_clear(&g->shown);
  return status;
}

static brim_status print_json(const generate *g, json_t *texts)
{
  json_t *prompt = json_array();
  for (int64_t i = 0; i < g->prompt_count; i++) json_array_append_new(prompt, json_integer(g->prompt_tokens[i]));
  return brim_cli_print_json(json_pack("{s:s, s:s, s:I, s:o, s:O}", "run", g->run, "checkpoint", g->checkpoint, "seed",
                                       (json_int_t)g->how.seed, "prompt_tokens", prompt, "samples", texts));
}

/* ---- the work ---- */

static brim_status make_texts(generate *g, brim_generator *generator)
{
  json_t *texts = json_array();
  brim_status status = BRIM_OK;
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL); /* a second one ends the program at once */
  g->how.stopped = &stopped;
  g->how.take = take_token;
  g->how.context = g;
  for (int64_t i = 0; i < g->sample_count && status == BRIM_OK; i++) {
    g->how.number = (uint32_t)i;
    status = make_text(g, generator, texts);
  }
  if ((status == BRIM_OK || status == BRIM_EINTERRUPTED) && g->json) {
    const brim_status printed = print_json(g, texts);
    if (printed != BRIM_OK) status = printed;
  }
  json_decref(texts);
  return status;
}

static brim_status run(generate *g, const brim_config *config)
{
  brim_generator *generator = NULL;
  if (g->prompt) brim_text_add(&g->prompt_text, g->prompt);
  if (g->prompt_file) BRIM_TRY(read_prompt_file(g));
  BRIM_TRY(brim_drive_open(config, &(brim_setup_options){.run = g->run, .unread = true}, &g->drive));
  brim_status status = brim_generator_open(g->drive, g->checkpoint, &generator);
  if (status == BRIM_OK) status = make_tokens(g);
  if (status == BRIM_OK) status = brim_generator_check(generator, g->prompt_tokens, g->prompt_count);
  if (status == BRIM_OK) status = make_texts(g, generator);
  brim_generator_close(generator);
  return status;
}

static void release(generate *g)
{
  brim_drive_close(g->drive);
  brim_text_release(&g->prompt_text);
  brim_text_release(&g->bytes);
  brim_text_release(&g->shown);
  free(g->prompt_tokens);
}

static const brim_option options[] = {
    {"--prompt", BRIM_CLI_STRING(generate, prompt), "TEXT", "text to continue (default: start a new text)"},
    {"--prompt-file", BRIM_CLI_STRING(generate, prompt_file), "FILE", "read the prompt from a file"},
    {"--tokens", BRIM_CLI_STRING(generate, tokens), "N", "number of tokens to generate (default: 200)"},
    {"--temperature", BRIM_CLI_STRING(generate, temperature), "T",
     "divides the logits: below 1 favors probable tokens; 0: always the most probable token (default: 1)"},
    {"--top-k", BRIM_CLI_STRING(generate, top_k), "K", "sample only from the K most probable tokens (default: 0, all)"},
    {"--top-p", BRIM_CLI_STRING(generate, top_p), "P",
     "sample only from the most probable tokens whose probabilities add up to P"},
    {"--seed", BRIM_CLI_STRING(generate, seed), "S", "seed of the sampling; the same seed gives the same text"},
    {"--num-samples", BRIM_CLI_STRING(generate, samples), "N", "number of texts (default: 1)"},
    {"--checkpoint", BRIM_CLI_STRING(generate, which), "best|last|PATH",
     "checkpoint of the run (default: best, or last if there is no best)"},
    {"--json", BRIM_CLI_FLAG(generate, json), NULL, "print JSON"},
    {NULL}};

static int run_command(brim_cli *cli, int argc, char **argv)
{
  generate g = {0};
  brim_operands o;
  char file[4096];
  brim_config *config = NULL;
  brim_status status = brim_cli_parse(argc, argv, options, &g, &o);
  if (status == BRIM_OK && o.count == 0)
    status = brim_fail(BRIM_ECONFIG, "brim generate needs the folder of a run: brim generate RUN --prompt TEXT");
  if (o.count > 0) g.run = o.word[0];
  if (status == BRIM_OK) status = take_numbers(&g);
  if (status == BRIM_OK) status = brim_cli_run_config(cli, g.run, file, sizeof file);
  if (status == BRIM_OK) status = brim_cli_run_checkpoint(g.run, g.which, g.checkpoint, sizeof g.checkpoint);
  if (status == BRIM_OK) status = brim_cli_config(cli, file, o.word + 1, o.number + 1, o.count - 1, &config);
  if (status == BRIM_OK) status = brim_cli_refuse_weights(g.run, config, o.word + 1, o.count - 1);
  if (status == BRIM_OK) status = run(&g, config);
  release(&g);
  brim_config_free(config);
  const bool interrupted = status == BRIM_EINTERRUPTED && stopped;
  const int exit_status = brim_cli_end(interrupted ? BRIM_OK : status, &o);
  return interrupted ? INTERRUPTED_EXIT : exit_status;
}

const brim_command brim_command_generate = {
    "generate", "continue a text with a run's language model", run_command,
    "usage: brim generate RUN [key=value]... [--prompt TEXT | --prompt-file FILE] [--tokens N] [--temperature T]\n"
    "                     [--top-k K] [--top-p P] [--seed S] [--num-samples N] [--checkpoint best|last|PATH] [--json]\n"
    "\n"
    "  brim generate runs/a --prompt 'Once upon'      200 more tokens, sampled by probability\n"
    "  brim generate runs/a --prompt-file f --tokens 50 --temperature 0   always the most probable token\n"
    "  brim generate runs/a --top-k 50 --top-p 0.9 --num-samples 3        three texts, from probable tokens only\n"
    "  brim generate runs/a --seed 2 --json           another text, as JSON with the tokens' numbers\n"
    "  Ctrl-C ends the text where it is, with exit status 130.\n"
    "\n"
    "The text is printed as it is generated. The same seed gives the same text. The model sees the last tokens, as\n"
    "many as its training samples had (dataset.context). Without a prompt, a new text begins. If the dataset has no\n"
    "text for its tokens (as dataset=tokens), prompt and output are numbers of tokens.\n",
    options};
