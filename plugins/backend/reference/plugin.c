/* The reference backend as a plugin. Its only device is the host. The kernels are in the other files. */
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "brim/host.h"
#include "brim/plugin.h"
#include "reference.h"

#define ALIGNMENT_BYTES 64

typedef struct reference_params {
  uint64_t memory_mb;
} reference_params;

static const brim_param params[] = {
    BRIM_PARAM(BYTES, reference_params, memory_mb, "0", "[0,inf)", "memory of the device in MiB; 0: the host's memory"),
    BRIM_PARAMS_END,
};

typedef struct reference {
  uint64_t limit_bytes;  /* 0 if the device has no limit of its own */
  uint64_t placed_bytes; /* bytes of the present arenas */
} reference;

static brim_status create(const void *given, void **self)
{
  const reference_params *p = given;
  reference *backend = brim_try_calloc(1, sizeof *backend);
  if (backend == NULL) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the reference backend");
  backend->limit_bytes = p->memory_mb > UINT64_MAX >> 20 ? UINT64_MAX : p->memory_mb << 20;
  *self = backend;
  return BRIM_OK;
}

static void destroy(void *self)
{
  free(self);
}

static int device_count(void *self)
{
  (void)self;
  return 1;
}

static brim_status check_device(int device)
{
  if (device == 0) return BRIM_OK;
  return brim_fail(BRIM_ENODEVICE, "the reference backend has one device, 0; there is no device %d", device);
}

static brim_status describe(void *self, int device, brim_device_info *out)
{
  const reference *backend = self;
  struct sysinfo host;
  BRIM_TRY(check_device(device));
  if (sysinfo(&host) != 0) return brim_fail(BRIM_EDEVICE, "cannot query the host's memory");
  *out = (brim_device_info){.name = "reference (host, double precision)", .threads = 1, .on_host = 1};
  out->total_bytes = (uint64_t)host.totalram * host.mem_unit;
  out->free_bytes = ((uint64_t)host.freeram + host.bufferram) * host.mem_unit;
  if (backend->limit_bytes > 0 && backend->limit_bytes < out->total_bytes) out->total_bytes = backend->limit_bytes;
  const uint64_t left = out->total_bytes > backend->placed_bytes ? out->total_bytes - backend->placed_bytes : 0;
  if (out->free_bytes > left) out->free_bytes = left;
  return BRIM_OK;
}

/* A limit is strict. Without a limit, the host's memory is the limit: Linux overcommits memory and later kills
 * processes, so this function refuses an arena that cannot fit. */
static brim_status place(void *self, int device, uint64_t bytes, void **base)
{
  reference *backend = self;
  brim_device_info info;
  BRIM_TRY(describe(self, device, &info));
  if (bytes > info.total_bytes || backend->placed_bytes > info.total_bytes - bytes)
    return brim_fail(BRIM_ENOMEM_DEVICE, "%llu bytes do not fit: the device has %llu, of which %llu are taken",
                     (unsigned long long)bytes, (unsigned long long)info.total_bytes,
                     (unsigned long long)backend->placed_bytes);
  if (posix_memalign(base, ALIGNMENT_BYTES, bytes > 0 ? (size_t)bytes : 1) != 0)
    return brim_fail(BRIM_ENOMEM_DEVICE, "the host could not allocate %llu bytes", (unsigned long long)bytes);
  memset(*base, 0, (size_t)bytes);
  backend->placed_bytes += bytes;
  return BRIM_OK;
}

static void unplace(void *self, void *base, uint64_t bytes)
{
  reference *backend = self;
  if (base == NULL) return;
  free(base);
  backend->placed_bytes -= bytes;
}

static brim_status copy(void *self, void *to, const void *from, uint64_t bytes)
{
  (void)self;
  memcpy(to, from, (size_t)bytes);
  return BRIM_OK;
}

static brim_status zero(void *self, void *to, uint64_t bytes)
{
  (void)self;
  memset(to, 0, (size_t)bytes);
  return BRIM_OK;
}

/* Does nothing, because kernels are complete when they return. */
static brim_status synchronize(void *self)
{
  (void)self;
  return BRIM_OK;
}

static const brim_backend_ops ops = {
    .size = sizeof ops,
    .real = BRIM_DTYPE_F64,
    .kernels = BRIM_KERNELS,
    .kernels_end = BRIM_KERNELS_END,
    .alignment = ALIGNMENT_BYTES,
    .device_count = device_count,
    .describe = describe,
    .place = place,
    .unplace = unplace,
    .upload = copy,
    .download = copy,
    .zero = zero,
    .synchronize = synchronize,
};

static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_BACKEND,
    .id = "reference",
    .help = "double precision with plain loops: slow, the reference that other backends are tested against",
    .params_size = sizeof(reference_params),
    .params = params,
    .create = create,
    .destroy = destroy,
    .ops = &ops,
};

static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-reference", "0.1", plugins)
