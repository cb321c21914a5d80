/* Softmax cross-entropy of logits x product^T + bias, capped or not, which are computed and used in pieces of at most
 * ROWS_MAX x CLASSES_MAX: scratch is bounded for any batch, sequence and number of classes. The gradient recomputes the
 * logits, and takes their normalisation from the loss. If loss and gradient are one operation, all logits of some rows
 * are kept until their gradients replace them: of ROWS_MAX, or of half of the rows if they are fewer, which saves
 * memory too.
 *
 * A piece has only rows whose label counts: where some are ignored, its rows of x are copied together, and the rows of
 * dx are moved apart at the end. So the time goes with the labels that count.
 *
 * Each element of a logit, of dx and of dproduct is one chain of sums, over features, classes and rows in their order
 * (see cpu_gemm), so no bit depends on the pieces, the threads, the micro-batch, or whether logits are computed once or
 * twice. */
#include <math.h>

#include "loss.h"
#include "simd_loss.h"

enum { ROWS_MAX = 256, CLASSES_MAX = 1024, KEPT_ROWS_MIN = 64, COLUMNS_PER_TASK = 256, ROWS_PER_TASK = 4 };

typedef struct problem {
  cpu_backend *backend;
  const cpu_loss_simd *simd;
  const brim_loss_attr *attr;
  int64_t rows, features, classes;
  const float *x, *product, *bias; /* bias: NULL for none */
  const int32_t *label;
  float *loss; /* written or read */
  int32_t *rank;
  float *dx, *dproduct, *dbias; /* written; added to, or NULL */
  double loss_scale;
  bool keeps_logits; /* logits are kept until the gradient */
  /* scratch */
  char *products;
  float *kept;   /* logits: of the piece, or of all classes of its rows */
  float *logits; /* of the piece; `stride` from row to row */
  int64_t stride;
  cpu_softmax_row *row; /* of each row of the piece */
  double *lse;          /* of each row of the piece: log of the sum of exp(logits) */
  double *column;       /* [features]: sums of the columns of product, if labels are smoothed; */
  double bias_sum;      /* and of the bias */
  int64_t row0, class0; /* the piece */
  int64_t row_count, class_count;
  int64_t row_end;    /* the first row after the piece; ignored rows lie between */
  int64_t *at;        /* [ROWS_MAX]: the place of each of its rows among all rows */
  const float *piece; /* its rows of x */
  float *gathered;    /* room for them, if some rows may be ignored */
} problem;

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

static uint64_t gathered_bytes(const brim_loss_attr *attr, int64_t rows, int64_t features, bool keeps_logits)
{
  return attr->ignores ? cpu_aligned((uint64_t)(rows_at_once(rows, keeps_logits) * features) * sizeof(float)) : 0;
}

static void need_scratch(const cpu_backend *b, const brim_node *node, bool keeps_logits, brim_kernel_need *need)
{
  const brim_shape *product = &node->in[1]->shape;
  need->workspace_bytes += cpu_multiply_bytes(b) + logits_bytes(cpu_rows(node->in[0]), product->dim[0], keeps_logits) +
                           gathered_bytes(&node->attr.loss, cpu_rows(node->in[0]), product->dim[1], keeps_logits) +
                           cpu_aligned(ROWS_MAX * sizeof(cpu_softmax_row)) +
                           ROWS_MAX * (sizeof(double) + sizeof(int64_t)) + (uint64_t)product->dim[1] * sizeof(double);
}

static CPU_PREPARE(linear_loss_prepare)
{
  BRIM_TRY(cpu_plain_prepare(self, program, node, need, state));
  need_scratch(self, node, false, need);
  return BRIM_OK;
}

static CPU_PREPARE(linear_loss_both_prepare)
{
  BRIM_TRY(cpu_plain_prepare(self, program, node, need, state));
  need_scratch(self, node, true, need);
  return BRIM_OK;
}

/* `bias`: its input's index, if the node has a bias. */
static brim_status begin(cpu_backend *b, const brim_launch *launch, uint32_t bias, bool keeps_logits, problem *p)
{
  static const cpu_loss_simd *const tables[] = {&cpu_loss_v2, &cpu_loss_v3, &cpu_loss_v4};
  const brim_shape *product = &launch->node->in[1]->shape;
  *p = (problem){.backend = b,
                 .simd = tables[b->isa],
                 .attr = &launch->node->attr.loss,
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
  char *at = p->products + cpu_multiply_bytes(b);
  p->kept = (float *)(void *)at;
  at += logits_bytes(p->rows, p->classes, keeps_logits);
  p->gathered = (float *)(void *)at;
  at += gathered_bytes(p->attr, p->rows, p->features, keeps_logits);
  p->row = (cpu_softmax_row *)(void *)at;
  at += cpu_aligned(ROWS_MAX * sizeof(cpu_softmax_row));
  p->at = (int64_t *)(void *)at;
  p->lse = (double *)(void *)(p->at + ROWS_MAX);
  p->column = p->lse + ROWS_MAX;
  return cpu_loss_check_labels(launch->node->in[2], p->label, p->classes, p->attr);
}

/* ---- pieces ---- */

/* The label's logit, with its products added in the same order as in a piece, so to the same bits. */
static float own_logit(const problem *p, int64_t row, int32_t thread)
{
  const cpu_simd *simd = p->backend->simd;
  float own = 0;
  const cpu_gemm g = {.m = 1,
                      .n = 1,
                      .k = p->features,
                      .a = p->x + row * p->features,
                      .lda = p->features,
                      .b = p->product + p->label[row] * p->features,
                      .ldb = p->features,
                      .b_transposed = true,
                      .c = &own,
                      .ldc = 1,
                      .bias = p->bias ? p->bias + p->label[row] : NULL};
  simd->gemm(&g, 0, 1, 0, 1, (float *)(void *)(p->products + (uint64_t)thread * cpu_aligned(simd->gemm_scratch_bytes)));
  if (p->attr->softcap > 0) p->simd->cap(&own, 1, (float)p->attr->softcap);
  return own;
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
                      .a = p->piece,
                      .lda = p->features,
                      .b = p->product + p->class0 * p->features,
                      .ldb = p->features,
                      .b_transposed = true,
                      .c = p->logits,
                      .ldc = p->stride,
                      .bias = p->bias ? p->bias + p->class0 : NULL};
  cpu_multiply(p->backend, &(cpu_products){.gemm = g, .count = 1}, p->products);
  if (p->attr->softcap > 0) each_row(p, cap_rows);
}

static void gather_rows(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const problem *p = arg;
  for
    EACH_ROW_OF(p, task, i)
  memcpy(p->gathered + i * p->features, p->x + p->at[i] * p->features, (size_t)p->features * sizeof(float));
}

/* Takes the next rows that count, from `first` on, and ignored rows up to the next one that counts. */
static void take_rows(problem *p, int64_t first)
{
  const int64_t most = rows_at_once(p->rows, p->keeps_logits);
  p->row0 = p->row_end = first;
  p->row_count = 0;
  for (; p->row_end < p->rows; p->row_end++) {
    if (is_ignored(p, p->row_end)) continue;
    if (p->row_count == most) break;
    p->at[p->row_count++] = p->row_end;
  }
  p->piece = p->x + first * p->features;
  if (p->row_end - first == p->row_count) return;
  p->piece = p->gathered;
  each_row(p, gather_rows);
}

/* Moves dx's rows, which lie together from row0 on, to their places, from the last, as none comes before its own. */
static void spread_gradients(const problem *p)
{
  const size_t bytes = (size_t)p->features * sizeof(float);
  int64_t i = p->row_count;
  if (p->row_end - p->row0 == p->row_count) return;
  for (int64_t row = p->row_end - 1; row >= p->row0; row--) {
    float *to = p->dx + row * p->features;
    if (i == 0 || p->at[i - 1] != row)
      memset(to, 0, bytes);
    else if (p->row0 + --i != row)
      memcpy(to, p->dx + (p->row0 + i) * p->features, bytes);
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
  for (int64_t row = p->row0; row < p->row_end; row++) { /* ignored rows keep these */
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

/* Computes losses and ranks of the present rows. */
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
  for (int64_t f = from; f < to; f++) p->column[f] = 0;
  for (int64_t k = 0; k < p->classes; k++)
    for (int64_t f = from; f < to; f++) p->column[f] += (double)p->product[k * p->features + f];
}

static void sum_parameters(problem *p)
{
  cpu_pool_run(p->backend->pool, cpu_divide_up(p->features, COLUMNS_PER_TASK), sum_columns, p);
  for (int64_t k = 0; p->bias && k < p->classes; k++) p->bias_sum += (double)p->bias[k];
}

/* lse from loss = lse - (1 - s) * own - s/K * sum of the row's logits. */
static void find_lse(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  problem *p = arg;
  const double s = p->attr->smoothing;
  for
    EACH_ROW_OF(p, task, i)
    {
      const float *x = p->piece + i * p->features;
      double logits = p->bias_sum;
      for (int64_t f = 0; s > 0 && f < p->features; f++) logits += (double)x[f] * p->column[f];
      p->lse[i] = (double)p->loss[p->at[i]] + (1 - s) * (double)p->row[i].own + s / (double)p->classes * logits;
    }
}

/* Replaces logits by their gradients. The label's is computed in double precision: near 1 softmax - 1 loses digits. */
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

/* Rows of the piece, in their order. */
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
                          .a = p->logits,
                          .lda = p->stride,
                          .b = p->product + p->class0 * p->features,
                          .ldb = p->features,
                          .c = p->dx + p->row0 * p->features,
                          .ldc = p->features,
                          .accumulate = p->class0 > 0};
  const cpu_gemm for_product = {.m = p->class_count,
                                .n = p->features,
                                .k = p->row_count,
                                .a = p->logits,
                                .lda = p->stride,
                                .a_transposed = true,
                                .b = p->piece,
                                .ldb = p->features,
                                .c = p->dproduct ? p->dproduct + p->class0 * p->features : NULL,
                                .ldc = p->features,
                                .accumulate = true};
  cpu_multiply(p->backend, &(cpu_products){.gemm = for_x, .count = 1}, p->products);
  if (p->dproduct) cpu_multiply(p->backend, &(cpu_products){.gemm = for_product, .count = 1}, p->products);
}

/* The outputs from `first` on: dx, and unless they are frozen those of the parameters. */
static void begin_gradients(problem *p, const brim_launch *launch, uint32_t first)
{
  const uint32_t outs = launch->node->out_count;
  p->dx = launch->out[first];
  p->dproduct = outs > first + 1 ? launch->out[first + 1] : NULL;
  p->dbias = outs > first + 2 ? launch->out[first + 2] : NULL;
  if (p->attr->smoothing > 0) sum_parameters(p);
}

/* Adds the gradients of the present rows, whose losses are known. */
static void add_gradients(problem *p)
{
  each_row(p, find_lse);
  for (int64_t c = 0; c < p->classes && p->row_count > 0; c += CLASSES_MAX) {
    take_classes(p, c);
    if (!p->keeps_logits) make_logits(p);
    each_row(p, turn_rows);
    add_products(p);
    if (p->dbias) cpu_pool_run(p->backend->pool, cpu_divide_up(p->class_count, COLUMNS_PER_TASK), add_to_bias, p);
  }
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
  return BRIM_OK;
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
  return BRIM_OK;
}

CPU_KERNEL(linear_cross_entropy_grad) = {
    .op = "linear_cross_entropy_grad", .prepare = linear_loss_prepare, .run = linear_loss_grad_run};
CPU_KERNEL(linear_cross_entropy_both) = {
    .op = "linear_cross_entropy+grad", .prepare = linear_loss_both_prepare, .run = linear_loss_both_run};

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
