/* Reads a checkpoint's tensors into a run's buffers. Everything is compared before anything is written, and one
 * message lists all mismatches. */
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
  if (have->dtype != want->dtype && !(brim_dtype_is_real(have->dtype) && brim_dtype_is_real(want->dtype))) return false;
  if (have->shape.rank != want->shape.rank) return false;
  for (int32_t i = 0; i < want->shape.rank; i++)
    if (have->shape.dim[i] != want->shape.dim[i]) return false;
  return true;
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

static void list_unexpected(const brim_safetensors *file, const brim_safetensor *want, size_t count, const char *part,
                            report *problems)
{
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

static void compare(const brim_safetensors *file, const brim_safetensor *want, size_t count, const char *part,
                    report *problems)
{
  const size_t there = compare_wanted(file, want, count, part, problems);
  if (there < brim_safetensors_count(file)) list_unexpected(file, want, count, part, problems);
}

static void convert(const brim_safetensor *have, const brim_safetensor *want)
{
  const size_t count = want->is_slice ? want->count : (size_t)brim_shape_count(&want->shape);
  void *to = (void *)(uintptr_t)want->data; /* the caller's buffer; const in the struct for writers */
  brim_convert(want->dtype, to, have->dtype, (const char *)have->data + want->first * brim_dtype_bytes(have->dtype),
               count);
}

/* Checks a part's bytes against state.json and opens it. */
static brim_status open_part(const char *folder, enum brim_checkpoint_part part, const brim_file_digest *digest,
                             brim_safetensors **out)
{
  char path[BRIM_PATH_MAX];
  BRIM_TRY(brim_checkpoint_part_check(folder, part, &digest[part]));
  BRIM_TRY(brim_path_join(path, folder, brim_checkpoint_part_name[part]));
  return brim_safetensors_open(path, out);
}

static brim_status compare_all(const char *path, brim_safetensors *const *file, const brim_safetensor *const *want,
                               const size_t *count)
{
  report problems = {0};
  brim_status status = BRIM_OK;
  for (int i = 0; i < BRIM_CHECKPOINT_PARTS; i++)
    if (file[i]) compare(file[i], want[i], count[i], brim_checkpoint_part_name[i], &problems);
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
  brim_safetensors *file[BRIM_CHECKPOINT_PARTS] = {NULL};
  const brim_safetensor *const want[] = {tensors->model, tensors->optimizer};
  const size_t count[] = {tensors->model_count, tensors->optimizer_count};
  BRIM_TRY(brim_checkpoint_state_read(path, &state, digest));
  brim_status status = open_part(path, BRIM_CHECKPOINT_MODEL, digest, &file[BRIM_CHECKPOINT_MODEL]);
  if (status == BRIM_OK && tensors->optimizer_count > 0)
    status = open_part(path, BRIM_CHECKPOINT_OPTIMIZER, digest, &file[BRIM_CHECKPOINT_OPTIMIZER]);
  if (status == BRIM_OK) status = compare_all(path, file, want, count);
  for (int i = 0; i < BRIM_CHECKPOINT_PARTS; i++) {
    for (size_t t = 0; status == BRIM_OK && file[i] && t < count[i]; t++)
      convert(brim_safetensors_find(file[i], want[i][t].name), &want[i][t]);
    brim_safetensors_close(file[i]);
  }
  return status;
}
