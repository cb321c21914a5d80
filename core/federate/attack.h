/* Malicious clients, for trying out aggregators (section attack of the configuration). A client that flips labels
 * trains on them; the other attacks change its parameters after training, so its update passes through everything that
 * those of other clients do. Running statistics of norms are not attacked: their variances may not be negative.
 * Internal to core/federate. */
#ifndef BRIM_FEDERATE_ATTACK_H
#define BRIM_FEDERATE_ATTACK_H
#include "exec/exec.h"
#include "setup/setup.h"

/* A client's part in an attack. */
typedef struct brim_attacker {
  const brim_setup *setup;
  int64_t client, round;
} brim_attacker;

/* Is the client malicious? Depends on the configuration alone. */
bool brim_attack_has(const brim_setup *setup, int64_t client);
/* [step, any thread] Changes the labels of `count` samples that a malicious client has read. */
void brim_attack_labels(const brim_attacker *t, int32_t *label, int64_t count);
/* [step, any thread] Changes the parameters of a malicious client that has trained; `values` has room for twice the
 * largest parameter. */
brim_status brim_attack_update(const brim_attacker *t, brim_exec *lane, const brim_program *adopt, void *values);
#endif
