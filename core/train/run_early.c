/* Rules that end a run before its last step. They are checked after each evaluation and depend only on the state, so a
 * resumed run ends at the same step as one that was not interrupted. See run_parts.h. */
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "train/run_parts.h"

static const brim_federate_settings *rules_of(const brim_running *r)
{
  static const brim_federate_settings none;
  return brim_setup_is_federated(r->drive->setup) ? &r->settings->federate : &none;
}

/* ---- after an evaluation ---- */

/* Counts consecutive evaluations in which neither the loss nor the accuracy beat its reference by more than the
 * threshold. Only such an improvement changes a reference, so small improvements count when their sum exceeds the
 * threshold. */
static void settle(brim_running *r, const brim_evaluation *e)
{
  brim_train_state *s = r->state;
  const double threshold = rules_of(r)->convergence_threshold;
  const bool is_first = isnan(s->settled_loss);
  const bool lower = is_first || e->loss < s->settled_loss - threshold,
             better = is_first || e->accuracy > s->settled_accuracy + threshold;
  if (lower) s->settled_loss = e->loss;
  if (better) s->settled_accuracy = e->accuracy;
  s->settled_evaluations = lower || better ? 0 : s->settled_evaluations + 1;
}

void brim_running_judge(brim_running *r, enum brim_part part, const brim_evaluation *e)
{
  brim_train_state *s = r->state;
  s->evaluated_step = s->step;
  s->evaluated_accuracy = e->accuracy;
  if (rules_of(r)->convergence_threshold > 0) settle(r, e);
  if (part != BRIM_PART_VALIDATION) return;
  s->worse_evaluations++;
  if (!isnan(s->best_loss) && !(e->loss < s->best_loss)) return;
  s->worse_evaluations = 0;
  s->best_loss = e->loss;
  s->best_step = s->step;
}

/* ---- the rules ---- */

/* Whether the validation loss has not improved for long enough. */
static bool is_out_of_patience(const brim_running *r)
{
  const int64_t patience = r->settings->training.patience;
  return patience > 0 && r->state->worse_evaluations >= patience;
}

static bool has_reached_target(const brim_running *r)
{
  const brim_train_state *s = r->state;
  const double target = rules_of(r)->target_accuracy;
  return target > 0 && s->evaluated_step == s->step && s->evaluated_accuracy >= target;
}

static bool has_converged(const brim_running *r)
{
  const brim_train_state *s = r->state;
  const brim_federate_settings *f = rules_of(r);
  return f->convergence_threshold > 0 && s->evaluated_step == s->step && s->step >= f->min_rounds &&
         s->settled_evaluations >= f->patience;
}

static bool is_out_of_budget(const brim_running *r)
{
  const double most = r->settings->privacy.max_epsilon;
  return most > 0 && brim_trainer_epsilon(r->trainer, true) > most;
}

bool brim_running_is_over(void *running)
{
  const brim_running *r = running;
  return r->state->step > 0 &&
         (is_out_of_patience(r) || has_reached_target(r) || has_converged(r) || is_out_of_budget(r));
}

/* ---- the end ---- */

/* Writes the reason for the end to `why`, and the key that caused it to `rule`. */
static void explain(const brim_running *r, char *why, size_t room, char *rule, size_t rule_room)
{
  const brim_train_state *s = r->state;
  const brim_federate_settings *f = rules_of(r);
  const char *of = r->drive->setup->data.count[BRIM_PART_VALIDATION] > 0 ? "validation" : "test";
  if (has_reached_target(r)) {
    snprintf(why, room, "the %s accuracy is %.2f %%", of, 100 * s->evaluated_accuracy);
    snprintf(rule, rule_room, "federate.target_accuracy=%g", f->target_accuracy);
  } else if (has_converged(r)) {
    snprintf(why, room, "neither %s loss nor accuracy improved by more than %g in %lld evaluations", of,
             f->convergence_threshold, (long long)s->settled_evaluations);
    snprintf(rule, rule_room, "federate.patience=%lld", (long long)f->patience);
  } else if (is_out_of_budget(r)) {
    snprintf(why, room, "the next round would take epsilon from %.4g to %.4g", brim_trainer_epsilon(r->trainer, false),
             brim_trainer_epsilon(r->trainer, true));
    snprintf(rule, rule_room, "privacy.max_epsilon=%g", r->settings->privacy.max_epsilon);
  } else {
    snprintf(why, room, "no better validation loss since %s %lld",
             brim_setup_is_federated(r->drive->setup) ? "round" : "step", (long long)s->best_step);
    snprintf(rule, rule_room, "training.patience=%lld", (long long)r->settings->training.patience);
  }
}

brim_status brim_running_stop_early(brim_running *r)
{
  char why[128], rule[64];
  explain(r, why, sizeof why, rule, sizeof rule);
  BRIM_TRY(brim_running_close_window(r));
  BRIM_TRY(brim_loop_save(&r->loop));
  r->has_stopped = true;
  brim_running_event(r, "stopped_early", why);
  brim_say("stopped early after %s %lld of %lld: %s (%s)", brim_setup_is_federated(r->drive->setup) ? "round" : "step",
           (long long)r->state->step, (long long)r->drive->order.steps, why, rule);
  return BRIM_OK;
}
