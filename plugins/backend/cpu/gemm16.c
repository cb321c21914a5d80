/* Products in bfloat16 (gemm16.h), with AMX tiles or with AVX512_BF16. Both instructions multiply pairs of values:
 * values 2p and 2p + 1 of a step, from a row of A and from a column of B. So operands are packed into tiles of 1 KiB
 * for each step:
 *
 *     A [16 rows][32 values]        B [16 pairs][16 columns][2 values]
 *
 * Rows, columns and values past the end are zeros. The loops are those of simd_gemm.c: a block of A is packed once.
 * Then panels of B, two tiles of columns wide, are packed one by one, and each is multiplied with the whole block of A
 * while the panel is in the L1 cache. */
#include "gemm16.h"

#include <immintrin.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CPU_ISA v4
#include "simd.h"

enum { STEP = CPU_GEMM16_STEP, TILE = CPU_GEMM16_TILE, PACKED = CPU_GEMM16_PACKED, STRIDE = CPU_GEMM16_COLUMNS };

/* The steps of K that are packed at a time: the start of each, and its number of values. */
typedef struct steps {
  int64_t count, first[CPU_GEMM16_DEPTH];
  uint32_t values[CPU_GEMM16_DEPTH];
} steps;

/* The start of the next steps. */
typedef struct place {
  int64_t k;
  const int64_t *end; /* the end of the current unit, if the product has `ends` */
} place;

static steps next_steps(const cpu_gemm16 *g, place *at)
{
  steps s = {0};
  while (s.count < CPU_GEMM16_DEPTH && at->k < g->k) {
    while (at->end && *at->end <= at->k) at->end++;
    const int64_t unit_end = at->end ? *at->end : (at->k / g->unit + 1) * g->unit;
    const int64_t end = unit_end < g->k ? unit_end : g->k, values = end - at->k < STEP ? end - at->k : STEP;
    s.first[s.count] = at->k;
    s.values[s.count++] = (uint32_t)values;
    at->k += values;
  }
  return s;
}

/* ---- packing ---- */

/* Returns 16 values of 16 bits each. */
static inline __m256i half_row(const void *from, int64_t at, bool wide, __mmask16 mask)
{
  if (!wide) return _mm256_maskz_loadu_epi16(mask, (const uint16_t *)from + at);
  return (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, (const float *)from + at));
}

/* Returns a row of 32 values: the first `values` are read, and the others are 0. */
static inline vf row_of(const void *from, int64_t at, bool wide, uint32_t values)
{
  const __mmask32 mask = (__mmask32)((1ull << values) - 1);
  if (!wide) return (vf)_mm512_maskz_loadu_epi16(mask, (const uint16_t *)from + at);
  const __m256i low = half_row(from, at, true, (__mmask16)mask);
  return (vf)_mm512_inserti64x4(_mm512_castsi256_si512(low), half_row(from, at + TILE, true, (__mmask16)(mask >> 16)),
                                1);
}

/* Returns a pair of values for each of 16 columns: one from a row and one from the next row, which lies `stride`
 * further. A row that does not exist gives 0. */
static inline vf pairs_of(const void *from, int64_t at, bool wide, int64_t stride, int64_t rows, int64_t columns)
{
  const __mmask16 mask = (__mmask16)((1u << columns) - 1);
  const __m256i zero = _mm256_setzero_si256();
  const __m256i low = rows > 0 ? half_row(from, at, wide, mask) : zero;
  const __m256i high = rows > 1 ? half_row(from, at + stride, wide, mask) : zero;
  return (vf)_mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

/* Stores a packed tile of a step. */
static inline __attribute__((always_inline)) void store_step(vf v[TILE], bool transposed, uint16_t *to)
{
  if (transposed) transpose_square(v);
  for (int r = 0; r < TILE; r++) memcpy(to + r * STEP, &v[r], sizeof v[r]);
}

/* Packs tiles in which each vector holds 32 values along K of one of `count` rows. This packs A, or B stored as [N,K]
 * if each step is then transposed. */
static inline __attribute__((always_inline)) void pack_along(const void *from, int64_t at, bool wide, int64_t stride,
                                                             int64_t count, const steps *s, bool transposed,
                                                             uint16_t *to)
{
  for (int64_t i = 0; i < s->count; i++, to += PACKED) {
    vf v[TILE];
    for (int64_t r = 0; r < TILE; r++)
      v[r] = r < count ? row_of(from, at + r * stride + s->first[i], wide, s->values[i]) : (vf){0};
    store_step(v, transposed, to);
  }
}

/* Packs tiles in which each vector holds two neighbours along K for each of `count` columns. This packs B, or A stored
 * as [K,M] if each step is then transposed. */
static inline __attribute__((always_inline)) void pack_across(const void *from, int64_t at, bool wide, int64_t stride,
                                                              int64_t count, const steps *s, bool transposed,
                                                              uint16_t *to)
{
  for (int64_t i = 0; i < s->count; i++, to += PACKED) {
    vf v[TILE];
    for (int64_t p = 0; p < TILE; p++)
      v[p] = pairs_of(from, at + (s->first[i] + 2 * p) * stride, wide, stride, s->values[i] - 2 * p, count);
    store_step(v, transposed, to);
  }
}

static int64_t at_most_a_tile(int64_t count)
{
  return count < TILE ? count : TILE;
}

static void pack_a(const cpu_gemm16 *g, int64_t m, int64_t rows, const steps *s, uint16_t *to)
{
  const int64_t count = at_most_a_tile(rows);
  if (g->a_transposed && g->a_wide)
    pack_across(g->a, m, true, g->lda, count, s, true, to);
  else if (g->a_transposed)
    pack_across(g->a, m, false, g->lda, count, s, true, to);
  else if (g->a_wide)
    pack_along(g->a, m * g->lda, true, g->lda, count, s, false, to);
  else
    pack_along(g->a, m * g->lda, false, g->lda, count, s, false, to);
}

static void pack_b(const cpu_gemm16 *g, int64_t n, int64_t columns, const steps *s, uint16_t *to)
{
  if (g->b_transposed)
    pack_along(g->b, n * g->ldb, false, g->ldb, at_most_a_tile(columns), s, true, to);
  else
    pack_across(g->b, n, false, g->ldb, at_most_a_tile(columns), s, false, to);
}

/* ---- multiplying: `rows` x `columns` tiles of C, 1 or 2 each ---- */

typedef void (*multiply)(const uint16_t *a, const uint16_t *b, int64_t count, float *c, int rows, int columns);

/* a and b point to the first tile of each operand: all steps of a tile, then the next tile. */
static inline __attribute__((always_inline)) void multiply_tiles(const uint16_t *a, const uint16_t *b, int64_t count,
                                                                 float *c, int rows, int columns)
{
  enum { BYTES = STRIDE * sizeof(float) };
  float *below = c + TILE * STRIDE;
  const uint16_t *a2 = a + count * PACKED, *b2 = b + count * PACKED;
  _tile_loadd(0, c, BYTES);
  if (columns > 1) _tile_loadd(1, c + TILE, BYTES);
  if (rows > 1) _tile_loadd(2, below, BYTES);
  if (rows > 1 && columns > 1) _tile_loadd(3, below + TILE, BYTES);
  for (int64_t i = 0; i < count * PACKED; i += PACKED) {
    _tile_loadd(4, a + i, STEP * sizeof *a);
    _tile_loadd(6, b + i, STEP * sizeof *b);
    _tile_dpbf16ps(0, 4, 6);
    if (columns > 1) {
      _tile_loadd(7, b2 + i, STEP * sizeof *b);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (rows > 1) {
      _tile_loadd(5, a2 + i, STEP * sizeof *a);
      _tile_dpbf16ps(2, 5, 6);
    }
    if (rows > 1 && columns > 1) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, BYTES);
  if (columns > 1) _tile_stored(1, c + TILE, BYTES);
  if (rows > 1) _tile_stored(2, below, BYTES);
  if (rows > 1 && columns > 1) _tile_stored(3, below + TILE, BYTES);
}

/* Computes eight rows of C at a time, so that 16 sums stay in registers. */
static inline __attribute__((always_inline)) void multiply_vectors(const uint16_t *a, const uint16_t *b, int64_t count,
                                                                   float *c, int rows, int columns)
{
  enum { HALF = TILE / 2 };
  for (int r = 0; r < rows * TILE; r += HALF, c += HALF * STRIDE) {
    const uint16_t *from = a + r / TILE * count * PACKED + r % TILE * STEP;
    __m512 s[HALF][2];
    for (int i = 0; i < HALF; i++)
      for (int j = 0; j < columns; j++) s[i][j] = _mm512_loadu_ps(c + i * STRIDE + j * TILE);
    for (int64_t at = 0; at < count * PACKED; at += PACKED)
      for (int p = 0; p < TILE; p++) {
        __m512bh y[2];
        for (int j = 0; j < columns; j++) y[j] = (__m512bh)_mm512_loadu_si512(b + j * count * PACKED + at + p * STEP);
        for (int i = 0; i < HALF; i++) {
          int32_t pair;
          memcpy(&pair, from + at + i * STEP + 2 * p, sizeof pair);
          for (int j = 0; j < columns; j++)
            s[i][j] = _mm512_dpbf16_ps(s[i][j], (__m512bh)_mm512_set1_epi32(pair), y[j]);
        }
      }
    for (int i = 0; i < HALF; i++)
      for (int j = 0; j < columns; j++) _mm512_storeu_ps(c + i * STRIDE + j * TILE, s[i][j]);
  }
}

/* Multiplies packed rows of A with one or two tiles of columns. */
static inline __attribute__((always_inline)) void multiply_panel(const uint16_t *a, const uint16_t *b, int64_t count,
                                                                 float *c, int64_t rows, int columns, multiply with)
{
  int64_t m = 0;
  for (; m + TILE < rows; m += 2 * TILE) with(a + m / TILE * count * PACKED, b, count, c + m * STRIDE, 2, columns);
  if (m < rows) with(a + m / TILE * count * PACKED, b, count, c + m * STRIDE, 1, columns);
}

static inline __attribute__((always_inline)) void multiply_block(const cpu_gemm16 *g, int64_t m0, int64_t m1,
                                                                 int64_t n0, int64_t n1, float *c, uint16_t *scratch,
                                                                 multiply with)
{
  uint16_t *a = scratch, *b = scratch + CPU_GEMM16_ROWS * STEP * CPU_GEMM16_DEPTH;
  for (place at = {.end = g->ends}; at.k < g->k;) {
    const steps s = next_steps(g, &at);
    for (int64_t m = m0; m < m1; m += TILE) pack_a(g, m, m1 - m, &s, a + (m - m0) * STEP * s.count);
    for (int64_t n = n0; n < n1; n += 2 * TILE) {
      pack_b(g, n, n1 - n, &s, b);
      if (n + TILE < n1) {
        pack_b(g, n + TILE, n1 - n - TILE, &s, b + s.count * PACKED);
        multiply_panel(a, b, s.count, c + n - n0, m1 - m0, 2, with);
      } else {
        multiply_panel(a, b, s.count, c + n - n0, m1 - m0, 1, with);
      }
    }
  }
}

/* The configuration of the tiles, in the format of the LDTILECFG instruction. */
typedef struct tile_config {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} tile_config;

static void block_by_tiles(const cpu_gemm16 *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float *c,
                           uint16_t *scratch)
{
  tile_config config = {.palette = 1};
  for (int i = 0; i < 8; i++) {
    config.row_bytes[i] = 64;
    config.rows[i] = TILE;
  }
  _tile_loadconfig(&config);
  multiply_block(g, m0, m1, n0, n1, c, scratch, multiply_tiles);
  _tile_release();
}

static void block_by_vectors(const cpu_gemm16 *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float *c,
                             uint16_t *scratch)
{
  multiply_block(g, m0, m1, n0, n1, c, scratch, multiply_vectors);
}

cpu_gemm16_block cpu_gemm16_tiles(void)
{
  enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM of Linux 5.16, XFEATURE_XTILEDATA */
  return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0 ? block_by_tiles : NULL;
}

cpu_gemm16_block cpu_gemm16_vectors(void)
{
  return block_by_vectors;
}
