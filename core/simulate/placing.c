/* A job's plan on a device, and what becomes of it when memory runs out: the ladder of train/ladder.h. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "planner/room.h"
#include "session/decide.h"
#include "simulate/job.h"

#define LOOK_SECONDS 0.1 /* between two looks at first, then twice as long each time */

/* ---- the line ---- */

static brim_status refuse(const brim_sim_job *job, const brim_scene_look *look, uint64_t bytes)
{
  char a[32], b[32], c[32];
  brim_device_info best;
  brim_scene_describe(job->all->scene, look->best, &best);
  brim_format_bytes(a, sizeof a, bytes);
  if (!look->large)
    return brim_fail(BRIM_ENOMEM_DEVICE, "%s are needed, and %s:%d has %s in all", a, job->all->scenario->backend,
                     look->best, brim_format_bytes(b, sizeof b, best.total_bytes));
  if (look->ahead > 0)
    return brim_fail(BRIM_ENODEVICE, "%zu run%s for the same device: wait_for_gpu=true joins the queue", look->ahead,
                     look->ahead == 1 ? " waits" : "s wait");
  return brim_fail(BRIM_ENOMEM_DEVICE, "no device has the %s free that are needed: %s of %s free on %s:%d", a,
                   brim_format_bytes(b, sizeof b, best.free_bytes), brim_format_bytes(c, sizeof c, best.total_bytes),
                   job->all->scenario->backend, look->best);
}

/* In line, until there is a device or patience is at its end. */
static brim_status wait_for_turn(brim_sim_job *job, uint64_t bytes, int *device)
{
  const brim_session *s = job->session;
  const double patience = s->planner.waits ? 60 * s->setup->settings->gpu_wait_timeout_minutes : 0;
  const double longest = s->setup->settings->gpu_check_interval_seconds;
  double waited = 0, pause = LOOK_SECONDS;
  for (;;) {
    const brim_scene_look look = brim_scene_try(job->all->scene, job->index);
    *device = look.device;
    if (look.device >= 0) return BRIM_OK;
    if (!s->planner.waits || !look.large) return refuse(job, &look, bytes);
    if (waited >= patience)
      return brim_fail(BRIM_ENODEVICE, "no device came free in %.4g minutes (gpu_wait_timeout_minutes)", patience / 60);
    if (pause > longest) pause = longest;
    if (pause > patience - waited) pause = patience - waited;
    if (pause < BRIM_SCENE_MOMENT) pause = BRIM_SCENE_MOMENT;
    BRIM_TRY(brim_sim_sleep(job, pause));
    job->costs.waiting_seconds += pause;
    waited += pause;
    pause *= 2;
  }
}

static int wanted_device(const brim_session *s)
{
  int named = -1;
  const brim_device_wish wish = {s->wanted, s->setup->settings->auto_device, 0};
  return brim_device_named(brim_config_choice_of(s->setup->config, "backend")->plugin->id, s->setup->backend_ops,
                           s->setup->backend, &wish, &named) == BRIM_OK
             ? named
             : s->planner.device;
}

/* A device for the plan, as brim_session_claim finds one. */
static brim_status claim(brim_sim_job *job, uint64_t peak, int *device)
{
  char bytes[32], place[64];
  const brim_session *s = job->session;
  *device = s->planner.device;
  if (!brim_device_is_shared(&s->planner.device_info)) return BRIM_OK;
  const uint64_t least = s->demands.min_device_bytes;
  const brim_scene_wish wish = {wanted_device(s), s->setup->settings->auto_device, peak > least ? peak : least};
  brim_scene_join(job->all->scene, job->index, &wish);
  const double before = job->costs.waiting_seconds;
  const brim_status status = wait_for_turn(job, wish.bytes, device);
  const double waited = job->costs.waiting_seconds - before;
  if (waited > 0) {
    snprintf(place, sizeof place, "has waited %.4g s for %s", waited,
             brim_format_bytes(bytes, sizeof bytes, wish.bytes));
    brim_sim_tell(job, "queue", place, "");
  }
  return status;
}

/* ---- placing ---- */

/* Does it fail though there is room? */
static bool fails_now(brim_sim_job *job, int64_t step, bool *loses)
{
  const brim_scenario *s = job->all->scenario;
  for (size_t i = 0; i < s->failure_count; i++) {
    if (s->failure[i].step != step || job->failures_left[i] == 0) continue;
    job->failures_left[i]--;
    *loses = *loses || s->failure[i].loses;
    return true;
  }
  return false;
}

static brim_status open_plan(brim_sim_job *job, uint64_t peak)
{
  char a[32], b[32];
  bool loses = false;
  brim_session *s = job->session;
  BRIM_TRY(s->setup->backend_ops->describe(s->setup->backend, s->planner.device, &s->planner.device_info));
  if (fails_now(job, 0, &loses))
    return brim_fail(BRIM_ENOMEM_DEVICE, "%s were not to be had, though the device says that they are free",
                     brim_format_bytes(a, sizeof a, peak));
  if (s->planner.device_info.free_bytes < peak)
    return brim_fail(BRIM_ENOMEM_DEVICE, "%s were asked for, and %s are free", brim_format_bytes(a, sizeof a, peak),
                     brim_format_bytes(b, sizeof b, s->planner.device_info.free_bytes));
  job->place = job->on_host ? BRIM_SCENE_HOST : s->planner.device;
  job->arena = peak;
  job->is_placed = true;
  brim_scene_take(job->all->scene, job->place, peak);
  return BRIM_OK;
}

/* Also on the device that is held, while the run changes its plan. */
static brim_status claim_and_open(brim_sim_job *job, uint64_t *peak)
{
  int device;
  brim_session *s = job->session;
  BRIM_TRY(brim_planner_peak(&s->planner, &s->choice, peak));
  BRIM_TRY(brim_planner_check_peak(&s->planner, *peak));
  if (job->is_held && open_plan(job, *peak) == BRIM_OK) return BRIM_OK;
  job->is_held = false;
  brim_status status = claim(job, *peak, &device);
  if (status == BRIM_OK && device != s->planner.device) {
    status = brim_session_move(s, device);
    if (status == BRIM_OK) status = brim_planner_peak(&s->planner, &s->choice, peak);
  }
  if (status == BRIM_OK) status = open_plan(job, *peak);
  brim_scene_leave(job->all->scene, job->index);
  return status;
}

static brim_status place_here(brim_sim_job *job)
{
  for (;;) {
    uint64_t peak;
    const brim_status status = claim_and_open(job, &peak);
    if (status == BRIM_OK) return BRIM_OK;
    job->costs.ooms += brim_status_is_want(status) || status == BRIM_EBUDGET;
    if (!brim_decide_is_want(job->session, status)) return status;
    BRIM_TRY(brim_decide_after_oom(job->session, status, peak));
  }
}

/* `recompute`, `arena`: as they were before it was placed. */
static void count_plan(brim_sim_job *job, int32_t recompute, uint64_t arena)
{
  const brim_session *s = job->session;
  const bool changes =
      s->choice.micro_batch != job->costs.micro_batch || s->choice.recompute != recompute || job->arena != arena;
  if (job->was_placed && changes) job->costs.plan_changes++;
  if (job->arena > job->costs.peak_bytes) job->costs.peak_bytes = job->arena;
  job->costs.micro_batch = s->choice.micro_batch;
  snprintf(job->costs.device, sizeof job->costs.device, "%s:%d", job->backend.id, s->planner.device);
  job->was_placed = true;
}

brim_status brim_sim_place(brim_sim_job *job)
{
  const int32_t recompute = job->session->choice.recompute;
  const uint64_t arena = job->arena;
  BRIM_TRY(brim_planner_look(&job->session->planner));
  for (;;) {
    const brim_status status = place_here(job);
    if (status == BRIM_OK) break;
    if (!brim_session_asks(job->session)) return status;
    BRIM_TRY(brim_session_remake(&job->session));
    BRIM_TRY(brim_session_settle(&job->session));
  }
  job->is_held = false;
  count_plan(job, recompute, arena);
  brim_scene_settle(job->all->scene);
  return BRIM_OK;
}

void brim_sim_unplace(brim_sim_job *job)
{
  if (job->is_placed) brim_scene_give(job->all->scene, job->place, job->arena);
  job->is_placed = false;
}

void brim_sim_clean(brim_sim_job *job, enum brim_cleanup cleanup)
{
  const double share = cleanup == BRIM_CLEAN_LIGHT ? job->all->scenario->host.light : cleanup == BRIM_CLEAN_HEAVY;
  const uint64_t bytes = (uint64_t)(share * (double)job->garbage);
  if (cleanup == BRIM_CLEAN_NONE) return;
  job->costs.cleanups++;
  job->garbage -= bytes;
  brim_scene_give(job->all->scene, BRIM_SCENE_HOST, bytes);
}

/* ---- the ladder ---- */

static void ladder_clean(void *self, enum brim_cleanup cleanup)
{
  brim_sim_clean(self, cleanup);
}

static brim_status ladder_prepare(void *self)
{
  brim_sim_job *job = self;
  job->is_held = job->is_placed;
  brim_sim_unplace(job);
  return brim_planner_look(&job->session->planner);
}

static brim_status go_back(brim_sim_job *job, const brim_failure *f)
{
  char text[64];
  const int64_t lost = job->step - job->checkpoint_step;
  double seconds, again;
  if (job->failed_step < 0) return BRIM_OK;
  BRIM_TRY(brim_sim_step_seconds(job, &seconds, &again));
  job->failed_step = -1;
  job->costs.lost_steps += lost;
  job->costs.redone_seconds += (double)lost * seconds;
  job->costs.training_seconds -= (double)lost * seconds;
  job->step = job->round_step = job->evaluated_step = job->checkpoint_step;
  snprintf(text, sizeof text, "back to step %lld", (long long)job->step);
  brim_ladder_tell(&job->ladder, f, "%s", text);
  return BRIM_OK;
}

static brim_status ladder_go_on(void *self, const brim_failure *f, bool replans, brim_status status)
{
  brim_sim_job *job = self;
  const double pause = job->all->scenario->replan_time;
  while (status != BRIM_OK && brim_session_asks(job->session)) {
    status = brim_session_remake(&job->session);
    if (status == BRIM_OK) status = brim_session_settle(&job->session);
    job->ladder.is_over = status != BRIM_OK;
    if (job->ladder.is_over) return status;
  }
  if (status == BRIM_OK && (replans || !job->is_placed)) {
    status = brim_sim_place(job);
    if (status == BRIM_OK) status = brim_sim_sleep(job, pause);
    if (status == BRIM_OK) job->costs.pausing_seconds += pause;
  }
  return status == BRIM_OK ? go_back(job, f) : status;
}

static uint64_t ladder_placed_bytes(void *self)
{
  const brim_sim_job *job = self;
  return job->is_placed ? job->arena : 0;
}

static int64_t ladder_step(void *self)
{
  const brim_sim_job *job = self;
  return job->step;
}

static const brim_ladder_ops ladder_ops = {.clean = ladder_clean,
                                           .prepare = ladder_prepare,
                                           .go_on = ladder_go_on,
                                           .placed_bytes = ladder_placed_bytes,
                                           .step = ladder_step};

static brim_ladder *ladder_of(brim_sim_job *job)
{
  job->ladder.session = &job->session;
  job->ladder.ops = &ladder_ops;
  job->ladder.self = job;
  return &job->ladder;
}

brim_status brim_sim_recover(brim_sim_job *job, brim_status failure, const char *what)
{
  brim_failure f = {.what = what};
  brim_failure_take(&f, failure);
  if (job->step > job->fail_step) job->fail_step = job->step;
  const brim_status status = brim_ladder_climb(ladder_of(job), &f);
  memset(job->question.plain, 0, sizeof job->question.plain);
  if (status == BRIM_OK) job->costs.retries++;
  return status;
}

brim_status brim_sim_shrink(brim_sim_job *job, uint64_t bytes, const char *why)
{
  uint64_t peak = 0;
  brim_session *s = job->session;
  brim_ladder *l = ladder_of(job);
  const brim_choice before = s->choice;
  l->needed_bytes = job->arena;
  const brim_status status = brim_ladder_make_smaller(l, bytes, &peak);
  const brim_choice to = s->choice;
  brim_session_go(s, &before);
  BRIM_TRY(status);
  if (!brim_ladder_take_smaller(l, &to, peak, why)) return BRIM_OK;
  job->is_held = true;
  brim_sim_unplace(job);
  return brim_sim_place(job);
}
