/* Instances and data of a run, opened and closed. See session.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/guard.h"
#include "base/process.h"
#include "config/kept.h"
#include "memory/board.h"
#include "session/features.h"
#include "session/loss_scale.h"
#include "session/session_parts.h"

static brim_status make_instance(const brim_config_choice *choice, void **self)
{
  *self = choice->params;
  if (!choice->plugin->create) return BRIM_OK;
  *self = NULL;
  const brim_status status = choice->plugin->create(choice->params, self);
  if (status == BRIM_ENODEVICE)
    return brim_fail(status, "%s '%s' cannot be used: %s", choice->group, choice->plugin->id, brim_error_text());
  if (status != BRIM_OK) brim_fail_add(status, "while making %s '%s'", choice->group, choice->plugin->id);
  return status;
}

static void drop_instance(const brim_config *config, const char *group, void *self)
{
  const brim_config_choice *choice = brim_config_choice_of(config, group);
  if (self && choice->plugin->destroy) choice->plugin->destroy(self);
}

/* Where results should not depend on the micro-batch by default: on hosts in single precision. Double precision is for
 * judging, without it. */
static int64_t choose_grain(const brim_session *s)
{
  if (s->settings->training.grain >= 0) return s->settings->training.grain;
  if (!s->device_info.on_host || s->backend_ops->real != BRIM_DTYPE_F32) return 0;
  return s->data.train.sample.rank == 3 ? 16 : 1; /* a sequence has many rows in itself */
}

static brim_status check_patience(const brim_session *s)
{
  if (s->settings->training.patience == 0 || s->data.count[BRIM_PART_VALIDATION] > 0) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "training.patience needs validation data, and there is none\n"
                                 "set dataset.validation_fraction, or training.patience=0");
}

static brim_status check_precision(const brim_session *s)
{
  const uint32_t has = brim_session_backend_precisions(s);
  const char *name = brim_precision_names[s->choice.precision];
  const char *single = has >> BRIM_PRECISION_BF16 & 1 ? "fp32 and bf16" : "fp32";
  if (has >> s->choice.precision & 1) return brim_loss_scale_check(s->settings);
  return brim_fail(BRIM_ECONFIG,
                   "precision=%s: backend '%s' keeps activations in %s only\n"
                   "take precision=fp32, or a backend that keeps them in %s: cuda and cpu do",
                   name, brim_session_backend_id(s),
                   s->backend_ops->real == BRIM_DTYPE_F64 ? "double precision" : single, name);
}

static void choose_ops(brim_session *s)
{
  const brim_config *c = s->config;
  s->backend_ops = brim_config_choice_of(c, "backend")->plugin->ops;
  s->optimizer_ops = brim_config_choice_of(c, "optimizer")->plugin->ops;
  s->optimizer_params = brim_config_choice_of(c, "optimizer")->params;
  s->schedule_ops = brim_config_choice_of(c, "schedule")->plugin->ops;
  s->schedule_params = brim_config_choice_of(c, "schedule")->params;
}

/* An error that begins with a key gets a line of where its value is from: a preset may have set it. */
static brim_status tell_origin(const brim_session *s, brim_status status)
{
  brim_text text = {0}, origin = {0};
  brim_text_add(&text, brim_error_text());
  const char *error = brim_text_str(&text);
  const size_t line = strcspn(error, "\n"), name = error[0] == '\'' ? strcspn(error + 1, "='") : 0;
  char key[BRIM_YAML_KEY_BYTES_MAX];
  const int length = snprintf(key, sizeof key, "%.*s", (int)name, error + (name > 0));
  const brim_yaml *value = name > 0 && (size_t)length < sizeof key ? brim_yaml_get_path(s->config->root, key) : NULL;
  if (status == BRIM_ECONFIG && value && strcmp(value->origin.file, "default") != 0) {
    brim_yaml_print_origin(&value->origin, &origin);
    brim_fail(status, "%.*s\n%s%s", (int)line, error, brim_text_str(&origin), error + line);
  }
  brim_text_release(&text);
  brim_text_release(&origin);
  return status;
}

/* The default configuration is for images: that its mirroring means nothing to others, nobody needs to be told. */
static brim_status open_data(brim_session *s)
{
  const brim_config_choice *dataset = brim_config_choice_of(s->config, "dataset");
  const brim_yaml *flip = brim_yaml_get_path(s->config->root, "augment.flip");
  BRIM_TRY(make_instance(dataset, &s->dataset));
  const brim_status status = brim_session_describe_data(s, dataset->plugin);
  const int32_t rank = s->data.train.sample.rank;
  if (status != BRIM_ECONFIG || rank == 0 || rank == 3 || !s->settings->augment.flip ||
      !brim_session_is_untouched(flip))
    return tell_origin(s, status);
  return brim_session_ask_for(s, BRIM_LOG_DEBUG, "augment.flip=false", "are no images", status);
}

brim_status brim_session_follow_data(brim_session *s)
{
  const brim_training_settings *t = &s->settings->training;
  s->grain = choose_grain(s);
  s->choice.micro_batch = t->batch_size > 0 ? t->batch_size : t->effective_batch_size;
  BRIM_TRY(brim_session_find_norm_group(s));
  brim_session_cut(s, s->choice.micro_batch);
  return BRIM_OK;
}

static brim_status open_session(brim_session *s, brim_decisions before)
{
  choose_ops(s);
  s->choice.recompute = s->settings->memory.recompute;
  s->choice.precision = s->settings->precision == BRIM_PRECISION_AUTO ? BRIM_PRECISION_FP32 : s->settings->precision;
  BRIM_TRY(brim_policies_open(s->config, before, &s->policies));
  BRIM_TRY(check_precision(s));
  brim_shared_folder_set(s->settings->claims.dir);
  BRIM_TRY(make_instance(brim_config_choice_of(s->config, "backend"), &s->backend));
  BRIM_TRY(brim_session_find_device(s));
  BRIM_TRY(brim_session_read_fraction(s));
  BRIM_TRY(open_data(s));
  BRIM_TRY(make_instance(brim_config_choice_of(s->config, "model"), &s->model));
  if (brim_config_backbone(s->config)) BRIM_TRY(make_instance(brim_config_backbone(s->config), &s->backbone));
  BRIM_TRY(brim_session_open_loss(s));
  BRIM_TRY(check_patience(s));
  s->top_k = s->settings->observe.top_k < s->data.train.classes ? (int32_t)s->settings->observe.top_k : 0;
  s->answers = s->data.train.task == BRIM_TASK_VALUES ? s->data.train.targets : s->data.train.classes;
  BRIM_TRY(brim_session_follow_data(s));
  BRIM_TRY(brim_session_check_update(s));
  BRIM_TRY(brim_features_open(s));
  brim_session_warn_of_idle_ranks(s);
  return BRIM_OK;
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
static uint64_t host_share(const brim_session *s)
{
  const uint64_t left = brim_host_memory_now().available_bytes;
  if (s->world.local_ranks < 2) return 0;
  return left == UINT64_MAX ? left : left / (uint64_t)s->world.local_ranks + brim_rss_bytes();
}

static brim_status open_once(const brim_config *config, const legacy *before, const brim_session_options *options,
                             brim_session **out)
{
  brim_session *s = *out = brim_xcalloc(1, sizeof *s);
  s->levels = brim_xcalloc(1, sizeof *s->levels);
  s->peaks = brim_peaks_create();
  s->config = config;
  s->own_config = before->config;
  s->options = *options;
  s->world = options->dist || options->world.ranks == 0 ? brim_dist_world(options->dist) : options->world;
  s->settings = &config->settings;
  s->changes = before->changes;
  s->running = before->running;
  s->queue_seconds = before->queue_seconds;
  s->host_share_bytes = before->host_share_bytes > 0 ? before->host_share_bytes : host_share(s);
  s->decided_batch = before->decided_batch;
  s->deal = before->deal;
  s->was = before->was;
  return open_session(s, before->decisions);
}

brim_status brim_session_remake(brim_session **session)
{
  brim_session *old = *session;
  if (old->stand_in) return old->stand_in->remake(old->stand_in->context, session);
  const brim_session_options options = old->options;
  const size_t count = old->again.count;
  legacy left = {.changes = old->changes + !old->again.by_data,
                 .running = old->running,
                 .queue_seconds = old->queue_seconds,
                 .host_share_bytes = old->host_share_bytes,
                 .decided_batch = old->decided_batch};
  old->again.count = 0;
  brim_status status = brim_config_load_again(old->config, old->again.word, count, &left.config);
  if (status != BRIM_OK && !old->again.by_data && brim_policies_decider(old->policies))
    return brim_fail_add(status, "%s has asked for it: %s%s%s", brim_policies_decider(old->policies),
                         old->again.word[0], count > 1 ? " " : "", count > 1 ? old->again.word[1] : "");
  BRIM_TRY(status);
  status = brim_config_anchor_paths(left.config);
  if (status != BRIM_OK) {
    brim_config_free(left.config);
    return status;
  }
  left.decisions = brim_policies_take_decisions(old->policies);
  left.deal = old->deal;
  old->deal = (brim_dealing){0};
  left.was = json_incref(old->was);
  brim_session_close(old);
  brim_guard_go_on(); /* its policies may have been given up as they ended */
  return open_once(left.config, &left, &options, session);
}

brim_status brim_session_open(const brim_config *config, const brim_session_options *options, brim_session **out)
{
  brim_session *s;
  brim_status status = open_once(config, &(legacy){0}, options, &s);
  while (status != BRIM_OK && s->again.count > 0) status = brim_session_remake(&s);
  if (status != BRIM_OK) {
    brim_session_close(s);
    return status;
  }
  *out = s;
  return BRIM_OK;
}

brim_status brim_session_measure(brim_session *s)
{
  s->resident_bytes = brim_rss_bytes();
  return s->data.opened ? BRIM_OK : brim_data_host_bytes(&s->data, &s->data_bytes);
}

brim_status brim_session_start(brim_session *s)
{
  if (s->started) return BRIM_OK;
  s->started = true;
  BRIM_TRY(brim_session_measure(s));
  if (s->data.opened || !s->options.read_data) return BRIM_OK;
  BRIM_TRY(brim_data_open_start(&s->data));
  s->opening = true;
  return BRIM_OK;
}

brim_status brim_session_finish_data(brim_session *s)
{
  BRIM_TRY(brim_session_start(s));
  if (!s->opening) return BRIM_OK;
  s->opening = false;
  return brim_data_open_finish(&s->data);
}

/* The session failed for another reason, which is the one to show. */
static void abandon_data(brim_session *s)
{
  char error[4096];
  snprintf(error, sizeof error, "%s", brim_error_text());
  if (brim_data_open_finish(&s->data) != BRIM_OK || error[0]) (void)brim_fail(BRIM_OK, "%s", error);
}

void brim_session_close(brim_session *s)
{
  if (!s) return;
  if (s->opening) abandon_data(s);
  brim_dist_disconnect(s->options.dist); /* while there is a device */
  brim_session_let_go(s);
  brim_features_close(s->features);
  if (s->backbone) drop_instance(s->config, "backbone", s->backbone);
  drop_instance(s->config, "model", s->model);
  drop_instance(s->config, "dataset", s->dataset);
  drop_instance(s->config, "backend", s->backend);
  brim_policies_close(s->policies);
  brim_profile_close(s->profile);
  brim_config_free(s->own_config);
  brim_recompute_cache_release(s->levels);
  free(s->levels);
  brim_peaks_free(s->peaks);
  brim_arena_release(&s->arena);
  brim_deal_release(&s->deal);
  free(s->counted);
  json_decref(s->kept);
  json_decref(s->was);
  free(s);
}
