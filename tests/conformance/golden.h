/* Fixtures that PyTorch made (tests/golden): a list of tensors, in double precision. */
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
  golden_tensor tensor[GOLDEN_TENSORS_MAX + 1]; /* one more, into which the end of the file is read */
  size_t count;
  brim_arena arena; /* the caller releases it */
} golden;

/* Whatever goes wrong fails the test. */
void golden_read(golden *g, const char *name);
const golden_tensor *golden_find(const golden *g, const char *prefix, const char *name);
/* ||got - expected|| <= 1e-9 ||expected||, and the same shape. */
void golden_check(const golden *g, const char *prefix, const char *name, const brim_shape *shape, const double *got);
/* The same where ||expected|| is less than `least`, with that in its place: of what is 0 but for rounding. */
void golden_check_least(const golden *g, const char *prefix, const char *name, const brim_shape *shape,
                        const double *got, double least);
#endif
