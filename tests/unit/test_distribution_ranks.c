/* Tests that ranks agree on the distribution of a step: two processes, with a socket in place of a communicator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "builtin/builtin.h"
#include "drive/distribute.h"
#include "drive/drive.h"
#include "scratch.h"

static int other = -1; /* the socket to the other rank */
static int32_t own_rank;

static brim_dist *job(void)
{
  static char any;
  return (brim_dist *)(void *)&any;
}

brim_world __wrap_brim_dist_world(const brim_dist *dist);
brim_status __wrap_brim_dist_exchange(brim_dist *dist, const void *own, uint32_t bytes, void *all);
brim_status __wrap_brim_dist_share_text(brim_dist *dist, char *text, size_t room);
void __wrap_brim_dist_disconnect(brim_dist *dist);

/* Replaces the core's function, because the ranks of this test make no sums. */
void __wrap_brim_dist_disconnect(brim_dist *dist)
{
  (void)dist;
}

brim_world __wrap_brim_dist_world(const brim_dist *dist)
{
  return dist ? (brim_world){own_rank, 2, own_rank, 2} : (brim_world){0, 1, 0, 1};
}

brim_status __wrap_brim_dist_exchange(brim_dist *dist, const void *own, uint32_t bytes, void *all)
{
  (void)dist;
  memcpy((char *)all + (size_t)own_rank * bytes, own, bytes);
  char *its = (char *)all + (size_t)(1 - own_rank) * bytes;
  const bool done =
      write(other, own, bytes) == (ssize_t)bytes && recv(other, its, bytes, MSG_WAITALL) == (ssize_t)bytes;
  return done ? BRIM_OK : brim_fail(BRIM_ECOMM, "the other rank is gone");
}

brim_status __wrap_brim_dist_share_text(brim_dist *dist, char *text, size_t room)
{
  char *all = malloc(2 * room);
  const brim_status status = __wrap_brim_dist_exchange(dist, text, (uint32_t)room, all);
  if (status == BRIM_OK) memcpy(text, all, room);
  free(all);
  return status;
}

/* A rank's settings and the expected result. */
typedef struct part {
  const char *threads[2]; /* the backend's threads, by rank */
  const char *resume;     /* folder of the run to resume, or NULL */
  int32_t failing;        /* the rank without a drive, or -1 */
  bool differs;           /* unequal shares, or weights with equal shares */
  bool has_fast_rank;     /* rank 1's device multiplies 16-bit values, so precision=auto is bf16 there */
} part;

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "rank %d, line %d: %s (%s)\n", (int)own_rank, __LINE__, #condition, brim_error_text());          \
      return false;                                                                                                    \
    }                                                                                                                  \
  } while (0)

static brim_status load(const char *threads, brim_registry **registry, brim_config **config)
{
  static const char *const search[] = {BRIM_BUILD_DIR "/share/brim/configs"};
  const char *const words[] = {"model=mlp",   "dataset=synthetic",        "dataset.train_count=1000",
                               "backend=cpu", "training.batch_size=auto", "training.effective_batch_size=128",
                               threads,       "memory.timing=false"};
  const brim_config_request request = {.search = search,
                                       .search_count = 1,
                                       .overrides = words,
                                       .override_count = sizeof words / sizeof words[0],
                                       .first_argument = 1};
  BRIM_TRY(brim_registry_open(brim_core_plugins, NULL, 0, registry));
  return brim_config_load(&request, *registry, config);
}

/* Checks that the run's folder gets both ranks' micro-batches and weights. */
static bool check_files(brim_drive *d)
{
  json_t *plan = json_object();
  CHECK(brim_distribution_exchange_batches(d) == BRIM_OK);
  CHECK(d->setup->distribution.batch[own_rank] == d->choice.micro_batch);
  brim_distribution_describe(d, plan);
  CHECK(json_integer_value(json_object_get(plan, "ranks")) == 2);
  CHECK(json_array_size(json_object_get(plan, "deal")) == (d->setup->distribution.weight ? 2 : 0));
  CHECK(json_array_size(json_object_get(plan, "batch_sizes")) == 2);
  json_decref(plan);
  return true;
}

static bool check_shares(brim_drive *d, const part *p)
{
  const brim_load first = brim_setup_load(d->setup, 0), second = brim_setup_load(d->setup, 1);
  brim_text text = {0};
  CHECK(first.share + second.share == 128);
  CHECK((d->setup->distribution.weight != NULL) == p->differs);
  CHECK(p->differs || first.share == 64);
  CHECK(!d->setup->distribution.weight || d->setup->distribution.weight[0] + d->setup->distribution.weight[1] == 128);
  CHECK(brim_setup_share(d->setup) == (own_rank == 0 ? first : second).share);
  CHECK(d->choice.micro_batch <= brim_setup_share(d->setup));
  brim_distribution_print(d, &text);
  CHECK(strstr(brim_text_str(&text), p->differs ? "divided among 2 ranks" : "effective batch 128 = 2 ranks x"));
  brim_text_release(&text);
  return true;
}

/* Does on this rank what a run does at its beginning. */
static bool run_rank(const part *p)
{
  brim_registry *registry = NULL;
  brim_config *config = NULL;
  brim_drive *d = NULL;
  CHECK(load(p->threads[own_rank], &registry, &config) == BRIM_OK);
  brim_status status = BRIM_OK;
  if (p->failing == own_rank)
    status = brim_fail(BRIM_ENODEVICE, "no device");
  else
    status = brim_drive_open(config, &(brim_setup_options){.dist = job(), .resume = p->resume}, &d);
  if (p->has_fast_rank) d->setup->precision = own_rank == 1 ? BRIM_PRECISION_BF16 : BRIM_PRECISION_FP32;
  status = brim_distribution_settle(job(), status, &d);
  if (p->failing >= 0) {
    CHECK(status == (p->failing == own_rank ? BRIM_ENODEVICE : BRIM_EPEER));
    char named[32];
    snprintf(named, sizeof named, "rank %d failed", (int)p->failing);
    CHECK(strstr(brim_error_text(), p->failing == own_rank ? "no device" : named));
  } else {
    CHECK(status == BRIM_OK);
    CHECK(check_shares(d, p) && check_files(d));
    CHECK(brim_setup_precision(d->setup) == BRIM_PRECISION_FP32 && d->choice.precision == BRIM_PRECISION_FP32);
    if (p->resume)
      CHECK(d->setup->distribution.weight[0] == 100 && brim_setup_share(d->setup) == (own_rank == 0 ? 100 : 28));
    if (p->resume) CHECK(d->choice.micro_batch == (own_rank == 0 ? 32 : 4));
    CHECK(brim_distribution_settle(job(), BRIM_OK, &d) == BRIM_OK); /* a second call does not wait for an answer */
  }
  brim_drive_close(d);
  brim_config_free(config);
  brim_registry_free(registry);
  return true;
}

static void run_both(const part *p)
{
  int pair[2], state = 0;
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const pid_t child = fork();
  own_rank = child == 0;
  other = pair[own_rank];
  close(pair[1 - own_rank]);
  const bool right = run_rank(p);
  close(other);
  if (child == 0) _Exit(right ? 0 : 1);
  assert_int_equal(waitpid(child, &state, 0), child);
  assert_true(right);
  assert_int_equal(state, 0);
}

static void ranks_of_the_same_kind_have_equal_shares(void **unused)
{
  (void)unused;
  run_both(&(part){{"backend.threads=1", "backend.threads=1"}, NULL, -1, false, false});
}

static void ranks_use_the_type_that_all_devices_have(void **unused)
{
  (void)unused;
  run_both(&(part){{"backend.threads=1", "backend.threads=1"}, NULL, -1, false, true});
}

static void ranks_of_different_kinds_are_weighed(void **unused)
{
  (void)unused;
  run_both(&(part){{"backend.threads=1", "backend.threads=2"}, NULL, -1, true, false});
}

/* A resumed run keeps the shares that it began with, whatever is predicted now. It also keeps the micro-batches,
 * because bits may depend on them. */
static void a_resumed_run_keeps_its_distribution(void **unused)
{
  (void)unused;
  scratch_put("run/plan.json", "{\"batch_size\": 32, \"ranks\": 2, \"deal\": [100, 28], \"batch_sizes\": [32, 4]}\n");
  run_both(&(part){{"backend.threads=1", "backend.threads=1"}, scratch("run"), -1, true, false});
}

static void all_ranks_learn_of_a_rank_without_a_drive(void **unused)
{
  (void)unused;
  for (int32_t r = 0; r < 2; r++) run_both(&(part){{"backend.threads=1", "backend.threads=1"}, NULL, r, false, false});
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_of_the_same_kind_have_equal_shares),
                                     cmocka_unit_test(ranks_use_the_type_that_all_devices_have),
                                     cmocka_unit_test(ranks_of_different_kinds_are_weighed),
                                     cmocka_unit_test(a_resumed_run_keeps_its_distribution),
                                     cmocka_unit_test(all_ranks_learn_of_a_rank_without_a_drive)};
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
