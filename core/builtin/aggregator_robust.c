/* The core's aggregators that tolerate malicious clients: the median and the trimmed mean of each value (Yin et al.,
 * Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, ICML 2018), Krum and Multi-Krum (Blanchard
 * et al., Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent, NeurIPS 2017). As in the papers, all
 * clients have the same weight. */
#include <stdlib.h>
#include <string.h>

#include "base/network.h"
#include "base/order.h"
#include "brim/aggregator.h"
#include "builtin/builtin.h"

typedef struct robust {
  int64_t byzantine; /* the most malicious clients in a round; the median does not use it */
  int64_t chosen;    /* Multi-Krum: number of updates that it averages; -1: all but `byzantine` */
} robust;

#define BYZANTINE                                                                                                      \
  BRIM_PARAM(I64, robust, byzantine, "1", "[0,1000000]",                                                               \
             "number of malicious clients in a round that the result tolerates")

/* ---- median and trimmed mean ---- */

/* The head of the scratch memory. The exchanges, a strip of columns, and a byte for each row follow. */
typedef struct sorter {
  uint64_t count; /* number of exchanges */
  bool is_made;
} sorter;

static uint64_t strip_bytes(int64_t clients)
{
  return (uint64_t)clients * BRIM_NETWORK_COLUMNS * sizeof(double);
}

static uint64_t exchange_bytes(int64_t clients)
{
  return brim_network_count((uint32_t)clients) * sizeof(brim_exchange);
}

static uint64_t sorter_bytes(const void *self, int64_t clients)
{
  (void)self;
  return sizeof(sorter) + strip_bytes(clients) + exchange_bytes(clients) + (uint64_t)clients;
}

/* Computes the mean of each value's first-th to (end-1)-th smallest instances. The sum goes from small to large, so it
 * does not depend on the order of the clients. */
static brim_status merge_middle(const brim_updates *b, int64_t first, int64_t end, double *out)
{
  enum { COLUMNS = BRIM_NETWORK_COLUMNS };
  sorter *s = b->scratch;
  double *strip = (double *)(s + 1);
  brim_exchange *exchange = (brim_exchange *)((char *)strip + strip_bytes(b->clients));
  if (!s->is_made)
    s->count = brim_network_make((uint32_t)b->clients, (uint32_t)first, (uint32_t)end, exchange,
                                 (uint8_t *)exchange + exchange_bytes(b->clients));
  s->is_made = true;
  for (int64_t at = 0; at < b->values; at += COLUMNS) {
    const int64_t left = b->values - at, columns = left < COLUMNS ? left : COLUMNS;
    for (int64_t k = 0; k < b->clients; k++) /* the other columns contain old values, which are not used */
      memcpy(strip + k * COLUMNS, b->update[k] + at, (size_t)columns * sizeof *strip);
    brim_network_sort(exchange, s->count, strip);
    for (int64_t i = 0; i < columns; i++) {
      double sum = 0;
      for (int64_t k = first; k < end; k++) sum += strip[k * COLUMNS + i];
      out[at + i] = sum / (double)(end - first);
    }
  }
  return BRIM_OK;
}

static brim_status merge_median(const void *self, const brim_updates *b, double *out)
{
  (void)self;
  return merge_middle(b, (b->clients - 1) / 2, b->clients / 2 + 1, out);
}
static const brim_aggregator_ops median_ops = {
    .size = sizeof(brim_aggregator_ops), .scratch = sorter_bytes, .merge = merge_median};
const brim_plugin brim_aggregator_median = {.size = sizeof(brim_plugin),
                                            .kind = BRIM_AGGREGATOR,
                                            .id = "median",
                                            .help = "the median of the updates, for each value",
                                            .ops = &median_ops};

static int64_t trimmed_least(const void *self)
{
  return 2 * ((const robust *)self)->byzantine + 1;
}
static brim_status merge_trimmed(const void *self, const brim_updates *b, double *out)
{
  const int64_t trimmed = ((const robust *)self)->byzantine;
  return merge_middle(b, trimmed, b->clients - trimmed, out);
}
static const brim_aggregator_ops trimmed_ops = {
    .size = sizeof(brim_aggregator_ops), .least = trimmed_least, .scratch = sorter_bytes, .merge = merge_trimmed};
static const brim_param trimmed_table[] = {BYZANTINE, BRIM_PARAMS_END};
const brim_plugin brim_aggregator_trimmed_mean = {
    .size = sizeof(brim_plugin),
    .kind = BRIM_AGGREGATOR,
    .id = "trimmed_mean",
    .help = "the mean of the updates without the `byzantine` largest and smallest, for each value",
    .params_size = sizeof(robust),
    .params = trimmed_table,
    .ops = &trimmed_ops};

/* ---- Krum and Multi-Krum ---- */

/* Places in the scratch memory: squared distances of all pairs, (i, k) with k < i at pair(i, k); then the memory of
 * `choose`. */
static int64_t pair(int64_t i, int64_t k)
{
  return i * (i - 1) / 2 + k;
}

/* A client's sum of squared distances to its nearest neighbours. */
typedef struct score {
  double sum;
  int64_t client, place;
} score;

static double *nearest_of(const brim_updates *b)
{
  return (double *)b->scratch + pair(b->clients, 0);
}

static score *scores_of(const brim_updates *b)
{
  return (score *)(nearest_of(b) + b->clients);
}

static uint64_t krum_bytes(const void *self, int64_t clients)
{
  (void)self;
  return (uint64_t)(pair(clients, 0) + clients) * sizeof(double) + (uint64_t)clients * sizeof(score);
}

static double square_distance(const double *a, const double *b, int64_t count)
{
  enum { SUMS = 8 }; /* partial sums, in a fixed order */
  double sum[SUMS] = {0}, all = 0;
  int64_t i = 0;
  for (; i + SUMS <= count; i += SUMS)
    for (int k = 0; k < SUMS; k++) {
      const double d = a[i + k] - b[i + k];
      sum[k] += d * d;
    }
  for (; i < count; i++) sum[0] += (a[i] - b[i]) * (a[i] - b[i]);
  for (int k = 0; k < SUMS; k++) all += sum[k];
  return all;
}

static brim_status add_distances(const void *self, const brim_updates *b)
{
  enum { PART = 512 }; /* values per part, so that the parts of many clients fit in a cache */
  double *distance = b->scratch;
  (void)self;
  for (int64_t at = 0; at < b->values; at += PART) {
    const int64_t count = b->values - at < PART ? b->values - at : PART;
    for (int64_t i = 1; i < b->clients; i++)
      for (int64_t k = 0; k < i; k++)
        distance[pair(i, k)] += square_distance(b->update[i] + at, b->update[k] + at, count);
  }
  return BRIM_OK;
}

/* Equal scores are ordered by the clients' numbers. */
static int by_score(const void *a, const void *b)
{
  const score *x = a, *y = b;
  if (x->sum != y->sum) return x->sum < y->sum ? -1 : 1;
  return (x->client > y->client) - (x->client < y->client);
}

static int by_place(const void *a, const void *b)
{
  const score *x = a, *y = b;
  return (x->place > y->place) - (x->place < y->place);
}

/* Sorts by score, and then the `chosen` best by place, so that the order of additions does not depend on distances. */
static void choose(const brim_updates *b, int64_t byzantine, int64_t chosen)
{
  const double *distance = b->scratch;
  double *nearest = nearest_of(b);
  score *all = scores_of(b);
  for (int64_t i = 0; i < b->clients; i++) {
    int64_t count = 0;
    for (int64_t k = 0; k < b->clients; k++)
      if (k != i) nearest[count++] = distance[k < i ? pair(i, k) : pair(k, i)];
    qsort(nearest, (size_t)count, sizeof *nearest, brim_by_double);
    all[i] = (score){0, b->arrival[i]->client, i};
    for (int64_t k = 0; k < b->clients - byzantine - 2; k++) all[i].sum += nearest[k];
  }
  qsort(all, (size_t)b->clients, sizeof *all, by_score);
  qsort(all, (size_t)chosen, sizeof *all, by_place);
}

static brim_status merge_chosen(const robust *r, const brim_updates *b, int64_t chosen, double *out)
{
  const score *all = scores_of(b);
  if (b->first == 0) choose(b, r->byzantine, chosen);
  for (int64_t i = 0; i < b->values; i++) out[i] = 0;
  for (int64_t k = 0; k < chosen; k++)
    for (int64_t i = 0; i < b->values; i++) out[i] += b->update[all[k].place][i];
  for (int64_t i = 0; i < b->values; i++) out[i] /= (double)chosen;
  return BRIM_OK;
}

static int64_t krum_least(const void *self)
{
  return 2 * ((const robust *)self)->byzantine + 3;
}
static brim_status merge_krum(const void *self, const brim_updates *b, double *out)
{
  return merge_chosen(self, b, 1, out);
}
static const brim_aggregator_ops krum_ops = {.size = sizeof(brim_aggregator_ops),
                                             .least = krum_least,
                                             .scratch = krum_bytes,
                                             .look = add_distances,
                                             .merge = merge_krum};
static const brim_param krum_table[] = {BYZANTINE, BRIM_PARAMS_END};
const brim_plugin brim_aggregator_krum = {.size = sizeof(brim_plugin),
                                          .kind = BRIM_AGGREGATOR,
                                          .id = "krum",
                                          .help = "Krum: the update that is nearest to most others",
                                          .params_size = sizeof(robust),
                                          .params = krum_table,
                                          .ops = &krum_ops};

static int64_t multi_krum_least(const void *self)
{
  const robust *r = self;
  const int64_t least = krum_least(self);
  return r->chosen > least ? r->chosen : least;
}
static brim_status merge_multi_krum(const void *self, const brim_updates *b, double *out)
{
  const robust *r = self;
  return merge_chosen(self, b, r->chosen > 0 ? r->chosen : b->clients - r->byzantine, out);
}
static const brim_aggregator_ops multi_krum_ops = {.size = sizeof(brim_aggregator_ops),
                                                   .least = multi_krum_least,
                                                   .scratch = krum_bytes,
                                                   .look = add_distances,
                                                   .merge = merge_multi_krum};
static const brim_param multi_krum_table[] = {
    BYZANTINE,
    BRIM_PARAM(I64, robust, chosen, "auto", "auto|[1,1000000]",
               "number of updates to average; auto: all of a round but `byzantine`"),
    BRIM_PARAMS_END};
const brim_plugin brim_aggregator_multi_krum = {.size = sizeof(brim_plugin),
                                                .kind = BRIM_AGGREGATOR,
                                                .id = "multi_krum",
                                                .help = "Multi-Krum: the mean of the updates nearest to most others",
                                                .params_size = sizeof(robust),
                                                .params = multi_krum_table,
                                                .ops = &multi_krum_ops};
