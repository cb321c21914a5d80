#include "leaf.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "brim/host.h"

#define BYTES_MAX (UINT64_C(1) << 40)

/* Streams of BRIM_STREAM_DATA that plugin.c does not use. */
enum { STREAM_SIZE = 32, STREAM_MODEL, STREAM_SAMPLE };

/* A sequence of normally distributed numbers from one stream (Box and Muller, 1958). */
typedef struct normals {
  uint64_t seed, item;
  uint32_t stream, used;
  double left; /* the second number of a pair */
} normals;

static double next_normal(normals *n)
{
  if (n->used++ % 2 == 1) return n->left;
  const brim_philox r = brim_random4(n->seed, BRIM_STREAM_DATA, n->stream, n->item, n->used / 2);
  const double radius = sqrt(-2 * log(1 - brim_uniform(r.v[0]))), angle = 6.283185307179586 * brim_uniform(r.v[1]);
  n->left = radius * sin(angle);
  return radius * cos(angle);
}

static int64_t model_values(const leaf_options *o)
{
  return o->classes * (o->features + 1) + o->features;
}

brim_status leaf_bytes(const leaf_options *o, uint64_t *out)
{
  const double bytes =
      ((double)o->classes * (double)(o->features + 1) + (double)o->features) * (double)o->clients * sizeof(float);
  if (bytes > (double)BYTES_MAX)
    return brim_fail(BRIM_ECONFIG,
                     "dataset.clients=%" PRId64 " with models of %" PRId64 " features and %" PRId64
                     " classes take %.3g bytes, but at most %.3g are possible",
                     o->clients, o->features, o->classes, bytes, (double)BYTES_MAX);
  *out = (uint64_t)(model_values(o) * o->clients) * sizeof(float);
  return BRIM_OK;
}

/* ---- models ---- */

static void make_model(const leaf_options *o, int64_t client, float *model)
{
  normals n = {.seed = o->seed, .item = (uint64_t)client, .stream = STREAM_MODEL};
  const int64_t weights = o->classes * (o->features + 1);
  const double u = o->alpha * next_normal(&n), mean = o->beta * next_normal(&n);
  for (int64_t i = 0; i < weights; i++) model[i] = (float)(u + next_normal(&n));
  for (int64_t j = 0; j < o->features; j++) model[weights + j] = (float)(mean + next_normal(&n));
}

static double share_of(const leaf_options *o, int64_t client)
{
  normals n = {.seed = o->seed, .item = (uint64_t)client, .stream = STREAM_SIZE};
  return 50 + exp(4 + 2 * next_normal(&n));
}

/* Gives each client `least` samples, and its share of the rest. */
static void cut(const leaf_options *o, double all, int64_t count, int64_t least, int64_t *begin)
{
  double until = 0;
  for (int64_t k = 0; k < o->clients; k++) {
    until += share_of(o, k);
    begin[k + 1] = least * (k + 1) + (int64_t)(until / all * (double)(count - least * o->clients) + 0.5);
  }
  begin[o->clients] = count;
}

brim_status leaf_open(leaf *l, const leaf_options *o)
{
  uint64_t bytes;
  double all = 0;
  BRIM_TRY(leaf_bytes(o, &bytes));
  if (o->train_count < o->clients)
    return brim_fail(BRIM_ECONFIG,
                     "dataset.train_count is %" PRId64 ", but each of the %" PRId64
                     " clients of dataset.clients needs at least one sample",
                     o->train_count, o->clients);
  l->options = *o;
  l->model = brim_try_calloc((size_t)(model_values(o) * o->clients), sizeof *l->model);
  for (int i = 0; i < 2; i++) l->begin[i] = brim_try_calloc((size_t)o->clients + 1, sizeof *l->begin[i]);
  if (!l->model || !l->begin[0] || !l->begin[1]) {
    leaf_release(l);
    return brim_fail(BRIM_ENOMEM_HOST, "no memory for the models of %" PRId64 " clients", o->clients);
  }
  for (int64_t k = 0; k < o->clients; k++) {
    make_model(o, k, l->model + k * model_values(o));
    all += share_of(o, k);
  }
  cut(o, all, o->train_count, 1, l->begin[0]);
  cut(o, all, o->test_count, 0, l->begin[1]);
  return BRIM_OK;
}

void leaf_release(leaf *l)
{
  free(l->begin[0]);
  free(l->begin[1]);
  free(l->model);
  *l = (leaf){0};
}

/* ---- samples ---- */

int64_t leaf_client(const leaf *l, bool test, int64_t index)
{
  const int64_t *begin = l->begin[test];
  int64_t low = 0, high = l->options.clients - 1; /* finds the last client that begins at or before index */
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (begin[middle] <= index)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

void leaf_sample(const leaf *l, bool test, int64_t index, float *values, int32_t *label)
{
  const leaf_options *o = &l->options;
  const float *weight = l->model + leaf_client(l, test, index) * model_values(o),
              *bias = weight + o->classes * o->features, *mean = bias + o->classes;
  normals n = {.seed = o->seed, .item = (uint64_t)index, .stream = STREAM_SAMPLE + test};
  double most = -INFINITY;
  for (int64_t j = 0; j < o->features; j++)
    values[j] = (float)((double)mean[j] + pow((double)(j + 1), -0.6) * next_normal(&n));
  for (int64_t c = 0; c < o->classes; c++) {
    double sum = (double)bias[c];
    for (int64_t j = 0; j < o->features; j++) sum += (double)weight[c * o->features + j] * (double)values[j];
    if (sum <= most) continue;
    most = sum;
    *label = (int32_t)c;
  }
}
