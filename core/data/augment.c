#include "data/augment.h"

#include <inttypes.h>

#include "builtin/builtin.h"
#include "data/transform_check.h"
#include "graph/graph.h"

static brim_augment_sample sample_of(const brim_transform *t, const brim_draws *d, uint32_t block, void *values,
                                     void *scratch)
{
  return (brim_augment_sample){.shape = t->made,
                               .values = values,
                               .scratch = scratch,
                               .share = 1,
                               .block = block,
                               .seed = d->seed,
                               .epoch = d->epoch,
                               .index = d->sample};
}

static void apply_own(const brim_plugin *plugin, const void *params, brim_augment_sample s)
{
  ((const brim_augment_ops *)plugin->ops)->apply(params, &s);
}

static const brim_augment_ops *ops_of(const brim_augment_choice *choice)
{
  return choice->plugin->ops;
}

void brim_augment_apply(const brim_transform *t, uint32_t dtype, const brim_draws *draws, void *values, void *scratch)
{
  const brim_augment_settings *a = &t->settings->augment;
  const brim_color_jitter colours = {a->brightness, a->contrast, a->saturation, a->hue};
  const brim_erase rectangle = {a->erase_probability, a->erase_scale, a->erase_ratio};
  brim_augment_sample s = sample_of(t, draws, BRIM_DRAW_COLOUR, values, scratch);
  if (dtype == BRIM_DTYPE_U8 && (a->brightness > 0 || a->contrast > 0 || a->saturation > 0 || a->hue > 0))
    apply_own(&brim_augment_color_jitter, &colours, s);
  s.block = BRIM_DRAW_ERASE;
  if (dtype == BRIM_DTYPE_F32 && a->erase_probability > 0) apply_own(&brim_augment_erase, &rectangle, s);
  for (size_t i = 0; i < a->chosen_count; i++) {
    const brim_augment_ops *ops = ops_of(&a->chosen[i]);
    if (ops->dtype != dtype || ops->mixes) continue;
    s = sample_of(t, draws, (uint32_t)(i + 1) * BRIM_AUGMENT_BLOCKS, values, scratch);
    ops->apply(a->chosen[i].params, &s);
  }
}

float brim_augment_mix(const brim_transform *t, const brim_draws *draws, float *values, const float *partner,
                       void *scratch)
{
  const brim_augment_settings *a = &t->settings->augment;
  const brim_mixup own = {a->mixup};
  const brim_plugin *plugin = &brim_augment_mixup;
  const void *params = &own;
  brim_augment_sample s = sample_of(t, draws, BRIM_DRAW_MIXUP, values, scratch);
  for (size_t i = 0; i < a->chosen_count && a->mixup == 0; i++) {
    if (!ops_of(&a->chosen[i])->mixes) continue;
    plugin = a->chosen[i].plugin;
    params = a->chosen[i].params;
    s.block = (uint32_t)(i + 1) * BRIM_AUGMENT_BLOCKS;
  }
  s.partner = partner;
  ((const brim_augment_ops *)plugin->ops)->apply(params, &s);
  return s.share;
}

uint64_t brim_augment_bytes(const brim_transform *t)
{
  const brim_augment_settings *a = &t->settings->augment;
  uint64_t most = 0;
  for (size_t i = 0; i < a->chosen_count; i++) {
    const brim_augment_ops *ops = ops_of(&a->chosen[i]);
    const uint64_t bytes = ops->scratch_bytes ? ops->scratch_bytes(a->chosen[i].params, &t->made) : 0;
    if (bytes > most) most = bytes;
  }
  return most;
}

bool brim_augment_has_bytes(const brim_settings *s)
{
  for (size_t i = 0; i < s->augment.chosen_count; i++)
    if (ops_of(&s->augment.chosen[i])->dtype == BRIM_DTYPE_U8) return true;
  return false;
}

/* ---- requirements ---- */

static brim_status check_one(const brim_augment_choice *choice, const char *dataset, const brim_dataset_info *info)
{
  const brim_augment_ops *ops = ops_of(choice);
  const char *id = choice->plugin->id;
  char shape[96];
  if (info->task == BRIM_TASK_TOKENS)
    return brim_fail(BRIM_ECONFIG, "augmentation '%s' changes numbers, but the samples of dataset '%s' are tokens", id,
                     dataset);
  if ((ops->images || ops->dtype == BRIM_DTYPE_U8) && info->sample.rank != 3)
    return brim_fail(BRIM_ECONFIG, "augmentation '%s' needs images, but the samples of dataset '%s' have shape %s", id,
                     dataset, brim_shape_format(shape, sizeof shape, &info->sample));
  if (ops->dtype == BRIM_DTYPE_U8 && info->dtype != BRIM_DTYPE_U8)
    return brim_fail(BRIM_ECONFIG,
                     "augmentation '%s' needs images of type U8, but the samples of dataset '%s' are of type %s", id,
                     dataset, brim_dtype_name(info->dtype));
  if (ops->dtype == BRIM_DTYPE_U8 && info->sample.dim[0] != 1 && info->sample.dim[0] != 3)
    return brim_fail(BRIM_ECONFIG,
                     "augmentation '%s' needs 1 or 3 channels, but the images of dataset '%s' have %" PRId64, id,
                     dataset, info->sample.dim[0]);
  if (choice->plugin != &brim_augment_erase) return BRIM_OK;
  const brim_erase *erase = choice->params;
  BRIM_TRY(brim_transform_check_range("augmentation.erase.scale", &erase->scale, 1));
  return brim_transform_check_range("augmentation.erase.ratio", &erase->ratio, 1000);
}

brim_status brim_augment_check(const brim_transform *t, const char *dataset, const brim_dataset_info *info)
{
  const brim_augment_settings *a = &t->settings->augment;
  const char *mixing = a->mixup > 0 ? "augment.mixup" : NULL;
  for (size_t i = 0; i < a->chosen_count; i++) {
    BRIM_TRY(check_one(&a->chosen[i], dataset, info));
    if (!ops_of(&a->chosen[i])->mixes) continue;
    if (mixing)
      return brim_fail(BRIM_ECONFIG, "'%s' and '%s' both mix samples: leave out one of them", mixing,
                       a->chosen[i].plugin->id);
    mixing = a->chosen[i].plugin->id;
  }
  return BRIM_OK;
}
