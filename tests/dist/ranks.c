/* A rank of a job for tests of communicators: loads comm/<id> as brim does, joins, and does one thing.
 *
 *     dist_ranks COMM talk ROUNDS           exchanges of all sizes
 *     dist_ranks COMM sums                  collectives of all kinds
 *     dist_ranks COMM lose RANK SECONDS     that rank stops; the others detect it
 *     dist_ranks COMM lose_sums RANK SECONDS   the same during collectives
 *     dist_ranks COMM lose_late RANK SECONDS   the same, with rank 0 so late that others might consider it lost
 *     dist_ranks COMM wait RANK SECONDS     that rank comes late, but within the timeout
 *     dist_ranks COMM die RANK              that rank is killed
 *     dist_ranks COMM end RANK              that rank ends the job, wherever the others are
 *     dist_ranks COMM idle SECONDS          exchanges for this time
 *     dist_ranks COMM signals               checks that joining keeps signal handling
 *     dist_ranks COMM speed BYTES TIMES     times an all-reduce
 *
 * $SECONDS_TO_WAIT is the timeout for other ranks, where SECONDS is something else. Exit status 0: success. A rank that
 * loses others reports it in one line and ends the job, as brim does. */
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "builtin/builtin.h"
#include "dist/collectives.h"
#include "plugin/registry.h"

#define HANG_SECONDS 600

static rank_under_test me;

void rank_check(const rank_under_test *rank, bool holds, const char *what)
{
  if (holds) return;
  fprintf(stderr, "rank %d: %s\n", (int)rank->world.rank, what);
  rank->ops->end_all(rank->self, 1);
}

/* Handles a failure of the communicator as brim does. */
static void give_up(brim_status status, int32_t late, double waited)
{
  if (status == BRIM_EPEER)
    sleep(3); /* meanwhile rank 0 reports the failure and ends the job */
  else
    fprintf(stderr, "rank %d after %.1f s: %s; late: %d\n", (int)me.world.rank, waited, brim_error_text(), (int)late);
  me.ops->end_all(me.self, brim_status_exit(status));
}

void rank_exchange(const rank_under_test *rank, const void *own, uint32_t bytes, void *all)
{
  int32_t late;
  const double start = brim_now();
  const brim_status status = rank->ops->exchange(rank->self, own, bytes, all, rank->seconds, &late);
  if (status != BRIM_OK) give_up(status, late, brim_now() - start);
}

static void meet(void)
{
  char all[4096];
  rank_exchange(&me, "x", 1, all);
}

/* ---- talking ---- */

static uint32_t number_of(int32_t rank, long round, uint32_t i)
{
  return (uint32_t)rank * 2654435761U + (uint32_t)round * 40503U + i * 97U;
}

static void talk(long rounds)
{
  static const uint32_t sizes[] = {4, 64, 8, 1000, 0, 4096, 64, 64};
  uint32_t own[BRIM_EXCHANGE_BYTES / 4];
  uint32_t *all = malloc((size_t)me.world.ranks * BRIM_EXCHANGE_BYTES);
  const double start = brim_now();
  for (long round = 0; round < rounds; round++) {
    const uint32_t bytes = sizes[round % 8], count = bytes / 4;
    for (uint32_t i = 0; i < count; i++) own[i] = number_of(me.world.rank, round, i);
    rank_exchange(&me, own, bytes, all);
    for (int32_t r = 0; r < me.world.ranks; r++)
      for (uint32_t i = 0; i < count; i++)
        rank_check(&me, all[(uint32_t)r * count + i] == number_of(r, round, i), "an exchange brought something else");
  }
  if (me.world.rank == 0) printf("%.1f us an exchange\n", (brim_now() - start) / (double)rounds * 1e6);
  free(all);
}

/* ---- losing ranks ---- */

static void lose(int32_t lost, bool with_sums)
{
  static float buffer[1 << 20];
  meet();
  if (with_sums && me.world.rank != lost) {
    const brim_collective sum = {BRIM_ALL_REDUCE, BRIM_DTYPE_F32, buffer, sizeof buffer / sizeof *buffer};
    uint64_t done;
    for (int i = 0; i < 3; i++) rank_check(&me, me.ops->start(me.self, &sum, NULL) == BRIM_OK, brim_error_text());
    rank_check(&me, me.ops->poll(me.self, &done) == BRIM_OK && done == 0, "a sum without one of the ranks");
  }
  if (me.world.rank == lost) raise(SIGSTOP);
  meet();
}

static void lose_late(int32_t lost)
{
  meet();
  if (me.world.rank == lost) raise(SIGSTOP);
  if (me.world.rank == 0) usleep((useconds_t)(1.05 * me.seconds * 1e6));
  meet();
}

static void wait_for(int32_t late, double seconds)
{
  meet();
  if (me.world.rank == late) usleep((useconds_t)(seconds * 1e6));
  meet();
}

static void die(int32_t lost)
{
  meet();
  if (me.world.rank == lost) raise(SIGKILL);
  meet();
}

/* One rank ends the job, one does something else, the others wait. */
static void end(int32_t ender)
{
  meet();
  if (me.world.rank == ender) me.ops->end_all(me.self, 5);
  if (me.world.rank == (ender + 1) % me.world.ranks) raise(SIGSTOP);
  if (me.world.rank == (ender + 2) % me.world.ranks)
    for (;;) sleep(1);
  meet();
}

static void idle(double seconds)
{
  const double start = brim_now();
  double most = 0;
  long rounds = 0;
  char all[4096];
  for (bool is_over = false; !is_over; rounds++) {
    const double before = brim_now();
    const char own = me.world.rank == 0 && before - start > seconds;
    rank_exchange(&me, &own, 1, all);
    is_over = all[0] != 0;
    most = fmax(most, brim_now() - before);
    if (rounds == 0 && me.world.rank == 0) {
      printf("begun\n");
      fflush(stdout);
    }
    usleep(1000);
  }
  if (me.world.rank == 0) printf("%ld exchanges, the longest took %.1f ms\n", rounds, most * 1e3);
}

/* ---- joining ---- */

static void on_signal(int signal)
{
  (void)signal;
}

/* Every other thread must have SIGTERM blocked. */
static void look_at_threads(void)
{
  DIR *threads = opendir("/proc/self/task");
  for (struct dirent *entry = readdir(threads); entry; entry = readdir(threads)) {
    char file[300], line[256];
    unsigned long long blocked = 0;
    if (entry->d_name[0] == '.' || strtol(entry->d_name, NULL, 10) == getpid()) continue;
    snprintf(file, sizeof file, "/proc/self/task/%s/status", entry->d_name);
    FILE *stream = fopen(file, "r");
    while (fgets(line, sizeof line, stream)) sscanf(line, "SigBlk: %llx", &blocked);
    fclose(stream);
    rank_check(&me, (blocked >> (SIGTERM - 1) & 1) != 0, "a thread of the communicator takes signals");
  }
  closedir(threads);
}

/* Signals that brim handles must be handled as before, and only by the main thread. */
static void join_and_look_at_signals(void)
{
  static const int handled[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM, SIGCHLD};
  struct sigaction before[8], after;
  sigset_t mask_before, mask_after;
  for (int i = 0; i < 8; i++) {
    if (i % 2 == 0) signal(handled[i], on_signal);
    sigaction(handled[i], NULL, &before[i]);
  }
  sigprocmask(SIG_SETMASK, NULL, &mask_before);
  rank_check(&me, me.ops->join(me.self, &me.world) == BRIM_OK, brim_error_text());
  sigprocmask(SIG_SETMASK, NULL, &mask_after);
  for (int i = 0; i < 8; i++) {
    sigaction(handled[i], NULL, &after);
    rank_check(&me, after.sa_handler == before[i].sa_handler, "joining has changed a signal's handler");
  }
  for (int i = 1; i < SIGRTMAX; i++)
    rank_check(&me, sigismember(&mask_before, i) == sigismember(&mask_after, i),
               "joining has changed the signals' mask");
  look_at_threads();
}

static void load(const char *id)
{
  brim_registry *registry = brim_registry_create(brim_core_plugins);
  const char *moved = getenv("BRIM_BUILD_DIR"); /* a build that was copied elsewhere */
  char folder[4096];
  snprintf(folder, sizeof folder, "%s/lib/brim/plugins", moved ? moved : BRIM_BUILD_DIR);
  brim_status status = brim_registry_scan(registry, folder);
  const brim_registry_entry *entry = status == BRIM_OK ? brim_registry_find(registry, BRIM_COMM, id) : NULL;
  if (!entry || (status = entry->plugin->create(NULL, &me.self)) != BRIM_OK) {
    fprintf(stderr, "comm/%s: %s\n", id, brim_error_text());
    exit(3);
  }
  me.ops = entry->plugin->ops;
  me.plugin = entry->plugin;
  me.registry = registry;
}

static bool run(const char *what, double first, double second)
{
  if (strcmp(what, "talk") == 0)
    talk((long)first);
  else if (strcmp(what, "sums") == 0)
    rank_check_collectives(&me);
  else if (strcmp(what, "lose") == 0)
    lose((int32_t)first, false);
  else if (strcmp(what, "lose_sums") == 0)
    lose((int32_t)first, true);
  else if (strcmp(what, "lose_late") == 0)
    lose_late((int32_t)first);
  else if (strcmp(what, "wait") == 0)
    wait_for((int32_t)first, second);
  else if (strcmp(what, "die") == 0)
    die((int32_t)first);
  else if (strcmp(what, "end") == 0)
    end((int32_t)first);
  else if (strcmp(what, "idle") == 0)
    idle(first);
  else if (strcmp(what, "speed") == 0)
    rank_time_sums(&me, (size_t)first, (int)second);
  else
    return strcmp(what, "signals") == 0;
  return true;
}

int main(int argc, char **argv)
{
  const double first = argc > 3 ? strtod(argv[3], NULL) : 0, second = argc > 4 ? strtod(argv[4], NULL) : 0;
  if (argc < 3) return 2;
  load(argv[1]);
  const char *seconds = getenv("SECONDS_TO_WAIT");
  me.seconds = strncmp(argv[2], "lose", 4) == 0 ? second : seconds ? strtod(seconds, NULL) : 60;
  if (strcmp(argv[2], "signals") == 0)
    join_and_look_at_signals();
  else if (me.ops->join(me.self, &me.world) != BRIM_OK) {
    fprintf(stderr, "%s\n", brim_error_text());
    return brim_status_exit(BRIM_ECOMM);
  }
  const brim_talk through = {0};
  rank_check(&me, me.ops->connect(me.self, &me.world, &through, NULL, NULL, 0) == BRIM_OK, brim_error_text());
  const double patience = me.seconds;
  me.seconds = HANG_SECONDS; /* processes begin at different times */
  meet();
  me.seconds = patience;
  if (!run(argv[2], first, second)) return 2;
  me.ops->disconnect(me.self);
  me.ops->leave(me.self);
  me.plugin->destroy(me.self);
  brim_registry_free(me.registry);
  return 0;
}
