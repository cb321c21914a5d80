/* Selects clients whose training reduces the losses of all clients most, predicted from the correlation of past changes
 * (Tang et al.: FedCor: Correlation-Based Active Client Selection Strategy for Heterogeneous Federated Learning, CVPR
 * 2022). The changes of all clients' losses in a round are a Gaussian process with covariance C:
 *
 *     next = argmax over k of beta^t(k) * sum over i of p(i) C(i,k) / sqrt(C(k,k)),  p(i): share of samples of i
 *     C   <- C - C(.,k) C(k,.) / C(k,k)                                            after each selected client
 *
 * t(k) counts how often k was selected since losses were last evaluated. The selector asks for the losses of all
 * clients in the first `warm` rounds, in which it selects at random, and then in two consecutive rounds out of every
 * `every` rounds. C is the covariance of the last `history` changes, plus `noise` times the mean variance on the
 * diagonal. Each change is taken relative to its mean over clients and weighted by discount^age. This is the
 * maximum-likelihood solution of the paper's linear kernel, C(i,k) = x(i).x(k), for embeddings of `history` numbers, in
 * closed form; the paper uses gradient steps.
 *
 * After the warm rounds no client is new, because these rounds evaluate all losses. A client that was away gets the
 * average change of that time. */
#include "brim/brim.h"

typedef struct settings {
  int64_t warm, every, history;
  double beta, discount, noise;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(I64, settings, warm, "10", "[0,1000000]", "number of first rounds with random clients"),
    BRIM_PARAM(I64, settings, every, "20", "[2,1000000]", "rounds between measurements of all clients' losses"),
    BRIM_PARAM(I64, settings, history, "8", "[1,64]", "number of changes of losses to keep"),
    BRIM_PARAM(F64, settings, beta, "0.95", "[0,1]", "factor for a client's weight each time it is selected"),
    BRIM_PARAM(F64, settings, discount, "0.9", "(0,1]", "factor for the weight of a change relative to the next one"),
    BRIM_PARAM(F64, settings, noise, "0.1", "(0,1e6]",
               "independent variance of each client, relative to the mean variance"),
    BRIM_PARAMS_END,
};

/* state: CHANGES: number of changes so far; ASKED: 1 + the last round that asked for losses. */
enum { CHANGES, ASKED, OWN };

/* State of each client: its changes, its last evaluated loss (NAN if none), and the number of selections since then. */
static void state(const void *self, const brim_clients *clients, int64_t *own, int64_t *of_client)
{
  const settings *s = self;
  (void)clients;
  *own = OWN;
  *of_client = s->history + 2;
}

/* Asks for losses. Records their changes if the previous round also asked. */
static brim_status look(const settings *s, const brim_selection_query *q)
{
  const int64_t width = s->history + 2, slot = (int64_t)q->own[CHANGES] % s->history;
  const bool has_before = q->round > 0 && q->own[ASKED] == (double)q->round;
  float *loss = brim_selection_alloc(q->candidates, sizeof *loss);
  if (!loss) return BRIM_ENOMEM_HOST;
  const brim_status status = q->losses(q, q->candidate, q->candidates, loss);
  double sum = 0, known = 0;
  for (int64_t k = 0; k < q->clients->count && status == BRIM_OK && has_before; k++)
    q->of_client[k * width + slot] = NAN;
  for (int64_t i = 0; i < q->candidates && status == BRIM_OK && has_before; i++) {
    double *of = q->of_client + q->candidate[i] * width;
    of[slot] = (double)loss[i] - of[s->history];
    known += isfinite(of[slot]);
    sum += isfinite(of[slot]) ? of[slot] : 0;
  }
  for (int64_t k = 0; k < q->clients->count && status == BRIM_OK; k++) {
    double *of = q->of_client + k * width;
    if (has_before) of[slot] = isfinite(of[slot]) ? of[slot] - sum / known : 0;
    if (has_before) of[s->history + 1] = 0;
    of[s->history] = NAN;
  }
  for (int64_t i = 0; i < q->candidates && status == BRIM_OK; i++)
    q->of_client[q->candidate[i] * width + s->history] = (double)loss[i];
  q->own[CHANGES] += has_before;
  q->own[ASKED] = (double)q->round + 1;
  free(loss);
  return status;
}

/* The process in linear form: the change of client i is x(i).w + e(i), where w has covariance P and e(i) has variance
 * `noise`. Each selected client reduces P. This form avoids C, which has a number for each pair of clients. */
typedef struct process {
  int64_t width; /* length of x: the changes in use */
  double noise;
  double *x;        /* [candidates, width] */
  double *share;    /* [candidates]: p; -1 after selection */
  double *variance; /* [candidates]: C(k,k) */
  double *discount; /* [candidates]: beta^t */
} process;

static void set_up(const settings *s, const brim_selection_query *q, process *g)
{
  double weight[64], sum = 0, samples = 0, variance = 0;
  for (int64_t a = 0; a < g->width; a++) sum += weight[a] = pow(s->discount, (double)a);
  for (int64_t i = 0; i < q->candidates; i++) samples += (double)q->clients->samples[q->candidate[i]];
  for (int64_t i = 0; i < q->candidates; i++) {
    const double *of = q->of_client + q->candidate[i] * (s->history + 2);
    for (int64_t a = 0; a < g->width; a++) {
      const int64_t slot = ((int64_t)q->own[CHANGES] - 1 - a) % s->history;
      const double x = g->x[i * g->width + a] = of[slot] * sqrt(weight[a] / sum);
      g->variance[i] += x * x;
    }
    variance += g->variance[i] / (double)q->candidates;
    g->share[i] = (double)q->clients->samples[q->candidate[i]] / samples;
    g->discount[i] = pow(s->beta, of[s->history + 1]);
  }
  g->noise = variance > 0 ? s->noise * variance : 1;
  for (int64_t i = 0; i < q->candidates; i++) g->variance[i] += g->noise;
}

static double dot(const double *a, const double *b, int64_t n)
{
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

/* y <- P x */
static void multiply(const double *p, const double *x, int64_t n, double *y)
{
  for (int64_t i = 0; i < n; i++) y[i] = dot(p + i * n, x, n);
}

/* The last selected client: y = P x for the client's x, and the client's variance. */
typedef struct taken {
  const double *y; /* NULL if no client has been selected */
  double variance;
} taken;

/* Reduces the variances of the remaining candidates by the part that the last selected client explains, and returns the
 * best candidate. pulled: P times the sum of p x over the candidates. One pass does both, because reading a million
 * candidates limits the speed. */
static int64_t next(const process *g, int64_t count, const taken *last, const double *pulled)
{
  double highest = -INFINITY;
  int64_t best = 0;
  for (int64_t i = 0; i < count; i++) {
    if (g->share[i] < 0) continue;
    const double *x = &g->x[i * g->width], c = last->y ? dot(x, last->y, g->width) : 0;
    if (last->y) g->variance[i] -= c * c / last->variance;
    const double together = dot(x, pulled, g->width) + g->share[i] * g->noise;
    const double score = g->discount[i] * together / sqrt(g->variance[i]);
    if (score > highest) best = i;
    if (score > highest) highest = score;
  }
  return best;
}

static void choose(const brim_selection_query *q, process *g, brim_selection *out)
{
  double p[64 * 64] = {0}, y[64], pulled[64], sum[64] = {0}; /* sum: the sum of p x over the remaining candidates */
  taken last = {NULL, 0};
  for (int64_t a = 0; a < g->width; a++) p[a * g->width + a] = 1;
  for (int64_t i = 0; i < q->candidates; i++)
    for (int64_t a = 0; a < g->width; a++) sum[a] += g->share[i] * g->x[i * g->width + a];
  while (out->count < q->wanted) {
    multiply(p, sum, g->width, pulled);
    const int64_t k = next(g, q->candidates, &last, pulled);
    const double *x = &g->x[k * g->width];
    last = (taken){y, g->variance[k]};
    out->client[out->count++] = q->candidate[k];
    for (int64_t a = 0; a < g->width; a++) sum[a] -= g->share[k] * x[a];
    g->share[k] = -1;
    multiply(p, x, g->width, y);
    for (int64_t a = 0; a < g->width; a++)
      for (int64_t b = 0; b < g->width; b++) p[a * g->width + b] -= y[a] * y[b] / last.variance;
  }
}

static double drawn(const brim_selection_query *q, const void *context, int64_t client)
{
  (void)context;
  return brim_selection_draw(q, 0, client);
}

static brim_status select_clients(void *self, const brim_selection_query *q, brim_selection *out)
{
  const settings *s = self;
  if (q->round <= s->warm || q->round % s->every <= 1) BRIM_TRY(look(s, q));
  if (q->round < s->warm || q->own[CHANGES] == 0) return brim_select_highest(q, drawn, NULL, out);
  process g = {.width = q->own[CHANGES] < (double)s->history ? (int64_t)q->own[CHANGES] : s->history};
  double *memory = brim_selection_alloc(q->candidates * (g.width + 3), sizeof *memory);
  if (!memory) return BRIM_ENOMEM_HOST;
  g.x = memory;
  g.share = g.x + q->candidates * g.width;
  g.variance = g.share + q->candidates;
  g.discount = g.variance + q->candidates;
  set_up(s, q, &g);
  choose(q, &g, out);
  free(memory);
  return BRIM_OK;
}

static brim_status learn(void *self, const brim_selection_result *r)
{
  const settings *s = self;
  for (int64_t i = 0; i < r->count; i++) r->of_client[r->client[i] * (s->history + 2) + s->history + 1] += 1;
  return BRIM_OK;
}

static const brim_selector_ops ops = {
    .size = sizeof ops, .needs = BRIM_NEED_LOSSES, .state = state, .select = select_clients, .learn = learn};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_SELECTOR,
                                   .id = "fedcor",
                                   .help =
                                       "clients whose losses correlate with those of many others (Tang et al., FedCor)",
                                   .params_size = sizeof(settings),
                                   .params = table,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-selectors", "1.0", plugins)
