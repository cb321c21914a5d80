/* From a file to a module that can be trusted to be of this ABI and complete. */
#ifndef BRIM_PLUGIN_LOADER_H
#define BRIM_PLUGIN_LOADER_H
#include "brim/plugin.h"

/* Loads `file` (dlopen, RTLD_NOW | RTLD_LOCAL, never closed), calls its entry and checks what it returns. ELOAD with
 * the reason, without the file's name, as one or more lines. Loading a file again gives the same module. */
brim_status brim_loader_load(const char *file, const brim_module **out);
/* The same, but nothing is checked of what the entry returns, which may be NULL. */
brim_status brim_loader_enter(const char *file, const brim_module **out);
/* What brim_loader_load checks of a module: its ABI, and each plugin's fields, parameter table and ops. ELOAD. */
brim_status brim_loader_check(const brim_module *module);
/* The same, but it goes on behind what is wrong, as far as the rest can be trusted, and tells it; OK then. */
typedef void (*brim_loader_tell)(void *context, const char *problem);
brim_status brim_loader_check_all(const brim_module *module, brim_loader_tell tell, void *context);
#endif
