#include "train/snapshot.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/align.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "graph/update.h"

#define ALIGNMENT 64u

/* The state while a plan's tensors are listed. */
typedef struct listing {
  brim_snapshot *snapshot;
  const brim_plan *plan;
  const brim_graph *update; /* may be NULL */
  brim_safetensor *state;   /* the optimizer's */
  size_t count, next;       /* number of tensors; index of the graph's first state that is not listed yet */
} listing;

static brim_safetensor describe(brim_snapshot *s, const brim_tensor *t, const char *name)
{
  return (brim_safetensor){brim_arena_string(&s->arena, name), t->dtype, t->shape, NULL};
}

static void add_optimizer_tensor(listing *l, const brim_tensor *t, brim_safetensor described)
{
  l->snapshot->optimizer[l->count] = t;
  l->state[l->count++] = described;
}

/* Adds all states of a parameter, of which a rank may have slices, or none. */
static void add_states(listing *l, size_t parameter)
{
  brim_snapshot *s = l->snapshot;
  const brim_parameter *p = &l->update->parameter[parameter];
  if (!brim_parameter_is_trained(p)) return;
  const brim_update_form form = brim_update_form_of(&l->plan->request.update, p->value);
  for (uint32_t k = 0; k < form.state_count; k++) {
    const bool own = l->next < l->update->state_count && l->update->state[l->next].parameter == parameter;
    const brim_state *state = own ? &l->update->state[l->next++] : NULL;
    brim_safetensor described = {.name = brim_update_state_name(&s->arena, p->value, &form, k),
                                 .dtype = form.state[k].dtype,
                                 .shape = form.state[k].shape,
                                 .is_slice = l->plan->shards != NULL};
    if (described.is_slice && state) {
      described.first = (uint64_t)state->first;
      described.count = (uint64_t)brim_shape_count(&state->tensor->shape);
    }
    add_optimizer_tensor(l, state ? state->tensor : NULL, described);
  }
}

/* Lists the tensors, without values. */
static void list(brim_snapshot *s, const brim_plan *plan)
{
  s->update_program = brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0);
  const brim_graph *g = plan->program[0].graph, *update = s->update_program ? s->update_program->graph : NULL;
  const bool averages = update && update->first_average < update->node_count;
  const size_t count = g->parameter_count, room = update ? count * (BRIM_OPTIMIZER_STATES_MAX + 1) : 0;
  brim_safetensor *model = BRIM_ARENA_NEW(&s->arena, brim_safetensor, count);
  listing l = {s, plan, update, BRIM_ARENA_NEW(&s->arena, brim_safetensor, room), 0, 0};
  s->model_program = averages ? s->update_program : &plan->program[0];
  s->model = BRIM_ARENA_NEW(&s->arena, const brim_tensor *, count);
  s->optimizer = BRIM_ARENA_NEW(&s->arena, const brim_tensor *, room);
  size_t models = 0;
  for (size_t i = 0; i < count; i++) {
    const char *name = g->parameter[i].value->name;
    if (g->parameter[i].is_frozen) continue;
    s->model[models] = averages ? update->node[update->first_average + models]->out[0] : g->parameter[i].value;
    model[models] = describe(s, s->model[models], name);
    models++;
    if (update) add_states(&l, i);
    if (!averages) continue;
    const brim_tensor *raw = update->parameter[i].value;
    add_optimizer_tensor(&l, raw, describe(s, raw, brim_arena_printf(&s->arena, "%s.raw", name)));
  }
  s->tensors = (brim_checkpoint_tensors){model, l.state, models, l.count, NULL};
}

/* Returns the bytes that this rank has of the k-th of all tensors; the model's come first. */
static uint64_t bytes_at(const brim_snapshot *s, size_t k)
{
  const size_t models = s->tensors.model_count;
  const brim_tensor *t = k < models ? s->model[k] : s->optimizer[k - models];
  return t ? t->bytes : 0;
}
static brim_safetensor *item_at(const brim_checkpoint_tensors *t, size_t k)
{
  return (brim_safetensor *)(k < t->model_count ? &t->model[k] : &t->optimizer[k - t->model_count]);
}
static size_t count_of(const brim_checkpoint_tensors *t)
{
  return t->model_count + t->optimizer_count;
}

/* ---- on the device ---- */

typedef struct place {
  const brim_program *program;
  const brim_tensor *tensor;
} place;

static place place_of(const brim_snapshot *s, enum brim_checkpoint_part part, size_t i)
{
  return part == BRIM_CHECKPOINT_MODEL ? (place){s->model_program, s->model[i]}
                                       : (place){s->update_program, s->optimizer[i]};
}

static brim_status read_device(void *context, enum brim_checkpoint_part part, size_t i, uint64_t first, uint64_t bytes,
                               void *host)
{
  const brim_snapshot *s = context;
  const place at = place_of(s, part, i);
  return brim_exec_read_part(s->exec, at.program, at.tensor, first, bytes, host);
}

static brim_status write_device(void *context, enum brim_checkpoint_part part, size_t i, uint64_t first, uint64_t bytes,
                                const void *host)
{
  const brim_snapshot *s = context;
  const place at = place_of(s, part, i);
  return brim_exec_write_part(s->exec, at.program, at.tensor, first, bytes, host);
}

/* If the arena is host memory, values are read and written there, without a copy. If the wait fails, so does the first
 * copy. */
static void find_values(brim_snapshot *s)
{
  if (brim_exec_wait(s->exec) != BRIM_OK) return;
  for (size_t k = 0; k < count_of(&s->tensors); k++) {
    const size_t models = s->tensors.model_count;
    const place at =
        k < models ? place_of(s, BRIM_CHECKPOINT_MODEL, k) : place_of(s, BRIM_CHECKPOINT_OPTIMIZER, k - models);
    if (at.tensor) item_at(&s->tensors, k)->data = brim_exec_host_values(s->exec, at.program, at.tensor);
  }
}

void brim_snapshot_list(brim_exec *exec, brim_snapshot *s)
{
  *s = (brim_snapshot){.exec = exec, .device = {read_device, write_device, s}};
  list(s, brim_exec_plan(exec));
  s->tensors.device = &s->device;
  find_values(s);
}

/* ---- a copy on the host ---- */

/* Maps pages of a file in `folder`, and reserves its space on the disk, because a page that cannot be written later
 * causes no error. */
static bool map_file(brim_snapshot *s, const char *folder, int32_t rank)
{
  char name[64], path[BRIM_PATH_MAX];
  int fd;
  snprintf(name, sizeof name, "values.%d.tmp", (int)rank);
  if (!folder || !folder[0] || brim_path_join(path, folder, name) != BRIM_OK ||
      brim_file_create_unnamed(path, s->bytes, &fd) != BRIM_OK)
    return false;
  void *map = posix_fallocate(fd, 0, (off_t)s->bytes) == 0
                  ? mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                  : MAP_FAILED;
  close(fd);
  s->is_mapped = map != MAP_FAILED;
  if (s->is_mapped) s->values = map;
  return s->is_mapped;
}

static brim_status make_room(brim_snapshot *s, const char *folder, int32_t rank)
{
  s->bytes = ALIGNMENT;
  for (size_t k = 0; k < count_of(&s->tensors); k++) s->bytes += brim_round_up(bytes_at(s, k), ALIGNMENT);
  if (map_file(s, folder, rank)) return BRIM_OK;
  s->values = brim_try_aligned(ALIGNMENT, s->bytes);
  if (s->values) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM_HOST, "no host memory for a copy of the parameters (%llu bytes)",
                   (unsigned long long)s->bytes);
}

/* Copies between the device of `at`, which lists the same tensors, and the values of `s`. */
static brim_status transfer(const brim_snapshot *s, brim_snapshot *at, bool to_device)
{
  const size_t models = s->tensors.model_count;
  for (size_t k = 0; k < count_of(&s->tensors); k++) {
    const enum brim_checkpoint_part part = k < models ? BRIM_CHECKPOINT_MODEL : BRIM_CHECKPOINT_OPTIMIZER;
    const size_t i = k < models ? k : k - models;
    const uint64_t bytes = bytes_at(at, k); /* 0: of another rank */
    void *host = (void *)item_at(&s->tensors, k)->data;
    if (bytes > 0)
      BRIM_TRY(to_device ? write_device(at, part, i, 0, bytes, host) : read_device(at, part, i, 0, bytes, host));
  }
  return BRIM_OK;
}

brim_status brim_snapshot_copy(brim_exec *exec, const char *folder, int32_t rank, brim_snapshot *s)
{
  uint64_t at = 0;
  brim_snapshot_list(exec, s);
  brim_status status = make_room(s, folder, rank);
  for (size_t k = 0; status == BRIM_OK && k < count_of(&s->tensors); k++) {
    item_at(&s->tensors, k)->data = (char *)s->values + at;
    at += brim_round_up(bytes_at(s, k), ALIGNMENT);
  }
  if (status == BRIM_OK) status = transfer(s, s, false);
  s->exec = NULL;
  s->tensors.device = NULL;
  if (status != BRIM_OK) brim_snapshot_release(s);
  return status;
}

brim_status brim_snapshot_put(brim_snapshot *s, brim_exec *exec)
{
  brim_snapshot to;
  brim_snapshot_list(exec, &to);
  bool same =
      s->tensors.model_count == to.tensors.model_count && s->tensors.optimizer_count == to.tensors.optimizer_count;
  for (size_t k = 0; same && k < count_of(&to.tensors); k++) {
    const brim_safetensor *was = item_at(&s->tensors, k), *is = item_at(&to.tensors, k);
    same = strcmp(was->name, is->name) == 0 && was->dtype == is->dtype && brim_shape_equal(&was->shape, &is->shape) &&
           was->first == is->first && was->count == is->count;
  }
  const brim_status status = same
                                 ? transfer(s, &to, true)
                                 : brim_fail(BRIM_EINTERNAL, "another plan of the same training has different tensors");
  brim_snapshot_release(&to);
  return status;
}

void brim_snapshot_release(brim_snapshot *s)
{
  if (s->is_mapped)
    munmap(s->values, s->bytes);
  else
    free(s->values);
  s->values = NULL;
  s->is_mapped = false;
  brim_arena_release(&s->arena);
}
