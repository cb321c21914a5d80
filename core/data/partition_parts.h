/* Declarations shared by the files of partitions: partition.c is the interface, partition_table.c makes partitions in
 * which each sample belongs to one client, partition_raise.c enforces the minimum, partition_random.c draws,
 * partition_file.c writes and reads. */
#ifndef BRIM_DATA_PARTITION_PARTS_H
#define BRIM_DATA_PARTITION_PARTS_H
#include "data/partition.h"

/* Streams of BRIM_STREAM_PARTITION. Permutations use numbers below 8, and each class one stream: its number plus
 * BRIM_PARTITION_CLASS. */
enum { BRIM_PARTITION_CLASS = 2, BRIM_PARTITION_SIZE = 0xFFFFFD, BRIM_PARTITION_PLACE = 0xFFFFFE };

/* ---- partition_random.c ---- */

/* Computes the shares of one class, one per client, whose sum is 1, from Dirichlet(alpha, ..., alpha). */
void brim_partition_class_shares(uint64_t seed, int64_t class, double alpha, int64_t clients, double *share);
/* Initialize the distribution of clients' sizes; compute the weight of a client, to which its size is proportional. */
void brim_partition_sizes_init(brim_partition *partition, const brim_partition_settings *settings);
double brim_partition_weight(const brim_partition *partition, int64_t client);
/* dirichlet_each: prepare the tables, and draw a client's samples. ECONFIG, ENOMEM_HOST. */
brim_status brim_partition_draw(const brim_data *data, brim_partition *partition);
int64_t brim_partition_drawn_count(const brim_partition *partition, int64_t client);
int64_t brim_partition_drawn_at(const brim_partition *partition, int64_t client, int64_t place);

/* ---- partition_table.c ---- */

/* Sorts training samples by class, shuffled within each class. first [classes + 1]: first[k] is the start of class k.
 * ENOMEM_HOST. */
brim_status brim_partition_sort(const brim_partition *partition, int64_t classes, uint32_t *sorted, int64_t *first);
/* Assigns every sample to a client, for dirichlet, shards, classes and natural. ECONFIG, ENOMEM_HOST. */
brim_status brim_partition_assign(const brim_data *data, brim_partition *partition);
/* For iid with different sizes: computes where each client's samples start in the order of all samples. */
brim_status brim_partition_cut(brim_partition *partition, int64_t least);
/* Makes the table of each client's samples: client owner[i] gets sample[i], in this order. Offsets must be zeroed. */
void brim_partition_fill(brim_partition *partition, const uint32_t *sample, const int64_t *owner);

/* ---- partition_raise.c ---- */

/* Moves samples from the clients with the most to those with fewer than `least`, in one pass: the clients with the most
 * give samples until they have as many as the next largest clients, or the mean. With `owner`, the last samples of each
 * owner move; with `count`, the numbers of samples change. One of the two is NULL. ENOMEM_HOST. */
brim_status brim_partition_raise(brim_partition *partition, int64_t least, int64_t *count, int64_t *owner);

/* ---- partition_file.c ---- */

/* Sets number[s], for sample s of the dataset's training split, to 1 + its training sample. The caller zeroes the
 * array: 0 means that s is not a training sample. */
void brim_partition_number(const brim_partition *partition, uint32_t *number);
/* Reads partition.path. ECONFIG with file, line and column; ENOMEM_HOST. */
brim_status brim_partition_read(const brim_data *data, brim_partition *partition);
#endif
