/* The `cpu` backend: fp32 on this host's CPUs. oneDNN computes convolutions, in memory orders that it chooses and that
 * later operations keep. This plugin's vector code computes the rest. It is compiled for three instruction sets, and
 * isa.c chooses one when an instance is created.
 *
 * Work is divided by shape and grain only. So neither the number of threads nor the micro-batch (if it is a multiple of
 * the grain) changes a bit of a result. */
#include <stdlib.h>

#include "conv.h"

#define THREADS_MAX 1024

#if defined(__x86_64__)
#define ISA_HELP                                                                                                       \
  "instruction set (x86-64-v3 has AVX2, -v4 AVX-512); auto: the processor's best, at most $ONEDNN_MAX_CPU_ISA"
#else
#define ISA_HELP "instruction set (sve256: SVE of 256 bits); auto: the one for the length of this process's vectors"
#endif

static const brim_param params[] = {
    BRIM_PARAM(I64, cpu_params, threads, "0", "[0,1024]",
               "threads of kernels; 0: $OMP_NUM_THREADS, else all processors that this process may use"),
    BRIM_PARAM(I64, cpu_params, devices, "1", "[1,1024]",
               "number of devices into which the host is divided; all processes share the memory of each"),
    BRIM_PARAM(BYTES, cpu_params, memory_mb, "0", NULL,
               "memory of each device in MiB, for all processes together; 0: an equal part of the host's memory"),
    BRIM_PARAM(ENUM, cpu_params, isa, "auto", "auto|" CPU_ISA_NAMES, ISA_HELP), BRIM_PARAMS_END};

/* Frees the memory that start() allocated. */
static void stop(cpu_backend *b)
{
  cpu_device_close(b);
  cpu_conv_free_all(b);
  for (int32_t i = 0; b->streams && i < b->threads; i++) dnnl_stream_destroy(b->streams[i]);
  free(b->streams);
  if (b->engine) dnnl_engine_destroy(b->engine);
  cpu_pool_destroy(b->pool);
}

static void destroy(void *self)
{
  if (self) stop(self);
  free(self);
}

/* Reads OMP_NUM_THREADS, as other threaded programs do; ignores invalid values. */
static int32_t threads_of_environment(void)
{
  const char *text = getenv("OMP_NUM_THREADS");
  const long threads = text ? strtol(text, NULL, 10) : 0;
  return threads > 0 && threads <= THREADS_MAX ? (int32_t)threads : 0;
}

static brim_status start(cpu_backend *b)
{
  b->threads = (int32_t)b->params->threads;
  if (b->threads == 0) b->threads = threads_of_environment();
  if (b->threads == 0) b->threads = brim_host_threads();
  BRIM_TRY(cpu_device_open(b));
  cpu_pool_single_openmp();
  BRIM_TRY(cpu_isa_choose(b));
  dnnl_status_t status = dnnl_engine_create(&b->engine, dnnl_cpu, 0);
  if (status != dnnl_success) return cpu_conv_failed(status, "creating the engine");
  b->streams = brim_try_calloc((size_t)b->threads, sizeof(dnnl_stream_t));
  if (!b->streams) return brim_fail(BRIM_ENOMEM_HOST, "no memory for %d streams", b->threads);
  for (int32_t i = 0; i < b->threads; i++) {
    status = dnnl_stream_create(&b->streams[i], b->engine, dnnl_stream_default_flags);
    if (status != dnnl_success) return cpu_conv_failed(status, "creating a stream");
  }
  return cpu_pool_create(b->threads, &b->pool);
}

static brim_status create(const void *filled, void **self)
{
  cpu_backend *b = brim_try_calloc(1, sizeof *b);
  if (!b) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the cpu backend");
  b->params = filled;
  const brim_status status = start(b);
  if (status != BRIM_OK) {
    destroy(b);
    return status;
  }
  *self = b;
  return BRIM_OK;
}

/* A lane: an instance that allocates no arena and has a share of the threads. */
typedef struct cpu_lane {
  cpu_backend backend; /* first member: the core uses its address as the lane */
  cpu_params params;
} cpu_lane;

static void drop_lane(void *self, void *lane)
{
  (void)self;
  stop(lane);
  free(lane);
}

static brim_status make_lane(void *self, int32_t lanes, void **out)
{
  const cpu_backend *b = self;
  cpu_lane *lane = brim_try_calloc(1, sizeof *lane);
  if (!lane) return brim_fail(BRIM_ENOMEM_HOST, "no memory for a lane of the cpu backend");
  lane->params = (cpu_params){.threads = cpu_max(1, b->threads / lanes), .devices = 1, .isa = b->params->isa};
  lane->backend.params = &lane->params;
  const brim_status status = start(&lane->backend);
  if (status != BRIM_OK) {
    drop_lane(self, lane);
    return status;
  }
  *out = lane;
  return BRIM_OK;
}

/* Clears oneDNN's cache of primitives. Primitives in use stay alive, because others also own them. */
static void trim(void *self)
{
  int kept = 0;
  (void)self;
  if (dnnl_get_primitive_cache_capacity(&kept) != dnnl_success || kept == 0) return;
  (void)dnnl_set_primitive_cache_capacity(0);
  (void)dnnl_set_primitive_cache_capacity(kept);
}

static brim_backend_ops ops = {
    .size = sizeof(brim_backend_ops),
    .real = BRIM_DTYPE_F32,
    .stores = BRIM_STORES(BRIM_DTYPE_BF16) | BRIM_STORES(BRIM_DTYPE_F16),
    .alignment = CPU_ALIGNMENT,
    .device_count = cpu_device_count,
    .describe = cpu_device_describe,
    .place = cpu_device_place,
    .unplace = cpu_device_unplace,
    .lane = make_lane,
    .drop_lane = drop_lane,
    .upload = cpu_device_upload,
    .download = cpu_device_download,
    .zero = cpu_device_zero,
    .synchronize = cpu_device_synchronize,
    .users = cpu_device_users,
    .usage = cpu_device_usage,
    .trim = trim,
};

__attribute__((constructor)) static void gather_kernels(void)
{
  const size_t count = cpu_kernels_make(&ops.kernels);
  ops.kernels_end = ops.kernels + count;
}

static const brim_plugin backend = {
    .size = sizeof(brim_plugin),
    .kind = BRIM_BACKEND,
    .id = "cpu",
    .help = "fp32, bf16 and fp16 on the host's processors, with oneDNN and vectorised kernels",
    .params_size = sizeof(cpu_params),
    .params = params,
    .create = create,
    .destroy = destroy,
    .ops = &ops,
};

static const brim_plugin *const plugins[] = {&backend, NULL};
BRIM_MODULE("brim-cpu", "0.1.0", plugins)
