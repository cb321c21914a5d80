/* A cuDNN of another major version, as far as anything looks at one. */
#include <stddef.h>

__attribute__((visibility("default"))) size_t cudnnGetVersion(void);

size_t cudnnGetVersion(void)
{
  return 180304;
}
