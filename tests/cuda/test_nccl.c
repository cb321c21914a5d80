/* Tests the communicator between GPUs, on emulated devices of processes that this test starts: its sums and copies, and
 * its errors when a rank fails, dies or hangs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/text.h"
#include "conformance/load.h"
#include "dist/collectives.h"

#define RANKS_MAX 4
#define LATE_SECONDS 600 /* a test that takes longer counts as hanging */
#define SHORT_SECONDS 4  /* the timeout if a rank never answers */

/* ---- ranks communicate through shared memory ---- */

typedef struct board {
  int arrived[RANKS_MAX]; /* number of meetings so far */
  char said[RANKS_MAX][BRIM_EXCHANGE_BYTES];
} board;
static board *common;

typedef struct fixture {
  loaded backend, comm;
  const brim_backend_ops *device;
  void *queue;
  rank_under_test rank;
  brim_comm_ops ops; /* the plugin's functions; all collectives go into the device's queue */
  int meetings;
} fixture;
static fixture me;

static bool all_at(int meeting)
{
  for (int32_t r = 0; r < me.rank.world.ranks; r++)
    if (__atomic_load_n(&common->arrived[r], __ATOMIC_ACQUIRE) < meeting) return false;
  return true;
}

/* Meets twice, so that no rank overwrites numbers that others still read. */
static brim_status meet(void)
{
  const double start = brim_now();
  __atomic_store_n(&common->arrived[me.rank.world.rank], ++me.meetings, __ATOMIC_RELEASE);
  while (!all_at(me.meetings)) {
    if (brim_now() - start > me.rank.seconds) return brim_fail(BRIM_ECOMM, "a rank is missing");
    usleep(100);
  }
  return BRIM_OK;
}

static brim_status exchange(void *context, const void *own, uint32_t bytes, void *all)
{
  (void)context;
  memcpy(common->said[me.rank.world.rank], own, bytes);
  BRIM_TRY(meet());
  for (int32_t r = 0; r < me.rank.world.ranks; r++) memcpy((char *)all + (size_t)r * bytes, common->said[r], bytes);
  return meet();
}

void rank_exchange(const rank_under_test *rank, const void *own, uint32_t bytes, void *all)
{
  rank_check(rank, exchange(NULL, own, bytes, all) == BRIM_OK, "an exchange failed");
}

void rank_check(const rank_under_test *rank, bool holds, const char *what)
{
  if (holds) return;
  fprintf(stderr, "rank %d: %s\n", (int)rank->world.rank, what);
  _exit(1);
}

static void must(bool holds, const char *what)
{
  rank_check(&me.rank, holds, what);
}

/* ---- a rank ---- */

static brim_status start_in_queue(void *self, const brim_collective *what, void *queue)
{
  (void)queue;
  return ((const brim_comm_ops *)me.comm.plugin->ops)->start(self, what, me.queue);
}

static const char *comm_settings; /* NULL: defaults */

static brim_status open_rank(int32_t rank, int32_t ranks, double seconds)
{
  me.rank.world = (brim_world){rank, ranks, rank, ranks};
  me.rank.seconds = seconds;
  must(load_plugin_from(&me.backend, "emulated", "backend", "cuda", NULL), "there is no emulated device");
  must(load_plugin_from(&me.comm, "emulated", "comm", "nccl", comm_settings), "there is no emulated NCCL");
  me.device = me.backend.plugin->ops;
  must(me.device->select(me.backend.self, 0) == BRIM_OK, brim_error_text());
  me.queue = me.device->native_queue(me.backend.self, BRIM_QUEUE_COMM);
  me.ops = *(const brim_comm_ops *)me.comm.plugin->ops;
  me.ops.start = start_in_queue;
  me.rank.ops = &me.ops;
  me.rank.self = me.comm.self;
  const brim_talk talk = {NULL, exchange, seconds};
  return me.ops.connect(me.comm.self, &me.rank.world, &talk, me.device, me.backend.self, 0);
}

static void close_rank(void)
{
  me.ops.disconnect(me.comm.self);
  unload_plugin(&me.comm);
  unload_plugin(&me.backend);
}

/* Every rank runs `work` in a separate process. Returns their wait statuses. */
static void run_ranks(int32_t ranks, void (*work)(int32_t rank, int32_t ranks), int *ended)
{
  pid_t child[RANKS_MAX];
  common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  fflush(NULL);
  for (int32_t r = 0; r < ranks; r++) {
    child[r] = fork();
    if (child[r] != 0) continue;
    alarm(LATE_SECONDS);
    work(r, ranks);
    _exit(0);
  }
  for (int32_t r = 0; r < ranks; r++) waitpid(child[r], &ended[r], 0);
  munmap(common, sizeof *common);
}

static void check_ranks(int32_t ranks, void (*work)(int32_t rank, int32_t ranks))
{
  int ended[RANKS_MAX];
  run_ranks(ranks, work, ended);
  for (int32_t r = 0; r < ranks; r++)
    if (ended[r] != 0) fail_msg("rank %d of %d ended with %d", (int)r, (int)ranks, ended[r]);
}

/* ---- results ---- */

static void add_up(int32_t rank, int32_t ranks)
{
  must(open_rank(rank, ranks, LATE_SECONDS) == BRIM_OK, brim_error_text());
  rank_check_collectives(&me.rank);
  close_rank();
}

static void test_every_kind_of_every_type_and_size(void **state)
{
  for (int32_t ranks = 1; ranks <= 3; ranks++) check_ranks(ranks, add_up);
}

/* Kernels fill the buffer, a sum follows them, and kernels follow the sum. Only marks order them; the host does not
 * wait until it reads. */
static void be_in_order(int32_t rank, int32_t ranks)
{
  enum { COUNT = 50000 };
  void *base = NULL;
  uint64_t done = 0;
  float *values = calloc(COUNT, sizeof *values);
  must(open_rank(rank, ranks, LATE_SECONDS) == BRIM_OK, brim_error_text());
  const brim_backend_ops *d = me.device;
  void *self = me.backend.self;
  must(d->place(self, 0, 2 * COUNT * sizeof(float), &base) == BRIM_OK, brim_error_text());
  for (int i = 0; i < COUNT; i++) values[i] = (float)(rank + 1);
  must(d->upload(self, base, values, COUNT * sizeof(float)) == BRIM_OK, brim_error_text());
  const brim_collective sum = {BRIM_ALL_REDUCE, BRIM_DTYPE_F32, base, 2 * COUNT};
  for (int i = 0; i < 5; i++) {
    must(d->zero(self, (float *)base + COUNT, COUNT * sizeof(float)) == BRIM_OK, brim_error_text());
    must(d->mark(self, BRIM_QUEUE_COMPUTE, 0) == BRIM_OK && d->wait(self, BRIM_QUEUE_COMM, 0) == BRIM_OK, "marks");
    must(me.ops.start(me.comm.self, &sum, NULL) == BRIM_OK, brim_error_text());
    must(d->mark(self, BRIM_QUEUE_COMM, 1) == BRIM_OK && d->wait(self, BRIM_QUEUE_COMPUTE, 1) == BRIM_OK, "marks");
  }
  while (done < 5) must(me.ops.poll(me.comm.self, &done) == BRIM_OK, brim_error_text());
  must(d->download(self, values, base, COUNT * sizeof(float)) == BRIM_OK, brim_error_text());
  float expected = (float)(ranks * (ranks + 1) / 2);
  for (int i = 1; i < 5; i++) expected *= (float)ranks;
  for (int i = 0; i < COUNT; i++) must(values[i] == expected, "a wrong sum");
  must(d->download(self, values, (float *)base + COUNT, COUNT * sizeof(float)) == BRIM_OK, brim_error_text());
  for (int i = 0; i < COUNT; i++) must(values[i] == 0, "memory was summed before it was zeroed");
  d->unplace(self, base, 2 * COUNT * sizeof(float));
  free(values);
  close_rank();
}

static void test_marks_order_collectives_with_kernels(void **state)
{
  static const char *const orders[] = {NULL, "copies", "5", "9"};
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
    if (orders[i]) setenv("EMULATED_STREAMS", orders[i], 1);
    check_ranks(3, be_in_order);
  }
  unsetenv("EMULATED_STREAMS");
}

/* Checks that other devices do not wait for a rank whose host is busy. */
static void be_elsewhere(int32_t rank, int32_t ranks)
{
  static float buffer[1000];
  const brim_collective sum = {BRIM_ALL_REDUCE, BRIM_DTYPE_F32, buffer, 1000};
  uint64_t done = 0;
  must(open_rank(rank, ranks, LATE_SECONDS) == BRIM_OK, brim_error_text());
  must(me.ops.start(me.comm.self, &sum, NULL) == BRIM_OK, brim_error_text());
  if (rank == 0)
    while (done < 1) must(me.ops.poll(me.comm.self, &done) == BRIM_OK, brim_error_text());
  must(meet() == BRIM_OK, "rank 0 waits for a host"); /* the other ranks wait there without polling their devices */
  close_rank();
}

static void test_a_device_continues_while_its_host_is_elsewhere(void **state)
{
  check_ranks(3, be_elsewhere);
}

/* ---- failures ---- */

static const char *expected_text; /* part of the message of a rank that detects the failure */
static double time_to_connect, time_to_find_out;

/* Makes sums until something fails. Closing must then not wait for other ranks, so the communicator must not
 * finalize. */
static void go_until_it_fails(int32_t rank, int32_t ranks)
{
  static float buffer[100000];
  const brim_collective sum = {BRIM_ALL_REDUCE, BRIM_DTYPE_F32, buffer, 100000};
  brim_status status = open_rank(rank, ranks, time_to_connect);
  const double start = brim_now();
  for (uint64_t i = 1, done = 0; i <= 8 && status == BRIM_OK; i++) {
    status = me.ops.start(me.comm.self, &sum, NULL);
    while (status == BRIM_OK && done < i) {
      status = me.ops.poll(me.comm.self, &done);
      if (brim_now() - start > time_to_find_out) break;
    }
    if (status == BRIM_OK && done < i) status = brim_fail(BRIM_ECOMM, "late");
  }
  must(status == BRIM_ECOMM, "nothing failed");
  if (!strstr(brim_error_text(), expected_text)) must(false, brim_error_text());
  close_rank();
}

static void check_failure(const char *failure, int32_t failing, const char *text, double connect, double find_out)
{
  int ended[RANKS_MAX];
  expected_text = text;
  time_to_connect = connect;
  time_to_find_out = find_out;
  setenv("EMULATED_NCCL", failure, 1);
  setenv("EMULATED_NCCL_FINALIZE", "abort", 1);
  run_ranks(3, go_until_it_fails, ended);
  unsetenv("EMULATED_NCCL_FINALIZE");
  unsetenv("EMULATED_NCCL");
  for (int32_t r = 0; r < 3; r++)
    if (r != failing && ended[r] != 0) fail_msg("%s: rank %d ended with %d", failure, (int)r, ended[r]);
}

/* A communicator makes twenty collectives while it connects. */
static void test_a_rank_that_cannot_start_a_collective_reports_nccls_error(void **state)
{
  check_failure("1:start:22", -1, "", LATE_SECONDS, 1);
  check_failure("1:init", -1, "", SHORT_SECONDS, 1);
}

static void test_a_rank_that_is_killed_is_found_at_once(void **state)
{
  check_failure("2:die:22", 2, "remote process exited", LATE_SECONDS, LATE_SECONDS);
  check_failure("0:die:2", 0, "remote process exited", LATE_SECONDS, LATE_SECONDS); /* while they connect */
}

static void test_a_rank_whose_device_hangs_is_waited_for_until_the_timeout(void **state)
{
  check_failure("1:hang:22", -1, "late", LATE_SECONDS, 1);
  check_failure("1:hang:1", -1, "", SHORT_SECONDS, LATE_SECONDS); /* while they connect */
}

static void test_a_connection_that_is_lost_ends_it_on_both_sides(void **state)
{
  check_failure("1:lost:22", -1, "", LATE_SECONDS, 1);
}

/* ---- ranks that cannot take part ---- */

static void lack_a_device(int32_t rank, int32_t ranks)
{
  if (rank == 1) setenv("EMULATED_DEVICES", "2", 1);
  me.rank.world = (brim_world){rank, ranks, rank, ranks};
  me.rank.seconds = LATE_SECONDS;
  must(load_plugin_from(&me.backend, "emulated", "backend", "cuda", NULL), "there is no emulated device");
  must(load_plugin_from(&me.comm, "emulated", "comm", "nccl", NULL), "there is no emulated NCCL");
  const brim_comm_ops *ops = me.comm.plugin->ops;
  const brim_talk talk = {NULL, exchange, LATE_SECONDS};
  me.device = me.backend.plugin->ops;
  must(me.device->select(me.backend.self, 0) == BRIM_OK, brim_error_text());
  const brim_status status = ops->connect(me.comm.self, &me.rank.world, &talk, me.device, me.backend.self, 1);
  must(status == (rank == 1 ? BRIM_ECOMM : BRIM_EDEVICE), brim_error_text());
  must(strstr(brim_error_text(), rank == 1 ? "rank 0 cannot use NCCL" : "choosing a device") != NULL,
       brim_error_text());
  unload_plugin(&me.comm);
  unload_plugin(&me.backend);
}

static void test_a_rank_that_cannot_use_nccl_keeps_no_rank_waiting(void **state)
{
  check_ranks(2, lack_a_device);
}

static void connect_with_algorithms(int32_t rank, int32_t ranks)
{
  must(open_rank(rank, ranks, LATE_SECONDS) == BRIM_OK, brim_error_text());
  const char *algorithms = getenv("NCCL_ALGO");
  must(comm_settings ? !algorithms : algorithms && strcmp(algorithms, "Ring,Tree") == 0, "other algorithms");
  close_rank();
}

static void test_only_algorithms_with_a_fixed_order_are_requested_by_default(void **state)
{
  unsetenv("NCCL_ALGO");
  check_ranks(2, connect_with_algorithms);
  comm_settings = "deterministic: false";
  check_ranks(2, connect_with_algorithms);
  comm_settings = NULL;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_kind_of_every_type_and_size),
      cmocka_unit_test(test_marks_order_collectives_with_kernels),
      cmocka_unit_test(test_a_device_continues_while_its_host_is_elsewhere),
      cmocka_unit_test(test_a_rank_that_cannot_start_a_collective_reports_nccls_error),
      cmocka_unit_test(test_a_rank_that_is_killed_is_found_at_once),
      cmocka_unit_test(test_a_rank_whose_device_hangs_is_waited_for_until_the_timeout),
      cmocka_unit_test(test_a_connection_that_is_lost_ends_it_on_both_sides),
      cmocka_unit_test(test_a_rank_that_cannot_use_nccl_keeps_no_rank_waiting),
      cmocka_unit_test(test_only_algorithms_with_a_fixed_order_are_requested_by_default),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
