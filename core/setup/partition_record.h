/* The record of a partition in a run's folder: each client's samples (partition.csv), and figures with a hash
 * (partition.json), so that a resumed run has the same clients as at its start. */
#ifndef BRIM_SETUP_PARTITION_RECORD_H
#define BRIM_SETUP_PARTITION_RECORD_H
#include "data/partition.h"

#define BRIM_PARTITION_TABLE_NAME "partition.csv"
#define BRIM_PARTITION_ROWS_MAX                                                                                        \
  (INT64_C(1) << 24) /* rows of the table; brim does not write larger tables, and says so */

/* [init] Writes both. EIO. */
brim_status brim_partition_record_write(const brim_data *data, const brim_partition *partition, const char *run);
/* [init] ELOAD if the run began with another partition. OK for a folder without the record. */
brim_status brim_partition_record_check(const brim_partition *partition, const char *run);
#endif
