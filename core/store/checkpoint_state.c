/* state.json is one object: the keys in the order of the table below, the files, and a checksum of everything before
 * it.
 *
 * Doubles have 17 digits, so that they read back to the same bits; NaN is null and infinities are strings, because JSON
 * has neither. Hashes are hexadecimal strings, because JSON's integers have at most 63 bits. */
#include "store/checkpoint_state.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "store/record.h"

#define STATE_VERSION 3
#define STATE_VERSION_FNV1A 2 /* has FNV-1a hashes of the files; STATE_VERSION has XXH64 */
#define STATE_BYTES_MAX (1 << 20)
#define HASH_TEXT_BYTES 17 /* 16 digits and the NUL */

const char *const brim_checkpoint_part_name[BRIM_CHECKPOINT_PARTS] = {
    [BRIM_CHECKPOINT_MODEL] = "model.safetensors",
    [BRIM_CHECKPOINT_OPTIMIZER] = "optimizer.safetensors",
};

/* ---- the fields ---- */

enum kind { INTEGER, NUMBER, HASH, TEXT };
typedef struct field {
  const char *key;
  enum kind kind;
  bool newer; /* older checkpoints lack it; then it is 0 */
  size_t offset, size;
} field;
#define FIELD(name, form) FIELD_SINCE(name, form, false)
#define NEWER_FIELD(name, form) FIELD_SINCE(name, form, true)
#define FIELD_SINCE(name, form, is_newer)                                                                              \
  {                                                                                                                    \
    .key = #name, .kind = form, .offset = offsetof(brim_train_state, name),                                            \
    .size = sizeof(((brim_train_state *)0)->name), .newer = is_newer                                                   \
  }
static const field fields[] = {
    FIELD(step, INTEGER),
    FIELD(samples, INTEGER),
    FIELD(epoch, INTEGER),
    FIELD(metrics_records, INTEGER),
    FIELD(best_loss, NUMBER),
    FIELD(best_step, INTEGER),
    FIELD(evaluated_step, INTEGER),
    FIELD(model_hash, HASH),
    FIELD(model_id, TEXT),
    FIELD(optimizer_id, TEXT),
    FIELD(backend_id, TEXT),
    FIELD(train_loss, NUMBER),
    FIELD(train_accuracy, NUMBER),
    FIELD(window_loss, NUMBER),
    FIELD(window_correct, NUMBER),
    FIELD(window_samples, INTEGER),
    FIELD(worse_evaluations, INTEGER),
    FIELD(window_weight, NUMBER),
    FIELD(gradient_norm, NUMBER),
    NEWER_FIELD(loss_scale, NUMBER),
    NEWER_FIELD(loss_scale_steps, INTEGER),
    NEWER_FIELD(skipped_steps, INTEGER),
    NEWER_FIELD(skipped_in_a_row, INTEGER),
    NEWER_FIELD(window_tokens, NUMBER),
    NEWER_FIELD(train_mae, NUMBER),
    NEWER_FIELD(profile_hash, HASH),
    NEWER_FIELD(frozen_hash, HASH),
    NEWER_FIELD(frozen_xxh64, HASH),
    NEWER_FIELD(evaluated_accuracy, NUMBER),
    NEWER_FIELD(settled_loss, NUMBER),
    NEWER_FIELD(settled_accuracy, NUMBER),
    NEWER_FIELD(settled_evaluations, INTEGER),
    NEWER_FIELD(world_seconds, NUMBER),
    NEWER_FIELD(world_joules, NUMBER),
    NEWER_FIELD(world_bytes, INTEGER),
    NEWER_FIELD(recorded_seconds, NUMBER),
    NEWER_FIELD(recorded_joules, NUMBER),
    NEWER_FIELD(recorded_bytes, INTEGER),
    NEWER_FIELD(world_edge_bytes, INTEGER),
    NEWER_FIELD(recorded_edge_bytes, INTEGER),
};
#define FIELD_COUNT (sizeof fields / sizeof fields[0])
#define TEXT_COUNT 3
_Static_assert(sizeof(brim_train_state) == TEXT_COUNT * sizeof(((brim_train_state *)0)->model_id) +
                                               (FIELD_COUNT - TEXT_COUNT) * sizeof(int64_t),
               "a field of brim_train_state is not in the table: a resumed run would lose it");

static json_t *hash_json(uint64_t hash)
{
  char text[HASH_TEXT_BYTES];
  snprintf(text, sizeof text, "%016" PRIx64, hash);
  return json_string(text);
}

static bool json_hash(const json_t *value, uint64_t *hash)
{
  const char *text = json_string_value(value);
  if (!text || strlen(text) != HASH_TEXT_BYTES - 1 || strspn(text, "0123456789abcdef") != HASH_TEXT_BYTES - 1)
    return false;
  *hash = strtoull(text, NULL, 16);
  return true;
}

static json_t *number_json(double value)
{
  if (isnan(value)) return json_null();
  if (isinf(value)) return json_string(value > 0 ? "inf" : "-inf");
  return json_real(value);
}

static bool json_number(const json_t *value, double *number)
{
  const char *text = json_string_value(value);
  if (json_is_null(value))
    *number = NAN;
  else if (text && strcmp(text, "inf") == 0)
    *number = INFINITY;
  else if (text && strcmp(text, "-inf") == 0)
    *number = -INFINITY;
  else if (json_is_number(value))
    *number = json_number_value(value);
  else
    return false;
  return true;
}

static json_t *field_json(const field *f, const brim_train_state *state)
{
  const void *from = (const char *)state + f->offset;
  switch (f->kind) {
  case INTEGER:
    return json_integer(*(const int64_t *)from);
  case NUMBER:
    return number_json(*(const double *)from);
  case HASH:
    return hash_json(*(const uint64_t *)from);
  case TEXT:
    return json_string(from);
  }
  return NULL;
}

static bool json_field(const field *f, const json_t *value, brim_train_state *state)
{
  void *to = (char *)state + f->offset;
  switch (f->kind) {
  case INTEGER:
    *(int64_t *)to = json_integer_value(value);
    return json_is_integer(value);
  case NUMBER:
    return json_number(value, to);
  case HASH:
    return json_hash(value, to);
  case TEXT:
    if (!json_is_string(value) || json_string_length(value) >= f->size) return false;
    memcpy(to, json_string_value(value), json_string_length(value) + 1);
    return true;
  }
  return false;
}

/* ---- the file ---- */

static char *dump(const json_t *root)
{
  return json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
}

/* Computes the checksum of the object's text; `root` must not contain the checksum. */
static brim_status checksum(const json_t *root, uint64_t *out)
{
  char *text = dump(root);
  if (!text) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for " BRIM_CHECKPOINT_STATE_NAME);
  *out = brim_hash(BRIM_HASH_START, text, strlen(text));
  free(text);
  return BRIM_OK;
}

static json_t *digests_json(const brim_file_digest *digest)
{
  json_t *files = json_object();
  for (int i = 0; i < BRIM_CHECKPOINT_PARTS; i++)
    json_object_set_new(
        files, brim_checkpoint_part_name[i],
        json_pack("{s:I, s:o}", "bytes", (json_int_t)digest[i].bytes, "hash", hash_json(digest[i].hash)));
  return files;
}

static brim_status build(const brim_train_state *state, const brim_file_digest *digest, json_t *root)
{
  uint64_t sum = 0;
  json_object_set_new(root, "version", json_integer(STATE_VERSION));
  for (size_t i = 0; i < FIELD_COUNT; i++)
    if (json_object_set_new(root, fields[i].key, field_json(&fields[i], state)) != 0)
      return brim_fail(BRIM_EINVAL, "'%s' cannot be written to " BRIM_CHECKPOINT_STATE_NAME ": it is not valid UTF-8",
                       fields[i].key);
  json_object_set_new(root, "files", digests_json(digest));
  BRIM_TRY(checksum(root, &sum));
  json_object_set_new(root, "checksum", hash_json(sum));
  return BRIM_OK;
}

brim_status brim_checkpoint_state_write(const char *folder, const brim_train_state *state,
                                        const brim_file_digest digest[BRIM_CHECKPOINT_PARTS])
{
  char path[BRIM_PATH_MAX];
  BRIM_TRY(brim_path_join(path, folder, BRIM_CHECKPOINT_STATE_NAME));
  json_t *root = json_object();
  brim_status status = build(state, digest, root);
  char *text = status == BRIM_OK ? dump(root) : NULL;
  if (text) {
    const size_t length = strlen(text);
    text[length] = '\n'; /* a newline, with which the file ends, in place of the NUL */
    status = brim_file_write(path, text, length + 1);
  } else if (status == BRIM_OK) {
    status = brim_fail(BRIM_ENOMEM_HOST, "no host memory for '%s'", path);
  }
  free(text);
  json_decref(root);
  return status;
}

static brim_status load(const char *path, json_t **root)
{
  json_error_t problem;
  struct stat info;
  if (stat(path, &info) != 0) return brim_fail(BRIM_ELOAD, "cannot open '%s': %s", path, strerror(errno));
  if (!S_ISREG(info.st_mode) || info.st_size > STATE_BYTES_MAX)
    return brim_fail(BRIM_ELOAD, "'%s' is damaged: it is not a regular file of at most 1 MiB", path);
  *root = brim_json_load(path, JSON_REJECT_DUPLICATES, &problem);
  if (*root) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "'%s' is damaged: line %d, column %d: %s", path, problem.line, problem.column,
                   problem.text);
}

static brim_status check_sum(const char *path, json_t *root)
{
  uint64_t written = 0, sum = 0;
  const bool there = json_hash(json_object_get(root, "checksum"), &written);
  json_object_del(root, "checksum");
  BRIM_TRY(checksum(root, &sum));
  if (there && sum == written) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "'%s' is damaged: its checksum does not match its contents", path);
}

static brim_status take_digests(const char *path, const json_t *files, bool is_fnv1a, brim_file_digest *digest)
{
  for (int i = 0; i < BRIM_CHECKPOINT_PARTS; i++) {
    const json_t *part = json_object_get(files, brim_checkpoint_part_name[i]);
    const json_t *bytes = json_object_get(part, "bytes");
    if (!json_is_integer(bytes) || !json_hash(json_object_get(part, "hash"), &digest[i].hash))
      return brim_fail(BRIM_ELOAD, "'%s' is damaged: it does not describe %s", path, brim_checkpoint_part_name[i]);
    digest[i].bytes = (uint64_t)json_integer_value(bytes);
    digest[i].is_fnv1a = is_fnv1a;
  }
  return BRIM_OK;
}

static brim_status take_state(const char *path, json_t *root, brim_train_state *state, brim_file_digest *digest)
{
  const json_t *version = json_object_get(root, "version");
  if (!json_is_integer(version)) return brim_fail(BRIM_ELOAD, "'%s' is damaged: it has no version", path);
  const json_int_t number = json_integer_value(version);
  if (number != STATE_VERSION && number != STATE_VERSION_FNV1A)
    return brim_fail(BRIM_ELOAD, "'%s' has version %lld, but this brim reads versions %d and %d", path,
                     (long long)number, STATE_VERSION_FNV1A, STATE_VERSION);
  BRIM_TRY(check_sum(path, root));
  for (size_t i = 0; i < FIELD_COUNT; i++)
    if (!(fields[i].newer && !json_object_get(root, fields[i].key)) &&
        !json_field(&fields[i], json_object_get(root, fields[i].key), state))
      return brim_fail(BRIM_ELOAD, "'%s' is damaged: '%s' is missing or of the wrong type", path, fields[i].key);
  return take_digests(path, json_object_get(root, "files"), number == STATE_VERSION_FNV1A, digest);
}

brim_status brim_checkpoint_state_read(const char *folder, brim_train_state *state,
                                       brim_file_digest digest[BRIM_CHECKPOINT_PARTS])
{
  char path[BRIM_PATH_MAX];
  json_t *root = NULL;
  BRIM_TRY(brim_path_join(path, folder, BRIM_CHECKPOINT_STATE_NAME));
  BRIM_TRY(load(path, &root));
  memset(state, 0, sizeof *state); /* also clears padding, because states are compared and hashed as bytes */
  const brim_status status = take_state(path, root, state, digest);
  json_decref(root);
  return status;
}

brim_status brim_checkpoint_read_state(const char *path, brim_train_state *state)
{
  brim_file_digest digest[BRIM_CHECKPOINT_PARTS];
  return brim_checkpoint_state_read(path, state, digest);
}

/* ---- the other files ---- */

brim_status brim_checkpoint_part_check(const char *folder, enum brim_checkpoint_part part,
                                       const brim_file_digest *expected)
{
  char path[BRIM_PATH_MAX];
  brim_file_digest found;
  BRIM_TRY(brim_path_join(path, folder, brim_checkpoint_part_name[part]));
  BRIM_TRY((expected->is_fnv1a ? brim_file_hash : brim_file_xxh64)(path, &found.bytes, &found.hash));
  if (found.bytes != expected->bytes)
    return brim_fail(BRIM_ELOAD, "'%s' is damaged: it has %" PRIu64 " bytes, but was written with %" PRIu64, path,
                     found.bytes, expected->bytes);
  if (found.hash != expected->hash)
    return brim_fail(BRIM_ELOAD, "'%s' is damaged: its contents have changed since it was written", path);
  return BRIM_OK;
}

brim_status brim_checkpoint_room(const brim_safetensor *tensor, size_t count, const brim_checkpoint_device *device,
                                 void **out)
{
  uint64_t bytes = 1;
  *out = NULL;
  if (!device) return BRIM_OK;
  for (size_t i = 0; i < count; i++)
    if (!tensor[i].data && brim_safetensor_bytes(&tensor[i]) > bytes) bytes = brim_safetensor_bytes(&tensor[i]);
  *out = brim_try_malloc(bytes < BRIM_CHECKPOINT_PIECE_BYTES ? bytes : BRIM_CHECKPOINT_PIECE_BYTES);
  return *out ? BRIM_OK : brim_fail(BRIM_ENOMEM_HOST, "no host memory for a piece of a checkpoint");
}
