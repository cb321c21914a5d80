/* Tests the live state of processes: its contents and its cost; that it disappears with its process, and that readers
 * do not trust the board. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/text.h"
#include "memory/live.h"

#define MAGIC UINT64_C(0x3145564C4D495242)
#define PATIENCE_SECONDS 60

static char folder[256];
static const brim_world alone = {0};

/* ---- calls of the core that are counted ---- */

static __thread long allocations;
static atomic_long writes;
static atomic_bool writes_fail;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *block, size_t bytes);
ssize_t __real_pwritev(int fd, const struct iovec *part, int parts, off_t at);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);
ssize_t __wrap_pwritev(int fd, const struct iovec *part, int parts, off_t at);

void *__wrap_malloc(size_t bytes)
{
  allocations++;
  return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
  allocations++;
  return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *block, size_t bytes)
{
  allocations++;
  return __real_realloc(block, bytes);
}

ssize_t __wrap_pwritev(int fd, const struct iovec *part, int parts, off_t at)
{
  writes++;
  return writes_fail ? 0 : __real_pwritev(fd, part, parts, at);
}

/* ---- helpers ---- */

static int set_up(void **state)
{
  snprintf(folder, sizeof folder, "%s/tests/live-%d", BRIM_BUILD_DIR, (int)getpid());
  brim_shared_folder_set(folder);
  return 0;
}

static int tear_down(void **state)
{
  char command[300];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  return system(command);
}

static brim_live_entry seen[BRIM_BOARD_SLOTS];

static size_t look(void)
{
  size_t count = 0;
  if (brim_live_list(seen, &count) != BRIM_OK) fail_msg("%s", brim_error_text());
  return count;
}

/* Waits until the only slot has this step. */
static const brim_live_slot *look_for_step(int64_t step)
{
  const double end = brim_now() + PATIENCE_SECONDS;
  while (look() != 1 || seen[0].trust != BRIM_LIVE_GOOD || seen[0].of.step != step) {
    if (brim_now() > end) fail_msg("step %lld does not appear", (long long)step);
    nanosleep(&(struct timespec){0, 5000000}, NULL);
  }
  return &seen[0].of;
}

static void begin(enum brim_live_mode mode)
{
  brim_live_command("train");
  brim_live_begin(mode, &alone);
}

static void go_to(int64_t step)
{
  brim_live_progress(&(brim_live_step){.step = step,
                                       .steps = 100,
                                       .epoch = 1,
                                       .epochs = 2,
                                       .rate = 250,
                                       .left_seconds = INFINITY,
                                       .loss = 0.5,
                                       .accuracy = 0.75,
                                       .in_tokens = true});
}

/* Forks a process that ends with the test, even if the test fails. */
static pid_t fork_child(void)
{
  const pid_t child = fork();
  if (child == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
  return child;
}

/* Starts a process that publishes a slot and waits until it is killed. */
static pid_t start_other(void)
{
  int pipes[2];
  char said;
  assert_int_equal(pipe(pipes), 0);
  const pid_t child = fork_child();
  if (child == 0) {
    begin(BRIM_LIVE_BASIC);
    if (write(pipes[1], "x", 1) == 1) pause();
    _exit(0);
  }
  assert_int_equal(read(pipes[0], &said, 1), 1);
  close(pipes[0]);
  close(pipes[1]);
  return child;
}

/* ---- contents ---- */

static void a_process_is_seen_from_planning_to_its_end(void **state)
{
  const uint64_t classes[] = {1, 2, 3, 4, 5, 6, 7};
  begin(BRIM_LIVE_BASIC);
  assert_int_equal(look(), 1);
  const brim_live_slot *s = &seen[0].of;
  assert_true(seen[0].trust == BRIM_LIVE_GOOD && seen[0].is_here && seen[0].is_mine);
  assert_int_equal(s->pid, getpid());
  assert_int_equal(s->uid, geteuid());
  assert_int_equal(s->state, BRIM_LIVE_PLANNING);
  assert_true(s->device == -1 && s->rank == 0 && s->ranks == 1 && isnan(s->rate) && isnan(s->loss));
  assert_string_equal(s->command, "train");

  brim_live_wait(3, 4096);
  go_to(1);
  s = look_for_step(1);
  assert_true(s->state == BRIM_LIVE_WAITING && s->place == 3 && s->peak_bytes == 4096);
  brim_live_wait(0, 0);
  assert_int_equal(brim_live_now(BRIM_LIVE_TRAINING), BRIM_LIVE_PLANNING);
  brim_live_place(&(brim_live_placed){.backend = "cuda",
                                      .device = 2,
                                      .key = 77,
                                      .peak_bytes = 28,
                                      .taken_bytes = 9,
                                      .class_bytes = classes,
                                      .classes = 7,
                                      .queue_seconds = 1.5});
  go_to(2);
  s = look_for_step(2);
  assert_true(s->state == BRIM_LIVE_TRAINING && s->place == 0 && s->device == 2 && s->key == 77);
  assert_true(s->peak_bytes == 28 && s->taken_bytes == 9 && s->class_bytes[6] == 7 && s->class_bytes[7] == 0);
  assert_string_equal(s->backend, "cuda");
  assert_true(s->steps == 100 && s->epoch == 1 && s->epochs == 2 && s->rate == 250 && isnan(s->left_seconds));
  assert_int_equal(s->flags, BRIM_LIVE_TOKENS);
  assert_true(s->started <= s->since && s->since <= s->updated && s->queue_seconds == 1.5);
  brim_live_end();
  assert_int_equal(look(), 0);
}

static bool contains(const void *data, size_t bytes, const char *text)
{
  return memmem(data, bytes, text, strlen(text)) != NULL;
}

static void run_and_model_and_loss_are_published_only_if_asked_for(void **state)
{
  for (int all = 0; all < 2; all++) {
    begin(all ? BRIM_LIVE_ALL : BRIM_LIVE_BASIC);
    brim_live_run(folder, 0, "vit");
    go_to(1);
    const brim_live_slot *s = look_for_step(1);
    const char *name = strrchr(folder, '/') + 1;
    assert_int_equal(contains(s, sizeof *s, name), all);
    assert_int_equal(contains(s, sizeof *s, "vit"), all);
    assert_int_equal(s->loss == 0.5 && s->accuracy == 0.75, all);
    assert_int_equal((s->flags & BRIM_LIVE_DETAILS) != 0, all);
    brim_live_end();
  }
}

static void nothing_is_published_without_a_command_or_when_it_is_off(void **state)
{
  begin(BRIM_LIVE_OFF);
  assert_int_equal(brim_live_now(BRIM_LIVE_TRAINING), BRIM_LIVE_TRAINING);
  brim_live_command("");
  brim_live_begin(BRIM_LIVE_BASIC, &alone);
  go_to(1);
  assert_int_equal(look(), 0);
  brim_live_end();
}

/* The kernel shows the lock's file to the same user only. */
static void the_folder_of_an_own_run_is_found_through_the_kernel(void **state)
{
  char path[300], found[PATH_MAX], real[PATH_MAX];
  snprintf(path, sizeof path, "%s/.lock", folder);
  begin(BRIM_LIVE_BASIC);
  FILE *lock = fopen(path, "w");
  assert_non_null(lock);
  brim_live_run(folder, fileno(lock), "vit");
  go_to(1);
  look_for_step(1);
  assert_true(brim_live_folder(&seen[0], found, sizeof found));
  assert_non_null(realpath(folder, real));
  assert_string_equal(found, real);
  assert_false(brim_live_folder(&seen[0], found, strlen(real))); /* one byte too few for the string's end */
  seen[0].is_mine = false;
  assert_false(brim_live_folder(&seen[0], found, sizeof found));
  brim_live_end();
  fclose(lock);
}

static void a_killed_process_is_gone_at_the_next_look(void **state)
{
  for (int round = 0; round < 20; round++) {
    const pid_t child = start_other();
    assert_int_equal(look(), 1);
    assert_true(seen[0].trust == BRIM_LIVE_GOOD && seen[0].is_mine && seen[0].of.pid == child);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(look(), 0);
  }
}

/* ---- cost ---- */

static void steps_allocate_nothing_and_write_twice_a_second_at_most(void **state)
{
  begin(BRIM_LIVE_ALL);
  const double start = brim_now();
  const long written = writes, before = allocations;
  int64_t step = 0;
  while (brim_now() < start + 1.3) {
    brim_live_now(step % 2 ? BRIM_LIVE_TRAINING : BRIM_LIVE_CHECKPOINT);
    go_to(++step);
  }
  assert_int_equal(allocations, before);
  const long made = writes - written; /* read before the time, because the thread continues to write */
  assert_true((double)made <= BRIM_LIVE_WRITES_PER_SECOND * (brim_now() - start) + 1);
  look_for_step(step); /* the last step is written too */
  const long last = writes;
  nanosleep(&(struct timespec){1, 0}, NULL);
  assert_int_equal(writes, last); /* without a change there is no write */
  brim_live_end();
}

static void a_failing_write_ends_the_publication_and_not_the_run(void **state)
{
  begin(BRIM_LIVE_BASIC);
  writes_fail = true;
  const long before = writes;
  const double end = brim_now() + PATIENCE_SECONDS;
  for (int64_t step = 1; writes == before && brim_now() < end; step++) go_to(step);
  for (int64_t step = 1; step < 1000; step++) go_to(step);
  assert_int_equal(writes, before + 1);
  brim_live_end();
  writes_fail = false;
  assert_int_equal(look(), 0);
}

/* ---- boards that others changed ---- */

static void a_slot_is_written_again_after_its_file_was_removed_or_cut(void **state)
{
  char path[300];
  snprintf(path, sizeof path, "%s/runs", folder);
  begin(BRIM_LIVE_BASIC);
  go_to(1);
  look_for_step(1);
  assert_int_equal(unlink(path), 0);
  go_to(2);
  look_for_step(2);
  assert_int_equal(truncate(path, 100), 0);
  go_to(3);
  look_for_step(3);
  brim_live_end();
}

static void a_full_board_leaves_the_process_unseen(void **state)
{
  brim_board board;
  const brim_live_slot none = {0};
  assert_int_equal(brim_board_open(&board, "runs", MAGIC, sizeof none, 1), BRIM_OK);
  assert_int_equal(brim_board_lock(&board), BRIM_OK);
  for (size_t i = 0; i < BRIM_BOARD_SLOTS; i++) assert_int_equal(brim_board_write(&board, i, &none), BRIM_OK);
  brim_board_unlock(&board);
  const pid_t child = start_other(); /* the child warns and continues */
  assert_int_equal(look(), BRIM_BOARD_SLOTS);
  for (size_t i = 0; i < BRIM_BOARD_SLOTS; i++) assert_int_equal(seen[i].trust, BRIM_LIVE_DAMAGED);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  brim_board_close(&board);
  assert_int_equal(look(), 0);
}

/* Publishes a forged slot, as any program could. */
static brim_live_entry entry_for(const brim_live_slot *slot)
{
  brim_board board;
  assert_int_equal(brim_board_open(&board, "runs", MAGIC, sizeof *slot, 1), BRIM_OK);
  assert_int_equal(brim_board_lock(&board), BRIM_OK);
  assert_int_equal(brim_board_write(&board, 0, slot), BRIM_OK);
  brim_board_unlock(&board);
  assert_int_equal(look(), 1);
  brim_board_close(&board);
  return seen[0];
}

static brim_live_slot take_own(void)
{
  begin(BRIM_LIVE_ALL);
  brim_live_run(folder, 0, "vit");
  go_to(1);
  const brim_live_slot s = *look_for_step(1);
  brim_live_end();
  return s;
}

static void slots_that_brim_did_not_write_are_named_and_not_trusted(void **state)
{
  brim_live_slot good = take_own();
  char text[600];
  good.board_fd = 0;
  brim_live_seal(&good);
  brim_live_slot s = good;
  brim_live_entry e = entry_for(&s);
  assert_true(e.trust == BRIM_LIVE_GOOD && e.is_here);
  assert_false(e.is_mine); /* the kernel says that descriptor board_fd does not own the slot */
  assert_string_equal(brim_live_trouble(&e, text, sizeof text), "");

  s.layout = BRIM_LIVE_LAYOUT + 1;
  e = entry_for(&s);
  assert_int_equal(e.trust, BRIM_LIVE_OTHER_LAYOUT);
  assert_non_null(strstr(brim_live_trouble(&e, text, sizeof text), "of another version of brim (layout 2, not 1)"));

  s = good;
  s.step++;
  e = entry_for(&s);
  assert_int_equal(e.trust, BRIM_LIVE_DAMAGED);
  assert_non_null(strstr(brim_live_trouble(&e, text, sizeof text), "slot 0 of '"));

  s = good;
  s.start_ticks++; /* another process had this pid */
  brim_live_seal(&s);
  e = entry_for(&s);
  assert_int_equal(e.trust, BRIM_LIVE_FORGED);
  assert_false(e.is_here);
  assert_non_null(strstr(brim_live_trouble(&e, text, sizeof text), "names process "));

  s = good;
  s.pid_space++; /* a process in another container cannot be checked */
  brim_live_seal(&s);
  e = entry_for(&s);
  assert_true(e.trust == BRIM_LIVE_GOOD && !e.is_here && !e.is_mine);
}

/* Readers check every field, even if the slot's checksum is right. */
static void fields_out_of_range_are_damage(void **state)
{
  const brim_live_slot good = take_own();
  brim_live_slot bad[32];
  size_t n = 0;
#define BAD(member, value)                                                                                             \
  do {                                                                                                                 \
    bad[n] = good;                                                                                                     \
    bad[n++].member = (value);                                                                                         \
  } while (0)
  BAD(pid, 0);
  BAD(pid, INT64_MAX);
  BAD(rank, -1);
  BAD(rank, 1);
  BAD(ranks, 0);
  BAD(ranks, INT32_MAX);
  BAD(state, BRIM_LIVE_STATE_COUNT);
  BAD(device, -2);
  BAD(folder_fd, -2);
  BAD(board_fd, -1);
  BAD(place, UINT32_MAX);
  BAD(flags, 0x80000000);
  BAD(peak_bytes, UINT64_MAX);
  BAD(taken_bytes, UINT64_MAX);
  BAD(class_bytes[7], UINT64_MAX);
  BAD(started, -1);
  BAD(since, NAN);
  BAD(updated, INFINITY);
  BAD(queue_seconds, 1e300);
  BAD(step, -1);
  BAD(steps, INT64_MIN);
  BAD(epoch, -1);
  BAD(epochs, -1);
  BAD(rate, -1);
  BAD(left_seconds, INFINITY);
  BAD(accuracy, 1.5);
  BAD(run[0], '.');
#undef BAD
  bad[n] = good;
  memset(bad[n].model, 'x', sizeof bad[n].model);
  n++;
  bad[n] = good;
  memset(bad[n].backend, 'x', sizeof bad[n].backend);
  n++;
  assert_int_equal(brim_live_judge(&good), BRIM_LIVE_GOOD);
  for (size_t i = 0; i < n; i++) {
    brim_live_seal(&bad[i]);
    if (brim_live_judge(&bad[i]) != BRIM_LIVE_DAMAGED) fail_msg("case %zu is trusted", i);
  }
}

/* Writers do not wait for readers, so a reader may see half of a write. It must never trust such a slot. */
static void a_slot_that_is_being_written_is_never_half_old(void **state)
{
  brim_live_slot s = take_own();
  int pipes[2];
  char said;
  assert_int_equal(pipe(pipes), 0);
  const pid_t child = fork_child();
  if (child == 0) {
    brim_board board;
    if (brim_board_open(&board, "runs", MAGIC, sizeof s, 1) != BRIM_OK || brim_board_lock(&board) != BRIM_OK) _exit(1);
    s.pid_space++;
    s.step = s.steps = s.epochs = 0;
    brim_live_seal(&s);
    (void)brim_board_write(&board, 5, &s);
    brim_board_unlock(&board);
    (void)!write(pipes[1], "x", 1);
    for (int64_t i = 0;; i++) {
      s.step = s.steps = s.epochs = i;
      brim_live_seal(&s);
      if (brim_board_rewrite(&board, 5, &s) != BRIM_OK) _exit(1);
    }
  }
  assert_int_equal(read(pipes[0], &said, 1), 1);
  size_t good = 0;
  for (int i = 0; i < 500; i++) {
    assert_int_equal(look(), 1);
    if (seen[0].trust != BRIM_LIVE_GOOD) continue;
    good++;
    assert_true(seen[0].of.step == seen[0].of.steps && seen[0].of.steps == seen[0].of.epochs);
  }
  assert_true(good > 0);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  close(pipes[0]);
  close(pipes[1]);
}

static void a_shared_folder_that_cannot_be_used_is_named(void **state)
{
  size_t count;
  brim_shared_folder_set("/proc/brim-live");
  assert_int_equal(brim_live_list(seen, &count), BRIM_EIO);
  assert_non_null(strstr(brim_error_text(), "/proc/brim-live"));
  const pid_t child = start_other(); /* the child warns and continues */
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  brim_shared_folder_set(folder);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_process_is_seen_from_planning_to_its_end),
      cmocka_unit_test(run_and_model_and_loss_are_published_only_if_asked_for),
      cmocka_unit_test(nothing_is_published_without_a_command_or_when_it_is_off),
      cmocka_unit_test(the_folder_of_an_own_run_is_found_through_the_kernel),
      cmocka_unit_test(a_killed_process_is_gone_at_the_next_look),
      cmocka_unit_test(steps_allocate_nothing_and_write_twice_a_second_at_most),
      cmocka_unit_test(a_failing_write_ends_the_publication_and_not_the_run),
      cmocka_unit_test(a_slot_is_written_again_after_its_file_was_removed_or_cut),
      cmocka_unit_test(a_full_board_leaves_the_process_unseen),
      cmocka_unit_test(slots_that_brim_did_not_write_are_named_and_not_trusted),
      cmocka_unit_test(fields_out_of_range_are_damage),
      cmocka_unit_test(a_slot_that_is_being_written_is_never_half_old),
      cmocka_unit_test(a_shared_folder_that_cannot_be_used_is_named),
  };
  brim_log_set_level(BRIM_LOG_ERROR);
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
