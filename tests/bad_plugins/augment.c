/* An augmentation that misbehaves as $BRIM_BAD says, from a given sample on. Without the variable, samples stay
 * unchanged. */
#include <math.h>

#include "bad.h"

static void apply(const void *self, brim_augment_sample *sample)
{
  static int calls;
  float *values = sample->values;
  (void)self;
  if (sample->index < bad_from()) return;
  if (bad_is("apply", "nan")) values[2] = NAN;
  if (bad_is("apply", "past")) values[brim_shape_count(&sample->shape)] = 1;
  if (bad_is("apply", "before")) values[-1] = 1;
  if (bad_is("apply", "scratch")) ((char *)sample->scratch)[8] = 1;
  if (bad_is("apply", "partner")) ((float *)sample->partner)[1] = 1;
  if (bad_is("apply", "share")) sample->share = 1.5f;
  if (bad_is("apply", "shape")) sample->shape.dim[0]++;
  if (bad_is("apply", "impure")) values[0] = (float)++calls;
  (void)bad_in("apply", sample->index);
}

static uint64_t scratch_bytes(const void *self, const brim_shape *shape)
{
  (void)self, (void)shape;
  return 8;
}

static brim_augment_ops ops = {sizeof ops, BRIM_DTYPE_F32, apply, scratch_bytes, 0, 0};
static const brim_plugin plugin = {
    .size = sizeof plugin, .kind = BRIM_AUGMENT, .id = "bad", .help = "samples as they are", .ops = &ops};

__attribute__((constructor)) static void spoil(void)
{
  if (bad_is("table", "apply")) ops.apply = NULL;
  if (bad_is("table", "dtype")) ops.dtype = BRIM_DTYPE_I32;
  if (bad_is("apply", "partner") || bad_is("apply", "share")) ops.mixes = 1;
}

static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("bad-augment", "0.1", plugins)
