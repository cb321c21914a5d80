/* brim generate: continues texts with a language model, token by token. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "cli/generate_chat.h"
#include "cli/generate_model.h"
#include "cli/generate_print.h"
#include "cli/plan_print.h"
#include "graph/plan_json.h"
#include "train/generate.h"

#define TEXTS_MAX 8 /* texts side by side: more need more memory, and save little time */

typedef struct generate {
  const char *which; /* as the user typed it; may be NULL */
  const char *prompt, *prompt_file;
  /* Numbers, as the user typed them; NULL: the default. */
  const char *tokens, *temperature, *top_k, *top_p, *penalty, *seed, *samples, *context;
  const char *system;
  bool json, plan, chat;
  brim_generate_model model;
  brim_generate_options how;
  int64_t sample_count, context_tokens;
  int32_t end_of_text; /* the dataset's; -1: none */
  brim_drive *drive;
  bool has_text; /* tokens have text; otherwise their numbers are printed */
  brim_text prompt_text;
  int32_t *prompt_tokens;
  int64_t prompt_count;
  brim_generate_printer printer;
} generate;

#define INTERRUPTED_EXIT (128 + SIGINT) /* the status that shells use; an interrupted text cannot be resumed */

static volatile sig_atomic_t stopped;
static void on_signal(int number)
{
  (void)number;
  stopped = 1;
}

/* ---- words ---- */

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

/* Called again after the model's own values were read, which the options replace. Options that only affect sampling
 * turn it on. */
static brim_status take_sampling(generate *g)
{
  brim_sampling *s = &g->how.sampling;
  if (s->temperature == 0 && (g->top_k || g->top_p || g->sample_count > 1)) s->temperature = 1;
  BRIM_TRY(brim_cli_whole_number("--top-k", g->top_k, 0, INT32_MAX, &s->top_k));
  BRIM_TRY(number("--temperature", g->temperature, 0, 1000, &s->temperature));
  BRIM_TRY(number("--repetition-penalty", g->penalty, 1e-3, 1000, &s->repetition_penalty));
  return number("--top-p", g->top_p, 0, 1, &s->top_p);
}

static brim_status take_numbers(generate *g)
{
  int64_t seed = 0;
  g->how = (brim_generate_options){.sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1}, .tokens = 200};
  g->sample_count = 1;
  g->end_of_text = -1;
  BRIM_TRY(brim_cli_whole_number("--tokens", g->tokens, 1, INT32_MAX, &g->how.tokens));
  BRIM_TRY(brim_cli_whole_number("--num-samples", g->samples, 1, 1 << 24, &g->sample_count));
  BRIM_TRY(brim_cli_whole_number("--context", g->context, 1, 1 << 24, &g->context_tokens));
  BRIM_TRY(brim_cli_whole_number("--seed", g->seed, 0, INT64_MAX, &seed));
  BRIM_TRY(take_sampling(g));
  if (g->how.sampling.top_p == 0) return brim_fail(BRIM_ECONFIG, "--top-p must be greater than 0");
  if (g->prompt && g->prompt_file) return brim_fail(BRIM_ECONFIG, "--prompt and --prompt-file exclude each other");
  if (g->system && !g->chat) return brim_fail(BRIM_ECONFIG, "--system is for --chat");
  if (g->chat && g->sample_count > 1) return brim_fail(BRIM_ECONFIG, "--chat and --num-samples exclude each other");
  g->how.seed = (uint64_t)seed;
  return BRIM_OK;
}

/* ---- the prompt ---- */

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
  if (g->end_of_text >= 0) {
    g->prompt_tokens[0] = g->end_of_text;
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
      BRIM_HAS(brim_dataset_ops, ops, encode) ? ops->end_of_text(data->self, &g->end_of_text) : BRIM_ENOTSUP;
  g->has_text = status == BRIM_OK;
  if (status != BRIM_OK && status != BRIM_ENOTSUP) return status;
  if (!g->has_text) g->end_of_text = -1;
  if (g->end_of_text >= 0 && g->how.stops.count < BRIM_STOPS_MAX && !brim_stops_have(&g->how.stops, g->end_of_text))
    g->how.stops.token[g->how.stops.count++] = g->end_of_text;
  g->prompt_tokens = brim_try_calloc(count, sizeof *g->prompt_tokens);
  if (!g->prompt_tokens) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the prompt's tokens");
  if (!g->has_text) return read_token_numbers(g);
  if (g->prompt_text.length == 0) return start_of_text(g, ops);
  status = ops->encode(data->self, brim_text_str(&g->prompt_text), g->prompt_text.length, g->prompt_tokens, &count);
  g->prompt_count = (int64_t)count;
  return status;
}

/* ---- the work ---- */

static void catch_interrupt(generate *g)
{
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL); /* a second signal ends the program at once */
  g->how.stopped = &stopped;
}

static brim_status make_texts(generate *g, brim_generator *generator, int64_t side_by_side)
{
  brim_generate_text text[TEXTS_MAX];
  brim_status status = BRIM_OK;
  catch_interrupt(g);
  g->how.take = brim_generate_print_token;
  g->how.end = brim_generate_print_end;
  g->how.context = &g->printer;
  for (int64_t done = 0; done < g->sample_count && status == BRIM_OK; done += side_by_side) {
    const int64_t left = g->sample_count - done, count = left < side_by_side ? left : side_by_side;
    for (int64_t i = 0; i < count; i++)
      text[i] = (brim_generate_text){g->prompt_tokens, g->prompt_count, (uint32_t)(done + i)};
    status = brim_generate_print_begin(&g->printer, count);
    if (status == BRIM_OK) status = brim_generator_run(generator, text, count, &g->how);
    /* An interrupted text is completed like others. */
    const bool whole = status == BRIM_OK || status == BRIM_EINTERRUPTED;
    const brim_status printed = whole ? brim_generate_print_rest(&g->printer) : BRIM_OK;
    if (printed != BRIM_OK) status = printed;
  }
  return status;
}

static brim_status print_plan(const generate *g, const brim_generator_options *options)
{
  brim_plan *plan = NULL;
  char bytes[32];
  BRIM_TRY(brim_generator_make_plan(g->drive, options, &plan));
  if (g->json) {
    const brim_status status = brim_cli_print_json(brim_plan_json(plan, options->texts));
    brim_plan_free(plan);
    return status;
  }
  const brim_generation *generation = &plan->program[0].graph->generation;
  if (generation->capacity > 0)
    printf("%" PRId64 " text%s of up to %" PRId64 " tokens\n\n", options->texts, brim_plural(options->texts),
           generation->capacity);
  printf("peak %s, exactly %" PRIu64 " bytes, in %s\n", brim_format_bytes(bytes, sizeof bytes, plan->peak_bytes),
         plan->peak_bytes, plan->peak_op);
  for (uint32_t r = 0; r < BRIM_ROLE_COUNT; r++)
    if (plan->class_bytes[r] > 0)
      printf("  %-12s %12s\n", brim_role_name(r), brim_format_bytes(bytes, sizeof bytes, plan->class_bytes[r]));
  brim_cli_print_slower(g->drive, plan);
  brim_plan_free(plan);
  return BRIM_OK;
}

static brim_status generate_all(generate *g, const brim_generator_options *options)
{
  brim_generator *generator = NULL;
  const char *checkpoint = g->model.checkpoint[0] ? g->model.checkpoint : NULL;
  BRIM_TRY(brim_generator_open(g->drive, checkpoint, options, &generator));
  const char *why = brim_generator_without_cache(generator);
  if (why[0]) brim_log(BRIM_LOG_DEBUG, "no cache of keys and values: %s", why);
  brim_status status = make_texts(g, generator, options->texts);
  if ((status == BRIM_OK || status == BRIM_EINTERRUPTED) && g->json) {
    const brim_status printed = brim_generate_print_json(&g->printer, &g->model, g->how.seed);
    if (printed != BRIM_OK) status = printed;
  }
  brim_generator_close(generator);
  return status;
}

/* ---- conversations ---- */

static brim_status converse(generate *g, brim_generator *generator)
{
  const brim_generation *planned = &brim_generator_plan(generator)->program[0].graph->generation;
  const brim_data *data = &g->drive->setup->data;
  brim_generate_chat chat = {.data = data, .generator = generator, .quiet = g->json};
  catch_interrupt(g);
  chat.how = g->how;
  chat.limit = planned->capacity > 0 ? planned->capacity : data->train.sample.dim[0];
  brim_generate_chat_begin(&chat, g->system);
  brim_status status = g->prompt_text.length > 0
                           ? brim_generate_chat_say(&chat, brim_text_str(&g->prompt_text), g->prompt_text.length)
                           : brim_generate_chat_read(&chat);
  if ((status == BRIM_OK || status == BRIM_EINTERRUPTED) && g->json) {
    const brim_status printed =
        brim_cli_print_json(json_pack("{s:s, s:I, s:O}", g->model.run ? "run" : "model", g->model.path, "seed",
                                      (json_int_t)g->how.seed, "messages", chat.messages));
    if (printed != BRIM_OK) status = printed;
  }
  brim_generate_chat_release(&chat);
  return status;
}

static brim_status run_chat(generate *g)
{
  brim_generator *generator = NULL;
  const brim_generator_options options = {.texts = 1, .tokens = g->how.tokens, .context = g->context_tokens};
  BRIM_TRY(brim_generate_chat_check(&g->drive->setup->data));
  if (g->plan) return print_plan(g, &options);
  BRIM_TRY(brim_generator_open(g->drive, g->model.checkpoint[0] ? g->model.checkpoint : NULL, &options, &generator));
  const brim_status status = converse(g, generator);
  brim_generator_close(generator);
  return status;
}

static brim_status run(generate *g)
{
  if (g->prompt) brim_text_add(&g->prompt_text, g->prompt);
  if (g->prompt_file) BRIM_TRY(brim_cli_read_text(g->prompt_file, &g->prompt_text));
  BRIM_TRY(brim_generate_model_defaults(&g->model, &g->how));
  BRIM_TRY(take_sampling(g));
  BRIM_TRY(brim_drive_open(g->model.config, &(brim_setup_options){.run = g->model.run, .unread = true}, &g->drive));
  BRIM_TRY(brim_generator_check(g->drive, NULL, 0));
  if (g->chat) return run_chat(g);
  BRIM_TRY(make_tokens(g));
  BRIM_TRY(brim_generator_check(g->drive, g->prompt_tokens, g->prompt_count));
  const brim_generator_options options = {.texts = g->sample_count < TEXTS_MAX ? g->sample_count : TEXTS_MAX,
                                          .prompt = g->prompt_count,
                                          .tokens = g->how.tokens,
                                          .context = g->context_tokens};
  if (g->plan) return print_plan(g, &options);
  g->printer = (brim_generate_printer){.data = &g->drive->setup->data,
                                       .has_text = g->has_text,
                                       .json = g->json,
                                       .prompt = &g->prompt_text,
                                       .prompt_tokens = g->prompt_tokens,
                                       .prompt_count = g->prompt_count};
  return generate_all(g, &options);
}

static const brim_option options[] = {
    {"--prompt", BRIM_CLI_STRING(generate, prompt), "TEXT", "text to continue (default: start a new text)"},
    {"--prompt-file", BRIM_CLI_STRING(generate, prompt_file), "FILE", "read the prompt from a file"},
    {"--chat", BRIM_CLI_FLAG(generate, chat), NULL,
     "a conversation: answer each line of standard input, or the prompt, by the model's chat template"},
    {"--system", BRIM_CLI_STRING(generate, system), "TEXT", "with --chat: the system message"},
    {"--tokens", BRIM_CLI_STRING(generate, tokens), "N", "number of tokens to generate (default: 200)"},
    {"--temperature", BRIM_CLI_STRING(generate, temperature), "T",
     "divides the logits: below 1 favors probable tokens; 0: always the most probable token (default: that of the "
     "model; "
     "1 for your own models)"},
    {"--top-k", BRIM_CLI_STRING(generate, top_k), "K", "sample only from the K most probable tokens (default: 0, all)"},
    {"--top-p", BRIM_CLI_STRING(generate, top_p), "P",
     "sample only from the most probable tokens whose probabilities add up to P"},
    {"--repetition-penalty", BRIM_CLI_STRING(generate, penalty), "X",
     "divides positive logits of tokens that the text has already, and multiplies negative ones"},
    {"--seed", BRIM_CLI_STRING(generate, seed), "S", "seed of the sampling; the same seed gives the same text"},
    {"--num-samples", BRIM_CLI_STRING(generate, samples), "N", "number of texts (default: 1)"},
    {"--context", BRIM_CLI_STRING(generate, context), "N",
     "tokens that the model sees at most (default: those of a sample, or of the model)"},
    {"--plan", BRIM_CLI_FLAG(generate, plan), NULL, "only show the memory that it would take"},
    {"--checkpoint", BRIM_CLI_STRING(generate, which), "best|last|PATH",
     "checkpoint of the run (default: best, or last if there is no best)"},
    {"--json", BRIM_CLI_FLAG(generate, json), NULL, "print JSON"},
    {NULL}};

static int run_command(brim_cli *cli, int argc, char **argv)
{
  generate g = {0};
  brim_operands o;
  brim_status status = brim_cli_parse(argc, argv, options, &g, &o);
  if (status == BRIM_OK && o.count == 0)
    status =
        brim_fail(BRIM_ECONFIG, "brim generate needs the folder of a run or of a model: brim generate RUN --prompt "
                                "TEXT");
  if (status == BRIM_OK) status = take_numbers(&g);
  if (status == BRIM_OK) status = brim_generate_model_open(cli, &o, g.which, &g.model);
  if (status == BRIM_OK) status = run(&g);
  brim_generate_printer_release(&g.printer);
  brim_drive_close(g.drive);
  brim_generate_model_close(&g.model);
  brim_text_release(&g.prompt_text);
  free(g.prompt_tokens);
  const bool interrupted = status == BRIM_EINTERRUPTED && stopped;
  const int exit_status = brim_cli_end(interrupted ? BRIM_OK : status, &o);
  return interrupted ? INTERRUPTED_EXIT : exit_status;
}

const brim_command brim_command_generate = {
    "generate",
    "continue a text with a run's language model",
    run_command,
    "usage: brim generate RUN|MODEL [key=value]... [--prompt TEXT | --prompt-file FILE] [--tokens N] [--temperature "
    "T]\n"
    "                     [--top-k K] [--top-p P] [--repetition-penalty X] [--seed S] [--num-samples N] [--context N]\n"
    "                     [--checkpoint best|last|PATH] [--chat [--system TEXT]] [--plan] [--json]\n"
    "\n"
    "  brim generate runs/a --prompt 'Once upon'      200 more tokens, sampled by probability\n"
    "  brim generate runs/a --prompt-file f --tokens 50 --temperature 0   always the most probable token\n"
    "  brim generate runs/a --top-k 50 --top-p 0.9 --num-samples 3        three texts, from probable tokens only\n"
    "  brim generate runs/a --seed 2 --json           another text, as JSON with the tokens' numbers\n"
    "  brim generate Qwen3-0.6B --prompt 'Once upon'  a model's folder, as Hugging Face has it\n"
    "  brim generate SmolLM2-135M-Instruct --chat     a conversation, a line for each turn\n"
    "  Ctrl-C ends the text where it is, with exit status 130.\n"
    "\n"
    "The text is printed as it is generated. The same seed gives the same text. Several texts are generated side by\n"
    "side, and printed one after another. The model sees the last tokens, as many as its training samples had\n"
    "(dataset.context); without a run, as many as the model allows. Without a prompt, a new text begins. If the "
    "dataset\n"
    "has no text for its tokens (as dataset=tokens), prompt and output are numbers of tokens. If the folder in\n"
    "model.weights has a generation_config.json, the text ends at its eos_token_id too, and its sampling values are\n"
    "the defaults. As in transformers, models from Hugging Face and GGUF files choose the most probable token without\n"
    "do_sample; --temperature 1, --top-k, --top-p and several --num-samples sample.\n",
    options,
    true};
