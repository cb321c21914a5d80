/* Selects clients whose updates represent those of all others (Balakrishnan et al.: Diverse Client Selection for
 * Federated Learning via Submodular Maximization, ICLR 2022): a greedy algorithm minimises the sum over all clients of
 * the distance to the nearest selected one.
 *
 *     next = argmax over k of sum over i of max(0, nearest(i) - |update(i) - update(k)|)
 *
 * Distances are computed from sketches of the last updates (BRIM_SKETCH numbers whose inner products approximate those
 * of the updates). As in the paper's version without extra communication, only clients that train send updates; the
 * stored updates of the others stay as they are. If more than `pool` clients have been seen, that many random ones
 * represent all.
 *
 * Clients never seen have no update: they come first, drawn at random, because the paper's algorithm begins with
 * updates of all clients. A client that was selected but whose update has never arrived comes last. */
#include "brim/brim.h"

typedef struct settings {
  int64_t pool;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(I64, settings, pool, "1000", "[1,8192]", "number of clients to compare; time grows with its square"),
    BRIM_PARAMS_END,
};

typedef struct facility {
  int64_t count;
  float *distance; /* [count, count] */
  float *nearest;  /* [count]: for each client, the distance to the nearest client taken so far */
} facility;

/* Returns the gain of client k. Several partial sums let compilers vectorise. */
static double gain(void *context, int64_t k)
{
  const facility *f = context;
  const float *restrict distance = f->distance + k * f->count, *restrict nearest = f->nearest;
  float part[16] = {0};
  double sum = 0;
  int64_t i = 0;
  for (; i + 16 <= f->count; i += 16)
    for (int j = 0; j < 16; j++) {
      const float less = nearest[i + j] - distance[i + j];
      part[j] += less > 0 ? less : 0;
    }
  for (; i < f->count; i++) part[0] += nearest[i] > distance[i] ? nearest[i] - distance[i] : 0;
  for (int j = 0; j < 16; j++) sum += (double)part[j];
  return sum;
}

static void take(void *context, int64_t k)
{
  facility *f = context;
  const float *distance = f->distance + k * f->count;
  for (int64_t i = 0; i < f->count; i++) f->nearest[i] = distance[i] < f->nearest[i] ? distance[i] : f->nearest[i];
}

/* Computes the squared distances between client k and the clients k to n - 1. `across` is [BRIM_SKETCH, n], so the
 * inner loop runs over adjacent clients. It handles eight numbers of the sketch at a time. */
static void set_row(const float *restrict across, int64_t n, int64_t k, float *restrict row)
{
  for (int64_t d = 0; d < BRIM_SKETCH; d += 8)
    for (int64_t i = k; i < n; i++) {
      float sum = 0;
      for (int64_t e = d; e < d + 8; e++) {
        const float away = across[e * n + k] - across[e * n + i];
        sum += away * away;
      }
      row[i] += sum;
    }
  for (int64_t i = k; i < n; i++) row[i] = sqrtf(row[i]);
}

static void set_distances(facility *f, const brim_selection_query *q, const brim_best *pool, float *across)
{
  const int64_t n = f->count;
  float farthest = 0;
  for (int64_t i = 0; i < n; i++)
    for (int64_t d = 0; d < BRIM_SKETCH; d++) across[d * n + i] = q->clients->sketch[pool[i].client * BRIM_SKETCH + d];
  for (int64_t k = 0; k < n; k++) {
    float *row = f->distance + k * n;
    for (int64_t i = 0; i < k; i++) row[i] = f->distance[i * n + k];
    set_row(across, n, k, row);
    for (int64_t i = k; i < n; i++) farthest = row[i] > farthest ? row[i] : farthest;
  }
  for (int64_t i = 0; i < n; i++) f->nearest[i] = farthest; /* initial distance, as no client is selected yet */
}

/* Adds clients of the pool to `out` until it has as many as wanted. */
static brim_status choose(const brim_selection_query *q, const brim_best *pool, int64_t count, brim_selection *out)
{
  facility f = {count, brim_selection_alloc(count * count, sizeof(float)), brim_selection_alloc(count, sizeof(float))};
  float *across = brim_selection_alloc(count * BRIM_SKETCH, sizeof *across);
  int64_t *place = brim_selection_alloc(count, sizeof *place), first = out->count;
  brim_status status = BRIM_ENOMEM_HOST;
  if (f.distance && f.nearest && across && place) {
    for (int64_t i = 0; i < count; i++) place[i] = i;
    set_distances(&f, q, pool, across);
    status = brim_select_greedily(&(brim_greedy){gain, take, &f}, place, count, q->wanted, out);
  }
  for (; status == BRIM_OK && first < out->count; first++) out->client[first] = pool[out->client[first]].client;
  free(f.distance);
  free(f.nearest);
  free(across);
  free(place);
  return status;
}

static int by_client(const void *a, const void *b)
{
  const brim_best *x = a, *y = b;
  return (x->client > y->client) - (x->client < y->client);
}

/* Puts new clients into `out`. Puts clients with updates into `pool`, chosen by random scores; if there are too few,
 * also other clients. */
static int64_t sort_out(const brim_selection_query *q, int64_t room, brim_best *pool, brim_best *fresh,
                        brim_selection *out)
{
  int64_t held = 0;
  for (int64_t i = 0; i < q->candidates; i++) {
    const int64_t k = q->candidate[i];
    const double drawn = brim_selection_draw(q, 0, k);
    if (q->clients->last_round[k] < 0)
      brim_best_add(fresh, &out->count, q->wanted, k, drawn);
    else
      brim_best_add(pool, &held, room, k, isfinite(q->clients->norm[k]) ? drawn : drawn - 1);
  }
  brim_best_sort(fresh, out->count);
  for (int64_t i = 0; i < out->count; i++) out->client[i] = fresh[i].client;
  brim_best_sort(pool, held);
  int64_t count = held;
  while (count > q->wanted - out->count && pool[count - 1].score < 0)
    count--; /* drops clients without updates that are not needed */
  qsort(pool, (size_t)count, sizeof *pool, by_client);
  return count;
}

static brim_status select_clients(void *self, const brim_selection_query *q, brim_selection *out)
{
  const settings *s = self;
  const int64_t asked = s->pool < q->wanted ? q->wanted : s->pool, room = asked < q->candidates ? asked : q->candidates;
  brim_best *pool = brim_selection_alloc(room, sizeof *pool);
  brim_best *fresh = brim_selection_alloc(q->wanted, sizeof *fresh);
  brim_status status = BRIM_ENOMEM_HOST;
  if (pool && fresh) {
    const int64_t count = sort_out(q, room, pool, fresh, out);
    status = out->count < q->wanted ? choose(q, pool, count, out) : BRIM_OK;
  }
  free(pool);
  free(fresh);
  return status;
}

static const brim_selector_ops ops = {.size = sizeof ops, .needs = BRIM_NEED_SKETCH, .select = select_clients};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_SELECTOR,
                                   .id = "divfl",
                                   .help = "clients whose updates best represent those of all others",
                                   .params_size = sizeof(settings),
                                   .params = table,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-selectors", "1.0", plugins)
