/* Made-up data that can be learnt, for tests and benchmarks without files: each class has a mean
 * pattern, each sample is its class's pattern plus noise.
 *
 *     value = pattern(class, element) + noise * n(sample, element)
 *
 * The pattern is uniform in [-1, 1], one number per channel and 4x4 pixels (per element for samples of
 * rank 1), so that convolutions and pooling keep it. n has mean 0 and variance 1: the sum of four random
 * bytes, close to normal and the same bits on every machine. Sample i has class i mod classes. Everything
 * is a function of (seed, split, sample), so nothing is stored. */
#include <inttypes.h>
#include <string.h>

#include "brim/brim.h"

#define CELL 4 /* pixels */
#define SAMPLE_ELEMENTS_MAX (1 << 26)

typedef struct synthetic {
  brim_list shape;
  int64_t classes, train_count, test_count, seed;
  double noise;
} synthetic;

static const brim_param table[] = {
    BRIM_PARAM(LIST, synthetic, shape, "[1,28,28]", NULL, "of a sample: [channels,rows,columns] or [features]"),
    BRIM_PARAM(I64, synthetic, classes, "10", "[2,1000000]", "number of classes"),
    BRIM_PARAM(I64, synthetic, train_count, "4096", "[1,1000000000000]", "samples for training"),
    BRIM_PARAM(I64, synthetic, test_count, "1024", "[0,1000000000000]",
               "samples for testing; 0: there is no test split"),
    BRIM_PARAM(I64, synthetic, seed, "1", "[0,inf)", "seed of patterns and noise"),
    BRIM_PARAM(F64, synthetic, noise, "1", "[0,1000]", "standard deviation of the noise; patterns lie in [-1,1]"),
    BRIM_PARAMS_END,
};

enum { STREAM_PATTERN = 1, STREAM_TRAIN, STREAM_TEST };

/* STREAM_TRAIN or STREAM_TEST; 0 if there is no such split. */
static uint32_t stream_of(const synthetic *d, const char *split)
{
  if (strcmp(split, "train") == 0) return STREAM_TRAIN;
  return strcmp(split, "test") == 0 && d->test_count > 0 ? STREAM_TEST : 0;
}

static brim_status shape_of(const synthetic *d, brim_shape *out)
{
  if (d->shape.count != 1 && d->shape.count != 3)
    return brim_fail(BRIM_ECONFIG,
                     "dataset.shape must have 3 numbers, [channels,rows,columns], or 1, [features]; it has %zu",
                     d->shape.count);
  *out = (brim_shape){.rank = (int32_t)d->shape.count};
  double elements = 1;
  for (size_t i = 0; i < d->shape.count; i++) {
    const double n = d->shape.item[i];
    if (!(n >= 1 && n <= SAMPLE_ELEMENTS_MAX) || n != (double)(int64_t)n)
      return brim_fail(BRIM_ECONFIG, "dataset.shape: number %zu must be a whole number from 1 to %d, got %g", i + 1,
                       SAMPLE_ELEMENTS_MAX, n);
    out->dim[i] = (int64_t)n;
    elements *= n;
  }
  if (elements > SAMPLE_ELEMENTS_MAX)
    return brim_fail(BRIM_ECONFIG, "dataset.shape makes %.0f values a sample, at most %d are possible", elements,
                     SAMPLE_ELEMENTS_MAX);
  return BRIM_OK;
}

static brim_status synthetic_describe(const void *self, const char *split, brim_dataset_info *out)
{
  const synthetic *d = self;
  const uint32_t stream = stream_of(d, split);
  if (stream == 0) return brim_fail(BRIM_ENOTSUP, "the dataset has no split '%s'", split);
  *out = (brim_dataset_info){
      .count = stream == STREAM_TRAIN ? d->train_count : d->test_count, .dtype = BRIM_DTYPE_F32, .classes = d->classes};
  return shape_of(d, &out->sample);
}

static brim_status synthetic_open(void *self, const char *split)
{
  brim_dataset_info info;
  return synthetic_describe(self, split, &info);
}

/* Numbers of one stream in order, four from each Philox block. */
typedef struct numbers {
  uint64_t seed, item;
  uint32_t stream, used;
  brim_philox block;
} numbers;

static uint32_t number_next(numbers *n)
{
  if ((n->used & 3) == 0) n->block = brim_random4(n->seed, BRIM_STREAM_DATA, n->stream, n->item, n->used >> 2);
  return n->block.v[n->used++ & 3];
}

static void write_pattern(const synthetic *d, const brim_shape *shape, int64_t class, float *values)
{
  numbers n = {.seed = (uint64_t)d->seed, .item = (uint64_t) class, .stream = STREAM_PATTERN};
  const int64_t channels = shape->dim[0]; /* or features, each a plane of one pixel */
  const int64_t rows = shape->rank == 3 ? shape->dim[1] : 1, columns = shape->rank == 3 ? shape->dim[2] : 1;
  for (int64_t c = 0; c < channels; c++) {
    float *plane = values + c * rows * columns;
    for (int64_t y0 = 0; y0 < rows; y0 += CELL) {
      for (int64_t x0 = 0; x0 < columns; x0 += CELL) {
        const float v = (float)(2 * brim_uniform(number_next(&n)) - 1);
        for (int64_t y = y0; y < rows && y < y0 + CELL; y++)
          for (int64_t x = x0; x < columns && x < x0 + CELL; x++) plane[y * columns + x] = v;
      }
    }
  }
}

/* The sum of four bytes has mean 510 and variance 4 * (256^2 - 1) / 12 = 21845. */
static float noise_of(uint32_t x)
{
  const int32_t sum = (int32_t)((x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24));
  return (float)(sum - 510) * 0.00676590f; /* 1 / sqrt(21845) */
}

static void add_noise(const synthetic *d, uint32_t stream, int64_t index, int64_t count, float *values)
{
  const float scale = (float)d->noise;
  for (int64_t i = 0; i < count; i += 4) {
    const brim_philox r =
        brim_random4((uint64_t)d->seed, BRIM_STREAM_DATA, stream, (uint64_t)index, (uint32_t)(i >> 2));
    for (int64_t k = 0; k < 4 && i + k < count; k++) values[i + k] += scale * noise_of(r.v[k]);
  }
}

static brim_status synthetic_read(const void *self, const char *split, int64_t index, void *values, void *label)
{
  const synthetic *d = self;
  brim_dataset_info info;
  BRIM_TRY(synthetic_describe(d, split, &info));
  if (index < 0 || index >= info.count)
    return brim_fail(BRIM_EINVAL, "sample %" PRId64 " of %" PRId64, index, info.count);
  write_pattern(d, &info.sample, index % d->classes, values);
  if (d->noise > 0) add_noise(d, stream_of(d, split), index, brim_shape_count(&info.sample), values);
  *(int32_t *)label = (int32_t)(index % d->classes);
  return BRIM_OK;
}

static const brim_dataset_ops ops = {
    .size = sizeof ops, .open = synthetic_open, .describe = synthetic_describe, .read = synthetic_read};

static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_DATASET,
    .id = "synthetic",
    .help = "made-up samples that can be learnt: a mean pattern per class, and noise",
    .params_size = sizeof(synthetic),
    .params = table,
    .ops = &ops,
};

static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-synthetic", "0.1", plugins)
