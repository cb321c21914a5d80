/* The functions through which a run sees its environment: the time, the queue for devices with other runs, and the
 * host's memory. A real run uses the system's; a simulation uses those of its scenario. */
#ifndef BRIM_MEMORY_ENV_H
#define BRIM_MEMORY_ENV_H
#include "memory/claims.h"

typedef struct brim_env {
  void *self;                /* the first argument of each function */
  double (*now)(void *self); /* seconds since an arbitrary start */
  /* [init] See brim_claim_take and brim_claim_hold. Pass *out to `release`, which accepts NULL. */
  brim_status (*claim)(void *self, const brim_claim_request *request, void **out, int *device, double *waited_seconds);
  brim_status (*hold)(void *self, const brim_claim_request *request, int device, bool alone, void **out);
  void (*release)(void *self, void *claim);
  /* See brim_claims_list and brim_claims_waiting. */
  brim_status (*tickets)(void *self, brim_arena *arena, brim_ticket **out, size_t *count);
  brim_status (*waiting)(void *self, uint64_t key, size_t *count, uint64_t *first_bytes);
  /* Returns the host's memory, and how much of it this process uses. */
  brim_host_memory (*host)(void *self, uint64_t *process_bytes);
} brim_env;

extern const brim_env brim_real_env;
#endif
