/* See interpose.h. The program's own definitions override the C library's for every object in the process; they call
 * the C library's functions by its internal names. */
#include "fault/interpose.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FRAMES 16
#define REQUESTS_MAX 32768
#define OVER __attribute__((visibility("default")))

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

typedef struct raw_request {
  const char *call;
  size_t bytes;
  int depth;
  void *frame[FRAMES];
} raw_request;

static raw_request kept[REQUESTS_MAX];
static atomic_size_t count;
static atomic_bool writing;
static _Thread_local bool inside; /* backtrace itself may allocate memory */

/* Not inlined, so that the backtrace has three known frames: this function, the one in place of malloc, its caller. */
__attribute__((noinline)) static void note(const char *call, size_t bytes)
{
  if (!atomic_load(&writing) || inside) return;
  inside = true;
  const size_t i = atomic_fetch_add(&count, 1);
  if (i < REQUESTS_MAX) {
    kept[i].call = call;
    kept[i].bytes = bytes;
    kept[i].depth = backtrace(kept[i].frame, FRAMES);
  }
  inside = false;
}

OVER void *malloc(size_t bytes)
{
  note("malloc", bytes);
  return __libc_malloc(bytes);
}

OVER void *calloc(size_t items, size_t bytes)
{
  note("calloc", items * bytes);
  return __libc_calloc(items, bytes);
}

OVER void *realloc(void *old, size_t bytes)
{
  note("realloc", bytes);
  return __libc_realloc(old, bytes);
}

OVER void *aligned_alloc(size_t alignment, size_t bytes)
{
  note("aligned_alloc", bytes);
  return __libc_memalign(alignment, bytes);
}

OVER void *memalign(size_t alignment, size_t bytes)
{
  note("memalign", bytes);
  return __libc_memalign(alignment, bytes);
}

OVER int posix_memalign(void **out, size_t alignment, size_t bytes)
{
  note("posix_memalign", bytes);
  void *memory = __libc_memalign(alignment, bytes);
  if (!memory) return ENOMEM;
  *out = memory;
  return 0;
}

OVER void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
  note("mmap", bytes);
  return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

/* ---- callers ---- */

static bool is_runtime(const char *object)
{
  static const char *const names[] = {"/libc.so", "/libstdc++.so", "/libgcc_s.so", "/ld-linux", "/libpthread.so"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strstr(object, names[i])) return true;
  return false;
}

static bool is_brim(const char *object)
{
  static char self[4096];
  if (!self[0]) {
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n > 0) self[n] = '\0';
  }
  return strstr(object, "/lib/brim/plugins/") || strcmp(object, self) == 0 ||
         strcmp(strrchr(object, '/') ? strrchr(object, '/') : object, strrchr(self, '/')) == 0;
}

memory_request interpose_at(size_t i)
{
  const raw_request *raw = &kept[i];
  memory_request out = {.call = raw->call, .bytes = raw->bytes};
  snprintf(out.object, sizeof out.object, "?");
  for (int k = 2; k < raw->depth; k++) {
    Dl_info info;
    /* Code generated at run time belongs to a library. */
    if (dladdr(raw->frame[k], &info) == 0 || !info.dli_fname) break;
    if (is_runtime(info.dli_fname)) continue;
    snprintf(out.object, sizeof out.object, "%s", info.dli_fname);
    snprintf(out.symbol, sizeof out.symbol, "%s", info.dli_sname ? info.dli_sname : "");
    out.brim = is_brim(info.dli_fname);
    break;
  }
  return out;
}

void interpose_prepare(void)
{
  void *frame[FRAMES];
  if (backtrace(frame, FRAMES) < 1) fprintf(stderr, "no backtraces here\n"); /* the call loads the unwinder */
}

void interpose_start(void)
{
  atomic_store(&count, 0);
  atomic_store(&writing, true);
}

void interpose_stop(void)
{
  atomic_store(&writing, false);
}
size_t interpose_count(void)
{
  return atomic_load(&count);
}
size_t interpose_kept(void)
{
  const size_t n = interpose_count();
  return n < REQUESTS_MAX ? n : REQUESTS_MAX;
}
