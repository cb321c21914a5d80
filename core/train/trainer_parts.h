/* What a trainer is made of. Internal to trainer*.c. */
#ifndef BRIM_TRAIN_TRAINER_PARTS_H
#define BRIM_TRAIN_TRAINER_PARTS_H
#include "base/error.h"
#include "train/snapshot.h"
#include "train/trainer.h"

/* A step that was begun. */
typedef struct brim_begun {
  brim_span span, share; /* its samples, and this rank's part of them */
  brim_step step;
  brim_step update;            /* the same for the update, which counts updates and not steps */
  brim_status failed;          /* this rank's last micro-batch; its text is the trainer's `error` */
  double scale;                /* of the loss */
  double proof;                /* is not finite if the update must not be made */
  double weight;               /* what its samples count for in the mean */
  double tokens;               /* of its samples, that count; 0 where they are no tokens */
  double metrics[2];           /* sum of losses, right answers or absolute errors */
  double norm[2];              /* of the gradients, and the factor that limits it */
  const brim_program *program; /* whose backward pass updates the parameters; NULL: the update does */
} brim_begun;

struct brim_trainer {
  brim_drive *drive;
  brim_plan *plan;
  brim_exec *exec;
  brim_federation *federation; /* NULL: it trains on the samples of all */
  brim_round_result round;     /* the last one */
  brim_loader *loader;
  uint64_t loader_bytes;
  brim_footprint footprint;           /* of training: as predicted */
  int64_t first_sequence;             /* of the loader's stream: where training began or resumed */
  const brim_program *check, *update; /* check: NULL where none is needed */
  brim_train_state state;
  brim_step step;       /* of the last step that was committed, or looked at */
  brim_begun begun[2];  /* steps by their number, modulo 2: begun, but not committed */
  int64_t begun_steps;  /* how many were begun in all, with those before a resume; never below state.step */
  double failed_at;     /* when a step or an evaluation failed last: brim_now() */
  bool torn;            /* an update began and did not end: the parameters are those of no commit */
  brim_verdict verdict; /* of the last meeting */
  uint32_t wishes;      /* of this rank, for the next one */
  bool is_told;         /* the last failure was told there */
  double waited;        /* seconds, for other ranks */
  bool is_kept;         /* nothing is placed, and the values of the last commit are in `kept` */
  brim_snapshot kept;
  brim_error error; /* of a step that has failed and is not ended yet */
  double *metrics;  /* of an evaluation: 2, the cells of the confusion matrix, and perhaps one for the top k; of real
                       targets BRIM_ERRORS_COUNT */
};

/* What the nodes of a step need to know. Schedules go by steps, as the data does; what optimizers correct is by the
 * updates that were made, as in PyTorch. */
brim_status brim_trainer_make_step(const brim_trainer *t, int64_t number, int64_t samples, brim_begun *b);
/* [step] A round of a federation: brim_trainer_step, where there are clients. */
brim_status brim_trainer_round(brim_trainer *t);
/* [step] Why a step was refused: runs its micro-batches again, looking at every result. ENUMERIC with the operation
 * that first made a value that is not finite; another status if that did not work. *is_found: the operation is among
 * this rank's micro-batches, or a parameter was lost before. Slow; allocates. */
brim_status brim_trainer_explain(const brim_trainer *t, const brim_begun *b, bool *is_found);
/* Comes together with the other ranks: see brim_trainer_meet. `sum`: BRIM_BALLOT_SUMS numbers,
 * added up over all in place; NULL: none. */
brim_status brim_trainer_meet_for(brim_trainer *t, enum brim_meeting meeting, int64_t step, brim_status status,
                                  double *sum);
/* After all ranks have failed in the same way: `status` on the first that has found out why, or on rank 0 if none has;
 * EPEER on the others. */
brim_status brim_trainer_let_one_speak(brim_trainer *t, brim_status status, bool has_found);
/* Room for what an evaluation counts. ENOMEM_HOST. */
brim_status brim_trainer_make_metrics(brim_trainer *t);
#endif
