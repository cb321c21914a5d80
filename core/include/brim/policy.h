/* For authors of policies: what decides about memory. On which device to train, with which micro-batch, what to do when
 * memory runs out, when to clean up, and whether a run that goes on takes less memory, or more.
 *
 * Policies stand in a list (policy=[capped,robust]) and are asked in order: the first that decides wins. Each function
 * returns BRIM_OK if it has decided, BRIM_ENOTSUP to leave it to the next, and anything else, with its text, to end the
 * run. A function that is NULL leaves everything to the next.
 *
 * The effective batch is the user's, and a policy chooses how it is cut: with multiples of training.grain to the same
 * bits, else but for rounding. What changes more, precision and the model, can be chosen before the first step only.
 *
 * All functions are called on one thread of the policies' own, [init] or between two steps, and may allocate. What a
 * query points to is valid during the call. A decision may take 1 s of processor time and wait (sleep, read a file) for
 * 10 s; create and destroy may take 10 s and wait for 60 s. What the core does for it (peak, figures, look) does not
 * count in a run; in `brim check` and `brim simulate` it is done on the policies' thread, and does. Who does not come
 * back, crashes or calls exit() ends the run with exit status 5, behind a checkpoint if it has begun. `brim check
 * FILE.so` tries a policy out.
 *
 * `reason` tells the user why, with the numbers: every decision is a line of the log and an event. */
#ifndef BRIM_POLICY_H
#define BRIM_POLICY_H
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"
#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_REASON_BYTES 200

/* What the user asks for, whichever the policies are: the keys of the same names. */
typedef struct brim_demands {
  const char *device;        /* "auto", or the name of one: $GPU_DEVICE_ID's too, and one that a policy has limited */
  int32_t stays;             /* 1: a policy has given the run a limit on that one; no policy moves it elsewhere */
  int32_t wait;              /* wait_for_gpu */
  uint64_t min_device_bytes; /* min_gpu_memory_mb: of devices that others use too; of a share of the host no more than
                                all of it, unless the command line says so */
  int64_t min_batch_size;    /* micro-batches are not made smaller */
  int64_t max_retries;       /* plans tried on a device after ones that had room by the plan and were not placed */
  int64_t steps;             /* of the whole run; 0 where a device is chosen before that is known. Since ABI 1.6 */
} brim_demands;

/* A device of the backend that was chosen. */
typedef struct brim_device_view {
  char name[64]; /* "cuda:0", as the key `device` takes it */
  uint64_t total_bytes, free_bytes;
  int32_t
      is_shared; /* others have memory of it too, and it can be waited for: a GPU, or a share of a host with a limit */
  int32_t on_host; /* it computes with the host's processors */
  int32_t waiting; /* runs in line that would take it */
  int32_t tried;   /* a plan of this run did not get its memory here */
} brim_device_view;

typedef struct brim_device_query {
  uint32_t size;
  const brim_demands *demands;
  const brim_device_view *device;
  size_t count; /* at least 1 */
} brim_device_query;

enum brim_place_kind {
  BRIM_PLACE_DEVICE = 1, /* this one, as soon as there is room; without demands->wait there must be room now */
  BRIM_PLACE_WAIT,       /* whichever of them has room first, in order of arrival; if none has after
                          * gpu_wait_timeout_minutes the run ends with exit status 4, and nobody is asked again */
  BRIM_PLACE_HOST        /* the host's processors: backend=cpu, as it is configured. Refused with exit status 4 on a
                          * device that is a share of the host, as its limit is the user's */
};
typedef struct brim_place {
  int32_t kind;         /* enum brim_place_kind */
  int32_t device;       /* index, with BRIM_PLACE_DEVICE */
  uint64_t limit_bytes; /* most that the process may take of it, libraries included; 0: no limit of the policy's */
  char reason[BRIM_REASON_BYTES];
} brim_place;

enum brim_policy_precision { BRIM_AS_IT_IS = 0, BRIM_TAKE_FP32, BRIM_TAKE_BF16, BRIM_TAKE_FP16 };

typedef struct brim_plan_query {
  uint32_t size;
  const brim_demands *demands;
  const brim_device_view *device; /* to plan for */
  uint64_t room_bytes;            /* that a plan may take of it now, within every limit */
  uint64_t later_bytes;           /* the same of the empty device, if the run may wait for that; else room_bytes */
  uint64_t all_bytes;             /* memory of all devices of the backend together */
  int64_t effective_batch;        /* samples in a step; of several ranks, of this one's share of it */
  int64_t batch_size;             /* training.batch_size, or the share if that is less; 0: auto */
  const int64_t *micro_batch;     /* that may be chosen, largest first: each divides the effective batch, or, of
                                     several ranks, is the whole share or divides what all of them have together */
  size_t micro_batch_count;       /* at least 1 */
  int32_t may_change_variant;     /* 1: precision and model may be chosen still */
  uint32_t precisions;            /* that the backend has: bit 1 << enum brim_policy_precision */
  int32_t precision;              /* as it is; BRIM_AS_IT_IS: precision=auto, a policy may choose, and fp32 else */
  const char *model;              /* id of the model as it is */
  /* Exact peak of a plan, in bytes: what will be placed. `micro_batch` is one of the list. Takes about a millisecond
   * and is remembered. */
  brim_status (*peak)(const struct brim_plan_query *query, int64_t micro_batch, uint64_t *bytes);
  void *host; /* the core's */
} brim_plan_query;

/* How sure a predicted time is. */
enum brim_basis {
  BRIM_BASIS_TIMED = 1, /* every kernel was timed in this very shape */
  BRIM_BASIS_DERIVED,   /* some only in other micro-batches */
  BRIM_BASIS_GUESSED    /* some by common rates: nothing like it was timed on this device */
};
typedef struct brim_plan_figures {
  uint32_t size;          /* set by the caller: sizeof(brim_plan_figures) */
  int32_t basis;          /* enum brim_basis */
  uint64_t peak_bytes;    /* exact, as of `peak` above */
  double step_seconds;    /* of a whole step: effective_batch in micro-batches, and the update */
  double recompute_share; /* work done again, of that of a step without */
  int32_t rounds; /* 1: no multiple of training.grain, so that results differ by rounding from those of others */
} brim_plan_figures;
/* What a plan takes of the device's memory and time: a micro-batch of the list, in a precision (enum
 * brim_policy_precision) of those there are, with as little recompute as fits if memory.recompute=auto. What the device
 * profile lacks is timed, if that does not take long and there is room: the first time some tenths of a second, later a
 * millisecond. The same profile gives the same figures. Since ABI 1.3. */
BRIM_EXPORT brim_status brim_plan_figures_of(const brim_plan_query *query, int64_t micro_batch, int32_t precision,
                                             brim_plan_figures *out);

typedef struct brim_plan_choice {
  int64_t micro_batch; /* one of the list */
  int32_t precision;   /* enum brim_policy_precision */
  const char *model;   /* option of the group `model` that is trained in its place; NULL: as it is */
  char reason[BRIM_REASON_BYTES];
} brim_plan_choice;

/* A plan did not get its memory, or memory ran out while it was at work, and cleaning up did not help. Nothing is lost:
 * plans are placed between steps, and what failed is done again. */
typedef struct brim_oom {
  uint32_t size;
  int64_t micro_batch;
  uint64_t needed_bytes,
      room_bytes;  /* what the plan needs; what there was for it, or ever can be if the run may wait */
  int64_t retries; /* plans tried on this device so far after one that had room (needed_bytes <= room_bytes), and was
                      not placed, or failed at work. A plan that the room is too small for was not tried, and is not
                      counted */
  brim_plan_query plan;
  brim_device_query devices;
  int32_t device; /* index of the one where it happened */
} brim_oom;

enum brim_action_kind {
  BRIM_ACT_PLAN = 1, /* again with action.plan */
  BRIM_ACT_PLACE,    /* on another device, or after waiting, or on the host: action.place; the plan is chosen anew */
  BRIM_ACT_GIVE_UP   /* the run ends, with exit status 4 */
};
typedef struct brim_action {
  int32_t kind; /* enum brim_action_kind */
  brim_plan_choice plan;
  brim_place place;
  char reason[BRIM_REASON_BYTES]; /* of giving up; else plan.reason or place.reason */
} brim_action;

/* Between two rounds (a round is what lies between two evaluations; of a federation, a round of clients), and at the
 * run's end. */
typedef struct brim_memory_view {
  uint32_t size;
  int64_t step, round;                             /* that have ended */
  int32_t is_end;                                  /* 1: nothing is trained after it */
  uint64_t host_total_bytes, host_available_bytes; /* of the cgroup's limit, where that is less than the machine */
  uint64_t process_bytes;                          /* resident */
  uint64_t device_total_bytes, device_free_bytes, device_planned_bytes; /* planned: the run's own arena */
} brim_memory_view;

enum brim_cleanup {
  BRIM_CLEAN_NONE = 0,
  BRIM_CLEAN_LIGHT, /* memory that was freed goes back to the system */
  BRIM_CLEAN_HEAVY  /* and what can be made again: batches that were decoded ahead, what libraries keep */
};
typedef struct brim_boundary {
  int32_t cleanup; /* enum brim_cleanup */
  int32_t warn;    /* 1: the reason is a warning */
  char reason[BRIM_REASON_BYTES];
} brim_boundary;

/* A process that has memory of a device. Since ABI 1.7. */
#define BRIM_DEVICE_USES_MAX 64
typedef struct brim_device_use {
  int64_t pid;
  uint64_t bytes; /* UINT64_MAX: the driver does not say */
  int32_t is_own; /* 1: this process */
  char name[64];  /* of the process; empty: it cannot be seen from here */
} brim_device_use;

/* Between two steps, about once a second. Since ABI 1.3. */
typedef struct brim_step_view {
  uint32_t size;
  int64_t step;   /* that have ended */
  double seconds; /* since some moment: the difference of two questions includes evaluations and checkpoints; for
                   * steps alone see step_seconds */
  const brim_demands *demands;
  int32_t waiting;         /* runs in line that would take the run's device */
  uint64_t waiting_bytes;  /* that must be free there for the first of them; 0: nobody waits */
  uint64_t planned_bytes;  /* the run's own arena */
  int64_t micro_batch;     /* as it is */
  int64_t effective_batch; /* samples in a step; of several ranks, of this one's share of it */
  int64_t grain;           /* micro-batches that are multiples of it give the same bits; 0: no others than as it is */
  const int64_t *choice;   /* micro-batches that may be chosen, largest first */
  size_t choice_count;     /* at least 1 */
  /* The run's device as it is now, and what a plan may take of it in the place of the present one, within every limit.
   * Costs system calls, so look only where it matters. */
  brim_status (*look)(const struct brim_step_view *view, brim_device_view *device, uint64_t *room_bytes);
  /* Exact peak of a plan of this micro-batch: as it is configured if that is within `bytes`, or bytes is 0; else with
   * as little recompute as keeps it within, unless the user has chosen another memory.recompute; then, or where no
   * recompute is enough, it is more than `bytes`. Takes milliseconds. */
  brim_status (*peak_within)(const struct brim_step_view *view, int64_t micro_batch, uint64_t bytes, uint64_t *peak);
  void *host; /* the core's */
  /* Since ABI 1.7: there if `size` reaches them. */
  double step_seconds; /* of a step alone: the median of the last 20 under this plan, or of as many as there were; 0:
                        * none yet */
  /* The processes that use a device of the backend, by its number: writes the first `room` of *count, which is
   * BRIM_DEVICE_USES_MAX at most, and 0 where devices have no such list. Costs system calls. The backend's own status
   * if it fails. */
  brim_status (*users)(const struct brim_step_view *view, int32_t device, brim_device_use *out, size_t room,
                       size_t *count);
} brim_step_view;

/* Another plan for the run that goes on. */
typedef struct brim_step_plan {
  int64_t micro_batch;            /* one of the list; 0: nothing changes, but the reason is told */
  uint64_t within_bytes;          /* as for peak_within */
  char reason[BRIM_REASON_BYTES]; /* goes on behind "micro-batch 64 -> 16, ", or "keeps its plan: " */
} brim_step_plan;

typedef struct brim_policy_ops {
  uint32_t size;
  brim_status (*choose_device)(void *self, const brim_device_query *query, brim_place *out);
  brim_status (*choose_plan)(void *self, const brim_plan_query *query, brim_plan_choice *out);
  brim_status (*on_oom)(void *self, const brim_oom *event, brim_action *out);
  brim_status (*on_boundary)(void *self, const brim_memory_view *memory, brim_boundary *out);
  /* 1: choose_device limits what the run may take, which nobody may decide before it: a list with another policy that
   * has a choose_device in front of this one is refused. */
  int32_t limits;
  /* Should the run go on under another plan? Without one (ENOTSUP) it allocates nothing. Since ABI 1.3. */
  brim_status (*on_step)(void *self, const brim_step_view *view, brim_step_plan *out);
} brim_policy_ops;

/* [any phase, on the policies' thread] Seconds since 1970 in UTC, for policies that go by the hour or by a deadline; in
 * `brim simulate` the scenario's, so that a night passes in milliseconds. For the time between two questions
 * brim_step_view.seconds is better, as nobody sets that clock. Since ABI 1.6. */
BRIM_EXPORT double brim_policy_clock(void);

/* [init] Writes a reason: brim_reason(out->reason, "%s has %s free", ...). Cut at BRIM_REASON_BYTES - 1, in front of
 * what would be half a character of UTF-8. */
BRIM_EXPORT void brim_reason(char *reason, const char *format, ...) BRIM_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif
#endif
