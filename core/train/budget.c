/* Does a plan fit what the device has, and what the process may take of it? If not: where the memory goes, and what
 * would fit. See brim_session_check_budget. */
#include <stdio.h>
#include <string.h>

#include "train/session.h"

/* The largest micro-batch below the chosen one that fits and keeps the effective batch: it divides that. Multiples of
 * the grain come first, since they keep the bits too. 0: none. */
static int64_t find_fitting(const brim_session *s, uint64_t room, uint64_t *peak_bytes)
{
  const brim_training_settings *t = &s->settings->training;
  const int64_t effective = t->batch_size * t->gradient_accumulation_steps, grain = s->grain > 0 ? s->grain : 1;
  for (int pass = 0; pass < 2; pass++)
    for (int64_t batch = t->batch_size - 1; batch >= 1; batch--) {
      if (effective % batch != 0 || (batch % grain == 0) != (pass == 0) || !brim_session_allows(s, batch)) continue;
      brim_plan *plan = NULL;
      if (brim_session_plan(s, batch, &plan) != BRIM_OK) return 0;
      *peak_bytes = plan->peak_bytes;
      brim_plan_free(plan);
      if (*peak_bytes <= room) return batch;
    }
  return 0;
}

/* Adds what would fit, to the text about a plan that does not. */
static void suggest_training(const brim_session *s, uint64_t room, brim_text *text)
{
  const brim_training_settings *t = &s->settings->training;
  char bytes[32];
  uint64_t peak = 0;
  const int64_t batch = find_fitting(s, room, &peak);
  if (batch > 0)
    brim_text_printf(text, "\ntraining.batch_size=%lld training.gradient_accumulation_steps=%lld would fit, with %s",
                     (long long)batch, (long long)(t->batch_size * t->gradient_accumulation_steps / batch),
                     brim_format_bytes(bytes, sizeof bytes, peak));
  else
    brim_text_add(text, "\nno smaller training.batch_size fits");
}

static void suggest_evaluation(const brim_session *s, uint64_t room, brim_text *text)
{
  char bytes[32];
  for (int64_t batch = s->eval_batch / 2; batch >= 1; batch /= 2) {
    brim_plan *smaller = NULL;
    if (brim_session_plan_evaluation(s, batch, batch, true, &smaller) != BRIM_OK) break;
    const uint64_t peak = smaller->peak_bytes;
    brim_plan_free(smaller);
    if (peak > room) continue;
    brim_text_printf(text, "\ntraining.eval_batch_size=%lld would fit, with %s", (long long)batch,
                     brim_format_bytes(bytes, sizeof bytes, peak));
    return;
  }
  brim_text_add(text, "\nno smaller training.eval_batch_size fits");
}

/* The least of what limits the process on its device, and what it is called; 0: nothing does. */
static uint64_t limit_of(const brim_session *s, char *name, size_t room)
{
  const brim_memory_settings *m = &s->settings->memory;
  const double share = m->limit > 0 ? m->limit : s->fraction;
  uint64_t limit = m->limit_mb << 20;
  snprintf(name, room, "memory.limit_mb");
  if (share <= 0) return limit;
  const uint64_t of_share = (uint64_t)(share * (double)s->device_info.total_bytes);
  if (limit > 0 && limit <= of_share) return limit;
  snprintf(name, room, "%s=%.4g", m->limit > 0 ? "memory.limit" : "TF_GPU_MEMORY_FRACTION", share);
  return of_share;
}

/* What is left of it for arenas: it counts what the process has of the device already. */
static uint64_t left_of(uint64_t limit, const brim_session *s)
{
  const uint64_t taken = s->device_info.taken_bytes;
  return limit > taken ? limit - taken : 0;
}

/* "memory.limit_mb allows 32.0 MiB, of which the driver and the libraries have 1.0 MiB" */
static void tell_limit(const brim_session *s, const char *name, uint64_t limit, brim_text *text)
{
  char bytes[32];
  brim_text_printf(text, "%s allows %s", name, brim_format_bytes(bytes, sizeof bytes, limit));
  if (s->device_info.taken_bytes > 0)
    brim_text_printf(text, ", of which the driver and the libraries have %s",
                     brim_format_bytes(bytes, sizeof bytes, s->device_info.taken_bytes));
}

brim_status brim_session_check_budget(const brim_session *s, const brim_plan *plan)
{
  char name[64], bytes[32];
  const bool waits = s->settings->wait_for_gpu && brim_device_is_shared(&s->device_info);
  const uint64_t limit = limit_of(s, name, sizeof name), allowed = left_of(limit, s);
  const uint64_t has = waits ? s->device_info.total_bytes : s->device_info.free_bytes;
  const bool over_limit = limit > 0 && plan->peak_bytes > allowed;
  if (!over_limit && plan->peak_bytes <= has) return BRIM_OK;
  const bool evaluating = !brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0);
  const uint64_t room = over_limit && allowed < has ? allowed : has;
  brim_text text = {0};
  brim_text_printf(&text, "the %s needs %s, but ", evaluating ? "evaluation" : "run",
                   brim_format_bytes(bytes, sizeof bytes, plan->peak_bytes));
  if (over_limit)
    tell_limit(s, name, limit, &text);
  else
    brim_text_printf(&text, "the device has %s%s", brim_format_bytes(bytes, sizeof bytes, has), waits ? "" : " free");
  brim_text_printf(&text, "\nat its peak, in %s: ", plan->peak_op);
  for (uint32_t r = 0; r < BRIM_ROLE_COUNT; r++)
    brim_text_printf(&text, "%s%s %s", r ? ", " : "", brim_role_name(r),
                     brim_format_bytes(bytes, sizeof bytes, plan->class_bytes[r]));
  evaluating ? suggest_evaluation(s, room, &text) : suggest_training(s, room, &text);
  const brim_status status = brim_fail(over_limit ? BRIM_EBUDGET : BRIM_ENOMEM_DEVICE, "%s", brim_text_str(&text));
  brim_text_release(&text);
  return status;
}
