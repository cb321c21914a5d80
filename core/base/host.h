/* Measures how much of this host's memory and processors is in use. Runs watch these figures and warn. */
#ifndef BRIM_BASE_HOST_H
#define BRIM_BASE_HOST_H
#include <stdbool.h>

#include "brim/host.h"

typedef struct brim_host_use {
  /* Memory in use of the machine or the control group, whichever is fuller; 0: unknown */
  double ram_percent;
  uint64_t ram_used_bytes, ram_total_bytes;
  bool is_grouped;
  double swap_percent; /* 0 if there is no swap */
  uint64_t swap_used_bytes, swap_total_bytes;
  uint64_t cpu_busy_ticks, cpu_ticks; /* clock ticks of all processors since the machine started */
} brim_host_use;
/* [init] Sets the number of ranks on this host, and the processors that this process may use; brim_host_threads
 * respects this from here on. */
void brim_host_share_with(int32_t ranks, double processors);
int32_t brim_host_ranks(void); /* ranks on this host; 1 until set */
/* [any thread] The number of processors that the control groups allow, read at the first call; 0: no limit. */
double brim_host_quota(void);
/* [any thread] Reads the current use; does not allocate. proc: "/proc"; mount: "/sys/fs/cgroup". */
brim_host_use brim_host_use_read(const char *proc, const char *mount);
/* [init] Whether an NVIDIA GPU is on the PCI bus, usable or not. bus: BRIM_PCI_BUS. */
#define BRIM_PCI_BUS "/sys/bus/pci/devices"
bool brim_host_has_nvidia(const char *bus);
#endif
