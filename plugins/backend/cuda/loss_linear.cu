/* Softmax cross-entropy of logits that are a product, and its gradients, without keeping the logits:
 *
 *     z[n,k]         = sum over f of  x[n,f] * product[k,f]  + bias[k]
 *     loss, rank, dz as loss.cu makes them of z
 *     dx[n,f]        = sum over k of  dz[n,k] * product[k,f]
 *     dproduct[k,f] += sum over n of  dz[n,k] * x[n,f]
 *     dbias[k]      += sum over n of  dz[n,k]
 *
 * Of frozen parameters there is dx alone.
 *
 * Logits exist in chunks of whole rows, in scratch of bounded size (loss_geometry.h), and are made a second time in the
 * backward pass. A chunk has all classes, so that softmax and rank come from one pass over a row, with the label's
 * logit from the same product as those it is compared with; dx is one product a chunk, rounded once; and only dproduct,
 * in fp32, is read and written once for every chunk. How many rows a chunk has follows from the number of classes
 * alone, unless the batch has fewer.
 *
 * The bias is left to the product where that takes one, else a kernel behind it goes over the chunk.
 *
 * Logits are fp32. In bf16 and fp16, dz is of that type too (it is multiplied with such values), in memory of its own.
 */
#include <stdlib.h>

#include "behind.h"
#include "kernel.cuh"
#include "loss.h"
#include "loss_geometry.h"
#include "product.h"

enum use { LOGITS, TO_X, TO_PRODUCT, USES };
enum part { WHOLE, REST, PARTS }; /* chunks, and the last one if it is shorter */

/* Scratch: x in plain order, then as below. The bias is there in the logits' type, with their
 * ld for its length. */
typedef struct plan {
  int64_t rows, features, classes, ld;
  int64_t chunk; /* rows of one */
  uint32_t type; /* of what is multiplied */
  bool converts; /* the parameter has another type */
  bool bias, bias_behind[PARTS];
  uint64_t parameter_bytes, bias_bytes, logits_bytes, gradient_bytes;
  cuda_product_plan *product[PARTS][USES];
} plan;

static void release(void *self, void *state)
{
  plan *p = (plan *)state;
  (void)self;
  if (!p) return;
  for (int part = 0; part < PARTS; part++)
    for (int use = 0; use < USES; use++) cuda_product_release(p->product[part][use]);
  free(p);
}

/* The greatest power of two, at most CUDA_ALIGNMENT, that a chunk's start in rows of `row_bytes` is a multiple of. */
static uint32_t chunk_alignment(const plan *p, uint64_t row_bytes)
{
  const uint64_t bytes = (uint64_t)p->chunk * row_bytes;
  return (uint32_t)(bytes % CUDA_ALIGNMENT ? bytes & (~bytes + 1) : CUDA_ALIGNMENT);
}

static cuda_product product_of(const plan *p, enum use use, int64_t rows, const brim_node *node)
{
  cuda_product m = {};
  m.type = p->type;
  m.alignment = chunk_alignment(p, (uint64_t)p->features * brim_dtype_bytes(p->type));
  if (use == LOGITS) { /* x product^T */
    m.m = rows, m.n = p->classes, m.k = p->features;
    m.transpose_b = true;
    m.lda = m.ldb = p->features;
    m.ldd = p->ld;
    m.type_d = BRIM_DTYPE_F32;
  } else if (use == TO_X) { /* dz product */
    m.m = rows, m.n = p->features, m.k = p->classes;
    m.lda = p->ld;
    m.ldb = m.ldd = p->features;
    m.type_d = node->out[0]->dtype;
  } else { /* dz^T x */
    m.m = p->classes, m.n = p->features, m.k = rows;
    m.transpose_a = true;
    m.lda = p->ld;
    m.ldb = m.ldd = p->features;
    m.type_d = node->out[1]->dtype;
    m.accumulate = true;
  }
  return m;
}

/* The logits with their bias, or if the library does not offer that, without. */
static brim_status prepare_product(cuda_backend *b, cuda_product *m, plan *p, int part, int use, uint64_t *bytes)
{
  m->bias = use == LOGITS && p->bias;
  const brim_status status = cuda_product_prepare(b, m, &p->product[part][use], bytes);
  if (status != BRIM_ENOTSUP || !m->bias) return status;
  m->bias = false;
  p->bias_behind[part] = true;
  return cuda_product_prepare(b, m, &p->product[part][use], bytes);
}

static brim_status prepare_products(cuda_backend *b, const brim_node *node, plan *p, int uses, uint64_t *scratch_bytes)
{
  const int64_t rows[PARTS] = {p->rows / p->chunk > 0 ? p->chunk : 0, p->rows % p->chunk};
  for (int part = 0; part < PARTS; part++)
    for (int use = 0; rows[part] > 0 && use < uses; use++) {
      cuda_product m = product_of(p, (enum use)use, rows[part], node);
      uint64_t bytes = 0;
      BRIM_TRY(prepare_product(b, &m, p, part, use, &bytes));
      if (bytes > *scratch_bytes) *scratch_bytes = bytes;
    }
  return BRIM_OK;
}

static plan plan_of(const brim_node *node, bool backward)
{
  const brim_tensor *x = node->in[0], *product = node->in[1];
  const uint32_t bias = backward ? 4 : 3; /* the input */
  plan p = {};
  p.rows = cuda_rows_of(x);
  p.features = product->shape.dim[1];
  p.classes = product->shape.dim[0];
  p.ld = cuda_loss_chunk_ld(p.classes);
  p.type = x->dtype;
  p.converts = product->dtype != x->dtype;
  p.bias = node->in_count > bias;
  const bool apart = backward && p.type != BRIM_DTYPE_F32;
  const uint64_t row_bytes = (uint64_t)p.ld * sizeof(float), gradient = (uint64_t)p.ld * brim_dtype_bytes(p.type);
  p.chunk = cuda_loss_chunk_rows(p.rows, (int64_t)(row_bytes + (apart ? gradient : 0)));
  p.logits_bytes = cuda_round_up((uint64_t)p.chunk * row_bytes, CUDA_ALIGNMENT);
  if (apart) p.gradient_bytes = cuda_round_up((uint64_t)p.chunk * gradient, CUDA_ALIGNMENT);
  if (p.bias) p.bias_bytes = cuda_round_up((uint64_t)p.ld * sizeof(float), CUDA_ALIGNMENT);
  if (p.converts)
    p.parameter_bytes = cuda_round_up((uint64_t)(p.classes * p.features) * brim_dtype_bytes(p.type), CUDA_ALIGNMENT);
  return p;
}

static int uses_of(const brim_node *node, bool backward)
{
  if (!backward) return LOGITS + 1;
  return node->out_count > 1 ? USES : TO_X + 1;
}

static brim_status prepare(cuda_backend *b, const brim_program_info *program, const brim_node *node,
                           brim_kernel_need *need, void **state, bool backward)
{
  uint64_t scratch_bytes = 0;
  BRIM_TRY(cuda_plain_prepare(b, program, node, need, state));
  plan *p = (plan *)brim_try_calloc(1, sizeof *p);
  if (!p) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the plan of %s '%s'", node->op, node->name);
  *p = plan_of(node, backward);
  const brim_status status = prepare_products(b, node, p, uses_of(node, backward), &scratch_bytes);
  if (status != BRIM_OK) {
    release(b, p);
    return status;
  }
  if (backward && node->out_count > 2) /* the sums of columns share what the products use */
    scratch_bytes =
        (uint64_t)cuda_max((int64_t)scratch_bytes, (int64_t)cuda_column_sum_bytes(p->type, p->chunk, p->classes));
  need->library = "cuBLASLt";
  need->workspace_bytes += p->parameter_bytes + p->bias_bytes + p->logits_bytes + p->gradient_bytes + scratch_bytes;
  *state = p;
  return BRIM_OK;
}

static CUDA_PREPARE(forward_prepare)
{
  return prepare((cuda_backend *)self, program, node, need, state, false);
}
static CUDA_PREPARE(backward_prepare)
{
  return prepare((cuda_backend *)self, program, node, need, state, true);
}

/* ---- running ---- */

typedef struct running {
  cuda_backend *backend;
  const plan *p;
  const char *x;
  const void *product; /* of x's type */
  const float *bias;   /* [ld] */
  char *logits, *gradient, *scratch;
  const int32_t *label;
  cuda_loss_rows rows;
} running;

static brim_status convert_parameters(running *r, const brim_launch *launch, uint32_t bias, char *at)
{
  const brim_node *node = launch->node;
  const plan *p = r->p;
  if (p->converts)
    BRIM_TRY(cuda_convert(r->backend, node->in[1]->dtype, launch->in[1], p->type, at, p->classes * p->features));
  if (!p->bias) return BRIM_OK;
  r->bias = (const float *)(at + p->parameter_bytes);
  return cuda_convert(r->backend, node->in[bias]->dtype, launch->in[bias], BRIM_DTYPE_F32, at + p->parameter_bytes,
                      p->classes);
}

/* `bias`: the input that it is, if there is one. */
static brim_status begin(cuda_backend *b, const brim_launch *launch, uint32_t bias, running *r)
{
  const brim_node *node = launch->node;
  const brim_loss_attr *attr = &node->attr.loss;
  const plan *p = (const plan *)launch->state;
  char *at = (char *)cuda_scratch_end(launch, true);
  *r = {};
  r->backend = b;
  r->p = p;
  r->x = (const char *)cuda_plain_input(b, launch, 0);
  r->rows.control = cuda_control_of(b, launch);
  if (!r->x || !r->rows.control) return BRIM_EDEVICE;
  r->product = p->converts ? at : launch->in[1];
  r->logits = at + p->parameter_bytes + p->bias_bytes;
  r->gradient = p->gradient_bytes ? r->logits + p->logits_bytes : r->logits;
  r->scratch = r->logits + p->logits_bytes + p->gradient_bytes;
  r->label = (const int32_t *)launch->in[2];
  r->rows.logits = r->logits;
  r->rows.classes = p->classes;
  r->rows.ld = p->ld;
  r->rows.each = p->rows / node->in[0]->shape.dim[0];
  r->rows.smoothing = attr->smoothing;
  r->rows.ignores = attr->ignores;
  r->rows.ignore_index = attr->ignore_index;
  r->rows.node = (uint64_t)node;
  return convert_parameters(r, launch, bias, at);
}

static int part_of(const running *r)
{
  return r->rows.rows == r->p->chunk ? WHOLE : REST;
}

static brim_status multiply(const running *r, enum use use, const void *a, const void *with, void *d)
{
  cuda_operands o = {};
  o.a = a;
  o.b = with;
  o.bias = use == LOGITS ? r->bias : NULL;
  o.d = d;
  o.scratch = r->scratch;
  return cuda_product_run(r->backend, r->p->product[part_of(r)][use], &o);
}

static const void *x_of_chunk(const running *r)
{
  return r->x + (uint64_t)(r->rows.first * r->p->features) * brim_dtype_bytes(r->p->type);
}

static brim_status add_bias(const running *r)
{
  cuda_behind behind = {};
  behind.activation.kind = CUDA_IDENTITY;
  behind.dtype = behind.bias_dtype = BRIM_DTYPE_F32;
  behind.count = r->rows.rows * r->p->ld;
  behind.channels = r->p->ld;
  behind.inner = 1;
  behind.from = behind.to = r->logits;
  behind.bias = r->bias;
  return cuda_behind_run(r->backend, &behind);
}

/* Makes the logits of the chunk that begins with row `first`. */
static brim_status make_logits(running *r, int64_t first)
{
  r->rows.first = first;
  r->rows.rows = cuda_min(r->p->chunk, r->p->rows - first);
  r->rows.label = r->label + first;
  BRIM_TRY(multiply(r, LOGITS, x_of_chunk(r), r->product, r->logits));
  return r->p->bias_behind[part_of(r)] ? add_bias(r) : BRIM_OK;
}

static CUDA_RUN(forward_run)
{
  running r;
  BRIM_TRY(begin((cuda_backend *)self, launch, 3, &r));
  for (int64_t n = 0; n < r.p->rows; n += r.p->chunk) {
    BRIM_TRY(make_logits(&r, n));
    BRIM_TRY(cuda_loss_forward(r.backend, BRIM_DTYPE_F32, &r.rows, (float *)launch->out[0] + n,
                               (int32_t *)launch->out[1] + n));
  }
  return BRIM_OK;
}
BRIM_KERNEL(linear_cross_entropy) = {
    .op = "linear_cross_entropy", .prepare = forward_prepare, .run = forward_run, .release = release};

static CUDA_RUN(backward_run)
{
  running r;
  BRIM_TRY(begin((cuda_backend *)self, launch, 4, &r));
  const uint32_t outs = launch->node->out_count;
  const uint64_t dx_row = (uint64_t)r.p->features * brim_dtype_bytes(launch->node->out[0]->dtype);
  for (int64_t n = 0; n < r.p->rows; n += r.p->chunk) {
    BRIM_TRY(make_logits(&r, n));
    BRIM_TRY(cuda_loss_backward(r.backend, BRIM_DTYPE_F32, r.p->type, &r.rows, (const float *)launch->in[3] + n,
                                r.gradient));
    BRIM_TRY(multiply(&r, TO_X, r.gradient, r.product, (char *)launch->out[0] + (uint64_t)n * dx_row));
    if (outs > 1) BRIM_TRY(multiply(&r, TO_PRODUCT, r.gradient, x_of_chunk(&r), launch->out[1]));
    if (outs > 2)
      BRIM_TRY(cuda_column_sum(r.backend, r.p->type, r.gradient, r.rows.rows, r.p->classes, r.p->ld,
                               (float *)launch->out[2], r.scratch));
  }
  return BRIM_OK;
}
BRIM_KERNEL(linear_cross_entropy_grad) = {
    .op = "linear_cross_entropy_grad", .prepare = backward_prepare, .run = backward_run, .release = release};
