/* JSON lines from a fixed buffer. See jsonl.h. */
#include "store/jsonl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "base/utf8.h"

#define REST_BYTES 512 /* bytes of the line reserved for the fields after a text */
#define ESCAPE_BYTES 6 /* "\u001f", the longest form of one character */
#define ELLIPSIS "..."

/* Finds the length and the number of the first `keep` lines, or of all complete lines. */
static brim_status measure(brim_jsonl *log, int64_t keep)
{
  char buffer[16384];
  int64_t at = 0;
  for (ssize_t n; keep == BRIM_JSONL_ALL || log->records < keep; at += n) {
    n = pread(log->fd, buffer, sizeof buffer, at);
    if (n < 0) return brim_fail(BRIM_EIO, "cannot read '%s': %s", log->path, strerror(errno));
    if (n == 0) break;
    for (ssize_t i = 0; i < n && (keep == BRIM_JSONL_ALL || log->records < keep); i++)
      if (buffer[i] == '\n') {
        log->records++;
        log->bytes = at + i + 1;
      }
  }
  return BRIM_OK;
}

/* A deleted or truncated file must not prevent a resume. The state counts the records of the file, so placeholders
 * replace missing ones. */
static brim_status fill_up(brim_jsonl *log, int64_t keep)
{
  if (keep == BRIM_JSONL_ALL || log->records >= keep) return BRIM_OK;
  brim_log(BRIM_LOG_WARN,
           "'%s' has %" PRId64 " records, but had %" PRId64
           " when the checkpoint was written: the missing ones are lost, and the run continues without them",
           log->path, log->records, keep);
  while (log->records < keep) {
    brim_jsonl_begin(log);
    brim_jsonl_int(log, "lost", 1);
    BRIM_TRY(brim_jsonl_end(log));
  }
  return BRIM_OK;
}

static brim_status cut(brim_jsonl *log, int64_t keep)
{
  BRIM_TRY(measure(log, keep));
  if (ftruncate(log->fd, log->bytes) != 0)
    return brim_fail(BRIM_EIO, "cannot truncate '%s' to %" PRId64 " bytes: %s", log->path, log->bytes, strerror(errno));
  return fill_up(log, keep);
}

brim_status brim_jsonl_open(brim_jsonl *log, const char *path, int64_t keep_records)
{
  *log = (brim_jsonl){.fd = -1};
  const int length = snprintf(log->path, sizeof log->path, "%s", path);
  if (length < 0 || (size_t)length >= sizeof log->path)
    return brim_fail(BRIM_EINVAL, "path '%.200s...' is longer than %zu bytes", path, sizeof log->path - 1);
  struct stat info;
  log->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (log->fd < 0) return brim_fail(BRIM_EIO, "cannot open '%s': %s", path, brim_open_reason(errno));
  const bool is_file = fstat(log->fd, &info) == 0 && S_ISREG(info.st_mode);
  const brim_status status =
      is_file ? cut(log, keep_records) : brim_fail(BRIM_EIO, "cannot open '%s': %s", path, brim_open_reason(ESPIPE));
  if (status != BRIM_OK) brim_jsonl_close(log);
  return status;
}

static void put(brim_jsonl *log, const char *bytes, size_t count)
{
  /* Two bytes stay free for the end of the record. */
  if (log->overflow || count > sizeof log->line - 2 - log->length) {
    log->overflow = true;
    return;
  }
  memcpy(log->line + log->length, bytes, count);
  log->length += count;
}

static void put_key(brim_jsonl *log, const char *key)
{
  if (log->length > 1) put(log, ",", 1);
  put(log, "\"", 1);
  put(log, key, strlen(key));
  put(log, "\":", 2);
}

void brim_jsonl_begin(brim_jsonl *log)
{
  log->length = 0;
  log->overflow = false;
  put(log, "{", 1);
}

void brim_jsonl_int(brim_jsonl *log, const char *key, int64_t value)
{
  char text[32];
  const int length = snprintf(text, sizeof text, "%" PRId64, value);
  put_key(log, key);
  put(log, text, (size_t)length);
}

void brim_jsonl_number(brim_jsonl *log, const char *key, double value)
{
  char room[BRIM_NUMBER_BYTES];
  const char *text = isfinite(value) ? brim_format_number(room, value, false) : "null";
  put_key(log, key);
  put(log, text, strlen(text));
}

/* Writes one character of a text as JSON. */
static void put_character(brim_jsonl *log, const char **s, const char *end)
{
  static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
  const char first = **s, *known = strchr(plain, first);
  char escaped[ESCAPE_BYTES + 1];
  size_t length;
  const char *written = brim_utf8_take(s, end, &length);
  if (known) {
    put(log, (const char[]){'\\', letter[known - plain]}, 2);
  } else if ((unsigned char)first < 0x20) {
    snprintf(escaped, sizeof escaped, "\\u%04x", first);
    put(log, escaped, ESCAPE_BYTES);
  } else {
    put(log, written, length);
  }
}

void brim_jsonl_string(brim_jsonl *log, const char *key, const char *value)
{
  put_key(log, key);
  put(log, "\"", 1);
  const size_t limit = sizeof log->line - REST_BYTES - ESCAPE_BYTES - sizeof ELLIPSIS;
  const char *end = value + strlen(value);
  while (value < end) {
    if (log->length > limit) {
      put(log, ELLIPSIS, sizeof ELLIPSIS - 1);
      break;
    }
    put_character(log, &value, end);
  }
  put(log, "\"", 1);
}

brim_status brim_jsonl_append(brim_jsonl *log, const char *line, size_t bytes)
{
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = write(log->fd, line + done, bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int reason = n < 0 ? errno : ENOSPC;
      if (done > 0 && ftruncate(log->fd, log->bytes) != 0)
        return brim_fail(BRIM_EIO, "cannot write '%s', and it now ends in an incomplete line: %s", log->path,
                         strerror(reason));
      return brim_fail(BRIM_EIO, "cannot write '%s': %s", log->path, strerror(reason));
    }
    done += (size_t)n;
  }
  log->bytes += (int64_t)bytes;
  log->records++;
  return BRIM_OK;
}

brim_status brim_jsonl_end(brim_jsonl *log)
{
  if (log->overflow)
    return brim_fail(BRIM_EINVAL, "a record of '%s' is longer than %zu bytes and was dropped", log->path,
                     sizeof log->line);
  log->line[log->length++] = '}';
  log->line[log->length++] = '\n';
  return brim_jsonl_append(log, log->line, log->length);
}

void brim_jsonl_close(brim_jsonl *log)
{
  if (log->path[0] && log->fd >= 0) close(log->fd); /* every record has already been written */
  *log = (brim_jsonl){.fd = -1};
}
