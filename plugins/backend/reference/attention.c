/* Attention and its gradient, for one query head h and its key head g = h / (heads / kv_heads); a head has D numbers.
 *
 *     score[t,s] = cap(scale * sum over d of  q[t,d] * k[s,d])    for the keys s that query t sees
 *     cap(x)     = softcap * tanh(x / softcap)                    x without a soft cap
 *     lse[t]     = log(sum over s of exp(score[t,s]))             0 if t sees no key
 *     p[t,s]     = exp(score[t,s] - lse[t])
 *     y[t,d]     = sum over s of  p[t,s] * z[t,s] * v[s,d]        z: dropout's mask / (1 - probability), or 1
 *
 *     dz[t,s]    = z[t,s] * sum over d of  dy[t,d] * v[s,d]
 *     slope[t,s] = 1 - (score[t,s] / softcap)^2                   1 without a soft cap
 *     ds[t,s]    = scale * slope[t,s] * p[t,s] * (dz[t,s] - sum over d of  dy[t,d] * y[t,d])
 *     dq[t,d]    = sum over s of  ds[t,s] * k[s,d]
 *     dk[s,d]    = sum over t and the heads h of g of  ds[t,s] * q[t,d]
 *     dv[s,d]    = sum over t and the heads h of g of  p[t,s] * z[t,s] * dy[t,d]
 *
 * A score is computed again wherever it is needed, so that no scores are stored. q, k and v, and likewise their
 * gradients, are separate tensors, or parts of one tensor (attention_qkv). */
#include <string.h>

#include "brim/random.h"
#include "reference.h"

typedef struct attention {
  const brim_attention_attr *attr;
  int64_t N, T, S, D;
  int64_t q_stride, k_stride; /* elements between positions: in q and dq; in k, v, dk and dv */
  const double *q, *k, *v;
  const int32_t *places; /* [N,T], or NULL */
  brim_dropout_key key;
  int64_t first_sample;
} attention;

/* Reads keys and values that are separate inputs. */
static void read_keys(attention *a, const brim_launch *launch)
{
  const brim_shape *k = &launch->node->in[1]->shape;
  a->S = k->dim[1];
  a->k_stride = k->dim[2];
  a->k = launch->in[1];
  a->v = launch->in[2];
}

/* heads: the number of heads in a row of in[0]. */
static attention attention_with(const brim_launch *launch, int64_t heads)
{
  const brim_attention_attr *attr = &launch->node->attr.attention;
  const brim_shape *q = &launch->node->in[0]->shape;
  return (attention){.attr = attr,
                     .N = q->dim[0],
                     .T = q->dim[1],
                     .D = q->dim[2] / heads,
                     .q_stride = q->dim[2],
                     .q = launch->in[0],
                     .key =
                         brim_dropout_key_make(launch->step->seed, launch->step->step, attr->stream, attr->dropout_p),
                     .first_sample = launch->step->first_sample};
}

static attention attention_of(const brim_launch *launch)
{
  attention a = attention_with(launch, launch->node->attr.attention.heads);
  read_keys(&a, launch);
  return a;
}

/* q, k and v are in one tensor, or in three tensors if keys are cached. */
static attention attention_qkv_of(const brim_launch *launch)
{
  const brim_attention_attr *attr = &launch->node->attr.attention;
  attention a = attention_with(launch, attr->heads + 2 * attr->kv_heads);
  a.S = a.T;
  a.k_stride = a.q_stride;
  a.k = a.q + attr->heads * a.D;
  a.v = a.k + attr->kv_heads * a.D;
  if (attr->cached) read_keys(&a, launch);
  return a;
}

/* Return the positions in memory of the D numbers of a query, of a key and of a result. */
static int64_t at_query(const attention *a, int64_t n, int64_t h, int64_t t)
{
  return (n * a->T + t) * a->q_stride + h * a->D;
}
static int64_t at_key(const attention *a, int64_t n, int64_t h, int64_t s)
{
  const int64_t sharing = a->attr->heads / a->attr->kv_heads;
  return (n * a->S + s % a->S) * a->k_stride + h / sharing * a->D; /* for s >= S, a key in the cache */
}
static int64_t at_result(const attention *a, int64_t n, int64_t h, int64_t t)
{
  return ((n * a->T + t) * a->attr->heads + h) * a->D;
}

/* The keys first .. end - 1. */
typedef struct range {
  int64_t first, end;
} range;

/* Returns the keys that query t sees. Without places, the last query sees all keys. */
static range seen_by(const attention *a, int64_t n, int64_t t)
{
  const int64_t window = a->attr->window, place = a->places ? a->places[n * a->T + t] : t;
  range seen = {0, a->S};
  if (!a->attr->causal) return seen;
  seen.end = a->attr->cached ? place + 1 : t + a->S - a->T + 1;
  if (seen.end < 0) seen.end = 0;
  if (!a->attr->cached && place < t) seen.first = t - place;
  if (window > 0 && seen.first < seen.end - window) seen.first = seen.end - window;
  return seen;
}

static double dot(const double *a, const double *b, int64_t count)
{
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
  return sum;
}

static double score(const attention *a, int64_t n, int64_t h, int64_t t, int64_t s)
{
  const double x = a->attr->scale * dot(&a->q[at_query(a, n, h, t)], &a->k[at_key(a, n, h, s)], a->D);
  return a->attr->softcap > 0 ? a->attr->softcap * tanh(x / a->attr->softcap) : x;
}

/* Returns the derivative of the soft cap, given its result. */
static double slope(const attention *a, double capped)
{
  const double share = a->attr->softcap > 0 ? capped / a->attr->softcap : 0;
  return 1 - share * share;
}

static double mask(const attention *a, int64_t n, int64_t h, int64_t t, int64_t s)
{
  if (a->attr->dropout_p == 0) return 1;
  const int64_t element = (h * a->T + t) * a->S + s;
  return brim_dropout_keep(&a->key, a->first_sample + n, element) / (1 - a->attr->dropout_p);
}

static double log_sum_exp(const attention *a, int64_t n, int64_t h, int64_t t)
{
  const range seen = seen_by(a, n, t);
  if (seen.first >= seen.end) return 0;
  double greatest = score(a, n, h, t, seen.first), sum = 0;
  for (int64_t s = seen.first + 1; s < seen.end; s++) {
    const double value = score(a, n, h, t, s);
    if (is_greater(value, greatest)) greatest = value;
  }
  for (int64_t s = seen.first; s < seen.end; s++) sum += exp(score(a, n, h, t, s) - greatest);
  return greatest + log(sum);
}

static brim_status attend(const attention *a, double *y, double *lse)
{
  for (int64_t n = 0; n < a->N; n++)
    for (int64_t h = 0; h < a->attr->heads; h++)
      for (int64_t t = 0; t < a->T; t++) {
        double *yt = &y[at_result(a, n, h, t)], *lse_t = &lse[(n * a->attr->heads + h) * a->T + t];
        *lse_t = log_sum_exp(a, n, h, t);
        for (int64_t d = 0; d < a->D; d++) yt[d] = 0;
        const range seen = seen_by(a, n, t);
        for (int64_t s = seen.first; s < seen.end; s++) {
          const double weight = exp(score(a, n, h, t, s) - *lse_t) * mask(a, n, h, t, s);
          for (int64_t d = 0; d < a->D; d++) yt[d] += weight * a->v[at_key(a, n, h, s) + d];
        }
      }
  return BRIM_OK;
}

REFERENCE(attention_forward, "attention")
{
  attention a = attention_of(launch);
  if (launch->node->in_count > 3) a.places = launch->in[3];
  return attend(&a, launch->out[0], launch->out[1]);
}

REFERENCE(attention_qkv, "attention_qkv")
{
  attention a = attention_qkv_of(launch);
  const uint32_t places = a.attr->cached ? 3 : 1;
  if (launch->node->in_count > places) a.places = launch->in[places];
  return attend(&a, launch->out[0], launch->out[1]);
}

/* Further inputs and the results of the gradient. */
typedef struct gradient {
  const double *lse, *dy;
  double *dq, *dk, *dv;
} gradient;

/* Adds the contributions of query t in head h to the gradients. */
static void send_back(const attention *a, const gradient *g, int64_t n, int64_t h, int64_t t)
{
  const int64_t D = a->D;
  const double *q = &a->q[at_query(a, n, h, t)], *dy = &g->dy[at_result(a, n, h, t)];
  const double lse = g->lse[(n * a->attr->heads + h) * a->T + t];
  double *dq = &g->dq[at_query(a, n, h, t)], dy_y = 0;

  /* The sum of dy * y, computed from the terms of y. The stored y may have few digits, and the later difference would
   * amplify its error. */
  const range seen = seen_by(a, n, t);
  for (int64_t s = seen.first; s < seen.end; s++)
    dy_y += exp(score(a, n, h, t, s) - lse) * mask(a, n, h, t, s) * dot(dy, &a->v[at_key(a, n, h, s)], D);
  for (int64_t s = seen.first; s < seen.end; s++) {
    const int64_t key = at_key(a, n, h, s);
    const double capped = score(a, n, h, t, s), p = exp(capped - lse), z = mask(a, n, h, t, s);
    const double ds = a->attr->scale * slope(a, capped) * p * (z * dot(dy, &a->v[key], D) - dy_y);
    for (int64_t d = 0; d < D; d++) {
      dq[d] += ds * a->k[key + d];
      g->dk[key + d] += ds * q[d];
      g->dv[key + d] += p * z * dy[d];
    }
  }
}

/* The results may be parts of one tensor, so all are set to 0 before anything is added to them. */
static brim_status send_all_back(const attention *a, const gradient *g, const brim_launch *launch)
{
  for (uint32_t i = 0; i < launch->node->out_count; i++)
    memset(launch->out[i], 0, (size_t)brim_shape_count(&launch->node->out[i]->shape) * sizeof(double));
  for (int64_t n = 0; n < a->N; n++)
    for (int64_t h = 0; h < a->attr->heads; h++)
      for (int64_t t = 0; t < a->T; t++) send_back(a, g, n, h, t);
  return BRIM_OK;
}

REFERENCE(attention_grad, "attention_grad")
{
  attention a = attention_of(launch);
  if (launch->node->in_count > 6) a.places = launch->in[6];
  const gradient g = {launch->in[4], launch->in[5], launch->out[0], launch->out[1], launch->out[2]};
  return send_all_back(&a, &g, launch);
}

REFERENCE(attention_qkv_grad, "attention_qkv_grad")
{
  attention a = attention_qkv_of(launch);
  if (launch->node->in_count > 4) a.places = launch->in[4];
  double *dqkv = launch->out[0];
  const gradient g = {launch->in[2], launch->in[3], dqkv, dqkv + (a.k - a.q), dqkv + (a.v - a.q)};
  return send_all_back(&a, &g, launch);
}
