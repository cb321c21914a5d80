/* Building graphs: tensors, nodes, parameters and the first error. */
#include "graph/graph.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define TENSORS_MAX 1000000 /* far above real graphs; stops a model that adds nodes without end */
#define NAME_BYTES_MAX 200  /* limit for an author's name; names derived from it are a little longer */
/* Limit for one tensor: terabytes; the sum over a million such tensors fits in 64 bits. */
#define ELEMENTS_MAX ((int64_t)1 << 40)

brim_graph *brim_graph_create(uint32_t real, int64_t batch, bool training)
{
  brim_graph *g = brim_xcalloc(1, sizeof *g);
  g->real = real;
  g->batch = batch;
  g->training = training;
  g->norm_group = batch;
  g->file = "";
  return g;
}

void brim_graph_free(brim_graph *g)
{
  if (!g) return;
  brim_arena_release(&g->arena);
  free(g->tensor);
  free(g->has_samples);
  free(g->node);
  free(g->parameter);
  free(g->slot);
  free(g->further);
  free(g);
}

brim_status brim_graph_fail(brim_graph *g, const char *op, const char *name, const char *format, ...)
{
  if (g->status != BRIM_OK) return g->status;
  char what[1024];
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  brim_text text = {0};
  brim_text_printf(&text, "%s", op);
  if (name && name[0] && strcmp(name, op) != 0) brim_text_printf(&text, " '%s'", name);
  brim_text_printf(&text, ": %s", what);
  if (g->file[0]) brim_text_printf(&text, "\n  %s:%d", g->file, g->line);
  g->error = brim_arena_string(&g->arena, brim_text_str(&text));
  brim_text_release(&text);
  g->status = BRIM_EINVAL;
  return brim_fail(BRIM_EINVAL, "%s", g->error);
}

/* Whether the element count is small enough that sums of bytes cannot overflow. Every dimension must be at least 1. */
static bool has_sane_size(const brim_shape *shape)
{
  int64_t count = 1;
  for (int32_t i = 0; i < shape->rank; i++)
    if (shape->dim[i] < 1 || __builtin_mul_overflow(count, shape->dim[i], &count)) return false;
  return count <= ELEMENTS_MAX;
}

brim_tensor *brim_graph_tensor(brim_graph *g, uint32_t role, uint32_t dtype, const brim_shape *shape, const char *name)
{
  if (g->tensor_count >= TENSORS_MAX) {
    brim_graph_fail(g, "graph", NULL, "more than %d tensors", TENSORS_MAX);
    return NULL;
  }
  if (!has_sane_size(shape)) {
    char text[160];
    brim_graph_fail(g, "tensor", name, "shape %s is too large: it may have at most %lld elements",
                    brim_shape_format(text, sizeof text, shape), (long long)ELEMENTS_MAX);
    return NULL;
  }
  brim_tensor *t = BRIM_ARENA_NEW(&g->arena, brim_tensor, 1);
  t->id = (uint32_t)g->tensor_count;
  t->role = role;
  t->dtype = dtype;
  t->shape = *shape;
  t->name = brim_arena_string(&g->arena, name);
  t->producer = -1;
  t->channel_block = 1;
  t->bytes = (uint64_t)brim_shape_count(shape) * brim_dtype_bytes(dtype);
  size_t room = g->tensor_room;
  BRIM_GROW(g->has_samples, g->tensor_count, room);
  BRIM_GROW(g->tensor, g->tensor_count, g->tensor_room);
  g->has_samples[g->tensor_count] = role == BRIM_ROLE_DATA || role == BRIM_ROLE_CACHE;
  g->tensor[g->tensor_count++] = t;
  return t;
}

/* Returns the slot of a parameter's name in the table (open addressing), or the free slot for it. */
static size_t slot_of(const brim_graph *g, uint64_t hash, const char *name)
{
  size_t i = (size_t)hash & (g->slot_room - 1);
  for (; g->slot[i]; i = (i + 1) & (g->slot_room - 1)) {
    const brim_parameter *p = &g->parameter[g->slot[i] - 1];
    if (p->name_hash == hash && strcmp(p->value->name, name) == 0) break;
  }
  return i;
}

/* Enters the names of the parameters from `from` on. */
static void fill_slots(brim_graph *g, size_t from)
{
  for (size_t i = from; i < g->parameter_count; i++)
    g->slot[slot_of(g, g->parameter[i].name_hash, g->parameter[i].value->name)] = (uint32_t)i + 1;
}

/* Enters the last parameter's name. The table has at least twice the slots that are in use. */
static void add_to_slots(brim_graph *g)
{
  const bool full = 2 * g->parameter_count > g->slot_room;
  if (full) {
    free(g->slot);
    g->slot_room = g->slot_room ? 2 * g->slot_room : 64;
    g->slot = brim_xcalloc(g->slot_room, sizeof *g->slot);
  }
  fill_slots(g, full ? 0 : g->parameter_count - 1);
}

void brim_graph_cut_parameters(brim_graph *g, size_t count)
{
  g->parameter_count = count;
  for (size_t i = 0; i < g->slot_room; i++) g->slot[i] = 0;
  fill_slots(g, 0);
}

brim_parameter *brim_graph_named_parameter(const brim_graph *g, const char *name)
{
  if (g->parameter_count == 0) return NULL;
  const uint32_t found = g->slot[slot_of(g, brim_hash(BRIM_HASH_START, name, strlen(name)), name)];
  return found ? &g->parameter[found - 1] : NULL;
}

static brim_tensor *add_parameter(brim_graph *g, const char *name, const brim_shape *shape, brim_parameter p)
{
  p.name_hash = brim_hash(BRIM_HASH_START, name, strlen(name));
  if (brim_graph_named_parameter(g, name)) {
    brim_graph_fail(g, "parameter", name, "there is already a parameter of this name");
    return NULL;
  }
  p.is_frozen = g->freezing;
  p.is_small = g->freezing && g->frozen_type &&
               shape->rank >= 2; /* vectors are not stored small: they take little memory, and need more precision */
  brim_tensor *value = brim_graph_tensor(g, BRIM_ROLE_PARAMETER, g->real, shape, name);
  if (!value) return NULL;
  p.value = value;
  if (g->training && !p.is_frozen) {
    p.gradient =
        brim_graph_tensor(g, BRIM_ROLE_GRADIENT, g->real, shape, brim_arena_printf(&g->arena, "%s.grad", name));
    if (!p.gradient) return NULL;
  }
  BRIM_GROW(g->parameter, g->parameter_count, g->parameter_room);
  g->parameter[g->parameter_count++] = p;
  add_to_slots(g);
  return value;
}

brim_tensor *brim_graph_parameter(brim_graph *g, const char *name, const brim_shape *shape, brim_init init)
{
  return add_parameter(g, name, shape, (brim_parameter){.init = init});
}

brim_tensor *brim_graph_buffer(brim_graph *g, const char *name, const brim_shape *shape, brim_init init,
                               double momentum)
{
  return add_parameter(g, name, shape, (brim_parameter){.init = init, .is_buffer = true, .momentum = momentum});
}

brim_tensor *brim_graph_weight(brim_graph *g, const char *name, const char *what, const brim_shape *shape, double bound)
{
  return brim_graph_parameter(g, brim_arena_printf(&g->arena, "%s.%s", name, what), shape,
                              (brim_init){BRIM_INIT_UNIFORM, bound});
}

/* Returns the index of the parameter whose value is this tensor; the number of parameters if there is none. Parameters
 * are in the order of their tensors' ids. */
static size_t index_of(const brim_graph *g, const brim_tensor *x)
{
  size_t from = 0, to = x->role == BRIM_ROLE_PARAMETER ? g->parameter_count : 0;
  while (from < to) {
    const size_t middle = from + (to - from) / 2;
    if (g->parameter[middle].value == x) return middle;
    if (g->parameter[middle].value->id < x->id)
      from = middle + 1;
    else
      to = middle;
  }
  return g->parameter_count;
}

brim_tensor *brim_graph_gradient(const brim_graph *g, const brim_tensor *x)
{
  const size_t i = index_of(g, x);
  return i < g->parameter_count ? g->parameter[i].gradient : NULL;
}

static brim_tensor *add_further(brim_graph *g, brim_tensor *x, size_t parameter, const char *name)
{
  const bool is_parameter = parameter != BRIM_NO_PARAMETER;
  brim_tensor *gradient = brim_graph_tensor(g, BRIM_ROLE_GRADIENT, x->dtype, &x->shape, name);
  if (!gradient) return NULL;
  BRIM_GROW(g->further, g->further_count, g->further_room);
  g->further[g->further_count++] = (brim_further){gradient, parameter, is_parameter ? NULL : x};
  return gradient;
}

brim_tensor *brim_graph_next_gradient(brim_graph *g, brim_tensor *x)
{
  if (x->role != BRIM_ROLE_PARAMETER)
    return add_further(g, x, BRIM_NO_PARAMETER, brim_arena_printf(&g->arena, "%s.grad.sum", x->name));
  const size_t i = index_of(g, x);
  if (i == g->parameter_count || (!g->parameter[i].gradient && !g->slice)) return NULL;
  if (g->parameter[i].uses++ == 0) return g->parameter[i].gradient;
  return add_further(g, x, i, brim_arena_printf(&g->arena, "%s.grad.%u", x->name, g->parameter[i].uses));
}

const brim_parameter *brim_graph_parameter_of(const brim_graph *g, const brim_tensor *x)
{
  const size_t i = index_of(g, x);
  return i < g->parameter_count ? &g->parameter[i] : NULL;
}

bool brim_graph_is_frozen(const brim_graph *g, const brim_tensor *x)
{
  const brim_parameter *p = brim_graph_parameter_of(g, x);
  return p && p->is_frozen;
}

static brim_node *append(brim_graph *g, const brim_op *op, const char *name, brim_tensor *const *in, uint32_t in_count,
                         uint32_t out_count, const brim_attr *attr)
{
  brim_node *n = BRIM_ARENA_NEW(&g->arena, brim_node, 1);
  n->descriptor = op;
  n->op = op->name;
  n->name = brim_arena_string(&g->arena, name ? name : op->name);
  if (attr) n->attr = *attr;
  n->in_count = in_count;
  n->out_count = out_count;
  n->in = BRIM_ARENA_NEW(&g->arena, brim_tensor *, in_count);
  n->out = BRIM_ARENA_NEW(&g->arena, brim_tensor *, out_count);
  for (uint32_t i = 0; i < in_count; i++) n->in[i] = in[i];
  n->file = g->file;
  n->line = g->line;
  return n;
}

void brim_graph_append(brim_graph *g, brim_node *n)
{
  bool has_samples = false;
  n->index = (uint32_t)g->node_count;
  for (uint32_t i = 0; i < n->in_count; i++) has_samples = has_samples || g->has_samples[n->in[i]->id];
  for (uint32_t i = 0; i < n->out_count; i++) {
    if (n->out[i]->producer < 0) n->out[i]->producer = (int32_t)n->index;
    if (n->out[i]->role == BRIM_ROLE_ACTIVATION) g->has_samples[n->out[i]->id] = has_samples;
  }
  BRIM_GROW(g->node, g->node_count, g->node_room);
  g->node[g->node_count++] = n;
}

void brim_graph_cut_backward(brim_graph *g)
{
  for (size_t i = g->forward_count; i < g->node_count; i++)
    for (uint32_t k = 0; k < g->node[i]->out_count; k++)
      if (g->node[i]->out[k]->producer >= (int32_t)g->forward_count) g->node[i]->out[k]->producer = -1;
  g->node_count = g->forward_count;
}

size_t brim_graph_to_loss(const brim_graph *g)
{
  const size_t count = g->metrics ? (size_t)(g->metrics->producer + 1) : 0;
  return count > g->forward_count ? count : g->forward_count;
}

/* Names are keys in checkpoints and appear in messages, so their characters and length are restricted. */
bool brim_graph_named(brim_graph *g, const char *op, const char *name)
{
  if (g->status != BRIM_OK) return false;
  const size_t length = name ? strlen(name) : 0;
  bool plain = true;
  for (size_t i = 0; i < length; i++)
    plain = plain && (unsigned char)name[i] > ' ' && name[i] != '"' && name[i] != '\\' && name[i] != 0x7f;
  if (length == 0)
    brim_graph_fail(g, op, NULL, "it needs a name, under which checkpoints store its parameters");
  else if (length > NAME_BYTES_MAX)
    brim_graph_fail(g, op, NULL, "a name of %zu bytes, '%.40s...', is too long: at most %d", length, name,
                    NAME_BYTES_MAX);
  else if (!plain || strcmp(name, "__metadata__") == 0)
    brim_graph_fail(g, op, NULL, "'%s' cannot be a name in a checkpoint: %s", name,
                    plain ? "safetensors files reserve it"
                          : "spaces, quotes, backslashes and control characters are not allowed");
  return g->status == BRIM_OK;
}

bool brim_graph_accepts(brim_graph *g, const char *op, const char *name, const brim_tensor *x)
{
  if (!x) brim_graph_fail(g, op, name, "the input is NULL");
  if (x && (x->id >= g->tensor_count || g->tensor[x->id] != x))
    brim_graph_fail(g, op, name,
                    "the input belongs to another graph: a build function must not keep tensors between its calls");
  return g->status == BRIM_OK;
}

bool brim_graph_accepts_real(brim_graph *g, const char *op, const char *name, const brim_tensor *x)
{
  if (!brim_graph_accepts(g, op, name, x)) return false;
  if (x->dtype == BRIM_DTYPE_I32 || x->dtype == BRIM_DTYPE_U8)
    brim_graph_fail(g, op, name, "'%s' holds indices (%s), not real numbers", x->name, brim_dtype_name(x->dtype));
  return g->status == BRIM_OK;
}

bool brim_graph_needs_list(brim_graph *g, const char *op, const char *name, const void *list, const char *what)
{
  if (!list) brim_graph_fail(g, op, name, "%s is NULL", what);
  return g->status == BRIM_OK;
}

bool brim_graph_needs_samples(brim_graph *g, const char *op, const char *name, const brim_tensor *x)
{
  char text[96];
  if (!brim_graph_has_samples(g, x))
    brim_graph_fail(g, op, name, "'%s' %s is computed from parameters alone, so it has no samples", x->name,
                    brim_shape_format(text, sizeof text, &x->shape));
  return g->status == BRIM_OK;
}

bool brim_graph_accepts_together(brim_graph *g, const char *op, const char *name, brim_tensor *const *x, size_t count)
{
  bool any = false;
  for (size_t i = 0; i < count; i++) any = any || brim_graph_has_samples(g, x[i]);
  for (size_t i = 0; any && i < count; i++)
    if (!brim_graph_needs_samples(g, op, name, x[i])) return false;
  return true;
}

brim_node *brim_graph_node(brim_graph *g, const char *op, const char *name, brim_tensor *const *in, uint32_t in_count,
                           const brim_attr *attr)
{
  if (g->status != BRIM_OK) return NULL;
  for (uint32_t i = 0; i < in_count; i++) {
    if (!in[i] && in_count > 1) brim_graph_fail(g, op, name, "input %u of %u is NULL", i + 1, in_count);
    if (!brim_graph_accepts(g, op, name, in[i])) return NULL;
  }
  const brim_op *descriptor = brim_op_find(op);
  assert(descriptor && descriptor->infer);
  const brim_op_arity arity = brim_op_arity_of(descriptor);
  assert(in_count <= arity.in || arity.variadic);
  assert(in_count + arity.optional >= arity.in);
  brim_node *n = append(g, descriptor, name, in, in_count, arity.out, attr);
  if (descriptor->infer(g, n) != BRIM_OK) return NULL;
  for (uint32_t i = 0; i < n->out_count; i++)
    if (!n->out[i]) return NULL; /* the graph has the error */
  brim_graph_append(g, n);
  return n;
}

brim_node *brim_graph_node_into(brim_graph *g, const char *op, const char *name, brim_tensor *const *in,
                                uint32_t in_count, brim_tensor *const *out, uint32_t out_count, const brim_attr *attr)
{
  if (g->status != BRIM_OK) return NULL;
  brim_node *n = append(g, brim_op_find(op), name, in, in_count, out_count, attr);
  for (uint32_t i = 0; i < out_count; i++) n->out[i] = out[i];
  brim_graph_append(g, n);
  return n;
}

brim_tensor *brim_graph_apply(brim_graph *g, const char *op, const char *name, brim_tensor *const *in,
                              uint32_t in_count, const brim_attr *attr)
{
  brim_node *n = brim_graph_node(g, op, name, in, in_count, attr);
  return n ? n->out[0] : NULL;
}

brim_tensor *brim_graph_like(brim_graph *g, const brim_node *node, const brim_shape *shape)
{
  return brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, node->in[0]->dtype, shape, node->name);
}

int32_t brim_graph_axis(brim_graph *g, const char *op, const brim_tensor *x, int32_t axis)
{
  const int32_t rank = x->shape.rank;
  if (axis >= -rank && axis < rank) return axis < 0 ? axis + rank : axis;
  char text[96];
  brim_graph_fail(g, op, NULL, "%s has no axis %d", brim_shape_format(text, sizeof text, &x->shape), axis);
  return -1;
}

uint64_t brim_graph_hash(const brim_graph *g)
{
  uint64_t hash = BRIM_HASH_START;
  for (size_t i = 0; i < g->parameter_count; i++) {
    const brim_tensor *t = g->parameter[i].value;
    hash = brim_hash(hash, t->name, strlen(t->name) + 1);
    for (int32_t d = 0; d < t->shape.rank; d++) hash = brim_hash(hash, &t->shape.dim[d], sizeof t->shape.dim[d]);
  }
  return hash;
}

const char *brim_shape_format(char *out, size_t room, const brim_shape *shape)
{
  int length = snprintf(out, room, "[");
  for (int32_t i = 0; i < shape->rank && length > 0 && (size_t)length < room; i++)
    length += snprintf(out + length, room - (size_t)length, "%s%lld", i ? ", " : "", (long long)shape->dim[i]);
  if (length > 0 && (size_t)length < room) snprintf(out + length, room - (size_t)length, "]");
  return out;
}
