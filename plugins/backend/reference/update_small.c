/* The updates of optimizers with small states, element by element and in place. update.c has the others. */
#include <stdbool.h>

#include "brim/code8.h"
#include "reference.h"

/* Lion (Chen et al.: Symbolic Discovery of Optimization Algorithms; NeurIPS 2023, program 1). sign(0) is 0:
 *
 *     p = p - lr * weight_decay * p - lr * sign(beta1 * m + (1 - beta1) * g)
 *     m = beta2 * m + (1 - beta2) * g */
REFERENCE(lion, "lion")
{
  const brim_step *step = launch->step;
  const double decay = weight_decay(launch), factor = gradient_factor(launch);
  const double *g = launch->in[1];
  double *p = launch->out[0], *m = launch->out[1];
  for (int64_t i = 0; i < brim_shape_count(&launch->node->in[0]->shape); i++) {
    const double d = factor * g[i], direction = step->beta1 * m[i] + (1 - step->beta1) * d;
    p[i] = p[i] - step->lr * decay * p[i] - step->lr * ((direction > 0) - (direction < 0));
    m[i] = step->beta2 * m[i] + (1 - step->beta2) * d;
  }
  return BRIM_OK;
}

/* ---- adafactor ---- */

/* The parameter as a matrix. The squares of a vector are not factored: it is a matrix of one row, and each column's
 * mean is one square. */
typedef struct factored {
  const brim_launch *launch;
  int64_t rows, columns;
  bool is_matrix;
  const double *g;
  double *p, *row, *column, *m; /* row and m may be NULL */
  double factor, row_mean;
} factored;

static factored make_factored(const brim_launch *launch)
{
  const brim_shape *shape = &launch->node->in[0]->shape;
  factored f = {.launch = launch, .rows = 1, .is_matrix = shape->rank > 1, .row_mean = 1};
  if (f.is_matrix) f.rows = shape->dim[0];
  f.columns = brim_shape_count(shape) / f.rows;
  f.g = launch->in[1];
  f.p = launch->out[0];
  f.row = f.is_matrix ? launch->out[1] : NULL;
  f.column = launch->out[1 + f.is_matrix];
  f.m = launch->node->attr.update.averages ? launch->out[2 + f.is_matrix] : NULL;
  f.factor = gradient_factor(launch);
  return f;
}

/* mean = beta2 * mean + (1 - beta2) * (mean of the squares of `count` gradients, which are `stride` apart) */
static void add_squares(const factored *f, double *mean, int64_t first, int64_t count, int64_t stride)
{
  const double beta2 = f->launch->step->beta2;
  double sum = 0;
  for (int64_t i = 0; i < count; i++) {
    const double g = f->factor * f->g[first + i * stride];
    sum += g * g;
  }
  *mean = beta2 * *mean + (1 - beta2) * sum / (double)count;
}

static double root_mean_square(const double *x, int64_t count)
{
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += x[i] * x[i];
  return sqrt(sum / (double)count);
}

/* Returns the gradient divided by the root of its second moment. */
static double direction(const factored *f, int64_t i)
{
  const double eps = f->launch->step->eps, row = f->is_matrix ? f->row[i / f->columns] / f->row_mean : 1;
  return f->factor * f->g[i] / sqrt(fmax(row * f->column[i % f->columns], eps * eps));
}

/* Adafactor (Shazeer, Stern: Adaptive Learning Rates with Sublinear Memory Cost; ICML 2018, algorithms 4 to 6), as in
 * torch.optim.Adafactor:
 *
 *     row = beta2 * row + (1 - beta2) * mean of g^2 over columns; column likewise over rows; beta2 = 1 - t^decay
 *     u = g / sqrt(max(row * column / max(mean of row, eps1), eps1^2))
 *     u = u * max(eps2, rms(p)) * min(lr, 1 / sqrt(t)) / max(1, rms(u) / d)
 *     m = beta1 * m + (1 - beta1) * u          only if there is m, which then replaces u below
 *     p = p - lr * weight_decay * p - u */
REFERENCE(adafactor, "adafactor")
{
  const brim_update_attr *attr = &launch->node->attr.update;
  const brim_step *step = launch->step;
  factored f = make_factored(launch);
  const int64_t count = f.rows * f.columns;
  const double size = fmax(attr->least, root_mean_square(f.p, count));
  for (int64_t r = 0; f.is_matrix && r < f.rows; r++) add_squares(&f, &f.row[r], r * f.columns, f.columns, 1);
  for (int64_t c = 0; c < f.columns; c++) add_squares(&f, &f.column[c], c, f.rows, f.columns);
  if (f.is_matrix) {
    f.row_mean = 0;
    for (int64_t r = 0; r < f.rows; r++) f.row_mean += f.row[r] / (double)f.rows;
    f.row_mean = fmax(f.row_mean, step->eps);
  }
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += direction(&f, i) * direction(&f, i);
  const double length = sqrt(sum / (double)count), rate = fmin(step->lr, 1 / sqrt((double)step->step + 1));
  const double scale = size * rate / fmax(1, length / attr->clip);
  for (int64_t i = 0; i < count; i++) {
    double u = scale * direction(&f, i);
    if (f.m) u = f.m[i] = step->beta1 * f.m[i] + (1 - step->beta1) * u;
    f.p[i] = f.p[i] - step->lr * weight_decay(launch) * f.p[i] - u;
  }
  return BRIM_OK;
}

/* ---- adamw8bit ---- */

/* Functions that convert the codes of a block to values, and back. */
typedef struct codes {
  bool is_signed;
  int32_t count;
  double magnitude[256];
} codes;

static double value_of(const codes *c, uint8_t code)
{
  if (!c->is_signed) return c->magnitude[code];
  return code < BRIM_CODE8_ZERO ? -c->magnitude[BRIM_CODE8_ZERO - code] : c->magnitude[code - BRIM_CODE8_ZERO];
}

static uint8_t code_of(const codes *c, double x)
{
  const int32_t k = brim_code8_nearest(c->magnitude, c->count, fabs(x));
  if (!c->is_signed) return (uint8_t)k;
  return (uint8_t)(x < 0 ? BRIM_CODE8_ZERO - (k < BRIM_CODE8_ZERO ? k : BRIM_CODE8_ZERO) : BRIM_CODE8_ZERO + k);
}

static void encode(const codes *c, const double *value, int64_t count, uint8_t *code, double *absmax)
{
  *absmax = 0;
  for (int64_t i = 0; i < count; i++) *absmax = fmax(*absmax, fabs(value[i]));
  for (int64_t i = 0; i < count; i++) code[i] = code_of(c, *absmax > 0 ? value[i] / *absmax : 0);
}

/* AdamW (see update.c) with moments that are stored as codes (Dettmers et al.: 8-bit Optimizers via Block-wise
 * Quantization; ICLR 2022). The moments of a block are decoded and updated. The update of p uses them before they are
 * encoded again. */
REFERENCE(adamw8bit, "adamw8bit")
{
  const brim_step *step = launch->step;
  const double kept = 1 - step->lr * weight_decay(launch), factor = gradient_factor(launch);
  const double *g = launch->in[1];
  double *p = launch->out[0], *m_absmax = launch->out[2], *v_absmax = launch->out[4];
  uint8_t *m_code = launch->out[1], *v_code = launch->out[3];
  const int64_t count = brim_shape_count(&launch->node->in[0]->shape);
  codes with_sign = {.is_signed = true}, without = {0};
  with_sign.count = brim_code8_magnitudes(1, with_sign.magnitude);
  without.count = brim_code8_magnitudes(0, without.magnitude);
  for (int64_t at = 0, b = 0; at < count; at += BRIM_CODE8_BLOCK, b++) {
    const int64_t n = count - at < BRIM_CODE8_BLOCK ? count - at : BRIM_CODE8_BLOCK;
    double m[BRIM_CODE8_BLOCK], v[BRIM_CODE8_BLOCK];
    for (int64_t i = 0; i < n; i++) {
      const double d = factor * g[at + i];
      m[i] = step->beta1 * value_of(&with_sign, m_code[at + i]) * m_absmax[b] + (1 - step->beta1) * d;
      v[i] = step->beta2 * value_of(&without, v_code[at + i]) * v_absmax[b] + (1 - step->beta2) * d * d;
      const double root = sqrt(v[i]) / sqrt(step->bias_correction2);
      p[at + i] = kept * p[at + i] - step->lr / step->bias_correction1 * m[i] / (root + step->eps);
    }
    encode(&with_sign, m, n, m_code + at, &m_absmax[b]);
    encode(&without, v, n, v_code + at, &v_absmax[b]);
  }
  return BRIM_OK;
}
