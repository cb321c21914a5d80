/* Labels: see answers.h. Also computes the sizes of values and labels. */
#include "data/answers.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "data/mixup.h"
#include "graph/documents.h"

/* Returns how many real numbers a label of a part has; 0: the label has type I32. */
static int64_t numbers_of(const brim_data *data, enum brim_part part)
{
  if (data->train.task == BRIM_TASK_VALUES) return data->train.targets;
  return brim_data_is_mixed(data, part) ? data->train.classes : 0;
}

bool brim_data_is_mixed(const brim_data *data, enum brim_part part)
{
  return part == BRIM_PART_TRAIN && brim_settings_mix(data->settings);
}

uint64_t brim_data_values_bytes(const brim_data *data, uint32_t real)
{
  uint64_t bytes;
  const uint32_t dtype = data->train.task == BRIM_TASK_TOKENS ? BRIM_DTYPE_I32 : real;
  const uint64_t each = brim_dtype_bytes(dtype) * (data->train.documents ? BRIM_DOCUMENT_ROWS : 1);
  return __builtin_mul_overflow((uint64_t)data->elements, each, &bytes) ? UINT64_MAX : bytes;
}

uint64_t brim_data_label_bytes(const brim_data *data, enum brim_part part, uint32_t real)
{
  const int64_t numbers = numbers_of(data, part), tokens = data->train.task == BRIM_TASK_TOKENS ? data->elements : 1;
  return numbers > 0 ? (uint64_t)numbers * brim_dtype_bytes(real) : (uint64_t)tokens * sizeof(int32_t);
}

/* Goes from the last number to the first, because the results overwrite the inputs. */
void brim_data_widen(void *values, int64_t n)
{
  for (int64_t i = n - 1; i >= 0; i--) {
    float narrow;
    memcpy(&narrow, (const char *)values + i * (int64_t)sizeof(float), sizeof narrow);
    const double wide = narrow;
    memcpy((char *)values + i * (int64_t)sizeof(double), &wide, sizeof wide);
  }
}

static brim_status check_class(const brim_data *data, const char *split, int64_t index, int32_t label)
{
  if (label >= 0 && label < data->train.classes) return BRIM_OK;
  return brim_fail(BRIM_ELOAD,
                   "dataset '%s': label %d of sample %" PRId64 " of the %s split is out of range, 0 to %" PRId64,
                   data->plugin->id, label, index, split, data->train.classes - 1);
}

static brim_status fail_token(const brim_data *data, const char *split, int64_t index, const char *what, int64_t at,
                              int32_t token)
{
  return brim_fail(BRIM_ELOAD,
                   "dataset '%s': %s %" PRId64 " of sample %" PRId64
                   " of the %s split is %d, which is not in the vocabulary, 0 to %" PRId64,
                   data->plugin->id, what, at, index, split, token, data->train.classes - 1);
}

/* Sets all labels of ignored tokens to BRIM_NO_TOKEN. */
static brim_status check_tokens(const brim_data *data, const char *split, int64_t index, const int32_t *token,
                                int32_t *label)
{
  const int64_t vocabulary = data->train.classes;
  for (int64_t t = 0; t < data->elements; t++) {
    if (token[t] < 0 || token[t] >= vocabulary) return fail_token(data, split, index, "token", t, token[t]);
    if (label[t] == data->ignored_token) label[t] = BRIM_NO_TOKEN;
    if (label[t] != BRIM_NO_TOKEN && (label[t] < 0 || label[t] >= vocabulary))
      return fail_token(data, split, index, "the label of token", t, label[t]);
  }
  return BRIM_OK;
}

static brim_status check_places(const brim_data *data, const char *split, int64_t index, const int32_t *place)
{
  for (int64_t t = 0; t < data->elements; t++)
    if (place[t] != 0 && (t == 0 || place[t] != place[t - 1] + 1))
      return brim_fail(BRIM_ELOAD,
                       "dataset '%s': the place of token %" PRId64 " of sample %" PRId64
                       " of the %s split is %d, which is neither 0 nor one more than the place before",
                       data->plugin->id, t, index, split, place[t]);
  return BRIM_OK;
}

static brim_status check_targets(const brim_data *data, const char *split, int64_t index, const float *target)
{
  for (int64_t k = 0; k < data->train.targets; k++)
    if (!isfinite(target[k]))
      return brim_fail(BRIM_ELOAD,
                       "dataset '%s': target %" PRId64 " of sample %" PRId64 " of the %s split is not finite",
                       data->plugin->id, k, index, split);
  return BRIM_OK;
}

brim_status brim_data_check_label(const brim_data *data, const char *split, int64_t index, const void *raw, void *label)
{
  if (data->train.documents) BRIM_TRY(check_places(data, split, index, (const int32_t *)raw + data->elements));
  if (data->train.task == BRIM_TASK_TOKENS) return check_tokens(data, split, index, raw, label);
  if (data->train.task == BRIM_TASK_VALUES) return check_targets(data, split, index, label);
  return check_class(data, split, index, *(const int32_t *)label);
}

/* ---- Real labels ---- */

void brim_data_mix_label(const brim_data *data, void *label, const void *partner, float share)
{
  if (data->train.task == BRIM_TASK_VALUES) {
    brim_mixup_values(label, partner, data->train.targets, share);
  } else {
    const int32_t own = *(const int32_t *)label;
    brim_mixup_classes(label, data->train.classes, own, *(const int32_t *)partner, share);
  }
}

void brim_data_finish_label(const brim_data *data, enum brim_part part, uint32_t real, void *label)
{
  if (real == BRIM_DTYPE_F64) brim_data_widen(label, numbers_of(data, part));
}
