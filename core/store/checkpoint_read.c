/* Reads a checkpoint's tensors into a run's buffers. Compares everything before it writes anything; one message lists
 * all mismatches. */
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/file.h"
#include "base/text.h"
#include "store/checkpoint_state.h"

#define LINES_MAX 24 /* mismatches listed in one message; the others are counted */

typedef struct report {
  brim_text text;
  size_t lines;
} report;

static void add_line(report *to, const char *part, const char *line)
{
  if (to->lines++ < LINES_MAX) brim_text_printf(&to->text, "\n%s: %s", part, line);
}

static bool fits(const brim_safetensor *have, const brim_safetensor *want)
{
  const bool same = have->dtype == want->dtype,
             real = brim_dtype_is_real(have->dtype) && brim_dtype_is_real(want->dtype);
  return (same || real) && brim_shape_equal(&have->shape, &want->shape);
}

/* Checks that each wanted tensor exists in the wanted form, and adds a line for each that does not. Returns how many
 * exist. */
static size_t compare_wanted(const brim_safetensors *file, const brim_safetensor *want, size_t count, const char *part,
                             report *problems)
{
  size_t there = 0;
  brim_text line = {0};
  for (size_t i = 0; i < count; i++) {
    const brim_safetensor *have = brim_safetensors_find(file, want[i].name);
    brim_text_clear(&line);
    if (!have) {
      brim_text_printf(&line, "'%s' is missing; the model needs ", want[i].name);
      brim_safetensor_format(&want[i], &line);
    } else if (!fits(have, &want[i])) {
      brim_text_printf(&line, "'%s' is ", want[i].name);
      brim_safetensor_format(have, &line);
      brim_text_add(&line, "; the model needs ");
      brim_safetensor_format(&want[i], &line);
    }
    there += have != NULL;
    if (line.length > 0) add_line(problems, part, brim_text_str(&line));
  }
  brim_text_release(&line);
  return there;
}

static bool is_wanted(const char *name, const brim_safetensor *want, size_t count)
{
  for (size_t i = 0; i < count; i++)
    if (strcmp(want[i].name, name) == 0) return true;
  return false;
}

static void compare(const brim_safetensors *file, const brim_safetensor *want, size_t count, const char *part,
                    report *problems)
{
  const size_t there = compare_wanted(file, want, count, part, problems);
  if (there < brim_safetensors_count(file)) {
    brim_text line = {0};
    for (size_t i = 0; i < brim_safetensors_count(file); i++) {
      const brim_safetensor *have = brim_safetensors_at(file, i);
      if (is_wanted(have->name, want, count)) continue;
      brim_text_clear(&line);
      brim_text_printf(&line, "'%.200s' ", have->name);
      brim_safetensor_format(have, &line);
      brim_text_add(&line, " is not in the model");
      add_line(problems, part, brim_text_str(&line));
    }
    brim_text_release(&line);
  }
}

/* An open part of a checkpoint, and the destination of its tensors. */
typedef struct part {
  enum brim_checkpoint_part which;
  brim_safetensors *file; /* NULL: not wanted */
  const brim_safetensor *want;
  size_t count;
} part;

/* Converts the values of wanted tensor `i` and writes them to their destination, to a device piece by piece. Drops
 * values that were read from the process's memory. */
static brim_status take(const part *p, size_t i, const brim_checkpoint_device *device, void *room)
{
  const brim_safetensor *want = &p->want[i], *have = brim_safetensors_find(p->file, want->name);
  const uint64_t count = want->is_slice ? want->count : (uint64_t)brim_shape_count(&want->shape);
  const uint64_t width = brim_dtype_bytes(want->dtype), stored = brim_dtype_bytes(have->dtype);
  char *const data = (char *)(uintptr_t)want->data; /* the caller's buffer; const in the struct for writers */
  const uint64_t most = BRIM_CHECKPOINT_PIECE_BYTES / width;
  for (uint64_t at = 0, n; at < count; at += n) {
    const char *from = (const char *)have->data + (want->first + at) * stored;
    n = count - at < most ? count - at : most;
    brim_convert(want->dtype, data ? data + at * width : room, have->dtype, from, n);
    if (!data) BRIM_TRY(device->write(device->context, p->which, i, at * width, n * width, room));
    brim_safetensors_forget(p->file, from, n * stored);
  }
  return BRIM_OK;
}

static brim_status take_all(const part *p, const brim_checkpoint_device *device)
{
  void *room;
  BRIM_TRY(brim_checkpoint_room(p->want, p->count, device, &room));
  brim_status status = BRIM_OK;
  for (size_t i = 0; status == BRIM_OK && i < p->count; i++) status = take(p, i, device, room);
  free(room);
  return status;
}

/* Checks a part's bytes against state.json and opens it. */
static brim_status open_part(const char *folder, const brim_file_digest *digest, part *p)
{
  char path[BRIM_PATH_MAX];
  BRIM_TRY(brim_checkpoint_part_check(folder, p->which, &digest[p->which]));
  BRIM_TRY(brim_path_join(path, folder, brim_checkpoint_part_name[p->which]));
  return brim_safetensors_open(path, &p->file);
}

static brim_status compare_all(const char *path, const part *parts)
{
  report problems = {0};
  brim_status status = BRIM_OK;
  for (int i = 0; i < BRIM_CHECKPOINT_PARTS; i++)
    if (parts[i].file) compare(parts[i].file, parts[i].want, parts[i].count, brim_checkpoint_part_name[i], &problems);
  if (problems.lines > LINES_MAX) brim_text_printf(&problems.text, "\nand %zu more", problems.lines - LINES_MAX);
  if (problems.lines > 0)
    status = brim_fail(BRIM_ELOAD, "checkpoint '%s' is of another model or optimizer:%s", path,
                       brim_text_str(&problems.text));
  brim_text_release(&problems.text);
  return status;
}

brim_status brim_checkpoint_read(const char *path, const brim_checkpoint_tensors *tensors)
{
  brim_train_state state;
  brim_file_digest digest[BRIM_CHECKPOINT_PARTS];
  part parts[] = {{BRIM_CHECKPOINT_MODEL, NULL, tensors->model, tensors->model_count},
                  {BRIM_CHECKPOINT_OPTIMIZER, NULL, tensors->optimizer, tensors->optimizer_count}};
  BRIM_TRY(brim_checkpoint_state_read(path, &state, digest));
  brim_status status = BRIM_OK;
  for (int i = 0; status == BRIM_OK && i < BRIM_CHECKPOINT_PARTS; i++)
    if (i == BRIM_CHECKPOINT_MODEL || parts[i].count > 0) status = open_part(path, digest, &parts[i]);
  if (status == BRIM_OK) status = compare_all(path, parts);
  for (int i = 0; i < BRIM_CHECKPOINT_PARTS; i++) {
    if (status == BRIM_OK && parts[i].file) status = take_all(&parts[i], tensors->device);
    brim_safetensors_close(parts[i].file);
  }
  return status;
}
