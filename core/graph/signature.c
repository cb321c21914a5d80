/* See signature.h. */
#include "graph/signature.h"

#include <inttypes.h>
#include <string.h>

static const char *type_name(uint32_t dtype)
{
  static const char *const names[] = {[BRIM_DTYPE_F32] = "f32", [BRIM_DTYPE_F64] = "f64",   [BRIM_DTYPE_I32] = "i32",
                                      [BRIM_DTYPE_U8] = "u8",   [BRIM_DTYPE_BF16] = "bf16", [BRIM_DTYPE_F16] = "f16"};
  return dtype < sizeof names / sizeof names[0] && names[dtype] ? names[dtype] : "?";
}

static bool is_of_samples(const brim_graph *g, const brim_tensor *t)
{
  return t == g->input || t == g->label || t->role == BRIM_ROLE_ACTIVATION;
}

/* Whether the tensor's first dimension is that of the samples; false for a parameter's copy in a smaller type. */
static bool follows_samples(const brim_graph *g, const brim_tensor *t)
{
  if (!is_of_samples(g, t)) return false;
  if (t->producer < 0) return true;
  const brim_node *n = g->node[t->producer];
  for (uint32_t i = 0; i < n->in_count; i++)
    if (is_of_samples(g, n->in[i])) return true;
  return false;
}

/* Prints a number without printf, because plans of large models have many. */
static void print_first(int64_t dim, int64_t batch, brim_text *out)
{
  if (batch > 0 && dim == batch) {
    brim_text_add(out, "N");
  } else if (batch > 0 && dim > 0 && dim % batch == 0) {
    brim_text_add(out, "N*");
    brim_text_int(out, dim / batch);
  } else if (batch > 0 && dim > 0 && batch % dim == 0) {
    brim_text_add(out, "N/");
    brim_text_int(out, batch / dim);
  } else {
    brim_text_int(out, dim);
  }
}

static void print_tensor(const brim_program *p, const brim_tensor *t, brim_text *out)
{
  const bool follows = follows_samples(p->graph, t);
  brim_text_add(out, " ");
  brim_text_add(out, type_name(t->dtype));
  brim_text_add(out, "[");
  for (int32_t d = 0; d < t->shape.rank; d++) {
    if (d > 0) brim_text_add(out, ",");
    if (d == 0 && follows)
      print_first(t->shape.dim[0], p->info.batch, out);
    else
      brim_text_int(out, t->shape.dim[d]);
  }
  brim_text_add(out, "]");
  if (t->channel_block <= 1) return;
  brim_text_add(out, "/");
  brim_text_int(out, t->channel_block);
}

/* Whether the node's states are offloaded, so that its time includes copies. */
static bool is_offloaded(const brim_program *p, const brim_node *n)
{
  for (uint32_t i = 0; i < n->out_count; i++)
    if (brim_graph_offloaded(p->graph, n->out[i]) >= 0) return true;
  return false;
}

static uint64_t hash_attr(const brim_node *n)
{
  return n->descriptor->hash ? n->descriptor->hash(&n->attr) : brim_op_hash(&n->attr);
}

void brim_signature_print(const brim_program *p, const brim_node *n, brim_text *out)
{
  brim_text_add(out, n->op);
  for (uint32_t i = 0; i < n->in_count; i++) print_tensor(p, n->in[i], out);
  brim_text_add(out, " >");
  for (uint32_t i = 0; i < n->out_count; i++) print_tensor(p, n->out[i], out);
  brim_text_printf(out, " %" PRIx64 " g%" PRId64 "%s%s", hash_attr(n), p->info.grain, p->info.training ? " t" : "",
                   is_offloaded(p, n) ? " host" : "");
}

/* ---- equal signatures ---- */

static bool is_alike(const brim_program *p, const brim_tensor *a, const brim_tensor *b)
{
  return a->dtype == b->dtype && a->channel_block == b->channel_block && brim_shape_equal(&a->shape, &b->shape) &&
         follows_samples(p->graph, a) == follows_samples(p->graph, b);
}

static bool are_alike(const brim_program *p, brim_tensor *const *a, brim_tensor *const *b, uint32_t count)
{
  bool alike = true;
  for (uint32_t i = 0; i < count && alike; i++) alike = is_alike(p, a[i], b[i]);
  return alike;
}

bool brim_signature_equal(const brim_program *p, const brim_node *a, const brim_node *b)
{
  /* Attributes are compared byte by byte, like their hashes. NOLINTBEGIN(bugprone-suspicious-memory-comparison) */
  return a->descriptor == b->descriptor && a->in_count == b->in_count && a->out_count == b->out_count &&
         memcmp(&a->attr, &b->attr, sizeof a->attr) == 0 && are_alike(p, a->in, b->in, a->in_count) &&
         are_alike(p, a->out, b->out, a->out_count) && is_offloaded(p, a) == is_offloaded(p, b);
  /* NOLINTEND(bugprone-suspicious-memory-comparison) */
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 32;
}

static uint64_t mix_tensors(uint64_t hash, brim_tensor *const *t, uint32_t count)
{
  for (uint32_t i = 0; i < count; i++) {
    hash = mix(hash, t[i]->dtype);
    for (int32_t d = 0; d < t[i]->shape.rank; d++) hash = mix(hash, (uint64_t)t[i]->shape.dim[d]);
  }
  return hash;
}

uint64_t brim_signature_hash(const brim_node *n)
{
  const uint64_t hash = mix((uint64_t)n->in_count << 32 | n->out_count, (uint64_t)(uintptr_t)n->descriptor);
  return mix_tensors(mix_tensors(hash, n->in, n->in_count), n->out, n->out_count);
}
