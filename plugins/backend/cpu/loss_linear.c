/* Softmax cross-entropy of the logits x product^T + bias, which may be capped. Logits are computed and used in pieces
 * of at most ROWS_MAX x CLASSES_MAX, so scratch is bounded for any batch, sequence length and number of classes. The
 * gradient recomputes the logits and derives their log-sum-exp from the loss. If loss and gradient are one operation,
 * it keeps all logits of some rows until their gradients replace them: of ROWS_MAX rows, or of half of the rows if that
 * is less, which also saves memory.
 *
 * A piece has only rows whose label counts. If some labels are ignored, the other rows of x are copied together, and
 * the rows of dx move to their places at the end. So the time is proportional to the number of labels that count.
 *
 * Each element of a logit, of dx and of dproduct is one chain of sums over features, classes or rows in their order
 * (see cpu_gemm). So no bit depends on the pieces, the threads or the micro-batch, or on whether logits are computed
 * once or twice.
 *
 * If x, product and bias are in bfloat16 and the processor multiplies it, they are read as they are stored. Logits are
 * fp32, and products with their gradients round the gradients to bfloat16. The sums of dproduct start again at each
 * grain (gemm16.h), and dx is added up in fp32. */
#include <math.h>

#include "half.h"
#include "loss.h"
#include "simd_loss.h"

enum { ROWS_MAX = 256, CLASSES_MAX = 1024, KEPT_ROWS_MIN = 64, COLUMNS_PER_TASK = 256, ROWS_PER_TASK = 4 };

typedef struct problem {
  cpu_backend *backend;
  const cpu_loss_simd *simd;
  const brim_loss_attr *attr;
  int64_t rows, features, classes;
  bool small;                     /* x, product, bias and dx are in bfloat16, else in fp32 */
  const char *x, *product, *bias; /* bias: NULL if there is none */
  const int32_t *label;
  float *loss; /* an output, or an input of the gradient */
  int32_t *rank;
  char *dx;                /* always written */
  float *dproduct, *dbias; /* gradients to add to, or NULL */
  bool adds;               /* adds to dproduct; otherwise writes it */
  double loss_scale;
  bool keeps_logits; /* keeps logits until the gradient */
  /* scratch */
  char *products;
  float *kept;   /* all logits in scratch: those of the piece, or all classes of its rows */
  float *logits; /* logits of the piece; its rows are `stride` apart */
  int64_t stride;
  cpu_softmax_row *row; /* one for each row of the piece */
  double *lse;          /* for each row of the piece, log of the sum of exp(logits) */
  double *column;       /* [features]: sums of the columns of product; used if labels are smoothed */
  double bias_sum;      /* the sum of the bias; used if labels are smoothed */
  int64_t row0, class0; /* the start of the piece */
  int64_t row_count, class_count;
  int64_t row_end;    /* the first row after the piece; ignored rows may lie between row0 and it */
  int64_t *at;        /* [ROWS_MAX]: the index of each row of the piece among all rows */
  const char *piece;  /* the rows of x in the piece */
  char *gathered;     /* room for copies of these rows, if labels may be ignored */
  float *dx_sum;      /* the gradients of these rows: in dx, or in scratch until they are rounded */
  int64_t grain_rows; /* in bfloat16, the rows of a grain */
  int64_t *end;       /* [ROWS_MAX]: the rows of the piece at which grains end, ending with row_count */
} problem;

static int64_t value_bytes(bool small)
{
  return small ? sizeof(uint16_t) : sizeof(float);
}

/* Returns the address of value `at` of x, product, bias or dx. */
static const char *value(const problem *p, const char *values, int64_t at)
{
  return values + at * value_bytes(p->small);
}

/* Returns `count` values from `at` on as floats. Converted values are stored in `room`. */
static const float *floats(const problem *p, const char *values, int64_t at, int64_t count, float *room)
{
  const void *from = value(p, values, at);
  if (!p->small) return from;
  cpu_half_of(p->backend->isa, BRIM_DTYPE_BF16)->widen(from, room, count);
  return room;
}

static bool is_ignored(const problem *p, int64_t row)
{
  return p->attr->ignores && p->label[row] == p->attr->ignore_index;
}

/* ---- scratch: for plain inputs, products, logits, rows, lse, columns ---- */

/* Returns how many of `rows` rows are processed together. */
static int64_t rows_at_once(int64_t rows, bool keeps_logits)
{
  return cpu_min(cpu_min(rows, ROWS_MAX), keeps_logits ? cpu_max(KEPT_ROWS_MIN, cpu_divide_up(rows, 2)) : ROWS_MAX);
}

static uint64_t logits_bytes(int64_t rows, int64_t classes, bool keeps_logits)
{
  const int64_t numbers = rows_at_once(rows, keeps_logits) * (keeps_logits ? classes : cpu_min(classes, CLASSES_MAX));
  return cpu_aligned((uint64_t)numbers * sizeof(float));
}

static uint64_t gathered_bytes(const brim_loss_attr *attr, int64_t rows, int64_t features, bool keeps_logits,
                               bool small)
{
  const int64_t values = rows_at_once(rows, keeps_logits) * features;
  return attr->ignores ? cpu_aligned((uint64_t)(values * value_bytes(small))) : 0;
}

static uint64_t products_bytes(const cpu_backend *b, bool small)
{
  return cpu_aligned(small ? cpu_multiply16_bytes(b) : cpu_multiply_bytes(b));
}

static uint64_t sum_bytes(int64_t rows, int64_t features, bool keeps_logits, bool small)
{
  return small ? cpu_aligned((uint64_t)(rows_at_once(rows, keeps_logits) * features) * sizeof(float)) : 0;
}

static bool is_small(const brim_node *n)
{
  return n->in[1]->dtype == BRIM_DTYPE_BF16;
}

static void need_scratch(const cpu_backend *b, const brim_node *node, bool keeps_logits, brim_kernel_need *need)
{
  const int64_t rows = cpu_rows(node->in[0]), classes = node->in[1]->shape.dim[0], features = node->in[1]->shape.dim[1];
  const bool small = is_small(node);
  need->workspace_bytes += products_bytes(b, small) + logits_bytes(rows, classes, keeps_logits) +
                           gathered_bytes(&node->attr.loss, rows, features, keeps_logits, small) +
                           sum_bytes(rows, features, keeps_logits, small) +
                           cpu_aligned(ROWS_MAX * sizeof(cpu_softmax_row)) +
                           ROWS_MAX * (sizeof(double) + 2 * sizeof(int64_t)) + (uint64_t)features * sizeof(double);
}

static CPU_PREPARE(linear_loss_prepare)
{
  BRIM_TRY(cpu_plain_prepare(self, program, node, need, state));
  need_scratch(self, node, false, need);
  return BRIM_OK;
}

static CPU_PREPARE(linear_loss_grad_prepare)
{
  need->overwrites = 1;
  return linear_loss_prepare(self, program, node, need, state);
}

static CPU_PREPARE(linear_loss_both_prepare)
{
  need->overwrites = 1;
  BRIM_TRY(cpu_plain_prepare(self, program, node, need, state));
  need_scratch(self, node, true, need);
  return BRIM_OK;
}

/* bias: the index of the input with the bias, if the node has one. */
static brim_status begin(cpu_backend *b, const brim_launch *launch, uint32_t bias, bool keeps_logits, problem *p)
{
  static const cpu_loss_simd *const tables[] = {CPU_OF_ISAS(&, cpu_loss)};
  const brim_shape *product = &launch->node->in[1]->shape;
  *p = (problem){.backend = b,
                 .simd = tables[b->isa],
                 .attr = &launch->node->attr.loss,
                 .small = is_small(launch->node),
                 .rows = cpu_rows(launch->node->in[0]),
                 .features = product->dim[1],
                 .classes = product->dim[0],
                 .x = cpu_plain_input(b, launch, 0),
                 .product = launch->in[1],
                 .bias = launch->node->in_count > bias ? launch->in[bias] : NULL,
                 .label = launch->in[2],
                 .loss_scale = launch->step->loss_scale,
                 .keeps_logits = keeps_logits,
                 .products = cpu_plain_end(launch)};
  p->grain_rows = launch->state ? *(const int64_t *)launch->state : p->rows;
  char *at = p->products + products_bytes(b, p->small);
  p->kept = (float *)(void *)at;
  at += logits_bytes(p->rows, p->classes, keeps_logits);
  p->gathered = at;
  at += gathered_bytes(p->attr, p->rows, p->features, keeps_logits, p->small);
  p->dx_sum = (float *)(void *)at;
  at += sum_bytes(p->rows, p->features, keeps_logits, p->small);
  p->row = (cpu_softmax_row *)(void *)at;
  at += cpu_aligned(ROWS_MAX * sizeof(cpu_softmax_row));
  p->at = (int64_t *)(void *)at;
  p->end = p->at + ROWS_MAX;
  p->lse = (double *)(void *)(p->end + ROWS_MAX);
  p->column = p->lse + ROWS_MAX;
  return cpu_loss_check_labels(launch->node->in[2], p->label, p->classes, p->attr);
}

/* ---- pieces ---- */

/* Returns the label's logit. It adds the products in the same order as a piece does, so it has the same bits. */
static float own_logit(const problem *p, int64_t row, int32_t thread)
{
  const cpu_simd *simd = p->backend->simd;
  const int64_t features = p->features, label = p->label[row];
  const void *a = value(p, p->x, row * features), *b = value(p, p->product, label * features);
  const void *bias = p->bias ? value(p, p->bias, label) : NULL;
  float own = 0;
  if (p->small) {
    const cpu_gemm16 g = {.m = 1, .n = 1, .k = features, .unit = features, .a = a, .b = b, .b_transposed = true};
    own = cpu_multiply16_one(p->backend, &g, bias, thread, p->products);
  } else {
    const cpu_gemm g = {
        .m = 1, .n = 1, .k = features, .a = a, .b = b, .b_transposed = true, .c = &own, .ldc = 1, .bias = bias};
    float *scratch = (float *)(void *)(p->products + (uint64_t)thread * cpu_aligned(simd->gemm_scratch_bytes));
    simd->gemm(&g, 0, 1, 0, 1, scratch);
  }
  if (p->attr->softcap > 0) p->simd->cap(&own, 1, (float)p->attr->softcap);
  return own;
}

/* Runs product g. The operand a has floats (`a_wide`) or values as they are stored. */
static void multiply(const problem *p, cpu_gemm g, const void *a, bool a_wide, const void *b, const void *bias,
                     const int64_t *ends)
{
  g.a = a;
  g.b = b;
  g.bias = bias;
  const cpu_products16 small = {.gemm = {.m = g.m,
                                         .n = g.n,
                                         .k = g.k,
                                         .unit = g.k,
                                         .ends = ends,
                                         .a = a,
                                         .a_wide = a_wide,
                                         .lda = g.lda,
                                         .a_transposed = g.a_transposed,
                                         .b = b,
                                         .ldb = g.ldb,
                                         .b_transposed = g.b_transposed},
                                .sum = g.c,
                                .adds = g.accumulate,
                                .bias = bias,
                                .ldc = g.ldc};
  if (p->small)
    cpu_multiply16(p->backend, &small, p->products);
  else
    cpu_multiply(p->backend, &(cpu_products){.gemm = g, .count = 1}, p->products);
}

static void each_row(problem *p, cpu_task_fn fn)
{
  cpu_pool_run(p->backend->pool, cpu_divide_up(p->row_count, ROWS_PER_TASK), fn, p);
}
#define EACH_ROW_OF(p, task, i)                                                                                        \
  (int64_t i = (task)*ROWS_PER_TASK; i < cpu_min(((task) + 1) * ROWS_PER_TASK, (p)->row_count); i++)

static void begin_rows(void *arg, int64_t task, int32_t thread)
{
  problem *p = arg;
  for
    EACH_ROW_OF(p, task, i)
    {
      p->row[i] = (cpu_softmax_row){.greatest = -INFINITY};
      p->row[i].own = own_logit(p, p->at[i], thread);
    }
}

static void cap_rows(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const problem *p = arg;
  for
    EACH_ROW_OF(p, task, i)
  p->simd->cap(p->logits + i * p->stride, p->class_count, (float)p->attr->softcap);
}

static void make_logits(problem *p)
{
  const cpu_gemm g = {.m = p->row_count,
                      .n = p->class_count,
                      .k = p->features,
                      .lda = p->features,
                      .ldb = p->features,
                      .b_transposed = true,
                      .c = p->logits,
                      .ldc = p->stride};
  multiply(p, g, p->piece, false, value(p, p->product, p->class0 * p->features),
           p->bias ? value(p, p->bias, p->class0) : NULL, NULL);
  if (p->attr->softcap > 0) each_row(p, cap_rows);
}

static void gather_rows(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const problem *p = arg;
  for
    EACH_ROW_OF(p, task, i)
  memcpy(p->gathered + i * p->features * value_bytes(p->small), value(p, p->x, p->at[i] * p->features),
         (size_t)(p->features * value_bytes(p->small)));
}

/* Takes the next piece: rows whose labels count, from `first` on. The piece ends before the next row that counts, so it
 * also covers the ignored rows in between. */
static void take_rows(problem *p, int64_t first)
{
  const int64_t most = rows_at_once(p->rows, p->keeps_logits);
  int64_t *end = p->end, grain_end = (first / p->grain_rows + 1) * p->grain_rows;
  p->row0 = p->row_end = first;
  p->row_count = 0;
  for (; p->row_end < p->rows; p->row_end++) {
    if (is_ignored(p, p->row_end)) continue;
    if (p->row_count == most) break;
    if (p->row_end >= grain_end) {
      grain_end = (p->row_end / p->grain_rows + 1) * p->grain_rows;
      if (p->row_count > 0) *end++ = p->row_count;
    }
    p->at[p->row_count++] = p->row_end;
  }
  const int64_t cut = (p->row_count - (end > p->end ? end[-1] : 0)) % CPU_GEMM16_STEP;
  /* in bfloat16 the piece ends at a whole step, because the next piece must begin with one */
  if (p->small && cut > 0 && p->row_end < p->rows && p->row_end < grain_end) {
    p->row_count -= cut;
    p->row_end = p->at[p->row_count];
  }
  *end = p->row_count;
  p->piece = value(p, p->x, first * p->features);
  if (p->row_end - first == p->row_count) return;
  p->piece = p->gathered;
  each_row(p, gather_rows);
}

/* Moves the rows of dx, which lie together from row0 on, to their places. It starts with the last row, because each row
 * moves towards the end. */
static void spread_gradients(const problem *p)
{
  const int64_t bytes = p->features * value_bytes(p->small);
  int64_t i = p->row_count;
  if (p->row_end - p->row0 == p->row_count) return;
  for (int64_t row = p->row_end - 1; row >= p->row0; row--) {
    char *to = p->dx + row * bytes;
    if (i == 0 || p->at[i - 1] != row)
      memset(to, 0, (size_t)bytes);
    else if (p->row0 + --i != row)
      memcpy(to, p->dx + (p->row0 + i) * bytes, (size_t)bytes);
  }
}

static void take_classes(problem *p, int64_t first)
{
  p->class0 = first;
  p->class_count = cpu_min(CLASSES_MAX, p->classes - first);
  p->logits = p->kept + (p->keeps_logits ? first : 0);
  p->stride = p->keeps_logits ? p->classes : p->class_count;
}

/* ---- forward ---- */

static void look_at_rows(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const problem *p = arg;
  for
    EACH_ROW_OF(p, task, i)
  p->simd->look(&p->row[i], p->logits + i * p->stride, p->class0, p->class_count, p->label[p->at[i]]);
}

static void end_rows(const problem *p)
{
  const double s = p->attr->smoothing;
  for (int64_t row = p->row0; row < p->row_end; row++) { /* sets the values of ignored rows */
    p->loss[row] = 0;
    p->rank[row] = -1;
  }
  for (int64_t i = 0; i < p->row_count; i++) {
    const cpu_softmax_row *row = &p->row[i];
    double loss = (double)row->greatest + log(row->sum) - (1 - s) * (double)row->own;
    if (s > 0) loss -= s / (double)p->classes * row->logits;
    p->loss[p->at[i]] = (float)loss;
    p->rank[p->at[i]] = row->rank;
  }
}

/* Computes the losses and ranks of the piece's rows. */
static void find_losses(problem *p)
{
  each_row(p, begin_rows);
  for (int64_t c = 0; c < p->classes && p->row_count > 0; c += CLASSES_MAX) {
    take_classes(p, c);
    make_logits(p);
    each_row(p, look_at_rows);
  }
  end_rows(p);
}

static CPU_RUN(linear_loss_run)
{
  problem p;
  BRIM_TRY(begin(self, launch, 3, false, &p));
  p.loss = launch->out[0];
  p.rank = launch->out[1];
  for (int64_t r = 0; r < p.rows; r = p.row_end) {
    take_rows(&p, r);
    find_losses(&p);
  }
  return BRIM_OK;
}

CPU_KERNEL(linear_cross_entropy) = {
    .op = "linear_cross_entropy", .prepare = linear_loss_prepare, .run = linear_loss_run};

/* ---- backward ---- */

static void sum_columns(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const problem *p = arg;
  const int64_t from = task * COLUMNS_PER_TASK, to = cpu_min(from + COLUMNS_PER_TASK, p->features);
  float room[COLUMNS_PER_TASK];
  for (int64_t f = from; f < to; f++) p->column[f] = 0;
  for (int64_t k = 0; k < p->classes; k++) {
    const float *row = floats(p, p->product, k * p->features + from, to - from, room);
    for (int64_t f = from; f < to; f++) p->column[f] += (double)row[f - from];
  }
}

static void sum_parameters(problem *p)
{
  cpu_pool_run(p->backend->pool, cpu_divide_up(p->features, COLUMNS_PER_TASK), sum_columns, p);
  float room;
  for (int64_t k = 0; p->bias && k < p->classes; k++) p->bias_sum += (double)*floats(p, p->bias, k, 1, &room);
}

/* Solves loss = lse - (1 - s) * own - s/K * (sum of the row's logits) for lse. */
static void find_lse(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  problem *p = arg;
  const double s = p->attr->smoothing;
  for
    EACH_ROW_OF(p, task, i)
    {
      float room;
      double logits = p->bias_sum;
      for (int64_t f = 0; s > 0 && f < p->features; f++)
        logits += (double)*floats(p, p->piece, i * p->features + f, 1, &room) * p->column[f];
      p->lse[i] = (double)p->loss[p->at[i]] + (1 - s) * (double)p->row[i].own + s / (double)p->classes * logits;
    }
}

/* Replaces logits by their gradients. The label's gradient is computed in double precision, because softmax - 1 loses
 * digits if softmax is near 1. */
static void turn_rows(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const problem *p = arg;
  const double s = p->attr->smoothing, soft = s / (double)p->classes, cap = p->attr->softcap;
  for
    EACH_ROW_OF(p, task, i)
    {
      float *logits = p->logits + i * p->stride;
      if (cap > 0)
        p->simd->capped_grad(logits, p->class_count, p->lse[i], (float)p->loss_scale, (float)cap);
      else
        p->simd->softmax_grad(logits, p->class_count, p->lse[i], (float)soft, (float)p->loss_scale);
      const int64_t at = p->label[p->at[i]] - p->class0;
      const double own = (double)p->row[i].own, slope = cap > 0 ? (1 - own / cap) * (1 + own / cap) : 1;
      if (at >= 0 && at < p->class_count)
        logits[at] = (float)((exp(own - p->lse[i]) - (1 - s) - soft) * p->loss_scale * slope);
    }
}

/* Adds the rows of the piece in their order. */
static void add_to_bias(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const problem *p = arg;
  const int64_t at = task * COLUMNS_PER_TASK, count = cpu_min(COLUMNS_PER_TASK, p->class_count - at);
  float *sum = p->dbias + p->class0 + at;
  for (int64_t i = 0; i < p->row_count; i++) p->backend->simd->add(sum, p->logits + i * p->stride + at, sum, count);
}

static void add_products(problem *p)
{
  const cpu_gemm for_x = {.m = p->row_count,
                          .n = p->features,
                          .k = p->class_count,
                          .lda = p->stride,
                          .ldb = p->features,
                          .c = p->dx_sum,
                          .ldc = p->features,
                          .accumulate = p->class0 > 0};
  const cpu_gemm for_product = {.m = p->class_count,
                                .n = p->features,
                                .k = p->row_count,
                                .lda = p->stride,
                                .a_transposed = true,
                                .ldb = p->features,
                                .c = p->dproduct ? p->dproduct + p->class0 * p->features : NULL,
                                .ldc = p->features,
                                .accumulate = p->adds};
  multiply(p, for_x, p->logits, true, value(p, p->product, p->class0 * p->features), NULL, NULL);
  if (p->dproduct) multiply(p, for_product, p->logits, true, p->piece, NULL, p->end);
}

/* The outputs from `first` on are dx and, unless they are frozen, the gradients of the parameters. */
static void begin_gradients(problem *p, const brim_launch *launch, uint32_t first)
{
  const uint32_t outs = launch->node->out_count;
  p->dx = launch->out[first];
  p->dproduct = outs > first + 1 ? launch->out[first + 1] : NULL;
  p->dbias = outs > first + 2 ? launch->out[first + 2] : NULL;
  p->adds = p->dproduct && cpu_adds(launch, first + 1);
  if (p->dbias) cpu_begin_sum(launch, first + 2);
  if (p->attr->smoothing > 0) sum_parameters(p);
}

/* Zeroes dproduct, because nothing was written to it if every row is ignored. */
static brim_status end_gradients(const problem *p)
{
  if (!p->dproduct || p->adds) return BRIM_OK;
  return cpu_device_zero(p->backend, p->dproduct, (uint64_t)(p->classes * p->features) * sizeof(float));
}

/* Adds the gradients of the piece's rows, whose losses are known. */
static void add_gradients(problem *p)
{
  char *dx = p->dx + p->row0 * p->features * value_bytes(p->small);
  if (!p->small) p->dx_sum = (float *)(void *)dx;
  each_row(p, find_lse);
  for (int64_t c = 0; c < p->classes && p->row_count > 0; c += CLASSES_MAX) {
    take_classes(p, c);
    if (!p->keeps_logits) make_logits(p);
    each_row(p, turn_rows);
    add_products(p);
    if (p->dbias) cpu_pool_run(p->backend->pool, cpu_divide_up(p->class_count, COLUMNS_PER_TASK), add_to_bias, p);
  }
  p->adds = p->adds || p->row_count > 0;
  if (p->small)
    cpu_half_of(p->backend->isa, BRIM_DTYPE_BF16)->round(p->dx_sum, (uint16_t *)(void *)dx, p->row_count * p->features);
  spread_gradients(p);
}

static CPU_RUN(linear_loss_grad_run)
{
  problem p;
  BRIM_TRY(begin(self, launch, 4, false, &p));
  p.loss = launch->in[3];
  begin_gradients(&p, launch, 0);
  for (int64_t r = 0; r < p.rows; r = p.row_end) {
    take_rows(&p, r);
    each_row(&p, begin_rows);
    add_gradients(&p);
  }
  return end_gradients(&p);
}

static CPU_RUN(linear_loss_both_run)
{
  problem p;
  BRIM_TRY(begin(self, launch, 3, true, &p));
  p.loss = launch->out[0];
  p.rank = launch->out[1];
  begin_gradients(&p, launch, 2);
  for (int64_t r = 0; r < p.rows; r = p.row_end) {
    take_rows(&p, r);
    find_losses(&p);
    add_gradients(&p);
  }
  return end_gradients(&p);
}

CPU_KERNEL(linear_cross_entropy_grad) = {
    .op = "linear_cross_entropy_grad", .prepare = linear_loss_grad_prepare, .run = linear_loss_grad_run};
CPU_KERNEL(linear_cross_entropy_both) = {
    .op = "linear_cross_entropy+grad", .prepare = linear_loss_both_prepare, .run = linear_loss_both_run};

/* ---- in bfloat16 ---- */

static bool has_bfloat16(const cpu_backend *b, const brim_node *n, uint32_t bias)
{
  return b->gemm16 && n->in[0]->dtype == BRIM_DTYPE_BF16 && n->in[0]->channel_block == 1 && is_small(n) &&
         (n->in_count <= bias || n->in[bias]->dtype == BRIM_DTYPE_BF16);
}
static bool serves(const cpu_backend *b, const brim_node *n)
{
  return has_bfloat16(b, n, 3);
}
static bool serves_grad(const cpu_backend *b, const brim_node *n)
{
  return has_bfloat16(b, n, 4);
}

static CPU_PREPARE(linear_loss16_prepare)
{
  BRIM_TRY(cpu_grain_rows_prepare(self, program, node, need, state));
  need_scratch(self, node, false, need);
  return BRIM_OK;
}

static CPU_PREPARE(linear_loss16_grad_prepare)
{
  need->overwrites = 1;
  return linear_loss16_prepare(self, program, node, need, state);
}

static CPU_PREPARE(linear_loss16_both_prepare)
{
  need->overwrites = 1;
  BRIM_TRY(cpu_grain_rows_prepare(self, program, node, need, state));
  need_scratch(self, node, true, need);
  return BRIM_OK;
}

CPU_KERNEL16(linear_cross_entropy16) = {{.op = "linear_cross_entropy",
                                         .prepare = linear_loss16_prepare,
                                         .run = linear_loss_run,
                                         .release = cpu_grain_rows_release},
                                        serves};
CPU_KERNEL16(linear_cross_entropy16_grad) = {{.op = "linear_cross_entropy_grad",
                                              .prepare = linear_loss16_grad_prepare,
                                              .run = linear_loss_grad_run,
                                              .release = cpu_grain_rows_release},
                                             serves_grad};
CPU_KERNEL16(linear_cross_entropy16_both) = {{.op = "linear_cross_entropy+grad",
                                              .prepare = linear_loss16_both_prepare,
                                              .run = linear_loss_both_run,
                                              .release = cpu_grain_rows_release},
                                             serves};

static CPU_RUN(rank_metrics_run)
{
  (void)self;
  const int64_t count = brim_shape_count(&launch->node->in[0]->shape);
  const int32_t k = launch->node->attr.metrics.top_k, *rank = launch->in[1];
  const float *loss = launch->in[0];
  double *metrics = launch->out[0];
  for (int64_t n = 0; n < count; n++) {
    metrics[0] += (double)loss[n];
    metrics[1] += rank[n] == 0;
    if (k > 0) metrics[2] += rank[n] >= 0 && rank[n] < k;
  }
  return BRIM_OK;
}

CPU_KERNEL(rank_metrics) = {.op = "rank_metrics", .run = rank_metrics_run};
