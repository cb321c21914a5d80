/* Generated data that models can learn, for tests and benchmarks without files.
 *
 * task=class: each class has a pattern, and each sample is the pattern of its class plus noise.
 *
 *     value = pattern(class, element) + noise * n(sample, element)
 *
 * The pattern is uniform in [-1, 1], one number for each channel and 4x4 pixels (for each element in samples of other
 * ranks), so convolutions and pooling preserve it. n has mean 0 and variance 1: the sum of four random bytes, close to
 * normal and bit-identical on every machine. Sample i has class i mod classes.
 *
 * task=values: the targets of a sample are linear functions of its values, plus noise.
 *
 *     value     = n(sample, element)
 *     target(k) = sum over elements of weight(k, element) * value / sqrt(elements) + noise * n'(sample, k)
 *
 * with weights uniform in [-1, 1].
 *
 * task=tokens: a Markov chain in which each token has a successor.
 *
 *     token(t+1) = successor(token(t)), or with probability `surprise` any token; the first token is random
 *
 * The loss of a perfect model is the chain's entropy. With `clients`, samples belong to clients with different models:
 * see leaf.h. All numbers are functions of (seed, split, sample); only the models of clients are stored. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "brim/brim.h"
#include "leaf.h"

#define CELL 4 /* pixels */
#define SAMPLE_ELEMENTS_MAX (1 << 26)

typedef struct synthetic {
  int32_t task; /* enum brim_task */
  brim_list shape;
  int64_t classes, vocabulary, length, targets, train_count, test_count, seed;
  double noise, surprise, ignored;
  int64_t clients;
  double alpha, beta;
} synthetic;

typedef struct synthetic_set {
  synthetic params;
  leaf leaf; /* with clients, made when a split is opened */
} synthetic_set;

static const brim_param table[] = {
    BRIM_PARAM(ENUM, synthetic, task, "class", "class|tokens|values",
               "answers to predict: classes, tokens or real numbers"),
    BRIM_PARAM(LIST, synthetic, shape, "[1,28,28]", NULL,
               "shape of a sample: [channels,rows,columns], [length,features] or [features]; not for tokens"),
    BRIM_PARAM(I64, synthetic, classes, "10", "[2,1000000]", "number of classes, for task=class"),
    BRIM_PARAM(I64, synthetic, vocabulary, "64", "[2,1000000]", "size of the vocabulary, for task=tokens"),
    BRIM_PARAM(I64, synthetic, length, "32", "[1,1000000]", "tokens in a sample, for task=tokens"),
    BRIM_PARAM(I64, synthetic, targets, "1", "[1,1000000]", "real numbers to predict per sample, for task=values"),
    BRIM_PARAM(I64, synthetic, train_count, "4096", "[1,1000000000000]", "number of training samples"),
    BRIM_PARAM(I64, synthetic, test_count, "1024", "[0,1000000000000]", "number of test samples; 0: no test split"),
    BRIM_PARAM(I64, synthetic, seed, "1", "[0,inf)", "seed of the patterns and the noise"),
    BRIM_PARAM(
        F64, synthetic, noise, "1", "[0,1000]",
        "standard deviation of the noise on patterns, which are in [-1,1]; for task=values of the noise on targets"),
    BRIM_PARAM(F64, synthetic, surprise, "0.1", "[0,1]", "share of tokens that are random"),
    BRIM_PARAM(F64, synthetic, ignored, "0", "[0,1]", "share of tokens that the loss ignores"),
    BRIM_PARAM(I64, synthetic, clients, "0", "[0,1000000]",
               "number of clients, each with its own data distribution (LEAF's synthetic(alpha, beta)); 0: no clients"),
    BRIM_PARAM(F64, synthetic, alpha, "1", "[0,1000]", "with clients: how much their true models differ"),
    BRIM_PARAM(F64, synthetic, beta, "1", "[0,1000]", "with clients: how much their inputs differ"),
    BRIM_PARAMS_END,
};

enum { STREAM_PATTERN = 1, STREAM_TRAIN, STREAM_TEST, STREAM_WEIGHT, STREAM_SUCCESSOR, STREAM_ANSWER = 16 };

/* Returns STREAM_TRAIN or STREAM_TEST, or 0 if there is no such split. */
static uint32_t stream_of(const synthetic *d, const char *split)
{
  if (strcmp(split, "train") == 0) return STREAM_TRAIN;
  return strcmp(split, "test") == 0 && d->test_count > 0 ? STREAM_TEST : 0;
}

static brim_status shape_of(const synthetic *d, brim_shape *out)
{
  if (d->shape.count < 1 || d->shape.count > 3)
    return brim_fail(BRIM_ECONFIG,
                     "dataset.shape must have 3 numbers, [channels,rows,columns], 2, [length,features], or 1, "
                     "[features]; it has %zu",
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
    return brim_fail(BRIM_ECONFIG, "dataset.shape makes %.0f values in a sample, but at most %d are possible", elements,
                     SAMPLE_ELEMENTS_MAX);
  return BRIM_OK;
}

static brim_status check_clients(const synthetic *d)
{
  if (d->clients == 0 || (d->task == BRIM_TASK_CLASS && d->shape.count == 1)) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG,
                   "dataset.clients=%" PRId64 " needs task=class and samples of features\n"
                   "set dataset.shape=[60], or use dataset=synthetic_leaf",
                   d->clients);
}

static brim_status synthetic_describe(const void *self, const char *split, brim_dataset_info *out)
{
  const synthetic *d = self;
  const uint32_t stream = stream_of(d, split);
  if (stream == 0) return brim_fail(BRIM_ENOTSUP, "the dataset has no split '%s'", split);
  BRIM_TRY(check_clients(d));
  *out = (brim_dataset_info){
      .count = stream == STREAM_TRAIN ? d->train_count : d->test_count, .dtype = BRIM_DTYPE_F32, .task = d->task};
  if (d->task == BRIM_TASK_TOKENS) {
    out->dtype = BRIM_DTYPE_I32;
    out->classes = d->vocabulary;
    out->sample = (brim_shape){1, {d->length}};
    return BRIM_OK;
  }
  if (d->task == BRIM_TASK_VALUES)
    out->targets = d->targets;
  else
    out->classes = d->classes;
  return shape_of(d, &out->sample);
}

static leaf_options leaf_options_of(const synthetic *d)
{
  return (leaf_options){.clients = d->clients,
                        .features = (int64_t)d->shape.item[0],
                        .classes = d->classes,
                        .train_count = d->train_count,
                        .test_count = d->test_count,
                        .seed = (uint64_t)d->seed,
                        .alpha = d->alpha,
                        .beta = d->beta};
}

static brim_status synthetic_open(void *self, const char *split)
{
  synthetic_set *set = self;
  brim_dataset_info info;
  BRIM_TRY(synthetic_describe(self, split, &info));
  if (set->params.clients == 0 || set->leaf.model) return BRIM_OK;
  const leaf_options options = leaf_options_of(&set->params);
  return leaf_open(&set->leaf, &options);
}

static brim_status synthetic_host_bytes(const void *self, const char *split, uint64_t *out)
{
  const synthetic *d = self;
  *out = 0;
  BRIM_TRY(check_clients(d));
  if (d->clients == 0 || stream_of(d, split) != STREAM_TRAIN) return BRIM_OK;
  const leaf_options options = leaf_options_of(d);
  return leaf_bytes(&options, out);
}

static brim_status synthetic_client(const void *self, const char *split, int64_t index, int64_t *out)
{
  const synthetic_set *set = self;
  if (set->params.clients == 0)
    return brim_fail(BRIM_ECONFIG, "partition=natural needs a dataset with clients, but 'dataset.clients' is 0\n"
                                   "set dataset.clients=N, or use dataset=synthetic_leaf");
  *out = leaf_client(&set->leaf, stream_of(&set->params, split) == STREAM_TEST, index);
  return BRIM_OK;
}

/* A sequence of random numbers from one stream, four from each Philox block. */
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
  const int64_t features = shape->rank == 2 ? shape->dim[0] * shape->dim[1] : shape->dim[0];
  const int64_t channels = features; /* without channels, each feature is a plane of one pixel */
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

/* Returns normalised noise: the sum of four bytes has mean 510 and variance 4 * (256^2 - 1) / 12 = 21845. */
static float noise_of(uint32_t x)
{
  const int32_t sum = (int32_t)((x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24));
  return (float)(sum - 510) * 0.00676590f; /* 1 / sqrt(21845) */
}

static void add_noise(const synthetic *d, uint32_t stream, int64_t index, int64_t count, float scale, float *values)
{
  for (int64_t i = 0; i < count; i += 4) {
    const brim_philox r =
        brim_random4((uint64_t)d->seed, BRIM_STREAM_DATA, stream, (uint64_t)index, (uint32_t)(i >> 2));
    for (int64_t k = 0; k < 4 && i + k < count; k++) values[i + k] += scale * noise_of(r.v[k]);
  }
}

/* Returns a weight that is uniform in [-1, 1]. */
static double weight_at(const synthetic *d, int64_t target, int64_t element)
{
  const brim_philox r =
      brim_random4((uint64_t)d->seed, BRIM_STREAM_DATA, STREAM_WEIGHT, (uint64_t)target, (uint32_t)(element >> 2));
  return 2 * brim_uniform(r.v[element & 3]) - 1;
}

/* Returns a whole number below n, made from 32 random bits. */
static int32_t below(uint32_t x, int64_t n)
{
  return (int32_t)((uint64_t)x * (uint64_t)n >> 32);
}

static int32_t successor(const synthetic *d, int32_t token)
{
  const brim_philox r = brim_random4((uint64_t)d->seed, BRIM_STREAM_DATA, STREAM_SUCCESSOR, (uint64_t)token, 0);
  return below(r.v[0], d->vocabulary);
}

/* The label of a token is the next token. */
static void write_tokens(const synthetic *d, uint32_t stream, int64_t index, int32_t *token, int32_t *label)
{
  numbers n = {.seed = (uint64_t)d->seed, .item = (uint64_t)index, .stream = stream};
  int32_t next = below(number_next(&n), d->vocabulary);
  for (int64_t t = 0; t < d->length; t++) {
    token[t] = next;
    const bool surprises = brim_uniform(number_next(&n)) < d->surprise;
    const int32_t any = below(number_next(&n), d->vocabulary);
    const bool counts = brim_uniform(number_next(&n)) >= d->ignored;
    next = surprises ? any : successor(d, token[t]);
    label[t] = counts ? next : BRIM_NO_TOKEN;
  }
}

static void write_class(const synthetic *d, const brim_shape *shape, uint32_t stream, int64_t index, float *values,
                        int32_t *label)
{
  write_pattern(d, shape, index % d->classes, values);
  if (d->noise > 0) add_noise(d, stream, index, brim_shape_count(shape), (float)d->noise, values);
  *label = (int32_t)(index % d->classes);
}

static void write_values(const synthetic *d, const brim_shape *shape, uint32_t stream, int64_t index, float *values,
                         float *target)
{
  const int64_t count = brim_shape_count(shape);
  memset(values, 0, (size_t)count * sizeof *values);
  add_noise(d, stream, index, count, 1, values);
  numbers n = {.seed = (uint64_t)d->seed, .item = (uint64_t)index, .stream = STREAM_ANSWER + stream};
  for (int64_t k = 0; k < d->targets; k++) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += weight_at(d, k, i) * (double)values[i];
    target[k] = (float)(sum / sqrt((double)count) + d->noise * (double)noise_of(number_next(&n)));
  }
}

static brim_status read_client(const synthetic_set *set, uint32_t stream, int64_t index, float *values, int32_t *label)
{
  if (!set->leaf.model) return brim_fail(BRIM_EINVAL, "no split is open");
  leaf_sample(&set->leaf, stream == STREAM_TEST, index, values, label);
  return BRIM_OK;
}

static brim_status synthetic_read(const void *self, const char *split, int64_t index, void *values, void *label)
{
  const synthetic *d = self;
  const uint32_t stream = stream_of(d, split);
  brim_dataset_info info;
  BRIM_TRY(synthetic_describe(d, split, &info));
  if (index < 0 || index >= info.count)
    return brim_fail(BRIM_EINVAL, "sample %" PRId64 " of %" PRId64 ": out of range", index, info.count);
  if (d->task == BRIM_TASK_TOKENS)
    write_tokens(d, stream, index, values, label);
  else if (d->task == BRIM_TASK_VALUES)
    write_values(d, &info.sample, stream, index, values, label);
  else if (d->clients > 0)
    return read_client(self, stream, index, values, label);
  else
    write_class(d, &info.sample, stream, index, values, label);
  return BRIM_OK;
}

static brim_status synthetic_create(const void *params, void **self)
{
  synthetic_set *set = brim_try_calloc(1, sizeof *set);
  if (!set) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the dataset");
  set->params = *(const synthetic *)params;
  *self = set;
  return BRIM_OK;
}

static void synthetic_destroy(void *self)
{
  synthetic_set *set = self;
  if (!set) return;
  leaf_release(&set->leaf);
  free(set);
}

static const brim_dataset_ops ops = {.size = sizeof ops,
                                     .open = synthetic_open,
                                     .describe = synthetic_describe,
                                     .read = synthetic_read,
                                     .host_bytes = synthetic_host_bytes,
                                     .client = synthetic_client};

static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_DATASET,
    .id = "synthetic",
    .help = "generated samples that a model can learn: classes, real numbers or tokens",
    .params_size = sizeof(synthetic),
    .params = table,
    .create = synthetic_create,
    .destroy = synthetic_destroy,
    .ops = &ops,
};

static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-synthetic", "0.1", plugins)
