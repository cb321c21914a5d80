/* conv2d and its gradients: conversions, bias and activation around a convolution. cuDNN computes the convolution
 * (dnn.h), or, if it refuses, brim's own kernels do (conv_direct.cu).
 *
 * Results have the order in which the library is fastest: channels-last on tensor cores, else plain. Later operations
 * can keep that order. If the library has no plan for that order, the backend tries the other; brim's kernels take any
 * order.
 *
 * Weights are [K,D,R,S] in checkpoints, optimizers and other backends. Channels-last convolutions need [K,R,S,D]. In 16
 * bits the cast of a weight writes it in that order (cast.cu). Another weight is copied into scratch, which moves each
 * value once, while each is used N*P*Q times. Gradients of weights are computed into scratch, because the library
 * writes them and the kernel must add. */
#include "conv.h"

#include <stdlib.h>

#include "dnn.h"
#include "epilogue.h"
#include "kernel.cuh"

/* About how many times as long conv_direct.cu takes as the library: it multiplies in fp32, without tensor cores, and
 * reads each value once for every result that it is part of. */
#define DIRECT_SLOWER 30

/* Scratch: x or dy or both in the convolution's order, the weight in that order, then the convolution's own scratch. */
typedef struct plan {
  cuda_conv conv;
  cuda_dnn_plan *dnn;    /* NULL if brim's kernels compute it */
  uint64_t weight_bytes; /* the size of the weight's gradient in scratch, or 0 */
} plan;

static void release(void *self, void *state)
{
  plan *made = (plan *)state;
  (void)self;
  if (made) cuda_dnn_release(made->dnn);
  free(made);
}

static cuda_conv conv_of(const brim_node *node, const brim_tensor *x, const brim_tensor *y)
{
  const brim_conv2d_attr *a = &node->attr.conv2d;
  cuda_conv v = {};
  v.N = x->shape.dim[0];
  v.C = x->shape.dim[1];
  v.H = x->shape.dim[2];
  v.W = x->shape.dim[3];
  v.K = y->shape.dim[1];
  v.P = y->shape.dim[2];
  v.Q = y->shape.dim[3];
  v.R = a->kernel[0];
  v.S = a->kernel[1];
  v.D = v.C / a->groups;
  v.groups = a->groups;
  for (int d = 0; d < 2; d++) {
    v.stride[d] = a->stride[d];
    v.padding[d] = a->padding[d];
    v.dilation[d] = a->dilation[d];
  }
  v.dtype = x->dtype;
  return v;
}

static brim_status start(const brim_node *node, const brim_tensor *x, const brim_tensor *y, plan **out)
{
  *out = (plan *)brim_try_calloc(1, sizeof **out);
  if (!*out) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the plan of %s '%s'", node->op, node->name);
  (*out)->conv = conv_of(node, x, y);
  return BRIM_OK;
}

/* Asks the library for a plan in one order, then in the other. It is not an error if both fail. */
static brim_status try_library(cuda_backend *b, plan *p, enum cuda_dnn_result result, uint64_t *scratch_bytes)
{
  cuda_dnn_conv wanted = {result, p->conv};
  const bool preferred = cuda_dnn_prefers_last(b, p->conv.dtype);
  for (int i = 0; i < 2; i++) {
    wanted.conv.x_last = wanted.conv.y_last = (i == 0) == preferred;
    const brim_status status = cuda_dnn_prepare(b, &wanted, &p->dnn, scratch_bytes);
    if (status == BRIM_ENOTSUP) continue;
    p->conv = wanted.conv;
    return status;
  }
  return BRIM_OK;
}

/* Returns the weight of a node as a tensor of rank 4. */
static brim_tensor weight_of(const plan *p, const brim_node *node)
{
  const cuda_conv *v = &p->conv;
  brim_tensor weight = *node->in[1];
  if (weight.shape.rank != 4) weight.shape = (brim_shape){4, {v->K, v->D, v->R, v->S}};
  return weight;
}

/* Returns whether the convolution reads channels-last weights; brim's kernels read plain ones. */
static bool wants_last(const plan *p)
{
  return p->dnn && p->conv.x_last;
}

/* Returns the weight's size if a copy of it is needed, else 0. */
static uint64_t copy_bytes(const plan *p, const brim_node *node)
{
  const brim_tensor weight = weight_of(p, node);
  return cuda_ordered_bytes(&weight, wants_last(p));
}

/* Returns the weight in the convolution's order. If that is a copy in *scratch, *scratch then points past it. Returns
 * NULL with an error set if the launch failed. */
static const void *weight_for(cuda_backend *b, const plan *p, const brim_launch *launch, void **scratch)
{
  const brim_tensor weight = weight_of(p, launch->node);
  return cuda_ordered(b, &weight, launch->in[1], wants_last(p), scratch);
}

/* ---- y ---- */

static brim_status prepare_forward(cuda_backend *b, const brim_node *node, plan *p, brim_kernel_need *need)
{
  uint64_t bytes = 0;
  BRIM_TRY(try_library(b, p, CUDA_DNN_Y, &bytes));
  if (!p->dnn) {
    p->conv.x_last = cuda_channels_last(node->in[0]);
    p->conv.y_last = cuda_dnn_prefers_last(b, p->conv.dtype);
  }
  need->workspace_bytes = cuda_ordered_bytes(node->in[0], p->conv.x_last) + copy_bytes(p, node) + bytes;
  cuda_layout_set(node->out[0], p->conv.y_last);
  return BRIM_OK;
}

static brim_status finish(brim_status status, plan *p, brim_kernel_need *need, void **state)
{
  need->library = p->dnn ? "cuDNN" : NULL;
  need->refused = p->dnn ? NULL : "cuDNN has no engine for it";
  need->slower = DIRECT_SLOWER;
  if (status == BRIM_OK)
    *state = p;
  else
    release(NULL, p);
  return status;
}

static CUDA_PREPARE(conv2d_prepare)
{
  plan *p;
  (void)program;
  BRIM_TRY(start(node, node->in[0], node->out[0], &p));
  return finish(prepare_forward((cuda_backend *)self, node, p, need), p, need, state);
}

/* Adds the bias and applies the activation to the convolution's result, of rank 4. */
static brim_status run_epilogue(cuda_backend *b, const brim_launch *launch)
{
  const brim_node *node = launch->node;
  const brim_tensor *y = node->out[0];
  const bool bias = node->in_count > 2;
  cuda_epilogue epilogue = {};
  epilogue.activation = cuda_activation_of(node->op, &node->attr.fused.activation);
  if (!bias && epilogue.activation.kind == CUDA_IDENTITY) return BRIM_OK;
  epilogue.dtype = y->dtype;
  epilogue.bias_dtype = bias ? node->in[2]->dtype : y->dtype;
  epilogue.count = brim_shape_count(&y->shape);
  epilogue.channels = y->shape.dim[1];
  epilogue.inner = cuda_channels_last(y) ? 1 : y->shape.dim[2] * y->shape.dim[3];
  epilogue.bias = bias ? launch->in[2] : NULL;
  epilogue.from = epilogue.to = launch->out[0];
  return cuda_epilogue_run(b, &epilogue);
}

static CUDA_RUN(conv2d_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const plan *p = (const plan *)launch->state;
  void *scratch = launch->workspace, *y = launch->out[0];
  const void *x = cuda_ordered(b, launch->node->in[0], launch->in[0], p->conv.x_last, &scratch);
  const void *weight = weight_for(b, p, launch, &scratch);
  if (!x || !weight) return BRIM_EDEVICE;
  if (p->dnn)
    BRIM_TRY(cuda_dnn_run(b, p->dnn, (void *)x, (void *)weight, y, scratch));
  else
    BRIM_TRY(cuda_conv_direct(b, &p->conv, x, weight, y));
  return run_epilogue(b, launch);
}

#define CONV2D(id, its_op)                                                                                             \
  BRIM_KERNEL(id) = {.op = its_op, .prepare = conv2d_prepare, .run = conv2d_run, .release = release}
CONV2D(conv2d, "conv2d");
CONV2D(conv2d_relu, "conv2d+relu");
CONV2D(conv2d_leaky_relu, "conv2d+leaky_relu");
CONV2D(conv2d_sigmoid, "conv2d+sigmoid");
CONV2D(conv2d_tanh, "conv2d+tanh");

/* ---- dx, and conv_transpose2d, which is the same with a bias ---- */

static brim_status prepare_grad_input(cuda_backend *b, const brim_node *node, plan *p, brim_kernel_need *need)
{
  uint64_t bytes = 0;
  BRIM_TRY(try_library(b, p, CUDA_DNN_X, &bytes));
  if (!p->dnn) {
    p->conv.y_last = cuda_channels_last(node->in[0]);
    p->conv.x_last = cuda_dnn_prefers_last(b, p->conv.dtype);
  }
  need->workspace_bytes = cuda_ordered_bytes(node->in[0], p->conv.y_last) + copy_bytes(p, node) + bytes;
  cuda_layout_set(node->out[0], p->conv.x_last);
  return BRIM_OK;
}

static CUDA_PREPARE(grad_input_prepare)
{
  plan *p;
  (void)program;
  BRIM_TRY(start(node, node->out[0], node->in[0], &p));
  return finish(prepare_grad_input((cuda_backend *)self, node, p, need), p, need, state);
}

static CUDA_RUN(grad_input_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const plan *p = (const plan *)launch->state;
  void *scratch = launch->workspace, *dx = launch->out[0];
  const void *dy = cuda_ordered(b, launch->node->in[0], launch->in[0], p->conv.y_last, &scratch);
  const void *weight = weight_for(b, p, launch, &scratch);
  if (!dy || !weight) return BRIM_EDEVICE;
  if (p->dnn)
    BRIM_TRY(cuda_dnn_run(b, p->dnn, dx, (void *)weight, (void *)dy, scratch));
  else
    BRIM_TRY(cuda_conv_direct_grad_input(b, &p->conv, dy, weight, dx));
  return run_epilogue(b, launch);
}
BRIM_KERNEL(conv2d_grad_input) = {
    .op = "conv2d_grad_input", .prepare = grad_input_prepare, .run = grad_input_run, .release = release};
BRIM_KERNEL(conv_transpose2d) = {
    .op = "conv_transpose2d", .prepare = grad_input_prepare, .run = grad_input_run, .release = release};

/* ---- dweight, dbias ---- */

/* dweight[k][d][tap] += or = from[k][tap][d], or from[k][d][tap]. */
template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    add_weight_kernel(float *__restrict__ dweight, const T *__restrict__ from, int64_t count, int64_t depth,
                      int64_t taps, bool last, bool adds)
{
  for (int64_t i = cuda_first(); i < count; i += cuda_step_width()) {
    const int64_t tap = i % taps, d = i / taps % depth, k = i / taps / depth;
    dweight[i] = (adds ? dweight[i] : 0) + cuda_load(&from[last ? (k * taps + tap) * depth + d : i]);
  }
}

static brim_status add_weight(cuda_backend *b, const plan *p, float *dweight, bool adds, const void *from)
{
  const int64_t count = cuda_conv_weights(&p->conv);
  CUDA_WITH_TYPE(p->conv.dtype, T,
                 return cuda_launch(b, add_weight_kernel<T>, cuda_stride(count, 1, b->processors), dweight,
                                    (const T *)from, count, p->conv.D, p->conv.R * p->conv.S, p->conv.x_last, adds));
}

/* The library's result has the values' own type: none of its precompiled engines writes fp32 for 16-bit values. */
static brim_status prepare_grad_weight(cuda_backend *b, const brim_node *node, plan *p, brim_kernel_need *need)
{
  uint64_t bytes = 0;
  need->overwrites = 1;
  BRIM_TRY(try_library(b, p, CUDA_DNN_WEIGHT, &bytes));
  if (p->dnn) {
    p->weight_bytes =
        cuda_round_up((uint64_t)cuda_conv_weights(&p->conv) * brim_dtype_bytes(p->conv.dtype), CUDA_ALIGNMENT);
  } else {
    p->conv.x_last = cuda_channels_last(node->in[0]);
    p->conv.y_last = cuda_channels_last(node->in[1]);
    bytes = cuda_conv_direct_bytes(&p->conv);
  }
  /* dbias comes first, so its scratch can be reused */
  if (node->out_count > 1) bytes = (uint64_t)cuda_max((int64_t)bytes, (int64_t)cuda_conv_bias_bytes(&p->conv));
  need->workspace_bytes = cuda_ordered_bytes(node->in[0], p->conv.x_last) +
                          cuda_ordered_bytes(node->in[1], p->conv.y_last) + p->weight_bytes + bytes;
  return BRIM_OK;
}

static CUDA_PREPARE(grad_weight_prepare)
{
  plan *p;
  (void)program;
  BRIM_TRY(start(node, node->in[0], node->in[1], &p));
  return finish(prepare_grad_weight((cuda_backend *)self, node, p, need), p, need, state);
}

static CUDA_RUN(grad_weight_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const brim_node *node = launch->node;
  const plan *p = (const plan *)launch->state;
  float *dweight = (float *)launch->out[0];
  void *scratch = launch->workspace;
  const void *x = cuda_ordered(b, node->in[0], launch->in[0], p->conv.x_last, &scratch);
  const void *dy = cuda_ordered(b, node->in[1], launch->in[1], p->conv.y_last, &scratch);
  if (!x || !dy) return BRIM_EDEVICE;
  void *aside = scratch;
  scratch = (char *)aside + p->weight_bytes;
  const bool adds = cuda_adds_to(b, launch, 0);
  if (node->out_count > 1)
    BRIM_TRY(cuda_conv_grad_bias(b, &p->conv, dy, (float *)launch->out[1], cuda_adds_to(b, launch, 1), scratch));
  if (!p->dnn) return cuda_conv_direct_grad_weight(b, &p->conv, x, dy, dweight, adds, scratch);
  BRIM_TRY(cuda_dnn_run(b, p->dnn, (void *)x, aside, (void *)dy, scratch));
  return add_weight(b, p, dweight, adds, aside);
}
BRIM_KERNEL(conv2d_grad_weight) = {
    .op = "conv2d_grad_weight", .prepare = grad_weight_prepare, .run = grad_weight_run, .release = release};

/* Returns the members of a convolution that the sum of dy's channels needs. */
static cuda_conv channels_of(const brim_tensor *dy)
{
  cuda_conv v = {};
  v.N = dy->shape.dim[0];
  v.K = dy->shape.dim[1];
  v.P = dy->shape.dim[2];
  v.Q = dy->shape.dim[3];
  v.dtype = dy->dtype;
  v.y_last = cuda_channels_last(dy);
  return v;
}

static CUDA_PREPARE(grad_bias_prepare)
{
  const cuda_conv v = channels_of(node->in[0]);
  (void)self;
  (void)program;
  (void)state;
  need->workspace_bytes = cuda_conv_bias_bytes(&v);
  need->overwrites = 1;
  return BRIM_OK;
}

static CUDA_RUN(grad_bias_run)
{
  const cuda_conv v = channels_of(launch->node->in[0]);
  return cuda_conv_grad_bias((cuda_backend *)self, &v, launch->in[0], (float *)launch->out[0],
                             cuda_adds_to((cuda_backend *)self, launch, 0), launch->workspace);
}
BRIM_KERNEL(conv_transpose2d_grad_bias) = {
    .op = "conv_transpose2d_grad_bias", .prepare = grad_bias_prepare, .run = grad_bias_run};
