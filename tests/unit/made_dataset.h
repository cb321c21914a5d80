/* A dataset for tests with computed values: value k of sample i is known, and the label of sample i is i if there are
 * as many classes as samples. For tokens the label is the next token, and every fifth is ignored; real targets are i +
 * k / 4. It can be made to fail. */
#ifndef TESTS_MADE_DATASET_H
#define TESTS_MADE_DATASET_H
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "brim/brim.h"
#include "config/settings.h"

typedef struct made {
  brim_dataset_info train, test; /* test.count -1: no test split */
  bool describes_unopened;
  bool fail_open;
  int64_t fail_read, bad_label; /* index of a sample; -1: none */
  bool slow;                    /* read takes up to 0.1 ms, depending on the sample */
  int opened;
} made;

static inline uint8_t made_value(int64_t index, int64_t k)
{
  return (uint8_t)(((uint64_t)index * 1000003 + (uint64_t)k + 1) * 0x9E3779B97F4A7C15u >> 56);
}

static inline brim_status made_open(void *self, const char *split)
{
  made *m = self;
  if (strcmp(split, "test") == 0 && m->test.count < 0) return brim_fail(BRIM_ENOTSUP, "no split '%s'", split);
  if (m->fail_open) return brim_fail(BRIM_ELOAD, "cannot open %s", split);
  m->opened++;
  return BRIM_OK;
}

static inline brim_status made_describe(const void *self, const char *split, brim_dataset_info *out)
{
  const made *m = self;
  const bool test = strcmp(split, "test") == 0;
  if (test && m->test.count < 0) return brim_fail(BRIM_ENOTSUP, "no split '%s'", split);
  if (!m->describes_unopened && !m->opened) return brim_fail(BRIM_EINVAL, "not open");
  *out = test ? m->test : m->train;
  return BRIM_OK;
}

static inline void made_write_values(const brim_dataset_info *info, int64_t index, void *values)
{
  const int64_t count = brim_shape_count(&info->sample);
  for (int64_t k = 0; k < count; k++) {
    if (info->dtype == BRIM_DTYPE_U8)
      ((uint8_t *)values)[k] = made_value(index, k);
    else if (info->dtype == BRIM_DTYPE_I32)
      ((int32_t *)values)[k] = (int32_t)(made_value(index, k) % info->classes);
    else
      ((float *)values)[k] = (float)made_value(index, k) - 100;
  }
}

static inline void made_write_label(const made *m, const brim_dataset_info *info, int64_t index, void *label)
{
  const bool bad = index == m->bad_label;
  const int64_t last = (info->task == BRIM_TASK_VALUES ? info->targets : brim_shape_count(&info->sample)) - 1;
  if (info->task == BRIM_TASK_CLASS) *(int32_t *)label = (int32_t)(bad ? info->classes : index % info->classes);
  for (int64_t k = 0; info->task == BRIM_TASK_TOKENS && k <= last; k++)
    ((int32_t *)label)[k] = k % 5 == 4 ? BRIM_NO_TOKEN : (int32_t)(made_value(index, k + 1) % info->classes);
  if (info->task == BRIM_TASK_TOKENS && bad) ((int32_t *)label)[last] = (int32_t)info->classes;
  for (int64_t k = 0; info->task == BRIM_TASK_VALUES && k <= last; k++)
    ((float *)label)[k] = bad && k == last ? NAN : (float)index + (float)k / 4;
}

static inline brim_status made_read(const void *self, const char *split, int64_t index, void *values, void *label)
{
  const made *m = self;
  const brim_dataset_info *info = strcmp(split, "test") == 0 ? &m->test : &m->train;
  if (index == m->fail_read) return brim_fail(BRIM_EIO, "the disk is gone");
  if (m->slow) nanosleep(&(struct timespec){.tv_nsec = index * 7919 % 100 * 1000}, NULL);
  made_write_values(info, index, values);
  made_write_label(m, info, index, label);
  return BRIM_OK;
}

static const brim_dataset_ops made_ops = {
    .size = sizeof(brim_dataset_ops), .open = made_open, .describe = made_describe, .read = made_read};
static const brim_plugin made_plugin = {
    .size = sizeof(brim_plugin), .kind = BRIM_DATASET, .id = "made", .help = "for tests", .ops = &made_ops};

/* Makes `count` images [channels, rows, columns] of bytes with as many classes, and 17 test images. */
static inline made made_images(int64_t count, int64_t channels, int64_t rows, int64_t columns)
{
  made m = {.describes_unopened = true, .fail_read = -1, .bad_label = -1};
  m.train = (brim_dataset_info){.count = count,
                                .sample = {.rank = 3, .dim = {channels, rows, columns}},
                                .dtype = BRIM_DTYPE_U8,
                                .classes = count > 17 ? count : 17};
  m.test = m.train;
  m.test.count = 17;
  return m;
}

/* Makes `count` sequences of `length` tokens from a vocabulary of 50, and 17 test sequences. */
static inline made made_tokens(int64_t count, int64_t length)
{
  made m = made_images(count, 1, 1, 1);
  m.train.task = BRIM_TASK_TOKENS;
  m.train.classes = 50;
  m.train.dtype = BRIM_DTYPE_I32;
  m.train.sample = (brim_shape){.rank = 1, .dim = {length}};
  m.test = m.train;
  m.test.count = 17;
  return m;
}

/* Makes `count` sequences [length, features] with `targets` real numbers each, and 17 test sequences. */
static inline made made_values(int64_t count, int64_t length, int64_t features, int64_t targets)
{
  made m = made_images(count, 1, 1, 1);
  m.train.task = BRIM_TASK_VALUES;
  m.train.classes = 0;
  m.train.targets = targets;
  m.train.sample = (brim_shape){.rank = 2, .dim = {length, features}};
  m.test = m.train;
  m.test.count = 17;
  return m;
}
#endif
