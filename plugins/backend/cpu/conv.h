/* Convolutions: primitives, which conv_primitive.c finds for a shape and conv.c runs, and the alternatives to them. */
#ifndef CPU_CONV_H
#define CPU_CONV_H
#include "cpu.h"

enum cpu_conv_kind { CONV_FORWARD, CONV_GRAD_INPUT, CONV_GRAD_WEIGHT };

/* One side of a convolution in two descriptions: the tensor's order in memory, and the primitive's. If they differ, a
 * reorder makes a copy in the workspace. */
typedef struct cpu_conv_side {
  dnnl_memory_desc_t outer, inner;
  bool copied;
  dnnl_primitive_desc_t to_inner_pd, to_outer_pd; /* NULL if not needed */
  dnnl_primitive_t to_inner, to_outer;
} cpu_conv_side;

/* The key of a primitive. The backend compares keys as bytes, so zero a key before you fill it. */
typedef struct cpu_conv_key {
  int64_t kind; /* enum cpu_conv_kind */
  int64_t samples, channels, height, width, out_channels, out_height, out_width;
  int64_t groups, has_bias;                      /* has_bias: of a forward pass */
  dnnl_dims_t kernel, stride, padding, dilation; /* two values each */
  int64_t x_block, y_block;                      /* channel blocks; 0 if the primitive chooses */
  const struct cpu_conv *like; /* a convolution whose order of weights this one uses; NULL for any order */
} cpu_conv_key;

typedef struct cpu_conv {
  struct cpu_conv *next;
  cpu_conv_key key;
  int64_t x_block, y_block; /* the chosen blocks; x also stands for the gradient of x, and y for that of y */
  dnnl_primitive_desc_t pd;
  dnnl_primitive_t primitive;
  cpu_conv_side x, y, w;
  dnnl_memory_desc_t bias;    /* the bias of a forward pass; has 0 bytes without a bias */
  dnnl_memory_desc_t scratch; /* scratch of pd */
  uint64_t scratch_bytes;     /* scratch of pd and of the reorders */
  int64_t users;              /* nodes that are prepared to run it */
} cpu_conv;

/* [plan] Finds or adds the primitive of a shape; it lives as long as the backend. */
brim_status cpu_conv_get(cpu_backend *b, const cpu_conv_key *key, cpu_conv **out);
/* [plan] Registers another node that will run it on `threads` threads, and returns the host memory that the node needs
 * once realized. The first node counts the primitives, which are shared. */
uint64_t cpu_conv_use(cpu_conv *c, int32_t threads);
/* [init] Compiles the primitive that cpu_conv_get() described; no-op if it is compiled. */
brim_status cpu_conv_realize(cpu_conv *c);
void cpu_conv_free_all(cpu_backend *b);
/* conv_product.c: returns whether one product computes the gradient of the weights faster, with `unit_samples` in a
 * unit; returns the product's workspace; computes the gradients of launch->node. */
bool cpu_conv_is_product(const cpu_conv_key *key, int64_t unit_samples);
uint64_t cpu_conv_product_bytes(const cpu_backend *b, const cpu_conv_key *key, int64_t samples);
void cpu_conv_product_run(cpu_backend *b, const cpu_conv_key *key, const brim_launch *launch);
/* dbias += the sums of dy's planes, sample after sample. */
void cpu_conv_add_bias(cpu_backend *b, const cpu_conv_key *key, const float *dy, int64_t samples, float *dbias);
/* conv_winograd.c: returns whether Winograd's transforms compute a convolution or its gradient faster; returns the
 * workspace of a forward pass or of its input's gradient; computes the result of launch->node, with channels in blocks
 * of backend->block, like its inputs. */
bool cpu_conv_is_winograd(const cpu_backend *b, const cpu_conv_key *key);
uint64_t cpu_conv_winograd_bytes(cpu_backend *b, const cpu_conv_key *key, int64_t samples);
void cpu_conv_winograd_run(cpu_backend *b, const cpu_conv_key *key, const brim_launch *launch);
/* conv_winograd_weights.c: the same for the gradient of the weights, with `samples` in a unit. */
uint64_t cpu_conv_winograd_weights_bytes(cpu_backend *b, const cpu_conv_key *key, int64_t samples,
                                         int64_t unit_samples);
void cpu_conv_winograd_weights_run(cpu_backend *b, const cpu_conv_key *key, int64_t unit_samples,
                                   const brim_launch *launch);
/* Calls the library, or returns its out-of-memory error if a test injects it (BRIM_FAULT=lib:conv). */
#define CPU_CONV_CALL(call) (brim_fault_hit(BRIM_FAULT_LIB, "conv") ? dnnl_out_of_memory : (call))
brim_status cpu_conv_failed(dnnl_status_t status, const char *what);

#endif
