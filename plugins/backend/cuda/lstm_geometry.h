/* The host's side of LSTM: whether weights stay in shared memory, and how sums are divided. C and C++. */
#ifndef CUDA_LSTM_GEOMETRY_H
#define CUDA_LSTM_GEOMETRY_H
#include <stdbool.h>

#include "tile_geometry.h"

/* Shared memory that a block may have, by compute capability. */
static inline size_t lstm_shared_most(int capability)
{
  if (capability == 80 || capability == 87) return 163 * 1024;
  if (capability == 90 || capability == 100 || capability == 103) return 227 * 1024;
  return 99 * 1024;
}

/* A block with weights in shared memory, [H][4H], and `samples` samples at once. For each sample it has, forward, h,
 * the gates and c; backward, the gates' gradients and four parts of each sum: at most 8H numbers. The compiled code
 * reads h four numbers at a time, so the last read covers up to 3 numbers more, which no other thread may write. */
#define LSTM_READ 4
static inline size_t lstm_resident_bytes(int64_t hidden, int samples)
{
  return ((size_t)(4 * hidden * hidden) + (size_t)(8 * hidden * samples) + LSTM_READ - 1) * sizeof(float);
}
/* A thread for each of the 4H gates. */
static inline unsigned lstm_resident_threads(int64_t hidden)
{
  return (unsigned)cuda_round_up((uint64_t)(4 * hidden), CUDA_WARP);
}
#define LSTM_SAMPLES 4 /* samples at a time, if there are many */
static inline bool lstm_is_resident(int64_t hidden, int capability)
{
  return hidden <= 256 && lstm_resident_bytes(hidden, LSTM_SAMPLES) <= lstm_shared_most(capability);
}
/* Several samples share each weight that is read, but only once every multiprocessor has work. */
static inline int lstm_resident_samples(int64_t samples, int processors)
{
  return samples > 2 * (int64_t)processors ? LSTM_SAMPLES : 1;
}
static inline cuda_geometry lstm_resident_geometry(int64_t samples, int64_t hidden, int at_once)
{
  cuda_geometry g = cuda_rows(cuda_divide_up(samples, at_once), lstm_resident_threads(hidden));
  g.shared_bytes = lstm_resident_bytes(hidden, at_once);
  return g;
}

/* A launch for each step: tiles of `rows` samples and `units` hidden units. */
static inline cuda_geometry lstm_step_geometry(int64_t samples, int64_t hidden, int rows, int units,
                                               size_t shared_bytes)
{
  cuda_geometry g = cuda_rows(cuda_divide_up(samples, rows) * cuda_divide_up(hidden, units), TILE_THREADS);
  g.shared_bytes = shared_bytes;
  return g;
}

/* Gradients of weights: a matrix of 4H x (F + H + 1) in tiles of 64 x 64, each a sum over N*T rows. The rows are
 * divided into pieces with sums of their own: enough for some hundred blocks, but not too short to be worth a block,
 * nor so long that fp32 loses digits. The division depends on shapes alone. */
#define LSTM_TILE 64
#define LSTM_PIECE_ROWS_MAX 2048
static inline int64_t lstm_weight_tiles(int64_t hidden, int64_t columns)
{
  return cuda_divide_up(4 * hidden, LSTM_TILE) * cuda_divide_up(columns, LSTM_TILE);
}
static inline int64_t lstm_piece_rows(int64_t rows, int64_t tiles)
{
  const int64_t wanted = cuda_max(1, cuda_min(512 / tiles, cuda_divide_up(rows, 256)));
  const int64_t length = cuda_min(LSTM_PIECE_ROWS_MAX, cuda_divide_up(rows, wanted));
  return cuda_divide_up(length, LSTM_TILE) * LSTM_TILE;
}
#endif
