/* Runs a selector in worlds that are read from standard input, so that tests in other languages can check its choices.
 * Words and numbers are separated by spaces; only `select` prints an answer, a line of client numbers.
 *
 *   open ID SETTINGS CLIENTS CLASSES [CLIENTS * CLASSES samples]   SETTINGS: YAML, with ~ for spaces
 *   columns [CLIENTS times: samples loss square_loss norm seconds accuracy last_round times]
 *   sketches [CLIENTS * BRIM_SKETCH]
 *   losses [CLIENTS]                                               the answer when it asks for them
 *   select ROUND WANTED DEADLINE SEED COUNT [COUNT candidates]
 *   learn ROUND COUNT [COUNT times: client arrived]                after the round's `columns`
 *
 * All memory that the selector sees has exactly the required size, so AddressSanitizer detects accesses beyond it. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "builtin/builtin.h"
#include "conformance/load.h"

typedef struct world {
  loaded selector;
  brim_clients clients;
  int64_t *samples;
  float *column[6]; /* loss, square_loss, norm, seconds, accuracy, losses under the present model */
  int32_t *last_round, *times;
  uint32_t *labels;
  float *sketch;
  double *own, *of_client;
} world;

static void need(int read, int wanted)
{
  if (read == wanted) return;
  fprintf(stderr, "ask_selector: the input ends, or is malformed\n");
  exit(2);
}

static int64_t whole(void)
{
  int64_t value;
  need(scanf("%" SCNd64, &value), 1);
  return value;
}

static double real(void)
{
  double value;
  need(scanf("%lf", &value), 1);
  return value;
}

static void release(world *w)
{
  void *const all[] = {w->samples,   w->column[0], w->column[1],  w->column[2], w->column[3],
                       w->column[4], w->column[5], w->last_round, w->times,     w->labels,
                       w->sketch,    w->own,       w->of_client};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
  unload_plugin(&w->selector);
  *w = (world){0};
}

static void load(world *w)
{
  static const brim_plugin *const own[] = {&brim_selector_random, &brim_selector_round_robin,
                                           &brim_selector_proportional};
  char id[64], settings[256];
  need(scanf("%63s %255s", id, settings), 2);
  for (char *at = settings; *at; at++) *at = *at == '~' ? ' ' : *at;
  for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
    if (strcmp(own[i]->id, id) == 0) load_core_plugin(&w->selector, own[i], settings);
  if (w->selector.plugin || load_plugin(&w->selector, "selector", id, settings)) return;
  fprintf(stderr, "ask_selector: there is no selector '%s'\n", id);
  exit(2);
}

static void open_world(world *w)
{
  release(w);
  load(w);
  const brim_selector_ops *ops = w->selector.plugin->ops;
  const int64_t count = whole(), classes = whole();
  const size_t n = (size_t)count;
  int64_t own = 0, of_client = 0;
  w->samples = calloc(n, sizeof *w->samples);
  for (int i = 0; i < 6; i++) w->column[i] = calloc(n, sizeof(float));
  w->last_round = calloc(n, sizeof *w->last_round);
  w->times = calloc(n, sizeof *w->times);
  w->sketch = ops->needs & BRIM_NEED_SKETCH ? calloc(n * BRIM_SKETCH, sizeof *w->sketch) : NULL;
  w->labels = ops->needs & BRIM_NEED_LABELS && classes > 0 ? calloc(n * (size_t)classes, sizeof *w->labels) : NULL;
  for (int64_t i = 0; i < count * classes; i++) {
    const uint32_t samples = (uint32_t)whole();
    if (w->labels) w->labels[i] = samples;
  }
  w->clients = (brim_clients){.size = sizeof w->clients,
                              .count = count,
                              .classes = classes,
                              .samples = w->samples,
                              .loss = w->column[0],
                              .square_loss = w->column[1],
                              .norm = w->column[2],
                              .seconds = w->column[3],
                              .joules = w->column[3],
                              .last_round = w->last_round,
                              .times = w->times,
                              .labels = w->labels,
                              .sketch = w->sketch,
                              .accuracy = w->column[4]};
  if (ops->state) ops->state(w->selector.self, &w->clients, &own, &of_client);
  w->own = own > 0 ? calloc((size_t)own, sizeof *w->own) : NULL;
  w->of_client = of_client > 0 ? calloc((size_t)(of_client * count), sizeof *w->of_client) : NULL;
}

static void read_columns(world *w)
{
  for (int64_t k = 0; k < w->clients.count; k++) {
    w->samples[k] = whole();
    for (int i = 0; i < 5; i++) w->column[i][k] = (float)real();
    w->last_round[k] = (int32_t)whole();
    w->times[k] = (int32_t)whole();
  }
}

static brim_status answer(const brim_selection_query *q, const int64_t *client, int64_t count, float *out)
{
  const world *w = q->host;
  for (int64_t i = 0; i < count; i++) out[i] = w->column[5][client[i]];
  return BRIM_OK;
}

static void select_clients(world *w)
{
  const brim_selector_ops *ops = w->selector.plugin->ops;
  brim_selection_query q = {
      .size = sizeof q, .clients = &w->clients, .own = w->own, .of_client = w->of_client, .losses = answer, .host = w};
  q.round = whole();
  q.wanted = whole();
  q.deadline_seconds = real();
  need(scanf("%" SCNu64, &q.seed), 1);
  q.candidates = whole();
  int64_t *candidate = calloc((size_t)q.candidates, sizeof *candidate);
  for (int64_t i = 0; i < q.candidates; i++) candidate[i] = whole();
  q.candidate = candidate;
  brim_selection out = {calloc((size_t)q.wanted, sizeof *out.client), 0};
  if (ops->select(w->selector.self, &q, &out) != BRIM_OK) {
    fprintf(stderr, "ask_selector: %s\n", brim_error_text());
    exit(1);
  }
  for (int64_t i = 0; i < out.count; i++) printf("%s%" PRId64, i > 0 ? " " : "", out.client[i]);
  printf("\n");
  fflush(stdout);
  free(candidate);
  free(out.client);
}

static void learn(world *w)
{
  const brim_selector_ops *ops = w->selector.plugin->ops;
  const int64_t round = whole(), count = whole();
  int64_t *client = calloc((size_t)count, sizeof *client);
  uint8_t *arrived = calloc((size_t)count, sizeof *arrived);
  for (int64_t i = 0; i < count; i++) {
    client[i] = whole();
    arrived[i] = (uint8_t)whole();
  }
  const brim_selection_result r = {.size = sizeof r,
                                   .round = round,
                                   .count = count,
                                   .client = client,
                                   .arrived = arrived,
                                   .accuracy = 0.5,
                                   .seconds = 1,
                                   .clients = &w->clients,
                                   .own = w->own,
                                   .of_client = w->of_client};
  if (ops->learn && ops->learn(w->selector.self, &r) != BRIM_OK) exit(1);
  free(client);
  free(arrived);
}

int main(void)
{
  world w = {0};
  char command[16];
  while (scanf("%15s", command) == 1) {
    if (strcmp(command, "open") == 0) open_world(&w);
    if (strcmp(command, "columns") == 0) read_columns(&w);
    if (strcmp(command, "select") == 0) select_clients(&w);
    if (strcmp(command, "learn") == 0) learn(&w);
    for (int64_t k = 0; k < w.clients.count && strcmp(command, "losses") == 0; k++) w.column[5][k] = (float)real();
    for (int64_t i = 0; i < w.clients.count * BRIM_SKETCH && strcmp(command, "sketches") == 0; i++) {
      const float value = (float)real();
      if (w.sketch) w.sketch[i] = value;
    }
  }
  release(&w);
  return 0;
}
