/* The dialogue of a run with its policies: the information that they get, their answers, and the record of both, which
 * goes to a listener that writes the run's events. The questions are in decide.h and step_question.h. */
#ifndef BRIM_DECIDE_DIALOGUE_H
#define BRIM_DECIDE_DIALOGUE_H
#include "memory/env.h"
#include "memory/policies.h"
#include "planner/planner.h"

typedef struct brim_dialogue {
  brim_policies *policies;
  brim_planner *planner; /* belongs to the owner of the dialogue; an answer may change its device */
  const brim_env *env;
  brim_policy_host host; /* answers the queries of policies */
  brim_choice choice;    /* the subject of the question: the current plan of the run */
  bool has_begun;        /* training has begun: precision and model can no longer change */
  /* Requests: */
  brim_demands demands;
  const char *asked_device; /* the device that the configuration requests; for "auto", if ranks of this host use several
                               devices, this rank's */
  char wanted[64];          /* asked_device, or the device that a policy requests */
  /* Results: */
  int64_t retries, asked; /* retries: plans tried on this device after plans that could not be placed although they had
                             room; asked: decisions about out-of-memory events */
  uint64_t tried;         /* devices that lacked the memory, one bit each */
  int changes;            /* configurations that policies have requested */
  int64_t decided_batch;  /* micro-batch chosen together with another configuration; 0: none */
  brim_again again;       /* the configuration that policies have just requested */
  brim_arena arena;       /* owns the words of `again` */
} brim_dialogue;

/* [init] Creates the policies of the planner's configuration. `before`: as in brim_policies_open. The planner and `env`
 * must outlive the dialogue; close it even after a failure. */
brim_status brim_dialogue_open(brim_dialogue *dialogue, brim_planner *planner, const brim_env *env,
                               brim_decisions before);
void brim_dialogue_close(brim_dialogue *dialogue);
/* The requested device. */
brim_device_wish brim_dialogue_wish(const brim_dialogue *dialogue);
/* Call when the failed work has succeeded: from then on retries and tried devices are counted from zero again. */
void brim_dialogue_forget_failures(brim_dialogue *dialogue);
/* Describes a device of the backend in its last known state, without the runs that wait for it. */
void brim_dialogue_view(const brim_dialogue *dialogue, int device, const brim_device_info *info, brim_device_view *out);

/* ---- information shown to policies ---- */

/* [step] Records the state of a device that policies see for a question ("line": only the runs that wait for it);
 * own_bytes: the run's arena on it. */
void brim_dialogue_show_device(const brim_dialogue *dialogue, const char *question, const brim_device_view *device,
                               uint64_t own_bytes, uint64_t waiting_bytes);
/* [step] Records the host. */
void brim_dialogue_show_host(const brim_dialogue *dialogue, const char *question, const brim_memory_view *memory);
/* [step] Records the peak of a plan. */
void brim_dialogue_show_plan(const brim_dialogue *dialogue, const char *question, int64_t micro_batch,
                             uint64_t peak_bytes);
/* [init] Records the other figures of a plan. */
void brim_dialogue_show_figures(const brim_dialogue *dialogue, const char *question, int64_t micro_batch,
                                const brim_plan_figures *figures);
/* [init] Records the run: how its steps may be divided, and its length. */
void brim_dialogue_show_run(const brim_dialogue *dialogue);
/* [init] Records that the run begins to wait for a device (`seconds` below 0), or has claimed one after `seconds`. */
void brim_dialogue_show_wait(const brim_dialogue *dialogue, const char *device, uint64_t need_bytes, const char *detail,
                             double seconds);
#endif
