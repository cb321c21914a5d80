/* Evaluations of a trainer. See trainer.h. */
#include <math.h>

#include "base/alloc.h"
#include "train/scores.h"
#include "train/trainer_parts.h"

brim_evaluation brim_evaluation_none(void)
{
  return (brim_evaluation){
      .loss = NAN, .accuracy = NAN, .accuracy_top = NAN, .f1 = NAN, .mae = NAN, .mape = NAN, .rmse = NAN, .r2 = NAN};
}

double brim_evaluation_perplexity(const brim_evaluation *e)
{
  return e->task == BRIM_TASK_TOKENS ? exp(e->loss) : NAN;
}

/* This rank's samples of a part. */
typedef struct part_stream {
  enum brim_part part;
  int64_t first, count, batch;
} part_stream;

static brim_span next_part_span(void *context, int64_t sequence)
{
  const part_stream *p = context;
  const int64_t first = sequence * p->batch, rest = p->count - first;
  return (brim_span){p->part, 0, p->first + first, rest <= 0 ? 0 : rest < p->batch ? rest : p->batch};
}

/* Computes the sums over this rank's samples; they stay on the device. *weight, *tokens: see brim_setup_weigh. */
static brim_status evaluate(brim_trainer *t, brim_loader *loader, const volatile int *stop, double *weight,
                            double *tokens)
{
  BRIM_TRY(brim_exec_zero_metrics(t->exec));
  const brim_step step = {.loss_scale = 1};
  for (;;) {
    const brim_batch *batch = NULL;
    if (stop && *stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted during evaluation");
    BRIM_TRY(brim_loader_next(loader, &batch));
    if (!batch) return BRIM_OK;
    const brim_program *program = brim_plan_program(t->plan, BRIM_PROGRAM_EVALUATE, batch->span.count);
    BRIM_TRY(brim_exec_load(t->exec, program, batch->values, batch->labels));
    BRIM_TRY(brim_exec_run(t->exec, program, &step, NULL));
    brim_setup_weigh(t->drive->setup, batch, weight, tokens);
  }
}

/* The number of metrics of an evaluation. */
static size_t count_metrics(const brim_trainer *t)
{
  const brim_setup *s = t->drive->setup;
  if (s->data.train.task == BRIM_TASK_VALUES) return (size_t)BRIM_ERRORS_COUNT(s->answers);
  return (size_t)(2 + brim_footprint_cells(s) + (s->top_k > 0));
}

/* Called once per trainer, as the size is the same for all plans. */
brim_status brim_trainer_make_metrics(brim_trainer *t)
{
  t->metrics = brim_try_calloc(count_metrics(t), sizeof(double));
  return t->metrics ? BRIM_OK : brim_fail(BRIM_ENOMEM_HOST, "no host memory for the metrics of an evaluation");
}

/* Computes the errors of real targets. r2 of several targets is the mean of theirs, as in scikit-learn's r2_score; it
 * is undefined for a constant target. */
static void take_errors(const brim_trainer *t, double samples, brim_evaluation *out)
{
  const int64_t targets = t->drive->setup->answers;
  double squares = 0, r2 = 0;
  for (int64_t k = 0; k < targets; k++) {
    const double *of = t->metrics + BRIM_ERRORS_COUNT(k), left = of[0], spread = of[2] - of[1] * of[1] / samples;
    squares += left;
    r2 += spread > 0 ? 1 - left / spread : NAN;
  }
  out->mae = t->metrics[1] / samples;
  out->mape = 100 * t->metrics[2] / samples;
  out->rmse = sqrt(squares / (samples * (double)targets));
  out->r2 = r2 / (double)targets;
}

brim_status brim_trainer_evaluate(brim_trainer *t, enum brim_part part, const volatile int *stop, brim_evaluation *out)
{
  const brim_drive *d = t->drive;
  const brim_dataset_info *info = &d->setup->data.train;
  part_stream stream = {.part = part, .batch = brim_drive_eval_batch(d)};
  brim_setup_part(d->setup, part, &stream.first, &stream.count);
  double sum[BRIM_BALLOT_SUMS] = {0};
  brim_loader_options options = brim_setup_part_loader(d->setup, part, d->choice.micro_batch);
  options.next = next_part_span;
  options.context = &stream;
  brim_loader *loader = NULL;
  brim_status status = brim_loader_open(&options, &loader);
  if (status == BRIM_OK) status = evaluate(t, loader, stop, &sum[0], &sum[1]);
  brim_loader_close(loader);
  if (status != BRIM_OK) t->failed_at = brim_now();
  BRIM_TRY(brim_trainer_meet_for(t, BRIM_MEET_EVALUATED, t->state.step, status, sum));
  BRIM_TRY(brim_exec_sum_metrics(t->exec, t->metrics, count_metrics(t)));
  const double samples = (double)d->setup->data.count[part];
  *out = brim_evaluation_none();
  out->task = info->task;
  out->samples = d->setup->data.count[part];
  out->loss = t->metrics[0] / sum[0];
  out->top_k = d->setup->top_k;
  out->classes = info->classes;
  out->class_names = info->class_names;
  if (info->task == BRIM_TASK_VALUES) {
    take_errors(t, samples, out);
    return BRIM_OK;
  }
  const int64_t cells = brim_footprint_cells(d->setup);
  const double answered = info->task == BRIM_TASK_TOKENS ? sum[1] : samples; /* for tokens, those that count */
  out->accuracy = t->metrics[1] / answered;
  out->accuracy_top = d->setup->top_k > 0 ? t->metrics[2 + cells] / answered : NAN;
  out->f1 = cells > 0 ? brim_scores_macro_f1(t->metrics + 2, info->classes) : NAN;
  out->confusion = cells > 0 ? t->metrics + 2 : NULL;
  return BRIM_OK;
}
