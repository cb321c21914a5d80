/* The host of the policies: asks those of the list in order, takes the first decision, checks that it can be done, and
 * tells it to the user and to whoever listens. They are asked on a thread of their own (policy_call.h), so that one
 * that crashes or does not come back is an error like others: EPLUGIN. */
#ifndef BRIM_MEMORY_POLICIES_H
#define BRIM_MEMORY_POLICIES_H
#include "brim/policy.h"
#include "config/config.h"

typedef struct brim_policies brim_policies;

/* Policies number precisions behind BRIM_AS_IT_IS. */
_Static_assert(BRIM_TAKE_FP32 == BRIM_PRECISION_FP32 + 1 && BRIM_TAKE_BF16 == BRIM_PRECISION_BF16 + 1 &&
                   BRIM_TAKE_FP16 == BRIM_PRECISION_FP16 + 1,
               "the same order");

/* What `host` of a query points to: who answers for the core. */
typedef struct brim_policy_host {
  brim_status (*figures)(const brim_plan_query *query, int64_t micro_batch, int32_t precision, brim_plan_figures *out);
  void *self;
} brim_policy_host;

/* What policies were shown: `brim simulate --record` makes a world of it. */
enum brim_sight_kind {
  BRIM_SIGHT_DEVICE = 1,
  BRIM_SIGHT_HOST,
  BRIM_SIGHT_PLAN,
  BRIM_SIGHT_RUN,
  BRIM_SIGHT_WAIT /* in line for a device, or claimed it: events of their own, which policies are not shown */
};
typedef struct brim_sight {
  int32_t kind;               /* enum brim_sight_kind */
  double at;                  /* seconds since 1970 */
  const char *question;       /* for which: "device", "plan", "oom", "round", "step" */
  const char *device;         /* "cuda:0"; "": of the host, or of a plan */
  int32_t is_shared, on_host; /* as of brim_device_view */
  int32_t waiting;            /* runs in line for it */
  uint64_t waiting_bytes;     /* that the first of them needs; 0: not known */
  uint64_t total_bytes, free_bytes;
  uint64_t own_bytes;  /* of the device: the run's arena; of the host: the process */
  int64_t micro_batch; /* of a plan */
  uint64_t peak_bytes;
  double step_seconds;                       /* predicted; 0: not asked for */
  int32_t basis;                             /* of that: enum brim_basis */
  int64_t grain, norm_group, samples, steps; /* of a run: how its steps may be cut, its training samples, its length */
  const char *detail;                        /* of a wait: for a person; else NULL */
  double queue_seconds;                      /* of a wait: how long it was; below 0: it begins */
} brim_sight;

/* A decision, for the run's events. */
typedef struct brim_decision {
  const char *policy, *choice, *reason; /* "robust", "micro-batch 16 x 8", "44.6 MiB needed, 32.0 MiB free" */
  const brim_sight *sight;              /* not NULL: no decision, but what was seen before one */
} brim_decision;
typedef void (*brim_decision_fn)(void *context, const brim_decision *decision);

/* Decisions that nobody has listened to yet. Ready when zeroed. */
typedef struct brim_decisions {
  brim_arena arena;
  struct brim_kept_decision *first, *last;
} brim_decisions;

/* [init] Makes the instances of the configuration's policies; the configuration must outlive them. `before`: decisions
 * of other policies that these stand in the place of, taken over. */
brim_status brim_policies_open(const brim_config *config, brim_decisions before, brim_policies **out);
void brim_policies_close(brim_policies *policies);
/* [init] What nobody has listened to: the caller's then, for brim_policies_open. */
brim_decisions brim_policies_take_decisions(brim_policies *policies);
/* [init] Decisions go to `listen` from now on, first those that were made before. */
void brim_policies_listen(brim_policies *policies, brim_decision_fn listen, void *context);

/* [init] From now on what the policies ask (peak, figures, look) is answered on their own thread, and counts as their
 * time: faster by some 10 us each, for whoever answers at once and with what any thread may use, as `brim check` does
 * and `brim simulate` where plans are not of a real model. */
void brim_policies_answer_there(brim_policies *policies);

/* Each asks in order. ENOTSUP, without a text: nobody decides. ECONFIG naming the policy if what it decided cannot be
 * done, else its own status and text. */
brim_status brim_policies_choose_device(brim_policies *policies, const brim_device_query *query, brim_place *out);
brim_status brim_policies_choose_plan(brim_policies *policies, const brim_plan_query *query, brim_plan_choice *out);
brim_status brim_policies_on_oom(brim_policies *policies, const brim_oom *event, brim_action *out);
brim_status brim_policies_on_boundary(brim_policies *policies, const brim_memory_view *memory, brim_boundary *out);
/* Does any of them look at memory between rounds? */
bool brim_policies_watch(const brim_policies *policies);
/* Does any of them look at runs between steps? */
bool brim_policies_follow(const brim_policies *policies);
/* The same for another plan between two steps, but nothing is told yet. *who: "policy.elastic". */
brim_status brim_policies_on_step(brim_policies *policies, const brim_step_view *view, brim_step_plan *out,
                                  const char **who);
/* [step] What they are shown, for whoever listens. Allocates nothing if somebody does. */
void brim_policies_show(brim_policies *policies, const brim_sight *sight);
/* Whose decision was told last: "policy.robust"; NULL: nobody's yet. */
const char *brim_policies_decider(const brim_policies *policies);
/* [init] From now on policies are told *seconds as their time, which stays the caller's to change while none of them is
 * asked. NULL: the system's clock again. */
void brim_policy_clock_follow(const double *seconds);
/* A decision that is not one of those above, as of "training.clear_cache_every_n_rounds". */
void brim_policies_tell(brim_policies *policies, const char *who, const char *choice, const char *reason);
#endif
