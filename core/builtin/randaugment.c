/* RandAugment (Cubuk et al., 2020), like torchvision's for 8-bit images: operations drawn from fourteen, all of the
 * same magnitude, with nearest-pixel sampling and black beyond the edges. Operations, their order and their magnitudes:
 * torchvision/transforms/autoaugment.py; formulas and roundings: Pillow's Geometry.c, Filter.c, ImageOps.py. */
#include <math.h>
#include <string.h>

#include "builtin/augment.h"
#include "builtin/builtin.h"
#include "builtin/jitter.h"

typedef struct randaugment {
  int64_t operations, magnitude, bins;
} settings;

typedef struct image {
  uint8_t *pixels, *copy;
  int64_t rows, columns;
  int channels;
} image;

enum operation {
  IDENTITY,
  SHEAR_X,
  SHEAR_Y,
  TRANSLATE_X,
  TRANSLATE_Y,
  ROTATE,
  BRIGHTNESS,
  COLOR,
  CONTRAST,
  SHARPNESS,
  POSTERIZE,
  SOLARIZE,
  AUTO_CONTRAST,
  EQUALIZE,
  OPERATIONS
};

/* torch.linspace(start, end, bins)[i] in float, which rounds the product and the sum together, once. */
static double line(double start, double end, int64_t i, int64_t bins)
{
  const float a = (float)start, b = (float)end, step = (b - a) / (float)(bins - 1);
  const double from = i < bins / 2 ? a : b, steps = (double)(i < bins / 2 ? i : i - (bins - 1));
  return (double)(float)(from + (double)step * steps);
}

/* The magnitude of an operation without a sign. */
static double magnitude_of(const settings *s, enum operation what, const image *p)
{
  const int64_t i = s->magnitude < s->bins ? s->magnitude : s->bins - 1;
  if (what == IDENTITY || what >= AUTO_CONTRAST) return 0;
  if (what <= SHEAR_Y) return line(0, 0.3, i, s->bins);
  if (what == TRANSLATE_X) return line(0, 150.0 / 331.0 * (double)p->columns, i, s->bins);
  if (what == TRANSLATE_Y) return line(0, 150.0 / 331.0 * (double)p->rows, i, s->bins);
  if (what == ROTATE) return line(0, 30, i, s->bins);
  if (what == POSTERIZE) return 8 - rint((double)((float)i / (float)((double)(s->bins - 1) / 4)));
  return what == SOLARIZE ? line(255, 0, i, s->bins) : line(0, 0.9, i, s->bins);
}

/* Image.transform(AFFINE, NEAREST): pixel (x, y) comes from (m0 x + m1 y + m2, m3 x + m4 y + m5), between pixel
 * centres, in fixed point with 16 + 16 bits. */
static void warp(const image *p, const double m[6])
{
  const int64_t dx = (int64_t)floor(m[0] * 65536 + 0.5), dy = (int64_t)floor(m[3] * 65536 + 0.5);
  int64_t x0 = (int64_t)floor((m[2] + m[0] * 0.5 + m[1] * 0.5) * 65536 + 0.5);
  int64_t y0 = (int64_t)floor((m[5] + m[3] * 0.5 + m[4] * 0.5) * 65536 + 0.5);
  const size_t channels = (size_t)p->channels;
  uint8_t *out = p->pixels;
  memcpy(p->copy, p->pixels, (size_t)(p->rows * p->columns) * channels);
  for (int64_t y = 0; y < p->rows; y++) {
    int64_t xx = x0, yy = y0;
    for (int64_t x = 0; x < p->columns; x++, out += channels, xx += dx, yy += dy) {
      const int64_t from_x = xx >> 16, from_y = yy >> 16;
      if (from_x >= 0 && from_x < p->columns && from_y >= 0 && from_y < p->rows)
        memcpy(out, p->copy + (size_t)(from_y * p->columns + from_x) * channels, channels);
      else
        memset(out, 0, channels);
    }
    x0 += (int64_t)floor(m[1] * 65536 + 0.5);
    y0 += (int64_t)floor(m[4] * 65536 + 0.5);
  }
}

/* Image.rotate, which rounds to 15 digits: counter-clockwise, in degrees, around the centre. */
static void rotate(const image *p, double degrees)
{
  const double angle = -degrees * (acos(-1.0) / 180), x = (double)p->columns / 2, y = (double)p->rows / 2;
  const double c = rint(cos(angle) * 1e15) / 1e15, s = rint(sin(angle) * 1e15) / 1e15;
  warp(p, (const double[6]){c, s, c * -x + s * -y + x, -s, c, -s * -x + c * -y + y});
}

/* ImageEnhance.Sharpness: blends with ImageFilter.SMOOTH, which leaves the edges unchanged, and extrapolates. */
static void sharpen(const image *p, double factor)
{
  const int64_t stride = p->columns * p->channels;
  memcpy(p->copy, p->pixels, (size_t)(p->rows * stride));
  for (int64_t y = 1; y + 1 < p->rows; y++)
    for (int64_t i = p->channels; i < stride - p->channels; i++) {
      const uint8_t *at = p->copy + y * stride + i;
      int sum = 4 * at[0];
      for (int64_t dy = -stride; dy <= stride; dy += stride)
        sum += at[dy - p->channels] + at[dy] + at[dy + p->channels];
      const int smooth = (int)((double)sum / 13 + 0.5);
      const float value = (float)smooth + (float)factor * (float)(at[0] - smooth);
      p->pixels[y * stride + i] = (uint8_t)(value <= 0 ? 0 : value >= 255 ? 255 : value);
    }
}

/* ImageOps.autocontrast of one channel. */
static void stretch_table(const uint32_t count[256], uint8_t table[256])
{
  int low = 0, high = 255;
  while (low < 255 && count[low] == 0) low++;
  while (high > 0 && count[high] == 0) high--;
  const double scale = high > low ? 255.0 / (high - low) : 1, offset = high > low ? -low * scale : 0;
  for (int i = 0; i < 256; i++) {
    const int value = (int)(i * scale + offset);
    table[i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
  }
}

/* ImageOps.equalize of one channel. */
static void equalize_table(const uint32_t count[256], uint8_t table[256])
{
  uint64_t total = 0, last = 0, values = 0;
  for (int i = 0; i < 256; i++) {
    total += count[i];
    values += count[i] > 0;
    if (count[i] > 0) last = count[i];
  }
  const uint64_t step = values > 1 ? (total - last) / 255 : 0;
  uint64_t below = step / 2;
  for (int i = 0; i < 256; below += count[i++]) {
    const uint64_t value = step > 0 ? below / step : (uint64_t)i;
    table[i] = (uint8_t)(value > 255 ? 255 : value);
  }
}

static void map_channels(const image *p, void (*make)(const uint32_t count[256], uint8_t table[256]))
{
  const int64_t n = p->rows * p->columns * p->channels;
  for (int c = 0; c < p->channels; c++) {
    uint32_t count[256] = {0};
    uint8_t table[256];
    for (int64_t i = c; i < n; i += p->channels) count[p->pixels[i]]++;
    make(count, table);
    for (int64_t i = c; i < n; i += p->channels) p->pixels[i] = table[p->pixels[i]];
  }
}

static void solarize(const image *p, double threshold)
{
  for (int64_t i = 0; i < p->rows * p->columns * p->channels; i++)
    if (p->pixels[i] >= threshold) p->pixels[i] = (uint8_t)(255 - p->pixels[i]);
}

static void posterize(const image *p, int bits)
{
  const uint8_t mask = (uint8_t)(0xFF << (8 - bits));
  for (int64_t i = 0; i < p->rows * p->columns * p->channels; i++) p->pixels[i] &= mask;
}

static void operate(const image *p, enum operation what, double x)
{
  const int64_t count = p->rows * p->columns;
  switch (what) {
  case IDENTITY:
  case OPERATIONS:
    return;
  case SHEAR_X:
    warp(p, (const double[6]){1, x, 0, 0, 1, 0});
    return;
  case SHEAR_Y:
    warp(p, (const double[6]){1, 0, 0, x, 1, 0});
    return;
  case TRANSLATE_X:
    warp(p, (const double[6]){1, 0, -trunc(x), 0, 1, 0});
    return;
  case TRANSLATE_Y:
    warp(p, (const double[6]){1, 0, 0, 0, 1, -trunc(x)});
    return;
  case ROTATE:
    rotate(p, x);
    return;
  case BRIGHTNESS:
    brim_jitter_brightness(p->pixels, count, p->channels, 1 + x);
    return;
  case COLOR:
    brim_jitter_saturation(p->pixels, count, p->channels, 1 + x);
    return;
  case CONTRAST:
    brim_jitter_contrast(p->pixels, count, p->channels, 1 + x);
    return;
  case SHARPNESS:
    sharpen(p, 1 + x);
    return;
  case POSTERIZE:
    posterize(p, (int)x);
    return;
  case SOLARIZE:
    solarize(p, x);
    return;
  case AUTO_CONTRAST:
    map_channels(p, stretch_table);
    return;
  case EQUALIZE:
    map_channels(p, equalize_table);
    return;
  }
}

static void apply(const void *self, brim_augment_sample *s)
{
  const settings *a = self;
  const image p = {s->values, s->scratch, s->shape.dim[1], s->shape.dim[2], (int)s->shape.dim[0]};
  for (int64_t k = 0; k < a->operations; k++) {
    const brim_philox r = brim_augment_random(s, (uint32_t)k);
    const enum operation what = (enum operation)brim_draw_below(r.v[0], OPERATIONS);
    const double x = magnitude_of(a, what, &p);
    const bool has_sign = what >= SHEAR_X && what <= SHARPNESS;
    operate(&p, what, has_sign && r.v[1] >> 31 ? -x : x);
  }
}

static uint64_t scratch_bytes(const void *self, const brim_shape *shape)
{
  (void)self;
  return (uint64_t)brim_shape_count(shape);
}

static const brim_param table[] = {
    BRIM_PARAM(I64, settings, operations, "2", "[1,100]", "number of operations per image, drawn from 14"),
    BRIM_PARAM(I64, settings, magnitude, "9", "[0,999]", "strength of all operations, from 0 to bins - 1"),
    BRIM_PARAM(I64, settings, bins, "31", "[2,1000]", "number of magnitudes"), BRIM_PARAMS_END};
static const brim_augment_ops ops = {
    .size = sizeof ops, .dtype = BRIM_DTYPE_U8, .apply = apply, .scratch_bytes = scratch_bytes};
const brim_plugin brim_augment_randaugment = {.size = sizeof(brim_plugin),
                                              .kind = BRIM_AUGMENT,
                                              .id = "randaugment",
                                              .help = "RandAugment (Cubuk et al., 2020), as in torchvision",
                                              .params_size = sizeof(settings),
                                              .params = table,
                                              .ops = &ops};
