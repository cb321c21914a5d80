/* Evaluations of a trainer. See trainer.h. */
#include <math.h>

#include "train/scores.h"
#include "train/trainer_parts.h"

int64_t brim_trainer_cells(const brim_trainer *t)
{
  const int64_t classes = t->session->data.train.classes;
  return classes < BRIM_MANY_CLASSES ? classes * classes : 0;
}

double brim_trainer_weight_of(const brim_trainer *t, const int32_t *label, int64_t count)
{
  const double *weight = t->session->label_weights.item;
  double sum = 0;
  if (t->session->label_weights.count == 0) return (double)count;
  for (int64_t i = 0; i < count; i++) sum += weight[label[i]];
  return sum;
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

/* *weight: what the samples counted for. */
static brim_status evaluate(brim_trainer *t, brim_loader *loader, const volatile int *stop, double *weight)
{
  *weight = 0;
  BRIM_TRY(brim_exec_zero_metrics(t->exec));
  const brim_step step = {.loss_scale = 1};
  for (;;) {
    const brim_batch *batch = NULL;
    if (stop && *stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted during evaluation");
    BRIM_TRY(brim_loader_next(loader, &batch));
    if (!batch) return BRIM_OK;
    const brim_program *program = brim_plan_program(t->plan, BRIM_PROGRAM_EVALUATE, batch->span.count);
    BRIM_TRY(brim_exec_load(t->exec, program, batch->values, batch->labels));
    BRIM_TRY(brim_exec_run(t->exec, program, &step));
    *weight += brim_trainer_weight_of(t, batch->labels, batch->span.count);
  }
}

/* The sums of this rank's samples, left on the device; *weight as of evaluate. */
static brim_status evaluate_part(brim_trainer *t, part_stream *stream, const volatile int *stop, double *weight)
{
  brim_loader_options options = brim_session_part_loader(t->session, stream->part);
  options.next = next_part_span;
  options.context = stream;
  brim_loader *loader = NULL;
  BRIM_TRY(brim_loader_open(&options, &loader));
  const brim_status status = evaluate(t, loader, stop, weight);
  brim_loader_close(loader);
  return status;
}

brim_status brim_trainer_evaluate(brim_trainer *t, enum brim_part part, const volatile int *stop, brim_evaluation *out)
{
  const brim_session *s = t->session;
  const int64_t classes = s->data.train.classes, cells = brim_trainer_cells(t);
  const size_t sums = (size_t)(2 + cells + (s->top_k > 0));
  part_stream stream = {.part = part, .batch = s->eval_batch};
  double weight = 0;
  brim_session_part(s, part, &stream.first, &stream.count);
  double sum[BRIM_BALLOT_SUMS] = {0};
  brim_status status = evaluate_part(t, &stream, stop, &weight);
  if (status != BRIM_OK) t->failed_at = brim_now();
  sum[0] = weight;
  BRIM_TRY(brim_trainer_meet_for(t, BRIM_MEET_EVALUATED, t->state.step, status, sum));
  BRIM_TRY(brim_exec_sum_metrics(t->exec, t->metrics, sums));
  const double count = (double)s->data.count[part];
  *out = (brim_evaluation){.samples = s->data.count[part],
                           .loss = t->metrics[0] / sum[0],
                           .accuracy = t->metrics[1] / count,
                           .top_k = s->top_k,
                           .accuracy_top = s->top_k > 0 ? t->metrics[2 + cells] / count : NAN,
                           .f1 = cells > 0 ? brim_scores_macro_f1(t->metrics + 2, classes) : NAN,
                           .classes = classes,
                           .class_names = s->data.train.class_names,
                           .confusion = cells > 0 ? t->metrics + 2 : NULL};
  return BRIM_OK;
}
