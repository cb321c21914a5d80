/* Times of the device's work, by CUPTI (cupti.h) or else by CUDA events; see trace_begin in brim/backend.h. While a
 * trace is measured, programs are not launched as graphs: their nodes are started one by one, each with a new tag for
 * CUPTI or with an event after it. With events, a small operation seems to take as long as the host needs to start
 * it. */
#ifndef CUDA_TRACE_H
#define CUDA_TRACE_H
#include "cuda.h"
#ifdef __cplusplus
extern "C" {
#endif

brim_status cuda_trace_begin(void *self, size_t room, const char **how);
brim_status cuda_trace_end(void *self, brim_device_work *out, size_t room, size_t *count);
/* [init] Stops a measurement without results, if there is one. */
void cuda_trace_drop(cuda_backend *b);
/* [step] Records that work in a stream begins now. If there is no room for more records, this function and the next one
 * do nothing. */
brim_status cuda_trace_start(cuda_backend *b, cudaStream_t stream);
/* [step] Records that the current work in the stream ends now and that the next work begins. The current work began at
 * cuda_trace_start, or at the last call of this function. */
brim_status cuda_trace_mark(cuda_backend *b, cudaStream_t stream, const brim_device_work *work);

#ifdef __cplusplus
}
#endif
#endif
