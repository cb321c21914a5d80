/* The parts of a trainer. Internal to trainer*.c. */
#ifndef BRIM_TRAIN_TRAINER_PARTS_H
#define BRIM_TRAIN_TRAINER_PARTS_H
#include "base/error.h"
#include "base/exact.h"
#include "train/samples.h"
#include "train/snapshot.h"
#include "train/trainer.h"

/* A step that has begun. */
typedef struct brim_begun {
  brim_span span, share; /* the step's samples, and this rank's part of them */
  brim_step step;
  brim_step update;            /* the step for the update, whose number counts updates */
  brim_status failed;          /* status of this rank's last micro-batch; its text is the trainer's `error` */
  double scale;                /* scale of the loss */
  double proof;                /* if it is not finite, the update must not change anything */
  double weight;               /* the weight of its samples in the mean */
  double tokens;               /* tokens that count in its samples; 0 if samples are not tokens */
  double metrics[2];           /* sum of losses; sum of correct answers or of absolute errors */
  double norm[2];              /* norm of the gradients, and the factor that limits it */
  const brim_program *program; /* the program whose backward pass updates the parameters; NULL: `update` does */
} brim_begun;

struct brim_trainer {
  brim_drive *drive;
  brim_plan *plan;
  brim_exec *exec;
  brim_federation *federation; /* NULL: not a federation */
  const char *folder;          /* the run's folder; NULL: not known yet, or not a federation */
  brim_round_result round;     /* the result of the last round */
  brim_loader *loader;
  uint64_t loader_bytes;
  brim_footprint footprint;           /* predicted memory of training */
  int64_t first_sequence;             /* number of the loader's first micro-batch, where training began or resumed */
  const brim_program *check, *update; /* check: may be NULL */
  brim_train_state state;
  brim_step step;       /* values of the last step that was committed or checked */
  brim_begun begun[2];  /* steps that have begun but not committed, by their number modulo 2 */
  int64_t begun_steps;  /* number of steps that have begun, including those before a resume; at least state.step */
  double failed_at;     /* time (brim_now()) at which a step or an evaluation last failed */
  bool torn;            /* an update began and did not end, so the parameters belong to no commit */
  brim_verdict verdict; /* result of the last meeting */
  uint32_t wishes;      /* this rank's wishes for the next meeting */
  bool is_reported;     /* the last failure was reported at a meeting */
  double waited;        /* seconds, for other ranks */
  double loader_waited; /* seconds, for samples */
  bool is_kept;         /* nothing is placed; the values of the last commit are in `kept` */
  brim_snapshot kept;
  brim_error error;      /* the error of a step that has failed but not ended */
  brim_samples *samples; /* list for the worst answers of evaluations; NULL: none */
  brim_exact *exact;     /* exact sums of an evaluation in a federation: the first metrics, and the weight */
  void *exact_of_ranks;  /* BRIM_EXCHANGE_BYTES for each rank; NULL in a job of one rank */
  double *metrics; /* metrics of an evaluation: 2, the cells of the confusion matrix, and perhaps one for the top k;
                      BRIM_ERRORS_COUNT for real targets */
};

/* Sets the step's values for nodes. Schedules count steps, like the data; bias corrections of optimizers count updates,
 * as in PyTorch. */
brim_status brim_trainer_make_step(const brim_trainer *t, int64_t number, int64_t samples, brim_begun *b);
/* [step] As brim_trainer_step, for a federation: one round. */
brim_status brim_trainer_round(brim_trainer *t);
/* [step] Finds out why a step was rejected, by running its micro-batches again and checking every result. ENUMERIC with
 * the first operation whose result is not finite; another status if the search failed. *is_found: this rank's
 * micro-batches contain the operation, or a parameter was already not finite. Slow; allocates. */
brim_status brim_trainer_explain(const brim_trainer *t, const brim_begun *b, bool *is_found);
/* Meets the other ranks: see brim_trainer_meet. `sum`: BRIM_BALLOT_SUMS numbers, summed in place over all ranks; may
 * be NULL. */
brim_status brim_trainer_meet_for(brim_trainer *t, enum brim_meeting meeting, int64_t step, brim_status status,
                                  double *sum);
/* Call after all ranks have failed in the same way: returns `status` on the first rank that found the cause, or on rank
 * 0 if none did; EPEER on the other ranks. */
brim_status brim_trainer_report_once(brim_trainer *t, brim_status status, bool has_found);
/* Allocates an evaluation's metrics. ENOMEM_HOST. */
brim_status brim_trainer_make_metrics(brim_trainer *t);
#endif
