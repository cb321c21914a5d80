/* Between the files of partitions: partition.c asks, partition_table.c deals samples that belong to one client each,
 * partition_raise.c sees to the least, partition_random.c draws, partition_file.c writes and reads. */
#ifndef BRIM_DATA_PARTITION_PARTS_H
#define BRIM_DATA_PARTITION_PARTS_H
#include "data/partition.h"

/* Streams of BRIM_STREAM_PARTITION. A permutation has those below 8, and a class has one: its number more than
 * BRIM_PARTITION_CLASS. */
enum { BRIM_PARTITION_CLASS = 2, BRIM_PARTITION_SIZE = 0xFFFFFD, BRIM_PARTITION_PLACE = 0xFFFFFE };

/* ---- partition_random.c ---- */

/* Shares of one class, a client each, that add up to 1: from Dirichlet(alpha, ..., alpha). */
void brim_partition_class_shares(uint64_t seed, int64_t class, double alpha, int64_t clients, double *share);
/* How sizes of clients differ; then what a client's size is proportional to. */
void brim_partition_sizes_init(brim_partition *partition, const brim_partition_settings *settings);
double brim_partition_weight(const brim_partition *partition, int64_t client);
/* dirichlet_each: what it keeps, and then a client's samples. ECONFIG, ENOMEM_HOST. */
brim_status brim_partition_draw(const brim_data *data, brim_partition *partition);
int64_t brim_partition_drawn_count(const brim_partition *partition, int64_t client);
int64_t brim_partition_drawn_at(const brim_partition *partition, int64_t client, int64_t place);

/* ---- partition_table.c ---- */

/* Training samples by class, within a class in an order of the seed's: first[k] is where class k begins, of
 * classes + 1. ENOMEM_HOST. */
brim_status brim_partition_sort(const brim_partition *partition, int64_t classes, uint32_t *sorted, int64_t *first);
/* Deals every sample to a client: dirichlet, shards, classes, natural. ECONFIG, ENOMEM_HOST. */
brim_status brim_partition_deal(const brim_data *data, brim_partition *partition);
/* iid with sizes that differ: where each client begins in the order of all samples. */
brim_status brim_partition_cut(brim_partition *partition, int64_t least);
/* The table of each client's samples: sample[i] goes to owner[i], in this order. Offsets are zero before. */
void brim_partition_fill(brim_partition *partition, const uint32_t *sample, const int64_t *owner);

/* ---- partition_raise.c ---- */

/* Gives clients with fewer than `least` samples some of those with the most, in one pass: the richest give down to what
 * the next richest has, or to the mean. Of samples with an owner, owners' last ones go; else of `count`, the samples of
 * each client. One of the two is NULL. ENOMEM_HOST. */
brim_status brim_partition_raise(brim_partition *partition, int64_t least, int64_t *count, int64_t *owner);

/* ---- partition_file.c ---- */

/* Of each sample of the training split, the training sample + 1 that it is. Zero before. */
void brim_partition_number(const brim_partition *partition, uint32_t *number);
/* Reads partition.path. ECONFIG with file, line and column; ENOMEM_HOST. */
brim_status brim_partition_read(const brim_data *data, brim_partition *partition);
#endif
