/* The table of operations. The linker collects the pointers that BRIM_OP() puts into the section brim_ops. */
#include "graph/op.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "base/text.h"

_Static_assert(offsetof(brim_op, traits) == 0, "see brim_node_traits()");
_Static_assert(sizeof(brim_attr) == sizeof((brim_attr){0}.reserve), "nodes of this ABI have room for 128 bytes");

extern const brim_op *const __start_brim_ops[] __attribute__((visibility("hidden")));
extern const brim_op *const __stop_brim_ops[] __attribute__((visibility("hidden")));

size_t brim_op_count(void)
{
  return (size_t)(__stop_brim_ops - __start_brim_ops);
}
const brim_op *brim_op_at(size_t i)
{
  return __start_brim_ops[i];
}

/* The table by name, with open addressing, because each new node looks up its operation. */
#define SLOTS 1024 /* a power of two, more than twice the operations */
static const brim_op *slot[SLOTS];
static pthread_once_t slots_once = PTHREAD_ONCE_INIT;

static size_t slot_of(const char *name)
{
  size_t i = (size_t)brim_hash(BRIM_HASH_START, name, strlen(name)) % SLOTS;
  while (slot[i] && strcmp(slot[i]->name, name) != 0) i = (i + 1) % SLOTS;
  return i;
}

static void fill_slots(void)
{
  assert(brim_op_count() < SLOTS / 2);
  for (size_t i = 0; i < brim_op_count(); i++) slot[slot_of(brim_op_at(i)->name)] = brim_op_at(i);
}

const brim_op *brim_op_find(const char *name)
{
  pthread_once(&slots_once, fill_slots);
  return slot[slot_of(name)];
}

brim_op_arity brim_op_arity_of(const brim_op *op)
{
  brim_op_arity arity = {0};
  bool begins = true, are_outputs = false; /* begins: the next character other than a space or '[' begins a name */
  uint32_t omitted = 0;
  for (const char *s = op->signature; *s; s++) {
    if (begins && *s == '[') {
      omitted++;
    } else if (begins && *s != ' ') {
      begins = false;
      if (brim_starts_with(s, "..."))
        arity.variadic = true;
      else if (are_outputs)
        arity.out++;
      else
        arity.in++, arity.optional += omitted > 0;
    } else if (*s == '[') { /* a shape */
      s += strcspn(s, "]");
    } else if (*s == ']') {
      omitted--;
    } else if (*s == ',' || *s == '>') {
      are_outputs = are_outputs || *s == '>';
      begins = true;
    }
  }
  return arity;
}

uint64_t brim_op_hash(const brim_attr *attr)
{
  const brim_attr zero = {.reserve = {0}};
  const uint64_t hash = brim_hash(BRIM_HASH_START, attr, sizeof *attr);
  return hash == brim_hash(BRIM_HASH_START, &zero, sizeof zero) ? 0 : hash;
}

bool brim_op_each_token(const brim_node *node)
{
  (void)node;
  return true;
}
bool brim_op_each_token_last(const brim_node *node)
{
  return node->in[0]->shape.rank >= 3;
}
bool brim_op_each_token_axis(const brim_node *node)
{
  return node->attr.move.axis >= 2;
}

/* Whether an earlier input is the same tensor. */
static bool is_repeated(const brim_node *node, uint32_t input)
{
  for (uint32_t i = 0; i < input; i++)
    if (node->in[i] == node->in[input]) return true;
  return false;
}

/* An output to which a kernel adds is read before it is written. */
static bool adds_to(const brim_node *node, uint32_t output)
{
  return (node->descriptor->accumulates & 1u << output) && node->out[output]->role == BRIM_ROLE_GRADIENT;
}

void brim_op_take_cost(const brim_op *op, const brim_node *node, brim_cost *out)
{
  const brim_tensor *counted = op->flops ? node->in[0] : node->out_count ? node->out[0] : NULL;
  out->flops = counted ? (op->flops ? op->flops : 1) * (uint64_t)brim_shape_count(&counted->shape) : 0;
  if (op->cost) op->cost(node, out);
}

brim_cost brim_op_cost(const brim_node *node)
{
  brim_cost cost = {0};
  for (uint32_t i = 0; i < node->in_count; i++)
    if (!is_repeated(node, i)) cost.bytes += node->in[i]->bytes;
  for (uint32_t i = 0; i < node->out_count; i++) cost.bytes += (1 + adds_to(node, i)) * node->out[i]->bytes;
  brim_op_take_cost(node->descriptor, node, &cost);
  return cost;
}
