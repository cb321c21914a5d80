/* Shared by this_host.c and its parts: one look at this host, and the state between looks. */
#ifndef BRIM_MONITOR_THIS_HOST_PARTS_H
#define BRIM_MONITOR_THIS_HOST_PARTS_H
#include "memory/live.h"
#include "monitor/backends.h"
#include "monitor/folder.h"
#include "monitor/this_host.h"

#define BRIM_USERS_KNOWN_MAX 64
#define BRIM_ENDED_MAX 64 /* most ended runs that are remembered; a look shows the newest */

typedef struct brim_known_user {
  uid_t uid;
  char name[64];
} brim_known_user;

/* Data about a device that a look keeps for the next one. */
typedef struct brim_past_device {
  uint64_t key;
  double idle_since; /* 0: it was not idle */
} brim_past_device;

/* A run whose folder is known. It is remembered while its process lives, and for some time after. */
typedef struct brim_known_run {
  brim_live_entry entry; /* the last state of its slot */
  char *dir;
  double ended; /* 0: its process lives */
} brim_known_run;

struct brim_this_host {
  brim_arena arena;
  const brim_registry *registry;
  brim_backends backends;
  brim_folder **folder;
  bool *is_used; /* the current look uses the folder */
  size_t folders, folder_room;
  brim_known_user user[BRIM_USERS_KNOWN_MAX];
  size_t users;
  brim_past_device past[BRIM_LOOK_DEVICES_MAX];
  size_t pasts;
  uint64_t busy_ticks, ticks; /* ticks of the processors at the last look */
  brim_live_entry *live;      /* [BRIM_BOARD_SLOTS] */
  brim_known_run known[BRIM_BOARD_SLOTS + BRIM_ENDED_MAX];
  size_t knowns;
  bool has_searched; /* looked for runs that had ended before the first look */
};

/* One look. */
typedef struct brim_looking {
  brim_this_host *l;
  brim_look *look;
  size_t host, first_device, first_run; /* index of this host, and of its first device and run, in the look */
  uint64_t key[BRIM_LOOK_DEVICES_MAX];  /* keys of the devices, from the first */
  size_t device_room, run_room, ticket_room;
  size_t lives;
  const brim_live_entry **entry_of_run; /* [BRIM_LOOK_RUNS_MAX], from the first run; NULL for a run that has ended */
  double load;                          /* load of the processors; NAN: not known yet */
} brim_looking;

/* ---- this_host.c ---- */

/* The name of a user, in `arena`. Looks up each user only once, because a name service may be slow. */
const char *brim_looking_user(brim_looking *k, uid_t uid);
/* The user of a process of this pid namespace; false if no such process exists. */
bool brim_looking_find_uid(int64_t pid, uid_t *out);
/* Copies the text into the look. */
const char *brim_looking_text(brim_looking *k, const char *text);
/* Returns the device with this key, or BRIM_LOOK_NONE. */
size_t brim_looking_device(const brim_looking *k, uint64_t key);

/* ---- this_host_devices.c ---- */

void brim_looking_devices(brim_looking *k); /* adds backends, ledgers, load and idle times */
/* Divides the memory in use among its owners; call it when the runs are known. */
void brim_looking_share_memory(brim_looking *k);
/* Removes the "device" of the host's memory if no run uses it. */
void brim_looking_leave_out_devices(brim_looking *k);

/* ---- this_host_runs.c ---- */

void brim_looking_list_live(brim_looking *k);
void brim_looking_runs(brim_looking *k);
void brim_looking_name_runs(brim_looking *k);
void brim_looking_forget_runs(brim_this_host *l);
#endif
