/* The other driver functions that cuDNN looks up, see driver.c: they must exist, and always refuse. cuda.h is not
 * included, as its declarations have arguments. */
enum { NOT_SUPPORTED = 801 }; /* CUDA_ERROR_NOT_SUPPORTED */
#define REFUSED(name)                                                                                                  \
  int name(void);                                                                                                      \
  int name(void)                                                                                                       \
  {                                                                                                                    \
    return NOT_SUPPORTED;                                                                                              \
  }
REFUSED(cuCtxGetCurrent)
REFUSED(cuCtxGetDevice)
REFUSED(cuCtxGetLimit)
REFUSED(cuCtxPopCurrent)
REFUSED(cuCtxPushCurrent)
REFUSED(cuDeviceGet)
REFUSED(cuDeviceGetAttribute)
REFUSED(cuDeviceGetCount)
REFUSED(cuGetErrorName)
REFUSED(cuGetErrorString)
REFUSED(cuInit)
REFUSED(cuKernelGetAttribute)
REFUSED(cuKernelSetAttribute)
REFUSED(cuLaunchCooperativeKernel)
REFUSED(cuLaunchKernel)
REFUSED(cuLaunchKernelEx)
REFUSED(cuLibraryLoadFromFile)
REFUSED(cuLinkAddData)
REFUSED(cuLinkComplete)
REFUSED(cuLinkCreate)
REFUSED(cuLinkDestroy)
REFUSED(cuOccupancyMaxPotentialClusterSize)
REFUSED(cuStreamGetCtx)
REFUSED(cuTensorMapEncodeTiled)
