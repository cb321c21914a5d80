/* Loads and stores of several neighbouring values at once, as words of 1, 2, 4, 8 or 16 bytes of any content. */
#ifndef CUDA_WORDS_CUH
#define CUDA_WORDS_CUH
#include "kernel.cuh"

template <int BYTES> struct cuda_word;
template <> struct cuda_word<1> {
  using type = uint8_t;
};
template <> struct cuda_word<2> {
  using type = uint16_t;
};
template <> struct cuda_word<4> {
  using type = uint32_t;
};
template <> struct cuda_word<8> {
  using type = uint2;
};
template <> struct cuda_word<16> {
  using type = uint4;
};

/* Defines U, a word of bytes_ bytes: CUDA_WITH_WORD(unit, U, return launch_copy<U>(...)). */
#define CUDA_WITH_WORD(bytes_, U, ...)                                                                                 \
  do {                                                                                                                 \
    switch (bytes_) {                                                                                                  \
    case 16: {                                                                                                         \
      using U = cuda_word<16>::type;                                                                                   \
      __VA_ARGS__;                                                                                                     \
    }                                                                                                                  \
    case 8: {                                                                                                          \
      using U = cuda_word<8>::type;                                                                                    \
      __VA_ARGS__;                                                                                                     \
    }                                                                                                                  \
    case 4: {                                                                                                          \
      using U = cuda_word<4>::type;                                                                                    \
      __VA_ARGS__;                                                                                                     \
    }                                                                                                                  \
    case 2: {                                                                                                          \
      using U = cuda_word<2>::type;                                                                                    \
      __VA_ARGS__;                                                                                                     \
    }                                                                                                                  \
    default: {                                                                                                         \
      using U = cuda_word<1>::type;                                                                                    \
      __VA_ARGS__;                                                                                                     \
    }                                                                                                                  \
    }                                                                                                                  \
  } while (0)

/* Loads or stores V values at an address that is a multiple of their total bytes. */
template <int V, typename T> static __device__ inline void cuda_load_values(float (&v)[V], const T *p)
{
  T value[V];
  const auto word = *reinterpret_cast<const typename cuda_word<V * sizeof(T)>::type *>(p);
  memcpy(value, &word, sizeof word);
#pragma unroll
  for (int k = 0; k < V; k++) v[k] = cuda_load(&value[k]);
}
template <int V, typename T> static __device__ inline void cuda_store_values(T *p, const float (&v)[V])
{
  T value[V];
  typename cuda_word<V * sizeof(T)>::type word;
#pragma unroll
  for (int k = 0; k < V; k++) cuda_store(&value[k], v[k]);
  memcpy(&word, value, sizeof word);
  *reinterpret_cast<typename cuda_word<V * sizeof(T)>::type *>(p) = word;
}
#endif
