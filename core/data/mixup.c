/* See mixup.h. */
#include "data/mixup.h"

#include "brim/random.h"

#define ALIGN_BYTES 64u

/* Adds room for `count` numbers of 4 bytes, with alignment, to *total; returns its offset. */
static uint64_t add_room(uint64_t *total, uint64_t count)
{
  uint64_t offset, bytes;
  if (__builtin_add_overflow(*total, ALIGN_BYTES - 1, &offset)) return *total = UINT64_MAX;
  offset &= ~(uint64_t)(ALIGN_BYTES - 1);
  if (__builtin_mul_overflow(count, sizeof(float), &bytes) || __builtin_add_overflow(offset, bytes, total))
    *total = UINT64_MAX;
  return offset;
}

brim_mixup_room brim_mixup_room_of(const brim_data *data, uint64_t before)
{
  brim_mixup_room room = {.bytes = before};
  if (!brim_settings_mix(data->settings)) return room;
  room.values = add_room(&room.bytes, (uint64_t)data->elements);
  room.label = add_room(&room.bytes, data->train.task == BRIM_TASK_VALUES ? (uint64_t)data->train.targets : 1);
  return room;
}

int64_t brim_mixup_partner(const brim_data *data, int64_t epoch, int64_t k)
{
  brim_permutation partner;
  brim_permutation_init(&partner, data->seed, BRIM_STREAM_MIXUP, (uint64_t)epoch,
                        (uint64_t)data->count[BRIM_PART_TRAIN]);
  return (int64_t)brim_permutation_at(&partner, (uint64_t)k);
}

void brim_mixup_classes(float *out, int64_t classes, int32_t own, int32_t partner, float share)
{
  for (int64_t k = 0; k < classes; k++) out[k] = 0;
  out[partner] = 1 - share;
  out[own] = own == partner ? 1 : share;
}
