/* Predicts in batches of one size, so that one program suffices: a file's last batch is padded with samples of the
 * previous one, and the padding's output is ignored. */
#include "train/predict.h"

#include <inttypes.h>
#include <math.h>

#include "base/convert.h"
#include "train/trainer.h"

typedef struct predictor {
  brim_drive *drive;
  brim_trainer *trainer;
  const brim_program *program;
  int64_t batch;
  void *scratch;   /* one raw sample */
  uint8_t *values; /* [batch, elements] */
  void *labels;    /* labels of the batch, all 0: the program computes a loss, which is not used */
  void *label;     /* buffer for the label that a dataset writes; not used */
  void *logits;    /* [batch, answers] */
} predictor;

/* The core's name for the split of file `i`. */
static const char *split_name(brim_arena *arena, size_t i)
{
  return brim_arena_printf(arena, "file %zu", i);
}

static double logit_at(const predictor *p, int64_t i)
{
  return brim_value_at(p->program->graph->kept->dtype, p->logits, i);
}

/* Finds the largest logit, and its softmax: 1 / sum over k of exp(logit[k] - largest). False if a logit is not
 * finite. */
static bool classify(const predictor *p, int64_t sample, brim_prediction *out)
{
  const int64_t classes = p->drive->setup->data.train.classes, first = sample * classes;
  double sum = 0;
  out->class = 0;
  for (int64_t k = 0; k < classes; k++) {
    if (!isfinite(logit_at(p, first + k))) return false;
    if (logit_at(p, first + k) > logit_at(p, first + out->class)) out->class = k;
  }
  for (int64_t k = 0; k < classes; k++) sum += exp(logit_at(p, first + k) - logit_at(p, first + out->class));
  out->probability = 1 / sum;
  return true;
}

/* Uses the model's numbers as the prediction. False if one is not finite. */
static bool answer(const predictor *p, int64_t sample, brim_prediction *out)
{
  for (int64_t k = 0; k < p->drive->setup->answers; k++) {
    out->value[k] = logit_at(p, sample * p->drive->setup->answers + k);
    if (!isfinite(out->value[k])) return false;
  }
  return true;
}

static brim_status predict_batch(predictor *p, const brim_predicted_file *file, const char *split, int64_t first,
                                 int64_t count, brim_prediction *out)
{
  const brim_data *data = &p->drive->setup->data;
  const uint32_t real = p->drive->setup->backend_ops->real;
  const int64_t sample_bytes = (int64_t)brim_data_values_bytes(data, real);
  const brim_step step = {.loss_scale = 1};
  brim_exec *exec = brim_trainer_exec(p->trainer);
  for (int64_t i = 0; i < count; i++)
    BRIM_TRY(brim_data_file_sample(data, split, first + i, real, p->scratch, p->values + i * sample_bytes, p->label));
  BRIM_TRY(brim_exec_load(exec, p->program, p->values, p->labels));
  BRIM_TRY(brim_exec_run(exec, p->program, &step, NULL));
  BRIM_TRY(brim_exec_read(exec, p->program, p->program->graph->kept, p->logits));
  for (int64_t i = 0; i < count; i++)
    if (!(out[i].value ? answer(p, i, &out[i]) : classify(p, i, &out[i])))
      return brim_fail(BRIM_ENUMERIC, "'%s': the model's output for sample %" PRId64 " is not finite", file->path,
                       first + i);
  return BRIM_OK;
}

static brim_status predict_files(predictor *p, brim_arena *arena, brim_predicted_file *file, size_t count)
{
  const brim_setup *s = p->drive->setup;
  const size_t each = s->data.train.task == BRIM_TASK_VALUES ? (size_t)s->answers : 0;
  for (size_t i = 0; i < count; i++) {
    const char *split = split_name(arena, i);
    brim_prediction *out = brim_arena_try(arena, sizeof *out * (size_t)file[i].count);
    double *value = out && each > 0 ? brim_arena_try(arena, sizeof *value * each * (size_t)file[i].count) : NULL;
    if (!out || (each > 0 && !value))
      return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the predictions of '%s'", file[i].path);
    for (int64_t k = 0; k < file[i].count; k++)
      out[k] = (brim_prediction){.value = value ? value + (size_t)k * each : NULL};
    for (int64_t first = 0; first < file[i].count; first += p->batch) {
      const int64_t rest = file[i].count - first;
      BRIM_TRY(predict_batch(p, &file[i], split, first, rest < p->batch ? rest : p->batch, out + first));
    }
    file[i].prediction = out;
  }
  return BRIM_OK;
}

brim_status brim_predict(brim_drive *drive, const char *checkpoint, brim_arena *arena, brim_predicted_file *file,
                         size_t count)
{
  predictor p = {.drive = drive};
  brim_data *data = &drive->setup->data;
  int64_t most = 1;
  if (data->train.task == BRIM_TASK_TOKENS)
    return brim_fail(BRIM_ECONFIG, "the model of this run continues a text, token by token, and has no single answer "
                                   "for a sample\nuse brim generate");
  for (size_t i = 0; i < count; i++) { /* happens before anything is placed, so that a wrong name fails early */
    BRIM_TRY(brim_data_open_file(data, file[i].path, split_name(arena, i), &file[i].count));
    if (file[i].count > most) most = file[i].count;
  }
  const int64_t eval_batch = brim_drive_eval_batch(drive);
  p.batch = most < eval_batch ? most : eval_batch;
  BRIM_TRY(brim_trainer_open_evaluation(drive, p.batch, p.batch, true, checkpoint, &p.trainer));
  p.program = brim_plan_program(brim_trainer_plan(p.trainer), BRIM_PROGRAM_EVALUATE, p.batch);
  p.scratch = brim_arena_try(arena, data->scratch_bytes);
  p.values = brim_arena_try(arena, p.program->graph->input->bytes);
  p.labels = brim_arena_try(arena, p.program->graph->label->bytes);
  p.logits = brim_arena_try(arena, p.program->graph->kept->bytes);
  p.label = brim_arena_try(arena, brim_data_label_bytes(data, BRIM_PART_TEST, drive->setup->backend_ops->real));
  const brim_status status = p.scratch && p.values && p.labels && p.label && p.logits
                                 ? predict_files(&p, arena, file, count)
                                 : brim_fail(BRIM_ENOMEM_HOST, "no host memory for a micro-batch");
  brim_trainer_close(p.trainer);
  return status;
}
