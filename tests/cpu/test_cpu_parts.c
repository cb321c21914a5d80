/* Tests parts of the cpu backend that need no other part: its threads, and the reading of control groups from made-up
 * trees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "brim/host.h"
#include "pool.h"
#include "scratch.h"

/* ---- threads ---- */

enum { TASKS_MAX = 2000 };

typedef struct job {
  atomic_int runs[TASKS_MAX];
  atomic_int bad_thread;
  int32_t threads;
} job;

static void count_task(void *arg, int64_t task, int32_t thread)
{
  job *j = arg;
  atomic_fetch_add(&j->runs[task], 1);
  if (thread < 0 || thread >= j->threads) atomic_store(&j->bad_thread, 1);
}

static void run_jobs(int32_t threads, int64_t tasks, int jobs)
{
  static job j;
  cpu_pool *pool = NULL;
  memset(&j, 0, sizeof j);
  j.threads = threads;
  assert_int_equal(cpu_pool_create(threads, &pool), BRIM_OK);
  for (int i = 0; i < jobs; i++) cpu_pool_run(pool, tasks, count_task, &j);
  cpu_pool_destroy(pool);
  for (int64_t t = 0; t < tasks; t++) assert_int_equal(atomic_load(&j.runs[t]), jobs);
  assert_int_equal(atomic_load(&j.bad_thread), 0);
}

static void test_every_task_runs_once_per_job(void **state)
{
  for (int32_t threads = 1; threads <= 5; threads++) {
    run_jobs(threads, 0, 3);
    run_jobs(threads, 1, 50);
    run_jobs(threads, 2, 2000);
    run_jobs(threads, TASKS_MAX, 50);
  }
}

static void test_jobs_find_workers_that_fell_asleep(void **state)
{
  static job j;
  cpu_pool *pool = NULL;
  memset(&j, 0, sizeof j);
  j.threads = 3;
  assert_int_equal(cpu_pool_create(3, &pool), BRIM_OK);
  for (int i = 0; i < 20; i++) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    cpu_pool_run(pool, 100, count_task, &j);
  }
  cpu_pool_destroy(pool);
  for (int t = 0; t < 100; t++) assert_int_equal(atomic_load(&j.runs[t]), 20);
}

static void test_unreasonable_thread_counts_are_refused(void **state)
{
  cpu_pool *pool = NULL;
  assert_int_equal(cpu_pool_create(0, &pool), BRIM_EINVAL);
  assert_int_equal(cpu_pool_create(1000000, &pool), BRIM_EINVAL);
  assert_null(pool);
  cpu_pool_destroy(NULL);
}

/* ---- control groups ---- */

static brim_cgroup read_groups(void)
{
  return brim_cgroup_read(scratch("fs"), scratch("membership"));
}

static void test_without_groups_there_is_no_limit(void **state)
{
  const brim_cgroup c = read_groups();
  assert_true(c.memory_limit == UINT64_MAX && c.memory_headroom == UINT64_MAX);
  assert_true(c.processors == 0);
}

static void test_version_2_takes_the_tightest_of_all_levels(void **state)
{
  scratch_put("membership", "0::/a/b\n");
  scratch_put("fs/a/b/memory.max", "max\n");
  scratch_put("fs/a/b/memory.current", "1000\n");
  scratch_put("fs/a/b/cpu.max", "400000 100000\n");
  scratch_put("fs/a/memory.max", "10000\n");
  scratch_put("fs/a/memory.current", "7000\n");
  scratch_put("fs/a/memory.stat", "anon 1\nfile 4000\ninactive_file 2500\nactive_file 9\n");
  scratch_put("fs/a/cpu.max", "150000 100000\n");
  const brim_cgroup c = read_groups();
  assert_true(c.memory_limit == 10000);
  assert_true(c.memory_headroom == 10000 - (7000 - 2500));
  assert_true(c.processors == 1.5);
}

static void test_version_2_in_a_container_reads_the_root_of_the_mount(void **state)
{
  scratch_put("membership", "0::/not/visible/here\n");
  scratch_put("fs/memory.max", "5000\n");
  scratch_put("fs/memory.current", "6000\n");
  scratch_put("fs/cpu.max", "max 100000\n");
  const brim_cgroup c = read_groups();
  assert_true(c.memory_limit == 5000);
  assert_true(c.memory_headroom == 0); /* already over the limit */
  assert_true(c.processors == 0);
}

static void test_version_1_has_a_folder_per_controller(void **state)
{
  scratch_put("membership", "9:cpuset:/\n5:cpuacct,cpu:/x\n4:memory:/x/y\n1:name=systemd:/\n");
  scratch_put("fs/memory/memory.limit_in_bytes", "9223372036854771712\n");
  scratch_put("fs/memory/x/y/memory.limit_in_bytes", "8000\n");
  scratch_put("fs/memory/x/y/memory.usage_in_bytes", "3000\n");
  scratch_put("fs/memory/x/y/memory.stat", "inactive_file 1\ntotal_inactive_file 1000\n");
  scratch_put("fs/cpu/x/cpu.cfs_quota_us", "250000\n");
  scratch_put("fs/cpu/x/cpu.cfs_period_us", "100000\n");
  scratch_put("fs/cpu/cpu.cfs_quota_us", "-1\n");
  scratch_put("fs/cpu/cpu.cfs_period_us", "100000\n");
  const brim_cgroup c = read_groups();
  assert_true(c.memory_limit == 8000);
  assert_true(c.memory_headroom == 6000);
  assert_true(c.processors == 2.5);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_task_runs_once_per_job),
      cmocka_unit_test(test_jobs_find_workers_that_fell_asleep),
      cmocka_unit_test(test_unreasonable_thread_counts_are_refused),
      cmocka_unit_test_setup_teardown(test_without_groups_there_is_no_limit, scratch_setup, scratch_teardown),
      cmocka_unit_test_setup_teardown(test_version_2_takes_the_tightest_of_all_levels, scratch_setup, scratch_teardown),
      cmocka_unit_test_setup_teardown(test_version_2_in_a_container_reads_the_root_of_the_mount, scratch_setup,
                                      scratch_teardown),
      cmocka_unit_test_setup_teardown(test_version_1_has_a_folder_per_controller, scratch_setup, scratch_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
