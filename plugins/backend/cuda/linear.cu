/* linear and its gradients; rows are all leading dimensions:
 *
 *     y[rows,O]    = f(x[rows,F] weight^T + bias),  weight [O,F]
 *     dx[rows,F]   = dy[rows,O] weight
 *     dweight[O,F] += dy^T x
 *     dbias[O]     += the sum of dy's rows
 *
 * All but the last are products (product.h), which also accumulate, so a weight's gradient needs no second buffer, and
 * linear+add and linear_grad_input+add need no summand.
 *
 * The library applies the bias and the function f if it computes exactly these two. Otherwise an epilogue kernel goes
 * over y (2 times its bytes). The library's cases depend on types and sizes; its relu may lose a NaN; and the accuracy
 * of its gelu is not documented, so gelu is left to it in bf16, which has few digits, but not in fp16. Only a
 * measurement on a GPU can tell which gelu is faster; backend.gelu_epilogue chooses.
 *
 * dbias adds up the columns of dy, by a kernel that reads dy once more. The library's epilogue BGRADB would save that
 * launch, but it writes instead of adding, neither its rounding nor the order of its sums is specified, and on an A100
 * it made the gradients of a large model 1.6 times slower (NVIDIA/CUDALibrarySamples, issue 90). */
#include <stdlib.h>
#include <string.h>

#include "epilogue.h"
#include "kernel.cuh"
#include "product.h"
#include "values.cuh"

/* ---- column sums ---- */

/* A block adds up a part of the rows of a tile of columns. A thread has the columns of 16 bytes, neighbouring threads
 * go along a row, and the other threads take the next rows, so warps read whole cache lines whatever the number of
 * columns. Sums are double, because there may be millions of rows. The last block of a tile adds up the parts. Only two
 * or three blocks per multiprocessor make parts, so that the last block has little to add. */
enum { SUM_THREADS = 256, SUM_BLOCKS = 320, SUM_EACH = 4 /* minimum rows of a thread */ };
static_assert(SUM_BLOCKS <= CUDA_TICKETS, "a tile of several parts needs a ticket");

/* The division of a sum's rows, which depends on type, rows and columns alone. */
typedef struct sum_cut {
  int pack, lanes; /* the columns of a thread; the threads of a block along a row, a power of two */
  int64_t tiles, parts;
} sum_cut;

static sum_cut sum_cut_of(uint32_t dtype, int64_t rows, int64_t columns)
{
  const int most = (int)(16 / brim_dtype_bytes(dtype));
  sum_cut c = {columns % most == 0 ? most : 1, 1, 0, 0};
  while (c.lanes < CUDA_WARP && c.lanes * c.pack < columns) c.lanes *= 2;
  c.tiles = cuda_divide_up(columns, c.lanes * c.pack);
  const int64_t enough = cuda_divide_up(rows, SUM_THREADS / c.lanes * SUM_EACH);
  c.parts = cuda_max(1, cuda_min(cuda_divide_up(SUM_BLOCKS, c.tiles), enough));
  return c;
}

extern "C" uint64_t cuda_column_sum_bytes(uint32_t dtype, int64_t rows, int64_t columns)
{
  return cuda_round_up((uint64_t)(sum_cut_of(dtype, rows, columns).parts * columns) * sizeof(double), CUDA_ALIGNMENT);
}

/* Adds up the parts of a tile's columns: thread t adds every SUM_THREADS / width-th part of column t % width. */
static __device__ inline void add_parts(const double *part, int64_t columns, int64_t first, int width, float *sum,
                                        bool adds)
{
  __shared__ double sums[SUM_THREADS];
  const int t = threadIdx.x, each_time = SUM_THREADS / width;
  const int64_t column = first + t % width;
  double total = 0;
  if (column < columns)
#pragma unroll 8
    for (int64_t p = t / width; p < gridDim.y; p += each_time) total += __ldcg(&part[p * columns + column]);
  sums[t] = total;
  for (int half = each_time / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t < half * width) sums[t] += sums[t + half * width];
  }
  if (t < width && column < columns) sum[column] = (float)((adds ? sum[column] : 0) + sums[t]);
}

template <typename T, int V>
static __global__ void __launch_bounds__(SUM_THREADS)
    column_sum_kernel(const T *__restrict__ x, int64_t rows, int64_t columns, int64_t ld, int lanes, double *part,
                      float *sum, bool adds, cuda_control *control)
{
  __shared__ double sums[V][SUM_THREADS];
  const int t = threadIdx.x, row = t / lanes, each_time = SUM_THREADS / lanes;
  const int64_t column = ((int64_t)blockIdx.x * lanes + t % lanes) * V;
  const int64_t each = cuda_divide_up(rows, gridDim.y), from = blockIdx.y * each, to = cuda_min(rows, from + each);
  double value[V] = {};
  if (column < columns) {
#pragma unroll 4
    for (int64_t r = from + row; r < to; r += each_time) {
      float v[V];
      cuda_load_values<V>(&x[r * ld + column], v);
#pragma unroll
      for (int k = 0; k < V; k++) value[k] += (double)v[k];
    }
  }
#pragma unroll
  for (int k = 0; k < V; k++) sums[k][t] = value[k];
  for (int half = each_time / 2; half > 0; half /= 2) {
    __syncthreads();
    if (row >= half) continue;
#pragma unroll
    for (int k = 0; k < V; k++) sums[k][t] += sums[k][t + half * lanes];
  }
  if (row == 0 && column < columns) {
#pragma unroll
    for (int k = 0; k < V; k++) part[blockIdx.y * columns + column + k] = sums[k][t];
  }
  if (gridDim.y > 1 && !cuda_last_block(control, blockIdx.x, gridDim.y)) return;
  if (gridDim.y == 1) __syncthreads();
  add_parts(part, columns, (int64_t)blockIdx.x * lanes * V, lanes * V, sum, adds);
}

template <typename T>
static brim_status sum_columns(cuda_backend *b, const sum_cut *c, const T *x, int64_t rows, int64_t columns, int64_t ld,
                               float *sum, bool adds, double *part)
{
  constexpr int P = cuda_pack<T>::count;
  const cuda_geometry g = {{(unsigned)c->tiles, (unsigned)c->parts, 1}, SUM_THREADS, 0};
  if (c->pack > 1)
    return cuda_launch(b, column_sum_kernel<T, P>, g, x, rows, columns, ld, c->lanes, part, sum, adds, b->control);
  return cuda_launch(b, column_sum_kernel<T, 1>, g, x, rows, columns, ld, c->lanes, part, sum, adds, b->control);
}

extern "C" brim_status cuda_column_sum(cuda_backend *b, uint32_t dtype, const void *x, int64_t rows, int64_t columns,
                                       int64_t ld, float *sum, bool adds, void *scratch)
{
  const sum_cut c = sum_cut_of(dtype, rows, columns);
  CUDA_WITH_TYPE(dtype, T, return sum_columns<T>(b, &c, (const T *)x, rows, columns, ld, sum, adds, (double *)scratch));
}

/* ---- plans ---- */

/* Scratch: inputs in plain order, then the bias in y's type, then the product's own. */
typedef struct linear {
  cuda_product_plan *product;
  uint64_t bias_bytes;   /* 0 if no conversion is needed */
  bool epilogue;         /* a kernel applies the function to the product's result */
  bool bias_in_epilogue; /* the epilogue kernel also adds the bias, because the product does not */
} linear;

static void release(void *self, void *state)
{
  linear *plan = (linear *)state;
  (void)self;
  if (plan) cuda_product_release(plan->product);
  free(plan);
}

static brim_status start(const brim_node *node, linear **plan)
{
  *plan = (linear *)brim_try_calloc(1, sizeof **plan);
  if (!*plan) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the plan of %s '%s'", node->op, node->name);
  return BRIM_OK;
}

/* Passes the plan to the caller, or releases it on failure. */
static brim_status finish(brim_status status, linear *plan, void **state)
{
  if (status == BRIM_OK)
    *state = plan;
  else
    release(NULL, plan);
  return status;
}

static brim_status prepare_product(cuda_backend *b, const cuda_product *product, linear *plan, brim_kernel_need *need)
{
  uint64_t bytes = 0;
  const brim_status status = cuda_product_prepare(b, product, &plan->product, &bytes);
  if (status == BRIM_OK) need->workspace_bytes += bytes;
  need->library = "cuBLASLt";
  return status;
}

/* ---- y ---- */

static cuda_activation activation_of(const brim_node *node)
{
  return cuda_activation_of(node->op, &node->attr.fused.activation);
}

static cuda_product product_of(const brim_node *node)
{
  const brim_shape *w = &node->in[1]->shape;
  cuda_product p = {};
  p.m = cuda_rows_of(node->in[0]);
  p.n = w->dim[0];
  p.k = w->dim[1];
  p.transpose_b = true;
  p.lda = p.ldb = p.k;
  p.ldd = p.n;
  p.type = node->in[0]->dtype;
  p.type_d = node->out[0]->dtype;
  return p;
}

/* Tries the product with function and bias, then with the bias alone, then plain; an epilogue kernel does the rest. */
static brim_status prepare_forward(cuda_backend *b, const brim_node *node, linear *plan, brim_kernel_need *need)
{
  const bool bias = node->in_count > 2;
  const int function = activation_of(node).kind;
  const bool converted = bias && node->in[2]->dtype != node->out[0]->dtype;
  cuda_product p = product_of(node);
  plan->bias_bytes = converted ? cuda_round_up((uint64_t)p.n * brim_dtype_bytes(p.type_d), CUDA_ALIGNMENT) : 0;
  need->workspace_bytes += plan->bias_bytes;
  p.bias = bias;
  if (function == CUDA_GELU_TANH && p.type_d == BRIM_DTYPE_BF16 && b->params->gelu_epilogue) {
    p.function = CUDA_FUNCTION_GELU_TANH;
    p.keep = node->out_count > 1;
    const brim_status status = prepare_product(b, &p, plan, need);
    if (status != BRIM_ENOTSUP) return status;
    p.function = CUDA_FUNCTION_NONE;
    p.keep = false;
  }
  plan->epilogue = function != CUDA_IDENTITY;
  brim_status status = prepare_product(b, &p, plan, need);
  if (status != BRIM_ENOTSUP || !bias) return status;
  need->workspace_bytes -= plan->bias_bytes;
  plan->bias_bytes = 0;
  plan->epilogue = plan->bias_in_epilogue = true;
  p.bias = false;
  return prepare_product(b, &p, plan, need);
}

static CUDA_PREPARE(linear_prepare)
{
  linear *plan;
  BRIM_TRY(cuda_plain_prepare(self, program, node, need, state));
  BRIM_TRY(start(node, &plan));
  return finish(prepare_forward((cuda_backend *)self, node, plan, need), plan, state);
}

/* If a kernel applies f, it reads the product's result: the kept values, or y itself. */
static CUDA_RUN(linear_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const brim_node *node = launch->node;
  const linear *plan = (const linear *)launch->state;
  const brim_tensor *y = node->out[0];
  const bool keeps = node->out_count > 1;
  void *bias = node->in_count > 2 ? launch->in[2] : NULL;
  char *scratch = (char *)cuda_scratch_end(launch, true);
  cuda_operands o = {};
  if (!(o.a = cuda_plain_input(b, launch, 0))) return BRIM_EDEVICE;
  if (plan->bias_bytes > 0) {
    BRIM_TRY(cuda_convert(b, node->in[2]->dtype, bias, y->dtype, scratch, y->shape.dim[y->shape.rank - 1]));
    bias = scratch;
  }
  o.b = launch->in[1];
  o.bias = bias;
  o.d = plan->epilogue && keeps ? launch->out[1] : launch->out[0];
  o.kept = keeps ? launch->out[1] : NULL;
  o.scratch = scratch + plan->bias_bytes;
  BRIM_TRY(cuda_product_run(b, plan->product, &o));
  if (!plan->epilogue) return BRIM_OK;
  cuda_epilogue epilogue = {};
  epilogue.activation = activation_of(node);
  epilogue.dtype = y->dtype;
  epilogue.bias_dtype = plan->bias_in_epilogue ? node->in[2]->dtype : y->dtype;
  epilogue.count = brim_shape_count(&y->shape);
  epilogue.channels = cuda_last(y);
  epilogue.inner = 1;
  epilogue.from = o.d;
  epilogue.bias = plan->bias_in_epilogue ? bias : NULL;
  epilogue.kept = plan->bias_in_epilogue ? o.kept : NULL;
  epilogue.to = launch->out[0];
  return cuda_epilogue_run(b, &epilogue);
}

#define LINEAR(id, its_op)                                                                                             \
  BRIM_KERNEL(id) = {.op = its_op, .prepare = linear_prepare, .run = linear_run, .release = release}
LINEAR(linear, "linear");
LINEAR(linear_relu, "linear+relu");
LINEAR(linear_leaky_relu, "linear+leaky_relu");
LINEAR(linear_sigmoid, "linear+sigmoid");
LINEAR(linear_tanh, "linear+tanh");
LINEAR(linear_gelu, "linear+gelu");
LINEAR(linear_silu, "linear+silu");

/* ---- a product alone, or added to a tensor ---- */

static brim_status prepare_plain(cuda_backend *b, const brim_program_info *program, const brim_node *node,
                                 brim_kernel_need *need, void **state, const cuda_product &product)
{
  linear *plan;
  BRIM_TRY(cuda_plain_prepare(b, program, node, need, state));
  BRIM_TRY(start(node, &plan));
  return finish(prepare_product(b, &product, plan, need), plan, state);
}

/* Copies in[0], to which a product is then added, unless the result has its memory. */
static brim_status copy_first(cuda_backend *b, const brim_launch *launch)
{
  const brim_tensor *y = launch->node->out[0];
  const void *a = cuda_plain_input(b, launch, 0);
  if (!a) return BRIM_EDEVICE;
  if (a == launch->out[0]) return BRIM_OK;
  const uint64_t bytes = (uint64_t)brim_shape_count(&y->shape) * brim_dtype_bytes(y->dtype);
  return cuda_copy(b, launch->out[0], a, bytes, "copying a sum");
}

/* Computes the product of input `first`, in plain order, and the input after it. */
static brim_status multiply(cuda_backend *b, const brim_launch *launch, uint32_t first, void *d)
{
  cuda_operands o = {};
  if (!(o.a = cuda_plain_input(b, launch, first))) return BRIM_EDEVICE;
  o.b = launch->in[first + 1];
  o.d = d;
  o.scratch = cuda_scratch_end(launch, true);
  return cuda_product_run(b, ((const linear *)launch->state)->product, &o);
}

/* Returns where linear+add begins to add in a row of y, in bytes. */
static uint64_t first_byte(const brim_node *node)
{
  return (uint64_t)node->attr.linear.first * brim_dtype_bytes(node->out[0]->dtype);
}

static CUDA_PREPARE(linear_add_prepare)
{
  const brim_shape *w = &node->in[2]->shape;
  const uint64_t first = first_byte(node);
  cuda_product p = {};
  p.m = cuda_rows_of(node->in[1]);
  p.n = w->dim[0];
  p.k = w->dim[1];
  p.transpose_b = true;
  p.lda = p.ldb = p.k;
  p.ldd = cuda_last(node->out[0]);
  p.type = node->in[1]->dtype;
  p.type_d = node->out[0]->dtype;
  p.accumulate = true;
  /* The greatest power of two that divides `first`. */
  if (first % CUDA_ALIGNMENT) p.alignment = (uint32_t)(first & (~first + 1));
  return prepare_plain((cuda_backend *)self, program, node, need, state, p);
}

static CUDA_RUN(linear_add_run)
{
  BRIM_TRY(copy_first((cuda_backend *)self, launch));
  return multiply((cuda_backend *)self, launch, 1, (char *)launch->out[0] + first_byte(launch->node));
}
BRIM_KERNEL(linear_add) = {
    .op = "linear+add", .prepare = linear_add_prepare, .run = linear_add_run, .release = release};

/* ---- gradients ---- */

/* Returns the product for dx; dy and weight are the inputs from `first` on. */
static cuda_product product_for_dx(const brim_node *node, uint32_t first)
{
  const brim_shape *w = &node->in[first + 1]->shape;
  cuda_product p = {};
  p.m = cuda_rows_of(node->in[first]);
  p.n = w->dim[1];
  p.k = w->dim[0];
  p.lda = p.k;
  p.ldb = p.ldd = p.n;
  p.type = node->in[first]->dtype;
  p.type_d = node->out[0]->dtype;
  p.accumulate = first > 0;
  return p;
}

static CUDA_PREPARE(grad_input_prepare)
{
  return prepare_plain((cuda_backend *)self, program, node, need, state, product_for_dx(node, 0));
}

static CUDA_RUN(grad_input_run)
{
  return multiply((cuda_backend *)self, launch, 0, launch->out[0]);
}
BRIM_KERNEL(linear_grad_input) = {
    .op = "linear_grad_input", .prepare = grad_input_prepare, .run = grad_input_run, .release = release};

static CUDA_PREPARE(grad_input_add_prepare)
{
  return prepare_plain((cuda_backend *)self, program, node, need, state, product_for_dx(node, 1));
}

static CUDA_RUN(grad_input_add_run)
{
  BRIM_TRY(copy_first((cuda_backend *)self, launch));
  return multiply((cuda_backend *)self, launch, 1, launch->out[0]);
}
BRIM_KERNEL(linear_grad_input_add) = {
    .op = "linear_grad_input+add", .prepare = grad_input_add_prepare, .run = grad_input_add_run, .release = release};

static CUDA_PREPARE(grad_weight_prepare)
{
  const brim_shape *w = &node->out[0]->shape;
  cuda_product p = {};
  linear *plan;
  p.m = w->dim[0];
  p.n = w->dim[1];
  p.k = cuda_rows_of(node->in[0]);
  p.transpose_a = true;
  p.lda = p.m;
  p.ldb = p.ldd = p.n;
  p.type = node->in[0]->dtype;
  p.type_d = node->out[0]->dtype;
  p.accumulate = cuda_adds(node->out[0]);
  need->overwrites = 1;
  BRIM_TRY(cuda_plain_prepare(self, program, node, need, state));
  BRIM_TRY(start(node, &plan));
  const uint64_t before = need->workspace_bytes;
  const brim_status status = prepare_product((cuda_backend *)self, &p, plan, need);
  /* the sums of columns come first, so their scratch can be reused */
  const uint64_t sums = node->out_count > 1 ? cuda_column_sum_bytes(node->in[1]->dtype, p.k, p.m) : 0;
  if (node->out_count > 1) need->further_bytes = node->in[1]->bytes; /* read again */
  need->workspace_bytes = (uint64_t)cuda_max((int64_t)need->workspace_bytes, (int64_t)(before + sums));
  return finish(status, plan, state);
}

static CUDA_RUN(grad_weight_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const brim_node *node = launch->node;
  const int64_t rows = cuda_rows_of(node->in[0]), outputs = node->out[0]->shape.dim[0];
  cuda_operands o = {};
  o.a = cuda_plain_input(b, launch, 1);
  o.b = cuda_plain_input(b, launch, 0);
  if (!o.a || !o.b) return BRIM_EDEVICE;
  o.d = launch->out[0];
  o.writes = !cuda_adds_to(b, launch, 0);
  o.scratch = cuda_scratch_end(launch, true);
  if (node->out_count > 1)
    BRIM_TRY(cuda_column_sum(b, node->in[1]->dtype, o.a, rows, outputs, outputs, (float *)launch->out[1],
                             cuda_adds_to(b, launch, 1), o.scratch));
  return cuda_product_run(b, ((const linear *)launch->state)->product, &o);
}
BRIM_KERNEL(linear_grad_weight) = {
    .op = "linear_grad_weight", .prepare = grad_weight_prepare, .run = grad_weight_run, .release = release};
