/* The host of the policies: asks the listed policies in order, takes the first decision, checks that it can be
 * carried out, and reports it to the user and to a listener. Policies run on a thread of their own (policy_call.h),
 * so that a policy that crashes or hangs becomes an ordinary error: EPLUGIN. */
#ifndef BRIM_MEMORY_POLICIES_H
#define BRIM_MEMORY_POLICIES_H
#include "brim/policy.h"
#include "config/config.h"

typedef struct brim_policies brim_policies;

/* Policies number precisions from BRIM_AS_IT_IS on. */
_Static_assert(BRIM_TAKE_FP32 == BRIM_PRECISION_FP32 + 1 && BRIM_TAKE_BF16 == BRIM_PRECISION_BF16 + 1 &&
                   BRIM_TAKE_FP16 == BRIM_PRECISION_FP16 + 1,
               "the same order");

/* `host` of a query points to this struct, which answers a policy's questions to the core. */
typedef struct brim_policy_host {
  brim_status (*figures)(const brim_plan_query *query, int64_t micro_batch, int32_t precision, brim_plan_figures *out);
  void *self;
} brim_policy_host;

/* Kinds of input that policies get; `brim simulate --record` makes a world from these inputs. */
enum brim_sight_kind {
  BRIM_SIGHT_DEVICE = 1,
  BRIM_SIGHT_HOST,
  BRIM_SIGHT_PLAN,
  BRIM_SIGHT_RUN,
  BRIM_SIGHT_WAIT /* the run waits in the queue for a device, or has claimed it: a separate event, not shown to policies
                   */
};
typedef struct brim_sight {
  int32_t kind;               /* enum brim_sight_kind */
  double at;                  /* seconds since 1970 */
  const char *question;       /* the question for which it was shown: "device", "plan", "oom", "round", "step" */
  const char *device;         /* "cuda:0"; "" for the host or a plan */
  int32_t is_shared, on_host; /* as in brim_device_view */
  int32_t waiting;            /* runs in the queue for the device */
  uint64_t waiting_bytes;     /* bytes that the first of them needs; 0: unknown */
  uint64_t total_bytes, free_bytes;
  uint64_t own_bytes;  /* for a device: the run's arena; for the host: the process */
  int64_t micro_batch; /* micro-batch of a plan */
  uint64_t peak_bytes;
  double step_seconds; /* predicted; 0: not requested */
  int32_t basis;       /* basis of the prediction: enum brim_basis */
  int64_t grain, norm_group, samples,
      steps;            /* for a run: how its steps may be divided, its training samples, its length */
  const char *detail;   /* for a wait: text for the user; else NULL */
  double queue_seconds; /* for a wait: its duration; negative when it begins */
} brim_sight;

/* A decision, for the run's events. */
typedef struct brim_decision {
  const char *policy, *choice, *reason; /* "robust", "micro-batch 16 x 8", "44.6 MiB needed, 32.0 MiB free" */
  const char *action;      /* the action of "recovery": cleanup, recompute, lanes, halve or rewind; else NULL */
  const brim_sight *sight; /* if not NULL, this entry is no decision, but the data shown before one */
} brim_decision;
typedef void (*brim_decision_fn)(void *context, const brim_decision *decision);

/* Decisions made before there was a listener. A zeroed struct is ready for use. */
typedef struct brim_decisions {
  brim_arena arena;
  struct brim_kept_decision *first, *last;
} brim_decisions;

/* [init] Makes the instances of the configuration's policies; the configuration must outlive them. `before`: decisions
 * of the policies that the new ones replace; the new object takes ownership. */
brim_status brim_policies_open(const brim_config *config, brim_decisions before, brim_policies **out);
void brim_policies_close(brim_policies *policies);
/* [init] Returns the decisions made before there was a listener. The caller owns them, and passes them to
 * brim_policies_open. */
brim_decisions brim_policies_take_decisions(brim_policies *policies);
/* [init] Sends decisions to `listen` from now on, starting with those made before. */
void brim_policies_listen(brim_policies *policies, brim_decision_fn listen, void *context);

/* [init] From now on, answers questions of policies (peak, figures, look) on the policies' thread, and counts the time
 * as the policy's. Saves about 10 us per question, for callers whose answers are immediate and thread-safe: `brim
 * check`, and `brim simulate` where plans do not come from a real model. */
void brim_policies_answer_there(brim_policies *policies);

/* Each of these asks the policies in order. ENOTSUP, without a text: no policy decided. ECONFIG naming the policy if
 * its decision cannot be carried out, else the policy's own status and text. */
brim_status brim_policies_choose_device(brim_policies *policies, const brim_device_query *query, brim_place *out);
brim_status brim_policies_choose_plan(brim_policies *policies, const brim_plan_query *query, brim_plan_choice *out);
brim_status brim_policies_on_oom(brim_policies *policies, const brim_oom *event, brim_action *out);
brim_status brim_policies_on_boundary(brim_policies *policies, const brim_memory_view *memory, brim_boundary *out);
/* Whether any policy examines memory between rounds. */
bool brim_policies_watch(const brim_policies *policies);
/* Whether any policy is asked between steps. */
bool brim_policies_follow(const brim_policies *policies);
/* Asks the policies in order for another plan between two steps, without reporting the decision. *decider:
 * "policy.elastic". */
brim_status brim_policies_on_step(brim_policies *policies, const brim_step_view *view, brim_step_plan *out,
                                  const char **decider);
/* [step] Passes the input of policies to the listener. Allocates nothing if there is a listener. */
void brim_policies_show(brim_policies *policies, const brim_sight *sight);
/* The policy of the last reported decision: "policy.robust"; NULL: none yet. */
const char *brim_policies_decider(const brim_policies *policies);
/* [init] From now on, policies see *seconds as the current time; the caller may change it while no policy is being
 * asked. NULL: the system's clock again. */
void brim_policy_clock_follow(const double *seconds);
/* Reports a decision of another decider, such as "training.clear_cache_every_n_rounds". */
void brim_policies_report(brim_policies *policies, const char *decider, const char *choice, const char *reason);
/* Reports an action of the recovery from a failure: see brim_decision. action NULL: the recovery could not act. */
void brim_policies_report_recovery(brim_policies *policies, const char *action, const char *choice, const char *reason);
#endif
