/* A bandit that predicts a client's reward from features of the client, and adds the uncertainty of the prediction (Li,
 * Chu, Langford, Schapire: A Contextual-Bandit Approach to Personalized News Article Recommendation, WWW 2010,
 * algorithm 1, with one model for all arms).
 *
 *     score(k) = theta . x(k) + alpha sqrt(x(k)' inv(A) x(k)),  theta = inv(A) b
 *     A <- A + x x',  b <- b + reward x,  from A = I and b = 0
 *
 * x consists of 1; loss / mean loss; samples / mean samples; 1 if never seen; rounds since its last training / rounds;
 * and mean time / time. The reward is the client's loss in a round divided by the round's mean loss. If the client is
 * slower than the mean, the reward is multiplied by mean time / time. It is 0 if the client's update did not arrive.
 *
 * A client never seen has average loss and time. The entry "1 if never seen" of x lets the model learn the value of new
 * clients. At first the uncertainty is highest for the clients with the most samples. */
#include <string.h>

#include "brim/brim.h"

#define D 6

typedef struct settings {
  double alpha;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(F64, settings, alpha, "1", "[0,1e6]", "weight of the uncertainty of a prediction"),
    BRIM_PARAMS_END,
};

/* State: A - I and b; and for each client its x when it was last selected, as floats, two in each number. */
static void state(const void *self, const brim_clients *clients, int64_t *own, int64_t *of_client)
{
  (void)self;
  (void)clients;
  *own = D * D + D;
  *of_client = D / 2;
}

typedef struct model {
  double inverse[D][D], theta[D], alpha;
  double loss, samples, seconds; /* means over the clients */
} model;

/* Gauss-Jordan elimination. A is at least I, so no pivot is below 1. */
static void invert(double a[D][D], double inverse[D][D])
{
  for (int i = 0; i < D; i++)
    for (int j = 0; j < D; j++) inverse[i][j] = i == j;
  for (int p = 0; p < D; p++) {
    const double pivot = a[p][p];
    for (int j = 0; j < D; j++) {
      a[p][j] /= pivot;
      inverse[p][j] /= pivot;
    }
    for (int i = 0; i < D; i++) {
      const double factor = a[i][p];
      for (int j = 0; j < D && i != p; j++) {
        a[i][j] -= factor * a[p][j];
        inverse[i][j] -= factor * inverse[p][j];
      }
    }
  }
}

static void make_model(const brim_selection_query *q, double alpha, model *m)
{
  double a[D][D], samples = 0;
  for (int i = 0; i < D; i++)
    for (int j = 0; j < D; j++) a[i][j] = q->own[i * D + j] + (i == j);
  invert(a, m->inverse);
  for (int i = 0; i < D; i++) {
    m->theta[i] = 0;
    for (int j = 0; j < D; j++) m->theta[i] += m->inverse[i][j] * q->own[D * D + j];
  }
  for (int64_t i = 0; i < q->candidates; i++) samples += (double)q->clients->samples[q->candidate[i]];
  m->alpha = alpha;
  m->samples = samples / (double)q->candidates;
  m->loss = brim_mean_known(q, q->clients->loss);
  m->seconds = brim_mean_known(q, q->clients->seconds);
}

static void describe(const model *m, const brim_selection_query *q, int64_t k, float x[D])
{
  const brim_clients *c = q->clients;
  const bool is_new = c->last_round[k] < 0;
  x[0] = 1;
  x[1] = isfinite(c->loss[k]) && m->loss > 0 ? (float)((double)c->loss[k] / m->loss) : 1;
  x[2] = (float)((double)c->samples[k] / m->samples);
  x[3] = is_new;
  x[4] = is_new ? 1 : (float)(q->round - c->last_round[k]) / (float)(q->round + 1);
  x[5] = isfinite(c->seconds[k]) && c->seconds[k] > 0 ? (float)(m->seconds / (double)c->seconds[k]) : 1;
}

static double score(const brim_selection_query *q, const void *context, int64_t client)
{
  const model *m = context;
  float x[D];
  double mean = 0, variance = 0;
  describe(m, q, client, x);
  for (int i = 0; i < D; i++) {
    double row = 0;
    for (int j = 0; j < D; j++) row += m->inverse[i][j] * (double)x[j];
    variance += row * (double)x[i];
    mean += m->theta[i] * (double)x[i];
  }
  return mean + m->alpha * sqrt(variance) + brim_score_tie(q, client);
}

static brim_status select_clients(void *self, const brim_selection_query *q, brim_selection *out)
{
  const settings *s = self;
  model m;
  make_model(q, s->alpha, &m);
  BRIM_TRY(brim_select_highest(q, score, &m, out));
  for (int64_t i = 0; i < out->count; i++) {
    float x[D];
    describe(&m, q, out->client[i], x);
    memcpy(&q->of_client[out->client[i] * (D / 2)], x, sizeof x);
  }
  return BRIM_OK;
}

static brim_status learn(void *self, const brim_selection_result *r)
{
  (void)self;
  const brim_clients *c = r->clients;
  double loss = 0, seconds = 0, timed = 0, arrived = 0;
  for (int64_t i = 0; i < r->count; i++) {
    const int64_t k = r->client[i];
    arrived += r->arrived[i];
    loss += r->arrived[i] ? (double)c->loss[k] : 0;
    timed += isfinite(c->seconds[k]);
    seconds += isfinite(c->seconds[k]) ? (double)c->seconds[k] : 0;
  }
  for (int64_t i = 0; i < r->count; i++) {
    const int64_t k = r->client[i];
    float x[D];
    memcpy(x, &r->of_client[k * (D / 2)], sizeof x);
    double reward = r->arrived[i] && loss > 0 ? (double)c->loss[k] * arrived / loss : 0;
    if ((double)c->seconds[k] * timed > seconds) reward *= seconds / timed / (double)c->seconds[k];
    for (int a = 0; a < D; a++) {
      for (int b = 0; b < D; b++) r->own[a * D + b] += (double)x[a] * (double)x[b];
      r->own[D * D + a] += reward * (double)x[a];
    }
  }
  return BRIM_OK;
}

static const brim_selector_ops ops = {.size = sizeof ops, .state = state, .select = select_clients, .learn = learn};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_SELECTOR,
                                   .id = "linucb",
                                   .help = "a bandit that predicts losses from features of clients",
                                   .params_size = sizeof(settings),
                                   .params = table,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-selectors", "1.0", plugins)
