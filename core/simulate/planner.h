/* Plans of a real model and data, in the place of a scenario's model of them. */
#ifndef BRIM_SIMULATE_PLANNER_H
#define BRIM_SIMULATE_PLANNER_H
#include "session/figures.h"
#include "session/session.h"

typedef struct brim_planner brim_planner;

/* [init] Of a configuration, which must outlive it: reads what its data are like, and nothing is timed. Those of
 * brim_session_open. */
brim_status brim_planner_open(const brim_config *config, brim_planner **out);
void brim_planner_close(brim_planner *planner); /* NULL: nothing */
const brim_session *brim_planner_session(const brim_planner *planner);
/* Figures of a plan of which recompute=auto keeps below `budget_bytes`, remembered. */
brim_status brim_planner_figures(brim_planner *planner, const brim_choice *choice, uint64_t budget_bytes,
                                 brim_figures *out);
#endif
