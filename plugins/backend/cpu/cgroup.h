/* The limits of this process's control groups (versions 1 and 2). */
#ifndef CPU_CGROUP_H
#define CPU_CGROUP_H
#include <stdint.h>

typedef struct cpu_cgroup {
  uint64_t memory_limit;    /* bytes; UINT64_MAX: none */
  uint64_t memory_headroom; /* the limit less what is used and cannot be given back at once */
  double processors;        /* CPU quota over its period; 0: none */
} cpu_cgroup;

/* mount: "/sys/fs/cgroup"; membership: "/proc/self/cgroup". What cannot be read sets no limit. */
cpu_cgroup cpu_cgroup_read(const char *mount, const char *membership);

#endif
