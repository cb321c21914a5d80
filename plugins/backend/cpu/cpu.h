/* Internal interfaces of the cpu backend. */
#ifndef CPU_CPU_H
#define CPU_CPU_H
#include <stdatomic.h>
#include <stdbool.h>

#include <oneapi/dnnl/dnnl.h>

#include "brim/brim.h"
#include "gemm16.h"
#include "isa.h"
#include "pool.h"
#include "simd.h"
#include "simd_activation.h"

typedef struct cpu_params {
  int64_t threads, devices;
  uint64_t memory_mb;
  int32_t isa;
} cpu_params;

struct cpu_conv;

/* An instance. prepare, realize and release are called by one thread at a time, as is run. */
typedef struct cpu_backend {
  const cpu_params *params;
  cpu_pool *pool;
  int32_t threads;
  const cpu_simd *simd;
  int32_t isa;             /* index of a family's tables of functions; see isa.h */
  int64_t block;           /* channel block that oneDNN prefers on this CPU: 8 or 16 */
  cpu_gemm16_block gemm16; /* NULL: without instructions for bfloat16 */
  dnnl_engine_t engine;
  dnnl_stream_t *streams;     /* one per thread */
  struct cpu_conv *convs;     /* all convolution primitives that exist, by shape */
  struct brim_ledger *ledger; /* the ledger of devices with a limit; NULL if the host is the only device */
  uint64_t device_bytes;      /* the limit of each */
  struct cpu_placed *placed;  /* arenas on them */
} cpu_backend;

/* Scratch areas start at multiples of this, as tensors do. */
#define CPU_ALIGNMENT 64
static inline uint64_t cpu_aligned(uint64_t bytes)
{
  return (bytes + CPU_ALIGNMENT - 1) / CPU_ALIGNMENT * CPU_ALIGNMENT;
}
static inline int64_t cpu_min(int64_t a, int64_t b)
{
  return a < b ? a : b;
}
static inline int64_t cpu_max(int64_t a, int64_t b)
{
  return a > b ? a : b;
}
static inline int64_t cpu_divide_up(int64_t a, int64_t b)
{
  return (a + b - 1) / b;
}

/* Returns the product of all dimensions but the last. */
static inline int64_t cpu_rows(const brim_tensor *t)
{
  return brim_shape_count(&t->shape) / t->shape.dim[t->shape.rank - 1];
}

/* isa.c */
brim_status cpu_isa_choose(cpu_backend *b); /* sets isa, simd, block and gemm16 */

/* device.c */
brim_status cpu_device_open(cpu_backend *b); /* Opens the ledger if devices have limits. */
void cpu_device_close(cpu_backend *b);
int cpu_device_count(void *self);
brim_status cpu_device_users(void *self, int device, brim_device_user *out, size_t room, size_t *count);
brim_status cpu_device_usage(void *self, int device, uint64_t *used, uint64_t *total);
brim_status cpu_device_describe(void *self, int device, brim_device_info *out);
brim_status cpu_device_place(void *self, int device, uint64_t bytes, void **base);
void cpu_device_unplace(void *self, void *base, uint64_t bytes);
brim_status cpu_device_upload(void *self, void *to, const void *from, uint64_t bytes);
brim_status cpu_device_download(void *self, void *to, const void *from, uint64_t bytes);
brim_status cpu_device_zero(void *self, void *to, uint64_t bytes);
brim_status cpu_device_synchronize(void *self);

/* layout.c */
/* Sets a rank-4 output's order in memory; other tensors stay plain. */
void cpu_layout_set(brim_tensor *t, int64_t channel_block);
/* Converts values of `shape` from one order in memory to another; from and to do not overlap. */
void cpu_layout_convert(cpu_backend *b, const brim_shape *shape, const float *from, int64_t from_block, float *to,
                        int64_t to_block);
/* For kernels that need `t` in the order `channel_block`: the required workspace, and t's values in that order,
 * converted into the workspace if necessary. */
uint64_t cpu_layout_bytes(const brim_tensor *t, int64_t channel_block);
const float *cpu_layout_of(cpu_backend *b, const brim_tensor *t, const float *values, int64_t channel_block,
                           void *workspace);

/* activation.c: the function that a fused operation ends with, and its factor. */
typedef struct cpu_epilogue {
  cpu_function function; /* NULL for none or relu */
  float factor;
  bool relu;
} cpu_epilogue;
cpu_epilogue cpu_epilogue_of(const cpu_backend *b, const brim_node *node);

/* multiply.c: `count` products of one shape on all threads; each is a step (in floats) after the one before in a, b and
 * c. The caller requests the workspace. */
typedef struct cpu_products {
  cpu_gemm gemm; /* the first */
  int64_t count, step_a, step_b, step_c;
  /* The function y = function(c) for each product, with y in the layout of c, perhaps in its memory; NULL for none. */
  cpu_function function;
  float factor, *y;
} cpu_products;
uint64_t cpu_multiply_bytes(const cpu_backend *b);
void cpu_multiply(cpu_backend *b, const cpu_products *products, void *workspace);

/* multiply16.c: a product of bfloat16 on all threads, with sums in fp32, where the backend has gemm16. */
typedef struct cpu_products16 {
  cpu_gemm16 gemm;
  float *sum;           /* [M,N]: the result in fp32; NULL: */
  uint16_t *y;          /* the result, rounded */
  bool adds;            /* adds to the present values */
  const uint16_t *bias; /* [N] or NULL; not allowed with `adds` */
  int64_t ldc;          /* distances between neighbouring rows of sum, y and kept */
  cpu_epilogue epilogue;
  uint16_t *kept; /* the product before the epilogue's function is applied; NULL if it is not needed */
} cpu_products16;
uint64_t cpu_multiply16_bytes(const cpu_backend *b);
void cpu_multiply16(cpu_backend *b, const cpu_products16 *p, void *workspace);
/* Returns the only element of a product of M = N = 1, computed by one thread in its part of the workspace. */
float cpu_multiply16_one(cpu_backend *b, const cpu_gemm16 *g, const uint16_t *bias, int32_t thread, void *workspace);

/* linear.c: adds rows of values, one row after another, to `sum` [columns]. The values are in bfloat16 if `small`, else
 * in fp32. */
void cpu_add_rows(cpu_backend *b, bool small, const void *values, int64_t rows, int64_t columns, float *sum);

/* Kernels: the names of `prepare`, `realize`, `run` and `release` in brim_kernel. */
#define CPU_PREPARE(name)                                                                                              \
  brim_status name(void *self, const brim_program_info *program, const brim_node *node, brim_kernel_need *need,        \
                   void **state)
#define CPU_RUN(name) brim_status name(void *self, const brim_launch *launch)

/* For kernels that set need.overwrites: whether the kernel adds to output i; otherwise it writes output i. Other
 * kernels always add, to zeros at first. small.c writes these zeros if all gradients of a node are vectors; otherwise
 * the core does. */
static inline bool cpu_adds(const brim_launch *launch, uint32_t i)
{
  return brim_adds(launch->node, i, launch->step->is_first_micro_batch);
}
/* For small outputs of a kernel that always adds: zeroes output i unless it already has a sum. */
static inline void cpu_begin_sum(const brim_launch *launch, uint32_t i)
{
  if (!cpu_adds(launch, i)) memset(launch->out[i], 0, (size_t)launch->node->out[i]->bytes);
}

/* Registers an fp32 kernel, which small.c wraps; otherwise like BRIM_KERNEL. */
#define CPU_KERNEL(id)                                                                                                 \
  static const brim_kernel kernel_##id;                                                                                \
  static const brim_kernel *const kernel_entry_##id __attribute__((section("cpu_kernels"), used)) = &kernel_##id;      \
  static const brim_kernel kernel_##id

/* Registers a kernel for the nodes with 16-bit tensors that it serves; small.c does not wrap it. */
typedef struct cpu_kernel16 {
  brim_kernel kernel;
  bool (*serves)(const cpu_backend *b, const brim_node *node);
} cpu_kernel16;
#define CPU_KERNEL16(id)                                                                                               \
  static const cpu_kernel16 kernel16_##id;                                                                             \
  static const cpu_kernel16 *const kernel16_entry_##id __attribute__((section("cpu_kernels16"), used)) =               \
      &kernel16_##id;                                                                                                  \
  static const cpu_kernel16 kernel16_##id

/* cache.c: a kernel for tensors of any type, which small.c does not wrap. */
extern const brim_kernel cpu_cache_write;

/* small.c: makes the backend's kernels, for its ops; returns their number. */
size_t cpu_kernels_make(const brim_kernel *const **out);
/* Returns whether a tensor is stored in 16 bits, so that the kernel gets a widened copy in scratch, which it may
 * change.
 */
#define CPU_WIDENED_BF16 (-2)
#define CPU_WIDENED_F16 (-3)
static inline bool cpu_is_widened(const brim_tensor *t)
{
  return t->producer == CPU_WIDENED_BF16 || t->producer == CPU_WIDENED_F16;
}
/* Returns the greatest number that becomes 0 when it is stored in this tensor's type: half of the type's smallest
 * number. */
static inline float cpu_stored_as_zero(const brim_tensor *t)
{
  if (t->producer == CPU_WIDENED_BF16) return 0x1p-134f;
  return t->producer == CPU_WIDENED_F16 ? 0x1p-25f : 0;
}

/* norm_channels.c: returns the index of the input that this result may overwrite, so that both share scratch; -1: none.
 * All tensors of such a kernel have one size and are widened. */
int32_t cpu_norm_overwritten(const brim_kernel *kernel, size_t result);

/* For updates: the factor of the gradient, the parameter's decay, and the arguments of Adam's vector code. */
double cpu_gradient_factor(const brim_launch *launch);
double cpu_weight_decay(const brim_launch *launch);
cpu_adam cpu_adam_of(const brim_launch *launch, double decay, double l2);

/* multiply16.c: the prepare and release functions of kernels that add up products of rows. The state is an int64_t: the
 * rows of a grain, after which sums begin anew. */
CPU_PREPARE(cpu_grain_rows_prepare);
void cpu_grain_rows_release(void *self, void *state);

/* These functions give outputs the order of in[0]. The second is for operations whose in[1] is converted if its order
 * differs. */
CPU_PREPARE(cpu_follow_prepare);
CPU_PREPARE(cpu_binary_prepare);

/* For kernels that work on plain tensors. The first function requests scratch for inputs in another order; the second
 * returns input `i` in plain order, in scratch or in its own memory. A kernel's own scratch starts at cpu_plain_end(),
 * if its prepare adds some. */
CPU_PREPARE(cpu_plain_prepare);
const void *cpu_plain_input(cpu_backend *b, const brim_launch *launch, uint32_t i);
void *cpu_plain_end(const brim_launch *launch);
/* These functions do the same for kernels whose other inputs and outputs have the order of in[0]. */
CPU_PREPARE(cpu_same_order_prepare);
const void *cpu_same_order_input(cpu_backend *b, const brim_launch *launch, uint32_t i);
void *cpu_same_order_end(const brim_launch *launch);

#endif
