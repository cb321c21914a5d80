/* See eval_texts.h. */
#include "cli/eval_texts.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/choices.h"
#include "cli/generate_model.h"
#include "store/summary.h"
#include "train/score.h"

#define NUMBER_MAX (1 << 24) /* limit for tokens and for examples */
#define CONTEXT_DEFAULT 2048 /* context of a model without a run, for --text: more needs more memory and time */
#define ROW_TOKENS 512       /* row of a model without a run, for --choices: several short texts share a row */

static volatile sig_atomic_t stopped;
static void on_signal(int number)
{
  (void)number;
  stopped = 1;
}

/* A model, its tokenizer, and the texts to score with it. */
typedef struct work {
  const brim_cli *cli;
  const brim_operands *operands;
  const brim_eval_texts *wish;
  brim_arena arena;
  int64_t context, stride, shots; /* as the user typed them; 0: the default */
  brim_generate_model model;
  brim_drive *drive;
  brim_passage *passage;
  size_t count;
  brim_score_cost cost;
} work;

/* ---- options ---- */

bool brim_eval_wants_texts(const brim_eval_texts *w)
{
  return w->text || w->choices;
}

brim_status brim_eval_texts_check(const brim_eval_texts *w)
{
  if (w->text && w->choices) return brim_fail(BRIM_ECONFIG, "--text and --choices exclude each other");
  if (w->stride && !w->text) return brim_fail(BRIM_ECONFIG, "--stride is for --text");
  if (w->context && !brim_eval_wants_texts(w)) return brim_fail(BRIM_ECONFIG, "--context is for --text and --choices");
  if ((w->shots || w->shots_from) && !w->choices)
    return brim_fail(BRIM_ECONFIG, "--shots and --shots-from are for --choices");
  if (!w->shots != !w->shots_from)
    return brim_fail(BRIM_ECONFIG, "--shots N and --shots-from FILE need each other: the first N questions of that "
                                   "file become the examples");
  return BRIM_OK;
}

/* ---- the model ---- */

static bool sets(const work *w, const char *key)
{
  for (size_t i = 1; i < w->operands->count; i++)
    if (brim_starts_with(w->operands->word[i], key)) return true;
  return false;
}

/* Opens the model for samples of `context` tokens (0: the model's own), which may consist of documents. */
static brim_status open_model(work *w, int64_t context, bool documents)
{
  brim_operands o = {.count = w->operands->count};
  const size_t room = o.count + 2;
  o.word = BRIM_ARENA_NEW(&w->arena, const char *, room);
  o.number = BRIM_ARENA_NEW(&w->arena, int, room);
  memcpy(o.word, w->operands->word, o.count * sizeof *o.word);
  memcpy(o.number, w->operands->number, o.count * sizeof *o.number);
  if (context > 0) o.word[o.count++] = brim_arena_printf(&w->arena, "dataset.context=%" PRId64, context);
  if (documents) o.word[o.count++] = "dataset.documents=true";
  for (size_t i = w->operands->count; i < o.count; i++) o.number[i] = o.number[0];
  BRIM_TRY(brim_generate_model_open(w->cli, &o, w->wish->checkpoint, &w->model));
  return brim_drive_open(w->model.config, &(brim_setup_options){.run = w->model.run, .unread = true}, &w->drive);
}

static void close_model(work *w)
{
  brim_drive_close(w->drive);
  w->drive = NULL;
  brim_generate_model_close(&w->model);
}

static brim_status reopen(work *w, int64_t context, bool documents)
{
  close_model(w);
  return open_model(w, context, documents);
}

static int64_t context_of(const work *w)
{
  return w->drive->setup->data.train.sample.dim[0];
}

/* Whether the number of tokens in a sample is free: not for a run, nor if --context or an override sets it. */
static bool chooses_context(const work *w)
{
  return !w->model.run && !w->context && !sets(w, "dataset.context=");
}

static brim_status check_text(const work *w)
{
  int32_t end_of_text = 0;
  const brim_data *data = &w->drive->setup->data;
  const brim_status status =
      BRIM_HAS(brim_dataset_ops, data->ops, encode) ? data->ops->end_of_text(data->self, &end_of_text) : BRIM_ENOTSUP;
  if (data->train.task == BRIM_TASK_TOKENS && status != BRIM_ENOTSUP) return status;
  return brim_fail(BRIM_ECONFIG,
                   "%s has no tokenizer, so it cannot read a text: the dataset of a language model must "
                   "be text or chat",
                   w->model.path);
}

static brim_status encode(work *w, const char *text, size_t bytes, const int32_t **tokens, int64_t *count)
{
  const brim_data *data = &w->drive->setup->data;
  size_t room = 16 * bytes + 64;                     /* Unicode's normal forms and templates may add tokens */
  int32_t *out = brim_try_calloc(room, sizeof *out); /* pages that are not used take no memory */
  if (!out) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the tokens of %zu bytes of text", bytes);
  const brim_status status = data->ops->encode(data->self, text, bytes, out, &room);
  int32_t *copy = status == BRIM_OK ? brim_arena_try(&w->arena, (room + 1) * sizeof *out) : NULL;
  if (copy) memcpy(copy, out, room * sizeof *out);
  free(out);
  *tokens = copy;
  *count = (int64_t)room;
  if (status != BRIM_OK || copy) return status;
  return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the tokens of %zu bytes of text", bytes);
}

static brim_status score(work *w)
{
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL); /* a second signal ends the program at once */
  const char *checkpoint = w->model.checkpoint[0] ? w->model.checkpoint : NULL;
  return brim_score(w->drive, checkpoint, w->passage, w->count, &stopped, &w->cost);
}

static json_t *begin_json(const work *w)
{
  json_t *root = json_pack("{s:s, s:I}", w->model.run ? "run" : "model", w->model.path, "device_peak_bytes",
                           (json_int_t)w->cost.device_bytes);
  if (root && w->model.run) json_object_set_new(root, "checkpoint", json_string(w->model.checkpoint));
  return root;
}

/* ---- perplexity ---- */

/* Cuts a text into windows of `context` tokens, each `stride` after the one before, whose tokens are its context: see
 * https://huggingface.co/docs/transformers/perplexity. */
static brim_status make_windows(work *w, const int32_t *tokens, int64_t count, int64_t context)
{
  w->passage = brim_arena_try(&w->arena, sizeof *w->passage * (size_t)(count / w->stride + 1));
  if (!w->passage) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the windows of %" PRId64 " tokens", count);
  for (int64_t begin = 0, end = 0; end < count; begin += w->stride) {
    const int64_t before = end;
    end = begin + context < count ? begin + context : count;
    const int64_t first = before > begin ? before - begin : 1;
    w->passage[w->count++] = (brim_passage){.tokens = tokens + begin, .count = end - begin, .first = first};
  }
  return BRIM_OK;
}

static brim_status print_perplexity(const work *w, size_t bytes, int64_t tokens, int64_t context)
{
  double sum = 0;
  brim_text out = {0};
  for (size_t i = 0; i < w->count; i++) sum += w->passage[i].loss;
  const double mean = sum / (double)(tokens - 1), bits = sum / log(2) / (double)bytes;
  if (w->wish->json) {
    json_t *root = begin_json(w);
    json_t *figures = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "text", w->wish->text, "bytes",
                                (json_int_t)bytes, "tokens", (json_int_t)tokens, "scored", (json_int_t)(tokens - 1),
                                "windows", (json_int_t)w->count, "context", (json_int_t)context, "stride",
                                (json_int_t)w->stride, "perplexity", brim_json_figure(exp(mean)), "bits_per_byte",
                                brim_json_figure(bits), "nats_per_token", brim_json_figure(mean));
    if (root && figures) json_object_update(root, figures);
    json_decref(figures);
    return brim_cli_print_json(root);
  }
  brim_text_printf(&out,
                   "%s: perplexity %.4f, %.4f nats per token, %.4f bits per byte\n"
                   "%s: %zu bytes, %" PRId64 " tokens in %zu window%s of %" PRId64 ", a new one every %" PRId64 "\n",
                   w->model.path, exp(mean), mean, bits, w->wish->text, bytes, tokens, w->count,
                   brim_plural((int64_t)w->count), context, w->stride);
  brim_cli_print(brim_text_str(&out));
  brim_text_release(&out);
  return BRIM_OK;
}

static brim_status evaluate_text(work *w, const brim_text *text)
{
  const int32_t *tokens = NULL;
  int64_t count = 0;
  BRIM_TRY(open_model(w, w->context, false));
  BRIM_TRY(check_text(w));
  if (chooses_context(w) && context_of(w) > CONTEXT_DEFAULT) BRIM_TRY(reopen(w, CONTEXT_DEFAULT, false));
  const int64_t context = context_of(w);
  if (context < 2)
    return brim_fail(BRIM_ECONFIG, "a window of %" PRId64 " token predicts no token: set a longer context", context);
  if (w->stride == 0) w->stride = context / 2;
  if (w->stride >= context)
    return brim_fail(BRIM_ECONFIG,
                     "--stride %" PRId64 " must be less than the context, %" PRId64 ": a window's first token has no "
                     "context, so it must belong to the window before too",
                     w->stride, context);
  BRIM_TRY(encode(w, brim_text_str(text), text->length, &tokens, &count));
  if (count < 2)
    return brim_fail(BRIM_ELOAD, "'%s' has %" PRId64 " token%s: perplexity needs at least 2", w->wish->text, count,
                     brim_plural(count));
  BRIM_TRY(make_windows(w, tokens, count, context));
  BRIM_TRY(score(w));
  return print_perplexity(w, text->length, count, context);
}

static brim_status run_text(work *w)
{
  brim_text text = {0};
  brim_status status = brim_cli_read_text(w->wish->text, &text);
  if (status == BRIM_OK) status = evaluate_text(w, &text);
  brim_text_release(&text);
  return status;
}

/* ---- multiple choice ---- */

/* Makes the tokens of a prompt with one of its answers. White space at the prompt's end belongs to the answer, because
 * tokens begin with a space. */
static brim_status encode_choice(work *w, const brim_questions *of, const brim_question *q, const char *prompt,
                                 const char *choice, brim_passage *out)
{
  const int32_t *before = NULL;
  const char *whole = brim_arena_printf(&w->arena, "%s %s", prompt, choice);
  BRIM_TRY(encode(w, whole, strlen(whole), &out->tokens, &out->count));
  BRIM_TRY(encode(w, prompt, brim_without_space(prompt, strlen(prompt)), &before, &out->first));
  if (out->first >= 1 && out->first < out->count) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "%s:%" PRId64 ": the choice '%s' has no token of its own after the question", of->path,
                   q->line, choice);
}

static brim_status encode_choices(work *w, const brim_questions *of, const brim_questions *examples)
{
  for (size_t i = 0; i < of->count; i++) w->count += of->item[i].count;
  w->passage = brim_arena_try(&w->arena, sizeof *w->passage * w->count);
  if (!w->passage) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for %zu choices", w->count);
  brim_passage *passage = w->passage;
  for (size_t i = 0; i < of->count; i++) {
    const brim_question *q = &of->item[i];
    const char *prompt = NULL;
    BRIM_TRY(brim_question_prompt(&w->arena, of, q, examples, w->shots, &prompt));
    for (size_t k = 0; k < q->count; k++) BRIM_TRY(encode_choice(w, of, q, prompt, q->choice[k], passage++));
  }
  return BRIM_OK;
}

/* Rejects choices that are longer than the model's context; *longest: tokens that the model must see. */
static brim_status measure(const work *w, const brim_questions *of, int64_t limit, int64_t *longest)
{
  const brim_passage *p = w->passage;
  *longest = 1;
  for (size_t i = 0; i < of->count; i++)
    for (size_t k = 0; k < of->item[i].count; k++, p++) {
      if (p->count - 1 > *longest) *longest = p->count - 1;
      if (p->count - 1 > limit)
        return brim_fail(BRIM_ECONFIG,
                         "%s:%" PRId64 ": with choice %zu the question has %" PRId64 " tokens, but the model sees "
                         "%" PRId64 "%s",
                         of->path, of->item[i].line, k, p->count, limit,
                         w->shots > 0 ? ": set fewer --shots, or a longer context" : ": set a longer context");
    }
  return BRIM_OK;
}

/* Reopens a model without a run with samples that are long enough for the choices. */
static brim_status fit_context(work *w, int64_t longest)
{
  int32_t end_of_text = -1;
  const brim_data *data = &w->drive->setup->data;
  const int64_t limit = context_of(w);
  if (!chooses_context(w)) return BRIM_OK;
  BRIM_TRY(data->ops->end_of_text(data->self, &end_of_text));
  int64_t context = longest > ROW_TOKENS ? longest : ROW_TOKENS;
  if (context > limit) context = limit;
  return reopen(w, context, end_of_text >= 0 && !sets(w, "dataset.documents="));
}

/* ---- the result ---- */

typedef struct tally {
  /* Questions answered correctly by the sum of logarithms, and by that sum divided by characters or by bytes. */
  int64_t right, right_norm, right_bytes;
} tally;

static double characters_of(const char *text)
{
  int64_t count = 0;
  for (; *text; text++) count += ((unsigned char)*text & 0xc0) != 0x80;
  return (double)count;
}

/* Returns the most probable choice; of equally probable ones the first. */
static size_t best_of(const brim_question *q, const brim_passage *p, double (*length)(const char *))
{
  size_t best = 0;
  double most = -INFINITY;
  for (size_t k = 0; k < q->count; k++) {
    const double value = -p[k].loss / length(q->choice[k]);
    if (value > most) best = k;
    if (value > most) most = value;
  }
  return best;
}

static double one(const char *text)
{
  (void)text;
  return 1;
}
static double bytes_of(const char *text)
{
  return (double)strlen(text);
}

static json_t *judge(const brim_question *q, const brim_passage *p, tally *t)
{
  const size_t best = best_of(q, p, one), norm = best_of(q, p, characters_of), bytes = best_of(q, p, bytes_of);
  json_t *scores = json_array();
  t->right += best == q->answer;
  t->right_norm += norm == q->answer;
  t->right_bytes += bytes == q->answer;
  for (size_t k = 0; k < q->count; k++) json_array_append_new(scores, brim_json_figure(-p[k].loss));
  return json_pack("{s:I, s:s, s:I, s:I, s:I, s:I, s:o}", "line", (json_int_t)q->line, "form", q->form, "answer",
                   (json_int_t)q->answer, "prediction", (json_int_t)best, "prediction_norm", (json_int_t)norm,
                   "prediction_bytes", (json_int_t)bytes, "log_likelihood", scores);
}

/* Computes the standard error of a fraction, as lm-evaluation-harness does; NAN for one question. */
static double error_of(double share, double count)
{
  return count > 1 ? sqrt(share * (1 - share) / (count - 1)) : NAN;
}

static brim_status print_choices_json(const work *w, const tally *t, double count, json_t *scores)
{
  const double share = (double)t->right / count, norm = (double)t->right_norm / count;
  json_t *root = begin_json(w);
  json_t *figures = json_pack(
      "{s:s, s:I, s:I, s:I, s:f, s:o, s:f, s:o, s:f, s:O}", "choices", w->wish->choices, "questions", (json_int_t)count,
      "shots", (json_int_t)w->shots, "context", (json_int_t)context_of(w), "accuracy", share, "accuracy_error",
      brim_json_figure(error_of(share, count)), "accuracy_norm", norm, "accuracy_norm_error",
      brim_json_figure(error_of(norm, count)), "accuracy_bytes", (double)t->right_bytes / count, "scores", scores);
  if (root && figures) json_object_update(root, figures);
  json_decref(figures);
  return brim_cli_print_json(root);
}

static void print_choices(const work *w, const tally *t, double count)
{
  const struct {
    const char *name;
    int64_t right;
  } row[] = {{"accuracy", t->right},
             {"by the length in characters", t->right_norm},
             {"by the length in bytes", t->right_bytes}};
  brim_text out = {0};
  brim_text_printf(&out, "%s: %.0f question%s of %s, %" PRId64 " example%s before each\n", w->model.path, count,
                   brim_plural((int64_t)count), w->wish->choices, w->shots, brim_plural(w->shots));
  for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
    const double share = (double)row[i].right / count, error = error_of(share, count);
    brim_text_printf(&out, "%-28s %6.2f %%", row[i].name, 100 * share);
    if (count > 1) brim_text_printf(&out, " +- %.2f", 100 * error);
    brim_text_printf(&out, "  (%" PRId64 " right)\n", row[i].right);
  }
  brim_cli_print(brim_text_str(&out));
  brim_text_release(&out);
}

static brim_status print_result(const work *w, const brim_questions *of)
{
  tally t = {0};
  const brim_passage *p = w->passage;
  json_t *scores = json_array();
  for (size_t i = 0; i < of->count; p += of->item[i++].count) json_array_append_new(scores, judge(&of->item[i], p, &t));
  brim_status status = BRIM_OK;
  if (w->wish->json)
    status = print_choices_json(w, &t, (double)of->count, scores);
  else
    print_choices(w, &t, (double)of->count);
  json_decref(scores);
  return status;
}

static brim_status run_choices(work *w)
{
  brim_questions questions, examples = {0};
  int64_t longest = 0;
  BRIM_TRY(brim_questions_read(&w->arena, w->wish->choices, &questions));
  if (w->wish->shots_from) BRIM_TRY(brim_questions_read(&w->arena, w->wish->shots_from, &examples));
  BRIM_TRY(open_model(w, w->context, false));
  BRIM_TRY(check_text(w));
  BRIM_TRY(encode_choices(w, &questions, &examples));
  BRIM_TRY(measure(w, &questions, context_of(w), &longest));
  BRIM_TRY(fit_context(w, longest));
  BRIM_TRY(score(w));
  return print_result(w, &questions);
}

brim_status brim_eval_texts_run(const brim_cli *cli, const brim_operands *operands, const brim_eval_texts *wish)
{
  work w = {.cli = cli, .operands = operands, .wish = wish};
  brim_status status = brim_cli_whole_number("--context", wish->context, 2, NUMBER_MAX, &w.context);
  if (status == BRIM_OK) status = brim_cli_whole_number("--stride", wish->stride, 1, NUMBER_MAX, &w.stride);
  if (status == BRIM_OK) status = brim_cli_whole_number("--shots", wish->shots, 0, NUMBER_MAX, &w.shots);
  if (status == BRIM_OK) status = wish->text ? run_text(&w) : run_choices(&w);
  close_model(&w);
  brim_arena_release(&w.arena);
  return status;
}
