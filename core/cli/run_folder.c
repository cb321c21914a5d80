/* See run_folder.h. Nothing is written: a run may be going on meanwhile. */
#include "cli/run_folder.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "config/kept.h"
#include "train/rundir.h"

/* A lock, and nothing that a run writes once it has its configuration. */
static bool ended_before_it_began(const char *run)
{
  static const char *const marks[] = {"metrics.jsonl", "checkpoints", "summary.json"};
  char path[PATH_MAX];
  for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
    if (snprintf(path, sizeof path, "%s/%s", run, marks[i]) < (int)sizeof path && access(path, F_OK) == 0) return false;
  return snprintf(path, sizeof path, "%s/%s", run, BRIM_RUN_LOCK_NAME) < (int)sizeof path && access(path, F_OK) == 0;
}

brim_status brim_cli_run_config(const char *run, char *path, size_t room)
{
  const int length = snprintf(path, room, "%s/config.yaml", run);
  if (length < 0 || (size_t)length >= room) return brim_fail(BRIM_EINVAL, "path '%.100s...' is too long", run);
  if (access(path, R_OK) == 0) return BRIM_OK;
  if (errno == ENOENT && ended_before_it_began(run))
    return brim_fail(BRIM_ELOAD,
                     "the run in '%s' ended before its configuration was written: there is nothing to go on with\n"
                     "start it again, if you like in the same folder: brim train run.dir=%s",
                     run, run);
  return brim_fail(BRIM_ELOAD, "'%s' is not the folder of a run: it has no readable config.yaml", run);
}

brim_status brim_cli_check_edits(const brim_cli *cli, const char *run, const brim_config *now)
{
  char path[PATH_MAX];
  brim_config *was = NULL;
  const int length = snprintf(path, sizeof path, "%s/sources.yaml", run);
  if (length < 0 || (size_t)length >= sizeof path) return brim_fail(BRIM_EINVAL, "path '%.100s...' is too long", run);
  if (brim_cli_config(cli, path, NULL, NULL, 0, &was) != BRIM_OK) {
    brim_log(BRIM_LOG_WARN, "whether %s/config.yaml was edited is not known: %s", run, brim_error_text());
    return BRIM_OK;
  }
  const brim_status status = brim_config_check_edits(was, now, run);
  brim_config_free(was);
  return status;
}

/* Resolves <folder>/<name> if a checkpoint lies there. A name that is too long is not there. */
static bool resolve(const char *folder, const char *name, char *path, size_t room)
{
  char joined[PATH_MAX], state[PATH_MAX + 16], real[PATH_MAX];
  const int length = snprintf(joined, sizeof joined, "%s%s%s", folder, folder[0] ? "/" : "", name);
  if (length < 0 || (size_t)length >= sizeof joined || !realpath(joined, real)) return false;
  snprintf(state, sizeof state, "%s/state.json", real);
  if (access(state, F_OK) != 0 || strlen(real) >= room) return false;
  snprintf(path, room, "%s", real);
  return true;
}

brim_status brim_cli_run_checkpoint(const char *run, const char *which, char *path, size_t room)
{
  char folder[PATH_MAX];
  const int length = snprintf(folder, sizeof folder, "%s/checkpoints", run);
  if (length < 0 || (size_t)length >= sizeof folder) return brim_fail(BRIM_EINVAL, "path '%.100s...' is too long", run);
  if (!which && (resolve(folder, "best", path, room) || resolve(folder, "last", path, room))) return BRIM_OK;
  if (!which) return brim_fail(BRIM_ELOAD, "'%s' has no checkpoint yet", run);
  if (resolve(folder, which, path, room)) return BRIM_OK;
  if (strcmp(which, "best") == 0)
    return brim_fail(BRIM_ELOAD, "'%s' has no best checkpoint\nthere is one if the run keeps validation data: %s", run,
                     "dataset.validation_fraction");
  if (strcmp(which, "last") == 0) return brim_fail(BRIM_ELOAD, "'%s' has no checkpoint yet", run);
  if (resolve("", which, path, room)) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "no checkpoint '%s'\nlooked for %s/%s and %s", which, folder, which, which);
}
