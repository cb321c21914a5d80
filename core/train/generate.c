/* Text generation: a program for one sample runs once for each token. The tokens fill the sample from its beginning,
 * and zeros follow, which do not affect a causal model's earlier answers. When the sample is full the oldest token is
 * dropped. */
#include "train/generate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/convert.h"
#include "brim/random.h"
#include "graph/documents.h"
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

int32_t brim_sample(const brim_sampling *how, const double *logits, int64_t count, double uniform,
                    brim_sampling_choice *room)
{
  for (int64_t i = 0; i < count; i++)
    if (!isfinite(logits[i])) return -1;
  int32_t best = 0;
  for (int64_t i = 1; i < count; i++)
    if (logits[i] > logits[best]) best = (int32_t)i;
  if (how->temperature == 0) return best;
  for (int64_t i = 0; i < count; i++)
    room[i] = (brim_sampling_choice){(int32_t)i, logits[i], exp((logits[i] - logits[best]) / how->temperature)};
  const bool some = how->top_p < 1 || (how->top_k > 0 && how->top_k < count);
  if (some) qsort(room, (size_t)count, sizeof *room, by_logit);
  int64_t left = how->top_k > 0 && how->top_k < count ? how->top_k : count;
  double sum = 0;
  if (how->top_p < 1) {
    const double share = how->top_p * add_up(room, left);
    int64_t taken = 0;
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

/* ---- a text ---- */

struct brim_generator {
  brim_arena arena;
  brim_drive *drive;
  brim_trainer *trainer;
  const brim_program *program;
  int64_t length, vocabulary; /* tokens of a sample; number of tokens of the dataset */
  int64_t row;                /* logits for a token, at least `vocabulary`: see brim_model_ops.classes */
  int32_t *tokens;            /* [length] */
  void *labels;               /* all 0: the program computes a loss, which is not used */
  void *output;               /* [1, length, row] of the output's type */
  double *logits;             /* [vocabulary] */
  brim_sampling_choice *choices;
  int64_t used;
};

static brim_status open(brim_generator *g, const char *checkpoint)
{
  const brim_dataset_info *info = &g->drive->setup->data.train;
  if (info->task != BRIM_TASK_TOKENS)
    return brim_fail(
        BRIM_ECONFIG,
        "the model of this run classifies whole samples and cannot continue a text\nuse brim predict for its answers");
  g->length = info->sample.dim[0];
  g->vocabulary = info->classes;
  g->row = g->drive->setup->answers;
  BRIM_TRY(brim_trainer_open_evaluation(g->drive, 1, 1, true, checkpoint, &g->trainer));
  g->program = brim_plan_program(brim_trainer_plan(g->trainer), BRIM_PROGRAM_EVALUATE, 1);
  const brim_graph *graph = g->program->graph;
  g->tokens = brim_arena_try(&g->arena, graph->input->bytes);
  if (g->tokens && info->documents) brim_documents_fill(g->tokens, 1, g->length);
  g->labels = brim_arena_try(&g->arena, graph->label->bytes);
  g->output = brim_arena_try(&g->arena, graph->kept->bytes);
  g->logits = brim_arena_try(&g->arena, sizeof *g->logits * (size_t)g->vocabulary);
  g->choices = brim_arena_try(&g->arena, sizeof *g->choices * (size_t)g->vocabulary);
  if (g->tokens && g->labels && g->output && g->logits && g->choices) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the model's output for %" PRId64 " tokens", g->length);
}

brim_status brim_generator_open(brim_drive *drive, const char *checkpoint, brim_generator **out)
{
  brim_generator *g = brim_xcalloc(1, sizeof *g);
  g->drive = drive;
  const brim_status status = open(g, checkpoint);
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

static void append(brim_generator *g, int32_t token)
{
  if (g->used == g->length) memmove(g->tokens, g->tokens + 1, (size_t)--g->used * sizeof *g->tokens);
  g->tokens[g->used++] = token;
}

brim_status brim_generator_check(const brim_generator *g, const int32_t *prompt, int64_t count)
{
  for (int64_t i = 0; i < count; i++)
    if (prompt[i] < 0 || prompt[i] >= g->vocabulary)
      return brim_fail(BRIM_ECONFIG, "the prompt's token %" PRId64 " is %" PRId32 "; tokens are 0 to %" PRId64, i + 1,
                       prompt[i], g->vocabulary - 1);
  return BRIM_OK;
}

/* Draws a number in [0, 1) with 53 bits, as a vocabulary may have many improbable tokens. */
static double draw(const brim_generate_options *o, int64_t place)
{
  const brim_philox r = brim_random4(o->seed, BRIM_STREAM_SAMPLE, o->number, (uint64_t)place, 0);
  return (double)((uint64_t)r.v[0] << 21 | r.v[1] >> 11) / 9007199254740992.0;
}

brim_status brim_generator_run(brim_generator *g, const int32_t *prompt, int64_t count, const brim_generate_options *o)
{
  const brim_tensor *kept = g->program->graph->kept;
  const brim_step step = {.loss_scale = 1};
  brim_exec *exec = brim_trainer_exec(g->trainer);
  BRIM_TRY(brim_generator_check(g, prompt, count));
  g->used = 0;
  memset(g->tokens, 0, (size_t)g->length * sizeof *g->tokens);
  for (int64_t i = count > g->length ? count - g->length : 0; i < count; i++) append(g, prompt[i]);
  for (int64_t i = 0; i < o->tokens; i++) {
    if (o->stopped && *o->stopped) return brim_fail(BRIM_EINTERRUPTED, "stopped before new token %" PRId64, i + 1);
    BRIM_TRY(brim_exec_load(exec, g->program, g->tokens, g->labels));
    BRIM_TRY(brim_exec_run(exec, g->program, &step, NULL));
    BRIM_TRY(brim_exec_read(exec, g->program, kept, g->output));
    const int64_t last = (g->used - 1) * g->row; /* the logits for the next token */
    for (int64_t k = 0; k < g->vocabulary; k++) g->logits[k] = brim_value_at(kept->dtype, g->output, last + k);
    const int32_t token = brim_sample(&o->sampling, g->logits, g->vocabulary, draw(o, i), g->choices);
    if (token < 0) return brim_fail(BRIM_ENUMERIC, "the model's output for new token %" PRId64 " is not finite", i + 1);
    if (token == o->stop) return BRIM_OK;
    BRIM_TRY(o->take(o->context, token));
    append(g, token);
  }
  return BRIM_OK;
}
