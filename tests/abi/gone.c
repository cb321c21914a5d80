/* A library that a plugin needs and the dynamic linker does not find. */
#include "brim/status.h"

BRIM_EXPORT brim_status brim_abi_gone(void);
brim_status brim_abi_gone(void)
{
  return BRIM_OK;
}
