/* The emulated device: streams, and the calls of CUDA's runtime that the backend and communicators make. A separate
 * library, like the real one. */
#include "emulated.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "emulated_observer.h"

#define DEVICES_MAX 8

uint64_t emulated_kernels;
emulated_report (*emulated_observer)(uint32_t kind);

namespace
{
/* EMULATED_ILLEGAL=<n>: the n-th kernel after the variable is set (from 0) accesses an illegal address. As on a real
 * device, every call that waits then reports the error. Without the variable the device works again. */
int64_t kernels_until_illegal = -1;
bool is_broken;

bool is_illegal()
{
  const char *after = getenv("EMULATED_ILLEGAL");
  if (!after) {
    kernels_until_illegal = -1;
    is_broken = false;
    return false;
  }
  if (kernels_until_illegal < 0) kernels_until_illegal = strtoll(after, nullptr, 10);
  if (kernels_until_illegal == 0)
    is_broken = true;
  else
    kernels_until_illegal--;
  return is_broken;
}
} // namespace

/* ---- streams ---- */

/* By default a stream runs its work only when something waits for it, so work that other work should wait for, but does
 * not, runs too late and gives wrong results. With EMULATED_STREAMS=copies, streams without kernels run their work at
 * once, so work that should wait runs too early. With EMULATED_STREAMS=<seed>, every stream makes random progress
 * whenever one of them gets more work. A piece of work returns whether it is done; if not, the stream calls it
 * again. */
typedef std::function<bool()> work;
struct CUgraph_st {
  std::vector<work> node;
  std::thread::id thread; /* the recording thread */
  bool is_invalid;        /* a call that cannot be recorded was made */
};
struct CUgraphExec_st {
  std::vector<work> node;
  uint64_t bytes; /* on the device */
};
struct CUstream_st {
  std::deque<work> queue;
  CUgraph_st *capture;
  uint64_t added, done;
  bool has_kernels;
  int device;
};
struct CUevent_st {
  cudaStream_t stream;
  uint64_t position; /* the position in the stream's work after which the event lies */
  bool is_captured;  /* recorded by a captured stream: an event of the graph, not of the stream */
};

namespace
{
std::map<const char *, size_t> pinned; /* start and bytes */
uint64_t device_bytes_total = (uint64_t)1 << 30, device_bytes_used[DEVICES_MAX];
thread_local int chosen_device =
    -1; /* this thread's device, by its number among all devices, not only the visible ones */
struct allocation {
  size_t bytes;
  int device;
};
std::map<void *, allocation> allocated;

/* The device memory that a process takes implicitly: EMULATED_TAKES="context=50 library=30 node=1 nccl=20", in MiB; the
 * context when the device is chosen, the library at its first product, a node in a recorded program. neighbour=100 is
 * the memory that another process allocates while the context is made. */
uint64_t takes(const char *what)
{
  const char *text = getenv("EMULATED_TAKES"), *found = text ? strstr(text, what) : nullptr;
  return found ? strtoull(found + strlen(what) + 1, nullptr, 10) << 20 : 0;
}
uint64_t context_bytes[DEVICES_MAX], library_bytes[DEVICES_MAX];

/* Device 2 is GPU-02010203-0405-... */
int uuid_byte(int device, int i)
{
  return i == 0 ? device : i;
}

/* Returns the devices that CUDA_VISIBLE_DEVICES names, by number or by the start of the UUID, up to the first invalid
 * name. There are EMULATED_DEVICES devices to choose from, by default one. */
std::vector<int> visible_devices()
{
  const char *given = getenv("EMULATED_DEVICES"), *list = getenv("CUDA_VISIBLE_DEVICES");
  const int count = given ? static_cast<int>(std::min(strtol(given, nullptr, 10), static_cast<long>(DEVICES_MAX))) : 1;
  std::vector<int> visible;
  for (int i = 0; !list && i < count; i++) visible.push_back(i);
  while (list && *list) {
    const size_t length = strcspn(list, ",");
    int found = -1;
    for (int i = 0; i < count; i++) {
      char number[16], uuid[16];
      snprintf(number, sizeof number, "%d", i);
      snprintf(uuid, sizeof uuid, "GPU-%02x010203", uuid_byte(i, 0));
      if (strncmp(list, number, length) == 0 && number[length] == '\0') found = i;
      if (length > 4 && strncmp(list, uuid, std::min(length, strlen(uuid))) == 0) found = i;
    }
    if (found < 0) break;
    visible.push_back(found);
    list += length + (list[length] == ',');
  }
  return visible;
}

/* A thread begins with the first device, even if other threads have chosen another one. */
int current_device()
{
  if (chosen_device >= 0) return chosen_device;
  const std::vector<int> visible = visible_devices();
  return visible.empty() ? 0 : visible[0];
}

/* Returns false if an earlier item cannot be finished yet. */
bool run_until(cudaStream_t s, uint64_t position)
{
  for (; s->done < position; s->done++) {
    if (!s->queue.front()()) return false;
    s->queue.pop_front();
  }
  return true;
}

std::vector<cudaStream_t> streams;

/* ---- execution: by the host when it waits; and by a thread, for work that waits for other processes ---- */

std::mutex device; /* held while streams are accessed */
typedef std::unique_lock<std::mutex> hold;
std::chrono::steady_clock::time_point last_call; /* of the host */

hold enter()
{
  hold held(device);
  last_call = std::chrono::steady_clock::now();
  return held;
}

void wait_until(hold &held, cudaStream_t s, uint64_t position)
{
  while (!run_until(s, position)) {
    held.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    held = enter();
  }
}

/* Other ranks wait for work of this rank's device even while its host waits for something else, so a thread advances
 * the streams. */
class background
{
  std::thread thread;
  std::condition_variable end;
  bool ends = false;

  void go_on()
  {
    sigset_t all;
    sigfillset(&all); /* signals are for the program's own threads */
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    hold held(device);
    while (!end.wait_for(held, std::chrono::milliseconds(5), [this] { return ends; }))
      if (std::chrono::steady_clock::now() - last_call > std::chrono::milliseconds(20))
        for (cudaStream_t s : streams) run_until(s, s->added);
  }

public:
  void start()
  {
    if (!thread.joinable()) thread = std::thread([this] { go_on(); });
  }
  ~background()
  {
    {
      hold held(device);
      ends = true;
    }
    end.notify_all();
    if (thread.joinable()) thread.join();
  }
} rest; /* declared after the objects it uses, so it ends first */

void go_on()
{
  static uint64_t random;
  const char *order = getenv("EMULATED_STREAMS");
  if (!order) return;
  const bool copies = strcmp(order, "copies") == 0;
  if (random == 0 && !copies) random = strtoull(order, nullptr, 10) * 2 + 1;
  for (cudaStream_t s : streams) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    if (copies && !s->has_kernels) run_until(s, s->added);
    if (!copies && random >> 62 == 0) run_until(s, s->done + (random >> 32) % (s->added - s->done + 1));
  }
}

bool is_pinned(const void *p)
{
  auto after = pinned.upper_bound(static_cast<const char *>(p));
  if (after == pinned.begin()) return false;
  --after;
  return static_cast<const char *>(p) < after->first + after->second;
}
} // namespace

static cudaError_t enqueue(cudaStream_t s, work w)
{
  if (s->device != current_device()) return cudaErrorInvalidResourceHandle;
  if (s->capture) {
    if (s->capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
    s->capture->node.push_back(std::move(w));
    return cudaSuccess;
  }
  s->queue.push_back(std::move(w));
  s->added++;
  go_on();
  return cudaSuccess;
}

/* ---- calls that a capture does not allow ---- */

/* The checks below are those of CUDA's mode ThreadLocal, the only mode here. A capturing thread must not call functions
 * that no graph can contain: allocate, free, wait or query. Nor may any thread wait for captured work. Such a call
 * fails and invalidates the capture: all further calls are refused until cudaStreamEndCapture, which returns no graph.
 * A pageable copy waits for its own end. */
static cudaError_t invalidate(cudaStream_t s, cudaError_t e)
{
  if (s->capture) s->capture->is_invalid = true;
  return e;
}

static cudaError_t refuse_in_capture()
{
  cudaError_t e = cudaSuccess;
  for (cudaStream_t s : streams)
    if (s->capture && s->capture->thread == std::this_thread::get_id())
      e = invalidate(s, cudaErrorStreamCaptureUnsupported);
  return e;
}

static cudaError_t refuse_to_wait(cudaEvent_t e)
{
  if (e->is_captured) return invalidate(e->stream, cudaErrorCapturedEvent);
  return refuse_in_capture();
}

static work always(std::function<void()> w)
{
  return [w = std::move(w)] {
    w();
    return true;
  };
}

/* ---- the observer ---- */

static uint64_t nanoseconds()
{
  return (uint64_t)std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static work observed(uint32_t kind, cudaStream_t s, std::function<void()> w)
{
  if (!emulated_observer || s->capture) return always(std::move(w));
  return always([w = std::move(w), report = emulated_observer(kind)] {
    const uint64_t begin = nanoseconds();
    w();
    report(begin, nanoseconds());
  });
}

void emulated_enqueue(cudaStream_t s, std::function<void()> w)
{
  const hold held = enter();
  enqueue(s, observed(CUPTI_KERNEL, s, std::move(w)));
}

void emulated_enqueue_until(cudaStream_t s, std::function<bool()> w)
{
  const hold held = enter();
  rest.start();
  enqueue(s, std::move(w));
}

brim_status emulated_launch(cudaStream_t stream, cuda_geometry g, const std::function<void()> &body)
{
  if (g.threads == 0 || g.threads > EMULATED_THREADS_MAX || g.shared_bytes > EMULATED_SHARED_BYTES_MAX ||
      g.blocks[0] == 0 || g.blocks[1] == 0 || g.blocks[1] > 65535 || g.blocks[2] == 0 || g.blocks[2] > 65535)
    return brim_fail(BRIM_EDEVICE, "launching a kernel: invalid configuration: %u x %u x %u blocks of %u threads",
                     g.blocks[0], g.blocks[1], g.blocks[2], g.threads);
  const hold held = enter();
  stream->has_kernels = true;
  const cudaError_t e = enqueue(stream, observed(CUPTI_KERNEL, stream, [=] {
                                  emulated_kernels++;
                                  if (!is_illegal()) emulated_run_grid(g, body);
                                }));
  return e == cudaSuccess ? BRIM_OK : brim_fail(BRIM_EDEVICE, "launching a kernel: %s", cudaGetErrorString(e));
}

namespace
{
struct error_text {
  cudaError_t error;
  const char *name, *text;
};
#define ERROR(error, text)                                                                                             \
  {                                                                                                                    \
    error, #error, text                                                                                                \
  }
const error_text error_texts[] = {
    ERROR(cudaSuccess, "no error"),
    ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ERROR(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    ERROR(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    ERROR(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
};
const error_text &text_of(cudaError_t e)
{
  static const error_text other = {cudaErrorUnknown, "cudaError", "an error of the emulated device"};
  for (const error_text &known : error_texts)
    if (known.error == e) return known;
  return other;
}
} // namespace

void emulated_load_library()
{
  if (library_bytes[current_device()] > 0) return;
  library_bytes[current_device()] = takes("library");
  device_bytes_used[current_device()] += library_bytes[current_device()];
}

void emulated_connect(bool begins)
{
  if (begins)
    device_bytes_used[current_device()] += takes("nccl");
  else
    device_bytes_used[current_device()] -= takes("nccl");
}

/* Returns the version in EMULATED_DRIVER as the runtime reports it: 12040 for "12.4". Without the variable, returns the
 * version of this toolkit. */
static int driver_version()
{
  const char *text = getenv("EMULATED_DRIVER");
  int major = 0, minor = 0;
  return text && sscanf(text, "%d.%d", &major, &minor) == 2 ? 1000 * major + 10 * minor : CUDART_VERSION;
}

extern "C" {

cudaError_t cudaGetDeviceCount(int *count)
{
  *count = 0;
  if (driver_version() / 1000 < CUDART_VERSION / 1000) return cudaErrorInsufficientDriver;
  *count = (int)visible_devices().size();
  return *count ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetDevice(int *device)
{
  const std::vector<int> visible = visible_devices();
  *device = (int)(std::find(visible.begin(), visible.end(), current_device()) - visible.begin());
  return visible.empty() ? cudaErrorNoDevice : cudaSuccess;
}
cudaError_t cudaSetDevice(int device)
{
  const std::vector<int> visible = visible_devices();
  if (device < 0 || device >= (int)visible.size()) return cudaErrorInvalidDevice;
  chosen_device = visible[(size_t)device];
  if (context_bytes[current_device()] == 0)
    device_bytes_used[current_device()] += takes("context") + takes("neighbour");
  context_bytes[current_device()] = takes("context");
  return cudaSuccess;
}
cudaError_t cudaDeviceReset(void)
{
  const hold held = enter();
  if (refuse_in_capture() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  device_bytes_used[current_device()] -= context_bytes[current_device()] + library_bytes[current_device()];
  context_bytes[current_device()] = library_bytes[current_device()] = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int device)
{
  const std::vector<int> visible = visible_devices();
  if (device < 0 || device >= (int)visible.size()) return cudaErrorInvalidDevice;
  memset(out, 0, sizeof *out);
  snprintf(out->name, sizeof out->name, "emulated device");
  out->totalGlobalMem = device_bytes_total;
  out->multiProcessorCount = 4;
  out->major = 9;
  if (const char *capability = getenv("EMULATED_CAPABILITY")) sscanf(capability, "%d.%d", &out->major, &out->minor);
  out->sharedMemPerBlockOptin = EMULATED_SHARED_BYTES_MAX;
  out->pciBusID = visible[(size_t)device] + 1;
  for (int i = 0; i < 16; i++) out->uuid.bytes[i] = (char)uuid_byte(visible[(size_t)device], i);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
  if (getenv("EMULATED_FULL")) return cudaErrorMemoryAllocation; /* not even a context fits */
  const uint64_t used = std::min(device_bytes_used[current_device()], device_bytes_total);
  *free_bytes = device_bytes_total - used;
  *total = device_bytes_total;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void **out, size_t bytes)
{
  const hold held = enter();
  if (refuse_in_capture() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  if (device_bytes_used[current_device()] > device_bytes_total) return cudaErrorMemoryAllocation;
  if (bytes > device_bytes_total - device_bytes_used[current_device()]) return cudaErrorMemoryAllocation;
  if (posix_memalign(out, 256, bytes ? bytes : 1) != 0) return cudaErrorMemoryAllocation;
  memset(*out, 0xFF, bytes);
  allocated[*out] = allocation{bytes, current_device()};
  device_bytes_used[current_device()] += bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void *p)
{
  if (!p) return getenv("EMULATED_FULL") ? cudaErrorMemoryAllocation : cudaSuccess; /* this call makes a context */
  const hold held = enter();
  if (refuse_in_capture() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  auto found = allocated.find(p);
  if (found == allocated.end()) return cudaErrorInvalidValue;
  device_bytes_used[found->second.device] -= found->second.bytes;
  allocated.erase(found);
  free(p);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned)
{
  const hold held = enter();
  if (refuse_in_capture() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  *out = malloc(bytes ? bytes : 1);
  if (!*out) return cudaErrorMemoryAllocation;
  pinned[static_cast<const char *>(*out)] = bytes ? bytes : 1;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void *p)
{
  const hold held = enter();
  if (refuse_in_capture() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  pinned.erase(static_cast<const char *>(p));
  free(p);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned)
{
  const hold held = enter();
  streams.push_back(*out = new CUstream_st{});
  (*out)->device = current_device();
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int)
{
  return cudaStreamCreateWithFlags(out, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
  const hold held = enter();
  streams.erase(std::find(streams.begin(), streams.end(), s));
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
  hold held = enter();
  if (s->capture) return invalidate(s, cudaErrorStreamCaptureUnsupported);
  if (refuse_in_capture() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  wait_until(held, s, s->added);
  return is_broken ? cudaErrorIllegalAddress : cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned)
{
  *out = new CUevent_st{};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
  delete e;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
  const hold held = enter();
  if (s->capture && s->capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
  *e = CUevent_st{s, s->added, s->capture != nullptr};
  return cudaSuccess;
}
/* Reports times in which each piece of work in a stream takes a microsecond, and all of them begin with the origin's
 * stream. */
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
  const hold held = enter();
  if (!from->stream || !to->stream) return cudaErrorInvalidResourceHandle;
  *milliseconds = from->stream == to->stream ? 1e-3f * (float)(to->position - from->position) : 0;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
  hold held = enter();
  const cudaError_t refused = refuse_to_wait(e);
  if (refused != cudaSuccess) return refused;
  if (e->stream) wait_until(held, e->stream, e->position);
  return is_broken ? cudaErrorIllegalAddress : cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e)
{
  hold held = enter();
  const cudaError_t refused = refuse_to_wait(e);
  if (refused != cudaSuccess) return refused;
  if (e->stream && !run_until(e->stream, e->position)) {
    held.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50)); /* a caller that polls leaves a core to others */
    return cudaErrorNotReady;
  }
  return is_broken ? cudaErrorIllegalAddress : cudaSuccess;
}
/* A graph contains work of one stream only: a captured stream that waits for another is refused. A stream that would
 * join a capture by waiting for its event is refused too, but only here: brim captures one stream. */
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
  const hold held = enter();
  if (s->capture && e->stream && !e->is_captured) return invalidate(s, cudaErrorStreamCaptureIsolation);
  if (e->is_captured) return s == e->stream ? cudaSuccess : refuse_to_wait(e);
  const CUevent_st at = *e; /* the event's state at the call */
  return enqueue(s, [at] { return !at.stream || run_until(at.stream, at.position); });
}
/* Memory that is not pinned is read or written before the call returns. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s)
{
  hold held = enter();
  const bool reads = kind == cudaMemcpyHostToDevice && !is_pinned(from);
  const bool writes = kind == cudaMemcpyDeviceToHost && !is_pinned(to);
  if (s->capture && (reads || writes)) return invalidate(s, cudaErrorStreamCaptureUnsupported);
  if (reads) {
    auto copy =
        std::make_shared<std::vector<char>>(static_cast<const char *>(from), static_cast<const char *>(from) + bytes);
    return enqueue(s, observed(CUPTI_MEMCPY, s, [=] { memcpy(to, copy->data(), bytes); }));
  }
  const cudaError_t e = enqueue(s, observed(CUPTI_MEMCPY, s, [=] { memmove(to, from, bytes); }));
  held.unlock();
  return writes ? cudaStreamSynchronize(s) : e;
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s)
{
  const hold held = enter();
  return enqueue(s, observed(CUPTI_MEMSET, s, [=] { memset(to, value, bytes); }));
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode)
{
  const hold held = enter();
  if (mode != cudaStreamCaptureModeThreadLocal) return cudaErrorNotSupported;
  if (s->capture) return cudaErrorIllegalState;
  s->capture = new CUgraph_st{{}, std::this_thread::get_id(), false};
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
  const hold held = enter();
  *out = nullptr;
  if (!s->capture) return cudaErrorIllegalState;
  if (s->capture->thread != std::this_thread::get_id()) return invalidate(s, cudaErrorStreamCaptureWrongThread);
  if (s->capture->is_invalid)
    delete s->capture;
  else
    *out = s->capture;
  s->capture = nullptr;
  return *out ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long)
{
  *out = new CUgraphExec_st{graph->node, 0};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
  device_bytes_used[current_device()] -= graph->bytes;
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t s)
{
  const hold held = enter();
  cudaError_t e = cudaSuccess;
  for (const work &w : graph->node) e = enqueue(s, w);
  return e;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t)
{
  if (getenv("EMULATED_LATE")) return cudaErrorMemoryAllocation; /* nothing fits beside the arena */
  graph->bytes = takes("node") * graph->node.size();
  device_bytes_used[current_device()] += graph->bytes;
  return cudaSuccess;
}
cudaError_t cudaGetLastError()
{
  return cudaSuccess;
}
cudaError_t cudaPeekAtLastError()
{
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version)
{
  *version = driver_version();
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version)
{
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *out, int room, int)
{
  snprintf(out, (size_t)room, "0000:00:00.0");
  return cudaSuccess;
}
const char *cudaGetErrorName(cudaError_t e)
{
  return text_of(e).name;
}
const char *cudaGetErrorString(cudaError_t e)
{
  return text_of(e).text;
  return e == cudaErrorMemoryAllocation     ? "out of memory"
         : e == cudaErrorInsufficientDriver ? "CUDA driver version is insufficient for CUDA runtime version"
         : e == cudaErrorNoDevice           ? "no CUDA-capable device is detected"
         : e == cudaErrorIllegalAddress     ? "an illegal memory access was encountered"
         : e == cudaSuccess                 ? "no error"
                                            : "an error of the emulated device";
}
}
