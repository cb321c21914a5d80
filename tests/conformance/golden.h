/* Fixtures made by PyTorch (tests/golden): lists of tensors in double precision. */
#ifndef TESTS_CONFORMANCE_GOLDEN_H
#define TESTS_CONFORMANCE_GOLDEN_H
#include "base/arena.h"
#include "brim/tensor.h"

typedef struct golden_tensor {
  char name[96];
  brim_shape shape;
  double *value;
} golden_tensor;

#define GOLDEN_TENSORS_MAX 1280
typedef struct golden {
  golden_tensor tensor[GOLDEN_TENSORS_MAX + 1]; /* one more, for the read that finds the end */
  size_t count;
  brim_arena arena; /* the caller releases it */
} golden;

/* An error fails the test. */
void golden_read(golden *g, const char *name);
const golden_tensor *golden_find(const golden *g, const char *prefix, const char *name);
/* ||got - expected|| <= 1e-9 ||expected||, and the same shape. */
void golden_check(const golden *g, const char *prefix, const char *name, const brim_shape *shape, const double *got);
/* Does the same, but relative to `least` if ||expected|| is less, for values that are 0 except for rounding. */
void golden_check_least(const golden *g, const char *prefix, const char *name, const brim_shape *shape,
                        const double *got, double least);
#endif
