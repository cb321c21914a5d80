#include "federate/protect.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "brim/random.h"
#include "federate/fold.h"

#define PIECE 8192            /* values, an even number */
#define COUNT_STREAM 0xFFFFFF /* stream of the noise on the number of updates; other streams are tensors */

void brim_protection_init(brim_protection *p, const brim_setup *setup)
{
  const double clip_norm = setup->settings->privacy.clip_norm;
  *p = (brim_protection){.settings = setup->settings, .clip_norm = clip_norm, .next = clip_norm};
  p->weight = ldexp(1, -brim_fold_exponent((double)brim_setup_round_clients(setup)));
}

void brim_protection_close(brim_protection *p)
{
  free(p->sum);
  p->sum = NULL;
}

brim_status brim_protection_place(brim_protection *p, const brim_program *serve)
{
  uint64_t most = 0;
  p->values = 0;
  for (size_t i = 0; i < serve->graph->tensor_count; i++) {
    const brim_tensor *t = serve->graph->tensor[i];
    if (t->role != BRIM_ROLE_GRADIENT) continue;
    p->values += (double)brim_shape_count(&t->shape);
    most = t->bytes > most ? t->bytes : most;
  }
  free(p->sum);
  p->sum = NULL;
  if (!brim_privacy_has_noise(p->settings) || !p->settings->federate.train) return BRIM_OK;
  p->sum = brim_try_malloc(most);
  return p->sum ? BRIM_OK : brim_fail(BRIM_ENOMEM_HOST, "no host memory to add noise to the sum of the updates");
}

/* ---- clipping ---- */

/* Rounding changes each value of a weighted update by at most half of BRIM_FOLD_GRID. The norm is the root of a sum of
 * squares in double precision, whose relative error is at most values * 2^-53; the root halves it. */
double brim_protection_factor(const brim_protection *p, double norm)
{
  const double rounded = sqrt(p->values) * (BRIM_FOLD_GRID / 2) / p->weight, error = (p->values + 8) * 0x1p-53;
  if (p->clip_norm == 0 || !(norm > 0)) return 1;
  return fmin(1, fmax(0, p->clip_norm - rounded) / (norm * (1 + error)));
}

/* ---- noise ---- */

/* Draws two independent normal numbers (Box and Muller, 1958), from 64 random bits each; the largest possible magnitude
 * is 9.4. */
static void draw_normal(uint64_t seed, uint32_t stream, uint64_t item, uint32_t block, double out[2])
{
  const brim_philox r = brim_random4(seed, BRIM_STREAM_NOISE, stream, item, block);
  const uint64_t a = (uint64_t)r.v[0] << 32 | r.v[1], b = (uint64_t)r.v[2] << 32 | r.v[3];
  const double length = sqrt(-2 * log(((double)a + 0.5) * 0x1p-64)), angle = 2 * M_PI * ((double)b * 0x1p-64);
  out[0] = length * cos(angle);
  out[1] = length * sin(angle);
}

/* The key of a round's noise (client -1), or of the noise of a client in it. */
static uint64_t item_of(int64_t round, int64_t client)
{
  return (uint64_t)(client + 1) << 32 | (uint64_t)round;
}

/* Noise is rounded to multiples of BRIM_FOLD_GRID, like the sum, so the last bits of the noisy sum reveal nothing about
 * the updates (Mironov: On Significance of the Least Significant Bits for Differential Privacy, CCS 2012). `from` is
 * even. */
static void add_normal(const brim_noise *n, int64_t client, int64_t from, int64_t to)
{
  double two[2] = {0, 0};
  for (int64_t i = from; i < to; i++) {
    if (i % 2 == 0) draw_normal(n->seed, n->stream, item_of(n->round, client), (uint32_t)(i / 2), two);
    n->sum[i] += nearbyint(n->deviation * two[i % 2] / BRIM_FOLD_GRID) * BRIM_FOLD_GRID;
  }
}

/* Sums of multiples of BRIM_FOLD_GRID are exact in any order, so a client's noise need not be added where the client
 * trains. A client that has diverged sends only noise, so that the server cannot notice that it has diverged. */
void brim_protection_add_piece(const brim_protection *p, int64_t piece)
{
  const brim_noise *n = &p->noise;
  const int64_t from = piece * PIECE, to = n->count - from < PIECE ? n->count : from + PIECE;
  if (!n->client) add_normal(n, -1, from, to);
  for (int64_t k = 0; k < n->clients && n->client; k++)
    if (n->client[k].fate.outcome == BRIM_OUTCOME_ARRIVES) add_normal(n, n->client[k].client, from, to);
}

brim_status brim_protection_add_noise(brim_protection *p, brim_exec *exec, const brim_noise *of_round,
                                      brim_share_fn share, void *context)
{
  const brim_settings *s = p->settings;
  const brim_program *serve = brim_plan_program(brim_exec_plan(exec), BRIM_PROGRAM_UPDATE, 0);
  brim_status status = BRIM_OK;
  if (!p->sum) return BRIM_OK;
  p->noise = *of_round;
  p->noise.sum = p->sum;
  p->noise.deviation = brim_privacy_update_multiplier(s) * p->clip_norm * p->weight;
  p->noise.seed = brim_privacy_seed(s);
  if (!brim_privacy_is_local(s)) p->noise.client = NULL;
  for (size_t i = 0; i < serve->graph->tensor_count && status == BRIM_OK; i++) {
    const brim_tensor *t = serve->graph->tensor[i];
    if (t->role != BRIM_ROLE_GRADIENT) continue;
    p->noise.count = brim_shape_count(&t->shape);
    status = brim_exec_read(exec, serve, t, p->sum);
    if (status == BRIM_OK) status = share(context, (p->noise.count + PIECE - 1) / PIECE);
    if (status == BRIM_OK) status = brim_exec_write(exec, serve, t, p->sum);
    p->noise.stream++;
  }
  p->noise.sum = NULL;
  return status;
}

/* ---- an adaptive clip norm ---- */

/* Algorithm 1 of Andrew et al.: each update counts as 1/2 if it is within the clip norm, and as -1/2 if not, so that
 * one client changes the sum by 1/2 at most. */
void brim_protection_learn(brim_protection *p, int64_t round, const brim_client_result *client, int64_t count)
{
  const brim_settings *s = p->settings;
  double sum = 0, noise[2] = {0, 0};
  p->next = p->clip_norm;
  if (!brim_privacy_adapts(s) || !s->federate.train) return;
  for (int64_t i = 0; i < count; i++)
    if (client[i].arrived) sum += client[i].norm <= p->clip_norm ? 0.5 : -0.5;
  if (brim_privacy_has_noise(s)) draw_normal(brim_privacy_seed(s), COUNT_STREAM, item_of(round, -1), 0, noise);
  const double share = (sum + brim_privacy_count_stddev(s) * noise[0]) / (double)s->clients_per_round + 0.5;
  p->next *= exp(-s->privacy.clip_norm_lr * (share - s->privacy.target_quantile));
  p->next = fmin(fmax(p->next, 1e-30), 1e9);
}

void brim_protection_commit(brim_protection *p)
{
  p->clip_norm = p->next;
}

size_t brim_protection_tensors(brim_protection *p, brim_safetensor *out)
{
  if (!brim_privacy_adapts(p->settings)) return 0;
  if (out)
    *out = (brim_safetensor){
        .name = "privacy.clip_norm", .dtype = BRIM_DTYPE_F64, .shape = {1, {1}}, .data = &p->clip_norm};
  return 1;
}
