/* Tests ranks started by brim itself: this program again, in the role of its first argument. They exchange data, end,
 * die and hang; the launcher names the rank and leaves no process running. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/host.h"
#include "base/text.h"
#include "dist/hub.h"
#include "dist/line.h"
#include "dist/processors.h"
#include "launch/launch.h"

#define RANKS 3
#define PATIENCE 0.5 /* seconds for a rank that hangs */
#define LONG 600     /* seconds for all other ranks, because a busy machine may delay a rank */

/* ---- a rank ---- */

static const brim_comm_ops *hub(void)
{
  return brim_comm_hub.ops;
}

static brim_status meet(const brim_world *world, int64_t round, double patience)
{
  const int64_t own = 1000 * round + world->rank;
  int64_t all[RANKS] = {0};
  int32_t late;
  BRIM_TRY(hub()->exchange(NULL, &own, sizeof own, all, patience, &late));
  for (int32_t r = 0; r < world->ranks; r++)
    if (all[r] != 1000 * round + r) return brim_fail(BRIM_EINTERNAL, "rank %d has said another thing", (int)r);
  return BRIM_OK;
}

/* Makes the second rank fail between two exchanges; the others continue. */
static void misbehave(const char *how)
{
  if (strcmp(how, "dies") == 0) raise(SIGKILL);
  if (strcmp(how, "exits") == 0) _exit(17);
  while (strcmp(how, "hangs") == 0) pause();
  if (strcmp(how, "ends all") == 0) hub()->end_all(NULL, 4);
  if (strcmp(how, "ends all") == 0) _exit(4);
  if (strcmp(how, "leaves") == 0) brim_line_leave(3);
  if (strcmp(how, "leaves") == 0) _exit(3);
}

static int be_rank(const char *how)
{
  brim_world world;
  if (hub()->join(NULL, &world) != BRIM_OK) return 99;
  if (world.ranks != RANKS || world.local_rank != world.rank) return 98;
  for (int64_t round = 0; round < 100; round++) {
    if (round == 50 && world.rank == 1) misbehave(how);
    if (meet(&world, round, round == 50 && strcmp(how, "hangs") == 0 ? PATIENCE : LONG) != BRIM_OK) return 97;
  }
  hub()->leave(NULL);
  if (strcmp(how, "interrupted") == 0) {
    usleep(50000 * (useconds_t)world.rank);
    brim_line_leave(6);
    return 6;
  }
  brim_line_leave(0);
  return 0;
}

/* ---- the launcher ---- */

/* Returns the error text, or "", and the exit status; asserts that it left no child. The launcher would not return if
 * it waited for a rank that hangs. */
static const char *run(const char *how, int *exit_status)
{
  brim_rank_launch launch = {.ranks = RANKS, .end_seconds = LONG};
  const char *const word[] = {"test_hub", how, NULL};
  const brim_status status = brim_launch_run(&launch, word, exit_status);
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
  if (status == BRIM_OK) return "";
  assert_int_equal(brim_status_exit(status), 5);
  return brim_error_text();
}

static void assert_has(const char *text, const char *part)
{
  if (!strstr(text, part)) fail_msg("'%s' is not in: %s", part, text);
}

static void ranks_exchange_and_end(void **state)
{
  int status = -1;
  assert_string_equal(run("well", &status), "");
  assert_int_equal(status, 0);
}

static void a_status_that_all_have_is_passed_on(void **state)
{
  int status = -1;
  assert_string_equal(run("interrupted", &status), "");
  assert_int_equal(status, 6);
}

static void a_rank_that_dies_is_named(void **state)
{
  int status;
  const char *error = run("dies", &status);
  assert_has(error, "rank 1 (process ");
  assert_has(error, "was killed by signal 9 (Killed)");
}

static void a_rank_that_ends_silently_is_named(void **state)
{
  int status;
  const char *error = run("exits", &status);
  assert_has(error, "rank 1 (process ");
  assert_has(error, "exit status 17");
}

static void a_rank_that_hangs_is_named(void **state)
{
  int status;
  const char *error = run("hangs", &status);
  assert_has(error, "rank 1 (process ");
  assert_has(error, "did not answer while the others waited 0.5 seconds");
}

static void a_rank_ends_all_with_its_status(void **state)
{
  int status = -1;
  assert_string_equal(run("ends all", &status), "");
  assert_int_equal(status, 4);
}

static void no_rank_waits_for_one_that_has_left(void **state)
{
  int status = -1;
  assert_string_equal(run("leaves", &status), "");
  assert_int_equal(status, 3);
}

/* ---- processors ---- */

static void processors_are_cut_into_equal_parts(void **state)
{
  cpu_set_t all, none;
  sched_getaffinity(0, sizeof all, &all);
  const cpu_set_t whole = brim_processors_cut(1, 0), a = brim_processors_cut(2, 0), b = brim_processors_cut(2, 1);
  assert_true(CPU_EQUAL(&whole, &all));
  assert_int_equal(CPU_COUNT(&a), CPU_COUNT(&b));
  CPU_AND(&none, &a, &b);
  assert_int_equal(CPU_COUNT(&none), 0);
  const cpu_set_t many = brim_processors_cut(CPU_SETSIZE + 1, 0);
  assert_int_equal(CPU_COUNT(&many), 0);
}

static void threads_follow_the_share_of_processors(void **state)
{
  const int32_t alone = brim_host_threads();
  brim_host_share_with(2, alone / 2.0);
  assert_int_equal(brim_host_threads(), alone > 1 ? alone / 2 : 1);
  brim_host_share_with(2 * alone, 0.5);
  assert_int_equal(brim_host_threads(), 1);
  brim_host_share_with(1, 0);
  assert_int_equal(brim_host_threads(), alone);
}

int main(int argc, char **argv)
{
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_exchange_and_end),
      cmocka_unit_test(a_status_that_all_have_is_passed_on),
      cmocka_unit_test(a_rank_that_dies_is_named),
      cmocka_unit_test(a_rank_that_ends_silently_is_named),
      cmocka_unit_test(a_rank_that_hangs_is_named),
      cmocka_unit_test(a_rank_ends_all_with_its_status),
      cmocka_unit_test(no_rank_waits_for_one_that_has_left),
      cmocka_unit_test(processors_are_cut_into_equal_parts),
      cmocka_unit_test(threads_follow_the_share_of_processors),
  };
  if (brim_hub_is_there()) return be_rank(argc > 1 ? argv[1] : "");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
