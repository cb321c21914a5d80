/* Tests the ledger that processes share: it never exceeds its limit, and the share of a process returns however the
 * process ends. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "brim/ledger.h"
#include "memory/board.h"

#define LIMIT 1000

static char folder[256];

static int set_up(void **state)
{
  snprintf(folder, sizeof folder, "%s/tests/ledger-%d", BRIM_BUILD_DIR, (int)getpid());
  brim_shared_folder_set(folder);
  return 0;
}

static int tear_down(void **state)
{
  char command[300];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  return system(command);
}

static brim_ledger *open_ledger(const char *name)
{
  brim_ledger *ledger = NULL;
  if (brim_ledger_open(name, 2, LIMIT, &ledger) != BRIM_OK) fail_msg("%s", brim_error_text());
  return ledger;
}

static uint64_t used(brim_ledger *ledger, int device)
{
  uint64_t bytes = 0;
  if (brim_ledger_used(ledger, device, &bytes) != BRIM_OK) fail_msg("%s", brim_error_text());
  return bytes;
}

static void devices_have_limits_of_their_own(void **state)
{
  brim_ledger *ledger = open_ledger("own");
  int32_t a, b, c;
  assert_int_equal(brim_ledger_take(ledger, 0, 600, &a), BRIM_OK);
  assert_int_equal(brim_ledger_take(ledger, 0, 401, &b), BRIM_ENOMEM_DEVICE);
  assert_int_equal(brim_ledger_take(ledger, 0, 400, &b), BRIM_OK);
  assert_int_equal(brim_ledger_take(ledger, 1, LIMIT + 1, &c), BRIM_ENOMEM_DEVICE);
  assert_int_equal(brim_ledger_take(ledger, 1, UINT64_MAX, &c), BRIM_ENOMEM_DEVICE);
  assert_int_equal(brim_ledger_take(ledger, 1, LIMIT, &c), BRIM_OK);
  brim_ledger_give(ledger, a);
  assert_int_equal(used(ledger, 0), 400);
  assert_int_equal(used(ledger, 1), LIMIT);
  brim_ledger_close(ledger);
}

static void a_refusal_names_the_processes_that_use_the_device(void **state)
{
  brim_ledger *one = open_ledger("reported"), *other = open_ledger("reported");
  brim_device_user user[4];
  int32_t a, b;
  size_t count = 0;
  char expected[64];
  assert_int_equal(brim_ledger_take(one, 1, 700, &a), BRIM_OK);
  assert_int_equal(brim_ledger_take(other, 1, 400, &b), BRIM_ENOMEM_DEVICE);
  snprintf(expected, sizeof expected, "(pid %d) has 700 B", (int)getpid());
  assert_non_null(strstr(brim_error_text(), expected));
  assert_non_null(strstr(brim_error_text(), "300 B left"));
  assert_int_equal(brim_ledger_users(other, 1, user, 4, &count), BRIM_OK);
  assert_int_equal(count, 1);
  assert_int_equal(user[0].pid, getpid());
  assert_int_equal(user[0].bytes, 700);
  assert_string_equal(user[0].name, "test_ledger");
  brim_ledger_close(one);
  assert_int_equal(used(other, 1), 0);
  brim_ledger_close(other);
}

/* The child reports that it has taken its share, and waits to be killed. */
static void memory_of_a_killed_process_becomes_free(void **state)
{
  brim_ledger *ledger = open_ledger("killed");
  for (int round = 0; round < 20; round++) {
    int pipes[2];
    char said = 0;
    assert_int_equal(pipe(pipes), 0);
    const pid_t child = fork();
    if (child == 0) {
      brim_ledger *own = open_ledger("killed");
      int32_t entry;
      said = brim_ledger_take(own, 0, 900, &entry) == BRIM_OK;
      (void)!write(pipes[1], &said, 1);
      pause();
    }
    assert_int_equal(read(pipes[0], &said, 1), 1);
    assert_int_equal(said, 1);
    assert_int_equal(used(ledger, 0), 900);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(used(ledger, 0), 0);
    close(pipes[0]);
    close(pipes[1]);
  }
  brim_ledger_close(ledger);
}

#define PROCESSES 8
#define TURNS 200

/* Takes and gives back memory at random; some processes end without giving it back. Returns the number of refusals. */
static int take_turns(unsigned seed)
{
  brim_ledger *own = open_ledger("many");
  int refused = 0;
  for (int turn = 0; turn < TURNS; turn++) {
    int32_t entry;
    seed = seed * 1103515245u + 12345;
    const int device = (int)(seed >> 16 & 1);
    if (brim_ledger_take(own, device, 100 + (seed >> 17) % 900, &entry) != BRIM_OK) {
      refused++;
      continue;
    }
    if (used(own, device) > LIMIT) return -1;
    if (turn == TURNS - 1 && seed >> 20 & 1) break;
    brim_ledger_give(own, entry);
  }
  return refused > 100 ? 100 : refused;
}

static void many_processes_together_are_never_over_the_limit(void **state)
{
  pid_t child[PROCESSES];
  int refused = 0;
  int32_t mine[2];
  brim_ledger *ledger = open_ledger("many");
  for (int device = 0; device < 2; device++) /* so that some requests are refused in every interleaving */
    assert_int_equal(brim_ledger_take(ledger, device, LIMIT / 2, &mine[device]), BRIM_OK);
  for (unsigned i = 0; i < PROCESSES; i++)
    if ((child[i] = fork()) == 0) _exit(take_turns(i + 1) & 0xFF);
  for (int i = 0; i < PROCESSES; i++) {
    int status;
    waitpid(child[i], &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_not_equal(WEXITSTATUS(status), 0xFF);
    refused += WEXITSTATUS(status);
  }
  assert_true(refused > 0); /* the test needs some refusals */
  assert_int_equal(used(ledger, 0) + used(ledger, 1), LIMIT);
  brim_ledger_close(ledger);
}

static void the_number_of_entries_is_limited(void **state)
{
  brim_ledger *ledger = open_ledger("full");
  int32_t entry;
  for (int i = 0; i < BRIM_BOARD_SLOTS; i++) assert_int_equal(brim_ledger_take(ledger, 0, 1, &entry), BRIM_OK);
  assert_int_equal(brim_ledger_take(ledger, 0, 1, &entry), BRIM_ENOMEM_DEVICE);
  brim_ledger_give(ledger, entry);
  assert_int_equal(brim_ledger_take(ledger, 0, 1, &entry), BRIM_OK);
  brim_ledger_close(ledger);
}

/* brim replaces a file of another version, but not while a process uses it. */
static void a_file_of_another_version_is_refused_while_it_is_used(void **state)
{
  char path[512];
  brim_ledger *ledger = NULL;
  snprintf(path, sizeof path, "%s/other-2x%d.ledger", folder, LIMIT);
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  assert_int_equal(write(fd, "something else, longer than a header is", 39), 39);
  close(fd);
  const int other = open(path, O_RDWR);
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = ((off_t)1 << 40) + 7, .l_len = 1};
  assert_int_equal(fcntl(other, F_OFD_SETLK, &lock), 0);
  assert_int_equal(brim_ledger_open("other", 2, LIMIT, &ledger), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "another version of brim"));
  close(other);
  assert_int_equal(brim_ledger_open("other", 2, LIMIT, &ledger), BRIM_OK);
  int32_t entry;
  assert_int_equal(brim_ledger_take(ledger, 1, LIMIT, &entry), BRIM_OK);
  brim_ledger_close(ledger);
}

/* ---- the file's content is not trusted ---- */

/* The layout of memory/board.c and memory/ledger.c. */
typedef struct forged {
  int64_t pid;
  uint64_t bytes;
  int32_t device;
  char name[60];
} forged;

#define TABLE_BYTES (24 + (off_t)BRIM_BOARD_SLOTS * (1 + (off_t)sizeof(forged)))
#define TABLE_LOCK ((off_t)1 << 40)

static const char *path_of(const char *name)
{
  static char path[512];
  snprintf(path, sizeof path, "%s/%s-2x%d.ledger", folder, name, LIMIT);
  return path;
}

static int open_path(const char *name)
{
  const int fd = open(path_of(name), O_RDWR);
  assert_true(fd >= 0);
  return fd;
}

static void lock_byte(int fd, off_t at)
{
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
  assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
}

static void forge(int fd, int slot, forged entry)
{
  const char in_use = 1;
  const off_t at = 24 + slot * (1 + (off_t)sizeof entry);
  lock_byte(fd, TABLE_LOCK + 1 + slot);
  assert_int_equal(pwrite(fd, &in_use, 1, at), 1);
  assert_int_equal(pwrite(fd, &entry, sizeof entry, at + 1), sizeof entry);
}

static void impossible_entries_do_not_count(void **state)
{
  int32_t entry;
  brim_device_user user[8];
  size_t count;
  brim_ledger *ledger = open_ledger("forged");
  const int fd = open_path("forged");
  forge(fd, 0, (forged){.pid = 7, .bytes = UINT64_MAX, .device = 0});
  forge(fd, 1, (forged){.pid = 7, .bytes = LIMIT + 1, .device = 0});
  forge(fd, 2, (forged){.pid = -7, .bytes = LIMIT, .device = 0});
  forge(fd, 3, (forged){.pid = 7, .bytes = 1, .device = INT32_MIN});
  assert_int_equal(used(ledger, 0), 0);
  assert_int_equal(brim_ledger_take(ledger, 0, 600, &entry), BRIM_OK);
  forge(fd, 10, (forged){.pid = 7, .bytes = 300, .device = 0});
  forge(fd, 11, (forged){.pid = 7, .bytes = LIMIT, .device = 0}); /* more than the device has left */
  assert_int_equal(used(ledger, 0), 900);
  assert_int_equal(brim_ledger_users(ledger, 0, user, 8, &count), BRIM_OK);
  assert_int_equal(count, 3);
  assert_int_equal(brim_ledger_take(ledger, 0, 101, &entry), BRIM_ENOMEM_DEVICE);
  assert_int_equal(brim_ledger_take(ledger, 0, 100, &entry), BRIM_OK);
  close(fd);
  brim_ledger_close(ledger);
}

static void an_own_entry_reads_back(void **state)
{
  int32_t entry;
  const forged other = {.pid = 7, .bytes = 1, .device = 1};
  brim_ledger *ledger = open_ledger("changed");
  assert_int_equal(brim_ledger_take(ledger, 0, 600, &entry), BRIM_OK);
  const int fd = open_path("changed");
  assert_int_equal(pwrite(fd, &other, sizeof other, 24 + entry * (1 + (off_t)sizeof other) + 1), sizeof other);
  assert_int_equal(used(ledger, 0), 600);
  assert_int_equal(used(ledger, 1), 0);
  close(fd);
  brim_ledger_close(ledger);
}

static void a_damaged_table_is_repaired_with_the_readers_own_entries(void **state)
{
  struct stat info;
  int32_t entry;
  for (off_t length = 0; length < TABLE_BYTES; length += 511) {
    brim_ledger *ledger = open_ledger("cut");
    assert_int_equal(brim_ledger_take(ledger, 0, 600, &entry), BRIM_OK);
    const int fd = open_path("cut");
    assert_int_equal(ftruncate(fd, length), 0);
    brim_ledger *second = open_ledger("cut");
    assert_int_equal(used(ledger, 0), 600);
    assert_int_equal(used(second, 0), 600);
    assert_int_equal(pwrite(fd, "nothing of the kind", 19, 0), 19);
    assert_int_equal(brim_ledger_take(second, 1, 300, &entry), BRIM_OK);
    assert_int_equal(used(ledger, 0), 600);
    assert_int_equal(used(ledger, 1), 300);
    assert_int_equal(fstat(fd, &info), 0);
    assert_int_equal(info.st_size, TABLE_BYTES);
    close(fd);
    brim_ledger_close(second);
    brim_ledger_close(ledger);
  }
}

static void anything_but_a_plain_file_is_refused_with_its_name(void **state)
{
  char other[600];
  brim_ledger *ledger = NULL;
  assert_int_equal(mkfifo(path_of("fifo"), 0666), 0);
  assert_int_equal(brim_ledger_open("fifo", 2, LIMIT, &ledger), BRIM_EIO);
  assert_non_null(strstr(brim_error_text(), path_of("fifo")));
  assert_non_null(strstr(brim_error_text(), "is not a regular file"));
  const int fd = open(path_of("linked"), O_WRONLY | O_CREAT, 0600);
  assert_int_equal(write(fd, "somebody's", 10), 10);
  close(fd);
  snprintf(other, sizeof other, "%s.too", path_of("linked"));
  assert_int_equal(link(path_of("linked"), other), 0);
  assert_int_equal(brim_ledger_open("linked", 2, LIMIT, &ledger), BRIM_EIO);
  assert_non_null(strstr(brim_error_text(), "has other hard links"));
  struct stat info;
  assert_int_equal(stat(other, &info), 0);
  assert_int_equal(info.st_size, 10);
}

static void others_cannot_replace_the_folders_files(void **state)
{
  char path[600];
  struct stat info;
  brim_ledger *ledger = open_ledger("sticky");
  brim_ledger_close(ledger);
  assert_int_equal(chmod(folder, 0777), 0);
  brim_ledger_close(open_ledger("sticky"));
  assert_int_equal(stat(folder, &info), 0);
  assert_int_equal(info.st_mode & 07777, 01777);
  snprintf(path, sizeof path, "%s/file", folder);
  close(open(path, O_WRONLY | O_CREAT, 0600));
  brim_shared_folder_set(path);
  assert_int_equal(brim_ledger_open("x", 1, 1, &ledger), BRIM_EIO);
  assert_non_null(strstr(brim_error_text(), "it is not a folder"));
  brim_shared_folder_set(folder);
}

/* Starts a child that holds the table's lock and is stopped. */
static pid_t hold_lock(const char *path)
{
  int status;
  const pid_t child = fork();
  if (child == 0) {
    const int fd = open(path, O_RDWR);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = TABLE_LOCK, .l_len = 1};
    if (fcntl(fd, F_OFD_SETLK, &lock) == 0) raise(SIGSTOP);
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, WUNTRACED), child);
  assert_true(WIFSTOPPED(status));
  return child;
}

static void a_process_that_holds_the_lock_too_long_is_named(void **state)
{
  char pid[64], path[600];
  brim_board board;
  assert_int_equal(brim_board_open(&board, "held", 1, 8, 0.3), BRIM_OK);
  snprintf(path, sizeof path, "%s/held", folder);
  const pid_t child = hold_lock(path);
  assert_int_equal(brim_board_lock(&board), BRIM_EIO);
  snprintf(pid, sizeof pid, "by process %d, which is stopped\n`kill -CONT %d`", (int)child, (int)child);
  assert_non_null(strstr(brim_error_text(), path));
  assert_non_null(strstr(brim_error_text(), pid));
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  assert_int_equal(brim_board_lock(&board), BRIM_OK);
  brim_board_unlock(&board);
  brim_board_close(&board);
}

static void terminal_stop_is_blocked_while_the_lock_is_held(void **state)
{
  brim_board board;
  sigset_t now;
  assert_int_equal(brim_board_open(&board, "stops", 1, 8, BRIM_BOARD_SECONDS), BRIM_OK);
  assert_int_equal(brim_board_lock(&board), BRIM_OK);
  pthread_sigmask(SIG_BLOCK, NULL, &now);
  assert_int_equal(sigismember(&now, SIGTSTP), 1);
  brim_board_unlock(&board);
  pthread_sigmask(SIG_BLOCK, NULL, &now);
  assert_int_equal(sigismember(&now, SIGTSTP), 0);
  brim_board_close(&board);
}

static void a_ledger_is_removed_with_its_last_user_as_are_abandoned_ones(void **state)
{
  brim_ledger *one = open_ledger("last"), *other = open_ledger("last");
  brim_ledger_close(one);
  assert_int_equal(access(path_of("last"), F_OK), 0);
  const pid_t child = fork();
  if (child == 0) {
    (void)open_ledger("left");
    _exit(0);
  }
  waitpid(child, NULL, 0);
  assert_int_equal(access(path_of("left"), F_OK), 0);
  brim_ledger_close(other);
  assert_int_not_equal(access(path_of("last"), F_OK), 0);
  assert_int_not_equal(access(path_of("left"), F_OK), 0);
}

static void a_folder_that_cannot_be_made_is_an_error_that_names_the_setting(void **state)
{
  brim_ledger *ledger = NULL;
  brim_shared_folder_set("/proc/brim-claims");
  assert_int_equal(brim_ledger_open("x", 1, 1, &ledger), BRIM_EIO);
  assert_non_null(strstr(brim_error_text(), "claims.dir"));
  brim_shared_folder_set(folder);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(devices_have_limits_of_their_own),
      cmocka_unit_test(a_refusal_names_the_processes_that_use_the_device),
      cmocka_unit_test(memory_of_a_killed_process_becomes_free),
      cmocka_unit_test(many_processes_together_are_never_over_the_limit),
      cmocka_unit_test(the_number_of_entries_is_limited),
      cmocka_unit_test(a_file_of_another_version_is_refused_while_it_is_used),
      cmocka_unit_test(impossible_entries_do_not_count),
      cmocka_unit_test(an_own_entry_reads_back),
      cmocka_unit_test(a_damaged_table_is_repaired_with_the_readers_own_entries),
      cmocka_unit_test(anything_but_a_plain_file_is_refused_with_its_name),
      cmocka_unit_test(others_cannot_replace_the_folders_files),
      cmocka_unit_test(a_process_that_holds_the_lock_too_long_is_named),
      cmocka_unit_test(terminal_stop_is_blocked_while_the_lock_is_held),
      cmocka_unit_test(a_ledger_is_removed_with_its_last_user_as_are_abandoned_ones),
      cmocka_unit_test(a_folder_that_cannot_be_made_is_an_error_that_names_the_setting),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
