/* environment.jsonl: a line for each process of a run, with the facts that a reader needs to repeat or to explain the
 * run: host, versions, libraries, driver, command line, the commit of the working folder, device and plan. */
#ifndef BRIM_TRAIN_ENVIRONMENT_H
#define BRIM_TRAIN_ENVIRONMENT_H
#include "train/trainer.h"

#define BRIM_ENVIRONMENT_NAME "environment.jsonl"

/* Appends the line of this process. If that fails, only warns. */
void brim_environment_write(const char *dir, const brim_drive *drive, const brim_plan *plan, int64_t step);
#endif
