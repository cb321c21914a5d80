/* Identities of files. See key.h. */
#include "key.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NAME_ROOM 4096

/* FNV-1a (isthe.com/chongo/tech/comp/fnv). */
uint64_t chat_key_add(uint64_t key, const void *bytes, size_t count)
{
  for (size_t i = 0; i < count; i++) key = (key ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
  return key;
}

bool chat_key_add_file(uint64_t *key, const char *path, uint64_t *bytes, int64_t *changed)
{
  struct stat st;
  if (stat(path, &st) != 0) return false;
  char *real = realpath(path, NULL);
  if (!real) return false;
  const int64_t stamp[] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec, st.st_ctim.tv_sec, st.st_ctim.tv_nsec};
  *key = chat_key_add(chat_key_add(*key, real, strlen(real) + 1), stamp, sizeof stamp);
  free(real);
  if (bytes) *bytes = (uint64_t)st.st_size;
  if (changed) *changed = st.st_mtim.tv_sec;
  return true;
}

bool chat_key_add_tokenizer(uint64_t *key, const char *path)
{
  static const char *const names[] = {"tokenizer.json",      "tokenizer_config.json", "special_tokens_map.json",
                                      "chat_template.jinja", "chat_template.json",    "vocab.json",
                                      "merges.txt",          "encoder.json",          "vocab.bpe"};
  char name[NAME_ROOM];
  struct stat st;
  if (stat(path, &st) != 0) return false;
  const char *slash = strrchr(path, '/');
  int folder = (int)strlen(path);
  if (!S_ISDIR(st.st_mode)) {
    if (!chat_key_add_file(key, path, NULL, NULL)) return false;
    folder = slash ? (int)(slash - path) : 0;
  }
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const int length = snprintf(name, sizeof name, "%.*s%s%s", folder, path, folder ? "/" : "", names[i]);
    if (length > 0 && length < (int)sizeof name) (void)chat_key_add_file(key, name, NULL, NULL);
  }
  return true;
}
