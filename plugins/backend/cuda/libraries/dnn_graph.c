/* A convolution as one of cuDNN's graphs: three tensors, the convolution's sizes, one operation, and the graph itself.
 * Each descriptor is created, gets its attributes, and is finalized; after that it cannot change. */
#include "dnn_graph.h"

#include "library.h"

brim_status cuda_dnn_make(cuda_dnn_plan *plan, cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
  if (plan->count == CUDA_DNN_DESCRIPTORS_MAX) return brim_fail(BRIM_EINTERNAL, "too many descriptors for a plan");
  BRIM_TRY(cuda_dnn_check(cudnnBackendCreateDescriptor(type, out), "creating a descriptor"));
  plan->made[plan->count++] = *out;
  return BRIM_OK;
}

brim_status cuda_dnn_set(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
  return cuda_dnn_check(cudnnBackendSetAttribute(of, name, type, count, values), "describing an operation");
}

brim_status cuda_dnn_set_integers(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name, int64_t count,
                                  const int64_t *values)
{
  return cuda_dnn_set(of, name, CUDNN_TYPE_INT64, count, values);
}

static brim_status set_descriptor(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                                  cudnnBackendDescriptor_t value)
{
  return cuda_dnn_set(of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

brim_status cuda_dnn_finalize(cudnnBackendDescriptor_t descriptor, const char *what)
{
  return cuda_dnn_check(cudnnBackendFinalize(descriptor), what);
}

/* ---- the operation ---- */

static cudnnDataType_t type_of(uint32_t dtype)
{
  if (dtype == BRIM_DTYPE_F16) return CUDNN_DATA_HALF;
  return dtype == BRIM_DTYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/* Sizes are always in the order N, C, H, W. Strides describe the memory order. */
static brim_status describe_tensor(cuda_dnn_plan *plan, int64_t uid, uint32_t dtype, const int64_t size[4], bool last,
                                   cudnnBackendDescriptor_t *out)
{
  const int64_t alignment = CUDA_DNN_ALIGNMENT, c = size[1], h = size[2], w = size[3];
  const int64_t plain[4] = {c * h * w, h * w, w, 1}, channels_last[4] = {h * w * c, 1, w * c, c};
  const cudnnDataType_t type = type_of(dtype);
  BRIM_TRY(cuda_dnn_make(plan, CUDNN_BACKEND_TENSOR_DESCRIPTOR, out));
  BRIM_TRY(cuda_dnn_set_integers(*out, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &uid));
  BRIM_TRY(cuda_dnn_set(*out, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
  BRIM_TRY(cuda_dnn_set_integers(*out, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, size));
  BRIM_TRY(cuda_dnn_set_integers(*out, CUDNN_ATTR_TENSOR_STRIDES, 4, last ? channels_last : plain));
  BRIM_TRY(cuda_dnn_set_integers(*out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment));
  return cuda_dnn_finalize(*out, "describing a tensor");
}

static brim_status describe_window(cuda_dnn_plan *plan, const cuda_conv *v, cudnnBackendDescriptor_t *out)
{
  const cudnnDataType_t type = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  const int64_t dimensions = 2;
  BRIM_TRY(cuda_dnn_make(plan, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, out));
  BRIM_TRY(cuda_dnn_set_integers(*out, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &dimensions));
  BRIM_TRY(cuda_dnn_set(*out, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
  BRIM_TRY(cuda_dnn_set(*out, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
  BRIM_TRY(cuda_dnn_set_integers(*out, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, v->dilation));
  BRIM_TRY(cuda_dnn_set_integers(*out, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, v->stride));
  BRIM_TRY(cuda_dnn_set_integers(*out, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, v->padding));
  BRIM_TRY(cuda_dnn_set_integers(*out, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, v->padding));
  return cuda_dnn_finalize(*out, "describing a convolution");
}

/* The names of the three directions in the library: forward, and the gradients of x and of the weight. */
typedef struct direction {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t window, x, weight, y, alpha, beta;
} direction;

static const direction directions[] = {
    [CUDA_DNN_Y] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [CUDA_DNN_X] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [CUDA_DNN_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

/* The library derives the number of groups from the channels of x and of a filter. */
static brim_status describe_operation(cuda_dnn_plan *plan, const cuda_dnn_conv *conv, cudnnBackendDescriptor_t *out)
{
  const cuda_conv *v = &conv->conv;
  const direction *d = &directions[conv->result];
  const int64_t size_x[4] = {v->N, v->C, v->H, v->W}, size_weight[4] = {v->K, v->D, v->R, v->S};
  const int64_t size_y[4] = {v->N, v->K, v->P, v->Q};
  const float one = 1, zero = 0;
  cudnnBackendDescriptor_t x, weight, y, window;
  BRIM_TRY(describe_tensor(plan, CUDA_DNN_UID_X, v->dtype, size_x, v->x_last, &x));
  BRIM_TRY(describe_tensor(plan, CUDA_DNN_UID_WEIGHT, v->dtype, size_weight, v->x_last, &weight));
  BRIM_TRY(describe_tensor(plan, CUDA_DNN_UID_Y, v->dtype, size_y, v->x_last, &y));
  BRIM_TRY(describe_window(plan, v, &window));
  BRIM_TRY(cuda_dnn_make(plan, d->type, out));
  BRIM_TRY(set_descriptor(*out, d->window, window));
  BRIM_TRY(set_descriptor(*out, d->x, x));
  BRIM_TRY(set_descriptor(*out, d->weight, weight));
  BRIM_TRY(set_descriptor(*out, d->y, y));
  BRIM_TRY(cuda_dnn_set(*out, d->alpha, CUDNN_TYPE_FLOAT, 1, &one));
  BRIM_TRY(cuda_dnn_set(*out, d->beta, CUDNN_TYPE_FLOAT, 1, &zero));
  return cuda_dnn_finalize(*out, "describing the operation");
}

brim_status cuda_dnn_describe(const cuda_backend *b, cuda_dnn_plan *plan, const cuda_dnn_conv *conv,
                              cudnnBackendDescriptor_t *out)
{
  cudnnBackendDescriptor_t operation;
  BRIM_TRY(describe_operation(plan, conv, &operation));
  BRIM_TRY(cuda_dnn_make(plan, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, out));
  BRIM_TRY(cuda_dnn_set(*out, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->dnn));
  BRIM_TRY(set_descriptor(*out, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation));
  return cuda_dnn_finalize(*out, "describing the graph");
}
