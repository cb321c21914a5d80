/* Differential privacy: computes epsilon, for a delta, of a Gaussian mechanism that is applied to a random sample of
 * the clients in every round, by Renyi differential privacy (Mironov, Talwar and Zhang: Renyi Differential Privacy of
 * the Sampled Gaussian Mechanism, 2019), for adding or removing one client. */
#ifndef BRIM_CONFIG_ACCOUNT_H
#define BRIM_CONFIG_ACCOUNT_H
#include <stdint.h>

#define BRIM_ACCOUNT_ORDERS 156 /* the number of default orders of the package dp-accounting */
typedef struct brim_account {
  double rdp[BRIM_ACCOUNT_ORDERS]; /* Renyi divergence of one round, by order */
} brim_account;

/* [any] Each client takes part in a round with probability `rate`, independently of the others (Poisson sampling; 1:
 * always). noise_multiplier: the noise's standard deviation divided by the greatest change that one client can make;
 * above 0. */
void brim_account_make(brim_account *account, double rate, double noise_multiplier);
/* [any] Epsilon after this number of rounds; rounding errors never make it too small (Canonne, Kamath and Steinke: The
 * Discrete Gaussian for Differential Privacy, 2020, proposition 12). */
double brim_account_epsilon(const brim_account *account, int64_t rounds, double delta);
#endif
