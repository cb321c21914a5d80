/* Runs the lanes' work in a round. See round.h. */
#include <time.h>

#include "base/log.h"
#include "federate/round_parts.h"

#define SLICE_SECONDS 0.05 /* interval at which sleep_for checks whether the run should stop */

/* Waits; returns early if the run should stop, because it then ends after this round. */
static void sleep_for(const brim_federation *f, double seconds)
{
  const volatile int *stop = f->setup->options.stop;
  const double end = brim_now() + seconds / (double)f->setup->settings->federate.edge_rounds;
  for (double left = end - brim_now(); left > 0 && !(stop && *stop); left = end - brim_now()) {
    const double slice = left < SLICE_SECONDS ? left : SLICE_SECONDS;
    nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * slice)}, NULL);
  }
}

static brim_status train_client(brim_worker *w, brim_client_result *result)
{
  brim_federation *f = w->federation;
  const brim_client_result before = *result;
  sleep_for(f, result->fate.down_sleep);
  brim_status status = brim_lane_train(&w->lane, result->number, result);
  if (status == BRIM_OK) sleep_for(f, result->fate.up_sleep);
  if (status == BRIM_OK) status = brim_lane_keep(&w->lane, result, f->round);
  if (status == BRIM_ENUMERIC && f->setup->settings->federate.on_divergence == BRIM_DIVERGENCE_DROP) {
    brim_log(BRIM_LOG_WARN, "round %lld: %s; its update is left out", (long long)f->round + 1, brim_error_text());
    result->is_done = true;
    return BRIM_OK;
  }
  if (status != BRIM_OK) {
    *result = before; /* the client will be trained again from the start */
    return status;
  }
  if (f->whole) {
    status = brim_whole_write(f->whole, result - f->client, w->lane.exec, w->lane.adopt, w->lane.values);
    if (status != BRIM_OK) *result = before;
    result->is_done = result->arrived = status == BRIM_OK;
    return status;
  }
  pthread_mutex_lock(&f->adding);
  const double factor = brim_protection_factor(&f->protection, result->norm);
  brim_status folded = brim_lane_fold(&w->lane, result, result->weight * result->discount * factor, f->clients);
  /* The sum must be complete before another lane adds to it. */
  if (folded == BRIM_OK && f->lanes > 1) folded = brim_exec_wait(w->lane.exec);
  pthread_mutex_unlock(&f->adding);
  if (folded != BRIM_OK) atomic_store(&f->is_torn, true);
  result->is_done = result->arrived = folded == BRIM_OK;
  return folded;
}

static brim_status take_turn(brim_worker *w, int64_t turn)
{
  brim_federation *f = w->federation;
  if (f->ask) return f->ask(&w->lane, f->turn_of[turn], &f->answer[turn]);
  if (!f->protection.noise.sum) return train_client(w, &f->client[f->turn[turn]]);
  brim_protection_add_piece(&f->protection, turn);
  return BRIM_OK;
}

void brim_federation_run_lane(void *context, int32_t lane)
{
  brim_federation *f = context;
  brim_worker *w = &f->worker[lane];
  w->status = BRIM_OK;
  while (w->status == BRIM_OK && !atomic_load(&f->is_over)) {
    const int64_t turn = atomic_fetch_add(&f->next, 1);
    if (turn >= f->turns) break;
    w->status = take_turn(w, turn);
  }
  if (w->status == BRIM_OK && f->lanes > 1) w->status = brim_exec_wait(w->lane.exec);
  if (w->status != BRIM_OK) {
    atomic_store(&f->is_over, true);
    brim_error_take(&w->error);
    if (f->lanes > 1) (void)brim_exec_wait(w->lane.exec); /* the memory may be released next */
  }
}

/* Lanes may work in queues of their own, so this waits for the server's queue before they start, and for their queues
 * at the end. */
brim_status brim_federation_work(brim_federation *f)
{
  if (f->lanes > 1) BRIM_TRY(brim_exec_wait(f->exec));
  atomic_store(&f->next, 0);
  atomic_store(&f->is_over, false);
  brim_crew_run(f->crew);
  for (int32_t i = 0; i < f->workers; i++) {
    if (f->worker[i].status == BRIM_OK) continue;
    brim_error_put(&f->worker[i].error);
    return f->worker[i].status;
  }
  return BRIM_OK;
}

brim_status brim_federation_ask(brim_federation *f, brim_lane_fn ask, const int64_t *client, int64_t count, double *out)
{
  if (brim_setup_is_isolated(f->setup)) return brim_federation_ask_apart(f, ask, client, count, out);
  f->turn_of = client;
  f->ask = ask;
  f->answer = out;
  f->turns = count;
  const brim_status status = brim_federation_work(f);
  f->ask = NULL;
  return status;
}
