/* Attention and its gradient by the library, for the kernels' prepare, run and release. */
#ifndef CUDA_ATTENTION_LIBRARY_H
#define CUDA_ATTENTION_LIBRARY_H
#include "sdpa.h"
#ifdef __cplusplus
extern "C" {
#endif

/* [plan] qkv: the node is attention_qkv, or its gradient. state: the state for run and release, with its scratch in
 * `need`; NULL, without an error, if the library does not compute this node. */
brim_status cuda_attention_prepare(cuda_backend *b, const brim_node *node, enum cuda_sdpa_result result, bool qkv,
                                   void **state, brim_kernel_need *need);
/* [step] Runs a launch with a state. */
brim_status cuda_attention_run(cuda_backend *b, const brim_launch *launch);
/* [init] */
void cuda_attention_release(void *self, void *state);

#ifdef __cplusplus
}
#endif
#endif
