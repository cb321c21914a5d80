/* The NCCL functions that the communicator uses. The library is large and makes the driver load its kernels, so it is
 * loaded only when ranks are connected. */
#ifndef NCCL_LIBRARY_H
#define NCCL_LIBRARY_H
#include <nccl.h>

#include "brim/status.h"
#ifdef __cplusplus
extern "C" {
#endif

#define NCCL_FUNCTIONS(X)                                                                                              \
  X(GetVersion)                                                                                                        \
  X(GetUniqueId)                                                                                                       \
  X(GetErrorString)                                                                                                    \
  X(GetLastError)                                                                                                      \
  X(CommInitRankConfig)                                                                                                \
  X(CommGetAsyncError)                                                                                                 \
  X(CommFinalize)                                                                                                      \
  X(CommDestroy)                                                                                                       \
  X(CommAbort)                                                                                                         \
  X(AllReduce)                                                                                                         \
  X(ReduceScatter)                                                                                                     \
  X(AllGather)                                                                                                         \
  X(Broadcast)

typedef struct nccl_library {
#define X(name) __typeof__(nccl##name) *name;
  NCCL_FUNCTIONS(X)
#undef X
} nccl_library;

/* [init] Loads the library, which stays loaded until the process exits. Returns ELOAD with the name of the missing
 * library or function. */
brim_status nccl_library_load(const nccl_library **out);

#ifdef __cplusplus
}
#endif
#endif
