/* A table in a file that the processes of a host share. The contents of a slot are valid as long as the process that
 * wrote them lives. Processes need not clean up: each owner holds a lock on a byte of the file, and the kernel releases
 * it when the process ends, however it ends and in any container. All access happens under a lock of the whole table,
 * which the kernel releases in the same way. A process that holds that lock cannot be suspended from its terminal; a
 * process that waits for it too long reports its holder.
 *
 * The first process creates the file, and all users of the host can write to it, so brim does not trust its contents:
 * callers check the bounds of the values that they read, an owner uses its own copy of a slot, and a truncated or
 * damaged table is repaired under the lock. brim reads and writes the file with system calls instead of mapping it,
 * because truncation of a mapped file by another process would cause a signal. */
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
#define BRIM_BOARD_SECONDS 10.0 /* maximum wait for the table's lock */
#define BRIM_BOARD_GLANCE 0.1   /* maximum wait for the lock for work that the caller can postpone */

typedef struct brim_board {
  int fd;
  pthread_mutex_t threads; /* a lock among the threads of this process, which share one lock of the table */
  sigset_t signals;        /* signal mask of the lock's holder before it took the lock */
  uint64_t magic;
  size_t slot_bytes;
  double seconds;              /* maximum wait for the lock */
  bool is_known, is_lost;      /* the table has been valid once; the last wait for the lock timed out */
  void *own[BRIM_BOARD_SLOTS]; /* copies of the slots written through this board */
  char path[PATH_MAX];
} brim_board;

/* [init] The folder of shared files: the one set by brim_shared_folder_set, else $BRIM_CLAIMS_DIR, else
 * /dev/shm/brim. */
const char *brim_shared_folder(void);
void brim_shared_folder_set(const char *dir); /* copied; "": unset */

/* [any thread] The name of this process, or "" if it is unknown. */
void brim_process_name(char *out, size_t room);

/* Opens "<shared folder>/<name>", and creates it if it is missing. `magic` identifies the contents of the slots and
 * their version: ELOAD if the file is in use with another one. `seconds`: maximum wait of each call for the table's
 * lock. EIO with the path and the reason, for example if other users could replace the folder's files or the path is
 * not a regular file. */
brim_status brim_board_open(brim_board *board, const char *name, uint64_t magic, size_t slot_bytes, double seconds);
/* Releases all slots that were written through the board. */
void brim_board_close(brim_board *board);
/* Closes the board, and also removes files of the shared folder that have this ending and magic and that no process
 * uses. */
void brim_board_close_and_tidy(brim_board *board, const char *ending);
/* [any thread] Locks the table until unlock; all functions below need the lock. EIO naming the process that has held it
 * too long; from then on calls wait only for BRIM_BOARD_GLANCE, until one succeeds. */
brim_status brim_board_lock(brim_board *board);
void brim_board_unlock(brim_board *board);
/* Reads a slot. *alive is false if the slot is empty or its owner has ended; in that case this empties the slot. Do not
 * trust the contents of another process's slot. */
brim_status brim_board_read(brim_board *board, size_t slot, void *data, bool *alive);
/* Whether no process owns the slot. A slot that is not alive may still be owned, if another program has changed the
 * file. */
bool brim_board_is_free(const brim_board *board, size_t slot);
/* Writes into a free slot, which this process then owns, or into one of the process's own slots. */
brim_status brim_board_write(brim_board *board, size_t slot, const void *data);
brim_status brim_board_clear(brim_board *board, size_t slot); /* empties one of this process's own slots */

/* ---- without the lock ---- */

/* Writes one of this process's own slots again, with one system call and without an allocation. A reader may see a mix
 * of old and new contents, so the contents must have a check of their own. */
brim_status brim_board_rewrite(brim_board *board, size_t slot, const void *data);
/* Whether the file is still in its folder and has the whole table. If not, close the board and open it again. */
bool brim_board_is_whole(const brim_board *board);
/* Whether descriptor `fd` of process `pid` owns the slot, as far as the kernel shows it to this user. */
bool brim_board_is_owner(const brim_board *board, size_t slot, int64_t pid, int fd);
#endif
