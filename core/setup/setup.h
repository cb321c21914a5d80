/* The parts of a run before any memory is allocated: the configuration, the chosen plugins' instances, the data, the
 * loss, and this rank's part of a step. Once open, a setup is const, except for the ranks' agreement on the
 * distribution of samples (drive/distribute.h) and for the data, which a thread may be reading. */
#ifndef BRIM_SETUP_SETUP_H
#define BRIM_SETUP_SETUP_H
#include <jansson.h>

#include "builtin/builtin.h"
#include "config/config.h"
#include "config/privacy.h"
#include "data/data.h"
#include "data/order.h"
#include "data/partition.h"
#include "dist/dist.h"
#include "graph/plan.h"
#include "setup/distribution.h"
#include "store/states.h"

#define BRIM_AGAIN_MAX 4
#define BRIM_SETUP_DATA_NAME "data.json" /* the file in a run's folder with the record of its data */

/* A policy's or the data's request for another configuration: words that replace others. */
typedef struct brim_again {
  const char *word[BRIM_AGAIN_MAX];
  size_t count; /* 0: no request */
  bool by_data; /* requested by the data, not by a policy */
} brim_again;

struct brim_setup;

/* Functions that replace brim_setup_open and brim_setup_finish, for simulations. */
typedef struct brim_setup_maker {
  void *context;
  brim_status (*open)(void *context, struct brim_setup *setup);
  /* [init] Handles the requests that do not concern the configuration, and removes them. ECONFIG. */
  brim_status (*hear)(void *context, brim_again *again);
} brim_setup_maker;

typedef struct brim_setup_options {
  bool read_data;                /* let a thread read the data, from brim_setup_start_data on */
  const char *resume;            /* folder of the run to resume; NULL: a new run */
  const char *run;               /* folder of a run whose model evaluates or predicts; may be NULL */
  bool unread;                   /* the samples come from elsewhere, so the configured data may be missing */
  const volatile int *stop;      /* the wait for a device ends when it becomes nonzero; may be NULL */
  bool whole;                    /* evaluate a model together with its backbone, even if it could use stored features */
  bool no_timing;                /* disables timing, overriding memory.timing */
  brim_dist *dist;               /* the job of which this process is a rank; NULL: a single process */
  brim_world world;              /* without a job, the rank to plan for; ranks 0: a single rank */
  const brim_setup_maker *maker; /* NULL: no replacement, as in every run */
} brim_setup_options;

typedef struct brim_feature_set brim_feature_set; /* setup/features.h */

typedef struct brim_setup {
  const brim_config *config;
  /* the configuration made on request (brim_again), which replaces the caller's; may be NULL */
  brim_config *own_config;
  const brim_settings *settings;
  brim_setup_options options;
  brim_world world;                /* this rank, and the number of ranks */
  void *model, *dataset, *backend; /* instances */
  void *backbone;                  /* the instance of the wrapped model; may be NULL */
  brim_feature_set *features;      /* the features that replace samples in training; NULL: training uses samples */
  const brim_backend_ops *backend_ops;
  const brim_plugin *optimizer;
  const brim_plugin *schedule;
  const void *optimizer_params, *schedule_params;
  brim_graph_loss loss;
  int32_t top_k;                  /* resolved; 0: off */
  int64_t answers;                /* numbers that the model outputs: see brim_classes */
  brim_list class_weights;        /* the loss's weights; count 0: unweighted */
  brim_list label_weights;        /* the weight of each class's samples in the mean loss; count 0: all 1 */
  uint8_t *view;                  /* for an isolated client: a bit for each sample that it may read; else NULL */
  double *counted;                /* memory for label_weights if a class has no weight; else NULL */
  int64_t grain;                  /* resolved */
  int32_t precision;              /* enum brim_precision; resolved: never auto or policy */
  int64_t norm_group;             /* 0: the model has no statistics over groups of samples */
  uint64_t buffer_bytes;          /* bytes of the model's moving averages (brim_graph_buffer) that are not frozen */
  uint64_t kept_bytes;            /* bytes of a client state */
  uint64_t kept_scratch_bytes;    /* host memory of a lane that works with client states */
  uint64_t control_bytes;         /* host memory of the server's controls */
  brim_distribution distribution; /* each rank's part of a step */
  brim_data data;
  brim_partition partition;            /* in a federation: each client's samples; without a federation `clients` is 0 */
  const brim_plugin *server_optimizer; /* the server's optimizer in a federation */
  const void *server_params;
  brim_account account;  /* for a federation with noise */
  bool drops_remainder;  /* clients train on whole batches only */
  bool halves_remainder; /* an incomplete batch is divided into powers of two, to limit the number of sizes */
  bool reads;            /* brim_setup_start_data was called, and the data must be read */
  json_t *kept;          /* the description of the data: see data/keep.h */
  json_t *was;           /* the description that the run's folder has; NULL: none */
  brim_again again;      /* the data's request */
  brim_arena arena;      /* memory of the request's words */
} brim_setup;

/* ---- opening ---- */

/* [init] Makes a setup for a configuration, which must outlive it; `own`: the same configuration if the setup must free
 * it, else NULL. */
brim_setup *brim_setup_create(const brim_config *config, brim_config *own, const brim_setup_options *options);
/* [init] Makes the instance of the backend, and no other instance yet. ECONFIG, ENODEVICE, and errors of the
 * backend. */
brim_status brim_setup_open(brim_setup *setup);
/* [init] Completes the setup for a device like the chosen one: describes the data, makes the other instances, and
 * inspects the model. If the setup is for a run's folder: ELOAD, naming the differences, if the data does not match the
 * run's record. ECONFIG with setup->again if the data requests another configuration. */
brim_status brim_setup_finish(brim_setup *setup, const brim_device_info *device);
/* [init] May be NULL. */
void brim_setup_close(brim_setup *setup);
/* [init] Starts reading the data on a thread, if it must be read. Later calls do nothing. */
brim_status brim_setup_start_data(brim_setup *setup);
/* [init] Waits until the data is read; afterwards samples are available. */
brim_status brim_setup_finish_data(brim_setup *setup);

/* ---- properties ---- */

/* The configured one: "cpu". */
const char *brim_setup_backend_id(const brim_setup *setup);
/* The configured precision. For `auto` the device's, and fp32 until brim_setup_see_device; for `policy` fp32, until a
 * policy requests another configuration. */
int32_t brim_setup_precision(const brim_setup *setup);
/* The precision that `auto` means on a device: bf16 if the device is not the host and has instructions that multiply
 * bf16, and the backend stores bf16; else fp32. It does not depend on memory or times. */
int32_t brim_setup_auto_precision(const brim_setup *setup, const brim_device_info *device);
/* [init] Resolves precision=auto for the chosen device; call it before plans are made. */
void brim_setup_see_device(brim_setup *setup, const brim_device_info *device);
/* Whether the device has instructions that multiply values of this precision (enum brim_precision). If not, it converts
 * them to fp32 first, so the precision saves memory but no time. */
bool brim_setup_multiplies(const brim_setup *setup, const brim_device_info *device, int32_t precision);
/* Samples in a micro-batch as configured; for `auto` the effective batch. */
int64_t brim_setup_micro_batch(const brim_setup *setup);
/* Precisions that the backend and the run's updates support: bit 1 << enum brim_precision for each. */
uint32_t brim_setup_precisions(const brim_setup *setup);
/* Whether each parameter is updated during the backward pass (optimizer.update). */
bool brim_setup_updates_in_backward(const brim_setup *setup);
/* Fails with ECONFIG: updates during the backward pass need steps of one micro-batch, and `batch` samples are fewer. */
brim_status brim_setup_refuse_accumulation(const brim_setup *setup, int64_t batch);
/* Whether brim may choose the recompute: not if the user set memory.recompute to anything but auto. */
bool brim_setup_may_recompute(const brim_setup *setup);
/* Whether settings and options allow timing. */
bool brim_setup_may_time(const brim_setup *setup);
/* Whether the backend plans for a device that is only described (backend.card). */
bool brim_setup_is_described(const brim_setup *setup);
/* Whether the run lists samples with wrong answers (observe.samples): its plans keep the answers of evaluations. False
 * for tokens, and with very many classes, because the loss then may not compute the answers (graph/build.c). */
bool brim_setup_keeps_answers(const brim_setup *setup);
/* Whether the run lists the tokens with the greatest losses instead. */
bool brim_setup_keeps_token_losses(const brim_setup *setup);
/* The options of the model's graph for a precision, except for batch and programs. */
brim_graph_options brim_setup_graph_options(const brim_setup *setup, int32_t precision);

/* ---- micro-batches of a step (share.c) ---- */

/* Whether micro-batches of `batch` samples are possible without changing the effective batch: not if they split norm
 * groups. With several ranks, a micro-batch larger than the rank's share of a step means the whole share. */
bool brim_setup_allows(const brim_setup *setup, int64_t batch);
/* With several ranks, limits the micro-batch to the rank's share; for a rank without samples, to the smallest that can
 * be planned. */
int64_t brim_setup_limit_batch(const brim_setup *setup, int64_t batch);
/* The order of training in micro-batches of `batch` samples. A single rank divides steps into whole micro-batches even
 * if `batch` does not divide the effective batch: `brim plan` shows some such sizes. */
brim_order brim_setup_order(const brim_setup *setup, int64_t batch);
/* The number of samples in an evaluation batch, if training's micro-batches have `batch` samples: as configured, or
 * `batch`. */
int64_t brim_setup_eval_batch(const brim_setup *setup, int64_t batch);
/* The number of samples in a unit of evaluation; each rank evaluates whole units. In a federation a unit is a batch of
 * the configured size, so that sums over a unit do not depend on ranks, nor on the plan if its batches divide the unit.
 * Otherwise a unit is one sample. */
int64_t brim_setup_eval_unit(const brim_setup *setup);
/* This rank's samples of a full step, which may be none; with one rank the effective batch. */
int64_t brim_setup_share(const brim_setup *setup);
/* The number of micro-batches in this rank's share. */
int64_t brim_setup_micros(const brim_setup *setup, int64_t batch);
/* Samples of a step on all ranks: the effective batch, or all training samples if they are fewer. */
int64_t brim_setup_all_samples(const brim_setup *setup);
/* This rank's part of these samples, and its number of micro-batches. */
int64_t brim_setup_step_samples(const brim_setup *setup);
int64_t brim_setup_step_micros(const brim_setup *setup, int64_t batch);
/* Whether results with this micro-batch differ by rounding from those with multiples of the grain. */
bool brim_setup_rounds(const brim_setup *setup, int64_t batch);
/* Formats "64 x 2", or "64 x 2 + 16" if the last micro-batch is smaller; "none" for a rank without samples. Writes to
 * `out` and returns it. */
#define BRIM_CUT_ROOM 96
const char *brim_setup_format_cut(const brim_setup *setup, int64_t batch, char *out, size_t room);
/* The work of a rank in a run, apart from its division into micro-batches: ranks with the same load have the same
 * plans. */
typedef struct brim_load {
  int64_t share, last_share; /* samples of a full step, and of an epoch's last step */
  int64_t validation, test;  /* samples that it evaluates */
} brim_load;
brim_load brim_setup_load(const brim_setup *setup, int32_t rank);
/* This rank's samples of a part in evaluation: an even share, perhaps none. */
void brim_setup_part(const brim_setup *setup, enum brim_part part, int64_t *first, int64_t *count);
/* The number of batch norm's groups in a step with this many samples, on all ranks. */
int64_t brim_setup_norm_groups(const brim_setup *setup, int64_t samples);
/* Adds the samples' weight in the mean loss to *weight: 1 each, or the weight of their class; for tokens, the sum over
 * the tokens that count, whose number is added to *tokens. */
void brim_setup_weigh(const brim_setup *setup, const brim_batch *batch, double *weight, double *tokens);
/* The number of losses of a sample: one, or for tokens one per token. */
int64_t brim_setup_losses_each(const brim_setup *setup);

/* ---- the clients of a federation ---- */

static inline bool brim_setup_is_federated(const brim_setup *setup)
{
  return setup->settings->total_clients > 0;
}
/* Whether each client of the federation has a process of its own (federate.mode=processes). Then rank 0 is the server,
 * and rank r trains client r - 1. */
static inline bool brim_setup_is_isolated(const brim_setup *setup)
{
  return brim_setup_is_federated(setup) && setup->settings->federate.mode == BRIM_FEDERATE_PROCESSES &&
         setup->world.ranks > 1;
}
/* The client that this process trains; -1: this process is the server. */
static inline int64_t brim_setup_own_client(const brim_setup *setup)
{
  return setup->world.rank - 1;
}
static inline int32_t brim_setup_rank_of_client(int64_t client)
{
  return (int32_t)client + 1;
}
/* The factor of the distance from the global model, FedProx's mu or FedDyn's alpha; 0: the loss has no such term. */
static inline double brim_setup_mu(const brim_setup *setup)
{
  const int32_t local = setup->settings->federate.local;
  if (local == BRIM_LOCAL_FEDDYN) return setup->settings->federate.alpha;
  return local == BRIM_LOCAL_FEDPROX || local == BRIM_LOCAL_SCAFFOLD_FEDPROX ? setup->settings->federate.mu : 0;
}
static inline bool brim_setup_is_feddyn(const brim_setup *setup)
{
  return setup->settings->federate.local == BRIM_LOCAL_FEDDYN;
}
/* Whether controls correct clients' gradients (federate/control.h). */
static inline bool brim_setup_has_controls(const brim_setup *setup)
{
  return setup->settings->federate.local >= BRIM_LOCAL_SCAFFOLD;
}
/* Whether clients store the values that compression left out of their updates (federate.error_feedback). */
static inline bool brim_setup_has_feedback(const brim_setup *setup)
{
  return setup->settings->federate.error_feedback && setup->settings->federate.compression != BRIM_COMPRESSION_NONE;
}
/* Whether clients have personal models besides the global one. */
static inline bool brim_setup_is_ditto(const brim_setup *setup)
{
  return setup->settings->federate.personal == BRIM_PERSONAL_DITTO;
}
/* Whether the global model is evaluated at the end of the run after each client has trained it. */
static inline bool brim_setup_finetunes(const brim_setup *setup)
{
  return setup->settings->federate.finetune_epochs > 0 && setup->settings->federate.train &&
         setup->data.train.task == BRIM_TASK_CLASS;
}
/* Whether the lanes evaluate models of clients at the end of the run. */
static inline bool brim_setup_scores_clients(const brim_setup *setup)
{
  const bool is_personal = brim_setup_is_ditto(setup) && setup->settings->federate.client_accuracy;
  return brim_setup_finetunes(setup) || (is_personal && setup->data.train.task == BRIM_TASK_CLASS);
}
/* Whether clients and server send each other controls. False for FedDyn, whose server computes its control from the
 * updates. */
static inline bool brim_setup_sends_controls(const brim_setup *setup)
{
  return brim_setup_has_controls(setup) && !brim_setup_is_feddyn(setup);
}
/* Whether clients have local parameters, so that each has a model of its own instead of the global one. */
static inline bool brim_setup_is_personal(const brim_setup *setup)
{
  return setup->settings->federate.local_parameters[0] != '\0';
}
/* Samples of a local epoch of a client that has `samples`. */
int64_t brim_setup_client_samples(const brim_setup *setup, int64_t samples);
/* The size of the next micro-batch when `left` samples of a client's step remain; full micro-batches have `batch`
 * samples. */
int64_t brim_setup_client_micro(const brim_setup *setup, int64_t batch, int64_t left);
/* The aggregator, which combines the updates of a federation's clients. */
const struct brim_aggregator_ops *brim_setup_aggregator(const brim_setup *setup);
/* Whether the selector or the aggregator needs clients' losses under the global model. */
bool brim_setup_needs_losses(const brim_setup *setup);
/* The number of values that federate.compression=top_k sends of a parameter's change with `count` values. */
int64_t brim_setup_compressed_count(const brim_setup *setup, int64_t count);
/* Bytes that a client sends for the change of a parameter with `count` values, in the simulated world. */
int64_t brim_setup_compressed_bytes(const brim_setup *setup, int64_t count);
/* Host memory of a lane to compress an update whose largest parameter has `count` values: see federate/compress.h. */
uint64_t brim_setup_compressing_bytes(const brim_setup *setup, int64_t count);
/* Whether the selector needs this (enum brim_selector_need). */
bool brim_setup_selector_needs(const brim_setup *setup, uint32_t need);
/* Whether the host reads clients' updates; each lane then has room for twice the largest parameter. */
bool brim_setup_reads_updates(const brim_setup *setup);
/* The maximum number of clients that a round selects. */
int64_t brim_setup_round_clients(const brim_setup *setup);
/* The number of versions of the global model that are kept for clients in flight, including the current one; 0:
 * none. */
int64_t brim_setup_versions(const brim_setup *setup);
/* The smallest number of updates of a round. With noise it is 0, because the result must not show that a client is
 * missing. */
int64_t brim_setup_least_clients(const brim_setup *setup);
/* Epsilon after this number of releases; see brim_privacy_releases. 0 without noise. */
double brim_setup_epsilon(const brim_setup *setup, int64_t releases);
/* Whether the parameter's value is part of a client state; see federate/kept.h. */
bool brim_setup_keeps(const brim_setup *setup, const brim_parameter *parameter);
/* Bytes of a client state (0: clients have none); the layout of the file of states, except for its hash; and the most
 * bytes that this file will take. */
uint64_t brim_setup_kept_bytes(const brim_setup *setup);
brim_states_layout brim_setup_states_layout(const brim_setup *setup);
uint64_t brim_setup_states_bytes(const brim_setup *setup);
/* Checks that the disk of the run's folder has room for that file. EBUDGET with the numbers. */
brim_status brim_setup_check_disk(const brim_setup *setup);
/* Lists the different sizes of micro-batches of all clients, where full ones have `batch` samples; returns their
 * number. */
size_t brim_setup_client_sizes(const brim_setup *setup, int64_t batch, int64_t size[BRIM_PROGRAMS_MAX]);

/* The largest of these sizes, and the host memory for one such micro-batch with its readers. */
int64_t brim_setup_client_batch_max(const brim_setup *setup, int64_t batch);
uint64_t brim_setup_client_bytes(const brim_setup *setup, int64_t batch);

/* The options of the loader for training, with micro-batches of `batch` samples, and of the loader for evaluating a
 * part. The caller adds their streams. */
brim_loader_options brim_setup_train_loader(const brim_setup *setup, int64_t batch);
brim_loader_options brim_setup_part_loader(const brim_setup *setup, enum brim_part part, int64_t batch);
/* Warns of ranks without samples, which only take part in sums: the user probably did not intend that. */
void brim_setup_warn_of_idle_ranks(const brim_setup *setup);
#endif
