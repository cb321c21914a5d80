/* This host's CPUs and memory, within the limits of its control groups, as one device or, if configured, as several
 * devices with limits. A ledger that all processes share counts the arenas on devices with limits, like a GPU's memory.
 * An arena is one mapping, populated when it is placed. Linux overcommits memory and later kills processes instead of
 * refusing memory, so the free memory is checked first. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "brim/host.h"
#include "brim/ledger.h"
#include "cpu.h"

#define HUGE_BYTES ((uint64_t)2 << 20)
#define MIB ((uint64_t)1 << 20)
#define POPULATE_PIECE ((uint64_t)8 << 20) /* bytes of a task */
#define ZERO_PIECE MIB

/* Finds the first line of `file` that starts with `key`, and returns its text after the colon. */
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

static uint64_t smaller(uint64_t a, uint64_t b)
{
  return a < b ? a : b;
}

/* ---- devices with a limit ---- */

/* An arena on a device with a limit, and the arena's entry in the ledger. */
typedef struct cpu_placed {
  struct cpu_placed *next;
  void *base;
  int32_t entry;
} cpu_placed;

brim_status cpu_device_open(cpu_backend *b)
{
  const uint64_t devices = (uint64_t)b->params->devices;
  if (devices == 1 && b->params->memory_mb == 0) return BRIM_OK;
  b->device_bytes =
      b->params->memory_mb > 0 ? b->params->memory_mb * MIB : brim_host_memory_now().total_bytes / devices / MIB * MIB;
  return brim_ledger_open("cpu", (int)devices, b->device_bytes, &b->ledger);
}

void cpu_device_close(cpu_backend *b)
{
  brim_ledger_close(b->ledger);
  b->ledger = NULL;
  while (b->placed) {
    cpu_placed *gone = b->placed;
    b->placed = gone->next;
    free(gone);
  }
}

int cpu_device_count(void *self)
{
  return (int)((const cpu_backend *)self)->params->devices;
}

static brim_status check_device(const cpu_backend *b, int device)
{
  const int64_t devices = b->params->devices;
  if (device >= 0 && device < devices) return BRIM_OK;
  return brim_fail(BRIM_ENODEVICE, "there is no device %d: backend.devices=%" PRId64 " has number%s 0%s", device,
                   devices, devices > 1 ? "s" : "", devices > 1 ? " and up" : " alone");
}

brim_status cpu_device_describe(void *self, int device, brim_device_info *out)
{
  const cpu_backend *b = self;
  BRIM_TRY(check_device(b, device));
  memset(out, 0, sizeof *out);
  if (!find_line("/proc/cpuinfo", "model name", out->name, sizeof out->name))
    snprintf(out->name, sizeof out->name, "CPU");
  const brim_host_memory host = brim_host_memory_now();
  out->total_bytes = host.total_bytes;
  out->free_bytes = host.available_bytes;
  out->threads = b->threads;
  out->on_host = 1;
  out->multiplies = b->gemm16 ? BRIM_STORES(BRIM_DTYPE_BF16) : 0;
  if (!b->ledger) return BRIM_OK;
  out->limited = 1;
  uint64_t used;
  BRIM_TRY(brim_ledger_used(b->ledger, device, &used));
  out->total_bytes = smaller(out->total_bytes, b->device_bytes);
  out->free_bytes = smaller(out->free_bytes, b->device_bytes - used);
  return BRIM_OK;
}

brim_status cpu_device_usage(void *self, int device, uint64_t *used, uint64_t *total)
{
  const cpu_backend *b = self;
  if (!b->ledger) return BRIM_ENOTSUP;
  *total = b->device_bytes;
  return brim_ledger_used(b->ledger, device, used);
}

brim_status cpu_device_users(void *self, int device, brim_device_user *out, size_t room, size_t *count)
{
  const cpu_backend *b = self;
  BRIM_TRY(check_device(b, device));
  *count = 0;
  return b->ledger ? brim_ledger_users(b->ledger, device, out, room, count) : BRIM_OK;
}

/* Checks the host's memory, independently of the devices' limits. */
static brim_status check_room(uint64_t bytes)
{
  const brim_host_memory host = brim_host_memory_now();
  if (bytes <= host.available_bytes) return BRIM_OK;
  return brim_fail(
      BRIM_ENOMEM_DEVICE,
      "the plan needs %" PRIu64 " MiB, but %s leaves %" PRIu64 " MiB\nchoose a smaller micro-batch, or free memory",
      bytes / MIB, host.is_grouped ? "the control group's memory limit" : "this host", host.available_bytes / MIB);
}

/* Reserves the bytes within a device's limit before anything is mapped. */
static brim_status take(cpu_backend *b, int device, uint64_t bytes, cpu_placed **out)
{
  *out = NULL;
  if (!b->ledger) return BRIM_OK;
  cpu_placed *p = brim_try_calloc(1, sizeof *p);
  if (!p) return brim_fail(BRIM_ENOMEM_HOST, "no memory for an entry of the ledger");
  const brim_status status = brim_ledger_take(b->ledger, device, bytes, &p->entry);
  if (status != BRIM_OK) {
    free(p);
    if (status != BRIM_ENOMEM_DEVICE || b->params->memory_mb == 0) return status;
    return brim_fail_add(status, "backend.memory_mb=%" PRIu64 " is the limit of a device for all processes together",
                         b->params->memory_mb);
  }
  *out = p;
  return BRIM_OK;
}

static void give(cpu_backend *b, cpu_placed *p)
{
  if (!p) return;
  brim_ledger_give(b->ledger, p->entry);
  free(p);
}

static cpu_placed *unlist(cpu_backend *b, const void *base)
{
  cpu_placed **at = &b->placed;
  while (*at && (*at)->base != base) at = &(*at)->next;
  cpu_placed *found = *at;
  if (found) *at = found->next;
  return found;
}

/* ---- arenas ---- */

static uint64_t rounded(uint64_t bytes)
{
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

/* Maps `bytes` in whole pages; from 2 MiB on, at a multiple of 2 MiB for huge pages. */
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

/* Populates all pages of a piece. Kernels before 5.14 lack MADV_POPULATE_WRITE: then this touches each page. */
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

/* Maps and populates. */
static brim_status place(cpu_backend *b, uint64_t bytes, void **base)
{
  const uint64_t whole = rounded(bytes > 0 ? bytes : 1);
  if (whole < bytes || whole > (uint64_t)1 << 62)
    return brim_fail(BRIM_ENOMEM_DEVICE, "an arena of %" PRIu64 " bytes cannot be addressed", bytes);
  BRIM_TRY(check_room(bytes));
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
  *base = at;
  return BRIM_OK;
}

brim_status cpu_device_place(void *self, int device, uint64_t bytes, void **base)
{
  cpu_backend *b = self;
  cpu_placed *placed;
  *base = NULL;
  BRIM_TRY(check_device(b, device));
  BRIM_TRY(take(b, device, bytes, &placed));
  const brim_status status = place(b, bytes, base);
  if (status != BRIM_OK) {
    give(b, placed);
    return status;
  }
  if (!placed) return BRIM_OK;
  placed->base = *base;
  placed->next = b->placed;
  b->placed = placed;
  return BRIM_OK;
}

void cpu_device_unplace(void *self, void *base, uint64_t bytes)
{
  cpu_backend *b = self;
  if (!base) return;
  munmap(base, rounded(bytes > 0 ? bytes : 1));
  give(b, unlist(b, base));
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
  (void)self; /* runs are synchronous */
  return BRIM_OK;
}
