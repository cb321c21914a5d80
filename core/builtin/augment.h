/* Parameters of the augmentations that the keys of `augment` can turn on, and helpers that augmentations share. */
#ifndef BRIM_BUILTIN_AUGMENT_H
#define BRIM_BUILTIN_AUGMENT_H
#include "brim/augment.h"

#define BRIM_BLUR_MAX 65 /* maximum side of a kernel, in pixels */

typedef struct brim_color_jitter {
  double brightness, contrast, saturation, hue;
} brim_color_jitter;
typedef struct brim_erase {
  double probability;
  brim_list scale, ratio;
} brim_erase;
typedef struct brim_mixup {
  double alpha;
} brim_mixup;

/* Convert 32 random bits to an integer below n, and to a number in [low, high). */
int64_t brim_draw_below(uint32_t x, int64_t n);
double brim_draw_between(uint32_t x, double low, double high);
/* [any thread] Draws the weight of a sample in its mix with another sample. alpha must be > 0. */
float brim_mixup_share(double alpha, brim_philox random);
/* [any thread] Mixes values: own[i] = share * own[i] + (1 - share) * partner[i]. */
void brim_mixup_values(float *own, const float *partner, int64_t count, float share);
#endif
