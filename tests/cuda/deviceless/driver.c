/* The driver's functions that cuDNN looks up to load the kernels that it compiles for a plan. There is no device: a
 * loaded module is a dummy handle, and every other call is refused. */
#include <cuda.h>

static int loaded; /* dummy handle of every library and kernel */

CUresult cuDriverGetVersion(int *version)
{
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}
CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **values,
                           unsigned int count, CUlibraryOption *library_options, void **library_values,
                           unsigned int library_count)
{
  (void)options, (void)values, (void)count, (void)library_options, (void)library_values, (void)library_count;
  *library = (CUlibrary)(void *)&loaded;
  return code ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuLibraryUnload(CUlibrary library)
{
  (void)library;
  return CUDA_SUCCESS;
}
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
  (void)library;
  *kernel = (CUkernel)(void *)&loaded;
  return name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
