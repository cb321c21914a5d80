/* Which of the training samples each client of a federation has.
 *
 * A client is a view of the one dataset: it has no copy, no loader and no thread of its own. The dealing follows from
 * the seed, the number of clients and the labels alone, so it is the same for every model, backend and machine. Evenly
 * at random needs no table: a permutation of all samples is cut into pieces. With dirichlet_each a client's samples are
 * drawn by (seed, client, place) whenever they are asked for, which takes 4 bytes a sample of the dataset and none a
 * client. The others keep 8 bytes a client and 4 a sample. Training samples are counted from 0 in the order of the
 * split (see brim_data); there are fewer than 2^32. */
#ifndef BRIM_DATA_PARTITION_H
#define BRIM_DATA_PARTITION_H
#include "data/data.h"

/* How the numbers of samples of clients differ. */
typedef struct brim_partition_sizes {
  int32_t kind; /* enum brim_sizes */
  double sigma, exponent;
  brim_permutation rank; /* of a client by size, with a power law */
  double scale;          /* of drawn clients: samples for each unit of weight */
  int64_t least;
} brim_partition_sizes;

#define BRIM_DRAWN_CLASSES_MAX 4096
#define BRIM_DRAWN_SAMPLES_MAX (INT64_C(1) << 31) /* of a client */

typedef struct brim_partition {
  int64_t clients;
  int64_t samples; /* of all clients; drawn with replacement, one counts as often as clients have it */
  uint64_t seed;
  brim_permutation split;   /* of the data: see brim_data */
  brim_permutation shuffle; /* without a table: sample i of the order is shuffle(i) */
  uint32_t *round;          /* that these two look up */
  int64_t *offset; /* [clients + 1] where a client's samples begin; NULL: all have as many, or they are drawn */
  uint32_t *index; /* client after client; of drawn ones all samples, class after class; NULL: no table */
  int32_t *label;  /* the class of each training sample, where labels decided; NULL: they were not read */
  brim_partition_sizes sizes;
  /* Of clients whose samples are drawn as they are asked for, with replacement: */
  int64_t classes; /* that have samples; 0: nothing is drawn */
  int64_t *first;  /* [classes + 1] into index */
  double alpha;
  int64_t least, most; /* samples of a client */
  int64_t *size;       /* [size_count] the different numbers of samples that clients have, ascending */
  size_t size_count;
  int64_t moved; /* samples that clients with too few got from others */
} brim_partition;

/* The samples of a client in the order of one of its epochs. */
struct brim_client_order {
  int64_t epoch;
  int64_t *sample; /* numbers in the dataset's training split */
  uint32_t *round; /* that the permutation looks up */
};

extern const char *const brim_partition_names[]; /* by enum brim_partition_kind */

/* [init] Deals the training samples of `data` to the clients that the settings ask for. The data must be opened where
 * brim_partition_reads_data says so. ECONFIG: there are fewer samples than clients or shards, the labels are no
 * classes, or the partition's file is no partition of the samples; ENOMEM_HOST; what the dataset says. The caller
 * releases it. */
brim_status brim_partition_make(const brim_data *data, brim_partition *out);
/* [init] Writes a line for each sample of each client, as CSV: the client, its number in the dataset's training
 * split, and its class. Without the class where there are no classes, or where they could only be read by decoding
 * pictures. The data must be opened. EIO, ENOMEM_HOST, what the dataset says. */
brim_status brim_partition_write(const brim_data *data, const brim_partition *partition, const char *path);
/* [init] Of which client has which samples, in which order: 64-bit FNV-1a. The same for a partition and its file. */
uint64_t brim_partition_hash(const brim_partition *partition);
void brim_partition_release(brim_partition *partition);
/* Must the data be opened for it? */
bool brim_partition_reads_data(const brim_settings *settings);
/* [any thread] How many samples a client has. */
int64_t brim_partition_count(const brim_partition *partition, int64_t client);
/* [any thread] The i-th sample of a client, counted in the order of the split (see brim_data_label), and by its number
 * in the dataset's training split. */
int64_t brim_partition_order(const brim_partition *partition, int64_t client, int64_t i);
int64_t brim_partition_at(const brim_partition *partition, int64_t client, int64_t i);
/* [init] The class of a training sample, counted in the order of the split: as the partition has it, or read as by
 * brim_data_label. */
brim_status brim_partition_label(const brim_data *data, const brim_partition *partition, int64_t order, void *scratch,
                                 int32_t *out);

/* [init] Room for the order of the client with the most samples, and its bytes. ENOMEM_HOST; the caller closes it all
 * the same. */
brim_status brim_client_order_open(const brim_partition *partition, brim_client_order *out);
void brim_client_order_close(brim_client_order *order);
uint64_t brim_client_order_bytes(const brim_partition *partition);
/* [step, any thread] The order follows from seed, client and `epoch`, which counts the epochs of all rounds. */
void brim_client_order_make(brim_client_order *order, const brim_partition *partition, int64_t client, int64_t epoch);
#endif
