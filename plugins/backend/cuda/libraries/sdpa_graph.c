/* Attention as one of cuDNN's graphs: products, elementwise operations and reductions. The library recognizes only
 * certain forms of graph as attention and its gradient, so the operations between scores and weights must have the
 * library's order. Scores and weights are virtual: they exist only within the kernel.
 *
 * Sizes are always in the order N, head, row, column; strides give the order in memory. If several query heads share a
 * key head, the product repeats the key head, and a reduction adds up its gradients.
 *
 * Each function below takes tensors and returns a new tensor, or NULL after a failure. The builder keeps the first
 * failure, and later functions then do nothing. */
#include "sdpa_graph.h"

#include "library.h"

enum { OPERATIONS_MAX = 32, FIRST_VIRTUAL = 100 };

typedef cudnnBackendDescriptor_t tensor;

/* The sizes and strides of a tensor. */
typedef struct layout {
  int64_t size[4], stride[4];
} layout;

typedef struct builder {
  cuda_dnn_plan *plan;
  cudnnBackendDescriptor_t operation[OPERATIONS_MAX];
  int64_t operations, tensors;
  uint32_t used;
  brim_status status;
  const cuda_sdpa *sdpa;
  cudnnDataType_t small; /* the type of q, k and v, and of every factor of a matrix product */
  /* The layouts of q and dq; k, v, dk and dv; y and dy; the scores; one number per row of scores. */
  layout query, key, result, score, row;
} builder;

static layout packed(int64_t n, int64_t heads, int64_t rows, int64_t columns)
{
  return (layout){{n, heads, rows, columns}, {heads * rows * columns, rows * columns, columns, 1}};
}
/* Returns the layout of [N,length,heads*D]. stride: the elements from one position to the next. */
static layout heads_of(int64_t n, int64_t heads, int64_t length, int64_t D, int64_t stride)
{
  return (layout){{n, heads, length, D}, {length * stride, D, stride, 1}};
}
static layout transposed(layout of)
{
  return (layout){{of.size[0], of.size[1], of.size[3], of.size[2]},
                  {of.stride[0], of.stride[1], of.stride[3], of.stride[2]}};
}

/* ---- descriptors ---- */

static cudnnBackendDescriptor_t start(builder *g, cudnnBackendDescriptorType_t type)
{
  cudnnBackendDescriptor_t out = NULL;
  if (g->status == BRIM_OK) g->status = cuda_dnn_make(g->plan, type, &out);
  return g->status == BRIM_OK ? out : NULL;
}
static void set(builder *g, cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
  if (g->status == BRIM_OK) g->status = cuda_dnn_set(of, name, type, count, values);
}
static void set_integers(builder *g, cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name, int64_t count,
                         const int64_t *values)
{
  set(g, of, name, CUDNN_TYPE_INT64, count, values);
}
static void set_type(builder *g, cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name, cudnnDataType_t type)
{
  set(g, of, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}
static void set_descriptor(builder *g, cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                           cudnnBackendDescriptor_t value)
{
  set(g, of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}
static void finish(builder *g, cudnnBackendDescriptor_t descriptor, const char *what)
{
  if (g->status == BRIM_OK) g->status = cuda_dnn_finalize(descriptor, what);
}
static void finish_operation(builder *g, cudnnBackendDescriptor_t operation)
{
  finish(g, operation, "describing a part of attention");
  if (g->status == BRIM_OK) g->operation[g->operations++] = operation;
}

/* ---- tensors ---- */

static tensor make_tensor(builder *g, int64_t uid, layout of, cudnnDataType_t type, bool is_virtual, bool is_number)
{
  const int64_t alignment = CUDA_DNN_ALIGNMENT;
  const tensor out = start(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set_integers(g, out, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &uid);
  set_type(g, out, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  set_integers(g, out, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, of.size);
  set_integers(g, out, CUDNN_ATTR_TENSOR_STRIDES, 4, of.stride);
  set_integers(g, out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment);
  set(g, out, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  set(g, out, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_number);
  finish(g, out, "describing a tensor");
  return out;
}
static tensor stored(builder *g, int uid, layout of, cudnnDataType_t type)
{
  g->used |= 1u << uid;
  return make_tensor(g, uid, of, type, false, false);
}
static tensor activation(builder *g, int uid, layout of)
{
  return stored(g, uid, of, g->small);
}
static tensor between(builder *g, layout of, cudnnDataType_t type)
{
  return make_tensor(g, FIRST_VIRTUAL + g->tensors++, of, type, true, false);
}
static tensor number(builder *g, int uid, cudnnDataType_t type)
{
  g->used |= 1u << uid;
  return make_tensor(g, uid, packed(1, 1, 1, 1), type, false, true);
}

/* ---- operations ---- */

static tensor multiply(builder *g, tensor a, tensor b, tensor out)
{
  const cudnnBackendDescriptor_t how = start(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  set_type(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  finish(g, how, "describing a product");
  const cudnnBackendDescriptor_t operation = start(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, out);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  finish_operation(g, operation);
  return out;
}

static tensor reduce(builder *g, cudnnReduceTensorOp_t by, tensor x, tensor out)
{
  const cudnnBackendDescriptor_t how = start(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  set_type(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &by);
  finish(g, how, "describing a reduction");
  const cudnnBackendDescriptor_t operation = start(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, out);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
  finish_operation(g, operation);
  return out;
}

static tensor reshape(builder *g, tensor x, tensor out)
{
  const cudnnBackendDescriptor_t operation = start(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, out);
  finish_operation(g, operation);
  return out;
}

/* An operation on each element of x, of x and b, or of x, b and the boolean t. */
typedef struct each {
  cudnnPointwiseMode_t mode;
  tensor x, b, t;
  cudnnDataType_t type; /* the type of the computation; 0 means FLOAT */
  int64_t axis;         /* the axis of GEN_INDEX */
} each;

static tensor apply(builder *g, each e, tensor out)
{
  const cudnnBackendDescriptor_t how = start(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &e.mode);
  set_type(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, e.type);
  if (e.mode == CUDNN_POINTWISE_GEN_INDEX) set_integers(g, how, CUDNN_ATTR_POINTWISE_AXIS, 1, &e.axis);
  finish(g, how, "describing an elementwise operation");
  const cudnnBackendDescriptor_t operation = start(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, e.x);
  if (e.b) set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, e.b);
  if (e.t) set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, e.t);
  set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out);
  finish_operation(g, operation);
  return out;
}
/* Applies an operation with an intermediate tensor as its result. */
static tensor apply_float(builder *g, cudnnPointwiseMode_t mode, tensor x, tensor b, layout of)
{
  return apply(g, (each){mode, x, b, .type = CUDNN_DATA_FLOAT}, between(g, of, CUDNN_DATA_FLOAT));
}
static tensor apply_integer(builder *g, cudnnPointwiseMode_t mode, tensor x, tensor b)
{
  return apply(g, (each){mode, x, b, .type = CUDNN_DATA_INT32}, between(g, g->score, CUDNN_DATA_INT32));
}

/* ---- for both directions ---- */

static tensor index_of(builder *g, tensor scores, int64_t axis)
{
  return apply(g, (each){CUDNN_POINTWISE_GEN_INDEX, scores, .type = CUDNN_DATA_FLOAT, .axis = axis},
               between(g, g->score, CUDNN_DATA_INT32));
}

/* Keeps the scores of keys that a query sees (t + S - T >= s), and replaces all others by CUDA_SDPA_LEAST. */
static tensor hide(builder *g, tensor scores)
{
  if (!g->sdpa->causal) return scores;
  tensor row = index_of(g, scores, 2);
  const tensor column = index_of(g, scores, 3);
  if (g->sdpa->S != g->sdpa->T) {
    row = apply_integer(g, CUDNN_POINTWISE_ADD, row, number(g, CUDA_SDPA_KEYS, CUDNN_DATA_INT32));
    row = apply_integer(g, CUDNN_POINTWISE_SUB, row, number(g, CUDA_SDPA_QUERIES, CUDNN_DATA_INT32));
  }
  const tensor sees = apply(g, (each){CUDNN_POINTWISE_CMP_GE, row, column, .type = CUDNN_DATA_BOOLEAN},
                            between(g, g->score, CUDNN_DATA_BOOLEAN));
  return apply(g,
               (each){CUDNN_POINTWISE_BINARY_SELECT, scores, number(g, CUDA_SDPA_LEAST, CUDNN_DATA_FLOAT), sees,
                      .type = CUDNN_DATA_FLOAT},
               between(g, g->score, CUDNN_DATA_FLOAT));
}

static tensor multiply_scores(builder *g, tensor a, tensor b)
{
  return multiply(g, a, b, between(g, g->score, CUDNN_DATA_FLOAT));
}

/* ---- forward ---- */

static void forward(builder *g)
{
  const tensor q = activation(g, CUDA_SDPA_Q, g->query), k = activation(g, CUDA_SDPA_K, transposed(g->key));
  const tensor scale = number(g, CUDA_SDPA_SCALE, CUDNN_DATA_FLOAT);
  tensor scores = apply_float(g, CUDNN_POINTWISE_MUL, multiply_scores(g, q, k), scale, g->score);
  scores = hide(g, scores);
  const tensor greatest = reduce(g, CUDNN_REDUCE_TENSOR_MAX, scores, between(g, g->row, CUDNN_DATA_FLOAT));
  const tensor difference = apply_float(g, CUDNN_POINTWISE_SUB, scores, greatest, g->score);
  const tensor power = apply_float(g, CUDNN_POINTWISE_EXP, difference, NULL, g->score);
  const tensor total = reduce(g, CUDNN_REDUCE_TENSOR_ADD, power, between(g, g->row, CUDNN_DATA_FLOAT));
  const tensor logarithm = apply_float(g, CUDNN_POINTWISE_LOG, total, NULL, g->row);
  apply(g, (each){CUDNN_POINTWISE_ADD, greatest, logarithm, .type = CUDNN_DATA_FLOAT},
        stored(g, CUDA_SDPA_LSE, g->row, CUDNN_DATA_FLOAT));
  const tensor weights =
      apply(g, (each){CUDNN_POINTWISE_DIV, power, total, .type = CUDNN_DATA_FLOAT}, between(g, g->score, g->small));
  multiply(g, weights, activation(g, CUDA_SDPA_V, g->key), activation(g, CUDA_SDPA_OUT, g->result));
}

/* ---- backward ---- */

/* Computes delta, the sum of dy * y for each row, and stores it in scratch. */
static tensor make_delta(builder *g, tensor dy)
{
  const tensor y = activation(g, CUDA_SDPA_OUT, g->result);
  const layout product = packed(g->query.size[0], g->query.size[1], g->query.size[2], g->query.size[3]);
  const tensor products = apply_float(g, CUDNN_POINTWISE_MUL, dy, y, product);
  const tensor sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, products, between(g, g->row, CUDNN_DATA_FLOAT));
  return apply(g,
               (each){CUDNN_POINTWISE_MUL, sum, number(g, CUDA_SDPA_ONE, CUDNN_DATA_FLOAT), .type = CUDNN_DATA_FLOAT},
               stored(g, CUDA_SDPA_DELTA, g->row, CUDNN_DATA_FLOAT));
}

/* Computes dk or dv: the product of the transposed scores or weights with q or dy. Adds up the results of heads that
 * share keys. */
static void multiply_back(builder *g, tensor scores, tensor by, int uid)
{
  const cuda_sdpa *a = g->sdpa;
  const layout turned = transposed(g->score), all = packed(a->N, a->heads, a->S, a->D);
  scores = reshape(g, scores, between(g, turned, g->small));
  if (a->heads == a->kv_heads) {
    multiply(g, scores, by, activation(g, uid, g->key));
    return;
  }
  const tensor each_head = multiply(g, scores, by, between(g, all, g->small));
  reduce(g, CUDNN_REDUCE_TENSOR_ADD, each_head, activation(g, uid, g->key));
}

static void backward(builder *g)
{
  const tensor q = activation(g, CUDA_SDPA_Q, g->query), dy = activation(g, CUDA_SDPA_DY, g->result);
  const tensor k = activation(g, CUDA_SDPA_K, transposed(g->key)), v = activation(g, CUDA_SDPA_V, transposed(g->key));
  const tensor scale = number(g, CUDA_SDPA_SCALE, CUDNN_DATA_FLOAT);
  const tensor delta = make_delta(g, dy), lse = stored(g, CUDA_SDPA_LSE, g->row, CUDNN_DATA_FLOAT);
  tensor scores = apply_float(g, CUDNN_POINTWISE_MUL, multiply_scores(g, q, k), scale, g->score);
  scores = hide(g, apply_float(g, CUDNN_POINTWISE_SUB, scores, lse, g->score));
  const tensor weights = apply_float(g, CUDNN_POINTWISE_EXP, scores, NULL, g->score);
  multiply_back(g, weights, dy, CUDA_SDPA_DV);
  tensor ds = apply_float(g, CUDNN_POINTWISE_SUB, multiply_scores(g, dy, v), delta, g->score);
  ds = apply_float(g, CUDNN_POINTWISE_MUL, ds, weights, g->score);
  /* the product is in fp32; cuDNN 9.19 also accepts 16 bits */
  ds = apply_float(g, CUDNN_POINTWISE_MUL, ds, scale, g->score);
  multiply_back(g, ds, q, CUDA_SDPA_DK);
  /* The product writes dq directly. If it made fp32 sums, blocks of keys would add to them in any order. So the library
   * keeps ds in scratch and goes over the keys in a fixed order. */
  const tensor keys = reshape(g, k, between(g, g->key, g->small));
  multiply(g, ds, keys, activation(g, CUDA_SDPA_DQ, g->query));
}

brim_status cuda_sdpa_describe(const cuda_backend *b, cuda_dnn_plan *plan, const cuda_sdpa *sdpa,
                               cudnnBackendDescriptor_t *out, uint32_t *used)
{
  const cuda_sdpa *a = sdpa;
  builder g = {.plan = plan,
               .sdpa = a,
               .small = a->type == BRIM_DTYPE_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16,
               .query = heads_of(a->N, a->heads, a->T, a->D, a->q_stride),
               .key = heads_of(a->N, a->kv_heads, a->S, a->D, a->k_stride),
               .result = heads_of(a->N, a->heads, a->T, a->D, a->heads * a->D),
               .score = packed(a->N, a->heads, a->T, a->S),
               .row = packed(a->N, a->heads, a->T, 1)};
  if (a->result == CUDA_SDPA_Y)
    forward(&g);
  else
    backward(&g);
  *out = start(&g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(&g, *out, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->dnn);
  set(&g, *out, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g.operations, g.operation);
  finish(&g, *out, "describing the graph");
  *used = g.used;
  return g.status;
}
