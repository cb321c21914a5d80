/* A round of a federation as a step of the run: the clients train, and then the server's optimizer applies the sum of
 * their updates to the global model. Before that, nothing durable changes. See federate/round.h. */
#include <math.h>

#include "base/fault.h"
#include "train/trainer_parts.h"

static void commit(brim_trainer *t, const brim_round_result *r)
{
  brim_train_state *state = &t->state;
  for (int64_t i = 0; i < r->clients; i++) {
    const brim_client_result *c = &r->client[i];
    state->samples += c->samples;
    if (!c->arrived) continue;
    state->window_loss += c->loss;
    state->window_correct += c->correct;
    state->window_weight += c->counted;
    state->window_tokens += c->tokens;
    state->window_samples += c->samples;
  }
  state->world_seconds += r->spent.seconds;
  state->world_joules += r->spent.joules;
  state->world_bytes += r->spent.bytes;
  state->world_edge_bytes += r->spent.edge_bytes;
  state->step++;
  state->epoch = state->step;
}

/* Prepares the steps of the clients and of the server. */
static brim_status make_steps(brim_trainer *t, double weight, brim_step *server)
{
  const brim_setup *s = t->drive->setup;
  const int64_t round = t->state.step;
  double factor;
  t->step = (brim_step){.seed = (uint64_t)s->settings->seed, .step = (uint64_t)round, .gradient_scale = 1};
  *server = t->step;
  server->federated = 1 / weight;
  BRIM_TRY(brim_schedule_factor(s->schedule, s->schedule_params, round, t->drive->order.steps, &factor));
  BRIM_TRY(
      brim_optimizer_fill(s->optimizer, s->optimizer_params, factor, &t->step)); /* for records: the clients' rate */
  return brim_optimizer_fill(s->server_optimizer, s->server_params, 1, server);
}

const brim_round_result *brim_trainer_last_round(const brim_trainer *t)
{
  return &t->round;
}

brim_status brim_trainer_client_accuracy(const brim_trainer *t, brim_spread *out)
{
  return brim_federation_accuracy(t->federation, out);
}

void brim_trainer_print_world(const brim_trainer *t, brim_text *out)
{
  if (t->federation) brim_federation_print(t->federation, out);
}

double brim_trainer_epsilon(const brim_trainer *t, bool next)
{
  return t->federation ? brim_federation_epsilon(t->federation, t->state.step, next) : 0;
}

/* Trains all clients of this rank, then sums over all ranks. */
static brim_status train(brim_trainer *t)
{
  bool all_begin;
  brim_status status = BRIM_OK;
  if (brim_fault_hit(BRIM_FAULT_BEGIN, NULL))
    status = brim_fail(BRIM_ENOMEM_DEVICE, "failed at its beginning (injected by %s)", BRIM_FAULT_ENVIRONMENT);
  BRIM_TRY(brim_federation_gather(t->federation, t->state.step, status == BRIM_OK, &all_begin));
  if (status != BRIM_OK || !all_begin) return status; /* the round will be repeated */
  status = brim_federation_train(t->federation, t->state.step, t->state.world_seconds);
  t->torn = !brim_federation_has_model(t->federation);
  return status;
}

static brim_status add_up(brim_trainer *t)
{
  const double start = brim_now();
  const brim_status status = brim_federation_add_up(t->federation, &t->round);
  if (t->drive->setup->options.dist) t->waited += brim_now() - start;
  return status == BRIM_OK ? brim_federation_learn(t->federation, t->state.evaluated_accuracy) : status;
}

/* Returns the hint after divergence. Gradient descent on a quadratic term of strength a diverges if a times the rate is
 * 2 or more. */
static const char *advice_of(const brim_setup *s)
{
  if (brim_setup_is_ditto(s))
    return "if it was a personal model, lower federate.personal_lambda (times optimizer.lr, it must be below 2); else "
           "lower optimizer.lr, or train fewer local epochs (federate.local_epochs)";
  if (brim_setup_is_feddyn(s))
    return "lower federate.alpha (times optimizer.lr, it must be below 2) or optimizer.lr, or train fewer local epochs "
           "(federate.local_epochs)";
  return "lower optimizer.lr, or train fewer local epochs (federate.local_epochs)";
}

/* Reports that too few updates are left because clients diverged. Clients lost to the simulated world are replaced
 * within the round instead. */
static brim_status refuse(brim_trainer *t)
{
  const char *instead = advice_of(t->drive->setup);
  const long long trained = (long long)(t->round.arrived + t->round.diverged), diverged = (long long)t->round.diverged,
                  round = (long long)t->state.step + 1,
                  least = (long long)t->drive->setup->settings->federate.min_clients;
  const brim_status status =
      t->round.arrived == 0
          ? brim_fail(BRIM_ENUMERIC, "all %lld clients of round %lld have diverged\n%s", trained, round, instead)
          : brim_fail(BRIM_ENUMERIC,
                      "%lld of the %lld clients of round %lld have diverged; federate.min_clients needs %lld "
                      "updates\n%s",
                      diverged, trained, round, least, instead);
  return brim_trainer_report_once(t, status, true);
}

/* Applies the round's sum to the global model. */
static brim_status serve(brim_trainer *t)
{
  brim_step server;
  BRIM_TRY(make_steps(t, t->round.weight, &server));
  if (!t->drive->setup->settings->federate.train) return BRIM_OK;
  t->torn = true;
  BRIM_TRY(brim_exec_run(t->exec, t->update, &server, NULL));
  BRIM_TRY(brim_exec_wait(t->exec));
  if (brim_fault_hit(BRIM_FAULT_UPDATE, NULL))
    return brim_fail(BRIM_ENOMEM_DEVICE, "update failed (injected by %s)", BRIM_FAULT_ENVIRONMENT);
  t->torn = false;
  return BRIM_OK;
}

static brim_status make_round(brim_trainer *t)
{
  t->is_reported = false;
  brim_fault_step(t->state.step + 1);
  BRIM_TRY(brim_trainer_meet(t, BRIM_MEET_READY, train(t)));
  BRIM_TRY(brim_trainer_meet(t, BRIM_MEET_COMMIT, add_up(t)));
  if (t->round.arrived < brim_setup_least_clients(t->drive->setup)) return refuse(t);
  BRIM_TRY(serve(t));
  t->begun_steps = t->state.step + 1;
  commit(t, &t->round);
  return BRIM_OK;
}

brim_status brim_trainer_round(brim_trainer *t)
{
  const brim_status status = make_round(t);
  brim_federation_end(t->federation, status == BRIM_OK);
  return status;
}
