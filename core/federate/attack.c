#include "federate/attack.h"

#include <math.h>

#include "base/convert.h"
#include "base/permutation.h"
#include "brim/random.h"

#define CHOICE 2        /* streams of BRIM_STREAM_CLIENT: this one chooses the malicious clients */
#define NOISE_FIRST 256 /* noise: a stream for each parameter, beginning with this one */
#define PART 256        /* values that are converted at a time; a multiple of 4 */

bool brim_attack_has(const brim_setup *s, int64_t client)
{
  const brim_attack_settings *a = &s->settings->attack;
  const double clients = (double)s->settings->total_clients;
  brim_permutation order;
  if (a->kind == BRIM_ATTACK_NONE) return false;
  for (size_t i = 0; i < a->clients.count; i++)
    if (a->clients.item[i] == (double)client) return true;
  if (a->share == 0) return false;
  brim_permutation_init(&order, (uint64_t)s->settings->seed, BRIM_STREAM_CLIENT, CHOICE, (uint64_t)clients);
  return (double)brim_permutation_at(&order, (uint64_t)client) < round(a->share * clients);
}

void brim_attack_labels(const brim_attacker *t, int32_t *label, int64_t count)
{
  const int32_t classes = (int32_t)t->setup->data.train.classes;
  if (t->setup->settings->attack.kind != BRIM_ATTACK_LABEL_FLIP) return;
  for (int64_t i = 0; i < count; i++) label[i] = classes - 1 - label[i];
}

/* Draws four normal numbers, by Box and Muller. */
static void draw_normal(const brim_attacker *t, uint64_t seed, size_t parameter, int64_t at, double out[4])
{
  static const double two_pi = 6.283185307179586;
  const brim_philox r =
      brim_random4(seed, BRIM_STREAM_CLIENT, NOISE_FIRST + (uint32_t)parameter, (uint64_t)at / 4, (uint32_t)t->round);
  for (int i = 0; i < 4; i += 2) {
    const double radius = sqrt(-2 * log(1 - brim_uniform(r.v[i]))), angle = two_pi * brim_uniform(r.v[i + 1]);
    out[i] = radius * cos(angle);
    out[i + 1] = radius * sin(angle);
  }
}

/* Changes values at..at+count-1 of a parameter. */
static void change(const brim_attacker *t, size_t parameter, int64_t at, int64_t count, const double *global,
                   double *own)
{
  const brim_attack_settings *a = &t->setup->settings->attack;
  const brim_philox key =
      brim_random4((uint64_t)t->setup->settings->seed, BRIM_STREAM_CLIENT, CHOICE, (uint64_t)t->client, 0);
  double noise[4];
  for (int64_t i = 0; i < count; i++) {
    if (a->kind == BRIM_ATTACK_SIGN_FLIP) {
      own[i] = global[i] - a->scale * (own[i] - global[i]);
      continue;
    }
    if (i % 4 == 0) draw_normal(t, (uint64_t)key.v[0] << 32 | key.v[1], parameter, at + i, noise);
    own[i] += a->scale * noise[i % 4];
  }
}

brim_status brim_attack_update(const brim_attacker *t, brim_exec *lane, const brim_program *adopt, void *values)
{
  const brim_graph *g = adopt->graph;
  const int32_t kind = t->setup->settings->attack.kind;
  double own[PART], global[PART];
  for (size_t i = 0; i < g->parameter_count && kind != BRIM_ATTACK_LABEL_FLIP; i++) {
    const brim_tensor *to = g->parameter[i].value, *from = g->global[i];
    if (!brim_parameter_is_sent(&g->parameter[i]) || g->parameter[i].is_buffer) continue;
    const int64_t count = brim_shape_count(&to->shape);
    const size_t each = brim_dtype_bytes(to->dtype);
    char *at = values, *of_global = at + (size_t)count * each;
    BRIM_TRY(brim_exec_read(lane, adopt, to, at));
    BRIM_TRY(brim_exec_read(lane, adopt, from, of_global));
    for (int64_t k = 0; k < count; k += PART) {
      const int64_t n = count - k < PART ? count - k : PART;
      brim_convert(BRIM_DTYPE_F64, own, to->dtype, at + (size_t)k * each, (size_t)n);
      brim_convert(BRIM_DTYPE_F64, global, from->dtype, of_global + (size_t)k * each, (size_t)n);
      change(t, i, k, n, global, own);
      brim_convert(to->dtype, at + (size_t)k * each, BRIM_DTYPE_F64, own, (size_t)n);
    }
    BRIM_TRY(brim_exec_write(lane, adopt, to, at));
  }
  return BRIM_OK;
}
