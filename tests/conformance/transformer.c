/* The tiny transformer: layer norm before attention and before the MLP, with residual connections (as GPT-2 and ViT);
 * then the classes from the mean over all positions. */
#include "conformance/transformer.h"

#include <stdio.h>

#define NAME_MAX_BYTES 64

typedef struct block {
  brim_graph *g;
  int64_t number;
  char name[NAME_MAX_BYTES];
} block;

/* "blocks.1.fc2" */
static const char *name_of(block *b, const char *layer)
{
  snprintf(b->name, sizeof b->name, "blocks.%lld.%s", (long long)b->number, layer);
  return b->name;
}

static brim_tensor *add_attention(block *b, brim_tensor *x, const transformer_options *o)
{
  brim_graph *g = b->g;
  const int64_t kv_width = o->width / o->heads * o->kv_heads;
  brim_tensor *h = brim_layer_norm(g, name_of(b, "ln1"), x, 1e-5);
  brim_tensor *q = brim_linear(g, name_of(b, "q"), h, o->width);
  /* The keys have no bias, as in Whisper: it would change all scores of a query by the same amount, which softmax
   * ignores. */
  brim_tensor *k = brim_linear_no_bias(g, name_of(b, "k"), h, kv_width);
  brim_tensor *v = brim_linear(g, name_of(b, "v"), h, kv_width);
  if (o->rotary) {
    q = brim_rotary(g, q, (brim_rotary_options){.heads = o->heads});
    k = brim_rotary(g, k, (brim_rotary_options){.heads = o->kv_heads});
  }
  h = brim_attention(
      g, q, k, v,
      (brim_attention_options){.heads = o->heads, .kv_heads = o->kv_heads, .causal = o->causal, .dropout = o->dropout});
  h = brim_linear(g, name_of(b, "proj"), h, o->width);
  return brim_add(g, x, brim_dropout(g, h, o->dropout));
}

static brim_tensor *add_mlp(block *b, brim_tensor *x, const transformer_options *o)
{
  brim_graph *g = b->g;
  brim_tensor *h = brim_layer_norm(g, name_of(b, "ln2"), x, 1e-5);
  h = brim_gelu(g, brim_linear(g, name_of(b, "fc1"), h, 2 * o->width), o->approximate);
  h = brim_linear(g, name_of(b, "fc2"), h, o->width);
  return brim_add(g, x, brim_dropout(g, h, o->dropout));
}

brim_tensor *transformer_build(brim_graph *g, brim_tensor *x, transformer_options o)
{
  x = o.vocabulary ? brim_embedding(g, "embed", x, o.vocabulary, o.width) : brim_linear(g, "embed", x, o.width);
  if (!o.rotary) {
    const int64_t position[] = {brim_shape_of(x).dim[1], o.width};
    x = brim_add(g, x, brim_parameter_new(g, "position", 2, position, (brim_init){BRIM_INIT_NORMAL, 0.02}));
  }
  for (int64_t i = 0; i < o.layers; i++) {
    block b = {.g = g, .number = i};
    x = add_mlp(&b, add_attention(&b, x, &o), &o);
  }
  x = brim_mean(g, brim_layer_norm(g, "ln", x, 1e-5), 1, (int32_t[]){1}, 0);
  return brim_linear(g, "head", x, o.classes);
}
