/* Translates the runtime's errors into brim's. Part of both of the backend's shared objects. */
#include "cuda.h"

#define UNUSABLE "this process can no longer use the device; the last checkpoint is intact"

/* After these errors, no call of the process to the device can succeed. */
static bool is_sticky(cudaError_t e)
{
  return e == cudaErrorIllegalAddress || e == cudaErrorLaunchFailure || e == cudaErrorIllegalInstruction ||
         e == cudaErrorMisalignedAddress || e == cudaErrorInvalidAddressSpace || e == cudaErrorInvalidPc ||
         e == cudaErrorHardwareStackError || e == cudaErrorAssert || e == cudaErrorLaunchTimeout ||
         e == cudaErrorECCUncorrectable || e == cudaErrorContained;
}

brim_status cuda_check(cudaError_t error, const char *what)
{
  if (error == cudaSuccess) return BRIM_OK;
  (void)cudaGetLastError(); /* clears the error: the next call must not return it again */
  if (error == cudaErrorMemoryAllocation)
    return brim_fail(BRIM_ENOMEM_DEVICE, "%s: out of device memory\n`brim devices` lists the processes on it", what);
  brim_fail(BRIM_EDEVICE, "%s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
  if (is_sticky(error))
    return brim_fail_add(BRIM_EDEVICE, UNUSABLE "\nbackend.debug_launches=true names the operation that failed");
  return BRIM_EDEVICE;
}

brim_status cuda_check_node(cudaError_t error, const brim_node *node)
{
  if (error == cudaSuccess) return BRIM_OK;
  (void)cudaGetLastError();
  brim_fail(BRIM_EDEVICE, "%s '%s': %s (%s)", node->op, node->name, cudaGetErrorString(error), cudaGetErrorName(error));
  return is_sticky(error) ? brim_fail_add(BRIM_EDEVICE, UNUSABLE) : BRIM_EDEVICE;
}
