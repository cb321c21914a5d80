/* Resolves precision=auto from the drive's device, before anything is planned. A run records the result in its
 * configuration, so that a resumed run has the same type on any device. */
#ifndef BRIM_DRIVE_PRECISION_H
#define BRIM_DRIVE_PRECISION_H
#include <jansson.h>

#include "drive/drive.h"

/* [init] Resolves precision=auto for the chosen device and reports the result, unless it is the default fp32. `before`:
 * the precision of the drive that this one replaces, or -1. A run that has begun keeps that precision. Also reports a
 * recorded precision that `auto` chose for another device. */
void brim_precision_settle(brim_drive *drive, int32_t before);
/* [init] Returns false if precision=auto has led to different precisions, because the ranks' devices differ. The caller
 * must then call brim_drive_remake; the new drive uses fp32, which all devices support. `all`: the ranks'
 * precisions. */
bool brim_precision_agree(brim_drive *drive, const int32_t *all, int32_t ranks);
/* [init] Adds "precision" to a plan in JSON, and whether `auto` chose it, for this run or for the run that its
 * configuration comes from. */
void brim_precision_describe(const brim_setup *setup, json_t *plan);
/* [init] Replaces `auto` in the resolved tree of a configuration by the setup's precision, before a run writes it. */
void brim_precision_record(brim_config *config, const brim_setup *setup);
#endif
