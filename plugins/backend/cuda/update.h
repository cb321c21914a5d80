/* Updates of many tensors in few launches; see program.cu. */
#ifndef CUDA_UPDATE_H
#define CUDA_UPDATE_H
#include "cuda.h"
#include "update_table.h"

/* Kernels whose nodes can share a launch when a program is recorded; see program.cu. */
typedef struct cuda_gathering {
  const brim_kernel *kernel;
  /* [step] Runs `count` nodes of that kernel, with the same bits as one after the other. */
  brim_status (*run)(cuda_backend *b, const brim_launch *const *launch, size_t count);
  /* True: the kernel needs no scratch (except for inputs in another order; such a node runs alone), and no node of a
   * run() needs the result of another. Its nodes may move before nodes of other such kernels if nothing overlaps.
   * False: each node may continue from the result of the one before. */
  bool moves;
} cuda_gathering;

/* For the kernel BRIM_KERNEL(id), in C++. */
#define CUDA_GATHERING(id, its_run, its_moves)                                                                         \
  static const cuda_gathering gathering_##id = {&brim_kernel_##id, its_run, its_moves};                                \
  static const cuda_gathering *const gathering_entry_##id __attribute__((section("cuda_gatherings"), used)) =          \
      &gathering_##id
#endif
