/* The queue of those who want memory of a device that is shared: first come, first served, for jobs that name a device
 * and jobs that take any of several. A ticket is held from the wish to the placed arena; then what was placed speaks
 * for itself (as a GPU's used memory, or in a ledger). Tickets of processes that end are gone at once. */
#ifndef BRIM_MEMORY_CLAIMS_H
#define BRIM_MEMORY_CLAIMS_H
#include "base/arena.h"
#include "memory/choose.h"

#define BRIM_CLAIM_DEVICES_MAX 64    /* of a backend, from the first */
#define BRIM_CLAIM_LOOK_SECONDS 0.05 /* between two looks of one who waits, at first; then twice as long each time */
/* How long a rank waits for others of its job to place their plans on the same device. */
#define BRIM_CLAIM_TURN_SECONDS 10

typedef struct brim_claim brim_claim;

typedef struct brim_claim_request {
  const char *backend; /* id */
  const brim_backend_ops *ops;
  void *self;
  brim_device_wish wish; /* min_bytes: see need_bytes */
  uint64_t need_bytes;   /* free memory that the device must have: the plan's, or wish.min_bytes if that is more */
  bool wait;
  double timeout_seconds, interval_seconds;          /* of waiting: in all; the longest between two looks */
  const volatile int *stop;                          /* waiting ends when it becomes nonzero; NULL: never */
  void (*on_wait)(void *context, const char *place); /* once, when it begins to wait: "3rd in line, ..."; may be NULL */
  void *context;
} brim_claim_request;

/* [init] Takes a ticket, and waits for its turn if it may. *out: to be released when the arena is placed, or will not
 * be. ENODEVICE: it may not wait and others do, or waited too long, with what the devices have; ENOMEM_DEVICE: it may
 * not wait, and no device has so much free, or none has so much at all; EINTERRUPTED. Says at level info what it waits
 * for. *waited_seconds: 0 if the device was free at the first look; also set on failure. */
brim_status brim_claim_take(const brim_claim_request *request, brim_claim **out, int *device, double *waited_seconds);
/* [step] For a run that has memory of a device already and changes its size: no other run is served there until *out
 * is released. Does not wait. `alone`: only if no run waits for the device or places there, ENODEVICE otherwise. Reads
 * only the first three members of the request. */
brim_status brim_claim_hold(const brim_claim_request *request, int device, bool alone, brim_claim **out);
void brim_claim_release(brim_claim *claim); /* NULL: nothing */
/* [step] How many wait for the device of a key, and what must be free for the first of them. Allocates nothing. */
brim_status brim_claims_waiting(uint64_t key, size_t *count, uint64_t *first_bytes);

/* A ticket, for `brim devices`. */
typedef struct brim_ticket {
  int64_t pid;
  uint64_t need_bytes;
  double since;               /* seconds since 1970 */
  int device;                 /* that it has claimed; -1: it waits */
  const char *process;        /* name */
  const char *backend, *wish; /* "cpu", "cpu:1" or "any", as the process numbers its devices */
  const uint64_t *key;        /* of the devices that would do */
  size_t keys;
} brim_ticket;
/* The same for all processes that mean the same device of `devices`, whatever number they give it. */
uint64_t brim_device_key(const char *backend, int device, int devices, const brim_device_info *info);
bool brim_ticket_accepts(const brim_ticket *t, uint64_t key);
/* [init] All tickets in the order of their numbers. */
brim_status brim_claims_list(brim_arena *arena, brim_ticket **out, size_t *count);
#endif
