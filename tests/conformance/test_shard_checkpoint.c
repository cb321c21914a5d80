/* Tests checkpoints of ranks that shard their updates: the bytes equal those of one rank, and any number of ranks can
 * resume from them. */
#include <pthread.h>

#include "builtin/builtin.h"
#include "checkpoint_runs.h"
#include "conformance/shard_job.h"
#include "train/snapshot.h"

/* ---- writing: each rank is a thread, and they meet at a barrier ---- */

static pthread_barrier_t barrier;

static brim_status meet(void *context, brim_status own)
{
  (void)context;
  pthread_barrier_wait(&barrier);
  return own;
}

typedef struct writer {
  const char *run;
  shard_job *job;
  int32_t rank;
  brim_status status;
} writer;

static void *write_as_rank(void *arg)
{
  writer *w = arg;
  const brim_checkpoint_ranks ranks = {w->rank, w->job->how.ranks, NULL, meet};
  const brim_train_state s = state_of(3);
  brim_snapshot snapshot;
  brim_snapshot_list(w->job->exec[w->rank], &snapshot);
  w->status = brim_checkpoint_write_together(w->run, &s, &snapshot.tensors, 1, &ranks);
  brim_snapshot_release(&snapshot);
  return NULL;
}

/* Writes a checkpoint with all ranks, and returns the content of the run's folder. */
static char *write_checkpoint(shard_job *j, const char *run)
{
  pthread_t thread[SHARD_RANKS_MAX];
  writer w[SHARD_RANKS_MAX];
  assert_int_equal(pthread_barrier_init(&barrier, NULL, (unsigned)j->how.ranks), 0);
  for (int32_t r = 0; r < j->how.ranks; r++) {
    w[r] = (writer){run, j, r, BRIM_OK};
    assert_int_equal(pthread_create(&thread[r], NULL, write_as_rank, &w[r]), 0);
  }
  for (int32_t r = 0; r < j->how.ranks; r++) assert_int_equal(pthread_join(thread[r], NULL), 0);
  pthread_barrier_destroy(&barrier);
  for (int32_t r = 0; r < j->how.ranks; r++) assert_int_equal(w[r].status, BRIM_OK);
  return tree_of(run);
}

static void read_checkpoint(shard_job *j, const char *run)
{
  char path[SCRATCH_PATH];
  bool found;
  shard_must(brim_checkpoint_find(run, path, sizeof path, &found));
  assert_true(found);
  for (int32_t r = 0; r < j->how.ranks; r++) {
    brim_snapshot s;
    brim_snapshot_list(j->exec[r], &s);
    shard_must(brim_checkpoint_read(path, &s.tensors));
    brim_snapshot_release(&s);
  }
}

/* ---- tests ---- */

static const struct {
  const brim_plugin *optimizer;
  const char *settings;
  double ema_decay;
  bool offloaded;
} ways[] = {
    {&brim_optimizer_adamw, "{lr: 0.01}"},
    {&brim_optimizer_adamw8bit, "{lr: 0.01}", .ema_decay = 0.9},
    {&brim_optimizer_yogi, "{lr: 0.01}"},
    {&brim_optimizer_sgd, "{lr: 0.01}", .offloaded = true},
};

static shard_how how_of(size_t way, size_t kind, int32_t ranks, enum brim_shard shard)
{
  return (shard_how){.model = &shard_models[kind],
                     .optimizer = ways[way].optimizer,
                     .settings = ways[way].settings,
                     .ema_decay = ways[way].ema_decay,
                     .offloaded = ways[way].offloaded,
                     .ranks = ranks,
                     .shard = shard,
                     .bucket_bytes = (uint64_t)ranks * 7000};
}

static void check_any_ranks_go_on(size_t way, size_t kind)
{
  shard_job first;
  shard_how how = how_of(way, kind, 2, BRIM_SHARD_OPTIMIZER);
  const char *run = new_run("first");
  shard_place(&first, &how);
  for (int i = 0; i < 3; i++) shard_train_step(&first, i);
  char *expected = write_checkpoint(&first, run);
  how = how_of(way, kind, 1, BRIM_SHARD_NONE);
  shard_job alone;
  shard_place(&alone, &how);
  read_checkpoint(&alone, run);
  shard_train_step(&alone, 3);
  for (int32_t ranks = 1; ranks <= SHARD_RANKS_MAX; ranks++)
    for (int shard = BRIM_SHARD_NONE; shard <= BRIM_SHARD_GRADIENTS; shard++) {
      shard_job j;
      if (BENCH_SHARE > 1 && (way + kind + (size_t)ranks + (size_t)shard) % 3 != 0)
        continue; /* sanitizers run fewer cases, with each number of ranks and each kind of shard */
      how = how_of(way, kind, ranks, (enum brim_shard)shard);
      shard_place(&j, &how);
      read_checkpoint(&j, run);
      char *again = write_checkpoint(&j, new_run("again"));
      assert_string_equal(again, expected);
      free(again);
      shard_train_step(&j, 3);
      shard_compare_parameters(&j, &alone, 0);
      shard_compare_states(&j, &alone);
      shard_stop(&j);
      run = scratch("first");
    }
  free(expected);
  shard_stop(&first);
  shard_stop(&alone);
}

static void any_number_of_ranks_resumes_from_a_checkpoint(void **unused)
{
  (void)unused;
  for (size_t way = 0; way < LEN(ways); way++)
    for (size_t kind = 0; kind < SHARD_MODELS; kind++) check_any_ranks_go_on(way, kind);
}

/* When memory runs out, a rank's values wait in a file or in host memory while it plans again. */
static void a_rank_continues_under_another_plan(void **unused)
{
  (void)unused;
  shard_job before, after;
  shard_how how = how_of(1, SHARD_CNN, 3, BRIM_SHARD_GRADIENTS);
  shard_place(&before, &how);
  for (int i = 0; i < 2; i++) shard_train_step(&before, i);
  how.recompute = BRIM_RECOMPUTE_FULL;
  shard_place(&after, &how);
  for (int32_t r = 0; r < 3; r++) {
    brim_snapshot s;
    shard_must(brim_snapshot_copy(before.exec[r], r > 0 ? scratch(".") : NULL, r, &s));
    assert_true(s.is_mapped == (r > 0));
    shard_must(brim_snapshot_put(&s, after.exec[r]));
    /* Another rank has other slices. */
    assert_int_equal(brim_snapshot_put(&s, after.exec[(r + 1) % 3]), BRIM_EINTERNAL);
    brim_snapshot_release(&s);
  }
  char *a = write_checkpoint(&before, new_run("before")), *b = write_checkpoint(&after, new_run("after"));
  assert_string_equal(a, b);
  free(a);
  free(b);
  shard_stop(&before);
  shard_stop(&after);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_number_of_ranks_resumes_from_a_checkpoint),
      cmocka_unit_test(a_rank_continues_under_another_plan),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
