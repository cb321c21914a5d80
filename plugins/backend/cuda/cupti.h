/* Measures when kernels and copies run on the device, by NVIDIA's CUPTI (https://docs.nvidia.com/cupti). The library
 * belongs to the toolkit, so it is opened at the first trace; without it trace.c measures with events. CUPTI sees all
 * work of the process; work that was started with a tag is attributed to that tag. One trace at a time in a process. */
#ifndef CUDA_CUPTI_H
#define CUDA_CUPTI_H
#include "cuda.h"

/* The part of CUPTI's ABI that is used: results, kinds of records and of tags, and places of values in records. A
 * record begins with its kind. */
enum {
  CUPTI_DONE = 0,
  CUPTI_NO_MORE = 12,
  CUPTI_FLUSH_FORCED = 1,
  CUPTI_MEMCPY = 1,
  CUPTI_MEMSET = 2,
  CUPTI_DRIVER = 4,
  CUPTI_RUNTIME = 5,
  CUPTI_KERNEL = 10,
  CUPTI_LINK = 39, /* links a call to a tag */
  CUPTI_TAGS = 3,  /* external ids for any program */
  CUPTI_BEGIN_AT = 16,
  CUPTI_END_AT = 24,
  CUPTI_COPY_CALL_AT = 44, /* of a copy or a memset */
  CUPTI_KERNEL_CALL_AT = 92,
  CUPTI_LINK_KIND_AT = 4,
  CUPTI_LINK_TAG_AT = 8,
  CUPTI_LINK_CALL_AT = 16
};

/* The time from the start of a tag's first kernel or copy to the end of its last. */
typedef struct cuda_cupti_span {
  double begin, end; /* seconds of CLOCK_MONOTONIC; 0: CUPTI has reported no work */
} cuda_cupti_span;

/* [any time] Seconds of CLOCK_MONOTONIC. */
double cuda_cupti_seconds(void);
/* [init] Starts to record. Returns ENOTSUP with the reason if CUPTI is not usable; nothing is recorded then. */
brim_status cuda_cupti_begin(void);
/* Gives this tag, from 1, to everything that the calling thread starts from now on; 0: no tag. [step] */
void cuda_cupti_tag(uint64_t tag);
/* Stops recording and drops all records; does nothing while nothing is recorded. [init] */
void cuda_cupti_drop(void);
/* Stops recording. The device must have done all work. Zeroes span [tags + 1] and fills it by tag. *lost: the number of
 * records that CUPTI dropped or could not time. Returns ENOTSUP or ENOMEM_HOST; recording has stopped then too.
 * [init] */
brim_status cuda_cupti_end(cuda_cupti_span *span, size_t tags, size_t *lost);
#endif
