#include "memory/claims.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/text.h"
#include "memory/board.h"
#include "memory/live.h"

#define MAGIC UINT64_C(0x33584B544D495242) /* "BRIMTKX3" */
#define NUMBER_MAX (INT64_MAX / 2)
#define SINCE_MAX 1e11           /* seconds since 1970 */
#define SLICE_SECONDS 0.05       /* longest time for which a signal may go unnoticed */
#define PLACING_SECONDS_MAX 60.0 /* how long a run that must not wait gives another run to place its claimed arena */

/* Devices are identified by keys: their numbers differ between processes, depending on CUDA_VISIBLE_DEVICES. */
typedef struct ticket {
  int64_t number, pid;
  uint64_t need_bytes;
  double since;
  uint64_t claimed;                     /* key of the device; 0: waiting */
  uint64_t key[BRIM_CLAIM_DEVICES_MAX]; /* keys of the acceptable devices */
  uint32_t keys;
  int32_t device; /* the claimed device, in this process's numbering */
  int32_t named;  /* the requested device, in this process's numbering; -1: any */
  char backend[32], process[32];
} ticket;

struct brim_claim {
  brim_board board;
  ticket own;
  uint64_t key[BRIM_CLAIM_DEVICES_MAX]; /* keys of the devices, by number */
  size_t slot;
};

/* The state of the queue for one ticket. */
typedef struct view {
  int device;   /* available now; -1: none */
  size_t ahead; /* number of earlier waiting tickets that accept one of the devices */
  bool placing; /* a process has claimed an acceptable device and is still placing its plan */
  int best;     /* the acceptable device with the most free memory */
  brim_device_info best_info;
  bool large; /* an acceptable device is large enough when empty */
} view;

uint64_t brim_device_key(const char *backend, int device, int devices, const brim_device_info *info)
{
  uint64_t hash = brim_hash(BRIM_HASH_START, backend, strlen(backend) + 1);
  if (info->uuid[0]) return brim_hash(hash, info->uuid, strlen(info->uuid));
  hash = brim_hash(hash, &device, sizeof device);
  hash = brim_hash(hash, &devices, sizeof devices);
  return brim_hash(hash, &info->total_bytes, sizeof info->total_bytes);
}

static bool has_key(const uint64_t *list, size_t count, uint64_t key)
{
  for (size_t i = 0; i < count; i++)
    if (list[i] == key) return true;
  return false;
}

static bool accepts(const ticket *t, uint64_t key)
{
  return has_key(t->key, t->keys, key);
}

/* ---- the queue, under its lock ---- */

/* Whether brim can have written a ticket. Any process may write to the board, so all other tickets are ignored. */
static bool is_sane(const ticket *t)
{
  return t->number >= 1 && t->number <= NUMBER_MAX && t->pid > 0 && t->need_bytes <= INT64_MAX && t->since >= 0 &&
         t->since < SINCE_MAX && t->keys <= BRIM_CLAIM_DEVICES_MAX && t->device >= -1 &&
         t->device < BRIM_CLAIM_DEVICES_MAX && t->named >= -1 && t->named < BRIM_CLAIM_DEVICES_MAX &&
         memchr(t->backend, 0, sizeof t->backend) && memchr(t->process, 0, sizeof t->process);
}

static brim_status read_ticket(brim_board *board, size_t slot, ticket *out, bool *alive)
{
  BRIM_TRY(brim_board_read(board, slot, out, alive));
  *alive = *alive && is_sane(out);
  return BRIM_OK;
}

static brim_status read_tickets(brim_board *board, ticket *out, size_t *count)
{
  *count = 0;
  for (size_t i = 0; i < BRIM_BOARD_SLOTS; i++) {
    bool alive;
    BRIM_TRY(read_ticket(board, i, &out[*count], &alive));
    *count += alive;
  }
  return BRIM_OK;
}

static brim_status open_queue(brim_board *board, double seconds)
{
  BRIM_TRY(brim_board_open(board, "queue", MAGIC, sizeof(ticket), seconds));
  const brim_status status = brim_board_lock(board);
  if (status != BRIM_OK) brim_board_close(board);
  return status;
}

/* Appends the ticket. `alone`: only if no other ticket waits for the claimed device, or has claimed it and is
 * placing. */
static brim_status enter(brim_claim *claim, bool alone)
{
  ticket *own = &claim->own;
  size_t free_slot = BRIM_BOARD_SLOTS;
  own->number = 1;
  for (size_t i = 0; i < BRIM_BOARD_SLOTS; i++) {
    ticket t;
    bool alive;
    BRIM_TRY(read_ticket(&claim->board, i, &t, &alive));
    if (alone && alive && (t.claimed == own->claimed || (t.claimed == 0 && accepts(&t, own->claimed))))
      return brim_fail(BRIM_ENODEVICE, "process %" PRId64 " %s the device", t.pid,
                       t.claimed ? "places on" : "waits for");
    if (!alive && free_slot == BRIM_BOARD_SLOTS && brim_board_is_free(&claim->board, i)) free_slot = i;
    if (alive && t.number >= own->number) own->number = t.number < NUMBER_MAX ? t.number + 1 : NUMBER_MAX;
  }
  if (free_slot == BRIM_BOARD_SLOTS)
    return brim_fail(BRIM_ENODEVICE, "%d processes already wait for devices, which is the maximum", BRIM_BOARD_SLOTS);
  claim->slot = free_slot;
  return brim_board_write(&claim->board, free_slot, own);
}

/* Whether other tickets leave this device to `own`: earlier tickets that wait for the device go first. */
static bool is_free_of_others(const ticket *own, uint64_t key, const ticket *all, size_t count, view *v)
{
  bool is_free = true;
  for (size_t i = 0; i < count; i++) {
    const ticket *t = &all[i];
    if (t->number == own->number) continue;
    if (t->claimed == key) v->placing = true;
    if (t->claimed == key || (t->claimed == 0 && t->number < own->number && accepts(t, key))) is_free = false;
  }
  return is_free;
}

static int device_count(const brim_claim_request *r)
{
  const int devices = r->ops->device_count(r->self);
  return devices < BRIM_CLAIM_DEVICES_MAX ? devices : BRIM_CLAIM_DEVICES_MAX;
}

static brim_status look_at_queue(brim_claim *claim, const brim_claim_request *r, ticket *all, view *v)
{
  size_t count;
  uint64_t most = 0;
  *v = (view){.device = -1, .best = -1};
  BRIM_TRY(read_tickets(&claim->board, all, &count));
  for (size_t i = 0; i < count; i++) {
    bool meets = false; /* whether both tickets accept a common device */
    for (uint32_t k = 0; k < all[i].keys; k++) meets = meets || accepts(&claim->own, all[i].key[k]);
    v->ahead += meets && all[i].claimed == 0 && all[i].number < claim->own.number;
  }
  const int devices = device_count(r);
  for (int i = 0; i < devices; i++) {
    brim_device_info info = {0};
    if (!accepts(&claim->own, claim->key[i])) continue;
    BRIM_TRY(r->ops->describe(r->self, i, &info));
    v->large = v->large || info.total_bytes >= r->need_bytes;
    if (v->best < 0 || info.free_bytes > v->best_info.free_bytes) {
      v->best = i;
      v->best_info = info;
    }
    if (!is_free_of_others(&claim->own, claim->key[i], all, count, v) || info.free_bytes < r->need_bytes) continue;
    if (v->device >= 0 && (!r->wish.most_free || info.free_bytes <= most)) continue;
    v->device = i;
    most = info.free_bytes;
  }
  if (v->device < 0) return BRIM_OK;
  claim->own.device = v->device;
  claim->own.claimed = claim->key[v->device];
  return brim_board_write(&claim->board, claim->slot, &claim->own);
}

static brim_status look_alone(brim_claim *claim, const brim_claim_request *r, view *v)
{
  ticket *all = brim_try_malloc(BRIM_BOARD_SLOTS * sizeof *all);
  if (!all) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the queue's tickets");
  brim_status status = brim_board_lock(&claim->board);
  if (status == BRIM_OK) {
    status = look_at_queue(claim, r, all, v);
    brim_board_unlock(&claim->board);
  }
  free(all);
  return status;
}

/* ---- waiting ---- */

/* Formats "3rd in line, 1.2 GiB of 4.0 GiB free on cuda:0, since 04:10". */
static const char *describe_wait(char *out, size_t room, const brim_claim *claim, const brim_claim_request *r,
                                 const view *v)
{
  char a[32], b[32], since[16];
  const size_t n = v->ahead + 1;
  const char *ending = n % 100 / 10 == 1 ? "th" : n % 10 == 1 ? "st" : n % 10 == 2 ? "nd" : n % 10 == 3 ? "rd" : "th";
  snprintf(out, room, "%zu%s in line, %s of %s free on %s:%d, since %s", n, ending,
           brim_format_bytes(a, sizeof a, v->best_info.free_bytes),
           brim_format_bytes(b, sizeof b, v->best_info.total_bytes), r->backend, v->best,
           brim_format_hour(since, sizeof since, claim->own.since));
  return out;
}

static bool is_stopped(const brim_claim_request *r)
{
  return r->stop && *r->stop;
}

static void sleep_for(const brim_claim_request *r, double seconds)
{
  for (; seconds > 0 && !is_stopped(r); seconds -= SLICE_SECONDS) {
    const double slice = seconds < SLICE_SECONDS ? seconds : SLICE_SECONDS;
    nanosleep(&(struct timespec){0, (long)(slice * 1e9)}, NULL);
  }
}

static brim_status refuse(const brim_claim *claim, const brim_claim_request *r, const view *v)
{
  char a[32], b[32], text[256];
  if (!v->large)
    return brim_fail(BRIM_ENOMEM_DEVICE, "the run needs %s, but %s:%d has only %s in total",
                     brim_format_bytes(a, sizeof a, r->need_bytes), r->backend, v->best,
                     brim_format_bytes(b, sizeof b, v->best_info.total_bytes));
  if (v->ahead > 0)
    return brim_fail(BRIM_ENODEVICE, "%zu run%s for the same device%s; set wait_for_gpu=true to join the queue",
                     v->ahead, v->ahead == 1 ? " waits" : "s wait", claim->own.named < 0 ? "s" : "");
  return brim_fail(BRIM_ENOMEM_DEVICE,
                   "no device has the %s free that the run needs: %s\nset wait_for_gpu=true to wait",
                   brim_format_bytes(a, sizeof a, r->need_bytes), describe_wait(text, sizeof text, claim, r, v));
}

static brim_status wait_for_turn(brim_claim *claim, const brim_claim_request *r, int *device, double *waited_seconds)
{
  char text[256], shown[256] = "";
  const double start = brim_now(), patience = r->wait ? r->timeout_seconds : PLACING_SECONDS_MAX;
  double shown_at = 0, pause = BRIM_CLAIM_LOOK_SECONDS;
  bool waits = false;
  for (;;) {
    view v;
    BRIM_TRY(look_alone(claim, r, &v));
    *device = v.device;
    const double waited = brim_now() - start;
    if (waits) *waited_seconds = waited;
    if (v.device >= 0) return BRIM_OK;
    describe_wait(text, sizeof text, claim, r, &v);
    if (is_stopped(r)) return brim_fail(BRIM_EINTERRUPTED, "interrupted while waiting for a device: %s", text);
    if ((!r->wait && !v.placing) || !v.large) return refuse(claim, r, &v);
    if (waited >= patience)
      return brim_fail(BRIM_ENODEVICE, "no device became free in %.4g minutes (gpu_wait_timeout_minutes): %s",
                       patience / 60, text);
    if (!waits && r->on_wait) r->on_wait(r->context, text);
    waits = true;
    brim_live_wait(v.ahead + 1, r->need_bytes);
    if (r->wait && strcmp(text, shown) != 0 && (!shown[0] || brim_now() - shown_at >= r->interval_seconds)) {
      brim_log(BRIM_LOG_INFO, "waiting: %s", text);
      memcpy(shown, text, sizeof shown);
      shown_at = brim_now();
    }
    sleep_for(r, pause < patience - waited ? pause : patience - waited);
    pause = pause * 2 < r->interval_seconds ? pause * 2 : r->interval_seconds;
  }
}

/* ---- tickets ---- */

static brim_status fill_ticket(brim_claim *claim, const brim_claim_request *r, int named)
{
  ticket *t = &claim->own;
  const int devices = device_count(r);
  *t = (ticket){.pid = getpid(), .need_bytes = r->need_bytes, .since = brim_wall_now(), .device = -1, .named = named};
  snprintf(t->backend, sizeof t->backend, "%s", r->backend);
  brim_process_name(t->process, sizeof t->process);
  for (int i = 0; i < devices; i++) {
    brim_device_info info = {0};
    BRIM_TRY(r->ops->describe(r->self, i, &info));
    claim->key[i] = brim_device_key(r->backend, i, devices, &info);
    if (named < 0 || named == i) t->key[t->keys++] = claim->key[i];
  }
  return BRIM_OK;
}

/* Joins the queue with a ticket that has claimed the device (`holds`), or waits for it; -1: for any device. */
static brim_status join(brim_claim *claim, const brim_claim_request *r, int device, bool holds, bool alone)
{
  BRIM_TRY(fill_ticket(claim, r, device));
  if (holds) {
    claim->own.device = device;
    claim->own.claimed = claim->key[device];
  }
  BRIM_TRY(open_queue(&claim->board, BRIM_BOARD_SECONDS));
  const brim_status status = enter(claim, alone);
  brim_board_unlock(&claim->board);
  return status;
}

static brim_status hand_over(brim_claim *claim, brim_status status, brim_claim **out)
{
  if (status == BRIM_OK)
    *out = claim;
  else
    brim_claim_release(claim);
  return status;
}

brim_status brim_claim_take(const brim_claim_request *r, brim_claim **out, int *device, double *waited_seconds)
{
  int named;
  *waited_seconds = 0;
  brim_claim *claim = brim_xcalloc(1, sizeof *claim);
  claim->board.fd = -1;
  brim_status status = brim_device_named(r->backend, r->ops, r->self, &r->wish, &named);
  if (status == BRIM_OK && named >= device_count(r))
    status = brim_fail(BRIM_ENODEVICE, "only the first %d devices have a queue", BRIM_CLAIM_DEVICES_MAX);
  if (status == BRIM_OK) status = join(claim, r, named, false, false);
  if (status == BRIM_OK) status = wait_for_turn(claim, r, device, waited_seconds);
  brim_live_wait(0, 0);
  return hand_over(claim, status, out);
}

brim_status brim_claim_hold(const brim_claim_request *r, int device, bool alone, brim_claim **out)
{
  if (device >= device_count(r))
    return brim_fail(BRIM_ENODEVICE, "only the first %d devices can be held", BRIM_CLAIM_DEVICES_MAX);
  brim_claim *claim = brim_xcalloc(1, sizeof *claim);
  claim->board.fd = -1;
  return hand_over(claim, join(claim, r, device, true, alone), out);
}

void brim_claim_release(brim_claim *claim)
{
  if (!claim) return;
  brim_board_close(&claim->board);
  free(claim);
}

static int by_number(const void *a, const void *b)
{
  const ticket *x = a, *y = b;
  return (x->number > y->number) - (x->number < y->number);
}

bool brim_ticket_accepts(const brim_ticket *t, uint64_t key)
{
  return has_key(t->key, t->keys, key);
}

brim_status brim_claims_waiting(uint64_t key, size_t *count, uint64_t *first_bytes)
{
  brim_board board;
  *count = 0;
  *first_bytes = 0;
  BRIM_TRY(open_queue(&board, BRIM_BOARD_GLANCE));
  brim_status status = BRIM_OK;
  int64_t first = INT64_MAX;
  for (size_t i = 0; status == BRIM_OK && i < BRIM_BOARD_SLOTS; i++) {
    ticket t;
    bool alive;
    status = read_ticket(&board, i, &t, &alive);
    if (status != BRIM_OK || !alive || t.claimed != 0 || !accepts(&t, key)) continue;
    ++*count;
    if (t.number > first) continue;
    first = t.number;
    *first_bytes = t.need_bytes;
  }
  brim_board_unlock(&board);
  brim_board_close(&board);
  return status;
}

brim_status brim_claims_list(brim_arena *arena, brim_ticket **out, size_t *count)
{
  brim_board board;
  ticket *all = BRIM_ARENA_NEW(arena, ticket, BRIM_BOARD_SLOTS);
  *out = BRIM_ARENA_NEW(arena, brim_ticket, BRIM_BOARD_SLOTS);
  BRIM_TRY(open_queue(&board, BRIM_BOARD_SECONDS));
  const brim_status status = read_tickets(&board, all, count);
  brim_board_unlock(&board);
  brim_board_close(&board);
  BRIM_TRY(status);
  qsort(all, *count, sizeof *all, by_number);
  for (size_t i = 0; i < *count; i++) {
    const ticket *t = &all[i];
    const char *backend = brim_arena_string(arena, t->backend);
    (*out)[i] = (brim_ticket){.pid = t->pid,
                              .need_bytes = t->need_bytes,
                              .since = t->since,
                              .device = t->claimed ? t->device : -1,
                              .key = brim_arena_copy(arena, t->key, sizeof t->key),
                              .keys = t->keys,
                              .claimed = t->claimed,
                              .process = brim_arena_string(arena, t->process),
                              .backend = backend,
                              .wish = t->named < 0 ? "any" : brim_arena_printf(arena, "%s:%d", backend, t->named)};
  }
  return BRIM_OK;
}
