/* A lane: trains clients one after another, in its own part of the arena and on its own thread. Internal to
 * core/federate. */
#ifndef BRIM_FEDERATE_CLIENT_H
#define BRIM_FEDERATE_CLIENT_H
#include "drive/drive.h"
#include "exec/exec.h"
#include "federate/compress.h"
#include "federate/kept.h"
#include "federate/world.h"

/* A client's result in a round. */
typedef struct brim_client_result {
  int64_t client, samples; /* samples: the number trained on, over all local epochs */
  int64_t place;           /* the client's place in the round's order of selection */
  double load;             /* number of its samples; decides which rank trains the client, and when */
  double weight;           /* weight of its update in the sum; see fold in brim/ops.h */
  double loss, correct;    /* sums over these samples, in the form of the metrics */
  double squares;          /* sum of squares of these losses if the selector needs it, else NAN */
  double norm;             /* Euclidean norm of its update */
  double rates;            /* divisor of its control, see brim_control_rates; known only to the rank that trained it */
  float *sketch;           /* [BRIM_SKETCH] room for the sketch of its update, or NULL if none is needed */
  double personal;         /* accuracy of its personal model, measured while that model trains (Ditto); else NAN */
  double counted, tokens;  /* the samples' weight in the mean of losses; see brim_setup_weigh */
  bool is_malicious;       /* see federate/attack.h */
  int64_t version;         /* version of the global model from which it starts: the number of rounds before it */
  int64_t number;          /* number of its training, the key of its random numbers: the round; see federate.async */
  double discount;         /* factor on the weight of its update, but not on the divisor: 1 unless it is stale */
  brim_fate fate;          /* in the simulated world; without one the client arrives and uses nothing */
  bool is_done;            /* the client has trained, or will not arrive in the simulated world */
  bool arrived;            /* whether its update is in the sum */
} brim_client_result;

typedef struct brim_lane {
  const brim_drive *drive;
  brim_exec *exec;
  const brim_program *adopt, *distance, *fold, *update;
  const brim_program *fold_control; /* NULL: there are no controls */
  brim_kept *kept;                  /* client states, or NULL */
  brim_batch batch;                 /* memory for the largest micro-batch */
  brim_client_order order;          /* order of the client's samples in the current epoch */
  brim_compressor compressor;
  void *scratch; /* scratch for one sample while it is read */
  void *keeping; /* scratch memory for client states; NULL without them */
  void *values;  /* room for twice the largest parameter if the host reads updates, else NULL */
} brim_lane;

/* [init] Opens a lane. kept may be NULL, and must outlive the lane. ENOMEM_HOST. Call brim_lane_close even on
 * failure. */
brim_status brim_lane_open(brim_lane *lane, const brim_drive *drive, brim_exec *exec, brim_kept *kept);
void brim_lane_close(brim_lane *lane);

/* [step, any thread] Loads the global model and trains the client, with the random numbers of `round`; fills `result`
 * except is_done and arrived. ENUMERIC with *result filled if the client has diverged: its parameters are not finite,
 * or one moved by BRIM_FOLD_MOST or more. */
brim_status brim_lane_train(brim_lane *lane, int64_t round, brim_client_result *result);
/* [step, any thread] Stages the state of the client that the lane has just trained: see brim_kept_stage. */
brim_status brim_lane_keep(brim_lane *lane, const brim_client_result *result, int64_t round);
/* [step, any thread] Computes the mean loss of a client's data under the global model. */
brim_status brim_lane_evaluate(brim_lane *lane, int64_t client, double *loss);
/* [step, any thread] Computes the accuracy of a client's personal model, or, if it has none, of the global model, on
 * its samples. */
brim_status brim_lane_score(brim_lane *lane, int64_t client, double *accuracy);
/* [step, any thread] Computes the accuracy of the global model on a client's samples after federate.finetune_epochs
 * passes of training on them. */
brim_status brim_lane_finetune(brim_lane *lane, int64_t client, double *accuracy);
/* [step] Adds the last trained client's update to the server's sum; one lane at a time. `clients`: the number of
 * clients in the round. */
brim_status brim_lane_fold(brim_lane *lane, const brim_client_result *result, double weight, int64_t clients);
#endif
