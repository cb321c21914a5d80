/* Transforms of a sample's pixels between reading and scaling, like torchvision's for 8-bit images: resize, crop,
 * colours; and random erasing after scaling.
 *
 *     training:    random_resized_crop, or resize and random crop ▶ colours ▶ scaled, mirrored ▶ erased
 *     evaluation:  resize, and the middle cut out                 ▶ scaled
 *
 * Mixup comes last (mixup.h).
 *
 * brim does not pass samples without any of these through this code. Random numbers come from Philox blocks of (seed,
 * epoch, sample), so the result does not depend on which thread prepares a sample, or when. */
#ifndef BRIM_DATA_TRANSFORM_H
#define BRIM_DATA_TRANSFORM_H
#include <stdbool.h>

#include "brim/dataset.h"
#include "brim/random.h"
#include "config/settings.h"

/* The random draws for one sample; each block is independent of the others. */
typedef struct brim_draws {
  uint64_t seed;
  int64_t epoch, sample;
} brim_draws;
enum brim_draw_block {
  BRIM_DRAW_PLACE = 0,         /* mirroring, and the row and column of a crop */
  BRIM_DRAW_CROP = 1,          /* this and the next nine: attempts at a crop of random size */
  BRIM_DRAW_COLOUR = 16,       /* brightness, contrast, saturation, hue */
  BRIM_DRAW_COLOUR_ORDER = 17, /* the order in which the colour changes are applied */
  BRIM_DRAW_ERASE = 18,        /* whether a rectangle is erased */
  BRIM_DRAW_ERASE_PLACE = 19,  /* this and the next nine: attempts to place the rectangle */
  BRIM_DRAW_MIXUP = 29         /* the sample's own share of a mix */
};
/* Increase this when a change here, in resample.h or in data.h changes the values in evaluation for the same pixels and
 * settings, so that brim computes stored features (setup/features.h) again. */
#define BRIM_TRANSFORM_VERSION 2
#define BRIM_TRANSFORM_SIDE_MAX 16384 /* limit for the rows and for the columns of a result */
brim_philox brim_draw(const brim_draws *draws, uint32_t block);

typedef struct brim_transform {
  const brim_settings *settings;
  bool applies;                    /* the transform changes samples; otherwise only erasing may */
  bool any_size;                   /* samples are images of different sizes */
  int64_t channels, rows, columns; /* size of the result */
  int64_t rows_in, columns_in;     /* size of the samples, if all have the same size */
  brim_shape made;                 /* shape of a transformed sample */
  int64_t pixels_max, side_max;    /* pixels of the largest sample, and the longest side of any sample */
  uint64_t read_bytes;             /* bytes of a sample as the dataset returns it, at the start of the scratch */
} brim_transform;

/* [init] Sets the transform from the description of the training split and the settings. ECONFIG: a requested transform
 * cannot be applied to such samples. */
brim_status brim_transform_init(brim_transform *t, const brim_settings *settings, const char *dataset,
                                const brim_dataset_info *train);
/* [init] Raises the size limits so that another split's images fit. */
void brim_transform_widen(brim_transform *t, const brim_dataset_info *info);
/* Bytes of scratch for one sample; UINT64_MAX if that does not fit in 64 bits. */
uint64_t brim_transform_bytes(const brim_transform *t);
/* Returns the brim_picture to pass to read() of a dataset of images; its pixels are at the start of the scratch. */
brim_picture brim_transform_picture(const brim_transform *t, bool training, void *scratch);
/* The filter's name: "nearest", "bilinear" or "bicubic". */
const char *brim_transform_filter(const brim_transform *t);
/* Writes the settings that affect the time to prepare a sample, as " size 224x224 resize 256", to `out`; returns it. */
const char *brim_transform_text(const brim_transform *t, char *out, size_t room);

/* [any thread] Turns the sample at the start of the scratch (an image, or [C,H,W] of bytes) into rows x columns pixels
 * of bytes with interleaved channels, which lie in the scratch. draws == NULL: as in evaluation. Does not allocate. */
const uint8_t *brim_transform_apply(const brim_transform *t, const brim_picture *picture, const brim_draws *draws,
                                    void *scratch);
/* [any thread] Scales pixels: out[c][y][x] = in[y][x][c] * scale[c * step] + shift[c * step], possibly mirrored. */
void brim_transform_scale(const brim_transform *t, const uint8_t *in, const float *scale, const float *shift,
                          int32_t step, bool mirror, float *out);
/* The part of the scratch that augmentations use. */
void *brim_transform_further(const brim_transform *t, void *scratch);
#endif
