/* Checks of aggregators, called with the limits of a run (federate/aggregation.h) for clients of synthetic rounds:
 * every answer is valid, and is the same when the aggregator is asked again. See check.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "brim/random.h"
#include "cli/check/check.h"
#include "federate/aggregation.h"

#define ROUNDS 60
#define CLIENTS_MAX 50

#define VALUES 100 /* values of each update, for aggregators that see all updates of a round */
#define BLOCK 40

/* A synthetic round. */
typedef struct made_round {
  int64_t count;
  brim_arrival arrival[CLIENTS_MAX];
  double weight[CLIENTS_MAX], divisor, result[VALUES];
} made_round;

/* Draws a number between `low` and `high`, uniform in its logarithm. */
static double draw_between(uint64_t round, uint32_t what, int64_t client, double least, double most)
{
  const brim_philox r = brim_random4(round, BRIM_STREAM_SELECT, what, (uint64_t)client, 0);
  return least * pow(most / least, brim_uniform(r.v[0]));
}

/* Makes small and large losses and updates, equal clients, and clients that do not move. */
static brim_arrival make_arrival(uint64_t round, int64_t i, bool needs_loss)
{
  const uint64_t alike = round % 5 == 0 ? 0 : (uint64_t)i;
  const int64_t client = (int64_t)alike, samples = (int64_t)draw_between(round, 0, client, 1, 10000);
  const int64_t steps = (int64_t)draw_between(round, 1, client, 1, 1000);
  return (brim_arrival){.size = sizeof(brim_arrival),
                        .round = (int64_t)round,
                        .client = i,
                        .samples = samples,
                        .steps = steps,
                        .rate = draw_between(round, 2, 0, 1e-5, 10),
                        .reach = (double)steps * (round % 2 ? 1 : 10),
                        .loss_before = needs_loss ? draw_between(round, 3, client, 1e-4, 100) : NAN,
                        .loss = draw_between(round, 4, client, 1e-4, 100),
                        .norm = round % 7 == 0 ? 0 : draw_between(round, 5, client, 1e-6, 100)};
}

static void make_round(uint64_t number, const brim_aggregator_ops *ops, int64_t least, made_round *out)
{
  *out = (made_round){.count = number == 0 ? 1 : (int64_t)draw_between(number, 6, 0, 1, CLIENTS_MAX)};
  if (out->count < least) out->count = least;
  for (int64_t i = 0; i < out->count; i++)
    out->arrival[i] = make_arrival(number, i, (ops->needs & BRIM_NEED_LOSS_BEFORE) != 0);
}

/* Makes updates near zero and far from it, with equal ones and zeros among them. */
static double make_value(uint64_t round, int64_t client, int64_t value)
{
  const int64_t of = round % 3 == 0 ? client / 2 : client;
  const brim_philox r = brim_random4(round, BRIM_STREAM_SELECT, 100 + (uint32_t)value, (uint64_t)of, 0);
  return round % 4 == 0 && r.v[0] % 2 ? 0 : ldexp(brim_uniform(r.v[1]) - 0.5, (int)(r.v[2] % 20) - 10);
}

/* Passes the blocks, in order, to an aggregator with merge. */
static brim_status merge_blocks(brim_aggregation *a, made_round *r, void *scratch)
{
  static double values[CLIENTS_MAX][BLOCK];
  const double *update[CLIENTS_MAX];
  const brim_arrival *arrival[CLIENTS_MAX];
  for (int64_t k = 0; k < r->count; k++) {
    update[k] = values[k];
    arrival[k] = &r->arrival[k];
  }
  for (int merges = !brim_aggregation_looks(a); merges < 2; merges++)
    for (int64_t at = 0; at < VALUES; at += BLOCK) {
      const brim_updates block = {.size = sizeof block,
                                  .clients = r->count,
                                  .arrival = arrival,
                                  .first = at,
                                  .values = VALUES - at < BLOCK ? VALUES - at : BLOCK,
                                  .update = update,
                                  .scratch = scratch};
      for (int64_t k = 0; k < r->count; k++)
        for (int64_t i = 0; i < block.values; i++) values[k][i] = make_value((uint64_t)r->arrival[0].round, k, at + i);
      BRIM_TRY(brim_aggregation_merge(a, &block, merges ? r->result + at : NULL));
    }
  return BRIM_OK;
}

/* If the aggregator hangs, keeps the scratch memory, because the aggregator may still use it. */
static brim_status merge_round(brim_aggregation *a, const brim_aggregator_ops *ops, const void *params, made_round *r)
{
  const uint64_t bytes = ops->scratch ? ops->scratch(params, CLIENTS_MAX) : 0;
  void *scratch = brim_try_calloc(1, bytes > 0 ? bytes : 1);
  if (!scratch)
    return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the %" PRIu64 " bytes that the aggregator needs", bytes);
  const brim_status status = merge_blocks(a, r, scratch);
  if (!brim_aggregation_is_lost(a)) free(scratch);
  return status;
}

/* As in a run, `weigh` gets neither the loss nor the norm of the training that follows. */
static brim_status play(brim_aggregation *a, const brim_config_choice *choice, made_round *r)
{
  brim_arrival before[CLIENTS_MAX];
  for (int64_t i = 0; i < r->count; i++) {
    before[i] = r->arrival[i];
    before[i].loss = before[i].norm = NAN;
  }
  if (brim_aggregation_merges(a)) return merge_round(a, choice->plugin->ops, choice->params, r);
  BRIM_TRY(brim_aggregation_weigh(a, before, r->count, r->weight));
  brim_aggregation_start(a);
  for (int64_t i = 0; i < r->count; i++) BRIM_TRY(brim_aggregation_add(a, &r->arrival[i], r->weight[i]));
  return brim_aggregation_divisor(a, &r->divisor);
}

static bool is_same(const made_round *a, const made_round *b)
{
  bool same = a->divisor >= b->divisor && a->divisor <= b->divisor;
  for (int64_t i = 0; i < a->count; i++) same = same && a->weight[i] >= b->weight[i] && a->weight[i] <= b->weight[i];
  for (int64_t i = 0; i < VALUES; i++) same = same && a->result[i] >= b->result[i] && a->result[i] <= b->result[i];
  return same;
}

/* A rank or a resumed run may begin anywhere, so the second time the rounds run from last to first. */
static brim_status play_twice(brim_check *c, const brim_config_choice *choice, brim_aggregation *a)
{
  const brim_aggregator_ops *ops = c->plugin->ops;
  const int64_t least = ops->least ? ops->least(choice->params) : 1;
  made_round first[ROUNDS], again;
  for (uint64_t n = 0; n < ROUNDS; n++) {
    make_round(n, ops, least, &first[n]);
    BRIM_TRY(play(a, choice, &first[n]));
  }
  for (uint64_t n = ROUNDS; n-- > 0;) {
    make_round(n, ops, least, &again);
    BRIM_TRY(play(a, choice, &again));
    if (!is_same(&first[n], &again))
      return brim_fail(BRIM_EPLUGIN,
                       "aggregator '%s' gives another result when it is called again with the same clients: it must "
                       "depend on its arguments alone",
                       c->plugin->id);
  }
  return BRIM_OK;
}

static brim_status ask_all(brim_check *c, const char *further, bool *refused)
{
  brim_config *config = NULL;
  brim_aggregation *a = NULL;
  static const char *const word[] = {"total_clients=100", "server_optimizer=sgd", "method=random", NULL};
  brim_status status = brim_check_config(c, word, further, &config);
  *refused = status != BRIM_OK;
  if (status == BRIM_OK) status = brim_aggregation_open(brim_config_aggregator(config), &a);
  if (status == BRIM_OK) status = play_twice(c, brim_config_aggregator(config), a);
  brim_aggregation_close(a);
  if (status != BRIM_EPLUGIN) brim_config_free(config); /* a thread that hangs may still read it */
  return status;
}

static enum brim_finding check_rounds(brim_check *c)
{
  bool refused = false;
  if (ask_all(c, NULL, &refused) != BRIM_OK) return refused ? brim_check_blame(c, true) : brim_check_fail_short(c, "");
  return brim_check_say(
      c, BRIM_FOUND_OK, "%s are valid, and equal when computed again: %d synthetic rounds of up to %d clients",
      ((const brim_aggregator_ops *)c->plugin->ops)->merge ? "results" : "weights", ROUNDS, CLIENTS_MAX);
}

static enum brim_check_trial try_word(brim_check *c, const char *word)
{
  bool refused = false;
  if (ask_all(c, word, &refused) == BRIM_OK) return BRIM_TRIAL_DONE;
  if (refused) return BRIM_TRIAL_REFUSED;
  brim_check_fail_short(c, word);
  return BRIM_TRIAL_FAILED;
}

const brim_check_kind brim_aggregator_checks[] = {{"rounds", check_rounds}, BRIM_CHECK_PARAMETERS(try_word), {NULL}};
