/* Finds the installation: the nearest folder above libbrim.so, or above the executable, that contains the wanted
 * folder. Searching several levels up allows for lib/x86_64-linux-gnu. */
#include "base/install.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LEVELS_MAX 3 /* prefix/lib/x86_64-linux-gnu/libbrim.so: three names below the prefix */

static const char anchor; /* any address inside libbrim */

/* Searches the folders above `file`, an absolute path, for `sub`. */
static bool find_above(const char *file, char *out, size_t room, const char *sub)
{
  char prefix[PATH_MAX];
  if (snprintf(prefix, sizeof prefix, "%s", file) >= (int)sizeof prefix) return false;
  for (int level = 0; level < LEVELS_MAX; level++) {
    char *slash = strrchr(prefix, '/');
    if (!slash) return false;
    *slash = '\0';
    struct stat info;
    const int length = snprintf(out, room, "%s/%s", prefix, sub);
    if (length > 0 && (size_t)length < room && stat(out, &info) == 0 && S_ISDIR(info.st_mode)) return true;
  }
  return false;
}

bool brim_install_dir(char *out, size_t room, const char *sub)
{
  char file[PATH_MAX];
  Dl_info library;
  /* If brim is linked statically, this is the executable, whose name here is argv[0]: a path only if it contains a
   * slash. */
  if (dladdr(&anchor, &library) != 0 && library.dli_fname && strchr(library.dli_fname, '/') &&
      realpath(library.dli_fname, file) && find_above(file, out, room, sub))
    return true;
  if (realpath("/proc/self/exe", file) && find_above(file, out, room, sub)) return true;
  out[0] = '\0';
  return false;
}
