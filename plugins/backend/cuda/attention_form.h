/* Describes how q, k and v lie in memory: as three tensors, or as parts of one (attention_qkv). For the host; C and
 * C++. */
#ifndef CUDA_ATTENTION_FORM_H
#define CUDA_ATTENTION_FORM_H
#include <stdbool.h>

#include "brim/ops.h"

#define ATTENTION_MMA_SIZE_MAX 128 /* the most numbers in a head for which the kernels on tensor cores work */

typedef struct attention_form {
  int64_t size, keys; /* D, S */
  /* Distances between neighbouring positions, in numbers: in q and dq; in k, v, dk and dv. */
  int64_t q_stride, k_stride;
  bool joined; /* in[0] holds keys and values too, and out[0] their gradients */
} attention_form;

/* qkv: the node's operation is attention_qkv, or its gradient. */
static inline attention_form attention_form_of(const brim_node *node, bool qkv)
{
  const brim_attention_attr *a = &node->attr.attention;
  const brim_shape *q = &node->in[0]->shape;
  attention_form f;
  f.joined = qkv && !a->cached;
  f.size = q->dim[2] / (qkv ? a->heads + 2 * a->kv_heads : a->heads);
  f.q_stride = q->dim[2];
  f.keys = node->in[f.joined ? 0 : 1]->shape.dim[1];
  f.k_stride = node->in[f.joined ? 0 : 1]->shape.dim[2];
  return f;
}

/* The first number of keys and of values in a joined tensor. */
static inline int64_t attention_first_key(const brim_node *node, const attention_form *f)
{
  return node->attr.attention.heads * f->size;
}
static inline int64_t attention_first_value(const brim_node *node, const attention_form *f)
{
  return (node->attr.attention.heads + node->attr.attention.kv_heads) * f->size;
}
#endif
