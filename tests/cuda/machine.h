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

/* Returns the value of an element of a float tensor after open_machine(): in [-1, 1), or in [0, 1) for states and
 * averages. All other tensors are 0. */
float value_of(const brim_tensor *t, uint64_t i);
/* Takes ownership of the graph; close_machine() releases everything. feed_bytes: the size of one input. */
void open_machine(machine *m, brim_graph *g, const char *settings, uint64_t feed_bytes);
void close_machine(machine *m);
void write_tensor(machine *m, const brim_tensor *t, const void *values);
void *read_tensor(machine *m, const brim_tensor *t); /* the caller frees it */
/* Makes a step whose values differ from those of other steps. */
brim_step make_step(uint64_t step);
brim_status try_program(machine *m, brim_step step, const double *proof);
void run_program(machine *m, brim_step step, const double *proof);
void run_nodes(machine *m, brim_step step);
/* Returns the number of launches of the program, which the backend counts without running anything. */
uint64_t count_launches(machine *m);
/* Asserts that all tensors of two machines with the same graph have the same bits. */
void check_same(machine *a, machine *b);
/* Returns the number of kernels that the device has run. */
uint64_t kernels_run(void);
/* Builds an update of parameters of all sizes, of which every fourth is a buffer, as in batch norm. max_norm 0:
 * gradients are not clipped; ema_decay 0: no averages. */
brim_graph *update_graph(const char *op, int64_t parameters, double max_norm, double ema_decay);
#endif
