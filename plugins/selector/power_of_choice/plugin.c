/* Power of choice (Cho, Wang, Joshi: Towards Understanding Biased Client Selection in Federated Learning, AISTATS 2022,
 * algorithm 1, pow-d): draws `d` candidates without replacement in proportion to their samples, and selects those with
 * the highest loss under the present model.
 *
 * Clients never seen are treated like all others, because the selector asks for the losses. */
#include "brim/brim.h"

typedef struct settings {
  int64_t d;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(I64, settings, d, "0", "[0,1000000]",
               "number of clients whose loss is computed; 0: twice clients_per_round"),
    BRIM_PARAMS_END,
};

/* Draws the candidates into `client`. */
static void draw(const brim_selection_query *q, int64_t count, brim_best *best, int64_t *client)
{
  int64_t drawn = 0;
  for (int64_t i = 0; i < q->candidates; i++) {
    const int64_t k = q->candidate[i];
    brim_best_add(best, &drawn, count, k, brim_score_drawn(q, 0, k, (double)q->clients->samples[k]));
  }
  for (int64_t i = 0; i < drawn; i++) client[i] = best[i].client;
}

static brim_status choose(const brim_selection_query *q, int64_t count, brim_best *best, int64_t *client, float *loss,
                          brim_selection *out)
{
  draw(q, count, best, client);
  BRIM_TRY(q->losses(q, client, count, loss));
  for (int64_t i = 0; i < count; i++) brim_best_add(best, &out->count, q->wanted, client[i], (double)loss[i]);
  brim_best_sort(best, out->count);
  for (int64_t i = 0; i < out->count; i++) out->client[i] = best[i].client;
  return BRIM_OK;
}

static brim_status select_clients(void *self, const brim_selection_query *q, brim_selection *out)
{
  const settings *s = self;
  int64_t count = s->d > 0 ? s->d : 2 * q->wanted;
  if (count < q->wanted) count = q->wanted;
  if (count > q->candidates) count = q->candidates;
  brim_best *best = brim_selection_alloc(count, sizeof *best);
  int64_t *client = brim_selection_alloc(count, sizeof *client);
  float *loss = brim_selection_alloc(count, sizeof *loss);
  const brim_status status = best && client && loss ? choose(q, count, best, client, loss, out) : BRIM_ENOMEM_HOST;
  free(best);
  free(client);
  free(loss);
  return status;
}

static const brim_selector_ops ops = {.size = sizeof ops, .needs = BRIM_NEED_LOSSES, .select = select_clients};
static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_SELECTOR,
    .id = "power_of_choice",
    .help = "of some clients drawn in proportion to their samples, those with the highest current loss",
    .params_size = sizeof(settings),
    .params = table,
    .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-selectors", "1.0", plugins)
