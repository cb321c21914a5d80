#include "base/mapping.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <unistd.h>

typedef struct reader {
  int fd;
  ssize_t have, at;
  char bytes[4096];
} reader;

/* Reads a character; -1 at the end of the file. */
static int next_char(reader *r)
{
  if (r->at == r->have) {
    r->at = 0;
    r->have = r->fd < 0 ? 0 : read(r->fd, r->bytes, sizeof r->bytes);
    if (r->have <= 0) r->have = 0;
  }
  return r->at < r->have ? (unsigned char)r->bytes[r->at++] : -1;
}

/* Reads a hexadecimal number and the character after it. */
static uintptr_t next_hex(reader *r)
{
  uintptr_t value = 0;
  for (;;) {
    const int c = next_char(r);
    if (c >= '0' && c <= '9')
      value = value << 4 | (uintptr_t)(c - '0');
    else if (c >= 'a' && c <= 'f')
      value = value << 4 | (uintptr_t)(c - 'a' + 10);
    else
      return value;
  }
}

static int skip_word(reader *r)
{
  int c = next_char(r);
  while (c != ' ' && c != '\n' && c >= 0) c = next_char(r);
  return c;
}

/* Reads a line of /proc/self/maps, "start-end perms offset device inode      path"; false at the end. */
static bool next_mapping(reader *r, uintptr_t *start, uintptr_t *end, brim_mapping *out)
{
  size_t n = 0;
  *start = next_hex(r);
  *end = next_hex(r);
  skip_word(r);
  out->offset = next_hex(r);
  skip_word(r);
  int c = skip_word(r);
  while (c == ' ') c = next_char(r);
  for (; c != '\n' && c >= 0; c = next_char(r))
    if (n + 1 < sizeof out->path) out->path[n++] = (char)c;
  out->path[n] = '\0';
  return *end != 0;
}

void brim_mapping_find(uintptr_t address, brim_mapping *out)
{
  reader r = {.fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC)};
  uintptr_t start, end;
  bool found = false;
  while (!found && next_mapping(&r, &start, &end, out)) found = address >= start && address < end;
  if (r.fd >= 0) close(r.fd);
  out->offset += address - start;
  if (!found || out->path[0] != '/') out->path[0] = '\0';
}
