/* Times of the device's work, by CUPTI (cupti.h) or else by CUDA events; see trace_begin in brim/backend.h. While it
 * measures, programs are not launched as graphs: their nodes are started one by one, with a new tag for CUPTI or an
 * event after each. By events, small operations take as long as the host needs to start them. */
#ifndef CUDA_TRACE_H
#define CUDA_TRACE_H
#include "cuda.h"
#ifdef __cplusplus
extern "C" {
#endif

brim_status cuda_trace_begin(void *self, size_t room, const char **how);
brim_status cuda_trace_end(void *self, brim_device_work *out, size_t room, size_t *count);
/* [init] Stops without results; does nothing while nothing is measured. */
void cuda_trace_drop(cuda_backend *b);
/* [step] Records that work in a stream begins now. If there is no room for records, this and the next function do
 * nothing. */
brim_status cuda_trace_start(cuda_backend *b, cudaStream_t stream);
/* [step] Records that the work started in the stream since that call, or since the last call of this function, ends
 * now, and that the next work begins. */
brim_status cuda_trace_mark(cuda_backend *b, cudaStream_t stream, const brim_device_work *work);

#ifdef __cplusplus
}
#endif
#endif
