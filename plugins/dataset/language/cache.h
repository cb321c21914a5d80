/* Files that datasets of text keep in the user's cache. The key in a file's name is a hash of all that its content
 * depends on; the files that were read count by their paths, sizes and the times of their last change, which no program
 * can set back. */
#ifndef LANGUAGE_CACHE_H
#define LANGUAGE_CACHE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CACHE_NAME_ROOM 4096

#define CACHE_KEY_START 0xcbf29ce484222325u
uint64_t cache_key_add(uint64_t key, const void *bytes, size_t count);
/* False: there is no such file. *bytes and *changed (seconds since 1970) may be NULL. */
bool cache_key_add_file(uint64_t *key, const char *path, uint64_t *bytes, int64_t *changed);
/* The files of a tokenizer and its template that are in a folder, or beside a file. False: there is no such folder or
 * file. */
bool cache_key_add_tokenizer(uint64_t *key, const char *path);

/* [init] Writes the path of the file "KIND-KEY.bin": in `folder`, or if it is empty in $XDG_CACHE_HOME/brim or
 * ~/.cache/brim. False: no such folder. */
bool cache_path(const char *folder, const char *kind, uint64_t key, char out[CACHE_NAME_ROOM]);

typedef struct cache_part {
  const void *from;
  size_t bytes;
} cache_part;
/* [init] Writes a file of two parts, or of one if the second is empty. False: the file cannot be written; a warning
 * says why. True too if another process is writing it. */
bool cache_write(const char *path, const cache_part parts[2]);
#endif
