/* The features that a model is trained on (setup/features.h), computed on the run's device before training. */
#ifndef BRIM_DRIVE_EXTRACT_H
#define BRIM_DRIVE_EXTRACT_H
#include "drive/drive.h"

/* [init] Computes the features and writes their file, if the drive reads data and no file has the features; does
 * nothing for models that are trained on samples. EIO, and the statuses of placing and running a plan. */
brim_status brim_extract_features(brim_drive *drive);
/* [plan] Peak bytes of the plan that computes the features, which is placed and freed before training; 0 if a file has
 * them or the model is trained on samples. */
brim_status brim_extract_peak(const brim_drive *drive, uint64_t *bytes);
#endif
