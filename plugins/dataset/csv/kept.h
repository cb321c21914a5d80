/* What a run keeps of its CSV files, so that other files are read as its own were:
 *
 *     {"features": [{"name": "a", "mean": 1.5, "deviation": 0.2}, ...], "targets": ["y"], "rows in a sample": 0} */
#ifndef CSV_KEPT_H
#define CSV_KEPT_H
#include "set.h"

/* [init] Of a set that is open, as JSON, to be freed. ENOMEM_HOST. */
brim_status csv_kept_make(const csv_set *set, char **json);
/* [init] A set that has no samples, but reads files as the one that was kept. ELOAD if this is none, ECONFIG,
 * ENOMEM_HOST; *out is then empty. */
brim_status csv_kept_read(const csv_params *params, const char *json, csv_set *out);
#endif
