/* A table in a file that the processes of a host share: what is written in a slot holds as long as the process that
 * wrote it lives. No process is trusted to clean up: each owner holds a lock on a byte of the file, which the kernel
 * lets go of when it ends, however it ends and in whichever container. Everything else is done under the lock of the
 * whole table, which a process that dies lets go of too.
 *
 * The file is made by whoever comes first, for all users of the host. It is read and written, never mapped: a file that
 * somebody cuts short is an error and not a signal. */
#ifndef BRIM_MEMORY_BOARD_H
#define BRIM_MEMORY_BOARD_H
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#define BRIM_BOARD_SLOTS 256

typedef struct brim_board {
  int fd;
  pthread_mutex_t threads; /* the lock of the table is the process's: among its threads this one counts */
  size_t slot_bytes;
  bool own[BRIM_BOARD_SLOTS]; /* written through this board */
} brim_board;

/* [init] The folder of what processes share: `dir` if it is set by brim_shared_folder_set, else $BRIM_CLAIMS_DIR, else
 * /dev/shm/brim. */
const char *brim_shared_folder(void);
void brim_shared_folder_set(const char *dir); /* copied; "": not set */

/* [any thread] What this process is called; "" if that cannot be known. */
void brim_process_name(char *out, size_t room);

/* Opens "<shared folder>/<name>", made if it is not there. `magic` tells what is in the slots, with its version:
 * one that is in use by another is ELOAD. EIO with the path and the system's reason. */
brim_status brim_board_open(brim_board *board, const char *name, uint64_t magic, size_t slot_bytes);
/* Lets go of all that was written through it. */
void brim_board_close(brim_board *board);
/* [any thread] The table belongs to the caller until unlock; everything below is for then. Waits. */
brim_status brim_board_lock(brim_board *board);
void brim_board_unlock(brim_board *board);
/* Reads a slot; *alive is false if there is nothing in it, or its owner has ended, and then it is empty afterwards. */
brim_status brim_board_read(brim_board *board, size_t slot, void *data, bool *alive);
/* Writes into a slot that is not alive, and owns it; or into one of one's own. */
brim_status brim_board_write(brim_board *board, size_t slot, const void *data);
brim_status brim_board_clear(brim_board *board, size_t slot); /* one of one's own */
#endif
