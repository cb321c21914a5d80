/* Runs with checkpoints for tests: tensors whose values show the step, and trees of files to compare. */
#ifndef BRIM_TESTS_CHECKPOINT_RUNS_H
#define BRIM_TESTS_CHECKPOINT_RUNS_H
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/text.h"
#include "scratch.h"
#include "store/checkpoint.h"

#define LEN(array) (sizeof(array) / sizeof((array)[0]))

static float weight[2][3], moment[2][3];
static double bias[1];
static const brim_safetensor model[] = {{"weight", BRIM_DTYPE_F32, {2, {2, 3}}, weight},
                                        {"bias", BRIM_DTYPE_F64, {1, {1}}, bias}};
static const brim_safetensor optimizer[] = {{"weight.m", BRIM_DTYPE_F32, {2, {2, 3}}, moment}};
static const brim_checkpoint_tensors tensors = {model, optimizer, LEN(model), LEN(optimizer), NULL};

static inline brim_train_state state_of(int64_t step)
{
  brim_train_state s = {.step = step,
                        .samples = 128 * step,
                        .epoch = 1 + step / 100,
                        .metrics_records = step / 10,
                        .best_loss = NAN,
                        .best_step = -1,
                        .evaluated_step = step - 1,
                        .model_hash = 0xfedcba9876543210u,
                        .window_loss = 0.1 * (double)step,
                        .window_correct = 3,
                        .window_samples = 64};
  snprintf(s.model_id, sizeof s.model_id, "cnn");
  snprintf(s.optimizer_id, sizeof s.optimizer_id, "adamw");
  snprintf(s.backend_id, sizeof s.backend_id, "cpu");
  return s;
}

/* Fills the tensors for `step`, with values unlike those of any other step. */
static inline void fill_tensors(int64_t step)
{
  for (int i = 0; i < 6; i++) {
    ((float *)weight)[i] = (float)step + (float)i / 8;
    ((float *)moment)[i] = -(float)step / (float)(i + 1);
  }
  bias[0] = 1.0 / (double)(step + 1);
}

static inline brim_status save(const char *run, int64_t step, int64_t keep, bool is_best)
{
  brim_train_state s = state_of(step);
  if (is_best) s.best_step = step;
  fill_tensors(step);
  return brim_checkpoint_write(run, &s, &tensors, keep);
}

/* Makes an empty folder for a run. The returned path is valid until the next call but one. */
static inline const char *new_run(const char *name)
{
  static char paths[2][SCRATCH_PATH * 2];
  static unsigned next;
  char *run = paths[next++ % 2];
  snprintf(run, sizeof paths[0], "%s", scratch("%s", name));
  scratch_delete(run);
  scratch_check(mkdir(run, 0777) == 0, run);
  return run;
}

/* tree_of() lists every name below a folder with its type, length, and hash or target, sorted. Two trees are alike if
 * their lists are equal. */
static inline int by_text(const void *a, const void *b)
{
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *tree_item[256];
static size_t tree_count, tree_skip;

static inline int tree_visit(const char *path, const struct stat *info, int type, struct FTW *where)
{
  (void)where;
  char text[SCRATCH_PATH * 2], target[SCRATCH_PATH] = "";
  uint64_t hash = 0;
  size_t size = 0;
  if (type == FTW_SL) scratch_check(readlink(path, target, sizeof target - 1) > 0, path);
  if (type == FTW_F) {
    char *bytes = scratch_read(path, &size);
    hash = brim_hash(BRIM_HASH_START, bytes, size);
    free(bytes);
  }
  (void)info;
  snprintf(text, sizeof text, "%s|%d|%zu|%" PRIx64 "|%s\n", path + tree_skip, type, size, hash, target);
  scratch_check(tree_count < LEN(tree_item), "too many files");
  tree_item[tree_count++] = brim_xstrdup(text);
  return 0;
}

static inline char *tree_of(const char *folder)
{
  brim_text all = {0};
  tree_count = 0;
  tree_skip = strlen(folder);
  nftw(folder, tree_visit, 16, FTW_PHYS);
  qsort(tree_item, tree_count, sizeof tree_item[0], by_text);
  for (size_t i = 0; i < tree_count; i++) {
    brim_text_add(&all, tree_item[i]);
    free(tree_item[i]);
  }
  return all.s ? all.s : brim_xstrdup("");
}

/* Reads the whole checkpoint that a resume would use, and returns its step; -1: there is no checkpoint. */
static inline int64_t found_step(const char *run)
{
  char path[SCRATCH_PATH];
  bool found;
  brim_train_state s;
  assert_int_equal(brim_checkpoint_find(run, path, sizeof path, &found), BRIM_OK);
  if (!found) return -1;
  assert_int_equal(brim_checkpoint_read_state(path, &s), BRIM_OK);
  memset(weight, 0, sizeof weight);
  memset(moment, 0, sizeof moment);
  if (brim_checkpoint_read(path, &tensors) != BRIM_OK) fail_msg("%s", brim_error_text());
  assert_float_equal(weight[1][2], (float)s.step + 5.0f / 8, 0);
  assert_float_equal(moment[1][2], -(float)s.step / 6, 0);
  return s.step;
}

static inline char *target_of(const char *run, const char *link)
{
  static char target[SCRATCH_PATH];
  const ssize_t length = readlink(scratch("%s/checkpoints/%s", strrchr(run, '/') + 1, link), target, sizeof target - 1);
  target[length > 0 ? length : 0] = '\0';
  return target;
}
#endif
