/* The device of a session: which one, what of it is claimed, and what may change about it. See session.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/board.h"
#include "memory/choose.h"
#include "session/decide.h"
#include "session/sights.h"

static brim_device_wish wish_of(const brim_session *s)
{
  return (brim_device_wish){s->wanted, s->setup->settings->auto_device, s->demands.min_device_bytes};
}

/* Ranks of a host that may have any device take one each, in turn. */
static const char *device_of_rank(brim_session *s)
{
  const char *device = s->setup->settings->device, *environment = getenv("GPU_DEVICE_ID");
  const int count = s->setup->backend_ops->device_count(s->setup->backend);
  if (s->setup->world.local_ranks < 2 || count < 2 || strcmp(device, "auto") != 0 || (environment && environment[0]))
    return device;
  return brim_arena_printf(&s->arena, "%s:%d", brim_setup_backend_id(s->setup),
                           (int)s->setup->world.local_rank % count);
}

/* A share of the host is as large as the user has made it, so it need not have more than that free, unless the command
 * line says so: a preset's min_gpu_memory_mb is about GPUs. */
static brim_status read_least(const brim_session *s, uint64_t *bytes)
{
  brim_device_info first = {0};
  const brim_yaml *node = brim_yaml_get_path(s->setup->config->root, "min_gpu_memory_mb");
  const bool is_typed = node && node->origin.text;
  *bytes = s->setup->settings->min_gpu_memory_mb << 20;
  if (*bytes == 0 || is_typed || s->setup->backend_ops->device_count(s->setup->backend) < 1) return BRIM_OK;
  BRIM_TRY(s->setup->backend_ops->describe(s->setup->backend, 0, &first));
  if (first.on_host && first.limited && first.total_bytes < *bytes) *bytes = first.total_bytes;
  return BRIM_OK;
}

static brim_status read_demands(brim_session *s)
{
  const brim_settings *set = s->setup->settings;
  uint64_t least;
  BRIM_TRY(read_least(s, &least));
  s->asked_device = device_of_rank(s);
  s->demands = (brim_demands){.device = s->asked_device,
                              .wait = set->wait_for_gpu,
                              .min_device_bytes = least,
                              .min_batch_size = set->min_batch_size,
                              .max_retries = set->max_retries};
  s->planner.waits = set->wait_for_gpu;
  snprintf(s->wanted, sizeof s->wanted, "%s", s->asked_device);
  return BRIM_OK;
}

/* One to plan for. If the run may wait, it need not have room yet: see brim_session_claim. */
brim_status brim_session_find_device(brim_session *s)
{
  BRIM_TRY(read_demands(s));
  BRIM_TRY(brim_decide_device(s));
  brim_device_wish wish = wish_of(s);
  if (s->planner.waits) wish.min_bytes = 0;
  return brim_device_choose(brim_setup_backend_id(s->setup), s->setup->backend_ops, s->setup->backend, &wish,
                            &s->planner.device, &s->planner.device_info);
}

bool brim_session_hold(brim_session *s, bool alone)
{
  const brim_claim_request request = {
      .backend = brim_setup_backend_id(s->setup), .ops = s->setup->backend_ops, .self = s->setup->backend};
  if (s->held || !brim_device_is_shared(&s->planner.device_info)) return true;
  return s->env->hold(s->env->self, &request, s->planner.device, alone, &s->held) == BRIM_OK;
}

void brim_session_let_go(brim_session *s)
{
  s->env->release(s->env->self, s->held);
  s->held = NULL;
}

/* ---- claims ---- */

typedef struct waiting {
  const brim_session *session;
  uint64_t need_bytes;
} waiting;

static void on_wait(void *context, const char *place)
{
  const waiting *w = context;
  brim_session_show_wait(w->session, w->session->wanted, w->need_bytes, place, -1);
}

static void claimed(brim_session *s, int device, uint64_t need_bytes, double seconds)
{
  char name[64], waited[128];
  snprintf(name, sizeof name, "%s:%d", brim_setup_backend_id(s->setup), device);
  snprintf(waited, sizeof waited, "%s, after %.3g s in the queue", name, seconds);
  brim_session_show_wait(s, name, need_bytes, waited, seconds);
}

brim_status brim_session_claim(brim_session *s, uint64_t peak, void **claim, int *device)
{
  const brim_device_wish wish = wish_of(s);
  waiting w = {s, peak > wish.min_bytes ? peak : wish.min_bytes};
  double waited = 0;
  brim_claim_request request = brim_planner_claim_request(&s->planner, &wish, w.need_bytes, s->planner.waits);
  request.on_wait = on_wait;
  request.context = &w;
  *claim = NULL;
  *device = s->planner.device;
  if (!brim_device_is_shared(&s->planner.device_info)) return BRIM_OK;
  const brim_status status = s->env->claim(s->env->self, &request, claim, device, &waited);
  s->planner.queue_seconds += waited;
  if (status == BRIM_OK && waited > 0) claimed(s, *device, w.need_bytes, waited);
  return status;
}

brim_status brim_session_move(brim_session *s, int device)
{
  if (device != s->planner.device) brim_session_let_go(s);
  return brim_planner_select(&s->planner, device);
}

void brim_session_tell_device(const brim_session *s)
{
  const brim_device_wish wish = wish_of(s);
  brim_device_tell(brim_setup_backend_id(s->setup), s->setup->backend_ops, s->setup->backend, &wish, s->planner.device);
}
