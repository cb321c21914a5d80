/* For C programs: brim's graphs, exact plans and steps without configuration files, data sets or run folders. A program
 * links libbrim (find_package(brim), brim::brim) and calls, in this order:
 *
 *     brim_engine_open      opens a device of a backend
 *     brim_engine_plan      computes the exact device memory of a training step; allocates nothing there
 *     brim_engine_place     allocates exactly that memory, and initialises the parameters
 *     brim_engine_feed      computes a micro-batch; called for every micro-batch of a batch
 *     brim_engine_step      updates the parameters by the mean loss of the batch
 *     brim_engine_fetch     reads parameters by name
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
  const char *const *settings; /* the backend's parameters, "threads=1", ended by NULL; NULL: defaults */
  int32_t device;              /* the backend's device number, from 0 */
  const char *const *plugins;  /* more folders or files of plugins, ended by NULL; NULL: only installed plugins */
} brim_engine_options;

/* A network and its training. A field that is 0 or NULL has its default. */
typedef struct brim_network {
  uint32_t size; /* sizeof(brim_network) */
  /* Builds the graph; called once per planned shape, with `self`. */
  brim_status (*build)(const void *self, brim_graph *graph);
  const void *self;
  const char *model; /* id of a model plugin, instead of `build`; models that wrap another (lora, linear_probe) are not
                        supported */
  const char *const *settings; /* the model's parameters, "layers=12", ended by NULL */
  brim_shape sample;           /* shape of a sample, without N: {3, {1, 28, 28}}; for tokens {1, {T}} */
  int32_t task;                /* enum brim_task; BRIM_TASK_CLASS by default */
  int64_t classes;             /* size of the output: classes, tokens in the vocabulary, or targets */
  int64_t batch;               /* samples in a step */
  int64_t micro_batch;         /* samples computed at a time; must divide `batch`; 0: `batch` */
  int64_t grain;    /* micro-batches that are multiples of it give bit-identical results, except with batch norm, whose
                       statistics are those of a micro-batch; 0: no guarantee */
  const char *loss; /* default "cross_entropy", for values "mse". Values may also use "cross_entropy" if they are class
                       probabilities, or "bce" if they are in [0, 1] */
  const char *const *loss_settings;      /* "class_weights=[1,2,5]"; the mean divides by the sum of the weights */
  const char *optimizer;                 /* default "adamw" */
  const char *const *optimizer_settings; /* "lr=1e-3" */
  uint32_t activations; /* type in which activations are stored: BRIM_DTYPE_BF16; 0: the parameters' type */
  int32_t recompute;    /* 0: keep all activations; 1: keep those at the ends of blocks; 2: keep as few as possible */
  int32_t answers;      /* 1: reserve memory for brim_engine_answer */
} brim_network;

/* [init] Opens a device of a backend. *out is NULL on failure. ELOAD: the backend does not exist; ECONFIG: a parameter
 * is invalid; ENODEVICE. */
BRIM_EXPORT brim_status brim_engine_open(const brim_engine_options *options, brim_engine **out);
/* Closes an engine. Its plans and trainings stay valid: brim releases the engine with the last of them. NULL is
 * allowed, here and below. */
BRIM_EXPORT void brim_engine_close(brim_engine *engine);

/* [plan] Plans the training of a network; allocates nothing on the device. ECONFIG, EINVAL: the network is invalid; the
 * error names the place in its source file. ENOTSUP: the backend lacks an operation. The network's strings and `self`
 * must outlive the plan. A parameter that does not influence the loss has the gradient 0, so weight decay still shrinks
 * it (PyTorch's optimizers leave it unchanged). */
BRIM_EXPORT brim_status brim_engine_plan(brim_engine *engine, const brim_network *network, brim_training_plan **out);
/* [plan] As brim_engine_plan, with the largest micro-batch whose plan needs at most `bytes` on the device;
 * network->micro_batch is ignored. EBUDGET if even the smallest needs more; the error gives its bytes. */
BRIM_EXPORT brim_status brim_engine_plan_within(brim_engine *engine, const brim_network *network, uint64_t bytes,
                                                brim_training_plan **out);
/* Frees a plan; if it is placed, call brim_engine_unplace before. */
BRIM_EXPORT void brim_engine_plan_free(brim_training_plan *plan);

typedef struct brim_training_figures {
  uint32_t size;       /* sizeof(brim_training_figures), set by the caller */
  uint64_t peak_bytes; /* device memory that brim_engine_place allocates */
  /* The lower bound by purpose: the fields of the first line add up to lower_bound_bytes. */
  uint64_t parameter_bytes, gradient_bytes, optimizer_bytes, activation_bytes, workspace_bytes, data_bytes;
  uint64_t lower_bound_bytes;
  uint64_t parameters; /* values */
  int64_t micro_batch;
  const char *peak_node; /* the operation at the peak, "linear_grad_input 'fc2'"; owned by the plan */
} brim_training_figures;
/* [plan] Fills the fields that out->size covers; does nothing if plan or out is NULL. */
BRIM_EXPORT void brim_engine_figures(const brim_training_plan *plan, brim_training_figures *out);

/* [init] Allocates the plan's peak on the device, and initialises the parameters from the seed. A plan can have one
 * training at a time. On ENOMEM_DEVICE nothing is allocated. */
BRIM_EXPORT brim_status brim_engine_place(brim_training_plan *plan, uint64_t seed, brim_training **out);
BRIM_EXPORT void brim_engine_unplace(brim_training *training);
/* [step] Computes the loss of a micro-batch and adds its gradients. values: float [micro-batch, sample]; for tokens
 * int32_t. labels: int32_t [micro-batch]; for tokens int32_t [micro-batch, T]; for values float [micro-batch, classes].
 * EINVAL: the batch is already complete, or a label or token is out of range: feed this micro-batch again with valid
 * ones. If an operation fails while it computes (an embedding has no row for an index, the device fails), brim drops
 * the batch: feed it again from its first sample. */
BRIM_EXPORT brim_status brim_engine_feed(brim_training *training, const void *values, const void *labels);
/* [step] Updates the parameters after the whole batch is fed. Sets *loss (may be NULL) to the mean loss over the
 * samples or tokens that count. ENUMERIC: the loss is not finite; the parameters did not change, and another batch may
 * be fed. EINVAL: the batch is not complete; or no label of the batch counts (all are ignored, or their classes have
 * weight 0), which drops the batch. */
BRIM_EXPORT brim_status brim_engine_step(brim_training *training, double *loss);
/* [step] Writes the network's output for a micro-batch, as in evaluation: float, in the shape of the output. Call it
 * between steps, not while a batch is being fed. */
BRIM_EXPORT brim_status brim_engine_answer(brim_training *training, const void *values, float *out);
/* [step] Reads (fetch) or sets (write) the `count` values of a parameter or buffer, such as "fc1.weight". EINVAL: no
 * such parameter, or a different count. */
BRIM_EXPORT brim_status brim_engine_fetch(brim_training *training, const char *name, float *out, uint64_t count);
BRIM_EXPORT brim_status brim_engine_write(brim_training *training, const char *name, const float *values,
                                          uint64_t count);

#ifdef __cplusplus
}
#endif
#endif
