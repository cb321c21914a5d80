/* Fills a checkpoint's folder: by one process, or by all ranks of a job. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "store/checkpoint_attempt.h"
#include "store/checkpoint_state.h"

/* Syncs the records. state.json counts them (in participants.jsonl, rounds), so after a power failure there must not be
 * fewer. */
static brim_status sync_logs(const char *run_dir)
{
  static const char *const names[] = {"metrics.jsonl", "events.jsonl", "participants.jsonl"};
  char path[BRIM_PATH_MAX];
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    BRIM_TRY(brim_path_join(path, run_dir, names[i]));
    const int fd = brim_open_to_read(path);
    if (fd < 0 && errno == ENOENT) continue;
    if (fd < 0) return brim_fail(BRIM_EIO, "cannot open '%s': %s", path, brim_open_reason(errno));
    BRIM_TRY(brim_file_finish(fd, path));
  }
  return BRIM_OK;
}

/* Metadata of the safetensors' headers: pairs, ended by NULL. */
#define METADATA(state)                                                                                                \
  {                                                                                                                    \
    "format", "pt", "producer", "brim", "model", (state)->model_id, NULL                                               \
  }

/* A file of a checkpoint, and the tensors in it. */
typedef struct part {
  char path[BRIM_PATH_MAX];
  enum brim_checkpoint_part which;
  const brim_safetensor *tensor;
  size_t count;
  const brim_checkpoint_device *device;
  void *room; /* memory for a piece of the device's values */
} part;

static brim_status find_part(const char *folder, const brim_checkpoint_tensors *tensors, int i, part *out)
{
  *out = (part){.which = (enum brim_checkpoint_part)i,
                .tensor = i == BRIM_CHECKPOINT_MODEL ? tensors->model : tensors->optimizer,
                .count = i == BRIM_CHECKPOINT_MODEL ? tensors->model_count : tensors->optimizer_count,
                .device = tensors->device};
  return brim_path_join(out->path, folder, brim_checkpoint_part_name[i]);
}

static brim_status read_device(void *context, size_t i, uint64_t first, uint64_t bytes, const void **out)
{
  const part *p = context;
  *out = p->room;
  return p->device->read(p->device->context, p->which, i, first, bytes, p->room);
}

/* Writes a part: the whole file if `ranks` is NULL, else this rank's share of it. */
static brim_status write_part(part *p, const char *const *metadata, const brim_checkpoint_ranks *ranks,
                              brim_file_digest *digest)
{
  const brim_safetensors_source device = {read_device, p, BRIM_CHECKPOINT_PIECE_BYTES};
  const brim_safetensors_source *source = p->device ? &device : NULL;
  BRIM_TRY(brim_checkpoint_room(p->tensor, p->count, p->device, &p->room));
  const brim_status status =
      ranks ? brim_safetensors_write_share(p->path, p->tensor, p->count, metadata, source, ranks->rank, ranks->ranks)
            : brim_safetensors_write_from(p->path, p->tensor, p->count, metadata, source, digest);
  free(p->room);
  return status;
}

static brim_status write_files(const char *folder, const brim_train_state *state,
                               const brim_checkpoint_tensors *tensors)
{
  brim_file_digest digest[BRIM_CHECKPOINT_PARTS];
  const char *const metadata[] = METADATA(state);
  part p;
  for (int i = 0; i < BRIM_CHECKPOINT_PARTS; i++) {
    BRIM_TRY(find_part(folder, tensors, i, &p));
    BRIM_TRY(write_part(&p, metadata, NULL, &digest[i]));
  }
  BRIM_TRY(brim_checkpoint_state_write(folder, state, digest));
  return brim_folder_sync(folder);
}

static brim_status fail(const brim_train_state *state, brim_status status)
{
  return brim_fail_add(status, "the checkpoint of step %" PRId64 " was not written; earlier ones are unchanged",
                       state->step);
}

brim_status brim_checkpoint_write(const char *run_dir, const brim_train_state *state,
                                  const brim_checkpoint_tensors *tensors, int64_t keep)
{
  brim_checkpoint_attempt a = BRIM_CHECKPOINT_ATTEMPT_NONE;
  brim_status status = sync_logs(run_dir);
  if (status == BRIM_OK) status = brim_checkpoint_begin(&a, run_dir, state->step, state->best_step);
  if (status == BRIM_OK) status = write_files(a.aside, state, tensors);
  if (status == BRIM_OK) status = brim_checkpoint_publish(&a);
  if (status != BRIM_OK) {
    brim_checkpoint_abandon(&a);
    return fail(state, status);
  }
  brim_checkpoint_conclude(&a, state, keep);
  return BRIM_OK;
}

/* ---- by several ranks ---- */

static bool has_slices(const brim_checkpoint_tensors *tensors)
{
  for (size_t i = 0; i < tensors->optimizer_count; i++)
    if (tensors->optimizer[i].is_slice) return true;
  return false;
}

static brim_status lay_out(const char *folder, const brim_train_state *state, const brim_checkpoint_tensors *tensors)
{
  const char *const metadata[] = METADATA(state);
  part p;
  for (int i = 0; i < BRIM_CHECKPOINT_PARTS; i++) {
    BRIM_TRY(find_part(folder, tensors, i, &p));
    BRIM_TRY(brim_safetensors_lay_out(p.path, p.tensor, p.count, metadata));
  }
  return BRIM_OK;
}

static brim_status write_shares(const char *run_dir, const brim_train_state *state,
                                const brim_checkpoint_tensors *tensors, const brim_checkpoint_ranks *ranks)
{
  const char *const metadata[] = METADATA(state);
  char folder[BRIM_PATH_MAX];
  part p;
  BRIM_TRY(brim_checkpoint_aside(run_dir, state->step, folder));
  for (int i = 0; i < BRIM_CHECKPOINT_PARTS; i++) {
    BRIM_TRY(find_part(folder, tensors, i, &p));
    BRIM_TRY(write_part(&p, metadata, ranks, NULL));
  }
  return BRIM_OK;
}

/* Writes the manifest when all shares are on disk. */
static brim_status sign(const char *folder, const brim_train_state *state, const brim_checkpoint_tensors *tensors)
{
  brim_file_digest digest[BRIM_CHECKPOINT_PARTS];
  part p;
  for (int i = 0; i < BRIM_CHECKPOINT_PARTS; i++) {
    BRIM_TRY(find_part(folder, tensors, i, &p));
    digest[i] = (brim_file_digest){0};
    BRIM_TRY(brim_file_xxh64(p.path, &digest[i].bytes, &digest[i].hash));
  }
  BRIM_TRY(brim_checkpoint_state_write(folder, state, digest));
  return brim_folder_sync(folder);
}

/* The first rank makes the folder and publishes it; all ranks write between the meetings. If any rank fails, all
 * leave at the same meeting. */
static brim_status write_sliced(brim_checkpoint_attempt *a, bool *published, const char *run_dir,
                                const brim_train_state *state, const brim_checkpoint_tensors *tensors,
                                const brim_checkpoint_ranks *ranks)
{
  const bool first = ranks->rank == 0;
  brim_status status = first ? sync_logs(run_dir) : BRIM_OK;
  if (first && status == BRIM_OK) status = brim_checkpoint_begin(a, run_dir, state->step, state->best_step);
  if (first && status == BRIM_OK) status = lay_out(a->aside, state, tensors);
  BRIM_TRY(ranks->meet(ranks->context, status));
  BRIM_TRY(ranks->meet(ranks->context, write_shares(run_dir, state, tensors, ranks)));
  if (first) status = sign(a->aside, state, tensors);
  if (first && status == BRIM_OK) status = brim_checkpoint_publish(a);
  *published = first && status == BRIM_OK;
  return ranks->meet(ranks->context, status);
}

brim_status brim_checkpoint_write_together(const char *run_dir, const brim_train_state *state,
                                           const brim_checkpoint_tensors *tensors, int64_t keep,
                                           const brim_checkpoint_ranks *ranks)
{
  const bool first = ranks->rank == 0;
  brim_checkpoint_attempt a = BRIM_CHECKPOINT_ATTEMPT_NONE;
  if (!has_slices(tensors)) {
    const brim_status status = first ? brim_checkpoint_write(run_dir, state, tensors, keep) : BRIM_OK;
    return ranks->meet(ranks->context, status);
  }
  bool published = false; /* once published, the checkpoint is valid even if other ranks fail */
  const brim_status status = write_sliced(&a, &published, run_dir, state, tensors, ranks);
  if (published) brim_checkpoint_conclude(&a, state, keep);
  if (status != BRIM_OK && first && !published) brim_checkpoint_abandon(&a);
  return status == BRIM_OK ? BRIM_OK : fail(state, status);
}
