/* A run's folder, read again at each look: only the parts that were added to its files since the last look. Nothing in
 * it is trusted, and a file that is missing, damaged or unreadable leaves its figures unknown. */
#ifndef BRIM_MONITOR_FOLDER_H
#define BRIM_MONITOR_FOLDER_H
#include "monitor/look.h"

typedef struct brim_folder brim_folder;

/* NULL: the host is out of memory. */
brim_folder *brim_folder_follow(const char *dir);
void brim_folder_drop(brim_folder *folder);
const char *brim_folder_dir(const brim_folder *folder);
/* Reads new lines and files. */
void brim_folder_update(brim_folder *folder);
/* How the run's last process said that it ended, or false if it did not (yet); *time: when, or NAN. */
bool brim_folder_ending(const brim_folder *folder, enum brim_look_state *state, double *time);
/* When the run's last process began, as far as it is known; else NAN. */
double brim_folder_started(const brim_folder *folder);
/* Fills the members of `run` that come from the folder, and those of its progress that are unknown so far. Texts and
 * arrays are copied into `arena`. */
void brim_folder_describe(const brim_folder *folder, brim_arena *arena, brim_look_run *run);
#endif
