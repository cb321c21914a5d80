/* Finds the devices of this host, and the owners of the memory in use on each. See this_host_parts.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/host.h"
#include "base/text.h"
#include "brim/ledger.h"
#include "memory/claims.h"
#include "monitor/gauges.h"
#include "monitor/this_host_parts.h"

#define LEDGER_ENDING ".ledger"
#define LEDGERS_MAX 8
#define IDLE_PERCENT 1.0 /* a GPU with less load is idle */

/* ---- devices ---- */

static brim_look_device *add_device(brim_looking *k, const char *label, const brim_device_info *info, uint64_t key)
{
  brim_look *look = k->look;
  if (look->devices == BRIM_LOOK_DEVICES_MAX) {
    brim_look_problem(look, "only the first %d devices are shown", BRIM_LOOK_DEVICES_MAX);
    return NULL;
  }
  BRIM_ARENA_GROW(&look->arena, look->device, look->devices, k->device_room);
  k->key[look->devices - k->first_device] = key;
  brim_look_device *d = &look->device[look->devices++];
  const brim_gauges gauges = brim_gauges_read(info->uuid);
  *d = (brim_look_device){.host = k->host,
                          .label = brim_looking_text(k, label),
                          .name = brim_looking_text(k, info->name),
                          .uuid = brim_looking_text(k, info->uuid),
                          .total_bytes = info->total_bytes,
                          .free_bytes = info->free_bytes,
                          .is_host = info->on_host && !info->limited,
                          .load = info->on_host ? k->load : gauges.load,
                          .celsius = gauges.celsius,
                          .watts = gauges.watts,
                          .watts_max = gauges.watts_max,
                          .idle_seconds = NAN};
  if (d->free_bytes > d->total_bytes) d->free_bytes = d->total_bytes;
  return d;
}

/* Whether a process of this pid namespace publishes its state. */
static bool is_seen(const brim_looking *k, int64_t pid)
{
  for (size_t i = 0; i < k->lives; i++) {
    const brim_live_entry *e = &k->l->live[i];
    if (e->trust == BRIM_LIVE_GOOD && e->is_here && e->of.pid == pid) return true;
  }
  return false;
}

/* Adds the owners; `is_ledger`: they come from a ledger, so all of them are processes of brim. */
static void add_owners(brim_looking *k, brim_look_device *d, const brim_device_user *user, size_t users, bool is_ledger)
{
  d->owner = BRIM_ARENA_NEW(&k->look->arena, brim_look_owner, users);
  for (size_t i = 0; i < users && i < BRIM_LOOK_OWNERS_MAX; i++) {
    uid_t uid = 0;
    const bool is_here = brim_looking_find_uid(user[i].pid, &uid);
    d->owner[d->owners++] = (brim_look_owner){
        .pid = user[i].pid,
        .bytes = user[i].bytes,
        .is_brim = is_ledger || is_seen(k, user[i].pid),
        .is_mine = is_here && uid == geteuid(),
        .user = is_here ? brim_looking_user(k, uid) : "",
        .name = brim_arena_string_n(&k->look->arena, user[i].name, strnlen(user[i].name, sizeof user[i].name))};
  }
}

static void look_at_backend(brim_looking *k, const brim_backend_seen *b)
{
  if (b->failure) return; /* `brim devices` says why */
  for (int i = 0; i < b->devices; i++) {
    char label[80];
    brim_device_seen seen;
    snprintf(label, sizeof label, "%s:%d", b->id, i);
    if (brim_device_see(b, i, &k->look->arena, &seen) != BRIM_OK) {
      brim_look_problem(k->look, "%s: %s", label, brim_error_text());
      continue;
    }
    if (seen.users_failure) brim_look_problem(k->look, "%s: %s", label, seen.users_failure);
    brim_look_device *d = add_device(k, label, &seen.info, seen.key);
    if (d) add_owners(k, d, seen.user, seen.users, seen.info.limited);
  }
}

/* Reads "cpu-2x67108864.ledger": 2 devices of backend cpu with 64 MiB each. */
static bool read_ledger_name(const char *file, char *backend, size_t room, int *devices, uint64_t *bytes)
{
  const char *dash = strrchr(file, '-');
  int end = 0;
  if (!dash || dash == file || (size_t)(dash - file) >= room || !brim_ends_with(file, LEDGER_ENDING)) return false;
  if (sscanf(dash, "-%dx%" SCNu64 "%n", devices, bytes, &end) != 2) return false;
  if (strcmp(dash + end, LEDGER_ENDING) != 0 || *devices < 1 || *devices > BRIM_CLAIM_DEVICES_MAX) return false;
  snprintf(backend, room, "%.*s", (int)(dash - file), file);
  return *bytes > 0 && *bytes <= INT64_MAX;
}

static void look_at_ledger(brim_looking *k, const char *backend, int devices, uint64_t bytes)
{
  brim_ledger *ledger = NULL;
  brim_device_user *user = BRIM_ARENA_NEW(&k->look->arena, brim_device_user, BRIM_USERS_MAX);
  const brim_host_memory host = brim_host_memory_now();
  if (brim_ledger_open(backend, devices, bytes, &ledger) != BRIM_OK) {
    brim_look_problem(k->look, "%s", brim_error_text());
    return;
  }
  for (int i = 0; i < devices; i++) {
    char label[80], total[32];
    size_t users = 0;
    uint64_t used = 0;
    snprintf(label, sizeof label, "%s:%d", backend, i);
    brim_status status = brim_ledger_users(ledger, i, user, BRIM_USERS_MAX, &users);
    if (status == BRIM_OK) status = brim_ledger_used(ledger, i, &used);
    if (status != BRIM_OK) {
      brim_look_problem(k->look, "%s: %s", label, brim_error_text());
      continue;
    }
    brim_device_info info = {
        .total_bytes = bytes < host.total_bytes ? bytes : host.total_bytes, .on_host = 1, .limited = 1};
    snprintf(info.name, sizeof info.name, "share of this host, %s", brim_format_bytes(total, sizeof total, bytes));
    info.free_bytes = bytes - used < host.available_bytes ? bytes - used : host.available_bytes;
    brim_look_device *d = add_device(k, label, &info, brim_device_key(backend, i, devices, &info));
    if (d) add_owners(k, d, user, users < BRIM_USERS_MAX ? users : BRIM_USERS_MAX, true);
  }
  brim_ledger_close(ledger);
}

static void look_at_ledgers(brim_looking *k)
{
  const char **name;
  size_t count, ledgers = 0;
  if (!brim_folder_names(&k->look->arena, brim_shared_folder(), &name, &count)) return;
  for (size_t i = 0; i < count && ledgers < LEDGERS_MAX; i++) {
    char backend[32];
    int devices;
    uint64_t bytes;
    if (!read_ledger_name(name[i], backend, sizeof backend, &devices, &bytes)) continue;
    look_at_ledger(k, backend, devices, bytes);
    ledgers++;
  }
}

/* Measures how long a GPU has been idle although processes have memory on it. */
static void look_at_idleness(brim_looking *k)
{
  brim_past_device now[BRIM_LOOK_DEVICES_MAX];
  const size_t devices = k->look->devices - k->first_device;
  const double time = k->look->host[k->host].time;
  for (size_t i = 0; i < devices; i++) {
    brim_look_device *d = &k->look->device[k->first_device + i];
    now[i] = (brim_past_device){.key = k->key[i]};
    if (!(d->load < IDLE_PERCENT) || d->owners == 0 || !d->uuid[0]) continue;
    now[i].idle_since = time;
    for (size_t j = 0; j < k->l->pasts; j++)
      if (k->l->past[j].key == k->key[i] && k->l->past[j].idle_since > 0) now[i].idle_since = k->l->past[j].idle_since;
    d->idle_seconds = time - now[i].idle_since;
  }
  memcpy(k->l->past, now, devices * sizeof now[0]);
  k->l->pasts = devices;
}

size_t brim_looking_device(const brim_looking *k, uint64_t key)
{
  for (size_t i = 0; key && i < k->look->devices - k->first_device; i++)
    if (k->key[i] == key) return k->first_device + i;
  return BRIM_LOOK_NONE;
}

void brim_looking_devices(brim_looking *k)
{
  for (size_t i = 0; i < k->l->backends.count; i++) look_at_backend(k, &k->l->backends.backend[i]);
  look_at_ledgers(k);
  look_at_idleness(k);
}

/* ---- memory by owner ---- */

/* Takes up to `bytes` from *left, and returns how many it took. */
static uint64_t take(uint64_t *left, uint64_t bytes)
{
  const uint64_t taken = bytes < *left ? bytes : *left;
  *left -= taken;
  return taken;
}

static bool has_placed(const brim_look_run *run)
{
  return run->device != BRIM_LOOK_NONE && run->state != BRIM_LOOK_WAITING && run->device_bytes != BRIM_BYTES_UNKNOWN;
}

/* Returns a process's memory of libraries: the driver's figure, which includes its plan, minus the plan. */
static uint64_t libraries_of(const brim_look_device *d, const brim_look_run *run)
{
  for (size_t i = 0; i < d->owners; i++)
    if (d->owner[i].pid == run->pid && d->owner[i].bytes != BRIM_BYTES_UNKNOWN && d->owner[i].bytes > run->device_bytes)
      return d->owner[i].bytes - run->device_bytes;
  return run->libraries_bytes;
}

static void share_memory(brim_looking *k, size_t device)
{
  brim_look_device *d = &k->look->device[device];
  uint64_t left = d->total_bytes - d->free_bytes;
  for (size_t i = k->first_run; i < k->look->runs; i++) {
    const brim_look_run *run = &k->look->run[i];
    if (run->device != device || !has_placed(run)) continue;
    *(run->is_mine ? &d->mine_bytes : &d->brim_bytes) += take(&left, run->device_bytes);
    d->libraries_bytes += take(&left, libraries_of(d, run));
  }
  for (size_t i = 0; i < d->owners; i++) {
    const brim_look_owner *o = &d->owner[i];
    if (!o->is_brim || o->bytes == BRIM_BYTES_UNKNOWN || is_seen(k, o->pid)) continue;
    *(o->is_mine ? &d->mine_bytes : &d->brim_bytes) += take(&left, o->bytes);
  }
  d->other_bytes = left;
}

static int by_bytes(const void *a, const void *b)
{
  const brim_look_owner *x = a, *y = b;
  const uint64_t p = x->bytes == BRIM_BYTES_UNKNOWN ? 0 : x->bytes, q = y->bytes == BRIM_BYTES_UNKNOWN ? 0 : y->bytes;
  return p != q ? (p < q ? 1 : -1) : (x->pid > y->pid) - (x->pid < y->pid);
}

/* Whether to show a device. The memory of the host is a device of several backends, for which runs do not compete. It
 * is shown only if a run uses it, or if there is no other device. */
static bool is_shown(const brim_looking *k, size_t device)
{
  const brim_look *look = k->look;
  bool has_other = device != k->first_device;
  if (!look->device[device].is_host) return true;
  for (size_t i = k->first_run; i < look->runs; i++)
    if (look->run[i].device == device) return true;
  for (size_t i = k->first_device; i < look->devices; i++) has_other = has_other || !look->device[i].is_host;
  return !has_other;
}

static size_t moved(size_t index, const size_t *new_index, size_t first)
{
  return index == BRIM_LOOK_NONE || index < first ? index : new_index[index - first];
}

void brim_looking_leave_out_devices(brim_looking *k)
{
  brim_look *look = k->look;
  size_t new_index[BRIM_LOOK_DEVICES_MAX], kept = k->first_device;
  for (size_t i = k->first_device; i < look->devices; i++) {
    const bool is = is_shown(k, i);
    new_index[i - k->first_device] = is ? kept : BRIM_LOOK_NONE;
    if (is) look->device[kept++] = look->device[i];
  }
  look->devices = kept;
  for (size_t i = k->first_run; i < look->runs; i++)
    look->run[i].device = moved(look->run[i].device, new_index, k->first_device);
  for (size_t i = 0; i < look->tickets; i++) {
    brim_look_ticket *t = &look->ticket[i];
    size_t count = 0;
    if (t->host != k->host) continue;
    t->device = moved(t->device, new_index, k->first_device);
    for (size_t j = 0; j < t->accept_count; j++) {
      const size_t device = moved(t->accepts[j], new_index, k->first_device);
      if (device != BRIM_LOOK_NONE) t->accepts[count++] = device;
    }
    t->accept_count = count;
  }
}

void brim_looking_share_memory(brim_looking *k)
{
  const brim_look *look = k->look;
  for (size_t i = k->first_device; i < look->devices; i++) {
    share_memory(k, i);
    if (look->device[i].owners > 0)
      qsort(look->device[i].owner, look->device[i].owners, sizeof(brim_look_owner), by_bytes);
  }
}
