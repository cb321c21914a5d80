/* The live state of brim's processes: each process that plans for, waits for or uses a device publishes one slot on the
 * board "runs" in the shared folder, which all users of the host can read. A slot disappears when its process ends,
 * however it ends (memory/board.h).
 *
 * A process fills its slot in memory; a thread writes it to the board, at most BRIM_LIVE_WRITES_PER_SECOND times a
 * second and only after a change. So publishing costs the step path neither a system call nor an allocation. If the
 * slot cannot be published, one warning says so, and the run continues.
 *
 * Any process may write to the board, so readers check each slot before they trust it (enum brim_live_trust), and print
 * text from a slot with brim_text_add_shown. */
#ifndef BRIM_MEMORY_LIVE_H
#define BRIM_MEMORY_LIVE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/backend.h"
#include "brim/comm.h"
#include "config/settings.h"
#include "memory/board.h"

#define BRIM_LIVE_LAYOUT 1 /* version of brim_live_slot; raised when a field changes its meaning or place */
#define BRIM_LIVE_BYTES 512
#define BRIM_LIVE_WRITES_PER_SECOND 2
#define BRIM_LIVE_CLASSES 8 /* room for enum brim_role */

/* The activity of a process. */
enum brim_live_state {
  BRIM_LIVE_PLANNING, /* has no device memory yet */
  BRIM_LIVE_WAITING,  /* in the queue for a device */
  BRIM_LIVE_TRAINING,
  BRIM_LIVE_EVALUATING,
  BRIM_LIVE_CHECKPOINT, /* writes a checkpoint */
  BRIM_LIVE_RECOVERING, /* makes room after a failure, or goes back to a checkpoint */
  BRIM_LIVE_STOPPING,   /* was asked to end, or is writing its results */
  BRIM_LIVE_WORKING,    /* evaluates without training, predicts or generates: see `command` */
  BRIM_LIVE_STATE_COUNT
};

/* Bits of brim_live_slot.flags. */
enum brim_live_flag {
  BRIM_LIVE_ROUNDS = 1, /* the steps are rounds of a federation */
  BRIM_LIVE_TOKENS = 2, /* `rate` counts tokens, not samples */
  BRIM_LIVE_DETAILS = 4 /* observe.live=all: model, run, loss and accuracy are set */
};

/* Everything that a process publishes. Times are seconds since 1970; a double that is not known is NAN. */
typedef struct brim_live_slot {
  uint32_t layout, bytes; /* BRIM_LIVE_LAYOUT and sizeof(brim_live_slot); at the same place in all layouts */
  uint64_t check;         /* hash of all other bytes */
  uint64_t stamp;         /* number of this process's last write; grows */

  int64_t pid;
  /* The pid namespace (inode of /proc/self/ns/pid); readers cannot interpret pids of other namespaces. */
  uint64_t pid_space;
  uint64_t start_ticks; /* when the process started (/proc/PID/stat), to detect that another process has the pid now */
  uint32_t uid;
  int32_t rank, ranks; /* rank and size of the job; 0 of 1 for a single process */
  uint32_t state;      /* enum brim_live_state */
  int32_t device;      /* in the numbering of this process; -1: none yet */
  int32_t folder_fd;   /* the process's descriptor of the run folder's lock file: see brim_live_folder; -1: none */
  uint32_t place;      /* WAITING: place in the queue, from 1; else 0 */
  uint32_t flags;      /* enum brim_live_flag */
  int32_t board_fd;    /* the process's descriptor of the board, by which the kernel can prove who owns the slot */
  uint32_t reserved;   /* 0 */

  uint64_t key;         /* key of the device: brim_device_key; 0: none yet */
  uint64_t peak_bytes;  /* peak of the plan that is placed, or that the process waits to place; 0: not known yet */
  uint64_t taken_bytes; /* device memory besides the arena: the driver's context and libraries; 0: not known */
  uint64_t class_bytes[BRIM_LIVE_CLASSES]; /* bytes of the placed plan at its peak, by enum brim_role */

  double started; /* time at which the slot was created */
  double since;   /* time at which `state` began */
  double updated; /* time of the process's last change of this slot; long ago: a long step, or a stopped process */
  double queue_seconds; /* total time in which it waited for devices */
  int64_t step, steps;
  int64_t epoch, epochs; /* epoch: from 1; epochs 0: the run counts only steps */
  double rate;           /* samples or tokens a second */
  double left_seconds;   /* expected time until the last step */

  char backend[24]; /* "cuda" */
  char command[16]; /* "train" */
  double loss;      /* this and the following fields: only with BRIM_LIVE_DETAILS */
  double accuracy;  /* in [0, 1] */
  char model[32];   /* "vit" */
  char run[168];    /* absolute path of the run's folder; empty if it is longer */
} brim_live_slot;
_Static_assert(sizeof(brim_live_slot) == BRIM_LIVE_BYTES, "the size of a slot on the board");

/* ---- publishing: one slot per process; these functions do nothing before brim_live_begin ---- */

/* [init] Sets the command that this process runs. Commands that set none publish nothing. */
void brim_live_command(const char *name);
/* [init] Publishes a slot in state PLANNING and starts the thread; further calls do nothing. The shared folder must be
 * known (brim_shared_folder_set). */
void brim_live_begin(enum brim_live_mode mode, const brim_world *world);
/* [init] Removes the slot. */
void brim_live_end(void);

/* [step] Sets the process's activity. Returns the previous one. */
enum brim_live_state brim_live_now(enum brim_live_state state);
/* [init] Publishes that the process waits for `bytes` at this place of the queue, from 1; 0: it no longer waits, and
 * its activity is the previous one again. */
void brim_live_wait(size_t place, uint64_t bytes);
/* [init] Publishes that the plan is placed. class_bytes[classes]: by enum brim_role. */
typedef struct brim_live_placed {
  const char *backend;
  int device;
  uint64_t key, peak_bytes, taken_bytes;
  const uint64_t *class_bytes;
  size_t classes;
  double queue_seconds;
} brim_live_placed;
void brim_live_place(const brim_live_placed *placed);
/* [init] Publishes the run's folder, the descriptor of its lock, and the model. Waits until others can see these, but
 * at most a second. */
void brim_live_run(const char *dir, int lock_fd, const char *model);
/* [step] Publishes progress. Copies these figures under a mutex. */
typedef struct brim_live_step {
  int64_t step, steps, epoch, epochs;
  double rate, left_seconds, loss, accuracy;
  bool by_rounds, in_tokens;
} brim_live_step;
void brim_live_progress(const brim_live_step *step);

/* ---- reading ---- */

enum brim_live_trust {
  BRIM_LIVE_GOOD,
  BRIM_LIVE_OTHER_LAYOUT, /* written by another version of brim; only `layout` is meaningful */
  BRIM_LIVE_DAMAGED,      /* the check or a field is wrong: no field has a meaning */
  BRIM_LIVE_FORGED        /* names a process that does not exist, or that another user started */
};

typedef struct brim_live_entry {
  uint32_t slot;              /* on the board */
  enum brim_live_trust trust; /* if it is not GOOD, show brim_live_trouble and use nothing else */
  bool is_here; /* the slot's pid is in this pid namespace, and belongs to the process that wrote the slot */
  bool is_mine; /* is_here, and the kernel shows that a process of this user owns the slot */
  brim_live_slot of;
} brim_live_entry;

/* [init] Reads all slots of running processes into out[BRIM_BOARD_SLOTS]. Slots of processes that have ended are
 * removed. EIO, ELOAD: the board cannot be read, with the reason and a remedy. */
brim_status brim_live_list(brim_live_entry *out, size_t *count);
/* Describes for the user why a slot is not trusted, with a remedy: "slot 3 of '/dev/shm/brim/runs' ...". */
const char *brim_live_trouble(const brim_live_entry *entry, char *out, size_t room);
/* [init] The folder of a process's run, if this user may know it: from the slot (observe.live=all), else from the
 * kernel, which shows a process's open files only to its own user. False: not known. Does not check that the folder
 * exists. */
bool brim_live_folder(const brim_live_entry *entry, char *out, size_t room);

/* For tests and tools that replay slots: brim_live_seal sets layout, bytes and check; the other judges a slot without
 * asking the kernel. */
void brim_live_seal(brim_live_slot *slot);
enum brim_live_trust brim_live_judge(const brim_live_slot *slot);
#endif
