/* The real environment: see env.h. */
#include "memory/env.h"

#include "base/process.h"
#include "base/text.h"

static double now(void *self)
{
  (void)self;
  return brim_now();
}

static brim_status claim(void *self, const brim_claim_request *request, void **out, int *device, double *waited)
{
  brim_claim *taken = NULL;
  (void)self;
  const brim_status status = brim_claim_take(request, &taken, device, waited);
  *out = taken;
  return status;
}

static brim_status hold(void *self, const brim_claim_request *request, int device, bool alone, void **out)
{
  brim_claim *held = NULL;
  (void)self;
  const brim_status status = brim_claim_hold(request, device, alone, &held);
  *out = held;
  return status;
}

static void release(void *self, void *claimed)
{
  (void)self;
  brim_claim_release(claimed);
}

static brim_status list_tickets(void *self, brim_arena *arena, brim_ticket **out, size_t *count)
{
  (void)self;
  return brim_claims_list(arena, out, count);
}

static brim_status count_waiting(void *self, uint64_t key, size_t *count, uint64_t *first_bytes)
{
  (void)self;
  return brim_claims_waiting(key, count, first_bytes);
}

static brim_host_memory look_at_host(void *self, uint64_t *process_bytes)
{
  (void)self;
  *process_bytes = brim_rss_bytes();
  return brim_host_memory_now();
}

const brim_env brim_real_env = {.now = now,
                                .claim = claim,
                                .hold = hold,
                                .release = release,
                                .tickets = list_tickets,
                                .waiting = count_waiting,
                                .host = look_at_host};
