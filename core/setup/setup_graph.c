/* The settings from which a step is computed, and the model's graph. See setup.h. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "setup/setup_parts.h"

/* The type of stored activations, by enum brim_precision; 0: that of the parameters. */
static const uint32_t activations[BRIM_PRECISIONS] = {
    [BRIM_PRECISION_BF16] = BRIM_DTYPE_BF16, [BRIM_PRECISION_FP16] = BRIM_DTYPE_F16};

const char *brim_setup_backend_id(const brim_setup *s)
{
  return brim_config_choice_of(s->config, "backend")->plugin->id;
}

int64_t brim_setup_micro_batch(const brim_setup *s)
{
  const brim_training_settings *t = &s->settings->training;
  return t->batch_size > 0 ? t->batch_size : t->effective_batch_size;
}

bool brim_setup_may_recompute(const brim_setup *s)
{
  const brim_yaml *node = brim_yaml_get_path(s->config->root, "memory.recompute");
  return s->settings->memory.recompute == BRIM_RECOMPUTE_AUTO || !node || strcmp(node->origin.file, "default") == 0;
}

bool brim_setup_may_time(const brim_setup *s)
{
  return s->settings->memory.timing && !s->options.no_timing && !s->options.resume && !brim_setup_is_described(s);
}

bool brim_setup_is_described(const brim_setup *s)
{
  const brim_yaml *card = brim_yaml_get_path(s->config->root, "backend.card");
  return card && card->kind == BRIM_YAML_SCALAR && strcmp(card->scalar, "none") != 0;
}

bool brim_setup_updates_in_backward(const brim_setup *s)
{
  return s->settings->optimizer.update == BRIM_UPDATE_FUSED_BACKWARD;
}

int32_t brim_setup_precision(const brim_setup *s)
{
  return s->precision;
}

bool brim_setup_multiplies(const brim_setup *s, const brim_device_info *device, int32_t precision)
{
  if (!activations[precision] || s->backend_ops->real != BRIM_DTYPE_F32) return true;
  return device->multiplies & BRIM_STORES(activations[precision]);
}

int32_t brim_setup_auto_precision(const brim_setup *s, const brim_device_info *device)
{
  const bool has = brim_setup_backend_precisions(s) >> BRIM_PRECISION_BF16 & 1;
  const bool is_fast = has && !device->on_host && brim_setup_multiplies(s, device, BRIM_PRECISION_BF16);
  return is_fast ? BRIM_PRECISION_BF16 : BRIM_PRECISION_FP32;
}

void brim_setup_see_device(brim_setup *s, const brim_device_info *device)
{
  if (s->settings->precision == BRIM_PRECISION_AUTO) s->precision = brim_setup_auto_precision(s, device);
}

uint32_t brim_setup_backend_precisions(const brim_setup *s)
{
  const brim_backend_ops *ops = s->backend_ops;
  const bool has_field = ops->size >= offsetof(brim_backend_ops, stores) + sizeof ops->stores;
  uint32_t has = 1u << BRIM_PRECISION_FP32;
  for (size_t i = 0; i < BRIM_PRECISIONS; i++)
    if (has_field && activations[i] && ops->stores & BRIM_STORES(activations[i])) has |= 1u << i;
  return has;
}

uint32_t brim_setup_precisions(const brim_setup *s)
{
  const uint32_t fp16 = 1u << BRIM_PRECISION_FP16;
  return brim_setup_backend_precisions(s) & ~(brim_setup_updates_in_backward(s) ? fp16 : 0);
}

brim_graph_options brim_setup_graph_options(const brim_setup *s, int32_t precision)
{
  const brim_config_choice *backbone = brim_config_backbone(s->config);
  brim_graph_options g = {.model = brim_config_choice_of(s->config, "model")->plugin->ops,
                          .model_self = s->model,
                          .loss = s->loss,
                          .top_k = s->top_k,
                          .class_weights = s->class_weights.count > 0,
                          .soft_labels = brim_settings_mix(s->settings),
                          .norm_group = s->settings->training.norm_group,
                          .local = brim_setup_is_federated(s) ? s->settings->federate.local_parameters : NULL,
                          .sample = s->data.sample,
                          .task = s->data.train.task,
                          .documents = s->data.train.documents && !s->features,
                          .classes = s->answers,
                          .real = s->backend_ops->real,
                          .activations = activations[precision],
                          .fuse = s->settings->graph.fuse};
  if (!backbone) return g;
  /* With precision=bf16 kernels read frozen weights in bf16 anyway, so storing them in bf16 does not change results. */
  const int32_t store = s->settings->backbone.store;
  const bool is_small = store == BRIM_STORE_BF16 || (store == BRIM_STORE_AUTO && precision == BRIM_PRECISION_BF16);
  g.backbone = backbone->plugin->ops;
  g.backbone_self = s->backbone;
  g.backbone_id = backbone->plugin->id;
  g.frozen_type = is_small ? BRIM_DTYPE_BF16 : 0;
  g.given_features = s->features != NULL;
  return g;
}

/* Warns if a loss that applies softmax itself gets an output with softmax: training still works then, but badly. */
static void warn_of_output(const brim_graph *g, const char *loss)
{
  if (g->output->producer < 0 || (strcmp(loss, "cross_entropy") != 0 && strcmp(loss, "bce") != 0)) return;
  const brim_node *n = g->node[g->output->producer];
  if (!n->descriptor->probabilities) return;
  brim_log(BRIM_LOG_WARN,
           "the model's output is a %s (%s:%d), but loss=%s expects logits and applies it itself: make the input of "
           "that operation the output",
           n->op, n->file, n->line, loss);
}

/* Adds a description of the samples to a model's error. */
static brim_status add_samples(const brim_setup *s, brim_status status)
{
  const brim_dataset_info *info = &s->data.train;
  const brim_shape *sample = &s->data.sample;
  char shape[96], answer[64];
  if (status != BRIM_ECONFIG) return status;
  brim_shape_format(shape, sizeof shape, sample);
  if (info->task == BRIM_TASK_TOKENS)
    return brim_fail_add(status, "samples of dataset '%s' are %lld tokens each, of a vocabulary of %lld",
                         s->data.plugin->id, (long long)sample->dim[0], (long long)info->classes);
  if (info->task == BRIM_TASK_VALUES)
    snprintf(answer, sizeof answer, "%lld real number%s", (long long)s->answers, brim_plural(s->answers));
  else
    snprintf(answer, sizeof answer, "one of %lld classes", (long long)s->answers);
  return brim_fail_add(status, "samples of dataset '%s' are %s %s; the target is %s", s->data.plugin->id,
                       sample->rank == 3 ? "images" : "real numbers", shape, answer);
}

brim_status brim_setup_find_norm_group(brim_setup *s)
{
  brim_graph_options options = brim_setup_graph_options(s, brim_setup_precision(s));
  brim_graph *g = NULL;
  options.fuse = 0;                          /* keeps the author's own operations */
  options.batch = brim_setup_micro_batch(s); /* a model's author sees these shapes in errors */
  BRIM_TRY(add_samples(s, brim_graph_build(&options, &g)));
  warn_of_output(g, brim_config_choice_of(s->config, "loss")->plugin->id);
  s->norm_group = g->uses_norm_group ? s->settings->training.norm_group : 0;
  brim_setup_count_kept(s, g);
  const brim_status status = brim_setup_check_local(s, g);
  brim_graph_free(g);
  return status;
}
