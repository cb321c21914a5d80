/* A process is bound by its own control group and by every one above it, so each is looked at, from the
 * process's up to the root of the mount; the tightest counts. In a container the path in /proc may not
 * exist below the mount, whose root is then the container's group: that is looked at too.
 *
 * Version 1 has a hierarchy per controller (lines "4:memory:/path"), version 2 a single one ("0::/path"). */
#include "brim/host.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096, TEXT_BYTES = 8192 };

static bool read_text(const char *folder, const char *file, char *text, size_t bytes)
{
  char path[PATH_BYTES];
  const int length = snprintf(path, sizeof path, "%s/%s", folder, file);
  if (length < 0 || (size_t)length >= sizeof path) return false;
  FILE *stream = fopen(path, "r");
  if (!stream) return false;
  const size_t count = fread(text, 1, bytes - 1, stream);
  fclose(stream);
  text[count] = '\0';
  return true;
}

/* A file of one number; "max" and -1 mean none. */
static bool read_number(const char *folder, const char *file, uint64_t *out)
{
  char text[64];
  if (!read_text(folder, file, text, sizeof text)) return false;
  if (text[0] < '0' || text[0] > '9') return false;
  *out = strtoull(text, NULL, 10);
  return true;
}

/* File pages that were not used lately, which the kernel drops before it refuses memory. */
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

static void bound_memory(brim_cgroup *c, const char *folder, bool version2)
{
  uint64_t limit = 0, used = 0;
  if (!read_number(folder, version2 ? "memory.max" : "memory.limit_in_bytes", &limit)) return;
  if (limit >= (uint64_t)1 << 62) return; /* version 1 says "none" by a huge number */
  if (limit < c->memory_limit) c->memory_limit = limit;
  if (!read_number(folder, version2 ? "memory.current" : "memory.usage_in_bytes", &used)) return;
  const uint64_t file = reclaimable(folder, version2 ? "inactive_file" : "total_inactive_file");
  used -= file < used ? file : used;
  const uint64_t headroom = limit > used ? limit - used : 0;
  if (headroom < c->memory_headroom) c->memory_headroom = headroom;
}

static void bound_processors(brim_cgroup *c, const char *folder, bool version2)
{
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

/* Calls bound() for hierarchy/path and every folder above it, the hierarchy's root included. */
static void climb(brim_cgroup *c, const char *hierarchy, const char *path, bool version2,
                  void (*bound)(brim_cgroup *, const char *, bool))
{
  char folder[PATH_BYTES];
  const size_t root = strlen(hierarchy);
  const int length = snprintf(folder, sizeof folder, "%s%s", hierarchy, path);
  if (length < 0 || (size_t)length >= sizeof folder) return;
  for (;;) {
    bound(c, folder, version2);
    char *slash = strrchr(folder + root, '/');
    if (!slash) return;
    *slash = '\0';
  }
}

/* True if the comma-separated list holds `name`. */
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

static void bound_by_line(brim_cgroup *c, const char *mount, char *line)
{
  char hierarchy[PATH_BYTES];
  char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
  if (!path) return;
  controllers++;
  *path++ = '\0';
  if (*controllers == '\0') {
    climb(c, mount, path, true, bound_memory);
    climb(c, mount, path, true, bound_processors);
    return;
  }
  if (lists(controllers, "memory") && snprintf(hierarchy, sizeof hierarchy, "%s/memory", mount) > 0)
    climb(c, hierarchy, path, false, bound_memory);
  if (lists(controllers, "cpu") && snprintf(hierarchy, sizeof hierarchy, "%s/cpu", mount) > 0)
    climb(c, hierarchy, path, false, bound_processors);
}

brim_cgroup brim_cgroup_read(const char *mount, const char *membership)
{
  brim_cgroup c = {.memory_limit = UINT64_MAX, .memory_headroom = UINT64_MAX};
  FILE *stream = fopen(membership, "r");
  if (!stream) return c;
  char line[PATH_BYTES];
  while (fgets(line, sizeof line, stream)) {
    line[strcspn(line, "\n")] = '\0';
    bound_by_line(&c, mount, line);
  }
  fclose(stream);
  return c;
}

/* ---- memory ---- */

/* Of "MemTotal:  24000000 kB". */
static uint64_t meminfo(const char *text, const char *key)
{
  const char *line = strstr(text, key);
  return line ? strtoull(line + strlen(key), NULL, 10) * 1024 : UINT64_MAX;
}

brim_host_memory brim_host_memory_now(void)
{
  char text[TEXT_BYTES] = "";
  const brim_cgroup c = brim_cgroup_read("/sys/fs/cgroup", "/proc/self/cgroup");
  (void)read_text("/proc", "meminfo", text, sizeof text);
  const uint64_t total = meminfo(text, "MemTotal:"), available = meminfo(text, "MemAvailable:");
  return (brim_host_memory){.total_bytes = total < c.memory_limit ? total : c.memory_limit,
                            .available_bytes = available < c.memory_headroom ? available : c.memory_headroom,
                            .is_grouped = c.memory_headroom < available};
}
