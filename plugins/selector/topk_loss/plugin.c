/* Clients with the highest loss when they trained last (the simplest of loss-based selections; see Goetz et al., Active
 * Federated Learning, 2019, for one that draws by it).
 *
 *     score(k) = loss(k)
 *
 * Clients never seen come first, drawn at random, so that all have been seen before any comes again. */
#include <stdlib.h>

#include "brim/brim.h"

#define NEW 1e30 /* more than any loss that a client may have */

static brim_status select_clients(void *self, const brim_selection_query *q, brim_selection *out)
{
  (void)self;
  brim_best *best = malloc((size_t)q->wanted * sizeof *best);
  if (!best) return brim_fail(BRIM_ENOMEM_HOST, "no memory to select %lld clients", (long long)q->wanted);
  for (int64_t i = 0; i < q->candidates; i++) {
    const int64_t client = q->candidate[i];
    const bool is_new = q->clients->last_round[client] < 0;
    const double score = is_new ? NEW * (1 + brim_selection_draw(q, 0, client)) : (double)q->clients->loss[client];
    brim_best_add(best, &out->count, q->wanted, client, score);
  }
  brim_best_sort(best, out->count);
  for (int64_t i = 0; i < out->count; i++) out->client[i] = best[i].client;
  free(best);
  return BRIM_OK;
}

static const brim_selector_ops ops = {.size = sizeof ops, .select = select_clients};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_SELECTOR,
                                   .id = "topk_loss",
                                   .help = "the clients with the highest loss when they trained last; new ones first",
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-selectors", "1.0", plugins)
