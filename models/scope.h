/* Names of layers within a part of a model: the prefix "blocks.11" makes "blocks.11.attn.qkv" of "attn.qkv". */
#ifndef BRIM_MODELS_SCOPE_H
#define BRIM_MODELS_SCOPE_H
#include <stdio.h>

typedef struct scope {
  char prefix[64], name[160];
} scope;

/* Returns a layer's full name, valid until the next call. */
static inline const char *in(scope *s, const char *layer)
{
  snprintf(s->name, sizeof s->name, "%s.%s", s->prefix, layer);
  return s->name;
}
#endif
