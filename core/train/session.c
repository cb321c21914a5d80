/* Instances, data, device and plans of a run. */
#include "train/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/kept.h"
#include "memory/board.h"
#include "memory/choose.h"
#include "train/decide.h"
#include "train/loss_scale.h"
#include "train/report.h"

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
  return s->data.train.sample.rank >= 2 ? 16 : 1;
}

static int64_t eval_batch_of(const brim_session *s, int64_t batch)
{
  const int64_t set = s->settings->training.eval_batch_size;
  return set ? set : batch;
}

static brim_status check_patience(const brim_session *s)
{
  if (s->settings->training.patience == 0 || s->data.count[BRIM_PART_VALIDATION] > 0) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "training.patience needs validation data, and there is none\n"
                                 "set dataset.validation_fraction, or training.patience=0");
}

/* A class that the loss ignores counts for nothing in its mean. */
static brim_status weigh_labels(brim_session *s)
{
  const int64_t classes = s->data.train.classes;
  double sum = 0;
  s->label_weights = s->class_weights;
  if (!s->loss.ignores || s->loss.ignore_index < 0 || s->loss.ignore_index >= classes) return BRIM_OK;
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

/* Weights must be there for every class, and not all 0. */
static brim_status open_loss(brim_session *s)
{
  const brim_config_choice *choice = brim_config_choice_of(s->config, "loss");
  ((const brim_loss_ops *)choice->plugin->ops)->fill(choice->params, &s->loss, &s->class_weights);
  const brim_list *w = &s->class_weights;
  double sum = 0;
  for (size_t i = 0; i < w->count; i++) sum += w->item[i];
  if (w->count == 0 || ((int64_t)w->count == s->data.train.classes && sum > 0)) return weigh_labels(s);
  return brim_fail(BRIM_ECONFIG,
                   "loss.class_weights has %zu numbers%s, but the dataset has %lld classes\n"
                   "give one number for each class, not all of them 0; [] for none",
                   w->count, sum > 0 ? "" : ", all of them 0", (long long)s->data.train.classes);
}

/* The type that activations are kept in, by enum brim_precision; 0: that of the parameters. */
static const uint32_t activations[BRIM_PRECISIONS] = {
    [BRIM_PRECISION_BF16] = BRIM_DTYPE_BF16, [BRIM_PRECISION_FP16] = BRIM_DTYPE_F16};

static uint32_t precisions_of_backend(const brim_session *s)
{
  const brim_backend_ops *ops = s->backend_ops;
  const bool has_field = ops->size >= offsetof(brim_backend_ops, stores) + sizeof ops->stores;
  uint32_t has = 1u << BRIM_PRECISION_FP32;
  for (size_t i = 0; i < BRIM_PRECISIONS; i++)
    if (has_field && activations[i] && ops->stores & BRIM_STORES(activations[i])) has |= 1u << i;
  return has;
}

uint32_t brim_session_precisions(const brim_session *s)
{
  const uint32_t fp16 = 1u << BRIM_PRECISION_FP16;
  return precisions_of_backend(s) & ~(brim_session_updates_in_backward(s) ? fp16 : 0);
}

static brim_status check_precision(const brim_session *s)
{
  const uint32_t has = precisions_of_backend(s);
  const char *name = brim_precision_names[s->precision];
  const char *single = has >> BRIM_PRECISION_BF16 & 1 ? "fp32 and bf16" : "fp32";
  if (has >> s->precision & 1) return brim_loss_scale_check(s->settings);
  return brim_fail(BRIM_ECONFIG,
                   "precision=%s: backend '%s' keeps activations in %s only\n"
                   "take precision=fp32, or a backend that keeps them in %s: cuda and cpu do",
                   name, backend_id(s), s->backend_ops->real == BRIM_DTYPE_F64 ? "double precision" : single, name);
}

brim_variant brim_session_variant(const brim_session *s, int64_t batch)
{
  return (brim_variant){batch, s->precision, s->recompute, 0};
}

static brim_plan_request make_request(const brim_session *s, const brim_variant *v)
{
  const brim_memory_settings *m = &s->settings->memory;
  const uint64_t room = brim_session_room(s, true), set = m->recompute_budget_mb << 20;
  const bool within = s->within_bytes > 0 && (set == 0 || s->within_bytes < set);
  const uint64_t budget = v->budget_bytes ? v->budget_bytes : within ? s->within_bytes : set;
  const brim_loss_ops *loss = brim_config_choice_of(s->config, "loss")->plugin->ops;
  return (brim_plan_request){.graph = {.model = brim_config_choice_of(s->config, "model")->plugin->ops,
                                       .model_self = s->model,
                                       .loss_op = loss->op,
                                       .loss = s->loss,
                                       .top_k = s->top_k,
                                       .class_weights = s->class_weights.count > 0,
                                       .norm_group = s->settings->training.norm_group,
                                       .sample = s->data.train.sample,
                                       .classes = s->data.train.classes,
                                       .real = s->backend_ops->real,
                                       .activations = activations[v->precision],
                                       .fuse = s->settings->graph.fuse},
                             .backend = s->backend_ops,
                             .backend_self = s->backend,
                             .grain = s->grain,
                             .recompute = (enum brim_recompute_kind)v->recompute,
                             .levels = s->levels,
                             .world = s->world,
                             .shard = (uint32_t)s->settings->dist.shard,
                             .bucket_bytes = s->settings->dist.bucket_mb << 20,
                             .budget_bytes = budget ? budget : room + (room == 0)};
}

/* Some losses make probabilities of the output themselves: after another softmax they still train, but badly. */
static void warn_of_output(const brim_graph *g, const char *loss)
{
  if (g->output->producer < 0 || (strcmp(loss, "cross_entropy") != 0 && strcmp(loss, "bce") != 0)) return;
  const brim_node *n = g->node[g->output->producer];
  if (strcmp(n->op, "softmax") != 0 && strcmp(n->op, "log_softmax") != 0 && strcmp(n->op, "sigmoid") != 0) return;
  brim_log(BRIM_LOG_WARN,
           "the model's output is a %s (%s:%d), but loss=%s takes logits and makes probabilities of them itself: name "
           "what comes before as the output",
           n->op, n->file, n->line, loss);
}

/* A look at the model: does its result depend on norm groups at all? */
static brim_status find_norm_group(brim_session *s)
{
  const brim_variant v = brim_session_variant(s, s->batch);
  brim_plan_request r = make_request(s, &v);
  brim_graph *g = NULL;
  r.graph.fuse = 0;         /* the author's own operations */
  r.graph.batch = s->batch; /* an author reads these shapes if something does not fit */
  BRIM_TRY(brim_graph_build(&r.graph, &g));
  warn_of_output(g, brim_config_choice_of(s->config, "loss")->plugin->id);
  s->norm_group = g->uses_norm_group ? s->settings->training.norm_group : 0;
  brim_graph_free(g);
  return BRIM_OK;
}

/* ---- shares of a step ---- */

static int64_t unit_of(const brim_session *s)
{
  return s->norm_group > 0 ? s->norm_group : 1;
}

static int64_t share_of_rank(const brim_session *s, int32_t rank, int64_t samples)
{
  int64_t first, count;
  const brim_portion portion = brim_deal_portion(&s->deal, rank, s->world.ranks);
  brim_portion_of(&portion, samples, unit_of(s), &first, &count);
  return count;
}

int64_t brim_session_share(const brim_session *s)
{
  return share_of_rank(s, s->world.rank, s->settings->training.effective_batch_size);
}

/* Of several ranks, none cuts larger micro-batches than its share; nor smaller ones than the least that can be planned
 * if it has none. */
static int64_t limit_batch(const brim_session *s, int64_t batch)
{
  const int64_t share = brim_session_share(s), most = share > 0 ? share : unit_of(s);
  return s->world.ranks > 1 && batch > most ? most : batch;
}

/* How training goes in micro-batches of `batch` samples. One rank makes whole ones of a step, also if they divide no
 * effective batch: `brim plan` shows some of those. */
static brim_order order_of(const brim_session *s, int64_t batch)
{
  const brim_training_settings *t = &s->settings->training;
  const int64_t cut = limit_batch(s, batch), set = t->effective_batch_size;
  const int64_t effective = s->world.ranks > 1 ? set : (set + cut - 1) / cut * cut;
  const brim_portion portion = brim_deal_portion(&s->deal, s->world.rank, s->world.ranks);
  return brim_order_make(s->data.count[BRIM_PART_TRAIN], effective, cut, unit_of(s), portion, t->epochs, t->steps);
}

int64_t brim_session_micros(const brim_session *s, int64_t batch)
{
  return order_of(s, batch).micros;
}

bool brim_session_rounds(const brim_session *s, int64_t batch)
{
  const brim_order o = order_of(s, batch);
  const bool is_all = s->world.ranks > 1 && o.micros <= 1 && o.last_micros <= 1; /* grains are counted from its start */
  return s->grain > 1 && batch % s->grain != 0 && !is_all;
}

const char *brim_session_format_cut(const brim_session *s, int64_t batch, char *out, size_t room)
{
  const brim_order o = order_of(s, batch);
  const int64_t share = s->world.ranks > 1 ? brim_session_share(s) : o.effective,
                last = share - (o.micros - 1) * o.batch;
  if (o.micros == 0)
    snprintf(out, room, "none");
  else if (last == o.batch)
    snprintf(out, room, "%lld x %lld", (long long)o.batch, (long long)o.micros);
  else if (o.micros == 1)
    snprintf(out, room, "%lld x 1", (long long)last);
  else
    snprintf(out, room, "%lld x %lld + %lld", (long long)o.batch, (long long)o.micros - 1, (long long)last);
  return out;
}

bool brim_session_allows(const brim_session *s, int64_t batch)
{
  const bool is_whole = batch >= brim_session_share(s);
  if (brim_session_updates_in_backward(s) && !is_whole) return false;
  return s->norm_group == 0 || is_whole || batch % s->norm_group == 0;
}

static int64_t part_from(const brim_session *s, enum brim_part part, int32_t rank)
{
  return s->data.count[part] * rank / s->world.ranks;
}

void brim_session_part(const brim_session *s, enum brim_part part, int64_t *first, int64_t *count)
{
  *first = part_from(s, part, s->world.rank);
  *count = part_from(s, part, s->world.rank + 1) - *first;
}

brim_load brim_session_load(const brim_session *s, int32_t rank)
{
  const int64_t effective = s->settings->training.effective_batch_size, samples = s->data.count[BRIM_PART_TRAIN];
  const int64_t rest = samples % effective;
  const enum brim_part validation = BRIM_PART_VALIDATION, test = BRIM_PART_TEST;
  return (brim_load){.share = share_of_rank(s, rank, effective),
                     .last_share = share_of_rank(s, rank, rest > 0 ? rest : effective),
                     .validation = part_from(s, validation, rank + 1) - part_from(s, validation, rank),
                     .test = part_from(s, test, rank + 1) - part_from(s, test, rank)};
}

/* Ranks that only add up what the others have computed are seldom what somebody wants. */
static void warn_of_idle_ranks(const brim_session *s)
{
  const int64_t effective = s->settings->training.effective_batch_size, samples = s->data.count[BRIM_PART_TRAIN];
  const int64_t step = samples < effective ? samples : effective;
  int32_t idle = 0, first = -1;
  char groups[64] = "";
  if (s->world.rank > 0) return;
  for (int32_t r = 0; r < s->world.ranks; r++) {
    if (share_of_rank(s, r, step) > 0) continue;
    if (idle++ == 0) first = r;
  }
  if (idle == 0) return;
  if (s->norm_group > 0) {
    const long long count = (long long)brim_session_norm_groups(s, step);
    snprintf(groups, sizeof groups, " in %lld norm group%s", count, brim_plural(count));
  }
  if (idle == 1)
    brim_log(BRIM_LOG_WARN, "rank %d of %d has nothing to do: a step has %lld sample%s%s", (int)first,
             (int)s->world.ranks, (long long)step, brim_plural(step), groups);
  else
    brim_log(BRIM_LOG_WARN, "%d of %d ranks have nothing to do: a step has %lld sample%s%s", (int)idle,
             (int)s->world.ranks, (long long)step, brim_plural(step), groups);
}

int64_t brim_session_norm_groups(const brim_session *s, int64_t samples)
{
  return s->norm_group == 0 || samples < s->norm_group ? 1 : samples / s->norm_group;
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

void brim_session_cut(brim_session *s, int64_t batch)
{
  s->batch = limit_batch(s, batch);
  s->eval_batch = eval_batch_of(s, s->batch);
  s->order = order_of(s, s->batch);
}

void brim_session_deal(brim_session *s, int64_t *weight)
{
  free(s->deal.weight);
  s->deal.weight = weight;
  s->micro_batch_count = 0;
  memset(s->peak, 0, sizeof s->peak);
  brim_session_cut(s, s->batch);
  warn_of_idle_ranks(s);
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

static brim_status open_data(brim_session *s)
{
  const brim_config_choice *dataset = brim_config_choice_of(s->config, "dataset");
  BRIM_TRY(make_instance(dataset, &s->dataset));
  return brim_data_describe(&s->data, dataset->plugin, s->dataset, s->settings);
}

static brim_status open_session(brim_session *s, brim_decisions before)
{
  const brim_training_settings *t = &s->settings->training;
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
  BRIM_TRY(open_loss(s));
  BRIM_TRY(check_patience(s));
  s->top_k = s->settings->observe.top_k < s->data.train.classes ? (int32_t)s->settings->observe.top_k : 0;
  s->grain = choose_grain(s);
  s->batch = t->batch_size > 0 ? t->batch_size : t->effective_batch_size;
  BRIM_TRY(find_norm_group(s));
  BRIM_TRY(brim_session_check_update(s));
  brim_session_cut(s, s->batch);
  warn_of_idle_ranks(s);
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
  return open_session(s, before->decisions);
}

brim_status brim_session_remake(brim_session **session)
{
  brim_session *old = *session;
  const brim_session_options options = old->options;
  const size_t count = old->again.count;
  legacy left = {.changes = old->changes + 1, .running = old->running, .decided_batch = old->decided_batch};
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
  BRIM_TRY(brim_data_open_start(&s->data, s->data.plugin, s->dataset, s->settings));
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
  free(s);
}

/* Adds a batch shape if it is not there yet. */
static void add_shape(brim_plan_request *r, enum brim_program_kind kind, int64_t batch)
{
  bool known = batch == 0;
  for (size_t k = 0; k < r->shape_count; k++) known = known || (r->shape[k].kind == kind && r->shape[k].batch == batch);
  if (!known) r->shape[r->shape_count++] = (brim_batch_shape){kind, batch};
}

/* Those in which `count` samples are evaluated. */
static void add_evaluation(brim_plan_request *r, int64_t count, int64_t batch)
{
  if (count >= batch) add_shape(r, BRIM_PROGRAM_EVALUATE, batch);
  add_shape(r, BRIM_PROGRAM_EVALUATE, count % batch);
}

/* A rank without samples of a part has the sums of an evaluation all the same. */
static void add_part(const brim_session *s, brim_plan_request *r, enum brim_part part, int64_t batch)
{
  int64_t first, count;
  brim_session_part(s, part, &first, &count);
  add_evaluation(r, count == 0 && s->data.count[part] > 0 ? 1 : count, batch);
}

/* The micro-batches of the rank; `alone`: but those that are left over. A rank without samples has gradients and the
 * update all the same. */
static void add_training(brim_plan_request *r, const brim_order *order, bool alone)
{
  int64_t size[BRIM_ORDER_SIZES];
  const size_t count = brim_order_sizes(order, size);
  if (alone || count == 0) add_shape(r, BRIM_PROGRAM_TRAIN, order->batch);
  for (size_t i = 0; i < count && !alone; i++) add_shape(r, BRIM_PROGRAM_TRAIN, size[i]);
}

brim_status brim_session_plan_variant(const brim_session *s, const brim_variant *v, bool alone, brim_plan **out)
{
  const brim_training_settings *t = &s->settings->training;
  const int64_t batch = limit_batch(s, v->batch), eval_batch = eval_batch_of(s, batch);
  const brim_order order = order_of(s, batch);
  if (!brim_session_allows(s, batch) && brim_session_updates_in_backward(s))
    return brim_session_refuse_accumulation(s, batch);
  if (!brim_session_allows(s, batch))
    return brim_fail(BRIM_ECONFIG,
                     "training.batch_size %lld is not a multiple of training.norm_group %lld, and the model has batch "
                     "norm: its statistics are taken over whole groups, so that they do not depend on the micro-batch\n"
                     "choose another of the two, or training.gradient_accumulation_steps=1",
                     (long long)batch, (long long)s->norm_group);
  brim_plan_request r = make_request(s, v);
  brim_optimizer_describe(s->optimizer_ops, s->optimizer_params, &r.update);
  r.update.in_backward = brim_session_updates_in_backward(s);
  r.update.offloaded = s->settings->memory.offload == BRIM_OFFLOAD_OPTIMIZER;
  r.update.checked = v->precision == BRIM_PRECISION_FP16;
  r.update.scaled = t->clip_norm > 0 || s->label_weights.count > 0 || r.update.checked;
  r.update.ema_decay = t->ema_decay;
  r.update.max_norm = t->clip_norm;
  add_training(&r, &order, alone);
  if (alone) return brim_plan_create(&r, out);
  add_part(s, &r, BRIM_PART_VALIDATION, eval_batch);
  add_part(s, &r, BRIM_PART_TEST, eval_batch);
  return brim_plan_create(&r, out);
}

brim_status brim_session_plan(const brim_session *s, int64_t batch, brim_plan **out)
{
  const brim_variant v = brim_session_variant(s, batch);
  return brim_session_plan_variant(s, &v, false, out);
}

brim_status brim_session_plan_evaluation(const brim_session *s, int64_t count, int64_t batch, bool keep_output,
                                         brim_plan **out)
{
  const brim_variant v = brim_session_variant(s, batch);
  brim_plan_request r = make_request(s, &v);
  r.graph.keep_output = keep_output;
  add_evaluation(&r, count, batch);
  return brim_plan_create(&r, out);
}
