/* The processor's peak: the clock and the rate of multiply-adds, for the programs that time kernels. */
#ifndef TESTS_BENCH_PEAK_H
#define TESTS_BENCH_PEAK_H
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define THREADS_MAX 64

static double now_ms(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* The peak is measured at full optimization and with fused multiply-adds, even if the bench is built without them. */
#ifdef __clang__
#define PEAK(isa) __attribute__((target(isa)))
#else
#define PEAK(isa) __attribute__((target(isa), optimize("O3", "fp-contract=fast")))
#endif

#define FMA_ROUNDS 20000000
#define FMA_BODY(lanes)                                                                                                \
  typedef float vector __attribute__((vector_size(lanes * 4)));                                                        \
  vector sum[12];                                                                                                      \
  const vector a = (vector){0} + 0.999f, b = (vector){0} + 0.001f;                                                     \
  for (int k = 0; k < 12; k++) sum[k] = (vector){0} + (float)k; /* all different, so that they are not merged */       \
  for (long i = 0; i < FMA_ROUNDS; i++) {                                                                              \
    for (int k = 0; k < 12; k++) sum[k] = sum[k] * a + b;                                                              \
    __asm__ volatile("");                                                                                              \
  }                                                                                                                    \
  for (int k = 1; k < 12; k++) sum[0] += sum[k];                                                                       \
  *(float *)out = sum[0][0];                                                                                           \
  return NULL

#if defined(__x86_64__)
PEAK("avx512f") static void *fma_16(void *out)
{
  FMA_BODY(16);
}
PEAK("avx2,fma") static void *fma_8(void *out)
{
  FMA_BODY(8);
}
#else
PEAK("arch=armv8-a") static void *fma_4(void *out)
{
  FMA_BODY(4);
}
#endif

/* Milliseconds of fn on each of `threads` threads; thread i gets args + i * stride. */
static double timed(int threads, void *(*fn)(void *), char *args, size_t stride)
{
  pthread_t thread[THREADS_MAX];
  const double start = now_ms();
  for (int i = 1; i < threads; i++)
    if (pthread_create(&thread[i], NULL, fn, args + (size_t)i * stride) != 0) abort();
  fn(args);
  for (int i = 1; i < threads; i++) pthread_join(thread[i], NULL);
  return now_ms() - start;
}

static inline double peak_gflops(int threads)
{
  float out[THREADS_MAX * 16];
#if defined(__x86_64__)
  const int lanes = __builtin_cpu_supports("avx512f") ? 16 : 8;
  void *(*const run)(void *) = lanes == 16 ? fma_16 : fma_8;
  if (!__builtin_cpu_supports("fma")) return 0;
#else
  const int lanes = 4;
  void *(*const run)(void *) = fma_4;
#endif
  double best = 1e9;
  for (int i = 0; i < 3; i++) {
    const double ms = timed(threads, run, (char *)out, 16 * sizeof *out);
    if (ms < best) best = ms;
  }
  return 2.0 * 12 * lanes * FMA_ROUNDS * threads / best * 1e-6;
}
#endif
