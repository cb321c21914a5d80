/* Attention by cuDNN's graphs (sdpa_graph.c). The plan uses the library's first suggestion that is allowed and works.
 *
 * Sums must have a fixed order. Up to compute capability 9, the order of sums in the library's gradients depends on the
 * form of the graph: see the end of sdpa_graph.c. The notes of an engine do not show the difference, because they are
 * the same for both forms. (An engine whose notes report a varying order is refused.) On later devices the form alone
 * does not fix the order, so gradients are not offered there.
 *
 * Planning compiles kernels, which takes half a second, so equal layers of a model share a plan. */
#include "../sdpa.h"

#include <math.h>
#include <stdlib.h>

#include "dnn_engines.h"
#include "library.h"
#include "sdpa_graph.h"

#define CAPABILITY_END_GRADIENTS 100
/* Gradients of earlier versions are wrong if the length of keys is not a multiple of 128. */
#define VERSION_LEAST 91600

struct cuda_sdpa_plan {
  cuda_dnn_plan made;
  cuda_sdpa wanted;
  int users;
  struct cuda_sdpa_plan **list, *next; /* the backend's list of plans, and the next plan in it */
  uint32_t used;                       /* one bit for each tensor of the graph; see sdpa_graph.h */
  uint64_t delta_bytes;                /* the bytes of delta, which precedes the library's scratch */
  float scale, least, one;
  int32_t queries, keys;
};

/* Checks limits that the library does not report, or reports only when a plan runs. */
static brim_status check(const cuda_backend *b, const cuda_sdpa *a)
{
  const int64_t limit = INT32_MAX;
  if (a->result == CUDA_SDPA_GRADIENTS && b->capability >= CAPABILITY_END_GRADIENTS)
    return brim_fail(BRIM_ENOTSUP, "cuDNN's gradients of attention do not support this device");
  if (cudnnGetVersion() < VERSION_LEAST) return brim_fail(BRIM_ENOTSUP, "attention needs cuDNN 9.16 or later");
  if (a->D % 8 != 0) return brim_fail(BRIM_ENOTSUP, "cuDNN's attention needs a head size that is a multiple of 8");
  if (a->causal && a->T > a->S)
    return brim_fail(BRIM_ENOTSUP, "cuDNN's attention does not support queries that see no key");
  if (a->T == 1 && a->S == 1) return brim_fail(BRIM_ENOTSUP, "cuDNN's attention needs more than one key");
  if (a->T > limit || a->S > limit)
    return brim_fail(BRIM_ENOTSUP, "cuDNN's attention supports sequences of at most 2147483647 positions");
  return BRIM_OK;
}

/* ---- the plan ---- */

/* Uses a suggested configuration if it works. */
static brim_status try(const cuda_backend *b, cuda_dnn_plan *plan, cudnnBackendDescriptor_t *configuration)
{
  cudnnBackendDescriptor_t tried;
  BRIM_TRY(cuda_dnn_make(plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &tried));
  if (!cuda_dnn_is_usable(b, tried, *configuration, CUDA_SDPA_SCRATCH_MAX, &plan->scratch_bytes)) {
    (void)cudnnBackendDestroyDescriptor(plan->made[--plan->count]);
    return BRIM_OK;
  }
  plan->plan = tried;
  plan->made[plan->count++] = *configuration;
  *configuration = NULL;
  return BRIM_OK;
}

static brim_status try_suggestions(const cuda_backend *b, cuda_dnn_plan *plan, cuda_dnn_suggestions *of)
{
  for (int64_t i = 0; i < of->count && !plan->plan; i++) {
    cuda_dnn_notes n;
    BRIM_TRY(cuda_dnn_notes_of(of->configuration[i], &n));
    if (!(n.numerical >> CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC & 1)) BRIM_TRY(try(b, plan, &of->configuration[i]));
  }
  return BRIM_OK;
}

static brim_status choose(const cuda_backend *b, cuda_dnn_plan *plan, cudnnBackendDescriptor_t graph)
{
  static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    cuda_dnn_suggestions found;
    brim_status status = cuda_dnn_suggest(graph, modes[i], &found);
    if (status == BRIM_OK) status = try_suggestions(b, plan, &found);
    cuda_dnn_drop_suggestions(&found);
    if (status != BRIM_OK || plan->plan) return status;
  }
  return brim_fail(BRIM_ENOTSUP, "cuDNN has no engine for this attention");
}

static brim_status make_plan(cuda_backend *b, cuda_sdpa_plan *p, const cuda_sdpa *sdpa)
{
  cudnnBackendDescriptor_t graph;
  p->scale = sdpa->scale;
  p->least = -INFINITY;
  p->one = 1;
  p->queries = (int32_t)sdpa->T;
  p->keys = (int32_t)sdpa->S;
  BRIM_TRY(cuda_sdpa_describe(b, &p->made, sdpa, &graph, &p->used));
  BRIM_TRY(choose(b, &p->made, graph));
  if (p->used >> CUDA_SDPA_DELTA & 1)
    p->delta_bytes = cuda_round_up((uint64_t)(sdpa->N * sdpa->heads * sdpa->T) * sizeof(float), CUDA_ALIGNMENT);
  return BRIM_OK;
}

/* ---- plans that are shared ---- */

static bool is_same(const cuda_sdpa *a, const cuda_sdpa *b)
{
  return a->result == b->result && a->type == b->type && a->N == b->N && a->T == b->T && a->S == b->S &&
         a->heads == b->heads && a->kv_heads == b->kv_heads && a->D == b->D && a->q_stride == b->q_stride &&
         a->k_stride == b->k_stride && a->scale == b->scale && a->causal == b->causal;
}

static cuda_sdpa_plan *find(cuda_backend *b, const cuda_sdpa *wanted)
{
  for (cuda_sdpa_plan *p = b->sdpa; p; p = p->next)
    if (is_same(&p->wanted, wanted)) return p;
  return NULL;
}

static void drop(cuda_sdpa_plan *p)
{
  while (p->made.count > 0) (void)cudnnBackendDestroyDescriptor(p->made.made[--p->made.count]);
  free(p);
}

static brim_status add(cuda_backend *b, const cuda_sdpa *wanted, cuda_sdpa_plan **out)
{
  cuda_sdpa_plan *made = brim_try_calloc(1, sizeof *made);
  if (!made) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the plan of attention");
  const brim_status status = make_plan(b, made, wanted);
  if (status != BRIM_OK) {
    drop(made);
    return status;
  }
  made->wanted = *wanted;
  made->list = &b->sdpa;
  made->next = b->sdpa;
  *out = b->sdpa = made;
  return BRIM_OK;
}

brim_status cuda_sdpa_prepare(cuda_backend *b, const cuda_sdpa *sdpa, cuda_sdpa_plan **plan, int64_t *at_once,
                              uint64_t *scratch_bytes)
{
  cuda_sdpa wanted = *sdpa;
  BRIM_TRY(check(b, sdpa));
  if (cuda_sdpa_sample_bytes(sdpa) > CUDA_SDPA_SCRATCH_MAX)
    return brim_fail(BRIM_ENOTSUP, "cuDNN's gradients of attention take too much scratch");
  wanted.N = cuda_sdpa_samples(sdpa);
  cuda_sdpa_plan *p = find(b, &wanted);
  if (!p) BRIM_TRY(add(b, &wanted, &p));
  p->users++;
  *at_once = wanted.N;
  *scratch_bytes = p->delta_bytes + (uint64_t)p->made.scratch_bytes;
  *plan = p;
  return BRIM_OK;
}

void cuda_sdpa_release(cuda_sdpa_plan *plan)
{
  if (!plan || --plan->users > 0) return;
  cuda_sdpa_plan **at = plan->list;
  while (*at != plan) at = &(*at)->next;
  *at = plan->next;
  drop(plan);
}

/* ---- runs ---- */

/* The library reads numbers from host memory when a kernel is launched or recorded. */
static void find_values(const cuda_sdpa_plan *p, const cuda_sdpa_values *v, void *scratch, void *at[CUDA_SDPA_UIDS])
{
  at[CUDA_SDPA_Q] = v->q;
  at[CUDA_SDPA_K] = v->k;
  at[CUDA_SDPA_V] = v->v;
  at[CUDA_SDPA_OUT] = v->y;
  at[CUDA_SDPA_LSE] = v->lse;
  at[CUDA_SDPA_DY] = v->dy;
  at[CUDA_SDPA_DQ] = v->dq;
  at[CUDA_SDPA_DK] = v->dk;
  at[CUDA_SDPA_DV] = v->dv;
  at[CUDA_SDPA_DELTA] = scratch;
  at[CUDA_SDPA_SCALE] = (void *)&p->scale;
  at[CUDA_SDPA_LEAST] = (void *)&p->least;
  at[CUDA_SDPA_QUERIES] = (void *)&p->queries;
  at[CUDA_SDPA_KEYS] = (void *)&p->keys;
  at[CUDA_SDPA_ONE] = (void *)&p->one;
}

static brim_status execute(cuda_backend *b, const cuda_sdpa_plan *p, cudnnBackendDescriptor_t pack, void *const *at,
                           void *scratch)
{
  int64_t uids[CUDA_SDPA_UIDS], count = 0;
  void *pointers[CUDA_SDPA_UIDS], *own = (char *)scratch + p->delta_bytes;
  for (int uid = 1; uid < CUDA_SDPA_UIDS; uid++)
    if (p->used >> uid & 1) {
      uids[count] = uid;
      pointers[count++] = at[uid];
    }
  BRIM_TRY(cuda_dnn_set_integers(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, count, uids));
  BRIM_TRY(cuda_dnn_set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers));
  BRIM_TRY(cuda_dnn_set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &own));
  BRIM_TRY(cuda_dnn_finalize(pack, "describing attention's values"));
  return cuda_dnn_check(CUDA_DNN_CALL("attention", cudnnBackendExecute(b->dnn, p->made.plan, pack)), "attention");
}

brim_status cuda_sdpa_run(cuda_backend *b, const cuda_sdpa_plan *plan, const cuda_sdpa_values *values, void *scratch)
{
  void *at[CUDA_SDPA_UIDS];
  cudnnBackendDescriptor_t pack;
  find_values(plan, values, scratch, at);
  BRIM_TRY(cuda_dnn_check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack),
                          "creating a descriptor"));
  const brim_status status = execute(b, plan, pack, at, scratch);
  (void)cudnnBackendDestroyDescriptor(pack);
  return status;
}
