/* Checkpoints: what is written reads back; every failing system call and every kill leaves a run that goes on;
 * every damaged byte is noticed.
 *
 * The calls that change the disk are defined here, so that they take the place of the C library's: each counts, and can
 * be made to fail, to run out of space, or to end the process. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/text.h"
#include "scratch.h"
#include "train/checkpoint.h"

#define LEN(array) (sizeof(array) / sizeof((array)[0]))
#define KILLED 77

/* ---- the disk's calls ---- */

enum mode { PASS, FAIL, KILL, FULL, SHORT };
static struct {
  enum mode mode;
  int calls, at; /* FAIL, KILL: which call */
  int64_t room;  /* FULL: bytes that still fit */
  bool hit;
  char failed[256]; /* FAIL: the call, as in the trace */
  char trace[4096]; /* "mkdir x; write x; ..." by last part of the path */
} disk;

static void disk_set(enum mode mode, int at, int64_t room)
{
  disk.mode = mode;
  disk.calls = 0;
  disk.at = at;
  disk.room = room;
  disk.hit = false;
  disk.trace[0] = '\0';
}

static void trace(const char *call, const char *path)
{
  const size_t length = strlen(disk.trace);
  const char *slash = strrchr(path, '/');
  snprintf(disk.trace + length, sizeof disk.trace - length, "%s %s; ", call, slash ? slash + 1 : path);
}

/* True if this call is to fail, with errno set. */
static bool faulty(const char *call, const char *path)
{
  trace(call, path);
  const bool mine = disk.calls++ == disk.at && (disk.mode == FAIL || disk.mode == KILL);
  if (!mine) return false;
  if (disk.mode == KILL) _exit(KILLED);
  const char *slash = strrchr(path, '/');
  snprintf(disk.failed, sizeof disk.failed, "%s %s", call, slash ? slash + 1 : path);
  disk.hit = true;
  errno = ENOSPC;
  return true;
}

static const char *fd_name(int fd)
{
  static char name[SCRATCH_PATH];
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, name, sizeof name - 1);
  name[length > 0 ? length : 0] = '\0';
  return name;
}

ssize_t write(int fd, const void *bytes, size_t count)
{
  if (disk.mode == PASS || fd <= STDERR_FILENO) return syscall(SYS_write, fd, bytes, count);
  if (faulty("write", fd_name(fd))) return -1;
  if (disk.mode == FULL && (int64_t)count > disk.room) {
    disk.hit = true;
    count = (size_t)disk.room;
    if (count == 0) {
      errno = ENOSPC;
      return -1;
    }
  }
  if (disk.mode == SHORT && count > 7) count = 7;
  const ssize_t n = syscall(SYS_write, fd, bytes, count);
  if (n > 0) disk.room -= n;
  return n;
}

/* The disk itself is not under test; leaving it out makes thousands of checkpoints fast. */
int fsync(int fd)
{
  return faulty("fsync", fd_name(fd)) ? -1 : 0;
}

int close(int fd)
{
  const bool fails = disk.mode != PASS && faulty("close", fd_name(fd));
  const int result = (int)syscall(SYS_close, fd);
  return fails ? -1 : result;
}

int open(const char *path, int flags, ...)
{
  va_list list;
  va_start(list, flags);
  const int mode = flags & O_CREAT ? va_arg(list, int) : 0;
  va_end(list);
  if (disk.mode != PASS && faulty("open", path)) return -1;
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int mkdir(const char *path, mode_t mode)
{
  if (disk.mode != PASS && faulty("mkdir", path)) return -1;
  return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int rename(const char *from, const char *to)
{
  if (disk.mode != PASS && faulty("rename", to)) return -1;
  return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int symlink(const char *target, const char *path)
{
  if (disk.mode != PASS && faulty("symlink", path)) return -1;
  return (int)syscall(SYS_symlinkat, target, AT_FDCWD, path);
}

int unlinkat(int folder, const char *path, int flags)
{
  if (disk.mode != PASS && faulty("unlink", path)) return -1;
  return (int)syscall(SYS_unlinkat, folder, path, flags);
}

int unlink(const char *path)
{
  return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
  if (disk.mode != PASS && faulty("rmdir", path)) return -1;
  return (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}

/* ---- runs ---- */

static float weight[2][3], moment[2][3];
static double bias[1];
static const brim_safetensor model[] = {{"weight", BRIM_DTYPE_F32, {2, {2, 3}}, weight},
                                        {"bias", BRIM_DTYPE_F64, {1, {1}}, bias}};
static const brim_safetensor optimizer[] = {{"weight.m", BRIM_DTYPE_F32, {2, {2, 3}}, moment}};
static const brim_checkpoint_tensors tensors = {model, optimizer, LEN(model), LEN(optimizer)};

static brim_train_state state_of(int64_t step)
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

/* The tensors of a run at `step`, which differ from those at any other. */
static void fill_tensors(int64_t step)
{
  for (int i = 0; i < 6; i++) {
    ((float *)weight)[i] = (float)step + (float)i / 8;
    ((float *)moment)[i] = -(float)step / (float)(i + 1);
  }
  bias[0] = 1.0 / (double)(step + 1);
}

static brim_status save(const char *run, int64_t step, int64_t keep, bool is_best)
{
  brim_train_state s = state_of(step);
  if (is_best) s.best_step = step;
  fill_tensors(step);
  return brim_checkpoint_write(run, &s, &tensors, keep, is_best);
}

/* Its path is valid until the next but one. */
static const char *new_run(const char *name)
{
  static char paths[2][SCRATCH_PATH * 2];
  static unsigned next;
  char *run = paths[next++ % 2];
  snprintf(run, sizeof paths[0], "%s", scratch("%s", name));
  disk_set(PASS, 0, 0);
  scratch_delete(run);
  scratch_check(mkdir(run, 0777) == 0, run);
  return run;
}

/* Every name below a folder with type, length, hash or target, sorted: two trees are alike if these are. */
static int by_text(const void *a, const void *b)
{
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *tree_item[256];
static size_t tree_count, tree_skip;

static int tree_visit(const char *path, const struct stat *info, int type, struct FTW *where)
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

static char *tree_of(const char *folder)
{
  brim_text all = {0};
  const enum mode mode = disk.mode;
  disk.mode = PASS;
  tree_count = 0;
  tree_skip = strlen(folder);
  nftw(folder, tree_visit, 16, FTW_PHYS);
  qsort(tree_item, tree_count, sizeof tree_item[0], by_text);
  for (size_t i = 0; i < tree_count; i++) {
    brim_text_add(&all, tree_item[i]);
    free(tree_item[i]);
  }
  disk.mode = mode;
  return all.s ? all.s : brim_xstrdup("");
}

/* The step of the checkpoint that a resume would take, read whole; -1: none. */
static int64_t found_step(const char *run)
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

static char *target_of(const char *run, const char *link)
{
  static char target[SCRATCH_PATH];
  const ssize_t length = readlink(scratch("%s/checkpoints/%s", strrchr(run, '/') + 1, link), target, sizeof target - 1);
  target[length > 0 ? length : 0] = '\0';
  return target;
}

/* ---- what is written ---- */

static void a_state_reads_back_to_the_same_bits(void **unused)
{
  (void)unused;
  static const double values[] = {0.1, -0.0, 5e-324, 1.7976931348623157e308, INFINITY, -INFINITY, 1.0 / 3, 100, NAN};
  const char *run = new_run("bits");
  for (size_t i = 0; i < LEN(values); i++) {
    brim_train_state s = state_of(50), back;
    s.best_loss = values[i];
    s.window_correct = -values[i];
    assert_int_equal(brim_checkpoint_write(run, &s, &tensors, 2, false), BRIM_OK);
    assert_int_equal(brim_checkpoint_read_state(scratch("bits/checkpoints/step-00000050"), &back), BRIM_OK);
    if (isnan(values[i])) {
      assert_true(isnan(back.best_loss) && isnan(back.window_correct));
      s.best_loss = s.window_correct = back.best_loss = back.window_correct = 0;
    }
    assert_memory_equal(&back, &s, sizeof s);
  }
}

static void tensors_read_back_and_the_folder_holds_nothing_else(void **unused)
{
  (void)unused;
  const char *run = new_run("back");
  assert_int_equal(save(run, 50, 2, true), BRIM_OK);
  assert_int_equal(found_step(run), 50);
  assert_string_equal(target_of(run, "last"), "step-00000050");
  assert_string_equal(target_of(run, "best"), "step-00000050");
  char *tree = tree_of(run);
  size_t lines = 0;
  for (const char *c = tree; *c; c++) lines += *c == '\n';
  assert_int_equal(lines, 8); /* run, checkpoints, step, 3 files, 2 links */
  free(tree);
}

static void equal_runs_leave_equal_bytes(void **unused)
{
  (void)unused;
  const char *a = new_run("equal-a"), *b = new_run("equal-b");
  assert_int_equal(save(a, 50, 2, true), BRIM_OK);
  assert_int_equal(save(b, 50, 2, true), BRIM_OK);
  char *tree_a = tree_of(a), *tree_b = tree_of(b);
  assert_string_equal(tree_a, tree_b);
  free(tree_a);
  free(tree_b);
}

static void the_last_ones_and_the_best_are_kept(void **unused)
{
  (void)unused;
  const char *run = new_run("keep");
  for (int64_t step = 10; step <= 60; step += 10) {
    brim_train_state s = state_of(step);
    s.best_step = step >= 20 ? 20 : -1;
    fill_tensors(step);
    assert_int_equal(brim_checkpoint_write(run, &s, &tensors, 2, step == 20), BRIM_OK);
  }
  static const char *const there[] = {"step-00000020", "step-00000050", "step-00000060"};
  static const char *const gone[] = {"step-00000010", "step-00000030", "step-00000040"};
  for (size_t i = 0; i < LEN(there); i++) assert_true(scratch_exists(scratch("keep/checkpoints/%s", there[i])));
  for (size_t i = 0; i < LEN(gone); i++) assert_false(scratch_exists(scratch("keep/checkpoints/%s", gone[i])));
  assert_string_equal(target_of(run, "last"), "step-00000060");
  assert_string_equal(target_of(run, "best"), "step-00000020");
  assert_int_equal(save(run, 70, 0, true), BRIM_OK); /* the one just written always stays */
  assert_int_equal(found_step(run), 70);
  assert_false(scratch_exists(scratch("keep/checkpoints/step-00000020")));
}

static void everything_is_on_the_disk_before_it_is_renamed(void **unused)
{
  (void)unused;
  const char *run = new_run("order");
  scratch_write(scratch("order/metrics.jsonl"), "{}\n", 3);
  assert_int_equal(save(run, 50, 2, false), BRIM_OK);
  disk_set(FULL, 0, INT64_MAX);
  assert_int_equal(save(run, 100, 1, true), BRIM_OK);
  static const char *const order[] = {"fsync metrics.jsonl;",
                                      "mkdir .step-00000100.tmp;",
                                      "fsync model.safetensors;",
                                      "fsync optimizer.safetensors;",
                                      "fsync state.json;",
                                      "fsync .step-00000100.tmp;",
                                      "symlink .last.tmp;",
                                      "symlink .best.tmp;",
                                      "rename step-00000100;",
                                      "fsync checkpoints;",
                                      "rename last;",
                                      "rename best;",
                                      "rename .step-00000050.del;"};
  const char *at = disk.trace;
  for (size_t i = 0; i < LEN(order); i++) {
    at = strstr(at, order[i]);
    if (!at) fail_msg("'%s' is not in its place: %s", order[i], disk.trace);
  }
}

/* ---- failures and kills ---- */

/* The situations in which step 100 is written: first ever, after step 50, over an earlier step 100 (a run that went
 * back to step 50), and after ones of which some are to be deleted. */
static const char *prepare(int situation)
{
  const char *run = new_run("fault");
  if (situation == 1) assert_int_equal(save(run, 50, 2, true), BRIM_OK);
  if (situation == 2) {
    assert_int_equal(save(run, 50, 2, false), BRIM_OK);
    assert_int_equal(save(run, 100, 2, true), BRIM_OK);
  }
  if (situation == 3)
    for (int64_t step = 20; step <= 60; step += 20) assert_int_equal(save(run, step, 5, step == 20), BRIM_OK);
  return run;
}
static const int64_t newest_before[] = {-1, 50, 100, 60};
#define SITUATIONS 4

/* Calls whose failure means that the checkpoint is not safe; others may end in a warning. */
static bool must_refuse(const char *call)
{
  static const char *const vital[] = {"write ",
                                      "fsync ",
                                      "symlink ",
                                      "mkdir ",
                                      "close model.safetensors",
                                      "close optimizer.safetensors",
                                      "close state.json",
                                      "rename step-00000100"};
  for (size_t i = 0; i < LEN(vital); i++)
    if (strncmp(call, vital[i], strlen(vital[i])) == 0) return true;
  return false;
}

static void every_call_that_fails_leaves_all_or_nothing(void **unused)
{
  (void)unused;
  int refused = 0;
  for (int situation = 0; situation < SITUATIONS; situation++) {
    for (int at = 0;; at++) {
      const char *run = prepare(situation);
      char *before = tree_of(run);
      disk_set(FAIL, at, 0);
      const brim_status status = save(run, 100, 2, true);
      const bool hit = disk.hit;
      disk_set(PASS, 0, 0);
      char *after = tree_of(run);
      if (status == BRIM_OK) {
        if (hit && must_refuse(disk.failed)) fail_msg("a failing '%s' was ignored", disk.failed);
        assert_int_equal(found_step(run), 100);
        assert_string_equal(target_of(run, "last"), "step-00000100");
        assert_string_equal(target_of(run, "best"), "step-00000100");
      } else {
        refused++;
        assert_int_equal(status, BRIM_EIO);
        assert_non_null(strstr(brim_error_text(), "No space left on device"));
        assert_non_null(strstr(brim_error_text(), "the checkpoint of step 100 was not written"));
        if (strcmp(before, after) != 0)
          fail_msg("situation %d, call %d: before:\n%safter:\n%s%s", situation, at, before, after, brim_error_text());
        assert_int_equal(found_step(run), newest_before[situation]);
      }
      free(before);
      free(after);
      if (!hit) break;
    }
  }
  assert_true(refused > SITUATIONS * 15);
}

static void a_disk_that_fills_at_any_byte_leaves_the_older_checkpoints(void **unused)
{
  (void)unused;
  int64_t room = 0;
  for (;; room++) {
    const char *run = prepare(1);
    char *before = tree_of(run);
    disk_set(FULL, 0, room);
    const brim_status status = save(run, 100, 2, true);
    const bool hit = disk.hit;
    disk_set(PASS, 0, 0);
    if (!hit) {
      assert_int_equal(status, BRIM_OK);
      free(before);
      break;
    }
    char *after = tree_of(run);
    assert_int_equal(status, BRIM_EIO);
    assert_string_equal(before, after);
    free(before);
    free(after);
  }
  assert_int_equal(found_step(scratch("fault")), 100);
  assert_true(room > 500);
}

static void writes_that_take_a_few_bytes_at_a_time_add_up(void **unused)
{
  (void)unused;
  const char *run = prepare(1);
  assert_int_equal(save(run, 100, 2, true), BRIM_OK);
  char *whole = tree_of(run);
  run = prepare(1);
  disk_set(SHORT, 0, 0);
  assert_int_equal(save(run, 100, 2, true), BRIM_OK);
  disk_set(PASS, 0, 0);
  char *pieces = tree_of(run);
  assert_string_equal(pieces, whole);
  free(pieces);
  free(whole);
}

/* A process that dies at its `at`-th call; false if it had fewer. */
static bool save_and_die(const char *run, int at)
{
  const pid_t child = fork();
  int how;
  if (child == 0) {
    disk_set(KILL, at, 0);
    _exit(save(run, 100, 2, true) == BRIM_OK ? 0 : 1);
  }
  assert_int_equal(waitpid(child, &how, 0), child);
  assert_true(WIFEXITED(how) && (WEXITSTATUS(how) == KILLED || WEXITSTATUS(how) == 0));
  return WEXITSTATUS(how) == KILLED;
}

static void a_kill_at_any_call_leaves_a_run_that_goes_on_to_the_same_end(void **unused)
{
  (void)unused;
  for (int situation = 0; situation < SITUATIONS; situation++) {
    const char *run = prepare(situation);
    assert_int_equal(save(run, 100, 2, true), BRIM_OK);
    char *never_killed = tree_of(run);
    int kills = 0;
    for (int at = 0;; at++) {
      run = prepare(situation);
      if (!save_and_die(run, at)) break;
      kills++;
      const int64_t step = found_step(run);
      if (step != 100 && step != newest_before[situation])
        fail_msg("situation %d, call %d: step %" PRId64 " was found", situation, at, step);
      if (step == 100) assert_string_equal(target_of(run, "last"), "step-00000100");
      assert_int_equal(save(run, 100, 2, true), BRIM_OK);
      char *tree = tree_of(run);
      if (strcmp(tree, never_killed) != 0)
        fail_msg("situation %d, call %d:\n%snever killed:\n%s", situation, at, tree, never_killed);
      free(tree);
    }
    assert_true(kills > 25);
    free(never_killed);
  }
}

static void a_kill_while_cleaning_up_is_harmless_too(void **unused)
{
  (void)unused;
  for (int first = 0;; first++) {
    const char *run = prepare(2);
    if (!save_and_die(run, first)) break;
    for (int at = 0;; at++) {
      int how;
      const pid_t child = fork();
      if (child == 0) {
        char path[SCRATCH_PATH];
        bool found;
        disk_set(KILL, at, 0);
        _exit(brim_checkpoint_find(run, path, sizeof path, &found) == BRIM_OK && found ? 0 : 1);
      }
      assert_int_equal(waitpid(child, &how, 0), child);
      if (WEXITSTATUS(how) == 0) break;
      assert_int_equal(WEXITSTATUS(how), KILLED);
    }
    assert_int_equal(found_step(run), 100);
  }
}

static void a_real_limit_of_the_system_is_told_and_undone(void **unused)
{
  (void)unused;
  static float large[4096];
  const brim_safetensor big = {"big", BRIM_DTYPE_F32, {1, {4096}}, large};
  const brim_checkpoint_tensors all = {&big, optimizer, 1, LEN(optimizer)};
  const brim_train_state s = state_of(100);
  const char *run = prepare(1);
  char *before = tree_of(run);
  struct rlimit old, small;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
  small = old;
  small.rlim_cur = 4000;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  const brim_status status = brim_checkpoint_write(run, &s, &all, 2, true);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
  assert_int_equal(status, BRIM_EIO);
  assert_non_null(strstr(brim_error_text(), ".step-00000100.tmp/model.safetensors': File too large"));
  char *after = tree_of(run);
  assert_string_equal(before, after);
  free(before);
  free(after);
}

/* ---- finding and damage ---- */

static void a_run_without_checkpoints_has_none(void **unused)
{
  (void)unused;
  const char *run = new_run("none");
  assert_int_equal(found_step(run), -1);
  assert_int_equal(mkdir(scratch("none/checkpoints"), 0777), 0);
  scratch_write(scratch("none/checkpoints/step-x"), "", 0);
  scratch_write(scratch("none/checkpoints/step-5"), "", 0);
  assert_int_equal(found_step(run), -1);
}

static void left_overs_of_dead_attempts_are_removed(void **unused)
{
  (void)unused;
  static const char *const folders[] = {".step-00000100.tmp", ".step-00000010.del", ".step-00000050.old"};
  const char *run = new_run("left");
  assert_int_equal(save(run, 50, 2, false), BRIM_OK);
  char *clean = tree_of(run);
  for (size_t i = 0; i < LEN(folders); i++) {
    assert_int_equal(mkdir(scratch("left/checkpoints/%s", folders[i]), 0777), 0);
    scratch_write(scratch("left/checkpoints/%s/model.safetensors", folders[i]), "x", 1);
  }
  assert_int_equal(symlink("step-00000007", scratch("left/checkpoints/.last.tmp")), 0);
  assert_int_equal(found_step(run), 50);
  char *tree = tree_of(run);
  assert_string_equal(tree, clean);
  free(tree);
  free(clean);
}

static void left_overs_do_not_stop_the_next_checkpoint(void **unused)
{
  (void)unused;
  const char *run = new_run("again");
  assert_int_equal(save(run, 50, 2, false), BRIM_OK);
  assert_int_equal(mkdir(scratch("again/checkpoints/.step-00000100.tmp"), 0777), 0);
  scratch_write(scratch("again/checkpoints/.step-00000100.tmp/other"), "x", 1);
  assert_int_equal(symlink("step-00000007", scratch("again/checkpoints/.last.tmp")), 0);
  assert_int_equal(save(run, 100, 2, false), BRIM_OK);
  assert_int_equal(found_step(run), 100);
  assert_false(scratch_exists(scratch("again/checkpoints/step-00000100/other")));
}

static void any_changed_byte_is_noticed_and_an_older_checkpoint_taken(void **unused)
{
  (void)unused;
  static const char *const parts[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
  const char *run = new_run("damage");
  assert_int_equal(save(run, 50, 2, false), BRIM_OK);
  assert_int_equal(save(run, 100, 2, false), BRIM_OK);
  for (size_t p = 0; p < LEN(parts); p++) {
    size_t size;
    const char *name = scratch("damage/checkpoints/step-00000100/%s", parts[p]);
    char *bytes = scratch_read(name, &size);
    for (size_t i = 0; i < size; i += p < 2 ? 7 : 1) {
      char path[SCRATCH_PATH];
      bool found;
      brim_train_state s, intact = state_of(100);
      bytes[i] ^= 0x11;
      name = scratch("damage/checkpoints/step-00000100/%s", parts[p]);
      scratch_write(name, bytes, size);
      assert_int_equal(brim_checkpoint_find(run, path, sizeof path, &found), BRIM_OK);
      assert_true(found);
      const bool old = strstr(path, "step-00000050") != NULL;
      const char *damaged = scratch("damage/checkpoints/step-00000100");
      if (brim_checkpoint_read(damaged, &tensors) == BRIM_OK) {
        /* only where the change means nothing: a space of state.json that became another */
        assert_int_equal(p, 2);
        assert_int_equal(brim_checkpoint_read_state(damaged, &s), BRIM_OK);
        s.best_loss = intact.best_loss = 0;
        assert_memory_equal(&s, &intact, sizeof s);
        assert_false(old);
      } else {
        assert_true(old);
        assert_non_null(strstr(brim_error_text(), parts[p]));
      }
      bytes[i] ^= 0x11;
    }
    scratch_write(name, bytes, size);
    free(bytes);
  }
  assert_int_equal(found_step(run), 100);
}

static void a_cut_or_missing_file_is_damage(void **unused)
{
  (void)unused;
  static const char *const parts[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
  for (size_t p = 0; p < LEN(parts); p++) {
    const char *run = new_run("cut");
    assert_int_equal(save(run, 50, 2, false), BRIM_OK);
    assert_int_equal(save(run, 100, 2, false), BRIM_OK);
    const char *name = scratch("cut/checkpoints/step-00000100/%s", parts[p]);
    assert_int_equal(truncate(name, 20), 0);
    assert_int_equal(found_step(run), 50);
    assert_int_equal(brim_checkpoint_read(scratch("cut/checkpoints/step-00000100"), &tensors), BRIM_ELOAD);
    assert_non_null(strstr(brim_error_text(), parts[p]));
    assert_non_null(strstr(brim_error_text(), "damaged"));
    assert_int_equal(unlink(scratch("cut/checkpoints/step-00000100/%s", parts[p])), 0);
    assert_int_equal(found_step(run), 50);
  }
}

static void when_all_are_damaged_nothing_starts_over_in_silence(void **unused)
{
  (void)unused;
  char path[SCRATCH_PATH];
  bool found = true;
  const char *run = prepare(1);
  assert_int_equal(truncate(scratch("fault/checkpoints/step-00000050/model.safetensors"), 20), 0);
  assert_int_equal(brim_checkpoint_find(run, path, sizeof path, &found), BRIM_ELOAD);
  assert_false(found);
  assert_non_null(strstr(brim_error_text(), "none of the 1 checkpoints"));
}

static void a_damaged_newer_one_does_not_count_among_those_kept(void **unused)
{
  (void)unused;
  const char *run = new_run("newer");
  assert_int_equal(save(run, 50, 2, false), BRIM_OK);
  assert_int_equal(save(run, 100, 2, true), BRIM_OK);
  assert_int_equal(truncate(scratch("newer/checkpoints/step-00000100/state.json"), 20), 0);
  assert_int_equal(found_step(run), 50);
  assert_int_equal(save(run, 60, 1, false), BRIM_OK);
  assert_int_equal(found_step(run), 60);
  assert_int_equal(save(run, 100, 1, true), BRIM_OK);
  assert_int_equal(found_step(run), 100);
}

static void a_state_of_another_version_is_refused(void **unused)
{
  (void)unused;
  const char *run = new_run("version");
  brim_train_state s;
  assert_int_equal(save(run, 50, 2, false), BRIM_OK);
  const char *name = scratch("version/checkpoints/step-00000050/state.json");
  char *text = scratch_read(name, NULL), *version = strstr(text, "\"version\": 1");
  assert_non_null(version);
  version[strlen("\"version\": ")] = '2';
  scratch_write(name, text, strlen(text));
  assert_int_equal(brim_checkpoint_read_state(scratch("version/checkpoints/step-00000050"), &s), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "has version 2; this brim reads version 1"));
  free(text);
}

/* ---- reading into a model ---- */

static void all_that_does_not_fit_is_listed_and_nothing_is_written(void **unused)
{
  (void)unused;
  float other[2][3] = {{9}}, extra[4] = {9};
  double untouched[1] = {9};
  const brim_safetensor want[] = {{"bias", BRIM_DTYPE_F64, {1, {1}}, untouched},
                                  {"weight", BRIM_DTYPE_F32, {2, {3, 2}}, other},
                                  {"extra", BRIM_DTYPE_F32, {1, {4}}, extra}};
  const brim_safetensor state[] = {{"weight.v", BRIM_DTYPE_I32, {0, {0}}, extra}};
  const brim_checkpoint_tensors all = {want, state, LEN(want), LEN(state)};
  const char *run = new_run("fit");
  assert_int_equal(save(run, 50, 2, false), BRIM_OK);
  assert_int_equal(brim_checkpoint_read(scratch("fit/checkpoints/step-00000050"), &all), BRIM_ELOAD);
  static const char *const lines[] = {"model.safetensors: 'weight' is F32 [2, 3]; the model needs F32 [3, 2]",
                                      "model.safetensors: 'extra' is missing; the model needs F32 [4]",
                                      "optimizer.safetensors: 'weight.v' is missing; the model needs I32 []",
                                      "optimizer.safetensors: 'weight.m' F32 [2, 3] is not in the model"};
  for (size_t i = 0; i < LEN(lines); i++)
    if (!strstr(brim_error_text(), lines[i])) fail_msg("'%s' is not in: %s", lines[i], brim_error_text());
  assert_null(strstr(brim_error_text(), "'bias'"));
  assert_float_equal(untouched[0], 9, 0);
  assert_float_equal(other[0][0], 9, 0);
}

static void a_long_list_of_differences_is_counted_at_its_end(void **unused)
{
  (void)unused;
  static char name[40][16];
  static float value[1];
  brim_safetensor want[40];
  for (size_t i = 0; i < LEN(want); i++) {
    snprintf(name[i], sizeof name[i], "layer%zu", i);
    want[i] = (brim_safetensor){name[i], BRIM_DTYPE_F32, {1, {1}}, value};
  }
  const brim_checkpoint_tensors all = {want, NULL, LEN(want), 0};
  const char *run = new_run("long");
  assert_int_equal(save(run, 50, 2, false), BRIM_OK);
  assert_int_equal(brim_checkpoint_read(scratch("long/checkpoints/step-00000050"), &all), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "\nand 18 more")); /* 40 missing and 2 unexpected, 24 shown */
}

static void single_and_double_precision_convert(void **unused)
{
  (void)unused;
  double wide[2][3];
  float narrow[1];
  const brim_safetensor want[] = {{"weight", BRIM_DTYPE_F64, {2, {2, 3}}, wide},
                                  {"bias", BRIM_DTYPE_F32, {1, {1}}, narrow}};
  const brim_checkpoint_tensors all = {want, NULL, LEN(want), 0};
  const char *run = new_run("convert");
  assert_int_equal(save(run, 50, 2, false), BRIM_OK);
  assert_int_equal(brim_checkpoint_read(scratch("convert/checkpoints/step-00000050"), &all), BRIM_OK);
  for (int i = 0; i < 6; i++) assert_true(((double *)wide)[i] == (double)((float *)weight)[i]);
  assert_true(narrow[0] == (float)(1.0 / 51));
}

static void only_the_model_is_read_without_an_optimizer(void **unused)
{
  (void)unused;
  const brim_checkpoint_tensors all = {model, NULL, LEN(model), 0};
  const char *run = new_run("model");
  assert_int_equal(save(run, 50, 2, false), BRIM_OK);
  assert_int_equal(unlink(scratch("model/checkpoints/step-00000050/optimizer.safetensors")), 0);
  memset(weight, 0, sizeof weight);
  assert_int_equal(brim_checkpoint_read(scratch("model/checkpoints/step-00000050"), &all), BRIM_OK);
  assert_float_equal(weight[0][0], 50, 0);
}

int main(void)
{
  brim_log_set_level(BRIM_LOG_ERROR); /* the warnings of hundreds of damaged checkpoints */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_state_reads_back_to_the_same_bits),
      cmocka_unit_test(tensors_read_back_and_the_folder_holds_nothing_else),
      cmocka_unit_test(equal_runs_leave_equal_bytes),
      cmocka_unit_test(the_last_ones_and_the_best_are_kept),
      cmocka_unit_test(everything_is_on_the_disk_before_it_is_renamed),
      cmocka_unit_test(every_call_that_fails_leaves_all_or_nothing),
      cmocka_unit_test(a_disk_that_fills_at_any_byte_leaves_the_older_checkpoints),
      cmocka_unit_test(writes_that_take_a_few_bytes_at_a_time_add_up),
      cmocka_unit_test(a_kill_at_any_call_leaves_a_run_that_goes_on_to_the_same_end),
      cmocka_unit_test(a_kill_while_cleaning_up_is_harmless_too),
      cmocka_unit_test(a_real_limit_of_the_system_is_told_and_undone),
      cmocka_unit_test(a_run_without_checkpoints_has_none),
      cmocka_unit_test(left_overs_of_dead_attempts_are_removed),
      cmocka_unit_test(left_overs_do_not_stop_the_next_checkpoint),
      cmocka_unit_test(any_changed_byte_is_noticed_and_an_older_checkpoint_taken),
      cmocka_unit_test(a_cut_or_missing_file_is_damage),
      cmocka_unit_test(when_all_are_damaged_nothing_starts_over_in_silence),
      cmocka_unit_test(a_damaged_newer_one_does_not_count_among_those_kept),
      cmocka_unit_test(a_state_of_another_version_is_refused),
      cmocka_unit_test(all_that_does_not_fit_is_listed_and_nothing_is_written),
      cmocka_unit_test(a_long_list_of_differences_is_counted_at_its_end),
      cmocka_unit_test(single_and_double_precision_convert),
      cmocka_unit_test(only_the_model_is_read_without_an_optimizer),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
