/* A model against PyTorch's in double precision (tests/golden/make_models.py, make_backbones.py), through the real plan
 * and execution: logits and losses as in evaluation, gradients of one batch, 20 steps of AdamW and of SGD with
 * momentum. Batch norm takes the statistics of the whole batch, as PyTorch does. */
#ifndef TESTS_CONFORMANCE_GOLDEN_MODEL_H
#define TESTS_CONFORMANCE_GOLDEN_MODEL_H
#include "conformance/golden.h"
#include "conformance/load.h"

/* On the reference backend, all of it: each tensor within 1e-9. `fixture` is a file in tests/golden; `model` one of
 * brim's, or of docs/examples where this folder's CMakeLists.txt builds it. */
void golden_model_check(const char *fixture, const char *model, const char *settings, int64_t classes);
/* On the cpu backend the gradients, in single precision. Of tensor t with the gradient g_t of all, g, the error is at
 * most 1e-5 max(||g_t||, 1e-2 ||g||); with batch norm, that of all together at most 1e-4 ||g||. Checks nothing where
 * there is no such backend. */
void golden_model_check_cpu(const char *fixture, const char *model, const char *settings, int64_t classes);
#endif
