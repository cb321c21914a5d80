/* Plans of a real model and data, in the place of a scenario's model of them. */
#ifndef BRIM_SIMULATE_REAL_PLANS_H
#define BRIM_SIMULATE_REAL_PLANS_H
#include "drive/drive.h"
#include "planner/figures.h"

typedef struct brim_real_plans brim_real_plans;

/* [init] Of a configuration, which must outlive it: reads what its data are like, and nothing is timed. Those of
 * brim_drive_open. */
brim_status brim_real_plans_open(const brim_config *config, brim_real_plans **out);
void brim_real_plans_close(brim_real_plans *plans); /* NULL: nothing */
const brim_drive *brim_real_plans_drive(const brim_real_plans *plans);
/* Figures of a choice with its budget, remembered. */
brim_status brim_real_plans_figures(brim_real_plans *plans, const brim_choice *choice, brim_figures *out);
#endif
