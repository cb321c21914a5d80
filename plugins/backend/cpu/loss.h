/* Checks of labels, for all losses. */
#ifndef CPU_LOSS_H
#define CPU_LOSS_H
#include "cpu.h"

/* Labels are used as indices. Returns EINVAL unless each is in [0, classes) or ignored. */
brim_status cpu_loss_check_labels(const brim_tensor *t, const int32_t *label, int64_t classes,
                                  const brim_loss_attr *attr);

#endif
