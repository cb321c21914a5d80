/* Instances, data and device of a run. See session.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/install.h"
#include "base/process.h"
#include "config/kept.h"
#include "memory/board.h"
#include "memory/choose.h"
#include "session/decide.h"
#include "session/features.h"
#include "session/loss_scale.h"
#include "session/session_parts.h"

#define TURN_SECONDS 10 /* that a rank waits for others of its job to place their plans on the same device */

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

static const char *backend_id(const brim_session *s)
{
  return brim_config_choice_of(s->config, "backend")->plugin->id;
}

static brim_device_wish wish_of(const brim_session *s)
{
  return (brim_device_wish){s->wanted, s->settings->auto_device, s->demands.min_device_bytes};
}

/* Ranks of a host that may have any device take one each, in turn. */
static const char *device_of_rank(brim_session *s)
{
  const char *device = s->settings->device, *environment = getenv("GPU_DEVICE_ID");
  const int count = s->backend_ops->device_count(s->backend);
  if (s->world.local_ranks < 2 || count < 2 || strcmp(device, "auto") != 0 || (environment && environment[0]))
    return device;
  return brim_arena_printf(&s->arena, "%s:%d", backend_id(s), (int)s->world.local_rank % count);
}

static void read_demands(brim_session *s)
{
  const brim_settings *set = s->settings;
  s->asked_device = device_of_rank(s);
  s->demands = (brim_demands){.device = s->asked_device,
                              .wait = set->wait_for_gpu,
                              .min_device_bytes = set->min_gpu_memory_mb << 20,
                              .min_batch_size = set->min_batch_size,
                              .max_retries = set->max_retries};
  s->wait = set->wait_for_gpu;
  snprintf(s->wanted, sizeof s->wanted, "%s", s->asked_device);
}

/* One to plan for. If the run may wait, it need not have room yet: see brim_session_claim. */
static brim_status find_device(brim_session *s)
{
  read_demands(s);
  BRIM_TRY(brim_decide_device(s));
  brim_device_wish wish = wish_of(s);
  if (s->wait) wish.min_bytes = 0;
  return brim_device_choose(backend_id(s), s->backend_ops, s->backend, &wish, &s->device, &s->device_info);
}

bool brim_session_hold(brim_session *s, bool alone)
{
  const brim_claim_request request = {.backend = backend_id(s), .ops = s->backend_ops, .self = s->backend};
  if (s->held || !brim_device_is_shared(&s->device_info)) return true;
  return brim_claim_hold(&request, s->device, alone, &s->held) == BRIM_OK;
}

void brim_session_let_go(brim_session *s)
{
  brim_claim_release(s->held);
  s->held = NULL;
}

brim_status brim_session_claim(const brim_session *s, const brim_plan *plan, brim_claim **claim, int *device)
{
  const brim_device_wish wish = wish_of(s);
  const brim_claim_request request = {
      .backend = backend_id(s),
      .ops = s->backend_ops,
      .self = s->backend,
      .wish = wish,
      .need_bytes = plan->peak_bytes > wish.min_bytes ? plan->peak_bytes : wish.min_bytes,
      .wait = s->wait || s->options.dist,
      .timeout_seconds = s->wait ? 60 * s->settings->gpu_wait_timeout_minutes : TURN_SECONDS,
      .interval_seconds = s->settings->gpu_check_interval_seconds,
      .stop = s->options.stop};
  *claim = NULL;
  *device = s->device;
  return brim_device_is_shared(&s->device_info) ? brim_claim_take(&request, claim, device) : BRIM_OK;
}

static void forget_peaks(brim_session *s)
{
  if (s->recompute == BRIM_RECOMPUTE_AUTO) memset(s->peak, 0, sizeof s->peak);
}

void brim_session_plan_within(brim_session *s, uint64_t bytes)
{
  s->within_bytes = bytes;
  forget_peaks(s);
}

void brim_session_recompute_within(brim_session *s, uint64_t bytes)
{
  s->recompute = BRIM_RECOMPUTE_AUTO;
  brim_session_plan_within(s, bytes);
}

bool brim_session_may_recompute(const brim_session *s)
{
  const brim_yaml *node = brim_yaml_get_path(s->config->root, "memory.recompute");
  return s->settings->memory.recompute == BRIM_RECOMPUTE_AUTO || !node || strcmp(node->origin.file, "default") == 0;
}

brim_way brim_session_way(const brim_session *s)
{
  return (brim_way){s->batch, s->recompute, s->within_bytes};
}

void brim_session_go(brim_session *s, const brim_way *way)
{
  brim_session_cut(s, way->batch);
  s->recompute = way->recompute;
  s->within_bytes = way->within_bytes;
  memset(s->peak, 0, sizeof s->peak);
}

brim_status brim_session_look(brim_session *s)
{
  forget_peaks(s);
  return s->backend_ops->describe(s->backend, s->device, &s->device_info);
}

brim_status brim_session_move(brim_session *s, int device)
{
  if (device != s->device) brim_session_let_go(s);
  s->device = device;
  memset(s->peak, 0, sizeof s->peak);
  brim_profile_close(s->profile);
  s->profile = NULL;
  return brim_device_select(s->backend_ops, s->backend, device, &s->device_info);
}

void brim_session_tell_device(const brim_session *s)
{
  const brim_device_wish wish = wish_of(s);
  brim_device_tell(backend_id(s), s->backend_ops, s->backend, &wish, s->device);
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

/* Of tokens: those that do not count all look the same to kernels. */
static brim_status ignore_tokens(brim_session *s)
{
  s->data.ignored_token = s->loss.ignore_index;
  s->loss.ignores = 1;
  s->loss.ignore_index = BRIM_NO_TOKEN;
  return BRIM_OK;
}

/* A mix of classes has no weight of one of them, so there is no weighted mean; PyTorch's would be another one. */
static brim_status check_mixup(const brim_session *s, const char *key)
{
  if (s->settings->augment.mixup == 0) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG,
                   "augment.mixup=%g makes mixes of classes, and %s is about single ones\nleave out one of them",
                   s->settings->augment.mixup, key);
}

/* A class that the loss ignores counts for nothing in its mean. */
static brim_status weigh_labels(brim_session *s)
{
  const int64_t classes = s->data.train.classes;
  double sum = 0;
  s->label_weights = s->class_weights;
  if (s->data.train.task == BRIM_TASK_TOKENS) return ignore_tokens(s);
  if (!s->loss.ignores || s->loss.ignore_index < 0 || s->loss.ignore_index >= classes) return BRIM_OK;
  BRIM_TRY(check_mixup(s, "loss.ignore_index"));
  s->counted = brim_xcalloc((size_t)classes, sizeof *s->counted);
  for (int64_t k = 0; k < classes; k++) {
    if (k != s->loss.ignore_index) s->counted[k] = s->class_weights.count ? s->class_weights.item[k] : 1;
    sum += s->counted[k];
  }
  s->label_weights = (brim_list){s->counted, (size_t)classes};
  if (sum > 0) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG,
                   "loss.ignore_index=%d leaves no class that counts\ngive another class, or -100 for none",
                   s->loss.ignore_index);
}

/* Is a value as it is in the installed configurations, or where they say nothing? Then nobody has chosen it. */
static bool is_untouched(const brim_yaml *value)
{
  char own[BRIM_PATH_MAX];
  const char *file = value->origin.file;
  if (strcmp(file, "default") == 0) return true;
  return brim_install_dir(own, sizeof own, BRIM_INSTALL_CONFIGS) && brim_starts_with(file, own) &&
         file[strlen(own)] == '/';
}

static bool is_loss_chosen(const brim_session *s)
{
  const brim_yaml *loss = brim_yaml_get(s->config->root, "loss");
  for (size_t i = 0; i < loss->count; i++)
    if (!is_untouched(loss->item[i])) return true;
  return false;
}

/* What the data asks for, in the place of what nobody has chosen: the configuration is made again, so that the run's
 * folder says what was trained. `status` is of what there is now. */
static brim_status ask_for(brim_session *s, enum brim_level level, const char *word, const char *because,
                           brim_status status)
{
  brim_log(level, "%s is taken, as samples of dataset '%s' %s", word, s->data.plugin->id, because);
  s->again.word[s->again.count++] = word;
  s->again.by_data = true;
  return status;
}

/* Real numbers are no classes: where nobody has chosen a loss, the configuration is made again with one for them, so
 * that the run's folder says what it was trained by. */
static brim_status check_loss(brim_session *s, const brim_config_choice *loss)
{
  const bool is_values = s->data.train.task == BRIM_TASK_VALUES;
  const char *op = ((const brim_loss_ops *)loss->plugin->ops)->op, *id = s->data.plugin->id;
  const bool is_classes = strcmp(op, "softmax_cross_entropy") == 0 || strcmp(op, "bce") == 0;
  if (s->data.train.task == BRIM_TASK_TOKENS && strcmp(op, "softmax_cross_entropy") != 0)
    return brim_fail(BRIM_ECONFIG, "loss=%s does not go with dataset '%s', which is of tokens\ntake loss=cross_entropy",
                     loss->plugin->id, id);
  if (!is_values || !is_classes) return BRIM_OK;
  if (!is_loss_chosen(s))
    return ask_for(s, BRIM_LOG_INFO, "loss=mse", "are to be answered with real numbers", BRIM_ECONFIG);
  return brim_fail(BRIM_ECONFIG,
                   "loss=%s does not go with dataset '%s', whose samples are to be answered with real numbers, not "
                   "classes\ntake loss=mse, mae or huber",
                   loss->plugin->id, id);
}

/* Weights must be there for every class, and not all 0. */
static brim_status open_loss(brim_session *s)
{
  const brim_config_choice *choice = brim_config_choice_of(s->config, "loss");
  BRIM_TRY(check_loss(s, choice));
  ((const brim_loss_ops *)choice->plugin->ops)->fill(choice->params, &s->loss, &s->class_weights);
  const brim_list *w = &s->class_weights;
  double sum = 0;
  if (w->count > 0) BRIM_TRY(check_mixup(s, "loss.class_weights"));
  for (size_t i = 0; i < w->count; i++) sum += w->item[i];
  if (w->count == 0 || ((int64_t)w->count == s->data.train.classes && sum > 0)) return weigh_labels(s);
  return brim_fail(BRIM_ECONFIG,
                   "loss.class_weights has %zu numbers%s, but the dataset has %lld classes\n"
                   "give one number for each class, not all of them 0; [] for none",
                   w->count, sum > 0 ? "" : ", all of them 0", (long long)s->data.train.classes);
}

static brim_status check_precision(const brim_session *s)
{
  const uint32_t has = brim_session_backend_precisions(s);
  const char *name = brim_precision_names[s->precision];
  const char *single = has >> BRIM_PRECISION_BF16 & 1 ? "fp32 and bf16" : "fp32";
  if (has >> s->precision & 1) return brim_loss_scale_check(s->settings);
  return brim_fail(BRIM_ECONFIG,
                   "precision=%s: backend '%s' keeps activations in %s only\n"
                   "take precision=fp32, or a backend that keeps them in %s: cuda and cpu do",
                   name, backend_id(s), s->backend_ops->real == BRIM_DTYPE_F64 ? "double precision" : single, name);
}

/* What other programs are limited by holds for brim too, where devices are shared and the configuration has no share of
 * its own. */
static brim_status read_fraction(brim_session *s)
{
  const char *text = getenv("TF_GPU_MEMORY_FRACTION");
  char *end = NULL;
  if (!text || !text[0] || s->settings->memory.limit > 0 || !brim_device_is_shared(&s->device_info)) return BRIM_OK;
  s->fraction = strtod(text, &end);
  if (*end || !(s->fraction > 0 && s->fraction <= 1))
    return brim_fail(BRIM_ECONFIG, "TF_GPU_MEMORY_FRACTION is '%s', which is no share in (0,1]", text);
  brim_log(BRIM_LOG_INFO, "TF_GPU_MEMORY_FRACTION=%s is taken as memory.limit=%s", text, text);
  return BRIM_OK;
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
  if (status != BRIM_ECONFIG || rank == 0 || rank == 3 || !s->settings->augment.flip || !is_untouched(flip))
    return tell_origin(s, status);
  return ask_for(s, BRIM_LOG_DEBUG, "augment.flip=false", "are no images", status);
}

brim_status brim_session_follow_data(brim_session *s)
{
  const brim_training_settings *t = &s->settings->training;
  s->grain = choose_grain(s);
  s->batch = t->batch_size > 0 ? t->batch_size : t->effective_batch_size;
  BRIM_TRY(brim_session_find_norm_group(s));
  brim_session_cut(s, s->batch);
  return BRIM_OK;
}

static brim_status open_session(brim_session *s, brim_decisions before)
{
  choose_ops(s);
  s->recompute = s->settings->memory.recompute;
  s->precision = s->settings->precision == BRIM_PRECISION_AUTO ? BRIM_PRECISION_FP32 : s->settings->precision;
  BRIM_TRY(brim_policies_open(s->config, before, &s->policies));
  BRIM_TRY(check_precision(s));
  brim_shared_folder_set(s->settings->claims.dir);
  BRIM_TRY(make_instance(brim_config_choice_of(s->config, "backend"), &s->backend));
  BRIM_TRY(find_device(s));
  BRIM_TRY(read_fraction(s));
  BRIM_TRY(open_data(s));
  BRIM_TRY(make_instance(brim_config_choice_of(s->config, "model"), &s->model));
  if (brim_config_backbone(s->config)) BRIM_TRY(make_instance(brim_config_backbone(s->config), &s->backbone));
  BRIM_TRY(open_loss(s));
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
  int64_t decided_batch;
  brim_decisions decisions;
  brim_dealing deal;
  json_t *was;
} legacy;

static brim_status open_once(const brim_config *config, const legacy *before, const brim_session_options *options,
                             brim_session **out)
{
  brim_session *s = *out = brim_xcalloc(1, sizeof *s);
  s->levels = brim_xcalloc(1, sizeof *s->levels);
  s->config = config;
  s->own_config = before->config;
  s->options = *options;
  s->world = options->dist || options->world.ranks == 0 ? brim_dist_world(options->dist) : options->world;
  s->settings = &config->settings;
  s->changes = before->changes;
  s->running = before->running;
  s->decided_batch = before->decided_batch;
  s->deal = before->deal;
  s->was = before->was;
  return open_session(s, before->decisions);
}

brim_status brim_session_remake(brim_session **session)
{
  brim_session *old = *session;
  const brim_session_options options = old->options;
  const size_t count = old->again.count;
  legacy left = {
      .changes = old->changes + !old->again.by_data, .running = old->running, .decided_batch = old->decided_batch};
  old->again.count = 0;
  BRIM_TRY(brim_config_load_again(old->config, old->again.word, count, &left.config));
  const brim_status status = brim_config_anchor_paths(left.config);
  if (status != BRIM_OK) {
    brim_config_free(left.config);
    return status;
  }
  left.decisions = brim_policies_take_decisions(old->policies);
  left.deal = old->deal;
  old->deal = (brim_dealing){0};
  left.was = json_incref(old->was);
  brim_session_close(old);
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

brim_status brim_session_start(brim_session *s)
{
  if (s->started) return BRIM_OK;
  s->started = true;
  s->resident_bytes = brim_rss_bytes();
  if (s->data.opened) return BRIM_OK;
  BRIM_TRY(brim_data_host_bytes(&s->data, &s->data_bytes));
  if (!s->options.read_data) return BRIM_OK;
  BRIM_TRY(brim_data_open_start(&s->data, s->data.plugin, s->data.self, s->data.settings));
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
  brim_arena_release(&s->arena);
  brim_deal_release(&s->deal);
  free(s->counted);
  json_decref(s->kept);
  json_decref(s->was);
  free(s);
}
