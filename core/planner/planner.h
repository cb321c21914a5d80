/* What plans take, of memory and time: functions of a setup, a choice, and the device as it was looked at last. Nothing
 * is placed, but for timing (figures.h), and nothing is decided. Peaks that were found are remembered. */
#ifndef BRIM_PLANNER_PLANNER_H
#define BRIM_PLANNER_PLANNER_H
#include "exec/profile.h"
#include "memory/claims.h"
#include "planner/choice.h"
#include "setup/setup.h"

#define BRIM_MICRO_BATCHES_MAX 256
#define BRIM_MICRO_BATCH_MAX ((int64_t)1 << 20) /* samples */

typedef struct brim_peaks brim_peaks;
struct brim_figures; /* planner/figures.h */

/* Who answers in the place of plans: the model of a scenario. Of a choice with the budget that recompute=auto keeps
 * below. */
typedef struct brim_plan_model {
  void *context;
  brim_status (*figures)(void *context, const brim_choice *choice, struct brim_figures *out);
} brim_plan_model;

typedef struct brim_planner {
  const brim_setup *setup;
  const brim_plan_model *model; /* NULL: plans are made */
  /* The device that is planned for, and what the run may have of it. */
  int device;
  brim_device_info device_info; /* as it was looked at last */
  double fraction;              /* of its memory, from the environment; 0: none */
  uint64_t limit_bytes;         /* by a policy; 0: none */
  uint64_t growth_bytes;        /* that its driver and libraries were measured to take later; 0: not known */
  uint64_t ranks_bytes;         /* that connections of the job's ranks were measured to take; 0: not known */
  uint64_t comm_bytes;          /* that they take in this process, once they are connected */
  bool waits;                   /* for it, until there is room */
  double queue_seconds;         /* spent in line for devices, in all */
  /* The host, in bytes. */
  uint64_t resident_bytes, data_bytes; /* of this process, and what the data will take: by brim_planner_measure */
  uint64_t besides_bytes;              /* what the process will take of the host besides resident_bytes and an arena, as
                                          brim_planner_foresee has found; 0: not known, or the plan is placed */
  uint64_t host_share_bytes;           /* of several ranks here: what this one may have of the host in all, by what was
                                          left before any of them had placed its plan; 0: it is alone */
  bool has_begun;                      /* the data is being read, or a plan was placed: nothing is foreseen any more */
  /* What is remembered. */
  int64_t micro_batch[BRIM_MICRO_BATCHES_MAX]; /* that may be chosen, largest first: by brim_planner_list_cuts */
  size_t micro_batch_count;                    /* 0: not listed yet */
  brim_recompute_cache *levels;                /* of all its plans */
  brim_peaks *peaks;                           /* likewise */
  brim_profile *profile;                       /* of the device, by figures.h; NULL: not asked for yet */
  double timing_seconds;                       /* spent on timing */
} brim_planner;

/* What is evaluated: `count` samples, `batch` at a time. */
typedef struct brim_evaluation_wish {
  int64_t count, batch;
  bool keep_output, keep_features; /* the model's output, or the backbone's features, can be read after each batch */
} brim_evaluation_wish;

/* [init] The setup must outlive it, and have the instance of its backend. */
void brim_planner_open(brim_planner *planner, const brim_setup *setup);
void brim_planner_close(brim_planner *planner);

/* [init] For another device from now on, of which brim_taken_learn is to be called. Plans of before must be freed. What
 * brim_device_select returns. */
brim_status brim_planner_select(brim_planner *planner, int device);
/* Looks at what the device has now. */
brim_status brim_planner_look(brim_planner *planner);
/* Other samples of a step are the rank's, or the setup is another: what is remembered of plans is forgotten. */
void brim_planner_forget(brim_planner *planner);

/* What a device for a plan of so many bytes, and the headroom beside it, is asked for with. `waits`: as long as the
 * configuration says; else only for other ranks of the job, which place their plans at the same time. */
brim_claim_request brim_planner_claim_request(const brim_planner *planner, const brim_device_wish *wish,
                                              uint64_t need_bytes, bool waits);

/* [plan] Lists the micro-batches that may be chosen, largest first: all that the rank has of a step, or what divides
 * the effective batch. They cut no norm group, and are multiples of the grain, or smaller than it, or all there is.
 * Returns how many. */
size_t brim_planner_list_cuts(brim_planner *planner);

/* [plan] The plan of a choice. `alone`: of the full micro-batch and the update only, without evaluation; of a
 * federation the same peak, but not to be placed. ECONFIG if its micro-batch is not allowed. */
brim_status brim_planner_plan(const brim_planner *planner, const brim_choice *choice, bool alone, brim_plan **out);
/* [plan] Of a federation, the plan of a client's training without a server, on an instance of the backend. */
brim_status brim_planner_plan_client(const brim_planner *planner, const brim_choice *choice, void *backend,
                                     brim_plan **out);
/* [plan] The plan of an evaluation, and nothing else: no gradients, no optimizer state. */
brim_status brim_planner_plan_evaluation(const brim_planner *planner, const brim_choice *choice,
                                         const brim_evaluation_wish *wish, brim_plan **out);
/* What a choice with recompute=auto keeps below. */
uint64_t brim_planner_budget(const brim_planner *planner, const brim_choice *choice);
/* [plan] Peak of the plan of a choice. */
brim_status brim_planner_peak(const brim_planner *planner, const brim_choice *choice, uint64_t *bytes);
#endif
