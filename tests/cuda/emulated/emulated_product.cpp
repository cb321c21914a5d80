/* Plain loops in place of cuBLASLt's products; see product.h. EMULATED_REFUSES=epilogues: behaves like a library that
 * has only the bare product, so that the backend's fallback is tested. */
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "emulated_values.h"
#include "product.h"

struct cuda_product_plan {
  cuda_product product;
};

namespace
{
enum { SCRATCH_BYTES = 1000 }; /* overwritten, so that values kept there by mistake are detected */

float apply(enum cuda_function function, float x)
{
  if (function == CUDA_FUNCTION_GELU_TANH)
    return 0.5f * x * (1 + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
  return x;
}

/* Returns a matrix as floats, row by row. */
std::vector<float> matrix_of(uint32_t type, const void *from, int64_t at, int64_t rows, int64_t columns, int64_t ld,
                             bool transposed)
{
  std::vector<float> out(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++)
      out[static_cast<size_t>(i * columns + j)] =
          emulated_load(type, from, at + (transposed ? j * ld + i : i * ld + j));
  return out;
}

/* Computes d row by row; each element is a sum in the order of k. */
void multiply(const cuda_product &p, const cuda_operands &o, int64_t matrix)
{
  const std::vector<float> a = matrix_of(p.type, o.a, matrix * p.stride_a, p.m, p.k, p.lda, p.transpose_a);
  const std::vector<float> b = matrix_of(p.type, o.b, matrix * p.stride_b, p.k, p.n, p.ldb, p.transpose_b);
  std::vector<float> sum(static_cast<size_t>(p.n));
  for (int64_t i = 0; i < p.m; i++) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (int64_t k = 0; k < p.k; k++)
      emulated_add(sum.data(), a[static_cast<size_t>(i * p.k + k)], b.data() + k * p.n, p.n);
    for (int64_t j = 0; j < p.n; j++) {
      const int64_t at = matrix * p.stride_d + i * p.ldd + j;
      float value = sum[static_cast<size_t>(j)];
      if (p.accumulate && !o.writes) value += emulated_load(p.type_d, o.d, at);
      if (p.bias) value += emulated_load(p.type_d, o.bias, j);
      if (p.keep) emulated_store(p.type_d, o.kept, at, value);
      emulated_store(p.type_d, o.d, at, apply(p.function, value));
    }
  }
}

bool refuses(const cuda_product &p)
{
  return emulated_refuses("epilogues") && (p.bias || p.function != CUDA_FUNCTION_NONE);
}
} // namespace

extern "C" brim_status cuda_product_prepare(cuda_backend *, const cuda_product *product, cuda_product_plan **plan,
                                            uint64_t *scratch_bytes)
{
  if (product->accumulate && (product->bias || product->function != CUDA_FUNCTION_NONE || product->keep))
    return brim_fail(BRIM_EINTERNAL, "a product that accumulates has no epilogue");
  if (refuses(*product)) return brim_fail(BRIM_ENOTSUP, "the emulated library does bare products only");
  *plan = new cuda_product_plan{*product};
  *scratch_bytes = SCRATCH_BYTES;
  return BRIM_OK;
}

extern "C" brim_status cuda_product_run(cuda_backend *b, const cuda_product_plan *plan, const cuda_operands *operands)
{
  if (cuda_counts(b)) return BRIM_OK;
  const cuda_product product = plan->product;
  const cuda_operands o = *operands;
  emulated_load_library();
  emulated_enqueue(b->compute, [=] {
    memset(o.scratch, 0xFF, SCRATCH_BYTES);
    for (int64_t i = 0; i < cuda_max(1, product.batch); i++) multiply(product, o, i);
  });
  return BRIM_OK;
}

extern "C" void cuda_product_release(cuda_product_plan *plan)
{
  delete plan;
}
