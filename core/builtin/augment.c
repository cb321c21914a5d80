/* The core's augmentations except RandAugment. The core applies those that the keys of `augment` turn on, with
 * parameters from these keys and their own blocks of random numbers (data/transform.h), so they have the same effect as
 * under `augmentation=[...]`, but with other random numbers. Comments name the corresponding functions of
 * torchvision. */
#include "builtin/augment.h"

#include <math.h>
#include <string.h>

#include "builtin/builtin.h"
#include "builtin/jitter.h"

#define ATTEMPTS 10 /* torchvision's number of attempts to find a rectangle that fits */
#define PI 3.14159265358979323846

int64_t brim_draw_below(uint32_t x, int64_t n)
{
  return (int64_t)((uint64_t)x * (uint64_t)n >> 32);
}

double brim_draw_between(uint32_t x, double low, double high)
{
  return low + (high - low) * brim_uniform(x);
}

#define AUGMENT(name, params_type, table, element, scratch, only_images, mix, text)                                    \
  static const brim_augment_ops name##_ops = {sizeof(brim_augment_ops), element, name, scratch, only_images, mix};     \
  const brim_plugin brim_augment_##name = {.size = sizeof(brim_plugin),                                                \
                                           .kind = BRIM_AUGMENT,                                                       \
                                           .id = #name,                                                                \
                                           .help = text,                                                               \
                                           .params_size = sizeof(params_type),                                         \
                                           .params = table,                                                            \
                                           .ops = &name##_ops}

/* ---- color_jitter ---- */

/* ColorJitter.forward: applies the requested changes in a random order. */
static void color_jitter(const void *self, brim_augment_sample *s)
{
  const brim_color_jitter *a = self;
  const double amount[3] = {a->brightness, a->contrast, a->saturation};
  void (*const change[3])(uint8_t *, int64_t, int, double) = {brim_jitter_brightness, brim_jitter_contrast,
                                                              brim_jitter_saturation};
  const brim_philox size = brim_augment_random(s, 0), place = brim_augment_random(s, 1);
  const int channels = (int)s->shape.dim[0];
  int order[4] = {0, 1, 2, 3};
  for (int i = 3; i > 0; i--) {
    const int64_t k = brim_draw_below(place.v[i], i + 1);
    const int other = order[i];
    order[i] = order[k];
    order[k] = other;
  }
  const int64_t count = s->shape.dim[1] * s->shape.dim[2];
  for (int i = 0; i < 4; i++) {
    const int what = order[i];
    const uint32_t x = size.v[what];
    if (what == 3 && a->hue > 0) brim_jitter_hue(s->values, count, channels, brim_draw_between(x, -a->hue, a->hue));
    if (what < 3 && amount[what] > 0)
      change[what](s->values, count, channels,
                   brim_draw_between(x, amount[what] > 1 ? 0 : 1 - amount[what], 1 + amount[what]));
  }
}

static const brim_param color_jitter_table[] = {
    BRIM_PARAM(F64, brim_color_jitter, brightness, "0", "[0,100]",
               "x: the brightness factor is between 1-x and 1+x; 0: off"),
    BRIM_PARAM(F64, brim_color_jitter, contrast, "0", "[0,100]",
               "x: the contrast factor is between 1-x and 1+x; 0: off"),
    BRIM_PARAM(F64, brim_color_jitter, saturation, "0", "[0,100]",
               "x: the saturation factor is between 1-x and 1+x; 0: off"),
    BRIM_PARAM(F64, brim_color_jitter, hue, "0", "[0,0.5]",
               "x: hues rotate by a random share of the color circle between -x and x; 0: off"),
    BRIM_PARAMS_END};
AUGMENT(color_jitter, brim_color_jitter, color_jitter_table, BRIM_DTYPE_U8, NULL, 1, 0,
        "random brightness, contrast, saturation and hue, in random order, as torchvision's ColorJitter");

/* ---- erase ---- */

/* RandomErasing.get_params, with value 0. */
static void erase(const void *self, brim_augment_sample *s)
{
  const brim_erase *a = self;
  const int64_t channels = s->shape.dim[0], rows = s->shape.dim[1], columns = s->shape.dim[2];
  float *values = s->values;
  if (a->probability == 0 || brim_uniform(brim_augment_random(s, 0).v[0]) >= a->probability) return;
  for (uint32_t k = 0; k < ATTEMPTS; k++) {
    const brim_philox r = brim_augment_random(s, 1 + k);
    const double area = (double)rows * (double)columns * brim_draw_between(r.v[0], a->scale.item[0], a->scale.item[1]);
    const double aspect = exp(brim_draw_between(r.v[1], log(a->ratio.item[0]), log(a->ratio.item[1])));
    const int64_t h = llrint(sqrt(area * aspect)), w = llrint(sqrt(area / aspect));
    if (h >= rows || w >= columns) continue;
    const int64_t top = brim_draw_below(r.v[2], rows - h + 1), left = brim_draw_below(r.v[3], columns - w + 1);
    for (int64_t c = 0; c < channels; c++)
      for (int64_t y = top; y < top + h; y++)
        for (int64_t x = left; x < left + w; x++) values[(c * rows + y) * columns + x] = 0;
    return;
  }
}

/* ---- mixup and cutmix ---- */

/* T = sqrt(2a (U^(-1/a) - 1)) cos(2 pi V) has Student's t distribution of 2a degrees of freedom (Bailey, Mathematics of
 * Computation 62, 1994), and then 1/2 + T / (2 sqrt(2a + T^2)) is Beta(a, a) (Devroye, Non-Uniform Random Variate
 * Generation, IX.3): without rejection, so two random numbers are enough for any a. With q = U^(1/a), T^2 / 2a = c^2 (1
 * - q) / q. */
float brim_mixup_share(double alpha, brim_philox r)
{
  const double q = pow(brim_uniform(r.v[0]), 1 / alpha), c = cos(2 * PI * brim_uniform(r.v[1]));
  const double far = sqrt(q / (1 - q) + c * c);
  return (float)(far > 0 ? 0.5 + 0.5 * c / far : 0.5);
}

void brim_mixup_values(float *own, const float *partner, int64_t count, float share)
{
  for (int64_t i = 0; i < count; i++) own[i] = share * own[i] + (1 - share) * partner[i];
}

static void mixup(const void *self, brim_augment_sample *s)
{
  const brim_mixup *a = self;
  s->share = brim_mixup_share(a->alpha, brim_augment_random(s, 0));
  brim_mixup_values(s->values, s->partner, brim_shape_count(&s->shape), s->share);
}

/* CutMix.make_params of torchvision.transforms.v2 (Yun et al., ICCV 2019): copies a box from the partner, whose part of
 * the area is 1 - lambda if it lies completely inside; the label's weight follows the area that is really covered. */
static void cutmix(const void *self, brim_augment_sample *s)
{
  const brim_mixup *a = self;
  const int64_t rows = s->shape.dim[1], columns = s->shape.dim[2];
  const double lambda = (double)brim_mixup_share(a->alpha, brim_augment_random(s, 0));
  const brim_philox r = brim_augment_random(s, 1);
  const int64_t x = brim_draw_below(r.v[0], columns), y = brim_draw_below(r.v[1], rows);
  const double half = 0.5 * sqrt(1 - lambda);
  const int64_t w = (int64_t)(half * (double)columns), h = (int64_t)(half * (double)rows);
  const int64_t left = x - w > 0 ? x - w : 0, right = x + w < columns ? x + w : columns;
  const int64_t top = y - h > 0 ? y - h : 0, bottom = y + h < rows ? y + h : rows;
  for (int64_t c = 0; c < s->shape.dim[0]; c++)
    for (int64_t k = top; k < bottom; k++) {
      const int64_t at = (c * rows + k) * columns + left;
      memcpy((float *)s->values + at, (const float *)s->partner + at, (size_t)(right - left) * sizeof(float));
    }
  s->share = (float)(1 - (double)((right - left) * (bottom - top)) / (double)(rows * columns));
}

/* ---- gaussian_blur ---- */

typedef struct blur {
  double probability;
  int64_t kernel_size;
  double sigma_min, sigma_max;
} blur;

static uint64_t gaussian_blur_scratch(const void *self, const brim_shape *shape)
{
  (void)self;
  return (uint64_t)brim_shape_count(shape) * sizeof(float);
}

/* Returns the index of element i of n values that continue as their mirror images beyond both ends, repeatedly if
 * needed. */
static int64_t reflected(int64_t i, int64_t n)
{
  if (n == 1) return 0;
  const int64_t period = 2 * (n - 1), k = (i % period + period) % period;
  return k < n ? k : period - k;
}

/* GaussianBlur.forward: sigma is drawn, the kernel is sampled at integer distances, and pixels beyond the edges mirror
 * those inside. Columns first, in float; then rows, rounded to even. */
static void gaussian_blur(const void *self, brim_augment_sample *s)
{
  const blur *a = self;
  const brim_philox r = brim_augment_random(s, 0);
  const int64_t channels = s->shape.dim[0], rows = s->shape.dim[1], columns = s->shape.dim[2];
  const int64_t half = a->kernel_size / 2;
  const double sigma = brim_draw_between(r.v[1], a->sigma_min, fmax(a->sigma_min, a->sigma_max));
  double weight[BRIM_BLUR_MAX], sum = 0;
  uint8_t *pixels = s->values;
  float *between = s->scratch;
  if (brim_uniform(r.v[0]) >= a->probability) return;
  for (int64_t k = -half; k <= half; k++) sum += weight[k + half] = exp(-0.5 * pow((double)k / sigma, 2));
  for (int64_t k = 0; k <= 2 * half; k++) weight[k] /= sum;
  for (int64_t i = 0; i < rows * columns * channels; i++) {
    const int64_t c = i % channels, x = i / channels % columns, y = i / channels / columns;
    double out = 0;
    for (int64_t k = -half; k <= half; k++)
      out += weight[k + half] * pixels[(reflected(y + k, rows) * columns + x) * channels + c];
    between[i] = (float)out;
  }
  for (int64_t i = 0; i < rows * columns * channels; i++) {
    const int64_t c = i % channels, x = i / channels % columns, y = i / channels / columns;
    double out = 0;
    for (int64_t k = -half; k <= half; k++)
      out += weight[k + half] * (double)between[(y * columns + reflected(x + k, columns)) * channels + c];
    pixels[i] = (uint8_t)lrint(fmin(fmax(out, 0), 255));
  }
}

static const brim_param erase_table[] = {
    BRIM_PARAM(F64, brim_erase, probability, "0.5", "[0,1]", "probability that a sample changes"),
    BRIM_PARAM(LIST, brim_erase, scale, "[0.02,0.33]", NULL,
               "minimum and maximum area of the rectangle, as a share of the image"),
    BRIM_PARAM(LIST, brim_erase, ratio, "[0.3,3.3]", NULL,
               "minimum and maximum ratio of height to width of the rectangle"),
    BRIM_PARAMS_END};
static const brim_param mixup_table[] = {
    BRIM_PARAM(F64, brim_mixup, alpha, "1", "(0,1000]",
               "alpha of the distribution Beta(alpha, alpha) from which shares are drawn"),
    BRIM_PARAMS_END};
static const brim_param blur_table[] = {
    BRIM_PARAM(F64, blur, probability, "1", "[0,1]", "probability that an image is blurred"),
    BRIM_PARAM(I64, blur, kernel_size, "3", "[1,63]", "side of the kernel in pixels; an even number is raised by one"),
    BRIM_PARAM(F64, blur, sigma_min, "0.1", "[0.001,1000]", "minimum standard deviation, in pixels"),
    BRIM_PARAM(F64, blur, sigma_max, "2", "[0.001,1000]", "maximum standard deviation, in pixels; at least sigma_min"),
    BRIM_PARAMS_END};
AUGMENT(erase, brim_erase, erase_table, BRIM_DTYPE_F32, NULL, 1, 0,
        "sets a random rectangle to 0, as torchvision's RandomErasing");
AUGMENT(mixup, brim_mixup, mixup_table, BRIM_DTYPE_F32, NULL, 0, 1,
        "mixup (Zhang et al., 2018): mixes each sample and its label with another's");
AUGMENT(cutmix, brim_mixup, mixup_table, BRIM_DTYPE_F32, NULL, 1, 1,
        "CutMix (Yun et al., 2019): replaces a box of each image by that of another image, and mixes the labels by its "
        "area");
AUGMENT(gaussian_blur, blur, blur_table, BRIM_DTYPE_U8, gaussian_blur_scratch, 1, 0,
        "blurs images with random strength, as torchvision's GaussianBlur");
