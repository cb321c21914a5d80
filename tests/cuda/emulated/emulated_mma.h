/* Tensor cores on the emulated device: what the instructions of mma.cuh do. The lanes of a warp put their parts into an
 * array, wait for each other, and read. */
#ifndef EMULATED_MMA_H
#define EMULATED_MMA_H
#include <vector>

#include "kernel.cuh"

/* A fragment's numbers in the order of its registers, the lower half of each first. */
template <typename T, int REGISTERS>
static inline void emulated_widen(float (&to)[2 * REGISTERS], const uint32_t (&from)[REGISTERS])
{
  T value[2 * REGISTERS];
  static_assert(sizeof value == sizeof from, "16 bits");
  memcpy(value, from, sizeof value);
  for (int i = 0; i < 2 * REGISTERS; i++) to[i] = cuda_load(&value[i]);
}

template <typename T> static inline void emulated_mma(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
  static float left[EMULATED_THREADS_MAX][8], right[EMULATED_THREADS_MAX][4];
  const unsigned lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x - lane;
  const uint32_t b[2] = {b0, b1};
  emulated_widen<T, 4>(left[threadIdx.x], a);
  emulated_widen<T, 2>(right[threadIdx.x], b);
  __syncwarp();
  for (unsigned i = 0; i < 4; i++) {
    const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (unsigned k = 0; k < 16; k++) {
      const unsigned of = k % 8 / 2, half = k % 2; /* the lane of four, and its number in the register */
      sum[i] += left[warp + row % 8 * 4 + of][2 * (k / 8 * 2 + row / 8) + half] *
                right[warp + column * 4 + of][2 * (k / 8) + half];
    }
  }
  __syncwarp();
}

static inline void emulated_load_matrices(uint32_t (&r)[4], const void *row, bool turned)
{
  static uint16_t rows[EMULATED_THREADS_MAX][8];
  const unsigned lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x - lane, g = lane / 4, c = lane % 4;
  const uint4 raw = *static_cast<const uint4 *>(row); /* its address is a multiple of 16 */
  memcpy(rows[threadIdx.x], &raw, sizeof raw);
  __syncwarp();
  for (unsigned i = 0; i < 4; i++) {
    const uint16_t(*matrix)[8] = &rows[warp + 8 * i];
    const uint16_t first = turned ? matrix[2 * c][g] : matrix[g][2 * c];
    const uint16_t second = turned ? matrix[2 * c + 1][g] : matrix[g][2 * c + 1];
    r[i] = first | (uint32_t)second << 16;
  }
  __syncwarp();
}

/* Copies happen when the thread waits for them, so that a kernel that does not wait reads old values. */
struct emulated_copy {
  void *to;
  const void *from;
  size_t bytes;
  bool is;
};
static std::vector<emulated_copy> emulated_copies[EMULATED_THREADS_MAX];

template <typename T> static inline void emulated_copy_word(const emulated_copy &c)
{
  *static_cast<T *>(c.to) = c.is ? *static_cast<const T *>(c.from) : T{};
}
static inline void emulated_copy_later(void *to, const void *from, size_t bytes, bool is)
{
  emulated_copies[threadIdx.x].push_back({to, from, bytes, is});
}
static inline void emulated_wait_copies()
{
  for (const emulated_copy &c : emulated_copies[threadIdx.x]) {
    if (c.bytes == sizeof(uint4))
      emulated_copy_word<uint4>(c);
    else
      emulated_copy_word<uint32_t>(c);
  }
  emulated_copies[threadIdx.x].clear();
}
#endif
