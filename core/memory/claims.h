/* The queue for the memory of shared devices: first come, first served, for jobs that name a device and for jobs that
 * accept any of several. A job holds its ticket from the request until its arena is placed; from then on, other
 * processes see its memory as used, on the GPU or in a ledger. The tickets of a process vanish when it ends. */
#ifndef BRIM_MEMORY_CLAIMS_H
#define BRIM_MEMORY_CLAIMS_H
#include "base/arena.h"
#include "memory/choose.h"

#define BRIM_CLAIM_DEVICES_MAX 64    /* devices of a backend that can be claimed, from the first */
#define BRIM_CLAIM_LOOK_SECONDS 0.05 /* wait between the first two checks of the queue; doubles each time */
/* Time for which a rank waits for other ranks of its job to place their plans on the same device. */
#define BRIM_CLAIM_TURN_SECONDS 10

typedef struct brim_claim brim_claim;

typedef struct brim_claim_request {
  const char *backend; /* id */
  const brim_backend_ops *ops;
  void *self;
  brim_device_wish wish; /* min_bytes: see need_bytes */
  uint64_t need_bytes;   /* free memory that the device must have: the larger of the plan's peak and wish.min_bytes */
  bool wait;
  double timeout_seconds, interval_seconds; /* seconds of waiting: the maximum in total, and between two checks */
  const volatile int *stop;                 /* the wait ends when it becomes nonzero; may be NULL */
  void (*on_wait)(void *context,
                  const char *place); /* called once, when waiting begins, with "3rd in line, ..."; may be NULL */
  void *context;
} brim_claim_request;

/* [init] Takes a ticket and, if allowed, waits for its turn. Release *out when the arena is placed, or will not be
 * placed. ENODEVICE: other runs wait and this run must not wait, or it waited too long; the text lists the devices.
 * ENOMEM_DEVICE: no device has that much memory, or none has it free and the run must not wait. EINTERRUPTED. Logs the
 * reason for a wait at level info. *waited_seconds: 0 if the device was free at the first check; also set on
 * failure. */
brim_status brim_claim_take(const brim_claim_request *request, brim_claim **out, int *device, double *waited_seconds);
/* [step] For a run that already holds memory of a device and changes its size: no other run gets memory there until
 * *out is released. Does not wait. `alone`: ENODEVICE if another run waits for the device or is placing a plan on it.
 * Reads only the first three members of the request. */
brim_status brim_claim_hold(const brim_claim_request *request, int device, bool alone, brim_claim **out);
void brim_claim_release(brim_claim *claim); /* may be NULL */
/* [step] How many runs wait for the device with this key, and how much free memory the first of them needs. Allocates
 * nothing. */
brim_status brim_claims_waiting(uint64_t key, size_t *count, uint64_t *first_bytes);

/* A ticket, for `brim devices`. */
typedef struct brim_ticket {
  int64_t pid;
  uint64_t need_bytes;
  double since;               /* seconds since 1970 */
  int device;                 /* the claimed device; -1: waiting */
  const char *process;        /* name */
  const char *backend, *wish; /* "cpu", "cpu:1" or "any", in the numbering of the waiting process */
  const uint64_t *key;        /* keys of the acceptable devices */
  size_t keys;
  uint64_t claimed; /* key of the claimed device; 0: waiting */
} brim_ticket;
/* Returns a key that is the same in all processes for the same device of `devices`, independent of the number that a
 * process gives it. */
uint64_t brim_device_key(const char *backend, int device, int devices, const brim_device_info *info);
bool brim_ticket_accepts(const brim_ticket *t, uint64_t key);
/* [init] Lists all tickets in the order of their numbers. */
brim_status brim_claims_list(brim_arena *arena, brim_ticket **out, size_t *count);
#endif
