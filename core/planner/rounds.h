/* How long rounds of a federation take, by device profiles: a client trains in a lane, which has its share of the
 * threads, and so a profile of its own. */
#ifndef BRIM_PLANNER_ROUNDS_H
#define BRIM_PLANNER_ROUNDS_H
#include "planner/figures.h"

typedef struct brim_round_figures {
  double client_seconds; /* predicted, of a client with the mean number of samples */
  double round_seconds;  /* of training, on all ranks; evaluation comes besides */
  enum brim_basis basis;
} brim_round_figures;

/* [plan] By a choice's lanes. What the profile lacks is timed before, as by brim_planner_figures: then no plan may be
 * placed. ENOMEM_HOST, and what planning returns. */
brim_status brim_planner_round_figures(brim_planner *planner, const brim_choice *choice, brim_round_figures *out);
#endif
