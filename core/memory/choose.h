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

/* Is its memory shared with processes that can be waited for: a GPU's, or that of a device with a limit? A host without
 * limits has room or not, which placing finds out. */
bool brim_device_is_shared(const brim_device_info *info);
/* [init] The number of the device that is asked for, by name, or with "auto" by $GPU_DEVICE_ID where devices are
 * shared; -1: any will do. ENODEVICE if there is no such one. */
brim_status brim_device_named(const char *id, const brim_backend_ops *ops, void *self, const brim_device_wish *wish,
                              int *device);
/* [init] Selects a device, where there is something to select, and describes it. */
brim_status brim_device_select(const brim_backend_ops *ops, void *self, int device, brim_device_info *info);
/* [init] The number of the device and what it is, selected. ENODEVICE if there is no such one, or none with so much
 * free memory: with what each has. */
brim_status brim_device_choose(const char *id, const brim_backend_ops *ops, void *self, const brim_device_wish *wish,
                               int *device, brim_device_info *info);
/* [init] Says at level info which of several devices was taken and why, with what is free now. */
void brim_device_tell(const char *id, const brim_backend_ops *ops, void *self, const brim_device_wish *wish,
                      int device);
#endif
