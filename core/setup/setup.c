/* Opens and closes the plugin instances and the data of a run. See setup.h. */
#include "setup/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "data/describe.h"
#include "data/keep.h"
#include "memory/board.h"
#include "setup/features.h"
#include "setup/loss_scale.h"
#include "setup/setup_parts.h"
#include "store/record.h"

static brim_status make_instance(const brim_config_choice *choice, void **self)
{
  *self = choice->params;
  if (!choice->plugin->create) return BRIM_OK;
  *self = NULL;
  const brim_status status = choice->plugin->create(choice->params, self);
  if (status == BRIM_ENODEVICE)
    return brim_fail(status, "%s '%s' cannot be used: %s", choice->group, choice->plugin->id, brim_error_text());
  if (status != BRIM_OK) brim_fail_add(status, "while creating %s '%s'", choice->group, choice->plugin->id);
  return status;
}

static void drop_instance(const brim_config *config, const char *group, void *self)
{
  const brim_config_choice *choice = brim_config_choice_of(config, group);
  if (self && choice->plugin->destroy) choice->plugin->destroy(self);
}

/* ---- checks ---- */

/* The default grain. On hosts, results in single precision do not depend on the micro-batch; double precision, which
 * serves as a reference, has no grain. */
static int64_t choose_grain(const brim_setup *s, const brim_device_info *device)
{
  if (s->settings->training.grain >= 0) return s->settings->training.grain;
  if (!device->on_host || s->backend_ops->real != BRIM_DTYPE_F32) return 0;
  return s->data.train.sample.rank == 3 ? 16 : 1; /* a sequence already has many rows */
}

static brim_status check_precision(const brim_setup *s)
{
  const uint32_t has = brim_setup_backend_precisions(s);
  const int32_t precision = brim_setup_precision(s);
  const char *name = brim_precision_names[precision];
  const char *single = has >> BRIM_PRECISION_BF16 & 1 ? "fp32 and bf16" : "fp32";
  if (has >> precision & 1) return brim_loss_scale_check(s->settings);
  return brim_fail(BRIM_ECONFIG,
                   "precision=%s: backend '%s' keeps activations in %s only\nset precision=fp32, or use a backend that "
                   "supports %s: cuda or cpu",
                   name, brim_setup_backend_id(s), s->backend_ops->real == BRIM_DTYPE_F64 ? "double precision" : single,
                   name);
}

#define REMEDY "or set optimizer.update=step"

brim_status brim_setup_refuse_accumulation(const brim_setup *s, int64_t batch)
{
  const brim_training_settings *t = &s->settings->training;
  return brim_fail(
      BRIM_ECONFIG,
      "optimizer.update=fused_backward: steps of %lld samples (training.effective_batch_size) accumulate gradients "
      "over micro-batches of %lld (training.batch_size), so all gradients would have to be kept\nset "
      "training.batch_size=%lld with training.gradient_accumulation_steps=1, or lower "
      "training.effective_batch_size, " REMEDY,
      (long long)t->effective_batch_size, (long long)batch, (long long)t->effective_batch_size);
}

/* The check includes class weights: with one micro-batch per step, the labels are known before the backward pass. */
static brim_status check_update(const brim_setup *s)
{
  const brim_training_settings *t = &s->settings->training;
  if (!brim_setup_updates_in_backward(s)) return BRIM_OK;
  if (s->world.ranks > 1 && !brim_setup_is_federated(s))
    return brim_fail(BRIM_ECONFIG,
                     "optimizer.update=fused_backward cannot be used with %d ranks: their gradients are summed before "
                     "any parameter is updated, so all have to be kept\nset dist.ranks=1, " REMEDY,
                     (int)s->world.ranks);
  if (t->clip_norm > 0)
    return brim_fail(BRIM_ECONFIG,
                     "optimizer.update=fused_backward cannot be used with training.clip_norm=%g: the norm covers all "
                     "gradients, but the first of them is used and discarded before the last is computed\nset "
                     "training.clip_norm=0 (optimizer=adafactor limits each update by itself), " REMEDY,
                     t->clip_norm);
  if (s->settings->precision == BRIM_PRECISION_FP16)
    return brim_fail(
        BRIM_ECONFIG,
        "optimizer.update=fused_backward cannot be used with precision=fp16: an overflow is detected only at the end "
        "of the backward pass, when parameters have already been updated\nset precision=bf16 or fp32, " REMEDY);
  if (t->effective_batch_size > brim_setup_micro_batch(s))
    return brim_setup_refuse_accumulation(s, brim_setup_micro_batch(s));
  return BRIM_OK;
}

/* Checks an optimizer that evaluates other weights than it trains. */
static brim_status check_evaluated(const brim_setup *s)
{
  const bool is_federated = brim_setup_is_federated(s);
  const brim_plugin *of[] = {s->optimizer, is_federated ? brim_config_server_optimizer(s->config)->plugin : NULL};
  for (size_t i = 0; i < 2; i++) {
    brim_update_options update = {0};
    if (of[i]) brim_optimizer_describe(of[i]->ops, NULL, &update);
    if (!update.evaluated) continue;
    const char *why = is_federated ? "a federation: clients and server exchange the weights that they train"
                      : s->settings->training.ema_decay > 0 ? "training.ema_decay, which computes another mean"
                      : s->settings->dist.shard != 0        ? "dist.shard: no rank has all of its states"
                      : s->settings->memory.offload == BRIM_OFFLOAD_OPTIMIZER
                          ? "memory.offload=optimizer: evaluation needs its states after the update"
                          : NULL;
    if (why)
      return brim_fail(BRIM_ECONFIG,
                       "%s=%s evaluates other weights than it trains, so it cannot be used with %s\nuse another "
                       "optimizer, or remove that setting",
                       i == 0 ? "optimizer" : "server_optimizer", of[i]->id, why);
  }
  return BRIM_OK;
}

/* Checks offload: an asynchronous device must be able to copy states itself. */
static brim_status check_offload(const brim_setup *s)
{
  if (s->settings->memory.offload == BRIM_OFFLOAD_NONE || !BRIM_HAS(brim_backend_ops, s->backend_ops, run_program) ||
      BRIM_HAS(brim_backend_ops, s->backend_ops, wait))
    return BRIM_OK;
  return brim_fail(
      BRIM_ECONFIG,
      "memory.offload=optimizer: backend '%s' is asynchronous, but cannot copy the optimizer's state "
      "asynchronously\nset memory.offload=none and use an optimizer with less state: adamw8bit, lion, adafactor",
      brim_setup_backend_id(s));
}

/* ---- data ---- */

static brim_status read_kept(brim_setup *s, const char *run)
{
  BRIM_TRY(brim_record_read(run, BRIM_SETUP_DATA_NAME, &s->was));
  if (!s->was && s->world.rank == 0)
    brim_log(BRIM_LOG_WARN,
             "'%s' has no " BRIM_SETUP_DATA_NAME
             ", because an older version of brim began it: class names and everything else come from the present data",
             run);
  if (!s->was || json_is_string(json_object_get(s->was, "dataset"))) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "'%s/" BRIM_SETUP_DATA_NAME "' does not name its dataset", run);
}

/* Describes samples without a run and without data: uses the shape and the classes that the dataset sets before it
 * looks for its files. */
static brim_status describe_unread(brim_setup *s, const brim_plugin *plugin)
{
  const brim_dataset_ops *ops = plugin->ops;
  brim_dataset_info info[BRIM_PART_COUNT] = {0}, *train = &info[BRIM_PART_TRAIN];
  const brim_status status = ops->describe(s->dataset, BRIM_SPLIT_TRAIN, train);
  if (status != BRIM_OK && train->classes == 0) return status;
  train->mapped_bytes = 0;
  train->count = 0;
  for (int part = 0; part < BRIM_PART_COUNT; part++) info[part] = *train;
  train->count = 1;
  return brim_data_recall(&s->data, plugin, s->dataset, s->settings, info);
}

/* Describes the data from its files, which must then match the run's record; a setup that does not read files uses that
 * record instead. If the user chose another dataset than the run's, the two are not compared. */
static brim_status describe_data(brim_setup *s, const brim_plugin *plugin)
{
  const char *run = s->options.run ? s->options.run : s->options.resume;
  if (s->options.unread && !run) return describe_unread(s, plugin);
  if (run && !s->was) BRIM_TRY(read_kept(s, run));
  const bool is_kept = s->was && brim_data_is_kept_of(s->was, plugin);
  if (s->options.unread && is_kept) {
    const brim_status status = brim_data_recall_kept(&s->data, plugin, s->dataset, s->settings, s->was, &s->arena);
    if (status == BRIM_OK || status == BRIM_ECONFIG) return status;
    return brim_fail_add(status, "%s/" BRIM_SETUP_DATA_NAME " describes the run's data", run);
  }
  BRIM_TRY(brim_data_describe(&s->data, plugin, s->dataset, s->settings));
  const bool is_estimate = s->data.train.estimated || s->data.validation.estimated || s->data.test.estimated;
  if (is_estimate && s->options.read_data) BRIM_TRY(brim_data_open(&s->data, plugin, s->dataset, s->settings));
  BRIM_TRY(brim_data_keep(&s->data, &s->kept));
  const brim_status status = is_kept ? brim_data_compare(s->was, s->kept, s->options.resume != NULL) : BRIM_OK;
  if (status == BRIM_OK) return BRIM_OK;
  return brim_fail_add(status,
                       "%s/" BRIM_SETUP_DATA_NAME
                       " describes the data when the run began; dataset.path sets where the data is now",
                       run);
}

/* The default configuration is for images, so users of other data get no message that mirroring has no effect. */
static brim_status open_data(brim_setup *s)
{
  const brim_config_choice *dataset = brim_config_choice_of(s->config, "dataset");
  const brim_yaml *flip = brim_yaml_get_path(s->config->root, "augment.flip");
  BRIM_TRY(make_instance(dataset, &s->dataset));
  const brim_status status = describe_data(s, dataset->plugin);
  const int32_t rank = s->data.train.sample.rank;
  if (status != BRIM_ECONFIG || rank == 0 || rank == 3 || !s->settings->augment.flip || !brim_setup_is_untouched(flip))
    return brim_setup_add_origin(s, status);
  return brim_setup_ask_for(s, BRIM_LOG_DEBUG, "augment.flip=false", "are not images", status);
}

/* ---- opening ---- */

brim_setup *brim_setup_create(const brim_config *config, brim_config *own, const brim_setup_options *options)
{
  brim_setup *s = brim_xcalloc(1, sizeof *s);
  s->config = config;
  s->own_config = own;
  s->options = *options;
  s->world = options->dist || options->world.ranks == 0 ? brim_dist_world(options->dist) : options->world;
  s->settings = &config->settings;
  s->precision = s->settings->precision < BRIM_PRECISIONS ? s->settings->precision : BRIM_PRECISION_FP32;
  return s;
}

brim_status brim_setup_open(brim_setup *s)
{
  const brim_config *c = s->config;
  const brim_setup_maker *maker = s->options.maker;
  if (maker) return maker->open(maker->context, s);
  s->backend_ops = brim_config_choice_of(c, "backend")->plugin->ops;
  s->optimizer = brim_config_choice_of(c, "optimizer")->plugin;
  s->optimizer_params = brim_config_choice_of(c, "optimizer")->params;
  s->schedule = brim_config_choice_of(c, "schedule")->plugin;
  s->schedule_params = brim_config_choice_of(c, "schedule")->params;
  BRIM_TRY(check_precision(s));
  brim_shared_folder_set(s->settings->claims.dir);
  return make_instance(brim_config_choice_of(c, "backend"), &s->backend);
}

/* Returns the size of the model's output. */
static int64_t count_answers(const brim_setup *s)
{
  const brim_dataset_info *info = &s->data.train;
  const brim_config_choice *backbone = brim_config_backbone(s->config);
  const brim_model_ops *ops = (backbone ? backbone : brim_config_choice_of(s->config, "model"))->plugin->ops;
  if (info->task == BRIM_TASK_VALUES) return info->targets;
  if (info->task != BRIM_TASK_TOKENS || !BRIM_HAS(brim_model_ops, ops, classes)) return info->classes;
  return ops->classes(backbone ? s->backbone : s->model, info->classes);
}

brim_status brim_setup_finish(brim_setup *s, const brim_device_info *device)
{
  if (s->options.maker) return BRIM_OK;
  BRIM_TRY(open_data(s));
  BRIM_TRY(make_instance(brim_config_choice_of(s->config, "model"), &s->model));
  if (brim_config_backbone(s->config)) BRIM_TRY(make_instance(brim_config_backbone(s->config), &s->backbone));
  BRIM_TRY(brim_setup_open_loss(s));
  if (s->settings->training.patience > 0 && s->data.count[BRIM_PART_VALIDATION] == 0)
    return brim_fail(BRIM_ECONFIG, "training.patience needs validation data, but the dataset provides none\nset "
                                   "dataset.validation_fraction, or training.patience=0");
  s->top_k = s->settings->observe.top_k < s->data.train.classes ? (int32_t)s->settings->observe.top_k : 0;
  s->answers = count_answers(s);
  if (s->answers < 1)
    return brim_fail(BRIM_ECONFIG,
                     "the vocabulary is not known: dataset '%s' has not read its tokenizer, and the model "
                     "has no vocabulary of its own",
                     s->data.plugin->id);
  s->grain = choose_grain(s, device);
  BRIM_TRY(brim_setup_find_norm_group(s));
  BRIM_TRY(check_offload(s));
  BRIM_TRY(check_update(s));
  BRIM_TRY(check_evaluated(s));
  BRIM_TRY(brim_features_open(s));
  if (s->features) {
    s->grain = choose_grain(s, device); /* features are not images */
    BRIM_TRY(brim_setup_find_norm_group(s));
  }
  if (brim_setup_is_federated(s)) BRIM_TRY(brim_setup_open_federation(s));
  brim_setup_warn_of_idle_ranks(s);
  return BRIM_OK;
}

brim_status brim_setup_start_data(brim_setup *s)
{
  if (s->reads || s->data.opened || !s->options.read_data) return BRIM_OK;
  s->reads = true;
  return brim_data_open_start(&s->data);
}

brim_status brim_setup_finish_data(brim_setup *s)
{
  BRIM_TRY(brim_setup_start_data(s));
  return s->data.opening ? brim_data_open_finish(&s->data) : BRIM_OK;
}

/* The run has already failed for another reason, whose message is the one to print. */
static void abandon_data(brim_data *data)
{
  brim_error error;
  if (!data->opening) return;
  brim_error_take(&error);
  (void)brim_data_open_finish(data);
  brim_error_put(&error);
}

void brim_setup_close(brim_setup *s)
{
  if (!s) return;
  abandon_data(&s->data);
  if (s->features) abandon_data(&s->features->raw.data);
  brim_features_close(s->features);
  if (s->backbone) drop_instance(s->config, "backbone", s->backbone);
  drop_instance(s->config, "model", s->model);
  drop_instance(s->config, "dataset", s->dataset);
  drop_instance(s->config, "backend", s->backend);
  brim_config_free(s->own_config);
  brim_arena_release(&s->arena);
  brim_distribution_release(&s->distribution);
  brim_partition_release(&s->partition);
  free(s->counted);
  free(s->view);
  json_decref(s->kept);
  json_decref(s->was);
  free(s);
}
