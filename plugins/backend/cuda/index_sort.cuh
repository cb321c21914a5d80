/* A stable sort of indices: a radix sort by digits of 8 bits, from the lowest digit on.
 *
 * In a round, each warp has a stretch of the numbers and counts its digits. The counts are added up, digit by digit and
 * by warps within a digit. Then each warp goes through its stretch again and stores every number at the next position
 * of its digit. Only integers are added, so the order of additions does not matter. A round reads 16 bytes and writes 8
 * for each number, which is little compared with the work on the rows. */
#ifndef CUDA_INDEX_SORT_CUH
#define CUDA_INDEX_SORT_CUH
#include "divider.h"
#include "kernel.cuh"
#include "sort_geometry.h"

enum { SORT_WARPS = CUDA_THREADS / CUDA_WARP, SCAN_THREADS = 1024, SCAN_EACH = 4 };

/* Keys and their rows; two copies in scratch, because a round cannot work in place. */
typedef struct sort_arrays {
  uint32_t *key[2], *row[2], *counts;
} sort_arrays;

static inline uint64_t index_sort_bytes(int64_t count)
{
  const uint64_t numbers = cuda_round_up((uint64_t)count * sizeof(uint32_t), CUDA_ALIGNMENT);
  return 4 * numbers + (uint64_t)cuda_sort_workers(count) * CUDA_DIGITS * sizeof(uint32_t);
}

static inline sort_arrays index_sort_arrays(void *scratch, int64_t count)
{
  const uint64_t numbers = cuda_round_up((uint64_t)count * sizeof(uint32_t), CUDA_ALIGNMENT);
  char *at = (char *)scratch;
  sort_arrays a;
  for (int i = 0; i < 2; i++) {
    a.key[i] = (uint32_t *)(void *)(at + (uint64_t)(2 * i) * numbers);
    a.row[i] = (uint32_t *)(void *)(at + (uint64_t)(2 * i + 1) * numbers);
  }
  a.counts = (uint32_t *)(void *)(at + 4 * numbers);
  return a;
}

/* The input of the first round: an index in [0, limit) is its key; others are reported, and come last with key
 * `limit`. */
typedef struct sort_source {
  const int32_t *index;
  int64_t limit, first_row; /* first_row: the row of index[0] in the micro-batch */
  cuda_divider by_sample;   /* rows of a sample */
  cuda_control *control;
  uint64_t node;
} sort_source;

static __global__ void __launch_bounds__(CUDA_THREADS)
    sort_begin_kernel(uint32_t *key, uint32_t *row, const sort_source s, int64_t count)
{
  for (int64_t i = cuda_first(); i < count; i += cuda_step_width()) {
    const int32_t value = s.index[i];
    const bool inside = value >= 0 && value < s.limit;
    if (!inside) cuda_report(s.control, s.node, cuda_quotient(&s.by_sample, s.first_row + i), value, s.limit);
    key[i] = (uint32_t)(inside ? value : s.limit);
    row[i] = (uint32_t)i;
  }
}

/* counts[digit][worker] */
static __global__ void __launch_bounds__(CUDA_THREADS)
    sort_count_kernel(uint32_t *counts, const uint32_t *key, int64_t count, int64_t each, int workers, int shift)
{
  __shared__ uint32_t counter[SORT_WARPS][CUDA_DIGITS];
  const int lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP;
  const int worker = (int)blockIdx.x * SORT_WARPS + warp;
  for (int d = lane; d < CUDA_DIGITS; d += CUDA_WARP) counter[warp][d] = 0;
  __syncwarp();
  const int64_t end = cuda_min(count, (worker + 1) * each);
  for (int64_t i = worker * each + lane; i < end; i += CUDA_WARP)
    atomicAdd(&counter[warp][key[i] >> shift & (CUDA_DIGITS - 1)], 1u);
  __syncwarp();
  for (int d = lane; d < CUDA_DIGITS && worker < workers; d += CUDA_WARP)
    counts[(int64_t)d * workers + worker] = counter[warp][d];
}

/* Returns the sum of the values of all earlier threads, in a block of SCAN_THREADS; *all becomes the sum of all
 * threads. */
static __device__ inline uint32_t sum_before(uint32_t value, uint32_t *all)
{
  __shared__ uint32_t part[CUDA_WARP];
  const int lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP;
  uint32_t sum = value;
  for (int lanes = 1; lanes < CUDA_WARP; lanes *= 2) {
    const uint32_t other = __shfl_up_sync(0xFFFFFFFFu, sum, lanes);
    if (lane >= lanes) sum += other;
  }
  if (lane == CUDA_WARP - 1) part[warp] = sum;
  __syncthreads();
  uint32_t before = 0, total = 0;
  for (int w = 0; w < CUDA_WARP; w++) {
    if (w == warp) before = total;
    total += part[w];
  }
  __syncthreads();
  *all = total;
  return before + sum - value;
}

/* Replaces each number by the sum of those before it. Runs as one block. */
static __global__ void __launch_bounds__(SCAN_THREADS) sort_scan_kernel(uint32_t *counts, int64_t count)
{
  uint32_t carry = 0;
  for (int64_t first = 0; first < count; first += SCAN_THREADS * SCAN_EACH) {
    uint32_t value[SCAN_EACH], sum = 0, all;
    const int64_t at = first + (int64_t)threadIdx.x * SCAN_EACH;
#pragma unroll
    for (int k = 0; k < SCAN_EACH; k++) {
      value[k] = at + k < count ? counts[at + k] : 0;
      sum += value[k];
    }
    uint32_t before = carry + sum_before(sum, &all);
#pragma unroll
    for (int k = 0; k < SCAN_EACH; k++) {
      if (at + k < count) counts[at + k] = before;
      before += value[k];
    }
    carry += all;
  }
}

/* Returns the lanes with the same digit as this lane, as bits; `active`: the lanes that have a digit. */
static __device__ inline unsigned same_digit(unsigned active, uint32_t digit)
{
  unsigned same = active;
  for (int bit = 0; bit < CUDA_DIGIT_BITS; bit++) {
    const unsigned set = __ballot_sync(0xFFFFFFFFu, digit >> bit & 1);
    same &= digit >> bit & 1 ? set : ~set;
  }
  return same;
}

static __global__ void __launch_bounds__(CUDA_THREADS)
    sort_place_kernel(uint32_t *to_key, uint32_t *to_row, const uint32_t *key, const uint32_t *row,
                      const uint32_t *counts, int64_t count, int64_t each, int workers, int shift)
{
  __shared__ uint32_t next[SORT_WARPS][CUDA_DIGITS];
  const int lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP;
  const int worker = (int)blockIdx.x * SORT_WARPS + warp;
  for (int d = lane; d < CUDA_DIGITS && worker < workers; d += CUDA_WARP)
    next[warp][d] = counts[(int64_t)d * workers + worker];
  __syncwarp();
  const int64_t begin = worker * each, end = cuda_min(count, begin + each);
  for (int64_t first = begin; first < end; first += CUDA_WARP) {
    const int64_t i = first + lane;
    const uint32_t value = i < end ? key[i] : 0, digit = value >> shift & (CUDA_DIGITS - 1);
    const unsigned same = same_digit(__ballot_sync(0xFFFFFFFFu, i < end), digit);
    const int before = __popc(same & ((1u << lane) - 1));
    const uint32_t at = next[warp][digit] + (uint32_t)before;
    __syncwarp();
    if (i < end) {
      if (before == 0) next[warp][digit] += (uint32_t)__popc(same);
      to_key[at] = value;
      to_row[at] = row[i];
    }
    __syncwarp();
  }
}

/* [step] Sorts `count` indices, fewer than 2^31. *sorted tells which of the arrays have the keys and rows. */
static inline brim_status index_sort(cuda_backend *b, const sort_arrays *a, const sort_source *source, int64_t count,
                                     int *sorted)
{
  const int64_t each = cuda_divide_up(count, cuda_sort_workers(count));
  const int workers = (int)cuda_divide_up(count, each), rounds = cuda_sort_rounds(source->limit);
  const cuda_geometry g = cuda_rows(cuda_divide_up(workers, SORT_WARPS), CUDA_THREADS);
  BRIM_TRY(
      cuda_launch(b, sort_begin_kernel, cuda_stride(count, 1, b->processors), a->key[0], a->row[0], *source, count));
  for (int round = 0; round < rounds; round++) {
    const int from = round % 2, to = 1 - from, shift = round * CUDA_DIGIT_BITS;
    BRIM_TRY(cuda_launch(b, sort_count_kernel, g, a->counts, a->key[from], count, each, workers, shift));
    BRIM_TRY(cuda_launch(b, sort_scan_kernel, cuda_rows(1, SCAN_THREADS), a->counts, (int64_t)workers * CUDA_DIGITS));
    BRIM_TRY(cuda_launch(b, sort_place_kernel, g, a->key[to], a->row[to], a->key[from], a->row[from], a->counts, count,
                         each, workers, shift));
  }
  *sorted = rounds % 2;
  return BRIM_OK;
}
#endif
