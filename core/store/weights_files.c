/* Finds and opens files of weights. See weights_files.h. */
#include "store/weights_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "brim/host.h"
#include "store/checkpoint_choose.h"
#include "store/checkpoint_state.h"

#define INDEX_NAME "model.safetensors.index.json"
#define INDEX_SUFFIX ".index.json"
#define MODEL_NAME "model.safetensors"

struct brim_weights_files {
  brim_arena arena;
  brim_safetensors **file;
  const char **path;
  size_t file_count, count;
  brim_gguf *gguf;         /* used instead of the other fields; NULL: not a GGUF file */
  brim_safetensor *packed; /* tensors of the GGUF file */
  int hold;                /* lock of a run's checkpoint; -1: none */
  bool are_brims;
};

static bool lies_in(char *out, const char *folder, const char *name)
{
  return brim_path_join(out, folder, name) == BRIM_OK && access(out, F_OK) == 0;
}

/* ---- one file ---- */

static brim_status add_file(brim_weights_files *f, const char *path)
{
  BRIM_TRY(brim_safetensors_open(path, &f->file[f->file_count]));
  f->path[f->file_count] = brim_arena_string(&f->arena, path);
  f->count += brim_safetensors_count(f->file[f->file_count++]);
  return BRIM_OK;
}

/* The tensors keep the names and the order of the file. */
static brim_status open_gguf(brim_weights_files *f, const char *path)
{
  BRIM_TRY(brim_gguf_open(path, &f->gguf));
  f->path = BRIM_ARENA_NEW(&f->arena, const char *, 1);
  f->path[0] = brim_arena_string(&f->arena, path);
  f->file_count = 1;
  f->count = brim_gguf_tensor_count(f->gguf);
  f->packed = BRIM_ARENA_NEW(&f->arena, brim_safetensor, f->count + 1);
  for (size_t i = 0; i < f->count; i++) {
    const brim_gguf_tensor *t = brim_gguf_tensor_at(f->gguf, i);
    f->packed[i] = (brim_safetensor){.name = t->name,
                                     .dtype = BRIM_DTYPE_F32,
                                     .shape = t->shape,
                                     .data = t->data,
                                     .type = t->type->name,
                                     .packed = t->type};
  }
  return BRIM_OK;
}

static void make_room(brim_weights_files *f, size_t files)
{
  f->file = BRIM_ARENA_NEW(&f->arena, brim_safetensors *, files);
  f->path = BRIM_ARENA_NEW(&f->arena, const char *, files);
}

/* Whether the file belongs to a checkpoint, whose names are then brim's. */
static void look_beside(brim_weights_files *f, const char *path)
{
  char folder[BRIM_PATH_MAX], state[BRIM_PATH_MAX];
  const char *slash = strrchr(path, '/');
  const int length = slash ? snprintf(folder, sizeof folder, "%.*s/", (int)(slash - path), path)
                           : snprintf(folder, sizeof folder, ".");
  f->are_brims = length > 0 && (size_t)length < sizeof folder && lies_in(state, folder, BRIM_CHECKPOINT_STATE_NAME);
}

static brim_status open_file(brim_weights_files *f, const char *path)
{
  const char *slash = strrchr(path, '/');
  static const char *const pickles[] = {".bin", ".pth", ".pt", ".ckpt", ".pth.tar"};
  for (size_t i = 0; i < sizeof pickles / sizeof pickles[0]; i++)
    if (brim_ends_with(path, pickles[i]))
      return brim_fail(
          BRIM_ELOAD,
          "'%s' was written by torch.save; brim does not read such files, as they can contain programs\nconvert it to "
          "safetensors with PyTorch: python3 -c \"import torch; from safetensors.torch import save_file; "
          "save_file({k: v.clone() for k, v in torch.load('%s', map_location='cpu', weights_only=True).items()}, "
          "'%.*smodel.safetensors')\"",
          path, path, slash ? (int)(slash - path) + 1 : 0, path);
  if (brim_is_gguf(path)) return open_gguf(f, path);
  make_room(f, 1);
  look_beside(f, path);
  return add_file(f, path);
}

static brim_status open_checkpoint(brim_weights_files *f, const char *folder)
{
  char path[BRIM_PATH_MAX];
  brim_train_state state;
  brim_file_digest digest[BRIM_CHECKPOINT_PARTS];
  BRIM_TRY(brim_checkpoint_state_read(folder, &state, digest));
  BRIM_TRY(brim_checkpoint_part_check(folder, BRIM_CHECKPOINT_MODEL, &digest[BRIM_CHECKPOINT_MODEL]));
  BRIM_TRY(brim_path_join(path, folder, brim_checkpoint_part_name[BRIM_CHECKPOINT_MODEL]));
  return open_file(f, path);
}

/* ---- several ---- */

static brim_status read_text(const char *path, char **out, size_t *bytes)
{
  struct stat info;
  const int fd = brim_open_to_read(path);
  if (fd < 0) return brim_fail(BRIM_ELOAD, "cannot open '%s': %s", path, brim_open_reason(errno));
  brim_status status = BRIM_OK;
  *out = NULL;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    status = brim_fail(BRIM_ELOAD, "'%s' is not a regular file", path);
  else if ((uint64_t)info.st_size > BRIM_WEIGHTS_INDEX_BYTES_MAX)
    status = brim_fail(BRIM_ELOAD, "'%s' has %lld bytes; an index of weights has at most 100 MiB", path,
                       (long long)info.st_size);
  else if (!(*out = brim_try_malloc((size_t)info.st_size + 1)))
    status = brim_fail(BRIM_ENOMEM_HOST, "no host memory for '%s'", path);
  if (status == BRIM_OK) {
    *bytes = (size_t)info.st_size;
    status = brim_read_whole(path, fd, *bytes, *out);
  }
  close(fd);
  return status;
}

static brim_status check_named(const brim_weights_index *index, uint32_t file, const char *path, const char *name,
                               const char *index_path)
{
  const char **found = bsearch(&name, index->name, index->count, sizeof *found, brim_compare_strings);
  if (found && index->file[found - index->name] == file) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "'%s' has a tensor '%.200s' that '%s' does not list\nare both from the same download?",
                   path, name, index_path);
}

/* Checks that every tensor of the index is in the file it names, and that the index lists every tensor of the files. */
static brim_status check_index(const brim_weights_files *f, const brim_weights_index *index, const char *path)
{
  for (size_t i = 0; i < index->count; i++)
    if (!brim_safetensors_find(f->file[index->file[i]], index->name[i]))
      return brim_fail(BRIM_ELOAD,
                       "'%s' has no tensor '%.200s', although '%s' lists it there\nare both from the same download?",
                       f->path[index->file[i]], index->name[i], path);
  for (uint32_t k = 0; k < f->file_count; k++)
    for (size_t i = 0; i < brim_safetensors_count(f->file[k]); i++)
      BRIM_TRY(check_named(index, k, f->path[k], brim_safetensors_at(f->file[k], i)->name, path));
  return BRIM_OK;
}

static brim_status open_shards(brim_weights_files *f, const brim_weights_index *index, const char *path)
{
  char shard[BRIM_PATH_MAX];
  const char *slash = strrchr(path, '/');
  const char *folder = slash ? brim_arena_string_n(&f->arena, path, (size_t)(slash - path)) : ".";
  make_room(f, index->file_count);
  for (size_t i = 0; i < index->file_count; i++) {
    BRIM_TRY(brim_path_join(shard, folder, index->file_name[i]));
    if (access(shard, F_OK) != 0)
      return brim_fail(BRIM_ELOAD, "'%s' is missing: file %zu of %zu that '%s' names", shard, i + 1, index->file_count,
                       path);
    BRIM_TRY(add_file(f, shard));
  }
  return check_index(f, index, path);
}

static brim_status open_index(brim_weights_files *f, const char *path)
{
  char *text = NULL;
  size_t bytes = 0;
  brim_weights_index index;
  brim_status status = read_text(path, &text, &bytes);
  if (status == BRIM_OK) status = brim_weights_index_parse(&f->arena, text, bytes, path, &index);
  free(text);
  return status == BRIM_OK ? open_shards(f, &index, path) : status;
}

/* ---- folders ---- */

bool brim_weights_files_are_missing(const char *path)
{
  static const char *const names[] = {BRIM_CHECKPOINT_STATE_NAME, BRIM_CHECKPOINTS_NAME, INDEX_NAME, MODEL_NAME,
                                      "pytorch_model.bin"};
  char file[BRIM_PATH_MAX];
  bool any = false;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) any = any || lies_in(file, path, names[i]);
  return !any && lies_in(file, path, "config.json");
}

static brim_status open_folder(brim_weights_files *f, const char *folder)
{
  char path[BRIM_PATH_MAX];
  if (lies_in(path, folder, BRIM_CHECKPOINT_STATE_NAME)) return open_checkpoint(f, folder);
  if (lies_in(path, folder, BRIM_CHECKPOINTS_NAME)) {
    BRIM_TRY(brim_checkpoint_choose(folder, NULL, path, sizeof path, &f->hold));
    return open_checkpoint(f, path);
  }
  if (lies_in(path, folder, INDEX_NAME)) return open_index(f, path);
  if (lies_in(path, folder, MODEL_NAME)) return open_file(f, path);
  if (lies_in(path, folder, "pytorch_model.bin")) return open_file(f, path);
  return brim_fail(BRIM_ELOAD,
                   "folder '%s' has no weights that brim can read\nit must contain " MODEL_NAME " or " INDEX_NAME
                   ", or be a run or a checkpoint of brim; name any other file by its path",
                   folder);
}

brim_status brim_weights_files_open(const char *path, brim_weights_files **out)
{
  brim_weights_files *f = brim_xcalloc(1, sizeof *f);
  brim_status status;
  f->hold = -1;
  if (access(path, F_OK) != 0)
    status = brim_fail(BRIM_ELOAD, "cannot open '%s': %s", path, strerror(errno));
  else if (brim_is_folder(path))
    status = open_folder(f, path);
  else
    status = brim_ends_with(path, INDEX_SUFFIX) ? open_index(f, path) : open_file(f, path);
  if (status != BRIM_OK)
    brim_weights_files_close(f);
  else
    *out = f;
  return status;
}

void brim_weights_files_close(brim_weights_files *f)
{
  if (!f) return;
  for (size_t i = 0; i < f->file_count && !f->gguf; i++) brim_safetensors_close(f->file[i]);
  brim_gguf_close(f->gguf);
  if (f->hold >= 0) close(f->hold);
  brim_arena_release(&f->arena);
  free(f);
}

/* ---- contents ---- */

size_t brim_weights_files_count(const brim_weights_files *f)
{
  return f->count;
}

const brim_safetensor *brim_weights_files_at(const brim_weights_files *f, size_t i)
{
  size_t k = 0;
  if (f->gguf) return &f->packed[i];
  for (; i >= brim_safetensors_count(f->file[k]); k++) i -= brim_safetensors_count(f->file[k]);
  return brim_safetensors_at(f->file[k], i);
}

size_t brim_weights_files_file_count(const brim_weights_files *f)
{
  return f->file_count;
}
const char *brim_weights_files_path(const brim_weights_files *f, size_t file)
{
  return f->path[file];
}
const char *brim_weights_files_metadata(const brim_weights_files *f, const char *key)
{
  return f->gguf ? NULL : brim_safetensors_metadata(f->file[0], key);
}
const brim_gguf *brim_weights_files_gguf(const brim_weights_files *f)
{
  return f->gguf;
}
bool brim_weights_files_are_brims(const brim_weights_files *f)
{
  return f->are_brims;
}

void brim_weights_files_forget(const brim_weights_files *f, const void *data, size_t bytes)
{
  if (f->gguf) brim_gguf_forget(f->gguf, data, bytes);
  for (size_t k = 0; k < f->file_count && !f->gguf; k++) brim_safetensors_forget(f->file[k], data, bytes);
}
