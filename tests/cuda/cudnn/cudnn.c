/* A minimal cuDNN of another major version. */
#include <stddef.h>

__attribute__((visibility("default"))) size_t cudnnGetVersion(void);

size_t cudnnGetVersion(void)
{
  return 180304;
}
