/* Loads a shared object and checks that it is a complete module for this ABI. */
#ifndef BRIM_PLUGIN_LOADER_H
#define BRIM_PLUGIN_LOADER_H
#include "brim/plugin.h"

/* Loads `file` (dlopen, RTLD_NOW | RTLD_LOCAL, never closed), calls its entry and checks the result. ELOAD with the
 * reason, without the file's name, as one or more lines. Loading a file again gives the same module. */
brim_status brim_loader_load(const char *file, const brim_module **out);
/* Loads a file without checks of its entry's result, which may be NULL. */
brim_status brim_loader_enter(const char *file, const brim_module **out);
/* The checks of brim_loader_load: the ABI, and each plugin's fields, parameter table and ops. ELOAD. */
brim_status brim_loader_check(const brim_module *module);
/* Makes the same checks, but reports each problem to `on_problem` and continues with the checks that can still be
 * trusted; then returns OK. */
typedef void (*brim_loader_report)(void *context, const char *problem);
brim_status brim_loader_check_all(const brim_module *module, brim_loader_report on_problem, void *context);
#endif
