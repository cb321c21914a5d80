/* Finds and prints the plan of each rank of a job, for `brim plan` with dist.ranks. */
#ifndef BRIM_CLI_RANKS_H
#define BRIM_CLI_RANKS_H
#include <jansson.h>

#include "cli/cli.h"
#include "drive/drive.h"

/* Ranks with the same number of samples per step and plans of the same size. */
typedef struct brim_rank_group {
  brim_load load; /* load of the first rank of the group */
  int32_t *rank;
  int32_t count;
  int64_t batch, micros; /* samples in a micro-batch; micro-batches in a full step */
  char cut[BRIM_CUT_ROOM];
  uint64_t peak_bytes;
} brim_rank_group;

/* A zeroed struct is ready for use. */
typedef struct brim_ranks {
  brim_rank_group *group; /* in the order of their first ranks */
  size_t count;
} brim_ranks;

void brim_cli_ranks_release(brim_ranks *ranks);
/* The number of ranks to plan for. */
int32_t brim_cli_planned_ranks(const brim_settings *settings);
/* [plan] Finds the plans of all ranks of a job. Rank 0's are `drive` and `plan`; for each other rank, makes a drive on
 * this machine and suppresses its log messages. The result is empty for a single rank. */
brim_status brim_cli_find_ranks(const brim_cli *cli, const brim_drive *drive, const brim_plan *plan, brim_ranks *out);
void brim_cli_print_ranks(const brim_ranks *ranks, brim_text *out);
json_t *brim_cli_ranks_json(const brim_ranks *ranks);
#endif
