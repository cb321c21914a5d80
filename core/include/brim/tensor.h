/* Tensors, as used by graphs, plans and backends. */
#ifndef BRIM_TENSOR_H
#define BRIM_TENSOR_H
#include <stdint.h>

#include "brim/status.h"
#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_DIMS_MAX 6

enum brim_dtype {
  BRIM_DTYPE_F32 = 1,
  BRIM_DTYPE_F64 = 2,
  BRIM_DTYPE_I32 = 3,
  BRIM_DTYPE_U8 = 4,
  BRIM_DTYPE_BF16 = 5, /* the upper half of an F32 */
  BRIM_DTYPE_F16 = 6   /* IEEE 754 binary16 */
};
/* [any thread] Bytes of one element, 0 for an unknown type; its name as in safetensors ("F32"). */
BRIM_EXPORT uint32_t brim_dtype_bytes(uint32_t dtype);
BRIM_EXPORT const char *brim_dtype_name(uint32_t dtype);

typedef struct brim_shape {
  int32_t rank; /* 0 (a scalar) .. BRIM_DIMS_MAX */
  int64_t dim[BRIM_DIMS_MAX];
} brim_shape;
/* [any thread] Product of the dimensions; 1 for a scalar. */
BRIM_EXPORT int64_t brim_shape_count(const brim_shape *shape);
/* [any thread] 1 if rank and dimensions are equal, else 0. */
BRIM_EXPORT int brim_shape_equal(const brim_shape *a, const brim_shape *b);

/* The role of a tensor. The plan reports bytes by role. */
#define BRIM_ROLE_MAP(X)                                                                                               \
  X(PARAMETER, 0, "parameters")   /* persistent, trained or frozen */                                                  \
  X(GRADIENT, 1, "gradients")     /* persistent, one per parameter; kernels add into them */                           \
  X(OPTIMIZER, 2, "optimizer")    /* persistent, the optimizer's state */                                              \
  X(ACTIVATION, 3, "activations") /* forward values and their gradients, temporary */                                  \
  X(WORKSPACE, 4, "workspace")    /* scratch of a kernel during one operation */                                       \
  X(DATA, 5, "data")              /* inputs and labels; metrics (persistent) */                                        \
  X(CACHE, 6, "cache")            /* persistent, keys and values of a text that is generated. Since ABI 1.12 */
enum brim_role {
#define X(name, value, text) BRIM_ROLE_##name = value,
  BRIM_ROLE_MAP(X)
#undef X
      BRIM_ROLE_COUNT
};

/* A tensor of a graph. Models treat it as opaque; backends read it, and in prepare may set
 * `channel_block` and `bytes` of the outputs of their node. */
typedef struct brim_tensor {
  uint32_t id;          /* index in the graph */
  uint32_t role, dtype; /* enum brim_role, enum brim_dtype */
  brim_shape shape;     /* logical: [N, C, H, W], [N, F], [N], ... */
  const char *name;     /* "conv1.weight", or the producing operation's name; never NULL */
  int32_t producer;     /* index of the node that produces it; -1: an input, or persistent */
  /* Order in memory of a rank-4 activation: [N][C/b][H][W][b] with b = channel_block, which divides
   * C: 1 is plain NCHW, C is channels-last. Every other tensor is plain (1), row-major. */
  int64_t channel_block;
  uint64_t bytes; /* bytes in memory: count * element size, or more if the backend set it */
} brim_tensor;

#ifdef __cplusplus
}
#endif
#endif
