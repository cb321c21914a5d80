/* See rounds.h. */
#include "planner/rounds.h"

#include "exec/timing.h"

/* A lane: an instance of the backend with its threads, the profile for that many threads, and a client's plan. */
typedef struct lane {
  brim_planner *planner;
  const brim_choice *choice;
  void *backend; /* the planner's own backend if there is one lane */
  brim_device_info info;
  brim_profile *profile;
  brim_plan *plan;
} lane;

static brim_status open_lane(lane *l)
{
  const brim_setup *s = l->planner->setup;
  l->info = l->planner->device_info;
  l->backend = s->backend;
  if (l->choice->lanes > 1) {
    BRIM_TRY(s->backend_ops->lane(s->backend, l->choice->lanes, &l->backend));
    if (l->info.on_host) l->info.threads = l->info.threads > l->choice->lanes ? l->info.threads / l->choice->lanes : 1;
  }
  BRIM_TRY(brim_planner_profile_of(l->planner, &l->info, &l->profile));
  return brim_planner_plan_client(l->planner, l->choice, l->backend, &l->plan);
}

static void close_lane(lane *l)
{
  const brim_setup *s = l->planner->setup;
  brim_plan_free(l->plan);
  if (l->profile) brim_planner_save_profile_of(l->planner, l->profile);
  brim_profile_close(l->profile);
  if (l->backend && l->backend != s->backend) s->backend_ops->drop_lane(s->backend, l->backend);
}

/* ---- a client ---- */

/* Returns the training program for micro-batches of `micro` samples. An average client may need a size that no client
 * has: then the next larger one, or else the largest. */
static const brim_program *find_train(const lane *l, int64_t micro)
{
  const brim_program *best = NULL;
  for (size_t i = 0; i < l->plan->program_count; i++) {
    const brim_program *p = &l->plan->program[i];
    const int64_t size = p->graph->batch, now = best ? best->graph->batch : 0;
    if (p->kind != BRIM_PROGRAM_TRAIN) continue;
    if (!best || (size >= micro ? now < micro || size < now : now < size)) best = p;
  }
  return best;
}

/* Adds `times` steps of `count` samples, as the lane runs them (federate/client.c). */
static void add_steps(const lane *l, const brim_rates *rates, int64_t count, double times, brim_prediction *t)
{
  const brim_setup *s = l->planner->setup;
  const uint64_t zeroed = l->plan->zeroed_bytes;
  if (count == 0 || times == 0) return;
  for (int64_t at = 0; at < count;) {
    const int64_t micro = brim_setup_client_micro(s, l->choice->micro_batch, count - at);
    const brim_program *train = find_train(l, micro);
    const uint64_t fed = train->graph->input->bytes + train->graph->label->bytes;
    brim_predict_program(l->profile, rates, train, times, t);
    brim_predict_other(l->profile, BRIM_TIMED_LOAD, (int64_t)fed, brim_rates_seconds(rates, (brim_cost){.bytes = fed}),
                       times, t);
    at += micro;
  }
  brim_predict_program(l->profile, rates, brim_plan_program(l->plan, BRIM_PROGRAM_UPDATE, 0), times, t);
  brim_predict_other(l->profile, BRIM_TIMED_ZERO, (int64_t)zeroed,
                     brim_rates_seconds(rates, (brim_cost){.bytes = zeroed}), times, t);
}

/* Bytes per value and client: the global model is copied, the distance from it is measured, and the result is added in
 * double precision. This is little, so it is predicted by rates alone. */
#define ROUND_BYTES (8 + 8 + 24)

/* The shortest time for which a client keeps a device busy, by the device's rates: during that time, other lanes gain
 * nothing. On the host each lane has threads of its own. */
static double busy_seconds(const lane *l)
{
  const brim_setup *s = l->planner->setup;
  const brim_rates rates = brim_rates_of(&l->info);
  const int64_t samples = brim_setup_client_samples(s, s->partition.samples / s->partition.clients),
                micro = brim_setup_client_micro(s, l->choice->micro_batch, samples);
  const brim_program *train = find_train(l, micro);
  if (l->info.on_host || !train) return 0;
  return brim_rates_seconds(&rates, train->cost) *
         (double)(s->settings->federate.local_epochs * s->settings->federate.edge_rounds) * (double)samples /
         (double)micro;
}

static brim_prediction predict_client(const lane *l)
{
  const brim_setup *s = l->planner->setup;
  const brim_rates rates = brim_rates_of(&l->info);
  const int64_t full = s->settings->training.effective_batch_size,
                samples = brim_setup_client_samples(s, s->partition.samples / s->partition.clients);
  const double epochs = (double)(s->settings->federate.local_epochs * s->settings->federate.edge_rounds);
  brim_prediction t = {0};
  add_steps(l, &rates, full, epochs * (double)(samples / full), &t);
  add_steps(l, &rates, samples % full, epochs, &t);
  const brim_prediction reading = brim_planner_predict_samples(l->planner, l->profile, (int64_t)epochs * samples);
  t.seconds += reading.seconds;
  t.guessed_seconds += reading.guessed_seconds;
  t.seconds += brim_rates_seconds(&rates, (brim_cost){.bytes = brim_plan_trained(l->plan) * ROUND_BYTES});
  return t;
}

static brim_status find(lane *l, brim_round_figures *out)
{
  const brim_setup *s = l->planner->setup;
  BRIM_TRY(open_lane(l));
  BRIM_TRY(brim_planner_time_client(l->planner, l->profile, &l->info, l->plan));
  const brim_prediction t = predict_client(l);
  const int64_t ranks = s->world.ranks, lanes = l->choice->lanes > 0 ? l->choice->lanes : 1,
                of_rank = (s->settings->clients_per_round + ranks - 1) / ranks, turns = (of_rank + lanes - 1) / lanes;
  const double least = (double)of_rank * busy_seconds(l), side_by_side = (double)turns * t.seconds;
  *out = (brim_round_figures){.client_seconds = t.seconds,
                              .round_seconds = side_by_side > least ? side_by_side : least,
                              .basis = brim_prediction_basis(&t)};
  return BRIM_OK;
}

brim_status brim_planner_round_figures(brim_planner *p, const brim_choice *choice, brim_round_figures *out)
{
  lane l = {.planner = p, .choice = choice};
  const brim_status status = find(&l, out);
  close_lane(&l);
  return status;
}
