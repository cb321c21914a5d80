/* Attention by the library: which nodes it computes, and its runs, some samples at a time if its plan requires that.
 * The kernels of attention.cu and attention_grad.cu compute the other nodes: fp32, dropout, queries that see no key,
 * documents, windows, soft caps, cached keys. */
#include "attention_library.h"

#include <stdlib.h>

typedef struct library_state {
  cuda_sdpa_plan *plan;
  enum cuda_sdpa_result result;
  int64_t runs;
  uint64_t query_bytes, key_bytes, lse_bytes; /* of one run's values */
} library_state;

static cuda_sdpa description_of(const brim_node *node, enum cuda_sdpa_result result)
{
  const brim_attention_attr *attr = &node->attr.attention;
  const brim_shape *q = &node->in[0]->shape, *k = &node->in[1]->shape;
  return (cuda_sdpa){.result = result,
                     .type = node->in[0]->dtype,
                     .N = q->dim[0],
                     .T = q->dim[1],
                     .S = k->dim[1],
                     .heads = attr->heads,
                     .kv_heads = attr->kv_heads,
                     .D = q->dim[2] / attr->heads,
                     .scale = (float)attr->scale,
                     .causal = attr->causal != 0};
}

/* Returns why the library is not asked, or NULL. */
static const char *reason_against(const brim_node *node, const cuda_sdpa *a)
{
  const brim_attention_attr *attr = &node->attr.attention;
  const bool has_places = node->in_count > 3 && node->in[node->in_count - 1]->dtype == BRIM_DTYPE_I32;
  if (a->type == BRIM_DTYPE_F32) return "cuDNN's attention needs precision=bf16 or fp16";
  if (attr->dropout_p > 0) return "cuDNN's attention does not expose its dropout mask";
  if (a->causal && a->T > a->S) return "cuDNN's attention does not support queries that see no key";
  if (has_places) return "brim does not give documents or cached keys to cuDNN's attention";
  if (attr->window > 0) return "brim does not give windows to cuDNN's attention";
  return attr->softcap > 0 ? "brim does not give soft caps to cuDNN's attention" : NULL;
}

brim_status cuda_attention_prepare(cuda_backend *b, const brim_node *node, enum cuda_sdpa_result result, void **state,
                                   brim_kernel_need *need)
{
  const cuda_sdpa a = description_of(node, result);
  int64_t at_once = 0;
  *state = NULL;
  need->refused = reason_against(node, &a);
  if (need->refused) return BRIM_OK;
  library_state *made = brim_try_calloc(1, sizeof *made);
  if (!made) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the plan of %s '%s'", node->op, node->name);
  const brim_status status = cuda_sdpa_prepare(b, &a, &made->plan, &at_once, &need->workspace_bytes);
  if (status != BRIM_OK) {
    free(made);
    if (status != BRIM_ENOTSUP) return status;
    need->refused = "cuDNN does not offer it";
    return BRIM_OK;
  }
  need->library = "cuDNN";
  made->result = result;
  made->runs = a.N / at_once;
  made->query_bytes = (uint64_t)(at_once * a.T * a.heads * a.D) * brim_dtype_bytes(a.type);
  made->key_bytes = (uint64_t)(at_once * a.S * a.kv_heads * a.D) * brim_dtype_bytes(a.type);
  made->lse_bytes = (uint64_t)(at_once * a.heads * a.T) * sizeof(float);
  *state = made;
  return BRIM_OK;
}

static void *part(const void *of, int64_t run, uint64_t bytes)
{
  return (char *)of + (uint64_t)run * bytes;
}

static cuda_sdpa_values values_of(const brim_launch *l, const library_state *s, int64_t run)
{
  void *const *in = l->in, *const *out = l->out;
  const bool back = s->result == CUDA_SDPA_GRADIENTS;
  cuda_sdpa_values v = {.q = part(in[0], run, s->query_bytes),
                        .k = part(in[1], run, s->key_bytes),
                        .v = part(in[2], run, s->key_bytes),
                        .y = part(back ? in[3] : out[0], run, s->query_bytes),
                        .lse = part(back ? in[4] : out[1], run, s->lse_bytes)};
  if (!back) return v;
  v.dy = part(in[5], run, s->query_bytes);
  v.dq = part(out[0], run, s->query_bytes);
  v.dk = part(out[1], run, s->key_bytes);
  v.dv = part(out[2], run, s->key_bytes);
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
