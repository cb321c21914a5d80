/* Selects clients with high losses whose classes differ from those of the clients already selected: maximal marginal
 * relevance (Carbonell, Goldstein: The Use of MMR, SIGIR 1998).
 *
 *     next = argmax of lambda * loss(k) / highest loss - (1 - lambda) * max over j taken of cos(classes(k), classes(j))
 *
 * classes(k) are the numbers of samples of each class. As is usual, the selector considers only the `pool` clients with
 * the highest loss, so a round of a million clients is fast. In tasks without classes, only losses count.
 *
 * A client never seen has the highest loss. Ties are broken at random. */
#include "brim/brim.h"

typedef struct settings {
  double lambda;
  int64_t pool;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(F64, settings, lambda, "0.5", "[0,1]", "weight of the loss; the dissimilarity has weight 1 - lambda"),
    BRIM_PARAM(I64, settings, pool, "10000", "[1,1000000]", "number of clients with the highest loss to consider"),
    BRIM_PARAMS_END,
};

static double cosine(const brim_clients *c, int64_t a, int64_t b)
{
  double ab = 0, aa = 0, bb = 0;
  for (int64_t i = 0; c->labels && i < c->classes; i++) {
    const double x = c->labels[a * c->classes + i], y = c->labels[b * c->classes + i];
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  return ab > 0 ? ab / sqrt(aa * bb) : 0;
}

/* Chooses from `pool`, whose scores are losses divided by the highest loss. likest: [count] zeros. */
static void choose(double lambda, const brim_selection_query *q, brim_best *pool, int64_t count, double *likest,
                   brim_selection *out)
{
  while (out->count < q->wanted) {
    int64_t next = 0;
    double highest = -INFINITY;
    for (int64_t i = 0; i < count; i++) {
      const double score = lambda * pool[i].score - (1 - lambda) * likest[i];
      if (score > highest) next = i;
      if (score > highest) highest = score;
    }
    const int64_t taken = out->client[out->count++] = pool[next].client;
    pool[next] = pool[--count];
    likest[next] = likest[count];
    for (int64_t i = 0; i < count && lambda < 1; i++) {
      const double like = cosine(q->clients, pool[i].client, taken);
      if (like > likest[i]) likest[i] = like;
    }
  }
}

static brim_status select_clients(void *self, const brim_selection_query *q, brim_selection *out)
{
  const settings *s = self;
  const int64_t asked = s->pool < q->wanted ? q->wanted : s->pool, room = asked < q->candidates ? asked : q->candidates;
  const double highest = brim_highest_loss(q);
  brim_best *pool = brim_selection_alloc(room, sizeof *pool);
  double *likest = brim_selection_alloc(room, sizeof *likest);
  int64_t count = 0;
  for (int64_t i = 0; pool && likest && i < q->candidates; i++) {
    const int64_t k = q->candidate[i];
    brim_best_add(pool, &count, room, k, brim_loss_share(q, highest, k) + brim_score_tie(q, k));
  }
  if (pool && likest) choose(s->lambda, q, pool, count, likest, out);
  const brim_status status = pool && likest ? BRIM_OK : BRIM_ENOMEM_HOST;
  free(pool);
  free(likest);
  return status;
}

static const brim_selector_ops ops = {.size = sizeof ops, .needs = BRIM_NEED_LABELS, .select = select_clients};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_SELECTOR,
                                   .id = "mmr_diverse",
                                   .help = "clients with high losses and with classes unlike those of the others",
                                   .params_size = sizeof(settings),
                                   .params = table,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-selectors", "1.0", plugins)
