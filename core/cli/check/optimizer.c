/* Checks of optimizers: a step's numbers are the same when they are computed again, and parameters and states stay
 * finite when a small model is updated, on the reference backend. See check.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "brim/random.h"
#include "builtin/builtin.h"
#include "cli/check/check.h"
#include "drive/drive.h"
#include "exec/exec.h"

#define STEPS 2000    /* whose scalars are compared */
#define UPDATES 20    /* updates that are applied */
#define GRADIENT 0.01 /* the largest */

static brim_status configure(brim_check *c, const char *further, brim_config **out)
{
  static const char *const word[] = {
      "model=cnn", "dataset=synthetic", "policy=[]", "dataset.shape=[1,8,8]", "backend=reference", NULL};
  return brim_check_config(c, word, further, out);
}

/* ---- numbers of a step ---- */

static brim_status fill(const brim_check *c, const void *self, int64_t i, brim_step *out)
{
  static const double factors[] = {1, 0.5, 0};
  *out = (brim_step){.step = (uint64_t)i};
  return brim_optimizer_fill(c->plugin, self, factors[i % 3], out);
}

/* Computes all steps twice, the second time from last to first, because a resumed run starts in the middle. */
static enum brim_finding compare_steps(brim_check *c, const void *self, brim_step *first)
{
  const brim_optimizer_ops *ops = c->plugin->ops;
  for (int64_t i = 0; i < STEPS; i++)
    if (fill(c, self, i, &first[i]) != BRIM_OK) return brim_check_error(c, "a step");
  for (int64_t i = STEPS; i-- > 0;) {
    brim_step again;
    if (fill(c, self, i, &again) != BRIM_OK) return brim_check_error(c, "a step");
    for (int k = 0; ops->scalars && ops->scalars[k]; k++)
      if (again.scalar[k] < first[i].scalar[k] || again.scalar[k] > first[i].scalar[k])
        return brim_check_say(c, BRIM_FOUND_FAILED,
                              "'%s' of step %" PRId64
                              " is %.17g, and %.17g when it is computed again: step() must depend "
                              "on its arguments alone",
                              ops->scalars[k], i, first[i].scalar[k], again.scalar[k]);
  }
  return brim_check_say(c, BRIM_FOUND_OK, "%d steps, the same when computed again", STEPS);
}

static enum brim_finding check_step(brim_check *c)
{
  const brim_optimizer_ops *ops = c->plugin->ops;
  brim_config *config = NULL;
  if (!ops->step) return brim_check_say(c, BRIM_FOUND_OK, "no scalars: the formula uses none");
  if (configure(c, NULL, &config) != BRIM_OK) return brim_check_blame(c, true);
  brim_step *first = brim_xcalloc(STEPS, sizeof *first);
  const enum brim_finding finding = compare_steps(c, brim_config_choice_of(config, "optimizer")->params, first);
  free(first);
  brim_config_free(config);
  return finding;
}

/* ---- updates ---- */

typedef struct updated {
  brim_drive *drive;
  brim_plan *plan;
  brim_exec *exec;
  const brim_program *update;
} updated;

static brim_status open_updated(const brim_config *config, updated *u)
{
  BRIM_TRY(brim_drive_open(config, &(brim_setup_options){0}, &u->drive));
  BRIM_TRY(brim_planner_plan(&u->drive->planner, &u->drive->choice, false, &u->plan));
  BRIM_TRY(brim_plan_check(u->plan));
  BRIM_TRY(brim_exec_open(u->plan, 0, &u->exec));
  u->update = brim_plan_program(u->plan, BRIM_PROGRAM_UPDATE, 0);
  return BRIM_OK;
}

static void close_updated(updated *u)
{
  brim_exec_close(u->exec);
  brim_plan_free(u->plan);
  brim_drive_close(u->drive);
}

/* Draws values of parameters and gradients; some gradients are 0. */
static brim_status write_drawn(const updated *u, const brim_tensor *to, uint32_t draw, double most)
{
  const int64_t count = brim_shape_count(&to->shape);
  double *value = brim_xcalloc((size_t)count, sizeof *value);
  for (int64_t i = 0; i < count; i++) {
    const brim_philox random = brim_philox4x32((uint32_t)i, to->id, draw, 0, 7, 11);
    value[i] = random.v[1] % 8 == 0 ? 0 : most * (2.0 * random.v[0] / UINT32_MAX - 1);
  }
  const brim_status status = brim_exec_write(u->exec, u->update, to, value);
  free(value);
  return status;
}

static brim_status check_finite(const updated *u, const brim_tensor *of, int step)
{
  const int64_t count = brim_shape_count(&of->shape);
  double *value = brim_xcalloc((size_t)count, sizeof *value);
  brim_status status = brim_exec_read(u->exec, u->update, of, value);
  for (int64_t i = 0; i < count && status == BRIM_OK && of->dtype == BRIM_DTYPE_F64; i++)
    if (!isfinite(value[i]))
      status = brim_fail(BRIM_ENUMERIC, "'%s' has a value of %g after update %d, with gradients up to %g", of->name,
                         value[i], step + 1, GRADIENT);
  free(value);
  return status;
}

static brim_status update_all(const brim_check *c, const brim_config *config, updated *u)
{
  BRIM_TRY(open_updated(config, u));
  for (int step = 0; step < UPDATES; step++) {
    const brim_graph *g = u->update->graph;
    const brim_setup *s = u->drive->setup;
    brim_step now = {.step = (uint64_t)step, .gradient_scale = 1};
    for (size_t i = 0; i < g->parameter_count; i++) {
      const brim_parameter *p = &g->parameter[i];
      if (step == 0) BRIM_TRY(write_drawn(u, p->value, 0, 1));
      if (p->gradient) BRIM_TRY(write_drawn(u, p->gradient, 1 + (uint32_t)step, GRADIENT));
    }
    BRIM_TRY(brim_optimizer_fill(c->plugin, s->optimizer_params, 1, &now));
    BRIM_TRY(brim_exec_run(u->exec, u->update, &now, NULL));
    for (size_t i = 0; i < g->parameter_count; i++) BRIM_TRY(check_finite(u, g->parameter[i].value, step));
    for (size_t i = 0; i < g->state_count; i++) BRIM_TRY(check_finite(u, g->state[i].tensor, step));
  }
  return BRIM_OK;
}

static enum brim_finding check_update(brim_check *c)
{
  updated u = {NULL};
  brim_config *config = NULL;
  brim_status status = configure(c, NULL, &config);
  if (status == BRIM_OK) status = update_all(c, config, &u);
  enum brim_finding finding;
  if (status == BRIM_OK)
    finding = brim_check_say(c, BRIM_FOUND_OK, "%d updates of a small network; %zu states of %zu parameters", UPDATES,
                             u.update->graph->state_count, u.update->graph->parameter_count);
  else
    finding = brim_check_error(c, "updates of a small network");
  close_updated(&u);
  brim_config_free(config);
  return finding;
}

/* ---- parameters ---- */

static enum brim_check_trial try_word(brim_check *c, const char *word)
{
  brim_config *config = NULL;
  updated u = {NULL};
  if (configure(c, word, &config) != BRIM_OK) return BRIM_TRIAL_REFUSED;
  const brim_status status = open_updated(config, &u);
  close_updated(&u);
  brim_config_free(config);
  return brim_check_tried(c, word, status, false);
}

const brim_check_kind brim_optimizer_checks[] = {
    {"step", check_step}, {"update", check_update, .needs_sound = true}, BRIM_CHECK_PARAMETERS(try_word), {NULL}};
