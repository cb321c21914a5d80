/* The emulated device: fibers, streams, and the calls of CUDA's runtime that the backend makes. */
#include "emulated.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#define THREADS_MAX 1024
#define STACK_BYTES (256 << 10) /* with room for copies of a kernel's arguments, 32 KiB */
#define SHARED_BYTES_MAX (227 << 10)
#define DEVICES_MAX 8

emulated_thread *emulated_self;
uint3 emulated_block_index;
dim3 emulated_block_size, emulated_grid_size;
uint64_t emulated_kernels;

/* ---- fibers ---- */

/* swapcontext makes a system call each time; it starts a fiber, and jumps do the rest. */
namespace
{
struct fiber {
  emulated_thread thread;
  ucontext_t context;
  jmp_buf at;
  bool started;
  char *stack;
};
fiber fibers[THREADS_MAX];
jmp_buf scheduler;
ucontext_t scheduler_context;
const std::function<void()> *kernel_body;
unsigned alive, at_barrier;
alignas(16) char dynamic_shared[SHARED_BYTES_MAX];

[[noreturn]] void fault(const char *what)
{
  fprintf(stderr, "emulated device: %s (block %u,%u,%u, thread %u)\n", what, blockIdx.x, blockIdx.y, blockIdx.z,
          emulated_self ? threadIdx.x : 0);
  abort();
}

void to_scheduler()
{
  fiber *self = reinterpret_cast<fiber *>(emulated_self);
  if (_setjmp(self->at) == 0) _longjmp(scheduler, 1);
}

/* A fiber's whole life: one kernel thread after another. */
void fiber_main()
{
  for (;;) {
    (*kernel_body)();
    emulated_self->state = EMULATED_DONE;
    alive--;
    to_scheduler();
  }
}

void enter(fiber *f)
{
  emulated_self = &f->thread;
  if (_setjmp(scheduler) != 0) return;
  if (f->started) _longjmp(f->at, 1);
  f->started = true;
  f->stack = static_cast<char *>(malloc(STACK_BYTES));
  getcontext(&f->context);
  f->context.uc_stack.ss_sp = f->stack;
  f->context.uc_stack.ss_size = STACK_BYTES;
  f->context.uc_link = nullptr;
  makecontext(&f->context, fiber_main, 0);
  setcontext(&f->context);
}

/* The order in which threads get their turn. */
void make_order(std::vector<unsigned> &order, unsigned threads)
{
  static uint64_t state = getenv("EMULATED_ORDER") ? strtoull(getenv("EMULATED_ORDER"), nullptr, 10) : 0;
  order.resize(threads);
  for (unsigned i = 0; i < threads; i++) order[i] = i;
  if (state == 0) return;
  for (unsigned i = threads; i > 1; i--) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::swap(order[i - 1], order[(state >> 33) % i]);
  }
}

void run_block(const cuda_geometry &g)
{
  static std::vector<unsigned> order;
  make_order(order, g.threads);
  memset(dynamic_shared, 0xFF, g.shared_bytes);
  for (unsigned i = 0; i < g.threads; i++) {
    fibers[i].thread = emulated_thread{};
    fibers[i].thread.index = uint3{i, 0, 0};
  }
  alive = g.threads;
  at_barrier = 0;
  while (alive > 0) {
    bool progress = false;
    for (unsigned i : order)
      if (fibers[i].thread.state == EMULATED_READY) {
        enter(&fibers[i]);
        progress = true;
      }
    if (at_barrier > 0 && at_barrier == alive) {
      at_barrier = 0;
      for (unsigned i = 0; i < g.threads; i++)
        if (fibers[i].thread.state == EMULATED_AT_BARRIER) fibers[i].thread.state = EMULATED_READY;
      progress = true;
    }
    if (!progress)
      fault("threads wait for each other: a barrier that not all reach, or lanes of a warp that do not come");
  }
}

/* With EMULATED_ILLEGAL=<n> the n-th kernel from then on (from 0) accesses an illegal address: as on a device, every
 * call that waits says so from then on. Without the variable the device is well again. */
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

void run_grid(const cuda_geometry &g, const std::function<void()> &body)
{
  emulated_kernels++;
  if (is_illegal()) return;
  kernel_body = &body;
  emulated_block_size = dim3(g.threads);
  emulated_grid_size = dim3(g.blocks[0], g.blocks[1], g.blocks[2]);
  for (unsigned z = 0; z < g.blocks[2]; z++)
    for (unsigned y = 0; y < g.blocks[1]; y++)
      for (unsigned x = 0; x < g.blocks[0]; x++) {
        emulated_block_index = uint3{x, y, z};
        run_block(g);
      }
  emulated_self = nullptr;
}
} // namespace

void *cuda_dynamic_shared()
{
  return dynamic_shared;
}

void __syncthreads()
{
  emulated_self->state = EMULATED_AT_BARRIER;
  at_barrier++;
  to_scheduler();
}

uint64_t emulated_exchange(unsigned mask, uint64_t given, int source)
{
  const unsigned first = threadIdx.x / CUDA_WARP * CUDA_WARP;
  if (!(mask >> emulated_lane() & 1)) fault("a lane exchanges under a mask without itself");
  emulated_self->mask = mask;
  emulated_self->given = given;
  emulated_self->source = source;
  emulated_self->state = EMULATED_AT_WARP;
  bool all = true;
  uint64_t votes = 0;
  for (unsigned lane = 0; lane < CUDA_WARP; lane++) {
    if (!(mask >> lane & 1)) continue;
    const emulated_thread *t = &fibers[first + lane].thread;
    if (first + lane >= blockDim.x || t->state == EMULATED_DONE) fault("a lane of an exchange's mask has ended");
    if (t->state != EMULATED_AT_WARP || t->mask != mask) all = false;
    votes |= (t->given & 1) << lane;
  }
  if (all)
    for (unsigned lane = 0; lane < CUDA_WARP; lane++) {
      if (!(mask >> lane & 1)) continue;
      emulated_thread *t = &fibers[first + lane].thread;
      if (t->source >= 0 && !(mask >> t->source & 1)) fault("a lane takes from one that is not in the mask");
      t->taken = t->source < 0 ? votes : fibers[first + (unsigned)t->source].thread.given;
      t->state = EMULATED_READY;
    }
  if (!all) to_scheduler();
  return emulated_self->taken;
}

/* ---- streams ---- */

/* Work waits in its stream until somebody waits for it, so what lacks an event comes too late to be right. */
typedef std::function<void()> work;
struct CUgraph_st {
  std::vector<work> node;
};
struct CUgraphExec_st {
  std::vector<work> node;
};
struct CUstream_st {
  std::deque<work> queue;
  CUgraph_st *capture;
  uint64_t added, done;
};
struct CUevent_st {
  cudaStream_t stream;
  uint64_t position; /* of the stream's work that the event is behind */
};

namespace
{
std::map<const char *, size_t> pinned; /* start and bytes */
uint64_t device_bytes_total = (uint64_t)1 << 30, device_bytes_used[DEVICES_MAX];
int current_device; /* its number, whatever is visible */
struct allocation {
  size_t bytes;
  int device;
};
std::map<void *, allocation> allocated;

/* Device 2 is GPU-02010203-0405-... */
int uuid_byte(int device, int i)
{
  return i == 0 ? device : i;
}

/* The devices that CUDA_VISIBLE_DEVICES names, by number or by the start of the UUID, until a name means none; of
 * EMULATED_DEVICES, which is one unless it says otherwise. */
std::vector<int> visible_devices()
{
  const char *given = getenv("EMULATED_DEVICES"), *list = getenv("CUDA_VISIBLE_DEVICES");
  const int count = given ? std::min(atoi(given), DEVICES_MAX) : 1;
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

void run_until(cudaStream_t s, uint64_t position)
{
  while (s->done < position) {
    work w = std::move(s->queue.front());
    s->queue.pop_front();
    w();
    s->done++;
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

void emulated_enqueue(cudaStream_t s, work w)
{
  if (s->capture) {
    s->capture->node.push_back(std::move(w));
    return;
  }
  s->queue.push_back(std::move(w));
  s->added++;
}

brim_status emulated_launch(cudaStream_t stream, cuda_geometry g, const std::function<void()> &body)
{
  if (g.threads == 0 || g.threads > THREADS_MAX || g.shared_bytes > SHARED_BYTES_MAX || g.blocks[0] == 0 ||
      g.blocks[1] == 0 || g.blocks[1] > 65535 || g.blocks[2] == 0 || g.blocks[2] > 65535)
    return brim_fail(BRIM_EDEVICE, "launching a kernel: invalid configuration: %u x %u x %u blocks of %u threads",
                     g.blocks[0], g.blocks[1], g.blocks[2], g.threads);
  emulated_enqueue(stream, [=] { run_grid(g, body); });
  return BRIM_OK;
}

extern "C" {

cudaError_t cudaGetDeviceCount(int *count)
{
  *count = (int)visible_devices().size();
  return *count ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaSetDevice(int device)
{
  const std::vector<int> visible = visible_devices();
  if (device < 0 || device >= (int)visible.size()) return cudaErrorInvalidDevice;
  current_device = visible[(size_t)device];
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
  out->sharedMemPerBlockOptin = SHARED_BYTES_MAX;
  out->pciBusID = visible[(size_t)device] + 1;
  for (int i = 0; i < 16; i++) out->uuid.bytes[i] = (char)uuid_byte(visible[(size_t)device], i);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
  if (getenv("EMULATED_FULL")) return cudaErrorMemoryAllocation; /* not even a context fits */
  *free_bytes = device_bytes_total - device_bytes_used[current_device];
  *total = device_bytes_total;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void **out, size_t bytes)
{
  if (bytes > device_bytes_total - device_bytes_used[current_device]) return cudaErrorMemoryAllocation;
  if (posix_memalign(out, 256, bytes ? bytes : 1) != 0) return cudaErrorMemoryAllocation;
  memset(*out, 0xFF, bytes);
  allocated[*out] = allocation{bytes, current_device};
  device_bytes_used[current_device] += bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void *p)
{
  if (!p) return cudaSuccess;
  auto found = allocated.find(p);
  if (found == allocated.end()) return cudaErrorInvalidValue;
  device_bytes_used[found->second.device] -= found->second.bytes;
  allocated.erase(found);
  free(p);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned)
{
  *out = malloc(bytes ? bytes : 1);
  if (!*out) return cudaErrorMemoryAllocation;
  pinned[static_cast<const char *>(*out)] = bytes ? bytes : 1;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void *p)
{
  pinned.erase(static_cast<const char *>(p));
  free(p);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned)
{
  *out = new CUstream_st{};
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
  if (s->capture) return cudaErrorStreamCaptureUnsupported;
  run_until(s, s->added);
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
  *e = CUevent_st{s, s->added};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
  if (e->stream) run_until(e->stream, e->position);
  return is_broken ? cudaErrorIllegalAddress : cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
  const CUevent_st at = *e; /* as it was recorded when the wait was asked for */
  emulated_enqueue(s, [at] {
    if (at.stream) run_until(at.stream, at.position);
  });
  return cudaSuccess;
}
/* Memory that is not pinned is read before the call returns, and written before it returns. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s)
{
  if (kind == cudaMemcpyHostToDevice && !is_pinned(from)) {
    auto copy =
        std::make_shared<std::vector<char>>(static_cast<const char *>(from), static_cast<const char *>(from) + bytes);
    emulated_enqueue(s, [=] { memcpy(to, copy->data(), bytes); });
    return cudaSuccess;
  }
  emulated_enqueue(s, [=] { memmove(to, from, bytes); });
  if (kind == cudaMemcpyDeviceToHost && !is_pinned(to)) return cudaStreamSynchronize(s);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s)
{
  emulated_enqueue(s, [=] { memset(to, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode)
{
  if (s->capture) return cudaErrorIllegalState;
  s->capture = new CUgraph_st{};
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
  if (!s->capture) return cudaErrorIllegalState;
  *out = s->capture;
  s->capture = nullptr;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long)
{
  *out = new CUgraphExec_st{graph->node};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t s)
{
  for (const work &w : graph->node) emulated_enqueue(s, w);
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
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
  *version = CUDART_VERSION;
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
  return e == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
         : e == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress"
         : e == cudaSuccess             ? "cudaSuccess"
                                        : "cudaError";
}
const char *cudaGetErrorString(cudaError_t e)
{
  return e == cudaErrorMemoryAllocation ? "out of memory"
         : e == cudaErrorNoDevice       ? "no CUDA-capable device is detected"
         : e == cudaErrorIllegalAddress ? "an illegal memory access was encountered"
         : e == cudaSuccess             ? "no error"
                                        : "an error of the emulated device";
}
}
