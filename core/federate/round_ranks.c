/* The exchange between the ranks of a job in a federation's round. See round.h. */
#include <string.h>

#include "federate/round_parts.h"

/* A rank's report about a client to the other ranks. */
typedef struct report {
  double samples, loss, squares, norm, correct, personal, counted, tokens, has_arrived;
} report;
#define REPORTS (BRIM_EXCHANGE_BYTES / sizeof(report)) /* in one exchange */

/* Assigns the clients to ranks, the largest first, each to the rank that would finish it first. Isolated clients stay
 * in their own processes. */
void brim_federation_distribute(brim_federation *f)
{
  if (brim_setup_is_isolated(f->setup)) {
    for (int64_t k = 0; k < f->clients; k++) f->rank[k] = brim_setup_rank_of_client(f->selected[k]);
    return;
  }
  const int32_t ranks = f->setup->world.ranks;
  double *load = f->load;
  memset(load, 0, (size_t)ranks * sizeof *load);
  for (int64_t i = 0; i < f->clients; i++) {
    const int64_t k = f->order[i];
    int32_t first = 0;
    for (int32_t r = 1; r < ranks; r++)
      if ((load[r] + f->client[k].load) / f->speed[r] < (load[first] + f->client[k].load) / f->speed[first]) first = r;
    load[first] += f->client[k].load;
    f->rank[k] = first;
  }
}

/* Exchanges the results of `count` clients, beginning with client `first`; each comes from the rank that trained it. */
static brim_status exchange(brim_federation *f, int64_t first, int64_t count)
{
  report own[REPORTS];
  for (int64_t i = 0; i < count; i++) {
    const brim_client_result *c = &f->client[first + i];
    own[i] = (report){(double)c->samples, c->loss,    c->squares, c->norm,   c->correct,
                      c->personal,        c->counted, c->tokens,  c->arrived};
  }
  BRIM_TRY(brim_dist_exchange(f->setup->options.dist, own, (uint32_t)((size_t)count * sizeof *own), f->all));
  for (int64_t i = 0; i < count; i++) {
    brim_client_result *c = &f->client[first + i];
    const report *r = (const report *)f->all + f->rank[first + i] * count + i;
    c->samples = (int64_t)r->samples;
    c->loss = r->loss;
    c->squares = r->squares;
    c->norm = r->norm;
    c->correct = r->correct;
    c->personal = r->personal;
    c->counted = r->counted;
    c->tokens = r->tokens;
    c->arrived = r->has_arrived > 0;
    c->is_done = true;
  }
  return BRIM_OK;
}

int64_t brim_federation_own_samples(const brim_federation *f)
{
  int64_t samples = 0;
  for (int64_t i = 0; i < f->clients; i++)
    if (f->rank[i] == f->setup->world.rank) samples += f->client[i].samples;
  return samples;
}

#define SKETCHES (BRIM_EXCHANGE_BYTES / (BRIM_SKETCH * sizeof(float))) /* in one exchange */

static brim_status exchange_sketches(brim_federation *f, int64_t first, int64_t count)
{
  const uint32_t bytes = (uint32_t)count * BRIM_SKETCH * sizeof(float);
  float *at = f->sketch + first * BRIM_SKETCH;
  BRIM_TRY(brim_dist_exchange(f->setup->options.dist, at, bytes, f->all));
  for (int64_t i = 0; i < count; i++)
    memcpy(at + i * BRIM_SKETCH, (const float *)f->all + (f->rank[first + i] * count + i) * BRIM_SKETCH,
           BRIM_SKETCH * sizeof(float));
  return BRIM_OK;
}

/* ---- numbers of isolated clients ---- */

/* A number of a client, such as its loss, and the status of its computation. */
typedef struct answer {
  double value;
  int64_t status;
} answer;

static answer answer_own(brim_federation *f, brim_lane_fn evaluate, const int64_t *client, int64_t count)
{
  const int64_t own = brim_setup_own_client(f->setup);
  answer out = {.status = BRIM_OK};
  for (int64_t i = 0; i < count; i++)
    if (client[i] == own) out.status = evaluate(&f->worker[0].lane, own, &out.value);
  return out;
}

brim_status brim_federation_ask_apart(brim_federation *f, brim_lane_fn evaluate, const int64_t *client, int64_t count,
                                      double *out)
{
  const answer own = answer_own(f, evaluate, client, count), *all = f->all;
  brim_error error;
  brim_error_take(&error);
  BRIM_TRY(brim_dist_exchange(f->setup->options.dist, &own, sizeof own, f->all));
  if (own.status != BRIM_OK) {
    brim_error_put(&error);
    return (brim_status)own.status;
  }
  for (int32_t r = 0; r < f->setup->world.ranks; r++)
    if (all[r].status != BRIM_OK)
      return brim_fail((brim_status)all[r].status, "the evaluation of client %d: %s", (int)r - 1,
                       brim_status_text((brim_status)all[r].status));
  for (int64_t i = 0; i < count; i++) out[i] = all[brim_setup_rank_of_client(client[i])].value;
  return BRIM_OK;
}

/* If ranks are on different hosts: sends the staged state of the client at `place` from the rank that trained it. A
 * rank that cannot read or write its file still takes part in all exchanges, so that the others need not wait. */
static brim_status exchange_kept(brim_federation *f, int64_t place)
{
  const brim_states *states = brim_kept_states(f->kept);
  const uint64_t bytes = brim_setup_kept_bytes(f->setup);
  const bool is_own = f->rank[place] == f->setup->world.rank;
  char own[BRIM_EXCHANGE_BYTES] = {0};
  brim_status status = is_own ? BRIM_OK : brim_states_unstamp(states, place);
  for (uint64_t at = 0; at < bytes; at += BRIM_EXCHANGE_BYTES) {
    const uint32_t part = bytes - at < BRIM_EXCHANGE_BYTES ? (uint32_t)(bytes - at) : BRIM_EXCHANGE_BYTES;
    if (is_own && status == BRIM_OK) status = brim_states_read_place(states, place, at, own, part);
    BRIM_TRY(brim_dist_exchange(f->setup->options.dist, own, part, f->all));
    if (!is_own && status == BRIM_OK)
      status = brim_states_write(states, place, at, (const char *)f->all + (size_t)f->rank[place] * part, part);
  }
  return is_own || status != BRIM_OK ? status : brim_states_stamp(states, place, f->client[place].client, f->round);
}

/* The ranks' speeds in this and earlier rounds determine the assignment of clients in the next round. */
static brim_status learn_speeds(brim_federation *f)
{
  brim_pace *all = f->all;
  f->pace.samples = (double)brim_federation_own_samples(f);
  BRIM_TRY(brim_dist_exchange(f->setup->options.dist, &f->pace, sizeof f->pace, all));
  for (int32_t r = 0; r < f->setup->world.ranks; r++) {
    if (!(all[r].samples > 0 && all[r].seconds > 0)) continue;
    const double now = all[r].samples / all[r].seconds;
    f->speed[r] = f->has_speeds ? (f->speed[r] + now) / 2 : now;
  }
  f->has_speeds = true;
  return BRIM_OK;
}

/* Sends each update to all ranks, one after another: the rank with the update copies it to its sums, the others set
 * their sums to 0, and the sum over all ranks is the update, without rounding. */
static brim_status exchange_updates(brim_federation *f)
{
  for (int64_t place = 0; place < f->clients; place++) {
    if (!f->client[place].arrived) continue;
    BRIM_TRY(brim_exec_zero_gradients(f->exec));
    if (f->rank[place] == f->setup->world.rank) BRIM_TRY(brim_whole_put(f->whole, place, f->exec));
    BRIM_TRY(brim_exec_reduce(f->exec, false));
    BRIM_TRY(brim_exec_finish_sums(f->exec));
    if (f->rank[place] != f->setup->world.rank) BRIM_TRY(brim_whole_take(f->whole, place, f->exec));
  }
  return BRIM_OK;
}

brim_status brim_federation_meet(brim_federation *f)
{
  brim_status kept = BRIM_OK;
  if (!f->setup->options.dist) return BRIM_OK;
  for (int64_t first = 0; first < f->clients; first += (int64_t)REPORTS) {
    const int64_t rest = f->clients - first;
    BRIM_TRY(exchange(f, first, rest < (int64_t)REPORTS ? rest : (int64_t)REPORTS));
  }
  for (int64_t first = 0; f->sketch && first < f->clients; first += (int64_t)SKETCHES) {
    const int64_t rest = f->clients - first;
    BRIM_TRY(exchange_sketches(f, first, rest < (int64_t)SKETCHES ? rest : (int64_t)SKETCHES));
  }
  for (int64_t place = 0; f->kept && !f->shares_states && place < f->clients; place++) {
    const brim_status status = f->client[place].arrived ? exchange_kept(f, place) : BRIM_OK;
    if (kept == BRIM_OK) kept = status;
    if (status == BRIM_ECOMM) return status;
  }
  BRIM_TRY(learn_speeds(f));
  if (!f->setup->settings->federate.train) return BRIM_OK;
  if (f->whole) return exchange_updates(f);
  BRIM_TRY(brim_exec_reduce(f->exec, false));
  BRIM_TRY(brim_exec_finish_sums(f->exec));
  return kept;
}
