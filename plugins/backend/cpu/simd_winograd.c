/* Winograd's transforms F(2x2, 3x3) for one instruction set (Lavin, Gray: Fast Algorithms for Convolutional Neural
 * Networks, 2015): 16 multiplications for 4 outputs instead of 36.
 *
 *     y = A^T ((G g G^T) * (B^T d B)) A
 *     B^T: d0 - d2, d1 + d2, d2 - d1, d1 - d3    G: g0, (g0 + g1 + g2)/2, (g0 - g1 + g2)/2, g2
 *     A^T: m0 + m1 + m2, m1 - m2 - m3
 * The gradient of the kernels, over all tiles:
 *     dg = G^T ((A dy A^T) * (B^T d B)) G */
#include "simd_winograd.h"

typedef vf line[WINOGRAD_IN];

static inline void transform_inputs(const line d, line out)
{
  out[0] = d[0] - d[2];
  out[1] = d[1] + d[2];
  out[2] = d[2] - d[1];
  out[3] = d[1] - d[3];
}

static inline void transform_kernel(vf g0, vf g1, vf g2, line out)
{
  const vf ends = g0 + g2;
  out[0] = g0;
  out[1] = (ends + g1) * 0.5f;
  out[2] = (ends - g1) * 0.5f;
  out[3] = g2;
}

/* Transforms one vector of channels of the tile. */
static inline void input_vector(const cpu_winograd_plane *plane, const float *x, int64_t h, int64_t w, bool inside,
                                float *to, int64_t step)
{
  line rows[WINOGRAD_IN], columns[WINOGRAD_IN]; /* rows is [row][column]; columns is [column][row] */
  for (int64_t i = 0; i < WINOGRAD_IN; i++) {
    line d;
    for (int64_t j = 0; j < WINOGRAD_IN; j++) {
      const bool is = inside || (h + i >= 0 && h + i < plane->height && w + j >= 0 && w + j < plane->width);
      d[j] = is ? load(x + ((h + i) * plane->width + w + j) * plane->block) : (vf){0};
    }
    transform_inputs(d, rows[i]);
  }
  for (int j = 0; j < WINOGRAD_IN; j++) {
    const line d = {rows[0][j], rows[1][j], rows[2][j], rows[3][j]};
    transform_inputs(d, columns[j]);
  }
  for (int i = 0; i < WINOGRAD_IN; i++)
    for (int j = 0; j < WINOGRAD_IN; j++) store(to + (i * WINOGRAD_IN + j) * step, columns[j][i]);
}

static void input(const cpu_winograd_plane *plane, const float *x, int64_t h, int64_t w, float *to, int64_t step)
{
  const bool inside = h >= 0 && h + WINOGRAD_IN <= plane->height && w >= 0 && w + WINOGRAD_IN <= plane->width;
  for (int64_t c = 0; c < plane->block; c += LANES)
    if (inside)
      input_vector(plane, x + c, h, w, true, to + c, step);
    else
      input_vector(plane, x + c, h, w, false, to + c, step);
}

static void output(const cpu_winograd_plane *plane, const float *from, int64_t step, const float *bias, float *y,
                   int64_t h, int64_t w)
{
  for (int64_t c = 0; c < plane->block; c += LANES) {
    vf half[WINOGRAD_OUT][WINOGRAD_IN];
    for (int j = 0; j < WINOGRAD_IN; j++) {
      line m;
      for (int i = 0; i < WINOGRAD_IN; i++) m[i] = load(from + c + (i * WINOGRAD_IN + j) * step);
      half[0][j] = m[0] + m[1] + m[2];
      half[1][j] = m[1] - m[2] - m[3];
    }
    const vf add = bias ? load(bias + c) : (vf){0};
    for (int i = 0; i < WINOGRAD_OUT && h + i < plane->height; i++) {
      const vf *m = half[i];
      float *to = y + ((h + i) * plane->width + w) * plane->block + c;
      store(to, m[0] + m[1] + m[2] + add);
      if (w + 1 < plane->width) store(to + plane->block, m[1] - m[2] - m[3] + add);
    }
  }
}

/* Applies A: transforms two gradients to four places. */
static inline void transform_gradients(vf d0, vf d1, line out)
{
  out[0] = d0;
  out[1] = d0 + d1;
  out[2] = d0 - d1;
  out[3] = -d1;
}

static void gradient(const cpu_winograd_plane *plane, const float *dy, int64_t h, int64_t w, float *to, int64_t step)
{
  const bool below = h + 1 < plane->height, right = w + 1 < plane->width;
  const float *at = dy + (h * plane->width + w) * plane->block, *next = below ? at + plane->width * plane->block : at;
  for (int64_t c = 0; c < plane->block; c += LANES) {
    line rows[WINOGRAD_OUT];
    transform_gradients(load(at + c), right ? load(at + plane->block + c) : (vf){0}, rows[0]);
    transform_gradients(below ? load(next + c) : (vf){0}, below && right ? load(next + plane->block + c) : (vf){0},
                        rows[1]);
    for (int j = 0; j < WINOGRAD_IN; j++) {
      line column;
      transform_gradients(rows[0][j], rows[1][j], column);
      for (int i = 0; i < WINOGRAD_IN; i++) store(to + c + (i * WINOGRAD_IN + j) * step, column[i]);
    }
  }
}

static void kernels(const float *w, int64_t next, int64_t count, bool turned, float *to, int64_t step)
{
  for (int64_t at = 0; at < count; at += LANES, w += LANES * next, to += LANES) {
    float gathered[9 * LANES];
    for (int64_t i = 0; i < LANES; i++)
      for (int k = 0; k < 9; k++) gathered[(turned ? 8 - k : k) * LANES + i] = w[i * next + k];
    line rows[3];
    for (int r = 0; r < 3; r++)
      transform_kernel(load(gathered + 3 * r * LANES), load(gathered + (3 * r + 1) * LANES),
                       load(gathered + (3 * r + 2) * LANES), rows[r]);
    for (int j = 0; j < WINOGRAD_IN; j++) {
      line column;
      transform_kernel(rows[0][j], rows[1][j], rows[2][j], column);
      for (int i = 0; i < WINOGRAD_IN; i++) store(to + (i * WINOGRAD_IN + j) * step, column[i]);
    }
  }
}

/* G^T */
static inline void transform_weights(const line m, vf out[3])
{
  const vf ends = (m[1] + m[2]) * 0.5f;
  out[0] = m[0] + ends;
  out[1] = (m[1] - m[2]) * 0.5f;
  out[2] = ends + m[3];
}

static void weights(const float *from, int64_t step, int64_t count, float *dw)
{
  for (int64_t at = 0; at < count; at += LANES, from += LANES, dw += 9 * LANES) {
    vf rows[3][WINOGRAD_IN];
    for (int j = 0; j < WINOGRAD_IN; j++) {
      line m;
      vf column[3];
      for (int i = 0; i < WINOGRAD_IN; i++) m[i] = load(from + (i * WINOGRAD_IN + j) * step);
      transform_weights(m, column);
      for (int r = 0; r < 3; r++) rows[r][j] = column[r];
    }
    float gathered[9 * LANES];
    for (int r = 0; r < 3; r++) {
      vf of[3];
      transform_weights(rows[r], of);
      for (int s = 0; s < 3; s++) store(gathered + (3 * r + s) * LANES, of[s]);
    }
    for (int64_t i = 0; i < LANES; i++)
      for (int k = 0; k < 9; k++) dw[i * 9 + k] += gathered[k * LANES + i];
  }
}

const cpu_winograd_simd CPU_NAME(cpu_winograd) = {
    .input = input, .gradient = gradient, .output = output, .kernels = kernels, .weights = weights};
