/* Softmax cross-entropy of rows of logits, for loss.cu and, chunk by chunk, loss_linear.cu; metrics from ranks. */
#ifndef CUDA_LOSS_H
#define CUDA_LOSS_H
#include "cuda.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuda_loss_rows {
  const void *logits;
  const int32_t *label; /* labels, one for each row, or */
  const float *share;   /* class probabilities [rows, ld] instead of labels; not together with ranks */
  const float *weight;  /* the weight of each class, or NULL if all are 1 */
  int64_t rows, classes;
  /* Distances between neighbouring rows, in elements: of the logits (ld) and of the gradient (ld_out). */
  int64_t ld, ld_out;
  int64_t first, each; /* first: the index of the first row within the node; each: the rows of a sample */
  double smoothing;
  float softcap; /* a logit z becomes softcap * tanh(z / softcap); 0: z stays */
  int32_t ignores, ignore_index;
  uint64_t node;
  cuda_control *control;
} cuda_loss_rows;

/* [step] Writes loss [rows] and, unless NULL, rank [rows]: the number of classes before the label, or -1 if it is
 * ignored. */
brim_status cuda_loss_forward(cuda_backend *b, uint32_t dtype, const cuda_loss_rows *rows, float *loss, int32_t *rank);
/* [step] Writes dlogits of dtype_out. It may overwrite the logits, each row its own. If the types differ, ld and ld_out
 * are multiples of 8 and both start at multiples of 16 bytes. loss: cuda_loss_forward's result for
 * these logits, which saves a pass over them, or NULL. */
brim_status cuda_loss_backward(cuda_backend *b, uint32_t dtype, uint32_t dtype_out, const cuda_loss_rows *rows,
                               const float *loss, void *dlogits);
/* [step] Computes loss and gradient in one launch, for fp32 logits with labels and without weights of classes. */
brim_status cuda_loss_both(cuda_backend *b, uint32_t dtype_out, const cuda_loss_rows *rows, float *loss, int32_t *rank,
                           void *dlogits);
/* Adds losses to metrics[0], in their order, and the number of ranks that are 0 to metrics[1]. If top_k > 0, adds the
 * number of ranks in [0, top_k) to metrics[top]. [step] */
brim_status cuda_metrics_add(cuda_backend *b, const float *loss, const int32_t *rank, int64_t count, int32_t top_k,
                             double *metrics, int64_t top);

#ifdef __cplusplus
}
#endif
#endif
