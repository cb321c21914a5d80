/* Tests checkpoints that several ranks write together: each rank is a thread, and they meet at a barrier. The writing
 * calls are defined here, in place of the C library's, so that they can fail on one rank. */
#include <pthread.h>
#include <sys/syscall.h>

#include "checkpoint_runs.h"

#define RANKS_MAX 4

/* ---- system calls ---- */

static _Thread_local int this_rank = -1;
static struct {
  int rank, at; /* the rank whose call fails, or -1 */
  int calls;    /* number of calls of that rank */
} disk = {-1, 0, 0};

static bool is_to_fail(void)
{
  if (this_rank < 0 || this_rank != disk.rank || disk.calls++ != disk.at) return false;
  errno = ENOSPC;
  return true;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
  if (is_to_fail()) return -1;
  return syscall(SYS_pwrite64, fd, bytes, count > 5 ? 5 : count, offset); /* partial writes must add up */
}

ssize_t write(int fd, const void *bytes, size_t count)
{
  if (fd > STDERR_FILENO && is_to_fail()) return -1;
  return syscall(SYS_write, fd, bytes, count);
}

int ftruncate(int fd, off_t length)
{
  return is_to_fail() ? -1 : (int)syscall(SYS_ftruncate, fd, length);
}

int fsync(int fd)
{
  (void)fd; /* the test does not need the disk itself */
  return is_to_fail() ? -1 : 0;
}

int rename(const char *from, const char *to)
{
  if (strstr(to, "/step-") && is_to_fail()) return -1;
  return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* ---- ranks ---- */

static struct {
  pthread_barrier_t barrier;
  int ranks, meetings;
  brim_status status[RANKS_MAX];
} world;

/* Replaces brim_dist_vote: ranks are threads here, and meet at a barrier. */
static brim_status meet(void *context, brim_status own)
{
  const int rank = *(const int *)context;
  brim_status first = BRIM_OK;
  int failed = -1;
  world.status[rank] = own;
  pthread_barrier_wait(&world.barrier);
  for (int r = world.ranks - 1; r >= 0; r--)
    if (world.status[r] != BRIM_OK) first = world.status[failed = r];
  if (rank == 0) world.meetings++;
  pthread_barrier_wait(&world.barrier);
  if (first == BRIM_OK || own != BRIM_OK) return first;
  return brim_fail(first, "rank %d failed", failed);
}

typedef struct writer {
  const char *run;
  int rank;
  bool sliced;
  brim_status status;
  char error[1024];
} writer;

/* The slices of the state's six elements are unequal, and with four ranks one slice is empty. */
static const uint64_t bounds[RANKS_MAX + 1][RANKS_MAX + 1] = {{0}, {0, 6}, {0, 2, 6}, {0, 1, 5, 6}, {0, 3, 3, 4, 6}};

static void *write_as_rank(void *arg)
{
  writer *w = arg;
  brim_safetensor own = optimizer[0];
  const brim_checkpoint_tensors mine = {model, &own, LEN(model), 1, NULL};
  const brim_checkpoint_ranks ranks = {w->rank, world.ranks, &w->rank, meet};
  brim_train_state s = state_of(100);
  s.best_step = 100;
  this_rank = w->rank;
  if (w->sliced) {
    own.is_slice = true;
    own.first = bounds[world.ranks][w->rank];
    own.count = bounds[world.ranks][w->rank + 1] - own.first;
    own.data = (const float *)moment + own.first;
  }
  w->status = brim_checkpoint_write_together(w->run, &s, &mine, 2, &ranks);
  snprintf(w->error, sizeof w->error, "%s", brim_error_text());
  return NULL;
}

static void write_with(const char *run, int ranks, bool sliced, writer out[RANKS_MAX])
{
  pthread_t thread[RANKS_MAX];
  world.ranks = ranks;
  world.meetings = 0;
  disk.calls = 0;
  fill_tensors(100);
  assert_int_equal(pthread_barrier_init(&world.barrier, NULL, (unsigned)ranks), 0);
  for (int r = 0; r < ranks; r++) {
    out[r] = (writer){.run = run, .rank = r, .sliced = sliced};
    assert_int_equal(pthread_create(&thread[r], NULL, write_as_rank, &out[r]), 0);
  }
  for (int r = 0; r < ranks; r++) assert_int_equal(pthread_join(thread[r], NULL), 0);
  pthread_barrier_destroy(&world.barrier);
}

/* ---- tests ---- */

static void any_number_of_ranks_writes_the_same_bytes(void **unused)
{
  (void)unused;
  const char *alone = new_run("alone");
  assert_int_equal(save(alone, 50, 2, true), BRIM_OK);
  assert_int_equal(save(alone, 100, 2, true), BRIM_OK);
  char *expected = tree_of(alone);
  for (int ranks = 1; ranks <= RANKS_MAX; ranks++)
    for (int sliced = 0; sliced < 2; sliced++) {
      const char *run = new_run("together");
      writer w[RANKS_MAX];
      assert_int_equal(save(run, 50, 2, true), BRIM_OK);
      write_with(run, ranks, sliced, w);
      for (int r = 0; r < ranks; r++)
        if (w[r].status != BRIM_OK) fail_msg("rank %d of %d: %s", r, ranks, w[r].error);
      assert_int_equal(world.meetings, sliced ? 3 : 1);
      char *tree = tree_of(run);
      assert_string_equal(tree, expected);
      free(tree);
    }
  free(expected);
}

static void a_call_that_fails_on_any_rank_removes_the_attempt(void **unused)
{
  (void)unused;
  int refused[RANKS_MAX] = {0};
  for (disk.rank = 0; disk.rank < 3; disk.rank++)
    for (disk.at = 0;; disk.at++) {
      const char *run = new_run("fails");
      const int rank = disk.rank;
      writer w[RANKS_MAX];
      disk.rank = -1;
      assert_int_equal(save(run, 50, 2, true), BRIM_OK);
      disk.rank = rank;
      char *before = tree_of(run);
      write_with(run, 3, true, w);
      const bool hit = disk.calls > disk.at;
      char *after = tree_of(run);
      for (int r = 0; hit && r < 3; r++) {
        assert_int_equal(w[r].status, BRIM_EIO);
        if (!strstr(w[r].error, "the checkpoint of step 100 was not written")) fail_msg("rank %d: %s", r, w[r].error);
        if (!strstr(w[r].error, r == rank ? "No space left" : "failed")) fail_msg("rank %d: %s", r, w[r].error);
      }
      if (hit) assert_string_equal(before, after);
      assert_int_equal(found_step(run), hit ? 50 : 100);
      refused[rank] += hit;
      free(before);
      free(after);
      if (!hit) break;
    }
  disk.rank = -1;
  assert_true(refused[0] > 10 && refused[1] > 4 && refused[2] > 4);
}

/* A rank that does not see the first rank's folder gets an error that says so. */
static void a_rank_without_the_folder_fails_all(void **unused)
{
  (void)unused;
  const char *run = new_run("here");
  writer w[2] = {{.run = run, .rank = 0, .sliced = true}, {.run = new_run("elsewhere"), .rank = 1, .sliced = true}};
  pthread_t thread;
  world.ranks = 2;
  fill_tensors(100);
  assert_int_equal(pthread_barrier_init(&world.barrier, NULL, 2), 0);
  assert_int_equal(pthread_create(&thread, NULL, write_as_rank, &w[1]), 0);
  write_as_rank(&w[0]);
  this_rank = -1;
  assert_int_equal(pthread_join(thread, NULL), 0);
  pthread_barrier_destroy(&world.barrier);
  assert_true(w[0].status == BRIM_EIO && w[1].status == BRIM_EIO);
  assert_non_null(strstr(w[0].error, "rank 1 failed"));
  assert_int_equal(found_step(run), -1);
  assert_false(scratch_exists(scratch("here/checkpoints")));
}

static void a_slice_is_read_from_its_place(void **unused)
{
  (void)unused;
  const char *run = new_run("slices");
  float got[4] = {0};
  assert_int_equal(save(run, 100, 2, true), BRIM_OK);
  brim_safetensor slice = optimizer[0];
  slice.is_slice = true;
  slice.first = 2;
  slice.count = 3;
  slice.data = got;
  const brim_checkpoint_tensors all = {model, &slice, LEN(model), 1, NULL};
  const float *expected = (const float *)moment + 2;
  assert_int_equal(brim_checkpoint_read(scratch("slices/checkpoints/step-00000100"), &all), BRIM_OK);
  assert_memory_equal(got, expected, 3 * sizeof *got);
  assert_true(got[3] == 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_number_of_ranks_writes_the_same_bytes),
      cmocka_unit_test(a_call_that_fails_on_any_rank_removes_the_attempt),
      cmocka_unit_test(a_rank_without_the_folder_fails_all),
      cmocka_unit_test(a_slice_is_read_from_its_place),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
