/* A backend for plans: it has every operation, runs none and chooses no layouts. */
#ifndef TESTS_UNIT_MOCK_BACKEND_H
#define TESTS_UNIT_MOCK_BACKEND_H
#include <string.h>

#include "brim/brim.h"

enum { MOCK_KERNELS_MAX = 512 };

static brim_kernel mock_kernels[MOCK_KERNELS_MAX];
static const brim_kernel *mock_table[MOCK_KERNELS_MAX];
static brim_backend_ops mock_backend = {
    .size = sizeof(brim_backend_ops), .real = BRIM_DTYPE_F32, .kernels = mock_table, .alignment = 64};

static brim_status mock_run(void *self, const brim_launch *launch)
{
  (void)self;
  (void)launch;
  return BRIM_OK;
}

/* Fills the backend's table; `prepare` says how much scratch memory a node requests. */
static void make_mock_backend(brim_status (*prepare)(void *self, const brim_program_info *program,
                                                     const brim_node *node, brim_kernel_need *need, void **state))
{
  assert_true(brim_op_count() <= MOCK_KERNELS_MAX);
  for (size_t i = 0; i < brim_op_count(); i++) {
    mock_kernels[i] = (brim_kernel){.op = brim_op_at(i)->name, .prepare = prepare, .run = mock_run};
    mock_table[i] = &mock_kernels[i];
  }
  mock_backend.kernels_end = mock_table + brim_op_count();
}

/* Convolutions request scratch, as libraries do, so that workspace is planned. */
static inline brim_status mock_prepare_conv(void *self, const brim_program_info *program, const brim_node *node,
                                            brim_kernel_need *need, void **state)
{
  (void)self;
  (void)program;
  (void)state;
  if (strncmp(node->op, "conv2d", 6) == 0) need->workspace_bytes = node->out[0]->bytes / 2 + 1;
  return BRIM_OK;
}

/* A group's setup. */
static inline int make_mock_backend_with_conv(void **state)
{
  (void)state;
  make_mock_backend(mock_prepare_conv);
  return 0;
}
#endif
