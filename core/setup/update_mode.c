/* optimizer.update and memory.offload: what does not go with them, and why. */
#include "setup/setup_parts.h"

#define REMEDY "or take optimizer.update=step"

bool brim_setup_updates_in_backward(const brim_setup *s)
{
  return s->settings->optimizer.update == BRIM_UPDATE_FUSED_BACKWARD;
}

brim_status brim_setup_refuse_accumulation(const brim_setup *s, int64_t batch)
{
  const brim_training_settings *t = &s->settings->training;
  return brim_fail(BRIM_ECONFIG,
                   "optimizer.update=fused_backward: steps of %lld samples (training.effective_batch_size) in "
                   "micro-batches of %lld (training.batch_size) add up gradients over several micro-batches, so all of "
                   "them would have to be kept\n"
                   "set training.batch_size=%lld with training.gradient_accumulation_steps=1, or both smaller, " REMEDY,
                   (long long)t->effective_batch_size, (long long)batch, (long long)t->effective_batch_size);
}

/* A device that works while the host goes on must copy states by itself. */
static brim_status check_offload(const brim_setup *s)
{
  if (s->settings->memory.offload == BRIM_OFFLOAD_NONE || !BRIM_HAS(brim_backend_ops, s->backend_ops, run_program) ||
      BRIM_HAS(brim_backend_ops, s->backend_ops, wait))
    return BRIM_OK;
  return brim_fail(
      BRIM_ECONFIG,
      "memory.offload=optimizer: backend '%s' works ahead of the host, but has no copies of the optimizer's "
      "state that do so too\ntake memory.offload=none, with an optimizer of less state: adamw8bit, lion, adafactor",
      brim_setup_backend_id(s));
}

/* Class weights go with it: with one micro-batch in a step, the labels are known before the backward pass. */
brim_status brim_setup_check_update(const brim_setup *s)
{
  const brim_training_settings *t = &s->settings->training;
  BRIM_TRY(check_offload(s));
  if (!brim_setup_updates_in_backward(s)) return BRIM_OK;
  if (s->world.ranks > 1)
    return brim_fail(
        BRIM_ECONFIG,
        "optimizer.update=fused_backward does not go with %d ranks: the gradients of all of them are added "
        "up before any parameter is updated, so they have to be kept\n"
        "train with one rank, " REMEDY,
        (int)s->world.ranks);
  if (t->clip_norm > 0)
    return brim_fail(BRIM_ECONFIG,
                     "optimizer.update=fused_backward does not go with training.clip_norm=%g: the norm is that of all "
                     "gradients together, and the first of them is used and gone before the last is there\n"
                     "set training.clip_norm=0 (optimizer=adafactor limits each update by itself), " REMEDY,
                     t->clip_norm);
  if (s->settings->precision == BRIM_PRECISION_FP16)
    return brim_fail(
        BRIM_ECONFIG,
        "optimizer.update=fused_backward does not go with precision=fp16: whether a gradient overflowed is "
        "known only at the end of the backward pass, when parameters are updated already\n"
        "take precision=bf16 or fp32, " REMEDY);
  if (t->effective_batch_size > brim_setup_micro_batch(s))
    return brim_setup_refuse_accumulation(s, brim_setup_micro_batch(s));
  return BRIM_OK;
}
