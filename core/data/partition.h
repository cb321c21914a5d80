/* Which of the training samples each client of a federation has.
 *
 * A client is a view of the one dataset: it has no copy, no loader and no thread of its own. The dealing follows from
 * the seed, the number of clients and the labels alone, so it is the same for every model, backend and machine. Evenly
 * at random needs no table: a permutation of all samples is cut into pieces. The others keep 8 bytes a client and 4 a
 * sample. Training samples are counted from 0 in the order of the split (see brim_data); there are fewer than 2^32. */
#ifndef BRIM_DATA_PARTITION_H
#define BRIM_DATA_PARTITION_H
#include "data/data.h"

struct brim_partition {
  int64_t clients, samples; /* in all */
  uint64_t seed;
  brim_permutation shuffle; /* without a table: sample i of the order is shuffle(i) */
  int64_t *offset;          /* [clients + 1] into index; NULL: there is no table */
  uint32_t *index;          /* [samples], client after client */
  int64_t least, most;      /* samples of a client */
  int64_t *size;            /* [size_count] the different numbers of samples that clients have, ascending */
  size_t size_count;
  int64_t moved; /* samples that clients with too few got from others */
};

/* [init] Deals the training samples of `data` to the clients that the settings ask for. The data must be opened where
 * labels decide (dirichlet, shards). ECONFIG: there are fewer samples than clients or shards, or the labels are no
 * classes; ENOMEM_HOST; what the dataset says. The caller releases it. */
brim_status brim_partition_make(const brim_data *data, brim_partition *out);
/* [init] Writes a line for each training sample, as CSV: the client that has it, and its number in the dataset's
 * training split. EIO. */
brim_status brim_partition_write(const brim_data *data, const brim_partition *partition, const char *path);
void brim_partition_release(brim_partition *partition);
/* Must the data be opened for it? */
bool brim_partition_reads_labels(const brim_settings *settings);
/* [any thread] How many samples a client has. */
int64_t brim_partition_count(const brim_partition *partition, int64_t client);
/* [any thread] The training sample that is the i-th of a client. */
int64_t brim_partition_at(const brim_partition *partition, int64_t client, int64_t i);
#endif
