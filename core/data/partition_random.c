/* The random numbers of partitions, and clients whose samples are drawn on demand. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "brim/random.h"
#include "data/partition_parts.h"

enum { ORDER_RANK = 3 };

/* ---- distributions ---- */

/* The random numbers of one draw, in order. */
typedef struct draws {
  uint64_t seed, item;
  uint32_t stream, block, left;
  brim_philox now;
} draws;

/* Uniform in (0, 1). */
static double between_0_and_1(uint32_t x)
{
  return ((double)x + 0.5) * (1.0 / 4294967296.0);
}

static double draw(draws *d)
{
  if (d->left == 0) {
    d->now = brim_random4(d->seed, BRIM_STREAM_PARTITION, d->stream, d->item, d->block++);
    d->left = 4;
  }
  return between_0_and_1(d->now.v[--d->left]);
}

static double draw_normal(draws *d)
{
  const double radius = sqrt(-2 * log(draw(d)));
  return radius * cos(6.283185307179586 * draw(d));
}

/* Draws the logarithm of a number from Gamma(alpha, 1), because the number may be too small for a double (Marsaglia and
 * Tsang: A Simple Method for Generating Gamma Variables, 2000; for alpha below 1 by Gamma(alpha + 1) * U^(1 /
 * alpha)). */
static double draw_log_gamma(draws *d, double alpha)
{
  const double boost = alpha < 1 ? log(draw(d)) / alpha : 0, shape = alpha < 1 ? alpha + 1 : alpha;
  const double d3 = shape - 1.0 / 3, c = 1 / sqrt(9 * d3);
  for (;;) {
    const double x = draw_normal(d), root = 1 + c * x, v = root * root * root;
    if (root <= 0) continue;
    if (log(draw(d)) < 0.5 * x * x + d3 - d3 * v + d3 * log(v)) return boost + log(d3 * v);
  }
}

static double log_gamma_of(uint64_t seed, int64_t class, int64_t client, double alpha)
{
  draws d = {.seed = seed, .item = (uint64_t)client, .stream = (uint32_t)(BRIM_PARTITION_CLASS + class)};
  return draw_log_gamma(&d, alpha);
}

/* Converts logarithms to shares with the sum 1. */
static void normalise(double *share, int64_t count)
{
  double most = -INFINITY, sum = 0;
  for (int64_t i = 0; i < count; i++) most = share[i] > most ? share[i] : most;
  for (int64_t i = 0; i < count; i++) sum += share[i] = exp(share[i] - most);
  for (int64_t i = 0; i < count; i++) share[i] /= sum;
}

void brim_partition_class_shares(uint64_t seed, int64_t class, double alpha, int64_t clients, double *share)
{
  for (int64_t i = 0; i < clients; i++) share[i] = log_gamma_of(seed, class, i, alpha);
  normalise(share, clients);
}

/* ---- sizes of clients ---- */

void brim_partition_sizes_init(brim_partition *p, const brim_partition_settings *s)
{
  p->sizes = (brim_partition_sizes){.kind = s->sizes, .sigma = s->sigma, .exponent = s->exponent};
  brim_permutation_init(&p->sizes.rank, p->seed, BRIM_STREAM_PARTITION, ORDER_RANK, (uint64_t)p->clients);
}

double brim_partition_weight(const brim_partition *p, int64_t client)
{
  const brim_partition_sizes *s = &p->sizes;
  if (s->kind == BRIM_SIZES_UNIFORM) return 1;
  if (s->kind == BRIM_SIZES_POWER_LAW)
    return pow((double)brim_permutation_at(&s->rank, (uint64_t)client) + 1, -s->exponent);
  draws d = {.seed = p->seed, .item = (uint64_t)client, .stream = BRIM_PARTITION_SIZE};
  return exp(s->sigma * draw_normal(&d));
}

/* ---- drawn clients ---- */

/* The cumulative shares of the classes of one client; each thread caches those of the last client that it used. */
typedef struct shares {
  uint64_t seed;
  double alpha;
  int64_t classes, client; /* classes 0: empty */
  double until[BRIM_DRAWN_CLASSES_MAX];
} shares;

static const double *shares_of(const brim_partition *p, int64_t client)
{
  static _Thread_local shares last;
  if (last.classes == p->classes && last.client == client && last.seed == p->seed && !(last.alpha < p->alpha) &&
      !(last.alpha > p->alpha))
    return last.until;
  for (int64_t k = 0; k < p->classes; k++) last.until[k] = log_gamma_of(p->seed, k, client, p->alpha);
  normalise(last.until, p->classes);
  for (int64_t k = 1; k < p->classes; k++) last.until[k] += last.until[k - 1];
  last.seed = p->seed;
  last.alpha = p->alpha;
  last.classes = p->classes;
  last.client = client;
  return last.until;
}

int64_t brim_partition_drawn_count(const brim_partition *p, int64_t client)
{
  const double count = p->sizes.scale * brim_partition_weight(p, client) + 0.5;
  if (count >= (double)BRIM_DRAWN_SAMPLES_MAX) return BRIM_DRAWN_SAMPLES_MAX;
  return (int64_t)count > p->sizes.least ? (int64_t)count : p->sizes.least;
}

int64_t brim_partition_drawn_at(const brim_partition *p, int64_t client, int64_t place)
{
  const brim_philox r =
      brim_random4(p->seed, BRIM_STREAM_PARTITION, BRIM_PARTITION_PLACE, (uint64_t)client, (uint32_t)place);
  const double *until = shares_of(p, client), x = between_0_and_1(r.v[0]);
  int64_t low = 0, high = p->classes - 1; /* the first class whose cumulative share is above x */
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (until[middle] > x)
      high = middle;
    else
      low = middle + 1;
  }
  const uint64_t count = (uint64_t)(p->first[low + 1] - p->first[low]);
  return p->index[p->first[low] + (int64_t)(r.v[1] * count >> 32)];
}

brim_status brim_partition_draw(const brim_data *data, brim_partition *p)
{
  const brim_partition_settings *s = &data->settings->partition;
  const int64_t count = data->count[BRIM_PART_TRAIN], classes = data->train.classes;
  const double mean = s->samples > 0 ? (double)s->samples : (double)count / (double)p->clients;
  double weights = 0;
  p->first = brim_try_malloc((size_t)(classes + 1) * sizeof *p->first);
  p->index = brim_try_malloc((size_t)count * sizeof *p->index);
  if (!p->first || !p->index)
    return brim_fail(BRIM_ENOMEM_HOST, "no host memory to sort %" PRId64 " samples by class", count);
  BRIM_TRY(brim_partition_sort(p, classes, p->index, p->first));
  for (int64_t k = 0; k < classes; k++) /* empty classes are skipped */
    if (p->first[k + 1] > p->first[k]) p->first[++p->classes] = p->first[k + 1];
  if (p->classes > BRIM_DRAWN_CLASSES_MAX)
    return brim_fail(BRIM_ECONFIG,
                     "'partition.kind' is dirichlet_each, which supports at most %d classes, but the training "
                     "samples have %" PRId64 "\nuse partition=dirichlet",
                     BRIM_DRAWN_CLASSES_MAX, p->classes);
  p->alpha = s->alpha;
  p->sizes.least = s->min_samples;
  for (int64_t k = 0; k < p->clients; k++) weights += brim_partition_weight(p, k);
  p->sizes.scale = mean * (double)p->clients / weights;
  p->samples = 0;
  for (int64_t k = 0; k < p->clients; k++) p->samples += brim_partition_drawn_count(p, k);
  return BRIM_OK;
}
