/* Divides a step's samples among the ranks: evenly or, if devices differ and dist.deal=auto, so that all ranks finish
 * at the same time. The division is part of the run: plan.json records it, and a run that resumes with the same number
 * of ranks keeps it, and its micro-batches. */
#ifndef BRIM_DRIVE_DISTRIBUTE_H
#define BRIM_DRIVE_DISTRIBUTE_H
#include <jansson.h>

#include "base/text.h"
#include "dist/dist.h"

struct brim_drive;

/* ---- the ranks agree ---- */

/* [init] Settles the drive (brim_drive_settle). In the first call the ranks also agree on their shares of a step, and
 * this rank plans for its own. Every rank calls it. `before`, with the thread's error text, is the status of opening
 * the drive; if it is not OK, *drive may be NULL. *drive may be replaced. All ranks learn of any failure: each returns
 * its own, or EPEER. ECOMM: the job has failed. */
brim_status brim_distribution_settle(brim_dist *dist, brim_status before, struct brim_drive **drive);
/* [init] All ranks call it when their plans are placed, before the run's files are written: afterwards the drive knows
 * each rank's micro-batch. ECOMM. */
brim_status brim_distribution_exchange_batches(struct brim_drive *drive);

/* ---- a run's files ---- */

/* Adds the ranks' shares to plan.json; adds nothing for one rank. */
void brim_distribution_describe(const struct brim_drive *drive, json_t *plan);
/* Prints "effective batch 128 = 2 ranks x 64 x 1"; where ranks differ, also this rank's share. */
void brim_distribution_print(const struct brim_drive *drive, brim_text *out);
#endif
