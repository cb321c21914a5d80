/* Updates of many tensors in few launches; see program.cu. */
#ifndef CUDA_UPDATE_H
#define CUDA_UPDATE_H
#include "cuda.h"
#include "update_table.h"

/* A kernel whose nodes can share a launch when a program is recorded; see program.cu. */
typedef struct cuda_gathering {
  const brim_kernel *kernel;
  /* [step] Runs `count` nodes of that kernel, with the same bits as if they ran one after another. */
  brim_status (*run)(cuda_backend *b, const brim_launch *const *launch, size_t count);
  /* True: no node of a run() needs the result of another one, and the kernel needs no scratch. (A node that needs
   * scratch for inputs in another order runs alone.) Such nodes may move before nodes of other kernels of this sort if
   * no memory overlaps. False: each node may continue from the result of the node before it. */
  bool moves;
} cuda_gathering;

/* Registers the kernel BRIM_KERNEL(id); for C++. */
#define CUDA_GATHERING(id, its_run, its_moves)                                                                         \
  static const cuda_gathering gathering_##id = {&brim_kernel_##id, its_run, its_moves};                                \
  static const cuda_gathering *const gathering_entry_##id __attribute__((section("cuda_gatherings"), used)) =          \
      &gathering_##id
#endif
