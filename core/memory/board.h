/* A table in a file that the processes of a host share: what is written in a slot holds as long as the process that
 * wrote it lives. No process is trusted to clean up: each owner holds a lock on a byte of the file, which the kernel
 * lets go of when it ends, however it ends and in whichever container. Everything else is done under the lock of the
 * whole table, which a process that dies lets go of too. A process cannot be suspended from its terminal while it has
 * that lock; a process that waits for it in vain names its holder.
 *
 * The first process makes the file, for all users of the host, so nothing in it is trusted: callers bound what they
 * read, an owner uses its own copy of a slot, and a table that was cut short or damaged is mended under the
 * lock. It is read and written, never mapped: a file that another process cuts short causes no signal. */
#ifndef BRIM_MEMORY_BOARD_H
#define BRIM_MEMORY_BOARD_H
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#define BRIM_BOARD_SLOTS 256
#define BRIM_BOARD_SECONDS 10.0 /* that the table's lock is waited for */
#define BRIM_BOARD_GLANCE 0.1   /* the same for what can be left for later */

typedef struct brim_board {
  int fd;
  pthread_mutex_t threads; /* the lock of the table is the process's: among its threads this one counts */
  sigset_t signals;        /* of the thread that has the lock, before */
  uint64_t magic;
  size_t slot_bytes;
  double seconds;              /* that the lock is waited for */
  bool is_known, is_lost;      /* the table was found good once; the lock was waited for in vain the last time */
  void *own[BRIM_BOARD_SLOTS]; /* copies of what was written through this board */
  char path[PATH_MAX];
} brim_board;

/* [init] The folder of what processes share: `dir` if it is set by brim_shared_folder_set, else $BRIM_CLAIMS_DIR, else
 * /dev/shm/brim. */
const char *brim_shared_folder(void);
void brim_shared_folder_set(const char *dir); /* copied; "": not set */

/* [any thread] What this process is called; "" if that cannot be known. */
void brim_process_name(char *out, size_t room);

/* Opens "<shared folder>/<name>", made if it is not there. `magic` tells what is in the slots, with its version:
 * one that is in use by another is ELOAD. `seconds`: how long each call waits for the table's lock. EIO with the path
 * and the reason: also if others could replace the folder's files, or something else than a file is there. */
brim_status brim_board_open(brim_board *board, const char *name, uint64_t magic, size_t slot_bytes, double seconds);
/* Lets go of all that was written through it. */
void brim_board_close(brim_board *board);
/* The same, and removes the shared folder's files with this ending and magic that no process uses. */
void brim_board_close_and_tidy(brim_board *board, const char *ending);
/* [any thread] The table belongs to the caller until unlock; everything below is for then. EIO naming the process that
 * has had it for too long; while that lasts, the next calls wait for BRIM_BOARD_GLANCE. */
brim_status brim_board_lock(brim_board *board);
void brim_board_unlock(brim_board *board);
/* Reads a slot; *alive is false if there is nothing in it, or its owner has ended, and then it is empty afterwards.
 * What is in a slot of another process may be anything. */
brim_status brim_board_read(brim_board *board, size_t slot, void *data, bool *alive);
/* Does no process own the slot? One that is not alive may still be owned, if another program has changed the file. */
bool brim_board_is_free(const brim_board *board, size_t slot);
/* Writes into a slot that is free, and owns it; or into one of one's own. */
brim_status brim_board_write(brim_board *board, size_t slot, const void *data);
brim_status brim_board_clear(brim_board *board, size_t slot); /* one of one's own */
#endif
