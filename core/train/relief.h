/* What a run says and does when memory is short: see memory/pressure.h for when. */
#ifndef BRIM_TRAIN_RELIEF_H
#define BRIM_TRAIN_RELIEF_H
#include "base/text.h"
#include "memory/pressure.h"
#include "train/trainer.h"

/* [init] The thread that looks, by the run's keys; NULL if they say never. ENOMEM_HOST. */
brim_status brim_relief_watch(const brim_trainer *trainer, brim_pressure **out);
/* [step] The device and the bytes that are the trainer's now; NULL: none, before they go. None either for a run whose
 * policy follows the device from step to step (`elastic`): what it gives others is for them to take. */
void brim_relief_aim(const brim_trainer *trainer, brim_pressure *pressure);
/* "Warning at round 30: RAM at 87.3%, GPU at 91.2%" */
void brim_relief_line(const brim_drive *drive, const brim_pressure_reading *reading, bool acts, int64_t round,
                      brim_text *out);
/* All that was seen, in bytes too. */
void brim_relief_detail(const brim_pressure_reading *reading, brim_text *out);
/* [step] Cleans up, and says what it freed, as the system that brim replaces says it, in GB. */
void brim_relief_clean(brim_trainer *trainer, const char *run_dir, enum brim_cleanup cleanup);
#endif
