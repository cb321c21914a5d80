/* Deletes runs so that they can be restored: a run moves to FOLDER/.trash/DATE-TIME/NAME, where FOLDER is the folder
 * that contained it. The move is within a file system, so it preserves every byte and link. */
#ifndef BRIM_STORE_TRASH_H
#define BRIM_STORE_TRASH_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "brim/status.h"

#define BRIM_TRASH_NAME ".trash"

/* A deleted run. */
typedef struct brim_trashed {
  const char *name, *when; /* name: of the run's folder; when: "20261127-101500", when it was deleted */
} brim_trashed;

/* Moves a run to the trash in its parent folder. ECONFIG: the path is a link, is not a run, or contains the working
 * folder; EINVAL: a process is writing the run; EIO: the run cannot be moved. */
brim_status brim_trash_run(const char *dir);
/* Lists the runs in the trash of `folder`, oldest first; `arena` owns the list. A missing trash counts as empty.
 * ELOAD. */
brim_status brim_trash_list(brim_arena *arena, const char *folder, brim_trashed **out, size_t *count);
/* Moves a run back into `folder`. ECONFIG if the name is taken. */
brim_status brim_trash_restore(const char *folder, const brim_trashed *run);
/* Deletes a run in the trash permanently. EIO: the error names a file that is left. */
brim_status brim_trash_delete(const char *folder, const brim_trashed *run);
/* Bytes on disk of a file or of everything below a folder; links are not followed. */
uint64_t brim_disk_bytes(const char *path);
#endif
