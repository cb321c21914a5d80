/* Clients in processes of their own (federate.mode=processes): the name and the device of each rank. Rank 0 is the
 * server, and rank r is "client_r". brim determines them before any process of the job opens a library for devices, so
 * that a process with a GPU does not see other GPUs. */
#ifndef BRIM_LAUNCH_ISOLATE_H
#define BRIM_LAUNCH_ISOLATE_H
#include <stdbool.h>

#include "config/config.h"

typedef struct brim_isolated {
  char name[32];     /* "server", "client_1" */
  char device[64];   /* "cuda:1"; empty: the process may use any device */
  char visible[128]; /* for CUDA_VISIBLE_DEVICES; empty: unchanged */
} brim_isolated;

/* [init] Whether the configuration requires such processes. */
bool brim_isolate_is_wanted(const brim_config *config);
/* [init] Determines for each of the `ranks` ranks its name and its device: from a policy's table of shares or, without
 * a table, the devices in turn. Respects CUDA_VISIBLE_DEVICES, GPU_DEVICE_ID and `device`. ECONFIG: a process has no
 * share, a share belongs to no process or to a device that does not exist, or the user requests another device than the
 * table. */
brim_status brim_isolate_plan(const brim_config *config, int32_t ranks, brim_isolated *out);
/* [init] Sets the environment for a process that becomes this rank. */
void brim_isolate_set(const brim_isolated *rank);
/* [init] Removes these variables from the launcher's environment again. */
void brim_isolate_unset(void);
/* [init] The number of devices of the backend; 0: unknown. */
int32_t brim_launch_devices(const brim_config *config);
#endif
