/* Plain loops in place of cuDNN's convolutions; see dnn.h. EMULATED_REFUSES=convolutions, or =last: as a library would
 * that has none, or none for channels-last, so that what the backend does then is tested. */
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "dnn.h"
#include "kernel.cuh"

struct cuda_dnn_plan {
  cuda_dnn_conv wanted;
};

namespace
{
enum { SCRATCH_BYTES = 1000 }; /* which are overwritten: nobody else's values may be there */

float load(uint32_t type, const void *p, int64_t i)
{
  return type == BRIM_DTYPE_BF16 ? cuda_load(static_cast<const cuda_bf16 *>(p) + i) : static_cast<const float *>(p)[i];
}

int64_t place(bool last, int64_t n, int64_t c, int64_t h, int64_t w, int64_t channels, int64_t height, int64_t width)
{
  return last ? ((n * height + h) * width + w) * channels + c : ((n * channels + c) * height + h) * width + w;
}

struct tensor {
  uint32_t type;
  std::vector<float> value;
  tensor(uint32_t its_type, const void *from, int64_t count) : type(its_type), value(static_cast<size_t>(count))
  {
    for (int64_t i = 0; from && i < count; i++) value[static_cast<size_t>(i)] = load(type, from, i);
  }
  float &at(int64_t i) { return value[static_cast<size_t>(i)]; }
  void store(void *to)
  {
    for (size_t i = 0; i < value.size(); i++) {
      if (type == BRIM_DTYPE_BF16)
        cuda_store(static_cast<cuda_bf16 *>(to) + i, value[i]);
      else
        static_cast<float *>(to)[i] = value[i];
    }
  }
};

/* Every product of an x and a weight belongs to one y; which of the three is the result makes no difference here. */
void convolve(const cuda_dnn_conv &wanted, void *x_at, void *weight_at, void *y_at)
{
  const cuda_conv &v = wanted.conv;
  const bool last = v.x_last;
  const enum cuda_dnn_result result = wanted.result;
  tensor x(v.dtype, result == CUDA_DNN_X ? nullptr : x_at, v.N * v.C * v.H * v.W);
  tensor weight(wanted.type_weight, result == CUDA_DNN_WEIGHT ? nullptr : weight_at, cuda_conv_weights(&v));
  tensor y(v.dtype, result == CUDA_DNN_Y ? nullptr : y_at, v.N * v.K * v.P * v.Q);
  for (int64_t n = 0; n < v.N; n++)
    for (int64_t k = 0; k < v.K; k++)
      for (int64_t p = 0; p < v.P; p++)
        for (int64_t q = 0; q < v.Q; q++) {
          float &to = y.at(place(last, n, k, p, q, v.K, v.P, v.Q));
          for (int64_t r = 0; r < v.R; r++)
            for (int64_t s = 0; s < v.S; s++) {
              const int64_t h = p * v.stride[0] - v.padding[0] + r * v.dilation[0];
              const int64_t w = q * v.stride[1] - v.padding[1] + s * v.dilation[1];
              if (h < 0 || h >= v.H || w < 0 || w >= v.W) continue;
              for (int64_t c = 0; c < v.D; c++) {
                const int64_t channel = k / (v.K / v.groups) * v.D + c;
                float &of_x = x.at(place(last, n, channel, h, w, v.C, v.H, v.W));
                float &of_weight = weight.at(place(last, k, c, r, s, v.D, v.R, v.S));
                if (result == CUDA_DNN_Y) to += of_x * of_weight;
                if (result == CUDA_DNN_X) of_x += to * of_weight;
                if (result == CUDA_DNN_WEIGHT) of_weight += to * of_x;
              }
            }
        }
  if (result == CUDA_DNN_X) x.store(x_at);
  if (result == CUDA_DNN_WEIGHT) weight.store(weight_at);
  if (result == CUDA_DNN_Y) y.store(y_at);
}

/* Gradients of weights come in the type of what they are computed from, as with cuDNN 9. */
bool refuses(const cuda_dnn_conv &wanted)
{
  const char *refused = getenv("EMULATED_REFUSES");
  if (wanted.type_weight != wanted.conv.dtype) return true;
  return refused && (strstr(refused, "convolutions") || (wanted.conv.x_last && strstr(refused, "last")));
}
} // namespace

extern "C" bool cuda_dnn_prefers_last(const cuda_backend *, uint32_t)
{
  const char *refused = getenv("EMULATED_REFUSES");
  return !(refused && strstr(refused, "last"));
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
