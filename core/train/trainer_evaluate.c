/* Evaluations of a trainer. See trainer.h. */
#include <math.h>
#include <string.h>

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

/* This rank's samples of a part, as a stream of batches. */
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

/* Returns the number of metrics of an evaluation. */
static size_t count_metrics(const brim_trainer *t)
{
  const brim_setup *s = t->drive->setup;
  if (s->data.train.task == BRIM_TASK_VALUES) return (size_t)BRIM_ERRORS_COUNT(s->answers);
  return (size_t)(2 + brim_footprint_cells(s) + (s->top_k > 0));
}

/* Call it once per trainer, because the size is the same for all plans. */
brim_status brim_trainer_make_metrics(brim_trainer *t)
{
  t->metrics = brim_try_calloc(count_metrics(t), sizeof(double));
  t->exact = brim_try_calloc(count_metrics(t) + 1, sizeof *t->exact);
  const brim_setup *s = t->drive->setup;
  if (s->options.dist) t->exact_of_ranks = brim_try_calloc((size_t)s->world.ranks, BRIM_EXCHANGE_BYTES);
  return t->metrics && t->exact && (t->exact_of_ranks || !s->options.dist)
             ? BRIM_OK
             : brim_fail(BRIM_ENOMEM_HOST, "no host memory for the metrics of an evaluation");
}

/* ---- sums that do not depend on ranks ---- */

/* A federation ends with the same bits on any number of ranks. So it adds up all sums except counts exactly: the device
 * adds the samples of a unit one after another, and the host adds units exactly. The weight of the losses is the last
 * of these sums. */
static size_t count_exact(const brim_trainer *t)
{
  const brim_setup *s = t->drive->setup;
  if (!brim_setup_is_federated(s)) return 0;
  return s->data.train.task == BRIM_TASK_VALUES ? count_metrics(t) : 1;
}

static brim_status take_unit(brim_trainer *t, const brim_program *program, double *weight)
{
  const size_t count = count_exact(t);
  BRIM_TRY(brim_exec_take_metrics(t->exec, program, t->metrics, count));
  for (size_t i = 0; i < count; i++) brim_exact_add(&t->exact[i], t->metrics[i]);
  brim_exact_add(&t->exact[count], *weight);
  *weight = 0;
  return BRIM_OK;
}

#define EXACTS (BRIM_EXCHANGE_BYTES / sizeof(brim_exact)) /* in one exchange */

/* Adds up over all ranks, and replaces the metrics and the weight. */
static brim_status finish_exact(brim_trainer *t, double *weight)
{
  brim_dist *dist = t->drive->setup->options.dist;
  const size_t count = count_exact(t), all = count > 0 ? count + 1 : 0;
  const int32_t ranks = t->drive->setup->world.ranks;
  for (size_t first = 0; first < all && dist; first += EXACTS) {
    const size_t some = all - first < EXACTS ? all - first : EXACTS;
    brim_exact own[EXACTS];
    memcpy(own, t->exact + first, some * sizeof *own);
    memset(t->exact + first, 0, some * sizeof *own);
    BRIM_TRY(brim_dist_exchange(dist, own, (uint32_t)(some * sizeof *own), t->exact_of_ranks));
    for (int32_t r = 0; r < ranks; r++)
      for (size_t i = 0; i < some; i++)
        brim_exact_merge(&t->exact[first + i], (const brim_exact *)t->exact_of_ranks + (size_t)r * some + i);
  }
  for (size_t i = 0; i < count; i++) t->metrics[i] = brim_exact_value(&t->exact[i]);
  if (all > 0) *weight = brim_exact_value(&t->exact[count]);
  return BRIM_OK;
}

/* ---- an evaluation ---- */

void brim_trainer_list_samples(brim_trainer *t, brim_samples *samples)
{
  t->samples = samples;
}

/* Computes the sums over this rank's samples, which stay on the device except for the exact ones. *weight, *tokens: see
 * brim_setup_weigh. */
static brim_status evaluate(brim_trainer *t, brim_loader *loader, const part_stream *of, const volatile int *stop,
                            double *weight, double *tokens)
{
  const int64_t unit = brim_setup_eval_unit(t->drive->setup);
  const size_t exact = count_exact(t);
  BRIM_TRY(brim_exec_zero_metrics(t->exec));
  memset(t->exact, 0, (exact + 1) * sizeof *t->exact);
  const brim_step step = {.loss_scale = 1};
  for (;;) {
    const brim_batch *batch = NULL;
    if (stop && *stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted during evaluation");
    BRIM_TRY(brim_loader_next(loader, &batch));
    if (!batch) return BRIM_OK;
    const int64_t end = batch->span.first + batch->span.count;
    const brim_program *program = brim_plan_program(t->plan, BRIM_PROGRAM_EVALUATE, batch->span.count);
    BRIM_TRY(brim_exec_load(t->exec, program, batch->values, batch->labels));
    BRIM_TRY(brim_exec_run(t->exec, program, &step, NULL));
    if (t->samples) BRIM_TRY(brim_samples_add(t->samples, t->drive->setup, t->exec, program, batch));
    brim_setup_weigh(t->drive->setup, batch, weight, tokens);
    if (exact > 0 && (end % unit == 0 || end == of->first + of->count)) BRIM_TRY(take_unit(t, program, weight));
  }
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

/* Checks the weight, because the mean of no losses is undefined, and then the parameters are not the cause. */
static brim_status check_weight(const brim_trainer *t, enum brim_part part, double weight)
{
  if (weight > 0) return BRIM_OK;
  if (t->drive->setup->data.train.task == BRIM_TASK_TOKENS)
    return brim_fail(BRIM_ENUMERIC,
                     "no token of the %s data counts for the loss, so the loss has no value\nloss.ignore_index or the "
                     "dataset excludes every label",
                     brim_part_titles[part]);
  return brim_fail(BRIM_ENUMERIC,
                   "no sample of the %s data counts for the loss, so the loss has no value\nall of them are of classes "
                   "with weight 0, or of the class that loss.ignore_index names",
                   brim_part_titles[part]);
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
  if (t->samples) brim_samples_begin(t->samples, part);
  brim_status status = brim_loader_open(&options, &loader);
  if (status == BRIM_OK) status = evaluate(t, loader, &stream, stop, &sum[0], &sum[1]);
  brim_loader_close(loader);
  if (status != BRIM_OK) t->failed_at = brim_now();
  BRIM_TRY(brim_trainer_meet_for(t, BRIM_MEET_EVALUATED, t->state.step, status, sum));
  BRIM_TRY(brim_exec_sum_metrics(t->exec, t->metrics, count_metrics(t)));
  BRIM_TRY(finish_exact(t, &sum[0]));
  BRIM_TRY(check_weight(t, part, sum[0]));
  if (t->samples) BRIM_TRY(brim_samples_merge(t->samples, d->setup));
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
