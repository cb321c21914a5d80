/* The first values of a run that begins with weights of before. See trainer.h. */
#include <stdlib.h>

#include "base/log.h"
#include "base/text.h"
#include "setup/setup_weights.h"
#include "train/trainer_parts.h"

/* Parameters have the same index in every program; evaluation's may lie elsewhere (training.ema_decay). */
static brim_status write_parameter(brim_trainer *t, size_t parameter, const void *values)
{
  const brim_plan *plan = t->plan;
  for (size_t i = 0; i < plan->program_count; i++)
    if (i == 0 || (t->drive->setup->settings->training.ema_decay > 0 && plan->program[i].kind == BRIM_PROGRAM_EVALUATE))
      BRIM_TRY(brim_exec_write(t->exec, &plan->program[i], plan->program[i].graph->parameter[parameter].value, values));
  return BRIM_OK;
}

static brim_status fill(brim_trainer *t, const brim_setup_weights *w)
{
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < w->count && status == BRIM_OK; i++) {
    if (!brim_weights_source(w->weights, i)) continue;
    void *values = brim_try_malloc(w->parameter[i]->bytes);
    if (!values) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the values of '%s'", w->parameter[i]->name);
    status = brim_weights_read(w->weights, i, values);
    if (status == BRIM_OK) status = write_parameter(t, w->index[i], values);
    free(values);
  }
  return status;
}

static void tell(const brim_setup_weights *w)
{
  brim_text text = {0};
  brim_weights_tell(w->weights, &text);
  brim_log(BRIM_LOG_INFO, "weights: %s", brim_text_str(&text));
  brim_text_release(&text);
}

brim_status brim_trainer_load_weights(brim_trainer *t, json_t **record)
{
  brim_setup_weights w;
  if (record) *record = NULL;
  BRIM_TRY(brim_setup_weights_open(t->drive->setup, t->plan->program[0].graph, &w));
  brim_status status = BRIM_OK;
  if (w.weights) {
    if (!brim_config_backbone(t->drive->setup->config)) status = fill(t, &w); /* else brim_frozen_write has */
    if (status == BRIM_OK && record && !(*record = brim_weights_json(w.weights, true))) status = BRIM_ELOAD;
    if (status == BRIM_OK) tell(&w);
  }
  brim_setup_weights_close(&w);
  return status;
}
