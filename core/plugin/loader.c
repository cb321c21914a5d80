/* Loads a shared object and calls its entry for the module.
 *
 * RTLD_NOW resolves symbols at once, so that brim reports missing symbols here and not in the middle of a run;
 * RTLD_LOCAL hides them from other plugins. brim never unloads an object, because pointers to a plugin's descriptors,
 * kernels and error texts may exist until the process exits. */
#include "plugin/loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/crash.h"
#include "base/text.h"
#include "plugin/elf.h"

#define ENTRY "brim_module_entry"

/* Rewrites the dynamic linker's message if it is one of the two common ones. `message` begins with the name of the
 * object: `path`, or a library that it needs. */
static brim_status fail_linking(const char *path, const char *message)
{
  static const char undefined[] = "undefined symbol: ", missing[] = ": cannot open shared object file: ";
  const char *symbol = strstr(message, undefined);
  const char *file = strstr(message, missing);
  const size_t length = strlen(path);
  const bool own = strncmp(message, path, length) == 0 && message[length] == ':';
  if (symbol && own) {
    symbol += strlen(undefined);
    return brim_fail(
        BRIM_ELOAD,
        "needs the symbol '%.*s', which neither brim nor a library of the plugin defines\nlink the plugin with the "
        "library that defines it; a plugin can call only those functions of brim that brim/*.h declares",
        (int)strcspn(symbol, " ,\t\n"), symbol);
  }
  if (file && !own)
    return brim_fail(BRIM_ELOAD, "needs the library %.*s, which is not installed", (int)(file - message), message);
  return brim_fail(BRIM_ELOAD, "cannot be loaded: %s", own ? message + length + 2 : message);
}

/* Plugins take brim's functions from the process. A program that has loaded libbrim.so privately (Python's ctypes
 * does) hides them from plugins, so libbrim.so is made global here. If brim is part of the executable, dlopen does
 * nothing. */
static void offer_brim(void)
{
  static bool offered; /* only the main thread loads plugins */
  Dl_info library;
  if (offered) return;
  offered = true;
  if (dladdr(&offered, &library) != 0 && library.dli_fname && strchr(library.dli_fname, '/'))
    dlopen(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_GLOBAL);
}

/* Copies a name that, like the loaded object, stays in memory until the process exits. */
static const char *keep_name(const char *path)
{
  static brim_arena names;
  return brim_arena_string(&names, path);
}

/* The object's constructors run here; they may crash or call exit(). */
static void *open_object(const char *path)
{
  brim_crash_loading(path);
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  brim_crash_loading(NULL);
  return handle;
}

brim_status brim_loader_enter(const char *file, const brim_module **out)
{
  *out = NULL;
  char path[PATH_MAX]; /* an absolute path, because dlopen searches other places for names without a slash */
  if (!realpath(file, path)) return brim_fail(BRIM_ELOAD, "cannot be opened: %s", strerror(errno));
  BRIM_TRY(brim_elf_check(path));
  offer_brim();
  void *handle = open_object(path);
  if (!handle) {
    const char *message = dlerror();
    return fail_linking(path, message ? message : "unknown reason");
  }
  /* The linker's type is void *; POSIX guarantees that it holds a function. */
  brim_module_entry_fn entry = NULL;
  void *symbol = dlsym(handle, ENTRY);
  memcpy(&entry, &symbol, sizeof entry);
  if (!entry)
    return brim_fail(BRIM_ELOAD, "is not a brim plugin: it has no function " ENTRY
                                 "\nend the plugin with BRIM_MODULE(name, version, plugins)");
  brim_crash_add_code(symbol, keep_name(path));
  *out = entry();
  return BRIM_OK;
}

brim_status brim_loader_load(const char *file, const brim_module **out)
{
  const brim_module *module;
  *out = NULL;
  BRIM_TRY(brim_loader_enter(file, &module));
  brim_crash_reading(file);
  const brim_status status = brim_loader_check(module);
  brim_crash_reading(NULL);
  if (status == BRIM_OK) *out = module;
  return status;
}
