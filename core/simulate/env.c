/* The environment of a simulated job: its timeline, and the scenario's queue and host. */
#include <stdio.h>

#include "base/text.h"
#include "simulate/job.h"

void brim_sim_report(brim_sim_job *job, const char *by, const char *choice, const char *reason)
{
  brim_simulation *out = job->all->out;
  brim_arena *arena = &out->arena;
  BRIM_GROW(out->event, out->event_count, out->event_room);
  out->event[out->event_count++] = (brim_simulated){brim_scene_now(job->all->scene),
                                                    job->index,
                                                    job->step,
                                                    brim_arena_string(arena, by),
                                                    brim_arena_string(arena, choice),
                                                    brim_arena_string(arena, reason)};
}

static double now(void *self)
{
  const brim_sim_job *job = self;
  return brim_scene_now(job->all->scene);
}

/* ---- the queue ---- */

static brim_status refuse(const brim_sim_job *job, const brim_scene_turn *look, uint64_t bytes)
{
  char a[32], b[32], c[32];
  brim_device_info best;
  brim_scene_describe(job->all->scene, look->best, &best);
  brim_format_bytes(a, sizeof a, bytes);
  if (!look->large)
    return brim_fail(BRIM_ENOMEM_DEVICE, "the run needs %s, but %s:%d has only %s in total", a,
                     job->all->scenario->backend, look->best, brim_format_bytes(b, sizeof b, best.total_bytes));
  if (look->ahead > 0)
    return brim_fail(BRIM_ENODEVICE, "%zu run%s for the same device; set wait_for_gpu=true to join the queue",
                     look->ahead, look->ahead == 1 ? " waits" : "s wait");
  return brim_fail(BRIM_ENOMEM_DEVICE, "no device has the %s free that the run needs: %s of %s free on %s:%d", a,
                   brim_format_bytes(b, sizeof b, best.free_bytes), brim_format_bytes(c, sizeof c, best.total_bytes),
                   job->all->scenario->backend, look->best);
}

/* Waits in the queue until there is a device, or until the timeout. */
static brim_status wait_for_turn(brim_sim_job *job, const brim_claim_request *r, int *device, double *waited)
{
  const double patience = r->wait ? r->timeout_seconds : 0;
  double pause = BRIM_CLAIM_LOOK_SECONDS;
  for (;;) {
    const brim_scene_turn look = brim_scene_try(job->all->scene, job->index);
    *device = look.device;
    if (look.device >= 0) return BRIM_OK;
    if (!r->wait || !look.large) return refuse(job, &look, r->need_bytes);
    if (*waited >= patience)
      return brim_fail(BRIM_ENODEVICE, "no device became free in %.4g minutes (gpu_wait_timeout_minutes)",
                       patience / 60);
    if (pause > r->interval_seconds) pause = r->interval_seconds;
    if (pause > patience - *waited) pause = patience - *waited;
    if (pause < BRIM_SCENE_MOMENT) pause = BRIM_SCENE_MOMENT;
    BRIM_TRY(brim_sim_sleep(job, pause));
    *waited += pause;
    pause *= 2;
  }
}

static brim_status claim(void *self, const brim_claim_request *r, void **out, int *device, double *waited)
{
  char bytes[32], place[64];
  brim_sim_job *job = self;
  int named;
  *waited = 0;
  *out = NULL;
  BRIM_TRY(brim_device_named(r->backend, r->ops, r->self, &r->wish, &named));
  const brim_scene_wish wish = {named, r->wish.most_free, r->need_bytes};
  brim_scene_join(job->all->scene, job->index, &wish);
  const brim_status status = wait_for_turn(job, r, device, waited);
  job->costs.waiting_seconds += *waited;
  if (*waited > 0) {
    snprintf(place, sizeof place, "has waited %.4g s for %s", *waited,
             brim_format_bytes(bytes, sizeof bytes, wish.bytes));
    brim_sim_report(job, "queue", place, "");
  }
  if (status == BRIM_OK) *out = job;
  if (status != BRIM_OK) brim_scene_leave(job->all->scene, job->index);
  job->costs.ooms += status == BRIM_ENOMEM_DEVICE;
  return status;
}

/* The scenario's queue is served only when the job settles it, not before the job has released the device. */
static brim_status hold(void *self, const brim_claim_request *r, int device, bool alone, void **out)
{
  size_t waiting;
  uint64_t first;
  brim_sim_job *job = self;
  (void)r;
  *out = NULL;
  brim_scene_waiting(job->all->scene, job->index, brim_scene_key(job->all->scene, device), &waiting, &first);
  if (alone && waiting > 0) return brim_fail(BRIM_ENODEVICE, "another run waits for the device");
  *out = job;
  return BRIM_OK;
}

static void release(void *self, void *claimed)
{
  const brim_sim_job *job = self;
  if (claimed) brim_scene_leave(job->all->scene, job->index);
}

static brim_status list_tickets(void *self, brim_arena *arena, brim_ticket **out, size_t *count)
{
  const brim_sim_job *job = self;
  brim_scene_tickets(job->all->scene, job->index, arena, out, count);
  return BRIM_OK;
}

static brim_status count_waiting(void *self, uint64_t key, size_t *count, uint64_t *first_bytes)
{
  const brim_sim_job *job = self;
  brim_scene_waiting(job->all->scene, job->index, key, count, first_bytes);
  return BRIM_OK;
}

static brim_host_memory look_at_host(void *self, uint64_t *process_bytes)
{
  const brim_sim_job *job = self;
  *process_bytes = job->resident + job->garbage;
  return brim_scene_host_memory(job->all->scene);
}

brim_env brim_sim_env(brim_sim_job *job)
{
  return (brim_env){.self = job,
                    .now = now,
                    .claim = claim,
                    .hold = hold,
                    .release = release,
                    .tickets = list_tickets,
                    .waiting = count_waiting,
                    .host = look_at_host};
}
