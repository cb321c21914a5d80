/* Writes files such that a failure or a kill leaves either the old bytes or the new ones. Paths have at most
 * BRIM_PATH_MAX bytes, including the NUL. Every call that may fail for lack of space or permission is checked. */
#ifndef BRIM_BASE_FILE_H
#define BRIM_BASE_FILE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "brim/status.h"

#define BRIM_PATH_MAX 4096

/* Writes "<folder>/<name>" to `out`, which has room for BRIM_PATH_MAX bytes. EINVAL if it does not fit. */
brim_status brim_path_join(char *out, const char *folder, const char *name);
/* Opens a regular file or a folder for reading and rejects everything else. Never blocks, as open() does on a pipe
 * until the other end opens. -1 or NULL, with errno; ESPIPE: not a regular file. */
int brim_open_to_read(const char *path);
FILE *brim_fopen_to_read(const char *path);
/* Reads the first room - 1 bytes of a small file, such as one of /proc, and ends them with a NUL. Allocates nothing and
 * does not block on a pipe. Returns the length; 0: the file is empty or cannot be read. */
size_t brim_file_start(const char *path, char *out, size_t room);
/* Returns the meaning of an errno that the first two functions set, or of ELOOP, which opening a link for writing
 * sets. */
const char *brim_open_reason(int error);
/* Creates or truncates a file for writing. Replaces a symbolic link, which another user may have placed, instead of
 * following it, and never blocks on a pipe. EIO with the path and the system's reason, as do the next two. */
brim_status brim_file_create(const char *path, int *fd);
/* Writes all bytes, with several calls of write() if necessary. */
brim_status brim_file_write_all(int fd, const char *path, const void *data, size_t bytes);
/* For files that several processes write: opens an existing file without truncation; sets its final length; writes at
 * an offset. EIO. */
brim_status brim_file_open_to_write(const char *path, int *fd);
brim_status brim_file_set_length(int fd, const char *path, uint64_t bytes);
brim_status brim_file_write_at(int fd, const char *path, const void *data, size_t bytes, uint64_t offset);
/* Creates a file of `bytes` bytes without a name: the system deletes it when it is closed, however the process ends.
 * `path` is a temporary name in a folder of the wanted file system; a file of that name is replaced. On most file
 * systems, bytes that are not written take no space. EIO. */
brim_status brim_file_create_unnamed(const char *path, uint64_t bytes, int *fd);
/* Reads exactly `bytes` bytes from an offset. EIO, also if the file is shorter. */
brim_status brim_file_read_at(int fd, const char *path, void *data, size_t bytes, uint64_t offset);
/* Syncs the file's bytes to the disk. EIO. */
brim_status brim_file_sync(int fd, const char *path);
/* Syncs and closes; the descriptor is closed in every case. */
brim_status brim_file_finish(int fd, const char *path);
/* Closes a file that brim_file_create opened: like brim_file_finish if `status` is BRIM_OK; otherwise, or on failure,
 * also removes it. Returns the first error. */
brim_status brim_file_end(int fd, const char *path, brim_status status);
/* The cache folder, "$XDG_CACHE_HOME/brim" or "$HOME/.cache/brim". Returns its length, which may exceed `room`, as with
 * snprintf(); -1: neither variable is set to an absolute path. */
int brim_cache_folder(char *out, size_t room);
/* Writes a whole file and syncs it; removes it on failure. */
brim_status brim_file_write(const char *path, const char *text, size_t bytes);
/* Copies a file, completely or not at all. ELOAD if it cannot be read, EIO if the copy cannot be written. */
brim_status brim_file_copy(const char *from, const char *to);
/* A file mapped into memory for reading. All zero: no file, or an empty one, which cannot be mapped. */
typedef struct brim_file_map {
  void *data;
  size_t bytes;
} brim_file_map;
/* Maps a regular file. ELOAD with the path. */
brim_status brim_file_map_open(const char *path, brim_file_map *out);
void brim_file_map_close(brim_file_map *map);
/* Drops the pages of `data`, which lies in the map, from memory; they are read again when they are used. Does nothing
 * for data elsewhere. */
void brim_file_map_forget(const brim_file_map *map, const void *data, size_t bytes);
/* Length and hash (64-bit FNV-1a) of a file's bytes. ELOAD with the path and the system's reason. */
brim_status brim_file_hash(const char *path, uint64_t *bytes, uint64_t *hash);
/* Returns length and XXH64 (xxhash.h, seed 0), which is faster for large files. */
brim_status brim_file_xxh64(const char *path, uint64_t *bytes, uint64_t *hash);
/* Removes the remains of a failed write at `path`; ignores devices and other special files, and keeps the error
 * text. */
void brim_file_discard(const char *path);
/* Whether the bytes are a git-lfs pointer, which a repository contains instead of a large file; and the hint for such
 * errors. */
bool brim_is_lfs_pointer(const void *bytes, size_t size);
#define BRIM_LFS_HINT "it is a git-lfs pointer to the file, not the file itself: run 'git lfs pull' in its folder"
/* Drops the file's clean pages from the page cache. */
void brim_file_drop_cached(const char *path);
/* Syncs a folder's entries to the disk. Ignores file systems that cannot sync a folder. */
brim_status brim_folder_sync(const char *path);
/* Deletes a folder of plain files. Keeps the thread's error text, because it cleans up after errors. False, with errno,
 * if anything remains; a missing folder counts as deleted. */
bool brim_folder_remove(const char *path);
bool brim_is_folder(const char *path);
/* The names in a folder, without those that begin with a dot, sorted by bytes: readdir's order differs between
 * machines, and alphasort's between locales. Names and list live in the arena. False, with errno: the folder cannot be
 * read. */
bool brim_folder_names(brim_arena *arena, const char *path, const char ***out, size_t *count);
/* Makes a folder and its parents. An existing one is fine. The error names the part that could not be made: ECONFIG if
 * no folder can be made there (a file has the name, or there is no write permission), so that another name is needed;
 * else EIO. */
brim_status brim_make_folders(const char *path);
#endif
