#include "federate/round.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "federate/select.h"

/* A lane, and the thread that works in it. */
typedef struct worker {
  brim_lane lane;
  brim_federation *federation;
  pthread_t thread;
  brim_status status;
  brim_error error;
} worker;

struct brim_federation {
  const brim_drive *drive;
  brim_exec *exec;
  worker *worker;
  int32_t lanes;
  brim_client_result *client; /* [clients] as selected */
  int64_t *turn;              /* [clients] their order: those with the most samples first, so that lanes end together */
  int64_t *selected, clients, round;
  atomic_llong next;      /* turn */
  atomic_bool is_over;    /* a client has failed: no other begins */
  pthread_mutex_t adding; /* one lane at a time adds to the sum */
};

brim_status brim_federation_open(const brim_drive *drive, brim_exec *exec, brim_federation **out)
{
  brim_federation *f = brim_try_calloc(1, sizeof *f);
  if (!f) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for a federation");
  f->drive = drive;
  f->exec = exec;
  f->clients = drive->setup->settings->clients_per_round;
  f->client = brim_try_calloc((size_t)f->clients, sizeof *f->client);
  f->turn = brim_try_calloc((size_t)f->clients, sizeof *f->turn);
  f->selected = brim_try_calloc((size_t)f->clients, sizeof *f->selected);
  f->worker = brim_try_calloc((size_t)drive->choice.lanes, sizeof *f->worker);
  pthread_mutex_init(&f->adding, NULL);
  brim_status status = BRIM_OK;
  if (!f->client || !f->turn || !f->selected || !f->worker)
    status = brim_fail(BRIM_ENOMEM_HOST, "no host memory for %lld clients of a round", (long long)f->clients);
  for (; status == BRIM_OK && f->lanes < drive->choice.lanes; f->lanes++) {
    f->worker[f->lanes].federation = f;
    status = brim_lane_open(&f->worker[f->lanes].lane, drive, brim_exec_lane(exec, f->lanes));
  }
  if (status != BRIM_OK) {
    brim_federation_close(f);
    return status;
  }
  *out = f;
  return BRIM_OK;
}

void brim_federation_close(brim_federation *f)
{
  if (!f) return;
  for (int32_t i = 0; i < f->lanes; i++) brim_lane_close(&f->worker[i].lane);
  pthread_mutex_destroy(&f->adding);
  free(f->worker);
  free(f->client);
  free(f->turn);
  free(f->selected);
  free(f);
}

/* ---- who trains ---- */

static int most_first(const void *a, const void *b, void *clients)
{
  const int64_t i = *(const int64_t *)a, k = *(const int64_t *)b;
  const brim_client_result *x = (const brim_client_result *)clients + i, *y = (const brim_client_result *)clients + k;
  if (x->weight != y->weight) return x->weight < y->weight ? 1 : -1;
  return (i > k) - (i < k);
}

/* Weights are samples times a power of two, which is exact, and add up to at most 1. */
static brim_status select_clients(brim_federation *f)
{
  const brim_setup *s = f->drive->setup;
  int64_t samples = 0;
  int exponent = 0;
  BRIM_TRY(brim_select_clients(s->settings, &s->partition, f->round, f->clients, f->selected));
  for (int64_t i = 0; i < f->clients; i++) samples += brim_partition_count(&s->partition, f->selected[i]);
  while (ldexp(1, exponent) < (double)samples) exponent++;
  for (int64_t i = 0; i < f->clients; i++) {
    const double own = (double)brim_partition_count(&s->partition, f->selected[i]);
    f->client[i] = (brim_client_result){.client = f->selected[i], .weight = ldexp(own, -exponent)};
    f->turn[i] = i;
  }
  qsort_r(f->turn, (size_t)f->clients, sizeof *f->turn, most_first, f->client);
  return BRIM_OK;
}

/* ---- lanes ---- */

static brim_status train_client(worker *w, brim_client_result *result)
{
  brim_federation *f = w->federation;
  const brim_status status = brim_lane_train(&w->lane, f->round, result);
  if (status == BRIM_ENUMERIC && f->drive->setup->settings->federate.on_divergence == BRIM_DIVERGENCE_DROP) {
    brim_log(BRIM_LOG_WARN, "round %lld: %s; it is left out", (long long)f->round + 1, brim_error_text());
    return BRIM_OK;
  }
  BRIM_TRY(status);
  pthread_mutex_lock(&f->adding);
  const brim_status folded = brim_lane_fold(&w->lane, result->weight);
  pthread_mutex_unlock(&f->adding);
  result->arrived = folded == BRIM_OK;
  return folded;
}

/* Trains one client after another, until each client of the round has a lane. */
static void *work(void *context)
{
  worker *w = context;
  brim_federation *f = w->federation;
  w->status = BRIM_OK;
  while (w->status == BRIM_OK && !atomic_load(&f->is_over)) {
    const int64_t turn = atomic_fetch_add(&f->next, 1);
    if (turn >= f->clients) break;
    w->status = train_client(w, &f->client[f->turn[turn]]);
  }
  if (w->status != BRIM_OK) {
    atomic_store(&f->is_over, true);
    brim_error_take(&w->error);
  }
  return NULL;
}

/* The caller's own thread works in the first lane. */
static brim_status work_in_lanes(brim_federation *f)
{
  int32_t started = 1;
  int failed = 0;
  while (started < f->lanes && !failed) {
    failed = brim_thread_start(&f->worker[started].thread, "brim-lane", work, &f->worker[started]);
    started += !failed;
  }
  if (failed)
    atomic_store(&f->is_over, true);
  else
    work(&f->worker[0]);
  for (int32_t i = 1; i < started; i++) pthread_join(f->worker[i].thread, NULL);
  if (failed) return brim_fail(BRIM_ENOMEM_HOST, "could not start a thread for a lane: %s", strerror(failed));
  for (int32_t i = 0; i < f->lanes; i++) {
    if (f->worker[i].status == BRIM_OK) continue;
    brim_error_put(&f->worker[i].error);
    return f->worker[i].status;
  }
  return BRIM_OK;
}

brim_status brim_federation_train(brim_federation *f, int64_t round, brim_round_result *out)
{
  f->round = round;
  BRIM_TRY(select_clients(f));
  atomic_store(&f->next, 0);
  atomic_store(&f->is_over, false);
  BRIM_TRY(brim_exec_zero_gradients(f->exec));
  BRIM_TRY(work_in_lanes(f));
  *out = (brim_round_result){.client = f->client, .clients = f->clients};
  for (int64_t i = 0; i < f->clients; i++) {
    out->arrived += f->client[i].arrived;
    out->weight += f->client[i].arrived ? f->client[i].weight : 0;
  }
  if (out->arrived > 0) return BRIM_OK;
  return brim_fail(BRIM_ENUMERIC,
                   "all %lld clients of round %lld have diverged\nlower optimizer.lr, or train fewer local "
                   "epochs (federate.local_epochs)",
                   (long long)f->clients, (long long)round + 1);
}
