/* CUPTI's activity API, by dlopen. The few functions and parts of records that are needed are declared here, with the
 * ABI that CUPTI has had since CUDA 9, because toolkits may come without its headers; tests/cuda/emulated compares them
 * with the headers.
 *
 * An external correlation id (a tag) is attached to each call of the runtime or the driver: CUPTI writes a record that
 * links the id to the number of the call, and the record of a kernel or copy has the number of the call that started
 * it. Libraries call the driver directly, so the calls of both are recorded.
 *
 * CUPTI stays attached after a trace: detaching (cuptiFinalize) while another thread calls CUDA is not safe, and has
 * crashed programs that launch graphs. */
#include "cupti.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STRING_OF(n) #n
#define LIBRARY_OF(major) "libcupti.so." STRING_OF(major)
#if CUDART_VERSION >= 13000
#define LIBRARY LIBRARY_OF(13)
#else
#define LIBRARY LIBRARY_OF(12)
#endif

#define PAGE_BYTES ((size_t)1 << 20) /* CUPTI recommends 1 to 10 MB */
#define PAGES_MAX 64                 /* the most pages in memory at a time; CUPTI drops records if it needs more */

static const struct {
  int kind;
  const char *name;
} kinds[] = {{CUPTI_LINK, "EXTERNAL_CORRELATION"}, {CUPTI_RUNTIME, "RUNTIME"}, {CUPTI_DRIVER, "DRIVER"},
             {CUPTI_KERNEL, "CONCURRENT_KERNEL"},  {CUPTI_MEMCPY, "MEMCPY"},   {CUPTI_MEMSET, "MEMSET"}};
#define KINDS (sizeof kinds / sizeof kinds[0])

/* A buffer of records. */
typedef struct page {
  struct page *next;
  size_t valid;
  uint8_t bytes[PAGE_BYTES] __attribute__((aligned(8)));
} page;

/* The library, opened once in a process and never closed. */
static struct {
  char problem[512]; /* the reason why CUPTI is not usable, or "" */
  int (*set_callbacks)(void (*request)(uint8_t **, size_t *, size_t *),
                       void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t));
  int (*enable)(int kind);
  int (*disable)(int kind);
  int (*flush)(uint32_t how);
  int (*next)(uint8_t *buffer, size_t valid, void **record);
  int (*dropped)(void *context, uint32_t stream, size_t *out);
  int (*push)(int kind, uint64_t id);
  int (*pop)(int kind, uint64_t *id);
  int (*clock)(uint64_t *nanoseconds);
  int (*error_text)(int error, const char **out);
} cupti;

typedef struct clock_pair {
  double seconds;
  uint64_t cupti; /* the same moment, in CUPTI's nanoseconds */
} clock_pair;

/* The trace in progress. A thread of CUPTI's own requests and returns pages, too. */
static struct {
  pthread_mutex_t lock;
  bool is_on;
  page *first, **last; /* pages with records, in the order in which CUPTI returned them */
  size_t pages;        /* the number of these pages and of those that CUPTI holds */
  clock_pair begin;
} trace = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local bool is_tagged;

/* ---- the library ---- */

/* Opens the library beside the runtime, or in extras, where toolkits keep it. */
static void *open_beside_runtime(void)
{
  static const char *const folders[] = {"", "../extras/CUPTI/lib64/"};
  cudaError_t (*runtime)(int *) = cudaRuntimeGetVersion;
  void *address, *library = NULL;
  Dl_info of;
  char path[PATH_MAX];
  memcpy(&address, &runtime, sizeof address);
  const char *slash = dladdr(address, &of) && of.dli_fname ? strrchr(of.dli_fname, '/') : NULL;
  for (size_t i = 0; slash && !library && i < sizeof folders / sizeof folders[0]; i++) {
    const int length =
        snprintf(path, sizeof path, "%.*s%s" LIBRARY, (int)(slash + 1 - of.dli_fname), of.dli_fname, folders[i]);
    if (length > 0 && (size_t)length < sizeof path) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  }
  return library;
}

static void open_library(void)
{
  const struct {
    const char *name;
    void *function; /* the address of the function pointer to set */
  } needed[] = {{"cuptiActivityRegisterCallbacks", &cupti.set_callbacks},
                {"cuptiActivityEnable", &cupti.enable},
                {"cuptiActivityDisable", &cupti.disable},
                {"cuptiActivityFlushAll", &cupti.flush},
                {"cuptiActivityGetNextRecord", &cupti.next},
                {"cuptiActivityGetNumDroppedRecords", &cupti.dropped},
                {"cuptiActivityPushExternalCorrelationId", &cupti.push},
                {"cuptiActivityPopExternalCorrelationId", &cupti.pop},
                {"cuptiGetTimestamp", &cupti.clock},
                {"cuptiGetResultString", &cupti.error_text}};
  void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!library) library = open_beside_runtime();
  if (!library) {
    snprintf(cupti.problem, sizeof cupti.problem, LIBRARY " is not installed, or cannot be loaded");
    return;
  }
  for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
    void *symbol = dlsym(library, needed[i].name);
    memcpy(needed[i].function, &symbol, sizeof symbol); /* ISO C has no cast to function pointers */
    if (!symbol) snprintf(cupti.problem, sizeof cupti.problem, LIBRARY " lacks %s", needed[i].name);
  }
}

static brim_status check(int error, const char *what, const char *of)
{
  const char *text = NULL;
  if (error == CUPTI_DONE) return BRIM_OK;
  if (cupti.error_text(error, &text) != CUPTI_DONE || !text) text = "an error without a text";
  return brim_fail(BRIM_ENOTSUP, LIBRARY ": %s%s: %s", what, of, text);
}

/* ---- pages ---- */

static void request(uint8_t **buffer, size_t *bytes, size_t *records_max)
{
  pthread_mutex_lock(&trace.lock);
  page *empty = trace.is_on && trace.pages < PAGES_MAX ? brim_try_calloc(1, sizeof *empty) : NULL;
  if (empty) trace.pages++;
  pthread_mutex_unlock(&trace.lock);
  *buffer = empty ? empty->bytes : NULL;
  *bytes = empty ? PAGE_BYTES : 0;
  *records_max = 0; /* CUPTI may write as many records as fit */
}

static void complete(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid)
{
  (void)context;
  (void)stream;
  (void)bytes;
  if (!buffer) return;
  page *full = (page *)(void *)(buffer - offsetof(page, bytes));
  pthread_mutex_lock(&trace.lock);
  const bool keeps = trace.is_on && valid > 0;
  if (keeps) {
    full->valid = valid;
    full->next = NULL;
    *trace.last = full;
    trace.last = &full->next;
  } else {
    trace.pages--;
  }
  pthread_mutex_unlock(&trace.lock);
  if (!keeps) free(full);
}

/* ---- beginning and end ---- */

double cuda_cupti_seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Reads both clocks a few times, and returns the reading that took the shortest time. */
static brim_status read_clocks(clock_pair *out)
{
  double least = 0;
  for (int i = 0; i < 8; i++) {
    uint64_t cupti_now = 0;
    const double before = cuda_cupti_seconds();
    BRIM_TRY(check(cupti.clock(&cupti_now), "reading its clock", ""));
    const double after = cuda_cupti_seconds();
    if (i > 0 && after - before >= least) continue;
    least = after - before;
    *out = (clock_pair){0.5 * (before + after), cupti_now};
  }
  return BRIM_OK;
}

static brim_status enable(size_t *enabled)
{
  BRIM_TRY(check(cupti.set_callbacks(request, complete), "registering callbacks", ""));
  for (*enabled = 0; *enabled < KINDS; ++*enabled)
    BRIM_TRY(check(cupti.enable(kinds[*enabled].kind), "recording ", kinds[*enabled].name));
  return read_clocks(&trace.begin);
}

/* Stops recording the first `enabled` kinds, and makes CUPTI return all pages. Returns CUPTI's error. */
static int stop(size_t enabled)
{
  cuda_cupti_tag(0);
  while (enabled > 0) (void)cupti.disable(kinds[--enabled].kind);
  return cupti.flush(CUPTI_FLUSH_FORCED);
}

/* Ends the trace. Returns its pages. */
static page *take_pages(void)
{
  pthread_mutex_lock(&trace.lock);
  page *first = trace.first;
  for (const page *p = first; p; p = p->next) trace.pages--;
  trace.first = NULL;
  trace.is_on = false;
  pthread_mutex_unlock(&trace.lock);
  return first;
}

static void free_pages(page *p)
{
  for (page *next; p; p = next) {
    next = p->next;
    free(p);
  }
}

/* Returns false if there is a trace. */
static bool claim(void)
{
  pthread_mutex_lock(&trace.lock);
  const bool was_on = trace.is_on;
  if (!was_on) trace.last = &trace.first;
  trace.is_on = true;
  pthread_mutex_unlock(&trace.lock);
  return !was_on;
}

brim_status cuda_cupti_begin(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  size_t enabled = 0, dropped;
  const char *other = getenv("CUDA_INJECTION64_PATH"); /* NVIDIA's profilers, which use CUPTI themselves, set it */
  if (other && other[0]) return brim_fail(BRIM_ENOTSUP, "another profiler is attached to this process");
  pthread_once(&once, open_library);
  if (cupti.problem[0]) return brim_fail(BRIM_ENOTSUP, "%s", cupti.problem);
  if (!claim()) return brim_fail(BRIM_ENOTSUP, "CUPTI records another trace of this process");
  const brim_status status = enable(&enabled);
  if (status == BRIM_OK) {
    (void)cupti.dropped(NULL, 0, &dropped); /* counts from here on */
    return BRIM_OK;
  }
  (void)stop(enabled);
  free_pages(take_pages());
  return status;
}

void cuda_cupti_tag(uint64_t tag)
{
  if (is_tagged) (void)cupti.pop(CUPTI_TAGS, &(uint64_t){0});
  is_tagged = tag > 0 && cupti.push(CUPTI_TAGS, tag) == CUPTI_DONE;
}

void cuda_cupti_drop(void)
{
  if (!trace.is_on) return;
  (void)stop(KINDS);
  free_pages(take_pages());
}

/* ---- records ---- */

typedef struct tagged_call {
  uint32_t call;
  uint64_t tag;
} tagged_call;

typedef struct reading {
  tagged_call *call; /* [room]; sorted by number after all records have been read */
  size_t calls, room;
  cuda_cupti_span *span; /* [tags + 1] */
  size_t tags, lost;
  page *first;
  clock_pair begin, end;
} reading;

static uint32_t read_32(const uint8_t *record, size_t at)
{
  uint32_t value;
  memcpy(&value, record + at, sizeof value);
  return value;
}
static uint64_t read_64(const uint8_t *record, size_t at)
{
  uint64_t value;
  memcpy(&value, record + at, sizeof value);
  return value;
}

/* Calls visit() for each record. Returns the number of pages whose last records are not readable. */
static size_t visit_all(reading *r, void (*visit)(reading *r, const uint8_t *record, uint32_t kind))
{
  size_t broken = 0;
  for (page *p = r->first; p; p = p->next) {
    void *record = NULL;
    int error;
    while ((error = cupti.next(p->bytes, p->valid, &record)) == CUPTI_DONE) visit(r, record, read_32(record, 0));
    if (error != CUPTI_NO_MORE) broken++;
  }
  return broken;
}

static bool is_link(const uint8_t *record, uint32_t kind)
{
  return kind == CUPTI_LINK && read_32(record, CUPTI_LINK_KIND_AT) == CUPTI_TAGS;
}

static void count_link(reading *r, const uint8_t *record, uint32_t kind)
{
  if (is_link(record, kind)) r->room++;
}

static void read_link(reading *r, const uint8_t *record, uint32_t kind)
{
  if (is_link(record, kind) && r->calls < r->room)
    r->call[r->calls++] = (tagged_call){read_32(record, CUPTI_LINK_CALL_AT), read_64(record, CUPTI_LINK_TAG_AT)};
}

static int by_call(const void *a, const void *b)
{
  const uint32_t x = ((const tagged_call *)a)->call, y = ((const tagged_call *)b)->call;
  return (x > y) - (x < y);
}

static double seconds_of(const reading *r, uint64_t time)
{
  const double ticks = (double)(int64_t)(r->end.cupti - r->begin.cupti);
  const double each = ticks > 0 ? (r->end.seconds - r->begin.seconds) / ticks : 1e-9;
  return r->begin.seconds + each * (double)(int64_t)(time - r->begin.cupti);
}

/* Kernels, copies and memsets. */
static void read_work(reading *r, const uint8_t *record, uint32_t kind)
{
  if (kind != CUPTI_KERNEL && kind != CUPTI_MEMCPY && kind != CUPTI_MEMSET) return;
  const tagged_call key = {read_32(record, kind == CUPTI_KERNEL ? CUPTI_KERNEL_CALL_AT : CUPTI_COPY_CALL_AT), 0};
  const tagged_call *found = bsearch(&key, r->call, r->calls, sizeof key, by_call);
  if (!found || found->tag > r->tags) return;
  const uint64_t begin = read_64(record, CUPTI_BEGIN_AT), end = read_64(record, CUPTI_END_AT);
  if (begin == 0 || end < begin) { /* CUPTI had no memory for the times */
    r->lost++;
    return;
  }
  cuda_cupti_span *span = &r->span[found->tag];
  const double from = seconds_of(r, begin), to = seconds_of(r, end);
  if (span->end == 0 || from < span->begin) span->begin = from;
  if (to > span->end) span->end = to;
}

static brim_status read_records(reading *r)
{
  (void)visit_all(r, count_link);
  r->call = brim_try_calloc(r->room + 1, sizeof *r->call);
  if (!r->call) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the records of CUPTI");
  (void)visit_all(r, read_link);
  qsort(r->call, r->calls, sizeof *r->call, by_call);
  r->lost += visit_all(r, read_work);
  return BRIM_OK;
}

brim_status cuda_cupti_end(cuda_cupti_span *span, size_t tags, size_t *lost)
{
  reading r = {.span = span, .tags = tags, .begin = trace.begin};
  brim_status status = read_clocks(&r.end);
  const int error = stop(KINDS);
  r.first = take_pages();
  if (status == BRIM_OK) status = check(error, "returning records", "");
  if (status == BRIM_OK) status = check(cupti.dropped(NULL, 0, &r.lost), "counting dropped records", "");
  if (status == BRIM_OK) status = read_records(&r);
  *lost = r.lost;
  free(r.call);
  free_pages(r.first);
  return status;
}
