/* Selects the clients with the largest last update (Marnissi, El Hammouti, Bergou: Client Selection in Federated
 * Learning based on Gradients Importance, 2021).
 *
 *     score(k) = |update(k)|, the Euclidean norm of the change of all parameters in its last training
 *
 * In the paper every client computes its gradient in every round to send its norm; this selector uses the norm from the
 * client's last training, which takes no extra computation.
 *
 * Clients never seen come first, drawn at random, so all clients train before any trains again. A client that was
 * selected but whose update has never arrived comes last. */
#include "brim/brim.h"

static brim_status select_clients(void *self, const brim_selection_query *q, brim_selection *out)
{
  (void)self;
  return brim_select_highest(q, brim_score_last, q->clients->norm, out);
}

static const brim_selector_ops ops = {.size = sizeof ops, .select = select_clients};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_SELECTOR,
                                   .id = "gradient_norm",
                                   .help = "the clients with the largest norm of the last update; new clients first",
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-selectors", "1.0", plugins)
