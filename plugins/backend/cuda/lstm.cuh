/* Shared code of LSTM and its gradient. */
#ifndef CUDA_LSTM_CUH
#define CUDA_LSTM_CUH
#include "lstm_geometry.h"
#include "tile.cuh"

typedef struct lstm_sizes {
  int64_t samples, steps, features, hidden; /* N, T, F (0 if not needed), H */
  bool reverse;
} lstm_sizes;

static inline lstm_sizes lstm_sizes_of(const brim_node *node, const brim_tensor *y, int64_t features)
{
  const int64_t *dim = y->shape.dim;
  return lstm_sizes{dim[0], dim[1], features, dim[2], node->attr.lstm.reverse != 0};
}

/* The element of sample n at step s; the previous step's is at s - 1. */
static __device__ inline int64_t lstm_at(const lstm_sizes &q, int64_t n, int64_t s)
{
  return n * q.steps + (q.reverse ? q.steps - 1 - s : s);
}

static __device__ inline float lstm_sigmoid(float a)
{
  return 1 / (1 + expf(-a));
}
/* The activation of gate 0 to 3: i, f, g, o. */
static __device__ inline float lstm_activate(int gate, float a)
{
  return gate == 2 ? tanhf(a) : lstm_sigmoid(a);
}

/* S contiguous numbers in shared memory, one for each of a block's samples. */
template <int S> static __device__ inline void lstm_load_samples(const float *p, float (&v)[S])
{
  static_assert(S == 1 || S == 4, "one number, or 16 bytes");
  if constexpr (S == 1) {
    v[0] = *p;
  } else {
    const float4 four = *reinterpret_cast<const float4 *>(p);
    v[0] = four.x;
    v[1] = four.y;
    v[2] = four.z;
    v[3] = four.w;
  }
}
#endif
