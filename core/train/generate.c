/* Generates several texts side by side.
 *
 * With caches (graph/generate.h), one program processes the tokens of the prompts, up to 256 at a time, and then
 * another program runs once for each new token. If a text has fewer tokens to process than a program takes, its last
 * token is repeated at the same place, which changes nothing.
 *
 * A model that cannot have caches runs on a whole sample for each token of each text. The tokens are at the beginning
 * of the sample, and zeros follow, which do not affect a causal model's earlier answers.
 *
 * When the context is full, the oldest token is dropped. All places then change, so the caches are filled again. */
#include "train/generate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/convert.h"
#include "brim/random.h"
#include "graph/documents.h"
#include "planner/planner.h"
#include "planner/strict.h"
#include "train/trainer.h"

/* ---- drawing a token ---- */

static int by_logit(const void *a, const void *b)
{
  const brim_sampling_choice *x = a, *y = b;
  if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
  return x->token < y->token ? -1 : x->token > y->token;
}

static double add_up(const brim_sampling_choice *choice, int64_t count)
{
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += choice[i].probability;
  return sum;
}

/* Restores the order of a heap below element i. The least probable element is the first. */
static void sift(brim_sampling_choice *heap, int64_t i, int64_t count)
{
  for (;;) {
    int64_t last = i;
    for (int64_t child = 2 * i + 1; child <= 2 * i + 2; child++)
      if (child < count && by_logit(&heap[child], &heap[last]) > 0) last = child;
    if (last == i) return;
    const brim_sampling_choice moved = heap[i];
    heap[i] = heap[last];
    heap[last] = moved;
    i = last;
  }
}

/* Moves the choices that may be drawn to the front, in their order, and returns their number. Most tokens are so
 * improbable that sorting them would take longer than the model. */
static int64_t sort_choices(const brim_sampling *how, brim_sampling_choice *room, int64_t count)
{
  const int64_t most = how->top_k > 0 && how->top_k < count ? how->top_k : count;
  double least = -INFINITY;
  if (most < count) { /* finds the `most` most probable with a heap whose first element is the least probable of them */
    for (int64_t i = most / 2; i-- > 0;) sift(room, i, most);
    for (int64_t i = most; i < count; i++)
      if (by_logit(&room[i], &room[0]) < 0) {
        const brim_sampling_choice out = room[0];
        room[0] = room[i];
        room[i] = out;
        sift(room, 0, most);
      }
  } else if (how->top_p < 1) { /* all dropped tokens together have less probability than 1 - top_p */
    least = (1 - how->top_p) * add_up(room, count) / (double)count;
  }
  int64_t kept = 0;
  for (int64_t i = 0; i < most; i++)
    if (room[i].probability >= least) room[kept++] = room[i];
  qsort(room, (size_t)kept, sizeof *room, by_logit);
  return kept;
}

int32_t brim_sample(const brim_sampling *how, const double *logits, int64_t count, double uniform,
                    brim_sampling_choice *room)
{
  for (int64_t i = 0; i < count; i++)
    if (!isfinite(logits[i])) return -1;
  int32_t best = 0;
  for (int64_t i = 1; i < count; i++)
    if (logits[i] > logits[best]) best = (int32_t)i;
  if (how->temperature == 0) return best;
  double sum = 0;
  for (int64_t i = 0; i < count; i++) {
    room[i] = (brim_sampling_choice){(int32_t)i, logits[i], exp((logits[i] - logits[best]) / how->temperature)};
    sum += room[i].probability;
  }
  int64_t left = count;
  if (how->top_p < 1 || (how->top_k > 0 && how->top_k < count)) {
    left = sort_choices(how, room, count);
    if (how->top_k > 0 && how->top_k < count) sum = add_up(room, left);
  }
  if (how->top_p < 1) {
    const double share = how->top_p * sum;
    int64_t taken = 0;
    sum = 0;
    do sum += room[taken++].probability;
    while (taken < left && sum < share);
    left = taken;
  }

  const double at = uniform * add_up(room, left);
  sum = 0;
  for (int64_t i = 0; i < left; i++) {
    sum += room[i].probability;
    if (at < sum) return room[i].token;
  }
  return room[left - 1].token; /* sums are rounded */
}

/* Applies the penalty to the logits of the tokens. `seen`: room for a bool for each logit, all false, and false again
 * afterwards. */
static void penalize(const brim_sampling *how, double *logits, const int32_t *token, int64_t count, bool *seen)
{
  if (how->repetition_penalty == 0 || how->repetition_penalty == 1) return;
  for (int64_t i = 0; i < count; i++) {
    double *logit = &logits[token[i]];
    if (!seen[token[i]]) *logit = *logit > 0 ? *logit / how->repetition_penalty : *logit * how->repetition_penalty;
    seen[token[i]] = true;
  }
  for (int64_t i = 0; i < count; i++) seen[token[i]] = false;
}

bool brim_stops_have(const brim_stops *stops, int32_t token)
{
  for (size_t i = 0; i < stops->count; i++)
    if (stops->token[i] == token) return true;
  return false;
}

/* ---- opening ---- */

/* Most tokens of a prompt in one program: products with that many rows use the device well. */
#define CHUNK_TOKENS 256

/* A text in progress. */
typedef struct text {
  int32_t *tokens; /* [limit] the tokens that the model sees */
  int64_t used;    /* tokens so far */
  int64_t cached;  /* number of first tokens whose keys and values are in the caches */
  uint32_t number;
  bool done;
} text;

struct brim_generator {
  brim_arena arena;
  brim_drive *drive;
  brim_trainer *trainer;
  const brim_program *token; /* processes a token of each text; without caches, a sample */
  const brim_program *chunk; /* for several tokens of each text; NULL: none */
  bool has_caches;
  const char *why_not;
  int64_t limit;           /* most tokens that the model sees */
  int64_t rollback;        /* number of last tokens of a text that may change while its caches stay valid */
  int64_t vocabulary, row; /* tokens of the dataset; logits for a token, at least as many: see brim_model_ops.classes */
  int64_t text_count;
  text *text;
  int32_t *input, *places; /* inputs of the larger program */
  void *labels;            /* without caches: all 0, because the program computes a loss, which is not used */
  void *output;
  double *logits; /* [vocabulary] */
  bool *seen;     /* without caches: all false */
  brim_sampling_choice *choices;
};

/* The shape of a generator's plan. */
typedef struct wish {
  brim_evaluation_wish plan;
  int64_t limit;
  char why_not[256]; /* why the model has no caches; "": it has them */
} wish;

static brim_status make_wish(const brim_drive *d, const brim_generator_options *o, wish *out)
{
  BRIM_TRY(brim_generator_check(d, NULL, 0));
  const int64_t sample = d->setup->data.train.sample.dim[0];
  *out = (wish){.limit = o->context > 0 ? o->context : sample};
  const brim_status status = brim_planner_check_generation(&d->planner, &d->choice, out->limit);
  if (status == BRIM_ENOTSUP) {
    snprintf(out->why_not, sizeof out->why_not, "%s", brim_error_text());
    if (out->limit != sample)
      return brim_fail(BRIM_ECONFIG,
                       "--context %" PRId64 ": without a cache the model sees %" PRId64
                       " tokens, those of a sample (dataset.context); it has no cache because %s",
                       out->limit, sample, out->why_not);
    out->plan = (brim_evaluation_wish){.count = 1, .batch = 1, .keep_output = true};
    return BRIM_OK;
  }
  BRIM_TRY(status);
  const bool fits = o->prompt > 0 && o->tokens < out->limit && o->prompt + o->tokens <= out->limit;
  const int64_t capacity = fits ? o->prompt + o->tokens : out->limit, before = (fits ? o->prompt : out->limit) - 1;
  out->plan = (brim_evaluation_wish){
      .batch = o->texts, .capacity = capacity, .chunk = before < CHUNK_TOKENS ? before : CHUNK_TOKENS};
  return BRIM_OK;
}

brim_status brim_generator_make_plan(const brim_drive *drive, const brim_generator_options *options, brim_plan **out)
{
  wish w;
  BRIM_TRY(make_wish(drive, options, &w));
  BRIM_TRY(brim_planner_plan_evaluation(&drive->planner, &drive->choice, &w.plan, out));
  const brim_status status = brim_strict_check_plan(drive->setup, *out);
  if (status != BRIM_OK) brim_plan_free(*out);
  return status;
}

/* Returns how many of a text's last tokens may change, because windows' caches drop older keys. */
static int64_t find_rollback(const brim_graph *g)
{
  for (size_t i = 0; i < g->tensor_count; i++)
    if (g->tensor[i]->role == BRIM_ROLE_CACHE && g->tensor[i]->shape.dim[1] < g->generation.capacity)
      return g->generation.chunk;
  return INT64_MAX;
}

static brim_status make_room(brim_generator *g)
{
  const brim_graph *token = g->token->graph, *larger = g->chunk ? g->chunk->graph : token;
  bool good = true;
  g->text = brim_arena_try(&g->arena, sizeof *g->text * (size_t)g->text_count);
  for (int64_t i = 0; g->text && i < g->text_count; i++) {
    g->text[i].tokens = brim_arena_try(&g->arena, sizeof(int32_t) * (size_t)g->limit);
    good = good && g->text[i].tokens;
  }
  g->input = brim_arena_try(&g->arena, larger->input->bytes);
  g->places = brim_arena_try(&g->arena, larger->input->bytes);
  if (token->label) g->labels = brim_arena_try(&g->arena, token->label->bytes);
  g->output = brim_arena_try(&g->arena, token->kept->bytes);
  g->logits = brim_arena_try(&g->arena, sizeof *g->logits * (size_t)g->vocabulary);
  g->seen = brim_arena_try(&g->arena, sizeof *g->seen * (size_t)g->vocabulary);
  g->choices = brim_arena_try(&g->arena, sizeof *g->choices * (size_t)g->vocabulary);
  if (good && g->text && g->input && g->places && (g->labels || !token->label) && g->output && g->logits && g->seen &&
      g->choices)
    return BRIM_OK;
  return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the model's output for %" PRId64 " tokens", g->limit);
}

static brim_status open_generator(brim_generator *g, const char *checkpoint, const brim_generator_options *o)
{
  wish w;
  BRIM_TRY(make_wish(g->drive, o, &w));
  g->limit = w.limit;
  g->why_not = brim_arena_string(&g->arena, w.why_not);
  g->has_caches = !w.why_not[0];
  g->text_count = o->texts;
  g->vocabulary = g->drive->setup->data.train.classes;
  g->row = g->drive->setup->answers;
  BRIM_TRY(brim_trainer_open_generation(g->drive, &w.plan, checkpoint, &g->trainer));
  const brim_plan *plan = brim_trainer_plan(g->trainer);
  g->token = g->has_caches ? brim_plan_generation(plan, 1) : brim_plan_program(plan, BRIM_PROGRAM_EVALUATE, 1);
  g->chunk = w.plan.chunk > 1 ? brim_plan_generation(plan, w.plan.chunk) : NULL;
  g->rollback = find_rollback(g->token->graph);
  return make_room(g);
}

brim_status brim_generator_open(brim_drive *drive, const char *checkpoint, const brim_generator_options *options,
                                brim_generator **out)
{
  brim_generator *g = brim_xcalloc(1, sizeof *g);
  g->drive = drive;
  const brim_status status = open_generator(g, checkpoint, options);
  if (status == BRIM_OK)
    *out = g;
  else
    brim_generator_close(g);
  return status;
}

void brim_generator_close(brim_generator *g)
{
  if (!g) return;
  brim_trainer_close(g->trainer);
  brim_arena_release(&g->arena);
  free(g);
}

const brim_plan *brim_generator_plan(const brim_generator *g)
{
  return brim_trainer_plan(g->trainer);
}
const char *brim_generator_without_cache(const brim_generator *g)
{
  return g->why_not;
}

brim_status brim_generator_check(const brim_drive *drive, const int32_t *prompt, int64_t count)
{
  const int64_t vocabulary = drive->setup->data.train.classes;
  if (drive->setup->data.train.task != BRIM_TASK_TOKENS)
    return brim_fail(
        BRIM_ECONFIG,
        "the model of this run classifies whole samples and cannot continue a text\nuse brim predict for its answers");
  for (int64_t i = 0; i < count; i++)
    if (prompt[i] < 0 || prompt[i] >= vocabulary)
      return brim_fail(BRIM_ECONFIG, "the prompt's token %" PRId64 " is %" PRId32 "; tokens are 0 to %" PRId64, i + 1,
                       prompt[i], vocabulary - 1);
  return BRIM_OK;
}

/* ---- a text's tokens ---- */

static void append(const brim_generator *g, text *t, int32_t token)
{
  if (t->used == g->limit) {
    memmove(t->tokens, t->tokens + 1, (size_t)--t->used * sizeof *t->tokens);
    t->cached = 0;
  }
  t->tokens[t->used++] = token;
}

/* Begins a text; NULL: a complete text, for a place that is not needed. The caches keep the beginning that the text
 * shares with the last one. */
static void begin(const brim_generator *g, text *t, const brim_generate_text *of)
{
  const int32_t zero = 0, *prompt = of ? of->prompt : &zero;
  int64_t count = of ? of->count : 1, same = 0;
  if (count > g->limit) {
    prompt += count - g->limit;
    count = g->limit;
  }
  while (same < t->cached && same < count - 1 && t->tokens[same] == prompt[same]) same++;
  if (t->cached - same > g->rollback) same = 0;
  memcpy(t->tokens, prompt, (size_t)count * sizeof *prompt);
  *t = (text){.tokens = t->tokens, .used = count, .cached = same, .number = of ? of->number : 0, .done = !of};
}

/* ---- the model ---- */

static brim_status run(brim_generator *g, const brim_program *program)
{
  const brim_step step = {.loss_scale = 1};
  return brim_exec_run(brim_trainer_exec(g->trainer), program, &step, NULL);
}

/* Fills a text's row of a program's input with its tokens from `first` on, and repeats the last one. */
static void fill_row(const brim_generator *g, int64_t index, int64_t room, int64_t first, int64_t count)
{
  const text *t = &g->text[index];
  for (int64_t i = 0; i < room; i++) {
    const int64_t at = first + (i < count ? i : count - 1);
    g->input[index * room + i] = t->tokens[at];
    g->places[index * room + i] = (int32_t)at;
  }
}

/* Writes all tokens of the texts, except the last one of each, into the caches. */
static brim_status fill_caches(brim_generator *g)
{
  const brim_program *program = g->chunk ? g->chunk : g->token;
  const int64_t room = program->graph->generation.tokens;
  for (;;) {
    bool any = false;
    for (int64_t i = 0; i < g->text_count; i++) any = any || g->text[i].cached < g->text[i].used - 1;
    if (!any) return BRIM_OK;
    for (int64_t i = 0; i < g->text_count; i++) {
      text *t = &g->text[i];
      const int64_t left = t->used - 1 - t->cached, count = left < room ? left : room;
      if (count > 0)
        fill_row(g, i, room, t->cached, count);
      else
        fill_row(g, i, room, t->used - 1, 1); /* written again, or early: the next program writes the same values */
      if (count > 0) t->cached += count;
    }
    BRIM_TRY(brim_exec_load_tokens(brim_trainer_exec(g->trainer), program, g->input, g->places));
    BRIM_TRY(run(g, program));
  }
}

/* Computes the logits after the last token of every text. */
static brim_status run_token(brim_generator *g)
{
  BRIM_TRY(fill_caches(g));
  for (int64_t i = 0; i < g->text_count; i++) fill_row(g, i, 1, g->text[i].used - 1, 1);
  BRIM_TRY(brim_exec_load_tokens(brim_trainer_exec(g->trainer), g->token, g->input, g->places));
  BRIM_TRY(run(g, g->token));
  for (int64_t i = 0; i < g->text_count; i++) g->text[i].cached = g->text[i].used;
  return brim_exec_read(brim_trainer_exec(g->trainer), g->token, g->token->graph->kept, g->output);
}

/* Runs the program for one text, without caches. */
static brim_status run_sample(brim_generator *g, const text *t)
{
  brim_exec *exec = brim_trainer_exec(g->trainer);
  memset(g->input, 0, (size_t)g->limit * sizeof *g->input);
  if (g->token->graph->places) brim_documents_fill(g->input, 1, g->limit);
  memcpy(g->input, t->tokens, (size_t)t->used * sizeof *t->tokens);
  BRIM_TRY(brim_exec_load(exec, g->token, g->input, g->labels));
  BRIM_TRY(run(g, g->token));
  return brim_exec_read(exec, g->token, g->token->graph->kept, g->output);
}

/* ---- continuing texts ---- */

/* Draws a number in [0, 1) with 53 bits, because a vocabulary may have many improbable tokens. */
static double draw(const brim_generate_options *o, uint32_t number, int64_t place)
{
  const brim_philox r = brim_random4(o->seed, BRIM_STREAM_SAMPLE, number, (uint64_t)place, 0);
  return (double)((uint64_t)r.v[0] << 21 | r.v[1] >> 11) / 9007199254740992.0;
}

static brim_status end_text(const brim_generator *g, int64_t index, const brim_generate_options *o)
{
  g->text[index].done = true;
  return o->end ? o->end(o->context, index) : BRIM_OK;
}

/* Draws new token `place` of a text from the logits in row `answer` of the output. */
static brim_status add_token(brim_generator *g, int64_t index, int64_t answer, int64_t place,
                             const brim_generate_options *o)
{
  text *t = &g->text[index];
  const uint32_t dtype = g->token->graph->kept->dtype;
  for (int64_t k = 0; k < g->vocabulary; k++) g->logits[k] = brim_value_at(dtype, g->output, answer * g->row + k);
  penalize(&o->sampling, g->logits, t->tokens, t->used, g->seen);
  const int32_t token = brim_sample(&o->sampling, g->logits, g->vocabulary, draw(o, t->number, place), g->choices);
  if (token < 0)
    return brim_fail(BRIM_ENUMERIC, "the model's output for new token %" PRId64 " is not finite", place + 1);
  if (brim_stops_have(&o->stops, token)) return end_text(g, index, o);
  BRIM_TRY(o->take(o->context, index, token));
  append(g, t, token);
  return place + 1 == o->tokens ? end_text(g, index, o) : BRIM_OK;
}

brim_status brim_generator_run(brim_generator *g, const brim_generate_text *texts, int64_t count,
                               const brim_generate_options *o)
{
  for (int64_t i = 0; i < count; i++) BRIM_TRY(brim_generator_check(g->drive, texts[i].prompt, texts[i].count));
  for (int64_t i = 0; i < g->text_count; i++) begin(g, &g->text[i], i < count ? &texts[i] : NULL);
  for (int64_t place = 0; place < o->tokens; place++) {
    int64_t left = 0;
    for (int64_t i = 0; i < count; i++) left += !g->text[i].done;
    if (left == 0) return BRIM_OK;
    if (o->stopped && *o->stopped) return brim_fail(BRIM_EINTERRUPTED, "stopped before new token %" PRId64, place + 1);
    if (g->has_caches) BRIM_TRY(run_token(g));
    for (int64_t i = 0; i < count; i++) {
      if (g->text[i].done) continue;
      if (!g->has_caches) BRIM_TRY(run_sample(g, &g->text[i]));
      BRIM_TRY(add_token(g, i, g->has_caches ? i : g->text[i].used - 1, place, o));
    }
  }
  return BRIM_OK;
}
