/* The facts about its CSV files that a run saves, so that other files can be read in the same way:
 *
 *     {"features": [{"name": "a", "mean": 1.5, "deviation": 0.2}, ...], "targets": ["y"], "rows in a sample": 0} */
#ifndef CSV_KEPT_H
#define CSV_KEPT_H
#include "set.h"

/* [init] Makes the JSON of an open set; the caller frees it. Returns ENOMEM_HOST if there is no memory. */
brim_status csv_kept_make(const csv_set *set, char **json);
/* [init] Makes a set without samples that reads files in the same way as the saved one. Returns ELOAD if the JSON is
 * not a saved set, ECONFIG, or ENOMEM_HOST; *out is then empty. */
brim_status csv_kept_read(const csv_params *params, const char *json, csv_set *out);
#endif
