/* Activations in bfloat16 or binary16: they are stored in 16 bits and widened for use. Nearly all kernels of this
 * backend read fp32, so this file wraps them. It does not wrap products in bfloat16 on processors that have them
 * (linear16.c). If a node has a 16-bit ("small") tensor, its kernel gets a copy of the node whose tensors are fp32 in
 * scratch: this file widens inputs before the kernel runs, and rounds outputs afterwards. So tensors kept for the
 * backward pass need half the memory.
 *
 * To keep the scratch small, operations that treat samples one by one, or that add up over samples in order, run on a
 * slice of a few samples at a time. The traits of the operation (brim/ops.h) declare which of its tensors consist of
 * samples. Slices of whole grains give the same bits as all samples at once, as micro-batches do.
 *
 * A fused operation also rounds between its two halves, so that fusion changes no bit: this file rounds the first
 * half's result, and the second half uses that (see `second`).
 *
 * Kernels register in a section (CPU_KERNEL); the backend's table is made from the wrapped kernels when the plugin is
 * loaded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "half.h"

#define PIECE 16384            /* values per task */
#define SLICE_BYTES (1u << 20) /* target for the scratch of a slice, if a grain does not need more */
#define KERNELS_MAX 512
#define END_VALUES 512 /* values that are rounded, passed to the second half and rounded again in one pass */

extern const brim_kernel *const __start_cpu_kernels[] __attribute__((visibility("hidden")));
extern const brim_kernel *const __stop_cpu_kernels[] __attribute__((visibility("hidden")));
extern const cpu_kernel16 *const __start_cpu_kernels16[] __attribute__((visibility("hidden")));
extern const cpu_kernel16 *const __stop_cpu_kernels16[] __attribute__((visibility("hidden")));

/* A tensor of a node. Operands are numbered: the inputs first, then the outputs. */
typedef struct operand {
  brim_tensor *t; /* the node's tensor */
  bool sliced, small;
  size_t same;     /* the number of the first operand with the same tensor; usually this operand */
  uint64_t offset; /* the offset of the widened copy in the scratch, if the operand is small */
} operand;

/* A copy of the node for its kernel, with the samples of one slice. */
typedef struct part {
  brim_node node;
  brim_tensor *tensor;   /* copies of the tensors, by operand */
  brim_tensor **pointer; /* the node's lists of tensors, allocated after the copies */
  void *state;           /* the state of the kernel */
} part;

/* The second half of a fused operation, if this file computes it after the kernel of the first half. */
typedef struct second {
  cpu_function function; /* is applied to the rounded result */
  float factor;
  bool adds; /* the second half adds the rounded result to in[0], and the kernel gets zeros instead of in[0] */
  bool next; /* adds the rounded result to the last input, which the kernel does not read */
  void (*relu)(const float *x, float *y, int64_t count); /* applied after `function`; NULL: nothing is applied */
} second;

/* The state of a prepared node. */
typedef struct wrapped {
  const brim_kernel *kernel;
  bool overwrites; /* in the first micro-batch the kernel writes gradients instead of adding them */
  second second;
  void *state; /* the kernel's state, if no tensor is small; the other members are then not set */
  operand *operand;
  size_t operands;
  int64_t rows, slice; /* number of samples; samples of a slice, or 0 if the kernel runs on all at once */
  part part[2];        /* for a slice, and for the samples after the last whole slice */
  size_t parts;
  void **place;     /* addresses by operand, for one run; allocated after the operands */
  uint64_t ordered; /* offset in scratch of the operand of second.next, converted to the result's order */
} wrapped;

/* ---- conversions ---- */

typedef struct conversion {
  const cpu_half *half;
  const void *from;
  void *to;
  int64_t count;
} conversion;

static void widen_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const conversion *c = arg;
  const int64_t at = task * PIECE;
  c->half->widen((const uint16_t *)c->from + at, (float *)c->to + at, cpu_min(PIECE, c->count - at));
}

static void round_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const conversion *c = arg;
  const int64_t at = task * PIECE;
  c->half->round((const float *)c->from + at, (uint16_t *)c->to + at, cpu_min(PIECE, c->count - at));
}

/* Writes zeros to which a kernel adds. They are -0, because adding +0 would turn -0 into +0. */
static void zero_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const conversion *c = arg;
  const int64_t end = cpu_min((task + 1) * PIECE, c->count);
  for (int64_t i = task * PIECE; i < end; i++) ((float *)c->to)[i] = -0.0f;
}

/* dtype: the small type, which is that of `from` or of `to`. */
static void convert(cpu_backend *b, cpu_task_fn fn, uint32_t dtype, const void *from, void *to, uint64_t count)
{
  conversion c = {cpu_half_of(b->isa, dtype), from, to, (int64_t)count};
  cpu_pool_run(b->pool, cpu_divide_up(c.count, PIECE), fn, &c);
}

/* ---- preparing ---- */

/* Compares the first letters first, because a plan looks up the kernels of ten thousand nodes and most names differ
 * there. */
static bool is_name(const char *a, const char *b)
{
  return a[0] == b[0] && strcmp(a, b) == 0;
}

static const brim_kernel *kernel_of(const char *op)
{
  for (const brim_kernel *const *k = __start_cpu_kernels; k < __stop_cpu_kernels; k++)
    if (is_name((*k)->op, op)) return *k;
  return NULL;
}

/* Returns the kernel that reads the node's 16-bit tensors as they are, or NULL. */
static const brim_kernel *kernel16_of(const cpu_backend *b, const brim_node *node)
{
  for (const cpu_kernel16 *const *k = __start_cpu_kernels16; k < __stop_cpu_kernels16; k++)
    if (is_name((*k)->kernel.op, node->op) && (*k)->serves(b, node)) return &(*k)->kernel;
  return NULL;
}

static bool is_small(const brim_tensor *t)
{
  return t->dtype == BRIM_DTYPE_BF16 || t->dtype == BRIM_DTYPE_F16;
}

/* Returns whether bit k is set in a mask of a node's inputs or outputs. */
static bool has_bit(uint32_t bits, size_t k)
{
  return k < 32 && bits >> k & 1;
}

/* Returns whether the kernel only copies values. Kernels of this backend that do so copy 16-bit values unchanged. */
static bool copies_small(const brim_node *n)
{
  for (uint32_t k = 0; k < n->in_count; k++)
    if (has_bit(brim_node_traits(n)->copied, k) && n->in[k]->dtype == n->out[0]->dtype) return true;
  return false;
}

static bool has_small(const brim_node *n)
{
  bool any = false;
  for (uint32_t k = 0; k < n->in_count; k++) any = any || is_small(n->in[k]);
  for (uint32_t k = 0; k < n->out_count; k++) any = any || is_small(n->out[k]);
  return any && !copies_small(n);
}

/* Returns whether results may share memory with inputs even if the kernel forbids it. They may if all results except
 * gradients are small, because the kernel then works in scratch: all samples of an unsliced input are widened before
 * any result is rounded, and slices are processed sample by sample. */
static bool has_apart_results(const brim_node *n)
{
  for (uint32_t k = 0; k < n->out_count; k++)
    if (!is_small(n->out[k]) && n->out[k]->role != BRIM_ROLE_GRADIENT) return false;
  return !brim_node_traits(n)->view;
}

/* Returns the traits of a node that can be sliced, or NULL. To be sliced, all tensors of samples must have the same
 * number of samples, operands of sums must be as large as the result, and results that are not samples must be
 * gradients that are accumulated. */
static const brim_op_traits *find_slicing(const brim_node *n)
{
  const brim_op_traits *s = brim_node_traits(n);
  if (!s->samples_in) return NULL;
  const brim_shape *first = &n->in[0]->shape;
  for (uint32_t k = 0; k < n->in_count; k++) {
    const brim_shape *shape = &n->in[k]->shape;
    if (!has_bit(s->samples_in, k)) continue;
    if (shape->rank < 1 || shape->dim[0] != first->dim[0]) return NULL;
    if (s->broadcasts && !brim_shape_equal(shape, first)) return NULL;
  }
  for (uint32_t k = 0; k < n->out_count; k++) {
    const brim_shape *shape = &n->out[k]->shape;
    const bool sliced = has_bit(s->samples_out, k);
    if (sliced && (shape->rank < 1 || shape->dim[0] != first->dim[0])) return NULL;
    if (!sliced && n->out[k]->role != BRIM_ROLE_GRADIENT) return NULL;
  }
  return s;
}

/* Returns the second half of a fused operation if the first half's result must be rounded. relu needs no rounding
 * before it. Neither does the norm of a sum: see settle_sum. */
static second second_of(const cpu_backend *b, const brim_node *n)
{
  const cpu_epilogue epilogue = cpu_epilogue_of(b, n);
  second s = {epilogue.function, epilogue.factor, brim_node_traits(n)->sum == BRIM_SUM_LAST && is_small(n->in[0])};
  s.next = brim_node_traits(n)->sum == BRIM_SUM_NEXT;
  if (s.next && epilogue.relu) s.relu = b->simd->relu;
  return is_small(n->out[0]) ? s : (second){0};
}

/* Returns the kernel of an operation's first half: "linear" for "linear+tanh". */
static const brim_kernel *first_kernel(const char *op)
{
  char name[64];
  snprintf(name, sizeof name, "%.*s", (int)strcspn(op, "+"), op);
  return kernel_of(name);
}

static brim_status list_operands(wrapped *w, const brim_node *n, const brim_op_traits *s)
{
  w->operands = (size_t)n->in_count + n->out_count;
  w->operand = brim_try_calloc(w->operands, sizeof *w->operand + sizeof *w->place);
  w->place = (void **)(w->operand + w->operands);
  if (!w->operand) return brim_fail(BRIM_ENOMEM_HOST, "no memory for '%s' in half precision", n->name);
  for (size_t i = 0; i < w->operands; i++) {
    operand *o = &w->operand[i];
    const bool in = i < n->in_count;
    const size_t k = in ? i : i - n->in_count;
    o->t = in ? n->in[k] : n->out[k];
    o->small = is_small(o->t);
    o->sliced = s && has_bit(in ? s->samples_in : s->samples_out, k);
    while (w->operand[o->same].t != o->t) o->same++;
    if (w->second.adds) o->same = i; /* x + dropout(x): the kernel gets zeros instead of the first x */
  }
  /* The second operand of the sum is not widened here, unless its memory order must change. */
  operand *last = &w->operand[n->in_count - 1];
  if (w->second.next && last->t->channel_block == n->in[0]->channel_block) last->small = false;
  return BRIM_OK;
}

/* Returns how many samples a slice has: whole grains, or any number, as many as the target for scratch allows. */
static int64_t slice_of(const wrapped *w, const brim_op_traits *s, int64_t grain)
{
  uint64_t bytes = 0;
  const int64_t unit = grain > 0 && !s->apart ? grain : 1;
  for (size_t i = 0; i < w->operands; i++)
    if (w->operand[i].small && w->operand[i].sliced) bytes += 2 * w->operand[i].t->bytes;
  const int64_t units = (int64_t)(SLICE_BYTES / (bytes / (uint64_t)w->rows * (uint64_t)unit + 1));
  return cpu_min(w->rows, unit * cpu_max(units, 1));
}

static brim_status make_part(wrapped *w, part *p, const brim_node *n, int64_t rows)
{
  p->tensor = brim_try_calloc(w->operands, sizeof *p->tensor + sizeof *p->pointer);
  p->pointer = (brim_tensor **)(p->tensor + w->operands);
  if (!p->tensor) return brim_fail(BRIM_ENOMEM_HOST, "no memory for '%s' in half precision", n->name);
  p->node = *n;
  if (w->second.function || w->second.next) p->node.op = w->kernel->op;
  if (w->second.function) p->node.out_count = 1;
  p->node.in = p->pointer;
  p->node.out = p->pointer + n->in_count;
  for (size_t i = 0; i < w->operands; i++) {
    const operand *o = &w->operand[i];
    brim_tensor *t = &p->tensor[o->same];
    p->pointer[i] = t;
    if (o->same != i) continue;
    *t = *o->t;
    if (o->small) {
      t->dtype = BRIM_DTYPE_F32;
      t->producer = o->t->dtype == BRIM_DTYPE_F16 ? CPU_WIDENED_F16 : CPU_WIDENED_BF16;
      t->bytes *= 2;
    }
    if (!o->sliced) continue;
    t->shape.dim[0] = rows;
    t->bytes = t->bytes / (uint64_t)w->rows * (uint64_t)rows;
  }
  return BRIM_OK;
}

/* Returns the bytes of an operand's whole tensor. seen: its tensor in a slice, as the kernel sees it. */
static uint64_t smaller_bytes(const wrapped *w, const operand *o, const brim_tensor *seen)
{
  const uint64_t bytes = o->small ? seen->bytes / 2 : seen->bytes;
  return o->sliced ? bytes / (uint64_t)w->slice * (uint64_t)w->rows : bytes;
}

/* Copies the memory orders that the kernel chose for results to the node. */
static void take_choices(const wrapped *w, const brim_node *n)
{
  for (size_t i = n->in_count; i < w->operands; i++) {
    const operand *o = &w->operand[i];
    const brim_tensor *seen = w->part[0].pointer[i];
    if (o->t->role == BRIM_ROLE_GRADIENT) continue;
    o->t->channel_block = seen->channel_block;
    o->t->bytes = smaller_bytes(w, o, seen);
  }
}

/* Returns whether the rest after whole slices has the same memory order as the slices. */
static bool parts_agree(const wrapped *w, const brim_node *n)
{
  for (size_t i = n->in_count; w->parts == 2 && i < w->operands; i++) {
    const brim_tensor *a = w->part[0].pointer[i], *b = w->part[1].pointer[i];
    if (a->channel_block != b->channel_block) return false;
    if (w->operand[i].sliced && a->bytes / (uint64_t)a->shape.dim[0] != b->bytes / (uint64_t)b->shape.dim[0])
      return false;
  }
  return true;
}

/* Returns the operand whose widened copy result i may overwrite, or i itself. This way the gradient of norm, sum and
 * relu needs no more scratch than two kernels do. */
static size_t overwritten(const wrapped *w, const brim_node *n, size_t i)
{
  const int32_t input = i < n->in_count ? -1 : cpu_norm_overwritten(w->kernel, i - n->in_count);
  return input < 0 || !w->operand[input].small ? i : w->operand[input].same;
}

static brim_status prepare_parts(cpu_backend *self, const brim_program_info *program, const brim_node *node,
                                 brim_kernel_need *need, wrapped *w, const brim_op_traits *s)
{
  *need = (brim_kernel_need){0};
  BRIM_TRY(list_operands(w, node, s));
  w->rows = s ? node->in[0]->shape.dim[0] : 1;
  w->slice = s ? slice_of(w, s, program->grain) : 1;
  const int64_t rest = w->rows % w->slice;
  uint64_t own = 0;
  for (size_t p = 0; p < (rest ? 2 : 1); p++) {
    brim_kernel_need inner = {0};
    brim_program_info info = *program;
    const int64_t rows = p == 0 ? w->slice : rest;
    if (s) info.batch = rows;
    w->parts++;
    BRIM_TRY(make_part(w, &w->part[p], node, rows));
    if (w->kernel->prepare) BRIM_TRY(w->kernel->prepare(self, &info, &w->part[p].node, &inner, &w->part[p].state));
    if (p == 0) take_choices(w, node);
    own = inner.workspace_bytes > own ? inner.workspace_bytes : own;
    need->no_inplace = need->no_inplace || (inner.no_inplace && !has_apart_results(node));
    need->host_bytes += inner.host_bytes;
    need->library = inner.library;
    need->overwrites = inner.overwrites;
  }
  need->workspace_bytes = cpu_aligned(own);
  for (size_t i = 0; i < w->operands; i++) {
    if (!w->operand[i].small || w->operand[i].same != i) continue;
    if (w->second.function && i > node->in_count) continue; /* is rounded from the scratch of the result */
    const size_t at = overwritten(w, node, i);
    w->operand[i].offset = at != i ? w->operand[at].offset : need->workspace_bytes;
    if (at == i) need->workspace_bytes += cpu_aligned(w->part[0].tensor[i].bytes);
  }
  if (w->second.next) {
    w->ordered = need->workspace_bytes;
    need->workspace_bytes += cpu_layout_bytes(w->part[0].pointer[node->in_count - 1], node->out[0]->channel_block);
  }
  return BRIM_OK;
}

static void release_parts(cpu_backend *b, wrapped *w)
{
  for (size_t p = 0; p < w->parts; p++) {
    if (w->part[p].state && w->kernel->release) w->kernel->release(b, w->part[p].state);
    free(w->part[p].tensor);
  }
  free(w->operand);
  *w = (wrapped){.kernel = w->kernel, .second = w->second};
}

static CPU_PREPARE(prepare_wide)
{
  wrapped *w = *state;
  BRIM_TRY(prepare_parts(self, program, node, need, w, find_slicing(node)));
  if (parts_agree(w, node)) return BRIM_OK;
  release_parts(self, w);
  return prepare_parts(self, program, node, need, w, NULL);
}

static CPU_PREPARE(prepare_kernel)
{
  wrapped *w = *state;
  const brim_kernel *reads_small = kernel16_of(self, node);
  w->kernel = reads_small ? reads_small : kernel_of(node->op);
  if (has_small(node) && !reads_small) {
    w->second = second_of(self, node);
    if (w->second.function || w->second.next) w->kernel = first_kernel(node->op);
    return prepare_wide(self, program, node, need, state);
  }
  return w->kernel->prepare ? w->kernel->prepare(self, program, node, need, &w->state) : BRIM_OK;
}

/* Returns whether all gradients that a node adds to are vectors. Zeroing vectors before the kernel runs takes almost no
 * time. */
static bool adds_to_vectors(const brim_node *n)
{
  for (uint32_t k = 0; k < n->out_count; k++)
    if (n->out[k]->role == BRIM_ROLE_GRADIENT && n->out[k]->shape.rank > 1) return false;
  return true;
}

static CPU_PREPARE(prepare)
{
  wrapped *w = brim_try_calloc(1, sizeof *w);
  if (!w) return brim_fail(BRIM_ENOMEM_HOST, "no memory for '%s'", node->name);
  *state = w;
  const brim_status status = prepare_kernel(self, program, node, need, state);
  w->overwrites = need->overwrites;
  need->overwrites = w->overwrites || adds_to_vectors(node);
  return status;
}

static brim_status realize(void *self, const brim_node *node, void *state)
{
  wrapped *w = state;
  if (!w->kernel->realize) return BRIM_OK;
  if (w->parts == 0) return w->kernel->realize(self, node, w->state);
  for (size_t p = 0; p < w->parts; p++) BRIM_TRY(w->kernel->realize(self, &w->part[p].node, w->part[p].state));
  return BRIM_OK;
}

static void release(void *self, void *state)
{
  wrapped *w = state;
  if (w->state && w->kernel->release) w->kernel->release(self, w->state);
  release_parts(self, w);
  free(w);
}

/* ---- running ---- */

/* Returns the address of an operand's samples from `row` on. */
static char *at_row(const wrapped *w, const operand *o, void *base, int64_t row)
{
  return (char *)base + (o->sliced ? o->t->bytes / (uint64_t)w->rows * (uint64_t)row : 0);
}

/* Adds two operands and rounds their sum, so that a norm of a sum reads the sum as it is stored. The kernel then adds
 * zeros to it. */
typedef struct sum {
  const cpu_half *half;
  float *a, *b;
  int64_t count;
} sum;

static void settle_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const sum *s = arg;
  const int64_t at = task * PIECE;
  s->half->settle(s->a + at, s->b + at, cpu_min(PIECE, s->count - at));
}

/* dtype: the type of the stored sum. */
static void settle_sum(cpu_backend *backend, const brim_node *n, uint32_t dtype, float *a, float *b)
{
  sum s = {cpu_half_of(backend->isa, dtype), a, b, brim_shape_count(&n->in[0]->shape)};
  if (a == b) return; /* x + x is exact */
  cpu_pool_run(backend->pool, cpu_divide_up(s.count, PIECE), settle_piece, &s);
}

/* The second half of a fused operation: rounds the first half's value in scratch, applies the second half, and rounds
 * again. */
typedef struct ending {
  const cpu_half *half;
  second second;
  float *x;
  const uint16_t *a; /* the operand to add, possibly in the result's memory */
  const float *wide; /* this operand in the result's order, if its own order differs; used instead of `a` */
  uint16_t *between; /* the first half's value, if it is also a result; else NULL */
  uint16_t *y;
  int64_t count;
} ending;

static void end_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const ending *e = arg;
  const int64_t at = task * PIECE, end = cpu_min(at + PIECE, e->count);
  for (int64_t i = at; i < end; i += END_VALUES) {
    const int64_t count = cpu_min(END_VALUES, end - i);
    uint16_t rounded[END_VALUES];
    float a[END_VALUES], *x = e->x + i;
    uint16_t *between = e->between ? e->between + i : rounded;
    e->half->round(x, between, count);
    e->half->widen(between, x, count);
    if (e->second.function) {
      e->second.function(x, x, count, e->second.factor);
    } else {
      const float *other = e->wide ? e->wide + i : a;
      if (!e->wide) e->half->widen(e->a + i, a, count);
      for (int64_t k = 0; k < count; k++) x[k] += other[k];
    }
    if (e->second.relu) e->second.relu(x, x, count);
    e->half->round(x, e->y + i, count);
  }
}

/* Finds the second operand of a sum. Such a node runs on all samples at once. */
static void find_next(cpu_backend *b, const wrapped *w, const part *p, const brim_launch *launch, ending *e)
{
  const uint32_t last = launch->node->in_count - 1;
  if (w->operand[last].small)
    e->wide = cpu_layout_of(b, p->pointer[last], w->place[last], launch->node->out[0]->channel_block,
                            (char *)launch->workspace + w->ordered);
  else
    e->a = launch->in[last];
}

static void end_part(cpu_backend *b, const wrapped *w, const part *p, const brim_launch *launch, int64_t row)
{
  const brim_node *n = launch->node;
  const operand *y = &w->operand[n->in_count];
  ending e = {.half = cpu_half_of(b->isa, y->t->dtype),
              .second = w->second,
              .x = w->place[n->in_count],
              .y = (uint16_t *)(void *)at_row(w, y, launch->out[0], row),
              .count = (int64_t)(p->tensor[y->same].bytes / sizeof(float))};
  if (w->second.adds) e.a = (const uint16_t *)(void *)at_row(w, &w->operand[0], launch->in[0], row);
  if (w->second.next) find_next(b, w, p, launch, &e);
  if (w->second.function && n->out_count > 1) e.between = (uint16_t *)(void *)at_row(w, y + 1, launch->out[1], row);
  cpu_pool_run(b->pool, cpu_divide_up(e.count, PIECE), end_piece, &e);
}

static brim_status run_part(cpu_backend *b, wrapped *w, const part *p, const brim_launch *launch, int64_t row)
{
  const brim_node *n = launch->node;
  brim_step step = *launch->step;
  for (size_t i = 0; i < w->operands; i++) {
    const operand *o = &w->operand[i];
    const bool in = i < n->in_count;
    char *own = at_row(w, o, in ? launch->in[i] : launch->out[i - n->in_count], row);
    w->place[i] = o->small ? (char *)launch->workspace + w->operand[o->same].offset : own;
    const bool zeros = w->second.adds && i == 0;
    if (in && o->small && o->same == i && ((o->sliced && !zeros) || row == 0))
      convert(b, zeros ? zero_piece : widen_piece, o->t->dtype, own, w->place[i], p->tensor[i].bytes / sizeof(float));
  }
  if (brim_node_traits(n)->sum == BRIM_SUM_FIRST) settle_sum(b, &p->node, n->out[0]->dtype, w->place[0], w->place[1]);
  step.first_sample += row;
  step.is_first_micro_batch = step.is_first_micro_batch && row == 0;
  const brim_launch inner = {.node = &p->node,
                             .state = p->state,
                             .in = w->place,
                             .out = w->place + n->in_count,
                             .workspace = launch->workspace,
                             .step = &step};
  const bool ends = w->second.function || w->second.adds || w->second.next;
  BRIM_TRY(w->kernel->run(b, &inner));
  if (ends) end_part(b, w, p, launch, row);
  for (size_t i = n->in_count; i < w->operands; i++) {
    const operand *o = &w->operand[i];
    if (o->small && !ends)
      convert(b, round_piece, o->t->dtype, w->place[i], at_row(w, o, launch->out[i - n->in_count], row),
              p->tensor[o->same].bytes / sizeof(float));
  }
  return BRIM_OK;
}

/* Zeroes the vectors that a node is the first to add to, because its kernel always adds. */
static void begin_vectors(const brim_launch *launch)
{
  for (uint32_t i = 0; i < launch->node->out_count; i++)
    if (launch->node->out[i]->role == BRIM_ROLE_GRADIENT) cpu_begin_sum(launch, i);
}

static CPU_RUN(run)
{
  wrapped *w = launch->state;
  if (launch->step && launch->step->is_first_micro_batch && !w->overwrites && adds_to_vectors(launch->node))
    begin_vectors(launch);
  if (w->parts == 0) {
    brim_launch inner = *launch;
    inner.state = w->state;
    return w->kernel->run(self, &inner);
  }
  if (brim_node_traits(launch->node)->view && launch->in[0] == launch->out[0]) return BRIM_OK;
  for (int64_t row = 0; row < w->rows; row += w->slice)
    BRIM_TRY(run_part(self, w, &w->part[row + w->slice > w->rows], launch, row));
  return BRIM_OK;
}

/* cast converts fp32 to a small type or back, and keeps the memory order. */
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
  const uint64_t count = x->bytes / brim_dtype_bytes(x->dtype);
  if (x->dtype == y->dtype)
    memcpy(launch->out[0], launch->in[0], x->bytes);
  else
    convert(self, is_small(y) ? round_piece : widen_piece, is_small(y) ? y->dtype : x->dtype, launch->in[0],
            launch->out[0], count);
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
  table[count++] = &cpu_cache_write;
  for (const brim_kernel *const *k = __start_cpu_kernels; k < __stop_cpu_kernels && count < KERNELS_MAX; k++) {
    kernels[count] = (brim_kernel){(*k)->op, prepare, realize, run, release};
    table[count] = &kernels[count];
    count++;
  }
  *out = table;
  return count;
}
