/* Peaks of plans that were asked for: a plan is a function of its device and choice. */
#ifndef BRIM_PLANNER_PEAKS_H
#define BRIM_PLANNER_PEAKS_H
#include "planner/planner.h"

brim_peaks *brim_peaks_create(void);
void brim_peaks_free(brim_peaks *peaks);
/* Of choices with their budgets, see brim_planner_budget. False: it is not known. */
bool brim_peaks_find(const brim_peaks *peaks, int device, const brim_choice *choice, uint64_t *bytes);
void brim_peaks_keep(brim_peaks *peaks, int device, const brim_choice *choice, uint64_t bytes);
/* When the rank has other samples of a step. */
void brim_peaks_forget(brim_peaks *peaks);
#endif
