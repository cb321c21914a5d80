/* See transform.h. Comments name torchvision's functions where random draws follow them. */
#include "data/transform.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "builtin/augment.h"
#include "data/augment.h"
#include "data/resample.h"
#include "data/transform_check.h"

#define ATTEMPTS 10 /* torchvision's number of attempts to find a crop or a rectangle that fits */
#define ALIGN_BYTES 64u

brim_philox brim_draw(const brim_draws *d, uint32_t block)
{
  return brim_random4(d->seed, BRIM_STREAM_AUGMENT, (uint32_t)d->epoch, (uint64_t)d->sample, block);
}

/* ---- Memory: [ sample as read | canvas | resampling | augmentations ] ---- */

static uint64_t aligned(uint64_t bytes)
{
  return (bytes + ALIGN_BYTES - 1) & ~(uint64_t)(ALIGN_BYTES - 1);
}

static uint64_t canvas_bytes(const brim_transform *t)
{
  return aligned((uint64_t)(t->rows * t->columns * t->channels));
}

/* Returns the bytes with which a sample that is read plane by plane is first interleaved, after the canvas. */
static uint64_t together_bytes(const brim_transform *t)
{
  return t->any_size || t->channels == 1 ? 0 : aligned((uint64_t)(t->rows_in * t->columns_in * t->channels));
}

static uint64_t own_bytes(const brim_transform *t)
{
  if (!t->applies) return t->read_bytes;
  const int64_t resized = t->settings->transform.resize;
  const uint64_t resampling = brim_resample_bytes(t->side_max, resized, t->rows, t->columns, t->channels);
  if (t->read_bytes > UINT64_MAX / 4 || resampling > UINT64_MAX / 4) return UINT64_MAX;
  return aligned(t->read_bytes) + canvas_bytes(t) + together_bytes(t) + resampling;
}

uint64_t brim_transform_bytes(const brim_transform *t)
{
  const uint64_t own = own_bytes(t), further = brim_augment_bytes(t);
  if (further == 0 || own == UINT64_MAX) return own;
  return own > UINT64_MAX / 4 || further > UINT64_MAX / 4 ? UINT64_MAX : aligned(own) + further;
}

void *brim_transform_further(const brim_transform *t, void *scratch)
{
  return (char *)scratch + aligned(own_bytes(t));
}

brim_picture brim_transform_picture(const brim_transform *t, bool training, void *scratch)
{
  const brim_settings *s = t->settings;
  const int64_t shorter = t->rows < t->columns ? t->rows : t->columns;
  const int64_t resized = s->transform.resize > 0 ? s->transform.resize : shorter;
  /* a crop of random size uses only a part of the image */
  const int64_t needed = training && s->augment.random_resized_crop ? 2 * shorter : resized;
  return (brim_picture){.pixels = scratch, .room = t->read_bytes, .side_needed = needed};
}

/* ---- Which pixels ---- */

/* A part of the source, its size after resizing, and the start of the result within it, which may be outside. */
typedef struct cut {
  int64_t top, left, rows, columns;
  int64_t to_rows, to_columns, y, x;
} cut;

/* RandomResizedCrop.get_params: draws the part, or else takes the largest central one with a ratio in range. */
static void draw_part(const brim_augment_settings *a, const brim_draws *draws, int64_t rows, int64_t columns, cut *c)
{
  const double *scale = a->crop_scale.item, *ratio = a->crop_ratio.item;
  for (uint32_t k = 0; k < ATTEMPTS; k++) {
    const brim_philox r = brim_draw(draws, BRIM_DRAW_CROP + k);
    const double area = (double)rows * (double)columns * brim_draw_between(r.v[0], scale[0], scale[1]);
    const double aspect = exp(brim_draw_between(r.v[1], log(ratio[0]), log(ratio[1])));
    const int64_t w = llrint(sqrt(area * aspect)), h = llrint(sqrt(area / aspect));
    if (w < 1 || w > columns || h < 1 || h > rows) continue;
    *c = (cut){brim_draw_below(r.v[2], rows - h + 1), brim_draw_below(r.v[3], columns - w + 1), h, w, 0, 0, 0, 0};
    return;
  }
  const double own = (double)columns / (double)rows;
  int64_t w = columns, h = rows;
  if (own < ratio[0]) h = llrint((double)columns / ratio[0]);
  if (own > ratio[1]) w = llrint((double)rows * ratio[1]);
  if (h < 1) h = 1;
  if (w < 1) w = 1;
  *c = (cut){(rows - h) / 2, (columns - w) / 2, h, w, 0, 0, 0, 0};
}

/* Resize: the shorter side becomes `side`; the other is scaled and rounded down. */
static void resized(int64_t side, int64_t rows, int64_t columns, cut *c)
{
  const bool wide = columns > rows;
  const int64_t longer = (int64_t)((double)side * (double)(wide ? columns : rows) / (double)(wide ? rows : columns));
  c->to_rows = wide ? side : longer;
  c->to_columns = wide ? longer : side;
}

/* CenterCrop: half a pixel is rounded to the even side. If padding is needed, the smaller half is on top. */
static int64_t middle(int64_t have, int64_t want)
{
  return have < want ? -((want - have) / 2) : llrint((double)(have - want) / 2);
}

static cut choose(const brim_transform *t, int64_t rows, int64_t columns, const brim_draws *draws)
{
  const brim_augment_settings *a = &t->settings->augment;
  cut c = {0, 0, rows, columns, t->rows, t->columns, 0, 0};
  if (draws && a->random_resized_crop) {
    draw_part(a, draws, rows, columns, &c);
    c.to_rows = t->rows;
    c.to_columns = t->columns;
    return c;
  }
  if (t->settings->transform.resize > 0) resized(t->settings->transform.resize, rows, columns, &c);
  if (draws && (a->random_crop || a->crop_padding > 0)) {
    const brim_philox r = brim_draw(draws, BRIM_DRAW_PLACE);
    c.y = brim_draw_below(r.v[1], c.to_rows + 2 * a->crop_padding - t->rows + 1) - a->crop_padding;
    c.x = brim_draw_below(r.v[2], c.to_columns + 2 * a->crop_padding - t->columns + 1) - a->crop_padding;
  } else {
    c.y = middle(c.to_rows, t->rows);
    c.x = middle(c.to_columns, t->columns);
  }
  return c;
}

static int64_t least(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

/* Padding is black, as in torchvision. */
static void fill(const brim_transform *t, const brim_pixels *source, const cut *c, void *scratch, uint8_t *canvas)
{
  const int64_t stride = t->columns * t->channels, top = c->y < 0 ? -c->y : 0, left = c->x < 0 ? -c->x : 0;
  const int64_t rows = least(t->rows - top, c->to_rows - (c->y + top)),
                columns = least(t->columns - left, c->to_columns - (c->x + left));
  if (rows < t->rows || columns < t->columns) memset(canvas, 0, (size_t)(t->rows * stride));
  if (rows < 1 || columns < 1) return;
  const brim_pixels part = {source->data + c->top * source->stride + c->left * t->channels, c->rows, c->columns,
                            t->channels, source->stride};
  const brim_resize to = {c->to_rows,
                          c->to_columns,
                          c->y + top,
                          c->x + left,
                          rows,
                          columns,
                          (enum brim_filter)t->settings->transform.interpolation};
  brim_resample(&part, &to, scratch, canvas + top * stride + left * t->channels, stride);
}

/* ---- The chain ---- */

static const uint8_t *put_together(const brim_transform *t, const uint8_t *planes, uint8_t *out)
{
  const int64_t pixels = t->rows_in * t->columns_in;
  if (t->channels == 1) return planes;
  for (int64_t c = 0; c < t->channels; c++)
    for (int64_t i = 0; i < pixels; i++) out[i * t->channels + c] = planes[c * pixels + i];
  return out;
}

const uint8_t *brim_transform_apply(const brim_transform *t, const brim_picture *picture, const brim_draws *draws,
                                    void *scratch)
{
  uint8_t *canvas = (uint8_t *)scratch + aligned(t->read_bytes), *together = canvas + canvas_bytes(t);
  brim_pixels source = {.rows = t->rows_in, .columns = t->columns_in, .channels = t->channels};
  if (t->any_size) {
    source.data = picture->pixels;
    source.rows = picture->rows;
    source.columns = picture->columns;
  } else {
    source.data = put_together(t, scratch, together);
  }
  source.stride = source.columns * t->channels;
  const cut c = choose(t, source.rows, source.columns, draws);
  fill(t, &source, &c, together + together_bytes(t), canvas);
  if (draws) brim_augment_apply(t, BRIM_DTYPE_U8, draws, canvas, brim_transform_further(t, scratch));
  return canvas;
}

void brim_transform_scale(const brim_transform *t, const uint8_t *in, const float *scale, const float *shift,
                          int32_t step, bool mirror, float *out)
{
  const int64_t columns = t->columns, channels = t->channels;
  for (int64_t c = 0; c < channels; c++) {
    const float a = scale[c * step], b = shift[c * step];
    for (int64_t y = 0; y < t->rows; y++, out += columns) {
      const uint8_t *row = in + y * columns * channels + c;
      if (mirror)
        for (int64_t x = 0; x < columns; x++) out[x] = (float)row[(columns - 1 - x) * channels] * a + b;
      else
        for (int64_t x = 0; x < columns; x++) out[x] = (float)row[x * channels] * a + b;
    }
  }
}
