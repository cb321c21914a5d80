/* The gradient of LSTM with respect to the arguments of its gates, from the last step to the first. dh comes from y
 * and, through w_hh, from the next step; dc likewise:
 *
 *     dh    = dy[t] + sum over gates j of dgates[t+1][j] * w_hh[j]
 *     dc    = dh * o * (1 - tanh(c[t])^2) + (dc * f)[t+1]
 *     da[i] = dc * g * i * (1-i),  da[f] = dc * c[t-1] * f * (1-f),  da[g] = dc * i * (1 - g^2),
 *     da[o] = dh * tanh(c[t]) * o * (1-o)
 *
 * Divided like the forward pass (see lstm.cu): small states keep w_hh in shared memory for all steps, larger ones have
 * a launch for each step. dc * f is kept in fp32 scratch. A thread reads the gates of its unit before it writes their
 * gradients, so dgates may overwrite gates. */
#include "lstm.cuh"

/* The forward pass's values of one sample and unit at a step, and the gradient from y. */
typedef struct cell_values {
  float gate[4], cell, before, dy;
} cell_values;

template <typename T>
static __device__ inline cell_values load_cell(const lstm_sizes &q, int64_t n, int64_t u, int64_t s, const T *dy,
                                               const T *gates, const T *cell)
{
  const int64_t t = lstm_at(q, n, s), before = lstm_at(q, n, s - 1);
  cell_values v;
#pragma unroll
  for (int j = 0; j < 4; j++) v.gate[j] = cuda_load(&gates[(t * 4 + j) * q.hidden + u]);
  v.cell = cuda_load(&cell[t * q.hidden + u]);
  v.before = s > 0 ? cuda_load(&cell[before * q.hidden + u]) : 0;
  v.dy = cuda_load(&dy[t * q.hidden + u]);
  return v;
}

/* dh: the part through w_hh. *dc: the next step's dc * f, replaced by this step's. da: the gates' gradients. */
static __device__ inline void cell_back(const cell_values &v, float dh, float *dc, float (&da)[4])
{
  const float i = v.gate[0], f = v.gate[1], g = v.gate[2], o = v.gate[3], squashed = tanhf(v.cell);
  dh += v.dy;
  const float d = dh * o * (1 - squashed * squashed) + *dc;
  da[0] = d * g * i * (1 - i);
  da[1] = d * v.before * f * (1 - f);
  da[2] = d * i * (1 - g * g);
  da[3] = dh * squashed * o * (1 - o);
  *dc = d * f;
}

template <typename T>
static __device__ inline void store_cell(const lstm_sizes &q, int64_t n, int64_t u, int64_t s, const float (&da)[4],
                                         T *dgates)
{
#pragma unroll
  for (int j = 0; j < 4; j++) cuda_store(&dgates[(lstm_at(q, n, s) * 4 + j) * q.hidden + u], da[j]);
}

/* ---- all steps at once, weights in shared memory ---- */

/* A block runs S samples through all steps. Thread j sums over the gates of one kind, j / H, for unit j % H. Then each
 * of the first H S threads has a sample and unit, whose values are loaded while the sums are computed. */
template <typename T, int S>
static __global__ void __launch_bounds__(512) resident_kernel(const lstm_sizes q, const T *dy, const T *gates,
                                                              const T *cell, const T *__restrict__ weight_hh, T *dgates)
{
  const int H = (int)q.hidden, j = threadIdx.x, n = j / H, u = j % H, kind = H * S;
  float *weight = static_cast<float *>(cuda_dynamic_shared()); /* [4H][H] */
  float *da = weight + 4 * H * H, *part = da + 4 * H * S;      /* [4H][S], [4H][S] */
  for (int i = threadIdx.x; i < 4 * H * H; i += blockDim.x) weight[i] = cuda_load(&weight_hh[i]);
  for (int64_t first = (int64_t)blockIdx.x * S; first < q.samples; first += (int64_t)gridDim.x * S) {
    const bool has_cell = n < S && first + n < q.samples;
    float dc = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < 4 * H * S; i += blockDim.x) da[i] = 0;
    __syncthreads();
    for (int64_t s = q.steps - 1; s >= 0; s--) {
      cell_values v = {};
      if (has_cell) v = load_cell(q, first + n, u, s, dy, gates, cell);
      if (j < 4 * H) {
        float sum[S] = {};
#pragma unroll 4
        for (int k = n * H; k < (n + 1) * H; k++) {
          const float w = weight[k * H + u];
          float back[S];
          lstm_load_samples(da + k * S, back);
#pragma unroll
          for (int i = 0; i < S; i++) sum[i] = fmaf(w, back[i], sum[i]);
        }
#pragma unroll
        for (int i = 0; i < S; i++) part[j * S + i] = sum[i];
      }
      __syncthreads();
      if (has_cell) {
        const int at = u * S + n;
        float back[4];
        cell_back(v, part[at] + part[kind + at] + part[2 * kind + at] + part[3 * kind + at], &dc, back);
        store_cell(q, first + n, u, s, back, dgates);
#pragma unroll
        for (int gate = 0; gate < 4; gate++) da[gate * kind + at] = back[gate];
      }
      __syncthreads();
    }
  }
}

/* ---- a launch for each step ---- */

enum { STEP_UNITS = 32, STEP_GATES = 128 };

/* A tile of 16R samples and 32 units. */
template <typename T, int R>
static __global__ void __launch_bounds__(TILE_THREADS, 3)
    step_kernel(const lstm_sizes q, int64_t s, const T *dy, const T *gates, const T *cell,
                const T *__restrict__ weight_hh, float *dc, T *dgates)
{
  float *left = static_cast<float *>(cuda_dynamic_shared()), *right = left + 16 * R * (STEP_GATES + TILE_PAD);
  const int64_t H = q.hidden, unit_tiles = cuda_divide_up(H, STEP_UNITS);
  const int64_t tiles = cuda_divide_up(q.samples, 16 * R) * unit_tiles;
  const bool last = s == q.steps - 1;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t row = tile / unit_tiles * 16 * R, unit = tile % unit_tiles * STEP_UNITS;
    float sum[R][STEP_UNITS / 8] = {};
    for (int64_t k = 0; !last && k < 4 * H; k += STEP_GATES) {
      const tile_range<R> all = {};
      __syncthreads();
      tile_load<T, STEP_GATES, 16 * R, false>(left, dgates + lstm_at(q, row, s + 1) * 4 * H + k, q.steps * 4 * H,
                                              q.samples - row, (int)cuda_min(4 * H - k, STEP_GATES),
                                              4 * H % cuda_pack<T>::count == 0);
      tile_load<T, STEP_UNITS, STEP_GATES, true>(right, weight_hh + k * H + unit, H, 4 * H - k,
                                                 (int)cuda_min(H - unit, STEP_UNITS), H % cuda_pack<T>::count == 0);
      __syncthreads();
      tile_combine<R, STEP_GATES, STEP_UNITS, false>(sum, left, right, all);
    }
#pragma unroll
    for (int i = 0; i < R; i++) {
      const int64_t n = row + tile_row<R>(i);
#pragma unroll
      for (int d = 0; d < STEP_UNITS / 8; d++) {
        const int64_t u = unit + tile_column(d);
        if (n >= q.samples || u >= H) continue;
        float back[4], sent = last ? 0 : dc[n * H + u];
        cell_back(load_cell(q, n, u, s, dy, gates, cell), sum[i][d], &sent, back);
        store_cell(q, n, u, s, back, dgates);
        dc[n * H + u] = sent;
      }
    }
  }
}

template <typename T> struct operands {
  const T *dy, *gates, *cell;
  const T *weight_hh;
  T *dgates;
};

template <typename T, int R>
static brim_status launch_steps(cuda_backend *b, const lstm_sizes &q, const operands<T> &o, float *dc)
{
  const size_t shared = tile_bytes(16 * R, STEP_GATES) + tile_bytes(STEP_GATES, STEP_UNITS);
  const cuda_geometry g = lstm_step_geometry(q.samples, q.hidden, 16 * R, STEP_UNITS, shared);
  for (int64_t s = q.steps - 1; s >= 0; s--)
    BRIM_TRY(cuda_launch(b, step_kernel<T, R>, g, q, s, o.dy, o.gates, o.cell, o.weight_hh, dc, o.dgates));
  return BRIM_OK;
}

template <typename T> static brim_status launch_grad(cuda_backend *b, const brim_launch *l)
{
  const lstm_sizes q = lstm_sizes_of(l->node, l->node->in[0], 0);
  const operands<T> o = {(const T *)l->in[0], (const T *)l->in[1], (const T *)l->in[2], (const T *)l->in[3],
                         (T *)l->out[0]};
  if (lstm_is_resident(q.hidden, b->capability)) {
    const int at_once = lstm_resident_samples(q.samples, b->processors);
    return cuda_launch(b, at_once == 1 ? resident_kernel<T, 1> : resident_kernel<T, LSTM_SAMPLES>,
                       lstm_resident_geometry(q.samples, q.hidden, at_once), q, o.dy, o.gates, o.cell, o.weight_hh,
                       o.dgates);
  }
  float *dc = (float *)l->workspace;
  return q.samples <= 16 ? launch_steps<T, 1>(b, q, o, dc) : launch_steps<T, 4>(b, q, o, dc);
}

static CUDA_PREPARE(lstm_grad_prepare)
{
  (void)program, (void)state;
  const int64_t *dim = node->in[0]->shape.dim;
  if (!lstm_is_resident(dim[2], ((const cuda_backend *)self)->capability))
    need->workspace_bytes = (uint64_t)(dim[0] * dim[2]) * sizeof(float); /* dc */
  return BRIM_OK;
}
static CUDA_RUN(lstm_grad_run)
{
  CUDA_WITH_TYPE(launch->node->in[0]->dtype, T, return launch_grad<T>((cuda_backend *)self, launch));
}
BRIM_KERNEL(lstm_grad) = {.op = "lstm_grad", .prepare = lstm_grad_prepare, .run = lstm_grad_run};
