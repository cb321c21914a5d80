/* Tests the interrupt of a run: only the process that published the slot gets SIGINT. */
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "memory/live.h"
#include "monitor/interrupt.h"

#define MAGIC UINT64_C(0x3145564C4D495242) /* the magic number of the board of runs */
#define PATIENCE_SECONDS 60

static char folder[256];
static const brim_world alone = {0};

static int set_up(void **state)
{
  snprintf(folder, sizeof folder, "%s/tests/interrupt-%d", BRIM_BUILD_DIR, (int)getpid());
  brim_shared_folder_set(folder);
  return 0;
}

static int tear_down(void **state)
{
  char path[300];
  snprintf(path, sizeof path, "%s/runs", folder);
  unlink(path);
  rmdir(folder);
  return 0;
}

/* Starts a child that waits for a signal, and returns when it is ready. `publishes`: the child publishes a slot, as a
 * run does. */
static pid_t start_child(bool publishes)
{
  int ready[2];
  char byte;
  assert_int_equal(pipe(ready), 0);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    alarm(PATIENCE_SECONDS);
    if (publishes) {
      brim_live_command("train");
      brim_live_begin(BRIM_LIVE_BASIC, &alone);
    }
    if (write(ready[1], "r", 1) == 1)
      for (;;) pause();
    _exit(1);
  }
  assert_int_equal(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  return child;
}

static bool is_alive(pid_t child)
{
  return waitpid(child, NULL, WNOHANG) == 0;
}

static void end_child(pid_t child)
{
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
}

/* Returns the slot of a process. */
static brim_live_slot slot_of(pid_t pid)
{
  static brim_live_entry entry[BRIM_BOARD_SLOTS];
  size_t count;
  assert_int_equal(brim_live_list(entry, &count), BRIM_OK);
  for (size_t i = 0; i < count; i++)
    if (entry[i].of.pid == pid) return entry[i].of;
  fail_msg("process %d has no slot", (int)pid);
  return (brim_live_slot){0};
}

static void test_the_run_gets_sigint(void **state)
{
  int how;
  const pid_t run = start_child(true);
  assert_int_equal(brim_interrupt(run, slot_of(run).started), BRIM_OK);
  assert_int_equal(waitpid(run, &how, 0), run);
  assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGINT);
  assert_int_equal(brim_interrupt(run, 1), BRIM_EINVAL); /* the process has ended */
}

static void test_another_run_with_its_pid_gets_nothing(void **state)
{
  const pid_t run = start_child(true);
  /* A slot with another start time stands for another run than the one that the user saw. */
  assert_int_equal(brim_interrupt(run, slot_of(run).started - 1), BRIM_EINVAL);
  assert_int_equal(brim_interrupt(run, NAN), BRIM_EINVAL);
  assert_true(is_alive(run));
  end_child(run);
}

static void test_a_process_that_is_no_run_gets_nothing(void **state)
{
  const pid_t other = start_child(false);
  static const int64_t pids[] = {0, 1, -1, INT_MIN, INT64_MAX};
  assert_int_equal(brim_interrupt(other, 0), BRIM_EINVAL);
  for (size_t i = 0; i < sizeof pids / sizeof pids[0]; i++) assert_int_equal(brim_interrupt(pids[i], 0), BRIM_EINVAL);
  assert_int_equal(brim_interrupt(getpid(), 0), BRIM_EINVAL);
  assert_true(is_alive(other));
  end_child(other);
}

static uint64_t start_ticks(pid_t pid)
{
  char path[64], text[1024] = "";
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  assert_true(fread(text, 1, sizeof text - 1, file) > 0);
  fclose(file);
  const char *at = strrchr(text, ')');
  for (int i = 0; at && i < 20; i++) at = strchr(at + 1, ' '); /* field 22 */
  assert_non_null(at);
  return strtoull(at, NULL, 10);
}

static void test_a_forged_slot_harms_no_process(void **state)
{
  brim_board board;
  const pid_t run = start_child(true), other = start_child(false);
  brim_live_slot slot = slot_of(run);
  slot.pid = other;
  slot.start_ticks = start_ticks(other);
  brim_live_seal(&slot);
  assert_int_equal(brim_board_open(&board, "runs", MAGIC, sizeof slot, BRIM_BOARD_SECONDS), BRIM_OK);
  assert_int_equal(brim_board_lock(&board), BRIM_OK);
  assert_int_equal(brim_board_write(&board, BRIM_BOARD_SLOTS - 1, &slot), BRIM_OK);
  brim_board_unlock(&board);
  assert_true(slot_of(other).started >= slot.started); /* the process is in the list */
  assert_int_equal(brim_interrupt(other, slot.started), BRIM_EINVAL);
  assert_true(is_alive(other));
  brim_board_close(&board);
  end_child(other);
  end_child(run);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_run_gets_sigint),
                                     cmocka_unit_test(test_another_run_with_its_pid_gets_nothing),
                                     cmocka_unit_test(test_a_process_that_is_no_run_gets_nothing),
                                     cmocka_unit_test(test_a_forged_slot_harms_no_process)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
