/* Follows a run's folder: each look reads only the parts that were added to its files since the last look. brim does
 * not trust the files: if one is missing, damaged or unreadable, its figures are unknown. */
#ifndef BRIM_MONITOR_FOLDER_H
#define BRIM_MONITOR_FOLDER_H
#include "monitor/look.h"

typedef struct brim_folder brim_folder;

/* Returns NULL if the host is out of memory. */
brim_folder *brim_folder_follow(const char *dir);
void brim_folder_drop(brim_folder *folder);
const char *brim_folder_dir(const brim_folder *folder);
/* Reads new lines and files. */
void brim_folder_update(brim_folder *folder);
/* Returns whether the run's last process has recorded its end, and how. *time: the time of the end, or NAN. */
bool brim_folder_ending(const brim_folder *folder, enum brim_look_state *state, double *time);
/* Returns the time at which the run's last process began; NAN if unknown. */
double brim_folder_started(const brim_folder *folder);
/* Fills the members of `run` that come from the folder, and the members about progress that are still unknown. Copies
 * texts and arrays into `arena`. */
void brim_folder_describe(const brim_folder *folder, brim_arena *arena, brim_look_run *run);
#endif
