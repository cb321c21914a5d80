/* For authors of losses: a loss is a graph that computes one number per sample from the model's output and the targets.
 * It needs no kernel: brim derives its gradient, and it works on every backend. For example the squared error, which is
 * brim's `mse`:
 *
 *     static brim_tensor *build(const void *self, brim_graph *g, brim_tensor *y, brim_tensor *t)
 *     {
 *       brim_tensor *d = brim_elementwise(g, "y = (x - t) * (x - t)", BRIM_ELEMENTS("x", y), BRIM_ELEMENTS("t", t));
 *       return brim_mean(g, d, 1, (const int32_t[]){-1}, 0);
 *     }
 *     static const brim_loss_ops ops = {.size = sizeof ops, .takes = BRIM_TAKES(BRIM_TASK_VALUES), .build = build};
 *
 * The functions of brim/model.h build the graph; a loss cannot have parameters. brim takes the mean over the samples,
 * weighted by class_weights() if that is set. With precision=bf16 and fp16 the loss is computed in fp32 from the
 * rounded output. Since ABI 1.10. */
#ifndef BRIM_LOSS_H
#define BRIM_LOSS_H
#include "brim/dataset.h"
#include "brim/model.h"
#ifdef __cplusplus
extern "C" {
#endif

/* The bit of a task (enum brim_task) in brim_loss_ops.takes. */
#define BRIM_TAKES(task) (1u << (task))

typedef struct brim_loss_ops {
  uint32_t size;
  uint32_t takes; /* the tasks that it supports: BRIM_TAKES(BRIM_TASK_CLASS) | ... */
  /* [init] Builds and returns the loss per sample: [N], for tokens [N, T]. Called once per batch shape, on any thread.
   * Must build the same graph each time, apart from N.
   *     output  the model's output: logits [N, classes] or, for tokens, [N, T, vocabulary]; real numbers [N, targets]
   *     target  of the same shape: real numbers; for classes and tokens 1 at the label and 0 elsewhere, or, with
   *             augment.mixup, shares that add up to 1. All 0 for an ignored token, whose loss brim replaces by 0.
   * The loss must depend on the output. */
  brim_tensor *(*build)(const void *self, brim_graph *g, brim_tensor *output, brim_tensor *target);
  /* [init] Sets *out to the weights of the classes; it is empty before. Each sample's loss is multiplied by the weight
   * of its class, and the mean divides by the sum of the weights. The plugin owns the list. NULL: all weights are 1. */
  void (*class_weights)(const void *self, brim_list *out);
  const struct brim_loss_kernel *kernel; /* for brim's own losses; plugins set NULL */
} brim_loss_ops;

#ifdef __cplusplus
}
#endif
#endif
