/* A setup with its planner, and what is decided about a run: the device, how a step is planned, what policies have
 * said. `brim plan` stops here; `brim train` goes on with a trainer. */
#ifndef BRIM_SESSION_SESSION_H
#define BRIM_SESSION_SESSION_H
#include "memory/env.h"
#include "memory/policies.h"
#include "planner/planner.h"

typedef struct brim_session brim_session;

/* Another world than the real one, with a model of plans in the place of plans, for the life of a session. */
typedef struct brim_session_place {
  const brim_env *env;
  const brim_plan_model *model;
  brim_decision_fn listen; /* from the beginning: see brim_policies_listen */
  void *context;
  bool answers_at_once; /* see brim_policies_answer_there */
} brim_session_place;

struct brim_session {
  brim_setup *setup;
  brim_planner planner;
  const brim_env *env;
  const brim_session_place *place; /* NULL: the real world */
  brim_choice choice; /* resolved: by the configuration, by policies, or what a run that ran out of memory came to;
                       * fp32 while nobody has chosen another precision for `auto` */
  brim_order order;   /* of it */
  bool running;       /* it has begun: precision and model are what they are */
  bool started;       /* brim_session_start was called */
  /* The device. */
  const char *asked_device; /* that the configuration asks for; of "auto", if ranks of this host share several, this
                             * rank's */
  char wanted[64];          /* the same, or what a policy asks for */
  void *held;               /* while a run that has begun changes its plan; NULL: see brim_session_hold */
  /* What policies were told, and have said: see decide.h. */
  brim_policies *policies;
  brim_demands demands;
  brim_policy_host host;  /* of the queries */
  int64_t retries, asked; /* plans tried on this device after ones that were not placed though they had room by the
                             plan; decisions about out-of-memory */
  uint64_t tried;         /* devices that did not have the memory: a bit each */
  int changes;            /* configurations that policies have asked for */
  int64_t decided_batch;  /* micro-batch that was chosen together with another configuration; 0: none */
  brim_again again;
  brim_arena arena; /* its words */
};

/* Makes the instances, finds the device, describes the data: enough for plans. The configuration must outlive the
 * session. As brim_setup_open and brim_setup_finish; of a model that is trained on features, which are computed now if
 * no file has them, also what placing returns. */
brim_status brim_session_open(const brim_config *config, const brim_setup_options *options, brim_session **out);
/* The same in another world, which what takes the session's place is in too. */
brim_status brim_session_open_in(const brim_session_place *place, const brim_config *config,
                                 const brim_setup_options *options, brim_session **out);
/* Lets the policies choose the plan of training. They may ask for another configuration: then *session is another, too,
 * also on failure. */
brim_status brim_session_settle(brim_session **session);
/* Does something ask for another configuration? */
bool brim_session_asks(const brim_session *session);
/* Opens *session anew with what is asked for; its plans must be freed. */
brim_status brim_session_remake(brim_session **session);
/* Right after the first plan, before anything is placed: brim_planner_measure, and then a thread begins to read the
 * data, if it is to be read. Again: nothing. */
brim_status brim_session_start(brim_session *session);
/* Seconds since some moment, by the world that it is in. */
double brim_session_now(const brim_session *session);
/* The run has begun: its precision and model are what they are, and nothing is foreseen any more. */
void brim_session_begin(brim_session *session);
void brim_session_close(brim_session *session);
/* Training goes in micro-batches of `batch` samples from now on, or of all that the rank has of a step; the effective
 * batch stays. */
void brim_session_cut(brim_session *session, int64_t batch);
/* Samples that are evaluated at a time. */
int64_t brim_session_eval_batch(const brim_session *session);
/* Samples are dealt to the ranks by these weights (see brim_dealing) from now on, which are the session's then. How a
 * step may be cut is another question after it: brim_session_settle. */
void brim_session_deal(brim_session *session, int64_t *weight);
/* Plans so from now on. */
void brim_session_go(brim_session *session, const brim_choice *choice);
/* A device for a plan of so many bytes: the one it was made for, or another like it, which has room for it and which
 * nobody who came before is to have; waits for it if wait_for_gpu says so. *claim: held until the plan is placed; NULL
 * where nobody shares the device, else for env->release. For another device than the session's, brim_session_move and a
 * new plan. ENODEVICE, ENOMEM_DEVICE, EINTERRUPTED: see brim_claim_take. */
brim_status brim_session_claim(brim_session *session, uint64_t peak_bytes, void **claim, int *device);
/* [step] Nobody else is served on the session's device until brim_session_let_go: for a run that gives its arena back
 * to place another. `alone`: not if anybody waits for it. False, with the thread's error text, if it is not held, so
 * that the plan must be claimed as a new run's. True where nobody shares the device, and if it is held already. */
bool brim_session_hold(brim_session *session, bool alone);
void brim_session_let_go(brim_session *session);
/* Plans of before must be freed: they are of another device. */
brim_status brim_session_move(brim_session *session, int device);
void brim_session_tell_device(const brim_session *session); /* which of several, and why */
/* The device that is configured, or chosen. ENODEVICE, ECONFIG. */
brim_status brim_session_find_device(brim_session *session);
#endif
