/* The dialogue of a run with its policies: what they are told, what they have said, and what of it is told on to
 * whoever listens, a run's events. The questions are in decide.h and step_question.h. */
#ifndef BRIM_DECIDE_DIALOGUE_H
#define BRIM_DECIDE_DIALOGUE_H
#include "memory/env.h"
#include "memory/policies.h"
#include "planner/planner.h"

typedef struct brim_dialogue {
  brim_policies *policies;
  brim_planner *planner; /* the owner's: whose device may become another by what is said */
  const brim_env *env;
  brim_policy_host host; /* of the queries */
  brim_choice choice;    /* that the question is about: how the run is planned now */
  bool has_begun;        /* the run: its precision and its model are what they are */
  /* What is asked for. */
  brim_demands demands;
  const char *asked_device; /* that the configuration asks for; of "auto", if ranks of this host share several, this
                             * rank's */
  char wanted[64];          /* the same, or what a policy asks for */
  /* What came of it. */
  int64_t retries, asked; /* plans tried on this device after ones that were not placed though they had room by the
                             plan; decisions about out-of-memory */
  uint64_t tried;         /* devices that did not have the memory: a bit each */
  int changes;            /* configurations that policies have asked for */
  int64_t decided_batch;  /* micro-batch that was chosen together with another configuration; 0: none */
  brim_again again;       /* the configuration that policies ask for now */
  brim_arena arena;       /* its words */
} brim_dialogue;

/* [init] Makes the policies of the planner's configuration. `before`: as of brim_policies_open. The planner and `env`
 * must outlive it; close it also after a failure. */
brim_status brim_dialogue_open(brim_dialogue *dialogue, brim_planner *planner, const brim_env *env,
                               brim_decisions before);
void brim_dialogue_close(brim_dialogue *dialogue);
/* The device that is wanted. */
brim_device_wish brim_dialogue_wish(const brim_dialogue *dialogue);
/* What failed was done: retries and devices tried are counted from the beginning. */
void brim_dialogue_forget_failures(brim_dialogue *dialogue);
/* A device of the backend as it was looked at, but for who waits for it. */
void brim_dialogue_view(const brim_dialogue *dialogue, int device, const brim_device_info *info, brim_device_view *out);

/* ---- what policies are shown ---- */

/* [step] A device as it is looked at for a question ("line": who waits for it, and no more); own_bytes: of it the run's
 * arena. */
void brim_dialogue_show_device(const brim_dialogue *dialogue, const char *question, const brim_device_view *device,
                               uint64_t own_bytes, uint64_t waiting_bytes);
/* [step] The host. */
void brim_dialogue_show_host(const brim_dialogue *dialogue, const char *question, const brim_memory_view *memory);
/* [step] The peak of a plan. */
void brim_dialogue_show_plan(const brim_dialogue *dialogue, const char *question, int64_t micro_batch,
                             uint64_t peak_bytes);
/* [init] And what else is known of it. */
void brim_dialogue_show_figures(const brim_dialogue *dialogue, const char *question, int64_t micro_batch,
                                const brim_plan_figures *figures);
/* [init] The run itself: how its steps may be cut, and how long it is. */
void brim_dialogue_show_run(const brim_dialogue *dialogue);
/* [init] The run begins to wait for a device (`seconds` below 0), or has claimed one after `seconds`. */
void brim_dialogue_show_wait(const brim_dialogue *dialogue, const char *device, uint64_t need_bytes, const char *detail,
                             double seconds);
#endif
