/* Ends a run by a deadline with as little memory as possible:
 *
 *     at the start  the smallest plan that fits and is predicted to be in time; otherwise the fastest
 *     while it runs, from the measured time of a step: if late, the next larger micro-batch; if very early, the next
 *     smaller
 *
 * If the run will be late anyway, the policy reports it and the run continues. Changes never alter the results. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <brim/host.h>
#include <brim/plugin.h>
#include <brim/policy.h>

#define STEPS_TIMED 10 /* at least */

typedef struct deadline_aware {
  const char *deadline;
  double margin_percent, check_seconds;
} deadline_aware;

static const brim_param table[] = {
    BRIM_PARAM(STR, deadline_aware, deadline, NULL, NULL,
               "local time by which the run has to end, such as 2030-01-31 07:00"),
    BRIM_PARAM(F64, deadline_aware, margin_percent, "10", "[0,1000]", "allowance for slower steps than predicted"),
    BRIM_PARAM(SECONDS, deadline_aware, check_seconds, "30s", "[0,inf)", "time between two checks of the pace"),
    BRIM_PARAMS_END,
};

typedef struct run {
  const deadline_aware *p;
  double deadline;         /* on the clock of brim_policy_clock() */
  int64_t batch, too_slow; /* the micro-batch now, and one that was too slow */
  double since, looked;    /* when the plan began and when the pace was last checked, as brim_step_view.seconds */
  int64_t since_step;
  int has_said; /* the policy has reported that the run will be late */
} run;

static brim_status create(const void *params, void **self)
{
  const deadline_aware *p = params;
  struct tm t = {.tm_isdst = -1};
  if (sscanf(p->deadline, "%d-%d-%d %d:%d", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour, &t.tm_min) != 5)
    return brim_fail(BRIM_ECONFIG,
                     "policy.deadline_aware.deadline must be a time such as '2030-01-31 07:00', but is '%s'",
                     p->deadline);
  t.tm_year -= 1900;
  t.tm_mon--;
  run *r = brim_try_calloc(1, sizeof *r);
  if (!r) return brim_fail(BRIM_ENOMEM_HOST, "no memory for policy 'deadline_aware'");
  *r = (run){.p = p, .deadline = (double)mktime(&t)};
  *self = r;
  return BRIM_OK;
}

/* Returns the seconds from the predicted end of the run to the deadline; negative if the run will be late. */
static double spare(const run *r, double step_seconds, int64_t steps)
{
  return r->deadline - brim_policy_clock() - (1 + r->p->margin_percent / 100) * step_seconds * (double)steps;
}

static void explain(const run *r, double step_seconds, int64_t steps, const char *more, char *reason)
{
  const double s = spare(r, step_seconds, steps);
  brim_reason(reason, "%lld steps of %.3g s plus %g %% end %.1f minutes %s the deadline%s", (long long)steps,
              step_seconds, r->p->margin_percent, (s < 0 ? -s : s) / 60, s < 0 ? "after" : "before", more);
}

static brim_status choose_plan(void *self, const brim_plan_query *q, brim_plan_choice *out)
{
  run *r = self;
  const int64_t steps = q->demands->steps;
  const int32_t precision = q->precision == BRIM_AS_IT_IS ? BRIM_TAKE_FP32 : q->precision;
  brim_plan_figures best = {0};
  int64_t next = INT64_MAX;
  for (size_t i = 0; i < q->micro_batch_count; i++) {
    brim_plan_figures f = {.size = sizeof f};
    if (q->micro_batch[i] > next) continue;
    next = q->micro_batch[i] / 2; /* try only a few, as brim may have to time each of them */
    BRIM_TRY(brim_plan_figures_of(q, q->micro_batch[i], precision, &f));
    if (f.peak_bytes > q->room_bytes || (f.rounds && out->micro_batch > 0)) continue;
    const int both_in_time = spare(r, f.step_seconds, steps) >= 0 && spare(r, best.step_seconds, steps) >= 0;
    const int is_better = both_in_time ? f.peak_bytes < best.peak_bytes : f.step_seconds < best.step_seconds;
    if (out->micro_batch > 0 && !is_better) continue;
    best = f;
    out->micro_batch = q->micro_batch[i];
  }
  if (out->micro_batch == 0) return BRIM_ENOTSUP; /* nothing fits: the next policy decides */
  out->precision = q->precision == BRIM_AS_IT_IS ? precision : BRIM_AS_IT_IS;
  r->has_said = spare(r, best.step_seconds, steps) < 0;
  explain(r, best.step_seconds, steps, r->has_said ? ", and nothing that fits is faster" : "", out->reason);
  return BRIM_OK;
}

/* Finds the next larger micro-batch that fits, or the next smaller one that was not too slow, with bit-identical
 * results, or else 0. */
static brim_status find_next(const run *r, const brim_step_view *v, int larger, int64_t *out)
{
  brim_device_view d;
  uint64_t room, peak;
  BRIM_TRY(v->look(v, &d, &room));
  for (size_t k = 0; k < v->choice_count && v->grain > 0 && v->micro_batch % v->grain == 0; k++) {
    const int64_t batch = v->choice[larger ? v->choice_count - 1 - k : k];
    if (batch % v->grain != 0 || (larger ? batch <= v->micro_batch : batch >= v->micro_batch)) continue;
    BRIM_TRY(v->peak_within(v, batch, 0, &peak));
    *out = peak <= room && (larger || batch > r->too_slow) ? batch : 0;
    return BRIM_OK;
  }
  return BRIM_OK;
}

static brim_status on_step(void *self, const brim_step_view *v, brim_step_plan *out)
{
  run *r = self;
  if (r->batch != v->micro_batch) { /* measure the pace of the new plan from here on, evaluations included */
    r->batch = v->micro_batch;
    r->since = r->looked = v->seconds;
    r->since_step = v->step;
  }
  const int64_t steps = v->step - r->since_step, left = v->demands->steps - v->step;
  if (steps < STEPS_TIMED || v->seconds - r->looked < r->p->check_seconds) return BRIM_ENOTSUP;
  r->looked = v->seconds;
  const double pace = (v->seconds - r->since) / (double)steps, early = spare(r, pace, left);
  if (early < 0) r->too_slow = v->micro_batch;
  if (early < 0 || early > pace * (double)left) BRIM_TRY(find_next(r, v, early < 0, &out->micro_batch));
  if (out->micro_batch == 0 && (early >= 0 || r->has_said)) return BRIM_ENOTSUP;
  r->has_said = out->micro_batch == 0;
  explain(r, pace, left, r->has_said ? ", and there is no larger one that fits" : "", out->reason);
  return BRIM_OK;
}

static const brim_policy_ops ops = {.size = sizeof ops, .choose_plan = choose_plan, .on_step = on_step};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_POLICY,
                                   .id = "deadline_aware",
                                   .help = "ends by a deadline, with as little memory as possible",
                                   .params_size = sizeof(deadline_aware),
                                   .params = table,
                                   .create = create,
                                   .destroy = free,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("deadline_aware", "1.0", plugins)
