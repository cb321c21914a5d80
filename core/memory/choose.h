/* Chooses one of a backend's devices to train on. */
#ifndef BRIM_MEMORY_CHOOSE_H
#define BRIM_MEMORY_CHOOSE_H
/* An environment variable that the launcher of clients' processes sets: the device of this process, by its name in the
 * key `device` and in tables of shares. The process may see only this GPU, and then gives it the number 0.
 * policy=capped reads the variable too. */
#define BRIM_SHARE_DEVICE "BRIM_SHARE_DEVICE"
#include <stdbool.h>

#include "brim/backend.h"

typedef struct brim_device_wish {
  const char *device; /* "auto", a backend's id, or "<id>:<number>" */
  bool most_free;     /* with auto, choose the device with the most free memory; else the first */
  uint64_t min_bytes; /* with auto: minimum free memory of GPUs and of devices with a limit */
} brim_device_wish;

/* Whether other processes share its memory, so that waiting for them makes sense: a GPU, or a device with a limit. A
 * host without limits is not shared; brim only finds out whether it has room when it places a plan. */
bool brim_device_is_shared(const brim_device_info *info);
/* [init] Returns the number of the requested device: by name or, for "auto" where devices are shared, from
 * $GPU_DEVICE_ID; -1 for any. ENODEVICE if it does not exist. */
brim_status brim_device_named(const char *id, const brim_backend_ops *ops, void *self, const brim_device_wish *wish,
                              int *device);
/* [init] Selects a device, if the backend can select, and describes it. */
brim_status brim_device_select(const brim_backend_ops *ops, void *self, int device, brim_device_info *info);
/* [init] Chooses a device, selects it and describes it. ENODEVICE, listing the free memory of each device, if it does
 * not exist or none has enough. */
brim_status brim_device_choose(const char *id, const brim_backend_ops *ops, void *self, const brim_device_wish *wish,
                               int *device, brim_device_info *info);
/* [init] Logs, at level info, which of several devices was chosen, the reason, and its free memory. */
void brim_device_log_choice(const char *id, const brim_backend_ops *ops, void *self, const brim_device_wish *wish,
                            int device);
#endif
