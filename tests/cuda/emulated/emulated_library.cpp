/* Stands in for the libraries' handles; emulated_product.cpp and emulated_dnn.cpp compute. It reads the device profile,
 * but has no algorithms to choose from. */
#include "kernel.cuh"
#include "libraries/profile.h"
extern "C" {
#include "device.h"

brim_status cuda_library_open(cuda_backend *b)
{
  cuda_profile profile;
  if (!b->params->profile[0]) return BRIM_OK;
  BRIM_TRY(cuda_profile_read(&profile, b->params->profile, b->params->tune));
  const brim_status status = b->params->tune ? BRIM_OK : cuda_profile_check(&profile, "emulated device");
  cuda_profile_release(&profile);
  return status;
}
void cuda_library_close(cuda_backend *) {}
}
