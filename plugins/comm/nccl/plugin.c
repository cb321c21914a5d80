/* The communicator `nccl`: collectives in the memory of NVIDIA GPUs. It does not connect hosts: ranks find each other
 * and vote through another communicator.
 *
 * The device executes collectives in the order of their queue; an event after each collective shows when it is done.
 * NCCL is set not to block inside a call (config.blocking 0): while it returns ncclInProgress, this plugin polls it. So
 * a rank that dies or hangs delays the others at most for the job's timeout.
 *
 * On a given set of devices, NCCL adds up in the same order in every run, and all ranks get the same bits, if its
 * algorithm adds in kernels. If switches add (NVLS, CollNet), the order is not guaranteed. So NCCL uses rings and
 * trees, unless comm.deterministic=false or NCCL_ALGO is set. Where a switch could add, for instance between eight
 * H100, this costs bandwidth. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime_api.h>

#include "brim/brim.h"
#include "brim/comm.h"
#include "library.h"

#define NCCL_ALGORITHMS "Ring,Tree"
#define WARM_UP_FIRST 256                 /* bytes of the first trial */
#define WARM_UP_FACTOR 16                 /* ratio of the bytes of two successive trials */
#define WARM_UP_LEAST ((uint64_t)4 << 20) /* minimum bytes of the largest trial */
#define WARM_UP_MOST ((uint64_t)64 << 20)
#define END_SECONDS 5 /* time for ranks that end together */

typedef struct nccl_params {
  bool deterministic;
} nccl_params;

static const brim_param comm_params[] = {BRIM_PARAM(BOOL, nccl_params, deterministic, "true", NULL,
                                                    "true: bit-identical sums in every run, by rings and trees; false: "
                                                    "also in network switches, which is faster if available"),
                                         BRIM_PARAMS_END};

typedef struct communicator {
  const nccl_params *params;
  const nccl_library *nccl;
  ncclComm_t comm; /* NULL if the ranks are not connected */
  int32_t rank, ranks;
  double seconds; /* timeout of the job */
  cudaEvent_t done_event[BRIM_COLLECTIVES];
  uint64_t started, done;
  bool failed;
} communicator;

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- errors of NCCL and the runtime ---- */

static brim_status check_cuda(communicator *c, cudaError_t error, const char *what)
{
  if (error == cudaSuccess) return BRIM_OK;
  (void)cudaGetLastError(); /* clears the error, so that the next call does not return it again */
  c->failed = true;
  if (error == cudaErrorMemoryAllocation) return brim_fail(BRIM_ENOMEM_DEVICE, "%s: out of device memory", what);
  return brim_fail(BRIM_EDEVICE, "%s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

static brim_status check_nccl(communicator *c, ncclResult_t result, const char *what)
{
  if (result == ncclSuccess) return BRIM_OK;
  c->failed = true;
  const char *more = c->comm ? c->nccl->GetLastError(c->comm) : NULL;
  return brim_fail(BRIM_ECOMM, "NCCL, %s: %s%s%s\nNCCL_DEBUG=WARN shows details", what, c->nccl->GetErrorString(result),
                   more && more[0] ? ": " : "", more ? more : "");
}

/* Waits until NCCL has completed what a call started, for at most `seconds`. Returns NCCL's result. */
static ncclResult_t settle(const communicator *c, ncclResult_t result, double seconds)
{
  const struct timespec pause = {.tv_nsec = 100000};
  const double start = now();
  while (result == ncclInProgress && now() - start < seconds) {
    ncclResult_t state = ncclInProgress;
    const ncclResult_t asked = c->nccl->CommGetAsyncError(c->comm, &state);
    result = asked == ncclSuccess ? state : asked;
    if (result == ncclInProgress) (void)nanosleep(&pause, NULL);
  }
  return result;
}

static brim_status give_up(communicator *c, const char *what)
{
  c->failed = true;
  return brim_fail(BRIM_ECOMM,
                   "NCCL, %s: not done within dist.timeout_seconds=%g: a rank has ended or cannot be reached", what,
                   c->seconds);
}

static brim_status complete(communicator *c, ncclResult_t result, const char *what)
{
  result = settle(c, result, c->seconds);
  return result == ncclInProgress ? give_up(c, what) : check_nccl(c, result, what);
}

/* ---- starting ---- */

static ncclDataType_t type_of(uint32_t dtype)
{
  return dtype == BRIM_DTYPE_F64 ? ncclFloat64 : dtype == BRIM_DTYPE_F32 ? ncclFloat32 : ncclUint8;
}

static const char *name_of(uint32_t kind)
{
  return kind == BRIM_ALL_REDUCE       ? "adding up over all ranks"
         : kind == BRIM_REDUCE_SCATTER ? "adding up parts over all ranks"
         : kind == BRIM_ALL_GATHER     ? "gathering parts of all ranks"
                                       : "sending from rank 0";
}

static ncclResult_t call(const communicator *c, const brim_collective *what, cudaStream_t stream)
{
  const ncclDataType_t type = type_of(what->dtype);
  const size_t part = what->count / (size_t)c->ranks;
  void *all = what->buffer, *own = (char *)all + (size_t)c->rank * part * brim_dtype_bytes(what->dtype);
  switch (what->kind) {
  case BRIM_ALL_REDUCE:
    return c->nccl->AllReduce(all, all, what->count, type, ncclSum, c->comm, stream);
  case BRIM_REDUCE_SCATTER:
    return c->nccl->ReduceScatter(all, own, part, type, ncclSum, c->comm, stream);
  case BRIM_ALL_GATHER:
    return c->nccl->AllGather(own, all, part, type, c->comm, stream);
  default:
    return c->nccl->Broadcast(all, all, what->count, type, 0, c->comm, stream);
  }
}

static brim_status start(void *self, const brim_collective *what, void *queue)
{
  communicator *c = self;
  cudaStream_t stream = queue;
  const bool has_parts = what->kind == BRIM_REDUCE_SCATTER || what->kind == BRIM_ALL_GATHER;
  const bool is_sum = what->kind == BRIM_ALL_REDUCE || what->kind == BRIM_REDUCE_SCATTER;
  if (has_parts && what->count % (uint64_t)c->ranks != 0)
    return brim_fail(BRIM_EINVAL, "%llu elements cannot be divided equally among %d ranks",
                     (unsigned long long)what->count, (int)c->ranks);
  if (is_sum && what->dtype != BRIM_DTYPE_F32 && what->dtype != BRIM_DTYPE_F64)
    return brim_fail(BRIM_ENOTSUP, "sums over ranks must be of float32 or float64");
  BRIM_TRY(complete(c, call(c, what, stream), name_of(what->kind)));
  BRIM_TRY(check_cuda(c, cudaEventRecord(c->done_event[c->started % BRIM_COLLECTIVES], stream), "recording an event"));
  c->started++;
  return BRIM_OK;
}

static brim_status poll(void *self, uint64_t *done)
{
  communicator *c = self;
  while (c->done < c->started) {
    const cudaError_t e = cudaEventQuery(c->done_event[c->done % BRIM_COLLECTIVES]);
    if (e == cudaErrorNotReady) break;
    BRIM_TRY(check_cuda(c, e, "adding up over all ranks"));
    c->done++;
  }
  *done = c->done;
  (void)cudaGetLastError(); /* clears "not ready", so that the next call does not return it */
  if (c->done == c->started) return BRIM_OK;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = c->nccl->CommGetAsyncError(c->comm, &state);
  return check_nccl(c, asked == ncclSuccess ? state : asked, "waiting for other ranks");
}

/* ---- connecting ---- */

/* The data that ranks exchange before they wait in NCCL. */
typedef struct greeting {
  int32_t status;
  int32_t version;
  char device[64]; /* the UUID of the rank's GPU */
  ncclUniqueId id; /* rank 0's ID, sent in the second exchange */
} greeting;

static brim_status prepare(communicator *c, const brim_backend_ops *ops, void *backend, int32_t device, greeting *own)
{
  int version = 0;
  brim_device_info info = {0};
  BRIM_TRY(nccl_library_load(&c->nccl));
  BRIM_TRY(check_cuda(c, cudaSetDevice(device), "choosing a device"));
  BRIM_TRY(ops->describe(backend, device, &info));
  BRIM_TRY(check_nccl(c, c->nccl->GetVersion(&version), "querying its version"));
  own->version = version;
  (void)snprintf(own->device, sizeof own->device, "%s", info.uuid);
  for (int i = 0; i < BRIM_COLLECTIVES; i++)
    BRIM_TRY(check_cuda(c, cudaEventCreateWithFlags(&c->done_event[i], cudaEventDisableTiming), "creating an event"));
  return BRIM_OK;
}

static brim_status compare(const communicator *c, const greeting *all)
{
  for (int32_t r = 0; r < c->ranks; r++)
    if (all[r].status != BRIM_OK) return brim_fail(BRIM_ECOMM, "rank %d cannot use NCCL; see its own message", (int)r);
  for (int32_t r = 1; r < c->ranks; r++)
    if (all[r].version != all[0].version)
      return brim_fail(BRIM_ECOMM,
                       "rank %d has NCCL %d.%d.%d, but rank 0 has %d.%d.%d: all ranks need the same version", (int)r,
                       all[r].version / 10000, all[r].version / 100 % 100, all[r].version % 100, all[0].version / 10000,
                       all[0].version / 100 % 100, all[0].version % 100);
  return BRIM_OK;
}

/* NCCL refuses two ranks of a host on one GPU. If ranks share a GPU anyway, for instance in a test, each of them gets a
 * host name of its own. */
static brim_status separate_hosts(const communicator *c, const greeting *all)
{
  char host[128];
  bool shares = false;
  for (int32_t r = 0; r < c->ranks; r++)
    shares = shares || (r != c->rank && all[r].device[0] && strcmp(all[r].device, all[c->rank].device) == 0);
  (void)snprintf(host, sizeof host, "rank-%d-of-%s", (int)c->rank, all[c->rank].device);
  if (!shares || setenv("NCCL_HOSTID", host, 0) == 0) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM_HOST, "no memory for an environment variable");
}

/* Exchanges the status of all ranks. A rank that has failed informs the others and keeps its own error message. */
static brim_status exchange_status(const communicator *c, const brim_talk *talk, brim_status own_status, greeting *own,
                                   greeting *all)
{
  char text[1024];
  (void)snprintf(text, sizeof text, "%s", own_status == BRIM_OK ? "" : brim_error_text());
  own->status = own_status;
  const brim_status status = talk->exchange(talk->context, own, sizeof *own, all);
  if (own_status != BRIM_OK) return brim_fail(own_status, "%s", text);
  return status == BRIM_OK ? compare(c, all) : status;
}

static brim_status make_id(communicator *c, const greeting *all, greeting *own)
{
  BRIM_TRY(separate_hosts(c, all));
  return c->rank == 0 ? check_nccl(c, c->nccl->GetUniqueId(&own->id), "making the job's id") : BRIM_OK;
}

static brim_status greet(communicator *c, const brim_talk *talk, const brim_backend_ops *ops, void *backend,
                         int32_t device, ncclUniqueId *id)
{
  greeting own = {0};
  greeting *all = brim_try_calloc((size_t)c->ranks, sizeof *all);
  if (!all) return brim_fail(BRIM_ENOMEM_HOST, "no memory to connect the ranks");
  brim_status status = exchange_status(c, talk, prepare(c, ops, backend, device, &own), &own, all);
  if (status == BRIM_OK) status = exchange_status(c, talk, make_id(c, all, &own), &own, all);
  *id = all[0].id;
  free(all);
  return status;
}

static brim_status wait_for_all(communicator *c)
{
  const struct timespec pause = {.tv_nsec = 100000};
  const double start = now();
  for (uint64_t done = 0;;) {
    BRIM_TRY(poll(c, &done));
    if (done == c->started) return BRIM_OK;
    if (now() - start > c->seconds) return give_up(c, "trying all ranks");
    (void)nanosleep(&pause, NULL);
  }
}

/* Runs a collective of each kind. Small sums are float64, as those of metrics are. */
static brim_status try_bytes(communicator *c, void *buffer, uint64_t bytes, void *queue)
{
  const uint32_t dtype = bytes == WARM_UP_FIRST ? BRIM_DTYPE_F64 : BRIM_DTYPE_F32;
  const uint64_t part = bytes / brim_dtype_bytes(dtype) / (uint64_t)c->ranks;
  const uint64_t count = (part > 0 ? part : 1) * (uint64_t)c->ranks;
  for (uint32_t kind = BRIM_ALL_REDUCE; kind <= BRIM_BROADCAST; kind++)
    BRIM_TRY(start(c, &(brim_collective){kind, dtype, buffer, count}, queue));
  return wait_for_all(c);
}

/* NCCL 2.22 and later connect an algorithm and allocate its channels at the first collective that uses it
 * (initAlgoChannels in enqueue.cc). They choose the algorithm by the kind and the size of the collective. So this
 * function tries sizes from a few bytes to the largest, before the arena is allocated. NCCL_RUNTIME_CONNECT=0 would
 * connect all algorithms at once, with the buffers of those that are never used (init.cc). Larger messages use the
 * algorithm of the largest trial. */
static brim_status warm_up(communicator *c, uint64_t largest, void *queue)
{
  void *buffer = NULL;
  if (largest < WARM_UP_LEAST) largest = WARM_UP_LEAST;
  if (largest > WARM_UP_MOST) largest = WARM_UP_MOST;
  BRIM_TRY(check_cuda(c, cudaMalloc(&buffer, largest), "trying NCCL"));
  brim_status status = check_cuda(c, cudaMemsetAsync(buffer, 0, largest, queue), "trying NCCL");
  for (uint64_t bytes = WARM_UP_FIRST; status == BRIM_OK && bytes < largest; bytes *= WARM_UP_FACTOR)
    status = try_bytes(c, buffer, bytes, queue);
  if (status == BRIM_OK) status = try_bytes(c, buffer, largest, queue);
  if (status == BRIM_OK) /* Waits only after success, because otherwise this call may never return. */
    status = check_cuda(c, cudaFree(buffer), "trying NCCL");
  c->started = c->done = 0;
  return status;
}

static brim_status connect_ranks(communicator *c, const brim_talk *talk, const brim_backend_ops *ops, void *backend,
                                 int32_t device)
{
  ncclUniqueId id;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (c->params->deterministic && setenv("NCCL_ALGO", NCCL_ALGORITHMS, 0) != 0)
    return brim_fail(BRIM_ENOMEM_HOST, "no memory for an environment variable");
  BRIM_TRY(greet(c, talk, ops, backend, device, &id));
  BRIM_TRY(complete(c, c->nccl->CommInitRankConfig(&c->comm, c->ranks, id, c->rank, &config), "connecting the ranks"));
  return warm_up(c, talk->largest_bytes, ops->native_queue(backend, BRIM_QUEUE_COMM));
}

static void disconnect(void *self);

static brim_status connect(void *self, const brim_world *world, const brim_talk *talk, const brim_backend_ops *ops,
                           void *backend, int32_t device)
{
  communicator *c = self;
  if (!BRIM_HAS(brim_backend_ops, ops, native_queue))
    return brim_fail(BRIM_ENOTSUP, "comm=nccl needs a backend with device queues (native_queue): backend=cuda");
  *c = (communicator){.params = c->params, .rank = world->rank, .ranks = world->ranks, .seconds = talk->seconds};
  const brim_status status = connect_ranks(c, talk, ops, backend, device);
  if (status == BRIM_OK) return BRIM_OK;
  c->failed = true;
  disconnect(c);
  return status;
}

/* Disconnects cleanly only if nothing is in progress. Otherwise aborts the device's work without waiting. */
static void disconnect(void *self)
{
  communicator *c = self;
  uint64_t done = 0;
  bool good = c->comm && !c->failed && poll(c, &done) == BRIM_OK && done == c->started;
  good = good && settle(c, c->nccl->CommFinalize(c->comm), END_SECONDS) == ncclSuccess;
  if (c->comm) (void)(good ? c->nccl->CommDestroy(c->comm) : c->nccl->CommAbort(c->comm));
  for (int i = 0; i < BRIM_COLLECTIVES; i++)
    if (c->done_event[i]) (void)cudaEventDestroy(c->done_event[i]);
  *c = (communicator){.params = c->params};
}

/* ---- the plugin ---- */

static brim_status create(const void *params, void **self)
{
  communicator *c = *self = brim_try_calloc(1, sizeof *c);
  if (!c) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the communicator");
  c->params = params;
  return BRIM_OK;
}

static void destroy(void *self)
{
  if (self) disconnect(self);
  free(self);
}

static const brim_comm_ops ops = {.size = sizeof(brim_comm_ops),
                                  .on_device = 1,
                                  .connect = connect,
                                  .start = start,
                                  .poll = poll,
                                  .disconnect = disconnect};

static const brim_plugin comm = {.size = sizeof(brim_plugin),
                                 .kind = BRIM_COMM,
                                 .id = "nccl",
                                 .help = "sums between NVIDIA GPUs, with NCCL",
                                 .params_size = sizeof(nccl_params),
                                 .params = comm_params,
                                 .create = create,
                                 .destroy = destroy,
                                 .ops = &ops};

static const brim_plugin *const plugins[] = {&comm, NULL};
BRIM_MODULE("brim-nccl", "0.1.0", plugins)
