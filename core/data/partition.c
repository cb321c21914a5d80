#include "data/partition.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/order.h"
#include "base/text.h"
#include "brim/random.h"
#include "data/partition_parts.h"

const char *const brim_partition_names[] = {"iid",     "dirichlet", "shards", "dirichlet_each",
                                            "classes", "natural",   "file"};

bool brim_partition_reads_data(const brim_settings *settings)
{
  return settings->partition.kind != BRIM_PARTITION_IID && settings->partition.kind != BRIM_PARTITION_FILE;
}

/* Whether the partition depends on labels. */
static bool needs_labels(int32_t kind)
{
  return kind == BRIM_PARTITION_DIRICHLET || kind == BRIM_PARTITION_DIRICHLET_EACH || kind == BRIM_PARTITION_SHARDS ||
         kind == BRIM_PARTITION_CLASSES;
}

int64_t brim_partition_count(const brim_partition *p, int64_t client)
{
  if (p->offset) return p->offset[client + 1] - p->offset[client];
  if (p->classes > 0) return brim_partition_drawn_count(p, client);
  return p->samples * (client + 1) / p->clients - p->samples * client / p->clients;
}

int64_t brim_partition_order(const brim_partition *p, int64_t client, int64_t i)
{
  if (p->classes > 0) return brim_partition_drawn_at(p, client, i);
  const int64_t first = p->offset ? p->offset[client] : p->samples * client / p->clients;
  return p->index ? p->index[first + i] : (int64_t)brim_permutation_at(&p->shuffle, (uint64_t)(first + i));
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
  /* An order depends on client and epoch. They are hashed to one number, because a permutation takes only one. */
  const brim_philox key = brim_random4(p->seed, BRIM_STREAM_CLIENT, 1, (uint64_t)client, (uint32_t)epoch);
  brim_permutation order;
  brim_permutation_init(&order, p->seed, BRIM_STREAM_SHUFFLE, (uint64_t)key.v[0] << 32 | key.v[1], (uint64_t)count);
  brim_permutation_tabulate(&order, o->round);
  o->epoch = epoch;
  for (int64_t i = 0; i < count; i++)
    o->sample[i] = brim_partition_at(p, client, (int64_t)brim_permutation_at(&order, (uint64_t)i));
}

/* ---- labels ---- */

/* Reads labels in the order of the dataset, which is fastest. number: see brim_partition_number. */
static brim_status read_in_order(const brim_data *data, const uint32_t *number, void *scratch, int32_t *label)
{
  for (int64_t i = 0; i < data->train.count; i++)
    if (number[i] > 0) BRIM_TRY(brim_data_label_at(data, i, scratch, &label[number[i] - 1]));
  return BRIM_OK;
}

/* Reads the class of every training sample. */
static brim_status read_labels(const brim_data *data, brim_partition *p)
{
  uint32_t *number = brim_try_calloc((size_t)data->train.count, sizeof *number);
  void *scratch = brim_try_malloc(data->scratch_bytes);
  p->label = brim_try_malloc((size_t)p->samples * sizeof *p->label);
  brim_status status = BRIM_OK;
  if (p->label && number && scratch) {
    brim_partition_number(p, number);
    status = read_in_order(data, number, scratch, p->label);
  } else {
    status = brim_fail(BRIM_ENOMEM_HOST, "no host memory for %" PRId64 " labels", p->samples);
  }
  free(scratch);
  free(number);
  return status;
}

/* ---- checks ---- */

static brim_status check_kind(const brim_data *data)
{
  const brim_partition_settings *s = &data->settings->partition;
  const bool has_sizes = s->kind == BRIM_PARTITION_IID || s->kind == BRIM_PARTITION_DIRICHLET_EACH;
  if (needs_labels(s->kind) && data->train.task != BRIM_TASK_CLASS)
    return brim_fail(BRIM_ECONFIG,
                     "'partition.kind' is %s, which divides samples by class, but dataset '%s' has no classes\n"
                     "use partition=iid",
                     brim_partition_names[s->kind], data->plugin->id);
  if (s->sizes != BRIM_SIZES_UNIFORM && !has_sizes)
    return brim_fail(BRIM_ECONFIG,
                     "'partition.sizes' applies only to partition=iid and dirichlet_each: %s determines the sizes of "
                     "clients\nuse partition.sizes=uniform",
                     brim_partition_names[s->kind]);
  if (s->samples > 0 && s->kind != BRIM_PARTITION_DIRICHLET_EACH)
    return brim_fail(BRIM_ECONFIG,
                     "'partition.samples' applies only to partition=dirichlet_each, whose clients share samples: %s "
                     "uses each sample at most once\nset partition.samples=0, or training.num_train_samples",
                     brim_partition_names[s->kind]);
  if (s->path[0] && s->kind != BRIM_PARTITION_FILE)
    return brim_fail(BRIM_ECONFIG, "'partition.path' applies only to partition=file, but the partition is %s",
                     brim_partition_names[s->kind]);
  if (!s->path[0] && s->kind == BRIM_PARTITION_FILE)
    return brim_fail(BRIM_ECONFIG, "'partition.path' is empty: partition=file needs a file\n"
                                   "set partition.path=FILE, such as the partition.csv of a run");
  return BRIM_OK;
}

/* Checks that there are enough samples for all clients. */
static brim_status check_counts(const brim_data *data, const brim_partition *p)
{
  const brim_partition_settings *s = &data->settings->partition;
  const int64_t shards = s->kind == BRIM_PARTITION_SHARDS ? s->shards : 1, least = s->min_samples;
  if (p->samples > UINT32_MAX)
    return brim_fail(BRIM_ECONFIG, "a federation has at most %lld training samples, but there are %lld",
                     (long long)UINT32_MAX, (long long)p->samples);
  if (shards > 1 && p->samples / p->clients < shards)
    return brim_fail(BRIM_ECONFIG,
                     "'partition.shards' is %lld for each of %lld clients: more shards than the %lld training samples\n"
                     "set partition.shards=%lld at most, or total_clients=%lld",
                     (long long)shards, (long long)p->clients, (long long)p->samples,
                     (long long)(p->samples / p->clients), (long long)(p->samples / shards));
  const bool shares = s->kind == BRIM_PARTITION_DIRICHLET_EACH;
  if (s->samples > 0 && s->samples < least)
    return brim_fail(BRIM_ECONFIG,
                     "'partition.samples' is %lld, but each client needs at least %lld "
                     "(partition.min_samples)",
                     (long long)s->samples, (long long)least);
  if (s->samples == 0 && p->samples / p->clients < least)
    return brim_fail(
        BRIM_ECONFIG,
        "'total_clients' is %lld, so %lld training samples give a client %lld, but each needs at least %lld "
        "(partition.min_samples)\nset total_clients=%lld at most%s",
        (long long)p->clients, (long long)p->samples, (long long)(p->samples / p->clients), (long long)least,
        (long long)(p->samples / least), shares ? ", or partition.samples=N for clients that share samples" : "");
  return BRIM_OK;
}

/* A partition from a file or from the dataset is not changed, so this checks that it meets the minimum. */
static brim_status check_least(const brim_data *data, const brim_partition *p)
{
  const int64_t least = data->settings->partition.min_samples;
  if (data->settings->partition.kind != BRIM_PARTITION_NATURAL && data->settings->partition.kind != BRIM_PARTITION_FILE)
    return BRIM_OK;
  for (int64_t k = 0; k < p->clients; k++)
    if (brim_partition_count(p, k) < least)
      return brim_fail(BRIM_ECONFIG,
                       "client %lld has %lld sample%s, but each needs at least %lld (partition.min_samples), and "
                       "partition=%s moves no samples\nset partition.min_samples=%lld",
                       (long long)k, (long long)brim_partition_count(p, k), brim_plural(brim_partition_count(p, k)),
                       (long long)least, brim_partition_names[data->settings->partition.kind], (long long)p->least);
  return BRIM_OK;
}

/* ---- sizes ---- */

/* Lists the distinct sizes of clients: at most two if samples are distributed evenly. */
static brim_status list_sizes(brim_partition *p)
{
  const bool is_even = !p->offset && p->classes == 0;
  const size_t room = is_even ? 2 : (size_t)p->clients;
  p->size = brim_try_malloc(room * sizeof *p->size);
  if (!p->size) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the sizes of %" PRId64 " clients", p->clients);
  if (is_even) {
    p->size[0] = p->samples / p->clients;
    p->size[1] = p->size[0] + 1;
    p->size_count = p->samples % p->clients > 0 ? 2 : 1;
  } else {
    for (int64_t k = 0; k < p->clients; k++) p->size[k] = brim_partition_count(p, k);
    qsort(p->size, (size_t)p->clients, sizeof *p->size, brim_by_int64);
    for (int64_t k = 0; k < p->clients; k++)
      if (p->size_count == 0 || p->size[p->size_count - 1] != p->size[k]) p->size[p->size_count++] = p->size[k];
    int64_t *less = brim_try_realloc(p->size, p->size_count * sizeof *p->size);
    p->size = less ? less : p->size;
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
  if (!p->round) return brim_fail(BRIM_ENOMEM_HOST, "no host memory to assign %" PRId64 " samples", p->samples);
  p->split = data->split;
  brim_permutation_init(&p->shuffle, p->seed, BRIM_STREAM_PARTITION, 0, (uint64_t)p->samples);
  brim_permutation_tabulate(&p->split, p->round);
  brim_permutation_tabulate(&p->shuffle, p->round + of_split);
  return BRIM_OK;
}

static brim_status assign(const brim_data *data, brim_partition *p)
{
  const brim_partition_settings *s = &data->settings->partition;
  if (s->kind == BRIM_PARTITION_IID)
    return s->sizes == BRIM_SIZES_UNIFORM ? BRIM_OK : brim_partition_cut(p, s->min_samples);
  if (s->kind == BRIM_PARTITION_FILE) return brim_partition_read(data, p);
  if (needs_labels(s->kind)) BRIM_TRY(read_labels(data, p));
  return s->kind == BRIM_PARTITION_DIRICHLET_EACH ? brim_partition_draw(data, p) : brim_partition_assign(data, p);
}

brim_status brim_partition_make(const brim_data *data, brim_partition *out)
{
  *out = (brim_partition){.clients = data->settings->total_clients,
                          .samples = data->count[BRIM_PART_TRAIN],
                          .seed = (uint64_t)data->settings->seed};
  BRIM_TRY(check_kind(data));
  BRIM_TRY(check_counts(data, out));
  brim_partition_sizes_init(out, &data->settings->partition);
  brim_status status = make_permutations(data, out);
  if (status == BRIM_OK) status = assign(data, out);
  if (status == BRIM_OK) status = list_sizes(out);
  if (status == BRIM_OK) status = check_least(data, out);
  if (status != BRIM_OK) brim_partition_release(out);
  return status;
}

brim_status brim_partition_label(const brim_data *data, const brim_partition *p, int64_t order, void *scratch,
                                 int32_t *out)
{
  if (!p->label) return brim_data_label(data, order, scratch, out);
  *out = p->label[order];
  return BRIM_OK;
}

void brim_partition_release(brim_partition *p)
{
  free(p->offset);
  free(p->index);
  free(p->first);
  free(p->size);
  free(p->round);
  free(p->label);
  *p = (brim_partition){0};
}
