/* For C programs: brim's graphs, exact plans and steps without configuration files, data sets or run folders. A program
 * links libbrim (find_package(brim), brim::brim) and calls, in this order:
 *
 *     brim_engine_open      a backend on a device
 *     brim_engine_plan      what a training step of a network takes of the device, to the byte; allocates nothing there
 *     brim_engine_place     takes exactly that, and gives the parameters their first values
 *     brim_engine_feed      a micro-batch; all of a batch, one after another
 *     brim_engine_step      updates the parameters by the mean loss of the batch
 *     brim_engine_fetch     parameters, by their names
 *
 * The network is a function that builds a graph as models do (brim/model.h), or a model that is a plugin. Gradients,
 * memory and updates are brim's. docs/examples/engine has two programs.
 *
 * Unstable: this interface may change with any version, and the soname with it. Use an engine, its plans and its
 * trainings from one thread at a time; threads may have an engine each. A function that fails returns a status, and
 * brim_error_text() says why, in the same thread. A call in the wrong order is EINVAL, and so is NULL where a value is
 * needed. Free each object once, in any order; do not use a pointer after that. If the host has no memory left for
 * brim's own tables (graphs, plans), which are small, brim writes a message to stderr and ends the process with status
 * brim_status_exit(BRIM_ENOMEM_HOST). */
#ifndef BRIM_ENGINE_H
#define BRIM_ENGINE_H
#include "brim/dataset.h"
#include "brim/model.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_engine brim_engine;
typedef struct brim_training_plan brim_training_plan;
typedef struct brim_training brim_training;

typedef struct brim_engine_options {
  uint32_t size;               /* sizeof(brim_engine_options) */
  const char *backend;         /* "cpu", "reference", "cuda"; NULL: "cpu" */
  const char *const *settings; /* its parameters, "threads=1", ended by NULL; NULL: their defaults */
  int32_t device;              /* by the backend's number, from 0 */
  const char *const *plugins;  /* folders or files of plugins, ended by NULL, besides the installation's; NULL: none */
} brim_engine_options;

/* What is trained, and how. What is 0 or NULL has the default. */
typedef struct brim_network {
  uint32_t size; /* sizeof(brim_network) */
  /* Builds the graph; called once for each shape that is planned. `self` is passed on. */
  brim_status (*build)(const void *self, brim_graph *graph);
  const void *self;
  const char *model;           /* a plugin's id, in the place of `build`; not one around another (lora, linear_probe) */
  const char *const *settings; /* the model's parameters, "layers=12", ended by NULL */
  brim_shape sample;           /* of one sample, without N: {3, {1, 28, 28}}; of tokens {1, {T}} */
  int32_t task;                /* enum brim_task; BRIM_TASK_CLASS by default */
  int64_t classes;             /* that the network answers with; of tokens the vocabulary; of values the targets */
  int64_t batch;               /* samples of a step */
  int64_t micro_batch;         /* that are computed at a time, which must divide `batch`; 0: all */
  int64_t grain;               /* micro-batches that are multiples of it give the same bits, but for batch norm, whose
                                * statistics are those of a micro-batch; 0: no such thing is asked for */
  const char *loss;            /* "cross_entropy", of values "mse", by default; values that are shares of classes may
                                * have cross_entropy too, numbers from 0 to 1 "bce" */
  const char *const *loss_settings;      /* "class_weights=[1,2,5]": the mean is weighted likewise */
  const char *optimizer;                 /* "adamw" by default */
  const char *const *optimizer_settings; /* "lr=1e-3" */
  uint32_t activations;                  /* BRIM_DTYPE_BF16: they are kept so; 0: as parameters are */
  int32_t recompute;                     /* 0: all activations are kept; 1: those of blocks; 2: as few as can be */
  int32_t answers;                       /* 1: the plan has room for brim_engine_answer */
} brim_network;

/* [init] *out is NULL on failure. ELOAD: no such backend; ECONFIG: a parameter; ENODEVICE. */
BRIM_EXPORT brim_status brim_engine_open(const brim_engine_options *options, brim_engine **out);
/* Plans and trainings of a closed engine stay valid: brim releases the engine with the last of them. NULL is fine, here
 * and below. */
BRIM_EXPORT void brim_engine_close(brim_engine *engine);

/* [plan] ECONFIG, EINVAL: the network, with the place in its author's file; ENOTSUP: the backend lacks an operation.
 * The network's texts and `self` must outlive the plan. A parameter that does not influence the loss has gradient 0, so
 * weight decay still shrinks it; PyTorch's optimizers skip it. */
BRIM_EXPORT brim_status brim_engine_plan(brim_engine *engine, const brim_network *network, brim_training_plan **out);
/* [plan] The same with the largest micro-batch whose plan takes at most `bytes` of the device; network->micro_batch
 * counts for nothing. EBUDGET naming the bytes that the smallest takes. */
BRIM_EXPORT brim_status brim_engine_plan_within(brim_engine *engine, const brim_network *network, uint64_t bytes,
                                                brim_training_plan **out);
/* A placed plan stays until brim_engine_unplace. */
BRIM_EXPORT void brim_engine_plan_free(brim_training_plan *plan);

typedef struct brim_training_figures {
  uint32_t size;       /* sizeof(brim_training_figures), set by the caller */
  uint64_t peak_bytes; /* what place() asks the device for */
  /* Of the peak, by what it is for; together the least that any order in memory could do with. */
  uint64_t parameter_bytes, gradient_bytes, optimizer_bytes, activation_bytes, workspace_bytes, data_bytes;
  uint64_t lower_bound_bytes;
  uint64_t parameters; /* values */
  int64_t micro_batch;
  const char *peak_node; /* the operation at the peak, "linear_grad_input 'fc2'"; the plan's */
} brim_training_figures;
/* [plan] Fills as many fields as out->size reaches; does nothing if plan or out is NULL. */
BRIM_EXPORT void brim_engine_figures(const brim_training_plan *plan, brim_training_figures *out);

/* [init] Takes the plan's peak of the device, and makes the parameters' first values from the seed. A plan has one
 * training at a time. ENOMEM_DEVICE; then nothing is taken. */
BRIM_EXPORT brim_status brim_engine_place(brim_training_plan *plan, uint64_t seed, brim_training **out);
BRIM_EXPORT void brim_engine_unplace(brim_training *training);
/* [step] A micro-batch: values float [micro-batch, sample], of tokens int32_t; labels int32_t [micro-batch], of tokens
 * [micro-batch, T], of values float [micro-batch, classes]. Computes the loss and adds to the gradients. EINVAL:
 * the batch is complete already; or a label is no class, or a token is not in the vocabulary: feed this micro-batch
 * again with valid ones. If an operation fails while it computes (an embedding has no row for an index, the device
 * fails), brim drops the batch: feed it again from its first sample. */
BRIM_EXPORT brim_status brim_engine_feed(brim_training *training, const void *values, const void *labels);
/* [step] When the whole batch is fed. *loss, unless NULL: its mean over the samples, or tokens that count. ENUMERIC: it
 * is not finite; then the parameters stay as they were, and another batch may be fed. EINVAL: not all is fed, or no
 * label of the batch counts (they are ignored, or of classes of weight 0), which drops the batch. */
BRIM_EXPORT brim_status brim_engine_step(brim_training *training, double *loss);
/* [step] What the network answers to a micro-batch, as in evaluation: float, of the shape of its output. Between steps;
 * a batch that is being fed is none. */
BRIM_EXPORT brim_status brim_engine_answer(brim_training *training, const void *values, float *out);
/* [step] The values of a parameter or buffer, "fc1.weight", which are `count`; write: from now on. EINVAL: no such
 * parameter, or another count. */
BRIM_EXPORT brim_status brim_engine_fetch(brim_training *training, const char *name, float *out, uint64_t count);
BRIM_EXPORT brim_status brim_engine_write(brim_training *training, const char *name, const float *values,
                                          uint64_t count);

#ifdef __cplusplus
}
#endif
#endif
