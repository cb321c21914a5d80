/* The step path allocates no memory: from the end of the first step to the end of the last one, neither brim nor its
 * plugins allocate anything, on any thread, and libraries allocate nothing of 64 KiB or more. And the placed memory
 * equals the planned memory, to the byte.
 *
 * These are whole runs, through brim_run: brim_trainer_step is wrapped (ld --wrap) to start and stop the counting, so
 * that the runner's own work between steps, its records and its progress line, is counted too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/log.h"
#include "builtin/builtin.h"
#include "drive/resize.h"
#include "fault/interpose.h"
#include "scratch.h"
#include "train/run.h"
#include "train/trainer.h"

#define LIBRARY_BYTES_MAX ((size_t)64 * 1024)
#define STEPS 12

brim_status __real_brim_trainer_step(brim_trainer *trainer, bool more);
brim_status __wrap_brim_trainer_step(brim_trainer *trainer, bool more);

static int64_t counted_steps;
static double pause_seconds; /* length of a pause in the run, long enough that brim asks the policies again */

brim_status __wrap_brim_trainer_step(brim_trainer *trainer, bool more)
{
  const brim_status status = __real_brim_trainer_step(trainer, more);
  const int64_t step = brim_trainer_state(trainer)->step;
  if (step == 1) interpose_start();
  if (step == STEPS / 2 && pause_seconds > 0) nanosleep(&(struct timespec){1, (long)(1e9 * (pause_seconds - 1))}, NULL);
  if (step == STEPS) {
    interpose_stop();
    counted_steps = STEPS - 1;
  }
  return status;
}

brim_status __real_brim_resize_ask(brim_resize *resize, bool *changes);
brim_status __wrap_brim_resize_ask(brim_resize *resize, bool *changes);

static int asked; /* times that policies were asked for another plan */

brim_status __wrap_brim_resize_ask(brim_resize *resize, bool *changes)
{
  const double start = brim_now();
  const brim_status status = __real_brim_resize_ask(resize, changes);
  asked++;
  print_message("policies were asked about another plan, in %.0f microseconds\n", 1e6 * (brim_now() - start));
  return status;
}

static brim_config *load_config(const brim_registry *registry, const char *const *override, size_t count)
{
  const char *const search[] = {BRIM_BUILD_DIR "/share/brim/configs"};
  const brim_config_request request = {
      .search = search, .search_count = 1, .overrides = override, .override_count = count, .first_argument = 1};
  brim_config *config = NULL;
  if (brim_config_load(&request, registry, &config) != BRIM_OK) fail_msg("%s", brim_error_text());
  return config;
}

static brim_registry *open_registry(void)
{
  brim_registry *registry = NULL;
  if (brim_registry_open(brim_core_plugins, NULL, 0, &registry) != BRIM_OK) fail_msg("%s", brim_error_text());
  return registry;
}

typedef struct totals {
  size_t brim, library; /* numbers of requests */
  size_t largest;       /* bytes of a library's largest request */
} totals;

/* Adds up the records; prints the callers, so that a failure shows where to look. */
static totals sum_up(const char *what)
{
  totals t = {0};
  assert_int_equal(interpose_count(), interpose_kept());
  for (size_t i = 0; i < interpose_kept(); i++) {
    const memory_request r = interpose_at(i);
    const bool wrong = r.brim || r.bytes >= LIBRARY_BYTES_MAX;
    t.brim += r.brim;
    t.library += !r.brim;
    if (!r.brim && r.bytes > t.largest) t.largest = r.bytes;
    if (wrong) print_error("%s: %s of %zu bytes from %s (%s)\n", what, r.call, r.bytes, r.object, r.symbol);
  }
  return t;
}

static void check_run(const char *model, const char *backend, int workers, int accumulation, const char *const *more,
                      size_t count)
{
  char what[128], dir[SCRATCH_PATH * 2 + 16], words[3][64];
  snprintf(what, sizeof what, "%s-%s-%d-%d", model, backend, workers, accumulation);
  snprintf(dir, sizeof dir, "run.dir=%s", scratch("%s", what));
  snprintf(words[0], sizeof words[0], "training.num_workers=%d", workers);
  snprintf(words[1], sizeof words[1], "training.gradient_accumulation_steps=%d", accumulation);
  const char *override[32] = {
      model, backend, dir, words[0], words[1],
      /* 4 or 2 steps an epoch, with a shorter last micro-batch; no evaluation or checkpoint between steps */
      "dataset=synthetic", "dataset.train_count=100", "dataset.test_count=0", "training.batch_size=32",
      "training.steps=12", "training.checkpoint_every_steps=1000", "observe.log_every_steps=2", "augment.flip=true",
      "augment.crop_padding=2",
      /* meanwhile a thread reads the use of memory, and has nothing to report */
      "memory.check_interval_seconds=0.001", "memory.warn_percent=100", "memory.critical_percent=0"};
  size_t overrides = 0;
  while (override[overrides]) overrides++;
  memcpy(override + overrides, more, count * sizeof *more);
  brim_registry *registry = open_registry();
  brim_config *config = load_config(registry, override, overrides + count);
  counted_steps = 0;
  const brim_run_options options = {.config = config};
  if (brim_run(&options) != BRIM_OK) fail_msg("%s: %s", what, brim_error_text());
  assert_int_equal(counted_steps, STEPS - 1);
  const totals t = sum_up(what);
  print_message("%s: in %d steps brim asked for memory %zu times, libraries %zu times, at most %zu bytes\n", what,
                STEPS - 1, t.brim, t.library, t.largest);
  assert_int_equal(t.brim, 0);
  assert_true(t.largest < LIBRARY_BYTES_MAX);
  brim_config_free(config);
  brim_registry_free(registry);
}

static void check_steps(const char *model, const char *backend, int workers, int accumulation)
{
  check_run(model, backend, workers, accumulation, NULL, 0);
}

/* The policy reads the queue, in which no job waits. */
static void a_policy_called_between_steps_allocates_nothing(void **state)
{
  char claims[SCRATCH_PATH * 2 + 16];
  snprintf(claims, sizeof claims, "claims.dir=%s", scratch("claims"));
  const char *const words[] = {"policy=elastic", "backend.memory_mb=64", claims};
  pause_seconds = 1.1;
  asked = 0;
  check_run("model=mlp", "backend=cpu", 3, 1, words, sizeof words / sizeof words[0]);
  pause_seconds = 0;
  assert_true(asked >= 2); /* brim asks once before the first step, and once after the pause */
}

static void cpu_steps_of_a_cnn_allocate_nothing(void **state)
{
  for (int workers = 0; workers <= 4; workers += 2) check_steps("model=cnn", "backend=cpu", workers, 1);
  check_steps("model=cnn", "backend=cpu", 1, 3);
}

static void cpu_steps_of_an_mlp_allocate_nothing(void **state)
{
  check_steps("model=mlp", "backend=cpu", 0, 1);
  check_steps("model=mlp", "backend=cpu", 4, 2);
}

static void reference_steps_allocate_nothing(void **state)
{
  check_steps("model=mlp", "backend=reference", 1, 2);
}

/* ---- the arena ---- */

/* Replaces a backend's place and unplace: the arena ends at a protected page, so that an access one byte beyond ends
 * the test. */
typedef struct placed {
  void *base;
  uint64_t bytes;
  size_t calls;
} placed;
static placed arena_placed;

static uint64_t pages(uint64_t bytes)
{
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

static brim_status place_before_a_wall(void *self, int device, uint64_t bytes, void **base)
{
  (void)self, (void)device;
  const uint64_t room = pages(bytes);
  char *memory = mmap(NULL, room + pages(1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true((void *)memory != MAP_FAILED);
  assert_int_equal(mprotect(memory + room, pages(1), PROT_NONE), 0);
  *base = memory + (room - bytes) / 64 * 64; /* ends at the protected page, up to alignment */
  arena_placed = (placed){memory, bytes, arena_placed.calls + 1};
  return BRIM_OK;
}

static void unplace_before_a_wall(void *self, void *base, uint64_t bytes)
{
  (void)self, (void)base;
  assert_int_equal(bytes, arena_placed.bytes);
  munmap(arena_placed.base, pages(bytes) + pages(1));
}

static void check_arena(const char *backend, const char *batch)
{
  const char *const override[] = {"model=cnn",
                                  "model.width=6",
                                  "dataset.shape=[2,13,11]",
                                  "dataset=synthetic",
                                  "dataset.train_count=70",
                                  "dataset.test_count=33",
                                  "training.num_workers=0",
                                  "training.eval_batch_size=10",
                                  backend,
                                  batch};
  brim_registry *registry = open_registry();
  brim_config *config = load_config(registry, override, sizeof override / sizeof override[0]);
  brim_drive *drive = NULL;
  brim_trainer *trainer = NULL;
  brim_evaluation evaluation;
  assert_int_equal(brim_drive_open(config, &(brim_setup_options){.read_data = true}, &drive), BRIM_OK);
  assert_int_equal(brim_setup_finish_data(drive->setup), BRIM_OK);
  brim_backend_ops ops = *drive->setup->backend_ops;
  ops.place = place_before_a_wall;
  ops.unplace = unplace_before_a_wall;
  drive->setup->backend_ops = &ops;
  arena_placed = (placed){0};
  assert_int_equal(brim_trainer_open(drive, &trainer), BRIM_OK);
  const uint64_t peak = brim_trainer_plan(trainer)->peak_bytes;
  for (int i = 0; i < 10; i++) assert_int_equal(brim_trainer_step(trainer, false), BRIM_OK);
  assert_int_equal(brim_trainer_evaluate(trainer, BRIM_PART_TEST, NULL, &evaluation), BRIM_OK);
  assert_int_equal(arena_placed.calls, 1);
  assert_int_equal(arena_placed.bytes, peak);
  assert_int_equal(brim_trainer_device_bytes(trainer), peak);
  brim_trainer_close(trainer);
  brim_drive_close(drive);
  brim_config_free(config);
  brim_registry_free(registry);
}

static void the_arena_is_the_planned_peak_to_the_byte(void **state)
{
  const char *const backends[] = {"backend=cpu", "backend=reference"};
  const char *const batches[] = {"training.batch_size=32", "training.batch_size=5", "training.batch_size=1"};
  for (size_t i = 0; i < 2; i++)
    for (size_t k = 0; k < 3; k++) check_arena(backends[i], batches[k]);
}

/* The tests above can fail only if the counting works. */
static void requests_are_seen_and_attributed_to_the_caller(void **state)
{
  interpose_start();
  void *volatile direct = malloc(100);
  brim_arena arena = {0};
  void *volatile through_brim = brim_arena_alloc(&arena, 70000);
  FILE *through_runtime = fopen("/dev/null", "r");
  interpose_stop();
  size_t seen = 0;
  for (size_t i = 0; i < interpose_kept(); i++) seen += interpose_at(i).brim;
  assert_true(seen >= 3);
  assert_int_equal(interpose_at(0).bytes, 100);
  assert_non_null(through_brim);
  free(direct);
  brim_arena_release(&arena);
  fclose(through_runtime);
}

int main(void)
{
  interpose_prepare();
  brim_log_set_level(BRIM_LOG_WARN);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(requests_are_seen_and_attributed_to_the_caller),
      cmocka_unit_test(reference_steps_allocate_nothing),
      cmocka_unit_test(cpu_steps_of_a_cnn_allocate_nothing),
      cmocka_unit_test(cpu_steps_of_an_mlp_allocate_nothing),
      cmocka_unit_test(a_policy_called_between_steps_allocates_nothing),
      cmocka_unit_test(the_arena_is_the_planned_peak_to_the_byte),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
