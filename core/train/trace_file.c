/* The file of a trace, from the ranks' parts. See trace_write.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "store/rundir.h"
#include "train/trace_parts.h"

static brim_status put(gzFile to, const char *path, const void *data, size_t bytes)
{
  int code;
  if (bytes == 0 || gzwrite(to, data, (unsigned)bytes) == (int)bytes) return BRIM_OK;
  const char *reason = gzerror(to, &code);
  return brim_fail(BRIM_EIO, "cannot write '%s': %s", path, code == Z_ERRNO ? strerror(errno) : reason);
}

static brim_status put_inflated(gzFile to, const char *path, z_stream *stream, uint8_t *room)
{
  for (;;) {
    stream->next_out = room;
    stream->avail_out = (uInt)BRIM_TRACE_CHUNK;
    const int code = inflate(stream, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END) return brim_fail(BRIM_EINVAL, "a rank's part of the trace is damaged");
    BRIM_TRY(put(to, path, room, BRIM_TRACE_CHUNK - stream->avail_out));
    if (code == Z_STREAM_END) return BRIM_OK;
  }
}

static brim_status put_part(gzFile to, const char *path, const brim_trace_part *part)
{
  z_stream stream = {.next_in = (Bytef *)(uintptr_t)part->data, .avail_in = (uInt)part->bytes};
  uint8_t *room = brim_try_malloc(BRIM_TRACE_CHUNK);
  const bool opened = room && inflateInit(&stream) == Z_OK;
  const brim_status status = opened ? put_inflated(to, path, &stream, room) : brim_trace_fail_memory();
  if (opened) (void)inflateEnd(&stream);
  free(room);
  return status;
}

static brim_status put_all(gzFile to, const char *path, const brim_trace_part *part, int32_t ranks, const json_t *note)
{
  static const char begin[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", middle[] = "\n],\"otherData\":";
  bool is_first = true;
  char *text = json_dumps(note, JSON_COMPACT);
  brim_status status = text ? put(to, path, begin, sizeof begin - 1) : brim_trace_fail_memory();
  for (int32_t i = 0; i < ranks && status == BRIM_OK; i++) {
    if (part[i].bytes == 0) continue; /* that rank had no memory for its part */
    if (!is_first) status = put(to, path, ",\n", 2);
    is_first = false;
    if (status == BRIM_OK) status = put_part(to, path, &part[i]);
  }
  if (status == BRIM_OK) status = put(to, path, middle, sizeof middle - 1);
  if (status == BRIM_OK) status = put(to, path, text, strlen(text));
  if (status == BRIM_OK) status = put(to, path, "}\n", 2);
  free(text);
  return status;
}

brim_status brim_trace_write(const char *path, const brim_trace_part *part, int32_t ranks, const json_t *note)
{
  char folder[BRIM_PATH_MAX], aside[BRIM_PATH_MAX];
  int fd = -1;
  BRIM_TRY(brim_path_aside(path, folder, aside));
  BRIM_TRY(brim_file_create(aside, &fd));
  const int copy = dup(fd); /* gzclose() closes the copy; brim_file_end syncs and closes fd */
  const gzFile to = copy < 0 ? NULL : gzdopen(copy, "wb6");
  brim_status status = to ? put_all(to, path, part, ranks, note) : brim_trace_fail_memory();
  if (to && gzclose(to) != Z_OK && status == BRIM_OK)
    status = brim_fail(BRIM_EIO, "cannot write '%s': %s", path, strerror(errno));
  if (!to && copy >= 0) close(copy);
  BRIM_TRY(brim_file_end(fd, aside, status));
  return brim_file_publish(aside, path, folder);
}
