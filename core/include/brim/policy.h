/* For authors of policies: plugins that make the decisions about memory. A policy chooses the device and the
 * micro-batch, decides what to do when memory runs out and when to clean up, and may change how much memory a run uses
 * while it trains.
 *
 * Policies form a list (policy=[capped,robust]), which brim calls in order until one decides. A function returns
 * BRIM_OK if it has decided, and BRIM_ENOTSUP to leave the decision to the next policy. Any other status ends the run
 * with its error text. A NULL function leaves every decision to the next policy.
 *
 * The user sets the effective batch; a policy chooses only the micro-batch. Micro-batches that are multiples of
 * training.grain give bit-identical results; others differ by rounding. Precision and model change results more, so a
 * policy can choose them only before the first step.
 *
 * brim calls all functions on one thread that only policies use, during [init] or between two steps. They may allocate.
 * Pointers in a query are valid during the call. A decision may use 1 s of processor time and wait (sleep, read a file)
 * for 10 s; create and destroy may use 10 s and wait for 60 s. In a run, the time of the core's callbacks (peak,
 * figures, look) does not count; in `brim check` and `brim simulate`, which run them on the policies' thread, it does.
 * If a policy hangs, crashes or calls exit(), brim writes a checkpoint (once training has started) and exits with
 * status 5. `brim check FILE.so` tests a policy.
 *
 * `reason` explains a decision to the user, with the numbers: brim logs every decision and records it as an event. */
#ifndef BRIM_POLICY_H
#define BRIM_POLICY_H
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"
#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_REASON_BYTES 200

/* Requirements of the user, which hold whatever a policy decides: the values of the configuration keys of the same
 * names. */
typedef struct brim_demands {
  const char *device; /* "auto", or the name of a device that the key `device`, $GPU_DEVICE_ID or a policy with a limit
                         has fixed */
  int32_t stays;      /* 1: a policy has limited the run's memory on `device`; no policy may move the run to another */
  int32_t wait;       /* 1: the run may wait for a device (wait_for_gpu) */
  uint64_t min_device_bytes; /* min_gpu_memory_mb: the free memory that a shared device must have. On a share of the
                                host, at most the whole share, unless the key was set on the command line */
  int64_t min_batch_size;    /* the smallest micro-batch allowed */
  int64_t max_retries; /* further plans to try on a device after a plan that should have fit could not be placed */
  int64_t steps;       /* steps of the whole run; 0: not known yet when the device is chosen. Since ABI 1.6 */
} brim_demands;

/* A device of the run's backend. */
typedef struct brim_device_view {
  char name[64]; /* "cuda:0", as in the key `device` */
  uint64_t total_bytes, free_bytes;
  /* other processes use it too, and a run can wait for it: a GPU, or a share of a host with a limit */
  int32_t is_shared;
  int32_t on_host; /* it uses the host's processors */
  int32_t waiting; /* queued runs that could use it */
  int32_t tried;   /* a plan of this run could not be placed here */
} brim_device_view;

typedef struct brim_device_query {
  uint32_t size;
  const brim_demands *demands;
  const brim_device_view *device;
  size_t count; /* at least 1 */
} brim_device_query;

enum brim_place_kind {
  BRIM_PLACE_DEVICE = 1, /* the given device, as soon as it has room; without demands->wait it must have room now */
  BRIM_PLACE_WAIT, /* queue for the first device with room; if no device has room after gpu_wait_timeout_minutes, the
                      run ends with exit status 4 without asking a policy again */
  BRIM_PLACE_HOST  /* the host's processors, with backend=cpu as configured. If the run's device is a share of the host,
                      brim refuses this with exit status 4, as the user set that limit */
};
typedef struct brim_place {
  int32_t kind;         /* enum brim_place_kind */
  int32_t device;       /* index in query->device, for BRIM_PLACE_DEVICE */
  uint64_t limit_bytes; /* the most memory that the process may use there, including libraries; 0: the policy sets no
                           limit */
  char reason[BRIM_REASON_BYTES];
} brim_place;

enum brim_policy_precision { BRIM_AS_IT_IS = 0, BRIM_TAKE_FP32, BRIM_TAKE_BF16, BRIM_TAKE_FP16 };

typedef struct brim_plan_query {
  uint32_t size;
  const brim_demands *demands;
  const brim_device_view *device; /* the device to plan for */
  uint64_t room_bytes;            /* the memory that a plan may use there now, within all limits */
  /* The memory that a plan may use once the device is empty, if the run may wait; else room_bytes. */
  uint64_t later_bytes;
  uint64_t all_bytes;         /* total memory of all devices of the backend */
  int64_t effective_batch;    /* samples in a step; with several ranks, this rank's share of them */
  int64_t batch_size;         /* training.batch_size, at most effective_batch; 0: auto */
  const int64_t *micro_batch; /* the allowed sizes, largest first. Each divides the effective batch; with several ranks
                                 each is the whole share, or divides the effective batch of all ranks */
  size_t micro_batch_count;   /* at least 1 */
  int32_t may_change_variant; /* 1: precision and model may still be chosen */
  uint32_t precisions;        /* supported by the backend: bit 1 << enum brim_policy_precision */
  int32_t precision;          /* the current one; BRIM_AS_IT_IS: precision=policy, so a policy may choose, else fp32 */
  const char *model;          /* id of the current model */
  /* The exact peak of the plan for `micro_batch`, which must be in the list: the bytes that the arena will have. Takes
   * about a millisecond; the result is cached. */
  brim_status (*peak)(const struct brim_plan_query *query, int64_t micro_batch, uint64_t *bytes);
  void *host; /* private to the core */
} brim_plan_query;

/* The basis of a predicted time. */
enum brim_basis {
  BRIM_BASIS_TIMED = 1, /* every kernel was timed with these shapes */
  BRIM_BASIS_DERIVED,   /* some kernels were timed only with other micro-batches */
  BRIM_BASIS_GUESSED    /* some times are estimates: no similar kernel was timed on this device */
};
typedef struct brim_plan_figures {
  uint32_t size;          /* set by the caller: sizeof(brim_plan_figures) */
  int32_t basis;          /* enum brim_basis */
  uint64_t peak_bytes;    /* exact, as from `peak` above */
  double step_seconds;    /* a whole step: all micro-batches of the effective batch, and the update */
  double recompute_share; /* recomputed work as a share of a step's work without recompute */
  int32_t rounds; /* 1: the micro-batch is not a multiple of training.grain, so results differ by rounding from other
                     micro-batches' */
} brim_plan_figures;
/* Predicts the device memory and time of a plan. `micro_batch` must be in the list, and `precision` (enum
 * brim_policy_precision) among query->precisions. With memory.recompute=auto, the plan has the least recompute that
 * fits. brim times kernels that the device profile lacks, if there is room and it does not take long: the first call
 * takes some tenths of a second, later calls a millisecond. The same profile gives the same figures. Since ABI 1.3. */
BRIM_EXPORT brim_status brim_plan_figures_of(const brim_plan_query *query, int64_t micro_batch, int32_t precision,
                                             brim_plan_figures *out);

typedef struct brim_plan_choice {
  int64_t micro_batch; /* one of query->micro_batch */
  int32_t precision;   /* enum brim_policy_precision */
  const char *model;   /* an option of the group `model` to train instead; NULL: the current model */
  char reason[BRIM_REASON_BYTES];
} brim_plan_choice;

/* A plan could not be placed, or memory ran out in a step, and cleaning up did not free enough. No work is lost: plans
 * are placed between steps, and the run repeats a step that failed. */
typedef struct brim_oom {
  uint32_t size;
  int64_t micro_batch;
  uint64_t needed_bytes, room_bytes; /* needed: the plan's peak. room: the bytes that were available or, if the run may
                                        wait, that can become available */
  /* Further plans tried on this device after a plan that had room (needed_bytes <= room_bytes) but could not be placed,
   * or that ran out of memory in a step. Plans larger than the room are not tried and do not count. */
  int64_t retries;
  brim_plan_query plan;
  brim_device_query devices;
  int32_t device; /* index of the device where it happened */
} brim_oom;

enum brim_action_kind {
  BRIM_ACT_PLAN = 1, /* retry with action.plan */
  BRIM_ACT_PLACE,    /* use action.place: another device, after waiting, or the host; brim then asks for a new plan */
  BRIM_ACT_GIVE_UP   /* end the run with exit status 4 */
};
typedef struct brim_action {
  int32_t kind; /* enum brim_action_kind */
  brim_plan_choice plan;
  brim_place place;
  char reason[BRIM_REASON_BYTES]; /* for BRIM_ACT_GIVE_UP; otherwise plan.reason or place.reason applies */
} brim_action;

/* The state of memory between two rounds and at the end of the run. A round is the steps between two evaluations; in a
 * federation, a round of clients. */
typedef struct brim_memory_view {
  uint32_t size;
  int64_t step, round; /* completed so far */
  int32_t is_end;      /* 1: the run ends; no training follows */
  /* Those of the cgroup's limit, if it is below the machine's memory. */
  uint64_t host_total_bytes, host_available_bytes;
  uint64_t process_bytes;                                               /* resident */
  uint64_t device_total_bytes, device_free_bytes, device_planned_bytes; /* planned: the run's arena */
} brim_memory_view;

enum brim_cleanup {
  BRIM_CLEAN_NONE = 0,
  BRIM_CLEAN_LIGHT, /* return freed memory to the system */
  BRIM_CLEAN_HEAVY  /* also drop data that can be rebuilt: batches decoded ahead, caches of libraries */
};
typedef struct brim_boundary {
  int32_t cleanup; /* enum brim_cleanup */
  int32_t warn;    /* 1: log the reason as a warning */
  char reason[BRIM_REASON_BYTES];
} brim_boundary;

/* A process that uses memory of a device. Since ABI 1.7. */
#define BRIM_DEVICE_USES_MAX 64
typedef struct brim_device_use {
  int64_t pid;
  uint64_t bytes; /* UINT64_MAX: the driver does not say */
  int32_t is_own; /* 1: this process */
  char name[64];  /* the process's name; empty: unknown */
} brim_device_use;

/* The state of a run between two steps, given to on_step about once a second. Since ABI 1.3. */
struct brim_step_plan;
typedef struct brim_step_view {
  uint32_t size;
  int64_t step;   /* completed so far */
  double seconds; /* a clock with an arbitrary start. The difference of two calls includes evaluations and checkpoints;
                     step_seconds has steps only */
  const brim_demands *demands;
  int32_t waiting;         /* queued runs that could use this run's device */
  uint64_t waiting_bytes;  /* free memory that the first run in the queue needs; 0: no run waits */
  uint64_t planned_bytes;  /* the run's arena */
  int64_t micro_batch;     /* the current one */
  int64_t effective_batch; /* samples in a step; with several ranks, this rank's share of them */
  int64_t grain; /* micro-batches that are multiples of it give bit-identical results; 0: no other micro-batch does */
  const int64_t *choice; /* allowed micro-batches, largest first */
  size_t choice_count;   /* at least 1 */
  /* The current state of the run's device, and the memory that a plan replacing the current one may use, within all
   * limits. Makes system calls, so call it only when needed. */
  brim_status (*look)(const struct brim_step_view *view, brim_device_view *device, uint64_t *room_bytes);
  /* The exact peak of a plan with this micro-batch. If `bytes` is 0 or the configured plan fits in `bytes`, that is the
   * configured plan's peak. Otherwise it is that of the plan with the least recompute that fits; if no recompute
   * suffices, or the user has set memory.recompute, it is more than `bytes`. Takes milliseconds. */
  brim_status (*peak_within)(const struct brim_step_view *view, int64_t micro_batch, uint64_t bytes, uint64_t *peak);
  void *host; /* private to the core */
  /* Since ABI 1.7: check that `size` covers these fields. */
  double step_seconds; /* duration of a step: the median of the last 20 (or fewer) steps with this plan; 0: not known
                          yet */
  /* Lists the processes that use device number `device` of the backend: writes the first `room` of *count entries.
   * *count is at most BRIM_DEVICE_USES_MAX, and 0 if the device has no such list. Makes system calls. On failure
   * returns the backend's status. */
  brim_status (*users)(const struct brim_step_view *view, int32_t device, brim_device_use *out, size_t room,
                       size_t *count);
  /* Since ABI 1.12. The number of a federation's clients that train at the same time, and its maximum. Fewer clients
   * need less memory, and the results are bit-identical. 0: not a federation. */
  int32_t lanes, lanes_max;
  /* The exact peak that an answer would have: as peak_within, for the answer's micro_batch, within_bytes and lanes.
   * Since ABI 1.12 */
  brim_status (*peak_of)(const struct brim_step_view *view, const struct brim_step_plan *plan, uint64_t *peak);
} brim_step_view;

/* A new plan for a run that continues. */
typedef struct brim_step_plan {
  int64_t micro_batch;            /* one of `choice`; 0: keep the plan, but report the reason */
  uint64_t within_bytes;          /* limit for the bytes of the plan, as for peak_within */
  char reason[BRIM_REASON_BYTES]; /* shown after "micro-batch 64 -> 16, " or "keeps its plan: " */
  /* clients of a federation that train at a time, at most lanes_max; 0: as many as now. Since ABI 1.12 */
  int32_t lanes;
} brim_step_plan;

typedef struct brim_policy_ops {
  uint32_t size;
  brim_status (*choose_device)(void *self, const brim_device_query *query, brim_place *out);
  brim_status (*choose_plan)(void *self, const brim_plan_query *query, brim_plan_choice *out);
  brim_status (*on_oom)(void *self, const brim_oom *event, brim_action *out);
  brim_status (*on_boundary)(void *self, const brim_memory_view *memory, brim_boundary *out);
  /* 1: choose_device limits the run's memory. No other policy may decide before it: brim refuses a list in which a
   * policy with a choose_device precedes this one. */
  int32_t limits;
  /* Decides whether the run continues with another plan. Must not allocate if it returns BRIM_ENOTSUP. Since ABI
   * 1.3. */
  brim_status (*on_step)(void *self, const brim_step_view *view, brim_step_plan *out);
} brim_policy_ops;

/* [any phase, on the policies' thread] Seconds since 1970 in UTC, for policies that depend on the time of day or on a
 * deadline. In `brim simulate` this is the scenario's time, so a night passes in milliseconds. To measure the time
 * between two calls use brim_step_view.seconds: it is monotonic. Since ABI 1.6. */
BRIM_EXPORT double brim_policy_clock(void);

/* [init] Writes a reason: brim_reason(out->reason, "%s has %s free", ...). Truncates to BRIM_REASON_BYTES - 1 bytes, at
 * a UTF-8 character boundary. */
BRIM_EXPORT void brim_reason(char *reason, const char *format, ...) BRIM_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif
#endif
