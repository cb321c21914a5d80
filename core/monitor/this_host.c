/* See this_host.h. Joins the data of these sources, for each device by its key and for each process by its pid:
 *
 *     backends        devices, their memory, and the processes that use it
 *     ledgers         devices that are shares of the host; any process may open them, so they need no configuration
 *     gauges          load, temperature, power
 *     live slots      runs and their progress
 *     claims          the queue
 *     run folders     curves, events, plans, and the ends of runs
 *
 * this_host_devices.c and this_host_runs.c are its parts. */
#include "monitor/this_host.h"

#include <inttypes.h>
#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/host.h"
#include "base/text.h"
#include "memory/claims.h"
#include "monitor/this_host_parts.h"

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
  brim_looking_forget_runs(l);
  for (size_t i = 0; i < l->folders; i++) brim_folder_drop(l->folder[i]);
  brim_backends_close(&l->backends);
  free(l->live);
  brim_arena_release(&l->arena);
  free(l);
}
/* ---- users and processes ---- */

const char *brim_looking_user(brim_looking *k, uid_t uid)
{
  brim_this_host *l = k->l;
  size_t i = 0;
  while (i < l->users && l->user[i].uid != uid) i++;
  if (i == l->users) {
    const struct passwd *entry = getpwuid(uid);
    if (l->users < BRIM_USERS_KNOWN_MAX)
      l->users++;
    else
      i = 0;
    l->user[i].uid = uid;
    if (entry)
      snprintf(l->user[i].name, sizeof l->user[i].name, "%s", entry->pw_name);
    else
      snprintf(l->user[i].name, sizeof l->user[i].name, "%lu", (unsigned long)uid);
  }
  return brim_arena_string(&k->look->arena, l->user[i].name);
}

bool brim_looking_find_uid(int64_t pid, uid_t *out)
{
  char path[64];
  struct stat info;
  snprintf(path, sizeof path, "/proc/%" PRId64, pid);
  if (stat(path, &info) != 0) return false;
  *out = info.st_uid;
  return true;
}

const char *brim_looking_text(brim_looking *k, const char *text)
{
  return brim_arena_string(&k->look->arena, text);
}

/* ---- the host ---- */

static void look_at_host(brim_looking *k)
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

/* ---- the queue ---- */

static void add_ticket(brim_looking *k, const brim_ticket *t, size_t *place)
{
  brim_look *look = k->look;
  BRIM_ARENA_GROW(&look->arena, look->ticket, look->tickets, k->ticket_room);
  brim_look_ticket *out = &look->ticket[look->tickets++];
  *out = (brim_look_ticket){.host = k->host,
                            .device = t->device < 0 ? BRIM_LOOK_NONE : brim_looking_device(k, t->claimed),
                            .run = BRIM_LOOK_NONE,
                            .pid = t->pid,
                            .need_bytes = t->need_bytes,
                            .since = t->since,
                            .starts = NAN,
                            .user = "",
                            .process = brim_looking_text(k, t->process),
                            .backend = brim_looking_text(k, t->backend),
                            .wish = brim_looking_text(k, t->wish)};
  if (t->device < 0) out->place = ++*place;
  out->accepts = BRIM_ARENA_NEW(&look->arena, size_t, t->keys);
  for (size_t i = 0; i < t->keys; i++) {
    const size_t device = brim_looking_device(k, t->key[i]);
    if (device != BRIM_LOOK_NONE) out->accepts[out->accept_count++] = device;
  }
  for (size_t i = k->first_run; i < look->runs; i++)
    if (look->run[i].pid == t->pid && k->entry_of_run[i - k->first_run]->is_here) out->run = i;
  uid_t uid = 0;
  if (out->run != BRIM_LOOK_NONE) {
    brim_look_run *run = &look->run[out->run];
    out->user = run->user;
    out->is_mine = run->is_mine;
    /* The run may have written its slot before its ticket, so the slot can still say "planning". */
    if (out->place > 0 && run->state == BRIM_LOOK_PLANNING) run->state = BRIM_LOOK_WAITING;
  } else if (brim_looking_find_uid(t->pid, &uid)) {
    out->user = brim_looking_user(k, uid);
    out->is_mine = uid == geteuid();
  }
}

static void look_at_queue(brim_looking *k)
{
  brim_ticket *ticket;
  size_t count, place = 0;
  if (brim_claims_list(&k->look->arena, &ticket, &count) != BRIM_OK) {
    brim_look_problem(k->look, "%s", brim_error_text());
    return;
  }
  for (size_t i = 0; i < count && k->look->tickets < BRIM_LOOK_TICKETS_MAX; i++) add_ticket(k, &ticket[i], &place);
}

void brim_this_host_look(brim_this_host *l, brim_look *look)
{
  brim_looking k = {.l = l,
                    .look = look,
                    .first_device = look->devices,
                    .first_run = look->runs,
                    .device_room = look->devices,
                    .run_room = look->runs,
                    .ticket_room = look->tickets};
  k.entry_of_run = BRIM_ARENA_NEW(&look->arena, const brim_live_entry *, BRIM_LOOK_RUNS_MAX);
  look_at_host(&k);
  brim_looking_list_live(&k);
  brim_looking_devices(&k);
  brim_looking_runs(&k);
  look_at_queue(&k);
  brim_looking_name_runs(&k);
  brim_looking_share_memory(&k);
  brim_looking_leave_out_devices(&k);
}
