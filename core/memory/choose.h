/* Chooses one of a backend's devices to train on. */
#ifndef BRIM_MEMORY_CHOOSE_H
#define BRIM_MEMORY_CHOOSE_H
/* An environment variable that the launcher of clients' processes sets: the device of this process, as a table of
 * shares and `device` name it. A process that sees only this GPU numbers it 0. policy=capped reads it too. */
#define BRIM_SHARE_DEVICE "BRIM_SHARE_DEVICE"
#include <stdbool.h>

#include "brim/backend.h"

typedef struct brim_device_wish {
  const char *device; /* "auto", a backend's id, or "<id>:<number>" */
  bool most_free;     /* auto: the one with the most free memory; else the first */
  uint64_t min_bytes; /* auto: minimum free memory of GPUs and of devices with a limit */
} brim_device_wish;

/* Whether other processes share its memory, so that waiting for them makes sense: a GPU, or a device with a limit. A
 * host without limits is not; placing finds out whether it has room. */
bool brim_device_is_shared(const brim_device_info *info);
/* [init] The number of the requested device: by name, or with "auto" from $GPU_DEVICE_ID where devices are shared; -1
 * for any. ENODEVICE if it does not exist. */
brim_status brim_device_named(const char *id, const brim_backend_ops *ops, void *self, const brim_device_wish *wish,
                              int *device);
/* [init] Selects a device, if the backend can select, and describes it. */
brim_status brim_device_select(const brim_backend_ops *ops, void *self, int device, brim_device_info *info);
/* [init] Chooses a device, selects it and describes it. ENODEVICE, listing the free memory of each device, if it does
 * not exist or none has enough. */
brim_status brim_device_choose(const char *id, const brim_backend_ops *ops, void *self, const brim_device_wish *wish,
                               int *device, brim_device_info *info);
/* [init] Logs at level info which of several devices was chosen, why, and how much memory it has free now. */
void brim_device_log_choice(const char *id, const brim_backend_ops *ops, void *self, const brim_device_wish *wish,
                            int device);
#endif
