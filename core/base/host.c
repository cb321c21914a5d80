/* The limits of a process's own control group and of every group above it apply. So brim reads each, from the process's
 * group up to the root of the mount, and uses the tightest limit. In a container the path in /proc may not exist below
 * the mount, whose root is then the container's group, so brim reads the root too.
 *
 * Version 1 has one hierarchy per controller (lines "4:memory:/path"), version 2 a single one ("0::/path"). */
#include "base/host.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

enum { PATH_BYTES = 4096, TEXT_BYTES = 8192 };

/* Allocates no memory, because the pressure thread (memory/pressure.h) calls this while steps run. */
static bool read_text(const char *folder, const char *file, char *text, size_t bytes)
{
  char path[PATH_BYTES];
  const int length = snprintf(path, sizeof path, "%s/%s", folder, file);
  return length > 0 && (size_t)length < sizeof path && brim_file_start(path, text, bytes) > 0;
}

/* Reads a file with one number; "max" and -1 mean no limit. */
static bool read_number(const char *folder, const char *file, uint64_t *out)
{
  char text[64];
  if (!read_text(folder, file, text, sizeof text)) return false;
  if (text[0] < '0' || text[0] > '9') return false;
  *out = strtoull(text, NULL, 10);
  return true;
}

/* Returns the bytes of inactive file pages, which the kernel drops before it refuses memory. */
static uint64_t reclaimable(const char *folder, const char *key)
{
  char text[TEXT_BYTES];
  if (!read_text(folder, "memory.stat", text, sizeof text)) return 0;
  const size_t length = strlen(key);
  for (const char *line = text; line; line = strchr(line, '\n')) {
    if (*line == '\n') line++;
    if (strncmp(line, key, length) == 0 && line[length] == ' ') return strtoull(line + length, NULL, 10);
  }
  return 0;
}

/* Looks for class 0x03 on the PCI bus: display controllers, which include GPUs without a display (0x0302). */
bool brim_host_has_nvidia(const char *bus)
{
  bool found = false;
  DIR *folder = opendir(bus);
  if (!folder) return false;
  for (const struct dirent *entry; !found && (entry = readdir(folder)) != NULL;) {
    char device[PATH_BYTES], vendor[16], class[16];
    const int length = snprintf(device, sizeof device, "%s/%s", bus, entry->d_name);
    found = length > 0 && (size_t)length < sizeof device && read_text(device, "vendor", vendor, sizeof vendor) &&
            read_text(device, "class", class, sizeof class) && strncmp(vendor, "0x10de", 6) == 0 &&
            strncmp(class, "0x03", 4) == 0;
  }
  closedir(folder);
  return found;
}

/* Reads a control group's limit and its memory in use, without page cache that the kernel can reclaim immediately
 * (UINT64_MAX: unknown). Returns false if there is no limit or it cannot be read. */
static bool read_memory(const char *folder, bool version2, uint64_t *limit, uint64_t *used)
{
  if (!read_number(folder, version2 ? "memory.max" : "memory.limit_in_bytes", limit)) return false;
  if (*limit >= (uint64_t)1 << 62) return false; /* version 1 uses a huge number for "no limit" */
  if (!read_number(folder, version2 ? "memory.current" : "memory.usage_in_bytes", used)) {
    *used = UINT64_MAX;
    return true;
  }
  const uint64_t file = reclaimable(folder, version2 ? "inactive_file" : "total_inactive_file");
  *used -= file < *used ? file : *used;
  return true;
}

static void bound_memory(void *out, const char *folder, bool version2)
{
  brim_cgroup *c = out;
  uint64_t limit, used;
  if (!read_memory(folder, version2, &limit, &used)) return;
  if (limit < c->memory_limit) c->memory_limit = limit;
  if (used == UINT64_MAX) return;
  const uint64_t headroom = limit > used ? limit - used : 0;
  if (headroom < c->memory_headroom) c->memory_headroom = headroom;
}

static void bound_processors(void *out, const char *folder, bool version2)
{
  brim_cgroup *c = out;
  uint64_t quota = 0, period = 0;
  if (version2) {
    char text[64];
    if (!read_text(folder, "cpu.max", text, sizeof text)) return;
    if (sscanf(text, "%" SCNu64 " %" SCNu64, &quota, &period) != 2) return;
  } else {
    if (!read_number(folder, "cpu.cfs_quota_us", &quota) || !read_number(folder, "cpu.cfs_period_us", &period)) return;
  }
  if (quota == 0 || period == 0) return;
  const double processors = (double)quota / (double)period;
  if (c->processors == 0 || processors < c->processors) c->processors = processors;
}

typedef void (*group_fn)(void *out, const char *folder, bool version2);

/* Calls visit() for hierarchy/path and every folder above it, including the hierarchy's root. */
static void visit_ancestors(const char *hierarchy, const char *path, bool version2, group_fn visit, void *out)
{
  char folder[PATH_BYTES];
  const size_t root = strlen(hierarchy);
  const int length = snprintf(folder, sizeof folder, "%s%s", hierarchy, path);
  if (!visit || length < 0 || (size_t)length >= sizeof folder) return;
  for (;;) {
    visit(out, folder, version2);
    char *slash = strrchr(folder + root, '/');
    if (!slash) return;
    *slash = '\0';
  }
}

/* Whether the comma-separated list contains `name`. */
static bool lists(const char *list, const char *name)
{
  const size_t length = strlen(name);
  for (const char *at = list; *at;) {
    const size_t item = strcspn(at, ",");
    if (item == length && strncmp(at, name, length) == 0) return true;
    at += item + (at[item] == ',');
  }
  return false;
}

/* The functions that read the limits of each group that applies to the process; NULL: not needed. */
typedef struct group_readers {
  group_fn memory, processors;
  void *out;
} group_readers;

static void read_line_of_groups(const group_readers *l, const char *mount, char *line)
{
  char hierarchy[PATH_BYTES];
  char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
  if (!path) return;
  controllers++;
  *path++ = '\0';
  if (*controllers == '\0') {
    visit_ancestors(mount, path, true, l->memory, l->out);
    visit_ancestors(mount, path, true, l->processors, l->out);
    return;
  }
  if (lists(controllers, "memory") && snprintf(hierarchy, sizeof hierarchy, "%s/memory", mount) > 0)
    visit_ancestors(hierarchy, path, false, l->memory, l->out);
  if (lists(controllers, "cpu") && snprintf(hierarchy, sizeof hierarchy, "%s/cpu", mount) > 0)
    visit_ancestors(hierarchy, path, false, l->processors, l->out);
}

static void read_groups(const group_readers *l, const char *mount, const char *membership)
{
  char text[TEXT_BYTES];
  if (brim_file_start(membership, text, sizeof text) == 0) return;
  for (char *line = text, *end; *line; line = end) {
    end = line + strcspn(line, "\n");
    if (*end) *end++ = '\0';
    read_line_of_groups(l, mount, line);
  }
}

/* Reads only the requested limits. */
static brim_cgroup read_limits(const char *mount, const char *membership, bool memory, bool processors)
{
  brim_cgroup c = {.memory_limit = UINT64_MAX, .memory_headroom = UINT64_MAX};
  read_groups(&(group_readers){memory ? bound_memory : NULL, processors ? bound_processors : NULL, &c}, mount,
              membership);
  return c;
}

brim_cgroup brim_cgroup_read(const char *mount, const char *membership)
{
  return read_limits(mount, membership, true, true);
}

#define MOUNT "/sys/fs/cgroup"
#define MEMBERSHIP "/proc/self/cgroup"

/* ---- processors ---- */

static int32_t ranks_here = 1;
static double own_share; /* number of this rank's processors; 0: all of them */

void brim_host_share_with(int32_t ranks, double processors)
{
  ranks_here = ranks;
  own_share = processors;
}

int32_t brim_host_ranks(void)
{
  return ranks_here;
}

static double quota_read;
static pthread_once_t quota_once = PTHREAD_ONCE_INIT;

static void read_quota(void)
{
  quota_read = read_limits(MOUNT, MEMBERSHIP, false, true).processors;
}

double brim_host_quota(void)
{
  pthread_once(&quota_once, read_quota);
  return quota_read;
}

int32_t brim_host_threads(void)
{
  cpu_set_t set;
  int32_t threads =
      sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
  const double quota = brim_host_quota();
  const int32_t most = (int32_t)(ranks_here > 1 ? quota / ranks_here : ceil(quota));
  if (own_share > 0 && own_share < threads) threads = (int32_t)own_share;
  if (quota > 0 && most < threads) threads = most;
  return threads < 1 ? 1 : threads;
}

/* ---- memory ---- */

/* Reads a line such as "MemTotal:  24000000 kB". */
static uint64_t meminfo(const char *text, const char *key)
{
  const char *line = strstr(text, key);
  return line ? strtoull(line + strlen(key), NULL, 10) * 1024 : UINT64_MAX;
}

brim_host_memory brim_host_memory_now(void)
{
  char text[TEXT_BYTES] = "";
  const brim_cgroup c = read_limits(MOUNT, MEMBERSHIP, true, false);
  (void)read_text("/proc", "meminfo", text, sizeof text);
  const uint64_t total = meminfo(text, "MemTotal:"), available = meminfo(text, "MemAvailable:");
  return (brim_host_memory){.total_bytes = total < c.memory_limit ? total : c.memory_limit,
                            .available_bytes = available < c.memory_headroom ? available : c.memory_headroom,
                            .is_grouped = c.memory_headroom < available};
}

/* ---- use ---- */

static double percent(uint64_t part, uint64_t whole)
{
  return whole > 0 ? 100 * (double)part / (double)whole : 0;
}

/* Keeps the figures of the memory that is closest to its limit. */
static void count_ram(brim_host_use *use, uint64_t used, uint64_t limit, bool is_grouped)
{
  const double share = percent(used, limit);
  if (limit == 0 || share < use->ram_percent) return;
  use->ram_percent = share;
  use->ram_used_bytes = used;
  use->ram_total_bytes = limit;
  use->is_grouped = is_grouped;
}

static void count_swap(brim_host_use *use, uint64_t used, uint64_t limit)
{
  const double share = percent(used, limit);
  if (limit == 0 || share < use->swap_percent) return;
  use->swap_percent = share;
  use->swap_used_bytes = used;
  use->swap_total_bytes = limit;
}

/* Version 1 of control groups gives a limit for the sum of memory and swap. */
static void count_group_swap(brim_host_use *use, const char *folder, bool version2, uint64_t memory_limit)
{
  uint64_t limit = 0, used = 0, memory = 0;
  if (version2) {
    if (read_number(folder, "memory.swap.max", &limit) && read_number(folder, "memory.swap.current", &used))
      count_swap(use, used, limit);
    return;
  }
  if (!read_number(folder, "memory.memsw.limit_in_bytes", &limit) || limit >= (uint64_t)1 << 62) return;
  if (!read_number(folder, "memory.memsw.usage_in_bytes", &used)) return;
  if (!read_number(folder, "memory.usage_in_bytes", &memory) || limit <= memory_limit) return;
  count_swap(use, used > memory ? used - memory : 0, limit - memory_limit);
}

static void count_group(void *out, const char *folder, bool version2)
{
  brim_host_use *use = out;
  uint64_t limit = 0, used = UINT64_MAX;
  if (!read_memory(folder, version2, &limit, &used)) {
    if (version2) count_group_swap(use, folder, true, 0);
    return;
  }
  if (used != UINT64_MAX) count_ram(use, used, limit, true);
  count_group_swap(use, folder, version2, limit);
}

/* Reads a line such as "cpu  252750 0 34472 220967 2315 0 303 313 0 0": user, nice, system, idle, iowait and more. The
 * time of guests, the last two, is already part of the first two. */
static void count_processors(brim_host_use *use, const char *text)
{
  uint64_t ticks[8] = {0};
  if (strncmp(text, "cpu ", 4) != 0) return;
  char *at = (char *)text + 4;
  for (int i = 0; i < 8; i++) ticks[i] = strtoull(at, &at, 10);
  for (int i = 0; i < 8; i++) use->cpu_ticks += ticks[i];
  use->cpu_busy_ticks = use->cpu_ticks - ticks[3] - ticks[4];
}

brim_host_use brim_host_use_read(const char *proc, const char *mount)
{
  char text[TEXT_BYTES], membership[PATH_BYTES];
  brim_host_use use = {0};
  if (read_text(proc, "meminfo", text, sizeof text)) {
    const uint64_t total = meminfo(text, "MemTotal:"), available = meminfo(text, "MemAvailable:");
    const uint64_t swap = meminfo(text, "SwapTotal:"), swap_free = meminfo(text, "SwapFree:");
    if (total != UINT64_MAX && available <= total) count_ram(&use, total - available, total, false);
    if (swap != UINT64_MAX && swap_free <= swap) count_swap(&use, swap - swap_free, swap);
  }
  if (snprintf(membership, sizeof membership, "%s/self/cgroup", proc) < (int)sizeof membership)
    read_groups(&(group_readers){count_group, NULL, &use}, mount, membership);
  if (read_text(proc, "stat", text, sizeof text)) count_processors(&use, text);
  return use;
}
