/* Selects the clients with the highest loss in their last training, which is the simplest loss-based selection. (Goetz
 * et al., Active Federated Learning, 2019, draw clients in proportion to the loss.)
 *
 *     score(k) = loss(k)
 *
 * Clients never seen come first, drawn at random, so all clients train before any trains again. */
#include "brim/brim.h"

static brim_status select_clients(void *self, const brim_selection_query *q, brim_selection *out)
{
  (void)self;
  return brim_select_highest(q, brim_score_last, q->clients->loss, out);
}

static const brim_selector_ops ops = {.size = sizeof ops, .select = select_clients};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_SELECTOR,
                                   .id = "topk_loss",
                                   .help = "the clients with the highest last loss; new clients first",
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-selectors", "1.0", plugins)
