/* The backends of this host and their devices, for commands that list them. */
#ifndef BRIM_MONITOR_BACKENDS_H
#define BRIM_MONITOR_BACKENDS_H
#include "base/arena.h"
#include "brim/backend.h"
#include "config/config.h"

#define BRIM_USERS_MAX 256 /* listed per device */

/* A backend, or the reason why it cannot be used. */
typedef struct brim_backend_seen {
  const char *id;
  const char *failure;              /* NULL: the backend can be used */
  const brim_registry_entry *entry; /* NULL after a failure, like the next two */
  const brim_backend_ops *ops;
  void *self; /* an instance */
  int devices;
} brim_backend_seen;

typedef struct brim_backends {
  brim_backend_seen *backend;
  size_t count, room;
} brim_backends;

/* [init] Loads all backends and makes an instance of each. The backend that `config` chooses gets the parameters of
 * `config` (which may be NULL); all others get defaults. `arena` owns everything; arena and registry must outlive the
 * result. */
void brim_backends_open(const brim_registry *registry, const brim_config *config, brim_arena *arena,
                        brim_backends *out);
void brim_backends_close(brim_backends *backends);

typedef struct brim_device_seen {
  brim_device_info info;
  uint64_t key; /* see brim_device_key */
  bool has_users;
  const char *users_failure; /* why the processes cannot be listed; NULL: no failure, or nothing to list */
  brim_device_user *user;    /* [BRIM_USERS_MAX], in the arena */
  size_t users;
} brim_device_seen;
/* [init] Describes a device and lists the processes that use it. Does not list the processes that use the memory of the
 * host, because every process does. */
brim_status brim_device_see(const brim_backend_seen *backend, int device, brim_arena *arena, brim_device_seen *out);
#endif
