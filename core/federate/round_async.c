/* Asynchronous rounds (federate.async), as in Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation,
 * AISTATS 2022: federate.concurrency clients are in flight at any time, and a round ends when clients_per_round of them
 * have arrived. A client trains from the version of the global model at its start. The simulated world
 * computes the arrivals before any client trains, so a client trains in the round in which it arrives. See round.h. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "federate/round_parts.h"

/* Limit for consecutive checks for available clients without an arrival, after which the round fails. */
#define CHECKS_MAX 10000

struct brim_async {
  brim_flight_queue queue;
  brim_versions *versions; /* NULL: clients always start from the current version */
  int64_t *client;         /* [most] clients that have ended in the round, in the order of their ends */
  brim_flight *ended;      /* [most] */
  int64_t count;
};

brim_status brim_async_open(brim_federation *f)
{
  const size_t most = (size_t)f->most;
  if (!f->setup->settings->federate.async) return BRIM_OK;
  brim_async *a = f->async = brim_try_calloc(1, sizeof *a);
  if (!a) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for asynchronous rounds");
  a->client = brim_try_calloc(most, sizeof *a->client);
  a->ended = brim_try_calloc(most, sizeof *a->ended);
  if (!a->client || !a->ended)
    return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the arrivals of a round, at most %zu", most);
  return brim_flights_open(f->setup, &a->queue);
}

void brim_async_close(brim_async *a)
{
  if (!a) return;
  brim_flights_close(&a->queue);
  brim_versions_close(a->versions);
  free(a->client);
  free(a->ended);
  free(a);
}

brim_status brim_async_place(brim_federation *f)
{
  return f->async && !f->async->versions ? brim_versions_open(f->setup, brim_federation_serve(f), &f->async->versions)
                                         : BRIM_OK;
}

size_t brim_async_tensors(brim_async *a, brim_safetensor *out)
{
  if (!a) return 0;
  if (out) brim_flights_tensor(&a->queue, out);
  return 1 + brim_versions_tensors(a->versions, out ? out + 1 : NULL);
}

void brim_async_commit(brim_async *a)
{
  if (a) brim_flights_commit(&a->queue);
}

/* ---- simulated time ---- */

static void start_client(brim_federation *f, int64_t client)
{
  brim_flights *all = f->async->queue.next;
  const brim_moment moment = {f->round, 0, all->clock, (int64_t)all->starts};
  brim_fate fate;
  brim_fleet_start(f->fleet, &moment, client, &fate);
  const brim_flight flight = {.client = (double)client,
                              .version = (double)f->round,
                              .number = all->starts++,
                              .end = all->clock + fate.spent.seconds,
                              .seconds = fate.spent.seconds,
                              .joules = fate.spent.joules,
                              .bytes = (double)fate.spent.bytes,
                              .outcome = fate.outcome};
  brim_flights_add(&f->async->queue, &flight);
}

/* Lets the selector choose clients for the free places, from those that are available and not in flight. */
static brim_status start_clients(brim_federation *f)
{
  brim_flight_queue *q = &f->async->queue;
  brim_flights *all = q->next;
  const int64_t places = q->places - (int64_t)all->count;
  brim_fleet_columns columns = brim_selection_columns(f->selection);
  if (places == 0) return BRIM_OK;
  f->moment = (brim_moment){f->round, 0, all->clock, (int64_t)all->looks++};
  const int64_t there = brim_flights_leave_out(q, columns.candidate, brim_fleet_look(f->fleet, &f->moment, &columns));
  if (there == 0) return BRIM_OK;
  const brim_selection_wish wish = {.round = f->round,
                                    .wanted = places < there ? places : there,
                                    .candidates = there,
                                    .number = f->moment.number,
                                    .continues = true};
  const int64_t *chosen;
  int64_t count;
  const double start = brim_now();
  BRIM_TRY(brim_selection_select(f->selection, &wish, &chosen, &count));
  f->selection_seconds += brim_now() - start;
  for (int64_t i = 0; i < count; i++) start_client(f, chosen[i]);
  return BRIM_OK;
}

/* Advances the clock to the next end of a client or, if places are free, to the next check for available clients if
 * that is earlier. *ends: a client ends. */
static brim_status advance(brim_federation *f, int64_t *looks, bool *ends)
{
  const brim_world_settings *world = &f->setup->settings->world;
  brim_flight_queue *q = &f->async->queue;
  const brim_flight *first = brim_flights_first(q);
  const double look = q->next->clock + world->check_seconds;
  *ends = first && ((int64_t)q->next->count == q->places || first->end <= look);
  q->next->clock = *ends ? first->end : look;
  *looks = *ends ? 0 : *looks + 1;
  if (*looks < CHECKS_MAX) return BRIM_OK;
  return brim_fail(BRIM_ENUMERIC,
                   "round %lld: no client could start in %g simulated seconds\nchange world.availability",
                   (long long)f->round + 1, (double)*looks * world->check_seconds);
}

/* Removes a client that has ended from the queue. Returns whether its update will be used. */
static bool end_client(brim_federation *f)
{
  brim_async *a = f->async;
  brim_flight *e = &a->ended[a->count];
  *e = brim_flights_take(&a->queue);
  if (e->outcome == BRIM_OUTCOME_ARRIVES &&
      (double)f->round - e->version > (double)f->setup->settings->federate.max_staleness)
    e->outcome = BRIM_OUTCOME_STALE;
  a->client[a->count] = (int64_t)e->client;
  f->fate[a->count++] = (brim_fate){(enum brim_outcome)e->outcome, {e->seconds, e->joules, (int64_t)e->bytes}};
  f->spent.joules += e->joules;
  f->spent.bytes += (int64_t)e->bytes;
  return e->outcome == BRIM_OUTCOME_ARRIVES;
}

brim_status brim_async_select(brim_federation *f)
{
  brim_async *a = f->async;
  const int64_t wanted = f->setup->settings->clients_per_round;
  int64_t arrived = 0, looks = 0, stale = 0;
  brim_flights_begin(&a->queue);
  f->spent = (brim_expense){0, 0, 0};
  f->selection_seconds = 0;
  brim_selection_begin(f->selection);
  a->count = 0;
  while (arrived < wanted) {
    bool ends;
    if (a->count == f->most) {
      const brim_settings *s = f->setup->settings;
      return brim_fail(BRIM_ENUMERIC,
                       "round %lld: %lld of %lld updates arrived before %lld clients had dropped out or were too "
                       "stale\nlower world.dropout, or raise federate.max_staleness",
                       (long long)f->round + 1, (long long)arrived, (long long)s->clients_per_round,
                       (long long)(f->most - arrived));
    }
    BRIM_TRY(start_clients(f));
    BRIM_TRY(advance(f, &looks, &ends));
    if (!ends) continue;
    arrived += end_client(f);
    stale += a->ended[a->count - 1].outcome == BRIM_OUTCOME_STALE;
  }
  f->selected = a->client;
  f->clients = a->count;
  f->spent.seconds = a->queue.next->clock - a->queue.now->clock;
  if (stale > 0)
    brim_log(BRIM_LOG_INFO, "round %lld: left out %lld update%s more than %lld rounds old (federate.max_staleness)",
             (long long)f->round + 1, (long long)stale, brim_plural(stale),
             (long long)f->setup->settings->federate.max_staleness);
  return BRIM_OK;
}

void brim_async_describe(const brim_federation *f, int64_t place, brim_client_result *out)
{
  const brim_flight *e = &f->async->ended[place];
  out->version = (int64_t)e->version;
  out->number = (int64_t)e->number;
  out->discount = pow(1 + (double)f->round - e->version, -f->setup->settings->federate.staleness_exponent);
}

/* ---- training ---- */

/* Whether a client that was in flight at the start of the round, and is not too stale by now, started from the version.
 */
static bool is_used(void *federation, int64_t version)
{
  const brim_federation *f = federation;
  const brim_flights *now = f->async->queue.now;
  if (f->round - version > f->setup->settings->federate.max_staleness) return false;
  for (int64_t i = 0; i < (int64_t)now->count; i++)
    if ((int64_t)now->flight[i].version == version) return true;
  return false;
}

brim_status brim_async_begin(brim_federation *f)
{
  if (!f->async || !f->async->versions) return BRIM_OK;
  return brim_versions_keep(f->async->versions, f->exec, brim_federation_serve(f), f->round, is_used, f);
}

/* Makes a version the global model of all lanes. */
static brim_status load(brim_federation *f, int64_t version)
{
  for (int32_t i = 0; i < f->lanes; i++) BRIM_TRY(brim_exec_wait(f->worker[i].lane.exec));
  BRIM_TRY(brim_versions_load(f->async->versions, f->exec, brim_federation_serve(f), version));
  return brim_exec_wait(f->exec);
}

/* Returns the oldest version from which a client of this rank still has to train; the current version if all have
 * trained. */
static int64_t find_oldest(const brim_federation *f)
{
  int64_t oldest = f->round;
  for (int64_t i = 0; i < f->clients; i++)
    if (f->rank[i] == f->setup->world.rank && !f->client[i].is_done && f->client[i].version < oldest)
      oldest = f->client[i].version;
  return oldest;
}

/* Sums are exact, so the order of versions changes no bit. At the end the arena has the current version again, even if
 * a client failed. */
brim_status brim_async_train(brim_federation *f)
{
  int64_t loaded = f->round;
  brim_status status = BRIM_OK;
  brim_error error;
  for (int64_t version = find_oldest(f); version < f->round && status == BRIM_OK; version = find_oldest(f)) {
    loaded = version;
    status = load(f, version);
    if (status == BRIM_OK) status = brim_federation_train_version(f, version);
  }
  if (status != BRIM_OK) brim_error_take(&error);
  const brim_status restored = loaded < f->round ? load(f, f->round) : BRIM_OK;
  f->is_model_lost = restored != BRIM_OK;
  if (restored != BRIM_OK) return restored;
  if (status == BRIM_OK) return brim_federation_train_version(f, f->round);
  brim_error_put(&error);
  return status;
}
