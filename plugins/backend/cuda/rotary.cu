/* Rotary position embedding (Su et al.: RoFormer, 2021). The first `dims` numbers of each head are pairs. Pair i of
 * position t is turned by the angle t * frequency(i) (brim/rotary.h); the rest of the head stays:
 *
 *     y[a] = x[a] * cos - x[b] * sin
 *     y[b] = x[b] * cos + x[a] * sin
 *
 * with a = 2i, b = 2i + 1 (interleaved) or a = i, b = i + dims/2 (halves), and times an amplitude. The gradient turns
 * dy back. Heads from `turned` on are copied. x is read and y is written once; y may overwrite x, because a thread
 * reads its pairs before it writes them.
 *
 * t is the token's position or, if the node has places, its place in its document.
 *
 * An angle of thousands of turns would lose all its digits in fp32, and functions in double precision are slow. So a
 * block has one position, in all or some samples and heads, and computes the cosines and sines of its pairs once. With
 * places it computes them again for each sample whose place differs. */
#include "brim/rotary.h"
#include "divider.h"
#include "words.cuh"

enum { PAIRS = 512 }; /* maximum pairs of a block: 4 KiB of shared memory */

typedef struct rotary {
  brim_rotary_attr attr;                         /* `divisor` in it is a pointer to host memory */
  double divisor[BRIM_ROTARY_DIVISORS_MAX];      /* with longrope, a copy of the divisors for the device */
  int64_t samples, positions, heads, size, dims; /* N, T, turned heads, D; dims: numbers of a head that turn */
  int64_t stride;                                /* elements from one position to the next */
  double direction;
  int32_t interleaved;
  const int32_t *places; /* [N,T], or NULL */
  int64_t samples_each;  /* samples of a block */
  cuda_divider packs[2]; /* packs of V pairs in a head: [1] in the last block of a position, [0] in the other blocks */
  cuda_divider rest;     /* numbers of a head that do not turn */
  cuda_divider by_heads;
} rotary;

/* Turns V pairs of one head, from `first` on. */
template <typename T, int V>
static __device__ inline void turn(T *y, const T *x, const rotary &r, int64_t first, const float *cosine,
                                   const float *sine)
{
  float u[V], w[V], turned_u[V], turned_w[V];
  const int64_t at = r.interleaved ? 2 * first : first, other = r.interleaved ? at + V : at + r.dims / 2;
  cuda_load_values(u, x + at);
  cuda_load_values(w, x + other);
#pragma unroll
  for (int k = 0; k < V; k++) { /* halves: pair k is u[k], w[k]; interleaved: u and then w hold pair after pair */
    const int a = 2 * k % V;
    const bool in_u = 2 * k < V;
    const float xa = r.interleaved && V > 1 ? (in_u ? u[a] : w[a]) : u[k];
    const float xb = r.interleaved && V > 1 ? (in_u ? u[(a + 1) % V] : w[(a + 1) % V]) : w[k];
    const float ya = xa * cosine[k] - xb * sine[k], yb = xb * cosine[k] + xa * sine[k];
    if (!r.interleaved || V == 1) {
      turned_u[k] = ya;
      turned_w[k] = yb;
    } else if (in_u) {
      turned_u[a] = ya;
      turned_u[(a + 1) % V] = yb;
    } else {
      turned_w[a] = ya;
      turned_w[(a + 1) % V] = yb;
    }
  }
  cuda_store_values(y + at, turned_u);
  cuda_store_values(y + other, turned_w);
}

/* Returns how many of the samples from `first` on, at most `samples`, have the same place at position t. */
static __device__ inline int64_t samples_at(const rotary &r, int64_t first, int64_t samples, int64_t t)
{
  int64_t same = 1;
  if (!r.places) return samples;
  while (same < samples && r.places[(first + same) * r.positions + t] == r.places[first * r.positions + t]) same++;
  return same;
}

/* Returns the angle of pair i at place 1. The divisors are read from the kernel's argument, because a pointer to them
 * would make every thread copy them. */
static __device__ inline double frequency_of(const rotary &r, int64_t i)
{
  if (r.attr.scaling != BRIM_ROTARY_LONGROPE) return brim_rotary_frequency(&r.attr, i);
  brim_rotary_attr plain = r.attr;
  plain.scaling = BRIM_ROTARY_PLAIN;
  return brim_rotary_frequency(&plain, i) / r.divisor[i];
}

/* Turns position t of some samples that have the same place there. */
template <typename T, int V>
static __device__ inline void turn_samples(T *y, const T *x, const rotary &r, int64_t first, int64_t samples, int64_t t,
                                           float *cosine, float *sine)
{
  const int64_t first_pair = (int64_t)blockIdx.z * PAIRS, pairs = cuda_min(PAIRS, r.dims / 2 - first_pair);
  const int64_t place = r.places ? r.places[first * r.positions + t] : t;
  const cuda_divider packs = r.packs[blockIdx.z + 1 == gridDim.z];
  for (int64_t i = threadIdx.x; i < pairs; i += blockDim.x) {
    const double angle = (double)place * frequency_of(r, first_pair + i);
    double s, c;
    sincospi(angle * 0.31830988618379067154, &s, &c); /* 1 / pi */
    cosine[i] = (float)(r.attr.amplitude * c);
    sine[i] = (float)(r.attr.amplitude * r.direction * s);
  }
  __syncthreads();
  for (int64_t e = threadIdx.x; e < samples * r.heads * packs.by; e += blockDim.x) {
    int64_t head = e;
    const int64_t pair = cuda_take(&packs, &head) * V, h = cuda_take(&r.by_heads, &head);
    const int64_t at = ((first + head) * r.positions + t) * r.stride + h * r.size;
    turn<T, V>(y + at, x + at, r, first_pair + pair, &cosine[pair], &sine[pair]);
  }
  if (blockIdx.z == 0 && r.size > r.dims && x != y)
    for (int64_t e = threadIdx.x; e < samples * r.heads * r.rest.by; e += blockDim.x) {
      int64_t head = e;
      const int64_t d = r.dims + cuda_take(&r.rest, &head), h = cuda_take(&r.by_heads, &head);
      const int64_t at = ((first + head) * r.positions + t) * r.stride + h * r.size + d;
      y[at] = x[at];
    }
  const int64_t turned = r.heads * r.size;
  if (blockIdx.z == 0 && r.stride > turned && x != y)
    for (int64_t sample = first; sample < first + samples; sample++)
      for (int64_t d = turned + threadIdx.x; d < r.stride; d += blockDim.x) {
        const int64_t at = (sample * r.positions + t) * r.stride + d;
        y[at] = x[at];
      }
  __syncthreads();
}

template <typename T, int V>
static __global__ void __launch_bounds__(CUDA_THREADS) rotary_kernel(T *y, const T *x, const rotary r)
{
  __shared__ float cosine[PAIRS], sine[PAIRS];
  const int64_t begin = blockIdx.y * r.samples_each, end = cuda_min(begin + r.samples_each, r.samples);
  for (int64_t t = blockIdx.x; t < r.positions; t += gridDim.x)
    for (int64_t first = begin, count; first < end; first += count) {
      count = samples_at(r, first, end - first, t);
      turn_samples<T, V>(y, x, r, first, count, t, cosine, sine);
    }
}

template <typename T, int V> static brim_status turn_all(cuda_backend *b, const brim_launch *launch, rotary r)
{
  const int64_t pairs = r.dims / 2, chunks = cuda_divide_up(pairs, PAIRS);
  const int64_t wanted = cuda_divide_up((int64_t)b->processors * 4, r.positions); /* wanted blocks for a position */
  r.samples_each = cuda_divide_up(r.samples, cuda_max(1, cuda_min(cuda_min(wanted, r.samples), 65535)));
  r.packs[0] = cuda_divider_of(PAIRS / V);
  r.packs[1] = cuda_divider_of((pairs - (chunks - 1) * PAIRS) / V);
  const cuda_geometry g = {{(unsigned)cuda_min(r.positions, 0x7FFFFFFF),
                            (unsigned)cuda_divide_up(r.samples, r.samples_each), (unsigned)chunks},
                           CUDA_THREADS,
                           0};
  return cuda_launch(b, rotary_kernel<T, V>, g, (T *)launch->out[0], (const T *)launch->in[0], r);
}

static brim_status turn_by(cuda_backend *b, const brim_launch *launch, double direction)
{
  const brim_shape *x = &launch->node->in[0]->shape;
  const brim_rotary_attr *a = &launch->node->attr.rotary;
  rotary r = {};
  r.samples = x->dim[0];
  r.positions = x->dim[1];
  r.heads = a->turned > 0 ? a->turned : a->heads;
  r.stride = x->dim[2];
  r.size = x->dim[2] / a->heads;
  r.dims = a->dims;
  r.attr = *a;
  for (int64_t i = 0; a->divisor && i < a->dims / 2; i++) r.divisor[i] = a->divisor[i];
  r.direction = direction;
  r.interleaved = a->interleaved;
  if (launch->node->in_count > 1) r.places = (const int32_t *)launch->in[1];
  r.rest = cuda_divider_of(cuda_max(1, r.size - r.dims));
  r.by_heads = cuda_divider_of(r.heads);
  const bool is_by_4 = r.size % 4 == 0 && r.dims % 8 == 0; /* in this case pairs and heads begin at whole packs */
  CUDA_WITH_TYPE(launch->node->in[0]->dtype, T, {
    if (is_by_4) return turn_all<T, 4>(b, launch, r);
    return turn_all<T, 1>(b, launch, r);
  });
}

static CUDA_RUN(rotary_run)
{
  return turn_by((cuda_backend *)self, launch, 1);
}
static CUDA_RUN(rotary_grad_run)
{
  return turn_by((cuda_backend *)self, launch, -1);
}
BRIM_KERNEL(rotary) = {.op = "rotary", .run = rotary_run};
BRIM_KERNEL(rotary_grad) = {.op = "rotary_grad", .run = rotary_grad_run};
