/* Reads a training run from text: a network, its batches, its options and PyTorch's results.
 * tests/golden/make_engine.py writes such files and describes them. */
#ifndef TESTS_ENGINE_DESCRIBED_H
#define TESTS_ENGINE_DESCRIBED_H
#include <stdbool.h>
#include <stdio.h>

#include "brim/engine.h"

enum {
  DESCRIBED_OPS_MAX = 64,
  DESCRIBED_PARAMETERS_MAX = 96,
  DESCRIBED_WORDS_MAX = 24,
  DESCRIBED_LINE_MAX = 1024,
  DESCRIBED_STEPS_MAX = 8
};

/* The words of a line. */
typedef struct described_line {
  char text[DESCRIBED_LINE_MAX];
  const char *word[DESCRIBED_WORDS_MAX + 1]; /* ends with NULL */
  int count;
} described_line;

/* A parameter, whose values are offset + scale * u with u in [-1, 1) from described_number(). */
typedef struct described_parameter {
  char name[64];
  uint64_t count;
  double offset, scale;
  /* The expected sum after the last step, in double precision: each value times a number in [-1, 1). The tolerance is
   * for training in single precision. */
  double sum, tolerance;
} described_parameter;

typedef struct described {
  char name[32];
  uint64_t seed;
  int32_t steps;
  double ignored;       /* share of the labels that are `no_label` */
  int32_t no_label;     /* the ignored label */
  brim_network network; /* its texts and `self` point into this struct, so it must not move */
  described_line loss, optimizer;
  described_line op[DESCRIBED_OPS_MAX];
  int32_t op_count;
  described_parameter parameter[DESCRIBED_PARAMETERS_MAX];
  int32_t parameter_count;
  double expected_loss[DESCRIBED_STEPS_MAX], loss_tolerance, answers_sum, answers_tolerance;
} described;

/* Returns number i of `stream`, in [-1, 1) with 24 bits; make_engine.py computes the same. */
double described_number(uint64_t seed, uint64_t stream, uint64_t i);

/* Reads the next case of a file; returns false at the end of the file. A mistake in the file ends the program. */
bool described_read(FILE *file, described *out);

/* brim's results. */
typedef struct described_result {
  double loss[DESCRIBED_STEPS_MAX];
  float *parameter[DESCRIBED_PARAMETERS_MAX];
  float *answers; /* the answers for the last micro-batch, or NULL */
  uint64_t answer_count;
} described_result;

/* Trains a case on an engine. The caller frees the result, whatever the status. */
brim_status described_train(const described *d, brim_engine *engine, described_result *out);
void described_result_free(described_result *result);
#endif
