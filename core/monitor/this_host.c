/* See this_host.h. Joins what the sources say of the same device (by its key) and of the same process (by its pid):
 *
 *     backends        devices, their memory, and the processes that use it
 *     ledgers         devices that are shares of the host; any process may open them, so they need no configuration
 *     gauges          load, temperature, power
 *     live slots      runs and their progress
 *     claims          the queue
 *     run folders     curves, events, plans */
#include "monitor/this_host.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/host.h"
#include "base/text.h"
#include "brim/ledger.h"
#include "graph/plan.h"
#include "memory/board.h"
#include "memory/claims.h"
#include "memory/live.h"
#include "monitor/backends.h"
#include "monitor/folder.h"
#include "monitor/gauges.h"

#define USERS_KNOWN_MAX 64
#define LEDGER_ENDING ".ledger"
#define LEDGERS_MAX 8
#define IDLE_PERCENT 1.0 /* a GPU with less load is idle */

typedef struct known_user {
  uid_t uid;
  char name[64];
} known_user;

/* Data about a device that a look keeps for the next one. */
typedef struct past {
  uint64_t key;
  double idle_since; /* 0: it was not idle */
} past;

struct brim_this_host {
  brim_arena arena;
  const brim_registry *registry;
  brim_backends backends;
  brim_folder **folder;
  bool *is_used; /* by the current look */
  size_t folders, folder_room;
  known_user user[USERS_KNOWN_MAX];
  size_t users;
  past past[BRIM_LOOK_DEVICES_MAX];
  size_t pasts;
  uint64_t busy_ticks, ticks; /* of the processors, at the last look */
  brim_live_entry *live;      /* [BRIM_BOARD_SLOTS] */
};

/* One look. */
typedef struct looking {
  brim_this_host *l;
  brim_look *look;
  size_t host, first_device, first_run; /* of this host, in the look */
  uint64_t key[BRIM_LOOK_DEVICES_MAX];  /* of the devices from the first */
  size_t room[3];                       /* of devices, runs and tickets */
  size_t lives;
  const brim_live_entry **entry_of_run;
  double load; /* of the processors; NAN: not known yet */
} looking;

brim_this_host *brim_this_host_open(const brim_registry *registry)
{
  brim_this_host *l = brim_xcalloc(1, sizeof *l);
  l->registry = registry;
  l->live = brim_xcalloc(BRIM_BOARD_SLOTS, sizeof *l->live);
  brim_backends_open(registry, NULL, &l->arena, &l->backends);
  return l;
}

void brim_this_host_close(brim_this_host *l)
{
  if (!l) return;
  for (size_t i = 0; i < l->folders; i++) brim_folder_drop(l->folder[i]);
  brim_backends_close(&l->backends);
  free(l->live);
  brim_arena_release(&l->arena);
  free(l);
}

/* ---- users and processes ---- */

/* A name service may be slow, so each user is looked up once. */
static const char *user_name(brim_this_host *l, brim_arena *arena, uid_t uid)
{
  size_t i = 0;
  while (i < l->users && l->user[i].uid != uid) i++;
  if (i == l->users) {
    const struct passwd *entry = getpwuid(uid);
    if (l->users < USERS_KNOWN_MAX)
      l->users++;
    else
      i = 0;
    l->user[i].uid = uid;
    if (entry)
      snprintf(l->user[i].name, sizeof l->user[i].name, "%s", entry->pw_name);
    else
      snprintf(l->user[i].name, sizeof l->user[i].name, "%lu", (unsigned long)uid);
  }
  return brim_arena_string(arena, l->user[i].name);
}

/* The user of a process of this pid namespace; false if there is none. */
static bool find_uid(int64_t pid, uid_t *out)
{
  char path[64];
  struct stat info;
  snprintf(path, sizeof path, "/proc/%" PRId64, pid);
  if (stat(path, &info) != 0) return false;
  *out = info.st_uid;
  return true;
}

/* ---- the host ---- */

static void look_at_host(looking *k)
{
  char name[256] = "this host";
  double load[1];
  brim_look *look = k->look;
  const brim_host_use use = brim_host_use_read("/proc", "/sys/fs/cgroup");
  if (gethostname(name, sizeof name) == 0) name[sizeof name - 1] = '\0';
  const bool has_past = k->l->ticks > 0 && use.cpu_ticks > k->l->ticks && use.cpu_busy_ticks >= k->l->busy_ticks;
  k->load =
      has_past ? 100.0 * (double)(use.cpu_busy_ticks - k->l->busy_ticks) / (double)(use.cpu_ticks - k->l->ticks) : NAN;
  k->l->ticks = use.cpu_ticks;
  k->l->busy_ticks = use.cpu_busy_ticks;
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  const size_t count = look->hosts;
  size_t room = count;
  brim_look_host *host = BRIM_ARENA_GROW(&look->arena, look->host, count, room);
  host[count] = (brim_look_host){.name = brim_arena_string(&look->arena, name),
                                 .time = brim_wall_now(),
                                 .load = getloadavg(load, 1) == 1 ? load[0] : NAN,
                                 .processors = processors > 0 ? (double)processors : NAN,
                                 .ram_used_bytes = use.ram_used_bytes,
                                 .ram_total_bytes = use.ram_total_bytes,
                                 .swap_used_bytes = use.swap_used_bytes,
                                 .swap_total_bytes = use.swap_total_bytes,
                                 .failure = ""};
  k->host = count;
  look->hosts = count + 1;
}

/* ---- devices ---- */

static const char *text_of(looking *k, const char *text)
{
  return brim_arena_string(&k->look->arena, text);
}

static brim_look_device *add_device(looking *k, const char *label, const brim_device_info *info, uint64_t key)
{
  brim_look *look = k->look;
  if (look->devices == BRIM_LOOK_DEVICES_MAX) {
    brim_look_problem(look, "only the first %d devices are shown", BRIM_LOOK_DEVICES_MAX);
    return NULL;
  }
  BRIM_ARENA_GROW(&look->arena, look->device, look->devices, k->room[0]);
  k->key[look->devices - k->first_device] = key;
  brim_look_device *d = &look->device[look->devices++];
  const brim_gauges gauges = brim_gauges_read(info->uuid);
  *d = (brim_look_device){.host = k->host,
                          .label = text_of(k, label),
                          .name = text_of(k, info->name),
                          .uuid = text_of(k, info->uuid),
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

static const brim_live_entry *live_of(const looking *k, int64_t pid)
{
  for (size_t i = 0; i < k->lives; i++) {
    const brim_live_entry *e = &k->l->live[i];
    if (e->trust == BRIM_LIVE_GOOD && e->is_here && e->of.pid == pid) return e;
  }
  return NULL;
}

/* `is_ledger`: the users come from a ledger, so all of them are processes of brim. */
static void add_owners(looking *k, brim_look_device *d, const brim_device_user *user, size_t users, bool is_ledger)
{
  d->owner = BRIM_ARENA_NEW(&k->look->arena, brim_look_owner, users);
  for (size_t i = 0; i < users && i < BRIM_LOOK_OWNERS_MAX; i++) {
    uid_t uid = 0;
    const bool is_here = find_uid(user[i].pid, &uid);
    d->owner[d->owners++] = (brim_look_owner){
        .pid = user[i].pid,
        .bytes = user[i].bytes,
        .is_brim = is_ledger || live_of(k, user[i].pid),
        .is_mine = is_here && uid == geteuid(),
        .user = is_here ? user_name(k->l, &k->look->arena, uid) : "",
        .name = brim_arena_string_n(&k->look->arena, user[i].name, strnlen(user[i].name, sizeof user[i].name))};
  }
}

static void look_at_backend(looking *k, const brim_backend_seen *b)
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

/* "cpu-2x67108864.ledger": 2 devices of backend cpu with 64 MiB each. */
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

static void look_at_ledger(looking *k, const char *backend, int devices, uint64_t bytes)
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

static void look_at_ledgers(looking *k)
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

/* How long a GPU has been idle although processes hold its memory. */
static void look_at_idleness(looking *k)
{
  past now[BRIM_LOOK_DEVICES_MAX];
  const size_t devices = k->look->devices - k->first_device;
  const double time = k->look->host[k->host].time;
  for (size_t i = 0; i < devices; i++) {
    brim_look_device *d = &k->look->device[k->first_device + i];
    now[i] = (past){.key = k->key[i]};
    if (!(d->load < IDLE_PERCENT) || d->owners == 0 || !d->uuid[0]) continue;
    now[i].idle_since = time;
    for (size_t j = 0; j < k->l->pasts; j++)
      if (k->l->past[j].key == k->key[i] && k->l->past[j].idle_since > 0) now[i].idle_since = k->l->past[j].idle_since;
    d->idle_seconds = time - now[i].idle_since;
  }
  memcpy(k->l->past, now, devices * sizeof now[0]);
  k->l->pasts = devices;
}

static size_t device_of_key(const looking *k, uint64_t key)
{
  for (size_t i = 0; key && i < k->look->devices - k->first_device; i++)
    if (k->key[i] == key) return k->first_device + i;
  return BRIM_LOOK_NONE;
}

/* ---- runs ---- */

static brim_folder *follow(brim_this_host *l, const char *dir)
{
  for (size_t i = 0; i < l->folders; i++)
    if (strcmp(brim_folder_dir(l->folder[i]), dir) == 0) {
      l->is_used[i] = true;
      return l->folder[i];
    }
  brim_folder *folder = brim_folder_follow(dir);
  if (!folder) return NULL;
  if (l->folders == l->folder_room) {
    const size_t room = l->folder_room ? 2 * l->folder_room : 16;
    brim_folder **grown = BRIM_ARENA_NEW(&l->arena, brim_folder *, room);
    bool *used = BRIM_ARENA_NEW(&l->arena, bool, room);
    if (l->folders) memcpy(grown, l->folder, l->folders * sizeof *grown);
    if (l->folders) memcpy(used, l->is_used, l->folders * sizeof *used);
    l->folder = grown;
    l->is_used = used;
    l->folder_room = room;
  }
  l->is_used[l->folders] = true;
  l->folder[l->folders++] = folder;
  return folder;
}

static void drop_unused_folders(brim_this_host *l)
{
  size_t kept = 0;
  for (size_t i = 0; i < l->folders; i++) {
    if (l->is_used[i])
      l->folder[kept++] = l->folder[i];
    else
      brim_folder_drop(l->folder[i]);
  }
  l->folders = kept;
  for (size_t i = 0; i < kept; i++) l->is_used[i] = false;
}

/* The slot's classes are those of its placed plan; none: it has not placed one. */
static void add_classes(looking *k, const brim_live_slot *s, brim_look_run *run)
{
  run->memory = BRIM_ARENA_NEW(&k->look->arena, brim_look_class, BRIM_LIVE_CLASSES);
  for (uint32_t i = 0; i < BRIM_LIVE_CLASSES && i < BRIM_ROLE_COUNT; i++)
    if (s->class_bytes[i] > 0) run->memory[run->classes++] = (brim_look_class){brim_role_name(i), s->class_bytes[i]};
}

static void add_details(looking *k, const brim_live_entry *e, brim_look_run *run)
{
  const brim_live_slot *s = &e->of;
  char dir[BRIM_PATH_MAX];
  if (s->flags & BRIM_LIVE_DETAILS) {
    run->model = text_of(k, s->model);
    run->loss = s->loss;
    run->score = s->accuracy;
    run->score_name = isfinite(s->accuracy) ? "accuracy" : "";
    run->folder = text_of(k, s->run);
  }
  if (!brim_live_folder(e, dir, sizeof dir) || !brim_is_folder(dir)) return;
  brim_folder *folder = follow(k->l, dir);
  if (!folder) return;
  brim_folder_update(folder);
  brim_folder_describe(folder, &k->look->arena, run);
}

_Static_assert((int)BRIM_LIVE_WORKING == (int)BRIM_LOOK_WORKING, "the states of live slots come first, in their order");

static void add_run(looking *k, const brim_live_entry *e)
{
  const brim_live_slot *s = &e->of;
  brim_look *look = k->look;
  BRIM_ARENA_GROW(&look->arena, look->run, look->runs, k->room[1]);
  k->entry_of_run[look->runs - k->first_run] = e;
  brim_look_run *run = &look->run[look->runs++];
  *run =
      (brim_look_run){.host = k->host,
                      .state = s->state < BRIM_LIVE_STATE_COUNT ? (enum brim_look_state)s->state : BRIM_LOOK_PLANNING,
                      .pid = s->pid,
                      .is_mine = e->is_mine,
                      .user = user_name(k->l, &look->arena, s->uid),
                      .rank = s->rank,
                      .ranks = s->ranks,
                      .device = device_of_key(k, s->key),
                      .device_text = "",
                      .command = text_of(k, s->command),
                      .started = s->started,
                      .since = s->since,
                      .changed = s->updated,
                      .step = s->steps > 0 ? s->step : -1,
                      .steps = s->steps > 0 ? s->steps : -1,
                      .is_federated = s->flags & BRIM_LIVE_ROUNDS,
                      .rate = s->rate,
                      .counts_tokens = s->flags & BRIM_LIVE_TOKENS,
                      .seconds_left = s->left_seconds,
                      .device_bytes = s->peak_bytes ? s->peak_bytes : BRIM_BYTES_UNKNOWN,
                      .libraries_bytes = s->taken_bytes,
                      .folder = "",
                      .name = "",
                      .model = "",
                      .dataset = "",
                      .loss = NAN,
                      .score = NAN,
                      .epoch = s->epochs > 0 ? (double)s->epoch : NAN,
                      .epochs = s->epochs > 0 ? (double)s->epochs : NAN,
                      .score_name = "",
                      .queue_seconds = s->queue_seconds,
                      .step_seconds = NAN,
                      .predicted_step_seconds = NAN,
                      .loader_share = NAN,
                      .smaller_bytes = BRIM_BYTES_UNKNOWN};
  if (s->device >= 0) run->device_text = brim_arena_printf(&look->arena, "%s:%d", s->backend, s->device);
  add_classes(k, s, run);
  add_details(k, e, run);
}

static int by_start(const void *a, const void *b)
{
  const brim_live_slot *x = &((const brim_live_entry *)a)->of, *y = &((const brim_live_entry *)b)->of;
  if (x->started != y->started) return x->started < y->started ? -1 : 1;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

static void list_live(looking *k)
{
  char text[512];
  if (brim_live_list(k->l->live, &k->lives) != BRIM_OK) {
    k->lives = 0;
    brim_look_problem(k->look, "%s", brim_error_text());
  }
  for (size_t i = 0; i < k->lives; i++)
    if (k->l->live[i].trust != BRIM_LIVE_GOOD)
      brim_look_problem(k->look, "%s", brim_live_trouble(&k->l->live[i], text, sizeof text));
  qsort(k->l->live, k->lives, sizeof k->l->live[0], by_start);
}

static void look_at_runs(looking *k)
{
  for (size_t i = 0; i < k->lives && k->look->runs < BRIM_LOOK_RUNS_MAX; i++)
    if (k->l->live[i].trust == BRIM_LIVE_GOOD) add_run(k, &k->l->live[i]);
  drop_unused_folders(k->l);
}

/* ---- names ---- */

/* The last `parts` parts of a path. */
static const char *end_of_path(const char *dir, int parts)
{
  const char *s = dir + strlen(dir);
  for (; s > dir; s--)
    if (s[-1] == '/' && --parts == 0) return s;
  return dir;
}

static bool is_unique(const looking *k, const brim_look_run *run, const char *name, int parts)
{
  for (size_t i = k->first_run; i < k->look->runs; i++) {
    const brim_look_run *other = &k->look->run[i];
    if (!other->folder[0] || strcmp(other->folder, run->folder) == 0) continue; /* another rank */
    if (strcmp(end_of_path(other->folder, parts), name) == 0) return false;
  }
  return true;
}

static void name_runs(looking *k)
{
  enum { PARTS_MAX = 4 };
  for (size_t i = k->first_run; i < k->look->runs; i++) {
    brim_look_run *run = &k->look->run[i];
    int parts = 1;
    run->name =
        run->folder[0] ? end_of_path(run->folder, parts) : brim_arena_printf(&k->look->arena, "pid %" PRId64, run->pid);
    while (run->folder[0] && parts < PARTS_MAX && !is_unique(k, run, run->name, parts))
      run->name = end_of_path(run->folder, ++parts);
  }
}

/* ---- the queue ---- */

static void add_ticket(looking *k, const brim_ticket *t, size_t *place)
{
  brim_look *look = k->look;
  BRIM_ARENA_GROW(&look->arena, look->ticket, look->tickets, k->room[2]);
  brim_look_ticket *out = &look->ticket[look->tickets++];
  *out = (brim_look_ticket){.host = k->host,
                            .device = t->device < 0 ? BRIM_LOOK_NONE : device_of_key(k, t->claimed),
                            .run = BRIM_LOOK_NONE,
                            .pid = t->pid,
                            .need_bytes = t->need_bytes,
                            .since = t->since,
                            .starts = NAN,
                            .user = "",
                            .process = text_of(k, t->process),
                            .backend = text_of(k, t->backend),
                            .wish = text_of(k, t->wish)};
  if (t->device < 0) out->place = ++*place;
  out->accepts = BRIM_ARENA_NEW(&look->arena, size_t, t->keys);
  for (size_t i = 0; i < t->keys; i++) {
    const size_t device = device_of_key(k, t->key[i]);
    if (device != BRIM_LOOK_NONE) out->accepts[out->accept_count++] = device;
  }
  for (size_t i = k->first_run; i < look->runs; i++)
    if (look->run[i].pid == t->pid && k->entry_of_run[i - k->first_run]->is_here) out->run = i;
  uid_t uid = 0;
  if (out->run != BRIM_LOOK_NONE) {
    brim_look_run *run = &look->run[out->run];
    out->user = run->user;
    out->is_mine = run->is_mine;
    if (out->place > 0 && run->state == BRIM_LOOK_PLANNING) run->state = BRIM_LOOK_WAITING; /* its slot is older */
  } else if (find_uid(t->pid, &uid)) {
    out->user = user_name(k->l, &look->arena, uid);
    out->is_mine = uid == geteuid();
  }
}

static void look_at_queue(looking *k)
{
  brim_ticket *ticket;
  size_t count, place = 0;
  if (brim_claims_list(&k->look->arena, &ticket, &count) != BRIM_OK) {
    brim_look_problem(k->look, "%s", brim_error_text());
    return;
  }
  for (size_t i = 0; i < count && k->look->tickets < BRIM_LOOK_TICKETS_MAX; i++) add_ticket(k, &ticket[i], &place);
}

/* ---- memory by owner ---- */

/* Takes as much of *left as is there. */
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

/* The driver's figure for a process includes its plan; the rest is memory of libraries. */
static uint64_t libraries_of(const brim_look_device *d, const brim_look_run *run)
{
  for (size_t i = 0; i < d->owners; i++)
    if (d->owner[i].pid == run->pid && d->owner[i].bytes != BRIM_BYTES_UNKNOWN && d->owner[i].bytes > run->device_bytes)
      return d->owner[i].bytes - run->device_bytes;
  return run->libraries_bytes;
}

/* A ledger counts processes that publish nothing, too. */
static bool is_seen(const looking *k, int64_t pid)
{
  return live_of(k, pid) != NULL;
}

static void share_memory(looking *k, size_t device)
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

/* The memory of the host is a device of several backends, and no device that runs compete for: it is shown if a run
 * uses it, or if there is no other. */
static bool is_shown(const looking *k, size_t device)
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

static void leave_out_devices(looking *k)
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

void brim_this_host_look(brim_this_host *l, brim_look *look)
{
  looking k = {.l = l,
               .look = look,
               .first_device = look->devices,
               .first_run = look->runs,
               .room = {look->devices, look->runs, look->tickets}};
  k.entry_of_run = BRIM_ARENA_NEW(&look->arena, const brim_live_entry *, BRIM_BOARD_SLOTS);
  look_at_host(&k);
  list_live(&k);
  for (size_t i = 0; i < l->backends.count; i++) look_at_backend(&k, &l->backends.backend[i]);
  look_at_ledgers(&k);
  look_at_idleness(&k);
  look_at_runs(&k);
  look_at_queue(&k);
  name_runs(&k);
  for (size_t i = k.first_device; i < look->devices; i++) {
    share_memory(&k, i);
    if (look->device[i].owners > 0)
      qsort(look->device[i].owner, look->device[i].owners, sizeof(brim_look_owner), by_bytes);
  }
  leave_out_devices(&k);
}
