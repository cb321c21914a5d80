/* Updates of many tensors in few launches; see program.cu. */
#ifndef CUDA_UPDATE_H
#define CUDA_UPDATE_H
#include "cuda.h"
#include "update_table.h"

/* Kernels whose nodes can be given to one launch when a program is recorded; see program.cu. */
typedef struct cuda_gathering {
  const brim_kernel *kernel;
  /* [step] `count` nodes of that kernel: the same bits as one after another. */
  brim_status (*run)(cuda_backend *b, const brim_launch *const *launch, size_t count);
  /* The kernel works without scratch (but for inputs in another order: such a node runs alone), and no node given to
   * run() needs what another makes: where nothing overlaps, its nodes may pass those of other such kernels. False: each
   * node may continue from the result of the one before. */
  bool moves;
} cuda_gathering;

/* Beside the kernel, BRIM_KERNEL(id), in C++. */
#define CUDA_GATHERING(id, its_run, its_moves)                                                                         \
  static const cuda_gathering gathering_##id = {&brim_kernel_##id, its_run, its_moves};                                \
  static const cuda_gathering *const gathering_entry_##id __attribute__((section("cuda_gatherings"), used)) =          \
      &gathering_##id
#endif
