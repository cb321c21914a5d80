/* @NAME@: an augmentation that adds Gaussian noise to each value of a training sample.
 *
 * brim/augment.h is the interface of augmentations. */
#include <brim/brim.h>
#include <math.h>

typedef struct settings { /* brim fills this struct from the table below */
  double deviation;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(F64, settings, deviation, "0.1", "[0,1000]", "standard deviation of the noise"),
    BRIM_PARAMS_END,
};

/* Changes the sample in place. The result depends only on the sample and on its random numbers of this epoch, so it is
 * the same on every thread, in every micro-batch and after a resume. */
static void apply(const void *self, brim_augment_sample *sample)
{
  const settings *s = self;
  const int64_t count = brim_shape_count(&sample->shape);
  float *values = sample->values;
  for (int64_t i = 0; i < count; i++) {
    const brim_philox random = brim_augment_random(sample, (uint32_t)i); /* four numbers; two are enough */
    const double u = 1 - brim_uniform(random.v[0]), v = brim_uniform(random.v[1]);
    values[i] += (float)(s->deviation * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
  }
}

static const brim_augment_ops ops = {.size = sizeof ops, .dtype = BRIM_DTYPE_F32, .apply = apply};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_AUGMENT,
                                   .id = "@NAME@",
                                   .ops = &ops,
                                   .help = "Gaussian noise on each value",
                                   .params_size = sizeof(settings),
                                   .params = table};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("@NAME@", "0.1", plugins)
