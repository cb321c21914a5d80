/* The one device: this host's processors and memory, within the limits of its control groups and of the
 * parameters. Its arena is one mapping, populated when it is placed: Linux promises more memory than there is,
 * and later kills instead of refusing, so the headroom is checked first. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cgroup.h"
#include "cpu.h"

#define HUGE_BYTES ((uint64_t)2 << 20)
#define MIB ((uint64_t)1 << 20)
#define POPULATE_PIECE ((uint64_t)8 << 20) /* bytes a task */
#define ZERO_PIECE MIB

static cpu_cgroup limits(void)
{
  return cpu_cgroup_read("/sys/fs/cgroup", "/proc/self/cgroup");
}

int32_t cpu_device_threads(void)
{
  cpu_set_t set;
  int32_t threads =
      sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
  const double quota = ceil(limits().processors);
  if (quota >= 1 && quota < threads) threads = (int32_t)quota;
  return threads < 1 ? 1 : threads;
}

/* The rest of the first line of `file` that starts with `key`, after its colon. */
static bool find_line(const char *file, const char *key, char *out, size_t bytes)
{
  char line[512];
  FILE *stream = fopen(file, "r");
  if (!stream) return false;
  bool found = false;
  while (!found && fgets(line, sizeof line, stream)) {
    const char *colon = strchr(line, ':');
    if (strncmp(line, key, strlen(key)) != 0 || !colon) continue;
    colon += 1 + strspn(colon + 1, " \t");
    snprintf(out, bytes, "%.*s", (int)strcspn(colon, "\n"), colon);
    found = true;
  }
  fclose(stream);
  return found;
}

static uint64_t meminfo(const char *key)
{
  char text[64];
  return find_line("/proc/meminfo", key, text, sizeof text) ? strtoull(text, NULL, 10) * 1024 : UINT64_MAX;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
  return a < b ? a : b;
}

brim_status cpu_device_describe(void *self, int device, brim_device_info *out)
{
  const cpu_backend *b = self;
  if (device != 0) return brim_fail(BRIM_ENODEVICE, "the cpu backend has one device, number 0; there is no %d", device);
  memset(out, 0, sizeof *out);
  if (!find_line("/proc/cpuinfo", "model name", out->name, sizeof out->name))
    snprintf(out->name, sizeof out->name, "CPU");
  const cpu_cgroup c = limits();
  out->total_bytes = smaller(meminfo("MemTotal"), c.memory_limit);
  out->free_bytes = smaller(meminfo("MemAvailable"), c.memory_headroom);
  if (b->params->memory_mb > 0) {
    const uint64_t own = b->params->memory_mb * MIB;
    out->total_bytes = smaller(out->total_bytes, own);
    out->free_bytes = smaller(out->free_bytes, own > b->placed_bytes ? own - b->placed_bytes : 0);
  }
  out->threads = b->threads;
  out->on_host = 1;
  return BRIM_OK;
}

static brim_status check_room(const cpu_backend *b, uint64_t bytes)
{
  const uint64_t own = b->params->memory_mb * MIB;
  if (own > 0 && (bytes > own || b->placed_bytes > own - bytes))
    return brim_fail(BRIM_ENOMEM_DEVICE,
                     "the plan needs %" PRIu64 " bytes, but backend.memory_mb=%" PRIu64 " leaves %" PRIu64
                     "\nraise backend.memory_mb, or choose a smaller micro-batch",
                     bytes, b->params->memory_mb, own > b->placed_bytes ? own - b->placed_bytes : 0);
  const cpu_cgroup c = limits();
  const uint64_t available = meminfo("MemAvailable"), room = smaller(available, c.memory_headroom);
  if (bytes <= room) return BRIM_OK;
  return brim_fail(
      BRIM_ENOMEM_DEVICE,
      "the plan needs %" PRIu64 " MiB, but %s leaves %" PRIu64 " MiB\nchoose a smaller micro-batch, or free memory",
      bytes / MIB, c.memory_headroom < available ? "the control group's memory limit" : "this host", room / MIB);
}

static uint64_t rounded(uint64_t bytes)
{
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

/* A mapping of `bytes`, whole pages; from 2 MiB on at a multiple of 2 MiB, where huge pages can lie. */
static char *map(uint64_t bytes)
{
  const uint64_t slack = bytes >= HUGE_BYTES ? HUGE_BYTES : 0;
  char *at = mmap(NULL, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return NULL;
  if (slack == 0) return at;
  const uint64_t before = (HUGE_BYTES - (uintptr_t)at % HUGE_BYTES) % HUGE_BYTES;
  if (before > 0) munmap(at, before);
  if (slack > before) munmap(at + before + bytes, slack - before);
  madvise(at + before, bytes, MADV_HUGEPAGE);
  return at + before;
}

typedef struct population {
  char *at;
  uint64_t bytes, page;
  atomic_int error; /* the first errno */
} population;

/* Takes every page of a piece now. Kernels before 5.14 know no MADV_POPULATE_WRITE: each page is touched. */
static void populate_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  population *p = arg;
  char *at = p->at + (uint64_t)task * POPULATE_PIECE;
  const uint64_t bytes = smaller(POPULATE_PIECE, p->bytes - (uint64_t)task * POPULATE_PIECE);
#ifdef MADV_POPULATE_WRITE
  int error = 0;
  do {
    error = madvise(at, bytes, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
  } while (error == EINTR || error == EAGAIN);
  if (error == 0) return;
  if (error != EINVAL) {
    atomic_store(&p->error, error);
    return;
  }
#endif
  for (uint64_t i = 0; i < bytes; i += p->page) ((volatile char *)at)[i] = 0;
}

static int populate(const cpu_backend *b, char *at, uint64_t bytes)
{
  population p = {.at = at, .bytes = bytes, .page = (uint64_t)sysconf(_SC_PAGESIZE)};
  cpu_pool_run(b->pool, (int64_t)((bytes + POPULATE_PIECE - 1) / POPULATE_PIECE), populate_piece, &p);
  return atomic_load(&p.error);
}

brim_status cpu_device_place(void *self, int device, uint64_t bytes, void **base)
{
  cpu_backend *b = self;
  *base = NULL;
  if (device != 0) return brim_fail(BRIM_ENODEVICE, "the cpu backend has one device, number 0; there is no %d", device);
  const uint64_t whole = rounded(bytes > 0 ? bytes : 1);
  if (whole < bytes || whole > (uint64_t)1 << 62)
    return brim_fail(BRIM_ENOMEM_DEVICE, "an arena of %" PRIu64 " bytes cannot be addressed", bytes);
  BRIM_TRY(check_room(b, bytes));
  char *at = map(whole);
  if (!at)
    return brim_fail(BRIM_ENOMEM_DEVICE, "an arena of %" PRIu64 " MiB could not be mapped: %s", bytes / MIB,
                     strerror(errno));
  const int error = populate(b, at, whole);
  if (error != 0) {
    munmap(at, whole);
    return brim_fail(BRIM_ENOMEM_DEVICE, "an arena of %" PRIu64 " MiB could not be populated: %s", bytes / MIB,
                     strerror(error));
  }
  b->placed_bytes += bytes;
  *base = at;
  return BRIM_OK;
}

void cpu_device_unplace(void *self, void *base, uint64_t bytes)
{
  cpu_backend *b = self;
  if (!base) return;
  munmap(base, rounded(bytes > 0 ? bytes : 1));
  b->placed_bytes -= bytes;
}

brim_status cpu_device_upload(void *self, void *to, const void *from, uint64_t bytes)
{
  (void)self;
  memcpy(to, from, bytes);
  return BRIM_OK;
}

brim_status cpu_device_download(void *self, void *to, const void *from, uint64_t bytes)
{
  (void)self;
  memcpy(to, from, bytes);
  return BRIM_OK;
}

typedef struct area {
  char *at;
  uint64_t bytes;
} area;

static void zero_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const area *a = arg;
  const uint64_t at = (uint64_t)task * ZERO_PIECE;
  memset(a->at + at, 0, smaller(ZERO_PIECE, a->bytes - at));
}

brim_status cpu_device_zero(void *self, void *to, uint64_t bytes)
{
  const cpu_backend *b = self;
  area a = {.at = to, .bytes = bytes};
  cpu_pool_run(b->pool, (int64_t)((bytes + ZERO_PIECE - 1) / ZERO_PIECE), zero_piece, &a);
  return BRIM_OK;
}

brim_status cpu_device_synchronize(void *self)
{
  (void)self; /* every run has ended when it returns */
  return BRIM_OK;
}
