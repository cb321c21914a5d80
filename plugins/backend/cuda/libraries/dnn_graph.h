/* Shared by the files that make plans with cuDNN: an unfinished plan, and descriptors of cuDNN's graphs. */
#ifndef CUDA_DNN_GRAPH_H
#define CUDA_DNN_GRAPH_H
#include <cudnn.h>

#include "../dnn.h"
#include "profile.h"

enum {
  CUDA_DNN_DESCRIPTORS_MAX = 128, /* enough for attention and its gradient, which need the most */
  /* The alignment of addresses that brim promises to engines. Some engines do not support a larger one. */
  CUDA_DNN_ALIGNMENT = 16
};
enum { CUDA_DNN_UID_X = 'x', CUDA_DNN_UID_WEIGHT = 'w', CUDA_DNN_UID_Y = 'y' };

struct cuda_dnn_plan {
  cudnnBackendDescriptor_t plan; /* one of `made` */
  cudnnBackendDescriptor_t made[CUDA_DNN_DESCRIPTORS_MAX];
  int count;
  int64_t scratch_bytes;
  /* a convolution's key; equal layers share its plan */
  char key[CUDA_PROFILE_KEY_MAX];
  int users;
  struct cuda_dnn_plan **list, *next; /* the backend's list of plans, and the next plan in it */
};

/* [plan] Makes the graph of one convolution. The plan owns the graph and its parts. */
brim_status cuda_dnn_describe(const cuda_backend *b, cuda_dnn_plan *plan, const cuda_dnn_conv *conv,
                              cudnnBackendDescriptor_t *out);
/* [plan] Makes a descriptor that lives as long as the plan. */
brim_status cuda_dnn_make(cuda_dnn_plan *plan, cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out);
brim_status cuda_dnn_set(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void *values);
brim_status cuda_dnn_set_integers(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name, int64_t count,
                                  const int64_t *values);
brim_status cuda_dnn_finalize(cudnnBackendDescriptor_t descriptor, const char *what);
#endif
