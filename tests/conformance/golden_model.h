/* Compares a model with PyTorch's (tests/golden/make_models.py, make_backbones.py), through the real plan and
 * execution. Batch norm takes the statistics of the whole batch, like PyTorch. */
#ifndef TESTS_CONFORMANCE_GOLDEN_MODEL_H
#define TESTS_CONFORMANCE_GOLDEN_MODEL_H
#include <stdint.h>

/* On the reference backend, compares logits and losses in evaluation, gradients of one batch, and 20 steps of AdamW and
 * of SGD with momentum, each tensor to 1e-9. On cpu, if it was built, compares the gradients in single precision.
 * `fixture` is a file in tests/golden; `model` is one of brim's, or one of docs/examples that this folder's
 * CMakeLists.txt builds. */
void golden_model_check(const char *fixture, const char *model, const char *settings, int64_t classes);
#endif
