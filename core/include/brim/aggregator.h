/* For authors of aggregators: how a federation's server combines the updates of a round.
 *
 * An update is the difference between a client's parameters after training and the global model. An aggregator gives
 * each update a weight, and brim adds the weighted updates up as they arrive, without rounding, so that their order
 * does not matter. The server's optimizer applies the result to the global model.
 *
 * The functions get the aggregator's parameters as self; create() is not called. They must be pure functions of their
 * arguments: brim repeats a round that failed, and a resumed run and each rank make the same calls. brim calls
 * functions of plugins one at a time, on the thread that also runs policies: if one crashes or hangs, brim writes a
 * checkpoint and ends the run. Since ABI 1.11. */
#ifndef BRIM_AGGREGATOR_H
#define BRIM_AGGREGATOR_H
#include <stdint.h>

#include "brim/plugin.h"
#include "brim/status.h"
#ifdef __cplusplus
extern "C" {
#endif

enum brim_aggregator_need {
  BRIM_NEED_LOSS_BEFORE = 1 /* `loss_before`; costs each client a forward pass over its samples */
};

/* A client in a round. */
typedef struct brim_arrival {
  uint32_t size;
  int64_t round, client; /* both from 0 */
  int64_t samples;       /* number of its training samples */
  int64_t steps;         /* optimizer steps of its training in the round, over all local epochs */
  double rate;           /* learning rate of these steps */
  double reach; /* how far these steps move a parameter whose gradient is always 1, in units of `rate`. It depends on
                   the momentum of optimizer=sgd and the mu of FedProx; with other optimizers it equals `steps` */
  double loss_before; /* mean loss of its samples under the global model; NAN without BRIM_NEED_LOSS_BEFORE */
  double loss;        /* mean loss during its training; NAN in weigh */
  double norm;        /* Euclidean norm of its update, over all parameters; NAN in weigh */
} brim_arrival;

/* The result of a round: with w(k) from `weigh` and (v(k), r(k)) from `scale`
 *
 *     result = sum_k w(k) update(k) / sum_k v(k) * sum_k v(k) r(k) / sum_k v(k)
 *
 * Without `scale`, v(k) = w(k) and r(k) = 1: the weighted mean. */
typedef struct brim_arrival_scale {
  double divisor; /* v: finite, not negative */
  double factor;  /* r: finite; 1 when `scale` is called */
} brim_arrival_scale;

/* A block of the updates of a round that have arrived, in the order in which the clients were selected. */
typedef struct brim_updates {
  uint32_t size;
  int64_t clients;                    /* at least 1, and at least the result of least() */
  const brim_arrival *const *arrival; /* [clients] */
  int64_t first, values;              /* the block has values first..first+values-1 of each update */
  const double *const *update;        /* [clients], each [values]: finite; a zero is positive */
  void *scratch; /* memory of the size that ops.scratch returns; zeroed before a round's first call */
} brim_updates;

typedef struct brim_aggregator_ops {
  uint32_t size, needs; /* needs: enum brim_aggregator_need */
  /* [step] Sets *weight to the weight of a client's update, finite and not negative. Called before the client
   * trains. */
  brim_status (*weigh)(const void *self, const brim_arrival *arrival, double *weight);
  /* [step] Sets *out for an update that has arrived; `weight` is the result of weigh(). NULL: the result is the
   * weighted mean (see brim_arrival_scale). */
  brim_status (*scale)(const void *self, const brim_arrival *arrival, double weight, brim_arrival_scale *out);

  /* The functions below work on all updates of a round at once. An aggregator has either weigh or merge. */

  /* [init] The fewest updates that a round needs; NULL: 1. A configuration with fewer clients in a round is rejected,
   * and a round in which fewer arrive fails. */
  int64_t (*least)(const void *self);
  /* [init] Bytes of memory for a round of at most `clients` updates, aligned for doubles; NULL: merge() needs no
   * memory. */
  uint64_t (*scratch)(const void *self, int64_t clients);
  /* [step] Examines the updates before they are merged: called once per block, in order, before the first call of
   * merge. NULL: merge() needs no first pass. */
  brim_status (*look)(const void *self, const brim_updates *block);
  /* [step] Writes the result's values of the block, which must be finite, to out [values]. Called once per block, in
   * order. */
  brim_status (*merge)(const void *self, const brim_updates *block, double *out);
} brim_aggregator_ops;

#ifdef __cplusplus
}
#endif
#endif
