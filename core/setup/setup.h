/* What a run is made of before any memory is taken: the configuration, the chosen plugins' instances, the data, the
 * loss, and this rank's part of a step. It is opened once and then const, but for the ranks' agreement on how samples
 * are dealt (drive/deal.h), and for the data, which a thread may read meanwhile. */
#ifndef BRIM_SETUP_SETUP_H
#define BRIM_SETUP_SETUP_H
#include <jansson.h>

#include "builtin/builtin.h"
#include "config/config.h"
#include "data/data.h"
#include "data/order.h"
#include "data/partition.h"
#include "dist/dist.h"
#include "graph/plan.h"
#include "setup/dealing.h"

#define BRIM_AGAIN_MAX 4
#define BRIM_SETUP_DATA_NAME "data.json" /* in a run's folder: what it keeps of its data */

/* What a policy asks for, or the data, that needs another configuration: words that take the place of others. */
typedef struct brim_again {
  const char *word[BRIM_AGAIN_MAX];
  size_t count; /* 0: nothing */
  bool by_data; /* not by a policy */
} brim_again;

struct brim_setup;

/* Who makes setups in the place of brim_setup_open and brim_setup_finish: a simulation. */
typedef struct brim_setup_maker {
  void *context;
  brim_status (*open)(void *context, struct brim_setup *setup);
  /* [init] Takes of what is asked for what is none of the configuration's matter. ECONFIG. */
  brim_status (*hear)(void *context, brim_again *again);
} brim_setup_maker;

typedef struct brim_setup_options {
  bool read_data;                /* a thread reads the data, from brim_setup_start_data on */
  const char *resume;            /* folder of the run that is gone on with; NULL: a new one */
  const char *run;               /* folder of a run whose model is asked about something; NULL: of none */
  bool unread;                   /* that is about samples of elsewhere: the run's data need not be there */
  const volatile int *stop;      /* waiting for a device ends when it becomes nonzero; NULL: never */
  bool whole;                    /* a model around a backbone is evaluated with it, also if features could be kept */
  bool no_timing;                /* nothing is timed, whatever memory.timing says */
  brim_dist *dist;               /* the job that this process is a rank of; NULL: it is alone */
  brim_world world;              /* without a job, the rank that is planned for; ranks 0: one of one */
  const brim_setup_maker *maker; /* NULL: nobody, as in every run */
} brim_setup_options;

typedef struct brim_feature_set brim_feature_set; /* setup/features.h */

typedef struct brim_setup {
  const brim_config *config;
  brim_config *own_config; /* that was asked for (brim_again), in the place of the caller's; NULL: none */
  const brim_settings *settings;
  brim_setup_options options;
  brim_world world;                /* which rank of how many it is */
  void *model, *dataset, *backend; /* instances */
  void *backbone;                  /* that the model is around; NULL: none */
  brim_feature_set *features;      /* that the model is trained on, in the place of samples; NULL: of samples */
  const brim_backend_ops *backend_ops;
  const brim_plugin *optimizer;
  const brim_plugin *schedule;
  const void *optimizer_params, *schedule_params;
  brim_graph_loss loss;
  int32_t top_k;           /* resolved; 0: off */
  int64_t answers;         /* numbers that the model answers with: see brim_classes */
  brim_list class_weights; /* of the loss; count 0: none */
  brim_list label_weights; /* what a sample of each class counts for in the mean of losses; count 0: 1 */
  double *counted;         /* label_weights' own, if a class does not count at all; else NULL */
  int64_t grain;           /* resolved */
  int64_t norm_group;      /* 0: the model has no statistics of groups of samples */
  uint64_t buffer_bytes;   /* of the model's moving averages (brim_graph_buffer) that are not frozen */
  brim_dealing deal;       /* what each rank has of a step */
  brim_data data;
  brim_partition partition;            /* of a federation: what each client has; clients is 0 without a federation */
  const brim_plugin *server_optimizer; /* of a federation */
  const void *server_params;
  bool drops_remainder;  /* clients train on whole batches only */
  bool halves_remainder; /* what fills no whole batch is cut into powers of two, as it comes in too many sizes */
  bool reads;            /* brim_setup_start_data was called, and the data is to be read */
  json_t *kept;          /* of the data, as data/keep.h has it; made when it is described */
  json_t *was;           /* the same, as the run of the options keeps it; NULL: it has none */
  brim_again again;      /* what the data asks for */
  brim_arena arena;      /* its words */
} brim_setup;

/* ---- opening ---- */

/* [init] Of a configuration, which must outlive the setup; `own`: the same, if it is the setup's to free, else NULL. */
brim_setup *brim_setup_create(const brim_config *config, brim_config *own, const brim_setup_options *options);
/* [init] Makes the instance of the backend, and no other yet. ECONFIG, ENODEVICE, and what the backend returns. */
brim_status brim_setup_open(brim_setup *setup);
/* [init] The rest, for a device like the one that was chosen: describes the data, makes the other instances, looks at
 * the model. Of a run's folder: ELOAD, naming the differences, if the data is not what the run keeps of it. ECONFIG
 * with setup->again if the data asks for another configuration. */
brim_status brim_setup_finish(brim_setup *setup, const brim_device_info *device);
/* [init] NULL: nothing. */
void brim_setup_close(brim_setup *setup);
/* [init] Begins to read the data on a thread, if it is to be read. Again: nothing. */
brim_status brim_setup_start_data(brim_setup *setup);
/* [init] Waits until the data is read; afterwards samples can be had. */
brim_status brim_setup_finish_data(brim_setup *setup);

/* ---- what it says ---- */

/* Of the configuration, "cpu". */
const char *brim_setup_backend_id(const brim_setup *setup);
/* As configured; fp32 for `auto`, until somebody chooses another. */
int32_t brim_setup_precision(const brim_setup *setup);
/* Samples in a micro-batch as configured; for `auto` the effective batch. */
int64_t brim_setup_micro_batch(const brim_setup *setup);
/* Precisions that the backend has and the run's updates go with: bit 1 << enum brim_precision of each. */
uint32_t brim_setup_precisions(const brim_setup *setup);
/* Is each parameter updated in the backward pass (optimizer.update)? */
bool brim_setup_updates_in_backward(const brim_setup *setup);
/* ECONFIG: with micro-batches of `batch` samples a step has several, which such updates do not go with. */
brim_status brim_setup_refuse_accumulation(const brim_setup *setup, int64_t batch);
/* May brim choose what is made again? Not where the user has set memory.recompute to another than auto. */
bool brim_setup_may_recompute(const brim_setup *setup);
/* May anything be timed, as far as settings and options go? */
bool brim_setup_may_time(const brim_setup *setup);
/* The model's graph for a precision, but for its batch and programs. */
brim_graph_options brim_setup_graph_options(const brim_setup *setup, int32_t precision);

/* ---- how a step is cut (share.c) ---- */

/* May micro-batches have `batch` samples, and the effective batch be as it is? Not if they cut norm groups. One that is
 * larger than the rank's share of a step stands for all of it, where there are several ranks. */
bool brim_setup_allows(const brim_setup *setup, int64_t batch);
/* Of several ranks, none cuts larger micro-batches than its share; nor smaller ones than the least that can be planned
 * if it has none. */
int64_t brim_setup_limit_batch(const brim_setup *setup, int64_t batch);
/* How training goes in micro-batches of `batch` samples. One rank makes whole ones of a step, also if they divide no
 * effective batch: `brim plan` shows some of those. */
brim_order brim_setup_order(const brim_setup *setup, int64_t batch);
/* Samples that are evaluated at a time, where `batch` are trained on: as configured, or as many. */
int64_t brim_setup_eval_batch(const brim_setup *setup, int64_t batch);
/* This rank's samples of a full step, which may be none; of one rank the effective batch. */
int64_t brim_setup_share(const brim_setup *setup);
/* Micro-batches that they are cut into. */
int64_t brim_setup_micros(const brim_setup *setup, int64_t batch);
/* Samples that a step trains on, on all ranks: the effective batch, or all training samples if they are fewer. */
int64_t brim_setup_all_samples(const brim_setup *setup);
/* This rank's of them, and the micro-batches that they are cut into. */
int64_t brim_setup_step_samples(const brim_setup *setup);
int64_t brim_setup_step_micros(const brim_setup *setup, int64_t batch);
/* Do its results differ by rounding from those of micro-batches that are multiples of the grain? */
bool brim_setup_rounds(const brim_setup *setup, int64_t batch);
/* "64 x 2", or where the last is another, "64 x 2 + 16"; "none" of a rank without samples. Into `out`, returned. */
#define BRIM_CUT_ROOM 96
const char *brim_setup_format_cut(const brim_setup *setup, int64_t batch, char *out, size_t room);
/* What a rank has to do in a run, apart from how it cuts it: ranks of the same load have the same plans. */
typedef struct brim_load {
  int64_t share, last_share; /* samples of a full step, and of an epoch's last */
  int64_t validation, test;  /* samples that it evaluates */
} brim_load;
brim_load brim_setup_load(const brim_setup *setup, int32_t rank);
/* This rank's samples of a part that is evaluated: as many for each; may be none. */
void brim_setup_part(const brim_setup *setup, enum brim_part part, int64_t *first, int64_t *count);
/* Groups of batch norm in a step of so many samples, of all ranks. */
int64_t brim_setup_norm_groups(const brim_setup *setup, int64_t samples);
/* What the samples count for in the mean of losses: each 1, or the weight of its class; of tokens the sum over those
 * that count. *tokens: how many these are, if it is tokens. Both are added to. */
void brim_setup_weigh(const brim_setup *setup, const brim_batch *batch, double *weight, double *tokens);
/* Losses that a sample has: one, or of tokens one for each. */
int64_t brim_setup_losses_each(const brim_setup *setup);

/* ---- the clients of a federation ---- */

static inline bool brim_setup_is_federated(const brim_setup *setup)
{
  return setup->settings->total_clients > 0;
}
/* FedProx's mu; 0: clients train on their own losses alone, and their updates have no node for it. */
static inline double brim_setup_mu(const brim_setup *setup)
{
  return setup->settings->federate.local == BRIM_LOCAL_FEDPROX ? setup->settings->federate.mu : 0;
}
/* Samples that a client with so many trains on in a local epoch. */
int64_t brim_setup_client_samples(const brim_setup *setup, int64_t samples);
/* Of a client's step with `left` samples still to come, how many are in the next micro-batch, where micro-batches have
 * `batch`. */
int64_t brim_setup_client_micro(const brim_setup *setup, int64_t batch, int64_t left);
/* Does the selector need that (enum brim_selector_need)? */
bool brim_setup_selector_needs(const brim_setup *setup, uint32_t need);
/* Clients that a round selects at most. */
int64_t brim_setup_round_clients(const brim_setup *setup);
/* Bytes that the host keeps for each client from round to round: see federate/kept.h. */
uint64_t brim_setup_kept_bytes(const brim_setup *setup);
/* The different sizes of micro-batches of all clients, where full ones have `batch`; returns how many. */
size_t brim_setup_client_sizes(const brim_setup *setup, int64_t batch, int64_t size[BRIM_PROGRAMS_MAX]);

/* Samples in the largest of these, and host memory for one such micro-batch of a client and what reads it. */
int64_t brim_setup_client_batch_max(const brim_setup *setup, int64_t batch);
uint64_t brim_setup_client_bytes(const brim_setup *setup, int64_t batch);

/* What training's loader is opened with, where micro-batches have `batch` samples, and that of an evaluation of a part,
 * but for their streams. */
brim_loader_options brim_setup_train_loader(const brim_setup *setup, int64_t batch);
brim_loader_options brim_setup_part_loader(const brim_setup *setup, enum brim_part part, int64_t batch);
/* Ranks that only add up what the others have computed are seldom what somebody wants. */
void brim_setup_warn_of_idle_ranks(const brim_setup *setup);
#endif
