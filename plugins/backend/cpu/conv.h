/* Convolutions: primitives, which conv_primitive.c finds for a shape and conv.c runs, and the ways in their place. */
#ifndef CPU_CONV_H
#define CPU_CONV_H
#include "cpu.h"

enum cpu_conv_kind { CONV_FORWARD, CONV_GRAD_INPUT, CONV_GRAD_WEIGHT };

/* One side of a convolution in two descriptions: as the tensor lies in memory, and as the primitive wants
 * it. If they differ, a reorder goes through a copy in the workspace. */
typedef struct cpu_conv_side {
  dnnl_memory_desc_t outer, inner;
  bool copied;
  dnnl_primitive_desc_t to_inner_pd, to_outer_pd; /* NULL: not needed */
  dnnl_primitive_t to_inner, to_outer;
} cpu_conv_side;

/* What decides on a primitive. Compared as bytes: cleared before it is filled. */
typedef struct cpu_conv_key {
  int64_t kind; /* enum cpu_conv_kind */
  int64_t samples, channels, height, width, out_channels, out_height, out_width;
  int64_t groups, has_bias;                      /* has_bias: of a forward pass */
  dnnl_dims_t kernel, stride, padding, dilation; /* of two */
  int64_t x_block, y_block;                      /* channel blocks; 0: the primitive chooses */
  const struct cpu_conv *like;                   /* weights in the order that this one has them; NULL: free */
} cpu_conv_key;

typedef struct cpu_conv {
  struct cpu_conv *next;
  cpu_conv_key key;
  int64_t x_block, y_block; /* as chosen; x is also the gradient of x, and so on */
  dnnl_primitive_desc_t pd;
  dnnl_primitive_t primitive;
  cpu_conv_side x, y, w;
  dnnl_memory_desc_t bias;    /* of a forward pass; of no bytes if there is none */
  dnnl_memory_desc_t scratch; /* of pd */
  uint64_t scratch_bytes;     /* of pd and the reorders */
  int64_t users;              /* nodes that are prepared to run it */
} cpu_conv;

/* [plan] Finds or adds the primitive of a shape; it lives as long as the backend. */
brim_status cpu_conv_get(cpu_backend *b, const cpu_conv_key *key, cpu_conv **out);
/* [plan] One node more will run it, on so many threads: bytes of the host that this takes when it is realized. The
 * first node counts the primitives, as they are shared. */
uint64_t cpu_conv_use(cpu_conv *c, int32_t threads);
/* [init] Compiles what cpu_conv_get() described; again: nothing. */
brim_status cpu_conv_realize(cpu_conv *c);
void cpu_conv_free_all(cpu_backend *b);
/* conv_product.c: whether the gradient of the weights is better made by one product, where a unit has so many samples;
 * its workspace; and the gradients of launch->node. */
bool cpu_conv_is_product(const cpu_conv_key *key, int64_t unit_samples);
uint64_t cpu_conv_product_bytes(const cpu_backend *b, const cpu_conv_key *key, int64_t samples);
void cpu_conv_product_run(cpu_backend *b, const cpu_conv_key *key, const brim_launch *launch);
/* dbias += the sums of dy's planes, sample after sample. */
void cpu_conv_add_bias(cpu_backend *b, const cpu_conv_key *key, const float *dy, int64_t samples, float *dbias);
/* conv_winograd.c: whether a convolution or its gradient is better made by Winograd's transforms; the workspace of a
 * forward pass or of its input's gradient; and the result of launch->node, with channels in blocks of backend->block,
 * as what is given. */
bool cpu_conv_is_winograd(const cpu_backend *b, const cpu_conv_key *key);
uint64_t cpu_conv_winograd_bytes(cpu_backend *b, const cpu_conv_key *key, int64_t samples);
void cpu_conv_winograd_run(cpu_backend *b, const cpu_conv_key *key, const brim_launch *launch);
/* conv_winograd_weights.c: the same of the gradient of the weights, where a unit has so many samples. */
uint64_t cpu_conv_winograd_weights_bytes(cpu_backend *b, const cpu_conv_key *key, int64_t samples,
                                         int64_t unit_samples);
void cpu_conv_winograd_weights_run(cpu_backend *b, const cpu_conv_key *key, int64_t unit_samples,
                                   const brim_launch *launch);
/* A call of the library, or what it says without memory if a test wants it to (BRIM_FAULT=lib:conv). */
#define CPU_CONV_CALL(call) (brim_fault_hit(BRIM_FAULT_LIB, "conv") ? dnnl_out_of_memory : (call))
brim_status cpu_conv_failed(dnnl_status_t status, const char *what);

#endif
