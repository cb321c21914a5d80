/* Partitions in which every sample belongs to one client. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/order.h"
#include "brim/random.h"
#include "data/describe.h"
#include "data/partition_parts.h"

/* Permutations of BRIM_STREAM_PARTITION: 0 is for all samples, 3 for clients by size. */
enum { ORDER_CLASS = 1, ORDER_SHARDS = 2, ORDER_DECK = 16 };

brim_status brim_partition_sort(const brim_partition *p, int64_t classes, uint32_t *sorted, int64_t *first)
{
  const int64_t count = (int64_t)p->shuffle.count;
  uint32_t *round = brim_try_malloc(brim_permutation_table_count((uint64_t)count) * sizeof *round);
  if (!round) return brim_fail(BRIM_ENOMEM_HOST, "no host memory to sort %" PRId64 " samples by class", count);
  brim_permutation shuffle;
  brim_permutation_init(&shuffle, p->seed, BRIM_STREAM_PARTITION, ORDER_CLASS, (uint64_t)count);
  brim_permutation_tabulate(&shuffle, round);
  memset(first, 0, (size_t)(classes + 1) * sizeof *first);
  for (int64_t i = 0; i < count; i++) first[p->label[i] + 1]++;
  for (int64_t k = 0; k < classes; k++) first[k + 1] += first[k];
  for (int64_t i = 0; i < count; i++) {
    const uint32_t sample = (uint32_t)brim_permutation_at(&shuffle, (uint64_t)i);
    sorted[first[p->label[sample]]++] = sample;
  }
  for (int64_t k = classes; k > 0; k--) first[k] = first[k - 1];
  first[0] = 0;
  free(round);
  return BRIM_OK;
}

void brim_partition_fill(brim_partition *p, const uint32_t *sample, const int64_t *owner)
{
  for (int64_t i = 0; i < p->samples; i++) p->offset[owner[i] + 1]++;
  for (int64_t k = 0; k < p->clients; k++) p->offset[k + 1] += p->offset[k];
  for (int64_t i = 0; i < p->samples; i++) p->index[p->offset[owner[i]]++] = sample[i];
  for (int64_t k = p->clients; k > 0; k--) p->offset[k] = p->offset[k - 1];
  p->offset[0] = 0;
}

/* The samples to assign. owner[i]: the client that gets sorted[i]. */
typedef struct assignment {
  const brim_data *data;
  brim_partition *p;
  const brim_partition_settings *settings;
  int64_t classes;
  uint32_t *sorted;
  int64_t *owner, *first;
} assignment;

static brim_status fail_memory(const brim_partition *p)
{
  return brim_fail(BRIM_ENOMEM_HOST, "no host memory to assign %" PRId64 " samples to %" PRId64 " clients", p->samples,
                   p->clients);
}

/* ---- dirichlet, shards ---- */

static brim_status assign_by_shares(const assignment *d)
{
  const brim_partition *p = d->p;
  double *share = brim_try_malloc((size_t)p->clients * sizeof *share);
  if (!share) return fail_memory(p);
  for (int64_t k = 0; k < d->classes; k++) {
    const int64_t count = d->first[k + 1] - d->first[k];
    double until = 0;
    int64_t at = 0;
    if (count == 0) continue;
    brim_partition_class_shares(p->seed, k, d->settings->alpha, p->clients, share);
    for (int64_t client = 0; client < p->clients; client++) {
      until += share[client];
      const int64_t end = client + 1 == p->clients ? count : (int64_t)(until * (double)count + 0.5);
      for (; at < end && at < count; at++) d->owner[d->first[k] + at] = client;
    }
  }
  free(share);
  return BRIM_OK;
}

/* Cuts the sorted samples into clients * shards shards; a permutation assigns shard s to a client. */
static void assign_shards(const assignment *d)
{
  const brim_partition *p = d->p;
  const int64_t shards = d->settings->shards, all = p->clients * shards;
  brim_permutation order;
  brim_permutation_init(&order, p->seed, BRIM_STREAM_PARTITION, ORDER_SHARDS, (uint64_t)all);
  for (int64_t turn = 0; turn < all; turn++) {
    const int64_t s = (int64_t)brim_permutation_at(&order, (uint64_t)turn);
    const int64_t end = p->samples * (s + 1) / all;
    for (int64_t i = p->samples * s / all; i < end; i++) d->owner[i] = turn / shards;
  }
}

/* ---- classes ---- */

/* Classes are drawn like cards from a shuffled deck. Clients draw in turn, and an empty deck is replaced by a new one,
 * so that the numbers of draws of any two classes differ by at most one. */
typedef struct deck {
  uint64_t seed, decks;
  int64_t count, used, left; /* numbers of all classes, of classes with samples, and of cards that are left */
  int64_t *card;             /* the remaining cards are the last ones */
  int64_t *holder;           /* for each class, the last client that drew it, + 1 */
} deck;

static void shuffle_deck(deck *d, const int64_t *first)
{
  brim_permutation order;
  brim_permutation_init(&order, d->seed, BRIM_STREAM_PARTITION, ORDER_DECK + d->decks++, (uint64_t)d->count);
  d->left = 0;
  for (int64_t i = 0; i < d->count; i++) {
    const int64_t class = (int64_t)brim_permutation_at(&order, (uint64_t)i);
    if (first[class + 1] > first[class]) d->card[d->left++] = class;
  }
  d->used = d->left;
}

/* Takes the next card that the client does not have yet. If this deck has no such card, the next one does. */
static int64_t take_card(deck *d, const int64_t *first, int64_t client)
{
  int64_t at = d->left - 1;
  while (at >= 0 && d->holder[d->card[at]] == client + 1) at--;
  if (at < 0) {
    shuffle_deck(d, first);
    for (at = d->left - 1; d->holder[d->card[at]] == client + 1;) at--;
  }
  const int64_t class = d->card[at];
  memmove(&d->card[at], &d->card[at + 1], (size_t)(d->left - at - 1) * sizeof *d->card);
  d->left--;
  d->holder[class] = client + 1;
  return class;
}

static brim_status check_classes(const assignment *d, int64_t used)
{
  const int64_t each = d->settings->classes_per_client, clients = d->p->clients;
  if (each > used)
    return brim_fail(BRIM_ECONFIG,
                     "'partition.classes_per_client' is %" PRId64 ", but the training samples have %" PRId64
                     " classes\nset partition.classes_per_client=%" PRId64 " at most",
                     each, used, used);
  if (each * clients < used)
    return brim_fail(BRIM_ECONFIG,
                     "'partition.classes_per_client' is %" PRId64 " for each of %" PRId64 " clients: %" PRId64
                     " of the %" PRId64 " classes would have no client\nset partition.classes_per_client=%" PRId64
                     " at least",
                     each, clients, used - each * clients, used, (used + clients - 1) / clients);
  return BRIM_OK;
}

/* Divides a class's samples among the clients that drew it, in the order of the clients. */
static void share_classes(const assignment *d, const int64_t *taken, int64_t *begin, int64_t *client)
{
  const int64_t each = d->settings->classes_per_client, all = d->p->clients * each;
  memset(begin, 0, (size_t)(d->classes + 1) * sizeof *begin);
  for (int64_t i = 0; i < all; i++) begin[taken[i] + 1]++;
  for (int64_t k = 0; k < d->classes; k++) begin[k + 1] += begin[k];
  for (int64_t i = 0; i < all; i++) client[begin[taken[i]]++] = i / each;
  for (int64_t k = d->classes; k > 0; k--) begin[k] = begin[k - 1];
  begin[0] = 0;
  for (int64_t k = 0; k < d->classes; k++) {
    const int64_t count = d->first[k + 1] - d->first[k], holders = begin[k + 1] - begin[k];
    for (int64_t i = 0; i < count; i++) d->owner[d->first[k] + i] = client[begin[k] + i * holders / count];
  }
}

static brim_status assign_classes(const assignment *d)
{
  const int64_t each = d->settings->classes_per_client, all = d->p->clients * each;
  deck cards = {.seed = d->p->seed,
                .count = d->classes,
                .card = brim_try_malloc((size_t)d->classes * sizeof *cards.card),
                .holder = brim_try_calloc((size_t)d->classes + 1, sizeof *cards.holder)};
  int64_t *taken = brim_try_malloc((size_t)all * sizeof *taken),
          *client = brim_try_malloc((size_t)all * sizeof *client);
  brim_status status = cards.card && cards.holder && taken && client ? BRIM_OK : fail_memory(d->p);
  if (status == BRIM_OK) {
    shuffle_deck(&cards, d->first);
    status = check_classes(d, cards.used);
  }
  if (status == BRIM_OK) {
    for (int64_t i = 0; i < all; i++) taken[i] = take_card(&cards, d->first, i / each);
    share_classes(d, taken, cards.holder, client);
  }
  free(cards.card);
  free(cards.holder);
  free(taken);
  free(client);
  return status;
}

/* ---- natural ---- */

static brim_status read_groups(const assignment *d, int64_t *group)
{
  const brim_data *data = d->data;
  for (int64_t i = 0; i < d->p->samples; i++) {
    const int64_t index = (int64_t)brim_permutation_at(&d->p->split, (uint64_t)i);
    BRIM_TRY(data->ops->client(data->self, BRIM_SPLIT_TRAIN, index, &group[i]));
  }
  return BRIM_OK;
}

/* The dataset's k-th client (from 0) becomes client k, or k mod total_clients if the dataset has more clients. */
static brim_status own_groups(const assignment *d, const int64_t *group, int64_t *distinct)
{
  int64_t count = 0;
  memcpy(distinct, group, (size_t)d->p->samples * sizeof *distinct);
  qsort(distinct, (size_t)d->p->samples, sizeof *distinct, brim_by_int64);
  for (int64_t i = 0; i < d->p->samples; i++)
    if (count == 0 || distinct[count - 1] != distinct[i]) distinct[count++] = distinct[i];
  if (count < d->p->clients)
    return brim_fail(BRIM_ECONFIG,
                     "'total_clients' is %" PRId64 ", but the training samples of dataset '%s' belong to %" PRId64
                     " clients (partition=natural)\nset total_clients=%" PRId64 " at most",
                     d->p->clients, d->data->plugin->id, count, count);
  for (int64_t i = 0; i < d->p->samples; i++) {
    const int64_t *at = bsearch(&group[i], distinct, (size_t)count, sizeof *distinct, brim_by_int64);
    d->owner[i] = (at - distinct) % d->p->clients;
    d->sorted[i] = (uint32_t)i;
  }
  return BRIM_OK;
}

static brim_status assign_natural(const assignment *d)
{
  if (!BRIM_HAS(brim_dataset_ops, d->data->ops, client))
    return brim_fail(BRIM_ECONFIG,
                     "'partition.kind' is natural, but dataset '%s' does not say which client a sample belongs to\n"
                     "use another partition, or partition=file with your own list",
                     d->data->plugin->id);
  int64_t *group = brim_try_malloc((size_t)d->p->samples * sizeof *group),
          *distinct = brim_try_malloc((size_t)d->p->samples * sizeof *distinct);
  brim_status status = group && distinct ? read_groups(d, group) : fail_memory(d->p);
  if (status == BRIM_OK) status = own_groups(d, group, distinct);
  free(group);
  free(distinct);
  return status;
}

/* ---- all kinds ---- */

static brim_status assign(const assignment *d)
{
  if (d->p->label) BRIM_TRY(brim_partition_sort(d->p, d->classes, d->sorted, d->first));
  switch (d->settings->kind) {
  case BRIM_PARTITION_SHARDS:
    assign_shards(d);
    break;
  case BRIM_PARTITION_CLASSES:
    BRIM_TRY(assign_classes(d));
    break;
  case BRIM_PARTITION_NATURAL:
    return assign_natural(d);
  default:
    BRIM_TRY(assign_by_shares(d));
  }
  return brim_partition_raise(d->p, d->settings->min_samples, NULL, d->owner);
}

brim_status brim_partition_assign(const brim_data *data, brim_partition *p)
{
  assignment d = {.data = data, .p = p, .settings = &data->settings->partition, .classes = data->train.classes};
  d.sorted = brim_try_malloc((size_t)p->samples * sizeof *d.sorted);
  d.owner = brim_try_malloc((size_t)p->samples * sizeof *d.owner);
  d.first = brim_try_malloc((size_t)(d.classes + 1) * sizeof *d.first);
  p->offset = brim_try_calloc((size_t)p->clients + 1, sizeof *p->offset);
  p->index = brim_try_malloc((size_t)p->samples * sizeof *p->index);
  brim_status status = BRIM_OK;
  if (!d.sorted || !d.owner || !d.first || !p->offset || !p->index) status = fail_memory(p);
  if (status == BRIM_OK) status = assign(&d);
  if (status == BRIM_OK) brim_partition_fill(p, d.sorted, d.owner);
  free(d.sorted);
  free(d.owner);
  free(d.first);
  return status;
}

brim_status brim_partition_cut(brim_partition *p, int64_t least)
{
  double all = 0, until = 0;
  p->offset = brim_try_calloc((size_t)p->clients + 1, sizeof *p->offset);
  if (!p->offset) return fail_memory(p);
  int64_t *count = p->offset + 1, end = 0;
  for (int64_t k = 0; k < p->clients; k++) all += brim_partition_weight(p, k);
  for (int64_t k = 0; k < p->clients; k++) {
    const int64_t begin = end;
    until += brim_partition_weight(p, k);
    end = k + 1 == p->clients ? p->samples : (int64_t)(until / all * (double)p->samples + 0.5);
    end = end > p->samples ? p->samples : end;
    count[k] = end - begin;
  }
  BRIM_TRY(brim_partition_raise(p, least, count, NULL));
  for (int64_t k = 0; k < p->clients; k++) count[k] += p->offset[k];
  return BRIM_OK;
}
