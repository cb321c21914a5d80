/* Controls: gradients that the server and the clients store to correct the gradients of later rounds.
 *
 * SCAFFOLD's control variates, option II (Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated
 * Learning, ICML 2020, algorithm 1). The server has c, and each client c_i, a part of its state (kept.h); both are 0 at
 * first. A client adds c - c_i to the gradient of each step. After steps whose learning rates add up to `rates`, with w
 * its parameters and x the global model's,
 *
 *     c_i' = c_i - c + (x - w) / rates
 *     c'   = c + (sum of c_i' - c_i) / N = c + (-S c + sum of (x - w) / rates) / N
 *
 * for the S clients of a round that arrived, of N in all. The operation fold computes the last sum, so it is exact and
 * the same for any number of lanes and ranks. c is in host memory in double precision, the same on all ranks, and in
 * checkpoints.
 *
 * FedDyn (Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021, algorithm 1). c_i is the paper's
 * gradient of client i, and c is h. Clients compute as in SCAFFOLD, but without c and with 1 / alpha instead of
 * `rates`:
 *
 *     c_i' = c_i + alpha (x - w)          c' = c + alpha (sum of x - w) / N
 *
 * A client adds alpha (w - x) - c_i to its gradients; the operation steer computes the first term, as FedProx's. The
 * server then subtracts c' / alpha from the mean of the clients' parameters. */
#ifndef BRIM_FEDERATE_CONTROL_H
#define BRIM_FEDERATE_CONTROL_H
#include "exec/exec.h"
#include "setup/setup.h"
#include "store/safetensors.h"
#include "store/states.h"

typedef struct brim_control brim_control;

/* A lane and the client that it trains. */
typedef struct brim_keeping {
  brim_exec *exec;
  const brim_program *adopt, *update;
  void *scratch;
  int64_t client;
  int64_t place; /* the client's place in the round */
} brim_keeping;

/* [init] `like`: a graph with the clients' parameters; `at`: where c_i begins in a client's state. *out is NULL without
 * controls. ENOMEM_HOST. */
brim_status brim_control_open(const brim_setup *setup, const brim_graph *like, uint64_t at, brim_control **out);
void brim_control_close(brim_control *control); /* NULL: nothing */
/* [step, any thread] Writes c - c_i, or for FedDyn -c_i, to the lane. EIO. */
brim_status brim_control_write(const brim_control *control, brim_states *states, const brim_keeping *lane);
/* [step, any thread] Writes c_i' of the client that has trained to the client's slot of the round. EIO. */
brim_status brim_control_stage(const brim_control *control, brim_states *states, const brim_keeping *lane,
                               double rates);
/* The divisor of x - w: `sum`, the sum of the learning rates of the steps; for FedDyn 1 / alpha. */
double brim_control_rates(const brim_setup *setup, double sum);
/* The factor of fold for a client's part in the sum, in a round of `clients`: small enough that sums are exact if a
 * client has moved by less than BRIM_FOLD_MOST * rates. */
double brim_control_weight(int64_t clients, double rates);
/* [step] Computes c' from the sum over the `arrived` clients of a round of `clients`. */
brim_status brim_control_learn(brim_control *control, brim_exec *exec, const brim_program *serve, int64_t clients,
                               int64_t arrived);
/* [step] FedDyn: subtracts c' / alpha from the mean of a round's updates, `sum` / `weight`, which the server's step
 * adds to the global model. Call after brim_control_learn. */
brim_status brim_control_shift(const brim_control *control, brim_exec *exec, const brim_program *serve, double weight);
/* [step] Call when the round has committed: c' becomes c. */
void brim_control_commit(brim_control *control);
/* [any] Lists c as tensors of a checkpoint, in memory of `control`, and returns their number; out NULL: only counts
 * them. control NULL: 0. */
size_t brim_control_tensors(brim_control *control, brim_safetensor *out);
#endif
