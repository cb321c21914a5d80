/* For programs that do their own work and want brim's ways with memory: which device to take, and how to go on when
 * memory runs out.
 *
 *     brim_device_best    the device with the most free memory; the host where no GPU will do
 *     brim_adapt_batch    runs a function with smaller and smaller micro-batches, until one fits
 *     brim_retry          runs a function again, when something else may have given memory back
 *     brim_oom_handler    what the program does in between: free something, say so, give up
 *
 * Options, and what they point to, stay the caller's, and are read until the function returns.
 *
 * Out of memory is what the function says is: it returns one of three statuses (brim_is_oom). Any other failure,
 * whatever its text, comes back at once and as it is. brim never sleeps unless it is told to. docs/examples/memory uses
 * all of it.
 */
#ifndef BRIM_MEMORY_H
#define BRIM_MEMORY_H
#include <stdbool.h>
#include <stddef.h>

#include "brim/backend.h"
#ifdef __cplusplus
extern "C" {
#endif

/* ---- the best device ---- */

/* Zeroed: any device of the installed backends. */
typedef struct brim_device_search {
  const char *backend; /* one of these alone: "cuda"; NULL or "auto": any */
  uint64_t min_bytes;  /* that a GPU, or a device with a limit, must have free; a host without one is not asked */
  /* parameters of a backend that is named, as they are written behind "backend." elsewhere: "memory_mb=512" */
  const char *const *option;
  size_t option_count;
  /* folders and files to look for plugins in, before $BRIM_PLUGIN_PATH and those installed with brim */
  const char *const *plugin_path;
  size_t plugin_path_count;
} brim_device_search;

typedef struct brim_device_choice {
  char name[80];         /* as device= takes it: "cuda:1" */
  char reason[512];      /* "the most free memory of 2 GPUs"; for the host also what is wrong with each GPU */
  brim_device_info info; /* name, free_bytes, total_bytes ... as they were when it was looked at */
} brim_device_choice;

/* [init] The best device: of GPUs that have min_bytes free the one with the most, else the host (backend cpu before
 * others). CUDA_VISIBLE_DEVICES is honoured, and GPU_DEVICE_ID names the one GPU, or device with a limit, that will do.
 * Nothing is reserved. Loads plugins, which stay loaded; not for two threads at once. ENODEVICE if there is no such
 * device, with what each has, or GPU_DEVICE_ID is none; EINVAL if there is no such backend; ECONFIG for an option;
 * ELOAD for a plugin_path, or a backend that is named, that cannot be loaded. */
BRIM_EXPORT brim_status brim_device_best(const brim_device_search *wanted, brim_device_choice *out);

/* ---- when memory runs out ---- */

static inline bool brim_is_oom(brim_status status)
{
  return status == BRIM_ENOMEM_DEVICE || status == BRIM_ENOMEM_HOST || status == BRIM_EBUDGET;
}

/* An attempt that ran out of memory, and will be followed by another if the handler agrees. */
typedef struct brim_failed_attempt {
  int64_t attempt;                             /* that failed, from 1 */
  brim_status status;                          /* what it returned */
  const char *text;                            /* what it said with brim_fail(), or else the status in words */
  int64_t micro_batch, accumulation;           /* of it; 0 in brim_retry */
  int64_t next_micro_batch, next_accumulation; /* of the next attempt; 0 in brim_retry */
} brim_failed_attempt;

enum brim_oom_answer { BRIM_OOM_GIVE_UP = 0, BRIM_OOM_GO_ON = 1 };

/* Called between two attempts, in the thread that called brim_adapt_batch or brim_retry: to free what can be freed, to
 * wait for others, to log. *oom is valid during the call. */
typedef struct brim_oom_handler {
  enum brim_oom_answer (*handle)(void *context, const brim_failed_attempt *oom);
  void *context; /* the program's */
} brim_oom_handler;

/* ---- adaptive batch ---- */

typedef struct brim_adapt_options {
  int64_t effective_batch;        /* samples in a step: micro-batch times accumulation is always this */
  int64_t micro_batch;            /* samples, to begin with: the largest divisor up to this; 0: the effective batch */
  int64_t min_micro_batch;        /* samples; none smaller is tried; 0: 1 */
  const brim_oom_handler *on_oom; /* NULL: just goes on */
} brim_adapt_options;

typedef struct brim_adapted {
  int64_t micro_batch, accumulation, attempts;
} brim_adapted;

/* Does the work, or a step of it, with micro-batches of this size, so many to a step; gives back what it took if it
 * fails, and starts from where it wants to at the next attempt. */
typedef brim_status (*brim_adapt_fn)(void *context, int64_t micro_batch, int64_t accumulation);

/* [any thread] Calls attempt() until it does not run out of memory. Micro-batches are divisors of the effective batch;
 * each is at most half of the one before, but for the smallest that is allowed, which is tried in the end. *used, which
 * may be NULL, is written on success. If none fits: the last attempt's status and text, with a line of what was tried.
 * If the handler gives up: the same without. EINVAL for options that leave no micro-batch. */
BRIM_EXPORT brim_status brim_adapt_batch(const brim_adapt_options *options, brim_adapt_fn attempt, void *context,
                                         brim_adapted *used);

/* ---- retry ---- */

typedef struct brim_retry_options {
  int32_t max_retries;            /* attempts after the first: 3 retries are four attempts */
  double wait_seconds;            /* before each retry, after the handler; a signal ends it; 0: none */
  const brim_oom_handler *on_oom; /* NULL: just goes on */
} brim_retry_options;

typedef brim_status (*brim_retry_fn)(void *context);

/* [any thread] Calls attempt() until it does not run out of memory, or was called 1 + max_retries times: then the last
 * one's status and text, with a line of how many there were. May be called within an attempt of brim_adapt_batch.
 * EINVAL for negative options. */
BRIM_EXPORT brim_status brim_retry(const brim_retry_options *options, brim_retry_fn attempt, void *context);

#ifdef __cplusplus
}
#endif
#endif
