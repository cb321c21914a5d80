/* Tensor cores on the emulated device: the instructions of mma.cuh. The lanes of a warp put their parts into an array,
 * wait for each other, and read. The next instruction uses the other array, so no lane has to wait until the others
 * have read: no lane can reach the instruction that reuses the first array before then. */
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

/* Two arrays that a thread's instructions use in turn. */
template <typename A> struct emulated_pair {
  A array[2];
  uint8_t turn[EMULATED_THREADS_MAX];
  A &next() { return array[turn[threadIdx.x] ^= 1]; }
};

/* The factors of a warp, left[row][k] and right[k][column], and their product. The first lane that continues computes
 * the product for all lanes. */
typedef float emulated_eight __attribute__((vector_size(32)));
struct emulated_factors {
  float left[16][16];
  emulated_eight right[16], product[16];
  bool is_done;
};

static inline void emulated_multiply(emulated_factors &f)
{
  for (int row = 0; row < 16; row++) {
    emulated_eight sum = {};
    for (int k = 0; k < 16; k++) sum += f.left[row][k] * f.right[k];
    f.product[row] = sum;
  }
  f.is_done = true;
}

template <typename T> static inline void emulated_mma(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
  static emulated_pair<emulated_factors[EMULATED_THREADS_MAX / CUDA_WARP]> pair;
  const unsigned lane = threadIdx.x % CUDA_WARP, g = lane / 4, c = lane % 4;
  const uint32_t b[2] = {b0, b1};
  emulated_factors &f = pair.next()[threadIdx.x / CUDA_WARP];
  float left[8], right[4];
  emulated_widen<T, 4>(left, a);
  emulated_widen<T, 2>(right, b);
  for (unsigned i = 0; i < 8; i++) f.left[g + i / 2 % 2 * 8][i / 4 * 8 + 2 * c + i % 2] = left[i];
  for (unsigned i = 0; i < 4; i++) f.right[i / 2 * 8 + 2 * c + i % 2][g] = right[i];
  f.is_done = false;
  __syncwarp();
  if (!f.is_done) emulated_multiply(f);
  for (unsigned i = 0; i < 4; i++) sum[i] += f.product[g + i / 2 * 8][2 * c + i % 2];
}

static inline void emulated_load_matrices(uint32_t (&r)[4], const void *row, bool turned)
{
  static emulated_pair<uint16_t[EMULATED_THREADS_MAX][8]> pair;
  const unsigned lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x - lane, g = lane / 4, c = lane % 4;
  auto &rows = pair.next();
  const uint4 raw = *static_cast<const uint4 *>(row); /* its address is a multiple of 16 */
  memcpy(rows[threadIdx.x], &raw, sizeof raw);
  __syncwarp();
  for (unsigned i = 0; i < 4; i++) {
    const uint16_t(*matrix)[8] = &rows[warp + 8 * i];
    const uint16_t first = turned ? matrix[2 * c][g] : matrix[g][2 * c];
    const uint16_t second = turned ? matrix[2 * c + 1][g] : matrix[g][2 * c + 1];
    r[i] = first | (uint32_t)second << 16;
  }
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
