/* Files that datasets of text store in the user's cache. The name of a file has a key, a hash of everything that its
 * content depends on. Files that were read enter the key with their paths, their sizes and the times of their last
 * change, which no program can set back. */
#ifndef LANGUAGE_CACHE_H
#define LANGUAGE_CACHE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CACHE_NAME_ROOM 4096

#define CACHE_KEY_START 0xcbf29ce484222325u
uint64_t cache_key_add(uint64_t key, const void *bytes, size_t count);
/* Returns false if there is no such file. *bytes and *changed (seconds since 1970) may be NULL. */
bool cache_key_add_file(uint64_t *key, const char *path, uint64_t *bytes, int64_t *changed);
/* Adds the files of a tokenizer and its template, which are in a folder, or beside a file. Returns false if there is no
 * such folder or file. */
bool cache_key_add_tokenizer(uint64_t *key, const char *path);

/* [init] Writes the path of the file "KIND-KEY.bin" in `folder` or, if that is empty, in $XDG_CACHE_HOME/brim or
 * ~/.cache/brim. Returns false if there is no such folder. */
bool cache_path(const char *folder, const char *kind, uint64_t key, char out[CACHE_NAME_ROOM]);

typedef struct cache_part {
  const void *from;
  size_t bytes;
} cache_part;
/* [init] Writes a file of two parts, or of one part if the second is empty. If it cannot be written, warns with the
 * reason and returns false. Returns true if another process is already writing it. */
bool cache_write(const char *path, const cache_part parts[2]);
#endif
