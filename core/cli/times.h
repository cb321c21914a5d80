/* Where a step's time goes, as brim plan --times shows it. */
#ifndef BRIM_CLI_TIMES_H
#define BRIM_CLI_TIMES_H
#include <jansson.h>

#include "base/text.h"
#include "planner/times.h"

void brim_cli_print_times(const brim_times *times, brim_text *out);
json_t *brim_cli_times_json(const brim_times *times);
#endif
