/* NCCL between processes of this host with emulated devices: the functions that the communicator calls, in place of
 * libnccl.so.2. Ranks share memory that rank 0 makes. The memory has no name, so it disappears when the ranks end.
 *
 * A collective is work of a stream. It goes through the buffer in rounds: every rank puts a chunk of its buffer into
 * its slot, and when all have, takes its part from the slots. So it ends when the last rank's device has reached it,
 * and no host waits. A communicator that does not block first answers ncclInProgress, and starts the collective when it
 * is asked for the result.
 *
 * EMULATED_NCCL=<rank>:<what>[:<n>] makes something fail on a rank:
 *   init      connecting
 *   start:<n> the n-th collective, from 0, cannot be started
 *   lost:<n>  its connection is lost after the n-th
 *   hang:<n>  its device never reaches the n-th
 *   die:<n>   the process is killed instead of running the n-th
 * EMULATED_NCCL_FINALIZE=abort ends a process that would wait for the other ranks at its end. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "brim/comm.h"
#include "emulated.h"
#include "library.h"

#define RANKS_MAX 64
#define CHUNK_BYTES ((size_t)256 << 10)

namespace
{
struct place {
  char host[64]; /* ranks with the same NCCL_HOSTID appear to be on the host of that name */
  int device;    /* its number on the bus */
  std::atomic<uint32_t> is_attached, is_finished;
  std::atomic<uint64_t> posted, taken; /* rounds */
  uint32_t kind, dtype;                /* of the collective whose round was posted last */
  uint64_t bytes;
};
struct shared {
  std::atomic<uint64_t> is_wrong; /* ranks started different collectives */
  place rank[RANKS_MAX];
  alignas(64) char slot[RANKS_MAX][CHUNK_BYTES];
};

struct wish {
  int rank;
  char what[16];
  long long n;
};
wish injected()
{
  wish w = {-1, "", -1};
  const char *text = getenv("EMULATED_NCCL");
  if (text && sscanf(text, "%d:%15[a-z]:%lld", &w.rank, w.what, &w.n) < 2) w.rank = -1;
  return w;
}
} // namespace

struct ncclComm {
  int rank, ranks, file;
  shared *all;
  uint64_t rounds; /* posted by this rank's device */
  long long calls;
  std::function<void()> pending; /* a call that has not begun yet */
  bool is_blocking, is_aborted, is_lost;
  ncclResult_t error;
};

namespace
{
bool is_injected(const ncclComm *c, const char *what)
{
  const wish w = injected();
  return w.rank == c->rank && strcmp(w.what, what) == 0 && (w.n < 0 || w.n == c->calls);
}

/* ---- liveness ---- */

/* Locks a byte of the shared memory's file for this rank, as long as the rank lives. */
bool lock_own(const ncclComm *c)
{
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_start = c->rank;
  lock.l_len = 1;
  return fcntl(c->file, F_OFD_SETLK, &lock) == 0;
}

bool is_gone(const ncclComm *c, int rank)
{
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_start = rank;
  lock.l_len = 1;
  const place &p = c->all->rank[rank];
  return rank != c->rank && p.is_attached && !p.is_finished && fcntl(c->file, F_OFD_GETLK, &lock) == 0 &&
         lock.l_type == F_UNLCK;
}

template <typename F> bool every(const ncclComm *c, F holds)
{
  for (int r = 0; r < c->ranks; r++)
    if (!holds(c->all->rank[r])) return false;
  return true;
}

/* ---- collectives ---- */

struct collective {
  uint32_t kind, dtype;
  char *buffer;
  size_t bytes; /* of the whole buffer */
  size_t at;
  bool is_posted;
};

/* Returns the rank whose part contains a byte. */
int owner_of(const ncclComm *c, const collective *what, size_t at)
{
  return static_cast<int>(at / (what->bytes / static_cast<size_t>(c->ranks)));
}

template <typename T> void add_up(const ncclComm *c, char *to, size_t from, size_t bytes)
{
  for (size_t i = from; i + sizeof(T) <= from + bytes; i += sizeof(T)) {
    T sum, x;
    memcpy(&sum, c->all->slot[0] + i, sizeof sum);
    for (int r = 1; r < c->ranks; r++) {
      memcpy(&x, c->all->slot[r] + i, sizeof x);
      sum += x;
    }
    memcpy(to + i, &sum, sizeof sum);
  }
}

/* Takes this rank's bytes of a chunk, which lies in the part of a single rank. */
void take_part(const ncclComm *c, const collective *what, size_t from, size_t bytes)
{
  char *to = what->buffer + what->at;
  const bool has_parts = what->kind == BRIM_REDUCE_SCATTER || what->kind == BRIM_ALL_GATHER;
  const int owner = has_parts ? owner_of(c, what, what->at + from) : 0;
  if (what->kind == BRIM_REDUCE_SCATTER && owner != c->rank)
    memset(to + from, 0xFF, bytes); /* undefined in NCCL; NaN here */
  else if (what->kind == BRIM_ALL_GATHER)
    memcpy(to + from, c->all->slot[owner] + from, bytes);
  else if (what->kind == BRIM_BROADCAST)
    memcpy(to + from, c->all->slot[0] + from, bytes);
  else if (what->dtype == BRIM_DTYPE_F64)
    add_up<double>(c, to, from, bytes);
  else
    add_up<float>(c, to, from, bytes);
}

void take(const ncclComm *c, const collective *what, size_t bytes)
{
  const bool has_parts = what->kind == BRIM_REDUCE_SCATTER || what->kind == BRIM_ALL_GATHER;
  const size_t part = has_parts ? what->bytes / static_cast<size_t>(c->ranks) : what->bytes;
  for (size_t done = 0; done < bytes;) {
    const size_t n = std::min(bytes - done, part - (what->at + done) % part);
    take_part(c, what, done, n);
    done += n;
  }
}

/* Runs one round. Returns false if other ranks have not reached it yet. */
bool make_round(ncclComm *c, collective *what, size_t bytes)
{
  place &own = c->all->rank[c->rank];
  const uint64_t round = c->rounds + 1;
  if (!what->is_posted) {
    if (!every(c, [=](const place &p) { return p.taken >= round - 1; })) return false;
    memcpy(c->all->slot[c->rank], what->buffer + what->at, bytes);
    own.kind = what->kind;
    own.dtype = what->dtype;
    own.bytes = what->bytes;
    own.posted = round;
    what->is_posted = true;
  }
  if (!every(c, [=](const place &p) { return p.posted >= round; })) return false;
  if (!every(c,
             [=](const place &p) { return p.kind == what->kind && p.dtype == what->dtype && p.bytes == what->bytes; }))
    c->all->is_wrong = 1;
  take(c, what, bytes);
  what->is_posted = false;
  c->rounds = round;
  own.taken = round;
  return true;
}

/* Runs a collective as work of a stream. */
bool advance(ncclComm *c, collective *what)
{
  if (what->buffer == nullptr) return c->is_aborted; /* EMULATED_NCCL makes it hang */
  for (; what->at < what->bytes && !c->is_aborted; what->at += CHUNK_BYTES)
    if (!make_round(c, what, std::min(CHUNK_BYTES, what->bytes - what->at))) return false;
  return true;
}

ncclResult_t begin(ncclComm *c, uint32_t kind, const void *from, void *to, size_t count, ncclDataType_t type,
                   cudaStream_t stream)
{
  const size_t element = type == ncclFloat64 ? 8 : type == ncclFloat32 ? 4 : 1, bytes = count * element;
  const size_t ranks = static_cast<size_t>(c->ranks), own = static_cast<size_t>(c->rank) * bytes;
  char *all = const_cast<char *>(static_cast<const char *>(kind == BRIM_ALL_GATHER ? to : from));
  const uint32_t dtype = type == ncclFloat64 ? BRIM_DTYPE_F64 : type == ncclFloat32 ? BRIM_DTYPE_F32 : BRIM_DTYPE_U8;
  collective what = {kind, dtype, all, bytes, 0, false};
  if (kind == BRIM_REDUCE_SCATTER || kind == BRIM_ALL_GATHER) what.bytes *= ranks;
  const void *const part = kind == BRIM_ALL_GATHER ? from : kind == BRIM_REDUCE_SCATTER ? to : nullptr;
  if (c->pending || (part ? part != all + own : from != to))
    return ncclInvalidUsage; /* brim's collectives work in place */
  if (is_injected(c, "die")) raise(SIGKILL);
  if (is_injected(c, "start")) return ncclUnhandledCudaError;
  if (is_injected(c, "lost")) c->is_lost = true;
  if (is_injected(c, "hang")) what.buffer = nullptr;
  c->calls++;
  auto shared_what = std::make_shared<collective>(what);
  auto enqueue = [=] { emulated_enqueue_until(stream, [=] { return advance(c, shared_what.get()); }); };
  if (c->is_blocking)
    enqueue();
  else
    c->pending = enqueue;
  return c->is_blocking ? ncclSuccess : ncclInProgress;
}

/* ---- the library ---- */

ncclResult_t get_version(int *version)
{
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t get_unique_id(ncclUniqueId *id)
{
  const int file = memfd_create("emulated nccl", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, sizeof(shared)) != 0) return ncclSystemError;
  snprintf(id->internal, sizeof id->internal, "/proc/%d/fd/%d", static_cast<int>(getpid()), file);
  return ncclSuccess;
}

const char *get_error_string(ncclResult_t result)
{
  return result == ncclRemoteError          ? "remote process exited or there was a network error"
         : result == ncclUnhandledCudaError ? "unhandled cuda error"
         : result == ncclSystemError        ? "unhandled system error"
         : result == ncclInvalidUsage       ? "invalid usage"
                                            : "an error of the emulated NCCL";
}

const char *get_last_error(ncclComm_t)
{
  return "as emulated";
}

bool attach(ncclComm *c, const char *path)
{
  c->file = open(path, O_RDWR | O_CLOEXEC);
  if (c->file < 0) return false;
  void *at = mmap(nullptr, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, c->file, 0);
  if (at == MAP_FAILED || !lock_own(c)) return false;
  c->all = static_cast<shared *>(at);
  const char *host = getenv("NCCL_HOSTID");
  place &own = c->all->rank[c->rank];
  cudaDeviceProp properties;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || cudaGetDeviceProperties(&properties, device) != cudaSuccess)
    return false;
  own.device = properties.pciBusID;
  snprintf(own.host, sizeof own.host, "%s", host ? host : "this one");
  own.is_attached = 1;
  return true;
}

ncclResult_t init(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
  if (config->size != sizeof *config || ranks > RANKS_MAX || rank >= ranks) return ncclInvalidArgument;
  ncclComm *c = *comm = new ncclComm{};
  c->rank = rank;
  c->ranks = ranks;
  c->is_blocking = config->blocking != 0;
  emulated_connect(true);
  if (is_injected(c, "init") || !attach(c, id.internal)) return ncclSystemError;
  return ncclInProgress;
}

ncclResult_t get_async_error(ncclComm_t c, ncclResult_t *error)
{
  *error = ncclSuccess;
  for (int r = 0; r < c->ranks; r++)
    if (is_gone(c, r) || c->is_lost) *error = ncclRemoteError;
  if (c->all->is_wrong) *error = ncclInvalidUsage;
  if (*error != ncclSuccess) return ncclSuccess;
  if (!every(c, [](const place &p) { return p.is_attached != 0; })) *error = ncclInProgress;
  const place &own = c->all->rank[c->rank];
  for (int r = 0; r < c->ranks; r++) /* the name of an unattached rank may still change */
    if (const place &p = c->all->rank[r];
        r != c->rank && p.is_attached && p.device == own.device && strcmp(p.host, own.host) == 0)
      *error = ncclInvalidUsage; /* two ranks on one device */
  if (own.is_finished && !every(c, [](const place &p) { return p.is_finished != 0; })) *error = ncclInProgress;
  if (c->pending) std::exchange(c->pending, nullptr)();
  return ncclSuccess;
}

ncclResult_t finalize(ncclComm_t c)
{
  if (getenv("EMULATED_NCCL_FINALIZE")) abort();
  c->all->rank[c->rank].is_finished = 1;
  return ncclInProgress;
}

/* Work in a stream may still check whether the communicator was aborted, so its memory stays. */
ncclResult_t destroy(ncclComm_t c)
{
  c->is_aborted = true;
  emulated_connect(false);
  if (c->file >= 0) close(c->file);
  c->file = -1;
  return ncclSuccess;
}

ncclResult_t all_reduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t, ncclComm_t c,
                        cudaStream_t stream)
{
  return begin(c, BRIM_ALL_REDUCE, from, to, count, type, stream);
}
ncclResult_t reduce_scatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t, ncclComm_t c,
                            cudaStream_t stream)
{
  return begin(c, BRIM_REDUCE_SCATTER, from, to, count, type, stream);
}
ncclResult_t all_gather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t c,
                        cudaStream_t stream)
{
  return begin(c, BRIM_ALL_GATHER, from, to, count, type, stream);
}
ncclResult_t broadcast(const void *from, void *to, size_t count, ncclDataType_t type, int, ncclComm_t c,
                       cudaStream_t stream)
{
  return begin(c, BRIM_BROADCAST, from, to, count, type, stream);
}
} // namespace

extern "C" brim_status nccl_library_load(const nccl_library **out)
{
  static const nccl_library table = {get_version,     get_unique_id, get_error_string, get_last_error, init,
                                     get_async_error, finalize,      destroy,          destroy,        all_reduce,
                                     reduce_scatter,  all_gather,    broadcast};
  *out = &table;
  return BRIM_OK;
}
