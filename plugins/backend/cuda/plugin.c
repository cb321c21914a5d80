/* The `cuda` backend: NVIDIA GPUs of compute capability 8.0 and later. cuBLASLt computes products and cuDNN
 * convolutions. All other kernels are our own, with one file for each family. A program is recorded once as a CUDA
 * graph and launched as a whole.
 *
 * The same inputs give the same bits in every run on a device, because only deterministic algorithms are used. */
#include <stdlib.h>

#include "card.h"
#include "device.h"
#include "trace.h"

static const brim_param params[] = {
    BRIM_PARAM(BOOL, cuda_params, tf32, "false", NULL,
               "true: fp32 products and convolutions may round their inputs to TF32 (10 bits of mantissa)"),
    BRIM_PARAM(BOOL, cuda_params, debug_launches, "false", NULL,
               "wait after every operation, so that an error names the operation that failed; slow"),
    BRIM_PARAM(PATH, cuda_params, profile, "", NULL,
               "file of the libraries' algorithms for products and convolutions; empty: the libraries choose"),
    BRIM_PARAM(BOOL, cuda_params, tune, "false", NULL,
               "measure algorithms that the profile lacks, and add the fastest to it"),
    BRIM_PARAM(BOOL, cuda_params, gelu_epilogue, "true", NULL,
               "true: cuBLASLt applies gelu_tanh to bf16 products; false: a separate kernel does"),
    BRIM_PARAM(ENUM, cuda_plugin_params, attention, "library", CUDA_ATTENTIONS,
               "kernels of attention: cuDNN's, else brim's on tensor cores, else brim's in fp32, by what each supports "
               "(library); without cuDNN's (own); only those in fp32 (own_fp32)"),
    BRIM_PARAM(ENUM, cuda_plugin_params, card, "none", CUDA_CARDS,
               "plan for a GPU that is only described, on a host that may have none; nothing can run on it"),
    BRIM_PARAMS_END};

static void destroy(void *self)
{
  cuda_backend *b = self;
  if (!b) return;
  cuda_device_release(b);
  free(b);
}

static brim_status create(const void *filled, void **self)
{
  const cuda_params *p = filled;
  int count = 0;
  if (p->tune && !p->profile[0])
    return brim_fail(BRIM_EINVAL, "backend.tune needs backend.profile: without the file, the next run may choose other "
                                  "algorithms and get different bits");
  /* Kernels are loaded at their first launch, because all kernels of cuBLASLt and cuDNN together take more than a
   * gigabyte of device memory. Each program runs once before it is recorded, because nothing may be loaded during
   * recording. This first run, before the first step, also counts the memory of the kernels that it loads.
   * memory.headroom_mb leaves room for them. */
  /* Streams share the queues to the device, 8 by default. With more queues, one lane of a federation does not wait for
   * another lane's queue. */
  if (setenv("CUDA_MODULE_LOADING", "LAZY", 0) != 0 || setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0) != 0)
    return brim_fail(BRIM_ENOMEM_HOST, "no memory for an environment variable");
  if (((const cuda_plugin_params *)filled)->card == 0) BRIM_TRY(cuda_device_find(&count));
  cuda_backend *b = brim_try_calloc(1, sizeof *b);
  if (!b) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the cuda backend");
  b->params = filled;
  b->device = -1;
  *self = b;
  return BRIM_OK;
}

static const brim_backend_ops ops = {
    .size = sizeof(brim_backend_ops),
    .real = BRIM_DTYPE_F32,
    .kernels = BRIM_KERNELS,
    .kernels_end = BRIM_KERNELS_END,
    .alignment = CUDA_ALIGNMENT,
    .device_count = cuda_device_count,
    .describe = cuda_device_describe,
    .place = cuda_device_place,
    .unplace = cuda_device_unplace,
    .upload = cuda_device_upload,
    .download = cuda_device_download,
    .zero = cuda_device_zero,
    .synchronize = cuda_device_synchronize,
    .select = cuda_device_select,
    .reserve_bytes = cuda_device_reserve_bytes,
    .open_feed = cuda_device_open_feed,
    .run_program = cuda_program_run,
    .drop_record = cuda_program_drop,
    .feed = cuda_device_feed,
    .fetch = cuda_device_fetch,
    .collect = cuda_device_collect,
    .stores = BRIM_STORES(BRIM_DTYPE_BF16) | BRIM_STORES(BRIM_DTYPE_F16),
    .users = cuda_device_users,
    .usage = cuda_device_usage,
    .place_host = cuda_device_place_host,
    .unplace_host = cuda_device_unplace_host,
    .copy = cuda_device_copy,
    .mark = cuda_device_mark,
    .wait = cuda_device_wait,
    .native_queue = cuda_device_native_queue,
    .takes = cuda_device_takes,
    .needs = cuda_device_needs,
    .lane = cuda_device_lane,
    .drop_lane = cuda_device_drop_lane,
    .trace_begin = cuda_trace_begin,
    .trace_end = cuda_trace_end,
    .count_launches = cuda_program_count,
};

static const brim_plugin backend = {
    .size = sizeof(brim_plugin),
    .kind = BRIM_BACKEND,
    .id = "cuda",
    .help = "NVIDIA GPUs, with cuBLASLt, cuDNN and own kernels; each program is a CUDA graph",
    .params_size = sizeof(cuda_plugin_params),
    .params = params,
    .create = create,
    .destroy = destroy,
    .ops = &ops,
};

static const brim_plugin *const plugins[] = {&backend, NULL};
BRIM_MODULE("brim-cuda", "0.1.0", plugins)
