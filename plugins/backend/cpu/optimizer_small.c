/* The updates of optimizers with small states: lion, adafactor, adamw8bit. plugins/backend/reference/update_small.c
 * defines them; the vector code is in simd_optimizer.c.
 *
 * Adafactor needs sums over a whole parameter before it changes a value. The matrix is divided into tiles, whose sizes
 * depend on its shape alone. Each tile writes its sums to scratch, and the sums of the tiles are added up in order, in
 * double precision: first the sums of rows and columns; then, when the second moments are known, the length of the
 * update. */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "cpu.h"
#include "simd_optimizer.h"

enum {
  PIECE = 16384,  /* elements per task */
  COLUMNS = 1024, /* maximum columns of a tile */
  BANDS = 8,      /* maximum bands of tiles */
  ROWS_MIN = 16   /* minimum rows of a tile, except in the last band */
};

static const cpu_optimizer_simd *simd_of(const cpu_backend *b)
{
  static const cpu_optimizer_simd *const tables[] = {CPU_OF_ISAS(&, cpu_optimizer)};
  return tables[b->isa];
}

/* ---- lion ---- */

typedef struct lion {
  const cpu_optimizer_simd *simd;
  cpu_lion c;
  const float *g;
  float *p, *m;
  int64_t count;
} lion;

static void lion_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const lion *u = arg;
  const int64_t at = task * PIECE;
  u->simd->lion(&u->c, u->g + at, u->p + at, u->m + at, cpu_min(PIECE, u->count - at));
}

static CPU_RUN(lion_run)
{
  cpu_backend *b = self;
  const brim_step *s = launch->step;
  lion u = {.simd = simd_of(b),
            .c = {.decay = (float)(1 - s->lr * cpu_weight_decay(launch)),
                  .lr = (float)s->lr,
                  .beta1 = (float)s->beta1,
                  .one_beta1 = (float)(1 - s->beta1),
                  .beta2 = (float)s->beta2,
                  .one_beta2 = (float)(1 - s->beta2),
                  .factor = (float)cpu_gradient_factor(launch)},
            .g = launch->in[1],
            .p = launch->out[0],
            .m = launch->out[1],
            .count = brim_shape_count(&launch->node->in[0]->shape)};
  cpu_pool_run(b->pool, cpu_divide_up(u.count, PIECE), lion_piece, &u);
  return BRIM_OK;
}

/* ---- adafactor ---- */

/* A matrix and its tiles. A vector is a matrix of one row, without means of rows. */
typedef struct matrix {
  int64_t rows, columns, band; /* band: rows of a tile */
  int64_t stripes, bands;
  bool has_rows;
} matrix;

static matrix matrix_of(const brim_tensor *t)
{
  matrix m = {.rows = 1, .has_rows = t->shape.rank > 1};
  if (m.has_rows) m.rows = t->shape.dim[0];
  m.columns = brim_shape_count(&t->shape) / m.rows;
  m.band = cpu_max(ROWS_MIN, cpu_divide_up(m.rows, BANDS));
  m.stripes = cpu_divide_up(m.columns, COLUMNS);
  m.bands = cpu_divide_up(m.rows, m.band);
  return m;
}

typedef struct adafactor {
  const cpu_optimizer_simd *simd;
  matrix of;
  cpu_factored_row c;
  const float *g;
  float *p, *row, *column, *m;
  double *parameter_part, *update_part, *row_part; /* sums, one for each tile; row_part: [stripes][rows] */
  float *column_part;                              /* [bands][columns] */
} adafactor;

static uint64_t lay_out(const matrix *of, adafactor *u, char *scratch)
{
  const uint64_t tiles = cpu_aligned((uint64_t)(of->stripes * of->bands) * sizeof(double));
  const uint64_t rows = cpu_aligned((uint64_t)(of->stripes * of->rows) * sizeof(double));
  if (u) {
    u->parameter_part = (double *)scratch;
    u->update_part = (double *)(scratch + tiles);
    u->row_part = (double *)(scratch + 2 * tiles);
    u->column_part = (float *)(scratch + 2 * tiles + rows);
  }
  return 2 * tiles + rows + (uint64_t)(of->bands * of->columns) * sizeof(float);
}

static CPU_PREPARE(adafactor_prepare)
{
  (void)self, (void)program, (void)state;
  const matrix of = matrix_of(node->in[0]);
  need->workspace_bytes = lay_out(&of, NULL, NULL);
  return BRIM_OK;
}

/* Rows and columns of a tile. */
typedef struct tile {
  int64_t row, row_end, column, count, stripe, band;
} tile;

static tile tile_of(const matrix *of, int64_t task)
{
  tile t = {.stripe = task % of->stripes, .band = task / of->stripes};
  t.row = t.band * of->band;
  t.row_end = cpu_min(of->rows, t.row + of->band);
  t.column = t.stripe * COLUMNS;
  t.count = cpu_min(COLUMNS, of->columns - t.column);
  return t;
}

static void sum_tile(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const adafactor *u = arg;
  const tile t = tile_of(&u->of, task);
  float *sums = u->column_part + t.band * u->of.columns + t.column;
  double parameter = 0;
  memset(sums, 0, (size_t)t.count * sizeof *sums);
  for (int64_t r = t.row; r < t.row_end; r++) {
    const int64_t at = r * u->of.columns + t.column;
    u->row_part[t.stripe * u->of.rows + r] = u->simd->add_squares(u->c.factor, u->g + at, sums, t.count);
    parameter += u->simd->squares(u->p + at, t.count);
  }
  u->parameter_part[task] = parameter;
}

/* Returns the numbers that the update of a row's elements needs. */
static cpu_factored_row row_of(const adafactor *u, int64_t r)
{
  cpu_factored_row c = u->c;
  if (u->of.has_rows) c.row *= u->row[r];
  return c;
}

static void measure_tile(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const adafactor *u = arg;
  const tile t = tile_of(&u->of, task);
  double sum = 0;
  for (int64_t r = t.row; r < t.row_end; r++) {
    const cpu_factored_row c = row_of(u, r);
    sum += u->simd->factored_squares(&c, u->g + r * u->of.columns + t.column, u->column + t.column, t.count);
  }
  u->update_part[task] = sum;
}

static void update_tile(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const adafactor *u = arg;
  const tile t = tile_of(&u->of, task);
  for (int64_t r = t.row; r < t.row_end; r++) {
    const cpu_factored_row c = row_of(u, r);
    const int64_t at = r * u->of.columns + t.column;
    u->simd->factored(&c, u->g + at, u->column + t.column, u->p + at, u->m ? u->m + at : NULL, t.count);
  }
}

static double add_up(const double *part, int64_t count)
{
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += part[i];
  return sum;
}

/* Computes the means of squares from the sums of the tiles. */
static void average(adafactor *u, double beta2, double eps)
{
  const matrix *of = &u->of;
  for (int64_t c = 0; c < of->columns; c++) {
    double sum = 0;
    for (int64_t b = 0; b < of->bands; b++) sum += (double)u->column_part[b * of->columns + c];
    u->column[c] = (float)(beta2 * (double)u->column[c] + (1 - beta2) * sum / (double)of->rows);
  }
  double mean = 0;
  for (int64_t r = 0; of->has_rows && r < of->rows; r++) {
    double sum = 0;
    for (int64_t s = 0; s < of->stripes; s++) sum += u->row_part[s * of->rows + r];
    u->row[r] = (float)(beta2 * (double)u->row[r] + (1 - beta2) * sum / (double)of->columns);
    mean += (double)u->row[r] / (double)of->rows;
  }
  u->c.row = of->has_rows ? (float)(1 / fmax(mean, eps)) : 1;
}

static CPU_RUN(adafactor_run)
{
  cpu_backend *b = self;
  const brim_step *s = launch->step;
  const brim_update_attr *attr = &launch->node->attr.update;
  adafactor u = {.simd = simd_of(b),
                 .of = matrix_of(launch->node->in[0]),
                 .c = {.factor = (float)cpu_gradient_factor(launch),
                       .least = fmaxf((float)(s->eps * s->eps), 1.17549435e-38F),
                       .decay = (float)(1 - s->lr * cpu_weight_decay(launch)),
                       .beta1 = (float)s->beta1,
                       .one_beta1 = (float)(1 - s->beta1)},
                 .g = launch->in[1],
                 .p = launch->out[0]};
  const int64_t tiles = u.of.stripes * u.of.bands;
  const double count = (double)u.of.rows * (double)u.of.columns;
  u.row = u.of.has_rows ? launch->out[1] : NULL;
  u.column = launch->out[1 + u.of.has_rows];
  u.m = attr->averages ? launch->out[2 + u.of.has_rows] : NULL;
  lay_out(&u.of, &u, launch->workspace);
  cpu_pool_run(b->pool, tiles, sum_tile, &u);
  average(&u, s->beta2, s->eps);
  cpu_pool_run(b->pool, tiles, measure_tile, &u);
  const double size = fmax(attr->least, sqrt(add_up(u.parameter_part, tiles) / count));
  const double length = sqrt(add_up(u.update_part, tiles) / count);
  u.c.scale = (float)(size * fmin(s->lr, 1 / sqrt((double)s->step + 1)) / fmax(1, length / attr->clip));
  cpu_pool_run(b->pool, tiles, update_tile, &u);
  return BRIM_OK;
}

/* ---- adamw8bit ---- */

static cpu_code8 with_sign, without;
static pthread_once_t codes_once = PTHREAD_ONCE_INIT;

/* Each decade has n codes at equal distances: n = 2^i in decade i, or 2^(i + 1) without a sign. A decade begins at a
 * tenth of its end. */
static void fill_codes(cpu_code8 *to, bool is_signed)
{
  double magnitude[256], end = 1e-6;
  const int32_t count = brim_code8_magnitudes(is_signed, magnitude), zero = is_signed ? BRIM_CODE8_ZERO : 0;
  for (int32_t k = 0; k < count; k++) to->value[zero + k] = (float)magnitude[k];
  for (int32_t k = 1; k <= zero; k++) to->value[zero - k] = -(float)magnitude[k];
  int32_t first = 1;
  for (int32_t i = 0; i < CPU_CODE8_DECADES; i++, end *= 10) {
    const int32_t n = 1 << (is_signed ? i : i + 1);
    to->limit[i] = (float)brim_code8_border(magnitude, count, first - 1);
    to->slope[i] = (float)(n / (0.9 * end));
    to->shift[i] = (float)(first - n * 0.1 / 0.9);
    first += n;
    to->last[i] = (float)(first - 1);
  }
  to->limit[CPU_CODE8_DECADES] = (float)brim_code8_border(magnitude, count, first - 1);
  to->one = first;
}

static void fill_all_codes(void)
{
  fill_codes(&with_sign, true);
  fill_codes(&without, false);
}

typedef struct adam8 {
  const cpu_optimizer_simd *simd;
  cpu_adam8 c;
  const float *g;
  float *p, *m_absmax, *v_absmax;
  uint8_t *m, *v;
  int64_t count;
} adam8;

static void adam8_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const adam8 *u = arg;
  const int64_t end = cpu_min((task + 1) * PIECE, u->count);
  for (int64_t at = task * PIECE; at < end; at += BRIM_CODE8_BLOCK) {
    const int64_t block = at / BRIM_CODE8_BLOCK;
    u->simd->adam8(&u->c, u->g + at, u->p + at, u->m + at, &u->m_absmax[block], u->v + at, &u->v_absmax[block],
                   cpu_min(BRIM_CODE8_BLOCK, u->count - at));
  }
}

static CPU_RUN(adamw8bit_run)
{
  cpu_backend *b = self;
  pthread_once(&codes_once, fill_all_codes);
  adam8 u = {
      .simd = simd_of(b),
      .c = {.adam = cpu_adam_of(launch, cpu_weight_decay(launch), 0), .with_sign = &with_sign, .without = &without},
      .g = launch->in[1],
      .p = launch->out[0],
      .m = launch->out[1],
      .m_absmax = launch->out[2],
      .v = launch->out[3],
      .v_absmax = launch->out[4],
      .count = brim_shape_count(&launch->node->in[0]->shape)};
  cpu_pool_run(b->pool, cpu_divide_up(u.count, PIECE), adam8_piece, &u);
  return BRIM_OK;
}

CPU_KERNEL(lion) = {.op = "lion", .run = lion_run};
CPU_KERNEL(adafactor) = {.op = "adafactor", .prepare = adafactor_prepare, .run = adafactor_run};
CPU_KERNEL(adamw8bit) = {.op = "adamw8bit", .run = adamw8bit_run};
