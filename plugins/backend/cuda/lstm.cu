/* LSTM: one layer in one direction, from state 0. With h and c the previous state, for each hidden unit:
 *
 *     a = b_ih + b_hh + w_ih x[t] + w_hh h         of the gates i, f, g, o
 *     i, f, o = sigmoid(a), g = tanh(a),   c[t] = f c + i g,   h = y[t] = o tanh(c[t])
 *
 * The part that does not depend on the state, b + w_ih x, is one product for all steps, which writes its result to the
 * gates' memory. Then the steps follow, in one of two ways:
 *
 * Samples are independent, so a block may run some samples through all steps, waiting only at its own barriers. Each
 * step needs all of w_hh, 16 H^2 bytes. If they are in shared memory (up to H = 116 on an H100), a step takes the time
 * of H reads of it, some hundred nanoseconds; small states are computed this way. From the L2 cache, at about 64 bytes
 * per clock, 16 H^2 bytes would take 2 us at H = 128 and 30 us at H = 512, even without competing multiprocessors.
 * There a launch for each step is faster, in which every block reads the weights of a few units once, for many samples.
 * Within a recorded program a launch costs about a microsecond.
 *
 * Weights and biases have the type of activations. The state c is always fp32; h is y. */
#include "lstm.cuh"

/* ---- the input, of all steps ---- */

enum { INPUT_R = 4, INPUT_C = 8, INPUT_ROWS = 16 * INPUT_R, INPUT_COLUMNS = 8 * INPUT_C, INPUT_DEPTH = 32 };

/* gates[r][j] = x[r] . weight[j] + bias_ih[j] + bias_hh[j], in tiles of 64 x 64. */
template <typename T>
static __global__ void __launch_bounds__(TILE_THREADS, 3)
    input_kernel(const T *__restrict__ x, const T *__restrict__ weight, const T *__restrict__ bias_ih,
                 const T *__restrict__ bias_hh, T *__restrict__ gates, int64_t rows, int64_t features, int64_t columns,
                 int64_t tiles)
{
  __shared__ __align__(16) float left[INPUT_ROWS * (INPUT_DEPTH + TILE_PAD)];
  __shared__ __align__(16) float right[INPUT_COLUMNS * (INPUT_DEPTH + TILE_PAD)];
  const int64_t column_tiles = cuda_divide_up(columns, INPUT_COLUMNS);
  const bool vector = features % cuda_pack<T>::count == 0;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t row = tile / column_tiles * INPUT_ROWS, column = tile % column_tiles * INPUT_COLUMNS;
    float sum[INPUT_R][INPUT_C] = {};
    for (int64_t k = 0; k < features; k += INPUT_DEPTH) {
      const int width = (int)cuda_min(features - k, INPUT_DEPTH);
      __syncthreads();
      tile_load<T, INPUT_DEPTH, INPUT_ROWS, false>(left, x + row * features + k, features, rows - row, width, vector);
      tile_load<T, INPUT_DEPTH, INPUT_COLUMNS, true>(right, weight + column * features + k, features, columns - column,
                                                     width, vector);
      __syncthreads();
      tile_dot<INPUT_R, INPUT_C, INPUT_DEPTH>(sum, left, right);
    }
#pragma unroll
    for (int j = 0; j < INPUT_C; j++) {
      const int64_t to = column + tile_column(j);
      if (to >= columns) continue;
      const float bias = cuda_load(&bias_ih[to]) + cuda_load(&bias_hh[to]);
#pragma unroll
      for (int i = 0; i < INPUT_R; i++)
        if (row + tile_row<INPUT_R>(i) < rows)
          cuda_store(&gates[(row + tile_row<INPUT_R>(i)) * columns + to], sum[i][j] + bias);
    }
  }
}

template <typename T> static brim_status launch_input(cuda_backend *b, const brim_launch *l, const lstm_sizes &q)
{
  const int64_t rows = q.samples * q.steps, columns = 4 * q.hidden;
  const int64_t tiles = cuda_divide_up(rows, INPUT_ROWS) * cuda_divide_up(columns, INPUT_COLUMNS);
  return cuda_launch(b, input_kernel<T>, cuda_rows(tiles, TILE_THREADS), (const T *)l->in[0], (const T *)l->in[1],
                     (const T *)l->in[3], (const T *)l->in[4], (T *)l->out[1], rows, q.features, columns, tiles);
}

/* ---- all steps at once, weights in shared memory ---- */

/* Loads the input's part of gate j of S samples at step s. */
template <typename T, int S>
static __device__ inline void load_input(const lstm_sizes &q, const T *gates, int64_t first, int64_t s, int j,
                                         float (&a)[S])
{
#pragma unroll
  for (int n = 0; n < S; n++)
    a[n] = first + n < q.samples && s < q.steps && j < 4 * q.hidden
               ? cuda_load(&gates[lstm_at(q, first + n, s) * 4 * q.hidden + j])
               : 0;
}

/* Weights are transposed on the way to shared memory. Neighbouring lanes read LOADED neighbouring numbers of a row:
 * with a row for each lane, loading the weights would take longer than many steps. */
enum { LOADED = 8 };

/* A block runs S samples through all steps. Thread j has gate j of the 4H gates, in the order of the weights. It loads
 * the input's part of the next step while it computes this one. */
template <typename T, int S>
static __global__ void __launch_bounds__(512)
    resident_kernel(const lstm_sizes q, const T *__restrict__ weight_hh, T *y, T *gates, T *cell)
{
  const int H = (int)q.hidden, j = threadIdx.x;
  float *weight = static_cast<float *>(cuda_dynamic_shared()); /* [H][4H]: weights from h[k] to all gates */
  float *h = weight + 4 * H * H;                               /* [H][S] */
  float *gate = h + cuda_divide_up(H * S, LSTM_READ) * LSTM_READ, *c = gate + 4 * H * S; /* [4H][S], [H][S] */
#pragma unroll 4
  for (int i = threadIdx.x; i < 4 * H * (int)cuda_divide_up(H, LOADED) * LOADED; i += blockDim.x) {
    const int gate_row = i / LOADED % (4 * H), k = i / LOADED / (4 * H) * LOADED + i % LOADED;
    if (k < H) weight[k * 4 * H + gate_row] = cuda_load(&weight_hh[gate_row * H + k]);
  }
  for (int64_t first = (int64_t)blockIdx.x * S; first < q.samples; first += (int64_t)gridDim.x * S) {
    float a[S], next[S];
    for (int i = threadIdx.x; i < H * S; i += blockDim.x) h[i] = c[i] = 0;
    load_input(q, gates, first, 0, j, next);
    __syncthreads();
    for (int64_t s = 0; s < q.steps; s++) {
#pragma unroll
      for (int n = 0; n < S; n++) a[n] = next[n];
      load_input(q, gates, first, s + 1, j, next);
#pragma unroll 4
      for (int k = 0; k < H && j < 4 * H; k++) {
        const float w = weight[k * 4 * H + j];
        float state[S];
        lstm_load_samples(h + k * S, state);
#pragma unroll
        for (int n = 0; n < S; n++) a[n] = fmaf(w, state[n], a[n]);
      }
#pragma unroll
      for (int n = 0; n < S && j < 4 * H; n++) {
        a[n] = lstm_activate(j / H, a[n]);
        gate[j * S + n] = a[n];
        if (first + n < q.samples) cuda_store(&gates[lstm_at(q, first + n, s) * 4 * H + j], a[n]);
      }
      __syncthreads();
      for (int i = threadIdx.x; i < H * S; i += blockDim.x) {
        const int n = i / H, u = i % H, at = u * S + n;
        c[at] = gate[(H + u) * S + n] * c[at] + gate[at] * gate[(2 * H + u) * S + n];
        h[at] = gate[(3 * H + u) * S + n] * tanhf(c[at]);
        if (first + n >= q.samples) continue;
        cuda_store(&y[lstm_at(q, first + n, s) * H + u], h[at]);
        cuda_store(&cell[lstm_at(q, first + n, s) * H + u], c[at]);
      }
      __syncthreads();
    }
  }
}

template <typename T> static brim_status launch_resident(cuda_backend *b, const brim_launch *l, const lstm_sizes &q)
{
  const int at_once = lstm_resident_samples(q.samples, b->processors);
  return cuda_launch(b, at_once == 1 ? resident_kernel<T, 1> : resident_kernel<T, LSTM_SAMPLES>,
                     lstm_resident_geometry(q.samples, q.hidden, at_once), q, (const T *)l->in[2], (T *)l->out[0],
                     (T *)l->out[1], (T *)l->out[2]);
}

/* ---- a launch for each step ---- */

enum { STEP_UNITS = 8, STEP_COLUMNS = 4 * STEP_UNITS, STEP_DEPTH = 128 };

/* Computes the cell and the results of step s for one sample and unit, from the arguments of its gates. */
template <typename T>
static __device__ inline void step_cell(const lstm_sizes &q, int64_t n, int64_t u, int64_t s, const float (&sum)[4],
                                        T *y, T *gates, T *cell, float *c)
{
  const int64_t t = lstm_at(q, n, s);
  float a[4];
#pragma unroll
  for (int j = 0; j < 4; j++) {
    T *gate = &gates[(t * 4 + j) * q.hidden + u];
    a[j] = lstm_activate(j, cuda_load(gate) + sum[j]);
    cuda_store(gate, a[j]);
  }
  const float now = a[1] * (s > 0 ? c[n * q.hidden + u] : 0) + a[0] * a[2];
  c[n * q.hidden + u] = now;
  cuda_store(&cell[t * q.hidden + u], now);
  cuda_store(&y[t * q.hidden + u], a[3] * tanhf(now));
}

/* A tile of 16R samples and 8 units: a thread's four columns are the gates of its unit, so it has the whole cell. */
template <typename T, int R>
static __global__ void __launch_bounds__(TILE_THREADS, 3)
    step_kernel(const lstm_sizes q, int64_t s, const T *__restrict__ weight_hh, T *y, T *gates, T *cell, float *c)
{
  float *left = static_cast<float *>(cuda_dynamic_shared()), *right = left + 16 * R * (STEP_DEPTH + TILE_PAD);
  const int64_t H = q.hidden, unit_tiles = cuda_divide_up(H, STEP_UNITS);
  const int64_t tiles = cuda_divide_up(q.samples, 16 * R) * unit_tiles;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t row = tile / unit_tiles * 16 * R, unit = tile % unit_tiles * STEP_UNITS;
    float sum[R][4] = {};
    for (int64_t k = 0; s > 0 && k < H; k += STEP_DEPTH) {
      const int width = (int)cuda_min(H - k, STEP_DEPTH);
      __syncthreads();
      tile_load<T, STEP_DEPTH, 16 * R, false>(left, y + lstm_at(q, row, s - 1) * H + k, q.steps * H, q.samples - row,
                                              width, H % cuda_pack<T>::count == 0);
#pragma unroll
      for (int j = 0; j < 4; j++)
        tile_load<T, STEP_DEPTH, STEP_UNITS, false>(right + j * STEP_UNITS * (STEP_DEPTH + TILE_PAD),
                                                    weight_hh + (j * H + unit) * H + k, H, H - unit, width,
                                                    H % cuda_pack<T>::count == 0);
      __syncthreads();
      tile_dot<R, 4, STEP_DEPTH>(sum, left, right);
    }
#pragma unroll
    for (int i = 0; i < R; i++) {
      const int64_t n = row + tile_row<R>(i), u = unit + tile_lane();
      if (n < q.samples && u < H) step_cell(q, n, u, s, sum[i], y, gates, cell, c);
    }
  }
}

template <typename T, int R> static brim_status launch_steps(cuda_backend *b, const brim_launch *l, const lstm_sizes &q)
{
  const size_t shared = tile_bytes(16 * R, STEP_DEPTH) + tile_bytes(STEP_COLUMNS, STEP_DEPTH);
  const cuda_geometry g = lstm_step_geometry(q.samples, q.hidden, 16 * R, STEP_UNITS, shared);
  for (int64_t s = 0; s < q.steps; s++)
    BRIM_TRY(cuda_launch(b, step_kernel<T, R>, g, q, s, (const T *)l->in[2], (T *)l->out[0], (T *)l->out[1],
                         (T *)l->out[2], (float *)l->workspace));
  return BRIM_OK;
}

template <typename T> static brim_status launch_lstm(cuda_backend *b, const brim_launch *l)
{
  const lstm_sizes q = lstm_sizes_of(l->node, l->node->out[0], cuda_last(l->node->in[0]));
  BRIM_TRY(launch_input<T>(b, l, q));
  if (lstm_is_resident(q.hidden, b->capability)) return launch_resident<T>(b, l, q);
  return q.samples <= 16 ? launch_steps<T, 1>(b, l, q) : launch_steps<T, 4>(b, l, q);
}

static CUDA_PREPARE(lstm_prepare)
{
  (void)program, (void)state;
  const int64_t *dim = node->out[0]->shape.dim;
  if (!lstm_is_resident(dim[2], ((const cuda_backend *)self)->capability))
    need->workspace_bytes = (uint64_t)(dim[0] * dim[2]) * sizeof(float); /* c */
  return BRIM_OK;
}
static CUDA_RUN(lstm_run)
{
  CUDA_WITH_TYPE(launch->node->in[0]->dtype, T, return launch_lstm<T>((cuda_backend *)self, launch));
}
BRIM_KERNEL(lstm) = {.op = "lstm", .prepare = lstm_prepare, .run = lstm_run};
