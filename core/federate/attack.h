/* Simulated malicious clients, to test aggregators (section attack of the configuration). label_flip changes the labels
 * on which a client trains. The other attacks change the client's parameters after training; brim then handles its
 * update like any other. Attacks do not change running statistics of norms, because variances must not become negative.
 * Internal to core/federate. */
#ifndef BRIM_FEDERATE_ATTACK_H
#define BRIM_FEDERATE_ATTACK_H
#include "exec/exec.h"
#include "setup/setup.h"

/* A malicious client in a round. */
typedef struct brim_attacker {
  const brim_setup *setup;
  int64_t client, round;
} brim_attacker;

/* Whether the client is malicious; depends only on the configuration. */
bool brim_attack_has(const brim_setup *setup, int64_t client);
/* [step, any thread] Changes the labels of `count` samples that a malicious client has read. */
void brim_attack_labels(const brim_attacker *t, int32_t *label, int64_t count);
/* [step, any thread] Changes the parameters of a malicious client that has trained; `values` has room for twice the
 * largest parameter. */
brim_status brim_attack_update(const brim_attacker *t, brim_exec *lane, const brim_program *adopt, void *values);
#endif
