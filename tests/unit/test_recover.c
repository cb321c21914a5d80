/* Running out of memory anywhere in a run leaves no trace in its results: the same checkpoints and records as an
 * undisturbed run, whichever call failed, however often, and whatever rung of the ladder it took; any other error ends
 * the run at once.
 *
 * These are whole runs, through brim_run. The calls that can fail are wrapped (ld --wrap). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/arena.h"
#include "base/log.h"
#include "builtin/builtin.h"
#include "exec/exec.h"
#include "scratch.h"
#include "train/run.h"
#include "train/trainer.h"

/* ---- failing calls ---- */

enum point { NOWHERE, LOAD, ACCUMULATE, BACKWARD, UPDATE, EVALUATE, LOADER, SAMPLES, COPY, CHECKPOINT, PLACE };
static const char *const names[] = {"nowhere", "load",    "accumulate", "backward",   "update", "evaluate",
                                    "loader",  "samples", "copy",       "checkpoint", "place"};

static struct {
  enum point point;
  int64_t first, times, calls, failed;
  brim_status status;
  int64_t places, full; /* `places`: arenas placed so far; `full`: the first of `full_times` arenas that do not fit */
  int64_t full_times;
} fault;

static bool hits(enum point point)
{
  if (point == PLACE) {
    const int64_t place = ++fault.places;
    return fault.full > 0 && place >= fault.full && place < fault.full + fault.full_times;
  }
  if (point != fault.point) return false;
  const int64_t call = ++fault.calls;
  if (call < fault.first || call >= fault.first + fault.times) return false;
  fault.failed++;
  return true;
}

static brim_status fail_here(void)
{
  const brim_status status = fault.full > 0 ? BRIM_ENOMEM_DEVICE : fault.status;
  return brim_fail(status, "a call of '%s' was made to fail", names[fault.point]);
}

#define WRAP(T, name, parameters, arguments, point)                                                                    \
  T __real_##name parameters;                                                                                          \
  T __wrap_##name parameters;                                                                                          \
  T __wrap_##name parameters                                                                                           \
  {                                                                                                                    \
    return hits(point) ? fail_here() : __real_##name arguments;                                                        \
  }

WRAP(brim_status, brim_exec_load,
     (brim_exec * exec, const brim_program *program, const void *values, const int32_t *labels),
     (exec, program, values, labels), LOAD)
WRAP(brim_status, brim_loader_open, (const brim_loader_options *options, brim_loader **out), (options, out), LOADER)
WRAP(brim_status, brim_loader_next, (brim_loader * loader, const brim_batch **out), (loader, out), SAMPLES)
WRAP(brim_status, brim_exec_read_part,
     (brim_exec * exec, const brim_program *program, const brim_tensor *tensor, uint64_t first, uint64_t bytes,
      void *host),
     (exec, program, tensor, first, bytes, host), COPY)
/* Values are copied, as from the memory of a GPU. */
void *__wrap_brim_exec_host_values(const brim_exec *exec, const brim_program *program, const brim_tensor *tensor);
void *__wrap_brim_exec_host_values(const brim_exec *exec, const brim_program *program, const brim_tensor *tensor)
{
  (void)exec, (void)program, (void)tensor;
  return NULL;
}
WRAP(brim_status, brim_checkpoint_write,
     (const char *dir, const brim_train_state *state, const brim_checkpoint_tensors *tensors, int64_t keep),
     (dir, state, tensors, keep), CHECKPOINT)
WRAP(brim_status, brim_exec_open, (const brim_plan *plan, int device, brim_exec **out), (plan, device, out), PLACE)

/* Half of the nodes run before the failure. */
static brim_status run_half(brim_exec *exec, const brim_program *program, size_t from, size_t to, const brim_step *step)
{
  for (size_t i = from; i < from + (to - from) / 2; i++) BRIM_TRY(brim_exec_run_node(exec, program, i, step));
  return fail_here();
}

static bool hits_program(const brim_program *program)
{
  static const enum point points[] = {
      [BRIM_PROGRAM_TRAIN] = ACCUMULATE, [BRIM_PROGRAM_EVALUATE] = EVALUATE, [BRIM_PROGRAM_UPDATE] = UPDATE};
  return (size_t)program->kind < sizeof points / sizeof points[0] && hits(points[program->kind]);
}

brim_status __real_brim_exec_run(brim_exec *exec, const brim_program *program, const brim_step *step,
                                 const brim_exec_options *options);
brim_status __wrap_brim_exec_run(brim_exec *exec, const brim_program *program, const brim_step *step,
                                 const brim_exec_options *options);
brim_status __wrap_brim_exec_run(brim_exec *exec, const brim_program *program, const brim_step *step,
                                 const brim_exec_options *options)
{
  const brim_graph *g = program->graph;
  const enum brim_exec_part part = options ? options->part : BRIM_EXEC_WHOLE;
  if (part == BRIM_EXEC_WHOLE && hits_program(program)) return run_half(exec, program, 0, g->node_count, step);
  if (part == BRIM_EXEC_BACKWARD && hits(BACKWARD))
    return run_half(exec, program, g->forward_count, g->node_count, step);
  return __real_brim_exec_run(exec, program, step, options);
}

/* ---- runs ---- */

#define STEPS 8
#define WORDS_MAX 32

typedef struct kind {
  const char *name;
  const char *const *words; /* NULL at the end */
} kind;

/* An epoch has steps of 64 samples and one of 58. Evaluations, checkpoints and records are due at different steps. */
static const char *const common[] = {"dataset=synthetic",           "dataset.train_count=292",
                                     "dataset.test_count=40",       "dataset.validation_fraction=0.15",
                                     "training.batch_size=64",      "training.steps=8",
                                     "training.eval_every_steps=2", "training.checkpoint_every_steps=3",
                                     "observe.log_every_steps=3",   "training.num_workers=1",
                                     "memory.timing=false",         "backend=cpu",
                                     "backend.threads=1",           ("claims.dir=" BRIM_BUILD_DIR "/claims-recover")};
static const char *const cnn[] = {"model=cnn", "model.width=4", "dataset.shape=[1,12,12]", NULL};
static const char *const lightcnn[] = {"model=lightcnn", "dataset.shape=[1,32,32]", "training.ema_decay=0.9", NULL};
static const char *const fp16[] = {"model=cnn",
                                   "model.width=4",
                                   "dataset.shape=[1,12,12]",
                                   "precision=fp16",
                                   "memory.offload=optimizer",
                                   "optimizer=adamw",
                                   NULL};
static const char *const fused[] = {
    "model=cnn", "model.width=4", "dataset.shape=[1,12,12]", "optimizer.update=fused_backward", "optimizer=adamw",
    NULL};

static const kind cnn_kind = {"cnn", cnn};

static brim_config *load_config(const brim_registry *registry, const char *const *words, const char *dir,
                                const char *extra)
{
  const char *override[WORDS_MAX], *const search[] = {BRIM_BUILD_DIR "/share/brim/configs"};
  size_t count = 0;
  for (size_t i = 0; i < sizeof common / sizeof common[0]; i++) override[count++] = common[i];
  for (size_t i = 0; words[i]; i++) override[count++] = words[i];
  override[count++] = dir;
  if (extra) override[count++] = extra;
  const brim_config_request request = {
      .search = search, .search_count = 1, .overrides = override, .override_count = count, .first_argument = 1};
  brim_config *config = NULL;
  if (brim_config_load(&request, registry, &config) != BRIM_OK) fail_msg("%s", brim_error_text());
  return config;
}

static brim_status run_in(const char *dir, const char *const *words, const char *extra, const char *resume)
{
  char text[4200];
  brim_registry *registry = NULL;
  assert_int_equal(brim_registry_open(brim_core_plugins, NULL, 0, &registry), BRIM_OK);
  snprintf(text, sizeof text, "run.dir=%s", dir);
  brim_config *config = load_config(registry, words, text, extra);
  const brim_run_options options = {.config = config, .resume = resume, .quiet = true, .start = brim_now()};
  const brim_status status = brim_run(&options);
  brim_config_free(config);
  brim_registry_free(registry);
  return status;
}

static char *read_file(const char *dir, const char *name, size_t *bytes)
{
  char path[4400];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *file = fopen(path, "rb");
  if (!file) fail_msg("%s is not there", path);
  char *text = brim_xcalloc(1, (size_t)1 << 22);
  *bytes = fread(text, 1, ((size_t)1 << 22) - 1, file);
  fclose(file);
  return text;
}

static void assert_same_file(const char *a, const char *b, const char *name)
{
  size_t n, m;
  char *x = read_file(a, name, &n), *y = read_file(b, name, &m);
  if (n != m || memcmp(x, y, n) != 0) fail_msg("%s differs in %s and %s", name, a, b);
  free(x);
  free(y);
}

/* Compares two runs, except for times. */
static void assert_same_records(const char *a, const char *b)
{
  static const char clock[] = "\"samples_per_second\"";
  size_t n, m;
  char *x = read_file(a, "metrics.jsonl", &n), *y = read_file(b, "metrics.jsonl", &m), *p = x, *q = y;
  while (*p && *q) {
    const char *end = strstr(p, clock), *other = strstr(q, clock);
    assert_non_null(end);
    assert_non_null(other);
    if (end - p != other - q || memcmp(p, q, (size_t)(end - p)) != 0)
      fail_msg("records differ in %s and %s:\n%s%s", a, b, p, q);
    p = strchr(end, '\n') + 1;
    q = strchr(other, '\n') + 1;
  }
  if (*p || *q) fail_msg("%s and %s have not as many records", a, b);
  free(x);
  free(y);
}

static void assert_same_results(const char *a, const char *b, int64_t step)
{
  static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
  for (size_t i = 0; i < 3; i++) {
    char name[128];
    snprintf(name, sizeof name, "checkpoints/step-%08lld/%s", (long long)step, files[i]);
    assert_same_file(a, b, name);
  }
  assert_same_records(a, b);
}

static int64_t retries_of(const char *dir)
{
  char path[4400];
  snprintf(path, sizeof path, "%s/summary.json", dir);
  json_t *summary = json_load_file(path, 0, NULL);
  const json_t *retries = json_object_get(summary, "retries");
  assert_true(json_is_integer(retries));
  const int64_t count = json_integer_value(retries);
  json_decref(summary);
  return count;
}

/* Makes the undisturbed run, once for all tests. */
static const char *undisturbed(const kind *k)
{
  static char dir[4][SCRATCH_PATH];
  static const kind *made[4];
  size_t i = 0;
  while (made[i] && made[i] != k) i++;
  if (made[i]) return dir[i];
  made[i] = k;
  snprintf(dir[i], sizeof dir[i], "%s", scratch("%s-whole", k->name));
  fault.point = NOWHERE;
  if (run_in(dir[i], k->words, NULL, NULL) != BRIM_OK) fail_msg("%s", brim_error_text());
  assert_int_equal(retries_of(dir[i]), 0);
  return dir[i];
}

static void arm(enum point point, int64_t first, int64_t times, brim_status status)
{
  fault.point = point;
  fault.first = first;
  fault.times = times;
  fault.calls = fault.failed = fault.places = fault.full = 0;
  fault.status = status;
}

static void check(const kind *k, enum point point, int64_t first, int64_t times)
{
  char whole[SCRATCH_PATH], dir[SCRATCH_PATH];
  snprintf(whole, sizeof whole, "%s", undisturbed(k));
  snprintf(dir, sizeof dir, "%s", scratch("%s-%s-%d-%d", k->name, names[point], (int)first, (int)times));
  arm(point, first, times, first % 2 ? BRIM_ENOMEM_DEVICE : BRIM_ENOMEM_HOST);
  if (run_in(dir, k->words, NULL, NULL) != BRIM_OK) fail_msg("%s: %s", dir, brim_error_text());
  if (fault.failed != times) fail_msg("%s: %d calls failed", dir, (int)fault.failed);
  assert_int_equal(retries_of(dir), times);
  assert_same_results(whole, dir, STEPS);
}

/* At the last two points the ladder reaches more recompute and smaller micro-batches, if these are allowed. */
static void check_all(const kind *k, const enum point *points, size_t count)
{
  static const int64_t first[] = {1, 2, 7, 2, 4}, times[] = {1, 1, 1, 3, 6};
  for (size_t i = 0; i < count; i++)
    for (size_t n = 0; n < sizeof first / sizeof first[0]; n++) check(k, points[i], first[n], times[n]);
}

static void every_failure_leaves_the_results_of_a_cnn_unchanged(void **state)
{
  static const enum point points[] = {LOAD, ACCUMULATE, UPDATE, SAMPLES};
  check_all(&cnn_kind, points, sizeof points / sizeof points[0]);
  check(&cnn_kind, LOADER, 1, 1);
  check(&cnn_kind, LOADER, 2, 3);
  check(&cnn_kind, LOADER, 4, 1);
  check(&cnn_kind, EVALUATE, 1, 1);
  check(&cnn_kind, EVALUATE, 2, 6);
  check(&cnn_kind, COPY, 3, 1);
  check(&cnn_kind, CHECKPOINT, 1, 1);
  check(&cnn_kind, CHECKPOINT, 2, 4);
}

static void every_failure_leaves_results_with_batch_norm_unchanged(void **state)
{
  static const kind k = {"lightcnn", lightcnn};
  check(&k, ACCUMULATE, 3, 6);
  check(&k, UPDATE, 2, 6);
}

static void every_failure_leaves_fp16_results_with_offload_unchanged(void **state)
{
  static const kind k = {"fp16", fp16};
  static const enum point points[] = {ACCUMULATE, UPDATE};
  check_all(&k, points, sizeof points / sizeof points[0]);
}

static void every_failure_leaves_results_of_backward_updates_unchanged(void **state)
{
  static const kind k = {"fused", fused};
  check(&k, LOAD, 2, 4);
  check(&k, BACKWARD, 1, 1);
  check(&k, BACKWARD, 7, 3);
}

/* ---- placements ---- */

/* The values wait in host memory while one plan after another gets no device memory. */
static void a_new_plan_that_gets_no_memory_is_followed_by_the_next(void **state)
{
  for (int64_t times = 1; times <= 3; times++) {
    char whole[SCRATCH_PATH], dir[SCRATCH_PATH];
    snprintf(whole, sizeof whole, "%s", undisturbed(&cnn_kind));
    snprintf(dir, sizeof dir, "%s", scratch("full-%d", (int)times));
    arm(ACCUMULATE, 3, 4, BRIM_ENOMEM_DEVICE); /* three cleanups fail, and then another plan fits */
    fault.full = 2;
    fault.full_times = times;
    if (run_in(dir, cnn, NULL, NULL) != BRIM_OK) fail_msg("%s: %s", dir, brim_error_text());
    assert_int_equal(fault.places, times + 2);
    assert_same_results(whole, dir, STEPS);
  }
}

static void a_run_without_memory_for_any_plan_ends_with_a_checkpoint(void **state)
{
  char whole[SCRATCH_PATH], dir[SCRATCH_PATH];
  snprintf(whole, sizeof whole, "%s", undisturbed(&cnn_kind));
  snprintf(dir, sizeof dir, "%s", scratch("full-for-ever"));
  arm(ACCUMULATE, 3, 4, BRIM_ENOMEM_DEVICE);
  fault.full = 2;
  fault.full_times = INT32_MAX;
  assert_int_equal(run_in(dir, cnn, NULL, NULL), BRIM_ENOMEM_DEVICE);
  if (!strstr(brim_error_text(), "there is a checkpoint of step 2")) fail_msg("%s", brim_error_text());
  arm(NOWHERE, 0, 0, BRIM_OK);
  if (run_in(dir, cnn, NULL, dir) != BRIM_OK) fail_msg("%s", brim_error_text());
  assert_same_results(whole, dir, STEPS);
}

/* ---- the end ---- */

static void a_run_that_cannot_recover_ends_with_a_checkpoint_of_the_last_commit(void **state)
{
  static const brim_status statuses[] = {BRIM_ENOMEM_DEVICE, BRIM_ENOMEM_HOST};
  char whole[SCRATCH_PATH], dir[SCRATCH_PATH], step[128];
  snprintf(whole, sizeof whole, "%s", undisturbed(&cnn_kind));
  for (size_t i = 0; i < 2; i++) {
    size_t bytes;
    snprintf(dir, sizeof dir, "%s", scratch("hopeless-%d", (int)i));
    arm(ACCUMULATE, 5, INT32_MAX, statuses[i]);
    assert_int_equal(run_in(dir, cnn, "max_retries=1", NULL), statuses[i]);
    if (!strstr(brim_error_text(), "a call of 'accumulate' was made to fail")) fail_msg("%s", brim_error_text());
    if (!strstr(brim_error_text(), "there is a checkpoint of step 4")) fail_msg("%s", brim_error_text());
    snprintf(step, sizeof step, "checkpoints/step-%08d/state.json", 4);
    free(read_file(dir, step, &bytes));
    arm(NOWHERE, 0, 0, BRIM_OK);
    if (run_in(dir, cnn, NULL, dir) != BRIM_OK) fail_msg("%s", brim_error_text());
    assert_same_results(whole, dir, STEPS);
  }
}

static void another_error_ends_the_run_at_once(void **state)
{
  static const enum point points[] = {LOAD, ACCUMULATE, UPDATE, EVALUATE, LOADER, SAMPLES, COPY, CHECKPOINT};
  for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
    char dir[SCRATCH_PATH];
    snprintf(dir, sizeof dir, "%s", scratch("other-%s", names[points[i]]));
    arm(points[i], 1, INT32_MAX, i % 2 ? BRIM_EDEVICE : BRIM_EIO);
    assert_int_equal(run_in(dir, cnn, NULL, NULL), fault.status);
    assert_int_equal(fault.failed, 1);
    assert_int_equal(retries_of(dir), 0);
    if (!strstr(brim_error_text(), "was made to fail")) fail_msg("%s", brim_error_text());
  }
}

int main(void)
{
  brim_log_set_level(BRIM_LOG_ERROR);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_failure_leaves_the_results_of_a_cnn_unchanged),
      cmocka_unit_test(every_failure_leaves_results_with_batch_norm_unchanged),
      cmocka_unit_test(every_failure_leaves_fp16_results_with_offload_unchanged),
      cmocka_unit_test(every_failure_leaves_results_of_backward_updates_unchanged),
      cmocka_unit_test(a_new_plan_that_gets_no_memory_is_followed_by_the_next),
      cmocka_unit_test(a_run_without_memory_for_any_plan_ends_with_a_checkpoint),
      cmocka_unit_test(a_run_that_cannot_recover_ends_with_a_checkpoint_of_the_last_commit),
      cmocka_unit_test(another_error_ends_the_run_at_once),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
