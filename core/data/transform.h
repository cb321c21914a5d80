/* What is done to the pixels of a sample between reading and scaling, as torchvision's transforms do it to pictures of
 * bytes: resize, cut, colours; and random erasing behind them.
 *
 *     training:    random_resized_crop, or resize and random crop ▶ colours ▶ scaled, mirrored ▶ erased
 *     evaluation:  resize, and the middle cut out                 ▶ scaled
 *
 * Mixup is behind all of it (mixup.h).
 *
 * A sample that needs none of it never comes here. What is drawn at random comes from Philox blocks of (seed, epoch,
 * sample), so nothing depends on who prepares a sample, or when. */
#ifndef BRIM_DATA_TRANSFORM_H
#define BRIM_DATA_TRANSFORM_H
#include <stdbool.h>

#include "brim/dataset.h"
#include "brim/random.h"
#include "config/settings.h"

/* What is drawn for one sample; the numbers of a block never change what another block gives. */
typedef struct brim_draws {
  uint64_t seed;
  int64_t epoch, sample;
} brim_draws;
enum brim_draw_block {
  BRIM_DRAW_PLACE = 0,         /* mirrored or not, rows, columns of a crop */
  BRIM_DRAW_CROP = 1,          /* and the nine behind it: attempts at a crop of random size */
  BRIM_DRAW_COLOUR = 16,       /* brightness, contrast, saturation, hue */
  BRIM_DRAW_COLOUR_ORDER = 17, /* one after the other, in which order */
  BRIM_DRAW_ERASE = 18,        /* whether */
  BRIM_DRAW_ERASE_PLACE = 19,  /* and the nine behind it: attempts */
  BRIM_DRAW_MIXUP = 29         /* the own share of a mix */
};
/* The next number whenever the same pixels and settings give other values in evaluation, here, in resample.h or in
 * data.h: what is kept of prepared samples (setup/features.h) then is made again. */
#define BRIM_TRANSFORM_VERSION 2
#define BRIM_TRANSFORM_SIDE_MAX 16384 /* of what is made */
brim_philox brim_draw(const brim_draws *draws, uint32_t block);

typedef struct brim_transform {
  const brim_settings *settings;
  bool applies;                    /* samples go through it; else only through erasing, if that is asked for */
  bool any_size;                   /* they are pictures that each have a size of their own */
  int64_t channels, rows, columns; /* of what is made */
  int64_t rows_in, columns_in;     /* of samples that all have one size */
  brim_shape made;                 /* a sample that is made */
  int64_t pixels_max, side_max;    /* of samples */
  uint64_t read_bytes;             /* of a sample as it is read: the scratch begins with it */
} brim_transform;

/* [init] From the description of the training split and the settings. ECONFIG: what is asked for cannot be done to such
 * samples. */
brim_status brim_transform_init(brim_transform *t, const brim_settings *settings, const char *dataset,
                                const brim_dataset_info *train);
/* [init] Makes room for another split's pictures. */
void brim_transform_widen(brim_transform *t, const brim_dataset_info *info);
/* Bytes of scratch for one sample; UINT64_MAX if that does not fit in 64 bits. */
uint64_t brim_transform_bytes(const brim_transform *t);
/* Where in the scratch a sample is read to, and how a data set of pictures is asked for one. */
brim_picture brim_transform_picture(const brim_transform *t, bool training, void *scratch);
/* "nearest", "bilinear", "bicubic" */
const char *brim_transform_filter(const brim_transform *t);
/* Says what would change the time that a sample takes, as " size 224x224 resize 256"; returns `out`. */
const char *brim_transform_text(const brim_transform *t, char *out, size_t room);

/* [any thread] From the sample at the start of the scratch (a picture, or [C,H,W] of bytes) to rows x columns pixels of
 * bytes, channels together: they lie in the scratch. draws == NULL: as in evaluation. Does not allocate. */
const uint8_t *brim_transform_apply(const brim_transform *t, const brim_picture *picture, const brim_draws *draws,
                                    void *scratch);
/* [any thread] out[c][y][x] = in[y][x][c] * scale[c * step] + shift[c * step], mirrored or not. */
void brim_transform_scale(const brim_transform *t, const uint8_t *in, const float *scale, const float *shift,
                          int32_t step, bool mirror, float *out);
/* Where in the scratch that of augmentations is. */
void *brim_transform_further(const brim_transform *t, void *scratch);
#endif
