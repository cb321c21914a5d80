/* The driver's view of a device, from libnvidia-ml.so.1: its memory, without a context of our own, and the processes
 * that use it. The library comes with the driver, not with the toolkit, so it is opened at its first use, and brim also
 * works without it. These functions create no context, and do not use NVML's numbering of devices. */
#ifndef CUDA_NVML_H
#define CUDA_NVML_H
#include "cuda.h"

#define CUDA_UUID_BYTES 64
#define CUDA_BUS_ID_BYTES 32
#define CUDA_DRIVER_BYTES 80

/* Identifies a device, by the runtime's description: a whole GPU or a MIG instance. */
typedef struct cuda_nvml_key {
  uint8_t uuid[16];
  char bus_id[CUDA_BUS_ID_BYTES]; /* "0000:3b:00.0"; empty if unknown */
} cuda_nvml_key;

/* [init] Writes "GPU-8a5f2b1c-...", or "MIG-..." if NVML knows the device by that name. Never fails: without NVML it
 * writes the GPU's name. */
void cuda_nvml_uuid(const cuda_nvml_key *key, char out[CUDA_UUID_BYTES]);
/* [init] Finds NVML's handle, which is valid until the process exits. Returns ENOTSUP with the reason if NVML is not
 * usable. */
brim_status cuda_nvml_find(const cuda_nvml_key *key, struct nvml_device **out);
/* [any thread] Gets the free memory. Returns ENOTSUP as above. */
brim_status cuda_nvml_free_bytes(struct nvml_device *device, uint64_t *out);
/* [init] Gets this process's memory on the device. Returns ENOTSUP as above, and also if NVML does not list this
 * process. */
brim_status cuda_nvml_own_bytes(struct nvml_device *device, uint64_t *out);
/* [init] Writes the driver's version, such as "580.65.06". Returns ENOTSUP as above. */
brim_status cuda_nvml_driver(char out[CUDA_DRIVER_BYTES]);
/* [init] See brim_backend_ops.users. */
brim_status cuda_nvml_users(const cuda_nvml_key *key, brim_device_user *out, size_t room, size_t *count);
#endif
