#include "setup/partition_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "store/record.h"
#include "store/rundir.h"

#define HASH_ROOM 17

static const char *format_hash(const brim_partition *p, char out[HASH_ROOM])
{
  snprintf(out, HASH_ROOM, "%016" PRIx64, brim_partition_hash(p));
  return out;
}

static brim_status write_table(const brim_data *data, const brim_partition *p, const char *run)
{
  char path[BRIM_PATH_MAX];
  if (p->samples <= BRIM_PARTITION_ROWS_MAX) {
    BRIM_TRY(brim_path_join(path, run, BRIM_PARTITION_TABLE_NAME));
    return brim_partition_write(data, p, path);
  }
  brim_log(BRIM_LOG_INFO,
           "partition: no " BRIM_PARTITION_TABLE_NAME " of %" PRId64
           " rows; brim federate --from RUN --export-partition FILE writes one",
           p->samples);
  return BRIM_OK;
}

brim_status brim_partition_record_write(const brim_data *data, const brim_partition *p, const char *run)
{
  char hash[HASH_ROOM];
  BRIM_TRY(write_table(data, p, run));
  json_t *record =
      json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:s}", "kind", brim_partition_names[data->settings->partition.kind],
                "clients", (json_int_t)p->clients, "samples", (json_int_t)p->samples, "least", (json_int_t)p->least,
                "most", (json_int_t)p->most, "moved", (json_int_t)p->moved, "hash", format_hash(p, hash));
  const brim_status status = record ? brim_record_write(run, BRIM_RUN_PARTITION_NAME, record)
                                    : brim_fail(BRIM_ENOMEM_HOST, "no host memory for the partition's record");
  json_decref(record);
  return status;
}

brim_status brim_partition_record_check(const brim_partition *p, const char *run)
{
  char hash[HASH_ROOM];
  json_t *record = NULL;
  BRIM_TRY(brim_record_read(run, BRIM_RUN_PARTITION_NAME, &record));
  if (!record) return BRIM_OK;
  const char *was = json_string_value(json_object_get(record, "hash"));
  brim_status status = BRIM_OK;
  if (!was)
    status = brim_fail(BRIM_ELOAD, "'%s/" BRIM_RUN_PARTITION_NAME "' has no 'hash'", run);
  else if (strcmp(was, format_hash(p, hash)) != 0)
    status = brim_fail(BRIM_ELOAD,
                       "clients have other samples than when '%s' began: the hash of the partition is %s, "
                       "but " BRIM_RUN_PARTITION_NAME
                       " says %s\nthe labels of the dataset or the file partition.path have changed since",
                       run, hash, was);
  json_decref(record);
  return status;
}
