/* CUPTI for the emulated device: the functions that the backend uses, with NVIDIA's own records. On LD_LIBRARY_PATH it
 * replaces a real one. Its clock has another origin and runs faster than the host's. Its pages are small, so that a
 * trace has many. EMULATED_CUPTI has faults, for example "refuse=35 lose=10":
 *
 *     refuse=35    cuptiActivityEnable of kernels fails with this result
 *     flush=999    cuptiActivityFlushAll fails with this result
 *     lose=10      every tenth record is lost
 *     untimed=10   every tenth kernel has no times
 *
 * With CUPTI_OLD defined it lacks a function, as an old library does. */
#include <cupti_activity.h>
#include <cupti_result.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <vector>

#include "emulated_observer.h"

#define IS_AT(record, member, at) static_assert(offsetof(record, member) == (at), #record "." #member)
IS_AT(CUpti_ActivityKernel9, start, CUPTI_BEGIN_AT);
IS_AT(CUpti_ActivityKernel9, end, CUPTI_END_AT);
IS_AT(CUpti_ActivityKernel9, correlationId, CUPTI_KERNEL_CALL_AT);
IS_AT(CUpti_ActivityMemcpy6, start, CUPTI_BEGIN_AT);
IS_AT(CUpti_ActivityMemcpy6, end, CUPTI_END_AT);
IS_AT(CUpti_ActivityMemcpy6, correlationId, CUPTI_COPY_CALL_AT);
IS_AT(CUpti_ActivityMemset4, start, CUPTI_BEGIN_AT);
IS_AT(CUpti_ActivityMemset4, end, CUPTI_END_AT);
IS_AT(CUpti_ActivityMemset4, correlationId, CUPTI_COPY_CALL_AT);
IS_AT(CUpti_ActivityExternalCorrelation, externalKind, CUPTI_LINK_KIND_AT);
IS_AT(CUpti_ActivityExternalCorrelation, externalId, CUPTI_LINK_TAG_AT);
IS_AT(CUpti_ActivityExternalCorrelation, correlationId, CUPTI_LINK_CALL_AT);
#define IS(a, b) static_assert((int)(a) == (int)(b), #a)
IS(CUPTI_DONE, CUPTI_SUCCESS);
IS(CUPTI_NO_MORE, CUPTI_ERROR_MAX_LIMIT_REACHED);
IS(CUPTI_FLUSH_FORCED, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
IS(CUPTI_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY);
IS(CUPTI_MEMSET, CUPTI_ACTIVITY_KIND_MEMSET);
IS(CUPTI_DRIVER, CUPTI_ACTIVITY_KIND_DRIVER);
IS(CUPTI_RUNTIME, CUPTI_ACTIVITY_KIND_RUNTIME);
IS(CUPTI_KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
IS(CUPTI_LINK, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
IS(CUPTI_TAGS, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0);

#define PAGE_BYTES_MAX ((size_t)2048)

namespace
{
std::mutex lock;
CUpti_BuffersCallbackRequestFunc request;
CUpti_BuffersCallbackCompleteFunc complete;
std::set<int> enabled;
thread_local std::vector<uint64_t> tags;
uint8_t *page;
size_t page_bytes, used, lost, records, kernels;
uint32_t calls;

/* Returns the value of a fault; 0: EMULATED_CUPTI does not have it. */
unsigned fault(const char *name)
{
  const char *text = getenv("EMULATED_CUPTI"), *found = text ? strstr(text, name) : nullptr;
  return found ? (unsigned)strtoul(found + strlen(name) + 1, nullptr, 10) : 0;
}

bool hits(const char *name, size_t count)
{
  const unsigned every = fault(name);
  return every > 0 && count % every == 0;
}

uint64_t clock_of(uint64_t nanoseconds)
{
  return 1700000000000000000U + nanoseconds + nanoseconds / 1000;
}

void return_page()
{
  if (page) complete(nullptr, 0, page, page_bytes, used);
  page = nullptr;
  used = page_bytes = 0;
}

template <typename T> void write(const T &record)
{
  size_t most = 0;
  if (page && used + sizeof record > std::min(page_bytes, PAGE_BYTES_MAX)) return_page();
  if (!page) request(&page, &page_bytes, &most);
  if (!page || hits("lose", ++records)) {
    lost++;
    return;
  }
  memcpy(page + used, &record, sizeof record);
  used += sizeof record;
}

template <typename T> void write_work(uint32_t kind, uint32_t call, uint64_t begin, uint64_t end)
{
  T record = {};
  record.kind = (CUpti_ActivityKind)kind;
  record.correlationId = call;
  record.start = clock_of(begin);
  record.end = clock_of(end);
  if (kind == CUPTI_KERNEL && hits("untimed", ++kernels)) record.start = record.end = 0;
  write(record);
}

/* Records a call of the runtime that starts work, and the work itself. */
emulated_report observe(uint32_t kind)
{
  const std::lock_guard<std::mutex> held(lock);
  const uint32_t call = ++calls;
  CUpti_ActivityAPI api = {};
  api.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  api.correlationId = call;
  if (!tags.empty()) {
    CUpti_ActivityExternalCorrelation link = {};
    link.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    link.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
    link.externalId = tags.back();
    link.correlationId = call;
    write(link);
  }
  write(api);
  return [kind, call](uint64_t begin, uint64_t end) {
    const std::lock_guard<std::mutex> again(lock);
    if (enabled.count((int)kind) == 0) return;
    if (kind == CUPTI_KERNEL) write_work<CUpti_ActivityKernel9>(kind, call, begin, end);
    if (kind == CUPTI_MEMCPY) write_work<CUpti_ActivityMemcpy6>(kind, call, begin, end);
    if (kind == CUPTI_MEMSET) write_work<CUpti_ActivityMemset4>(kind, call, begin, end);
  };
}

size_t bytes_of(uint32_t kind)
{
  switch (kind) {
  case CUPTI_KERNEL:
    return sizeof(CUpti_ActivityKernel9);
  case CUPTI_MEMCPY:
    return sizeof(CUpti_ActivityMemcpy6);
  case CUPTI_MEMSET:
    return sizeof(CUpti_ActivityMemset4);
  case CUPTI_LINK:
    return sizeof(CUpti_ActivityExternalCorrelation);
  default:
    return sizeof(CUpti_ActivityAPI);
  }
}
} // namespace

#pragma GCC visibility push(default)
extern "C" {
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc on_request,
                                           CUpti_BuffersCallbackCompleteFunc on_complete)
{
  request = on_request;
  complete = on_complete;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind)
{
  if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && fault("refuse")) return (CUptiResult)fault("refuse");
  const std::lock_guard<std::mutex> held(lock);
  enabled.insert(kind);
  /* Starts to observe once the records of calls, which links need, are enabled too. */
  if (enabled.size() == 6) emulated_observer = observe;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind)
{
  const std::lock_guard<std::mutex> held(lock);
  enabled.erase(kind);
  emulated_observer = nullptr;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlushAll(uint32_t)
{
  const std::lock_guard<std::mutex> held(lock);
  if (!complete) return CUPTI_ERROR_INVALID_OPERATION;
  return_page();
  return (CUptiResult)fault("flush");
}
CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record)
{
  uint8_t *next = buffer;
  if (*record) next = (uint8_t *)*record + bytes_of((*record)->kind);
  if (next >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = (CUpti_Activity *)next;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t *dropped)
{
  const std::lock_guard<std::mutex> held(lock);
  *dropped = lost;
  lost = 0;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind, uint64_t id)
{
  tags.push_back(id);
  return CUPTI_SUCCESS;
}
#ifndef CUPTI_OLD
CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind, uint64_t *last)
{
  if (tags.empty()) return CUPTI_ERROR_QUEUE_EMPTY;
  *last = tags.back();
  tags.pop_back();
  return CUPTI_SUCCESS;
}
#endif
CUptiResult cuptiGetTimestamp(uint64_t *out)
{
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  *out = clock_of(1000000000U * (uint64_t)now.tv_sec + (uint64_t)now.tv_nsec);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetResultString(CUptiResult result, const char **text)
{
  *text = result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR_UNKNOWN";
  return CUPTI_SUCCESS;
}
}
