/* What `brim new` and the completion of its words share. */
#ifndef BRIM_CLI_NEW_H
#define BRIM_CLI_NEW_H
#include <stddef.h>

#include "base/arena.h"

/* [init] The kinds of plugins that there are templates for, sorted, in the arena; returns how many. 0: the installation
 * has no templates. */
size_t brim_cli_new_kinds(brim_arena *arena, const char ***out);
#endif
