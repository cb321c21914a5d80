/* Why a step was refused: which operation first made a value that is not finite. */
#ifndef BRIM_TRAIN_NONFINITE_H
#define BRIM_TRAIN_NONFINITE_H
#include "drive/drive.h"
#include "exec/exec.h"
#include "store/checkpoint.h"

typedef struct brim_nonfinite {
  const brim_drive *drive;
  const brim_plan *plan;
  brim_exec *exec;
  const brim_train_state *state; /* before the step */
  const brim_span *span;         /* its samples */
  brim_step step;
  double loss;    /* its sum */
  bool is_scaled; /* setup/loss_scale.h */
  bool *is_found; /* out: is the operation among this rank's micro-batches? Or else a parameter was lost before */
} brim_nonfinite;

/* [step] Runs the micro-batches of the step again, looking at every result. Returns ENUMERIC, with what was found;
 * another status if that did not work. Slow; allocates. */
brim_status brim_nonfinite_explain(const brim_nonfinite *refused);
#endif
