/* A model of a fixture through the real plan and execution: loss, gradients and training compared with PyTorch's.
 *
 * The fixture has the samples "input" and their "label"s, of classes or tokens; "parameter.NAME"; and PyTorch's
 * "logits", "loss", "gradient.NAME" of the whole batch, and under a prefix such as "adamw." the "loss" of each of
 * GOLDEN_STEPS steps and the parameters after them. */
#ifndef TESTS_CONFORMANCE_GOLDEN_RUN_H
#define TESTS_CONFORMANCE_GOLDEN_RUN_H
#include "conformance/golden.h"
#include "conformance/load.h"
#include "exec/exec.h"

#define GOLDEN_STEPS 20

typedef struct golden_run {
  golden fixture;
  loaded model, backbone, backend; /* the caller loads those that it needs */
  int64_t batch;                   /* number of samples in the fixture */
  double counted;                  /* number of labels other than BRIM_NO_TOKEN; the loss is divided by it */
  brim_plan *plan;
  brim_exec *exec;
  void *samples; /* the samples in the program's type */
  int32_t *label;
} golden_run;

/* Reads a fixture into *r, in which the caller has set nothing or only the plugins. */
void golden_run_read(golden_run *r, const char *fixture);
/* Adds plugins, loss and the shape of a sample to a graph's options, which have classes, task, and other settings. */
brim_graph_options golden_run_graph(const golden_run *r, brim_graph_options graph);
/* Plans training of the whole batch and of 4 and 2 samples, and evaluation of the whole batch. */
void golden_run_plan(golden_run *r, brim_graph_options graph, const char *optimizer);
/* Opens the plan on the backend, and writes the fixture's parameters. */
void golden_run_place(golden_run *r);
void golden_run_close(golden_run *r);

/* Runs a program on samples [first, first + count), and returns it. */
const brim_program *golden_run_batch(golden_run *r, enum brim_program_kind kind, int64_t first, int64_t count);
/* Returns the norm of all gradients in the fixture. */
double golden_run_gradient_norm(const golden_run *r);

/* Checks logits and losses in evaluation. */
void golden_run_check_forward(golden_run *r);
/* Checks the gradients of the whole batch at once, then those of unequal micro-batches unless the model has batch norm,
 * which gives other results. `least`: see golden_check_least. Returns the number of parameters that have gradients. */
size_t golden_run_check_gradients(golden_run *r, double least);
/* Checks the gradients of the whole batch in single precision. For tensor t with the gradient g_t, and all gradients g,
 * the error is at most 1e-5 max(||g_t||, 1e-2 ||g||); with batch norm, the error of all together is at most 1e-4
 * ||g||. */
void golden_run_check_single(golden_run *r);
/* Trains GOLDEN_STEPS steps with the learning rate and the other numbers of `step`. */
void golden_run_train(golden_run *r, brim_step step, double loss[GOLDEN_STEPS]);
/* Checks that frozen parameters have the fixture's bits. */
void golden_run_check_frozen(const golden_run *r);
/* Trains as golden_run_train() does, and compares losses and parameters; frozen parameters must not change. */
void golden_run_check_training(golden_run *r, brim_step step, const char *prefix);
/* Returns the numbers of a step that tests/golden uses with AdamW. */
brim_step golden_adamw(void);
#endif
