/* Differential privacy of a federation's clients: checks the settings and derives numbers from them. brim clips updates
 * to an L2 norm, adds Gaussian noise, and computes epsilon after each round from the number of releases: the noisy
 * sums, or with local noise the noisy updates, that a client's data may have influenced. */
#ifndef BRIM_CONFIG_PRIVACY_H
#define BRIM_CONFIG_PRIVACY_H
#include "config/account.h"
#include "config/compose.h"

/* In a federation: adds a problem for each key with which epsilon would be wrong, and determines how clients are
 * drawn. */
void brim_privacy_resolve(brim_composition *composition, brim_config *config);
/* Without a federation: adds a problem if a key of privacy is set, because only federations support it. */
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
 * clip norm is adaptive, because the noisy number of updates within it takes a part of epsilon (Andrew et al.:
 * Differentially Private Learning with Adaptive Clipping, NeurIPS 2021, theorem 1). */
double brim_privacy_update_multiplier(const brim_settings *settings);
/* With Poisson sampling: a number of clients that a round exceeds only with a probability below e^-70. */
int64_t brim_privacy_most_clients(const brim_settings *settings);
/* Compute the privacy account of one release, and the most releases in `rounds` rounds that one client can
 * influence. */
void brim_privacy_account(const brim_settings *settings, brim_account *out);
int64_t brim_privacy_releases(const brim_settings *settings, int64_t rounds);
#endif
