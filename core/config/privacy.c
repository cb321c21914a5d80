#include "config/privacy.h"

#include <math.h>
#include <string.h>

#include "config/refusal.h"

/* ---- the meaning of the settings ---- */

double brim_privacy_count_stddev(const brim_settings *s)
{
  return s->privacy.count_stddev > 0 ? s->privacy.count_stddev : (double)s->clients_per_round / 20;
}

double brim_privacy_update_multiplier(const brim_settings *s)
{
  const double z = s->privacy.noise_multiplier, count = 2 * brim_privacy_count_stddev(s);
  return brim_privacy_adapts(s) && z > 0 ? 1 / sqrt(1 / (z * z) - 1 / (count * count)) : z;
}

/* Finds the number of clients that a round almost never exceeds. Chernoff's bound: a binomial number reaches m with a
 * probability below exp(-clients * D), where D is the divergence of m / clients from rate. */
int64_t brim_privacy_most_clients(const brim_settings *s)
{
  const double clients = (double)s->total_clients, rate = (double)s->clients_per_round / clients;
  int64_t most = s->clients_per_round;
  for (; most < s->total_clients; most++) {
    const double m = (double)most + 1, rest = clients - m;
    const double others = rest > 0 ? rest * log(rest / (clients - clients * rate)) : 0;
    if (m * log(m / (clients * rate)) + others > 70) break;
  }
  return most;
}

/* Poisson sampling compares 53 random bits with the rate, so the effective rate is rounded up. */
void brim_privacy_account(const brim_settings *s, brim_account *out)
{
  const double rate = (double)s->clients_per_round / (double)s->total_clients;
  brim_account_make(out, s->privacy.draws_poisson ? fmin(1, rate + 0x1p-53) : 1, s->privacy.noise_multiplier);
}

/* The most rounds in which one client can train. With method=round_robin clients take turns; otherwise a client can be
 * in all rounds. */
int64_t brim_privacy_releases(const brim_settings *s, int64_t rounds)
{
  const int64_t places = rounds * s->clients_per_round; /* each below 2^30, so nothing overflows */
  return s->privacy.takes_turns ? (places + s->total_clients - 1) / s->total_clients : rounds;
}

/* ---- refusals ---- */

#define REFUSE(table, with) brim_refuse(c, config, table, sizeof(table) / sizeof(table)[0], with)

/* With noise, only chance or a fixed order may decide whether a client is in a round. A client's own dropout or
 * lateness only removes its update, but epsilon does not cover effects that depend on other clients, or data that end
 * the run. */
static void refuse_keys(brim_composition *c, const brim_config *config)
{
  const brim_settings *s = &config->settings;
  const brim_config_choice *method = brim_config_method(config);
  const bool is_random = method && !method->file[0] && strcmp(method->plugin->id, "random") == 0;
  const brim_refusal keys[] = {
      {"method.id", method && !is_random && !s->privacy.takes_turns,
       "epsilon is known only for clients that are drawn at random or in turn",
       "set method=random or method=round_robin"},
      {"federate.local", s->federate.local > BRIM_LOCAL_FEDPROX, "the control variates of clients have no noise",
       "set federate.local=fedavg or fedprox"},
      {"federate.on_divergence", s->federate.on_divergence != BRIM_DIVERGENCE_DROP,
       "an end of the run would reveal something about a client's data", "set federate.on_divergence=drop"},
      {"federate.norm_buffers", s->federate.norm_buffers == BRIM_NORM_BUFFERS_KEEP,
       "running statistics of batch norm have no noise",
       "choose another norm: model.norm=group, where the model has it"},
      {"federate.over_selection", s->federate.over_selection > 0,
       "whether an update counts would depend on other clients", "leave it at 0"},
      {"federate.min_clients", s->federate.min_clients > 1,
       "whether a round counts would depend on the number of its clients", "leave it at 1"},
      {"world.availability",
       s->world.availability != BRIM_AVAILABILITY_ALWAYS && (brim_privacy_is_central(s) || s->privacy.takes_turns),
       "a round that waits for clients depends on which clients took part in earlier rounds",
       "set world.availability=always"},
      {"privacy.target_quantile", brim_privacy_is_local(s) && brim_privacy_adapts(s),
       "clients would have to report whether their update is clipped",
       "set privacy.noise=central, or privacy.target_quantile=0"},
  };
  REFUSE(keys, "privacy.noise_multiplier");
}

/* The mean of clipped updates is over a fixed number of clients with the same weight, as with aggregator=uniform. The
 * installed configuration has fedavg, which brim rejects only if the user set it. */
static void refuse_aggregator(brim_composition *c, const brim_config *config)
{
  const brim_config_choice *aggregator = brim_config_aggregator(config);
  const brim_yaml_origin *origin = brim_origin_of(config, "aggregator.id");
  if (!aggregator || strcmp(aggregator->plugin->id, "uniform") == 0) return;
  if (strcmp(aggregator->plugin->id, "fedavg") == 0 && !origin->text) return;
  brim_problem_at(&c->problems, origin,
                  "aggregator=%s cannot be combined with privacy.clip_norm: its weights depend on the clients' data",
                  aggregator->plugin->id);
  brim_problem_hint(&c->problems, "set aggregator=uniform, or leave it out");
}

/* Rejects controls, because a second sum, or a memory, would depend on updates that are not clipped. */
static void refuse_controls(brim_composition *c, const brim_config *config)
{
  const int32_t local = config->settings.federate.local;
  const brim_refusal keys[] = {
      {"federate.local", local == BRIM_LOCAL_SCAFFOLD || local == BRIM_LOCAL_SCAFFOLD_FEDPROX,
       "clients would send its control variates unclipped and without noise", "set federate.local=fedavg or fedprox"},
      {"federate.local", local == BRIM_LOCAL_FEDDYN, "the server of FedDyn adds up updates without limits and noise",
       "set federate.local=fedavg or fedprox"},
      {"federate.error_feedback", config->settings.federate.error_feedback,
       "clients would remember what compression left out, but not what clipping did", "leave it out"}};
  REFUSE(keys, "privacy.clip_norm");
}

/* Rejects keys without effect, because the user would expect a protection that does not exist. */
static void refuse_idle(brim_composition *c, const brim_config *config)
{
  const brim_settings *s = &config->settings;
  const brim_refusal noise[] = {{"privacy.noise_multiplier", brim_privacy_has_noise(s) && !brim_privacy_clips(s),
                                 "noise protects only updates whose norm is limited", "set privacy.clip_norm as well"},
                                {"privacy.target_quantile", s->privacy.target_quantile > 0 && !brim_privacy_clips(s),
                                 "it adapts a clip norm, which needs a first value", "set privacy.clip_norm as well"}};
  const brim_refusal budget[] = {{"privacy.max_epsilon", s->privacy.max_epsilon > 0 && !brim_privacy_has_noise(s),
                                  "without noise epsilon is infinite", "set privacy.noise_multiplier as well"}};
  REFUSE(noise, "privacy.clip_norm=0");
  REFUSE(budget, "privacy.noise_multiplier=0");
}

static void check_numbers(brim_composition *c, const brim_config *config)
{
  const brim_settings *s = &config->settings;
  const brim_privacy_settings *p = &s->privacy;
  if (p->delta * (double)s->total_clients >= 1) {
    brim_problem_at(&c->problems, brim_origin_of(config, "privacy.delta"),
                    "privacy.delta=%g is not below 1/total_clients=%g", p->delta, 1 / (double)s->total_clients);
    brim_problem_hint(&c->problems,
                      "such a delta would permit publishing all data of one client; set a far smaller one");
  }
  if (brim_privacy_adapts(s) && 2 * brim_privacy_count_stddev(s) <= p->noise_multiplier) {
    brim_problem_at(&c->problems, brim_origin_of(config, "privacy.count_stddev"),
                    "privacy.count_stddev=%g is too small: twice this value must be above "
                    "privacy.noise_multiplier=%g",
                    brim_privacy_count_stddev(s), p->noise_multiplier);
    brim_problem_hint(&c->problems, "set privacy.count_stddev above %g", p->noise_multiplier / 2);
  }
  if (p->max_epsilon == 0 || c->problems.count > 0) return;
  brim_account account;
  brim_privacy_account(s, &account);
  const double first = brim_account_epsilon(&account, 1, p->delta);
  if (first <= p->max_epsilon) return;
  brim_problem_at(&c->problems, brim_origin_of(config, "privacy.max_epsilon"),
                  "privacy.max_epsilon=%g is too small for round 1, which raises epsilon to %.4g", p->max_epsilon,
                  first);
  brim_problem_hint(&c->problems, "raise privacy.max_epsilon or privacy.noise_multiplier%s",
                    p->draws_poisson ? ", or lower clients_per_round" : "");
}

void brim_privacy_resolve(brim_composition *c, brim_config *config)
{
  brim_settings *s = &config->settings;
  const brim_config_choice *method = brim_config_method(config);
  const char *id = method && !method->file[0] ? method->plugin->id : ""; /* one of the core's */
  s->privacy.takes_turns = strcmp(id, "round_robin") == 0;
  s->privacy.draws_poisson = strcmp(id, "random") == 0 && brim_privacy_is_central(s);
  refuse_idle(c, config);
  if (brim_privacy_clips(s)) refuse_aggregator(c, config);
  if (brim_privacy_clips(s)) refuse_controls(c, config);
  if (!brim_privacy_has_noise(s)) return;
  refuse_keys(c, config);
  check_numbers(c, config);
}

void brim_privacy_refuse(brim_composition *c, const brim_config *config)
{
  const brim_settings *s = &config->settings;
  const brim_refusal keys[] = {{"privacy.clip_norm", brim_privacy_clips(s), "it protects the clients of a federation",
                                "write brim federate, or set total_clients=N"},
                               {"privacy.noise_multiplier", brim_privacy_has_noise(s) && !brim_privacy_clips(s),
                                "it protects the clients of a federation",
                                "write brim federate, or set total_clients=N"}};
  REFUSE(keys, "training without clients");
}
