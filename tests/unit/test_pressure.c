/* Tests the host memory in use, from made-up files of both versions of control groups, and when brim reports it: once,
 * again after it fell and rose, and at growing intervals while it stays high. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/host.h"
#include "memory/pressure.h"
#include "scratch.h"

#define LOOKS_MAX 20000 /* one look takes 1 ms; no machine needs as many */

static void put_machine(int used_percent)
{
  char text[512];
  snprintf(text, sizeof text,
           "MemTotal:       1000000 kB\nMemFree:          1000 kB\nMemAvailable:   %7d kB\nSwapTotal:       200000 kB\n"
           "SwapFree:        150000 kB\n",
           (100 - used_percent) * 10000);
  scratch_put("proc/meminfo", text);
}

static brim_host_use read_use(void)
{
  return brim_host_use_read(scratch("proc"), scratch("fs"));
}

static int fresh(void **state)
{
  scratch_delete(scratch("proc"));
  scratch_delete(scratch("fs"));
  return 0;
}

/* ---- use ---- */

static void without_files_nothing_is_known(void **state)
{
  const brim_host_use u = read_use();
  assert_true(u.ram_percent == 0 && u.ram_total_bytes == 0 && u.swap_percent == 0 && u.cpu_ticks == 0);
}

static void a_machine_without_groups_counts_itself(void **state)
{
  put_machine(87);
  scratch_put("proc/stat", "cpu  100 10 20 300 40 5 6 7 8 9\ncpu0 1 1 1 1\n");
  const brim_host_use u = read_use();
  assert_true(u.ram_percent == 87 && !u.is_grouped);
  assert_true(u.ram_total_bytes == 1000000 * UINT64_C(1024) && u.ram_used_bytes == 870000 * UINT64_C(1024));
  assert_true(u.swap_percent == 25 && u.swap_used_bytes == 50000 * UINT64_C(1024));
  assert_true(u.cpu_ticks == 488 && u.cpu_busy_ticks == 148);
}

static void put_on_bus(const char *slot, const char *vendor, const char *class)
{
  char path[64];
  snprintf(path, sizeof path, "proc/bus/%s/vendor", slot);
  scratch_put(path, vendor);
  snprintf(path, sizeof path, "proc/bus/%s/class", slot);
  scratch_put(path, class);
}

static void a_gpu_is_known_by_its_vendor_and_class(void **state)
{
  assert_false(brim_host_has_nvidia(scratch("proc/bus")));
  put_on_bus("0000:00:02.0", "0x8086\n", "0x030000\n"); /* another vendor's */
  put_on_bus("0000:01:00.1", "0x10de\n", "0x040300\n"); /* a GPU's audio function */
  assert_false(brim_host_has_nvidia(scratch("proc/bus")));
  put_on_bus("0000:41:00.0", "0x10de\n", "0x030200\n");
  assert_true(brim_host_has_nvidia(scratch("proc/bus")));
}

static void of_version_2_the_fullest_level_counts(void **state)
{
  put_machine(50);
  scratch_put("proc/self/cgroup", "0::/a/b\n");
  scratch_put("fs/a/b/memory.max", "1000\n"); /* the smaller limit, but with more room left */
  scratch_put("fs/a/b/memory.current", "600\n");
  scratch_put("fs/a/memory.max", "100000\n");
  scratch_put("fs/a/memory.current", "95000\n");
  scratch_put("fs/a/memory.stat", "anon 1\ninactive_file 3000\n");
  scratch_put("fs/a/memory.swap.max", "1000\n");
  scratch_put("fs/a/memory.swap.current", "300\n");
  scratch_put("fs/a/b/memory.swap.max", "max\n");
  scratch_put("fs/a/b/memory.swap.current", "300\n");
  const brim_host_use u = read_use();
  assert_true(u.is_grouped && u.ram_percent == 92);
  assert_true(u.ram_used_bytes == 92000 && u.ram_total_bytes == 100000);
  assert_true(u.swap_percent == 30 && u.swap_total_bytes == 1000);
}

static void of_version_1_the_group_counts_and_its_swap(void **state)
{
  put_machine(50);
  scratch_put("proc/self/cgroup", "4:memory:/x/y\n3:cpu:/x\n0::/\n");
  scratch_put("fs/memory/memory.limit_in_bytes", "9223372036854771712\n");
  scratch_put("fs/memory/x/y/memory.limit_in_bytes", "8000\n");
  scratch_put("fs/memory/x/y/memory.usage_in_bytes", "7800\n");
  scratch_put("fs/memory/x/y/memory.stat", "inactive_file 1\ntotal_inactive_file 1000\n");
  scratch_put("fs/memory/x/y/memory.memsw.limit_in_bytes", "10000\n");
  scratch_put("fs/memory/x/y/memory.memsw.usage_in_bytes", "9400\n");
  const brim_host_use u = read_use();
  assert_true(u.is_grouped && u.ram_percent == 85 && u.ram_total_bytes == 8000);
  assert_true(u.swap_percent == 80 && u.swap_used_bytes == 1600 && u.swap_total_bytes == 2000);
}

static void the_machine_counts_where_it_is_fuller_than_the_group(void **state)
{
  put_machine(96);
  scratch_put("proc/self/cgroup", "0::/a\n");
  scratch_put("fs/a/memory.max", "1000\n");
  scratch_put("fs/a/memory.current", "900\n");
  const brim_host_use u = read_use();
  assert_true(!u.is_grouped && u.ram_percent == 96);
}

/* ---- judging ---- */

static const brim_pressure_limits usual = {85, 90};

static enum brim_pressure_level judge(const brim_pressure_limits *l, brim_pressure_watch *w, double percent)
{
  bool fell;
  return brim_pressure_judge(l, w, percent, &fell);
}

static void it_warns_once_and_again_after_it_fell(void **state)
{
  brim_pressure_watch w = {0};
  bool fell;
  assert_int_equal(judge(&usual, &w, 84.9), BRIM_PRESSURE_CALM);
  assert_int_equal(judge(&usual, &w, 85), BRIM_PRESSURE_WARNS);
  for (int i = 0; i < 1000; i++) assert_int_equal(judge(&usual, &w, i % 2 ? 84 : 89.9), BRIM_PRESSURE_CALM);
  assert_int_equal(brim_pressure_judge(&usual, &w, 80.75, &fell), BRIM_PRESSURE_CALM);
  assert_false(fell);
  assert_int_equal(judge(&usual, &w, 86), BRIM_PRESSURE_CALM);
  assert_int_equal(brim_pressure_judge(&usual, &w, 80.7, &fell), BRIM_PRESSURE_CALM);
  assert_true(fell);
  assert_int_equal(judge(&usual, &w, 86), BRIM_PRESSURE_WARNS);
}

static void it_acts_once_then_after_gaps_that_double(void **state)
{
  brim_pressure_watch w = {0};
  int64_t acted[8] = {0}, count = 0;
  for (int64_t i = 0; i < 8 * BRIM_PRESSURE_GAP; i++) {
    const enum brim_pressure_level level = judge(&usual, &w, 95);
    if (level != BRIM_PRESSURE_CALM) assert_int_equal(level, BRIM_PRESSURE_ACTS); /* critical includes the warning */
    if (level == BRIM_PRESSURE_ACTS) acted[count++] = i;
  }
  assert_int_equal(count, 4);
  assert_int_equal(acted[0], 0);
  assert_int_equal(acted[1], BRIM_PRESSURE_GAP);
  assert_int_equal(acted[2], 3 * BRIM_PRESSURE_GAP);
  assert_int_equal(acted[3], 7 * BRIM_PRESSURE_GAP);
}

static void it_acts_again_when_it_fell_and_rose(void **state)
{
  brim_pressure_watch w = {0};
  assert_int_equal(judge(&usual, &w, 86), BRIM_PRESSURE_WARNS);
  assert_int_equal(judge(&usual, &w, 91), BRIM_PRESSURE_ACTS);
  assert_int_equal(judge(&usual, &w, 86), BRIM_PRESSURE_CALM); /* too high for a new rise to be reported */
  assert_int_equal(judge(&usual, &w, 91), BRIM_PRESSURE_CALM);
  assert_int_equal(judge(&usual, &w, 50), BRIM_PRESSURE_CALM);
  assert_int_equal(judge(&usual, &w, 91), BRIM_PRESSURE_ACTS);
}

/* With a threshold of 85 %, use counts as low below 80.75 %. */
static void there_is_room_if_the_use_stays_low(void **state)
{
  brim_pressure_reading r = {.host = {.ram_total_bytes = 10000, .ram_used_bytes = 7000}};
  assert_true(brim_pressure_has_room(&usual, &r, 1074, true));
  assert_false(brim_pressure_has_room(&usual, &r, 1075, true));
  assert_true(brim_pressure_has_room(&usual, &r, 1000000, false)); /* the device has no other processes */
  r.device_left_bytes = 2000;
  r.device_others_bytes = 800;
  assert_true(brim_pressure_has_room(&usual, &r, 1009, false));
  assert_false(brim_pressure_has_room(&usual, &r, 1010, false));
  assert_false(brim_pressure_has_room(&usual, &r, 3000, false));
  /* The host's memory is not the device's, but the run must not grow while the host is full. */
  r.host.ram_used_bytes = 8075;
  assert_false(brim_pressure_has_room(&usual, &r, 1, false));
  assert_false(brim_pressure_has_room(&(brim_pressure_limits){0, 0}, &r, 1, false));
}

static void each_limit_can_be_off(void **state)
{
  const brim_pressure_limits warns = {85, 0}, acts = {0, 90}, swapped = {90, 50};
  brim_pressure_watch w = {0};
  assert_int_equal(judge(&warns, &w, 99), BRIM_PRESSURE_WARNS);
  assert_int_equal(judge(&warns, &w, 100), BRIM_PRESSURE_CALM);
  w = (brim_pressure_watch){0};
  assert_int_equal(judge(&acts, &w, 89), BRIM_PRESSURE_CALM);
  assert_int_equal(judge(&acts, &w, 90), BRIM_PRESSURE_ACTS);
  w = (brim_pressure_watch){0};
  assert_int_equal(judge(&swapped, &w, 60), BRIM_PRESSURE_ACTS);
  assert_int_equal(judge(&swapped, &w, 48), BRIM_PRESSURE_CALM);
  assert_int_equal(judge(&swapped, &w, 60), BRIM_PRESSURE_CALM);
  assert_int_equal(judge(&swapped, &w, 47), BRIM_PRESSURE_CALM);
  assert_int_equal(judge(&swapped, &w, 60), BRIM_PRESSURE_ACTS);
}

/* ---- the thread ---- */

static brim_pressure *watch(double warn, double critical)
{
  brim_pressure *p = NULL;
  const brim_pressure_options options = {
      .limits = {warn, critical}, .interval_seconds = 0.001, .proc = scratch("proc"), .mount = scratch("fs")};
  if (brim_pressure_open(&options, &p) != BRIM_OK) fail_msg("%s", brim_error_text());
  return p;
}

static void rest(void)
{
  nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static enum brim_pressure_level wait_for_level(brim_pressure *p, brim_pressure_reading *r)
{
  for (int i = 0; i < LOOKS_MAX && !brim_pressure_is_due(p); i++) rest();
  return brim_pressure_take(p, r);
}

static void without_limits_nothing_is_read(void **state)
{
  brim_pressure_reading r;
  brim_pressure *p = watch(0, 0);
  assert_null(p);
  assert_false(brim_pressure_is_due(p));
  assert_int_equal(brim_pressure_take(p, &r), BRIM_PRESSURE_CALM);
  brim_pressure_aim(p, NULL);
  brim_pressure_close(p);
}

static void pressure_is_taken_once(void **state)
{
  brim_pressure_reading r;
  put_machine(91);
  brim_pressure *p = watch(85, 99);
  assert_int_equal(wait_for_level(p, &r), BRIM_PRESSURE_WARNS);
  assert_true(r.host.ram_percent == 91 && brim_pressure_percent(&r) == 91 && r.device_left_bytes == 0);
  for (int i = 0; i < 20; i++) rest();
  assert_int_equal(brim_pressure_take(p, &r), BRIM_PRESSURE_CALM);
  put_machine(99);
  assert_int_equal(wait_for_level(p, &r), BRIM_PRESSURE_ACTS);
  brim_pressure_close(p);
}

/* Pressure may end during a step. */
static void pressure_that_has_passed_is_withdrawn(void **state)
{
  brim_pressure_reading r;
  put_machine(95);
  brim_pressure *p = watch(85, 90);
  for (int i = 0; i < LOOKS_MAX && !brim_pressure_is_due(p); i++) rest();
  assert_true(brim_pressure_is_due(p));
  put_machine(10);
  for (int i = 0; i < LOOKS_MAX && brim_pressure_is_due(p); i++) rest();
  assert_int_equal(brim_pressure_take(p, &r), BRIM_PRESSURE_CALM);
  put_machine(95);
  assert_int_equal(wait_for_level(p, &r), BRIM_PRESSURE_ACTS);
  brim_pressure_close(p);
}

/* ---- devices ---- */

typedef struct made_device {
  _Atomic uint64_t used, total;
  atomic_int looks;
} made_device;

static brim_status made_usage(void *self, int device, uint64_t *used, uint64_t *total)
{
  made_device *d = self;
  if (device != 3) return BRIM_ENOTSUP;
  *used = atomic_load(&d->used);
  *total = atomic_load(&d->total);
  atomic_fetch_add(&d->looks, 1);
  return BRIM_OK;
}

static void wait_for_looks(made_device *d, int more)
{
  const int until = atomic_load(&d->looks) + more;
  for (int i = 0; i < LOOKS_MAX && atomic_load(&d->looks) < until; i++) rest();
  assert_true(atomic_load(&d->looks) >= until);
}

static void device_pressure_counts_memory_of_other_processes(void **state)
{
  static const brim_backend_ops ops = {.size = sizeof ops, .usage = made_usage};
  static made_device made = {.used = 1000, .total = 1000};
  const brim_pressure_device own = {.ops = &ops, .backend = &made, .device = 3, .own_bytes = 1000};
  brim_pressure_device part = own;
  brim_pressure_reading r;
  put_machine(20);
  brim_pressure *p = watch(85, 90);
  brim_pressure_aim(p, &own);
  wait_for_looks(&made, 3);
  assert_false(brim_pressure_is_due(p)); /* this run's own arena fills the device */
  part.own_bytes = 500;
  atomic_store(&made.used, 960);
  brim_pressure_aim(p, &part);
  wait_for_looks(&made, 3);
  assert_false(brim_pressure_is_due(p)); /* the other processes were there before the plan was placed */
  atomic_store(&made.used, 930);
  brim_pressure_aim(p, &part);
  wait_for_looks(&made, 3);
  atomic_store(&made.used, 940);
  assert_int_equal(wait_for_level(p, &r), BRIM_PRESSURE_WARNS);
  assert_true(r.device_percent == 88 && r.device_others_bytes == 440 && r.device_left_bytes == 500);
  assert_true(r.host.ram_percent == 20 && brim_pressure_percent(&r) == 88);
  atomic_store(&made.used, 980);
  assert_int_equal(wait_for_level(p, &r), BRIM_PRESSURE_ACTS);
  brim_pressure_aim(p, NULL);
  const int looks = atomic_load(&made.looks);
  for (int i = 0; i < 20; i++) rest();
  assert_int_equal(atomic_load(&made.looks), looks);
  brim_pressure_close(p);
}

/* The backend's table ends before `usage`, as in a plugin built against an older SDK. */
static void a_backend_without_usage_is_not_called(void **state)
{
  static const brim_backend_ops ops = {.size = offsetof(brim_backend_ops, usage), .usage = made_usage};
  static made_device made = {.used = 1000, .total = 1000};
  const brim_pressure_device device = {.ops = &ops, .backend = &made, .device = 3, .own_bytes = 1};
  put_machine(20);
  brim_pressure *p = watch(1, 0);
  brim_pressure_reading r;
  brim_pressure_aim(p, &device);
  assert_int_equal(wait_for_level(p, &r), BRIM_PRESSURE_WARNS);
  assert_true(r.device_percent == 0 && atomic_load(&made.looks) == 0);
  brim_pressure_close(p);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(without_files_nothing_is_known, fresh),
      cmocka_unit_test_setup(a_machine_without_groups_counts_itself, fresh),
      cmocka_unit_test_setup(a_gpu_is_known_by_its_vendor_and_class, fresh),
      cmocka_unit_test_setup(of_version_2_the_fullest_level_counts, fresh),
      cmocka_unit_test_setup(of_version_1_the_group_counts_and_its_swap, fresh),
      cmocka_unit_test_setup(the_machine_counts_where_it_is_fuller_than_the_group, fresh),
      cmocka_unit_test(it_warns_once_and_again_after_it_fell),
      cmocka_unit_test(it_acts_once_then_after_gaps_that_double),
      cmocka_unit_test(it_acts_again_when_it_fell_and_rose),
      cmocka_unit_test(there_is_room_if_the_use_stays_low),
      cmocka_unit_test(each_limit_can_be_off),
      cmocka_unit_test_setup(without_limits_nothing_is_read, fresh),
      cmocka_unit_test_setup(pressure_is_taken_once, fresh),
      cmocka_unit_test_setup(pressure_that_has_passed_is_withdrawn, fresh),
      cmocka_unit_test_setup(device_pressure_counts_memory_of_other_processes, fresh),
      cmocka_unit_test_setup(a_backend_without_usage_is_not_called, fresh),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
