/* Products of matrices, one for each place of the leading dimensions:
 *
 *     y[m,p] = sum over k of A[m,k] * B[k,p]
 *
 * where A is a, stored [M,K], or, with transpose_a, its transpose, stored [K,M]; B is b, stored [K,P] or [P,K]. */
#include "reference.h"

REFERENCE(matmul, "matmul")
{
  const brim_shape *a_shape = &launch->node->in[0]->shape, *y_shape = &launch->node->out[0]->shape;
  const int transpose_a = launch->node->attr.matmul.transpose_a, transpose_b = launch->node->attr.matmul.transpose_b;
  const int32_t rank = y_shape->rank;
  const int64_t M = y_shape->dim[rank - 2], P = y_shape->dim[rank - 1];
  const int64_t K = a_shape->dim[rank - (transpose_a ? 2 : 1)], products = brim_shape_count(y_shape) / (M * P);
  const double *a = launch->in[0], *b = launch->in[1];
  double *y = launch->out[0];

  for (int64_t i = 0; i < products; i++, a += M * K, b += K * P, y += M * P)
    for (int64_t m = 0; m < M; m++)
      for (int64_t p = 0; p < P; p++) {
        double sum = 0;
        for (int64_t k = 0; k < K; k++)
          sum += (transpose_a ? a[k * M + m] : a[m * K + k]) * (transpose_b ? b[p * K + k] : b[k * P + p]);
        y[m * P + p] = sum;
      }
  return BRIM_OK;
}
