/* The samples of a federation's clients, and their micro-batches. See setup.h. */
#include <inttypes.h>
#include <math.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "brim/aggregator.h"
#include "brim/selector.h"
#include "builtin/builtin.h"
#include "setup/setup_parts.h"

#define ENDS_MOST                                                                                                      \
  20 /* limit for clients that may end in an asynchronous round, for each update that the round needs                  \
      */
#define REMAINDERS_MAX 12 /* limit for different remainders that get programs of their own size */

/* The number of different remainders of a whole batch; stops counting at REMAINDERS_MAX + 1. */
static size_t count_remainders(const brim_setup *s)
{
  const int64_t batch = s->settings->training.effective_batch_size;
  int64_t seen[REMAINDERS_MAX + 1];
  size_t count = 0;
  for (size_t i = 0; i < s->partition.size_count && count <= REMAINDERS_MAX; i++) {
    const int64_t rest = brim_setup_client_samples(s, s->partition.size[i]) % batch;
    size_t k = 0;
    while (k < count && seen[k] != rest) k++;
    if (rest > 0 && k == count) seen[count++] = rest;
  }
  return count;
}

/* Checks that a run with rules that end it by accuracy or convergence evaluates. */
static brim_status check_rules(const brim_setup *s)
{
  const brim_federate_settings *f = &s->settings->federate;
  const bool has_target = f->target_accuracy > 0;
  const char *key = has_target ? "federate.target_accuracy" : "federate.convergence_threshold";
  if (!has_target && f->convergence_threshold == 0) return BRIM_OK;
  if (s->data.count[BRIM_PART_VALIDATION] + s->data.count[BRIM_PART_TEST] == 0)
    return brim_fail(
        BRIM_ECONFIG,
        "'%s' needs test or validation data, but the dataset provides none\nset dataset.validation_fraction, or %s=0",
        key, key);
  if (has_target && s->data.train.task == BRIM_TASK_VALUES)
    return brim_fail(BRIM_ECONFIG,
                     "'%s' needs classes: predictions of real numbers have no accuracy\nset "
                     "federate.convergence_threshold instead, which uses the loss",
                     key);
  return BRIM_OK;
}

static brim_status check_norm_buffers(const brim_setup *s)
{
  if (s->settings->federate.norm_buffers == BRIM_NORM_BUFFERS_AVERAGE || s->buffer_bytes > 0) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG,
                   "federate.norm_buffers=keep has no effect: model=%s, as configured, has no running statistics of "
                   "batch norm\nremove it, or choose batch norm if the model offers it (model.norm=batch)",
                   brim_config_choice_of(s->config, "model")->plugin->id);
}

/* SCAFFOLD computes a client's mean gradient from its update and its learning rates, so only gradients may change the
 * client's parameters. */
static brim_status check_scaffold(const brim_setup *s)
{
  brim_step step = {.gradient_scale = 1};
  BRIM_TRY(brim_optimizer_fill(s->optimizer, s->optimizer_params, 1, &step));
  const bool is_sgd = s->optimizer == &brim_optimizer_sgd;
  if (is_sgd && step.momentum == 0 && step.lr > 0) return BRIM_OK;
  return brim_setup_add_origin(
      s,
      brim_fail(BRIM_ECONFIG,
                "'federate.local': SCAFFOLD needs optimizer=sgd with a learning rate above 0 and optimizer.momentum=0, "
                "not optimizer=%s%s\nset optimizer=sgd optimizer.momentum=0; the server may have a momentum "
                "(server_optimizer.momentum)",
                s->optimizer->id, is_sgd ? " with these values" : ""));
}

/* The server of FedDyn sets the global model from the clients' mean and its control. */
static brim_status check_feddyn(const brim_setup *s)
{
  brim_step step = {.gradient_scale = 1};
  BRIM_TRY(brim_optimizer_fill(s->server_optimizer, s->server_params, 1, &step));
  const bool is_sgd = s->server_optimizer == &brim_optimizer_sgd;
  if (is_sgd && step.lr == 1 && step.momentum == 0 && step.weight_decay == 0) return BRIM_OK;
  return brim_setup_add_origin(
      s, brim_fail(BRIM_ECONFIG,
                   "'federate.local': FedDyn has a server step of its own, so it needs server_optimizer=sgd with "
                   "server_optimizer.lr=1, momentum=0 and weight_decay=0, not server_optimizer=%s%s\nleave these keys "
                   "out; clients may have any optimizer",
                   s->server_optimizer->id, is_sgd ? " with these values" : ""));
}

/* The controls of SCAFFOLD and FedDyn are sums over clients whose parameters moved by their own gradients. */
static brim_status check_controls(const brim_setup *s)
{
  const char *name = brim_setup_is_feddyn(s) ? "FedDyn" : "SCAFFOLD";
  const brim_aggregator_ops *aggregator = brim_setup_aggregator(s);
  if (!brim_setup_has_controls(s)) return BRIM_OK;
  if (aggregator->merge || (aggregator->scale && brim_setup_is_feddyn(s)))
    return brim_setup_add_origin(
        s, brim_fail(BRIM_ECONFIG,
                     "'federate.local': %s needs a weighted mean of the updates, but aggregator=%s %s "
                     "them\nset federate.local=fedavg or fedprox, or aggregator=%s",
                     name, brim_config_aggregator(s->config)->plugin->id, aggregator->merge ? "compares" : "rescales",
                     brim_setup_is_feddyn(s) ? "uniform" : "fedavg"));
  if (s->settings->federate.compression != BRIM_COMPRESSION_NONE)
    return brim_setup_add_origin(
        s, brim_fail(BRIM_ECONFIG,
                     "'federate.local': %s cannot be combined with federate.compression: a compressed update "
                     "does not show the client's mean gradient\nset federate.local=fedavg or fedprox, or "
                     "federate.compression=none",
                     name));
  return brim_setup_is_feddyn(s) ? check_feddyn(s) : check_scaffold(s);
}

/* Rejects client states in asynchronous rounds, in which a client can train twice before its first state is committed.
 * config/federation.c rejects keys by name; this covers all kinds of states. */
static brim_status check_async(const brim_setup *s)
{
  if (!s->settings->federate.async || brim_setup_kept_bytes(s) == 0) return BRIM_OK;
  return brim_setup_add_origin(
      s, brim_fail(BRIM_ECONFIG,
                   "'federate.async' cannot be combined with client states, of which each client has %" PRIu64
                   " bytes here\nset federate.async=false, or leave out the options with client states",
                   brim_setup_kept_bytes(s)));
}

static brim_status check_finetuning(const brim_setup *s)
{
  if (s->settings->federate.finetune_epochs == 0 || s->data.train.task == BRIM_TASK_CLASS) return BRIM_OK;
  return brim_setup_add_origin(
      s, brim_fail(BRIM_ECONFIG,
                   "'federate.finetune_epochs' is for accuracies, but dataset=%s has no classes\nleave it "
                   "out",
                   brim_config_choice_of(s->config, "dataset")->name));
}

/* Checks privacy: clipping and noise do not cover running statistics. */
static brim_status check_privacy(brim_setup *s)
{
  if (!brim_privacy_has_noise(s->settings)) return BRIM_OK;
  if (s->buffer_bytes > 0)
    return brim_fail(
        BRIM_ECONFIG,
        "privacy.noise_multiplier cannot be combined with batch norm: its running statistics of a client's "
        "samples have no noise\nchoose another norm if model=%s offers it (model.norm=group or none), or "
        "another model",
        brim_config_choice_of(s->config, "model")->plugin->id);
  brim_privacy_account(s->settings, &s->account);
  return BRIM_OK;
}

int64_t brim_setup_least_clients(const brim_setup *s)
{
  return brim_privacy_has_noise(s->settings) ? 0 : s->settings->federate.min_clients;
}

double brim_setup_epsilon(const brim_setup *s, int64_t releases)
{
  return brim_privacy_has_noise(s->settings) ? brim_account_epsilon(&s->account, releases, s->settings->privacy.delta)
                                             : 0;
}

int64_t brim_setup_round_clients(const brim_setup *setup)
{
  const brim_settings *s = setup->settings;
  if (s->privacy.draws_poisson) return brim_privacy_most_clients(s);
  if (s->federate.async) return ENDS_MOST * s->clients_per_round + s->federate.concurrency;
  const double most = ceil((double)s->clients_per_round * (1 + s->federate.over_selection));
  return most < (double)s->total_clients ? (int64_t)most : s->total_clients;
}

/* Clients in flight started from at most as many versions as there are clients, so older versions are not needed. */
int64_t brim_setup_versions(const brim_setup *setup)
{
  const brim_federate_settings *f = &setup->settings->federate;
  if (!f->async || !f->train || f->max_staleness == 0) return 0;
  return (f->max_staleness < f->concurrency ? f->max_staleness : f->concurrency) + 1;
}

bool brim_setup_selector_needs(const brim_setup *s, uint32_t need)
{
  return (((const brim_selector_ops *)brim_config_method(s->config)->plugin->ops)->needs & need) != 0;
}

bool brim_setup_reads_updates(const brim_setup *s)
{
  const int32_t attack = s->settings->attack.kind;
  return brim_setup_aggregator(s)->merge || brim_setup_selector_needs(s, BRIM_NEED_SKETCH) ||
         attack == BRIM_ATTACK_SIGN_FLIP || attack == BRIM_ATTACK_NOISE;
}

static brim_status check_attack(const brim_setup *s)
{
  if (s->settings->attack.kind != BRIM_ATTACK_LABEL_FLIP || s->data.train.task == BRIM_TASK_CLASS) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG,
                   "attack.kind=label_flip needs classes, which dataset=%s, as configured, does not have\nset "
                   "attack.kind=sign_flip or attack.kind=noise",
                   brim_config_choice_of(s->config, "dataset")->name);
}

const brim_aggregator_ops *brim_setup_aggregator(const brim_setup *s)
{
  const brim_config_choice *choice = brim_config_aggregator(s->config);
  return (choice ? choice->plugin : &brim_aggregator_fedavg)->ops;
}

bool brim_setup_needs_losses(const brim_setup *s)
{
  return brim_setup_selector_needs(s, BRIM_NEED_LOSSES) ||
         (brim_setup_aggregator(s)->needs & BRIM_NEED_LOSS_BEFORE) != 0;
}

/* An isolated client may read only its own samples, and the server only those for validation; reading any other sample
 * is an error. Partitions and selectors may read the labels of all. */
static brim_status limit_view(brim_setup *s)
{
  const int64_t client = brim_setup_own_client(s);
  const bool validates = client < 0 && s->data.validation.count == 0;
  const int64_t samples = client >= 0 ? brim_partition_count(&s->partition, client)
                          : validates ? s->data.count[BRIM_PART_VALIDATION]
                                      : 0;
  if (!brim_setup_is_isolated(s)) return BRIM_OK;
  s->view = brim_try_calloc((size_t)(s->data.train.count + 7) / 8, 1);
  if (!s->view) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the view of a client");
  for (int64_t i = 0; i < samples; i++) {
    const int64_t sample = client >= 0 ? brim_partition_at(&s->partition, client, i)
                                       : brim_data_index(&s->data, BRIM_PART_VALIDATION, 0, i);
    s->view[sample / 8] |= (uint8_t)(1u << sample % 8);
  }
  s->data.view = s->view;
  return BRIM_OK;
}

brim_status brim_setup_open_federation(brim_setup *s)
{
  const brim_config_choice *server = brim_config_server_optimizer(s->config);
  const int32_t remainder = s->settings->federate.remainder;
  s->server_optimizer = server->plugin;
  s->server_params = server->params;
  if (s->features)
    return brim_fail(BRIM_ECONFIG,
                     "model=%s is trained on features that are computed once, but clients of a federation train on "
                     "samples\nuse model=lora or another model",
                     brim_config_choice_of(s->config, "model")->plugin->id);
  BRIM_TRY(check_rules(s));
  BRIM_TRY(check_norm_buffers(s));
  BRIM_TRY(check_controls(s));
  BRIM_TRY(check_attack(s));
  BRIM_TRY(check_async(s));
  BRIM_TRY(check_finetuning(s));
  BRIM_TRY(check_privacy(s));
  if ((brim_partition_reads_data(s->settings) || brim_setup_selector_needs(s, BRIM_NEED_LABELS)) && !s->data.opened) {
    s->reads = true;
    BRIM_TRY(brim_data_open_start(&s->data));
    BRIM_TRY(brim_data_open_finish(&s->data));
  }
  const double start = brim_now();
  BRIM_TRY(brim_partition_make(&s->data, &s->partition));
  brim_log(BRIM_LOG_DEBUG, "partition: samples assigned in %.1f ms", 1e3 * (brim_now() - start));
  s->drops_remainder = remainder == BRIM_REMAINDER_DROP || (remainder == BRIM_REMAINDER_AUTO && s->norm_group > 0);
  s->halves_remainder = count_remainders(s) > REMAINDERS_MAX;
  if (s->partition.moved > 0)
    brim_log(BRIM_LOG_INFO,
             "partition: %" PRId64 " sample%s went to clients that had fewer than %" PRId64 " (partition.min_samples)",
             s->partition.moved, brim_plural(s->partition.moved), s->settings->partition.min_samples);
  return limit_view(s);
}

/* A client with less than one whole batch trains on all of its samples. */
int64_t brim_setup_client_samples(const brim_setup *s, int64_t samples)
{
  const int64_t batch = s->settings->training.effective_batch_size;
  return s->drops_remainder && samples >= batch ? samples / batch * batch : samples;
}

int64_t brim_setup_client_micro(const brim_setup *s, int64_t batch, int64_t left)
{
  if (left >= batch) return batch;
  int64_t half = left;
  if (s->halves_remainder)
    for (half = 1; half * 2 <= left;) half *= 2;
  return half;
}

size_t brim_setup_client_sizes(const brim_setup *s, int64_t batch, int64_t size[BRIM_PROGRAMS_MAX])
{
  const int64_t full = s->settings->training.effective_batch_size;
  size_t count = 0;
  for (size_t i = 0; i < s->partition.size_count; i++) {
    const int64_t samples = brim_setup_client_samples(s, s->partition.size[i]), rest = samples % full;
    const int64_t steps[] = {samples >= full ? full : 0, rest};
    for (int k = 0; k < 2; k++)
      for (int64_t left = steps[k]; left > 0;) {
        const int64_t micro = brim_setup_client_micro(s, batch, left);
        size_t known = 0;
        while (known < count && size[known] != micro) known++;
        if (known == count && count < BRIM_PROGRAMS_MAX) size[count++] = micro;
        left = left / micro > 1 && micro == batch ? left % micro : left - micro;
      }
  }
  return count;
}

int64_t brim_setup_client_batch_max(const brim_setup *s, int64_t batch)
{
  int64_t size[BRIM_PROGRAMS_MAX], most = 1;
  const size_t count = brim_setup_client_sizes(s, batch, size);
  for (size_t i = 0; i < count; i++) most = size[i] > most ? size[i] : most;
  return most;
}

uint64_t brim_setup_client_bytes(const brim_setup *s, int64_t batch)
{
  const uint32_t real = s->backend_ops->real;
  const uint64_t each = brim_data_values_bytes(&s->data, real) + brim_data_label_bytes(&s->data, BRIM_PART_TRAIN, real);
  return s->data.scratch_bytes + brim_client_order_bytes(&s->partition) +
         (uint64_t)brim_setup_client_batch_max(s, batch) * each;
}
