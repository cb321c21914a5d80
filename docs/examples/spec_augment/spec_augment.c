/* Masks stretches of time and bands of features (Park et al.: SpecAugment, 2019), so that a network does not depend on
 * any of them. Masked values become 0, which is the mean of features that are standardised. */
#include <math.h>

#include <brim/brim.h>

typedef struct settings {
  int64_t time_masks, feature_masks;
  double time_share, feature_share;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(I64, settings, time_masks, "2", "[0,100]", "stretches of time in each sample"),
    BRIM_PARAM(F64, settings, time_share, "0.2", "[0,1]", "longest stretch, as a share of the times"),
    BRIM_PARAM(I64, settings, feature_masks, "1", "[0,100]", "bands of features in each sample"),
    BRIM_PARAM(F64, settings, feature_share, "0.3", "[0,1]", "widest band, as a share of the features"),
    BRIM_PARAMS_END,
};

/* Values along an axis are `stride` apart. */
typedef struct axis {
  int64_t count, stride;
} axis;

/* Draws stretches of 0 to share * along.count places, with uniform length and place, and sets them to 0 for all of
 * `across`. */
static void mask(brim_augment_sample *sample, float *values, uint32_t block, int64_t masks, double share, axis along,
                 axis across)
{
  const int64_t longest = (int64_t)floor(share * (double)along.count);
  for (int64_t i = 0; i < masks; i++) {
    const brim_philox random = brim_augment_random(sample, block + (uint32_t)i);
    const int64_t length = (int64_t)(brim_uniform(random.v[0]) * (double)(longest + 1));
    const int64_t first = (int64_t)(brim_uniform(random.v[1]) * (double)(along.count - length + 1));
    for (int64_t k = first; k < first + length; k++)
      for (int64_t j = 0; j < across.count; j++) values[k * along.stride + j * across.stride] = 0;
  }
}

/* Sequences are [T, F]. Images [C, H, W] are spectrograms with time from left to right; all channels get the same
 * masks. Rows [F] have features only. */
static void apply(const void *self, brim_augment_sample *sample)
{
  const settings *s = self;
  const int32_t rank = sample->shape.rank;
  const int64_t *dim = sample->shape.dim, channels = rank == 3 ? dim[0] : 1;
  axis times = {rank == 2 ? dim[0] : 1, dim[rank - 1]}, features = {dim[rank - 1], 1};
  if (rank == 3) {
    times = (axis){dim[2], 1};
    features = (axis){dim[1], dim[2]};
  }
  for (int64_t c = 0; c < channels; c++) {
    float *values = (float *)sample->values + c * times.count * features.count;
    if (rank > 1) mask(sample, values, 0, s->time_masks, s->time_share, times, features);
    mask(sample, values, 100, s->feature_masks, s->feature_share, features, times); /* 100: after those of times */
  }
}

static const brim_augment_ops ops = {.size = sizeof ops, .dtype = BRIM_DTYPE_F32, .apply = apply};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_AUGMENT,
                                   .id = "spec_augment",
                                   .ops = &ops,
                                   .help = "masks stretches of time and bands of features (Park et al., 2019)",
                                   .params_size = sizeof(settings),
                                   .params = table};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("spec_augment", "1.0", plugins)
