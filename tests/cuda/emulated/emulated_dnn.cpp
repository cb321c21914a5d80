/* Plain loops in place of cuDNN's convolutions; see dnn.h. EMULATED_REFUSES=convolutions or =last: behaves like a
 * library that has none, or none for channels-last, so that the backend's fallback is tested. */
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "dnn.h"
#include "emulated_values.h"

struct cuda_dnn_plan {
  cuda_dnn_conv wanted;
};

namespace
{
enum { SCRATCH_BYTES = 1000 }; /* overwritten, so that values kept there by mistake are detected */

/* A tensor of four dimensions as floats, channels last whatever its layout in memory. */
struct tensor {
  uint32_t type;
  int64_t dim[4]; /* plain: N, C, H, W */
  bool last;
  std::vector<float> value;

  tensor(uint32_t its_type, const int64_t its_dim[4], bool is_last) : type(its_type), last(is_last)
  {
    memcpy(dim, its_dim, sizeof dim);
    value.resize(static_cast<size_t>(dim[0] * dim[1] * dim[2] * dim[3]));
  }
  EMULATED_OWN float *at(int64_t n, int64_t h, int64_t w)
  {
    return value.data() + ((n * dim[2] + h) * dim[3] + w) * dim[1];
  }
  /* Calls f with each element's place in memory, and the element. */
  template <typename F> void each(F f)
  {
    int64_t i = 0;
    for (int64_t n = 0; n < dim[0]; n++)
      for (int64_t h = 0; h < dim[2]; h++)
        for (int64_t w = 0; w < dim[3]; w++)
          for (int64_t c = 0; c < dim[1]; c++, i++)
            f(last ? i : ((n * dim[1] + c) * dim[2] + h) * dim[3] + w, value[static_cast<size_t>(i)]);
  }
  void take(const void *from)
  {
    each([this, from](int64_t i, float &element) { element = emulated_load(type, from, i); });
  }
  void give(void *to)
  {
    each([this, to](int64_t i, float &element) { emulated_store(type, to, i, element); });
  }
};

/* Combines one pixel of x and one of a weight: their product over the channels of a group contributes to an element of
 * y. */
EMULATED_OWN void combine(enum cuda_dnn_result result, float *x, float *weight, float *y, int64_t channels)
{
  if (result == CUDA_DNN_Y)
    *y += emulated_dot(x, weight, channels);
  else
    emulated_add(result == CUDA_DNN_X ? x : weight, *y, result == CUDA_DNN_X ? weight : x, channels);
}

/* Visits every product of an x and a weight. Each belongs to one y, whichever of the three is the result. */
EMULATED_OWN void convolve(const cuda_dnn_conv &wanted, void *x_at, void *weight_at, void *y_at)
{
  const cuda_conv &v = wanted.conv;
  const bool last = v.x_last;
  const enum cuda_dnn_result result = wanted.result;
  const int64_t dim_x[4] = {v.N, v.C, v.H, v.W}, dim_weight[4] = {v.K, v.D, v.R, v.S}, dim_y[4] = {v.N, v.K, v.P, v.Q};
  tensor x(v.dtype, dim_x, last), weight(v.dtype, dim_weight, last), y(v.dtype, dim_y, last);
  if (result != CUDA_DNN_X) x.take(x_at);
  if (result != CUDA_DNN_WEIGHT) weight.take(weight_at);
  if (result != CUDA_DNN_Y) y.take(y_at);
  for (int64_t n = 0; n < v.N; n++)
    for (int64_t p = 0; p < v.P; p++)
      for (int64_t q = 0; q < v.Q; q++)
        for (int64_t r = 0; r < v.R; r++)
          for (int64_t s = 0; s < v.S; s++) {
            const int64_t h = p * v.stride[0] - v.padding[0] + r * v.dilation[0];
            const int64_t w = q * v.stride[1] - v.padding[1] + s * v.dilation[1];
            if (h < 0 || h >= v.H || w < 0 || w >= v.W) continue;
            for (int64_t k = 0; k < v.K; k++)
              combine(result, x.at(n, h, w) + k / (v.K / v.groups) * v.D, weight.at(k, r, s), y.at(n, p, q) + k, v.D);
          }
  if (result == CUDA_DNN_X) x.give(x_at);
  if (result == CUDA_DNN_WEIGHT) weight.give(weight_at);
  if (result == CUDA_DNN_Y) y.give(y_at);
}

bool refuses(const cuda_dnn_conv &wanted)
{
  return emulated_refuses("convolutions") || (wanted.conv.x_last && emulated_refuses("last"));
}
} // namespace

extern "C" bool cuda_dnn_prefers_last(const cuda_backend *, uint32_t)
{
  return !emulated_refuses("last");
}

extern "C" brim_status cuda_dnn_prepare(cuda_backend *, const cuda_dnn_conv *conv, cuda_dnn_plan **plan,
                                        uint64_t *scratch_bytes)
{
  if (refuses(*conv)) return brim_fail(BRIM_ENOTSUP, "the emulated library refuses this convolution");
  *plan = new cuda_dnn_plan{*conv};
  *scratch_bytes = SCRATCH_BYTES;
  return BRIM_OK;
}

extern "C" brim_status cuda_dnn_run(cuda_backend *b, const cuda_dnn_plan *plan, void *x, void *weight, void *y,
                                    void *scratch)
{
  if (cuda_counts(b)) return BRIM_OK;
  const cuda_dnn_conv wanted = plan->wanted;
  emulated_enqueue(b->compute, [=] {
    memset(scratch, 0xFF, SCRATCH_BYTES);
    convolve(wanted, x, weight, y);
  });
  return BRIM_OK;
}

extern "C" void cuda_dnn_release(cuda_dnn_plan *plan)
{
  delete plan;
}
