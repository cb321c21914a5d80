/* A process has at most one job, with the host half of one communicator and the collectives of the same or another
 * one. */
#include "dist/dist.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crash.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/log.h"
#include "dist/hub.h"
#include "dist/joining.h"
#include "dist/line.h"
#include "dist/messages.h"
#include "dist/processors.h"
#include "dist/started.h"
#include "plugin/instance.h"

/* Fractions of dist.timeout_seconds: how long a rank waits for sums before it asks all ranks whether they are present,
 * and how long it waits for their answers. The sum of the two is below 1, so that the rank asks before the ranks that
 * already have their sums stop waiting for it. */
#define SUMS_PATIENCE 0.25
#define PATIENCE 0.5
#define ASLEEP_SECONDS 0.5 /* a longer pause between polls means that this process was stopped */
#define SPEAK_SECONDS 3    /* wait for a rank that knows more to report the error and end the job */
#define WATCH_SECONDS 1e-3

/* The default of `comm`; which communicator it selects depends on the backend. */
static const brim_comm_ops auto_ops = {.size = sizeof(brim_comm_ops)};
const brim_plugin brim_comm_auto = {.size = sizeof(brim_plugin),
                                    .kind = BRIM_COMM,
                                    .id = "auto",
                                    .help = "mpi, with nccl between GPUs",
                                    .ops = &auto_ops};

/* An instance of a communicator. */
typedef struct party {
  const brim_plugin *plugin;
  const brim_comm_ops *ops;
  void *self;
} party;

struct brim_dist {
  brim_dist_options options;
  brim_arena defaults; /* default parameters of communicators that the configuration does not name */
  brim_world world;
  party host;        /* joined */
  party collectives; /* the communicator of the host half or another one; ops NULL: not connected */
  uint64_t started, done;
  brim_ballot *all;  /* the ballots of all ranks in a vote */
  bool is_connected; /* the collectives */
  bool is_lost;      /* the ranks can no longer reach each other */
  bool is_reported;  /* another rank has reported the reason */
  brim_error loss;   /* the reason */
};

brim_world brim_dist_world(const brim_dist *d)
{
  return d ? d->world : (brim_world){0, 1, 0, 1};
}

/* ---- which communicators ---- */

static brim_status make_party(brim_dist *d, const char *id, party *out)
{
  const brim_dist_options *o = &d->options;
  const brim_registry_entry *entry = brim_registry_find(o->registry, BRIM_COMM, id);
  if (!entry) {
    const brim_registry_failure *failure = brim_registry_failure_of(o->registry, BRIM_COMM, id);
    return brim_fail(BRIM_ELOAD, "communicator '%s' is needed for more than one rank%s%s", id,
                     failure ? ", and cannot be loaded: " : ", and this build has none: see `brim plugins`",
                     failure ? failure->reason : "");
  }
  *out = (party){.plugin = entry->plugin, .ops = entry->plugin->ops};
  if (o->comm != entry->plugin) return brim_instance_default(entry->plugin, &d->defaults, &out->self);
  out->self = o->params;
  return entry->plugin->create ? entry->plugin->create(o->params, &out->self) : BRIM_OK;
}

static void drop_party(party *p)
{
  if (p->self && p->plugin && p->plugin->destroy) p->plugin->destroy(p->self);
  *p = (party){0};
}

/* The host half belongs to the chosen communicator, if that has one. Ranks that brim started without MPI use their
 * lines to the launcher. */
static brim_status choose_host(brim_dist *d)
{
  const brim_plugin *chosen = d->options.comm;
  if (brim_hub_is_there()) {
    d->host = (party){.plugin = &brim_comm_hub, .ops = brim_comm_hub.ops};
    return BRIM_OK;
  }
  const brim_comm_ops *ops = chosen->ops;
  return make_party(d, BRIM_HAS(brim_comm_ops, ops, join) ? chosen->id : "mpi", &d->host);
}

/* ---- joining ---- */

static brim_status check_ranks(const brim_dist *d)
{
  const int64_t set = d->options.ranks;
  if (set < 0 || set == d->world.ranks) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "dist.ranks is %lld, but %d rank%s started\nleave dist.ranks out, or start as many",
                   (long long)set, (int)d->world.ranks, d->world.ranks == 1 ? " was" : "s were");
}

/* Whether a part of the configuration may differ, because it describes the rank's own machine. */
static bool may_differ(const char *key)
{
  static const char *const keys[] = {"backend", "device", "memory", "claims", "observe"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
    if (strcmp(keys[i], key) == 0) return true;
  return false;
}

#define PARTS_MAX 64
typedef struct digest {
  uint64_t part[PARTS_MAX]; /* hash of the i-th value of the root */
} digest;

static digest digest_of(const brim_yaml *root)
{
  digest out = {{0}};
  for (size_t i = 0; i < root->count && i < PARTS_MAX; i++) {
    brim_text text = {0};
    if (may_differ(root->key[i])) continue;
    brim_yaml_print(root->item[i], &text, false);
    out.part[i] =
        brim_hash(brim_hash(BRIM_HASH_START, root->key[i], strlen(root->key[i])), brim_text_str(&text), text.length);
    brim_text_release(&text);
  }
  return out;
}

/* Compares the ranks' configurations: all ranks must train the same model in the same way. */
static brim_status compare_configurations(brim_dist *d)
{
  const brim_yaml *root = d->options.configuration;
  const digest own = digest_of(root);
  digest *all = brim_xcalloc((size_t)d->world.ranks, sizeof *all);
  brim_status status = brim_dist_exchange(d, &own, sizeof own, all);
  for (int32_t r = 1; status == BRIM_OK && r < d->world.ranks; r++)
    for (size_t i = 0; status == BRIM_OK && i < PARTS_MAX; i++)
      if (all[r].part[i] != all[0].part[i])
        status = brim_fail(BRIM_ECONFIG, "rank %d has another configuration than rank 0: '%s' differs", (int)r,
                           i < root->count ? root->key[i] : "?");
  free(all);
  return status;
}

static brim_status join(brim_dist *d)
{
  brim_joining watched;
  BRIM_TRY(choose_host(d));
  BRIM_TRY(brim_joining_begin(&watched, d->host.ops, d->host.self, d->options.timeout_seconds));
  const brim_status status = d->host.ops->join(d->host.self, &d->world);
  brim_joining_end(&watched);
  if (status != BRIM_OK) return brim_fail_add(status, "the ranks could not be joined by %s", d->host.plugin->id);
  brim_log_set_rank(d->world.rank);
  brim_fault_set_rank(d->world.rank);
  d->all = brim_xcalloc((size_t)d->world.ranks, sizeof *d->all);
  BRIM_TRY(compare_configurations(d));
  BRIM_TRY(check_ranks(d));
  return brim_processors_share(d);
}

brim_status brim_dist_open(const brim_dist_options *options, brim_dist **out)
{
  *out = NULL;
  if (brim_dist_started() <= 1) return BRIM_OK;
  brim_dist *d = brim_xcalloc(1, sizeof *d);
  d->options = *options;
  const brim_status status = join(d);
  if (status == BRIM_ECONFIG && d->world.rank > 0) brim_log_mute(); /* all ranks found the same error */
  if (status == BRIM_OK || (status != BRIM_ECOMM && d->world.ranks > 0))
    *out = d;
  else
    brim_dist_close(d, status == BRIM_ECOMM, brim_status_exit(status));
  return status;
}

static void leave(brim_dist *d, int exit_status)
{
  brim_joining watched;
  const brim_status status = brim_joining_leave(&watched, exit_status);
  if (status != BRIM_OK) brim_log(BRIM_LOG_WARN, "%s", brim_error_text());
  d->host.ops->leave(d->host.self);
  if (status == BRIM_OK) brim_joining_end(&watched);
}

void brim_dist_close(brim_dist *d, bool failed, int exit_status)
{
  if (!d) return;
  brim_dist_disconnect(d);
  if (d->host.ops && d->world.ranks > 0 && !failed) leave(d, exit_status);
  drop_party(&d->host);
  free(d->all);
  brim_arena_release(&d->defaults);
  free(d);
}

/* ---- messages ---- */

static void stop_collectives(brim_dist *d)
{
  if (d->is_connected) d->collectives.ops->disconnect(d->collectives.self);
  d->is_connected = false;
}

/* Stops all communication, and keeps the first reason, which is the one that is printed. */
static brim_status lose(brim_dist *d, brim_status status, int32_t late)
{
  if (d->is_lost) {
    brim_error_put(&d->loss);
    return BRIM_ECOMM;
  }
  if (late >= 0) (void)brim_fail_add(status, "rank %d of %d is missing", (int)late, (int)d->world.ranks);
  d->is_lost = true;
  d->is_reported = status == BRIM_EPEER;
  brim_error_take(&d->loss);
  stop_collectives(d); /* without this, waiting for the device would never end */
  brim_error_put(&d->loss);
  return BRIM_ECOMM;
}

static brim_status exchange(brim_dist *d, const void *own, uint32_t bytes, void *all, double seconds)
{
  int32_t late = -1;
  if (d->is_lost) return lose(d, BRIM_ECOMM, late);
  const brim_status status = d->host.ops->exchange(d->host.self, own, bytes, all, seconds, &late);
  return status == BRIM_OK ? BRIM_OK : lose(d, status, late);
}

brim_status brim_dist_exchange(brim_dist *d, const void *own, uint32_t bytes, void *all)
{
  if (d) return exchange(d, own, bytes, all, PATIENCE * d->options.timeout_seconds);
  memcpy(all, own, bytes);
  return BRIM_OK;
}

brim_status brim_dist_share_text(brim_dist *d, char *text, size_t room)
{
  char piece[BRIM_EXCHANGE_BYTES] = {0};
  if (!d) return BRIM_OK;
  char *all = brim_xmalloc((size_t)d->world.ranks * sizeof piece);
  brim_status status = BRIM_OK;
  for (size_t at = 0; status == BRIM_OK && at < room; at += sizeof piece) {
    const size_t bytes = room - at < sizeof piece ? room - at : sizeof piece;
    memcpy(piece, text + at, bytes);
    status = brim_dist_exchange(d, piece, (uint32_t)bytes, all);
    if (status == BRIM_OK) memcpy(text + at, all, bytes);
  }
  free(all);
  return status;
}

void brim_dist_give_up(brim_dist *d, brim_status status)
{
  if (!d) return;
  if (d->is_reported && brim_line_is_open())
    brim_line_leave(brim_status_exit(status)); /* waits for the rank that reports the error and ends the job */
  else if (d->is_reported)
    sleep(SPEAK_SECONDS);
  else if (brim_line_may_print())
    brim_log_error();
  brim_line_end(brim_status_exit(status));
  brim_crash_allow_exit(); /* MPI_Abort may call exit() */
  d->host.ops->end_all(d->host.self, brim_status_exit(status));
  _Exit(brim_status_exit(status));
}

static void count_ballot(const brim_ballot *b, int32_t rank, brim_verdict *out)
{
  if (b->status != BRIM_OK && out->failed < 0) {
    out->failed = rank;
    out->status = b->status;
  }
  out->wishes |= b->wishes;
  out->is_torn = out->is_torn || b->is_torn;
  out->is_over = out->is_over || b->is_over;
  for (int i = 0; i < BRIM_BALLOT_SUMS; i++) out->sum[i] += b->sum[i];
}

static brim_status count_all(brim_dist *d, const brim_ballot *own, brim_verdict *out)
{
  brim_ballot alone;
  brim_ballot *all = d ? d->all : &alone;
  const int32_t ranks = brim_dist_world(d).ranks;
  BRIM_TRY(brim_dist_exchange(d, own, sizeof *own, all));
  for (int32_t r = 0; r < ranks; r++) count_ballot(&all[r], r, out);
  for (int32_t r = 1; r < ranks && out->failed < 0; r++)
    if (all[r].meeting != all[0].meeting || all[r].step != all[0].step)
      return brim_fail(BRIM_EINTERNAL, "rank %d is at meeting %u of step %lld, rank 0 at %u of %lld", (int)r,
                       all[r].meeting, (long long)all[r].step, all[0].meeting, (long long)all[0].step);
  return BRIM_OK;
}

brim_status brim_dist_vote(brim_dist *d, const brim_ballot *own, brim_verdict *out)
{
  brim_error error;
  brim_error_take(&error);
  *out = (brim_verdict){.failed = -1};
  const brim_status status = count_all(d, own, out);
  if (status != BRIM_OK) *out = (brim_verdict){.failed = -1, .is_over = true};
  if (own->status == BRIM_OK) return status;
  brim_error_put(&error);
  return own->status;
}

/* ---- collectives ---- */

static brim_status talk(void *context, const void *own, uint32_t bytes, void *all)
{
  return brim_dist_exchange(context, own, bytes, all);
}

/* Uses the host's communicator if the buffers are in host memory, else that of the device. */
static brim_status choose_collectives(brim_dist *d, bool on_device)
{
  const brim_plugin *chosen = d->options.comm;
  const bool is_auto = chosen == &brim_comm_auto;
  if (d->options.by_messages && (on_device || d->host.plugin == &brim_comm_hub)) {
    d->collectives = (party){.plugin = &brim_comm_messages, .ops = brim_comm_messages.ops};
    return brim_comm_messages.create(NULL, &d->collectives.self);
  }
  if (!on_device && (is_auto || chosen == d->host.plugin)) {
    d->collectives = d->host;
  } else {
    BRIM_TRY(make_party(d, is_auto ? "nccl" : chosen->id, &d->collectives));
  }
  const brim_comm_ops *ops = d->collectives.ops;
  if (d->host.plugin == &brim_comm_hub && !on_device)
    return brim_fail(BRIM_ECONFIG, "the ranks were started without MPI, which is needed to train on the host\n"
                                   "install Open MPI, or use a GPU");
  if (!BRIM_HAS(brim_comm_ops, ops, connect) || (ops->on_device != 0) != on_device)
    return brim_fail(BRIM_ECONFIG, "comm=%s cannot sum data in the memory of %s\nuse comm=auto",
                     d->collectives.plugin ? d->collectives.plugin->id : "auto", on_device ? "a device" : "the host");
  return BRIM_OK;
}

brim_status brim_dist_connect(brim_dist *d, const brim_backend_ops *backend, void *self, int device)
{
  if (!d || d->collectives.ops) return BRIM_OK;
  const brim_talk with = {d, talk, d->options.timeout_seconds, d->options.bucket_bytes};
  const bool on_device = BRIM_HAS(brim_backend_ops, backend, run_program);
  BRIM_TRY(choose_collectives(d, on_device));
  BRIM_TRY(d->collectives.ops->connect(d->collectives.self, &d->world, &with, backend, self, device));
  d->is_connected = true;
  return BRIM_OK;
}

void brim_dist_disconnect(brim_dist *d)
{
  if (!d || !d->collectives.ops) return;
  stop_collectives(d);
  if (d->collectives.ops != d->host.ops) drop_party(&d->collectives);
  d->collectives = (party){0};
  d->started = d->done = 0;
}

/* Called if sums do not arrive: a rank that does not answer now is missing. The others may already be at their next
 * vote. */
static brim_status call_the_roll(brim_dist *d)
{
  const brim_ballot here = {.meeting = BRIM_MEET_ROLL, .status = BRIM_ECOMM, .is_over = true};
  BRIM_TRY(exchange(d, &here, sizeof here, d->all, PATIENCE * d->options.timeout_seconds));
  (void)brim_fail(BRIM_ECOMM, "the sums over all ranks took longer than a quarter of dist.timeout_seconds=%g",
                  d->options.timeout_seconds);
  /* All ranks are present, so one of them reports the error. */
  return lose(d, d->world.rank == 0 ? BRIM_ECOMM : BRIM_EPEER, -1);
}

/* Yields the processor, which another rank on this host may need for the same sums; after a while sleeps. */
static void give_way(double waited)
{
  if (waited > WATCH_SECONDS)
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
  else
    sched_yield();
}

static brim_status wait_until(brim_dist *d, uint64_t ticket)
{
  double last = brim_now(), waited = 0;
  while (d->done < ticket) {
    const uint64_t before = d->done;
    if (d->is_lost) return lose(d, BRIM_ECOMM, -1);
    BRIM_TRY(brim_dist_progress(d));
    const double now = brim_now();
    if (d->done != before) waited = 0;
    waited += now - last < ASLEEP_SECONDS ? now - last : 0;
    last = now;
    if (d->done < ticket) give_way(waited);
    if (waited > SUMS_PATIENCE * d->options.timeout_seconds) return call_the_roll(d);
  }
  return BRIM_OK;
}

brim_status brim_dist_progress(brim_dist *d)
{
  if (d->started == d->done) return BRIM_OK;
  const brim_status status = d->is_lost ? BRIM_ECOMM : d->collectives.ops->poll(d->collectives.self, &d->done);
  return status == BRIM_OK ? BRIM_OK : lose(d, status, -1);
}

brim_status brim_dist_start(brim_dist *d, const brim_collective *what, void *queue, uint64_t *ticket)
{
  if (d->started >= BRIM_COLLECTIVES) BRIM_TRY(wait_until(d, d->started - BRIM_COLLECTIVES + 1));
  const brim_status status = d->is_lost ? BRIM_ECOMM : d->collectives.ops->start(d->collectives.self, what, queue);
  if (status != BRIM_OK) return lose(d, status, -1);
  *ticket = ++d->started;
  return BRIM_OK;
}

brim_status brim_dist_finish(brim_dist *d, uint64_t ticket)
{
  return wait_until(d, ticket);
}
