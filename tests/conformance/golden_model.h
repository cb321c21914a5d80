/* Compares a model with PyTorch's in double precision (tests/golden/make_models.py, make_backbones.py), through the
 * real plan and execution: logits and losses in evaluation, gradients of one batch, 20 steps of AdamW and of SGD with
 * momentum. Batch norm takes the statistics of the whole batch, like PyTorch. */
#ifndef TESTS_CONFORMANCE_GOLDEN_MODEL_H
#define TESTS_CONFORMANCE_GOLDEN_MODEL_H
#include "conformance/golden.h"
#include "conformance/load.h"

/* On the reference backend, everything: each tensor within 1e-9. `fixture` is a file in tests/golden; `model` is one of
 * brim's, or one of docs/examples that this folder's CMakeLists.txt builds. */
void golden_model_check(const char *fixture, const char *model, const char *settings, int64_t classes);
/* On the cpu backend, the gradients in single precision. For tensor t with the gradient g_t, and all gradients g, the
 * error is at most 1e-5 max(||g_t||, 1e-2 ||g||); with batch norm, the error of all together is at most 1e-4 ||g||.
 * Checks nothing if that backend was not built. */
void golden_model_check_cpu(const char *fixture, const char *model, const char *settings, int64_t classes);
#endif
