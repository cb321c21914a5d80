/* Plain loops in place of cuDNN's attention; see sdpa.h. EMULATED_REFUSES=attention: behaves like a library that has
 * none, so that the backend's own kernels are tested.
 *
 * Numbers are rounded where the library rounds them: the factors of matrix products have the type of q. In the
 * gradients, delta is computed from y in that type too. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "emulated_values.h"
#include "sdpa.h"

struct cuda_sdpa_plan {
  cuda_sdpa wanted;
};

namespace
{
enum { SCRATCH_BYTES = 1000 }; /* overwritten, so that values kept there by mistake are detected */

/* The numbers of each head in turn: [N,heads,length,D]. */
struct heads {
  uint32_t type;
  int64_t count, length, D, stride; /* stride: from one position in memory to the next */
  std::vector<float> value;

  heads(const cuda_sdpa &a, bool keys) : heads(a, keys, keys ? a.k_stride : a.q_stride) {}
  heads(const cuda_sdpa &a, bool keys, int64_t its_stride)
      : type(a.type), count(keys ? a.kv_heads : a.heads), length(keys ? a.S : a.T), D(a.D), stride(its_stride)
  {
    value.resize(static_cast<size_t>(a.N * count * length * D));
  }
  float *at(int64_t n, int64_t h, int64_t i) { return value.data() + ((n * count + h) * length + i) * D; }
  /* Calls f with each element's place in memory, where positions come before heads, and the element. */
  template <typename F> void each(int64_t samples, F f)
  {
    for (int64_t n = 0; n < samples; n++)
      for (int64_t i = 0; i < length; i++)
        for (int64_t h = 0; h < count; h++)
          for (int64_t d = 0; d < D; d++) f((n * length + i) * stride + h * D + d, at(n, h, i)[d]);
  }
  void take(int64_t samples, const void *from)
  {
    each(samples, [=, this](int64_t i, float &x) { x = emulated_load(type, from, i); });
  }
  void give(int64_t samples, void *to)
  {
    each(samples, [=, this](int64_t i, float &x) { emulated_store(type, to, i, x); });
  }
};

float rounded(const cuda_sdpa &a, float x)
{
  float kept; /* wide enough for every value */
  emulated_store(a.type, &kept, 0, x);
  return emulated_load(a.type, &kept, 0);
}

int64_t seen_by(const cuda_sdpa &a, int64_t t)
{
  return a.causal ? t + a.S - a.T + 1 : a.S;
}

/* Calls f for each query: sample, head, head of keys, position, and its place in lse. */
template <typename F> void each_query(const cuda_sdpa &a, F f)
{
  for (int64_t n = 0; n < a.N; n++)
    for (int64_t h = 0; h < a.heads; h++)
      for (int64_t t = 0; t < a.T; t++) f(n, h, h / (a.heads / a.kv_heads), t, (n * a.heads + h) * a.T + t);
}

void attend(const cuda_sdpa &a, const cuda_sdpa_values &o)
{
  heads q(a, false), k(a, true), v(a, true), y(a, false, a.heads * a.D);
  std::vector<float> score(static_cast<size_t>(a.S));
  q.take(a.N, o.q);
  k.take(a.N, o.k);
  v.take(a.N, o.v);
  each_query(a, [&](int64_t n, int64_t h, int64_t g, int64_t t, int64_t row) {
    float greatest = -INFINITY, total = 0;
    for (int64_t s = 0; s < seen_by(a, t); s++) {
      score[s] = a.scale * emulated_dot(q.at(n, h, t), k.at(n, g, s), a.D);
      greatest = fmaxf(greatest, score[s]);
    }
    for (int64_t s = 0; s < seen_by(a, t); s++) {
      const float weight = expf(score[s] - greatest);
      total += weight;
      emulated_add(y.at(n, h, t), rounded(a, weight), v.at(n, g, s), a.D);
    }
    for (int64_t d = 0; d < a.D; d++) y.at(n, h, t)[d] /= total;
    static_cast<float *>(o.lse)[row] = greatest + logf(total);
  });
  y.give(a.N, o.y);
}

void attend_back(const cuda_sdpa &a, const cuda_sdpa_values &o)
{
  heads q(a, false), k(a, true), v(a, true), y(a, false, a.heads * a.D), dy(a, false, a.heads * a.D);
  heads dq(a, false), dk(a, true), dv(a, true);
  q.take(a.N, o.q);
  k.take(a.N, o.k);
  v.take(a.N, o.v);
  y.take(a.N, o.y);
  dy.take(a.N, o.dy);
  each_query(a, [&](int64_t n, int64_t h, int64_t g, int64_t t, int64_t row) {
    const float *qt = q.at(n, h, t), *dyt = dy.at(n, h, t), lse = static_cast<const float *>(o.lse)[row];
    const float delta = emulated_dot(dyt, y.at(n, h, t), a.D);
    for (int64_t s = 0; s < seen_by(a, t); s++) {
      const float weight = expf(a.scale * emulated_dot(qt, k.at(n, g, s), a.D) - lse);
      const float ds = rounded(a, a.scale * weight * (emulated_dot(dyt, v.at(n, g, s), a.D) - delta));
      emulated_add(dq.at(n, h, t), ds, k.at(n, g, s), a.D);
      emulated_add(dk.at(n, g, s), ds, qt, a.D);
      emulated_add(dv.at(n, g, s), rounded(a, weight), dyt, a.D);
    }
  });
  dq.give(a.N, o.dq);
  dk.give(a.N, o.dk);
  dv.give(a.N, o.dv);
}

/* Returns the number of samples that one call processes: the greatest divisor of N below N, or 1. */
int64_t samples_of(int64_t N)
{
  int64_t samples = N > 1 ? N / 2 : N;
  while (N % samples != 0) samples--;
  return samples;
}

/* Refuses the cases that cuDNN refuses: head sizes that are not multiples of 8, queries that see no key, and a single
 * pair of query and key. */
bool refuses(const cuda_sdpa &a)
{
  if (a.D % 8 != 0 || (a.causal && a.T > a.S) || (a.T == 1 && a.S == 1)) return true;
  return emulated_refuses("attention");
}
} // namespace

extern "C" brim_status cuda_sdpa_prepare(cuda_backend *, const cuda_sdpa *sdpa, cuda_sdpa_plan **plan, int64_t *at_once,
                                         uint64_t *scratch_bytes)
{
  if (refuses(*sdpa)) return brim_fail(BRIM_ENOTSUP, "the emulated library refuses this attention");
  *at_once = samples_of(sdpa->N);
  *plan = new cuda_sdpa_plan{*sdpa};
  (*plan)->wanted.N = *at_once;
  *scratch_bytes = SCRATCH_BYTES;
  return BRIM_OK;
}

extern "C" brim_status cuda_sdpa_run(cuda_backend *b, const cuda_sdpa_plan *plan, const cuda_sdpa_values *values,
                                     void *scratch)
{
  if (cuda_counts(b)) return BRIM_OK;
  const cuda_sdpa wanted = plan->wanted;
  const cuda_sdpa_values v = *values;
  emulated_enqueue(b->compute, [=] {
    memset(scratch, 0xFF, SCRATCH_BYTES);
    if (wanted.result == CUDA_SDPA_Y)
      attend(wanted, v);
    else
      attend_back(wanted, v);
  });
  return BRIM_OK;
}

extern "C" void cuda_sdpa_release(cuda_sdpa_plan *plan)
{
  delete plan;
}
