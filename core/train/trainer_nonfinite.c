/* Finds out why a trainer rejected a step. See trainer_parts.h. */
#include <math.h>

#include "train/trainer_parts.h"

/* Finds the first operation of the step with a result that is not finite, or NULL. Reads the samples again, without the
 * loader. */
static brim_status find_node(const brim_trainer *t, const brim_begun *b, const brim_node **node)
{
  const brim_data *data = &t->drive->setup->data;
  const brim_order *order = &t->drive->order;
  const uint32_t real = t->drive->setup->backend_ops->real;
  const size_t values_bytes = (size_t)brim_data_values_bytes(data, real);
  const size_t label_bytes = (size_t)brim_data_label_bytes(data, BRIM_PART_TRAIN, real);
  brim_step step = b->step;
  brim_arena arena = {0};
  void *scratch = brim_arena_try(&arena, data->scratch_bytes);
  uint8_t *values = brim_arena_try(&arena, (size_t)brim_order_batch_max(order) * values_bytes);
  uint8_t *labels = brim_arena_try(&arena, (size_t)brim_order_batch_max(order) * label_bytes);
  brim_status status = BRIM_OK;
  if (!scratch || !values || !labels) status = brim_fail(BRIM_ENOMEM_HOST, "no host memory for a micro-batch");
  /* Clears sums of the first run, because otherwise the wrong kernels would be blamed. */
  if (status == BRIM_OK) status = brim_exec_zero_gradients(t->exec);
  if (status == BRIM_OK) status = brim_exec_zero_metrics(t->exec);
  const int64_t end = brim_order_sequence(order, t->state.step + 1);
  for (int64_t k = brim_order_sequence(order, t->state.step); k < end && !*node && status == BRIM_OK; k++) {
    const brim_span span = brim_order_span(order, k);
    for (int64_t i = 0; i < span.count && status == BRIM_OK; i++)
      status = brim_data_sample(data, BRIM_PART_TRAIN, span.epoch, span.first + i, real, scratch,
                                values + (size_t)i * values_bytes, labels + (size_t)i * label_bytes);
    const brim_program *program = brim_plan_program(t->plan, BRIM_PROGRAM_TRAIN, span.count);
    step.first_sample = span.first - b->span.first;
    if (status == BRIM_OK) status = brim_exec_load(t->exec, program, values, labels);
    if (status == BRIM_OK) status = brim_exec_find_nonfinite(t->exec, program, &step, node);
  }
  brim_arena_release(&arena);
  return status;
}

brim_status brim_trainer_explain(const brim_trainer *t, const brim_begun *b, bool *is_found)
{
  const brim_program *first = &t->plan->program[0];
  const long long step = (long long)t->state.step;
  const double loss = b->metrics[0];
  const brim_node *node = NULL;
  const brim_tensor *parameter = NULL; /* the first parameter that an earlier update made non-finite */
  BRIM_TRY(find_node(t, b, &node));
  for (size_t i = 0; i < first->graph->parameter_count && !parameter; i++) {
    bool finite = true;
    BRIM_TRY(brim_exec_is_finite(t->exec, first, first->graph->parameter[i].value, &finite));
    if (!finite) parameter = first->graph->parameter[i].value;
  }
  *is_found = node || parameter;
  if (isfinite(loss))
    brim_fail(BRIM_ENUMERIC, "a gradient of step %lld is not finite", step + 1);
  else
    brim_fail(BRIM_ENUMERIC, "the loss of step %lld is %s", step + 1, isnan(loss) ? "not a number" : "infinite");
  if (t->check)
    brim_fail_add(BRIM_ENUMERIC,
                  "the %lld steps before were not finite either, with a final loss scale of %.0f: values exceed the "
                  "range of fp16 (65504); precision=bf16 has the range of fp32",
                  (long long)t->state.skipped_in_a_row - 1, t->state.loss_scale);
  if (parameter)
    brim_fail_add(BRIM_ENUMERIC, "parameter '%s' was already not finite after step %lld", parameter->name, step);
  if (node && node->file[0])
    brim_fail_add(BRIM_ENUMERIC, "first produced by %s '%s' (%s:%d)", node->op, node->name, node->file, node->line);
  else if (node)
    brim_fail_add(BRIM_ENUMERIC, "first produced by %s '%s'", node->op, node->name);
  return brim_fail_add(
      BRIM_ENUMERIC, "learning rate %g; the step was not committed, and earlier checkpoints are unchanged", b->step.lr);
}
