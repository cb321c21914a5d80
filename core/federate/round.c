/* See round.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "federate/attack.h"
#include "federate/round_parts.h"

/* Rejects network.sleep if a rank may wait for transfers longer than the other ranks wait for that rank. */
static brim_status check_sleep(const brim_federation *f)
{
  const brim_setup *s = f->setup;
  const double limit = s->settings->dist.timeout_seconds / 2, clients = brim_setup_is_isolated(s) ? 1 : (double)f->most,
               most = f->fleet ? clients * brim_fleet_longest_sleep(f->fleet) : 0;
  if (!s->options.dist || most < limit) return BRIM_OK;
  return brim_fail(
      BRIM_ECONFIG,
      "network.sleep=true: a rank may wait %.0f seconds for transfers in a round, which is more than half of "
      "dist.timeout_seconds=%g\nset dist.timeout_seconds to %.0f or more, or leave network.sleep out",
      most, s->settings->dist.timeout_seconds, ceil(2 * most) + 1);
}

static brim_status open_federation(brim_federation *f)
{
  const size_t ranks = (size_t)f->setup->world.ranks, clients = (size_t)f->clients;
  const bool sketches = brim_setup_selector_needs(f->setup, BRIM_NEED_SKETCH);
  if (!BRIM_ARENA_TRY(&f->arena, f->client, clients) || !BRIM_ARENA_TRY(&f->arena, f->fate, clients) ||
      !BRIM_ARENA_TRY(&f->arena, f->order, clients) || !BRIM_ARENA_TRY(&f->arena, f->rank, clients) ||
      !BRIM_ARENA_TRY(&f->arena, f->turn, clients) || !BRIM_ARENA_TRY(&f->arena, f->speed, ranks) ||
      !BRIM_ARENA_TRY(&f->arena, f->load, ranks) || !BRIM_ARENA_TRY(&f->arena, f->arrival, clients) ||
      !BRIM_ARENA_TRY(&f->arena, f->arrived, clients) || !BRIM_ARENA_TRY(&f->arena, f->place, clients) ||
      !BRIM_ARENA_TRY(&f->arena, f->weight, clients) || !BRIM_ARENA_TRY(&f->arena, f->trains, clients) ||
      !(f->all = brim_arena_try(&f->arena, ranks * BRIM_EXCHANGE_BYTES)) ||
      (sketches && !BRIM_ARENA_TRY(&f->arena, f->sketch, (size_t)f->most * BRIM_SKETCH)))
    return brim_fail(BRIM_ENOMEM_HOST, "no host memory for %lld clients of a round", (long long)f->clients);
  for (size_t i = 0; i < ranks; i++) f->speed[i] = 1;
  BRIM_TRY(brim_fleet_open(f->setup, &f->fleet));
  BRIM_TRY(check_sleep(f));
  BRIM_TRY(brim_aggregation_open(brim_config_aggregator(f->setup->config), &f->aggregation));
  BRIM_TRY(brim_async_open(f));
  BRIM_TRY(brim_edges_open(f->setup, &f->edges));
  return brim_selection_open(f->setup, &f->selection);
}

brim_status brim_federation_open(const brim_setup *setup, brim_federation **out)
{
  brim_federation *f = brim_try_calloc(1, sizeof *f);
  if (!f) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for a federation");
  f->setup = setup;
  f->clients = f->most = brim_setup_round_clients(setup);
  brim_protection_init(&f->protection, setup);
  pthread_mutex_init(&f->adding, NULL);
  const brim_status status = open_federation(f);
  if (status == BRIM_OK)
    *out = f;
  else
    brim_federation_close(f);
  return status;
}

void brim_federation_close(brim_federation *f)
{
  if (!f) return;
  brim_federation_forget(f);
  brim_federation_unplace(f);
  brim_selection_close(f->selection);
  brim_whole_close(f->whole, brim_aggregation_is_lost(f->aggregation));
  brim_aggregation_close(f->aggregation);
  brim_kept_close(f->kept);
  brim_protection_close(&f->protection);
  brim_fleet_close(f->fleet);
  brim_async_close(f->async);
  brim_edges_close(f->edges);
  pthread_mutex_destroy(&f->adding);
  brim_arena_release(&f->arena);
  free(f);
}

void brim_federation_forget(brim_federation *f)
{
  f->is_open = false;
  f->pace = (brim_pace){0};
  free(f->sums);
  f->sums = NULL;
}

/* ---- changing the plan ---- */

static uint64_t bytes_of_sums(const brim_program *serve)
{
  uint64_t bytes = 0;
  for (size_t i = 0; i < serve->graph->tensor_count; i++)
    if (serve->graph->tensor[i]->role == BRIM_ROLE_GRADIENT) bytes += serve->graph->tensor[i]->bytes;
  return bytes;
}

/* Copies between the placed plan and `sums`. */
static brim_status copy_sums(brim_federation *f, brim_status (*copy)(brim_exec *exec, const brim_program *program,
                                                                     const brim_tensor *tensor, void *host))
{
  const brim_program *serve = brim_federation_serve(f);
  uint64_t at = 0;
  for (size_t i = 0; i < serve->graph->tensor_count; i++) {
    const brim_tensor *t = serve->graph->tensor[i];
    if (t->role != BRIM_ROLE_GRADIENT) continue;
    BRIM_TRY(copy(f->exec, serve, t, (char *)f->sums + at));
    at += t->bytes;
  }
  return BRIM_OK;
}

static brim_status write_sum(brim_exec *exec, const brim_program *program, const brim_tensor *sum, void *host)
{
  return brim_exec_write(exec, program, sum, host);
}

static int64_t count_arrived(const brim_federation *f)
{
  int64_t arrived = 0;
  for (int64_t i = 0; i < f->clients; i++) arrived += f->client[i].arrived;
  return arrived;
}

static void keep_sums(brim_federation *f)
{
  /* Rows of updates in a file stay valid without the plan. */
  if (!f->is_open || count_arrived(f) == 0 || f->whole) return;
  f->sums = brim_try_malloc(bytes_of_sums(brim_federation_serve(f)));
  if (!f->sums || copy_sums(f, brim_exec_read) != BRIM_OK) brim_federation_forget(f);
}

void brim_federation_unplace(brim_federation *f)
{
  if (f->exec) keep_sums(f);
  brim_crew_close(f->crew);
  f->crew = NULL;
  for (int32_t i = 0; i < f->lanes; i++) brim_lane_close(&f->worker[i].lane);
  free(f->worker);
  f->worker = NULL;
  f->lanes = f->workers = 0;
  f->exec = NULL;
  f->drive = NULL;
}

brim_status brim_federation_place(brim_federation *f, const brim_drive *drive, brim_exec *exec)
{
  brim_status status = BRIM_OK;
  f->drive = drive;
  f->exec = exec;
  const brim_program *adopt = brim_plan_program(brim_exec_plan(exec)->lane[0], BRIM_PROGRAM_ADOPT, 0);
  /* Without lanes, one worker adds the server's noise. */
  const int32_t workers = drive->choice.lanes > 0 ? drive->choice.lanes : 1;
  BRIM_TRY(brim_protection_place(&f->protection, brim_federation_serve(f)));
  if (!f->kept) BRIM_TRY(brim_kept_open(f->setup, adopt, &f->kept));
  BRIM_TRY(brim_async_place(f));
  BRIM_TRY(brim_edges_place(f));
  f->worker = brim_try_calloc((size_t)workers, sizeof *f->worker);
  if (!f->worker) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for %d lanes", (int)drive->choice.lanes);
  for (int32_t i = 0; i < workers; i++) f->worker[i].federation = f;
  for (; status == BRIM_OK && f->lanes < drive->choice.lanes; f->lanes++)
    status = brim_lane_open(&f->worker[f->lanes].lane, drive, brim_exec_lane(exec, f->lanes), f->kept);
  f->workers = workers;
  if (status == BRIM_OK) status = brim_crew_open(workers, brim_federation_run_lane, f, &f->crew);
  if (status == BRIM_OK && f->sums) status = copy_sums(f, write_sum);
  free(f->sums);
  f->sums = NULL;
  return status;
}

/* Opens the file for the updates of a round, if the aggregator needs all of them. */
static brim_status open_updates(brim_federation *f, const char *folder)
{
  const brim_updates_plan plan = brim_updates_plan_of(f->setup, brim_exec_plan(f->exec));
  if (plan.rows == 0 || f->whole) return BRIM_OK;
  return brim_whole_open(&plan, folder, f->setup->world.rank, &f->whole);
}

/* ---- selecting clients ---- */

static int most_first(const void *a, const void *b, void *clients)
{
  const int64_t i = *(const int64_t *)a, k = *(const int64_t *)b;
  const brim_client_result *x = (const brim_client_result *)clients + i, *y = (const brim_client_result *)clients + k;
  if (x->load != y->load) return x->load < y->load ? 1 : -1;
  return (i > k) - (i < k);
}

static void add_expense(brim_expense *sum, const brim_expense *more)
{
  sum->seconds += more->seconds;
  sum->joules += more->joules;
  sum->bytes += more->bytes;
  sum->edge_bytes += more->edge_bytes;
}

/* Computes the losses that the selector requests. */
static brim_status find_losses(void *federation, const int64_t *client, int64_t count, float *out)
{
  brim_federation *f = federation;
  if (f->fleet) {
    const brim_expense asked = brim_fleet_ask(f->fleet, &f->moment, client, count);
    add_expense(&f->spent, &asked);
  }
  if (!f->setup->settings->federate.train) {
    for (int64_t i = 0; i < count; i++) out[i] = NAN;
    return BRIM_OK;
  }
  double *loss = brim_try_calloc((size_t)count, sizeof *loss);
  if (!loss && count > 0) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for %lld losses", (long long)count);
  const brim_status status = brim_federation_ask(f, brim_lane_evaluate, client, count, loss);
  for (int64_t i = 0; i < count && status == BRIM_OK; i++) out[i] = (float)loss[i];
  free(loss);
  return status;
}

/* Selects clients, and simulates which of them arrive. *arrives: their number. */
static brim_status attempt_round(brim_federation *f, int64_t *arrives)
{
  brim_fleet_columns columns = brim_selection_columns(f->selection);
  int64_t there = f->setup->settings->total_clients;
  const double clock = f->moment.clock;
  if (f->fleet) BRIM_TRY(brim_fleet_gather(f->fleet, &f->moment, &columns, &there));
  f->spent.seconds += f->moment.clock - clock;
  const brim_selection_wish wish = {f->round, f->most < there ? f->most : there, there, find_losses, f, f->round,
                                    false};
  const double start = brim_now();
  BRIM_TRY(brim_selection_select(f->selection, &wish, &f->selected, &f->clients));
  f->selection_seconds += brim_now() - start;
  *arrives = f->clients;
  if (!f->fleet) return BRIM_OK;
  const brim_expense spent = brim_fleet_play(f->fleet, &f->moment, f->selected, f->clients, f->fate);
  add_expense(&f->spent, &spent);
  for (int64_t i = 0; i < f->clients; i++) *arrives -= f->fate[i].outcome != BRIM_OUTCOME_ARRIVES;
  return BRIM_OK;
}

/* Attempts the round until enough clients will arrive. */
static brim_status select_clients(brim_federation *f, double clock)
{
  const long long round = (long long)f->round + 1, least = (long long)brim_setup_least_clients(f->setup);
  f->spent = (brim_expense){0, 0, 0};
  f->selection_seconds = 0;
  for (int64_t attempt = 0; attempt < BRIM_ATTEMPTS_MAX; attempt++) {
    int64_t arrives = 0;
    f->moment = (brim_moment){f->round, attempt, clock + f->spent.seconds, f->round};
    BRIM_TRY(attempt_round(f, &arrives));
    if (f->fleet && arrives < least) continue;
    if (attempt > 0)
      brim_log(BRIM_LOG_INFO, "round %lld: %d attempts until %lld clients arrived (federate.min_clients)", round,
               (int)attempt + 1, least);
    return BRIM_OK;
  }
  return brim_fail(
      BRIM_ENUMERIC,
      "round %lld: none of %d attempts got the updates of %lld clients (federate.min_clients)\nraise "
      "federate.deadline_seconds or federate.over_selection, or lower world.dropout or federate.min_clients",
      round, BRIM_ATTEMPTS_MAX, least);
}

/* Returns the number of samples on which a client trains, over all local epochs of all its edge's rounds. */
static int64_t count_samples(const brim_federation *f, int64_t client)
{
  const brim_setup *s = f->setup;
  return s->settings->federate.edge_rounds * s->settings->federate.local_epochs *
         brim_setup_client_samples(s, brim_partition_count(&s->partition, client));
}

/* Returns a client's result at the start of the round, which is final if the client will not arrive or is only
 * simulated. */
static brim_client_result begin_client(const brim_federation *f, int64_t i)
{
  const int64_t client = f->selected[i];
  brim_client_result r = {.client = client,
                          .place = i,
                          .is_malicious = brim_attack_has(f->setup, client),
                          .version = f->round,
                          .number = f->round,
                          .discount = 1,
                          .personal = NAN,
                          .sketch = f->sketch ? f->sketch + i * BRIM_SKETCH : NULL};
  if (f->fleet) r.fate = f->fate[i];
  if (f->async) brim_async_describe(f, i, &r);
  if (r.fate.outcome != BRIM_OUTCOME_ARRIVES) {
    r.is_done = true;
    return r;
  }
  r.load = (double)brim_partition_count(&f->setup->partition, client);
  if (f->setup->settings->federate.train) return r;
  r.is_done = r.arrived = true;
  r.samples = count_samples(f, client);
  r.counted = (double)r.samples;
  r.loss = r.correct = r.squares = r.norm = NAN;
  return r;
}

/* A run without a folder keeps client states in an unlinked file. */
static brim_status begin_states(brim_federation *f)
{
  brim_states *states = brim_kept_states(f->kept);
  if (!brim_states_is_attached(states)) BRIM_TRY(brim_states_attach(states, NULL, BRIM_STATES_CREATE));
  brim_states_begin(states, f->clients);
  return BRIM_OK;
}

static brim_status begin_round(brim_federation *f, int64_t round, double clock)
{
  brim_federation_forget(f);
  f->round = round;
  BRIM_TRY(f->async ? brim_async_select(f) : select_clients(f, clock));
  for (int64_t i = 0; i < f->clients; i++) {
    f->client[i] = begin_client(f, i);
    f->order[i] = i;
  }
  qsort_r(f->order, (size_t)f->clients, sizeof *f->order, most_first, f->client);
  if (f->setup->settings->federate.train) BRIM_TRY(brim_federation_weigh(f));
  if (f->kept) BRIM_TRY(begin_states(f));
  BRIM_TRY(brim_async_begin(f));
  (f->edges ? brim_edges_distribute : brim_federation_distribute)(f);
  if (f->setup->settings->federate.train) BRIM_TRY(brim_exec_zero_gradients(f->exec));
  f->is_open = true;
  return BRIM_OK;
}

brim_status brim_federation_gather(brim_federation *f, int64_t round, bool begins, bool *all_begin)
{
  const char own[] = {begins, f->is_open && f->round == round}, *all = f->all;
  bool all_open = true;
  *all_begin = true;
  if (!brim_setup_is_isolated(f->setup)) return BRIM_OK;
  BRIM_TRY(brim_dist_exchange(f->setup->options.dist, own, sizeof own, f->all));
  for (int32_t r = 0; r < f->setup->world.ranks; r++) {
    *all_begin = *all_begin && all[2 * r];
    all_open = all_open && all[2 * r + 1];
  }
  if (!all_open) brim_federation_forget(f);
  return BRIM_OK;
}

brim_status brim_federation_train_version(brim_federation *f, int64_t version)
{
  f->turns = 0;
  for (int64_t i = 0; i < f->clients; i++) {
    const brim_client_result *c = &f->client[f->order[i]];
    if (f->rank[f->order[i]] == f->setup->world.rank && !c->is_done && c->version == version)
      f->turn[f->turns++] = f->order[i];
  }
  return f->turns > 0 ? brim_federation_work(f) : BRIM_OK;
}

bool brim_federation_has_model(const brim_federation *f)
{
  return !f->is_model_lost;
}

brim_status brim_federation_train(brim_federation *f, int64_t round, double clock)
{
  const double start = brim_now();
  if (!f->is_open || f->round != round) BRIM_TRY(begin_round(f, round, clock));
  atomic_store(&f->is_torn, false);
  const brim_status status = f->async   ? brim_async_train(f)
                             : f->edges ? brim_edges_train(f)
                                        : brim_federation_train_version(f, round);
  f->pace.seconds += brim_now() - start;
  if (atomic_load(&f->is_torn) || (f->edges && status != BRIM_OK)) brim_federation_forget(f);
  return status;
}

/* ---- over all ranks ---- */

static void count_staleness(const brim_federation *f, brim_round_result *out)
{
  int64_t sum = 0;
  out->is_async = true;
  for (int64_t i = 0; i < f->clients; i++) {
    const int64_t staleness = f->round - f->client[i].version;
    out->stale += f->client[i].fate.outcome == BRIM_OUTCOME_STALE;
    if (!f->client[i].arrived) continue;
    sum += staleness;
    if (staleness > out->staleness_most) out->staleness_most = staleness;
  }
  out->staleness = out->arrived > 0 ? (double)sum / (double)out->arrived : NAN;
}

brim_status brim_federation_add_up(brim_federation *f, brim_round_result *out)
{
  f->is_open = false;
  BRIM_TRY(brim_federation_meet(f));
  *out = (brim_round_result){.client = f->client,
                             .clients = f->clients,
                             .arrived = count_arrived(f),
                             .weight = 1,
                             .own_samples = brim_federation_own_samples(f),
                             .has_attack = f->setup->settings->attack.kind != BRIM_ATTACK_NONE,
                             .has_world = f->fleet != NULL,
                             .spent = f->spent,
                             .selection_seconds = f->selection_seconds};
  for (int64_t i = 0; i < f->clients; i++)
    out->diverged += !f->client[i].arrived && f->client[i].fate.outcome == BRIM_OUTCOME_ARRIVES;
  if (f->async) count_staleness(f, out);
  return f->setup->settings->federate.train ? brim_federation_combine(f, out) : BRIM_OK;
}

double brim_federation_epsilon(const brim_federation *f, int64_t rounds, bool next)
{
  const brim_settings *s = f->setup->settings;
  const int64_t releases = brim_privacy_is_local(s) ? brim_selection_most_times(f->selection) + next
                                                    : brim_privacy_releases(s, rounds + next);
  return brim_setup_epsilon(f->setup, releases);
}

/* ---- learning ---- */

brim_status brim_federation_learn(brim_federation *f, double accuracy)
{
  const double seconds = f->fleet ? f->spent.seconds : NAN;
  return brim_selection_learn(f->selection, f->round, f->client, f->clients, accuracy, seconds);
}

void brim_federation_end(brim_federation *f, bool is_committed)
{
  for (int64_t i = 0; i < f->clients && is_committed && f->kept; i++)
    if (f->client[i].arrived) brim_states_commit(brim_kept_states(f->kept), i, f->client[i].client, f->round);
  if (is_committed && brim_kept_control(f->kept)) brim_control_commit(brim_kept_control(f->kept));
  if (is_committed) brim_protection_commit(&f->protection);
  if (is_committed) brim_async_commit(f->async);
  brim_selection_end(f->selection, is_committed);
}

brim_status brim_federation_accuracy(const brim_federation *f, brim_spread *out)
{
  return brim_selection_accuracy(f->selection, out);
}

void brim_federation_print(const brim_federation *f, brim_text *out)
{
  if (f->fleet) brim_fleet_print(f->fleet, out);
}

size_t brim_federation_tensors(brim_federation *f, brim_safetensor *out)
{
  brim_safetensor selection[BRIM_SELECTION_TENSORS];
  const size_t count = brim_selection_tensors(f->selection, selection);
  if (out) memcpy(out, selection, count * sizeof *out);
  const size_t kept = brim_kept_tensors(f->kept, out ? out + count : NULL);
  const size_t async = brim_async_tensors(f->async, out ? out + count + kept : NULL);
  return count + kept + async + brim_protection_tensors(&f->protection, out ? out + count + kept + async : NULL);
}

/* ---- client states ---- */

brim_status brim_federation_keep_in(brim_federation *f, const char *folder, bool is_new)
{
  const brim_world *w = &f->setup->world;
  BRIM_TRY(open_updates(f, folder));
  if (!f->kept) return BRIM_OK;
  f->shares_states = w->local_ranks == w->ranks;
  return brim_states_attach(brim_kept_states(f->kept), folder,
                            w->rank == 0       ? is_new ? BRIM_STATES_CREATE : BRIM_STATES_SHARE
                            : f->shares_states ? BRIM_STATES_JOIN
                                               : BRIM_STATES_COPY);
}

brim_status brim_federation_recall(brim_federation *f, const char *checkpoint)
{
  if (!f->kept) return BRIM_OK;
  brim_states *states = brim_kept_states(f->kept);
  if (!brim_states_is_attached(states)) BRIM_TRY(brim_states_attach(states, NULL, BRIM_STATES_CREATE));
  return brim_states_find(states, checkpoint);
}

brim_status brim_federation_sync(brim_federation *f)
{
  return f->kept && f->setup->world.rank == 0 ? brim_states_sync(brim_kept_states(f->kept)) : BRIM_OK;
}

void brim_federation_checkpointed(brim_federation *f)
{
  if (f->kept) brim_states_checkpointed(brim_kept_states(f->kept));
}
