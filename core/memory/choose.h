/* Which of a backend's devices to train on. */
#ifndef BRIM_MEMORY_CHOOSE_H
#define BRIM_MEMORY_CHOOSE_H
#include <stdbool.h>

#include "brim/backend.h"

typedef struct brim_device_wish {
  const char *device; /* "auto", a backend's id, or "<id>:<number>" */
  bool most_free;     /* auto: the one with the most free memory; else the first */
  uint64_t min_bytes; /* auto: of GPUs and devices with a limit, only those with so much free */
} brim_device_wish;

/* [init] The number of the device and what it is. With "auto", $GPU_DEVICE_ID names the device where there are GPUs or
 * devices with a limit. Says at level info which of several was taken and why. ENODEVICE if there is no such one, or
 * none with so much free memory: with what each has. */
brim_status brim_device_choose(const char *id, const brim_backend_ops *ops, void *self, const brim_device_wish *wish,
                               int *device, brim_device_info *info);
#endif
