/* The core's own settings, as parameter tables like a plugin's: sections of keys that are filled into one struct. The
 * groups (model, dataset, backend, optimizer, schedule, loss, policy) are plugins with tables of their own; a section
 * named like a group adds keys that the core reads. */
#ifndef BRIM_CONFIG_SETTINGS_H
#define BRIM_CONFIG_SETTINGS_H
#include "brim/plugin.h"

typedef struct brim_run_settings {
  const char *name, *dir;
} brim_run_settings;
typedef struct brim_training_settings {
  int64_t epochs, steps;
  int64_t batch_size;                  /* -1: auto */
  int64_t gradient_accumulation_steps; /* unused with batch_size auto */
  int64_t effective_batch_size;        /* samples in a step; 0: not resolved yet (config/config.c) */
  int64_t eval_batch_size, grain, norm_group, num_workers, num_train_samples, eval_every_steps, checkpoint_every_steps,
      keep_checkpoints, patience, clear_cache_every_n_rounds;
  double clip_norm, ema_decay;
} brim_training_settings;
typedef struct brim_model_settings {
  const char *weights, *weights_map, *weights_except; /* see store/weights.h; weights "": none */
} brim_model_settings;
/* The type in which a wrapper's backbone is stored. */
enum brim_store { BRIM_STORE_AUTO, BRIM_STORE_FP32, BRIM_STORE_BF16 };
typedef struct brim_backbone_settings {
  int32_t store; /* enum brim_store */
} brim_backbone_settings;
typedef struct brim_backend_settings {
  bool strict; /* see planner/strict.h */
} brim_backend_settings;
typedef struct brim_dataset_settings {
  double validation_fraction;
  brim_list mean, std;
} brim_dataset_settings;
typedef struct brim_optimizer_settings {
  int32_t update; /* enum brim_update_mode */
} brim_optimizer_settings;
/* Applied to every sample. */
typedef struct brim_transform_settings {
  brim_list size;        /* empty: unchanged size; one number; or rows and columns */
  int64_t resize;        /* 0: straight to `size` */
  int32_t interpolation; /* enum brim_filter */
  int32_t normalize;     /* enum brim_normalize */
} brim_transform_settings;
/* An entry of the list of augmentations, with its parameters. */
typedef struct brim_augment_choice {
  const brim_plugin *plugin;
  const void *params;
} brim_augment_choice;
/* Random changes of training samples. */
typedef struct brim_augment_settings {
  bool flip, random_crop, random_resized_crop;
  int64_t crop_padding;
  brim_list crop_scale, crop_ratio;
  double brightness, contrast, saturation, hue;
  double erase_probability;
  brim_list erase_scale, erase_ratio;
  double mixup;                      /* 0: off */
  const brim_augment_choice *chosen; /* the list `augmentation`; filled from choices, not from keys */
  size_t chosen_count;
} brim_augment_settings;
typedef struct brim_graph_settings {
  uint64_t fuse; /* of enum brim_fusion_kind */
} brim_graph_settings;
typedef struct brim_loss_scale_settings {
  bool dynamic;
  int64_t init_scale, growth_factor, growth_interval;
  double backoff_factor;
} brim_loss_scale_settings;
typedef struct brim_claims_settings {
  const char *dir;
} brim_claims_settings;
typedef struct brim_memory_settings {
  uint64_t limit_mb;
  double limit;
  uint64_t headroom_mb; /* UINT64_MAX: auto */
  int32_t recompute;    /* enum brim_recompute_kind */
  uint64_t recompute_budget_mb;
  int32_t offload;     /* enum brim_offload */
  const char *profile; /* empty: the default file in the user's cache folder */
  bool timing;
  double warn_percent, critical_percent, check_interval_seconds;
} brim_memory_settings;
typedef struct brim_dist_settings {
  int64_t ranks; /* -1: auto */
  int32_t shard; /* enum brim_shard of graph/shard.h */
  int32_t deal;  /* enum brim_deal */
  uint64_t bucket_mb;
  int64_t check_every_steps; /* 0: never */
  double timeout_seconds;
} brim_dist_settings;
/* How much state a process publishes while it runs: see memory/live.h. */
enum brim_live_mode { BRIM_LIVE_OFF, BRIM_LIVE_BASIC, BRIM_LIVE_ALL };
#define BRIM_LIVE_MODE_NAMES "off|basic|all"
typedef struct brim_observe_settings {
  int64_t log_every_steps, top_k, samples;
  bool report, tensorboard, memory_summary, histograms;
  int32_t live;      /* enum brim_live_mode */
  const char *trace; /* "100:103": steps; "": none */
  bool nvtx;
  double report_seconds;    /* 0: the report is written only at the end */
  const char *metrics_file; /* "": none */
} brim_observe_settings;
typedef struct brim_hooks_settings {
  const char *on_start, *on_evaluation, *on_checkpoint, *on_oom, *on_end; /* shell commands; "": none */
} brim_hooks_settings;

/* What happens to a client's samples that do not fill a batch. */
enum brim_remainder { BRIM_REMAINDER_AUTO, BRIM_REMAINDER_KEEP, BRIM_REMAINDER_DROP };
#define BRIM_REMAINDER_NAMES "auto|keep|drop"
/* What happens to a client whose parameters are no longer finite, or have moved by 512 or more. */
enum brim_divergence { BRIM_DIVERGENCE_DROP, BRIM_DIVERGENCE_FAIL };
#define BRIM_DIVERGENCE_NAMES "drop|fail"
/* The initial moving averages of a client's batch norms in a round: the global model's, or its own from its last
 * round. */
enum brim_norm_buffers { BRIM_NORM_BUFFERS_AVERAGE, BRIM_NORM_BUFFERS_KEEP };
#define BRIM_NORM_BUFFERS_NAMES "average|keep"
/* A client's training: its loss may include the distance from the global model, and its gradients may be corrected. */
enum brim_local {
  BRIM_LOCAL_FEDAVG,
  BRIM_LOCAL_FEDPROX,
  BRIM_LOCAL_SCAFFOLD,
  BRIM_LOCAL_SCAFFOLD_FEDPROX,
  BRIM_LOCAL_FEDDYN
};
#define BRIM_LOCAL_NAMES "fedavg|fedprox|scaffold|scaffold_fedprox|feddyn"
enum brim_compression {
  BRIM_COMPRESSION_NONE,
  BRIM_COMPRESSION_QUANTIZE,
  BRIM_COMPRESSION_SIGN,
  BRIM_COMPRESSION_TOP_K
};
#define BRIM_COMPRESSION_NAMES "none|quantize|sign|top_k"

/* Where clients are: views of one process's data, or separate processes, with one more for the server. */
enum brim_federate_mode { BRIM_FEDERATE_SIMULATE, BRIM_FEDERATE_PROCESSES };
#define BRIM_FEDERATE_MODE_NAMES "simulate|processes"

/* Models that clients have besides the global one. */
enum brim_personal { BRIM_PERSONAL_NONE, BRIM_PERSONAL_DITTO };
#define BRIM_PERSONAL_NAMES "none|ditto"

typedef struct brim_federate_settings {
  int64_t local_epochs;
  int32_t local;                /* enum brim_local */
  double mu;                    /* of fedprox; 0: none */
  double alpha;                 /* of feddyn */
  int32_t remainder;            /* enum brim_remainder */
  int32_t norm_buffers;         /* enum brim_norm_buffers */
  const char *local_parameters; /* shell patterns of parameters that stay with the client; "": none */
  int32_t personal;             /* enum brim_personal; ditto uses lambda and epochs */
  double personal_lambda;
  int64_t personal_epochs;
  int32_t on_divergence; /* enum brim_divergence */
  int32_t compression;   /* enum brim_compression */
  int64_t compression_bits;
  double compression_share;
  bool error_feedback; /* clients add the part of an update that compression left out to their next update */
  int64_t eval_every_rounds, checkpoint_every_rounds;
  double target_accuracy;       /* 0: none */
  double convergence_threshold; /* 0: off; otherwise patience and min_rounds apply */
  int64_t patience, min_rounds, min_clients;
  double deadline_seconds, over_selection; /* simulated; 0: none */
  bool train;                              /* false: clients are selected, but nothing is trained */
  int64_t finetune_epochs;                 /* epochs that each client trains before an evaluation at the end; 0: none */
  int64_t edges;                           /* nodes between clients and server; 0: none */
  int64_t edge_rounds;                     /* rounds of an edge with its clients in a round of the server */
  bool async;                              /* rounds end when clients_per_round of the clients in flight have arrived */
  int64_t concurrency, max_staleness;      /* clients in flight; rounds */
  double staleness_exponent;
  bool client_accuracy; /* evaluate clients' accuracy at the end, with one pass over the training data */
  int32_t mode;         /* enum brim_federate_mode */
} brim_federate_settings;

/* The connections of clients in the simulated world. In a round, a client has the same index in each list. */
typedef struct brim_network_settings {
  brim_list latency_ms, jitter_ms, bandwidth_mbit, loss_percent; /* all of the same length; 0: transfers take no time */
  bool sleep; /* clients really wait for the time of their transfers */
} brim_network_settings;

/* When clients of the simulated world are available, and what happens in a round with too few of them. */
enum brim_availability {
  BRIM_AVAILABILITY_ALWAYS,
  BRIM_AVAILABILITY_BERNOULLI,
  BRIM_AVAILABILITY_DAY,
  BRIM_AVAILABILITY_TRACE
};
#define BRIM_AVAILABILITY_NAMES "always|bernoulli|day|trace"
enum brim_too_few { BRIM_TOO_FEW_WAIT, BRIM_TOO_FEW_GO_ON };
#define BRIM_TOO_FEW_NAMES "wait|go_on"
typedef struct brim_world_settings {
  bool simulate;
  double gflops, speed_sigma;
  const char *devices;
  double compute_watts, radio_watts;
  double channel_least, channel_step;
  int32_t availability; /* enum brim_availability */
  double probability, day_seconds, day_share;
  const char *trace;
  double dropout, check_seconds;
  int32_t too_few; /* enum brim_too_few */
} brim_world_settings;

/* Attacks of malicious clients, for tests of aggregators. */
enum brim_attack { BRIM_ATTACK_NONE, BRIM_ATTACK_SIGN_FLIP, BRIM_ATTACK_NOISE, BRIM_ATTACK_LABEL_FLIP };
#define BRIM_ATTACK_NAMES "none|sign_flip|noise|label_flip"
typedef struct brim_attack_settings {
  int32_t kind;      /* enum brim_attack */
  double share;      /* share of all clients, chosen by the seed; 0: the ones in `clients` */
  brim_list clients; /* their numbers */
  double scale;
} brim_attack_settings;

/* Differential privacy of a federation's clients; see config/privacy.h. */
enum brim_noise_place { BRIM_NOISE_CENTRAL, BRIM_NOISE_LOCAL };
#define BRIM_NOISE_NAMES "central|local"
typedef struct brim_privacy_settings {
  double clip_norm; /* 0: no clipping, no noise */
  /* Settings of an adaptive clip norm; quantile 0: the clip norm is fixed. */
  double target_quantile, clip_norm_lr, count_stddev;
  int32_t noise;                               /* enum brim_noise_place */
  int64_t seed;                                /* 0: the noise depends only on the run's seed */
  double noise_multiplier, delta, max_epsilon; /* max_epsilon 0: no budget */
  bool draws_poisson; /* each client takes part in a round with the same probability, independently of the others */
  bool takes_turns;   /* method=round_robin */
} brim_privacy_settings;

/* How brim distributes training samples to the clients of a federation. */
enum brim_partition_kind {
  BRIM_PARTITION_IID,
  BRIM_PARTITION_DIRICHLET,
  BRIM_PARTITION_SHARDS,
  BRIM_PARTITION_DIRICHLET_EACH,
  BRIM_PARTITION_CLASSES,
  BRIM_PARTITION_NATURAL,
  BRIM_PARTITION_FILE
};
#define BRIM_PARTITION_NAMES "iid|dirichlet|shards|dirichlet_each|classes|natural|file"
/* The distribution of the clients' numbers of samples, where the partition does not determine it. */
enum brim_sizes { BRIM_SIZES_UNIFORM, BRIM_SIZES_LOGNORMAL, BRIM_SIZES_POWER_LAW };
#define BRIM_SIZES_NAMES "uniform|lognormal|power_law"
typedef struct brim_partition_settings {
  int32_t kind; /* enum brim_partition_kind */
  double alpha;
  int64_t shards, classes_per_client, min_samples;
  int32_t sizes; /* enum brim_sizes */
  double sigma, exponent;
  int64_t samples;  /* for dirichlet_each: mean per client; 0: the training samples divided by the clients */
  const char *path; /* path of a partition file; "": none */
} brim_partition_settings;

enum brim_update_mode { BRIM_UPDATE_STEP, BRIM_UPDATE_FUSED_BACKWARD };
#define BRIM_UPDATE_NAMES "step|fused_backward"

/* The filter for resizing images. */
enum brim_filter { BRIM_FILTER_NEAREST, BRIM_FILTER_BILINEAR, BRIM_FILTER_BICUBIC };
#define BRIM_FILTER_NAMES "nearest|bilinear|bicubic"

/* The source of the means and deviations with which samples are normalised. */
enum brim_normalize { BRIM_NORMALIZE_DATASET, BRIM_NORMALIZE_IMAGENET, BRIM_NORMALIZE_CLIP };
#define BRIM_NORMALIZE_NAMES "dataset|imagenet|clip"

/* State that is kept in host memory instead of on the device. */
enum brim_offload { BRIM_OFFLOAD_NONE, BRIM_OFFLOAD_OPTIMIZER };
#define BRIM_OFFLOAD_NAMES "none|optimizer"

/* How a step's samples are divided among the ranks. */
enum brim_deal { BRIM_DEAL_AUTO, BRIM_DEAL_EVEN };
#define BRIM_DEAL_NAMES "auto|even"

/* The type of activations, their gradients and copies of weights. */
enum brim_precision {
  BRIM_PRECISION_FP32,
  BRIM_PRECISION_BF16,
  BRIM_PRECISION_FP16,
  BRIM_PRECISION_AUTO,  /* depends on the device: see brim_setup_auto_precision */
  BRIM_PRECISION_POLICY /* a policy decides */
};
#define BRIM_PRECISION_NAMES "fp32|bf16|fp16|auto|policy"
#define BRIM_PRECISIONS 3
extern const char *const brim_precision_names[BRIM_PRECISIONS]; /* indexed by enum brim_precision */

typedef struct brim_settings {
  int64_t seed; /* section "" */
  const char *device;
  bool auto_device;
  uint64_t min_gpu_memory_mb;
  bool wait_for_gpu;
  double gpu_wait_timeout_minutes, gpu_check_interval_seconds;
  int64_t min_batch_size, max_retries;
  int32_t precision; /* enum brim_precision, as configured; brim_setup_precision returns the resolved one */
  int64_t total_clients, clients_per_round, rounds, parallel_clients; /* total_clients 0: no federation */
  int64_t repeats;                                                    /* 1 in the configuration of each run */
  const char *protocol;                                               /* a label */
  brim_run_settings run;
  brim_training_settings training;
  brim_model_settings model;
  brim_backbone_settings backbone;
  brim_backend_settings backend;
  brim_dataset_settings dataset;
  brim_optimizer_settings optimizer;
  brim_transform_settings transform;
  brim_augment_settings augment;
  brim_graph_settings graph;
  brim_memory_settings memory;
  brim_loss_scale_settings loss_scale;
  brim_claims_settings claims;
  brim_dist_settings dist;
  brim_observe_settings observe;
  brim_hooks_settings hooks;
  brim_federate_settings federate;
  brim_partition_settings partition;
  brim_network_settings network, edge_network; /* edge_network: connections between the server and edges */
  brim_world_settings world;
  brim_attack_settings attack;
  brim_privacy_settings privacy;
  bool has_world; /* federation with a simulated world: a key of network or world, a deadline or an over-selection is
                     set */
} brim_settings;

/* Whether a value may be edited when a run is resumed. */
enum brim_edit { BRIM_EDIT_REFUSED, BRIM_EDIT_FREE, BRIM_EDIT_CUT };
typedef struct brim_setting {
  brim_param param;
  enum brim_edit edit;
  bool replayed; /* decisions of a run depend on the value, so a recorded scenario contains it */
} brim_setting;
typedef struct brim_section {
  const char *path;          /* "" for top-level keys, "training", ... */
  const brim_setting *table; /* offsets within the section's own struct */
  size_t offset, size;       /* place and size of that struct in brim_settings */
  bool of_clients;           /* resolved configurations show the section only in federations, or if it is set */
} brim_section;
extern const brim_section brim_settings_sections[]; /* ends with path == NULL */

typedef struct brim_group {
  const char *name; /* "model" */
  enum brim_kind kind;
  const char *list;     /* the group is a list of options, with this default; NULL: it has one option */
  const char *fallback; /* default of a group with one option; NULL: a choice is required */
  bool is_optional; /* no option is chosen by default; if another group has the same kind, both have the same options */
} brim_group;
extern const brim_group brim_config_groups[]; /* ends with name == NULL */
/* The group with this name of `length` bytes; NULL: none. */
const brim_group *brim_group_find(const char *name, size_t length);
/* The row of a key of the core, whose name has `length` bytes, in a section; NULL: none. */
const brim_setting *brim_setting_find(const char *section, const char *key, size_t length);
/* Whether training samples are mixed with other samples. */
bool brim_settings_mix(const brim_settings *settings);
/* Writes the setting that mixes samples, such as "augment.mixup=0.2", to `out`, and returns it. Call only if samples
 * are mixed. */
const char *brim_settings_mixing(const brim_settings *settings, char *out, size_t room);
/* Whether an earlier group has the same kind, so that both have the same options. */
bool brim_config_group_is_second(int group);
#endif
