/* Tests run folders: created once, locked by one process, with small files replaced atomically. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "brim/host.h"
#include "scratch.h"
#include "store/rundir.h"

static void expect_file(const char *path, const char *text)
{
  char *found = scratch_read(path, NULL);
  assert_string_equal(found, text);
  free(found);
}

static void a_file_is_replaced_whole_and_nothing_is_left_beside_it(void **state)
{
  assert_int_equal(mkdir(scratch("atomic"), 0777), 0);
  assert_int_equal(brim_file_write_atomic(scratch("atomic/summary.json"), "old", 3), BRIM_OK);
  assert_int_equal(brim_file_write_atomic(scratch("atomic/summary.json"), "newer", 5), BRIM_OK);
  expect_file(scratch("atomic/summary.json"), "newer");
  assert_int_equal(unlink(scratch("atomic/summary.json")), 0);
  assert_int_equal(rmdir(scratch("atomic")), 0);
}

static void a_failed_replacement_leaves_the_old_file(void **state)
{
  static char large[4096];
  struct rlimit before, small;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(mkdir(scratch("failed"), 0777), 0);
  assert_int_equal(brim_file_write_atomic(scratch("failed/plan.json"), "old", 3), BRIM_OK);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  small.rlim_cur = 100;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  const brim_status status = brim_file_write_atomic(scratch("failed/plan.json"), large, sizeof large);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  assert_int_equal(status, BRIM_EIO);
  assert_non_null(strstr(brim_error_text(), "File too large"));
  expect_file(scratch("failed/plan.json"), "old");
  assert_int_equal(unlink(scratch("failed/plan.json")), 0);
  assert_int_equal(rmdir(scratch("failed")), 0);
}

static void a_folder_in_place_of_a_file_is_reported(void **state)
{
  assert_int_equal(mkdir(scratch("way"), 0777), 0);
  assert_int_equal(brim_file_write_atomic(scratch("way"), "x", 1), BRIM_EIO);
  assert_non_null(strstr(brim_error_text(), "cannot replace"));
  assert_false(scratch_exists(scratch(".way.tmp")));
  assert_int_equal(brim_file_write_atomic(scratch("absent/file"), "x", 1), BRIM_EIO);
}

static void folders_are_made_with_their_parents(void **state)
{
  struct stat info;
  assert_int_equal(brim_make_folders(scratch("deep/er//and/deeper/")), BRIM_OK);
  assert_int_equal(brim_make_folders(scratch("deep/er/and/deeper")), BRIM_OK);
  assert_int_equal(stat(scratch("deep/er/and/deeper"), &info), 0);
  assert_true(S_ISDIR(info.st_mode));
  scratch_write(scratch("deep/file"), "", 0);
  assert_int_equal(brim_make_folders(scratch("deep/file/x")), BRIM_ECONFIG);
  assert_non_null(strstr(brim_error_text(), "deep/file'"));
  assert_int_equal(brim_make_folders(""), BRIM_EINVAL);
}

static void a_given_folder_is_made_or_used_if_it_holds_no_run(void **state)
{
  static const char *const marks[] = {"config.yaml", "metrics.jsonl", "summary.json"};
  char path[SCRATCH_PATH];
  assert_int_equal(brim_run_create(scratch("given/run"), "", path, sizeof path), BRIM_OK);
  assert_string_equal(path, scratch("given/run"));
  scratch_write(scratch("given/run/notes.txt"), "", 0);
  assert_int_equal(brim_run_create(scratch("given/run"), "", path, sizeof path), BRIM_OK);
  for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
    scratch_write(scratch("given/run/%s", marks[i]), "", 0);
    assert_int_equal(brim_run_create(scratch("given/run"), "", path, sizeof path), BRIM_ECONFIG);
    assert_non_null(strstr(brim_error_text(), marks[i]));
    assert_non_null(strstr(brim_error_text(), "--resume"));
    assert_int_equal(unlink(scratch("given/run/%s", marks[i])), 0);
  }
  assert_int_equal(mkdir(scratch("given/run/checkpoints"), 0777), 0);
  assert_int_equal(brim_run_create(scratch("given/run"), "", path, sizeof path), BRIM_ECONFIG);
}

static void a_named_run_gets_a_folder_of_its_own_each_time(void **state)
{
  char first[SCRATCH_PATH], second[SCRATCH_PATH], here[SCRATCH_PATH];
  assert_non_null(getcwd(here, sizeof here));
  assert_int_equal(chdir(scratch_root), 0);
  assert_int_equal(brim_run_create("", "cnn", first, sizeof first), BRIM_OK);
  /* the second folder is made in the same second, or in the next */
  assert_int_equal(brim_run_create(NULL, "cnn", second, sizeof second), BRIM_OK);
  assert_string_not_equal(first, second);
  assert_int_equal(strncmp(first, "runs/cnn-20", 11), 0);
  assert_int_equal(strlen(first), strlen("runs/cnn-YYYYmmdd-HHMMSS"));
  assert_true(scratch_exists(first) && scratch_exists(second));
  assert_int_equal(chdir(here), 0);
}

static void a_name_that_would_leave_the_folder_is_refused(void **state)
{
  static const char *const names[] = {"", "..", ".hidden", "a/b", "/abs"};
  char path[SCRATCH_PATH];
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    assert_int_equal(brim_run_create("", names[i], path, sizeof path), BRIM_ECONFIG);
    assert_non_null(strstr(brim_error_text(), "run.name"));
  }
  assert_int_equal(brim_run_create("/some/where", "", path, 5), BRIM_ECONFIG);
  assert_non_null(strstr(brim_error_text(), "too long"));
}

/* Takes the lock in a separate process, reports the status, and stays until it is killed. */
static pid_t lock_elsewhere(const char *run, brim_status *status)
{
  int answer[2];
  assert_int_equal(pipe(answer), 0);
  const pid_t child = fork();
  if (child == 0) {
    int fd;
    const brim_status mine = brim_run_lock(run, &fd);
    if (write(answer[1], &mine, sizeof mine) == sizeof mine) pause();
    _exit(0);
  }
  assert_int_equal(read(answer[0], status, sizeof *status), sizeof *status);
  close(answer[0]);
  close(answer[1]);
  return child;
}

static void a_run_is_locked_until_its_process_ends_even_by_a_kill(void **state)
{
  brim_status status = BRIM_EINTERNAL;
  char holder[32];
  int fd = -1;
  assert_int_equal(mkdir(scratch("locked"), 0777), 0);
  const pid_t child = lock_elsewhere(scratch("locked"), &status);
  assert_int_equal(status, BRIM_OK);
  assert_int_equal(brim_run_lock(scratch("locked"), &fd), BRIM_EINVAL);
  snprintf(holder, sizeof holder, "(process %ld)", (long)child);
  assert_non_null(strstr(brim_error_text(), holder));
  assert_int_equal(kill(child, SIGKILL), 0);
  assert_int_equal(waitpid(child, NULL, 0), child);
  assert_int_equal(brim_run_lock(scratch("locked"), &fd), BRIM_OK);
  close(fd);
}

static void a_missing_run_cannot_be_locked(void **state)
{
  int fd = -1;
  assert_int_equal(brim_run_lock(scratch("nowhere"), &fd), BRIM_EINVAL);
  assert_non_null(strstr(brim_error_text(), "no run folder"));
  scratch_write(scratch("plain"), "", 0);
  assert_int_equal(brim_run_lock(scratch("plain"), &fd), BRIM_EINVAL);
}

static void links_that_lie_in_a_folder_are_not_followed(void **state)
{
  int lock;
  scratch_put("victim", "mine");
  assert_int_equal(mkdir(scratch("prepared"), 0777), 0);
  assert_int_equal(symlink(scratch("victim"), scratch("prepared/.lock")), 0);
  assert_int_equal(symlink(scratch("victim"), scratch("prepared/.plan.json.tmp")), 0);
  assert_int_equal(brim_run_lock(scratch("prepared"), &lock), BRIM_EIO);
  assert_non_null(strstr(brim_error_text(), "/.lock': it is a symbolic link"));
  assert_int_equal(brim_file_write_atomic(scratch("prepared/plan.json"), "{}", 2), BRIM_OK);
  expect_file(scratch("prepared/plan.json"), "{}");
  expect_file(scratch("victim"), "mine");
}

/* ---- files of a cache ---- */

/* Begins to write a file in a child that is killed half-way. */
static void begin_and_be_killed(const char *path)
{
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    int fd;
    if (brim_cache_begin(path, &fd) == BRIM_OK && fd >= 0 && write(fd, "part", 4) == 4) raise(SIGKILL);
    _exit(1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status));
}

static void files_of_killed_writers_are_removed_from_a_cache(void **state)
{
  int fd;
  begin_and_be_killed(scratch("cache/a.bin"));
  begin_and_be_killed(scratch("cache/b.bin"));
  assert_int_equal(brim_cache_begin(scratch("cache/a.bin"), &fd), BRIM_OK);
  assert_int_equal(write(fd, "a", 1), 1);
  assert_int_equal(brim_cache_end(scratch("cache/a.bin"), &fd, true), BRIM_OK);
  assert_int_equal(fd, -1);
  expect_file(scratch("cache/a.bin"), "a");
  assert_int_equal(unlink(scratch("cache/a.bin")), 0);
  assert_int_equal(rmdir(scratch("cache")), 0); /* the folder contains nothing else */
}

static void a_cache_file_is_written_by_one_process(void **state)
{
  int fd, other, next;
  assert_int_equal(brim_cache_begin(scratch("cache/a.bin"), &fd), BRIM_OK);
  assert_int_equal(brim_cache_begin(scratch("cache/a.bin"), &other), BRIM_OK);
  assert_int_equal(other, -1);
  /* This call does not touch the file of the first process. */
  assert_int_equal(brim_cache_begin(scratch("cache/b.bin"), &next), BRIM_OK);
  assert_int_equal(write(fd, "a", 1), 1);
  assert_int_equal(brim_cache_end(scratch("cache/a.bin"), &fd, true), BRIM_OK);
  assert_int_equal(brim_cache_end(scratch("cache/b.bin"), &next, false), BRIM_OK);
  expect_file(scratch("cache/a.bin"), "a");
  assert_int_equal(unlink(scratch("cache/a.bin")), 0);
  assert_int_equal(rmdir(scratch("cache")), 0);
}

static void an_unwritable_cache_is_reported(void **state)
{
  int fd;
  scratch_put("file", "");
  assert_int_equal(brim_cache_begin(scratch("file/a.bin"), &fd), BRIM_ECONFIG);
  assert_int_equal(fd, -1);
  assert_non_null(strstr(brim_error_text(), "a file has this name"));
  assert_int_equal(unlink(scratch("file")), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_file_is_replaced_whole_and_nothing_is_left_beside_it),
      cmocka_unit_test(a_failed_replacement_leaves_the_old_file),
      cmocka_unit_test(a_folder_in_place_of_a_file_is_reported),
      cmocka_unit_test(folders_are_made_with_their_parents),
      cmocka_unit_test(a_given_folder_is_made_or_used_if_it_holds_no_run),
      cmocka_unit_test(a_named_run_gets_a_folder_of_its_own_each_time),
      cmocka_unit_test(a_name_that_would_leave_the_folder_is_refused),
      cmocka_unit_test(a_run_is_locked_until_its_process_ends_even_by_a_kill),
      cmocka_unit_test(a_missing_run_cannot_be_locked),
      cmocka_unit_test(links_that_lie_in_a_folder_are_not_followed),
      cmocka_unit_test(files_of_killed_writers_are_removed_from_a_cache),
      cmocka_unit_test(a_cache_file_is_written_by_one_process),
      cmocka_unit_test(an_unwritable_cache_is_reported),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
