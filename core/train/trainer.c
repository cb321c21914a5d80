/* A trainer's parts: a placed plan and its values. Steps are in trainer_step.c. See trainer.h. */
#include "train/trainer.h"

#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "drive/placement.h"
#include "exec/initialize.h"
#include "setup/features.h"
#include "setup/loss_scale.h"
#include "setup/setup_weights.h"
#include "train/trainer_parts.h"

static void init_state(brim_trainer *t)
{
  const brim_config *c = t->drive->setup->config;
  t->state = (brim_train_state){.profile_hash = t->state.profile_hash,
                                .gradient_norm = NAN,
                                .best_loss = NAN,
                                .best_step = -1,
                                .evaluated_accuracy = NAN,
                                .settled_loss = NAN,
                                .settled_accuracy = NAN,
                                .train_loss = NAN,
                                .train_accuracy = NAN,
                                .train_mae = NAN};
  t->state.model_hash = brim_graph_hash(t->plan->program[0].graph);
  const struct {
    const char *group;
    char *id;
  } ids[] = {{"model", t->state.model_id}, {"optimizer", t->state.optimizer_id}, {"backend", t->state.backend_id}};
  for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
    snprintf(ids[i].id, sizeof t->state.model_id, "%s", brim_config_choice_of(c, ids[i].group)->plugin->id);
  brim_loss_scale_start(t->drive->setup->settings, &t->state);
}

static brim_status place(brim_trainer *t, const brim_evaluation_wish *wish)
{
  BRIM_TRY(brim_placement_open(t->drive, wish, &t->plan, &t->exec));
  t->check = brim_plan_program(t->plan, BRIM_PROGRAM_CHECK, 0);
  t->update = brim_plan_program(t->plan, BRIM_PROGRAM_UPDATE, 0);
  const brim_program *p = &t->plan->program[0];
  const brim_tensor *w = p->graph->class_weight;
  if (w) BRIM_TRY(brim_exec_write_as(t->exec, p, w, BRIM_DTYPE_F64, t->drive->setup->class_weights.item));
  if (t->plan->lane_count == 0) return BRIM_OK;
  const bool is_new = !t->federation;
  if (is_new) BRIM_TRY(brim_federation_open(t->drive->setup, &t->federation));
  BRIM_TRY(brim_federation_place(t->federation, t->drive, t->exec));
  return is_new && t->folder ? brim_federation_keep_in(t->federation, t->folder, false) : BRIM_OK;
}

static void unplace(brim_trainer *t)
{
  if (t->federation) brim_federation_unplace(t->federation);
  brim_loader_close(t->loader); /* the loader's micro-batches belong to the plan */
  brim_exec_close(t->exec);
  brim_plan_free(t->plan);
  t->loader = NULL;
  t->exec = NULL;
  t->plan = NULL;
  t->check = t->update = NULL;
}

/* Writes the frozen parameters, which checkpoints do not contain, into the arena that was just placed. */
static brim_status write_frozen(brim_trainer *t)
{
  if (t->drive->setup->features) {
    t->state.frozen_xxh64 = t->drive->setup->features->weights;
    return BRIM_OK;
  }
  return brim_frozen_write(t->drive->setup, t->exec, &t->plan->program[0], &t->state.frozen_xxh64);
}

/* Trained parameters are valid only with the frozen parameters with which they were trained. */
static brim_status check_frozen(const brim_trainer *t, brim_train_state *state, const char *checkpoint)
{
  bool same;
  BRIM_TRY(brim_frozen_check(t->drive->setup, t->plan->program[0].graph, state, t->state.frozen_xxh64, &same));
  if (same) {
    state->frozen_xxh64 = t->state.frozen_xxh64;
    state->frozen_hash = 0;
    return BRIM_OK;
  }
  return brim_fail(BRIM_ELOAD,
                   "checkpoint '%s' was trained on a backbone with other weights (hash %016llx) than those loaded now "
                   "(%016llx)\na checkpoint has only the trained parameters: use the backbone, weights and seed of the "
                   "run that wrote it\nif the files were moved or changed, set model.weights=PATH to those of the run",
                   checkpoint, (unsigned long long)(state->frozen_xxh64 ? state->frozen_xxh64 : state->frozen_hash),
                   (unsigned long long)t->state.frozen_xxh64);
}

/* Whether the program has parameters of its own. Evaluation may; they start with the same values. */
static bool has_parameters(const brim_trainer *t, size_t program)
{
  return program == 0 ||
         (t->plan->evaluated_offset != t->plan->parameter_offset && brim_program_evaluates(&t->plan->program[program]));
}

/* Initializes the state and the values. */
static brim_status begin_training(brim_trainer *t)
{
  init_state(t);
  t->begun_steps = 0;
  for (size_t i = 0; i < t->plan->program_count; i++)
    if (has_parameters(t, i))
      BRIM_TRY(brim_initialize_parameters(t->exec, &t->plan->program[i], (uint64_t)t->drive->setup->settings->seed));
  return write_frozen(t);
}

/* Reads the parameters of a checkpoint, for evaluation only. */
static brim_status read_model(brim_trainer *t, const char *checkpoint)
{
  brim_train_state state;
  BRIM_TRY(brim_checkpoint_read_state(checkpoint, &state));
  if (strcmp(state.model_id, t->state.model_id) != 0)
    return brim_fail(BRIM_ELOAD, "checkpoint '%s' has model '%s', the configuration has '%s'", checkpoint,
                     state.model_id, t->state.model_id);
  BRIM_TRY(write_frozen(t));
  BRIM_TRY(check_frozen(t, &state, checkpoint));
  brim_snapshot s;
  brim_snapshot_list(t->exec, &s);
  const brim_status status = brim_checkpoint_read(checkpoint, &s.tensors);
  brim_snapshot_release(&s);
  if (status == BRIM_OK) t->state = state;
  return status;
}

/* ---- loaded weights ---- */

/* Gives a parameter its first values. */
static brim_status initialize(brim_trainer *t, size_t parameter)
{
  for (size_t k = 0; k < t->plan->program_count; k++)
    if (has_parameters(t, k))
      BRIM_TRY(brim_initialize_parameter(t->exec, &t->plan->program[k],
                                         &t->plan->program[k].graph->parameter[parameter],
                                         (uint64_t)t->drive->setup->settings->seed));
  return BRIM_OK;
}

/* Parameters have the same index in every program. `rest`: the other parameters get their first values. */
static brim_status fill(brim_trainer *t, const brim_setup_weights *w, bool rest)
{
  const brim_plan *plan = t->plan;
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < w->count && status == BRIM_OK; i++) {
    const bool has_source = brim_weights_source(w->weights, i) != NULL;
    if (!has_source && rest) status = initialize(t, w->index[i]);
    if (!has_source) continue;
    void *values = brim_try_malloc(w->parameter[i]->bytes);
    if (!values) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the values of '%s'", w->parameter[i]->name);
    status = brim_weights_read(w->weights, i, values);
    for (size_t k = 0; k < plan->program_count && status == BRIM_OK; k++)
      if (has_parameters(t, k))
        status =
            brim_exec_write(t->exec, &plan->program[k], plan->program[k].graph->parameter[w->index[i]].value, values);
    free(values);
  }
  return status;
}

static brim_status load_weights(brim_trainer *t, bool rest, json_t **record)
{
  brim_setup_weights w;
  brim_text text = {0};
  brim_status status = BRIM_OK;
  if (record) *record = NULL;
  BRIM_TRY(brim_setup_weights_open(t->drive->setup, t->plan->program[0].graph, &w));
  if (w.weights) {
    if (!brim_config_backbone(t->drive->setup->config))
      status = fill(t, &w, rest); /* for a backbone, brim_frozen_write has done it */
    if (status == BRIM_OK && record && !(*record = brim_weights_json(w.weights, true))) status = BRIM_ELOAD;
    if (status == BRIM_OK) brim_weights_print(w.weights, &text);
    if (status == BRIM_OK) brim_log(BRIM_LOG_INFO, "weights: %s", brim_text_str(&text));
  }
  brim_text_release(&text);
  brim_setup_weights_close(&w);
  return status;
}

/* ---- opening ---- */

/* Reads the parameters of model.weights; parameters that it lacks get their first values. */
static brim_status read_weights(brim_trainer *t)
{
  if (brim_config_backbone(t->drive->setup->config)) return begin_training(t);
  return load_weights(t, true, NULL);
}

/* Opens a trainer. With `wish` it evaluates `checkpoint` (NULL: model.weights); without, it trains. */
static brim_status open_trainer(brim_drive *drive, const brim_evaluation_wish *wish, const char *checkpoint,
                                brim_trainer **out)
{
  brim_trainer *t = brim_xcalloc(1, sizeof *t);
  t->drive = drive;
  brim_status status = brim_trainer_make_metrics(t);
  if (status == BRIM_OK) status = place(t, wish);
  if (status == BRIM_OK && wish) {
    init_state(t);
    status = checkpoint ? read_model(t, checkpoint) : read_weights(t);
  } else if (status == BRIM_OK) {
    brim_footprint_predict(&drive->planner, t->plan, drive->choice.micro_batch, &t->footprint);
    status = begin_training(t);
  }
  if (status == BRIM_OK) status = brim_setup_finish_data(drive->setup);
  if (status == BRIM_OK)
    *out = t;
  else
    brim_trainer_close(t);
  return status;
}

brim_status brim_trainer_open(brim_drive *drive, brim_trainer **out)
{
  BRIM_TRY(open_trainer(drive, NULL, NULL, out));
  brim_footprint_follow_data(drive->setup, &drive->choice, &(*out)->footprint);
  return BRIM_OK;
}

brim_status brim_trainer_open_evaluation(brim_drive *drive, int64_t count, int64_t batch, bool keep_output,
                                         const char *checkpoint, brim_trainer **out)
{
  const brim_evaluation_wish wish = {.count = count, .batch = batch, .keep_output = keep_output};
  return open_trainer(drive, &wish, checkpoint, out);
}

brim_status brim_trainer_open_generation(brim_drive *drive, const brim_evaluation_wish *wish, const char *checkpoint,
                                         brim_trainer **out)
{
  return open_trainer(drive, wish, checkpoint, out);
}

void brim_trainer_close(brim_trainer *t)
{
  if (!t) return;
  unplace(t);
  brim_federation_close(t->federation);
  brim_snapshot_release(&t->kept);
  free(t->metrics);
  free(t->exact);
  free(t->exact_of_ranks);
  free(t);
}

brim_status brim_trainer_keep_in(brim_trainer *t, const char *folder, bool is_new)
{
  t->folder = folder;
  return t->federation ? brim_federation_keep_in(t->federation, folder, is_new) : BRIM_OK;
}

const brim_drive *brim_trainer_drive(const brim_trainer *t)
{
  return t->drive;
}
const brim_plan *brim_trainer_plan(const brim_trainer *t)
{
  return t->plan;
}
brim_exec *brim_trainer_exec(brim_trainer *t)
{
  return t->exec;
}
uint64_t brim_trainer_device_bytes(const brim_trainer *t)
{
  return t->exec ? brim_exec_bytes(t->exec) : 0;
}
uint64_t brim_trainer_host_bytes(const brim_trainer *t)
{
  return t->loader_bytes;
}
const brim_footprint *brim_trainer_footprint(const brim_trainer *t)
{
  return &t->footprint;
}
brim_train_state *brim_trainer_state(brim_trainer *t)
{
  return &t->state;
}
double brim_trainer_lr(const brim_trainer *t)
{
  return t->step.lr;
}
double brim_trainer_gradient_scale(const brim_trainer *t)
{
  return t->step.gradient_scale;
}

brim_status brim_trainer_load_weights(brim_trainer *t, json_t **record)
{
  return load_weights(t, false, record);
}

/* ---- checkpoints ---- */

bool brim_trainer_has_values(const brim_trainer *t)
{
  return t->is_kept || (t->exec && !t->torn);
}

static brim_status meet_to_write(void *context, brim_status own)
{
  return brim_trainer_meet(context, BRIM_MEET_CHECKPOINT, own);
}

/* Lists the tensors of a checkpoint: the plan's and, in a federation, the clients' data. The caller frees *list.
 * ENOMEM_HOST. */
static brim_status add_clients(brim_trainer *t, const brim_checkpoint_tensors *of_plan, brim_checkpoint_tensors *out,
                               brim_safetensor **list)
{
  *out = *of_plan;
  *list = NULL;
  if (!t->federation) return BRIM_OK;
  const size_t count = brim_federation_tensors(t->federation, NULL), before = of_plan->optimizer_count;
  *list = brim_try_malloc((before + count) * sizeof **list);
  if (!*list) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the list of a checkpoint's tensors");
  if (before > 0) memcpy(*list, of_plan->optimizer, before * sizeof **list);
  (void)brim_federation_tensors(t->federation, *list + before);
  out->optimizer = *list;
  out->optimizer_count = before + count;
  return BRIM_OK;
}

static brim_status write_tensors(brim_trainer *t, const char *run_dir, const brim_checkpoint_tensors *tensors,
                                 int64_t keep)
{
  const brim_world *w = &t->drive->setup->world;
  const brim_checkpoint_ranks ranks = {w->rank, w->ranks, t, meet_to_write};
  if (!t->drive->setup->options.dist) return brim_checkpoint_write(run_dir, &t->state, tensors, keep);
  return brim_checkpoint_write_together(run_dir, &t->state, tensors, keep, &ranks);
}

static brim_status write_values(brim_trainer *t, const char *run_dir, const brim_checkpoint_tensors *of_plan,
                                int64_t keep)
{
  brim_checkpoint_tensors all;
  brim_safetensor *list = NULL;
  brim_status added = t->federation ? brim_federation_sync(t->federation) : BRIM_OK;
  if (added == BRIM_OK) added = add_clients(t, of_plan, &all, &list);
  if (added != BRIM_OK) return t->drive->setup->options.dist ? meet_to_write(t, added) : added;
  const brim_status status = write_tensors(t, run_dir, &all, keep);
  free(list);
  return status;
}

static brim_status write_checkpoint(brim_trainer *t, const char *run_dir, int64_t keep)
{
  brim_snapshot s;
  brim_status status = BRIM_OK;
  const bool has_to_write =
      !t->drive->setup->options.dist || t->drive->setup->world.rank == 0 || (t->plan && t->plan->shards);
  if (t->is_kept) return write_values(t, run_dir, &t->kept.tensors, keep);
  if (!brim_trainer_has_values(t))
    status = brim_fail(BRIM_EINTERNAL, "the parameters of step %lld are lost", (long long)t->state.step);
  if (status != BRIM_OK || !has_to_write) return t->drive->setup->options.dist ? meet_to_write(t, status) : status;
  brim_snapshot_list(t->exec, &s);
  status = write_values(t, run_dir, &s.tensors, keep);
  brim_snapshot_release(&s);
  return status;
}

brim_status brim_trainer_checkpoint(brim_trainer *t, const char *run_dir, int64_t keep)
{
  BRIM_TRY(write_checkpoint(t, run_dir, keep));
  if (t->federation) brim_federation_checkpointed(t->federation);
  return BRIM_OK;
}

/* ---- another plan ---- */

static brim_status place_again(brim_trainer *t)
{
  const uint64_t before = t->footprint.total_bytes;
  brim_drive_begin(t->drive);
  brim_status status = brim_planner_look(&t->drive->planner);
  if (status == BRIM_OK) status = place(t, NULL);
  brim_drive_end_hold(t->drive);
  BRIM_TRY(status);
  snprintf(t->state.backend_id, sizeof t->state.backend_id, "%s", brim_setup_backend_id(t->drive->setup));
  brim_footprint_predict(&t->drive->planner, t->plan, t->drive->choice.micro_batch, &t->footprint);
  if (before > t->footprint.total_bytes) t->footprint.total_bytes = before;
  /* The new plan may have made the loader again, which then has no data yet. */
  return brim_setup_finish_data(t->drive->setup);
}

void brim_trainer_follow(brim_trainer *t, brim_drive *drive)
{
  t->drive = drive;
  brim_federation_close(t->federation); /* belongs to the previous setup */
  t->federation = NULL;
}

/* Restores the kept values. Reads frozen ones again, from files that may have changed. */
static brim_status put_back(brim_trainer *t)
{
  const uint64_t before = t->state.frozen_xxh64;
  BRIM_TRY(place_again(t));
  BRIM_TRY(write_frozen(t));
  if (t->state.frozen_xxh64 == before) return brim_snapshot_put(&t->kept, t->exec);
  t->state.frozen_xxh64 = before;
  return brim_fail(
      BRIM_ELOAD,
      "the weights of the backbone, '%s', differ from those that the run began with\nrestore them and resume the run",
      t->drive->setup->settings->model.weights);
}

brim_status brim_trainer_park(brim_trainer *t, const char *folder)
{
  if (brim_trainer_is_ahead(t))
    return brim_fail(BRIM_EINTERNAL, "attempt to change the plan within step %lld", (long long)t->state.step + 1);
  if (!t->is_kept && brim_trainer_has_values(t)) {
    BRIM_TRY(brim_snapshot_copy(t->exec, folder, t->drive->setup->world.rank, &t->kept));
    t->is_kept = true;
  }
  if (t->exec) /* Without this, the run would queue for the memory that it has just released. */
    (void)brim_drive_hold(t->drive, false);
  unplace(t);
  return BRIM_OK;
}

brim_status brim_trainer_replan(brim_trainer *t, const char *folder)
{
  BRIM_TRY(brim_trainer_park(t, folder));
  if (!t->is_kept) return brim_fail(BRIM_EINTERNAL, "the parameters of step %lld are lost", (long long)t->state.step);
  const brim_status status = put_back(t);
  if (status != BRIM_OK) {
    unplace(t);
    return status;
  }
  t->is_kept = false;
  brim_snapshot_release(&t->kept);
  return BRIM_OK;
}

/* ---- from a checkpoint ---- */

brim_status brim_trainer_resume(brim_trainer *t, const char *checkpoint)
{
  brim_train_state state;
  BRIM_TRY(brim_checkpoint_read_state(checkpoint, &state));
  const struct {
    const char *what, *theirs, *ours;
  } ids[] = {{"model", state.model_id, t->state.model_id}, {"optimizer", state.optimizer_id, t->state.optimizer_id}};
  for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
    if (strcmp(ids[i].theirs, ids[i].ours) != 0)
      return brim_fail(BRIM_ELOAD, "checkpoint '%s' has %s '%s', this run has '%s'", checkpoint, ids[i].what,
                       ids[i].theirs, ids[i].ours);
  /* A run that ran out of memory may have just left its backend. */
  if (strcmp(state.backend_id, t->state.backend_id) != 0)
    brim_log(BRIM_LOG_WARN,
             "checkpoint '%s' was written with backend '%s', and the run continues with '%s': from here on its results "
             "differ by rounding",
             checkpoint, state.backend_id, t->state.backend_id);
  BRIM_TRY(check_frozen(t, &state, checkpoint));
  brim_snapshot s;
  brim_footprint_add_resume(&t->footprint);
  brim_snapshot_list(t->exec, &s);
  brim_checkpoint_tensors all;
  brim_safetensor *list;
  brim_status status = add_clients(t, &s.tensors, &all, &list);
  if (status == BRIM_OK) status = brim_checkpoint_read(checkpoint, &all);
  free(list);
  if (status == BRIM_OK && t->federation) status = brim_federation_recall(t->federation, checkpoint);
  if (status == BRIM_OK && state.model_hash != t->state.model_hash)
    status =
        brim_fail(BRIM_ELOAD, "checkpoint '%s' is of another model: its parameters have another order", checkpoint);
  brim_snapshot_release(&s);
  if (status != BRIM_OK) return status;
  t->state = state;
  snprintf(t->state.backend_id, sizeof t->state.backend_id, "%s", brim_setup_backend_id(t->drive->setup));
  t->begun_steps = state.step;
  brim_loss_scale_start(t->drive->setup->settings, &t->state);
  brim_begun last = {.scale = 1};
  if (state.step > 0) BRIM_TRY(brim_trainer_make_step(t, state.step - 1, 1, &last));
  t->step = last.step; /* records that are written before a step contain its learning rate */
  return BRIM_OK;
}

brim_status brim_trainer_restart(brim_trainer *t, const char *checkpoint)
{
  t->is_kept = false;
  brim_snapshot_release(&t->kept);
  if (t->federation) brim_federation_forget(t->federation);
  if (t->exec) (void)brim_drive_hold(t->drive, false);
  unplace(t);
  if (!checkpoint) { /* no data of clients yet */
    brim_federation_close(t->federation);
    t->federation = NULL;
  }
  brim_status status = place_again(t);
  if (status == BRIM_OK) status = begin_training(t);
  if (status == BRIM_OK && !checkpoint && t->federation) status = brim_federation_recall(t->federation, NULL);
  if (status == BRIM_OK) status = checkpoint ? brim_trainer_resume(t, checkpoint) : brim_trainer_load_weights(t, NULL);
  if (status != BRIM_OK) {
    unplace(t);
    return status;
  }
  t->torn = false;
  return BRIM_OK;
}

/* ---- memory ---- */

void brim_trainer_clean(brim_trainer *t, enum brim_cleanup cleanup)
{
  const brim_setup *s = t->drive->setup;
  if (cleanup == BRIM_CLEAN_HEAVY && !brim_trainer_is_ahead(t)) {
    brim_loader_close(t->loader); /* the next step opens it at its new position */
    t->loader = NULL;
  }
  if (cleanup == BRIM_CLEAN_HEAVY && BRIM_HAS(brim_backend_ops, s->backend_ops, trim)) s->backend_ops->trim(s->backend);
  if (cleanup != BRIM_CLEAN_NONE) malloc_trim(0);
}
