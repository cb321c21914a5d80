/* What policies may ask between two steps about a run that goes on, and what their answer comes to. */
#ifndef BRIM_DECIDE_STEP_QUESTION_H
#define BRIM_DECIDE_STEP_QUESTION_H
#include "decide/dialogue.h"

/* About the choice of the dialogue: how the run is planned now. Ready when zeroed but for the first. */
typedef struct brim_step_question {
  brim_dialogue *dialogue;
  uint64_t own_bytes;                          /* of the device that the run has: set before each question */
  double step_seconds;                         /* the median of the last steps, likewise; 0: none yet */
  bool is_warned;                              /* that the queue cannot be read */
  uint64_t shown_peak[BRIM_MICRO_BATCHES_MAX]; /* of the planner's micro-batches, that the run's events have; 0: not */
  uint64_t shown_free, shown_own, shown_waiting; /* what the run's events have of the device, in bytes */
  int32_t shown_runs;                            /* that wait for it */
} brim_step_question;

/* [step] Asks: see brim_policies_on_step. `seconds`: since some moment. Allocates nothing if nobody answers. */
brim_status brim_step_plan_ask(brim_step_question *question, int64_t step, double seconds, brim_step_plan *out,
                               const char **who);
/* [step] The answer as a choice, and the peak of its plan. */
brim_status brim_step_plan_choice(brim_step_question *question, const brim_step_plan *answer, brim_choice *choice,
                                  uint64_t *peak);
/* What a plan could have in the place of the run's own, as the device was looked at last. */
uint64_t brim_step_plan_room(const brim_step_question *question);
/* Tells the user: "200.0 MiB given back: micro-batch 64 -> 16, as a run waits for cpu:0". */
void brim_step_plan_tell(const brim_step_question *question, const char *who, const brim_choice *to, uint64_t after,
                         const char *reason);
#endif
