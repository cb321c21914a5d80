/* See golden_model.h. */
#include "conformance/golden_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "conformance/golden_run.h"

typedef struct subject {
  const char *fixture, *model, *settings;
  int64_t classes;
} subject;

/* Starts a run, which the caller ends with stop(). Returns NULL if the backend was not built. */
static golden_run *start(const subject *s, const char *backend, const char *optimizer)
{
  golden_run *r = brim_xcalloc(1, sizeof *r);
  if (!load_plugin(&r->backend, "backend", backend, NULL)) {
    free(r);
    return NULL;
  }
  if (!load_plugin(&r->model, "model", s->model, s->settings))
    assert_true(load_plugin_from(&r->model, "tests/conformance/examples", "model", s->model, s->settings));
  golden_run_read(r, s->fixture);
  golden_run_plan(r, (brim_graph_options){.classes = s->classes}, optimizer);
  golden_run_place(r);
  return r;
}

static void stop(golden_run *r)
{
  golden_run_close(r);
  free(r);
}

void golden_model_check(const char *fixture, const char *model, const char *settings, int64_t classes)
{
  const subject s = {fixture, model, settings, classes};
  golden_run *r = start(&s, "reference", "adamw");
  assert_non_null(r);
  golden_run_check_forward(r);
  /* Some gradients are 0 except for rounding, such as that of the keys' biases in attention. */
  golden_run_check_gradients(r, 1e-3 * golden_run_gradient_norm(r));
  golden_run_check_training(r, golden_adamw(), "adamw.");
  stop(r);
  r = start(&s, "reference", "sgd");
  golden_run_check_training(r, (brim_step){.lr = 0.05, .weight_decay = 0.01, .momentum = 0.9}, "sgd.");
  stop(r);
  r = start(&s, "cpu", "sgd");
  if (!r) return;
  golden_run_check_single(r);
  stop(r);
}
