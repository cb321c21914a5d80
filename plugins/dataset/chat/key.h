/* Identifies the files that a set of packed documents was made of: by their paths, sizes and the times of their last
 * change, which no program can set back. */
#ifndef CHAT_KEY_H
#define CHAT_KEY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHAT_KEY_START 0xcbf29ce484222325u
uint64_t chat_key_add(uint64_t key, const void *bytes, size_t count);
/* False: there is no such file. *bytes and *changed (seconds since 1970) may be NULL. */
bool chat_key_add_file(uint64_t *key, const char *path, uint64_t *bytes, int64_t *changed);
/* The files of a tokenizer and its template that are in a folder, or beside a file. False: there is no such folder or
 * file. */
bool chat_key_add_tokenizer(uint64_t *key, const char *path);
#endif
