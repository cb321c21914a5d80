/* Differential privacy in a federation's rounds: clips updates and adds noise (config/privacy.h). Internal to
 * core/federate. */
#ifndef BRIM_FEDERATE_PROTECT_H
#define BRIM_FEDERATE_PROTECT_H
#include "exec/exec.h"
#include "federate/client.h"
#include "store/safetensors.h"

/* The noise on one tensor of the sum, which the lanes add in pieces. */
typedef struct brim_noise {
  double *sum; /* [count] NULL: no noise is being added */
  int64_t count, round;
  double deviation;
  uint64_t seed;
  uint32_t stream;                  /* stream of random numbers of the tensor */
  const brim_client_result *client; /* [clients] the clients that add local noise; NULL: central noise */
  int64_t clients;
} brim_noise;

typedef struct brim_protection {
  const brim_settings *settings;
  double clip_norm; /* clip norm of the current round; 0: updates are not clipped */
  double next;      /* clip norm of the next round */
  double values;    /* in an update */
  double weight; /* weight of every update before clipping: a power of two such that a round's weights add up to at most
                    1 */
  double *sum;   /* memory for the largest tensor of the sum, while noise is added; NULL: no noise */
  brim_noise noise;
} brim_protection;

/* [init] Sets the configured clip norm. */
void brim_protection_init(brim_protection *protection, const brim_setup *setup);
/* [init] Allocates memory for a placed plan; `serve`: the server's update program. ENOMEM_HOST. */
brim_status brim_protection_place(brim_protection *protection, const brim_program *serve);
void brim_protection_close(brim_protection *protection);
/* [any thread] The factor for an update of this norm; 1 without clipping. The norm of the weighted update, even
 * after rounding, is at most the clip norm times the weight. */
double brim_protection_factor(const brim_protection *protection, double norm);
/* [step] Adds the round's noise to the sum of all ranks; every rank adds the same noise. Central noise adds one random
 * number to each value, with a standard deviation proportional to the clip norm; local noise adds one such number for
 * each client that has sent an update. `share` calls brim_protection_add_piece for pieces 0..pieces-1, on any
 * threads. */
typedef brim_status (*brim_share_fn)(void *context, int64_t pieces);
brim_status brim_protection_add_noise(brim_protection *protection, brim_exec *exec, const brim_noise *of_round,
                                      brim_share_fn share, void *context);
void brim_protection_add_piece(const brim_protection *protection, int64_t piece);
/* [step] Computes the next clip norm from the round's updates, if the clip norm is adaptive. */
void brim_protection_learn(brim_protection *protection, int64_t round, const brim_client_result *client, int64_t count);
/* [step] Call when the round has committed. */
void brim_protection_commit(brim_protection *protection);
/* [any] An adaptive clip norm as a tensor of a checkpoint, in the protection's memory; returns the number of tensors.
 * If out is NULL, only counts them. */
size_t brim_protection_tensors(brim_protection *protection, brim_safetensor *out);
#endif
