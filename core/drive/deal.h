/* How a step's samples are dealt to the ranks: to each as many, or, where devices differ and dist.deal=auto, to each as
 * many as lets all finish together. What was found is part of the run: its plan.json has it, and a run that is gone on
 * with by as many ranks deals as before, in the same micro-batches. */
#ifndef BRIM_DRIVE_DEAL_H
#define BRIM_DRIVE_DEAL_H
#include <jansson.h>

#include "base/text.h"
#include "dist/dist.h"

struct brim_drive;

/* ---- the ranks agree ---- */

/* [init] Settles the drive (brim_drive_settle), and the first time finds with the other ranks how samples are
 * dealt; the plan is then made for the run's own share. Every rank calls it: `before`, with the thread's error
 * text, is what came of opening the drive, which need not be there if that is not OK. *drive may be another
 * afterwards. All ranks know of any failure, each of its own, or EPEER; ECOMM: the job is over. */
brim_status brim_deal_settle(brim_dist *dist, brim_status before, struct brim_drive **drive);
/* [init] All ranks call it when their plans are placed, before a run's files are written: afterwards the drive knows
 * each rank's micro-batch. ECOMM. */
brim_status brim_deal_exchange_batches(struct brim_drive *drive);

/* ---- a run's files ---- */

/* Adds to what plan.json holds; nothing for one rank. */
void brim_deal_describe(const struct brim_drive *drive, json_t *plan);
/* "effective batch 128 = 2 ranks x 64 x 1"; where ranks differ, also what this one has of it. */
void brim_deal_tell(const struct brim_drive *drive, brim_text *out);
#endif
