/* The facts about its CSV files that a run saves, so that it reads other files in the same way:
 *
 *     {"features": [{"name": "a", "mean": 1.5, "deviation": 0.2}, ...], "targets": ["y"], "rows in a sample": 0} */
#ifndef CSV_KEPT_H
#define CSV_KEPT_H
#include "set.h"

/* [init] Makes the JSON of an open set, to be freed. ENOMEM_HOST. */
brim_status csv_kept_make(const csv_set *set, char **json);
/* [init] Makes a set without samples that reads files like the saved one. ELOAD if the JSON is not a saved set,
 * ECONFIG, ENOMEM_HOST; *out is then empty. */
brim_status csv_kept_read(const csv_params *params, const char *json, csv_set *out);
#endif
