/* Learning-rate schedules: what an optimizer's learning rate is multiplied by in each step. Since ABI 1.10. */
#ifndef BRIM_SCHEDULE_H
#define BRIM_SCHEDULE_H
#include <stdint.h>

#include "brim/plugin.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_schedule_ops {
  uint32_t size;
  /* [step] Returns the factor of step `step`, counted from 0, of a run of `steps` steps (in a federation: rounds).
   * Finite, not negative, and a pure function of its arguments: a resumed run asks for the same steps again. */
  double (*factor)(const void *self, int64_t step, int64_t steps);
} brim_schedule_ops;

#ifdef __cplusplus
}
#endif
#endif
