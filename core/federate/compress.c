#include "federate/compress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "brim/random.h"
#include "brim/selector.h"
#include "graph/federate.h"

#define STREAM 3 /* stream of BRIM_STREAM_CLIENT: the key of a client's compression in a round */

brim_status brim_compressor_open(const brim_setup *setup, const brim_program *fold, brim_compressor *out)
{
  const int32_t kind = setup->settings->federate.compression;
  *out = (brim_compressor){.setup = setup};
  if (kind == BRIM_COMPRESSION_NONE) return BRIM_OK;
  const size_t bytes = (size_t)brim_graph_largest(fold->graph, true) * sizeof(double);
  out->own = brim_try_malloc(bytes);
  out->global = brim_try_malloc(bytes);
  if (kind == BRIM_COMPRESSION_TOP_K) out->sorted = brim_try_malloc(bytes);
  if (out->own && out->global && (out->sorted || kind != BRIM_COMPRESSION_TOP_K)) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM_HOST, "no host memory to compress an update");
}

void brim_compressor_close(brim_compressor *c)
{
  free(c->own);
  free(c->global);
  free(c->sorted);
  *c = (brim_compressor){0};
}

/* ---- one parameter: its change, in place ---- */

/* A parameter's change. */
typedef struct change {
  const brim_compressor *compressor;
  double *value; /* [count] */
  int64_t count;
  uint64_t seed; /* seed of the client and the round */
  uint32_t parameter;
} change;

/* Returns the smallest float that is at least `x`: clients send the scale as a float, and no value may exceed it. */
static double float_above(double x)
{
  const float near = (float)x;
  return (double)((double)near < x ? nextafterf(near, INFINITY) : near);
}

static double largest_value(const change *c)
{
  double most = 0;
  for (int64_t i = 0; i < c->count; i++) most = fmax(most, fabs(c->value[i]));
  return most;
}

/* Stochastic rounding to multiples of the largest value / levels, whose mean is the value (QSGD: Alistarh et al.,
 * NeurIPS 2017, with the largest value in place of the Euclidean norm; with 2 bits TernGrad: Wen et al., NeurIPS 2017).
 */
static void quantize(const change *c)
{
  const double levels = (double)((1 << (c->compressor->setup->settings->federate.compression_bits - 1)) - 1),
               most = float_above(largest_value(c));
  brim_philox four = {{0}};
  for (int64_t i = 0; i < c->count && most > 0; i++) {
    if (i % 4 == 0) four = brim_random4(c->seed, BRIM_STREAM_CLIENT, c->parameter, (uint64_t)i / 4, 0);
    const double place = fabs(c->value[i]) / most * levels, below = floor(place);
    const double level = below + (brim_uniform(four.v[i % 4]) < place - below ? 1 : 0);
    c->value[i] = copysign(level / levels * most, c->value[i]);
  }
}

/* Keeps only signs, times the mean magnitude (signSGD: Bernstein et al., ICML 2018; scaled as by Karimireddy et al.,
 * ICML 2019). */
static void keep_signs(const change *c)
{
  double sum = 0;
  for (int64_t i = 0; i < c->count; i++) sum += fabs(c->value[i]);
  const double mean = (double)(float)(sum / (double)c->count);
  for (int64_t i = 0; i < c->count; i++) c->value[i] = c->value[i] < 0 ? -mean : mean;
}

/* Keeps the values of largest magnitude, as floats; among equal magnitudes, those with the lower index (Stich et al.:
 * Sparsified SGD with Memory, NeurIPS 2018; its "memory" is error feedback). */
static void keep_largest(const change *c)
{
  double *magnitude = c->compressor->sorted;
  int64_t left = brim_setup_compressed_count(c->compressor->setup, c->count);
  for (int64_t i = 0; i < c->count; i++) magnitude[i] = fabs(c->value[i]);
  const double least = brim_value_of_rank(magnitude, c->count, c->count - left);
  for (int64_t i = 0; i < c->count; i++) left -= fabs(c->value[i]) > least;
  for (int64_t i = 0; i < c->count; i++) {
    const double size = fabs(c->value[i]);
    const bool is_kept = size > least || (size >= least && left-- > 0);
    c->value[i] = is_kept ? (double)(float)c->value[i] : 0;
  }
}

static void compress(const change *c)
{
  static void (*const compressions[])(const change *c) = {[BRIM_COMPRESSION_QUANTIZE] = quantize,
                                                          [BRIM_COMPRESSION_SIGN] = keep_signs,
                                                          [BRIM_COMPRESSION_TOP_K] = keep_largest};
  compressions[c->compressor->setup->settings->federate.compression](c);
}

/* ---- an update ---- */

/* Replaces the client's values by their change. Returns false if a change is not finite. */
static bool subtract(double *own, const double *global, int64_t count)
{
  bool is_finite = true;
  for (int64_t i = 0; i < count; i++) {
    own[i] -= global[i];
    is_finite = is_finite && isfinite(own[i]);
  }
  return is_finite;
}

/* Returns the index of the parameter with this value. */
static size_t find_parameter(const brim_graph *g, const brim_tensor *value)
{
  size_t i = 0;
  while (g->parameter[i].value != value) i++;
  return i;
}

/* Error feedback: Seide et al., 1-Bit Stochastic Gradient Descent, Interspeech 2014; Karimireddy et al., Error Feedback
 * Fixes SignSGD and other Gradient Compression Schemes, ICML 2019. */
brim_status brim_compressor_run(const brim_compressor *c, brim_kept *kept, const brim_keeping *lane,
                                const brim_program *fold, int64_t round)
{
  const brim_graph *g = fold->graph;
  const brim_philox key = brim_random4((uint64_t)c->setup->settings->seed, BRIM_STREAM_CLIENT, STREAM,
                                       (uint64_t)lane->client, (uint32_t)round);
  for (size_t i = 0; i < g->node_count && c->own; i++) {
    const brim_tensor *own = g->node[i]->in[0], *global = g->node[i]->in[1];
    const int64_t count = brim_shape_count(&own->shape);
    const size_t parameter = find_parameter(g, own);
    if (g->parameter[parameter].is_buffer) continue;
    BRIM_TRY(brim_exec_read_as(lane->exec, fold, own, BRIM_DTYPE_F64, c->own));
    BRIM_TRY(brim_exec_read_as(lane->exec, fold, global, BRIM_DTYPE_F64, c->global));
    if (!subtract(c->own, c->global, count)) continue;
    BRIM_TRY(brim_kept_add_residual(kept, lane, parameter, c->own));
    compress(&(change){c, c->own, count, (uint64_t)key.v[0] << 32 | key.v[1], (uint32_t)i});
    BRIM_TRY(brim_kept_stage_residual(kept, lane, parameter, c->own));
    for (int64_t k = 0; k < count; k++) c->own[k] += c->global[k];
    BRIM_TRY(brim_exec_write_as(lane->exec, fold, own, BRIM_DTYPE_F64, c->own));
  }
  return BRIM_OK;
}
