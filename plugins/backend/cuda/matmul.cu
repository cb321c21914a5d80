/* matmul: y[i] = A[i] B[i] for every place i of the leading dimensions, where A is a or its transpose, and B is b or
 * its transpose. One batched product (product.h) reads transposed operands in place. Rank-4 values must be in plain
 * order. */
#include "kernel.cuh"
#include "product.h"

static cuda_product product_of(const brim_node *node)
{
  const brim_tensor *a = node->in[0], *y = node->out[0];
  const int rank = y->shape.rank;
  const brim_matmul_attr *attr = &node->attr.matmul;
  cuda_product p = {};
  p.m = y->shape.dim[rank - 2];
  p.n = y->shape.dim[rank - 1];
  p.k = a->shape.dim[rank - (attr->transpose_a ? 2 : 1)];
  p.transpose_a = attr->transpose_a;
  p.transpose_b = attr->transpose_b;
  p.lda = p.transpose_a ? p.m : p.k;
  p.ldb = p.transpose_b ? p.k : p.n;
  p.ldd = p.n;
  p.batch = brim_shape_count(&y->shape) / (p.m * p.n);
  p.stride_a = p.m * p.k;
  p.stride_b = p.k * p.n;
  p.stride_d = p.m * p.n;
  p.type = a->dtype;
  p.type_d = y->dtype;
  return p;
}

static CUDA_PREPARE(matmul_prepare)
{
  const cuda_product p = product_of(node);
  cuda_product_plan *plan = NULL;
  uint64_t bytes = 0;
  BRIM_TRY(cuda_plain_prepare(self, program, node, need, state));
  BRIM_TRY(cuda_product_prepare((cuda_backend *)self, &p, &plan, &bytes));
  need->workspace_bytes += bytes;
  need->library = "cuBLASLt";
  *state = plan;
  return BRIM_OK;
}

static CUDA_RUN(matmul_run)
{
  cuda_backend *b = (cuda_backend *)self;
  cuda_operands o = {};
  o.a = cuda_plain_input(b, launch, 0);
  o.b = cuda_plain_input(b, launch, 1);
  if (!o.a || !o.b) return BRIM_EDEVICE;
  o.d = launch->out[0];
  o.scratch = cuda_scratch_end(launch, true);
  return cuda_product_run(b, (const cuda_product_plan *)launch->state, &o);
}

static void matmul_release(void *self, void *state)
{
  (void)self;
  cuda_product_release((cuda_product_plan *)state);
}
BRIM_KERNEL(matmul) = {.op = "matmul", .prepare = matmul_prepare, .run = matmul_run, .release = matmul_release};
