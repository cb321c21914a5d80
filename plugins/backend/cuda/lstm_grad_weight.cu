/* Gradients of an LSTM's weights and biases: sums over all samples and steps r,
 *
 *     dweight_ih[j] += sum of dgates[r][j] * x[r],   dweight_hh[j] += sum of dgates[r][j] * h[r],
 *     dbias_ih[j], dbias_hh[j] += sum of dgates[r][j]
 *
 * with h[r] the y of the previous step, or 0. That is one product of 4H x (F + H + 1), dgates^T times [x | h | 1],
 * which reads dgates once for all gradients. The sum is long and the result small, so rows are divided into pieces,
 * whose sums go to scratch, and a second kernel adds them up in order, in double precision. The division depends on the
 * shapes alone. */
#include "lstm.cuh"

enum { R = 4, GATES = 16 * R, ROWS = LSTM_TILE, COLUMNS = LSTM_TILE }; /* rows: of the sum */

/* Element (row, column) of [x | h | 1]; before: the row of y for h, or -1. */
template <typename T>
static __device__ inline float input_at(const lstm_sizes &q, const T *x, const T *y, int64_t row, int64_t before,
                                        int64_t column)
{
  if (column < q.features) return cuda_load(&x[row * q.features + column]);
  column -= q.features;
  if (column < q.hidden) return before < 0 ? 0 : cuda_load(&y[before * q.hidden + column]);
  return column == q.hidden ? 1 : 0;
}

/* Returns the row of the step before row r's, in the same sample, or -1 for the first step. */
static __device__ inline int64_t row_before(const lstm_sizes &q, int64_t r)
{
  const int64_t t = r % q.steps;
  if (q.reverse) return t == q.steps - 1 ? -1 : r + 1;
  return t == 0 ? -1 : r - 1;
}

/* Loads rows [row, end) of dgates, transposed, and of [x | h | 1]. Both are 0 beyond `end`. */
template <typename T>
static __device__ inline void load(const lstm_sizes &q, const T *x, const T *y, const T *dgates, int64_t row,
                                   int64_t end, int64_t gate, int64_t column, float *left, float *right,
                                   int64_t *before)
{
  __syncthreads();
  if (threadIdx.x < ROWS && row + threadIdx.x < end) before[threadIdx.x] = row_before(q, row + threadIdx.x);
  __syncthreads();
#pragma unroll 4
  for (int i = threadIdx.x; i < ROWS * GATES; i += TILE_THREADS) {
    const int r = i / GATES, j = i % GATES;
    left[j * (ROWS + TILE_PAD) + r] =
        row + r < end && gate + j < 4 * q.hidden ? cuda_load(&dgates[(row + r) * 4 * q.hidden + gate + j]) : 0;
  }
#pragma unroll 4
  for (int i = threadIdx.x; i < ROWS * COLUMNS; i += TILE_THREADS) {
    const int r = i / COLUMNS, d = i % COLUMNS;
    right[tile_place(r) * (COLUMNS + TILE_PAD) + d] =
        row + r < end ? input_at(q, x, y, row + r, before[r], column + d) : 0;
  }
  __syncthreads();
}

/* sum[piece][gate][column] over the rows of a piece. */
template <typename T>
static __global__ void __launch_bounds__(TILE_THREADS, 3)
    piece_kernel(const lstm_sizes q, const T *__restrict__ x, const T *__restrict__ y, const T *__restrict__ dgates,
                 float *__restrict__ sum, int64_t piece_rows, int64_t blocks)
{
  __shared__ __align__(16) float left[GATES * (ROWS + TILE_PAD)], right[ROWS * (COLUMNS + TILE_PAD)];
  __shared__ int64_t before[ROWS];
  const int64_t columns = q.features + q.hidden + 1, column_tiles = cuda_divide_up(columns, COLUMNS);
  const int64_t tiles = cuda_divide_up(4 * q.hidden, GATES) * column_tiles, rows = q.samples * q.steps;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t piece = block / tiles, gate = block % tiles / column_tiles * GATES;
    const int64_t column = block % column_tiles * COLUMNS, end = cuda_min(rows, (piece + 1) * piece_rows);
    const tile_range<R> all = {};
    float part[R][COLUMNS / 8] = {};
    for (int64_t row = piece * piece_rows; row < end; row += ROWS) {
      load(q, x, y, dgates, row, end, gate, column, left, right, before);
      tile_combine<R, ROWS, COLUMNS, false>(part, left, right, all);
    }
#pragma unroll
    for (int i = 0; i < R; i++) {
      const int64_t j = gate + tile_row<R>(i);
      if (j < 4 * q.hidden)
        tile_store(sum + (piece * 4 * q.hidden + j) * columns + column, part[i], 1,
                   (int)cuda_min(columns - column, COLUMNS), columns % 4 == 0);
    }
  }
}

/* Adds the sums of the pieces to the gradients. */
static __global__ void __launch_bounds__(CUDA_THREADS)
    add_kernel(const lstm_sizes q, const float *__restrict__ sum, int64_t pieces, float *dweight_ih, float *dweight_hh,
               float *dbias_ih, float *dbias_hh)
{
  const int64_t columns = q.features + q.hidden + 1, count = 4 * q.hidden * columns;
  for (int64_t i = cuda_first(); i < count; i += cuda_step_width()) {
    const int64_t j = i / columns, column = i % columns;
    double total = 0;
    for (int64_t piece = 0; piece < pieces; piece++) total += sum[piece * count + i];
    if (column < q.features) {
      dweight_ih[j * q.features + column] += (float)total;
    } else if (column < q.features + q.hidden) {
      dweight_hh[j * q.hidden + column - q.features] += (float)total;
    } else {
      dbias_ih[j] += (float)total;
      dbias_hh[j] += (float)total;
    }
  }
}

static lstm_sizes sizes_of(const brim_node *node)
{
  return lstm_sizes_of(node, node->in[1], cuda_last(node->in[0]));
}
static int64_t piece_rows_of(const lstm_sizes &q)
{
  return lstm_piece_rows(q.samples * q.steps, lstm_weight_tiles(q.hidden, q.features + q.hidden + 1));
}

template <typename T> static brim_status launch_grad_weight(cuda_backend *b, const brim_launch *l)
{
  const lstm_sizes q = sizes_of(l->node);
  const int64_t columns = q.features + q.hidden + 1, piece_rows = piece_rows_of(q);
  const int64_t pieces = cuda_divide_up(q.samples * q.steps, piece_rows);
  const int64_t blocks = pieces * lstm_weight_tiles(q.hidden, columns);
  float *sum = (float *)l->workspace;
  BRIM_TRY(cuda_launch(b, piece_kernel<T>, cuda_rows(blocks, TILE_THREADS), q, (const T *)l->in[0], (const T *)l->in[1],
                       (const T *)l->in[2], sum, piece_rows, blocks));
  return cuda_launch(b, add_kernel, cuda_stride(4 * q.hidden * columns, 1, b->processors), q, (const float *)sum,
                     pieces, (float *)l->out[0], (float *)l->out[1], (float *)l->out[2], (float *)l->out[3]);
}

static CUDA_PREPARE(lstm_grad_weight_prepare)
{
  (void)self, (void)program, (void)state;
  const lstm_sizes q = sizes_of(node);
  const int64_t pieces = cuda_divide_up(q.samples * q.steps, piece_rows_of(q));
  need->workspace_bytes = (uint64_t)(pieces * 4 * q.hidden * (q.features + q.hidden + 1)) * sizeof(float);
  return BRIM_OK;
}
static CUDA_RUN(lstm_grad_weight_run)
{
  CUDA_WITH_TYPE(launch->node->in[0]->dtype, T, return launch_grad_weight<T>((cuda_backend *)self, launch));
}
BRIM_KERNEL(lstm_grad_weight) = {
    .op = "lstm_grad_weight", .prepare = lstm_grad_weight_prepare, .run = lstm_grad_weight_run};
