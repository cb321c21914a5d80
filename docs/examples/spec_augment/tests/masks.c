/* Checks that spec_augment masks whole stretches and bands, of any place and length up to the limit, in sequences, rows
 * and images of ones. */
#include "../spec_augment.c"

#undef NDEBUG
#include <assert.h>
#include <string.h>

enum { SAMPLES = 4000, CHANNELS = 2, TIMES = 40, FEATURES = 10 };

static const settings defaults = {.time_masks = 1, .time_share = 0.25, .feature_masks = 1, .feature_share = 0.3};

/* The place of feature f at time t in channel c: images have features as rows and times as columns. */
static float *at(float *values, int rank, int c, int t, int f)
{
  return &values[rank == 3 ? (c * FEATURES + f) * TIMES + t : t * FEATURES + f];
}

/* Counts the times that are masked as a whole, and the features; each mask must be in one piece. */
static void count_masked(float *values, int rank, int times, int *masked_times, int *masked_features, int *first)
{
  int pieces = 0;
  *masked_times = *masked_features = 0;
  *first = -1;
  for (int t = 0, before = 0; t < times; t++) {
    int zeros = 0;
    for (int f = 0; f < FEATURES; f++) zeros += *at(values, rank, 0, t, f) == 0;
    const int is_masked = zeros == FEATURES;
    if (!is_masked) *masked_features = zeros; /* the same at all times that are not masked; checked below */
    if (is_masked && *first < 0) *first = t;
    pieces += is_masked && !before;
    before = is_masked;
    *masked_times += is_masked;
  }
  assert(pieces <= 1);
  for (int c = 0; c < (rank == 3 ? CHANNELS : 1); c++)
    for (int t = 0; t < times; t++) {
      int zeros = 0;
      for (int f = 0; f < FEATURES; f++) zeros += *at(values, rank, c, t, f) == 0;
      assert(zeros == FEATURES || zeros == *masked_features);
    }
}

static void check(brim_shape shape)
{
  static float values[CHANNELS * TIMES * FEATURES];
  const int times = shape.rank == 1 ? 1 : TIMES;
  int longest = 0, widest = 0, begins = 0, ends = 0, sum = 0;
  for (int i = 0; i < SAMPLES; i++) {
    int masked_times, masked_features, first;
    for (size_t k = 0; k < sizeof values / sizeof *values; k++) values[k] = 1;
    brim_augment_sample sample = {.shape = shape, .values = values, .seed = 1, .epoch = 1, .index = i};
    apply(&defaults, &sample);
    count_masked(values, shape.rank, times, &masked_times, &masked_features, &first);
    longest = masked_times > longest ? masked_times : longest;
    widest = masked_features > widest ? masked_features : widest;
    begins += first == 0;
    ends += masked_times > 0 && first + masked_times == times;
    sum += masked_times;
  }
  assert(widest == 3); /* 0.3 of 10 */
  if (shape.rank == 1) {
    assert(longest == 0);
    return;
  }
  assert(longest == 10); /* 0.25 of 40 */
  assert(begins > 0 && ends > 0);
  assert(sum > 4.7 * SAMPLES && sum < 5.3 * SAMPLES); /* the mean of 0 to 10 */
}

/* Parameters can mask nothing or everything. */
static void check_ends(void)
{
  float values[TIMES * FEATURES];
  brim_augment_sample sample = {.shape = {2, {TIMES, FEATURES}}, .values = values, .seed = 1, .epoch = 1};
  const settings none = {.time_masks = 9, .feature_masks = 9}, all = {.time_masks = 100, .time_share = 1};
  for (int i = 0; i < TIMES * FEATURES; i++) values[i] = 1;
  apply(&none, &sample);
  for (int i = 0; i < TIMES * FEATURES; i++) assert(values[i] == 1);
  apply(&all, &sample);
  for (int i = 0; i < TIMES * FEATURES; i++) assert(values[i] == 0);
}

int main(void)
{
  check((brim_shape){2, {TIMES, FEATURES}});
  check((brim_shape){1, {FEATURES}});
  check((brim_shape){3, {CHANNELS, FEATURES, TIMES}});
  check_ends();
  return 0;
}
