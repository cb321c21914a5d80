/* Differential privacy of a federation's clients: what its settings mean. Updates are clipped to an L2 norm, Gaussian
 * noise is added, and an account gives the epsilon that the run has spent after each round. */
#ifndef BRIM_CONFIG_PRIVACY_H
#define BRIM_CONFIG_PRIVACY_H
#include "config/account.h"
#include "config/compose.h"

/* With clients: adds a problem for each key under which the account would not hold, and resolves how clients are
 * drawn. */
void brim_privacy_resolve(brim_composition *composition, brim_config *config);
/* Without clients: adds a problem if privacy is asked for, which such training does not provide. */
void brim_privacy_refuse(brim_composition *composition, const brim_config *config);

static inline bool brim_privacy_clips(const brim_settings *s)
{
  return s->privacy.clip_norm > 0;
}
static inline bool brim_privacy_has_noise(const brim_settings *s)
{
  return s->privacy.noise_multiplier > 0;
}
static inline bool brim_privacy_is_central(const brim_settings *s)
{
  return brim_privacy_has_noise(s) && s->privacy.noise == BRIM_NOISE_CENTRAL;
}
static inline bool brim_privacy_is_local(const brim_settings *s)
{
  return brim_privacy_has_noise(s) && s->privacy.noise == BRIM_NOISE_LOCAL;
}
static inline bool brim_privacy_adapts(const brim_settings *s)
{
  return brim_privacy_clips(s) && s->privacy.target_quantile > 0;
}
/* The seed of noise, and of Poisson sampling. It differs between the repeats of a run. */
static inline uint64_t brim_privacy_seed(const brim_settings *s)
{
  return (uint64_t)(s->privacy.seed ^ s->seed);
}
/* The standard deviation of the noise on the number of updates within an adaptive clip norm. */
double brim_privacy_count_stddev(const brim_settings *settings);
/* The standard deviation of the noise on updates, divided by the clip norm. It is larger than noise_multiplier if the
 * clip norm is adaptive, as the noisy number of updates within it spends a part (Andrew et al.: Differentially Private
 * Learning with Adaptive Clipping, NeurIPS 2021, theorem 1). */
double brim_privacy_update_multiplier(const brim_settings *settings);
/* With Poisson sampling, a number of clients that a round exceeds with a probability below e^-70. */
int64_t brim_privacy_most_clients(const brim_settings *settings);
/* The account of one release, and the greatest number of releases that a client is part of in `rounds` rounds. */
void brim_privacy_account(const brim_settings *settings, brim_account *out);
int64_t brim_privacy_releases(const brim_settings *settings, int64_t rounds);
#endif
