/* All keys that the core reads. */
#include "config/settings.h"

#include <stdio.h>

#include "brim/augment.h"
#include "graph/fuse.h"
#include "graph/recompute.h"
#include "graph/shard.h"

/* Whether the value may be edited when a run is resumed. FREE: yes; plan, folders and records may differ then, but not
 * the training. FIXED: no. CUT: yes, as long as the effective batch stays the same. */
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
    FIXED(I64, brim_settings, seed, "1", "[0,inf)", "seed of weights, order, augmentation and dropout"),
    REPLAYED(FREE, STR, brim_settings, device, "auto", NULL,
             "where to train: auto, a backend, or one of its devices: cpu:1"),
    REPLAYED(FREE, BOOL, brim_settings, auto_device, "true", NULL,
             "device=auto takes the device with the most free memory; false: the first"),
    REPLAYED(FREE, BYTES, brim_settings, min_gpu_memory_mb, "0", NULL,
             "free memory that a GPU, or a device with a limit, must have for device=auto to take it; a value from a "
             "file asks of a device with a limit for no more than the limit"),
    REPLAYED(FREE, BOOL, brim_settings, wait_for_gpu, "false", NULL,
             "wait in line for a GPU, or a device with a limit, until there is room for the run"),
    REPLAYED(FREE, SECONDS, brim_settings, gpu_wait_timeout_minutes, "60", "[0,inf)", "longest wait for a device"),
    REPLAYED(FREE, SECONDS, brim_settings, gpu_check_interval_seconds, "30", "(0,inf)",
             "longest time between two looks for a device"),
    REPLAYED(FREE, I64, brim_settings, min_batch_size, "1", "[1,1048576]",
             "policies make micro-batches no smaller than this"),
    REPLAYED(
        FREE, I64, brim_settings, max_retries, "3", "[0,1000]",
        "plans that a policy tries on a device after one that had room, and did not get its memory; and in a run that "
        "has begun, attempts by each way to recover when memory runs out"),
    REPLAYED(REFUSED, ENUM, brim_settings, precision, "fp32", BRIM_PRECISION_NAMES,
             "what activations are kept in; parameters and what is added up to them stay in fp32"),
    {.param.key = NULL},
};

static const brim_setting clients_table[] = {
    FIXED(I64, brim_settings, total_clients, "0", "[0,1000000000]",
          "clients that the training samples are dealt to, for `brim federate`; 0: there is no federation"),
    FIXED(I64, brim_settings, clients_per_round, "10", "[1,1000000000]", "clients that train in a round"),
    FIXED(I64, brim_settings, rounds, "100", "[0,1000000000]", "rounds of a federation"),
    FREE(I64, brim_settings, parallel_clients, "-1", "[-1,1024]",
         "clients that train at the same time; -1: as many as fit, one for each thread at most; 0: one"),
    FREE(I64, brim_settings, repeats, "1", "[1,10000]",
         "runs with the seeds seed, seed+1 ..., each a process of its own, as in a sweep"),
    FREE(STR, brim_settings, protocol, "", NULL, "a label: messaging is modelled as a network scenario"),
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
    FIXED(I64, T, steps, "0", "[0,inf)", "steps in all, in place of epochs; 0: go by epochs"),
    REPLAYED(CUT, I64, T, batch_size, "64", "auto|[1,1048576]", "samples in a micro-batch; auto: a policy chooses"),
    REPLAYED(CUT, I64, T, gradient_accumulation_steps, "1", "[1,1048576]",
             "micro-batches in a step; the effective batch is batch_size times this"),
    REPLAYED(CUT, I64, T, effective_batch_size, "0", "[0,1099511627776]",
             "samples in a step, from which gradient_accumulation_steps follows; 0: the product of the two"),
    FIXED(I64, T, eval_batch_size, "0", "[0,1048576]",
          "samples in an evaluation batch; 0: as the micro-batch, in a federation four times as many"),
    FIXED(I64, T, grain, "-1", "[-1,4096]",
          "results are the same bits for every batch_size that is a multiple of this; 0: off; -1: the backend's"),
    FIXED(I64, T, norm_group, "16", "[1,1048576]",
          "samples that batch norm takes statistics of together; batch_size must be a multiple where it is less "
          "than the effective batch"),
    FREE(I64, T, num_workers, "1", "[0,256]", "threads that decode samples; 0: decode while training waits"),
    FIXED(I64, T, num_train_samples, "0", "[0,inf)", "train on this many samples only; 0: all"),
    REPLAYED(REFUSED, I64, T, eval_every_steps, "0", "[0,inf)", "steps between evaluations; 0: after each epoch"),
    REPLAYED(FREE, I64, T, checkpoint_every_steps, "0", "[0,inf)", "steps between checkpoints; 0: after each epoch"),
    FIXED(F64, T, clip_norm, "0", "[0,inf)", "most norm of all gradients together; longer ones are scaled; 0: off"),
    FIXED(F64, T, ema_decay, "0", "[0,1)",
          "evaluate and keep as the model a moving average of the weights that decays so in a step; 0: off"),
    FIXED(I64, T, patience, "0", "[0,1000000]",
          "evaluations without a better validation loss after which training ends; 0: goes on"),
    REPLAYED(FREE, I64, T, clear_cache_every_n_rounds, "0", "[0,inf)",
             "rounds, from evaluation to evaluation, after which memory is cleaned up lightly; 0: as policies say"),
    FREE(I64, T, keep_checkpoints, "2", "[1,1000000]", "newest checkpoints to keep, besides the best"),
    {.param.key = NULL},
};
#undef T

#define T brim_model_settings
static const brim_setting model_table[] = {
    FREE(PATH, T, weights, "", NULL,
         "weights to begin with: a safetensors file, an index of several, a folder with either, or a run; empty: "
         "none"),
    FIXED(STR, T, weights_map, "auto", NULL,
          "how their names become the model's: auto, none, a map of configs/weights, or the path of a .yaml"),
    FIXED(STR, T, weights_except, "", NULL,
          "parameters that keep their first values, as patterns of the shell: 'head.*'"),
    {.param.key = NULL},
};
#undef T

#define T brim_dataset_settings
static const brim_setting dataset_table[] = {
    FIXED(F64, T, validation_fraction, "0", "[0,1)", "share of the training split kept for validation"),
    FIXED(LIST, T, mean, "[]", NULL, "per channel, subtracted after scaling to 0..1; empty: 0"),
    FIXED(LIST, T, std, "[]", NULL, "per channel, divided by; empty: 1"),
    {.param.key = NULL},
};
#undef T

static const brim_setting optimizer_table[] = {
    FREE(ENUM, brim_optimizer_settings, update, "step", BRIM_UPDATE_NAMES,
         "update all parameters when all gradients are there, or each in the backward pass when its own is"),
    {.param.key = NULL},
};

#define T brim_transform_settings
static const brim_setting transform_table[] = {
    FIXED(LIST, T, size, "[]", NULL,
          "side of the images that the model gets, or [rows,columns]; empty: as the samples are"),
    FIXED(I64, T, resize, "0", "[0,16384]",
          "shorter side that images are resized to before transform.size is cut out; 0: they are resized to "
          "transform.size whole, whatever their ratio"),
    FIXED(ENUM, T, interpolation, "bilinear", BRIM_FILTER_NAMES, "how images are resized, antialiased as by PIL"),
    FIXED(ENUM, T, normalize, "dataset", BRIM_NORMALIZE_NAMES,
          "means and deviations: dataset.mean and dataset.std, or those that a pretrained model expects"),
    {.param.key = NULL},
};
#undef T

#define T brim_augment_settings
static const brim_setting augment_table[] = {
    FIXED(BOOL, T, flip, "false", NULL, "mirror half of the training images"),
    FIXED(I64, T, crop_padding, "0", "[0,64]", "pad training images by this many pixels and crop at random"),
    FIXED(BOOL, T, random_crop, "false", NULL,
          "cut transform.size out of training images at a random place instead of the middle"),
    FIXED(BOOL, T, random_resized_crop, "false", NULL,
          "resize a random part of each training image to transform.size (see crop_scale, crop_ratio)"),
    FIXED(LIST, T, crop_scale, "[0.08,1]", NULL, "least and most area of that part, as a share of the image"),
    FIXED(LIST, T, crop_ratio, "[0.75,1.3333333333333333]", NULL, "least and most ratio of its width to height"),
    FIXED(F64, T, brightness, "0", "[0,100]", "multiply brightness by a random factor from 1-x to 1+x"),
    FIXED(F64, T, contrast, "0", "[0,100]", "the same for contrast"),
    FIXED(F64, T, saturation, "0", "[0,100]", "the same for saturation"),
    FIXED(F64, T, hue, "0", "[0,0.5]", "turn hues by a random share of the circle from -x to x"),
    FIXED(F64, T, erase_probability, "0", "[0,1]",
          "share of training images in which a random rectangle is set to 0 after normalising"),
    FIXED(LIST, T, erase_scale, "[0.02,0.33]", NULL, "least and most area of that rectangle"),
    FIXED(LIST, T, erase_ratio, "[0.3,3.3]", NULL, "least and most ratio of its height to width"),
    FIXED(F64, T, mixup, "0", "[0,1000]",
          "mix each training sample and its label with another one's, by a share from Beta(x, x); 0: off"),
    {.param.key = NULL},
};
#undef T

static const brim_setting graph_table[] = {
    FIXED(SET, brim_graph_settings, fuse, "all", BRIM_FUSE_NAMES,
          "pairs of operations that are computed as one: all, none, or a list of names"),
    {.param.key = NULL},
};

static const brim_setting memory_table[] = {
    REPLAYED(FREE, BYTES, brim_memory_settings, limit_mb, "0", NULL,
             "most memory that the process may take of the device, libraries included; 0: what the device has"),
    REPLAYED(FREE, F64, brim_memory_settings, limit, "0", "[0,1]",
             "the same as a share of the device's memory; 0: $TF_GPU_MEMORY_FRACTION, or no limit"),
    REPLAYED(FREE, BYTES, brim_memory_settings, headroom_mb, "auto", "auto|[0,inf)",
             "memory of the device that plans leave to what driver and libraries take later; auto: what was measured, "
             "at least 256 on a GPU, 0 on the host"),
    REPLAYED(FREE, ENUM, brim_memory_settings, recompute, "none", BRIM_RECOMPUTE_NAMES,
             "what the backward pass computes again rather than keeps; auto: as little as makes the plan fit"),
    REPLAYED(FREE, BYTES, brim_memory_settings, recompute_budget_mb, "0", NULL,
             "peak that recompute=auto keeps below; 0: what the device and the limits leave"),
    FREE(ENUM, brim_memory_settings, offload, "none", BRIM_OFFLOAD_NAMES,
         "keep the optimizer's state in host memory, and on the device only what a parameter's update needs"),
    FREE(PATH, brim_memory_settings, profile, "", NULL,
         "file of the device profile: how long kernels take; empty: one for each device in ~/.cache/brim"),
    FREE(BOOL, brim_memory_settings, timing, "true", NULL,
         "time what the profile lacks, where something is chosen by time; false: go by what there is"),
    REPLAYED(FREE, F64, brim_memory_settings, warn_percent, "85", "[0,100]",
             "use of RAM, or others' of the device, at which to warn; 0: never"),
    REPLAYED(FREE, F64, brim_memory_settings, critical_percent, "90", "[0,100]",
             "the same, at which to write a checkpoint, clean up and plan smaller; 0: never"),
    FREE(F64, brim_memory_settings, check_interval_seconds, "1", "[0.001,86400]",
         "time between looks at how much is used"),
    {.param.key = NULL},
};

#define T brim_loss_scale_settings
static const brim_setting loss_scale_table[] = {
    FIXED(BOOL, T, dynamic, "true", NULL, "with precision=fp16: the scale follows the gradients; false: it stays"),
    FIXED(I64, T, init_scale, "65536", "[1,4611686018427387904]",
          "what the loss is multiplied by at first, a power of two"),
    FIXED(I64, T, growth_factor, "2", "[1,65536]", "raises the scale, a power of two; 1: it is never raised"),
    FIXED(F64, T, backoff_factor, "0.5", "(0,0.5]",
          "lowers the scale, not below 1, when a gradient is not finite; a power of two"),
    FIXED(I64, T, growth_interval, "2000", "[1,1000000000]",
          "steps in a row with finite gradients after which the scale is raised"),
    {.param.key = NULL},
};
#undef T

static const brim_setting claims_table[] = {
    FREE(PATH, brim_claims_settings, dir, "", NULL,
         "folder in which processes share what they have of devices; empty: $BRIM_CLAIMS_DIR, or /dev/shm/brim"),
    {.param.key = NULL},
};

#define T brim_dist_settings
static const brim_setting dist_table[] = {
    FREE(I64, T, ranks, "auto", "auto|[1,65536]",
         "processes that share each step's samples, one a device; auto: as many as were started, else one for each "
         "GPU that can be seen"),
    FIXED(ENUM, T, shard, "none", BRIM_SHARD_NAMES,
          "what the ranks share out instead of each having all of it: the optimizer's state, the gradients too"),
    FREE(ENUM, T, deal, "auto", BRIM_DEAL_NAMES,
         "samples of a step for each rank: even, or auto: on different devices so that they finish together"),
    FREE(BYTES, T, bucket_mb, "25", NULL,
         "most gradients that are added up over the ranks at a time; about a quarter of all if that is less, and with "
         "shard=gradients, where two such parts exist at a time, less as long as that saves memory"),
    FREE(I64, T, check_every_steps, "100", "[0,inf)",
         "steps after which the weights of all ranks are compared; 0: never"),
    FREE(SECONDS, T, timeout_seconds, "600", "(0,inf)",
         "in how long a job ends whose ranks do not answer; more than twice the longest step or checkpoint"),
    {.param.key = NULL},
};
#undef T

static const brim_setting observe_table[] = {
    FREE(I64, brim_observe_settings, log_every_steps, "50", "[1,inf)", "steps between training records"),
    FREE(I64, brim_observe_settings, top_k, "5", "[0,1000]",
         "evaluations count a label among so many best answers too, if there are more classes; 0: off"),
    FREE(BOOL, brim_observe_settings, report, "true", NULL,
         "write report.html into the run's folder at its end: figures, curves, confusion matrix"),
    FREE(BOOL, brim_observe_settings, tensorboard, "false", NULL,
         "write what metrics.jsonl tells into the run's folder as TensorBoard events too"),
    FREE(BOOL, brim_observe_settings, memory_summary, "false", NULL,
         "say at the end what was allocated, reserved and allocated at most, in GB; summary.json has it always"),
    {.param.key = NULL},
};

#define T brim_federate_settings
static const brim_setting federate_table[] = {
    FIXED(I64, T, local_epochs, "1", "[1,1000000]", "passes of a client over its own samples in a round"),
    FIXED(ENUM, T, local, "fedavg", BRIM_LOCAL_NAMES,
          "what a client minimises: its own loss, or that and mu/2 times its squared distance from the global model"),
    FIXED(F64, T, mu, "0.01", "[0,inf)", "how strongly federate.local=fedprox draws a client to the global model"),
    FIXED(ENUM, T, remainder, "auto", BRIM_REMAINDER_NAMES,
          "a client's samples that fill no whole batch: train on them, or not; auto: not with batch norm"),
    FIXED(ENUM, T, norm_buffers, "average", BRIM_NORM_BUFFERS_NAMES,
          "a client's running statistics of batch norm begin a round with the global model's, or with its own of its "
          "last round"),
    FIXED(ENUM, T, on_divergence, "drop", BRIM_DIVERGENCE_NAMES,
          "a client whose parameters are not finite, or moved by 512 or more: leave it out, or end the run"),
    FIXED(I64, T, eval_every_rounds, "1", "[1,1000000000]", "rounds between evaluations of the global model"),
    FREE(BOOL, T, client_accuracy, "true", NULL,
         "at the end, evaluate the global model on each client's samples, which is one pass over the training data"),
    FREE(I64, T, checkpoint_every_rounds, "10", "[1,1000000000]", "rounds between checkpoints"),
    FIXED(F64, T, target_accuracy, "0", "[0,1]",
          "end the run when an evaluation reaches this accuracy, on validation data if there is some; 0: no target"),
    FIXED(F64, T, convergence_threshold, "0", "[0,inf)",
          "smallest improvement of loss or accuracy that counts; evaluations without one end the run; 0: none do"),
    FIXED(I64, T, patience, "2", "[1,1000000]",
          "evaluations in a row without such an improvement after which the run ends"),
    FIXED(I64, T, min_rounds, "0", "[0,1000000000]", "rounds before which convergence_threshold ends no run"),
    FIXED(I64, T, min_clients, "1", "[1,1000000000]",
          "fewest clients whose updates a round needs; with fewer the run ends"),
    FIXED(F64, T, deadline_seconds, "0", "[0,inf)",
          "simulated seconds after which a round ends without the clients that are late; 0: it waits for all"),
    FIXED(F64, T, over_selection, "0", "[0,10]",
          "share of clients_per_round that a round selects beyond it, to take those that arrive first"),
    FIXED(BOOL, T, train, "true", NULL,
          "false: play selection and the simulated world, and train nothing: losses are not known"),
    {.param.key = NULL},
};
#undef T

#define T brim_partition_settings
static const brim_setting partition_table[] = {
    FIXED(ENUM, T, kind, "iid", BRIM_PARTITION_NAMES,
          "how samples are dealt to clients: at random; each class by shares from a Dirichlet distribution; in shards "
          "of samples sorted by class; each client's classes by such shares, samples shared; so many classes for each; "
          "as the dataset says; by a file"),
    FIXED(F64, T, alpha, "0.5", "(0,inf)",
          "of dirichlet and dirichlet_each: small values give clients few classes each"),
    FIXED(I64, T, shards, "2", "[1,1000000]", "of shards: how many a client gets"),
    FIXED(I64, T, classes_per_client, "2", "[1,1000000]", "of classes: different ones that a client has"),
    FIXED(I64, T, min_samples, "1", "[1,1000000000]",
          "fewest samples of a client; those with fewer get some from those with the most"),
    FIXED(ENUM, T, sizes, "uniform", BRIM_SIZES_NAMES,
          "of iid and dirichlet_each: do clients have as many samples, or numbers from a lognormal distribution or a "
          "power law"),
    FIXED(F64, T, sigma, "1", "[0,10]", "of sizes=lognormal: standard deviation of the logarithm of sizes"),
    FIXED(F64, T, exponent, "1", "[0,10]",
          "of sizes=power_law: the client with the k-th most samples has a share proportional to k^-exponent"),
    FIXED(I64, T, samples, "0", "[0,1000000000]",
          "of dirichlet_each: mean samples of a client; 0: the training samples divided by the clients"),
    FREE(PATH, T, path, "", NULL, "of file: CSV with a line client,sample for each sample, as a run's partition.csv"),
    {.param.key = NULL},
};
#undef T

#define T brim_network_settings
static const brim_setting network_table[] = {
    FIXED(LIST, T, latency_ms, "[]", "[0,inf)",
          "of a simulated client's transfer, one way; several: a client has one of them in a round; empty: no network"),
    FIXED(LIST, T, jitter_ms, "[]", "[0,inf)", "most that the latency of a transfer is shorter or longer"),
    FIXED(LIST, T, bandwidth_mbit, "[]", "(0,inf)", "millions of bits a second, at a channel of 1"),
    FIXED(LIST, T, loss_percent, "[]", "[0,100)", "of packets, which are sent again until they arrive"),
    {.param.key = NULL},
};
#undef T

#define T brim_world_settings
static const brim_setting world_table[] = {
    FIXED(BOOL, T, simulate, "false", NULL,
          "simulate seconds, joules and bytes; a key of world or network with another value than its default does so "
          "too"),
    FIXED(F64, T, gflops, "10", "(0,inf)", "1e9 operations a second of a client of median speed"),
    FIXED(F64, T, speed_sigma, "0.5", "[0,10]", "spread of speeds: they are gflops * exp(sigma * normal)"),
    FIXED(PATH, T, devices, "", NULL,
          "CSV file with the columns client,gflops or client,gflops,bandwidth_mbit, a line for each client from 0 on"),
    FIXED(F64, T, compute_watts, "5", "[0,inf)", "that a client takes while it computes"),
    FIXED(F64, T, radio_watts, "1", "[0,inf)", "that it takes while it sends or receives"),
    FIXED(F64, T, channel_least, "0.5", "(0,1]", "channels begin between this and 1, and stay there"),
    FIXED(F64, T, channel_step, "0.05", "[0,1]", "most that a channel gets better or worse from round to round"),
    FIXED(ENUM, T, availability, "always", BRIM_AVAILABILITY_NAMES,
          "when clients are there: always; in a round at random; for a part of each day; or as world.trace says"),
    FIXED(F64, T, probability, "0.8", "(0,1]", "of bernoulli: that a client is there"),
    FIXED(SECONDS, T, day_seconds, "86400", "(0,inf)", "of day: simulated seconds of a day"),
    FIXED(F64, T, day_share, "0.5", "(0,1]", "of day: the part of it that a client is there, from a moment of its own"),
    FIXED(PATH, T, trace, "", NULL,
          "of trace: CSV file with the columns client,start,end in seconds; it repeats after its last end"),
    FIXED(F64, T, dropout, "0", "[0,1]", "probability that a client stops before its update has arrived"),
    FIXED(SECONDS, T, check_seconds, "60", "(0,inf)",
          "simulated seconds between two looks whether enough clients are there"),
    FIXED(ENUM, T, too_few, "wait", BRIM_TOO_FEW_NAMES,
          "with fewer than clients_per_round there: wait in simulated time, or go on with federate.min_clients"),
    {.param.key = NULL},
};
#undef T

static const brim_setting backbone_table[] = {
    FIXED(ENUM, brim_backbone_settings, store, "auto", "auto|fp32|bf16",
          "type that the frozen weights of a wrapper's backbone are kept in; auto: bf16 with precision=bf16"),
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
    SECTION("dataset", dataset_table, dataset),
    SECTION("transform", transform_table, transform),
    SECTION("augment", augment_table, augment),
    SECTION("graph", graph_table, graph),
    SECTION("memory", memory_table, memory),
    SECTION("loss_scale", loss_scale_table, loss_scale),
    SECTION("claims", claims_table, claims),
    SECTION("observe", observe_table, observe),
    SECTION("dist", dist_table, dist),
    SECTION("optimizer", optimizer_table, optimizer),
    {"federate", federate_table, offsetof(brim_settings, federate), sizeof(brim_federate_settings), true},
    {"partition", partition_table, offsetof(brim_settings, partition), sizeof(brim_partition_settings), true},
    {"network", network_table, offsetof(brim_settings, network), sizeof(brim_network_settings), true},
    {"world", world_table, offsetof(brim_settings, world), sizeof(brim_world_settings), true},
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
    {"augmentation", BRIM_AUGMENT, "", NULL, true},
    {"policy", BRIM_POLICY, "auto_plan", NULL, false},
    {NULL, 0, NULL, NULL, false},
};

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
