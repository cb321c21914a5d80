/* The frontier of plans, as brim plan shows it. */
#ifndef BRIM_CLI_FRONTIER_H
#define BRIM_CLI_FRONTIER_H
#include <jansson.h>

#include "base/text.h"
#include "planner/frontier.h"

void brim_cli_print_frontier(const brim_frontier *frontier, const brim_setup *setup, brim_text *out);
json_t *brim_cli_frontier_json(const brim_frontier *frontier, const brim_setup *setup);
#endif
