/* Checks of augmentations: samples keep their shape and stay finite, nothing outside of them is written, and a sample
 * has the same result when it is augmented again, in another order and with other scratch memory. See check.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "brim/augment.h"
#include "cli/check/check.h"
#include "graph/graph.h"

#define SAMPLES 60   /* per shape */
#define GUARD 256u   /* bytes before and after */
#define FILLING 0xA5 /* the value of each */

static const brim_shape images[] = {{3, {1, 28, 28}}, {3, {3, 32, 32}}, {3, {3, 17, 9}}, {3, {3, 1, 1}}},
                        others[] = {{1, {12}}, {2, {7, 5}}};
#define IMAGES (sizeof images / sizeof images[0])
#define OTHERS (sizeof others / sizeof others[0])

/* Memory with guards around it. */
typedef struct guarded {
  uint8_t *at;
  size_t bytes;
} guarded;

static guarded guarded_make(size_t bytes)
{
  const size_t whole = (bytes + 63) & ~(size_t)63;
  uint8_t *memory = brim_try_aligned(64, whole + 2 * GUARD + 64);
  if (!memory) abort();
  memset(memory, FILLING, whole + 2 * GUARD + 64);
  return (guarded){memory + GUARD, bytes};
}

static brim_status guarded_check(const guarded *g, const char *what, const char *where)
{
  for (size_t i = 1; i <= GUARD; i++)
    if (g->at[-(ptrdiff_t)i] != FILLING)
      return brim_fail(BRIM_EPLUGIN, "%s: writes outside of %s, %zu bytes before their start", where, what, i);
  for (size_t i = 0; i < GUARD; i++)
    if (g->at[g->bytes + i] != FILLING)
      return brim_fail(BRIM_EPLUGIN, "%s: writes outside of %s, %zu bytes after their end", where, what, i);
  return BRIM_OK;
}

/* Samples of one shape. */
typedef struct trial {
  const brim_augment_ops *ops;
  const void *self;
  brim_shape shape;
  guarded values, partner, scratch;
} trial;

static void fill(const trial *t, const guarded *g, uint32_t number)
{
  const int64_t count = brim_shape_count(&t->shape);
  for (int64_t i = 0; i < count; i++) {
    const uint32_t x = brim_philox4x32((uint32_t)i, number, 0, 0, 1, 2).v[0];
    if (t->ops->dtype == BRIM_DTYPE_U8)
      g->at[i] = (uint8_t)x;
    else
      ((float *)(void *)g->at)[i] = (float)(4 * brim_uniform(x) - 2);
  }
}

static brim_status check_values(const trial *t, const brim_augment_sample *s, const char *where)
{
  if (!brim_shape_equal(&s->shape, &t->shape)) return brim_fail(BRIM_EPLUGIN, "%s: changes the sample's shape", where);
  BRIM_TRY(guarded_check(&t->values, "the sample's values", where));
  BRIM_TRY(guarded_check(&t->scratch, "the scratch", where));
  BRIM_TRY(guarded_check(&t->partner, "the partner's values", where));
  if (!(s->share >= 0 && s->share <= 1))
    return brim_fail(BRIM_EPLUGIN, "%s: share is %g: it must be 0 to 1", where, (double)s->share);
  for (int64_t i = 0; t->ops->dtype == BRIM_DTYPE_F32 && i < brim_shape_count(&t->shape); i++)
    if (!isfinite(((const float *)(const void *)t->values.at)[i]))
      return brim_fail(BRIM_EPLUGIN, "%s: value %" PRId64 " becomes %g: values must stay finite", where, i,
                       (double)((const float *)(const void *)t->values.at)[i]);
  return BRIM_OK;
}

static brim_status make(const trial *t, int64_t number, int filling, float *share)
{
  char shape[96], where[160];
  brim_augment_sample s = {.shape = t->shape,
                           .values = t->values.at,
                           .partner = t->ops->mixes ? t->partner.at : NULL,
                           .scratch = t->scratch.at,
                           .share = 1,
                           .block = BRIM_AUGMENT_BLOCKS,
                           .seed = 3,
                           .epoch = number % 2,
                           .index = number};
  snprintf(where, sizeof where, "sample %" PRId64 " of shape %s", number,
           brim_shape_format(shape, sizeof shape, &t->shape));
  fill(t, &t->values, (uint32_t)number);
  fill(t, &t->partner, (uint32_t)number + SAMPLES);
  memset(t->scratch.at, filling, t->scratch.bytes);
  uint8_t *before = brim_xcalloc(1, t->partner.bytes);
  memcpy(before, t->partner.at, t->partner.bytes);
  t->ops->apply(t->self, &s);
  brim_status status = check_values(t, &s, where);
  if (status == BRIM_OK && memcmp(before, t->partner.at, t->partner.bytes) != 0)
    status = brim_fail(BRIM_EPLUGIN, "%s: changes the partner's values", where);
  free(before);
  *share = s.share;
  return status;
}

/* Makes each sample again, from the last to the first, as other threads and resumed runs do. */
static brim_status make_twice(const trial *t)
{
  uint8_t *first = brim_xcalloc(SAMPLES, t->values.bytes);
  float share[SAMPLES], again = 0;
  char shape[96];
  brim_status status = BRIM_OK;
  for (int64_t i = 0; i < SAMPLES && status == BRIM_OK; i++) {
    status = make(t, i, 0, &share[i]);
    memcpy(first + (size_t)i * t->values.bytes, t->values.at, t->values.bytes);
  }
  for (int64_t i = SAMPLES; i-- > 0 && status == BRIM_OK;) {
    status = make(t, i, 0x7F, &again);
    const bool same = memcmp(first + (size_t)i * t->values.bytes, t->values.at, t->values.bytes) == 0 &&
                      !(again < share[i] || again > share[i]);
    if (status == BRIM_OK && !same)
      status =
          brim_fail(BRIM_EPLUGIN,
                    "sample %" PRId64 " of shape %s differs when it is augmented again: it must depend only on its "
                    "values and on brim_augment_random",
                    i, brim_shape_format(shape, sizeof shape, &t->shape));
  }
  free(first);
  return status;
}

static brim_status try_shape(const brim_check *c, const void *self, const brim_shape *shape)
{
  trial t = {.ops = c->plugin->ops, .self = self, .shape = *shape};
  const size_t bytes = (size_t)brim_shape_count(shape) * brim_dtype_bytes(t.ops->dtype);
  t.values = guarded_make(bytes);
  t.partner = guarded_make(bytes);
  t.scratch = guarded_make(t.ops->scratch_bytes ? (size_t)t.ops->scratch_bytes(self, shape) : 0);
  const brim_status status = make_twice(&t);
  free(t.values.at - GUARD);
  free(t.partner.at - GUARD);
  free(t.scratch.at - GUARD);
  return status;
}

static brim_status try_all(brim_check *c, const char *further, bool *refused)
{
  char group[BRIM_PLUGIN_ID_MAX + sizeof "augmentation."];
  brim_config *config = NULL;
  const brim_augment_ops *ops = c->plugin->ops;
  static const char *const word[] = {"model=mlp", "dataset=synthetic", "policy=[]", NULL};
  brim_status status = brim_check_config(c, word, further, &config);
  *refused = status != BRIM_OK;
  if (status != BRIM_OK) return status;
  snprintf(group, sizeof group, "augmentation.%s", c->plugin->id);
  const void *self = brim_config_choice_of(config, group)->params;
  for (size_t i = 0; i < IMAGES && status == BRIM_OK; i++) status = try_shape(c, self, &images[i]);
  for (size_t i = 0; i < OTHERS && status == BRIM_OK && !ops->images && ops->dtype == BRIM_DTYPE_F32; i++)
    status = try_shape(c, self, &others[i]);
  brim_config_free(config);
  return status;
}

static enum brim_finding check_apply(brim_check *c)
{
  const brim_augment_ops *ops = c->plugin->ops;
  bool refused = false;
  if (try_all(c, NULL, &refused) != BRIM_OK) return brim_check_blame(c, refused);
  const bool only_images = ops->images || ops->dtype == BRIM_DTYPE_U8;
  return brim_check_say(c, BRIM_FOUND_OK, "samples of %zu shapes, %d of each: the same result when repeated",
                        IMAGES + (only_images ? 0 : OTHERS), SAMPLES);
}

static enum brim_check_trial try_word(brim_check *c, const char *word)
{
  bool refused = false;
  const brim_status status = try_all(c, word, &refused);
  return brim_check_tried(c, word, status, refused);
}

const brim_check_kind brim_augment_checks[] = {{"apply", check_apply}, BRIM_CHECK_PARAMETERS(try_word), {NULL}};
