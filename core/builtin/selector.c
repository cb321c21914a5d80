/* The core's own selectors. */
#include "brim/selector.h"
#include "base/permutation.h"
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
                                          .help = "uniformly random clients, as in federated averaging",
                                          .ops = &random_ops};

/* ---- round robin ---- */

static brim_status select_in_turn(void *self, const brim_selection_query *q, brim_selection *out)
{
  (void)self;
  const int64_t first =
      q->round % q->candidates * q->wanted % q->candidates; /* each below 2^30, so nothing overflows */
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

/* Draws clients one after another without replacement, with probabilities proportional to the samples of the remaining
 * clients. */
static double draw_by_samples(const brim_selection_query *q, const void *context, int64_t client)
{
  (void)context;
  return brim_score_drawn(q, 0, client, (double)q->clients->samples[client]);
}
static brim_status select_by_samples(void *self, const brim_selection_query *q, brim_selection *out)
{
  (void)self;
  return brim_select_highest(q, draw_by_samples, NULL, out);
}
static const brim_selector_ops proportional_ops = {.size = sizeof(brim_selector_ops), .select = select_by_samples};
const brim_plugin brim_selector_proportional = {.size = sizeof(brim_plugin),
                                                .kind = BRIM_SELECTOR,
                                                .id = "proportional",
                                                .help =
                                                    "clients drawn without replacement, in proportion to their samples",
                                                .ops = &proportional_ops};
