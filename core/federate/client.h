/* A lane: where one client after another trains, each from start to end, in a part of the arena of its own and on a
 * thread of its own. Internal to core/federate. */
#ifndef BRIM_FEDERATE_CLIENT_H
#define BRIM_FEDERATE_CLIENT_H
#include "drive/drive.h"
#include "exec/exec.h"
#include "federate/kept.h"
#include "federate/world.h"

/* What came of a client in a round. */
typedef struct brim_client_result {
  int64_t client, samples; /* samples: that it trained on, over all local epochs */
  double weight;           /* of its update in the sum; see fold in brim/ops.h */
  double loss, correct;    /* sums over these samples, as metrics have them */
  double squares;          /* of these losses, where the selector needs them; else NAN */
  double norm;             /* of its update */
  float *sketch;           /* [BRIM_SKETCH] of its update: room for it; NULL: nobody needs it */
  double counted, tokens;  /* what the samples count for in the mean of losses; see brim_setup_weigh */
  brim_fate fate;          /* in the simulated world; without one it arrives, and spends nothing */
  bool is_done;            /* it has been trained, or the world says that it will not arrive */
  bool arrived;            /* its update is in the sum; else it has diverged, or did not arrive */
} brim_client_result;

typedef struct brim_lane {
  const brim_drive *drive;
  brim_exec *exec;
  const brim_program *adopt, *distance, *fold, *update;
  const brim_kept *kept;   /* what clients begin with besides the global model; NULL: nothing */
  brim_batch batch;        /* room for the largest micro-batch */
  brim_client_order order; /* of the samples in the epoch that it trains */
  void *scratch;           /* of one sample, while it is read */
  float *values;           /* of the largest parameter twice, where updates are sketched; else NULL */
} brim_lane;

/* [init] kept may be NULL, and must outlive the lane. ENOMEM_HOST. brim_lane_close is to be called all the same. */
brim_status brim_lane_open(brim_lane *lane, const brim_drive *drive, brim_exec *exec, const brim_kept *kept);
void brim_lane_close(brim_lane *lane);

/* [step, any thread] The client takes the global model and trains; `result` gets all but what it is of it: is_done,
 * arrived. ENUMERIC with *result filled if the client has diverged: its parameters are not finite, or moved by
 * BRIM_FOLD_MOST or more. */
#define BRIM_FOLD_MOST 512.0
brim_status brim_lane_train(brim_lane *lane, int64_t round, brim_client_result *result);
/* [step, any thread] The mean loss of a client's data under the global model. */
brim_status brim_lane_evaluate(brim_lane *lane, int64_t client, float *loss);
/* [step] Adds the update of the client that was trained last to the server's sum; one lane at a time. */
brim_status brim_lane_fold(brim_lane *lane, double weight);
#endif
