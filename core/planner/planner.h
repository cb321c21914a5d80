/* The memory and time of plans, as functions of a setup, a choice, and the last known state of the device. The planner
 * places plans only for timing (figures.h), and makes no decisions. It caches peaks. */
#ifndef BRIM_PLANNER_PLANNER_H
#define BRIM_PLANNER_PLANNER_H
#include "exec/profile.h"
#include "memory/claims.h"
#include "planner/choice.h"
#include "planner/plans.h"
#include "setup/setup.h"

#define BRIM_MICRO_BATCHES_MAX 256
#define BRIM_MICRO_BATCH_MAX ((int64_t)1 << 20) /* samples */

typedef struct brim_peaks brim_peaks;
struct brim_figures; /* planner/figures.h */

/* Replaces plans in a simulation by a scenario's model. A choice includes the peak limit of recompute=auto. */
typedef struct brim_plan_model {
  void *context;
  brim_status (*figures)(void *context, const brim_choice *choice, struct brim_figures *out);
} brim_plan_model;

typedef struct brim_planner {
  const brim_setup *setup;
  const brim_plan_model *model; /* NULL: real plans */
  /* The device to plan for, and the run's limits on it. */
  int device;
  brim_device_info device_info; /* the device's last known state */
  double fraction;              /* the part of its memory that an environment variable allows; 0: unset */
  uint64_t limit_bytes;         /* limit that a policy set; 0: none */
  uint64_t growth_bytes;        /* measured: how much its driver and libraries will still grow; 0: unknown */
  uint64_t lane_taken_bytes;    /* measured: memory of a lane besides the plan, if there are several; 0: unknown */
  int32_t lanes;                /* lanes of the current choice, for which the headroom is computed */
  uint64_t ranks_bytes;         /* measured: memory of the connections of the job's ranks; 0: unknown */
  uint64_t comm_bytes;  /* measured: memory of this process's connections, once its ranks are connected; 0: unknown */
  bool waits;           /* the run waits for the device until there is room */
  double queue_seconds; /* total time that it has waited in the queue for devices */
  /* The host, in bytes. */
  /* Host memory of this process, and of the data when it has been read: see brim_planner_measure. */
  uint64_t resident_bytes, data_bytes;
  uint64_t besides_bytes;    /* predicted host memory besides resident_bytes and an arena: see brim_planner_foresee; 0:
                                unknown, or the plan is placed */
  uint64_t host_share_bytes; /* with several ranks on this host, this rank's share of the host memory that was free
                                before any of them placed its plan; 0: single rank */
  bool has_begun;            /* a thread is reading the data, or a plan was placed: predictions are final */
  /* Caches. */
  /* The sizes that may be chosen, largest first: see brim_planner_list_cuts. */
  int64_t micro_batch[BRIM_MICRO_BATCHES_MAX];
  size_t micro_batch_count;     /* 0: not listed yet */
  brim_recompute_cache *levels; /* for all plans */
  brim_peaks *peaks;            /* cache of the peaks of all plans; NULL: none */
  brim_plans *plans;            /* the last few plans, until one is placed; NULL: plans are not kept */
  brim_profile *profile;        /* the device's profile: see figures.h; NULL: not opened yet */
  double timing_seconds;        /* spent on timing */
} brim_planner;

/* An evaluation of `count` samples, `batch` at a time; or the continuation of `batch` texts. */
typedef struct brim_evaluation_wish {
  int64_t count, batch;
  bool keep_output, keep_features; /* keep the model's output, or the backbone's features, readable after each batch */
  bool keep_losses;                /* keep -log(probability) of each token readable too, whichever loss training uses */
  int64_t capacity;                /* tokens of a text, with its prompt; 0: an evaluation */
  int64_t chunk;                   /* most tokens of a prompt in one program; 0: no prompt is longer than one token */
} brim_evaluation_wish;

/* [init] The setup must outlive the planner, and its backend must already be created. */
void brim_planner_open(brim_planner *planner, const brim_setup *setup);
void brim_planner_close(brim_planner *planner);

/* [init] Selects another device; call brim_taken_learn afterwards. Existing plans must be freed before. Errors as for
 * brim_device_select. */
brim_status brim_planner_select(brim_planner *planner, int device);
/* Updates the planner's view of the device's state. */
brim_status brim_planner_look(brim_planner *planner);
/* Stops keeping plans. Call it when a plan is placed: training needs no other plans, and the prediction of host memory
 * does not include them. */
void brim_planner_keep_no_plans(brim_planner *planner);
/* Clears the caches, after the rank's samples of a step or the setup have changed. */
void brim_planner_forget(brim_planner *planner);

/* Makes the request for a device with room for a plan of `need_bytes` and the headroom. `waits`: the request waits as
 * long as configured; else only for other ranks of the job, which place their plans at the same time. */
brim_claim_request brim_planner_claim_request(const brim_planner *planner, const brim_device_wish *wish,
                                              uint64_t need_bytes, bool waits);

/* The most clients of a federation that the run trains at a time, whether or not they fit: parallel_clients or, if that
 * is -1, a default for the device (one for each thread; BRIM_LANES_OF_GPU on a GPU). At most the clients of a rank in a
 * round; 1 if the backend has no lanes, 0 without a federation. */
#define BRIM_LANES_OF_GPU 16
int32_t brim_planner_lanes_useful(const brim_planner *planner); /* returns the number for parallel_clients=-1 */
int32_t brim_planner_lanes(const brim_planner *planner);

/* [plan] Lists the micro-batches that may be chosen, largest first: the rank's whole share of a step, and those that
 * divide the effective batch. They do not split norm groups. Each is a multiple of the grain, smaller than the grain,
 * or the whole share. Returns their number. */
size_t brim_planner_list_cuts(brim_planner *planner);

/* [plan] Makes the plan of a choice. `alone`: plans only full micro-batches and the update, without evaluation; for a
 * federation such a plan has the same peak but cannot be placed. ECONFIG if its micro-batch is not allowed. */
brim_status brim_planner_plan(const brim_planner *planner, const brim_choice *choice, bool alone, brim_plan **out);
/* [plan] Plans a client's training in a federation, without the server, on a backend instance. */
brim_status brim_planner_plan_client(const brim_planner *planner, const brim_choice *choice, void *backend,
                                     brim_plan **out);
/* [plan] Makes a plan for evaluation only, without gradients and optimizer state. */
brim_status brim_planner_plan_evaluation(const brim_planner *planner, const brim_choice *choice,
                                         const brim_evaluation_wish *wish, brim_plan **out);
/* [plan] Checks that the model can continue texts of `length` tokens with caches of keys and values. ENOTSUP: it
 * cannot, and the error text says why; ECONFIG: the texts are too long for the model. */
brim_status brim_planner_check_generation(const brim_planner *planner, const brim_choice *choice, int64_t length);
/* The peak limit of a choice with recompute=auto. */
uint64_t brim_planner_budget(const brim_planner *planner, const brim_choice *choice);
/* [plan] The peak of the plan of a choice. */
brim_status brim_planner_peak(const brim_planner *planner, const brim_choice *choice, uint64_t *bytes);
#endif
