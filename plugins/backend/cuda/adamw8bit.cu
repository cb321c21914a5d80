/* AdamW whose moments are kept in 8 bits (Dettmers et al., 2022; brim/code8.h), in place:
 *
 *     p = p - lr * weight_decay * p
 *     m = beta1 * value(m) * m_absmax + (1 - beta1) * g         v = beta2 * value(v) * v_absmax + (1 - beta2) * g^2
 *     p = p - lr / bc1 * m / (sqrt(v) / sqrt(bc2) + eps)
 *     absmax = the greatest of the block; m, v = the codes nearest to m / m_absmax, v / v_absmax
 *
 * Bytes per element: 16 (reads g, p and two codes, writes p and two codes). A block of 256 threads works on a block of
 * 256 values and finds their maximum. A code is found by binary search among the borders between codes; borders and the
 * codes' values are in shared memory. They come as a kernel argument, computed in the host's double precision, so that
 * device and host agree to the bit. */
#include <string.h>

#include "kernel.cuh"

enum { THREADS = BRIM_CODE8_BLOCK, SIGNED = 129, UNSIGNED = 256 };

/* Magnitudes, and the upper border of each; the last is infinite. */
typedef struct codes {
  float magnitude[SIGNED + UNSIGNED], border[SIGNED + UNSIGNED]; /* codes with a sign first, then codes without */
} codes;

typedef struct job {
  const float *g;
  float *p, *m_absmax, *v_absmax;
  uint8_t *m, *v;
  int64_t count;
  const double *scale;
  const cuda_control *control;
  bool no_decay;
} job;

static void fill_codes(float *magnitude, float *border, bool is_signed)
{
  double exact[256];
  const int32_t count = brim_code8_magnitudes(is_signed, exact);
  for (int32_t k = 0; k < count; k++) {
    magnitude[k] = (float)exact[k];
    border[k] = k + 1 < count ? (float)brim_code8_border(exact, count, k) : INFINITY;
  }
}

/* Returns the first of `count` borders that is not below x. */
static __device__ inline int nearest(const float *border, int count, float x)
{
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (x > border[middle])
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Returns the greatest of the block's values; ignores NaN. */
static __device__ inline float greatest(float x)
{
  const float size = fabsf(x);
  return cuda_block_max(size == size ? size : 0);
}

static __global__ void __launch_bounds__(THREADS)
    adamw8bit_kernel(const __grid_constant__ codes table, const __grid_constant__ job j)
{
  __shared__ codes c;
  if (cuda_refused(j.control)) return;
  for (int i = threadIdx.x; i < SIGNED + UNSIGNED; i += THREADS) {
    c.magnitude[i] = table.magnitude[i];
    c.border[i] = table.border[i];
  }
  __syncthreads();
  const brim_step *s = &j.control->step;
  const float factor = j.scale ? (float)j.scale[1] : 1, kept = j.no_decay ? 1 : (float)(1 - s->lr * s->weight_decay);
  const float beta1 = (float)s->beta1, rest1 = (float)(1 - s->beta1), beta2 = (float)s->beta2,
              rest2 = (float)(1 - s->beta2), step_size = (float)(s->lr / s->bias_correction1),
              root = (float)(1 / sqrt(s->bias_correction2)), eps = (float)s->eps;
  for (int64_t block = blockIdx.x; block * THREADS < j.count; block += gridDim.x) {
    const int64_t i = block * THREADS + threadIdx.x;
    const bool is_there = i < j.count;
    float m = 0, v = 0;
    if (is_there) {
      const float g = factor * j.g[i];
      const int code = (int)j.m[i] - BRIM_CODE8_ZERO;
      const float size = c.magnitude[code < 0 ? -code : code] * j.m_absmax[block];
      m = fmaf(beta1, code < 0 ? -size : size, rest1 * g);
      v = fmaf(beta2, c.magnitude[SIGNED + j.v[i]] * j.v_absmax[block], rest2 * g * g);
      j.p[i] = fmaf(kept, j.p[i], -(step_size * m / fmaf(sqrtf(v), root, eps)));
    }
    const float m_absmax = greatest(m), v_absmax = greatest(v); /* after this, all threads have read the old values */
    if (is_there) {
      const int k = nearest(c.border, SIGNED, m_absmax > 0 ? fabsf(m) / m_absmax : 0);
      j.m[i] = (uint8_t)(BRIM_CODE8_ZERO + (m < 0 ? -(k < BRIM_CODE8_ZERO ? k : BRIM_CODE8_ZERO) : k));
      j.v[i] = (uint8_t)nearest(c.border + SIGNED, UNSIGNED, v_absmax > 0 ? v / v_absmax : 0);
    }
    if (threadIdx.x == 0) {
      j.m_absmax[block] = m_absmax;
      j.v_absmax[block] = v_absmax;
    }
  }
}

static CUDA_RUN(run)
{
  cuda_backend *b = static_cast<cuda_backend *>(self);
  const brim_node *n = launch->node;
  codes table;
  job j = {};
  fill_codes(table.magnitude, table.border, true);
  fill_codes(table.magnitude + SIGNED, table.border + SIGNED, false);
  j.g = static_cast<const float *>(launch->in[1]);
  j.p = static_cast<float *>(launch->out[0]);
  j.m = static_cast<uint8_t *>(launch->out[1]);
  j.m_absmax = static_cast<float *>(launch->out[2]);
  j.v = static_cast<uint8_t *>(launch->out[3]);
  j.v_absmax = static_cast<float *>(launch->out[4]);
  j.count = brim_shape_count(&n->in[0]->shape);
  j.scale = n->attr.update.scaled ? static_cast<const double *>(launch->in[n->in_count - 1]) : nullptr;
  j.control = cuda_control_of(b, launch);
  if (!j.control) return BRIM_EDEVICE;
  j.no_decay = n->attr.update.no_decay;
  cuda_geometry g = cuda_stride(cuda_divide_up(j.count, THREADS) * CUDA_THREADS, 1, b->processors);
  g.threads = THREADS;
  return cuda_launch(b, adamw8bit_kernel, g, table, j);
}
BRIM_KERNEL(adamw8bit) = {.op = "adamw8bit", .run = run};
