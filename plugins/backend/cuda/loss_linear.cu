/* Softmax cross-entropy of logits that are a product, and its gradients, without keeping the logits:
 *
 *     z[n,k]         = sum over f of  x[n,f] * product[k,f]  + bias[k]
 *     loss, rank, dz by loss.cu, from z
 *     dx[n,f]        = sum over k of  dz[n,k] * product[k,f]
 *     dproduct[k,f] += sum over n of  dz[n,k] * x[n,f]
 *     dbias[k]      += sum over n of  dz[n,k]
 *
 * With frozen parameters there is only dx.
 *
 * Logits exist in chunks of whole rows, in scratch of bounded size (loss_geometry.h). linear_cross_entropy_grad
 * computes them a second time; linear_cross_entropy+grad computes loss and gradients from the same logits, by one
 * kernel. A chunk has all classes, so softmax and rank take one pass over a row, and the label's logit comes from the
 * same product as the logits it is compared with. dx is one product for each chunk, rounded once. Only dproduct, in
 * fp32, is read and written once for every chunk. The rows of a chunk depend on the number of classes alone, unless the
 * batch has fewer.
 *
 * cuBLASLt's fast kernels need rows whose start and length are multiples of 16 bytes: with the 50257 classes of GPT-2
 * it uses a kernel that is eight times slower (424 us for 640 rows on an H200). So each product is split at a multiple
 * of 8 classes, and the remaining classes have a small product of their own. In 16 bits, a kernel adds that part of dx
 * to the sum over the other classes, in fp32, and rounds.
 *
 * The product adds the bias if the library supports that; otherwise an epilogue kernel goes over the chunk.
 *
 * Logits are fp32. In bf16 and fp16, dz has that type, as it is multiplied with such values: it takes the first half of
 * its row of logits, so that a chunk has more rows. The fp32 sum for dx takes the second half, if it is not longer. */
#include <stdlib.h>

#include "epilogue.h"
#include "kernel.cuh"
#include "loss.h"
#include "loss_geometry.h"
#include "product.h"
#include "values.cuh"

enum use { LOGITS, TO_X, TO_PRODUCT, USES };
enum part { WHOLE, REST, PARTS }; /* WHOLE: a chunk of full size; REST: the last chunk if it is shorter */
enum { SPANS = 2, SPAN_MULTIPLE = 8 /* classes: 16 bytes in 16 bits */, ROW_ALIGNMENT = 16 };

/* The operation to compute, and the indices of its operands. */
typedef struct kind {
  bool forward, backward;
  uint32_t bias, dx; /* bias: index of the input; dx: index of the output, followed by the outputs of the parameters */
} kind;
static const kind forward = {true, false, 3, 2}, backward = {false, true, 4, 0}, both = {true, true, 3, 2};

/* A prepared node. Its scratch begins with x in plain order, followed by the parts below. The bias is a copy in the
 * logits' type, with `ld` values. */
typedef struct plan {
  int64_t rows, features, classes, ld, ld_dz; /* ld_dz: elements from a row of dz to the next */
  bool sums;                                  /* dx of two spans is added up in fp32 */
  int64_t ld_sum;                             /* the distance between neighbouring rows of that sum, in elements */
  int64_t chunk;                              /* rows of a chunk */
  uint32_t type;                              /* type of the products' factors */
  bool converts;                              /* the parameter has another type */
  bool bias, bias_in_epilogue[PARTS];
  int spans;
  int64_t span[SPANS + 1]; /* the first class of each span, and the end of the last span */
  /* Sizes in scratch; sum_bytes: 0 if the sum lies among the logits. */
  uint64_t parameter_bytes, bias_bytes, logits_bytes, sum_bytes;
  cuda_product_plan *product[PARTS][USES][SPANS];
} plan;

static void release_products(plan *p, int part, int use)
{
  for (int span = 0; span < SPANS; span++) {
    cuda_product_release(p->product[part][use][span]);
    p->product[part][use][span] = NULL;
  }
}

static void release(void *self, void *state)
{
  plan *p = (plan *)state;
  (void)self;
  if (!p) return;
  for (int part = 0; part < PARTS; part++)
    for (int use = 0; use < USES; use++) release_products(p, part, use);
  free(p);
}

/* Returns the greatest power of two, at most CUDA_ALIGNMENT, that divides a chunk's start in rows of `row_bytes`. */
static uint32_t chunk_alignment(const plan *p, uint64_t row_bytes)
{
  const uint64_t bytes = (uint64_t)p->chunk * row_bytes;
  return (uint32_t)(bytes % CUDA_ALIGNMENT ? bytes & (~bytes + 1) : CUDA_ALIGNMENT);
}

static cuda_product product_of(const plan *p, enum use use, int64_t rows, int span, const brim_tensor *dx)
{
  const int64_t classes = p->span[span + 1] - p->span[span];
  cuda_product m = {};
  m.type = p->type;
  m.alignment = span == 0 ? chunk_alignment(p, (uint64_t)p->features * brim_dtype_bytes(p->type))
                          : SPAN_MULTIPLE * (uint32_t)brim_dtype_bytes(p->type);
  m.type_d = BRIM_DTYPE_F32;
  if (use == LOGITS) { /* x product^T */
    m.m = rows, m.n = classes, m.k = p->features;
    m.transpose_b = true;
    m.lda = m.ldb = p->features;
    m.ldd = p->ld;
  } else if (use == TO_X) { /* dz product */
    m.m = rows, m.n = p->features, m.k = classes;
    m.lda = p->ld_dz;
    m.ldb = p->features;
    m.ldd = p->sums ? p->ld_sum : p->features;
    m.accumulate = span > 0;
    if (!p->sums) m.type_d = dx->dtype;
    if (p->sums && !p->sum_bytes) m.alignment = ROW_ALIGNMENT;
  } else { /* dz^T x */
    m.m = classes, m.n = p->features, m.k = rows;
    m.transpose_a = true;
    m.lda = p->ld_dz;
    m.ldb = m.ldd = p->features;
    m.accumulate = true;
  }
  return m;
}

/* Returns the number of spans that the library multiplies. */
static int spans_of(const plan *p, enum use use)
{
  return use == TO_X && p->sums ? 1 : p->spans;
}

static brim_status prepare_spans(cuda_backend *b, plan *p, int part, int64_t rows, enum use use, bool bias,
                                 const brim_tensor *dx, uint64_t *scratch_bytes)
{
  for (int span = 0; span < spans_of(p, use); span++) {
    cuda_product m = product_of(p, use, rows, span, dx);
    uint64_t bytes = 0;
    m.bias = bias;
    BRIM_TRY(cuda_product_prepare(b, &m, &p->product[part][use][span], &bytes));
    if (bytes > *scratch_bytes) *scratch_bytes = bytes;
  }
  return BRIM_OK;
}

/* Prepares the logits with their bias, or without it if the library does not offer that. */
static brim_status prepare_use(cuda_backend *b, plan *p, int part, int64_t rows, enum use use, const brim_tensor *dx,
                               uint64_t *scratch_bytes)
{
  const bool bias = use == LOGITS && p->bias;
  const brim_status status = prepare_spans(b, p, part, rows, use, bias, dx, scratch_bytes);
  if (status != BRIM_ENOTSUP || !bias) return status;
  release_products(p, part, use);
  p->bias_in_epilogue[part] = true;
  return prepare_spans(b, p, part, rows, use, false, dx, scratch_bytes);
}

static brim_status prepare_products(cuda_backend *b, const brim_node *node, plan *p, kind k, uint64_t *scratch_bytes)
{
  const int64_t rows[PARTS] = {p->rows / p->chunk > 0 ? p->chunk : 0, p->rows % p->chunk};
  const int uses = !k.backward ? LOGITS + 1 : node->out_count > k.dx + 1 ? USES : TO_X + 1;
  const brim_tensor *dx = k.backward ? node->out[k.dx] : NULL;
  for (int part = 0; part < PARTS; part++)
    for (int use = 0; rows[part] > 0 && use < uses; use++)
      BRIM_TRY(prepare_use(b, p, part, rows[part], (enum use)use, dx, scratch_bytes));
  return BRIM_OK;
}

static void cut_classes(plan *p)
{
  const int64_t most = p->classes / SPAN_MULTIPLE * SPAN_MULTIPLE;
  p->spans = most > 0 && most < p->classes ? 2 : 1;
  p->span[1] = p->spans > 1 ? most : p->classes;
  p->span[2] = p->classes;
}

static plan plan_of(const brim_node *node, kind k)
{
  const brim_tensor *x = node->in[0], *product = node->in[1];
  plan p = {};
  p.rows = cuda_rows_of(x);
  p.features = product->shape.dim[1];
  p.classes = product->shape.dim[0];
  p.ld = cuda_loss_chunk_ld(p.classes);
  p.type = x->dtype;
  p.converts = product->dtype != x->dtype;
  p.bias = node->in_count > k.bias;
  cut_classes(&p);
  p.ld_dz = p.ld * (int64_t)sizeof(float) / (int64_t)brim_dtype_bytes(p.type);
  const uint64_t row_bytes = (uint64_t)p.ld * sizeof(float);
  p.chunk = cuda_loss_chunk_rows(p.rows, (int64_t)row_bytes);
  p.logits_bytes = cuda_round_up((uint64_t)p.chunk * row_bytes, CUDA_ALIGNMENT);
  p.sums = k.backward && p.spans > 1 && node->out[k.dx]->dtype != BRIM_DTYPE_F32;
  const bool among_logits = 2 * p.features <= p.ld;
  p.ld_sum = among_logits ? p.ld : p.features;
  if (p.sums && !among_logits)
    p.sum_bytes = cuda_round_up((uint64_t)(p.chunk * p.features) * sizeof(float), CUDA_ALIGNMENT);
  if (p.bias) p.bias_bytes = cuda_round_up((uint64_t)p.ld * sizeof(float), CUDA_ALIGNMENT);
  if (p.converts)
    p.parameter_bytes = cuda_round_up((uint64_t)(p.classes * p.features) * brim_dtype_bytes(p.type), CUDA_ALIGNMENT);
  return p;
}

/* Returns the bytes that the chunks move besides the node's operands: logits are written by the product and read by the
 * kernel of loss and gradient, dz is written once and read by each product, and every chunk but the first reads the
 * parameter, and reads and writes its gradient, again. */
static uint64_t further_bytes(const plan *p, const brim_node *node, kind k)
{
  const bool trains = k.backward && node->out_count > k.dx + 1;
  const uint64_t logits = (uint64_t)(p->rows * p->ld) * sizeof(float);
  const uint64_t dz = k.backward ? (uint64_t)(p->rows * p->ld) * brim_dtype_bytes(p->type) : 0;
  const uint64_t values = (uint64_t)(p->classes * p->features), again = (uint64_t)((p->rows - 1) / p->chunk);
  const uint64_t uses = (1 + k.backward) * brim_dtype_bytes(p->type) + (trains ? 2 * sizeof(float) : 0);
  const uint64_t sums = p->sums ? 2 * (uint64_t)(p->rows * p->features) * sizeof(float) : 0;
  return 2 * logits + sums + (2 + trains) * dz + again * values * uses + p->parameter_bytes;
}

static brim_status prepare(cuda_backend *b, const brim_program_info *program, const brim_node *node,
                           brim_kernel_need *need, void **state, kind k)
{
  uint64_t scratch_bytes = 0;
  BRIM_TRY(cuda_plain_prepare(b, program, node, need, state));
  plan *p = (plan *)brim_try_calloc(1, sizeof *p);
  if (!p) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the plan of %s '%s'", node->op, node->name);
  *p = plan_of(node, k);
  const brim_status status = prepare_products(b, node, p, k, &scratch_bytes);
  if (status != BRIM_OK) {
    release(b, p);
    return status;
  }
  if (k.backward && node->out_count > k.dx + 2) /* the sums of columns share the products' scratch */
    scratch_bytes =
        (uint64_t)cuda_max((int64_t)scratch_bytes, (int64_t)cuda_column_sum_bytes(p->type, p->chunk, p->classes));
  need->library = "cuBLASLt";
  need->overwrites = k.backward;
  need->further_bytes = further_bytes(p, node, k);
  need->workspace_bytes += p->parameter_bytes + p->bias_bytes + p->logits_bytes + p->sum_bytes + scratch_bytes;
  *state = p;
  return BRIM_OK;
}

static CUDA_PREPARE(forward_prepare)
{
  return prepare((cuda_backend *)self, program, node, need, state, forward);
}
static CUDA_PREPARE(backward_prepare)
{
  return prepare((cuda_backend *)self, program, node, need, state, backward);
}
static CUDA_PREPARE(both_prepare)
{
  return prepare((cuda_backend *)self, program, node, need, state, both);
}

/* ---- running ---- */

typedef struct running {
  cuda_backend *backend;
  const plan *p;
  const char *x;
  const void *product; /* the parameter in x's type */
  const float *bias;   /* [ld] */
  char *logits, *scratch;
  float *sum; /* sum for dx; NULL: dx itself */
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

static brim_status begin(cuda_backend *b, const brim_launch *launch, kind k, running *r)
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
  r->scratch = r->logits + p->logits_bytes + p->sum_bytes;
  if (p->sums) r->sum = p->sum_bytes ? (float *)(r->scratch - p->sum_bytes) : (float *)r->logits + p->ld / 2;
  r->label = (const int32_t *)launch->in[2];
  r->rows.logits = r->logits;
  r->rows.classes = p->classes;
  r->rows.ld = p->ld;
  r->rows.ld_out = p->ld_dz;
  r->rows.each = p->rows / node->in[0]->shape.dim[0];
  r->rows.smoothing = attr->smoothing;
  r->rows.softcap = (float)attr->softcap;
  r->rows.ignores = attr->ignores;
  r->rows.ignore_index = attr->ignore_index;
  r->rows.node = (uint64_t)node;
  return convert_parameters(r, launch, k.bias, at);
}

static int part_of(const running *r)
{
  return r->rows.rows == r->p->chunk ? WHOLE : REST;
}

static const void *offset(const void *at, int64_t values, uint32_t dtype)
{
  return (const char *)at + (uint64_t)values * brim_dtype_bytes(dtype);
}

/* `with`: the parameter, or x. An operand that has classes starts at the span's first class. */
static brim_status multiply(const running *r, enum use use, const void *a, const void *with, void *d, bool writes)
{
  for (int span = 0; span < spans_of(r->p, use); span++) {
    const int64_t first = r->p->span[span];
    const uint32_t type = r->p->type;
    cuda_operands o = {};
    o.a = use == LOGITS ? a : offset(a, first, type);
    o.b = use == TO_PRODUCT ? with : offset(with, first * r->p->features, type);
    o.bias = use == LOGITS && r->bias ? r->bias + first : NULL;
    o.d = use == TO_X ? d : (float *)d + (use == LOGITS ? first : first * r->p->features);
    o.writes = writes;
    o.scratch = r->scratch;
    BRIM_TRY(cuda_product_run(r->backend, r->p->product[part_of(r)][use][span], &o));
  }
  return BRIM_OK;
}

static const void *x_of_chunk(const running *r)
{
  return r->x + (uint64_t)(r->rows.first * r->p->features) * brim_dtype_bytes(r->p->type);
}

static brim_status add_bias(const running *r)
{
  cuda_epilogue epilogue = {};
  epilogue.activation.kind = CUDA_IDENTITY;
  epilogue.dtype = epilogue.bias_dtype = BRIM_DTYPE_F32;
  epilogue.count = r->rows.rows * r->p->ld;
  epilogue.channels = r->p->ld;
  epilogue.inner = 1;
  epilogue.from = epilogue.to = r->logits;
  epilogue.bias = r->bias;
  return cuda_epilogue_run(r->backend, &epilogue);
}

/* Makes the logits of the chunk that begins with row `first`. */
static brim_status make_logits(running *r, int64_t first)
{
  r->rows.first = first;
  r->rows.rows = cuda_min(r->p->chunk, r->p->rows - first);
  r->rows.label = r->label + first;
  BRIM_TRY(multiply(r, LOGITS, x_of_chunk(r), r->product, r->logits, false));
  return r->p->bias_in_epilogue[part_of(r)] ? add_bias(r) : BRIM_OK;
}

/* ---- dx in 16 bits ---- */

/* dx = sum + the part of the classes from `first` on, of which there are fewer than SPAN_MULTIPLE. */
template <typename T, int V>
static __global__ void __launch_bounds__(CUDA_THREADS)
    add_rest_kernel(const float *sum, int64_t ld_sum, const T *dz, int64_t ld_dz, const T *__restrict__ product,
                    int64_t first, int64_t classes, int64_t rows, int64_t features, T *__restrict__ dx)
{
  for (int64_t i = V * cuda_first(); i < rows * features; i += V * cuda_step_width()) {
    const int64_t n = i / features, f = i % features;
    float v[V], w[V];
    cuda_load_values<V>(sum + n * ld_sum + f, v);
    for (int64_t k = first; k < classes; k++) {
      const float d = cuda_load(&dz[n * ld_dz + k]);
      cuda_load_values<V>(product + k * features + f, w);
#pragma unroll
      for (int j = 0; j < V; j++) v[j] += d * w[j];
    }
    cuda_store_values<V>(dx + i, v);
  }
}

template <typename T> static brim_status add_rest(const running *r, void *dx)
{
  constexpr int P = cuda_pack<T>::count;
  const plan *p = r->p;
  const T *dz = (const T *)r->logits, *product = (const T *)r->product;
  const int64_t count = r->rows.rows * p->features;
  if (p->features % P == 0)
    return cuda_launch(r->backend, add_rest_kernel<T, P>, cuda_stride(count, P, r->backend->processors), r->sum,
                       p->ld_sum, dz, p->ld_dz, product, p->span[1], p->classes, r->rows.rows, p->features, (T *)dx);
  return cuda_launch(r->backend, add_rest_kernel<T, 1>, cuda_stride(count, 1, r->backend->processors), r->sum,
                     p->ld_sum, dz, p->ld_dz, product, p->span[1], p->classes, r->rows.rows, p->features, (T *)dx);
}

static brim_status make_dx(const running *r, void *dx)
{
  BRIM_TRY(multiply(r, TO_X, r->logits, r->product, r->sum ? r->sum : dx, false));
  if (!r->sum) return BRIM_OK;
  return r->p->type == BRIM_DTYPE_BF16 ? add_rest<cuda_bf16>(r, dx) : add_rest<cuda_f16>(r, dx);
}

/* ---- a chunk ---- */

/* Computes losses and ranks, and replaces the logits by dz. loss: the losses of all rows, which only a separate
 * backward pass reads. */
static brim_status make_losses(const running *r, const brim_launch *launch, kind k, const float *loss)
{
  const int64_t first = r->rows.first;
  if (!k.forward) return cuda_loss_backward(r->backend, BRIM_DTYPE_F32, r->p->type, &r->rows, loss + first, r->logits);
  float *own = (float *)launch->out[0] + first;
  int32_t *rank = (int32_t *)launch->out[1] + first;
  return k.backward ? cuda_loss_both(r->backend, r->p->type, &r->rows, own, rank, r->logits)
                    : cuda_loss_forward(r->backend, BRIM_DTYPE_F32, &r->rows, own, rank);
}

static brim_status add_gradients(const running *r, const brim_launch *launch, kind k)
{
  const plan *p = r->p;
  const brim_node *node = launch->node;
  const uint32_t parameters = node->out_count - k.dx - 1;
  void *const *out = launch->out + k.dx;
  const uint64_t bytes = brim_dtype_bytes(node->out[k.dx]->dtype);
  BRIM_TRY(make_dx(r, (char *)out[0] + (uint64_t)(r->rows.first * p->features) * bytes));
  const bool first = r->rows.first == 0;
  if (parameters > 0)
    BRIM_TRY(multiply(r, TO_PRODUCT, r->logits, x_of_chunk(r), out[1],
                      first && !cuda_adds_to(r->backend, launch, k.dx + 1)));
  if (parameters < 2) return BRIM_OK;
  return cuda_column_sum(r->backend, p->type, r->logits, r->rows.rows, p->classes, p->ld_dz, (float *)out[2],
                         !first || cuda_adds_to(r->backend, launch, k.dx + 2), r->scratch);
}

/* loss: the losses of all rows, for a separate backward pass. */
static brim_status run(cuda_backend *b, const brim_launch *launch, kind k, const void *loss)
{
  running r;
  BRIM_TRY(begin(b, launch, k, &r));
  for (int64_t n = 0; n < r.p->rows; n += r.p->chunk) {
    BRIM_TRY(make_logits(&r, n));
    BRIM_TRY(make_losses(&r, launch, k, (const float *)loss));
    if (k.backward) BRIM_TRY(add_gradients(&r, launch, k));
  }
  return BRIM_OK;
}

static CUDA_RUN(forward_run)
{
  return run((cuda_backend *)self, launch, forward, NULL);
}
static CUDA_RUN(backward_run)
{
  return run((cuda_backend *)self, launch, backward, launch->in[3]);
}
static CUDA_RUN(both_run)
{
  return run((cuda_backend *)self, launch, both, NULL);
}
BRIM_KERNEL(linear_cross_entropy) = {
    .op = "linear_cross_entropy", .prepare = forward_prepare, .run = forward_run, .release = release};
BRIM_KERNEL(linear_cross_entropy_grad) = {
    .op = "linear_cross_entropy_grad", .prepare = backward_prepare, .run = backward_run, .release = release};
BRIM_KERNEL(linear_cross_entropy_both) = {
    .op = "linear_cross_entropy+grad", .prepare = both_prepare, .run = both_run, .release = release};
