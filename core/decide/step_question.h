/* Questions to policies between two steps of a run, and their answers. */
#ifndef BRIM_DECIDE_STEP_QUESTION_H
#define BRIM_DECIDE_STEP_QUESTION_H
#include "decide/dialogue.h"

/* About the dialogue's choice, which is the run's current plan. A zeroed struct is ready for use, except for the first
 * field. */
typedef struct brim_step_question {
  brim_dialogue *dialogue;
  uint64_t own_bytes;                          /* the run's memory on its device; set before each question */
  double step_seconds;                         /* median of the last steps; set before each question; 0: unknown */
  bool is_warned;                              /* a warning about an unreadable queue was logged */
  uint64_t shown_peak[BRIM_MICRO_BATCHES_MAX]; /* peaks of the planner's micro-batches, as recorded in the run's events;
                                                  0: not recorded */
  uint64_t shown_free, shown_own, shown_waiting; /* the device's memory as recorded in the run's events, in bytes */
  int32_t shown_runs;                            /* waiting runs, as recorded */
} brim_step_question;

/* [step] Asks the policies: see brim_policies_on_step. `seconds`: since an arbitrary time. Allocates nothing if no
 * policy answers. */
brim_status brim_step_plan_ask(brim_step_question *question, int64_t step, double seconds, brim_step_plan *out,
                               const char **policy);
/* [step] Converts the answer to a choice, and computes the peak of its plan. */
brim_status brim_step_plan_choice(brim_step_question *question, const brim_step_plan *answer, brim_choice *choice,
                                  uint64_t *peak);
/* The memory that another plan could use instead of the run's current one, in the device's last known state. */
uint64_t brim_step_plan_room(const brim_step_question *question);
/* Logs the change: "200.0 MiB given back: micro-batch 64 -> 16, as a run waits for cpu:0". */
void brim_step_plan_log(const brim_step_question *question, const char *policy, const brim_choice *to, uint64_t after,
                        const char *reason);
#endif
