/* Losses: graphs from a model's output and its targets to one number for each sample. No kernel is written for a loss,
 * brim derives its gradient, and it trains on every backend. The squared error, which brim has as `mse`:
 *
 *     static brim_tensor *build(const void *self, brim_graph *g, brim_tensor *y, brim_tensor *t)
 *     {
 *       brim_tensor *d = brim_elementwise(g, "y = (x - t) * (x - t)", BRIM_ELEMENTS("x", y), BRIM_ELEMENTS("t", t));
 *       return brim_mean(g, d, 1, (const int32_t[]){-1}, 0);
 *     }
 *     static const brim_loss_ops ops = {.size = sizeof ops, .takes = BRIM_TAKES(BRIM_TASK_VALUES), .build = build};
 *
 * The functions of brim/model.h build the graph; parameters are for models alone. brim takes the mean over samples, in
 * which every sample counts the same, or as much as class_weights() says. With precision=bf16 and fp16 a loss is
 * computed in fp32, from the rounded output. Since ABI 1.10. */
#ifndef BRIM_LOSS_H
#define BRIM_LOSS_H
#include "brim/dataset.h"
#include "brim/model.h"
#ifdef __cplusplus
extern "C" {
#endif

/* A bit of brim_loss_ops.takes, of enum brim_task. */
#define BRIM_TAKES(task) (1u << (task))

typedef struct brim_loss_ops {
  uint32_t size;
  uint32_t takes; /* the tasks that it is for: BRIM_TAKES(BRIM_TASK_CLASS) | ... */
  /* [init] Builds the loss of each sample and returns it: [N], of tokens [N, T]. Called once per batch shape, on any
   * thread; must build the same graph each time, but for N.
   *     output  the model's: logits [N, classes]; of tokens [N, T, vocabulary]; of real numbers [N, targets]
   *     target  of the output's shape: real numbers; of classes and tokens 1 for the label and 0 for the others, or
   *             with augment.mixup shares that add up to 1. All 0 for a token that does not count, whose loss brim
   *             replaces by 0.
   * Neither may be changed into a loss that does not depend on the output. */
  brim_tensor *(*build)(const void *self, brim_graph *g, brim_tensor *output, brim_tensor *target);
  /* [init] Weights of the classes, to *out, which is empty before: each sample's loss is multiplied by its class's
   * weight, and the mean is weighted likewise. Belongs to the plugin. NULL: all count the same. */
  void (*class_weights)(const void *self, brim_list *out);
  const struct brim_loss_kernel *kernel; /* of brim's own losses; NULL */
} brim_loss_ops;

#ifdef __cplusplus
}
#endif
#endif
