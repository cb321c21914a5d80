/* Tests checkpoints: the data reads back, every damaged byte is detected, and mismatches with a model are reported. */
#include "base/log.h"
#include "checkpoint_runs.h"
#include "store/checkpoint_choose.h"

#include <sys/wait.h>

/* ---- writing ---- */

static void a_state_reads_back_to_the_same_bits(void **unused)
{
  (void)unused;
  static const double values[] = {0.1, -0.0, 5e-324, 1.7976931348623157e308, INFINITY, -INFINITY, 1.0 / 3, 100, NAN};
  const char *run = new_run("bits");
  for (size_t i = 0; i < LEN(values); i++) {
    brim_train_state s = state_of(50), back;
    s.best_loss = values[i];
    s.window_correct = -values[i];
    assert_int_equal(brim_checkpoint_write(run, &s, &tensors, 2), BRIM_OK);
    assert_int_equal(brim_checkpoint_read_state(scratch("bits/checkpoints/step-00000050"), &back), BRIM_OK);
    if (isnan(values[i])) {
      assert_true(isnan(back.best_loss) && isnan(back.window_correct));
      s.best_loss = s.window_correct = back.best_loss = back.window_correct = 0;
    }
    assert_memory_equal(&back, &s, sizeof s);
  }
}

static void tensors_read_back_and_the_folder_holds_nothing_else(void **unused)
{
  (void)unused;
  const char *run = new_run("back");
  assert_int_equal(save(run, 50, 2, true), BRIM_OK);
  assert_int_equal(found_step(run), 50);
  assert_string_equal(target_of(run, "last"), "step-00000050");
  assert_string_equal(target_of(run, "best"), "step-00000050");
  char *tree = tree_of(run);
  size_t lines = 0;
  for (const char *c = tree; *c; c++) lines += *c == '\n';
  assert_int_equal(lines, 8); /* run, checkpoints, step, 3 files, 2 links */
  free(tree);
}

static void equal_runs_leave_equal_bytes(void **unused)
{
  (void)unused;
  const char *a = new_run("equal-a"), *b = new_run("equal-b");
  assert_int_equal(save(a, 50, 2, true), BRIM_OK);
  assert_int_equal(save(b, 50, 2, true), BRIM_OK);
  char *tree_a = tree_of(a), *tree_b = tree_of(b);
  assert_string_equal(tree_a, tree_b);
  free(tree_a);
  free(tree_b);
}

static void the_last_ones_and_the_best_are_kept(void **unused)
{
  (void)unused;
  const char *run = new_run("keep");
  for (int64_t step = 10; step <= 60; step += 10) {
    brim_train_state s = state_of(step);
    s.best_step = step >= 20 ? 20 : -1;
    fill_tensors(step);
    assert_int_equal(brim_checkpoint_write(run, &s, &tensors, 2), BRIM_OK);
  }
  static const char *const there[] = {"step-00000020", "step-00000050", "step-00000060"};
  static const char *const gone[] = {"step-00000010", "step-00000030", "step-00000040"};
  for (size_t i = 0; i < LEN(there); i++) assert_true(scratch_exists(scratch("keep/checkpoints/%s", there[i])));
  for (size_t i = 0; i < LEN(gone); i++) assert_false(scratch_exists(scratch("keep/checkpoints/%s", gone[i])));
  assert_string_equal(target_of(run, "last"), "step-00000060");
  assert_string_equal(target_of(run, "best"), "step-00000020");
  assert_int_equal(save(run, 70, 0, true), BRIM_OK); /* the newest checkpoint always stays */
  assert_int_equal(found_step(run), 70);
  assert_false(scratch_exists(scratch("keep/checkpoints/step-00000020")));
}

static void a_folder_in_place_of_a_link_is_only_a_warning(void **unused)
{
  (void)unused;
  const char *run = new_run("blocked");
  assert_int_equal(mkdir(scratch("blocked/checkpoints"), 0777), 0);
  assert_int_equal(mkdir(scratch("blocked/checkpoints/last"), 0777), 0);
  for (int64_t step = 10; step <= 30; step += 10) assert_int_equal(save(run, step, 1, true), BRIM_OK);
  assert_false(scratch_exists(scratch("blocked/checkpoints/step-00000010")));
  assert_true(scratch_exists(scratch("blocked/checkpoints/step-00000030")));
  assert_string_equal(target_of(run, "best"), "step-00000030");
  assert_false(scratch_exists(scratch("blocked/checkpoints/.last.tmp")));
}

/* Another process reads, as `brim eval` does while a run trains. */
static void a_checkpoint_is_not_deleted_while_it_is_read(void **unused)
{
  (void)unused;
  const char *run = new_run("read");
  char path[4096];
  int hold;
  assert_int_equal(save(run, 10, 1, false), BRIM_OK);
  assert_int_equal(brim_checkpoint_choose(run, "last", path, sizeof path, &hold), BRIM_OK);
  assert_true(hold >= 0);
  assert_int_equal(save(run, 20, 1, false), BRIM_OK);
  assert_true(scratch_exists(scratch("read/checkpoints/step-00000010/model.safetensors")));
  close(hold);
  assert_int_equal(save(run, 30, 1, false), BRIM_OK);
  assert_false(scratch_exists(scratch("read/checkpoints/step-00000010")));
  assert_false(scratch_exists(scratch("read/checkpoints/step-00000020")));
}

/* A child process changes links, writes checkpoints and deletes them all the time, while the test reads the last
 * one. */
static void the_last_one_exists_throughout_a_run(void **unused)
{
  (void)unused;
  const char *run = new_run("going");
  char path[4096];
  int hold, status;
  assert_int_equal(save(run, 1, 1, false), BRIM_OK);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    bool saved = true;
    for (int64_t step = 2; step <= 300; step++) saved = saved && save(run, step, 1, false) == BRIM_OK;
    _exit(!saved);
  }
  while (waitpid(child, &status, WNOHANG) == 0) {
    brim_train_state state;
    assert_int_equal(brim_checkpoint_choose(run, "last", path, sizeof path, &hold), BRIM_OK);
    assert_int_equal(brim_checkpoint_read_state(path, &state), BRIM_OK);
    close(hold);
  }
  assert_int_equal(status, 0);
}

/* ---- finding and damage ---- */

static void a_run_without_checkpoints_has_none(void **unused)
{
  (void)unused;
  const char *run = new_run("none");
  assert_int_equal(found_step(run), -1);
  assert_int_equal(mkdir(scratch("none/checkpoints"), 0777), 0);
  scratch_write(scratch("none/checkpoints/step-x"), "", 0);
  scratch_write(scratch("none/checkpoints/step-5"), "", 0);
  assert_int_equal(found_step(run), -1);
}

static void left_overs_of_dead_attempts_are_removed(void **unused)
{
  (void)unused;
  static const char *const folders[] = {".step-00000100.tmp", ".step-00000010.del", ".step-00000050.old"};
  const char *run = new_run("left");
  assert_int_equal(save(run, 50, 2, false), BRIM_OK);
  char *clean = tree_of(run);
  for (size_t i = 0; i < LEN(folders); i++) {
    assert_int_equal(mkdir(scratch("left/checkpoints/%s", folders[i]), 0777), 0);
    scratch_write(scratch("left/checkpoints/%s/model.safetensors", folders[i]), "x", 1);
  }
  assert_int_equal(symlink("step-00000007", scratch("left/checkpoints/.last.tmp")), 0);
  assert_int_equal(found_step(run), 50);
  char *tree = tree_of(run);
  assert_string_equal(tree, clean);
  free(tree);
  free(clean);
}

static void left_overs_do_not_stop_the_next_checkpoint(void **unused)
{
  (void)unused;
  const char *run = new_run("again");
  assert_int_equal(save(run, 50, 2, false), BRIM_OK);
  assert_int_equal(mkdir(scratch("again/checkpoints/.step-00000100.tmp"), 0777), 0);
  scratch_write(scratch("again/checkpoints/.step-00000100.tmp/other"), "x", 1);
  assert_int_equal(symlink("step-00000007", scratch("again/checkpoints/.last.tmp")), 0);
  assert_int_equal(save(run, 100, 2, false), BRIM_OK);
  assert_int_equal(found_step(run), 100);
  assert_false(scratch_exists(scratch("again/checkpoints/step-00000100/other")));
}

static void any_changed_byte_is_noticed_and_an_older_checkpoint_taken(void **unused)
{
  (void)unused;
  static const char *const parts[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
  const char *run = new_run("damage");
  assert_int_equal(save(run, 50, 2, false), BRIM_OK);
  assert_int_equal(save(run, 100, 2, false), BRIM_OK);
  for (size_t p = 0; p < LEN(parts); p++) {
    size_t size;
    const char *name = scratch("damage/checkpoints/step-00000100/%s", parts[p]);
    char *bytes = scratch_read(name, &size);
    for (size_t i = 0; i < size; i += p < 2 ? 7 : 1) {
      char path[SCRATCH_PATH];
      bool found;
      brim_train_state s, intact = state_of(100);
      bytes[i] ^= 0x11;
      name = scratch("damage/checkpoints/step-00000100/%s", parts[p]);
      scratch_write(name, bytes, size);
      assert_int_equal(brim_checkpoint_find(run, path, sizeof path, &found), BRIM_OK);
      assert_true(found);
      const bool old = strstr(path, "step-00000050") != NULL;
      const char *damaged = scratch("damage/checkpoints/step-00000100");
      if (brim_checkpoint_read(damaged, &tensors) == BRIM_OK) {
        /* The read may succeed only if the change has no effect, because it replaced white space of state.json by other
         * white space. */
        assert_int_equal(p, 2);
        assert_int_equal(brim_checkpoint_read_state(damaged, &s), BRIM_OK);
        s.best_loss = intact.best_loss = 0;
        assert_memory_equal(&s, &intact, sizeof s);
        assert_false(old);
      } else {
        assert_true(old);
        assert_non_null(strstr(brim_error_text(), parts[p]));
      }
      bytes[i] ^= 0x11;
    }
    scratch_write(name, bytes, size);
    free(bytes);
  }
  assert_int_equal(found_step(run), 100);
}

static void a_cut_or_missing_file_is_damage(void **unused)
{
  (void)unused;
  static const char *const parts[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
  for (size_t p = 0; p < LEN(parts); p++) {
    const char *run = new_run("cut");
    assert_int_equal(save(run, 50, 2, false), BRIM_OK);
    assert_int_equal(save(run, 100, 2, false), BRIM_OK);
    const char *name = scratch("cut/checkpoints/step-00000100/%s", parts[p]);
    assert_int_equal(truncate(name, 20), 0);
    assert_int_equal(found_step(run), 50);
    assert_int_equal(brim_checkpoint_read(scratch("cut/checkpoints/step-00000100"), &tensors), BRIM_ELOAD);
    assert_non_null(strstr(brim_error_text(), parts[p]));
    assert_non_null(strstr(brim_error_text(), "damaged"));
    assert_int_equal(unlink(scratch("cut/checkpoints/step-00000100/%s", parts[p])), 0);
    assert_int_equal(found_step(run), 50);
  }
}

static void if_all_are_damaged_the_run_does_not_start_over(void **unused)
{
  (void)unused;
  char path[SCRATCH_PATH];
  bool found = true;
  const char *run = new_run("all");
  assert_int_equal(save(run, 50, 2, true), BRIM_OK);
  assert_int_equal(truncate(scratch("all/checkpoints/step-00000050/model.safetensors"), 20), 0);
  assert_int_equal(brim_checkpoint_find(run, path, sizeof path, &found), BRIM_ELOAD);
  assert_false(found);
  assert_non_null(strstr(brim_error_text(), "all 1 checkpoints"));
}

static void a_damaged_newer_one_does_not_count_among_those_kept(void **unused)
{
  (void)unused;
  const char *run = new_run("newer");
  assert_int_equal(save(run, 50, 2, false), BRIM_OK);
  assert_int_equal(save(run, 100, 2, true), BRIM_OK);
  assert_int_equal(truncate(scratch("newer/checkpoints/step-00000100/state.json"), 20), 0);
  assert_int_equal(found_step(run), 50);
  assert_int_equal(save(run, 60, 1, false), BRIM_OK);
  assert_int_equal(found_step(run), 60);
  assert_int_equal(save(run, 100, 1, true), BRIM_OK);
  assert_int_equal(found_step(run), 100);
}

static void a_state_of_another_version_is_refused(void **unused)
{
  (void)unused;
  const char *run = new_run("version");
  brim_train_state s;
  assert_int_equal(save(run, 50, 2, false), BRIM_OK);
  const char *name = scratch("version/checkpoints/step-00000050/state.json");
  char *text = scratch_read(name, NULL), *version = strstr(text, "\"version\": 3");
  assert_non_null(version);
  version[strlen("\"version\": ")] = '1';
  scratch_write(name, text, strlen(text));
  assert_int_equal(brim_checkpoint_read_state(scratch("version/checkpoints/step-00000050"), &s), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "has version 1, but this brim reads versions 2 and 3"));
  free(text);
}

/* Writes a state.json whose text was changed, with a matching checksum. */
static void write_state(const char *name, char *text)
{
  static const char end[] = ",\n  \"checksum\": ";
  char whole[8192], *sum = strstr(text, end);
  assert_non_null(sum);
  memcpy(sum, "\n}", sizeof "\n}");
  snprintf(whole, sizeof whole, "%.*s%s\"%016" PRIx64 "\"\n}\n", (int)(sum - text), text, end,
           brim_hash(BRIM_HASH_START, text, strlen(text)));
  scratch_write(name, whole, strlen(whole));
}

/* Checkpoints of version 2 have FNV-1a hashes of their files. */
static void a_checkpoint_of_version_2_is_read_and_checked(void **unused)
{
  (void)unused;
  static const char *const parts[] = {"model.safetensors", "optimizer.safetensors"};
  const char *run = new_run("fnv1a");
  char *bytes[LEN(parts)], hash[17], path[BRIM_PATH_MAX];
  size_t size[LEN(parts)];
  bool found;
  assert_int_equal(save(run, 50, 2, false), BRIM_OK);
  char *text = scratch_read(scratch("fnv1a/checkpoints/step-00000050/state.json"), NULL);
  strstr(text, "\"version\": 3")[strlen("\"version\": ")] = '2';
  for (size_t i = 0; i < LEN(parts); i++) {
    bytes[i] = scratch_read(scratch("fnv1a/checkpoints/step-00000050/%s", parts[i]), &size[i]);
    snprintf(hash, sizeof hash, "%016" PRIx64, brim_hash(BRIM_HASH_START, bytes[i], size[i]));
    memcpy(strstr(strstr(text, parts[i]), "\"hash\": \"") + strlen("\"hash\": \""), hash, 16);
  }
  write_state(scratch("fnv1a/checkpoints/step-00000050/state.json"), text);
  free(text);
  assert_int_equal(found_step(run), 50);
  for (size_t i = 0; i < LEN(parts); i++) {
    bytes[i][size[i] - 1] ^= 1;
    scratch_write(scratch("fnv1a/checkpoints/step-00000050/%s", parts[i]), bytes[i], size[i]);
    assert_int_equal(brim_checkpoint_find(run, path, sizeof path, &found), BRIM_ELOAD);
    bytes[i][size[i] - 1] ^= 1;
    scratch_write(scratch("fnv1a/checkpoints/step-00000050/%s", parts[i]), bytes[i], size[i]);
    free(bytes[i]);
  }
}

/* Older versions had no loss scaling. Their file lacks these keys, and has a matching checksum. */
static void a_state_without_a_loss_scale_reads_as_none(void **unused)
{
  (void)unused;
  static const char key[] = "\"loss_scale\": ", last[] = "\"files\": ";
  const char *run = new_run("older");
  brim_train_state s = state_of(50), back;
  s.loss_scale = 1024;
  s.loss_scale_steps = s.skipped_steps = s.skipped_in_a_row = 3;
  assert_int_equal(brim_checkpoint_write(run, &s, &tensors, 2), BRIM_OK);
  const char *folder = scratch("older/checkpoints/step-00000050"),
             *name = scratch("older/checkpoints/step-00000050/state.json");
  assert_int_equal(brim_checkpoint_read_state(folder, &back), BRIM_OK);
  assert_memory_equal(&back, &s, sizeof s);
  char *text = scratch_read(name, NULL), *from = strstr(text, key), *to = strstr(text, last);
  assert_true(from && to);
  memmove(from, to, strlen(to) + 1);
  write_state(name, text);
  free(text);
  assert_int_equal(brim_checkpoint_read_state(folder, &back), BRIM_OK);
  s.loss_scale = 0;
  s.loss_scale_steps = s.skipped_steps = s.skipped_in_a_row = 0;
  assert_memory_equal(&back, &s, sizeof s);
}

/* ---- reading into a model ---- */

static void all_that_does_not_fit_is_listed_and_nothing_is_written(void **unused)
{
  (void)unused;
  float other[2][3] = {{9}}, extra[4] = {9};
  double untouched[1] = {9};
  const brim_safetensor want[] = {{"bias", BRIM_DTYPE_F64, {1, {1}}, untouched},
                                  {"weight", BRIM_DTYPE_F32, {2, {3, 2}}, other},
                                  {"extra", BRIM_DTYPE_F32, {1, {4}}, extra}};
  const brim_safetensor state[] = {{"weight.v", BRIM_DTYPE_I32, {0, {0}}, extra}};
  const brim_checkpoint_tensors all = {want, state, LEN(want), LEN(state), NULL};
  const char *run = new_run("fit");
  assert_int_equal(save(run, 50, 2, false), BRIM_OK);
  assert_int_equal(brim_checkpoint_read(scratch("fit/checkpoints/step-00000050"), &all), BRIM_ELOAD);
  static const char *const lines[] = {"model.safetensors: 'weight' is F32 [2, 3]; the model needs F32 [3, 2]",
                                      "model.safetensors: 'extra' is missing; the model needs F32 [4]",
                                      "optimizer.safetensors: 'weight.v' is missing; the model needs I32 []",
                                      "optimizer.safetensors: 'weight.m' F32 [2, 3] is not in the model"};
  for (size_t i = 0; i < LEN(lines); i++)
    if (!strstr(brim_error_text(), lines[i])) fail_msg("'%s' is not in: %s", lines[i], brim_error_text());
  assert_null(strstr(brim_error_text(), "'bias'"));
  assert_float_equal(untouched[0], 9, 0);
  assert_float_equal(other[0][0], 9, 0);
}

static void a_long_list_of_differences_is_counted_at_its_end(void **unused)
{
  (void)unused;
  static char name[40][16];
  static float value[1];
  brim_safetensor want[40];
  for (size_t i = 0; i < LEN(want); i++) {
    snprintf(name[i], sizeof name[i], "layer%zu", i);
    want[i] = (brim_safetensor){name[i], BRIM_DTYPE_F32, {1, {1}}, value};
  }
  const brim_checkpoint_tensors all = {want, NULL, LEN(want), 0, NULL};
  const char *run = new_run("long");
  assert_int_equal(save(run, 50, 2, false), BRIM_OK);
  assert_int_equal(brim_checkpoint_read(scratch("long/checkpoints/step-00000050"), &all), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "\nand 18 more")); /* 40 missing and 2 unexpected, 24 shown */
}

static void single_and_double_precision_convert(void **unused)
{
  (void)unused;
  double wide[2][3];
  float narrow[1];
  const brim_safetensor want[] = {{"weight", BRIM_DTYPE_F64, {2, {2, 3}}, wide},
                                  {"bias", BRIM_DTYPE_F32, {1, {1}}, narrow}};
  const brim_checkpoint_tensors all = {want, NULL, LEN(want), 0, NULL};
  const char *run = new_run("convert");
  assert_int_equal(save(run, 50, 2, false), BRIM_OK);
  assert_int_equal(brim_checkpoint_read(scratch("convert/checkpoints/step-00000050"), &all), BRIM_OK);
  for (int i = 0; i < 6; i++) assert_true(((double *)wide)[i] == (double)((float *)weight)[i]);
  assert_true(narrow[0] == (float)(1.0 / 51));
}

static void only_the_model_is_read_without_an_optimizer(void **unused)
{
  (void)unused;
  const brim_checkpoint_tensors all = {model, NULL, LEN(model), 0, NULL};
  const char *run = new_run("model");
  assert_int_equal(save(run, 50, 2, false), BRIM_OK);
  assert_int_equal(unlink(scratch("model/checkpoints/step-00000050/optimizer.safetensors")), 0);
  memset(weight, 0, sizeof weight);
  assert_int_equal(brim_checkpoint_read(scratch("model/checkpoints/step-00000050"), &all), BRIM_OK);
  assert_float_equal(weight[0][0], 50, 0);
}

/* A device whose memory belongs to the test. No copy may be larger than a piece, or leave its tensor. */
typedef struct fake_device {
  char *values;
  uint64_t bytes;
  int copies;
} fake_device;

static void check_piece(fake_device *d, enum brim_checkpoint_part part, size_t i, uint64_t first, uint64_t bytes)
{
  assert_true(part == BRIM_CHECKPOINT_MODEL && i == 1);
  assert_true(bytes > 0 && bytes <= BRIM_CHECKPOINT_PIECE_BYTES && first <= d->bytes && bytes <= d->bytes - first);
  d->copies++;
}

static brim_status read_fake(void *context, enum brim_checkpoint_part part, size_t i, uint64_t first, uint64_t bytes,
                             void *host)
{
  fake_device *d = context;
  check_piece(d, part, i, first, bytes);
  memcpy(host, d->values + first, bytes);
  return BRIM_OK;
}

static brim_status write_fake(void *context, enum brim_checkpoint_part part, size_t i, uint64_t first, uint64_t bytes,
                              const void *host)
{
  fake_device *d = context;
  check_piece(d, part, i, first, bytes);
  memcpy(d->values + first, host, bytes);
  return BRIM_OK;
}

static void values_of_a_device_are_written_and_read_by_pieces(void **unused)
{
  (void)unused;
  enum { COUNT = 2 * BRIM_CHECKPOINT_PIECE_BYTES / sizeof(float) + 3 };
  float *host = malloc(COUNT * sizeof *host);
  double *wide = malloc(COUNT * sizeof *wide);
  assert_true(host && wide);
  for (size_t i = 0; i < COUNT; i++) host[i] = (float)i / 3;
  fake_device device = {(char *)host, COUNT * sizeof *host, 0};
  const brim_checkpoint_device copies = {read_fake, write_fake, &device};
  brim_safetensor two[] = {model[0], {"large", BRIM_DTYPE_F32, {1, {COUNT}}, host}};
  const brim_checkpoint_tensors on_host = {two, optimizer, 2, 1, NULL}, on_device = {two, optimizer, 2, 1, &copies};
  const char *run = new_run("pieces");
  brim_train_state state = state_of(50);
  assert_int_equal(brim_checkpoint_write(run, &state, &on_host, 2), BRIM_OK);
  char *from_host = tree_of(run);
  two[1].data = NULL;
  run = new_run("pieces");
  assert_int_equal(brim_checkpoint_write(run, &state, &on_device, 2), BRIM_OK);
  assert_int_equal(device.copies, 3);
  char *from_device = tree_of(run);
  assert_string_equal(from_device, from_host);
  two[1].dtype = BRIM_DTYPE_F64;
  device = (fake_device){(char *)wide, COUNT * sizeof *wide, 0};
  assert_int_equal(brim_checkpoint_read(scratch("pieces/checkpoints/step-00000050"), &on_device), BRIM_OK);
  assert_int_equal(device.copies, 5);
  for (size_t i = 0; i < COUNT; i++) assert_true(wide[i] == (double)host[i]);
  free(from_host);
  free(from_device);
  free(host);
  free(wide);
}

int main(void)
{
  brim_log_set_level(BRIM_LOG_ERROR); /* hundreds of warnings are expected */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_state_reads_back_to_the_same_bits),
      cmocka_unit_test(tensors_read_back_and_the_folder_holds_nothing_else),
      cmocka_unit_test(equal_runs_leave_equal_bytes),
      cmocka_unit_test(the_last_ones_and_the_best_are_kept),
      cmocka_unit_test(a_folder_in_place_of_a_link_is_only_a_warning),
      cmocka_unit_test(a_checkpoint_is_not_deleted_while_it_is_read),
      cmocka_unit_test(the_last_one_exists_throughout_a_run),
      cmocka_unit_test(a_run_without_checkpoints_has_none),
      cmocka_unit_test(left_overs_of_dead_attempts_are_removed),
      cmocka_unit_test(left_overs_do_not_stop_the_next_checkpoint),
      cmocka_unit_test(any_changed_byte_is_noticed_and_an_older_checkpoint_taken),
      cmocka_unit_test(a_cut_or_missing_file_is_damage),
      cmocka_unit_test(if_all_are_damaged_the_run_does_not_start_over),
      cmocka_unit_test(a_damaged_newer_one_does_not_count_among_those_kept),
      cmocka_unit_test(values_of_a_device_are_written_and_read_by_pieces),
      cmocka_unit_test(a_state_of_another_version_is_refused),
      cmocka_unit_test(a_checkpoint_of_version_2_is_read_and_checked),
      cmocka_unit_test(a_state_without_a_loss_scale_reads_as_none),
      cmocka_unit_test(all_that_does_not_fit_is_listed_and_nothing_is_written),
      cmocka_unit_test(a_long_list_of_differences_is_counted_at_its_end),
      cmocka_unit_test(single_and_double_precision_convert),
      cmocka_unit_test(only_the_model_is_read_without_an_optimizer),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
