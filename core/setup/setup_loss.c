/* The loss of a setup: checks that it fits the data, and weighs samples. See setup.h. */
#include <string.h>

#include "setup/setup_parts.h"

/* A mix of classes has no single class weight, so there is no weighted mean. PyTorch computes another mean. */
static brim_status check_mixup(const brim_setup *s, const char *key)
{
  char mixing[96];
  if (!brim_settings_mix(s->settings)) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "%s mixes classes, but %s applies to a single class\nremove one of them",
                   brim_settings_mixing(s->settings, mixing, sizeof mixing), key);
}

/* A class that the loss ignores has weight 0 in its mean. */
static brim_status weigh_labels(brim_setup *s)
{
  const int64_t classes = s->data.train.classes;
  double sum = 0;
  s->label_weights = s->class_weights;
  if (s->data.train.task == BRIM_TASK_TOKENS) { /* kernels do not know which tokens do not count */
    s->data.ignored_token = s->loss.attr.ignore_index;
    s->loss.attr.ignores = 1;
    s->loss.attr.ignore_index = BRIM_NO_TOKEN;
    return BRIM_OK;
  }
  if (!s->loss.attr.ignores || s->loss.attr.ignore_index < 0 || s->loss.attr.ignore_index >= classes) return BRIM_OK;
  BRIM_TRY(check_mixup(s, "loss.ignore_index"));
  s->counted = brim_xcalloc((size_t)classes, sizeof *s->counted);
  for (int64_t k = 0; k < classes; k++) {
    if (k != s->loss.attr.ignore_index) s->counted[k] = s->class_weights.count ? s->class_weights.item[k] : 1;
    sum += s->counted[k];
  }
  s->label_weights = (brim_list){s->counted, (size_t)classes};
  if (sum > 0) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG,
                   "loss.ignore_index=%d ignores the only class that counts\nset another class, or -100 for none",
                   s->loss.attr.ignore_index);
}

/* If the data has real numbers and the user has not chosen a loss, requests a configuration with a loss for real
 * numbers, so that the run's folder records it. */
static brim_status check_loss(brim_setup *s, const brim_config_choice *loss)
{
  const bool is_values = s->data.train.task == BRIM_TASK_VALUES;
  const char *id = s->data.plugin->id;
  if (((const brim_loss_ops *)loss->plugin->ops)->takes & BRIM_TAKES(s->data.train.task)) return BRIM_OK;
  if (!is_values)
    return brim_fail(BRIM_ECONFIG, "loss=%s cannot be used with dataset '%s', which has %s\nset loss=cross_entropy",
                     loss->plugin->id, id, s->data.train.task == BRIM_TASK_TOKENS ? "tokens" : "classes");
  const brim_yaml *keys = brim_yaml_get(s->config->root, "loss");
  bool is_chosen = false;
  for (size_t i = 0; i < keys->count; i++) is_chosen = is_chosen || !brim_setup_is_untouched(keys->item[i]);
  if (!is_chosen) return brim_setup_ask_for(s, BRIM_LOG_INFO, "loss=mse", "have real numbers as targets", BRIM_ECONFIG);
  return brim_fail(BRIM_ECONFIG,
                   "loss=%s cannot be used with dataset '%s', whose targets are real numbers, not classes\nset "
                   "loss=mse, mae or huber",
                   loss->plugin->id, id);
}

brim_status brim_setup_open_loss(brim_setup *s)
{
  const brim_config_choice *choice = brim_config_choice_of(s->config, "loss");
  BRIM_TRY(check_loss(s, choice));
  s->loss = brim_loss_describe(choice->plugin, choice->params, &s->class_weights);
  const brim_list *w = &s->class_weights;
  double sum = 0;
  if (w->count > 0) BRIM_TRY(check_mixup(s, "loss.class_weights"));
  for (size_t i = 0; i < w->count; i++) sum += w->item[i];
  if (w->count == 0 || ((int64_t)w->count == s->data.train.classes && sum > 0)) return weigh_labels(s);
  return brim_fail(BRIM_ECONFIG,
                   "loss.class_weights has %zu numbers%s, but the dataset has %lld classes\nset one number for each "
                   "class, not all of them 0, or [] for none",
                   w->count, sum > 0 ? "" : ", all of them 0", (long long)s->data.train.classes);
}
