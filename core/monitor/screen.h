/* The interactive view of `brim monitor`. */
#ifndef BRIM_MONITOR_SCREEN_H
#define BRIM_MONITOR_SCREEN_H
#include "monitor/source.h"

/* Draws the source's looks on the terminal and handles keys until the user quits. `every`: seconds between two looks;
 * `is_recorded`: the looks come from a file, so keys must not send signals. ECONFIG, with a remedy: the output is not a
 * terminal, or its type or size is not suitable; ELOAD: the object with ncurses cannot be loaded. */
brim_status brim_screen_run(brim_source *source, double every, bool is_recorded);
#endif
