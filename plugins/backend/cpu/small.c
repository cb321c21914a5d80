/* Activations in bfloat16 on processors that compute in fp32: they are kept small, and widened where they are used.
 * Every kernel of this backend knows fp32 alone, so each is wrapped. Where a node has a tensor in bf16, its kernel sees
 * a copy of the node whose tensors are fp32 and lie in scratch: inputs are widened into it before the kernel runs,
 * outputs are rounded from it afterwards. So what waits for the backward pass takes half the memory, and what is at
 * work takes scratch of its own for as long as one operation lasts.
 *
 * Kernels register in a section of their own (CPU_KERNEL); the backend's table is made of the wrapped ones when the
 * plugin is loaded. */
#include <stdlib.h>
#include <string.h>

#include "cpu.h"

#define PIECE 16384 /* values a task */
#define KERNELS_MAX 512

extern const brim_kernel *const __start_cpu_kernels[] __attribute__((visibility("hidden")));
extern const brim_kernel *const __stop_cpu_kernels[] __attribute__((visibility("hidden")));

/* A tensor of a node that is kept in bf16, as its kernel sees it. */
typedef struct wide {
  brim_tensor tensor;       /* the same in fp32 */
  const brim_tensor *small; /* NULL: an end mark */
  uint64_t offset;          /* in the scratch */
} wide;

/* What is kept of a prepared node. */
typedef struct wrapped {
  const brim_kernel *kernel;
  void *state;    /* its own */
  brim_node node; /* as it sees it; only where something is small */
  wide *wide;
  size_t wide_count;
  void **place; /* of its inputs, then its outputs, while it runs */
} wrapped;

static float widen_one(uint16_t x)
{
  const uint32_t bits = (uint32_t)x << 16;
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}

/* To the nearest, of two to the even one; what is no number stays none. */
static uint16_t round_one(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const uint32_t rounded = bits + 0x7FFF + (bits >> 16 & 1);
  return (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? bits >> 16 | 0x40 : rounded >> 16);
}

typedef struct conversion {
  const void *from;
  void *to;
  int64_t count;
} conversion;

static void widen_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const conversion *c = arg;
  const int64_t end = cpu_min(c->count, (task + 1) * PIECE);
  const uint16_t *from = c->from;
  float *to = c->to;
  for (int64_t i = task * PIECE; i < end; i++) to[i] = widen_one(from[i]);
}

static void round_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const conversion *c = arg;
  const int64_t end = cpu_min(c->count, (task + 1) * PIECE);
  const float *from = c->from;
  uint16_t *to = c->to;
  for (int64_t i = task * PIECE; i < end; i++) to[i] = round_one(from[i]);
}

static void convert(cpu_backend *b, cpu_task_fn fn, const void *from, void *to, int64_t count)
{
  conversion c = {from, to, count};
  cpu_pool_run(b->pool, cpu_divide_up(count, PIECE), fn, &c);
}

/* ---- preparing ---- */

static const brim_kernel *kernel_of(const char *op)
{
  for (const brim_kernel *const *k = __start_cpu_kernels; k < __stop_cpu_kernels; k++)
    if (strcmp((*k)->op, op) == 0) return *k;
  return NULL;
}

static bool is_small(const brim_tensor *t)
{
  return t->dtype == BRIM_DTYPE_BF16;
}

static bool has_small(const brim_node *n)
{
  for (uint32_t k = 0; k < n->in_count; k++)
    if (is_small(n->in[k])) return true;
  for (uint32_t k = 0; k < n->out_count; k++)
    if (is_small(n->out[k])) return true;
  return false;
}

/* Its result lies in the memory of its input, where the orders agree. */
static bool is_view(const brim_node *n)
{
  return strcmp(n->op, "reshape") == 0;
}

static brim_tensor *widened(wrapped *w, brim_tensor *t)
{
  if (!is_small(t)) return t;
  for (size_t i = 0; i < w->wide_count; i++)
    if (w->wide[i].small == t) return &w->wide[i].tensor;
  wide *x = &w->wide[w->wide_count++];
  x->small = t;
  x->tensor = *t;
  x->tensor.dtype = BRIM_DTYPE_F32;
  x->tensor.bytes = t->bytes * 2;
  x->tensor.producer = CPU_WIDENED;
  return &x->tensor;
}

static brim_status make_wide_node(wrapped *w, const brim_node *n)
{
  const size_t count = (size_t)n->in_count + n->out_count;
  brim_tensor **tensor = calloc(count, sizeof *tensor);
  w->wide = calloc(count, sizeof *w->wide);
  w->place = calloc(count, sizeof *w->place);
  w->node = *n;
  w->node.in = tensor;
  w->node.out = tensor ? tensor + n->in_count : NULL;
  if (!tensor || !w->wide || !w->place) return brim_fail(BRIM_ENOMEM_HOST, "no memory for '%s' in bf16", n->name);
  for (uint32_t k = 0; k < n->in_count; k++) w->node.in[k] = widened(w, n->in[k]);
  for (uint32_t k = 0; k < n->out_count; k++) w->node.out[k] = widened(w, n->out[k]);
  return BRIM_OK;
}

static CPU_PREPARE(prepare_wide)
{
  wrapped *w = *state;
  BRIM_TRY(make_wide_node(w, node));
  if (w->kernel->prepare) BRIM_TRY(w->kernel->prepare(self, program, &w->node, need, &w->state));
  for (uint32_t k = 0; k < node->out_count; k++) {
    if (!is_small(node->out[k])) continue;
    node->out[k]->channel_block = w->node.out[k]->channel_block;
    node->out[k]->bytes = w->node.out[k]->bytes / 2;
  }
  uint64_t bytes = cpu_aligned(need->workspace_bytes);
  for (size_t i = 0; i < w->wide_count; i++) {
    w->wide[i].offset = bytes;
    bytes += cpu_aligned(w->wide[i].tensor.bytes);
  }
  need->workspace_bytes = bytes;
  if (!is_view(node)) need->no_inplace = 1;
  return BRIM_OK;
}

static CPU_PREPARE(prepare)
{
  wrapped *w = calloc(1, sizeof *w);
  if (!w) return brim_fail(BRIM_ENOMEM_HOST, "no memory for '%s'", node->name);
  w->kernel = kernel_of(node->op);
  *state = w;
  if (has_small(node)) return prepare_wide(self, program, node, need, state);
  return w->kernel->prepare ? w->kernel->prepare(self, program, node, need, &w->state) : BRIM_OK;
}

static brim_status realize(void *self, const brim_node *node, void *state)
{
  wrapped *w = state;
  return w->kernel->realize ? w->kernel->realize(self, w->wide ? &w->node : node, w->state) : BRIM_OK;
}

static void release(void *self, void *state)
{
  wrapped *w = state;
  if (w->state && w->kernel->release) w->kernel->release(self, w->state);
  free((void *)w->node.in);
  free(w->wide);
  free(w->place);
  free(w);
}

/* ---- running ---- */

static void *place_of(const wrapped *w, const brim_tensor *t, void *where, void *workspace)
{
  for (size_t i = 0; i < w->wide_count; i++)
    if (w->wide[i].small == t) return (char *)workspace + w->wide[i].offset;
  return where;
}

/* A norm of a sum that is kept is the norm of what is kept: the two are added here, rounded, and nothing is left for
 * the kernel to add. */
static void settle_sum(const brim_node *n, float *a, float *b)
{
  if (strncmp(n->op, "add+", 4) != 0 || a == b) return;
  const int64_t count = brim_shape_count(&n->in[0]->shape);
  for (int64_t i = 0; i < count; i++) {
    a[i] = widen_one(round_one(a[i] + b[i]));
    b[i] = 0;
  }
}

static brim_status run_wide(cpu_backend *b, const wrapped *w, const brim_launch *launch)
{
  const brim_node *n = launch->node;
  void **in = w->place, **out = w->place + n->in_count;
  if (is_view(n) && launch->in[0] == launch->out[0]) return BRIM_OK;
  for (uint32_t k = 0; k < n->in_count; k++) {
    in[k] = place_of(w, n->in[k], launch->in[k], launch->workspace);
    if (is_small(n->in[k])) convert(b, widen_piece, launch->in[k], in[k], (int64_t)(n->in[k]->bytes / 2));
  }
  for (uint32_t k = 0; k < n->out_count; k++) out[k] = place_of(w, n->out[k], launch->out[k], launch->workspace);
  if (n->in_count > 1) settle_sum(n, in[0], in[1]);
  const brim_launch inner = {
      .node = &w->node, .state = w->state, .in = in, .out = out, .workspace = launch->workspace, .step = launch->step};
  BRIM_TRY(w->kernel->run(b, &inner));
  for (uint32_t k = 0; k < n->out_count; k++)
    if (is_small(n->out[k])) convert(b, round_piece, out[k], launch->out[k], (int64_t)(n->out[k]->bytes / 2));
  return BRIM_OK;
}

static CPU_RUN(run)
{
  const wrapped *w = launch->state;
  if (w->wide) return run_wide(self, w, launch);
  brim_launch inner = *launch;
  inner.state = w->state;
  return w->kernel->run(self, &inner);
}

/* From fp32 to bf16 or back; the order in memory stays. */
static CPU_PREPARE(cast_prepare)
{
  (void)self;
  (void)program;
  (void)need;
  (void)state;
  node->out[0]->channel_block = node->in[0]->channel_block;
  node->out[0]->bytes =
      node->in[0]->bytes / brim_dtype_bytes(node->in[0]->dtype) * brim_dtype_bytes(node->out[0]->dtype);
  return BRIM_OK;
}

static CPU_RUN(cast_run)
{
  const brim_tensor *x = launch->node->in[0], *y = launch->node->out[0];
  const int64_t count = (int64_t)(x->bytes / brim_dtype_bytes(x->dtype));
  if (x->dtype == y->dtype)
    memcpy(launch->out[0], launch->in[0], x->bytes);
  else
    convert(self, is_small(y) ? round_piece : widen_piece, launch->in[0], launch->out[0], count);
  return BRIM_OK;
}

/* ---- the table ---- */

static brim_kernel kernels[KERNELS_MAX];
static const brim_kernel *table[KERNELS_MAX];

size_t cpu_kernels_make(const brim_kernel *const **out)
{
  static const brim_kernel cast = {.op = "cast", .prepare = cast_prepare, .run = cast_run};
  size_t count = 0;
  table[count++] = &cast;
  for (const brim_kernel *const *k = __start_cpu_kernels; k < __stop_cpu_kernels && count < KERNELS_MAX; k++) {
    kernels[count] = (brim_kernel){(*k)->op, prepare, realize, run, release};
    table[count] = &kernels[count];
    count++;
  }
  *out = table;
  return count;
}
