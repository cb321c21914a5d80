/* The core's own selectors. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/permutation.h"
#include "brim/selector.h"
#include "builtin/builtin.h"

/* ---- random ---- */

/* McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017. */
static brim_status select_random(void *self, const brim_selection_query *q, brim_selection *out)
{
  (void)self;
  brim_permutation order;
  brim_permutation_init(&order, q->seed, BRIM_STREAM_SELECT, 0, (uint64_t)q->candidates);
  for (; out->count < q->wanted; out->count++)
    out->client[out->count] = q->candidate[brim_permutation_at(&order, (uint64_t)out->count)];
  return BRIM_OK;
}
static const brim_selector_ops random_ops = {.size = sizeof(brim_selector_ops), .select = select_random};
const brim_plugin brim_selector_random = {.size = sizeof(brim_plugin),
                                          .kind = BRIM_SELECTOR,
                                          .id = "random",
                                          .help = "each client is as likely as another: federated averaging",
                                          .ops = &random_ops};

/* ---- round robin ---- */

static brim_status select_in_turn(void *self, const brim_selection_query *q, brim_selection *out)
{
  (void)self;
  const int64_t first = q->round % q->candidates * q->wanted % q->candidates; /* below 2^30 each: nothing overflows */
  for (; out->count < q->wanted; out->count++)
    out->client[out->count] = q->candidate[(first + out->count) % q->candidates];
  return BRIM_OK;
}
static const brim_selector_ops round_robin_ops = {.size = sizeof(brim_selector_ops), .select = select_in_turn};
const brim_plugin brim_selector_round_robin = {.size = sizeof(brim_plugin),
                                               .kind = BRIM_SELECTOR,
                                               .id = "round_robin",
                                               .help = "clients take turns in the order of their numbers",
                                               .ops = &round_robin_ops};

/* ---- proportional ---- */

/* One after another without replacement, each in proportion to its samples among those that are left: the largest of
 * log(u) / samples (Efraimidis and Spirakis: Weighted Random Sampling with a Reservoir, 2006). */
static brim_status select_by_samples(void *self, const brim_selection_query *q, brim_selection *out)
{
  (void)self;
  brim_best *best = brim_try_malloc((size_t)q->wanted * sizeof *best);
  if (!best) return brim_fail(BRIM_ENOMEM_HOST, "no host memory to select %lld clients", (long long)q->wanted);
  for (int64_t i = 0; i < q->candidates; i++) {
    const int64_t client = q->candidate[i];
    const double samples = (double)q->clients->samples[client];
    brim_best_add(best, &out->count, q->wanted, client, log(brim_selection_draw(q, 0, client)) / samples);
  }
  brim_best_sort(best, out->count);
  for (int64_t i = 0; i < out->count; i++) out->client[i] = best[i].client;
  free(best);
  return BRIM_OK;
}
static const brim_selector_ops proportional_ops = {.size = sizeof(brim_selector_ops), .select = select_by_samples};
const brim_plugin brim_selector_proportional = {.size = sizeof(brim_plugin),
                                                .kind = BRIM_SELECTOR,
                                                .id = "proportional",
                                                .help = "drawn one after another in proportion to their samples",
                                                .ops = &proportional_ops};
