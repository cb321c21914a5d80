/* How full this host is: what a run is warned by. */
#ifndef BRIM_BASE_HOST_H
#define BRIM_BASE_HOST_H
#include <stdbool.h>

#include "brim/host.h"

typedef struct brim_host_use {
  /* of the machine, or of the control group that is fuller; 0: not known */
  double ram_percent;
  uint64_t ram_used_bytes, ram_total_bytes;
  bool is_grouped;
  double swap_percent; /* in the same way; 0 where there is none */
  uint64_t swap_used_bytes, swap_total_bytes;
  uint64_t cpu_busy_ticks, cpu_ticks; /* of all processors, since the machine started */
} brim_host_use;
/* [init] This process is one of so many ranks on this host, and of the processors that it may run on so many are its
 * share: from here on brim_host_threads goes by that. */
void brim_host_share_with(int32_t ranks, double processors);
int32_t brim_host_ranks(void); /* on this host; 1 while nobody has said */
/* [any thread] Allocates nothing. proc: "/proc"; mount: "/sys/fs/cgroup". */
brim_host_use brim_host_use_read(const char *proc, const char *mount);
/* [init] Is there a GPU of NVIDIA on the PCI bus, whether or not it can be used? bus: BRIM_PCI_BUS. */
#define BRIM_PCI_BUS "/sys/bus/pci/devices"
bool brim_host_has_nvidia(const char *bus);
#endif
