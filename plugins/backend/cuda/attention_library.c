/* Chooses the kernels that compute a node of attention:
 *
 *     the library                              16 bits, without dropout, documents, windows and soft caps
 *     attention_mma.cu, attention_mma_grad.cu  on tensor cores: 16 bits, heads of 8, 16 .. 128 numbers, no cached keys
 *     attention.cu, attention_grad.cu          fp32 multiply-adds: everything, but many times slower
 *
 * This file also runs the library's plans, some samples at a time if a plan requires that. */
#include "attention_library.h"

#include <stdlib.h>

#include "card.h"

/* About how many times as long the kernels without tensor cores take. Unknown for a single query, which mostly waits
 * for its keys. */
#define FP32_SLOWER 12

typedef struct library_state {
  cuda_sdpa_plan *plan;
  enum cuda_sdpa_result result;
  attention_form form;
  int64_t runs;
  /* Distances between the values of one run and the next, in bytes. */
  uint64_t query_bytes, key_bytes, y_bytes, lse_bytes;
} library_state;

static cuda_sdpa description_of(const brim_node *node, enum cuda_sdpa_result result, const attention_form *f)
{
  const brim_attention_attr *attr = &node->attr.attention;
  const brim_shape *q = &node->in[0]->shape;
  return (cuda_sdpa){.result = result,
                     .type = node->in[0]->dtype,
                     .N = q->dim[0],
                     .T = q->dim[1],
                     .S = f->keys,
                     .heads = attr->heads,
                     .kv_heads = attr->kv_heads,
                     .D = f->size,
                     .q_stride = f->q_stride,
                     .k_stride = f->k_stride,
                     .scale = (float)attr->scale,
                     .causal = attr->causal != 0};
}

static enum cuda_attention first_asked(const cuda_backend *b)
{
  return (enum cuda_attention)((const cuda_plugin_params *)b->params)->attention;
}

/* Returns why brim does not ask the library for this node, or NULL if it does. */
static const char *reason_against(const cuda_backend *b, const brim_node *node, const cuda_sdpa *a)
{
  const brim_attention_attr *attr = &node->attr.attention;
  const bool has_places = node->in[node->in_count - 1]->dtype == BRIM_DTYPE_I32;
  if (a->type == BRIM_DTYPE_F32) return "cuDNN's attention needs precision=bf16 or fp16";
  if (first_asked(b) != CUDA_ATTENTION_LIBRARY) return "backend.attention is not library";
  if (attr->dropout_p > 0) return "cuDNN's attention does not expose its dropout mask";
  if (a->causal && a->T > a->S) return "cuDNN's attention does not support queries that see no key";
  if (has_places) return "brim does not give documents or cached keys to cuDNN's attention";
  if (attr->window > 0) return "brim does not give windows to cuDNN's attention";
  return attr->softcap > 0 ? "brim does not give soft caps to cuDNN's attention" : NULL;
}

static brim_status prepare_library(cuda_backend *b, const brim_node *node, const cuda_sdpa *a,
                                   const attention_form *form, void **state, brim_kernel_need *need)
{
  int64_t at_once = 0;
  library_state *made = brim_try_calloc(1, sizeof *made);
  if (!made) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the plan of %s '%s'", node->op, node->name);
  const brim_status status = cuda_sdpa_prepare(b, a, &made->plan, &at_once, &need->workspace_bytes);
  if (status != BRIM_OK) {
    free(made);
    if (status != BRIM_ENOTSUP) return status;
    need->refused = "cuDNN does not offer it";
    return BRIM_OK;
  }
  need->library = "cuDNN";
  need->further_bytes = 2 * (uint64_t)a->N * cuda_sdpa_sample_bytes(a); /* written and read */
  made->result = a->result;
  made->form = *form;
  made->runs = a->N / at_once;
  made->query_bytes = (uint64_t)(at_once * a->T * a->q_stride) * brim_dtype_bytes(a->type);
  made->key_bytes = (uint64_t)(at_once * a->S * a->k_stride) * brim_dtype_bytes(a->type);
  made->y_bytes = (uint64_t)(at_once * a->T * a->heads * a->D) * brim_dtype_bytes(a->type);
  made->lse_bytes = (uint64_t)(at_once * a->heads * a->T) * sizeof(float);
  *state = made;
  return BRIM_OK;
}

static bool is_size_for_tensor_cores(const attention_form *form)
{
  return form->size % 8 == 0 && form->size <= ATTENTION_MMA_SIZE_MAX;
}

bool cuda_attention_takes_tensor_cores(const cuda_backend *b, const brim_node *node, const attention_form *form)
{
  return node->in[0]->dtype != BRIM_DTYPE_F32 && !node->attr.attention.cached && is_size_for_tensor_cores(form) &&
         first_asked(b) != CUDA_ATTENTION_OWN_FP32;
}

brim_status cuda_attention_prepare(cuda_backend *b, const brim_node *node, enum cuda_sdpa_result result, bool qkv,
                                   void **state, brim_kernel_need *need)
{
  const attention_form form = attention_form_of(node, qkv);
  const cuda_sdpa a = description_of(node, result, &form);
  *state = NULL;
  need->refused = reason_against(b, node, &a);
  if (!need->refused) BRIM_TRY(prepare_library(b, node, &a, &form, state, need));
  if (*state) return BRIM_OK;
  if (cuda_attention_takes_tensor_cores(b, node, &form))
    need->refused = NULL;
  else if (a.type != BRIM_DTYPE_F32 && !is_size_for_tensor_cores(&form))
    need->refused = "heads are not of a multiple of 8 numbers, at most 128, and cuDNN does not compute it either";
  need->slower = a.T > 1 ? FP32_SLOWER : 0;
  return BRIM_OK;
}

static void *part(const void *of, int64_t run, uint64_t bytes)
{
  return (char *)of + (uint64_t)run * bytes;
}

/* Returns keys or values, or their gradients: tensor `own`, or in a joined tensor the part from number `first` on. */
static void *keys(const brim_launch *l, const library_state *s, void *const *of, uint32_t own, int64_t first)
{
  if (!s->form.joined) return of[own];
  return (char *)of[0] + (uint64_t)first * brim_dtype_bytes(l->node->in[0]->dtype);
}

static cuda_sdpa_values values_of(const brim_launch *l, const library_state *s, int64_t run)
{
  const int64_t key = attention_first_key(l->node, &s->form), value = attention_first_value(l->node, &s->form);
  const uint32_t y = s->form.joined ? 1 : 3; /* index of y among the gradient's inputs; lse and dy follow */
  void *const *in = l->in, *const *out = l->out;
  const bool back = s->result == CUDA_SDPA_GRADIENTS;
  cuda_sdpa_values v = {.q = part(in[0], run, s->query_bytes),
                        .k = part(keys(l, s, in, 1, key), run, s->key_bytes),
                        .v = part(keys(l, s, in, 2, value), run, s->key_bytes),
                        .y = part(back ? in[y] : out[0], run, s->y_bytes),
                        .lse = part(back ? in[y + 1] : out[1], run, s->lse_bytes)};
  if (!back) return v;
  v.dy = part(in[y + 2], run, s->y_bytes);
  v.dq = part(out[0], run, s->query_bytes);
  v.dk = part(keys(l, s, out, 1, key), run, s->key_bytes);
  v.dv = part(keys(l, s, out, 2, value), run, s->key_bytes);
  return v;
}

brim_status cuda_attention_run(cuda_backend *b, const brim_launch *launch)
{
  const library_state *s = launch->state;
  for (int64_t run = 0; run < s->runs; run++) {
    const cuda_sdpa_values values = values_of(launch, s, run);
    BRIM_TRY(cuda_sdpa_run(b, s->plan, &values, launch->workspace));
  }
  return BRIM_OK;
}

void cuda_attention_release(void *self, void *state)
{
  library_state *s = state;
  (void)self;
  if (s) cuda_sdpa_release(s->plan);
  free(s);
}
