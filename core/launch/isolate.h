/* Clients in processes of their own (federate.mode=processes): the name and the device of each rank. Rank 0 is the
 * server, and rank r is "client_r". They are known before any process of the job opens a library for devices, so that
 * a process with a GPU sees no other. */
#ifndef BRIM_LAUNCH_ISOLATE_H
#define BRIM_LAUNCH_ISOLATE_H
#include <stdbool.h>

#include "config/config.h"

typedef struct brim_isolated {
  char name[32];     /* "server", "client_1" */
  char device[64];   /* "cuda:1"; empty: the process may use any */
  char visible[128]; /* for CUDA_VISIBLE_DEVICES; empty: unchanged */
} brim_isolated;

/* [init] Whether the configuration asks for such processes. */
bool brim_isolate_is_wanted(const brim_config *config);
/* [init] For each of the `ranks` ranks: its name, and its device by the table of shares of a policy, or without one in
 * turn. Respects CUDA_VISIBLE_DEVICES, GPU_DEVICE_ID and `device`. ECONFIG: a process has no share, a share belongs to
 * no process or is of a device that does not exist, or the user asks for another device than the table. */
brim_status brim_isolate_plan(const brim_config *config, int32_t ranks, brim_isolated *out);
/* [init] Sets the environment of a process that becomes that rank. */
void brim_isolate_set(const brim_isolated *rank);
/* [init] Removes it from the environment of the launcher again. */
void brim_isolate_unset(void);
/* [init] The number of devices of the backend; 0: unknown. */
int32_t brim_launch_devices(const brim_config *config);
#endif
