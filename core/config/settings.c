/* All keys that the core reads. */
#include "config/settings.h"

#include <stdio.h>

#include "brim/augment.h"
#include "config/schema.h"
#include "graph/fuse.h"
#include "graph/recompute.h"
#include "graph/shard.h"

/* Whether the value may be edited when a run is resumed. FREE: yes; plan, folders and records may then differ, but
 * training does not. FIXED: no. CUT: yes, as long as the effective batch does not change. */
#define FREE(...)                                                                                                      \
  {                                                                                                                    \
    BRIM_PARAM(__VA_ARGS__), BRIM_EDIT_FREE, false                                                                     \
  }
#define FIXED(...)                                                                                                     \
  {                                                                                                                    \
    BRIM_PARAM(__VA_ARGS__), BRIM_EDIT_REFUSED, false                                                                  \
  }
/* A key whose value is also recorded in the scenario of a run. `edit`: FREE, REFUSED or CUT. */
#define REPLAYED(edit, ...)                                                                                            \
  {                                                                                                                    \
    BRIM_PARAM(__VA_ARGS__), BRIM_EDIT_##edit, true                                                                    \
  }

const char *const brim_precision_names[BRIM_PRECISIONS] = {"fp32", "bf16", "fp16"};

static const brim_setting top_table[] = {
    FIXED(I64, brim_settings, seed, "1", "[0,inf)", "seed of initial weights, sample order, augmentation and dropout"),
    REPLAYED(FREE, STR, brim_settings, device, "auto", NULL,
             "device to train on: auto, a backend (cuda), or one of its devices (cuda:1)"),
    REPLAYED(FREE, BOOL, brim_settings, auto_device, "true", NULL,
             "true: device=auto takes the device with the most free memory; false: the first device"),
    REPLAYED(FREE, BYTES, brim_settings, min_gpu_memory_mb, "0", NULL,
             "free memory that device=auto requires of a GPU or a device with a limit"),
    REPLAYED(FREE, BOOL, brim_settings, wait_for_gpu, "false", NULL,
             "queue for a GPU or a device with a limit until the run fits"),
    REPLAYED(FREE, SECONDS, brim_settings, gpu_wait_timeout_minutes, "60", "[0,inf)", "longest wait for a device"),
    REPLAYED(FREE, SECONDS, brim_settings, gpu_check_interval_seconds, "30", "(0,inf)",
             "longest time between two checks for a free device"),
    REPLAYED(FREE, I64, brim_settings, min_batch_size, "1", "[1,1048576]",
             "smallest micro-batch that a policy may choose"),
    REPLAYED(FREE, I64, brim_settings, max_retries, "3", "[0,1000]",
             "attempts to place further plans on a device, and attempts of each recovery measure when memory runs out"),
    REPLAYED(REFUSED, ENUM, brim_settings, precision, "auto", BRIM_PRECISION_NAMES,
             "type of stored activations; parameters and gradients stay in fp32. auto: bf16 on GPUs that multiply it, "
             "else fp32"),
    {.param.key = NULL},
};

static const brim_setting clients_table[] = {
    FIXED(I64, brim_settings, total_clients, "0", "[0,1000000000]",
          "number of clients that share the training samples in `brim federate`; 0: no federation"),
    FIXED(I64, brim_settings, clients_per_round, "10", "[1,1000000000]", "number of clients that train in a round"),
    FIXED(I64, brim_settings, rounds, "100", "[0,1000000000]", "number of rounds of a federation"),
    FREE(I64, brim_settings, parallel_clients, "-1", "[-1,1024]",
         "clients that train at the same time; -1: as many as fit, at most one per thread; 0: one client"),
    FREE(I64, brim_settings, repeats, "1", "[1,10000]",
         "number of runs, with the seeds seed, seed+1, ...; each run has its own process"),
    FREE(STR, brim_settings, protocol, "", NULL,
         "name of the messaging protocol, for reports only; the keys of the group network describe the network"),
    {.param.key = NULL},
};

static const brim_setting run_table[] = {
    FREE(STR, brim_run_settings, name, "", NULL, "name of the run; empty: <model>-<dataset>"),
    FREE(PATH, brim_run_settings, dir, "", NULL, "folder of the run; empty: runs/<name>-<date>-<time>"),
    {.param.key = NULL},
};

#define T brim_training_settings
static const brim_setting training_table[] = {
    FIXED(I64, T, epochs, "5", "[0,1000000]", "passes over the training data"),
    FIXED(I64, T, steps, "0", "[0,inf)", "number of steps, in the place of epochs; 0: train for `epochs`"),
    REPLAYED(CUT, I64, T, batch_size, "64", "auto|[1,1048576]", "samples in a micro-batch; auto: a policy chooses"),
    REPLAYED(CUT, I64, T, gradient_accumulation_steps, "1", "[1,1048576]",
             "micro-batches in a step; the effective batch is batch_size times this"),
    REPLAYED(CUT, I64, T, effective_batch_size, "0", "[0,1099511627776]",
             "samples in a step; sets gradient_accumulation_steps. 0: batch_size times gradient_accumulation_steps"),
    FIXED(I64, T, eval_batch_size, "0", "[0,1048576]",
          "samples in an evaluation batch; 0: the micro-batch, or four times that in a federation"),
    FIXED(I64, T, grain, "-1", "[-1,4096]",
          "each multiple of this as batch_size gives bit-identical results; 0: no guarantee; -1: the backend chooses"),
    FIXED(I64, T, norm_group, "16", "[1,1048576]",
          "samples over which batch norm takes its statistics; batch_size must be a multiple of it"),
    FREE(I64, T, num_workers, "1", "[0,256]", "threads that decode samples; 0: decode in the training thread"),
    FIXED(I64, T, num_train_samples, "0", "[0,inf)", "number of training samples to use; 0: all"),
    REPLAYED(REFUSED, I64, T, eval_every_steps, "0", "[0,inf)", "steps between evaluations; 0: after each epoch"),
    REPLAYED(FREE, I64, T, checkpoint_every_steps, "0", "[0,inf)", "steps between checkpoints; 0: after each epoch"),
    FIXED(F64, T, clip_norm, "0", "[0,inf)", "maximum global gradient norm; larger gradients are scaled down; 0: off"),
    FIXED(F64, T, ema_decay, "0", "[0,1)",
          "decay per step of a moving average of the weights, which is evaluated and saved as the model; 0: off"),
    FIXED(I64, T, patience, "0", "[0,1000000]",
          "end training after this many evaluations in a row without a better validation loss; 0: never"),
    REPLAYED(FREE, I64, T, clear_cache_every_n_rounds, "0", "[0,inf)",
             "clean up memory lightly every N rounds (a round ends with an evaluation); 0: policies decide"),
    FREE(I64, T, keep_checkpoints, "2", "[1,1000000]", "number of newest checkpoints to keep, besides the best"),
    {.param.key = NULL},
};
#undef T

#define T brim_model_settings
static const brim_setting model_table[] = {
    FREE(PATH, T, weights, "", NULL,
         "initial weights: a safetensors file, an index of several, a folder with either, or a run; empty: random"),
    FIXED(
        STR, T, weights_map, "auto", NULL,
        "map from names in the file to the model's: auto, none, a map in configs/weights, or the path of a .yaml file"),
    FIXED(STR, T, weights_except, "", NULL,
          "shell patterns of parameters that are not loaded from model.weights: 'head.*'"),
    {.param.key = NULL},
};
#undef T

static const brim_setting backend_table[] = {
    FREE(BOOL, brim_backend_settings, strict, "false", NULL,
         "true: refuse to run an operation in a slower way than the device could; false: print such operations"),
    {.param.key = NULL},
};

#define T brim_dataset_settings
static const brim_setting dataset_table[] = {
    FIXED(F64, T, validation_fraction, "0", "[0,1)", "share of the training split held out for validation; 0: none"),
    FIXED(LIST, T, mean, "[]", NULL, "mean per channel, subtracted after scaling to 0..1; empty: 0"),
    FIXED(LIST, T, std, "[]", NULL, "standard deviation per channel, by which values are divided; empty: 1"),
    {.param.key = NULL},
};
#undef T

static const brim_setting optimizer_table[] = {
    FREE(ENUM, brim_optimizer_settings, update, "step", BRIM_UPDATE_NAMES,
         "step: update parameters after the backward pass; fused_backward: update each as soon as its gradient is "
         "complete"),
    {.param.key = NULL},
};

#define T brim_transform_settings
static const brim_setting transform_table[] = {
    FIXED(LIST, T, size, "[]", NULL,
          "size of the model's input images in pixels: one side, or [rows,columns]; empty: the size of the samples"),
    FIXED(I64, T, resize, "0", "[0,16384]",
          "resize the shorter side to this many pixels, then crop transform.size; 0: resize the whole image, ignoring "
          "its aspect ratio"),
    FIXED(ENUM, T, interpolation, "bilinear", BRIM_FILTER_NAMES,
          "filter for resizing images, with antialiasing as in PIL"),
    FIXED(ENUM, T, normalize, "dataset", BRIM_NORMALIZE_NAMES,
          "means and deviations to normalise by: those in dataset.mean and dataset.std, or those of pretrained models "
          "(imagenet, clip)"),
    {.param.key = NULL},
};
#undef T

#define T brim_augment_settings
static const brim_setting augment_table[] = {
    FIXED(BOOL, T, flip, "false", NULL, "mirror each training image with probability 1/2"),
    FIXED(I64, T, crop_padding, "0", "[0,64]",
          "pad training images by this many pixels, then crop at a random position; 0: off"),
    FIXED(BOOL, T, random_crop, "false", NULL,
          "crop transform.size at a random position of training images instead of the center"),
    FIXED(BOOL, T, random_resized_crop, "false", NULL,
          "crop a random part of each training image and resize it to transform.size (see crop_scale, crop_ratio)"),
    FIXED(LIST, T, crop_scale, "[0.08,1]", NULL,
          "minimum and maximum area of the part that random_resized_crop cuts out, as a share of the image"),
    FIXED(LIST, T, crop_ratio, "[0.75,1.3333333333333333]", NULL,
          "minimum and maximum ratio of width to height of the part that random_resized_crop cuts out"),
    FIXED(F64, T, brightness, "0", "[0,100]", "x: multiply brightness by a random factor from 1-x to 1+x; 0: off"),
    FIXED(F64, T, contrast, "0", "[0,100]", "x: multiply contrast by a random factor from 1-x to 1+x; 0: off"),
    FIXED(F64, T, saturation, "0", "[0,100]", "x: multiply saturation by a random factor from 1-x to 1+x; 0: off"),
    FIXED(F64, T, hue, "0", "[0,0.5]", "x: rotate hues by a random share of the color circle from -x to x; 0: off"),
    FIXED(F64, T, erase_probability, "0", "[0,1]",
          "probability of setting a random rectangle of a training image to 0, after normalising"),
    FIXED(LIST, T, erase_scale, "[0.02,0.33]", NULL,
          "minimum and maximum area of the erased rectangle, as a share of the image"),
    FIXED(LIST, T, erase_ratio, "[0.3,3.3]", NULL,
          "minimum and maximum ratio of height to width of the erased rectangle"),
    FIXED(F64, T, mixup, "0", "[0,1000]",
          "x: mix each training sample and its label with another's, with a share drawn from Beta(x, x); 0: off"),
    {.param.key = NULL},
};
#undef T

static const brim_setting graph_table[] = {
    FIXED(SET, brim_graph_settings, fuse, "all", BRIM_FUSE_NAMES, "operations to fuse: all, none, or a list of names"),
    {.param.key = NULL},
};

static const brim_setting memory_table[] = {
    REPLAYED(FREE, BYTES, brim_memory_settings, limit_mb, "0", NULL,
             "most device memory that the process may use, libraries included; 0: no limit"),
    REPLAYED(FREE, F64, brim_memory_settings, limit, "0", "[0,1]",
             "memory.limit_mb as a share of the device's memory; 0: $TF_GPU_MEMORY_FRACTION if set, else no limit"),
    REPLAYED(
        FREE, BYTES, brim_memory_settings, headroom_mb, "auto", "auto|[0,inf)",
        "device memory that plans leave free for the driver and libraries; auto: the growth measured in earlier runs"),
    REPLAYED(FREE, ENUM, brim_memory_settings, recompute, "none", BRIM_RECOMPUTE_NAMES,
             "activations to compute again in the backward pass: none, all but the ends of blocks, as many as possible "
             "(full), or enough to fit (auto)"),
    REPLAYED(FREE, BYTES, brim_memory_settings, recompute_budget_mb, "0", NULL,
             "peak that recompute=auto must not exceed; 0: the memory available on the device"),
    FREE(ENUM, brim_memory_settings, offload, "none", BRIM_OFFLOAD_NAMES,
         "optimizer: keep optimizer states in host memory, and copy them to the device for each update"),
    FREE(PATH, brim_memory_settings, profile, "", NULL,
         "file of the device profile (measured times of kernels); empty: a file per device in ~/.cache/brim"),
    FREE(BOOL, brim_memory_settings, timing, "true", NULL,
         "measure kernels that the device profile lacks if a choice depends on time; false: use only the profile"),
    REPLAYED(FREE, F64, brim_memory_settings, warn_percent, "85", "[0,100]",
             "warn at this use of host memory, or of the device by other processes; 0: never"),
    REPLAYED(FREE, F64, brim_memory_settings, critical_percent, "90", "[0,100]",
             "at this use of host memory, or of the device by other processes: write a checkpoint and use less memory; "
             "0: never"),
    FREE(F64, brim_memory_settings, check_interval_seconds, "1", "[0.001,86400]",
         "time between checks of the memory in use"),
    {.param.key = NULL},
};

#define T brim_loss_scale_settings
static const brim_setting loss_scale_table[] = {
    FIXED(BOOL, T, dynamic, "true", NULL,
          "true: with precision=fp16 the loss scale adapts to the gradients; false: it is constant"),
    FIXED(I64, T, init_scale, "65536", "[1,4611686018427387904]", "initial loss scale, a power of two"),
    FIXED(I64, T, growth_factor, "2", "[1,65536]",
          "factor by which the scale is raised, a power of two; 1: never raise it"),
    FIXED(F64, T, backoff_factor, "0.5", "(0,0.5]",
          "factor by which the scale is lowered, to 1 at least, when a gradient is not finite; a power of two"),
    FIXED(I64, T, growth_interval, "2000", "[1,1000000000]",
          "raise the scale after this many steps in a row with finite gradients"),
    {.param.key = NULL},
};
#undef T

static const brim_setting claims_table[] = {
    FREE(PATH, brim_claims_settings, dir, "", NULL,
         "folder of the claims on devices, shared by all processes; empty: $BRIM_CLAIMS_DIR, else /dev/shm/brim"),
    {.param.key = NULL},
};

#define T brim_dist_settings
static const brim_setting dist_table[] = {
    FREE(
        I64, T, ranks, "auto", "auto|[1,65536]",
        "processes, one per device, that share each step's samples; auto: all started ranks, else one per visible GPU"),
    FIXED(
        ENUM, T, shard, "none", BRIM_SHARD_NAMES,
        "what the ranks divide among them: nothing, optimizer states (optimizer), or states and gradients (gradients)"),
    FREE(ENUM, T, deal, "auto", BRIM_DEAL_NAMES,
         "how ranks divide a step's samples: in equal parts (even), or so that all ranks finish together (auto)"),
    FREE(BYTES, T, bucket_mb, "25", NULL, "most gradients that ranks add up at a time"),
    FREE(I64, T, check_every_steps, "100", "[0,inf)", "compare the weights of all ranks every N steps; 0: never"),
    FREE(SECONDS, T, timeout_seconds, "600", "(0,inf)",
         "end the job if a rank does not answer for this time; must exceed twice the longest step or checkpoint"),
    {.param.key = NULL},
};
#undef T

static const brim_setting observe_table[] = {
    FREE(I64, brim_observe_settings, log_every_steps, "50", "[1,inf)", "steps between training records"),
    FREE(I64, brim_observe_settings, top_k, "5", "[0,1000]",
         "k of the top-k accuracy in evaluations, reported if there are more than k classes; 0: off"),
    FREE(BOOL, brim_observe_settings, report, "true", NULL,
         "write report.html (figures, curves, confusion matrix) to the run's folder"),
    FREE(SECONDS, brim_observe_settings, report_seconds, "30", "[0,86400]",
         "interval at which a run rewrites report.html; a browser that shows it reloads it. 0: only at the end"),
    FREE(BOOL, brim_observe_settings, tensorboard, "false", NULL,
         "also write the data of metrics.jsonl as TensorBoard events to the run's folder"),
    FREE(BOOL, brim_observe_settings, memory_summary, "false", NULL,
         "print allocated, reserved and peak memory in GB at the end; summary.json always has them"),
    FREE(ENUM, brim_observe_settings, live, "basic", BRIM_LIVE_MODE_NAMES,
         "what all users of the host can see of a run: nothing (off), device, memory and progress (basic), or also "
         "names and results (all)"),
    FREE(STR, brim_observe_settings, trace, "", NULL,
         "steps to trace: one step, or FIRST:END, such as 100:103 for 100 to 102"),
    FREE(BOOL, brim_observe_settings, nvtx, "false", NULL,
         "mark steps, phases and operations as NVTX ranges, for NVIDIA's profilers"),
    FREE(BOOL, brim_observe_settings, histograms, "true", NULL,
         "write histograms of weights, gradients and updates to the run's folder, at up to 32 of the evaluations"),
    FREE(PATH, brim_observe_settings, metrics_file, "", NULL,
         "file for the run's newest figures as OpenMetrics, written every 15 s; empty: no file"),
    FREE(I64, brim_observe_settings, samples, "16", "[0,32]",
         "write at most this many samples with the worst answers to the run's folder, at up to 32 of the evaluations"),
    {.param.key = NULL},
};

#define T brim_hooks_settings
static const brim_setting hooks_table[] = {
    FREE(STR, T, on_start, "", NULL, "shell command to run when the run starts or resumes"),
    FREE(STR, T, on_evaluation, "", NULL, "shell command to run after each evaluation"),
    FREE(STR, T, on_checkpoint, "", NULL, "shell command to run after each checkpoint"),
    FREE(STR, T, on_oom, "", NULL, "shell command to run when the run recovers from an out-of-memory error"),
    FREE(STR, T, on_end, "", NULL, "shell command to run when the run has ended, for any reason"),
    {.param.key = NULL},
};
#undef T

#define T brim_federate_settings
static const brim_setting federate_table[] = {
    FREE(ENUM, T, mode, "simulate", BRIM_FEDERATE_MODE_NAMES,
         "simulate: all clients in one process; processes: a process for each client, and one for the server. The "
         "results are bit-identical"),
    FIXED(I64, T, local_epochs, "1", "[1,1000000]", "passes of a client over its samples in a round"),
    FIXED(ENUM, T, local, "fedavg", BRIM_LOCAL_NAMES,
          "method of local training: fedavg, fedprox, scaffold, scaffold_fedprox or feddyn "
          "(docs/guide/federated_algorithms.md)"),
    FIXED(F64, T, mu, "0.01", "[0,inf)", "mu of federate.local=fedprox and scaffold_fedprox"),
    FIXED(F64, T, alpha, "0.01", "[1e-6,1e6]", "alpha of federate.local=feddyn, the strength of its regularizer"),
    FIXED(ENUM, T, remainder, "auto", BRIM_REMAINDER_NAMES,
          "whether clients train on samples that do not fill a batch: keep, drop, or auto: drop with batch norm, else "
          "keep"),
    FIXED(ENUM, T, norm_buffers, "average", BRIM_NORM_BUFFERS_NAMES,
          "batch norm statistics with which a client starts a round: the global model's (average), or its own of the "
          "last round (keep)"),
    FIXED(STR, T, local_parameters, "", NULL,
          "shell patterns of parameters that stay with each client, such as 'head.*': clients neither send nor average "
          "them"),
    FIXED(ENUM, T, personal, "none", BRIM_PERSONAL_NAMES,
          "ditto: each client also trains a personal model, which stays near the global one"),
    FIXED(F64, T, personal_lambda, "0.1", "[0,inf)",
          "weight of the distance from the global model in the training of personal models"),
    FIXED(I64, T, personal_epochs, "1", "[1,1000000]",
          "passes over its samples with which a client trains its personal model"),
    FIXED(ENUM, T, on_divergence, "drop", BRIM_DIVERGENCE_NAMES,
          "what to do if a client's parameters are not finite, or changed by 512 or more: ignore its update (drop), or "
          "end the run (fail)"),
    FIXED(ENUM, T, compression, "none", BRIM_COMPRESSION_NAMES,
          "what clients send: the whole update (none), rounded values (quantize), signs (sign), or the largest values "
          "(top_k)"),
    FIXED(I64, T, compression_bits, "8", "[2,16]", "bits of a value with federate.compression=quantize"),
    FIXED(F64, T, compression_share, "0.01", "(0,1]",
          "share of each parameter's values that federate.compression=top_k sends"),
    FIXED(BOOL, T, error_feedback, "false", NULL,
          "each client adds to its next update the part that compression left out of the last one"),
    FIXED(I64, T, eval_every_rounds, "1", "[1,1000000000]", "rounds between evaluations of the global model"),
    FREE(BOOL, T, client_accuracy, "true", NULL,
         "at the end, evaluate the global model on each client's samples; takes one pass over the training data"),
    FIXED(
        I64, T, finetune_epochs, "0", "[0,1000000]",
        "at the end, also evaluate each client after it has trained the global model for this many passes; 0: do not"),
    FREE(I64, T, checkpoint_every_rounds, "10", "[1,1000000000]", "rounds between checkpoints"),
    FIXED(F64, T, target_accuracy, "0", "[0,1]",
          "end the run when an evaluation (on validation data if there is any) reaches this accuracy; 0: no target"),
    FIXED(F64, T, convergence_threshold, "0", "[0,inf)",
          "an evaluation counts as better if loss or accuracy improves by this; see federate.patience. 0: never end "
          "early"),
    FIXED(I64, T, patience, "2", "[1,1000000]",
          "end the run after this many evaluations in a row that are not better by convergence_threshold"),
    FIXED(I64, T, min_rounds, "0", "[0,1000000000]", "convergence_threshold applies only after this many rounds"),
    FIXED(I64, T, min_clients, "1", "[1,1000000000]",
          "fewest updates in a round; with fewer, the round is attempted again, or ends the run if clients diverged"),
    FIXED(F64, T, deadline_seconds, "0", "[0,inf)",
          "simulated seconds after which a round ends without late clients; 0: wait for all"),
    FIXED(F64, T, over_selection, "0", "[0,10]",
          "select this share of clients_per_round in addition, and use only the updates that arrive first"),
    FIXED(I64, T, edges, "0", "[0,1000000]",
          "number of edges, which add up their clients' updates: client k sends to edge k mod edges. 0: clients send "
          "to the server"),
    FIXED(I64, T, edge_rounds, "1", "[1,100000]",
          "with edges: rounds of an edge with its clients in each round of the server"),
    FIXED(BOOL, T, async, "false", NULL,
          "asynchronous rounds (FedBuff): clients start one by one, and a round ends with clients_per_round updates"),
    FIXED(I64, T, concurrency, "0", "[0,1000000000]",
          "with async: clients that train at the same simulated time; 0: clients_per_round"),
    FIXED(I64, T, max_staleness, "20", "[0,1000000]",
          "with async: leave out updates of clients that started more than this many rounds ago"),
    FIXED(F64, T, staleness_exponent, "0.5", "[0,100]",
          "with async: an update that is s rounds old has the factor (1+s)^-staleness_exponent"),
    FIXED(BOOL, T, train, "true", NULL,
          "false: simulate only the selection of clients and the world, and train nothing"),
    {.param.key = NULL},
};
#undef T

#define T brim_partition_settings
static const brim_setting partition_table[] = {
    FIXED(ENUM, T, kind, "iid", BRIM_PARTITION_NAMES,
          "how clients get samples: at random (iid), by Dirichlet shares, by classes, by the dataset (natural), or "
          "from a file"),
    FIXED(F64, T, alpha, "0.5", "(0,inf)",
          "for dirichlet and dirichlet_each: concentration; small values give each client few classes"),
    FIXED(I64, T, shards, "2", "[1,1000000]", "for shards: number of shards per client"),
    FIXED(I64, T, classes_per_client, "2", "[1,1000000]", "for classes: number of different classes per client"),
    FIXED(I64, T, min_samples, "1", "[1,1000000000]",
          "fewest samples of a client; clients with fewer get some from those with the most"),
    FIXED(ENUM, T, sizes, "uniform", BRIM_SIZES_NAMES,
          "for iid and dirichlet_each: distribution of the number of samples per client; uniform: equal numbers"),
    FIXED(F64, T, sigma, "1", "[0,10]",
          "for sizes=lognormal: standard deviation of the logarithm of a client's number of samples"),
    FIXED(F64, T, exponent, "1", "[0,10]",
          "for sizes=power_law: the client with the k-th most samples has a share proportional to k^-exponent"),
    FIXED(I64, T, samples, "0", "[0,1000000000]",
          "for dirichlet_each: mean number of samples per client; 0: training samples divided by clients"),
    FREE(PATH, T, path, "", NULL,
         "for file: CSV file with a line client,sample for each sample, such as the partition.csv of a run"),
    {.param.key = NULL},
};
#undef T

#define T brim_network_settings
static const brim_setting network_table[] = {
    FIXED(LIST, T, latency_ms, "[]", "[0,inf)",
          "one-way latency of simulated transfers; with several values, each client uses one of them in each round. "
          "empty: no network"),
    FIXED(LIST, T, jitter_ms, "[]", "[0,inf)", "greatest random change of a transfer's latency, up or down"),
    FIXED(LIST, T, bandwidth_mbit, "[]", "(0,inf)", "bandwidth in Mbit/s of a client whose channel quality is 1"),
    FIXED(LIST, T, loss_percent, "[]", "[0,100)", "packet loss; lost packets are sent again"),
    FREE(BOOL, T, sleep, "false", NULL,
         "true: clients also wait for the simulated time of their transfers; the results do not change"),
    {.param.key = NULL},
};
#undef T

#define T brim_world_settings
static const brim_setting world_table[] = {
    FIXED(BOOL, T, simulate, "false", NULL,
          "simulate time, energy and traffic of clients; also on if a key of world or network is set, or with async or "
          "edges"),
    FIXED(F64, T, gflops, "10", "(0,inf)", "speed of the median client, in 1e9 operations per second"),
    FIXED(F64, T, speed_sigma, "0.5", "[0,10]",
          "spread of clients' speeds, which are gflops * exp(sigma * normal); 0: equal speeds"),
    FIXED(PATH, T, devices, "", NULL,
          "CSV file of clients' speeds: client,gflops[,bandwidth_mbit]; empty: random speeds"),
    FIXED(F64, T, compute_watts, "5", "[0,inf)", "power of a client while it computes"),
    FIXED(F64, T, radio_watts, "1", "[0,inf)", "power of a client while it sends or receives"),
    FIXED(F64, T, channel_least, "0.5", "(0,1]",
          "lowest channel quality of a client; a client's quality changes at random between this and 1"),
    FIXED(F64, T, channel_step, "0.05", "[0,1]",
          "greatest change of a client's channel quality from one round to the next"),
    FIXED(ENUM, T, availability, "always", BRIM_AVAILABILITY_NAMES,
          "when clients are available: always, at random in each round (bernoulli), for a part of each day (day), or "
          "by world.trace (trace)"),
    FIXED(F64, T, probability, "0.8", "(0,1]", "for bernoulli: probability that a client is available in a round"),
    FIXED(SECONDS, T, day_seconds, "86400", "(0,inf)", "for day: simulated seconds in a day"),
    FIXED(F64, T, day_share, "0.5", "(0,1]",
          "for day: share of the day in which a client is available, from its own random start"),
    FIXED(PATH, T, trace, "", NULL,
          "for trace: CSV file with the columns client,start,end in seconds; repeats after the last end"),
    FIXED(F64, T, dropout, "0", "[0,1]", "probability that a client stops before its update has arrived"),
    FIXED(SECONDS, T, check_seconds, "60", "(0,inf)", "simulated seconds between two checks for available clients"),
    FIXED(ENUM, T, too_few, "wait", BRIM_TOO_FEW_NAMES,
          "what to do if fewer than clients_per_round are available: wait, or continue with at least "
          "federate.min_clients "
          "(go_on)"),
    {.param.key = NULL},
};
#undef T

#define T brim_attack_settings
static const brim_setting attack_table[] = {
    FIXED(ENUM, T, kind, "none", BRIM_ATTACK_NAMES,
          "what malicious clients do: send the opposite update (sign_flip), add noise to it (noise), or train on wrong "
          "labels (label_flip)"),
    FIXED(F64, T, share, "0", "[0,1]", "share of total_clients that are malicious, chosen at random by the seed"),
    FIXED(LIST, T, clients, "[]", "[0,1000000000)", "numbers of the malicious clients, instead of attack.share"),
    FIXED(F64, T, scale, "1", "[0,1000000]",
          "for sign_flip: the factor of the opposite update; for noise: its standard deviation"),
    {.param.key = NULL},
};
#undef T

#define T brim_privacy_settings
static const brim_setting privacy_table[] = {
    FIXED(F64, T, clip_norm, "0", "[0,1e9]",
          "maximum L2 norm of a client's update; larger updates are scaled down. 0: no clipping"),
    FIXED(F64, T, target_quantile, "0", "[0,1)",
          "adapt the clip norm until this share of the updates is within it; 0: a fixed clip norm"),
    FIXED(F64, T, clip_norm_lr, "0.2", "(0,10]", "for target_quantile: learning rate of the clip norm's logarithm"),
    FIXED(F64, T, count_stddev, "0", "[0,inf)",
          "for target_quantile: standard deviation of the noise on the number of updates within the clip norm; 0: "
          "clients_per_round/20"),
    FIXED(ENUM, T, noise, "central", BRIM_NOISE_NAMES,
          "where Gaussian noise is added: to the sum of the updates (central), or to each client's update (local)"),
    FIXED(F64, T, noise_multiplier, "0", "[0,1e6]",
          "standard deviation of the noise divided by the clip norm; 0: no noise"),
    FIXED(I64, T, seed, "0", "[0,inf)",
          "secret seed of the noise and of the draw of clients, for models to publish; 0: both follow from the seed of "
          "the run"),
    FIXED(F64, T, delta, "1e-5", "(0,1)", "delta of the (epsilon, delta)-differential privacy that records report"),
    FIXED(F64, T, max_epsilon, "0", "[0,inf)",
          "privacy budget: the run ends before the round that would exceed this epsilon; 0: no budget"),
    {.param.key = NULL},
};
#undef T

static const brim_setting backbone_table[] = {
    FIXED(ENUM, brim_backbone_settings, store, "auto", "auto|fp32|bf16",
          "type in which a backbone's frozen weights are stored; auto: bf16 with precision=bf16, else fp32"),
    {.param.key = NULL},
};

#define SECTION(path, table, field)                                                                                    \
  {                                                                                                                    \
    path, table, offsetof(brim_settings, field), sizeof(((brim_settings *)0)->field), false                            \
  }
const brim_section brim_settings_sections[] = {
    {"", top_table, 0, sizeof(brim_settings), false},
    {"", clients_table, 0, sizeof(brim_settings), true},
    SECTION("run", run_table, run),
    SECTION("backbone", backbone_table, backbone),
    SECTION("training", training_table, training),
    SECTION("model", model_table, model),
    SECTION("backend", backend_table, backend),
    SECTION("dataset", dataset_table, dataset),
    SECTION("transform", transform_table, transform),
    SECTION("augment", augment_table, augment),
    SECTION("graph", graph_table, graph),
    SECTION("memory", memory_table, memory),
    SECTION("loss_scale", loss_scale_table, loss_scale),
    SECTION("claims", claims_table, claims),
    SECTION("observe", observe_table, observe),
    SECTION("hooks", hooks_table, hooks),
    SECTION("dist", dist_table, dist),
    SECTION("optimizer", optimizer_table, optimizer),
    {"federate", federate_table, offsetof(brim_settings, federate), sizeof(brim_federate_settings), true},
    {"partition", partition_table, offsetof(brim_settings, partition), sizeof(brim_partition_settings), true},
    {"network", network_table, offsetof(brim_settings, network), sizeof(brim_network_settings), true},
    {"edge_network", network_table, offsetof(brim_settings, edge_network), sizeof(brim_network_settings), true},
    {"world", world_table, offsetof(brim_settings, world), sizeof(brim_world_settings), true},
    {"attack", attack_table, offsetof(brim_settings, attack), sizeof(brim_attack_settings), true},
    {"privacy", privacy_table, offsetof(brim_settings, privacy), sizeof(brim_privacy_settings), true},
    {NULL, NULL, 0, 0, false},
};

const brim_group brim_config_groups[] = {
    {"model", BRIM_MODEL, NULL, NULL, false},
    {"backbone", BRIM_MODEL, NULL, NULL, true},
    {"dataset", BRIM_DATASET, NULL, NULL, false},
    {"optimizer", BRIM_OPTIMIZER, NULL, NULL, false},
    {"schedule", BRIM_SCHEDULE, NULL, NULL, false},
    {"loss", BRIM_LOSS, NULL, NULL, false},
    {"backend", BRIM_BACKEND, NULL, NULL, false},
    {"comm", BRIM_COMM, NULL, "auto", false},
    {"server_optimizer", BRIM_OPTIMIZER, NULL, NULL, true},
    {"method", BRIM_SELECTOR, NULL, NULL, true},
    {"aggregator", BRIM_AGGREGATOR, NULL, NULL, true},
    {"augmentation", BRIM_AUGMENT, "", NULL, true},
    {"policy", BRIM_POLICY, "auto_plan", NULL, false},
    {NULL, 0, NULL, NULL, false},
};
_Static_assert(sizeof brim_config_groups / sizeof brim_config_groups[0] - 1 <= BRIM_GROUPS_MAX, "there is room");

const brim_group *brim_group_find(const char *name, size_t length)
{
  for (const brim_group *g = brim_config_groups; g->name; g++)
    if (strlen(g->name) == length && strncmp(g->name, name, length) == 0) return g;
  return NULL;
}

const brim_setting *brim_setting_find(const char *section, const char *key, size_t length)
{
  for (const brim_section *s = brim_settings_sections; s->path; s++)
    for (const brim_setting *row = strcmp(s->path, section) == 0 ? s->table : NULL; row && row->param.key; row++)
      if (strlen(row->param.key) == length && strncmp(row->param.key, key, length) == 0) return row;
  return NULL;
}

static const brim_plugin *mixing_plugin(const brim_settings *s)
{
  for (size_t i = 0; i < s->augment.chosen_count; i++)
    if (((const brim_augment_ops *)s->augment.chosen[i].plugin->ops)->mixes) return s->augment.chosen[i].plugin;
  return NULL;
}

bool brim_settings_mix(const brim_settings *s)
{
  return s->augment.mixup > 0 || mixing_plugin(s);
}

const char *brim_settings_mixing(const brim_settings *s, char *out, size_t room)
{
  if (s->augment.mixup > 0)
    snprintf(out, room, "augment.mixup=%g", s->augment.mixup);
  else
    snprintf(out, room, "augmentation=%s", mixing_plugin(s)->id);
  return out;
}

bool brim_config_group_is_second(int group)
{
  for (int g = 0; g < group; g++)
    if (brim_config_groups[g].kind == brim_config_groups[group].kind) return true;
  return false;
}
