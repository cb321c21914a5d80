/* Each passage, without its last token, is a sample of the evaluation or a document in one; its labels are the tokens
 * after the first, of which only those to score count. The losses stay on the device until the batch has ended. */
#include "train/score.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/convert.h"
#include "graph/documents.h"
#include "train/trainer.h"

#define BATCH_TOKENS 2048 /* tokens of a batch: products with that many rows use the device well */

typedef struct scorer {
  brim_arena arena;
  brim_drive *drive;
  brim_trainer *trainer;
  const brim_program *program;
  brim_passage *passage;
  size_t count;
  int64_t *row;   /* row of each passage, counted from 0 over all batches */
  int64_t *place; /* place of its first token in the row */
  int64_t rows, batch, length;
  bool has_documents;
  int32_t *values, *labels;
  void *losses;
} scorer;

/* ---- rows ---- */

/* Gives each passage a place, in order: one row each, or as many as fit. */
static brim_status place_passages(scorer *s)
{
  s->row = brim_arena_try(&s->arena, sizeof *s->row * (s->count + 1));
  s->place = brim_arena_try(&s->arena, sizeof *s->place * (s->count + 1));
  if (!s->row || !s->place) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for %zu texts", s->count);
  int64_t used = 0;
  for (size_t i = 0; i < s->count; i++) {
    const int64_t need = s->passage[i].count - 1;
    if (need < 1 || need > s->length)
      return brim_fail(BRIM_ECONFIG, "a text of %" PRId64 " tokens cannot be scored in samples of %" PRId64 " tokens",
                       s->passage[i].count, s->length);
    if (s->rows == 0 || !s->has_documents || used + need > s->length) {
      s->rows++;
      used = 0;
    }
    s->row[i] = s->rows - 1;
    s->place[i] = used;
    used += need;
  }
  return BRIM_OK;
}

/* Makes a row one document of token 0, which does not count, until passages are written to it. */
static void clear_rows(scorer *s)
{
  const brim_graph *g = s->program->graph;
  memset(s->values, 0, g->input->bytes);
  if (s->has_documents) brim_documents_fill(s->values, s->batch, s->length);
  for (int64_t i = 0; i < s->batch * s->length; i++) s->labels[i] = BRIM_NO_TOKEN;
}

static void fill_passage(scorer *s, const brim_passage *p, int64_t row, int64_t place)
{
  const int64_t width = s->has_documents ? BRIM_DOCUMENT_ROWS * s->length : s->length;
  int32_t *tokens = s->values + row * width + place, *places = tokens + s->length;
  int32_t *label = s->labels + row * s->length + place;
  for (int64_t t = 0; t < p->count - 1; t++) {
    tokens[t] = p->tokens[t];
    if (t + 1 >= p->first) label[t] = p->tokens[t + 1];
  }
  if (!s->has_documents) return;
  /* The rest of the row belongs to the last passage. */
  for (int64_t t = 0; place + t < s->length; t++) places[t] = (int32_t)t;
}

/* ---- the model ---- */

static brim_status take_loss(const scorer *s, brim_passage *p, int64_t row, int64_t place)
{
  const uint32_t dtype = s->program->graph->kept->dtype;
  p->loss = 0;
  for (int64_t t = p->first - 1; t < p->count - 1; t++)
    p->loss += brim_value_at(dtype, s->losses, row * s->length + place + t);
  return isfinite(p->loss) ? BRIM_OK : brim_fail(BRIM_ENUMERIC, "the model's output for a text is not finite");
}

/* Scores the passages from `first` on whose rows are in one batch; *first becomes the next one. */
static brim_status score_batch(scorer *s, int64_t batch, size_t *first)
{
  const brim_step step = {.loss_scale = 1};
  const int64_t from = batch * s->batch;
  brim_exec *exec = brim_trainer_exec(s->trainer);
  size_t end = *first;
  clear_rows(s);
  for (; end < s->count && s->row[end] < from + s->batch; end++)
    fill_passage(s, &s->passage[end], s->row[end] - from, s->place[end]);
  BRIM_TRY(brim_exec_load(exec, s->program, s->values, s->labels));
  BRIM_TRY(brim_exec_run(exec, s->program, &step, NULL));
  BRIM_TRY(brim_exec_read(exec, s->program, s->program->graph->kept, s->losses));
  for (; *first < end; ++*first) BRIM_TRY(take_loss(s, &s->passage[*first], s->row[*first] - from, s->place[*first]));
  return BRIM_OK;
}

static brim_status open_model(scorer *s, const char *checkpoint)
{
  const int64_t most = brim_drive_eval_batch(s->drive), good = BATCH_TOKENS / s->length;
  s->batch = good < 1 ? 1 : good;
  if (s->batch > most) s->batch = most;
  if (s->batch > s->rows) s->batch = s->rows;
  const brim_evaluation_wish wish = {.count = s->batch, .batch = s->batch, .keep_losses = true};
  BRIM_TRY(brim_trainer_open_generation(s->drive, &wish, checkpoint, &s->trainer));
  s->program = brim_plan_program(brim_trainer_plan(s->trainer), BRIM_PROGRAM_EVALUATE, s->batch);
  const brim_graph *g = s->program->graph;
  s->values = brim_arena_try(&s->arena, g->input->bytes);
  s->labels = brim_arena_try(&s->arena, g->label->bytes);
  s->losses = brim_arena_try(&s->arena, g->kept->bytes);
  return s->values && s->labels && s->losses ? BRIM_OK
                                             : brim_fail(BRIM_ENOMEM_HOST, "no host memory for a batch of texts");
}

static brim_status score(scorer *s, const char *checkpoint, const volatile int *stop, brim_score_cost *cost)
{
  const brim_data *data = &s->drive->setup->data;
  size_t next = 0;
  if (data->train.task != BRIM_TASK_TOKENS)
    return brim_fail(BRIM_ECONFIG, "the model classifies whole samples and gives texts no probability");
  s->length = data->train.sample.dim[0];
  s->has_documents = data->train.documents != 0;
  const int64_t vocabulary = s->drive->setup->data.train.classes;
  for (size_t i = 0; i < s->count; i++)
    for (int64_t t = 0; t < s->passage[i].count; t++)
      if (s->passage[i].tokens[t] < 0 || s->passage[i].tokens[t] >= vocabulary)
        return brim_fail(BRIM_ECONFIG,
                         "token %" PRId32 " of a text is outside the vocabulary: tokens are 0 to %" PRId64,
                         s->passage[i].tokens[t], vocabulary - 1);
  BRIM_TRY(place_passages(s));
  if (s->rows == 0) return BRIM_OK;
  BRIM_TRY(open_model(s, checkpoint));
  for (int64_t batch = 0; next < s->count; batch++) {
    if (stop && *stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted during evaluation");
    BRIM_TRY(score_batch(s, batch, &next));
  }
  *cost = (brim_score_cost){.rows = s->rows, .device_bytes = brim_trainer_device_bytes(s->trainer)};
  return BRIM_OK;
}

brim_status brim_score(brim_drive *drive, const char *checkpoint, brim_passage *passage, size_t count,
                       const volatile int *stop, brim_score_cost *cost)
{
  scorer s = {.drive = drive, .passage = passage, .count = count};
  *cost = (brim_score_cost){0};
  const brim_status status = score(&s, checkpoint, stop, cost);
  brim_trainer_close(s.trainer);
  brim_arena_release(&s.arena);
  return status;
}
