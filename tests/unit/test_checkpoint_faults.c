/* Tests checkpoints on a failing disk: after every failing system call, full disk or kill, the run can be resumed.
 *
 * The calls that change the disk are defined here, in place of the C library's: each is counted, and can be made to
 * fail, to run out of space, or to end the process. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/log.h"
#include "checkpoint_runs.h"
#include "tier.h"

#define KILLED 77 /* exit status of a process that ended itself */

/* ---- system calls ---- */

enum mode { PASS, FAIL, KILL, FULL, SHORT };
static struct {
  enum mode mode;
  int calls, at; /* FAIL, KILL: the number of the call */
  int64_t room;  /* FULL: bytes that still fit */
  bool hit;
  char failed[256]; /* FAIL: the failed call, as in the trace */
  char trace[4096]; /* "mkdir x; write x; ..." with the last part of each path */
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

/* True if this call must fail; sets errno. */
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

/* The test does not need the disk itself; without fsync, thousands of checkpoints take little time. */
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

static void everything_is_on_the_disk_before_it_is_renamed(void **unused)
{
  (void)unused;
  disk_set(PASS, 0, 0);
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

/* The situations in which step 100 is written: the first checkpoint, after step 50, over an older step 100 (a run that
 * went back to step 50), and with older ones that must be deleted. */
static const char *prepare(int situation)
{
  disk_set(PASS, 0, 0);
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

/* True if the checkpoint is not safe when this call fails. The failure of another call only causes a warning. */
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
  if (strstr(call, " (deleted)")) return false; /* this call concerns the lock of a deleted checkpoint */
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
  for (;; room += is_tier("full") ? 1 : 5) { /* a write has more bytes */
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

/* Runs a process that dies at its `at`-th call; returns false if it made fewer calls. */
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

static void a_run_killed_at_any_call_resumes_to_the_same_end(void **unused)
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

static void a_real_limit_of_the_system_is_reported_and_undone(void **unused)
{
  (void)unused;
  static float large[4096];
  const brim_safetensor big = {"big", BRIM_DTYPE_F32, {1, {4096}}, large};
  const brim_checkpoint_tensors all = {&big, optimizer, 1, LEN(optimizer), NULL};
  const brim_train_state s = state_of(100);
  const char *run = prepare(1);
  char *before = tree_of(run);
  struct rlimit old, small;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
  small = old;
  small.rlim_cur = 4000;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  const brim_status status = brim_checkpoint_write(run, &s, &all, 2);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
  assert_int_equal(status, BRIM_EIO);
  assert_non_null(strstr(brim_error_text(), ".step-00000100.tmp/model.safetensors': File too large"));
  char *after = tree_of(run);
  assert_string_equal(before, after);
  free(before);
  free(after);
}

int main(void)
{
  brim_log_set_level(BRIM_LOG_ERROR); /* hundreds of warnings are expected */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(everything_is_on_the_disk_before_it_is_renamed),
      cmocka_unit_test(every_call_that_fails_leaves_all_or_nothing),
      cmocka_unit_test(a_disk_that_fills_at_any_byte_leaves_the_older_checkpoints),
      cmocka_unit_test(writes_that_take_a_few_bytes_at_a_time_add_up),
      cmocka_unit_test(a_run_killed_at_any_call_resumes_to_the_same_end),
      cmocka_unit_test(a_kill_while_cleaning_up_is_harmless_too),
      cmocka_unit_test(a_real_limit_of_the_system_is_reported_and_undone),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
