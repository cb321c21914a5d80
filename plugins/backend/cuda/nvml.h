/* The driver's view of a device, from libnvidia-ml.so.1: memory without a context of our own, and who uses it. The
 * library comes with the driver, not with the toolkit, so it is opened when asked for; without it the runtime is all
 * there is. Nothing here touches a context, and NVML's own numbering of devices is never used. */
#ifndef CUDA_NVML_H
#define CUDA_NVML_H
#include "cuda.h"

#define CUDA_UUID_BYTES 64
#define CUDA_BUS_ID_BYTES 32
#define CUDA_DRIVER_BYTES 80

/* Which device is meant, as the runtime describes it: a whole GPU or a MIG instance. */
typedef struct cuda_nvml_key {
  uint8_t uuid[16];
  char bus_id[CUDA_BUS_ID_BYTES]; /* "0000:3b:00.0"; empty: not known */
} cuda_nvml_key;

/* [init] "GPU-8a5f2b1c-...", or "MIG-..." if that is what NVML knows it by. Never fails: without NVML it is a GPU's. */
void cuda_nvml_uuid(const cuda_nvml_key *key, char out[CUDA_UUID_BYTES]);
/* [init] NVML's own handle, good as long as the process lives. ENOTSUP, saying why, if NVML cannot be asked. */
brim_status cuda_nvml_find(const cuda_nvml_key *key, struct nvml_device **out);
/* [any thread] Returns the free memory. ENOTSUP as above. */
brim_status cuda_nvml_free_bytes(struct nvml_device *device, uint64_t *out);
/* [init] Memory of the device that this process has. ENOTSUP as above, and if NVML does not list this process. */
brim_status cuda_nvml_own_bytes(struct nvml_device *device, uint64_t *out);
/* [init] The driver's version: "580.65.06". ENOTSUP as above. */
brim_status cuda_nvml_driver(char out[CUDA_DRIVER_BYTES]);
/* [init] See brim_backend_ops.users. */
brim_status cuda_nvml_users(const cuda_nvml_key *key, brim_device_user *out, size_t room, size_t *count);
#endif
