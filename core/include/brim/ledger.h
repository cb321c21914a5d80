/* For authors of backends whose devices are shares of a larger resource: a ledger, visible to all processes of this
 * host, records the bytes of each device that each process uses. The total never exceeds the limit. When a process
 * ends, however it ends, its bytes become free. */
#ifndef BRIM_LEDGER_H
#define BRIM_LEDGER_H
#include "brim/backend.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_ledger brim_ledger;

/* [init] Opens the ledger `name` of `devices` devices with `bytes` each. Processes that open it with the same name,
 * number and size share it. EIO, ELOAD, ENOMEM_HOST. */
BRIM_EXPORT brim_status brim_ledger_open(const char *name, int devices, uint64_t bytes, brim_ledger **out);
/* [init] Returns everything that was taken through this handle, and closes it. NULL is allowed. */
BRIM_EXPORT void brim_ledger_close(brim_ledger *ledger);
/* [init] Takes bytes of a device. ENOMEM_DEVICE if fewer are free; the error lists the processes that use the device.
 * *entry: for brim_ledger_give. */
BRIM_EXPORT brim_status brim_ledger_take(brim_ledger *ledger, int device, uint64_t bytes, int32_t *entry);
/* [init] Returns the bytes of one brim_ledger_take. */
BRIM_EXPORT void brim_ledger_give(brim_ledger *ledger, int32_t entry);
/* [any thread] The bytes taken of a device by all processes. */
BRIM_EXPORT brim_status brim_ledger_used(brim_ledger *ledger, int device, uint64_t *bytes);
/* [init] The processes that use a device: writes the first `room` of *count entries. */
BRIM_EXPORT brim_status brim_ledger_users(brim_ledger *ledger, int device, brim_device_user *out, size_t room,
                                          size_t *count);

#ifdef __cplusplus
}
#endif
#endif
