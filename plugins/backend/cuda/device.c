/* The device: its one allocation, copies and synchronization. One stream computes and one copies inputs; two more copy
 * the optimizer's state, one in each direction, and a communicator's collectives run in the last. */
#include "device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "card.h"
#include "nvml.h"
#include "trace.h"

/* ---- the driver ---- */

/* The first driver branch of the runtime's major version: NVIDIA's minor version compatibility lets the runtime work
 * with any driver of that version. */
#if CUDART_VERSION >= 13000
#define DRIVER_LEAST "580"
#else
#define DRIVER_LEAST "525.60.13"
#endif
#define CAPABILITY_LEAST 80 /* 8.0 */
/* NVML's figure for a process and the decrease of free memory may differ by less than this without another process. */
#define OTHERS_LEAST_BYTES ((uint64_t)64 << 20)

/* Writes "570.86 (CUDA 12.8)", or "for CUDA 12.8" without NVML. Returns false if there is no driver. */
static bool name_driver(char *out, size_t room)
{
  int version = 0;
  char name[CUDA_DRIVER_BYTES] = "";
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) return false;
  const bool named = cuda_nvml_driver(name) == BRIM_OK;
  snprintf(out, room, named ? "%s (CUDA %d.%d)" : "%sfor CUDA %d.%d", name, version / 1000, version % 1000 / 10);
  return true;
}

void cuda_device_needs(void *self, char *out, size_t room)
{
  char driver[128];
  (void)self;
  out[0] = '\0';
  if (name_driver(driver, sizeof driver))
    snprintf(out, room, "driver %s; needed: driver " DRIVER_LEAST " or later, compute capability %d.%d or later",
             driver, CAPABILITY_LEAST / 10, CAPABILITY_LEAST % 10);
}

/* ---- which devices ---- */

brim_status cuda_device_find(int *count)
{
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  const cudaError_t e = cudaGetDeviceCount(count);
  if (e == cudaSuccess && *count > 0) return BRIM_OK;
  (void)cudaGetLastError();
  if (e == cudaErrorInsufficientDriver) {
    char driver[128];
    if (!name_driver(driver, sizeof driver)) return brim_fail(BRIM_ENODEVICE, "there is no NVIDIA driver on this host");
    return brim_fail(BRIM_ENODEVICE,
                     "the NVIDIA driver %s is too old: this build, with CUDA %d.%d, needs driver " DRIVER_LEAST
                     " or later\nupdate the driver, or build brim with an older CUDA toolkit (12.8 or later)",
                     driver, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  }
  if (e != cudaSuccess && e != cudaErrorNoDevice)
    return brim_fail(BRIM_ENODEVICE, "the GPUs of this host cannot be used: %s (%s)", cudaGetErrorString(e),
                     cudaGetErrorName(e));
  if (visible) return brim_fail(BRIM_ENODEVICE, "there is no GPU to use: CUDA_VISIBLE_DEVICES is '%s'", visible);
  return brim_fail(BRIM_ENODEVICE,
                   "there is no NVIDIA GPU on this host\n`brim plan backend=cuda backend.card=h100` plans "
                   "for one that is only described");
}

int cuda_device_count(void *self)
{
  int count = 0;
  if (cuda_card_of(self)) return 1;
  return cuda_device_find(&count) == BRIM_OK ? count : 0;
}

static cuda_nvml_key key_of(const struct cudaDeviceProp *properties)
{
  cuda_nvml_key key;
  memcpy(key.uuid, properties->uuid.bytes, sizeof key.uuid);
  snprintf(key.bus_id, sizeof key.bus_id, "%04x:%02x:%02x.0", (unsigned)properties->pciDomainID,
           (unsigned)properties->pciBusID, (unsigned)properties->pciDeviceID);
  return key;
}

/* Queries NVML about a device that is not selected. The runtime would create a context there, which takes hundreds of
 * megabytes of the device until the process exits, and fails if the memory is full. Returns false if NVML does
 * not know. */
static bool query_nvml(const cuda_nvml_key *key, brim_device_info *info)
{
  struct nvml_device *nvml = NULL;
  if (cuda_nvml_find(key, &nvml) != BRIM_OK || cuda_nvml_free_bytes(nvml, &info->free_bytes) != BRIM_OK) return false;
  if (info->free_bytes > info->total_bytes) info->free_bytes = info->total_bytes; /* NVML reports the whole GPU */
  return true;
}

static brim_status free_bytes_of(const cuda_backend *b, int device, const cuda_nvml_key *key, brim_device_info *info)
{
  size_t free_bytes = 0, total = 0;
  if (b->device != device && query_nvml(key, info)) return BRIM_OK;
  BRIM_TRY(cuda_check(cudaSetDevice(device), "choosing a device"));
  const cudaError_t e = cudaMemGetInfo(&free_bytes, &total);
  (void)cudaGetLastError();
  if (b->device >= 0) BRIM_TRY(cuda_check(cudaSetDevice(b->device), "choosing a device"));
  if (e == cudaErrorMemoryAllocation && b->device != device) return BRIM_OK; /* the device has no free memory */
  BRIM_TRY(cuda_check(e, "querying a device's free memory"));
  info->free_bytes = free_bytes;
  info->total_bytes = total;
  return BRIM_OK;
}

static uint64_t taken_of(const brim_device_takes *takes)
{
  const uint64_t context = takes->context_bytes == BRIM_BYTES_UNKNOWN ? 0 : takes->context_bytes;
  return context + takes->libraries_bytes + takes->programs_bytes + takes->lanes_bytes;
}

brim_status cuda_device_describe(void *self, int device, brim_device_info *out)
{
  struct cudaDeviceProp properties;
  if (cuda_card_of(self)) return cuda_card_describe(self, device, out);
  BRIM_TRY(cuda_check(cudaGetDeviceProperties(&properties, device), "querying a device's properties"));
  const cuda_nvml_key key = key_of(&properties);
  *out = (brim_device_info){.total_bytes = properties.totalGlobalMem,
                            .capability_major = properties.major,
                            .capability_minor = properties.minor,
                            .multiplies = cuda_card_multiplies(properties.major * 10 + properties.minor)};
  const cuda_backend *b = self;
  if (b->device == device) out->taken_bytes = taken_of(&b->takes);
  snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, properties.name);
  cuda_card_rates(b, properties.name, &out->rates);
  cuda_nvml_uuid(&key, out->uuid);
  return free_bytes_of(self, device, &key, out);
}

/* Queries only NVML, by the handle that was found when the device was selected, because another thread may be using the
 * device. */
brim_status cuda_device_usage(void *self, int device, uint64_t *used, uint64_t *total)
{
  const cuda_backend *b = self;
  uint64_t free_bytes = 0;
  if (b->device != device || !b->nvml)
    return brim_fail(BRIM_ENOTSUP, "cuda:%d's memory use is known only if it is selected and NVML is available",
                     device);
  BRIM_TRY(cuda_nvml_free_bytes(b->nvml, &free_bytes));
  *total = b->total_bytes;
  *used = free_bytes < *total ? *total - free_bytes : 0;
  return BRIM_OK;
}

brim_status cuda_device_users(void *self, int device, brim_device_user *out, size_t room, size_t *count)
{
  struct cudaDeviceProp properties;
  if (cuda_card_of(self)) return brim_fail(BRIM_ENOTSUP, "a GPU that backend.card describes has no users");
  BRIM_TRY(cuda_check(cudaGetDeviceProperties(&properties, device), "querying a device's properties"));
  const cuda_nvml_key key = key_of(&properties);
  return cuda_nvml_users(&key, out, room, count);
}

/* ---- selecting a device ---- */

/* A communicator's kernels have priority, because other kernels wait for their results. */
static brim_status make_streams(cuda_backend *b)
{
  cudaStream_t *const stream[] = {&b->compute, &b->copies, &b->in, &b->out};
  int least = 0, greatest = 0;
  for (size_t i = 0; i < sizeof stream / sizeof stream[0]; i++)
    BRIM_TRY(cuda_check(cudaStreamCreateWithFlags(stream[i], cudaStreamNonBlocking), "creating a stream"));
  BRIM_TRY(cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "querying the priorities of streams"));
  return cuda_check(cudaStreamCreateWithPriority(&b->comm, cudaStreamNonBlocking, greatest), "creating a stream");
}

static brim_status make_events(cudaEvent_t *event, int count)
{
  for (int i = 0; i < count; i++)
    BRIM_TRY(cuda_check(cudaEventCreateWithFlags(&event[i], cudaEventDisableTiming), "creating an event"));
  return BRIM_OK;
}

/* ---- memory that this process takes of the device ---- */

uint64_t cuda_device_free_bytes(void)
{
  size_t free_bytes = 0, total = 0;
  if (cudaMemGetInfo(&free_bytes, &total) == cudaSuccess) return free_bytes;
  (void)cudaGetLastError();
  return 0;
}

/* Other processes may allocate or free memory in between, and NVML does not list processes in most containers, so each
 * measurement spans as little time as possible. */
uint64_t cuda_device_taken_since(uint64_t before)
{
  if (before == 0) return 0;
  const uint64_t now = cuda_device_free_bytes();
  return before > now ? before - now : 0;
}

static brim_device_takes *takes_of(cuda_backend *b)
{
  return b->first ? &b->first->takes : &b->takes;
}

/* Code that a lane loads stays loaded for all others. */
void cuda_device_count_library(cuda_backend *b, uint64_t before)
{
  const uint64_t bytes = cuda_device_taken_since(before);
  takes_of(b)->libraries_bytes += bytes;
  takes_of(b)->grown_bytes += bytes;
}

static void count_lane(cuda_backend *lane, uint64_t bytes)
{
  lane->takes.lanes_bytes += bytes;
  lane->first->takes.lanes_bytes += bytes;
}

void cuda_device_count_program(cuda_backend *b, uint64_t bytes, uint64_t nodes, bool is_dropped)
{
  const uint64_t change = is_dropped ? 0 - bytes : bytes;
  if (b->first) {
    count_lane(b, change);
    return;
  }
  b->takes.programs_bytes += change;
  b->takes.grown_bytes += change;
  b->takes.program_nodes += is_dropped ? 0 - nodes : nodes;
}

void cuda_device_takes(void *self, brim_device_takes *out)
{
  const cuda_backend *b = self;
  *out = b->takes;
}

static brim_status look_at(cuda_backend *b, const struct cudaDeviceProp *properties)
{
  const cuda_nvml_key key = key_of(properties);
  if (cuda_nvml_find(&key, &b->nvml) != BRIM_OK) b->nvml = NULL;
  b->total_bytes = properties->totalGlobalMem;
  b->processors = properties->multiProcessorCount;
  b->capability = properties->major * 10 + properties->minor;
  if (b->capability >= CAPABILITY_LEAST) return BRIM_OK;
  return brim_fail(BRIM_ENODEVICE,
                   "cuda:%d, %s, has compute capability %d.%d; the cuda backend needs %d.%d (Ampere) or later\n"
                   "device=cuda:N or CUDA_VISIBLE_DEVICES names another GPU; backend=cpu computes on the host",
                   b->device, properties->name, properties->major, properties->minor, CAPABILITY_LEAST / 10,
                   CAPABILITY_LEAST % 10);
}

static brim_status make_handles(cuda_backend *b)
{
  BRIM_TRY(make_streams(b));
  BRIM_TRY(make_events(b->copied, CUDA_STAGES));
  BRIM_TRY(make_events(b->consumed, CUDA_STAGES));
  BRIM_TRY(make_events(b->fetched, BRIM_FETCHES));
  BRIM_TRY(make_events(b->mark, BRIM_MARKS));
  BRIM_TRY(cuda_check(CUDA_CALL("device", cudaMalloc((void **)&b->control, sizeof *b->control)),
                      "allocating the control block"));
  BRIM_TRY(cuda_check(cudaMemsetAsync(b->control, 0, sizeof *b->control, b->compute), "clearing the control block"));
  return cuda_check(cudaHostAlloc((void **)&b->fetch, sizeof(cuda_fetch) * (BRIM_FETCHES + 1), cudaHostAllocDefault),
                    "allocating pinned memory");
}

/* Returns this process's memory on the device by NVML, or BRIM_BYTES_UNKNOWN if NVML does not list the process, as in
 * most containers. */
static uint64_t own_bytes(const cuda_backend *b)
{
  uint64_t bytes;
  return b->nvml && cuda_nvml_own_bytes(b->nvml, &bytes) == BRIM_OK ? bytes : BRIM_BYTES_UNKNOWN;
}

/* `measured`: the decrease of free memory. If it differs from NVML's figure for this process by more than usual,
 * another process has allocated or freed memory in between, and NVML's figure counts. */
static uint64_t settle(uint64_t measured, uint64_t own_before, uint64_t own_now)
{
  if (own_now == BRIM_BYTES_UNKNOWN || own_before == BRIM_BYTES_UNKNOWN || own_now < own_before) return measured;
  const uint64_t own = own_now - own_before, off = own > measured ? own - measured : measured - own;
  return off > OTHERS_LEAST_BYTES ? own : measured;
}

/* Creates the context, then everything that is created once. A program's kernels are loaded at its first run, and
 * cuda_program_run counts them. Before there is a context only NVML knows how much memory is free. */
static brim_status take(cuda_backend *b, int device)
{
  struct cudaDeviceProp properties;
  BRIM_TRY(cuda_check(cudaGetDeviceProperties(&properties, device), "querying a device's properties"));
  b->device = device;
  BRIM_TRY(look_at(b, &properties));
  const cuda_nvml_key key = key_of(&properties);
  brim_device_info info = {.total_bytes = properties.totalGlobalMem};
  const bool known = query_nvml(&key, &info);
  BRIM_TRY(cuda_check(cudaSetDevice(device), "choosing a device"));
  BRIM_TRY(cuda_check(cudaFree(NULL), "creating a context")); /* some drivers create it only now */
  const uint64_t own = own_bytes(b);
  b->takes.context_bytes = known ? settle(cuda_device_taken_since(info.free_bytes), 0, own) : own;
  const uint64_t before = cuda_device_free_bytes();
  BRIM_TRY(make_handles(b));
  BRIM_TRY(cuda_library_open(b));
  BRIM_TRY(cuda_program_warm_up(b));
  b->takes.libraries_bytes = settle(cuda_device_taken_since(before), own, own_bytes(b));
  return BRIM_OK;
}

brim_status cuda_device_select(void *self, int device)
{
  cuda_backend *b = self;
  if (b->device == device) return BRIM_OK;
  cuda_device_release(b);
  if (cuda_card_of(b)) {
    cuda_card_select(b, cuda_card_of(b));
    return BRIM_OK;
  }
  const brim_status status = take(b, device);
  if (status != BRIM_OK) cuda_device_release(b);
  return status;
}

static void free_handles(cuda_backend *b)
{
  cuda_trace_drop(b);
  cudaStream_t const stream[] = {b->compute, b->copies, b->in, b->out, b->comm};
  for (size_t i = 0; i < sizeof stream / sizeof stream[0]; i++)
    if (stream[i]) (void)cudaStreamSynchronize(stream[i]);
  cuda_library_close(b);
  for (int i = 0; i < CUDA_STAGES; i++) {
    if (b->copied[i]) (void)cudaEventDestroy(b->copied[i]);
    if (b->consumed[i]) (void)cudaEventDestroy(b->consumed[i]);
  }
  for (int i = 0; i < BRIM_FETCHES; i++)
    if (b->fetched[i]) (void)cudaEventDestroy(b->fetched[i]);
  for (int i = 0; i < BRIM_MARKS; i++)
    if (b->mark[i]) (void)cudaEventDestroy(b->mark[i]);
  if (b->control) (void)cudaFree(b->control);
  if (b->fetch) (void)cudaFreeHost(b->fetch);
  for (size_t i = 0; i < sizeof stream / sizeof stream[0]; i++)
    if (stream[i]) (void)cudaStreamDestroy(stream[i]);
}

void cuda_device_release(cuda_backend *b)
{
  if (b->device < 0) return;
  if (cuda_card_of(b)) {
    *b = (cuda_backend){.params = b->params, .device = -1};
    return;
  }
  free_handles(b);
  /* Destroys the context too: it holds hundreds of megabytes of a device that the run has left for another device or
   * the host. */
  if (cudaSetDevice(b->device) == cudaSuccess) (void)cudaDeviceReset();
  *b = (cuda_backend){.params = b->params, .device = -1};
}

/* ---- lanes ---- */

brim_status cuda_device_enter(const cuda_backend *b)
{
  return b->first ? cuda_check(cudaSetDevice(b->device), "choosing a device") : BRIM_OK;
}

static brim_status make_lane(cuda_backend *lane)
{
  if (cuda_card_of(lane)) return BRIM_OK;
  BRIM_TRY(make_handles(lane));
  BRIM_TRY(cuda_library_open(lane));
  return cuda_program_warm_up(lane);
}

/* Lanes do not divide the device's threads: kernels of several lanes run side by side as far as there is room. */
brim_status cuda_device_lane(void *self, int32_t lanes, void **out)
{
  cuda_backend *first = self;
  (void)lanes;
  if (first->device < 0) return brim_fail(BRIM_EINTERNAL, "a lane of the cuda backend needs a selected device");
  cuda_backend *lane = brim_try_calloc(1, sizeof *lane);
  if (!lane) return brim_fail(BRIM_ENOMEM_HOST, "no memory for a lane of the cuda backend");
  *lane = (cuda_backend){.params = first->params,
                         .first = first,
                         .device = first->device,
                         .processors = first->processors,
                         .capability = first->capability,
                         .total_bytes = first->total_bytes,
                         .nvml = first->nvml};
  const uint64_t before = cuda_card_of(first) ? 0 : cuda_device_free_bytes();
  const brim_status status = make_lane(lane);
  first->takes.lanes++;
  count_lane(lane, cuda_device_taken_since(before));
  *out = lane;
  if (status != BRIM_OK) cuda_device_drop_lane(self, lane);
  return status;
}

void cuda_device_drop_lane(void *self, void *lane)
{
  cuda_backend *first = self, *own = lane;
  free_handles(own);
  if (own->pinned) (void)cudaFreeHost(own->pinned);
  first->takes.lanes--;
  first->takes.lanes_bytes -= own->takes.lanes_bytes;
  free(own);
}

/* ---- the arena ---- */

brim_status cuda_device_place(void *self, int device, uint64_t bytes, void **base)
{
  cuda_backend *b = self;
  if (cuda_card_of(b)) return cuda_card_refuse(cuda_card_of(b));
  BRIM_TRY(cuda_device_select(b, device));
  const cudaError_t e = cudaMalloc(base, bytes ? bytes : 1);
  if (e == cudaErrorMemoryAllocation) {
    size_t free_bytes = 0, total = 0;
    (void)cudaGetLastError();
    BRIM_TRY(cuda_check(cudaMemGetInfo(&free_bytes, &total), "querying the free memory"));
    return brim_fail(BRIM_ENOMEM_DEVICE,
                     "cuda:%d cannot allocate %" PRIu64 " bytes in one piece: %zu of its %zu bytes are free", device,
                     bytes, free_bytes, total);
  }
  return cuda_check(e, "allocating the arena");
}

void cuda_device_unplace(void *self, void *base, uint64_t bytes)
{
  cuda_backend *b = self;
  (void)bytes;
  if (!base) return;
  (void)cudaStreamSynchronize(b->compute);
  (void)cudaStreamSynchronize(b->copies);
  (void)cudaStreamSynchronize(b->in);
  (void)cudaStreamSynchronize(b->out);
  (void)cudaFree(base);
  if (b->pinned && b->stage == base) {
    (void)cudaFreeHost(b->pinned);
    b->pinned = b->stage = NULL;
    b->fed = b->fetches_started = b->fetches_collected = 0;
  }
}

/* ---- copies that are complete when they return ---- */

brim_status cuda_device_upload(void *self, void *to, const void *from, uint64_t bytes)
{
  cuda_backend *b = self;
  BRIM_TRY(cuda_device_enter(b));
  BRIM_TRY(cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, b->compute), "copying to the device"));
  return cuda_check(cudaStreamSynchronize(b->compute), "copying to the device");
}

brim_status cuda_device_download(void *self, void *to, const void *from, uint64_t bytes)
{
  cuda_backend *b = self;
  BRIM_TRY(cuda_device_enter(b));
  BRIM_TRY(cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, b->compute), "copying from the device"));
  return cuda_check(cudaStreamSynchronize(b->compute), "copying from the device");
}

brim_status cuda_device_zero(void *self, void *to, uint64_t bytes)
{
  const cuda_backend *b = self;
  BRIM_TRY(cuda_device_enter(b));
  return cuda_check(cudaMemsetAsync(to, 0, bytes, b->compute), "zeroing memory");
}

/* ---- states in host memory ---- */

brim_status cuda_device_place_host(void *self, uint64_t bytes, void **at)
{
  (void)self;
  if (cudaHostAlloc(at, bytes, cudaHostAllocDefault) == cudaSuccess) return BRIM_OK;
  (void)cudaGetLastError();
  return brim_fail(BRIM_ENOMEM_HOST,
                   "the host could not allocate %" PRIu64 " bytes of pinned memory for the optimizer's state", bytes);
}

void cuda_device_unplace_host(void *self, void *at, uint64_t bytes)
{
  (void)self;
  (void)bytes;
  (void)cudaFreeHost(at);
}

static cudaStream_t stream_of(const cuda_backend *b, uint32_t queue)
{
  switch (queue) {
  case BRIM_QUEUE_IN:
    return b->in;
  case BRIM_QUEUE_OUT:
    return b->out;
  case BRIM_QUEUE_COMM:
    return b->comm;
  default:
    return b->compute;
  }
}

void *cuda_device_native_queue(void *self, uint32_t queue)
{
  return stream_of(self, queue);
}

brim_status cuda_device_copy(void *self, uint32_t queue, const brim_copy *copy, size_t count)
{
  cuda_backend *b = self;
  brim_device_work work = {.queue = queue};
  const enum cudaMemcpyKind kind = queue == BRIM_QUEUE_IN ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
  if (b->trace) BRIM_TRY(cuda_trace_start(b, stream_of(b, queue)));
  for (size_t i = 0; i < count; i++) {
    BRIM_TRY(cuda_check(cudaMemcpyAsync(copy[i].to, copy[i].from, copy[i].bytes, kind, stream_of(b, queue)),
                        "copying the optimizer's state"));
    work.bytes += copy[i].bytes;
  }
  return b->trace ? cuda_trace_mark(b, stream_of(b, queue), &work) : BRIM_OK;
}

brim_status cuda_device_mark(void *self, uint32_t queue, uint32_t mark)
{
  const cuda_backend *b = self;
  return cuda_check(cudaEventRecord(b->mark[mark], stream_of(b, queue)), "recording an event");
}

brim_status cuda_device_wait(void *self, uint32_t queue, uint32_t mark)
{
  const cuda_backend *b = self;
  return cuda_check(cudaStreamWaitEvent(stream_of(b, queue), b->mark[mark], 0), "waiting for an event");
}

/* ---- faults ---- */

static brim_status check_fault(const cuda_fault *fault)
{
  if (!fault->set) return BRIM_OK;
  const brim_node *node = (const brim_node *)(uintptr_t)fault->node;
  if (fault->set == CUDA_FAULT_LABEL) {
    brim_fail(BRIM_EINVAL, "sample %" PRId64 " of the micro-batch has label %d, but there are %" PRId64 " classes",
              fault->sample, fault->value, fault->limit);
    return brim_fail_add(BRIM_EINVAL, "in %s '%s'", node->op, node->name);
  }
  return brim_fail(BRIM_EINVAL, "%s '%s': index %d in sample %" PRId64 " of the micro-batch is not in [0, %" PRId64 ")",
                   node->op, node->name, fault->value, fault->sample, fault->limit);
}

brim_status cuda_device_synchronize(void *self)
{
  cuda_backend *b = self;
  cuda_fetch *now = &b->fetch[BRIM_FETCHES];
  BRIM_TRY(cuda_device_enter(b));
  BRIM_TRY(cuda_check(
      cudaMemcpyAsync(&now->flags, &b->control->flags, sizeof now->flags, cudaMemcpyDeviceToHost, b->compute),
      "copying from the device"));
  BRIM_TRY(cuda_check(cudaMemsetAsync(&b->control->flags, 0, sizeof b->control->flags, b->compute), "clearing flags"));
  BRIM_TRY(cuda_check(cudaStreamSynchronize(b->compute), "waiting for the device"));
  BRIM_TRY(cuda_check(cudaStreamSynchronize(b->in), "copying the optimizer's state"));
  BRIM_TRY(cuda_check(cudaStreamSynchronize(b->out), "copying the optimizer's state"));
  return check_fault(&now->flags.fault);
}

/* ---- inputs, and results that are read later ---- */

/* Inputs are copied to one of two stages while the previous program still reads its own inputs, and then within the
 * device, at the speed of its memory. So the arena needs room for two more copies of each input. */
uint64_t cuda_device_reserve_bytes(void *self, uint64_t feed_bytes)
{
  (void)self;
  return CUDA_STAGES * cuda_round_up(feed_bytes, CUDA_ALIGNMENT);
}

brim_status cuda_device_open_feed(void *self, void *base, uint64_t feed_bytes)
{
  cuda_backend *b = self;
  const uint64_t bytes = cuda_device_reserve_bytes(self, feed_bytes);
  if (b->first && b->pinned) { /* the last placement left this memory: the core unplaces only by the first instance */
    (void)cudaFreeHost(b->pinned);
    b->pinned = NULL;
    b->fed = 0;
  }
  if (b->pinned) return brim_fail(BRIM_EINTERNAL, "the backend feeds one arena at a time");
  b->stage = base;
  b->stage_bytes = bytes / CUDA_STAGES;
  if (cudaHostAlloc((void **)&b->pinned, bytes, cudaHostAllocDefault) == cudaSuccess) return BRIM_OK;
  (void)cudaGetLastError();
  return brim_fail(BRIM_ENOMEM_HOST, "the host could not allocate %" PRIu64 " bytes of pinned memory for the input",
                   bytes);
}

brim_status cuda_device_feed(void *self, const brim_copy *copy, size_t count)
{
  cuda_backend *b = self;
  const uint64_t slot = b->fed % CUDA_STAGES;
  uint8_t *host = b->pinned + slot * b->stage_bytes, *device = b->stage + slot * b->stage_bytes;
  uint64_t bytes = 0;
  BRIM_TRY(cuda_device_enter(b));
  if (b->fed >= CUDA_STAGES)
    BRIM_TRY(cuda_check(cudaEventSynchronize(b->consumed[slot]), "waiting for the input before the last"));
  for (size_t i = 0; i < count; i++) {
    if (!b->pinned || bytes + copy[i].bytes > b->stage_bytes)
      return brim_fail(BRIM_EINTERNAL, "an input of %" PRIu64 " bytes, more than was reserved", bytes + copy[i].bytes);
    memcpy(host + bytes, copy[i].from, copy[i].bytes);
    bytes += cuda_round_up(copy[i].bytes, CUDA_ALIGNMENT);
  }
  const brim_device_work work = {.queue = BRIM_QUEUE_IN, .bytes = bytes};
  if (b->trace) BRIM_TRY(cuda_trace_start(b, b->copies));
  BRIM_TRY(cuda_check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, b->copies), "copying the input"));
  if (b->trace) BRIM_TRY(cuda_trace_mark(b, b->copies, &work));
  BRIM_TRY(cuda_check(cudaEventRecord(b->copied[slot], b->copies), "recording an event"));
  BRIM_TRY(cuda_check(cudaStreamWaitEvent(b->compute, b->copied[slot], 0), "waiting for an event"));
  for (size_t i = 0; i < count; i++) {
    BRIM_TRY(cuda_check(cudaMemcpyAsync(copy[i].to, device, copy[i].bytes, cudaMemcpyDeviceToDevice, b->compute),
                        "moving the input"));
    device += cuda_round_up(copy[i].bytes, CUDA_ALIGNMENT);
  }
  BRIM_TRY(cuda_check(cudaEventRecord(b->consumed[slot], b->compute), "recording an event"));
  b->fed++;
  return BRIM_OK;
}

brim_status cuda_device_fetch(void *self, const brim_copy *copy, size_t count)
{
  cuda_backend *b = self;
  const uint64_t slot = b->fetches_started % BRIM_FETCHES;
  uint64_t bytes = 0;
  if (b->fetches_started - b->fetches_collected >= BRIM_FETCHES || count > CUDA_FETCH_PARTS)
    return brim_fail(BRIM_EINTERNAL, "a fetch exceeds its limits");
  for (size_t i = 0; i < count; bytes += copy[i++].bytes) {
    if (bytes + copy[i].bytes > BRIM_FETCH_BYTES) return brim_fail(BRIM_EINTERNAL, "a fetch exceeds its limits");
    b->fetch_copy[slot][i] = copy[i];
  }
  b->fetch_parts[slot] = count;
  BRIM_TRY(cuda_program_fetch(b, copy, count, &b->fetch[slot]));
  BRIM_TRY(cuda_check(cudaEventRecord(b->fetched[slot], b->compute), "recording an event"));
  b->fetches_started++;
  return BRIM_OK;
}

brim_status cuda_device_collect(void *self)
{
  cuda_backend *b = self;
  if (b->fetches_collected == b->fetches_started) return brim_fail(BRIM_EINTERNAL, "nothing was fetched");
  const uint64_t slot = b->fetches_collected++ % BRIM_FETCHES;
  const uint8_t *from = b->fetch[slot].bytes;
  BRIM_TRY(cuda_check(cudaEventSynchronize(b->fetched[slot]), "waiting for the device"));
  BRIM_TRY(check_fault(&b->fetch[slot].flags.fault));
  for (size_t i = 0; i < b->fetch_parts[slot]; from += b->fetch_copy[slot][i++].bytes)
    memcpy(b->fetch_copy[slot][i].to, from, b->fetch_copy[slot][i].bytes);
  return BRIM_OK;
}
