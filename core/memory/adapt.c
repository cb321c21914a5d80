/* Tries smaller micro-batches, and tries again, when memory runs out. See brim/memory.h. */
#include <inttypes.h>
#include <time.h>

#include "base/error.h"
#include "base/text.h"
#include "brim/memory.h"

#define WAIT_SECONDS_MAX 1e9

/* A series of attempts, and the error of the last one. */
typedef struct series {
  const brim_oom_handler *handler;
  brim_failed_attempt oom;
  brim_error error;
} series;

/* Clears the previous attempt's error. */
static void begin_attempt(series *s)
{
  s->oom.attempt++;
  brim_error_clear();
}

/* Copies the attempt's error text, because a handler may set errors itself. */
static void keep_error(series *s, brim_status status)
{
  if (!brim_error_text()[0]) (void)brim_fail(status, "%s", brim_status_text(status));
  brim_error_take(&s->error);
  s->oom.status = status;
  s->oom.text = s->error.text;
}

static bool goes_on(const series *s)
{
  return !s->handler || !s->handler->handle || s->handler->handle(s->handler->context, &s->oom) == BRIM_OOM_GO_ON;
}

static brim_status give_up(const series *s)
{
  brim_error_put(&s->error);
  return s->oom.status;
}

/* ---- adaptive batch ---- */

/* Returns the largest divisor of n up to a limit, or 0. */
static int64_t largest_divisor(int64_t n, int64_t limit)
{
  int64_t best = 0;
  for (int64_t d = 1; d <= n / d; d++) {
    if (n % d != 0) continue;
    if (d <= limit && d > best) best = d;
    if (n / d <= limit && n / d > best) best = n / d;
  }
  return best;
}

static int64_t floor_of(const brim_adapt_options *o)
{
  return o->min_micro_batch > 0 ? o->min_micro_batch : 1;
}

static int64_t first_micro_batch(const brim_adapt_options *o)
{
  return largest_divisor(o->effective_batch, o->micro_batch > 0 ? o->micro_batch : o->effective_batch);
}

/* Returns the largest allowed divisor of at most half; if there is none, the smallest allowed one. 0: no smaller one is
 * left. */
static int64_t next_micro_batch(const brim_adapt_options *o, int64_t micro_batch)
{
  const int64_t half = largest_divisor(o->effective_batch, micro_batch / 2);
  if (half >= floor_of(o)) return half;
  const int64_t least = o->effective_batch / largest_divisor(o->effective_batch, o->effective_batch / floor_of(o));
  return least < micro_batch ? least : 0;
}

static brim_status check_adapt(const brim_adapt_options *o, brim_adapt_fn attempt)
{
  if (!attempt) return brim_fail(BRIM_EINVAL, "brim_adapt_batch needs a function to call");
  if (o->effective_batch < 1 || o->micro_batch < 0 || o->min_micro_batch < 0)
    return brim_fail(BRIM_EINVAL,
                     "effective_batch must be at least 1, micro_batch and min_micro_batch not negative: got %" PRId64
                     ", %" PRId64 ", %" PRId64,
                     o->effective_batch, o->micro_batch, o->min_micro_batch);
  if (first_micro_batch(o) >= floor_of(o)) return BRIM_OK;
  return brim_fail(BRIM_EINVAL,
                   "no divisor of the effective batch %" PRId64 " is a micro-batch from %" PRId64 " to %" PRId64
                   " (min_micro_batch to micro_batch)",
                   o->effective_batch, floor_of(o), o->micro_batch > 0 ? o->micro_batch : o->effective_batch);
}

static brim_status fail_at_floor(const brim_adapt_options *o, brim_status status)
{
  brim_text tried = {0};
  for (int64_t m = first_micro_batch(o); m > 0; m = next_micro_batch(o, m))
    brim_text_printf(&tried, "%s%" PRId64 " x %" PRId64, tried.length ? ", " : "", m, o->effective_batch / m);
  brim_fail_add(status, "no micro-batch fits: tried %s; min_micro_batch is %" PRId64, brim_text_str(&tried),
                floor_of(o));
  brim_text_release(&tried);
  return status;
}

brim_status brim_adapt_batch(const brim_adapt_options *options, brim_adapt_fn attempt, void *context,
                             brim_adapted *used)
{
  series s = {.handler = options->on_oom};
  BRIM_TRY(check_adapt(options, attempt));
  for (int64_t micro_batch = first_micro_batch(options);; micro_batch = s.oom.next_micro_batch) {
    const int64_t accumulation = options->effective_batch / micro_batch;
    begin_attempt(&s);
    const brim_status status = attempt(context, micro_batch, accumulation);
    if (status == BRIM_OK && used) *used = (brim_adapted){micro_batch, accumulation, s.oom.attempt};
    if (!brim_is_oom(status)) return status;
    keep_error(&s, status);
    const int64_t next = next_micro_batch(options, micro_batch);
    if (next == 0) return fail_at_floor(options, status);
    s.oom.micro_batch = micro_batch;
    s.oom.accumulation = accumulation;
    s.oom.next_micro_batch = next;
    s.oom.next_accumulation = options->effective_batch / next;
    if (!goes_on(&s)) return give_up(&s);
  }
}

/* ---- retry ---- */

brim_status brim_retry(const brim_retry_options *options, brim_retry_fn attempt, void *context)
{
  series s = {.handler = options->on_oom};
  if (!attempt) return brim_fail(BRIM_EINVAL, "brim_retry needs a function to call");
  if (options->max_retries < 0)
    return brim_fail(BRIM_EINVAL, "max_retries must not be negative, got %d", options->max_retries);
  if (!(options->wait_seconds >= 0 && options->wait_seconds <= WAIT_SECONDS_MAX))
    return brim_fail(BRIM_EINVAL, "wait_seconds must be in [0,%g], got %g", WAIT_SECONDS_MAX, options->wait_seconds);
  for (;;) {
    begin_attempt(&s);
    const brim_status status = attempt(context);
    if (!brim_is_oom(status)) return status;
    keep_error(&s, status);
    if (s.oom.attempt > options->max_retries)
      return brim_fail_add(status, "each of %" PRId64 " attempts failed: max_retries is %d", s.oom.attempt,
                           options->max_retries);
    if (!goes_on(&s)) return give_up(&s);
    const time_t whole = (time_t)options->wait_seconds;
    const struct timespec time = {.tv_sec = whole, .tv_nsec = (long)((options->wait_seconds - (double)whole) * 1e9)};
    /* A signal ends the wait, so that the next attempt can react to it. */
    if (options->wait_seconds > 0) (void)nanosleep(&time, NULL);
  }
}
