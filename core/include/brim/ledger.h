/* For authors of backends whose devices are shares of something else: a ledger of who has how much of which, that all
 * processes of this host see. It is never over the limit; the share of a process that ends, however it ends, returns.
 */
#ifndef BRIM_LEDGER_H
#define BRIM_LEDGER_H
#include "brim/backend.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_ledger brim_ledger;

/* [init] The ledger of this name, of `devices` devices of `bytes` each: processes that open one of the same name,
 * number and size share it. EIO, ELOAD, ENOMEM_HOST. */
BRIM_EXPORT brim_status brim_ledger_open(const char *name, int devices, uint64_t bytes, brim_ledger **out);
/* [init] Gives back all that was taken; NULL: nothing. */
BRIM_EXPORT void brim_ledger_close(brim_ledger *ledger);
/* [init] Takes bytes of a device. ENOMEM_DEVICE if it has not so many left, saying who has the rest. *entry: for give.
 */
BRIM_EXPORT brim_status brim_ledger_take(brim_ledger *ledger, int device, uint64_t bytes, int32_t *entry);
BRIM_EXPORT void brim_ledger_give(brim_ledger *ledger, int32_t entry);
/* [any thread] What is taken of a device, by all together. */
BRIM_EXPORT brim_status brim_ledger_used(brim_ledger *ledger, int device, uint64_t *bytes);
/* [init] By whom: writes the first `room` of *count. */
BRIM_EXPORT brim_status brim_ledger_users(brim_ledger *ledger, int device, brim_device_user *out, size_t room,
                                          size_t *count);

#ifdef __cplusplus
}
#endif
#endif
