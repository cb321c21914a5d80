/* Stands in for the backend's libraries.so.1: it needs a cuDNN that does not exist. */
#include <stddef.h>

size_t cudnnGetVersion(void);
__attribute__((visibility("default"))) size_t needs_cudnn(void);

size_t needs_cudnn(void)
{
  return cudnnGetVersion();
}
