/* Opening a session, and opening it anew. See session.h. */
#include "session/session.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "base/process.h"
#include "config/config.h"
#include "planner/room.h"
#include "session/extract.h"

static brim_status open_session(brim_session *s)
{
  BRIM_TRY(brim_setup_open(s->setup));
  BRIM_TRY(brim_session_find_device(s));
  BRIM_TRY(brim_planner_read_fraction(&s->planner));
  BRIM_TRY(brim_setup_finish(s->setup, &s->planner.device_info));
  brim_session_cut(s, brim_setup_micro_batch(s->setup));
  return brim_extract_features(s);
}

/* What another session of the same run leaves behind, for the one in its place. */
typedef struct legacy {
  brim_config *config; /* the new session's own */
  int changes;
  bool running;
  double queue_seconds;
  uint64_t host_share_bytes;
  int64_t decided_batch;
  brim_decisions decisions;
  brim_dealing deal;
  json_t *was;
} legacy;

/* Ranks place their plans only when all have opened their sessions. */
static uint64_t host_share(const brim_world *world)
{
  const uint64_t left = brim_host_memory_now().available_bytes;
  if (world->local_ranks < 2) return 0;
  return left == UINT64_MAX ? left : left / (uint64_t)world->local_ranks + brim_rss_bytes();
}

static brim_status open_once(const brim_session_place *place, const brim_config *config, const legacy *before,
                             const brim_setup_options *options, brim_session **out)
{
  brim_session *s = *out = brim_xcalloc(1, sizeof *s);
  const brim_status heard = brim_policies_open(config, before->decisions, &s->policies);
  s->setup = brim_setup_create(config, before->config, options);
  brim_planner_open(&s->planner, s->setup);
  s->place = place;
  s->env = place ? place->env : &brim_real_env;
  s->planner.model = place ? place->model : NULL;
  s->setup->deal = before->deal;
  s->setup->was = before->was;
  s->choice =
      (brim_choice){.precision = brim_setup_precision(s->setup), .recompute = config->settings.memory.recompute};
  s->changes = before->changes;
  if (before->running) brim_session_begin(s);
  s->planner.queue_seconds = before->queue_seconds;
  s->planner.host_share_bytes = before->host_share_bytes > 0 ? before->host_share_bytes : host_share(&s->setup->world);
  s->decided_batch = before->decided_batch;
  BRIM_TRY(heard);
  if (place) brim_policies_listen(s->policies, place->listen, place->context);
  if (place && place->answers_at_once) brim_policies_answer_there(s->policies);
  return open_session(s);
}

brim_status brim_session_remake(brim_session **session)
{
  brim_session *old = *session;
  const brim_setup_options options = old->setup->options;
  const brim_session_place *place = old->place;
  brim_again asked = old->setup->again.count > 0 ? old->setup->again : old->again;
  legacy left = {.changes = old->changes + !asked.by_data,
                 .running = old->running,
                 .queue_seconds = old->planner.queue_seconds,
                 .host_share_bytes = old->planner.host_share_bytes,
                 .decided_batch = old->decided_batch};
  old->again.count = old->setup->again.count = 0;
  if (options.maker) BRIM_TRY(options.maker->hear(options.maker->context, &asked));
  const size_t count = asked.count;
  brim_status status = brim_config_load_again(old->setup->config, asked.word, count, &left.config);
  if (status != BRIM_OK && !asked.by_data && brim_policies_decider(old->policies))
    return brim_fail_add(status, "%s has asked for it: %s%s%s", brim_policies_decider(old->policies), asked.word[0],
                         count > 1 ? " " : "", count > 1 ? asked.word[1] : "");
  BRIM_TRY(status);
  status = brim_config_anchor_paths(left.config);
  if (status != BRIM_OK) {
    brim_config_free(left.config);
    return status;
  }
  left.decisions = brim_policies_take_decisions(old->policies);
  left.deal = old->setup->deal;
  old->setup->deal = (brim_dealing){0};
  left.was = json_incref(old->setup->was);
  brim_session_close(old);
  brim_guard_go_on(); /* its policies may have been given up as they ended */
  return open_once(place, left.config, &left, &options, session);
}

brim_status brim_session_open_in(const brim_session_place *place, const brim_config *config,
                                 const brim_setup_options *options, brim_session **out)
{
  brim_session *s;
  brim_status status = open_once(place, config, &(legacy){0}, options, &s);
  while (status != BRIM_OK && brim_session_asks(s)) status = brim_session_remake(&s);
  if (status != BRIM_OK) {
    brim_session_close(s);
    return status;
  }
  *out = s;
  return BRIM_OK;
}

brim_status brim_session_open(const brim_config *config, const brim_setup_options *options, brim_session **out)
{
  return brim_session_open_in(NULL, config, options, out);
}

bool brim_session_asks(const brim_session *s)
{
  return s->again.count > 0 || s->setup->again.count > 0;
}

brim_status brim_session_start(brim_session *s)
{
  if (s->started) return BRIM_OK;
  s->started = s->planner.has_begun = true;
  BRIM_TRY(brim_planner_measure(&s->planner));
  return brim_setup_start_data(s->setup);
}

double brim_session_now(const brim_session *s)
{
  return s->env->now(s->env->self);
}

void brim_session_cut(brim_session *s, int64_t batch)
{
  s->choice.micro_batch = brim_setup_limit_batch(s->setup, batch);
  s->order = brim_setup_order(s->setup, s->choice.micro_batch);
  s->demands.steps = s->order.steps;
}

void brim_session_go(brim_session *s, const brim_choice *choice)
{
  s->choice = *choice;
  brim_session_cut(s, choice->micro_batch);
}

int64_t brim_session_eval_batch(const brim_session *s)
{
  return brim_setup_eval_batch(s->setup, s->choice.micro_batch);
}

void brim_session_deal(brim_session *s, int64_t *weight)
{
  free(s->setup->deal.weight);
  s->setup->deal.weight = weight;
  brim_planner_forget(&s->planner);
  brim_session_cut(s, s->choice.micro_batch);
  brim_setup_warn_of_idle_ranks(s->setup);
}

void brim_session_begin(brim_session *s)
{
  s->running = s->planner.has_begun = true;
}

void brim_session_close(brim_session *s)
{
  if (!s) return;
  brim_dist_disconnect(s->setup->options.dist); /* while there is a device */
  brim_session_let_go(s);
  brim_planner_close(&s->planner);
  brim_policies_close(s->policies);
  brim_setup_close(s->setup);
  brim_arena_release(&s->arena);
  free(s);
}
