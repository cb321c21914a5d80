/* Times a round of each selector, to be run by hand: bench_selectors [clients [ID...]]. Half of the clients were seen
 * before; a hundred are selected; the fastest of five rounds counts, in processor time. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "builtin/builtin.h"
#include "conformance/load.h"

#define CLASSES 10
#define WANTED 100

static double uniform(int64_t client, uint32_t stream)
{
  return brim_uniform(brim_random4(1, BRIM_STREAM_DATA, stream, (uint64_t)client, 0).v[0]);
}

/* Losses like a model's, without the model's time. */
static brim_status answer(const brim_selection_query *q, const int64_t *client, int64_t count, float *out)
{
  for (int64_t i = 0; i < count; i++) out[i] = (float)uniform(client[i], 20 + (uint32_t)q->round);
  return BRIM_OK;
}

static void fill(brim_clients *c, int64_t count, uint32_t needs)
{
  const size_t n = (size_t)count;
  int64_t *samples = malloc(n * sizeof *samples);
  float *real = malloc(6 * n * sizeof *real);
  int32_t *whole = malloc(2 * n * sizeof *whole);
  uint32_t *labels = needs & BRIM_NEED_LABELS ? malloc(n * CLASSES * sizeof *labels) : NULL;
  float *sketch = needs & BRIM_NEED_SKETCH ? malloc(n * BRIM_SKETCH * sizeof *sketch) : NULL;
  for (int64_t k = 0; k < count; k++) {
    const bool is_seen = uniform(k, 0) < 0.5 || sketch; /* distances are those of clients that were seen */
    samples[k] = 10 + (int64_t)(90 * uniform(k, 1));
    for (uint32_t i = 0; i < 6; i++)
      real[i * n + (size_t)k] = is_seen || i == 3 || i == 4 ? (float)uniform(k, 2 + i) + 0.1f : NAN;
    whole[k] = is_seen ? (int32_t)(10 * uniform(k, 8)) : -1;
    whole[n + (size_t)k] = is_seen;
    for (uint32_t i = 0; labels && i < CLASSES; i++) labels[k * CLASSES + i] = (uint32_t)(10 * uniform(k, 9 + i));
    for (uint32_t i = 0; sketch && i < BRIM_SKETCH; i++) sketch[k * BRIM_SKETCH + i] = (float)uniform(k, 100 + i);
  }
  *c = (brim_clients){.size = sizeof *c,
                      .count = count,
                      .classes = CLASSES,
                      .samples = samples,
                      .loss = real,
                      .square_loss = real + n,
                      .norm = real + 2 * n,
                      .seconds = real + 3 * n,
                      .joules = real + 4 * n,
                      .last_round = whole,
                      .times = whole + n,
                      .labels = labels,
                      .sketch = sketch,
                      .accuracy = real + 5 * n};
}

/* Times rounds 10 to 14; by then fedcor has seen changes of losses, in rounds that are not timed. */
static double fastest(const loaded *selector, brim_selection_query *q)
{
  const brim_selector_ops *ops = selector->plugin->ops;
  int64_t client[WANTED];
  double best = INFINITY;
  for (q->round = 0; q->round < 15; q->round++) {
    struct timespec begin, end;
    brim_selection out = {client, 0};
    q->seed = (uint64_t)q->round;
    if (q->round < 10 && !(ops->needs & BRIM_NEED_LOSSES)) continue;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    if (ops->select(selector->self, q, &out) != BRIM_OK) fail_msg("%s", brim_error_text());
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    const double seconds = (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
    if (q->round >= 10 && seconds < best) best = seconds;
  }
  return best;
}

static void time_one(const char *id, int64_t count)
{
  loaded selector = {0};
  if (strcmp(id, "random") == 0)
    load_core_plugin(&selector, &brim_selector_random, NULL);
  else if (!load_plugin(&selector, "selector", id, NULL))
    fail_msg("there is no selector '%s'", id);
  const brim_selector_ops *ops = selector.plugin->ops;
  brim_clients clients;
  int64_t own = 0, of_client = 0, *candidate = malloc((size_t)count * sizeof *candidate);
  fill(&clients, count, ops->needs);
  if (ops->state) ops->state(selector.self, &clients, &own, &of_client);
  double *state = calloc((size_t)(own + of_client * count + 1), sizeof *state);
  for (int64_t k = 0; k < count; k++) candidate[k] = k;
  brim_selection_query q = {.size = sizeof q,
                            .wanted = count < WANTED ? count : WANTED,
                            .clients = &clients,
                            .candidate = candidate,
                            .candidates = count,
                            .own = state,
                            .of_client = state + own,
                            .losses = answer};
  const double seconds = fastest(&selector, &q);
  printf("%-18s %9" PRId64 " clients  %9.3f ms  %4" PRId64 " bytes of state a client\n", id, count, 1e3 * seconds,
         of_client * 8);
  void *const all[] = {(void *)clients.samples,
                       (void *)clients.loss,
                       (void *)clients.last_round,
                       (void *)clients.labels,
                       (void *)clients.sketch,
                       candidate,
                       state};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
  unload_plugin(&selector);
}

int main(int argc, char **argv)
{
  static const char *const all[] = {"random",
                                    "topk_loss",
                                    "gradient_norm",
                                    "fairness_adjusted",
                                    "cluster_balanced",
                                    "mmr_diverse",
                                    "label_coverage",
                                    "fedcs",
                                    "tifl",
                                    "oort",
                                    "epsilon_greedy",
                                    "linucb",
                                    "divfl",
                                    "fedcor",
                                    "power_of_choice"};
  const int64_t count = argc > 1 ? strtoll(argv[1], NULL, 10) : 1000;
  for (int i = 2; i < argc; i++) time_one(argv[i], count);
  for (size_t i = 0; argc <= 2 && i < sizeof all / sizeof all[0]; i++) time_one(all[i], count);
  return 0;
}
