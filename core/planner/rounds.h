/* Predicts the duration of a federation's rounds from device profiles. A client trains in a lane, which has only a part
 * of the threads, and so needs a profile of its own. */
#ifndef BRIM_PLANNER_ROUNDS_H
#define BRIM_PLANNER_ROUNDS_H
#include "planner/figures.h"

typedef struct brim_round_figures {
  double client_seconds; /* predicted for a client with the mean number of samples */
  double round_seconds;  /* predicted for the training of a round on all ranks, without evaluation */
  enum brim_basis basis;
} brim_round_figures;

/* [plan] Predicts the rounds of a choice with its lanes. First times the parts that the profile lacks, as
 * brim_planner_figures does; no plan may be placed meanwhile. ENOMEM_HOST, and errors of planning. */
brim_status brim_planner_round_figures(brim_planner *planner, const brim_choice *choice, brim_round_figures *out);
#endif
