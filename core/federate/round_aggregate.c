/* Combines the updates of a federation's round: sets the weights before the clients train, and divides the sum, or
 * merges all updates, when they have arrived. See round.h. */
#include <math.h>

#include "base/log.h"
#include "builtin/builtin.h"
#include "federate/round_parts.h"

/* ---- before clients train ---- */

/* The number of steps of a client over all local epochs. */
static int64_t count_steps(const brim_federation *f, int64_t client)
{
  const brim_setup *s = f->setup;
  const int64_t batch = s->settings->training.effective_batch_size,
                samples = brim_setup_client_samples(s, brim_partition_count(&s->partition, client));
  return s->settings->federate.local_epochs * ((samples + batch - 1) / batch);
}

/* Lists the clients that will train, for the aggregator. */
static brim_status list_arrivals(brim_federation *f, int64_t *count)
{
  const brim_setup *s = f->setup;
  double factor;
  brim_step step = {.gradient_scale = 1};
  *count = 0;
  for (int64_t i = 0; i < f->clients; i++) {
    const int64_t client = f->selected[i], steps = count_steps(f, client);
    if (f->client[i].is_done) continue;
    BRIM_TRY(
        brim_schedule_factor(s->schedule, s->schedule_params, f->client[i].version, f->drive->order.steps, &factor));
    BRIM_TRY(brim_optimizer_fill(s->optimizer, s->optimizer_params, factor, &step));
    f->trains[*count] = client;
    f->arrival[(*count)++] = (brim_arrival){
        .size = sizeof(brim_arrival),
        .round = f->round,
        .client = client,
        .samples = brim_partition_count(&s->partition, client),
        .steps = steps,
        .rate = step.lr,
        .reach = brim_optimizer_reach(s->optimizer, s->optimizer_params, step.lr, brim_setup_mu(s), steps),
        .loss_before = NAN,
        .loss = NAN,
        .norm = NAN};
  }
  return BRIM_OK;
}

/* With clipped updates all clients have the same weight. */
brim_status brim_federation_weigh(brim_federation *f)
{
  int64_t count, k = 0;
  if (brim_privacy_clips(f->setup->settings)) {
    for (int64_t i = 0; i < f->clients; i++) f->client[i].weight = f->protection.weight;
    return BRIM_OK;
  }
  BRIM_TRY(list_arrivals(f, &count));
  if (brim_setup_aggregator(f->setup)->needs & BRIM_NEED_LOSS_BEFORE) {
    BRIM_TRY(brim_federation_ask(f, brim_lane_evaluate, f->trains, count, f->weight));
    for (int64_t i = 0; i < count; i++) f->arrival[i].loss_before = f->weight[i];
  }
  BRIM_TRY(brim_aggregation_weigh(f->aggregation, f->arrival, count, f->weight));
  for (int64_t i = 0; i < f->clients; i++)
    if (!f->client[i].is_done) f->client[i].weight = f->weight[k++];
  return BRIM_OK;
}

/* ---- when updates have arrived ---- */

/* Lists the updates that have arrived, with their losses and norms, in the order of selection. Returns their number.
 * `arrival` has an entry for each client that was expected to arrive. */
static int64_t list_arrived(brim_federation *f)
{
  int64_t expected = 0, count = 0;
  for (int64_t i = 0; i < f->clients; i++) {
    const brim_client_result *c = &f->client[i];
    if (c->fate.outcome != BRIM_OUTCOME_ARRIVES) continue;
    brim_arrival *arrival = &f->arrival[expected++];
    arrival->loss = c->loss / c->counted;
    arrival->norm = c->norm;
    if (!c->arrived) continue;
    f->place[count] = i;
    f->arrived[count++] = arrival;
  }
  return count;
}

/* Lets the aggregator merge all updates. */
static brim_status merge(brim_federation *f)
{
  const brim_whole_round round = {f->place, f->arrived, list_arrived(f)};
  const double start = brim_now();
  BRIM_TRY(brim_whole_merge(f->whole, &round, f->aggregation, f->exec));
  brim_log(BRIM_LOG_DEBUG, "round %lld: %lld updates merged in %.1f ms", (long long)f->round + 1,
           (long long)round.count, 1e3 * (brim_now() - start));
  return BRIM_OK;
}

/* Computes the divisor of the sum, through the aggregator. */
static brim_status find_divisor(brim_federation *f, double *out)
{
  const int64_t count = list_arrived(f);
  brim_aggregation_start(f->aggregation);
  for (int64_t i = 0; i < count; i++)
    BRIM_TRY(brim_aggregation_add(f->aggregation, f->arrived[i], f->client[f->place[i]].weight));
  return brim_aggregation_divisor(f->aggregation, out);
}

static brim_status share_noise(void *federation, int64_t pieces)
{
  brim_federation *f = federation;
  f->turns = pieces;
  return brim_federation_work(f);
}

/* With clipped updates the divisor is fixed and does not depend on the number of updates that arrived. */
static brim_status protect(brim_federation *f, brim_round_result *out)
{
  const brim_settings *s = f->setup->settings;
  out->weight = (double)s->clients_per_round * f->protection.weight;
  out->clip_norm = f->protection.clip_norm;
  brim_protection_learn(&f->protection, f->round, f->client, f->clients);
  const brim_noise noise = {.round = f->round, .client = f->client, .clients = f->clients};
  return brim_protection_add_noise(&f->protection, f->exec, &noise, share_noise, f);
}

brim_status brim_federation_combine(brim_federation *f, brim_round_result *out)
{
  const brim_program *serve = brim_federation_serve(f);
  brim_control *control = brim_kept_control(f->kept);
  if (brim_privacy_clips(f->setup->settings)) return protect(f, out);
  if (out->arrived < f->setup->settings->federate.min_clients) return BRIM_OK; /* the round fails */
  if (control) BRIM_TRY(brim_control_learn(control, f->exec, serve, f->clients, out->arrived));
  if (f->whole) return merge(f);
  BRIM_TRY(find_divisor(f, &out->weight));
  return control ? brim_control_shift(control, f->exec, serve, out->weight) : BRIM_OK;
}
