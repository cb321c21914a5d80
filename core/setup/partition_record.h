/* What a run's folder keeps of its partition: who has which samples (partition.csv), and its figures with a hash
 * (partition.json), so that a run is resumed with the clients that it began with. */
#ifndef BRIM_SETUP_PARTITION_RECORD_H
#define BRIM_SETUP_PARTITION_RECORD_H
#include "data/partition.h"

#define BRIM_PARTITION_TABLE_NAME "partition.csv"
#define BRIM_PARTITION_RECORD_NAME "partition.json"
#define BRIM_PARTITION_ROWS_MAX (INT64_C(1) << 24) /* of the table; with more it is not written, and that is said */

/* [init] Writes both. EIO. */
brim_status brim_partition_record_write(const brim_data *data, const brim_partition *partition, const char *run);
/* [init] ELOAD: that is not the partition that the run began with. A folder without the record passes. */
brim_status brim_partition_record_check(const brim_partition *partition, const char *run);
#endif
