/* The keys and files in the user's cache. See cache.h. */
#include "cache.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "brim/host.h"

/* ---- keys ---- */

/* The hash is FNV-1a (isthe.com/chongo/tech/comp/fnv). */
uint64_t cache_key_add(uint64_t key, const void *bytes, size_t count)
{
  for (size_t i = 0; i < count; i++) key = (key ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
  return key;
}

bool cache_key_add_file(uint64_t *key, const char *path, uint64_t *bytes, int64_t *changed)
{
  struct stat st;
  if (stat(path, &st) != 0) return false;
  char *real = realpath(path, NULL);
  if (!real) return false;
  const int64_t stamp[] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec, st.st_ctim.tv_sec, st.st_ctim.tv_nsec};
  *key = cache_key_add(cache_key_add(*key, real, strlen(real) + 1), stamp, sizeof stamp);
  free(real);
  if (bytes) *bytes = (uint64_t)st.st_size;
  if (changed) *changed = st.st_mtim.tv_sec;
  return true;
}

bool cache_key_add_tokenizer(uint64_t *key, const char *path)
{
  static const char *const names[] = {"tokenizer.json",      "tokenizer_config.json", "special_tokens_map.json",
                                      "chat_template.jinja", "chat_template.json",    "vocab.json",
                                      "merges.txt",          "encoder.json",          "vocab.bpe"};
  char name[CACHE_NAME_ROOM];
  struct stat st;
  if (stat(path, &st) != 0) return false;
  const char *slash = strrchr(path, '/');
  int folder = (int)strlen(path);
  if (!S_ISDIR(st.st_mode)) {
    if (!cache_key_add_file(key, path, NULL, NULL)) return false;
    folder = slash ? (int)(slash - path) : 0;
  }
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const int length = snprintf(name, sizeof name, "%.*s%s%s", folder, path, folder ? "/" : "", names[i]);
    if (length > 0 && length < (int)sizeof name) (void)cache_key_add_file(key, name, NULL, NULL);
  }
  return true;
}

/* ---- files ---- */

bool cache_path(const char *folder, const char *kind, uint64_t key, char out[CACHE_NAME_ROOM])
{
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  int length = -1;
  if (folder[0])
    length = snprintf(out, CACHE_NAME_ROOM, "%s/%s-%016" PRIx64 ".bin", folder, kind, key);
  else if (cache && cache[0] == '/')
    length = snprintf(out, CACHE_NAME_ROOM, "%s/brim/%s-%016" PRIx64 ".bin", cache, kind, key);
  else if (home && home[0] == '/')
    length = snprintf(out, CACHE_NAME_ROOM, "%s/.cache/brim/%s-%016" PRIx64 ".bin", home, kind, key);
  return length > 0 && length < CACHE_NAME_ROOM;
}

static bool write_all(int fd, cache_part part)
{
  const char *from = part.from;
  while (part.bytes > 0) {
    const ssize_t n = write(fd, from, part.bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    from += n;
    part.bytes -= (size_t)n;
  }
  return true;
}

static brim_status write_file(const char *path, const cache_part parts[2])
{
  int fd = -1;
  BRIM_TRY(brim_cache_begin(path, &fd));
  if (fd < 0) return BRIM_OK; /* another process is writing it */
  const bool written = write_all(fd, parts[0]) && write_all(fd, parts[1]);
  const int reason = errno;
  BRIM_TRY(brim_cache_end(path, &fd, written));
  return written ? BRIM_OK : brim_fail(BRIM_EIO, "cannot write '%s': %s", path, strerror(reason));
}

bool cache_write(const char *path, const cache_part parts[2])
{
  if (write_file(path, parts) == BRIM_OK) return true;
  brim_log(BRIM_LOG_WARN,
           "cannot cache the tokens: %s; the next run will make them again\ndataset.cache names another folder",
           brim_error_text());
  return false;
}
