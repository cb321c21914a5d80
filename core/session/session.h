/* Everything a run is made of before any memory is taken: the chosen plugins' instances, the data, the device, and the
 * plans that can be asked for. `brim plan` stops here; `brim train` goes on with a trainer. */
#ifndef BRIM_SESSION_SESSION_H
#define BRIM_SESSION_SESSION_H
#include <jansson.h>

#include "builtin/builtin.h"
#include "config/config.h"
#include "data/data.h"
#include "data/order.h"
#include "dist/dist.h"
#include "exec/profile.h"
#include "graph/plan.h"
#include "memory/claims.h"
#include "memory/policies.h"
#include "session/deal.h"

#define BRIM_MICRO_BATCHES_MAX 256
#define BRIM_AGAIN_MAX 4
#define BRIM_SESSION_DATA_NAME "data.json" /* in a run's folder: what it keeps of its data */

/* What a policy asks for, or the data, that needs another configuration: words that take the place of others. */
typedef struct brim_again {
  const char *word[BRIM_AGAIN_MAX];
  size_t count; /* 0: nothing */
  bool by_data; /* not by a policy */
} brim_again;

typedef struct brim_session_options {
  bool read_data;           /* a thread reads the data, from brim_session_start on */
  const char *resume;       /* folder of the run that is gone on with; NULL: a new one */
  const char *run;          /* folder of a run whose model is asked about something; NULL: of none */
  bool unread;              /* that is about samples of elsewhere: the run's data need not be there */
  const volatile int *stop; /* waiting for a device ends when it becomes nonzero; NULL: never */
  bool whole;               /* a model around a backbone is evaluated with it, also if features could be kept */
  bool no_timing;           /* nothing is timed, whatever memory.timing says */
  brim_dist *dist;          /* the job that this process is a rank of; NULL: it is alone */
  brim_world world;         /* without a job, the rank that is planned for; ranks 0: one of one */
} brim_session_options;

typedef struct brim_feature_set brim_feature_set; /* session/features.h */
typedef struct brim_session brim_session;
struct brim_figures; /* session/figures.h */

/* How a step is planned, as far as it may be chosen: a value, to be compared and copied. */
typedef struct brim_choice {
  int64_t micro_batch;   /* samples */
  int32_t precision;     /* enum brim_precision */
  int32_t recompute;     /* enum brim_recompute_kind */
  uint64_t within_bytes; /* that recompute=auto keeps below, and the others do not ask; 0: as configured, or within
                          * brim_session_room */
} brim_choice;
bool brim_choice_equal(const brim_choice *a, const brim_choice *b);

/* Peaks of plans that were asked for, by device and choice. */
typedef struct brim_peaks brim_peaks;

/* Who answers in the place of the planner, the queue and the host: `brim simulate`. */
typedef struct brim_stand_in {
  void *context;
  /* Of a plan of which recompute=auto keeps below `budget_bytes`. */
  brim_status (*peak)(void *context, const brim_choice *choice, uint64_t budget_bytes, uint64_t *bytes);
  brim_status (*figures)(void *context, const brim_choice *choice, uint64_t budget_bytes, struct brim_figures *out);
  void (*tickets)(void *context, brim_arena *arena, brim_ticket **out, size_t *count);
  void (*waiting)(void *context, uint64_t key, size_t *count, uint64_t *first_bytes); /* as brim_claims_waiting */
  brim_host_memory (*host)(void *context, uint64_t *process_bytes);
  brim_status (*remake)(void *context, brim_session **session); /* as brim_session_remake */
} brim_stand_in;

struct brim_session {
  const brim_config *config;
  brim_config *own_config; /* that was asked for (brim_again), in the place of the caller's; NULL: none */
  brim_session_options options;
  const brim_settings *settings;
  brim_policies *policies;
  void *model, *dataset, *backend; /* instances */
  void *backbone;                  /* that the model is around; NULL: none */
  brim_feature_set *features;      /* that the model is trained on, in the place of samples; NULL: of samples */
  bool extracts;                   /* features are being computed: plans of evaluation keep them */
  const brim_backend_ops *backend_ops;
  const brim_optimizer_ops *optimizer_ops;
  const brim_schedule_ops *schedule_ops;
  const void *optimizer_params, *schedule_params;
  brim_loss_attr loss;
  int32_t top_k;           /* resolved; 0: off */
  int64_t answers;         /* numbers that the model answers with: see brim_classes */
  brim_list class_weights; /* of the loss; count 0: none */
  brim_list label_weights; /* what a sample of each class counts for in the mean of losses; count 0: 1 */
  double *counted;         /* label_weights' own, if a class does not count at all; else NULL */
  brim_world world;        /* which rank of how many it is */
  brim_dealing deal;       /* what each rank has of a step */
  int device;
  brim_device_info device_info;
  double fraction; /* of the device's memory, from the environment; 0: none */
  brim_demands demands;
  const char *asked_device; /* the device that the configuration asks for; of "auto", if ranks of this host share
                        several, this rank's */
  char wanted[64];          /* the same, or what a policy asks for */
  bool wait;                /* for a device, until there is room */
  double queue_seconds;     /* spent in line for devices, in all */
  uint64_t limit_bytes;     /* by a policy; 0: none */
  bool running;             /* it has begun: precision and model are what they are */
  brim_claim *held;         /* while a run that has begun changes its plan; NULL: see brim_session_hold */
  brim_data data;
  json_t *kept;                        /* of the data, as data/keep.h has it; made when it is described */
  json_t *was;                         /* the same, as the run of the options keeps it; NULL: it has none */
  uint64_t resident_bytes, data_bytes; /* of this process, and what the data will take: by brim_session_measure */
  uint64_t besides_bytes;              /* what the process will take of the host besides resident_bytes and an arena, as
                                          brim_session_foresee has found; 0: not known, or the plan is placed */
  uint64_t host_share_bytes;           /* of several ranks here: what this one may have of the host in all, by what was
                                          left before any of them had placed its plan; 0: it is alone */
  bool started, opening;               /* brim_session_start was called; the data is being read by a thread */
  brim_order order;
  brim_choice choice; /* resolved: by the configuration, by policies, or what a run that ran out of memory came to;
                       * fp32 while nobody has chosen another precision for `auto` */
  int64_t grain, eval_batch; /* resolved */
  int64_t norm_group;        /* 0: the model has no statistics of groups of samples */
  brim_profile *profile;     /* of the device, by session/figures.h; NULL: not asked for yet */
  double timing_seconds;     /* spent on timing */
  /* for policies; see session/decide.h */
  int64_t micro_batch[BRIM_MICRO_BATCHES_MAX]; /* that may be chosen, largest first */
  size_t micro_batch_count;
  int64_t retries, asked; /* plans tried on this device after ones that were not placed though they had room by the
                             plan; decisions about out-of-memory */
  uint64_t tried;         /* devices that did not have the memory: a bit each */
  int changes;            /* configurations that policies have asked for */
  int64_t decided_batch;  /* micro-batch that was chosen together with another configuration; 0: none */
  brim_policy_host host;  /* of the queries */
  brim_again again;
  brim_arena arena;              /* its words */
  brim_recompute_cache *levels;  /* of all its plans */
  brim_peaks *peaks;             /* likewise */
  const brim_stand_in *stand_in; /* NULL: nobody, as in every run */
};

/* Makes the instances, finds the device, describes the data: enough for plans. The configuration must outlive the
 * session. Of a run's folder: ELOAD, naming the differences, if the data is not what the run keeps of it. */
brim_status brim_session_open(const brim_config *config, const brim_session_options *options, brim_session **out);
/* Lets the policies choose the plan of training. They may ask for another configuration: then *session is another, too,
 * also on failure. */
brim_status brim_session_settle(brim_session **session);
/* Opens *session anew with what session->again asks for; its plans must be freed. */
brim_status brim_session_remake(brim_session **session);
/* Before brim_session_start: looks at what the process has and what the data will take, for session/footprint.h. */
brim_status brim_session_measure(brim_session *session);
/* Right after the first plan, before anything is placed: brim_session_measure, and then a thread begins to read the
 * data, if it is to be read. Again: nothing. */
brim_status brim_session_start(brim_session *session);
/* Waits until the data is read; afterwards samples can be had. */
brim_status brim_session_finish_data(brim_session *session);
void brim_session_close(brim_session *session);
/* May micro-batches have `batch` samples, and the effective batch be as it is? Not if they cut norm groups. One that is
 * larger than the rank's share of a step stands for all of it, where there are several ranks. */
bool brim_session_allows(const brim_session *session, int64_t batch);
/* Is each parameter updated in the backward pass (optimizer.update)? */
bool brim_session_updates_in_backward(const brim_session *session);
/* ECONFIG if it should be, and the rest of the configuration does not go with it: says what and why. */
brim_status brim_session_check_update(const brim_session *session);
/* ECONFIG: with micro-batches of `batch` samples a step has several. */
brim_status brim_session_refuse_accumulation(const brim_session *session, int64_t batch);
/* Training goes in micro-batches of `batch` samples from now on, or of all that the rank has of a step; the effective
 * batch stays. */
void brim_session_cut(brim_session *session, int64_t batch);
/* Samples are dealt to the ranks by these weights (see brim_dealing) from now on, which are the session's then. How a
 * step may be cut is another question after it: brim_session_settle. */
void brim_session_deal(brim_session *session, int64_t *weight);
/* This rank's samples of a full step, which may be none; of one rank the effective batch. */
int64_t brim_session_share(const brim_session *session);
/* Micro-batches that they are cut into. */
int64_t brim_session_micros(const brim_session *session, int64_t batch);
/* Samples that a step trains on, on all ranks: the effective batch, or all training samples if they are fewer. */
int64_t brim_session_all_samples(const brim_session *session);
/* This rank's of them, and the micro-batches that they are cut into. */
int64_t brim_session_step_samples(const brim_session *session);
int64_t brim_session_step_micros(const brim_session *session, int64_t batch);
/* Do its results differ by rounding from those of micro-batches that are multiples of the grain? */
bool brim_session_rounds(const brim_session *session, int64_t batch);
/* "64 x 2", or where the last is another, "64 x 2 + 16"; "none" of a rank without samples. Into `out`, returned. */
#define BRIM_CUT_ROOM 96
const char *brim_session_format_cut(const brim_session *session, int64_t batch, char *out, size_t room);
/* What a rank has to do in a run, apart from how it cuts it: ranks of the same load have the same plans. */
typedef struct brim_load {
  int64_t share, last_share; /* samples of a full step, and of an epoch's last */
  int64_t validation, test;  /* samples that it evaluates */
} brim_load;
brim_load brim_session_load(const brim_session *session, int32_t rank);
/* This rank's samples of a part that is evaluated: as many for each; may be none. */
void brim_session_part(const brim_session *session, enum brim_part part, int64_t *first, int64_t *count);
/* Groups of batch norm in a step of so many samples, of all ranks. */
int64_t brim_session_norm_groups(const brim_session *session, int64_t samples);
/* The plan for micro-batches of `batch` samples. ECONFIG if that is not allowed. */
brim_status brim_session_plan(const brim_session *session, int64_t batch, brim_plan **out);
/* The session's choice, for micro-batches of `batch` samples. */
brim_choice brim_session_choice(const brim_session *session, int64_t batch);
/* The plan of a choice. `alone`: of the full micro-batch and the update only, without evaluation. */
brim_status brim_session_plan_choice(const brim_session *session, const brim_choice *choice, bool alone,
                                     brim_plan **out);
/* What a choice with recompute=auto keeps below. */
uint64_t brim_session_budget(const brim_session *session, const brim_choice *choice);
/* Peak of the plan of a choice; remembered. */
brim_status brim_session_peak_of(const brim_session *session, const brim_choice *choice, uint64_t *bytes);
/* The plan for evaluating `count` samples, `batch` at a time, and nothing else: no gradients, no optimizer state. With
 * `keep_output` the model's output can be read after each batch. */
brim_status brim_session_plan_evaluation(const brim_session *session, int64_t count, int64_t batch, bool keep_output,
                                         brim_plan **out);
/* A device for a plan: the one it was made for, or another like it, which has room for it and which nobody who came
 * before is to have; waits for it if wait_for_gpu says so. *claim: held until the plan is placed; NULL where nobody
 * shares the device. For another device than the session's, brim_session_move and a new plan. ENODEVICE, ENOMEM_DEVICE,
 * EINTERRUPTED: see brim_claim_take. */
brim_status brim_session_claim(brim_session *session, const brim_plan *plan, brim_claim **claim, int *device);
/* [step] Nobody else is served on the session's device until brim_session_let_go: for a run that gives its arena back
 * to place another. `alone`: not if anybody waits for it. False, with the thread's error text, if it is not held, so
 * that the plan must be claimed as a new run's. True where nobody shares the device, and if it is held already. */
bool brim_session_hold(brim_session *session, bool alone);
void brim_session_let_go(brim_session *session);
/* Plans of before must be freed: they are of another device. */
brim_status brim_session_move(brim_session *session, int device);
void brim_session_tell_device(const brim_session *session); /* which of several, and why */
/* Looks at what the device has now; forgets peaks that went by what it had before. */
brim_status brim_session_look(brim_session *session);
/* Bytes that a plan may take of the device now, within all limits; `later`: of the empty one, if the run may wait. */
uint64_t brim_session_room(const brim_session *session, bool later);
/* The same of any of the backend's devices, if `has_bytes` of it are to be had, and a policy lets the run have
 * `cap_bytes`; 0: all. */
uint64_t brim_session_room_on(const brim_session *session, const brim_device_info *device, uint64_t cap_bytes,
                              uint64_t has_bytes);
/* `room`, or less if it is of the host and the process needs what is left there for something else; `later`: what the
 * host has in all counts, not what it has free. */
uint64_t brim_session_room_beside(const brim_session *session, const brim_device_info *device, uint64_t room,
                                  bool later);
/* `bytes`, or memory.recompute_budget_mb if that is less. */
uint64_t brim_session_within(const brim_session *session, uint64_t bytes);
/* Plans are made within so many bytes from now on, for memory.recompute=auto; 0: within brim_session_room. */
void brim_session_plan_within(brim_session *session, uint64_t bytes);
/* The same, and memory.recompute=auto from now on. */
void brim_session_recompute_within(brim_session *session, uint64_t bytes);
/* Plans so from now on. */
void brim_session_go(brim_session *session, const brim_choice *choice);
/* May brim choose what is made again? Not where the user has set memory.recompute to another than auto. */
bool brim_session_may_recompute(const brim_session *session);
/* Precisions that the backend has and the run's updates go with: bit 1 << enum brim_precision of each. */
uint32_t brim_session_precisions(const brim_session *session);
/* EBUDGET if the plan is over memory.limit_mb, ENOMEM_DEVICE if it is over what the device has free, or if the run may
 * wait has in all, or if the process would be over what the host or its control group leaves: with the peak by class,
 * and the largest micro-batch, or for a plan of evaluation the largest batch, that would fit. */
brim_status brim_session_check_budget(brim_session *session, const brim_plan *plan);
/* The same of a peak of training: says only what is missing. */
brim_status brim_session_check_peak(const brim_session *session, uint64_t peak_bytes);
#endif
