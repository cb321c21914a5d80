/* For programs with their own training code that use brim's memory management: choosing a device, and recovering when
 * memory runs out.
 *
 *     brim_device_best    finds the device with the most free memory; the host if no GPU fits
 *     brim_adapt_batch    runs a function with smaller and smaller micro-batches, until one fits
 *     brim_retry          runs a function again, in case other processes have freed memory
 *     brim_oom_handler    is called between attempts: frees memory, logs, or gives up
 *
 * The caller owns the options and the data that they point to; brim reads them until the function returns.
 *
 * The program's function reports that memory ran out by returning one of three statuses (brim_is_oom). brim returns any
 * other failure at once and unchanged. brim sleeps only if wait_seconds is set. docs/examples/memory uses the whole
 * interface. */
#ifndef BRIM_MEMORY_H
#define BRIM_MEMORY_H
#include <stdbool.h>
#include <stddef.h>

#include "brim/backend.h"
#ifdef __cplusplus
extern "C" {
#endif

/* ---- the best device ---- */

/* All zero: any device of the installed backends. */
typedef struct brim_device_search {
  const char *backend; /* only devices of this backend: "cuda"; NULL or "auto": any */
  uint64_t min_bytes;  /* free memory that a GPU, or a device with a limit, must have; not checked for a host without a
                          limit */
  /* parameters of the named backend, without the prefix "backend.": "memory_mb=512" */
  const char *const *option;
  size_t option_count;
  /* folders and files to search for plugins, before $BRIM_PLUGIN_PATH and those installed with brim */
  const char *const *plugin_path;
  size_t plugin_path_count;
} brim_device_search;

typedef struct brim_device_choice {
  char name[80];         /* name as in the key `device`: "cuda:1" */
  char reason[512];      /* "the most free memory of 2 GPUs"; for the host also why each GPU was rejected */
  brim_device_info info; /* name, free_bytes, total_bytes ... at the time of the search */
} brim_device_choice;

/* [init] Finds the best device: the GPU with the most free memory, if it has min_bytes free, else the host (backend cpu
 * before others). It respects CUDA_VISIBLE_DEVICES, and GPU_DEVICE_ID restricts the search to one GPU or device with a
 * limit. It reserves nothing. It loads plugins, which stay loaded; do not call it from two threads at once. ENODEVICE
 * if no device fits (the error lists the free memory of each) or GPU_DEVICE_ID is not a device; EINVAL if the backend
 * does not exist; ECONFIG for an invalid option; ELOAD if a plugin_path or the named backend cannot be loaded. */
BRIM_EXPORT brim_status brim_device_best(const brim_device_search *wanted, brim_device_choice *out);

/* ---- when memory runs out ---- */

/* Whether memory ran out: on the device, on the host, or within the memory budget. */
static inline bool brim_is_oom(brim_status status)
{
  return status == BRIM_ENOMEM_DEVICE || status == BRIM_ENOMEM_HOST || status == BRIM_EBUDGET;
}

/* An attempt that ran out of memory. Another one follows if the handler agrees. */
typedef struct brim_failed_attempt {
  int64_t attempt;                   /* number of the failed attempt, from 1 */
  brim_status status;                /* the status that it returned */
  const char *text;                  /* text of the failure from brim_fail(), or else the text of the status */
  int64_t micro_batch, accumulation; /* sizes of the failed attempt; 0 in brim_retry */
  int64_t next_micro_batch, next_accumulation; /* sizes of the next attempt; 0 in brim_retry */
} brim_failed_attempt;

enum brim_oom_answer { BRIM_OOM_GIVE_UP = 0, BRIM_OOM_GO_ON = 1 };

/* Called between two attempts, on the thread that called brim_adapt_batch or brim_retry, for example to free memory,
 * wait or log. *oom is valid during the call. */
typedef struct brim_oom_handler {
  enum brim_oom_answer (*handle)(void *context, const brim_failed_attempt *oom);
  void *context; /* passed to `handle` */
} brim_oom_handler;

/* ---- adaptive batch ---- */

typedef struct brim_adapt_options {
  int64_t effective_batch; /* samples in a step; always equal to micro-batch times accumulation */
  int64_t micro_batch;     /* samples; the first attempt uses the largest divisor up to this; 0: the effective batch */
  int64_t min_micro_batch; /* samples; the smallest to try; 0 means 1 */
  const brim_oom_handler *on_oom; /* NULL: no handler */
} brim_adapt_options;

typedef struct brim_adapted {
  int64_t micro_batch, accumulation, attempts;
} brim_adapted;

/* Does the work, or one step of it, with `accumulation` micro-batches of this size per step. If it fails, it must free
 * its allocations; the next attempt may start at any point. */
typedef brim_status (*brim_adapt_fn)(void *context, int64_t micro_batch, int64_t accumulation);

/* [any thread] Calls attempt() until it does not run out of memory. Each micro-batch divides the effective batch and is
 * at most half of the one before; the smallest allowed one is tried last. *used (may be NULL) is set on success. If no
 * micro-batch fits, returns the last attempt's status and text, with a line that lists the attempts; if the handler
 * gives up, the same without that line. EINVAL if the options allow no micro-batch. */
BRIM_EXPORT brim_status brim_adapt_batch(const brim_adapt_options *options, brim_adapt_fn attempt, void *context,
                                         brim_adapted *used);

/* ---- retry ---- */

typedef struct brim_retry_options {
  int32_t max_retries;            /* attempts after the first: 3 means up to four attempts */
  double wait_seconds;            /* wait before each retry, after the handler; a signal ends it; 0: no wait */
  const brim_oom_handler *on_oom; /* NULL: no handler */
} brim_retry_options;

typedef brim_status (*brim_retry_fn)(void *context);

/* [any thread] Calls attempt() until it does not run out of memory, at most 1 + max_retries times. After the last
 * failure, returns its status and text, with a line that gives the number of attempts. May be called within an attempt
 * of brim_adapt_batch. EINVAL for negative options. */
BRIM_EXPORT brim_status brim_retry(const brim_retry_options *options, brim_retry_fn attempt, void *context);

#ifdef __cplusplus
}
#endif
#endif
