/* See record.h. */
#include "store/record.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "store/rundir.h"

brim_status brim_record_print(const char *name, const json_t *record, brim_text *out)
{
  char *dump = json_dumps(record, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
  if (!dump) return brim_fail(BRIM_EINTERNAL, "cannot format %s", name);
  brim_text_add(out, dump);
  brim_text_add(out, "\n");
  free(dump);
  return BRIM_OK;
}

brim_status brim_record_write(const char *run, const char *name, const json_t *record)
{
  char path[BRIM_PATH_MAX];
  brim_text text = {0};
  BRIM_TRY(brim_path_join(path, run, name));
  BRIM_TRY(brim_record_print(name, record, &text));
  const brim_status status = brim_file_write_atomic(path, brim_text_str(&text), text.length);
  brim_text_release(&text);
  return status;
}

json_t *brim_json_load(const char *path, size_t flags, json_error_t *problem)
{
  FILE *file = brim_fopen_to_read(path);
  if (!file && problem) *problem = (json_error_t){.line = -1, .column = -1};
  if (!file && problem) snprintf(problem->text, sizeof problem->text, "%s", brim_open_reason(errno));
  json_t *root = file ? json_loadf(file, flags, problem) : NULL;
  if (file) fclose(file);
  return root;
}

brim_status brim_record_read(const char *run, const char *name, json_t **out)
{
  char path[BRIM_PATH_MAX];
  json_error_t problem;
  *out = NULL;
  BRIM_TRY(brim_path_join(path, run, name));
  if (access(path, F_OK) != 0) return BRIM_OK;
  *out = brim_json_load(path, JSON_REJECT_DUPLICATES, &problem);
  return *out ? BRIM_OK : brim_fail(BRIM_ELOAD, "cannot read '%s': %s", path, problem.text);
}
