/* Which kernels compute a node of attention or its gradient; and those of the library, for prepare, run and release. */
#ifndef CUDA_ATTENTION_LIBRARY_H
#define CUDA_ATTENTION_LIBRARY_H
#include "attention_form.h"
#include "sdpa.h"
#ifdef __cplusplus
extern "C" {
#endif

/* [plan] qkv: the node is attention_qkv, or its gradient. state: the state for run and release, with its scratch in
 * `need`; NULL, without an error, if the library does not compute this node. `need` has the reason if tensor cores do
 * not compute it either. */
brim_status cuda_attention_prepare(cuda_backend *b, const brim_node *node, enum cuda_sdpa_result result, bool qkv,
                                   void **state, brim_kernel_need *need);
/* [step] Runs a launch with a state. */
brim_status cuda_attention_run(cuda_backend *b, const brim_launch *launch);
/* [init] */
void cuda_attention_release(void *self, void *state);

/* [plan, step] Whether brim's kernels on tensor cores (attention_mma.cu) compute a node that the library does not. */
bool cuda_attention_takes_tensor_cores(const cuda_backend *b, const brim_node *node, const attention_form *form);

#ifdef __cplusplus
}
#endif
#endif
