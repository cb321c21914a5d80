/* What this host has, within the limits of this process's control groups (versions 1 and 2). */
#ifndef BRIM_HOST_H
#define BRIM_HOST_H
#include <stdint.h>

#include "brim/status.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_cgroup {
  uint64_t memory_limit;    /* bytes; UINT64_MAX: none */
  uint64_t memory_headroom; /* the limit less what is used and cannot be given back at once */
  double processors;        /* CPU quota over its period; 0: none */
} brim_cgroup;
/* [any thread] mount: "/sys/fs/cgroup"; membership: "/proc/self/cgroup". What cannot be read sets no limit. */
BRIM_EXPORT brim_cgroup brim_cgroup_read(const char *mount, const char *membership);

typedef struct brim_host_memory {
  uint64_t total_bytes, available_bytes; /* UINT64_MAX: not known */
  int32_t is_grouped;                    /* 1: it is a control group that leaves so much, not the machine */
} brim_host_memory;
/* [any thread] The machine's memory, or the control group's, whichever is less. */
BRIM_EXPORT brim_host_memory brim_host_memory_now(void);

#ifdef __cplusplus
}
#endif
#endif
