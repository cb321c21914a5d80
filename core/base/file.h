/* Writing files so that a failure or a kill leaves either the old bytes or the new ones. Paths are at most
 * BRIM_PATH_MAX bytes with the NUL. Every call that can fail for want of space or permission is checked. */
#ifndef BRIM_BASE_FILE_H
#define BRIM_BASE_FILE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "brim/status.h"

#define BRIM_PATH_MAX 4096

/* "<folder>/<name>" into `out`, which holds BRIM_PATH_MAX bytes. EINVAL if it does not fit. */
brim_status brim_path_join(char *out, const char *folder, const char *name);
/* Opens a regular file for reading, or a folder. Never waits, as open() does for the other end of a pipe: all else is
 * refused. -1, or NULL, with errno; ESPIPE: it is not a regular file. */
int brim_open_to_read(const char *path);
FILE *brim_fopen_to_read(const char *path);
/* What an errno of these two means, and one of opening to write without following links (ELOOP). */
const char *brim_open_reason(int error);
/* Makes or empties a file for writing. A symbolic link, which others may have put there, is replaced and not followed,
 * and no call waits for the reader of a pipe. EIO with the path and the system's reason, also in the next two. */
brim_status brim_file_create(const char *path, int *fd);
/* Writes all of it, however many calls that takes. */
brim_status brim_file_write_all(int fd, const char *path, const void *data, size_t bytes);
/* The same from a byte of the file on, for a file that others write too: made before, opened as it is, of the length
 * that it will have. EIO. */
brim_status brim_file_open_to_write(const char *path, int *fd);
brim_status brim_file_set_length(int fd, const char *path, uint64_t bytes);
brim_status brim_file_write_at(int fd, const char *path, const void *data, size_t bytes, uint64_t offset);
/* Puts the bytes on the disk. EIO. */
brim_status brim_file_sync(int fd, const char *path);
/* The same, and closes; the descriptor is closed in every case. */
brim_status brim_file_finish(int fd, const char *path);
/* The folder of what is kept for later runs, "$XDG_CACHE_HOME/brim" or "$HOME/.cache/brim": its length, which may be
 * more than fits, as with snprintf(); -1: neither variable is set to a whole path. */
int brim_cache_folder(char *out, size_t room);
/* A whole file, synced; removed again on failure. */
brim_status brim_file_write(const char *path, const char *text, size_t bytes);
/* A copy of a file, whole or not at all. ELOAD if it cannot be read, EIO if not written. */
brim_status brim_file_copy(const char *from, const char *to);
/* Length and hash (64-bit FNV-1a) of a file's bytes. ELOAD with the path and the system's reason. */
brim_status brim_file_hash(const char *path, uint64_t *bytes, uint64_t *hash);
/* Removes what a failed write left at `path`; leaves devices and the like alone, and the error text. */
void brim_file_discard(const char *path);
/* Takes what is on the disk from the page cache. */
void brim_file_drop_cached(const char *path);
/* Puts a folder's entries on the disk. File systems that cannot sync a folder are left alone. */
brim_status brim_folder_sync(const char *path);
/* Deletes a folder of plain files. Leaves the thread's error text alone, because it cleans up after errors.
 * False, with errno, if something of it remains; a folder that is not there is fine. */
bool brim_folder_remove(const char *path);
bool brim_is_folder(const char *path);
/* The names in a folder, without those that begin with a dot, sorted by their bytes: readdir's order differs between
 * machines, and alphasort's between locales. They and their list live in the arena. False, with errno: it cannot be
 * read. */
bool brim_folder_names(brim_arena *arena, const char *path, const char ***out, size_t *count);
/* Makes a folder and its parents. An existing one is fine. Names the part that could not be made: ECONFIG where there
 * can be no such folder (a file is in its way, nobody may write there), so that another name is needed; else EIO. */
brim_status brim_make_folders(const char *path);
#endif
