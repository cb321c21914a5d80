/* A graph on the emulated device, every tensor in separate memory, to be run as a program or node by node. */
#ifndef TESTS_CUDA_MACHINE_H
#define TESTS_CUDA_MACHINE_H
#include "conformance/load.h"
#include "graph/graph.h"

typedef struct machine {
  loaded plugin;
  const brim_backend_ops *ops;
  void *self;
  brim_graph *g;
  uint8_t *base;
  uint64_t bytes;
  void **memory; /* per tensor */
  brim_launch *launch;
  const brim_kernel **kernel;
  void *record;
} machine;

#define OK(call)                                                                                                       \
  do {                                                                                                                 \
    if ((call) != BRIM_OK) fail_msg("%s", brim_error_text());                                                          \
  } while (0)

/* A float tensor's element after open_machine: in [-1, 1); in [0, 1) for states and averages. Everything else is 0. */
float value_of(const brim_tensor *t, uint64_t i);
/* Takes ownership of the graph. feed_bytes: of one feed. Closing releases everything. */
void open_machine(machine *m, brim_graph *g, const char *settings, uint64_t feed_bytes);
void close_machine(machine *m);
void write_tensor(machine *m, const brim_tensor *t, const void *values);
void *read_tensor(machine *m, const brim_tensor *t); /* the caller frees it */
/* A step with values that differ from step to step. */
brim_step make_step(uint64_t step);
brim_status try_program(machine *m, brim_step step, const double *proof);
void run_program(machine *m, brim_step step, const double *proof);
void run_nodes(machine *m, brim_step step);
/* The launches of the program, as the backend counts them without running anything. */
uint64_t count_launches(machine *m);
/* Asserts that all tensors of two machines with the same graph have the same bits. */
void check_same(machine *a, machine *b);
/* Number of kernels that the device has run. */
uint64_t kernels_run(void);
/* An update of parameters of all sizes, every fourth of them a buffer, as in batch norm. max_norm 0: unclipped
 * gradients; ema_decay 0: no averages. */
brim_graph *update_graph(const char *op, int64_t parameters, double max_norm, double ema_decay);
#endif
