/* For training.batch_size=auto and precision=policy. Among the plans whose exact peaks fit, chooses the one with the
 * fastest step according to the device profile. Among plans that are equally fast within the noise it prefers the
 * largest micro-batch and fp32. It never changes a batch_size or a precision that the user has set. */
#include "brim/brim.h"

#define NOISE 0.02 /* relative noise of a predicted time */
/* Micro-batches tried for a precision: the largest that fits, the next, then about half of each. */
#define LOOKED_AT 6

typedef struct best {
  brim_plan_figures figures;
  int64_t micro_batch; /* 0 if no plan fits */
  int32_t precision;
} best;

/* Returns whether micro-batch i of the list may be chosen. */
static int is_open(const brim_plan_query *q, size_t i, int64_t below)
{
  return q->micro_batch[i] < below && (q->batch_size == 0 || q->micro_batch[i] == q->batch_size);
}

/* Compares a plan with the best plan so far. Micro-batches come from large to small. */
static brim_status look_at(const brim_plan_query *q, size_t i, int32_t precision, uint64_t room, best *b, int *fits)
{
  brim_plan_figures f = {.size = sizeof f};
  BRIM_TRY(brim_plan_figures_of(q, q->micro_batch[i], precision, &f));
  *fits = f.peak_bytes <= room;
  if (f.rounds && b->micro_batch) return BRIM_OK; /* prefers a plan that does not change the results */
  if (b->micro_batch && precision != b->precision && f.basis == BRIM_BASIS_GUESSED) return BRIM_OK;
  if (!*fits || (b->micro_batch && f.step_seconds >= (1 - NOISE) * b->figures.step_seconds)) return BRIM_OK;
  *b = (best){f, q->micro_batch[i], precision};
  return BRIM_OK;
}

/* Finds the largest micro-batch that fits, by binary search, because a smaller micro-batch nearly always has a smaller
 * peak. */
static brim_status find_largest(const brim_plan_query *q, uint64_t room, size_t *out)
{
  size_t low = 0, high = q->micro_batch_count;
  while (low < high) {
    const size_t middle = high == q->micro_batch_count && low == 0 ? 0 : low + (high - low) / 2;
    uint64_t peak;
    BRIM_TRY(q->peak(q, q->micro_batch[middle], &peak));
    if (peak <= room)
      high = middle;
    else
      low = middle + 1;
  }
  *out = high;
  return BRIM_OK;
}

static brim_status find_best(const brim_plan_query *q, int32_t precision, int64_t below, uint64_t room, best *b)
{
  size_t i = 0;
  int64_t next = INT64_MAX;
  const int as_it_is = precision == q->precision || (q->precision == BRIM_AS_IT_IS && precision == BRIM_TAKE_FP32);
  /* q->peak() computes peaks for this precision only. */
  if (as_it_is && q->batch_size == 0) BRIM_TRY(find_largest(q, room, &i));
  for (int looked = 0; i < q->micro_batch_count && looked < LOOKED_AT; i++) {
    int fits;
    if (!is_open(q, i, below) || q->micro_batch[i] > next) continue;
    BRIM_TRY(look_at(q, i, precision, room, b, &fits));
    if (!fits) continue;
    next = looked++ == 0 ? q->micro_batch[i] - 1 : q->micro_batch[i] / 2;
  }
  return BRIM_OK;
}

static brim_status find(const brim_plan_query *q, int64_t below, uint64_t room, best *b)
{
  if (q->precision != BRIM_AS_IT_IS) return find_best(q, q->precision, below, room, b);
  for (int32_t precision = BRIM_TAKE_FP32; precision <= BRIM_TAKE_FP16; precision++)
    if (q->precisions >> precision & 1) BRIM_TRY(find_best(q, precision, below, room, b));
  return BRIM_OK;
}

/* Chooses a plan that fits now. If the run may wait, chooses a plan that will fit when the device is empty. */
static brim_status choose(const brim_plan_query *q, int64_t below, brim_plan_choice *out)
{
  static const char *const basis[] = {[BRIM_BASIS_TIMED] = " by the profile",
                                      [BRIM_BASIS_DERIVED] = " by the profile, partly from other micro-batches",
                                      [BRIM_BASIS_GUESSED] = ", guessed"};
  char a[32], c[32];
  best b = {.micro_batch = 0};
  uint64_t room = q->room_bytes;
  if (q->batch_size > 0 && q->precision != BRIM_AS_IT_IS) return BRIM_ENOTSUP;
  BRIM_TRY(find(q, below, room, &b));
  if (b.micro_batch == 0 && q->later_bytes != room) BRIM_TRY(find(q, below, room = q->later_bytes, &b));
  if (b.micro_batch == 0) return BRIM_ENOTSUP;
  out->micro_batch = b.micro_batch;
  out->precision = q->precision == BRIM_AS_IT_IS ? b.precision : BRIM_AS_IT_IS;
  brim_reason(out->reason, "%.3g ms a step%s, the fastest that fits: %s of %s on %s", 1e3 * b.figures.step_seconds,
              basis[b.figures.basis], brim_format_bytes(a, sizeof a, b.figures.peak_bytes),
              brim_format_bytes(c, sizeof c, room), q->device->name);
  return BRIM_OK;
}

static brim_status choose_plan(void *self, const brim_plan_query *q, brim_plan_choice *out)
{
  (void)self;
  const brim_status status = choose(q, INT64_MAX, out);
  if (status != BRIM_ENOTSUP || q->batch_size > 0) return status;
  /* brim then reports the missing memory, or waits for it */
  out->micro_batch = q->micro_batch[q->micro_batch_count - 1];
  brim_reason(out->reason, "the smallest, and still too large for %s", q->device->name);
  return BRIM_OK;
}

/* The run calls this if a plan did not get its memory. Chooses a plan that fits now. */
static brim_status on_oom(void *self, const brim_oom *event, brim_action *out)
{
  (void)self;
  if (event->retries >= event->plan.demands->max_retries) return BRIM_ENOTSUP;
  out->kind = BRIM_ACT_PLAN;
  return choose(&event->plan, event->micro_batch, &out->plan);
}

static const brim_policy_ops ops = {.size = sizeof ops, .choose_plan = choose_plan, .on_oom = on_oom};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_POLICY,
                                   .id = "auto_plan",
                                   .help =
                                       "chooses the fastest plan that fits, for batch_size=auto and precision=policy",
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-policies", "1.0", plugins)
