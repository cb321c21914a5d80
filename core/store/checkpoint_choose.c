/* See checkpoint_choose.h. */
#include "store/checkpoint_choose.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

brim_status brim_checkpoint_choose(const char *run, const char *which, char *path, size_t room)
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
