/* The training samples of each client of a federation.
 *
 * A client is a view of the dataset: it has no copy, loader or thread of its own. The partition depends only on the
 * seed, the number of clients and the labels, so it is the same for every model, backend and machine. An even random
 * partition needs no table: a permutation of all samples is cut into pieces. With dirichlet_each a client's samples are
 * drawn by (seed, client, place) on demand, which takes 4 bytes per sample of the dataset and none per client. Other
 * partitions store 8 bytes per client and 4 per sample. Training samples are counted from 0 in the order of the split
 * (see brim_data); there are fewer than 2^32. */
#ifndef BRIM_DATA_PARTITION_H
#define BRIM_DATA_PARTITION_H
#include "data/data.h"

/* The distribution of clients' numbers of samples. */
typedef struct brim_partition_sizes {
  int32_t kind; /* enum brim_sizes */
  double sigma, exponent;
  brim_permutation rank; /* the rank of a client by size, for the power law */
  double scale;          /* samples per unit of weight, if samples are drawn */
  int64_t least;
} brim_partition_sizes;

#define BRIM_DRAWN_CLASSES_MAX 4096
#define BRIM_DRAWN_SAMPLES_MAX (INT64_C(1) << 31) /* per client */

typedef struct brim_partition {
  int64_t clients;
  int64_t samples; /* samples of all clients; if samples are drawn, a sample counts each time that it is drawn */
  uint64_t seed;
  brim_permutation split;   /* the permutation of the data: see brim_data */
  brim_permutation shuffle; /* without a table: sample i of the order is shuffle(i) */
  uint32_t *round;          /* lookup tables of `split` and `shuffle` */
  int64_t *offset; /* [clients + 1] where each client's samples start; NULL: all clients have the same number, or
                      samples are drawn */
  /* Samples of client after client; if samples are drawn, all samples, class after class; NULL: no table. */
  uint32_t *index;
  int32_t *label; /* the class of each training sample, for partitions by label; NULL: not read */
  brim_partition_sizes sizes;
  /* For clients whose samples are drawn on demand, with replacement: */
  int64_t classes; /* classes that have samples; 0: samples are not drawn */
  int64_t *first;  /* [classes + 1] into index */
  double alpha;
  int64_t least, most; /* samples of a client */
  int64_t *size;       /* [size_count] the distinct numbers of samples of clients, ascending */
  size_t size_count;
  int64_t moved; /* number of samples moved to clients with too few */
} brim_partition;

/* The samples of a client in the order of one of its epochs. */
struct brim_client_order {
  int64_t epoch;
  int64_t *sample; /* the samples' numbers in the dataset's training split */
  uint32_t *round; /* lookup table of the permutation */
};

extern const char *const brim_partition_names[]; /* indexed by enum brim_partition_kind */

/* [init] Distributes the training samples of `data` to the clients that the settings ask for. The data must be open if
 * brim_partition_reads_data returns true. ECONFIG: there are fewer samples than clients or shards, the labels are not
 * classes, or the partition's file does not match the samples; ENOMEM_HOST; the dataset's errors. The caller releases
 * *out. */
brim_status brim_partition_make(const brim_data *data, brim_partition *out);
/* [init] Writes a CSV line for each sample of each client: the client, the sample's number in the dataset's training
 * split, and its class. Omits the class if there are no classes, or if reading them would mean decoding images. The
 * data must be open. EIO, ENOMEM_HOST, the dataset's errors. */
brim_status brim_partition_write(const brim_data *data, const brim_partition *partition, const char *path);
/* [init] A 64-bit FNV-1a hash of each client's samples in their order. A partition and its file have the same hash. */
uint64_t brim_partition_hash(const brim_partition *partition);
void brim_partition_release(brim_partition *partition);
/* Whether brim_partition_make needs open data. */
bool brim_partition_reads_data(const brim_settings *settings);
/* [any thread] The number of samples of a client. */
int64_t brim_partition_count(const brim_partition *partition, int64_t client);
/* [any thread] The i-th sample of a client: its position in the order of the split (see brim_data_label), and its
 * number in the dataset's training split. */
int64_t brim_partition_order(const brim_partition *partition, int64_t client, int64_t i);
int64_t brim_partition_at(const brim_partition *partition, int64_t client, int64_t i);
/* [init] The class of a training sample, counted in the order of the split: from the partition, or read with
 * brim_data_label. */
brim_status brim_partition_label(const brim_data *data, const brim_partition *partition, int64_t order, void *scratch,
                                 int32_t *out);

/* [init] Allocates room for the order of the client with the most samples, and returns its bytes. ENOMEM_HOST; call
 * close in any case. */
brim_status brim_client_order_open(const brim_partition *partition, brim_client_order *out);
void brim_client_order_close(brim_client_order *order);
uint64_t brim_client_order_bytes(const brim_partition *partition);
/* [step, any thread] The order follows from seed, client and `epoch`, which counts the epochs of all rounds. */
void brim_client_order_make(brim_client_order *order, const brim_partition *partition, int64_t client, int64_t epoch);
#endif
