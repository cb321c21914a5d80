/* For authors of learning-rate schedules: a schedule gives a factor for the optimizer's learning rate in each step.
 * Since ABI 1.10. */
#ifndef BRIM_SCHEDULE_H
#define BRIM_SCHEDULE_H
#include <stdint.h>

#include "brim/plugin.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_schedule_ops {
  uint32_t size;
  /* [step] Returns the factor for step `step`, counted from 0, in a run of `steps` steps (in a federation: rounds). It
   * must be finite, not negative, and a pure function of the arguments: a resumed run calls it again for the same
   * steps. */
  double (*factor)(const void *self, int64_t step, int64_t steps);
} brim_schedule_ops;

#ifdef __cplusplus
}
#endif
#endif
