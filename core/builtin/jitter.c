/* See jitter.h. Formulas and roundings: Pillow, src/libImaging/Blend.c and Convert.c, and src/PIL/ImageEnhance.py. */
#include "builtin/jitter.h"

#include <math.h>

/* Interpolates and extrapolates: `from` at 0, `to` at 1. */
static uint8_t blend(int from, int to, float factor)
{
  const float value = (float)from + factor * (float)(to - from);
  return (uint8_t)(value <= 0 ? 0 : value >= 255 ? 255 : value);
}

/* ITU-R 601-2 luma, in fixed point. */
static uint8_t gray_of(const uint8_t *p, int channels)
{
  if (channels == 1) return p[0];
  return (uint8_t)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
}

void brim_jitter_brightness(uint8_t *pixels, int64_t count, int channels, double factor)
{
  for (int64_t i = 0; i < channels * count; i++) pixels[i] = blend(0, pixels[i], (float)factor);
}

void brim_jitter_contrast(uint8_t *pixels, int64_t count, int channels, double factor)
{
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; i++) sum += gray_of(pixels + channels * i, channels);
  const int mean = (int)((double)sum / (double)count + 0.5);
  for (int64_t i = 0; i < channels * count; i++) pixels[i] = blend(mean, pixels[i], (float)factor);
}

void brim_jitter_saturation(uint8_t *pixels, int64_t count, int channels, double factor)
{
  if (channels == 1) return;
  for (uint8_t *p = pixels; p < pixels + 3 * count; p += 3) {
    const int gray = gray_of(p, 3);
    for (int c = 0; c < 3; c++) p[c] = blend(gray, p[c], (float)factor);
  }
}

/* ---- Hue ---- */

static uint8_t clip(int x)
{
  return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
}

typedef struct hsv {
  uint8_t hue, saturation, value;
} hsv;

static hsv to_hsv(const uint8_t *p)
{
  const uint8_t r = p[0], g = p[1], b = p[2];
  const uint8_t most = r > g ? (r > b ? r : b) : (g > b ? g : b), least = r < g ? (r < b ? r : b) : (g < b ? g : b);
  if (most == least) return (hsv){0, 0, most};
  const float range = (float)(most - least), s = range / (float)most;
  const float rc = (float)(most - r) / range, gc = (float)(most - g) / range, bc = (float)(most - b) / range;
  float h;
  if (r == most)
    h = bc - gc;
  else if (g == most)
    h = (float)(2.0 + rc - bc);
  else
    h = (float)(4.0 + gc - rc);
  h = (float)fmod(h / 6.0 + 1.0, 1.0);
  return (hsv){clip((int)(h * 255.0)), clip((int)(s * 255.0)), most};
}

static void from_hsv(const hsv *c, uint8_t *p)
{
  if (c->saturation == 0) {
    p[0] = p[1] = p[2] = c->value;
    return;
  }
  const float h = (float)(c->hue * 6.0 / 255.0), s = (float)(c->saturation / 255.0);
  const int sector = (int)floorf(h);
  const float f = h - (float)sector, v = (float)c->value;
  const uint8_t low = clip((int)round(v * (1.0 - s))), falling = clip((int)round(v * (1.0 - s * f))),
                rising = clip((int)round(v * (1.0 - s * (1.0 - f)))), high = c->value;
  const uint8_t rgb[6][3] = {{high, rising, low},  {falling, high, low}, {low, high, rising},
                             {low, falling, high}, {rising, low, high},  {high, low, falling}};
  for (int k = 0; k < 3; k++) p[k] = rgb[sector % 6][k];
}

void brim_jitter_hue(uint8_t *pixels, int64_t count, int channels, double turn)
{
  if (channels == 1) return;
  const uint8_t shift = (uint8_t)(int)(turn * 255); /* bytes wrap around */
  for (uint8_t *p = pixels; p < pixels + 3 * count; p += 3) {
    hsv c = to_hsv(p);
    c.hue = (uint8_t)(c.hue + shift);
    from_hsv(&c, p);
  }
}
