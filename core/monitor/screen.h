/* The interactive view of `brim monitor`. */
#ifndef BRIM_MONITOR_SCREEN_H
#define BRIM_MONITOR_SCREEN_H
#include "monitor/source.h"

/* Draws the source's looks on the terminal and obeys its keys until the user quits. `every`: seconds between two looks;
 * `is_recorded`: they come from a file, so no process may be signalled. ECONFIG: the output is no
 * terminal, or one whose type or size does not allow it, with a remedy; ELOAD: the object with ncurses cannot be
 * loaded. */
brim_status brim_screen_run(brim_source *source, double every, bool is_recorded);
#endif
