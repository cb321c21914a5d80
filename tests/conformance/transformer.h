/* A tiny transformer, written like an author's model, for tests. */
#ifndef TESTS_CONFORMANCE_TRANSFORMER_H
#define TESTS_CONFORMANCE_TRANSFORMER_H
#include "brim/model.h"

typedef struct transformer_options {
  int64_t width, heads, kv_heads, layers, classes;
  int64_t vocabulary; /* number of tokens; 0: x has patches */
  int32_t causal;
  int32_t rotary;      /* rotary positions; 0: a parameter is added to x */
  int32_t approximate; /* gelu: enum brim_gelu */
  double dropout;
} transformer_options;

/* x: tokens [N,T] (i32) or patches [N,T,F]. Returns logits [N, classes]. */
brim_tensor *transformer_build(brim_graph *g, brim_tensor *x, transformer_options o);
#endif
