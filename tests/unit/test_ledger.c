/* The ledger that processes share: it is never over its limit, and the share of a process that ends, however it ends,
 * returns. */
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
  (void)state;
  snprintf(folder, sizeof folder, "%s/tests/ledger-%d", BRIM_BUILD_DIR, (int)getpid());
  brim_shared_folder_set(folder);
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
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
  (void)state;
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

static void who_is_refused_is_told_who_has_the_rest(void **state)
{
  (void)state;
  brim_ledger *one = open_ledger("told"), *other = open_ledger("told");
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

/* The child says that it has taken its share, and then waits to be killed. */
static void a_killed_process_gives_back(void **state)
{
  (void)state;
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

/* Takes and gives at random; some end without giving back. Returns how often it was refused. */
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
  (void)state;
  pid_t child[PROCESSES];
  int refused = 0;
  for (unsigned i = 0; i < PROCESSES; i++)
    if ((child[i] = fork()) == 0) _exit(take_turns(i + 1) & 0xFF);
  for (int i = 0; i < PROCESSES; i++) {
    int status;
    waitpid(child[i], &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_not_equal(WEXITSTATUS(status), 0xFF);
    refused += WEXITSTATUS(status);
  }
  assert_true(refused > 0); /* or it was no test */
  brim_ledger *ledger = open_ledger("many");
  assert_int_equal(used(ledger, 0) + used(ledger, 1), 0);
  brim_ledger_close(ledger);
}

static void there_are_so_many_entries_and_no_more(void **state)
{
  (void)state;
  brim_ledger *ledger = open_ledger("full");
  int32_t entry;
  for (int i = 0; i < BRIM_BOARD_SLOTS; i++) assert_int_equal(brim_ledger_take(ledger, 0, 1, &entry), BRIM_OK);
  assert_int_equal(brim_ledger_take(ledger, 0, 1, &entry), BRIM_ENOMEM_DEVICE);
  brim_ledger_give(ledger, entry);
  assert_int_equal(brim_ledger_take(ledger, 0, 1, &entry), BRIM_OK);
  brim_ledger_close(ledger);
}

/* What another version left is made anew, but not under the hands of one that uses it. */
static void a_file_of_another_version_is_refused_while_it_is_used(void **state)
{
  (void)state;
  char path[512];
  brim_ledger *ledger = open_ledger("other");
  snprintf(path, sizeof path, "%s/other-2x%d.ledger", folder, LIMIT);
  assert_int_equal(truncate(path, 40), 0);
  uint64_t bytes;
  assert_int_equal(brim_ledger_used(ledger, 0, &bytes), BRIM_EIO);
  brim_ledger_close(ledger);
  const int fd = open(path, O_WRONLY | O_TRUNC);
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

static void a_folder_that_cannot_be_made_is_an_error_that_names_the_setting(void **state)
{
  (void)state;
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
      cmocka_unit_test(who_is_refused_is_told_who_has_the_rest),
      cmocka_unit_test(a_killed_process_gives_back),
      cmocka_unit_test(many_processes_together_are_never_over_the_limit),
      cmocka_unit_test(there_are_so_many_entries_and_no_more),
      cmocka_unit_test(a_file_of_another_version_is_refused_while_it_is_used),
      cmocka_unit_test(a_folder_that_cannot_be_made_is_an_error_that_names_the_setting),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
