#include "data/partition.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/order.h"
#include "base/text.h"
#include "brim/random.h"

bool brim_partition_reads_labels(const brim_settings *settings)
{
  return settings->partition.kind != BRIM_PARTITION_IID;
}

int64_t brim_partition_count(const brim_partition *p, int64_t client)
{
  if (p->offset) return p->offset[client + 1] - p->offset[client];
  return p->samples * (client + 1) / p->clients - p->samples * client / p->clients;
}

int64_t brim_partition_order(const brim_partition *p, int64_t client, int64_t i)
{
  if (p->offset) return p->index[p->offset[client] + i];
  return (int64_t)brim_permutation_at(&p->shuffle, (uint64_t)(p->samples * client / p->clients + i));
}

int64_t brim_partition_at(const brim_partition *p, int64_t client, int64_t i)
{
  return (int64_t)brim_permutation_at(&p->split, (uint64_t)brim_partition_order(p, client, i));
}

/* ---- the order of an epoch ---- */

brim_status brim_client_order_open(const brim_partition *p, brim_client_order *out)
{
  out->sample = brim_try_malloc((size_t)p->most * sizeof *out->sample);
  out->round = brim_try_malloc(brim_permutation_table_count((uint64_t)p->most) * sizeof *out->round);
  if (out->sample && out->round) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the order of %" PRId64 " samples of a client", p->most);
}

void brim_client_order_close(brim_client_order *o)
{
  free(o->sample);
  free(o->round);
}

uint64_t brim_client_order_bytes(const brim_partition *p)
{
  return (uint64_t)p->most * sizeof(int64_t) + brim_permutation_table_count((uint64_t)p->most) * sizeof(uint32_t);
}

void brim_client_order_make(brim_client_order *o, const brim_partition *p, int64_t client, int64_t epoch)
{
  const int64_t count = brim_partition_count(p, client);
  /* An order is of a client and an epoch; these are mixed, as a permutation has one number of that kind. */
  const brim_philox key = brim_random4(p->seed, BRIM_STREAM_CLIENT, 1, (uint64_t)client, (uint32_t)epoch);
  brim_permutation order;
  brim_permutation_init(&order, p->seed, BRIM_STREAM_SHUFFLE, (uint64_t)key.v[0] << 32 | key.v[1], (uint64_t)count);
  brim_permutation_tabulate(&order, o->round);
  o->epoch = epoch;
  for (int64_t i = 0; i < count; i++)
    o->sample[i] = brim_partition_at(p, client, (int64_t)brim_permutation_at(&order, (uint64_t)i));
}

/* ---- labels ---- */

/* The class of every training sample. */
static brim_status read_labels(const brim_data *data, int32_t **out)
{
  const int64_t count = data->count[BRIM_PART_TRAIN];
  int32_t *label = brim_try_malloc((size_t)count * sizeof *label);
  void *scratch = brim_try_malloc(data->scratch_bytes);
  brim_status status = BRIM_OK;
  if (!label || !scratch) status = brim_fail(BRIM_ENOMEM_HOST, "no host memory for %" PRId64 " labels", count);
  for (int64_t i = 0; i < count && status == BRIM_OK; i++) status = brim_data_label(data, i, scratch, &label[i]);
  free(scratch);
  if (status != BRIM_OK) {
    free(label);
    return status;
  }
  *out = label;
  return BRIM_OK;
}

/* ---- tables ---- */

/* Samples by class, within a class in an order of the seed's: first[k] is where class k begins, of classes + 1. */
static void sort_by_class(const brim_data *data, const int32_t *label, int64_t classes, uint32_t *sorted,
                          int64_t *first)
{
  const int64_t count = data->count[BRIM_PART_TRAIN];
  brim_permutation shuffle;
  brim_permutation_init(&shuffle, data->seed, BRIM_STREAM_PARTITION, 1, (uint64_t)count);
  memset(first, 0, (size_t)(classes + 1) * sizeof *first);
  for (int64_t i = 0; i < count; i++) first[label[i] + 1]++;
  for (int64_t k = 0; k < classes; k++) first[k + 1] += first[k];
  for (int64_t i = 0; i < count; i++) {
    const uint32_t sample = (uint32_t)brim_permutation_at(&shuffle, (uint64_t)i);
    sorted[first[label[sample]]++] = sample;
  }
  for (int64_t k = classes; k > 0; k--) first[k] = first[k - 1];
  first[0] = 0;
}

/* Numbers of one draw, in order. */
typedef struct draws {
  uint64_t seed, item;
  uint32_t stream, block, left;
  brim_philox now;
} draws;

/* Uniform in (0, 1). */
static double draw(draws *d)
{
  if (d->left == 0) {
    d->now = brim_random4(d->seed, BRIM_STREAM_PARTITION, d->stream, d->item, d->block++);
    d->left = 4;
  }
  return ((double)d->now.v[--d->left] + 0.5) * (1.0 / 4294967296.0);
}

static double draw_normal(draws *d)
{
  const double radius = sqrt(-2 * log(draw(d)));
  return radius * cos(6.283185307179586 * draw(d));
}

/* The logarithm of a number from Gamma(alpha, 1), which itself may be too small to write down (Marsaglia and Tsang: A
 * Simple Method for Generating Gamma Variables, 2000; below 1 by Gamma(alpha + 1) * U^(1 / alpha)). */
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

/* Shares of one class, a client each, that add up to 1: from Dirichlet(alpha, ..., alpha). */
static void draw_shares(uint64_t seed, int64_t class, double alpha, int64_t clients, double *share)
{
  double most = -INFINITY, sum = 0;
  for (int64_t i = 0; i < clients; i++) {
    draws d = {.seed = seed, .item = (uint64_t)i, .stream = (uint32_t)(2 + class)};
    share[i] = draw_log_gamma(&d, alpha);
    if (share[i] > most) most = share[i];
  }
  for (int64_t i = 0; i < clients; i++) sum += share[i] = exp(share[i] - most);
  for (int64_t i = 0; i < clients; i++) share[i] /= sum;
}

/* owner[i]: the client that sample i of the sorted ones goes to. */
static void deal_by_shares(const brim_partition *p, double alpha, int64_t classes, const int64_t *first, double *share,
                           int64_t *owner)
{
  for (int64_t k = 0; k < classes; k++) {
    const int64_t count = first[k + 1] - first[k];
    double until = 0;
    int64_t at = 0;
    if (count == 0) continue;
    draw_shares(p->seed, k, alpha, p->clients, share);
    for (int64_t client = 0; client < p->clients; client++) {
      until += share[client];
      const int64_t end = client + 1 == p->clients ? count : (int64_t)(until * (double)count + 0.5);
      for (; at < end && at < count; at++) owner[first[k] + at] = client;
    }
  }
}

/* Shard s of the sorted samples, of clients * shards, goes to the client whose turn it is in a permutation. */
static void deal_shards(const brim_partition *p, int64_t shards, int64_t *owner)
{
  const int64_t all = p->clients * shards;
  brim_permutation order;
  brim_permutation_init(&order, p->seed, BRIM_STREAM_PARTITION, 2, (uint64_t)all);
  for (int64_t turn = 0; turn < all; turn++) {
    const int64_t s = (int64_t)brim_permutation_at(&order, (uint64_t)turn);
    const int64_t end = p->samples * (s + 1) / all;
    for (int64_t i = p->samples * s / all; i < end; i++) owner[i] = turn / shards;
  }
}

/* The table from each sorted sample's owner: within a client in the order of the sorted samples. */
static void make_table(brim_partition *p, const uint32_t *sorted, const int64_t *owner)
{
  for (int64_t i = 0; i < p->samples; i++) p->offset[owner[i] + 1]++;
  for (int64_t k = 0; k < p->clients; k++) p->offset[k + 1] += p->offset[k];
  for (int64_t i = 0; i < p->samples; i++) p->index[p->offset[owner[i]]++] = sorted[i];
  for (int64_t k = p->clients; k > 0; k--) p->offset[k] = p->offset[k - 1];
  p->offset[0] = 0;
}

typedef struct holding {
  int64_t count, client;
} holding;

static int most_first(const void *a, const void *b)
{
  const holding *x = a, *y = b;
  if (x->count != y->count) return x->count < y->count ? 1 : -1;
  return (x->client > y->client) - (x->client < y->client);
}

/* Gives clients that own fewer than `least` samples some of those that own the most, in one pass: the richest give
 * down to what the next richest has, or to the mean. Owners' last samples go. */
static brim_status raise_to(brim_partition *p, int64_t least, int64_t *owner)
{
  holding *rich = brim_try_calloc((size_t)p->clients, sizeof *rich);
  int64_t *gives = brim_try_calloc((size_t)p->clients, sizeof *gives), needed = 0;
  if (!rich || !gives) {
    free(rich);
    free(gives);
    return brim_fail(BRIM_ENOMEM_HOST, "no host memory to deal samples to %" PRId64 " clients", p->clients);
  }
  for (int64_t k = 0; k < p->clients; k++) rich[k].client = k;
  for (int64_t i = 0; i < p->samples; i++) rich[owner[i]].count++;
  for (int64_t k = 0; k < p->clients; k++) needed += rich[k].count < least ? least - rich[k].count : 0;
  p->moved = needed;
  if (needed > 0) {
    qsort(rich, (size_t)p->clients, sizeof *rich, most_first);
    /* All that own more than `level` give what is above it: the highest level at which that is enough. */
    int64_t low = least, high = rich[0].count;
    while (low < high) {
      const int64_t level = low + (high - low + 1) / 2;
      int64_t above = 0;
      for (int64_t k = 0; k < p->clients && rich[k].count > level; k++) above += rich[k].count - level;
      if (above >= needed)
        low = level;
      else
        high = level - 1;
    }
    int64_t left = needed;
    for (int64_t k = 0; k < p->clients && left > 0 && rich[k].count > low; k++) {
      const int64_t more = rich[k].count - low;
      gives[rich[k].client] = more < left ? more : left;
      left -= gives[rich[k].client];
    }
    int64_t poor = p->clients - 1;
    for (int64_t i = p->samples; i-- > 0;) {
      if (gives[owner[i]] == 0) continue;
      while (rich[poor].count >= least) poor--;
      gives[owner[i]]--;
      owner[i] = rich[poor].client;
      rich[poor].count++;
    }
  }
  free(rich);
  free(gives);
  return BRIM_OK;
}

static brim_status check(const brim_data *data, const brim_partition *p)
{
  const brim_settings *s = data->settings;
  const int64_t shards = s->partition.kind == BRIM_PARTITION_SHARDS ? s->partition.shards : 1,
                least = s->partition.min_samples;
  if (p->samples > UINT32_MAX)
    return brim_fail(BRIM_ECONFIG, "a federation deals at most %lld training samples, and there are %lld",
                     (long long)UINT32_MAX, (long long)p->samples);
  if (s->partition.kind != BRIM_PARTITION_IID && data->train.task != BRIM_TASK_CLASS)
    return brim_fail(BRIM_ECONFIG,
                     "'partition.kind' is %s, which deals samples by their classes, and dataset '%s' has "
                     "none\ntake partition=iid",
                     s->partition.kind == BRIM_PARTITION_SHARDS ? "shards" : "dirichlet", data->plugin->id);
  if (shards > 1 && p->samples / p->clients < shards)
    return brim_fail(BRIM_ECONFIG,
                     "'partition.shards' is %lld for each of %lld clients: more shards than the %lld training samples\n"
                     "set partition.shards=%lld at most, or total_clients=%lld",
                     (long long)shards, (long long)p->clients, (long long)p->samples,
                     (long long)(p->samples / p->clients), (long long)(p->samples / shards));
  if (p->samples / p->clients < least)
    return brim_fail(BRIM_ECONFIG,
                     "'total_clients' is %lld, and %lld training samples give a client %lld: each needs at least %lld "
                     "(partition.min_samples)\nset total_clients=%lld at most",
                     (long long)p->clients, (long long)p->samples, (long long)(p->samples / p->clients),
                     (long long)least, (long long)(p->samples / least));
  return BRIM_OK;
}

static brim_status deal(const brim_data *data, const int32_t *label, brim_partition *p)
{
  const brim_partition_settings *s = &data->settings->partition;
  const int64_t classes = data->train.classes;
  uint32_t *sorted = brim_try_malloc((size_t)p->samples * sizeof *sorted);
  int64_t *owner = brim_try_malloc((size_t)p->samples * sizeof *owner),
          *first = brim_try_malloc((size_t)(classes + 1) * sizeof *first);
  double *share = brim_try_malloc((size_t)p->clients * sizeof *share);
  p->offset = brim_try_calloc((size_t)p->clients + 1, sizeof *p->offset);
  p->index = brim_try_malloc((size_t)p->samples * sizeof *p->index);
  brim_status status = BRIM_OK;
  if (!sorted || !owner || !first || !share || !p->offset || !p->index)
    status = brim_fail(BRIM_ENOMEM_HOST, "no host memory to deal %" PRId64 " samples to %" PRId64 " clients",
                       p->samples, p->clients);
  if (status == BRIM_OK) {
    sort_by_class(data, label, classes, sorted, first);
    if (s->kind == BRIM_PARTITION_SHARDS)
      deal_shards(p, s->shards, owner);
    else
      deal_by_shares(p, s->alpha, classes, first, share, owner);
    status = raise_to(p, s->min_samples, owner);
  }
  if (status == BRIM_OK) make_table(p, sorted, owner);
  free(sorted);
  free(owner);
  free(first);
  free(share);
  return status;
}

static int ascending(const void *a, const void *b)
{
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* The different sizes of clients. Evenly dealt there are two at most. */
static brim_status list_sizes(brim_partition *p)
{
  const bool is_even = !p->offset;
  const size_t room = is_even ? 2 : (size_t)p->clients;
  p->size = brim_try_malloc(room * sizeof *p->size);
  if (!p->size) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the sizes of %" PRId64 " clients", p->clients);
  if (is_even) {
    p->size[0] = p->samples / p->clients;
    p->size[1] = p->size[0] + 1;
    p->size_count = p->samples % p->clients > 0 ? 2 : 1;
  } else {
    for (int64_t k = 0; k < p->clients; k++) p->size[k] = brim_partition_count(p, k);
    qsort(p->size, (size_t)p->clients, sizeof *p->size, ascending);
    for (int64_t k = 0; k < p->clients; k++)
      if (p->size_count == 0 || p->size[p->size_count - 1] != p->size[k]) p->size[p->size_count++] = p->size[k];
  }
  p->least = p->size[0];
  p->most = p->size[p->size_count - 1];
  return BRIM_OK;
}

static brim_status make_permutations(const brim_data *data, brim_partition *p)
{
  const uint64_t of_split = brim_permutation_table_count(data->split.count),
                 of_shuffle = brim_permutation_table_count((uint64_t)p->samples);
  p->round = brim_try_malloc((of_split + of_shuffle) * sizeof *p->round);
  if (!p->round) return brim_fail(BRIM_ENOMEM_HOST, "no host memory to deal %" PRId64 " samples", p->samples);
  p->split = data->split;
  brim_permutation_init(&p->shuffle, p->seed, BRIM_STREAM_PARTITION, 0, (uint64_t)p->samples);
  brim_permutation_tabulate(&p->split, p->round);
  brim_permutation_tabulate(&p->shuffle, p->round + of_split);
  return BRIM_OK;
}

brim_status brim_partition_make(const brim_data *data, brim_partition *out)
{
  *out = (brim_partition){.clients = data->settings->total_clients,
                          .samples = data->count[BRIM_PART_TRAIN],
                          .seed = (uint64_t)data->settings->seed};
  BRIM_TRY(check(data, out));
  brim_status status = make_permutations(data, out);
  if (status == BRIM_OK && brim_partition_reads_labels(data->settings)) {
    status = read_labels(data, &out->label);
    if (status == BRIM_OK) status = deal(data, out->label, out);
  }
  if (status == BRIM_OK) status = list_sizes(out);
  if (status != BRIM_OK) brim_partition_release(out);
  return status;
}

/* A line for each sample of a client. `scratch`: to read its class with; NULL: the class is not written. */
static brim_status write_client(const brim_data *data, const brim_partition *p, int64_t client, void *scratch,
                                FILE *file)
{
  const int64_t count = brim_partition_count(p, client);
  for (int64_t i = 0; i < count; i++) {
    const int64_t sample = brim_partition_order(p, client, i);
    int32_t label = 0;
    fprintf(file, "%" PRId64 ",%" PRId64, client, brim_partition_at(p, client, i));
    if (p->label)
      label = p->label[sample];
    else if (scratch)
      BRIM_TRY(brim_data_label(data, sample, scratch, &label));
    if (p->label || scratch) fprintf(file, ",%" PRId32, label);
    fputc('\n', file);
  }
  return BRIM_OK;
}

brim_status brim_partition_write(const brim_data *data, const brim_partition *p, const char *path)
{
  const bool reads = !p->label && data->train.task == BRIM_TASK_CLASS && data->train.pixels_max == 0;
  void *scratch = reads ? brim_try_malloc(data->scratch_bytes) : NULL;
  if (reads && !scratch) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for a sample of '%s'", path);
  FILE *file = fopen(path, "w");
  if (!file) {
    free(scratch);
    return brim_fail(BRIM_EIO, "cannot write '%s': %s", path, strerror(errno));
  }
  brim_status status = BRIM_OK;
  fputs(p->label || reads ? "client,sample,class\n" : "client,sample\n", file);
  for (int64_t client = 0; client < p->clients && status == BRIM_OK; client++)
    status = write_client(data, p, client, scratch, file);
  free(scratch);
  const bool failed = ferror(file);
  if ((fclose(file) != 0 || failed) && status == BRIM_OK)
    return brim_fail(BRIM_EIO, "cannot write '%s': %s", path, strerror(errno));
  return status;
}

void brim_partition_release(brim_partition *p)
{
  free(p->offset);
  free(p->index);
  free(p->size);
  free(p->round);
  free(p->label);
  *p = (brim_partition){0};
}
