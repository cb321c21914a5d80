/* The rungs of the ladder (recover.h says which, in which order), for whoever climbs it: a run, and `brim simulate`. */
#ifndef BRIM_TRAIN_LADDER_H
#define BRIM_TRAIN_LADDER_H
#include "session/session.h"

#define BRIM_LADDER_TEXT 4096

/* What it is about. */
typedef struct brim_failure {
  brim_status status;
  char text[BRIM_LADDER_TEXT];
  const char *what; /* that failed: "step 3" */
} brim_failure;

/* Takes the thread's error text. */
void brim_failure_take(brim_failure *failure, brim_status status);

/* What a rung does beyond changing the session; all get brim_ladder.self. */
typedef struct brim_ladder_ops {
  void (*clean)(void *self, enum brim_cleanup cleanup);
  /* Before the session is changed: nothing is placed any more, and the device is seen as it is then. */
  brim_status (*prepare)(void *self);
  /* On from what a rung has come to, `status`; `replans`: under the session's plan as it is now. OK: it may be done
   * again. */
  brim_status (*go_on)(void *self, const brim_failure *failure, bool replans, brim_status status);
  uint64_t (*placed_bytes)(void *self); /* peak of the plan that is placed; 0: none is */
  int64_t (*step)(void *self);          /* committed */
} brim_ladder_ops;

/* Ready when zeroed but for the first three. */
typedef struct brim_ladder {
  brim_session **session; /* the owner's: it may be made again */
  const brim_ladder_ops *ops;
  void *self;
  int32_t rung;          /* 0: it begins below */
  int64_t tries;         /* on this rung */
  uint64_t needed_bytes; /* by the last plan that was placed */
  bool is_over;          /* the owner has no session to go on with */
} brim_ladder;

/* [step] From the rung where it stands upwards, until one has helped: OK. Else nothing helped: the failure's status
 * with its text; or what went wrong in between. */
brim_status brim_ladder_climb(brim_ladder *ladder, brim_failure *failure);
/* [step] What failed is done: the ladder begins below again. */
void brim_ladder_begin_again(brim_ladder *ladder);
/* [plan] Changes the session so that its plan is of at most `bytes`, or as small as it gets without another bit:
 * *peak. needed_bytes must be that of the present plan. */
brim_status brim_ladder_make_smaller(const brim_ladder *ladder, uint64_t bytes, uint64_t *peak);
/* Takes what that has come to, from the way of before, and tells it as the answer to `why`. False if it is no smaller.
 */
bool brim_ladder_take_smaller(const brim_ladder *ladder, const brim_choice *to, uint64_t peak, const char *why);
/* Tells the user, as "recovery". */
void brim_ladder_tell(const brim_ladder *ladder, const brim_failure *failure, const char *format, ...)
    BRIM_PRINTF(3, 4);
#endif
