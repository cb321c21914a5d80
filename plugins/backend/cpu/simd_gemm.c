/* Products of matrices, for one instruction set.
 *
 * The loops are those of Goto (Goto, van de Geijn: Anatomy of High-Performance Matrix Multiplication; TOMS 2008): a
 * block of A of at most GEMM_ROWS_MAX x GEMM_DEPTH is packed once. Then B is packed panel by panel, GEMM_COLUMNS
 * columns at a time, and each panel is multiplied with every tile of GEMM_ROWS rows of A. The results of a tile stay in
 * registers. If A is stored [M,K] and the tile is small enough, its rows are read in place, and only those of a last
 * tile that is not whole are packed; then a block has up to GEMM_ROWS_IN_PLACE rows, so that B is packed less often.
 *
 * Tiles at the edges are padded to whole ones and use the same loop, so an element's sum is the same chain of fused
 * multiply-adds whatever its position and the sizes of the matrices.
 *
 * With few rows (a small batch), packing B would take longer than the products. With a small K (the gradient of weights
 * for such a batch), reading and writing C takes most of the time. Such products read B in place, in an order that
 * follows the rows of the largest matrix (the last part of this file). The chains of sums are the same, and so are the
 * bits. With one to four rows, as in text generation, reading the weights takes all of the time. */
#include "simd_math.h"

enum { GEMM_ROWS_PART = TILE_ROWS > 6 ? 8 : 3 }; /* rows of the smaller tile at the end of the rows */

typedef struct tile {
  vf v[GEMM_ROWS][GEMM_VECTORS];
} tile;

/* Adds `depth` products to the first `rows` rows and `vectors` vectors of the tile. Element (r, k) of A is at
 * a[r*row_stride + k*depth_stride], and row k of B at b[k*b_stride]. If A is packed, the function is inlined with
 * constant strides, so that its rows are displacements from one pointer. */
static inline __attribute__((always_inline)) void multiply_strided(tile *t, int64_t depth, const float *a,
                                                                   int64_t row_stride, int64_t depth_stride,
                                                                   const float *b, int64_t b_stride, int rows,
                                                                   int vectors)
{
  vf s[GEMM_ROWS][GEMM_VECTORS];
  for (int r = 0; r < rows; r++)
    for (int j = 0; j < vectors; j++) s[r][j] = t->v[r][j];
  for (int64_t k = 0; k < depth; k++) {
    vf y[GEMM_VECTORS];
    for (int j = 0; j < vectors; j++) y[j] = load(b + j * LANES);
    for (int r = 0; r < rows; r++) {
      const vf x = splat(a[r * row_stride]);
      for (int j = 0; j < vectors; j++) s[r][j] += x * y[j];
    }
    a += depth_stride;
    b += b_stride;
  }
  for (int r = 0; r < rows; r++)
    for (int j = 0; j < vectors; j++) t->v[r][j] = s[r][j];
}

static inline __attribute__((always_inline)) void multiply(tile *t, int64_t depth, const float *a, int row_stride,
                                                           int depth_stride, const float *b, int rows, int vectors)
{
  multiply_strided(t, depth, a, row_stride, depth_stride, b, GEMM_COLUMNS, rows, vectors);
}

/* Does the work of multiply, but less of it if only one vector per row, or only GEMM_ROWS_PART rows, are needed. */
static inline __attribute__((always_inline)) void multiply_wanted(tile *t, int64_t depth, const float *a,
                                                                  int row_stride, int depth_stride, const float *b,
                                                                  int64_t rows, int64_t columns)
{
  if (columns <= LANES && rows <= GEMM_ROWS_PART)
    multiply(t, depth, a, row_stride, depth_stride, b, GEMM_ROWS_PART, 1);
  else if (columns <= LANES)
    multiply(t, depth, a, row_stride, depth_stride, b, GEMM_ROWS, 1);
  else if (rows <= GEMM_ROWS_PART)
    multiply(t, depth, a, row_stride, depth_stride, b, GEMM_ROWS_PART, GEMM_VECTORS);
  else
    multiply(t, depth, a, row_stride, depth_stride, b, GEMM_ROWS, GEMM_VECTORS);
}

/* Copies rows of A at a constant stride; rows past the end are zeros. */
static void pack_rows(const cpu_gemm *g, int64_t m0, int64_t m1, int64_t k0, int64_t depth, float *to)
{
  const int64_t padded = (m1 - m0 + GEMM_ROWS - 1) / GEMM_ROWS * GEMM_ROWS;
  for (int64_t r = 0; r < padded; r++, to += GEMM_A_STRIDE) {
    if (m0 + r < m1)
      memcpy(to, g->a + (m0 + r) * g->lda + k0, (size_t)depth * sizeof *to);
    else
      memset(to, 0, (size_t)depth * sizeof *to);
  }
}

static inline void fetch(const float *at)
{
  __builtin_prefetch((const void *)((uintptr_t)at), 0); /* harmless past the end */
}

/* Packs A stored [K,M] tile after tile, each [depth][GEMM_ROWS]: some neighbouring tiles at a time, along the rows of
 * A, whose next rows are prefetched. Copies whole vectors: the next row overwrites the elements past its own. */
static void pack_columns(const cpu_gemm *g, int64_t m0, int64_t m1, int64_t k0, int64_t depth, float *to)
{
  enum { GROUP = 8 * GEMM_ROWS, AHEAD = 8, PAST = (GEMM_ROWS + LANES - 1) / LANES * LANES - GEMM_ROWS };
  for (int64_t first = m0; first < m1; first += GROUP, to += GROUP * GEMM_A_STRIDE) {
    const int64_t end = m1 - first < GROUP ? m1 : first + GROUP;
    const float *from = g->a + k0 * g->lda;
    for (int64_t k = 0; k < depth; k++, from += g->lda) {
      float *at = to + k * GEMM_ROWS;
      int64_t m = first;
      for (int64_t j = first; j < end; j += 16) fetch(from + AHEAD * g->lda + j);
      for (; m + GEMM_ROWS <= end && m + GEMM_ROWS + PAST <= m1; m += GEMM_ROWS, at += GEMM_ROWS * GEMM_A_STRIDE)
        for (int j = 0; j < GEMM_ROWS; j += LANES) store(at + j, load(from + m + j));
      for (; m < end; m += GEMM_ROWS, at += GEMM_ROWS * GEMM_A_STRIDE)
        for (int64_t r = 0; r < GEMM_ROWS; r++) at[r] = m + r < end ? from[m + r] : 0;
    }
  }
}

/* Packs a panel of B as [depth][GEMM_COLUMNS], and prefetches the next panel, because processors do not prefetch when
 * each row is a cache line far from the last. */
static void pack_panel(const cpu_gemm *g, int64_t n, int64_t columns, int64_t k0, int64_t depth, float *to)
{
  const float *from = g->b + k0 * g->ldb + n;
  for (int64_t k = 0; k < depth; k++, from += g->ldb, to += GEMM_COLUMNS) {
    if (columns == GEMM_COLUMNS) {
      const void *next = (const void *)((uintptr_t)(from + GEMM_COLUMNS)); /* harmless past the end */
      __builtin_prefetch(next, 0, 2);                                      /* into L2, because L1 has this panel */
      memcpy(to, from, GEMM_COLUMNS * sizeof *to);
      continue;
    }
    for (int64_t j = 0; j < GEMM_COLUMNS; j++) to[j] = j < columns ? from[j] : 0;
  }
}

/* Does the same for B stored as [N,K]. Vectors past the last column are not written. Within a vector, columns past the
 * last one are copies of the last. The results of neither are stored. */
static void pack_panel_transposed(const cpu_gemm *g, int64_t n, int64_t columns, int64_t k0, int64_t depth, float *to)
{
  for (int64_t j = 0; j < columns; j += LANES) {
    const int64_t last = (columns - j < LANES ? columns - j : LANES) - 1;
    const float *from[LANES];
    for (int64_t i = 0; i < LANES; i++) from[i] = g->b + (n + j + (i < last ? i : last)) * g->ldb + k0;
    int64_t k = 0;
    for (; k + LANES <= depth; k += LANES) {
      vf v[LANES];
      for (int i = 0; i < LANES; i++) v[i] = load(from[i] + k);
      transpose_square(v);
      for (int i = 0; i < LANES; i++) store(to + (k + i) * GEMM_COLUMNS + j, v[i]);
    }
    for (; k < depth; k++)
      for (int i = 0; i < LANES; i++) to[k * GEMM_COLUMNS + j + i] = from[i][k];
  }
}

/* Loads the tile's first values, from C or from the bias. Rows are loaded by vectors; a vector in which the columns end
 * is loaded by elements. The function is inlined twice, so that a whole tile stays in registers. */
static inline __attribute__((always_inline)) void load_rows(const cpu_gemm *g, tile *t, int64_t m, int64_t n,
                                                            int64_t rows, int64_t columns, bool from_c)
{
  for (int64_t r = 0; r < rows; r++) {
    const float *from = from_c ? g->c + (m + r) * g->ldc + n : g->bias + n;
    t->v[r][0] = load_some(from, columns < LANES ? columns : LANES);
    if (columns > LANES) t->v[r][1] = load_some(from + LANES, columns - LANES);
  }
}

/* The loop is unrolled, because otherwise the compiler makes it a string instruction, which takes longer to start. */
static inline void clear(tile *t)
{
#pragma GCC unroll 16
  for (int r = 0; r < GEMM_ROWS; r++) t->v[r][0] = t->v[r][1] = (vf){0};
}

static void load_tile(const cpu_gemm *g, tile *t, int64_t m, int64_t n, int64_t rows, int64_t columns, bool from_c)
{
  const bool whole = rows == GEMM_ROWS && columns == GEMM_COLUMNS, zeros = !from_c && !g->bias;
  if (zeros || !whole) clear(t);
  if (zeros) return;
  if (whole)
    load_rows(g, t, m, n, GEMM_ROWS, GEMM_COLUMNS, from_c);
  else
    load_rows(g, t, m, n, rows, columns, from_c);
}

static inline __attribute__((always_inline)) void store_rows(const cpu_gemm *g, const tile *t, int64_t m, int64_t n,
                                                             int64_t rows, int64_t columns)
{
  for (int64_t r = 0; r < rows; r++) {
    float *to = g->c + (m + r) * g->ldc + n;
    store_some(to, t->v[r][0], columns < LANES ? columns : LANES);
    if (columns > LANES) store_some(to + LANES, t->v[r][1], columns - LANES);
  }
}

static void store_tile(const cpu_gemm *g, const tile *t, int64_t m, int64_t n, int64_t rows, int64_t columns)
{
  if (rows == GEMM_ROWS && columns == GEMM_COLUMNS)
    store_rows(g, t, m, n, GEMM_ROWS, GEMM_COLUMNS);
  else
    store_rows(g, t, m, n, rows, columns);
}

/* NaN stays NaN, because it is not at most 0. */
static inline __attribute__((always_inline)) void rectify_rows(tile *t, int rows, int vectors)
{
  const vf zero = {0};
  for (int r = 0; r < rows; r++)
    for (int j = 0; j < vectors; j++) t->v[r][j] = choose(t->v[r][j] <= zero, zero, t->v[r][j]);
}

static void rectify(tile *t)
{
  rectify_rows(t, GEMM_ROWS, GEMM_VECTORS);
}

/* Multiplies a whole tile of C at `c`, whose values stay in registers between their load and their store. It also
 * prefetches the next tile of C, because processors do not prefetch rows that are far apart. */
static inline __attribute__((always_inline)) void multiply_whole(float *c, int64_t ldc, int64_t depth, const float *a,
                                                                 int64_t row_stride, int64_t depth_stride,
                                                                 const float *b, const float *bias, bool from_c,
                                                                 bool relu)
{
  tile t;
  const vf zero = {0};
#pragma GCC unroll 16
  for (int r = 0; r < GEMM_ROWS; r++)
    for (int j = 0; j < GEMM_VECTORS; j++) {
      const float *next = (const float *)((uintptr_t)c + (uintptr_t)(((GEMM_ROWS + r) * ldc + j * LANES) * 4));
      __builtin_prefetch(next, 1); /* harmless past the end */
      t.v[r][j] = from_c ? load(c + r * ldc + j * LANES) : bias ? load(bias + j * LANES) : zero;
    }
  multiply_strided(&t, depth, a, row_stride, depth_stride, b, GEMM_COLUMNS, GEMM_ROWS, GEMM_VECTORS);
  if (relu) rectify_rows(&t, GEMM_ROWS, GEMM_VECTORS);
#pragma GCC unroll 16
  for (int r = 0; r < GEMM_ROWS; r++)
    for (int j = 0; j < GEMM_VECTORS; j++) store(c + r * ldc + j * LANES, t.v[r][j]);
}

/* Calls multiply_whole for each form of packed A and each kind of first values, so that its loop has no conditions. */
static void multiply_whole_tile(const cpu_gemm *g, int64_t m, int64_t n, int64_t depth, bool from_c, bool relu,
                                const float *a, const float *b)
{
  float *c = g->c + m * g->ldc + n;
  const float *bias = g->bias ? g->bias + n : NULL;
  if (g->a_transposed)
    multiply_whole(c, g->ldc, depth, a, 1, GEMM_ROWS, b, bias, from_c, relu);
  else if (from_c)
    multiply_whole(c, g->ldc, depth, a, GEMM_A_STRIDE, 1, b, NULL, true, relu);
  else
    multiply_whole(c, g->ldc, depth, a, GEMM_A_STRIDE, 1, b, bias, false, relu);
}

/* Multiplies a panel of B with whole tiles of rows of A, which are read in place. */
static void multiply_rows(const cpu_gemm *g, int64_t m0, int64_t m1, int64_t n, int64_t columns, int64_t k0,
                          int64_t depth, const float *b)
{
  const bool from_c = g->accumulate || k0 > 0, relu = g->relu && k0 + depth == g->k;
  const float *a = g->a + m0 * g->lda + k0, *bias = g->bias ? g->bias + n : NULL;
  for (int64_t m = m0; m < m1; m += GEMM_ROWS, a += GEMM_ROWS * g->lda) {
    float *c = g->c + m * g->ldc + n;
    tile t;
    if (columns == GEMM_COLUMNS && from_c) {
      multiply_whole(c, g->ldc, depth, a, g->lda, 1, b, NULL, true, relu);
      continue;
    }
    if (columns == GEMM_COLUMNS) {
      multiply_whole(c, g->ldc, depth, a, g->lda, 1, b, bias, false, relu);
      continue;
    }
    load_tile(g, &t, m, n, GEMM_ROWS, columns, from_c);
    if (columns <= LANES)
      multiply_strided(&t, depth, a, g->lda, 1, b, GEMM_COLUMNS, GEMM_ROWS, 1);
    else
      multiply_strided(&t, depth, a, g->lda, 1, b, GEMM_COLUMNS, GEMM_ROWS, GEMM_VECTORS);
    if (relu) rectify(&t);
    store_tile(g, &t, m, n, GEMM_ROWS, columns);
  }
}

/* Multiplies a panel of B with the packed rows of A. */
static void multiply_panel(const cpu_gemm *g, int64_t m0, int64_t m1, int64_t n, int64_t columns, int64_t depth,
                           bool first, bool last, const float *a, const float *b)
{
  for (int64_t m = m0; m < m1; m += GEMM_ROWS, a += GEMM_ROWS * GEMM_A_STRIDE) {
    const int64_t rows = m1 - m < GEMM_ROWS ? m1 - m : GEMM_ROWS;
    tile t;
    if (rows == GEMM_ROWS && columns == GEMM_COLUMNS) {
      multiply_whole_tile(g, m, n, depth, g->accumulate || !first, last && g->relu, a, b);
      continue;
    }
    load_tile(g, &t, m, n, rows, columns, g->accumulate || !first);
    if (g->a_transposed)
      multiply_wanted(&t, depth, a, 1, GEMM_ROWS, b, rows, columns);
    else
      multiply_wanted(&t, depth, a, GEMM_A_STRIDE, 1, b, rows, columns);
    if (last && g->relu) rectify(&t);
    store_tile(g, &t, m, n, rows, columns);
  }
}

/* ---- few rows, or a small K ---- */

enum {
  FEW_ROWS = 2 * GEMM_ROWS, /* maximum rows that read a row of B before it leaves the L1 cache */
  TURNED_ROWS = TILE_ROWS > 6 ? 8 : 6,
  FEWEST_ROWS = 4,     /* maximum rows for which squares of B are transposed in registers */
  FEW_DEPTH = 64,      /* rows of B read together, each on a page of its own */
  TURNED_DEPTH = 1024, /* K of a packed block of A; large, for long runs along the rows of B */
  SMALL_DEPTH = 32     /* maximum K of products in which C takes most of the time */
};

/* Processors do not prefetch by themselves if several rows are read in turn. */
static inline __attribute__((always_inline)) void fetch_rows(const float *from, int64_t stride, int64_t rows,
                                                             bool to_write)
{
  for (int64_t r = 0; r < rows; r++)
    for (int j = 0; j < GEMM_VECTORS; j++) {
      const void *at = (const void *)((uintptr_t)(from + r * stride + j * LANES)); /* harmless past the end */
      if (to_write)
        __builtin_prefetch(at, 1);
      else
        __builtin_prefetch(at, 0);
    }
}

/* For B stored as [N,K] and A of at most GEMM_COLUMNS rows. Computes C^T = B A^T, so that rows of B are read in place.
 * Rows of a tile are along N, columns along M. */
static inline __attribute__((always_inline)) void turned_tile(const cpu_gemm *g, int64_t m0, int64_t rows, int64_t n,
                                                              int64_t k0, int64_t depth, const float *a, int outputs,
                                                              int vectors)
{
  const bool from_c = k0 > 0 || g->accumulate;
  float values[TURNED_ROWS][GEMM_COLUMNS] = {{0}};
  tile t;
  for (int r = 0; r < outputs; r++) {
    const float first = g->bias ? g->bias[n + r] : 0;
    for (int64_t m = 0; m < rows; m++) values[r][m] = from_c ? g->c[(m0 + m) * g->ldc + n + r] : first;
    for (int j = 0; j < vectors; j++) t.v[r][j] = load(&values[r][j * LANES]);
  }
  multiply_strided(&t, depth, g->b + n * g->ldb + k0, g->ldb, 1, a, GEMM_COLUMNS, outputs, vectors);
  if (k0 + depth == g->k && g->relu) rectify_rows(&t, outputs, vectors);
  for (int r = 0; r < outputs; r++) {
    for (int j = 0; j < vectors; j++) store(&values[r][j * LANES], t.v[r][j]);
    for (int64_t m = 0; m < rows; m++) g->c[(m0 + m) * g->ldc + n + r] = values[r][m];
  }
}

static void multiply_turned(const cpu_gemm *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float *scratch)
{
  const cpu_gemm turned = {.b = g->a, .ldb = g->lda};
  const int64_t rows = m1 - m0;
  for (int64_t k = 0; k < g->k; k += TURNED_DEPTH) {
    const int64_t depth = g->k - k < TURNED_DEPTH ? g->k - k : TURNED_DEPTH;
    int64_t n = n0;
    pack_panel_transposed(&turned, m0, rows, k, depth, scratch);
    if (rows <= LANES)
      for (; n + TURNED_ROWS <= n1; n += TURNED_ROWS) turned_tile(g, m0, rows, n, k, depth, scratch, TURNED_ROWS, 1);
    else
      for (; n + TURNED_ROWS <= n1; n += TURNED_ROWS) turned_tile(g, m0, rows, n, k, depth, scratch, TURNED_ROWS, 2);
    for (; n < n1; n++) turned_tile(g, m0, rows, n, k, depth, scratch, 1, 2);
  }
}

/* Does the same for so few rows of A that reading B takes all of the time, as for one token of a generated text.
 * Squares of B are transposed in registers, so that a vector holds the values of B at one k for LANES columns of C. */
static inline __attribute__((always_inline)) void multiply_squares(const cpu_gemm *g, int64_t m, int64_t n, int rows)
{
  enum {
    AHEAD = 8 * LANES
  }; /* floats by which a row of B is prefetched, because processors follow fewer rows by themselves */
  const float *a[FEWEST_ROWS], *b = g->b + n * g->ldb;
  vf s[FEWEST_ROWS];
  int64_t k = 0;
  for (int r = 0; r < rows; r++) {
    a[r] = g->a + (m + r) * g->lda;
    s[r] = g->accumulate ? load(g->c + (m + r) * g->ldc + n) : g->bias ? load(g->bias + n) : (vf){0};
  }
  for (; k + LANES <= g->k; k += LANES) {
    vf v[LANES];
    for (int i = 0; i < LANES; i++) {
      v[i] = load(b + i * g->ldb + k);
      fetch(b + i * g->ldb + k + AHEAD);
    }
    transpose_square(v);
    for (int i = 0; i < LANES; i++)
      for (int r = 0; r < rows; r++) s[r] += splat(a[r][k + i]) * v[i];
  }
  for (; k < g->k; k++) {
    float v[LANES];
    for (int i = 0; i < LANES; i++) v[i] = b[i * g->ldb + k];
    for (int r = 0; r < rows; r++) s[r] += splat(a[r][k]) * load(v);
  }
  for (int r = 0; r < rows; r++) {
    if (g->relu) s[r] = choose(s[r] <= (vf){0}, (vf){0}, s[r]);
    store(g->c + (m + r) * g->ldc + n, s[r]);
  }
}

static void multiply_fewest(const cpu_gemm *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float *scratch)
{
  int64_t n = n0;
  for (; n + LANES <= n1; n += LANES) {
    if (m1 - m0 == 1)
      multiply_squares(g, m0, n, 1);
    else if (m1 - m0 == 2)
      multiply_squares(g, m0, n, 2);
    else if (m1 - m0 == 3)
      multiply_squares(g, m0, n, 3);
    else
      multiply_squares(g, m0, n, FEWEST_ROWS);
  }
  if (n < n1) multiply_turned(g, m0, m1, n, n1, scratch);
}

/* Returns rows k0 .. k0 + depth - 1 of B from column n on: in place for GEMM_COLUMNS columns, else packed in
 * scratch. */
static const float *panel_of(const cpu_gemm *g, int64_t n, int64_t columns, int64_t k0, int64_t depth, float *scratch,
                             int64_t *stride)
{
  *stride = g->ldb;
  if (columns == GEMM_COLUMNS) return g->b + k0 * g->ldb + n;
  pack_panel(g, n, columns, k0, depth, scratch);
  *stride = GEMM_COLUMNS;
  return scratch;
}

static void multiply_few(const cpu_gemm *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float *scratch)
{
  for (int64_t k = 0; k < g->k; k += FEW_DEPTH) {
    const int64_t depth = g->k - k < FEW_DEPTH ? g->k - k : FEW_DEPTH;
    float *panel = scratch + FEW_ROWS * GEMM_A_STRIDE;
    pack_rows(g, m0, m1, k, depth, scratch);
    for (int64_t n = n0; n < n1; n += GEMM_COLUMNS) {
      const int64_t columns = n1 - n < GEMM_COLUMNS ? n1 - n : GEMM_COLUMNS;
      int64_t stride;
      const float *a = scratch, *b = panel_of(g, n, columns, k, depth, panel, &stride);
      if (n + GEMM_COLUMNS < n1) fetch_rows(g->b + k * g->ldb + n + GEMM_COLUMNS, g->ldb, depth, false);
      for (int64_t m = m0; m < m1; m += GEMM_ROWS, a += GEMM_ROWS * GEMM_A_STRIDE) {
        const int64_t rows = m1 - m < GEMM_ROWS ? m1 - m : GEMM_ROWS;
        tile t;
        load_tile(g, &t, m, n, rows, columns, g->accumulate || k > 0);
        if (rows <= GEMM_ROWS_PART)
          multiply_strided(&t, depth, a, GEMM_A_STRIDE, 1, b, stride, GEMM_ROWS_PART, GEMM_VECTORS);
        else
          multiply_strided(&t, depth, a, GEMM_A_STRIDE, 1, b, stride, GEMM_ROWS, GEMM_VECTORS);
        if (k + depth == g->k && g->relu) rectify(&t);
        store_tile(g, &t, m, n, rows, columns);
      }
    }
  }
}

/* For A stored as [K,M]. Computes C tile by tile along its rows, with all of K at once. */
static void multiply_small(const cpu_gemm *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float *scratch)
{
  float *panel = scratch + GEMM_ROWS * SMALL_DEPTH;
  for (int64_t m = m0; m < m1; m += GEMM_ROWS) {
    const int64_t rows = m1 - m < GEMM_ROWS ? m1 - m : GEMM_ROWS;
    pack_columns(g, m, m + rows, 0, g->k, scratch);
    for (int64_t n = n0; n < n1; n += GEMM_COLUMNS) {
      const int64_t columns = n1 - n < GEMM_COLUMNS ? n1 - n : GEMM_COLUMNS;
      int64_t stride;
      const float *b = panel_of(g, n, columns, 0, g->k, panel, &stride);
      tile t;
      fetch_rows(g->c + m * g->ldc + n + 2 * GEMM_COLUMNS, g->ldc, rows, true);
      load_tile(g, &t, m, n, rows, columns, g->accumulate);
      multiply_strided(&t, g->k, scratch, 1, GEMM_ROWS, b, stride, GEMM_ROWS, GEMM_VECTORS);
      if (g->relu) rectify(&t);
      store_tile(g, &t, m, n, rows, columns);
    }
  }
}

/* ---- choosing a method ---- */

/* Returns the depth of a block, in whole vectors, such that all blocks along K have nearly the same depth. */
static int64_t even_depth(int64_t k)
{
  const int64_t parts = (k + GEMM_DEPTH - 1) / GEMM_DEPTH, part = parts > 0 ? (k + parts - 1) / parts : GEMM_DEPTH;
  return (part + LANES - 1) / LANES * LANES;
}

static void multiply_packed(const cpu_gemm *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float *scratch)
{
  const bool in_place = GEMM_ROWS_IN_PLACE > 0 && !g->a_transposed; /* apart from the rows of the last tile */
  float *a = scratch, *b = scratch + GEMM_ROWS_MAX * GEMM_A_STRIDE;
  const int64_t most = even_depth(g->k), rows_max = in_place ? GEMM_ROWS_IN_PLACE : GEMM_ROWS_MAX;
  for (int64_t m = m0; m < m1; m += rows_max) {
    const int64_t m_end = m1 - m < rows_max ? m1 : m + rows_max;
    const int64_t packed = in_place ? m + (m_end - m) / GEMM_ROWS * GEMM_ROWS : m; /* the rows from here on */
    for (int64_t k = 0; k < g->k; k += most) {
      const int64_t depth = g->k - k < most ? g->k - k : most;
      (g->a_transposed ? pack_columns : pack_rows)(g, packed, m_end, k, depth, a);
      for (int64_t n = n0; n < n1; n += GEMM_COLUMNS) {
        const int64_t columns = n1 - n < GEMM_COLUMNS ? n1 - n : GEMM_COLUMNS;
        (g->b_transposed ? pack_panel_transposed : pack_panel)(g, n, columns, k, depth, b);
        if (in_place) multiply_rows(g, m, packed, n, columns, k, depth, b);
        multiply_panel(g, packed, m_end, n, columns, depth, k == 0, k + depth == g->k, a, b);
      }
    }
  }
}

void CPU_NAME(simd_gemm)(const cpu_gemm *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float *scratch)
{
  if (g->b_transposed && !g->a_transposed && m1 - m0 <= FEWEST_ROWS && n1 - n0 >= GEMM_ROWS)
    multiply_fewest(g, m0, m1, n0, n1, scratch);
  else if (g->b_transposed && !g->a_transposed && m1 - m0 <= GEMM_COLUMNS && n1 - n0 >= GEMM_ROWS)
    multiply_turned(g, m0, m1, n0, n1, scratch);
  else if (!g->b_transposed && !g->a_transposed && m1 - m0 <= FEW_ROWS)
    multiply_few(g, m0, m1, n0, n1, scratch);
  else if (!g->b_transposed && g->a_transposed && g->k <= SMALL_DEPTH && g->k > 0)
    multiply_small(g, m0, m1, n0, n1, scratch);
  else
    multiply_packed(g, m0, m1, n0, n1, scratch);
}
