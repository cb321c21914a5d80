/* Writes TensorBoard's event files without a library: TFRecords (tensorflow/core/lib/io/record_writer.h), each of which
 * is an Event (tensorflow/core/util/event.proto) in protocol buffers' wire format.
 *
 *     TFRecord   length: 8 bytes | masked CRC-32C of these | data | masked CRC-32C of the data      all little-endian
 *     Event      1: double wall_time   2: int64 step   3: string file_version   5: Summary   7: SessionLog
 *     Summary    1: Value, repeated        Value   1: string tag   2: float simple_value
 *     SessionLog 1: status, START = 1: readers discard the event's step and later ones */
#include "observe/tensorboard.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"

#define HEAD_BYTES 12  /* length and its checksum */
#define TAIL_BYTES 4   /* checksum of the data */
#define TAG_BYTES 160  /* "accuracy_top5/validation" */
#define VALUE_BYTES 16 /* limit for the bytes of a value besides its tag, and of its length field */
#define SPLIT_BYTES 32
#define SUMMARY_ROOM 128  /* bytes of an event around its summary */
#define ATTEMPTS_MAX 1000 /* most files that are created in one second */

enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

/* ---- messages ---- */

typedef struct message {
  unsigned char *out;
  size_t length, room;
} message;

static void put(message *m, const void *bytes, size_t count)
{
  if (count > m->room - m->length) return; /* callers check the room before larger messages */
  memcpy(m->out + m->length, bytes, count);
  m->length += count;
}

static void put_little_endian(message *m, uint64_t value, int count)
{
  unsigned char byte[8];
  for (int i = 0; i < count; i++) byte[i] = (unsigned char)(value >> 8 * i);
  put(m, byte, (size_t)count);
}

static void put_varint(message *m, uint64_t value)
{
  for (; value >= 0x80; value >>= 7) put_little_endian(m, (value & 0x7f) | 0x80, 1);
  put_little_endian(m, value, 1);
}

static void put_field(message *m, unsigned number, enum wire wire)
{
  put_varint(m, number << 3 | (unsigned)wire);
}

static void put_bytes(message *m, unsigned number, const void *bytes, size_t count)
{
  put_field(m, number, BYTES);
  put_varint(m, count);
  put(m, bytes, count);
}

/* Begins an Event, which starts with the time and its step. `record`: `room` bytes for it and its record. */
static message begin_event_in(unsigned char *record, size_t room, int64_t step)
{
  message m = {record + HEAD_BYTES, 0, room - HEAD_BYTES - TAIL_BYTES};
  uint64_t bits;
  const double seconds = brim_wall_now();
  memcpy(&bits, &seconds, sizeof bits);
  put_field(&m, 1, FIXED64);
  put_little_endian(&m, bits, 8);
  put_field(&m, 2, VARINT);
  put_varint(&m, (uint64_t)step);
  return m;
}

static message begin_event(brim_tensorboard *t, int64_t step)
{
  return begin_event_in(t->record, sizeof t->record, step);
}

/* Adds a value; omits it if there is no room. */
static void put_value(message *summary, const char *tag, float value)
{
  unsigned char inner[TAG_BYTES + VALUE_BYTES];
  message v = {inner, 0, sizeof inner};
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  put_bytes(&v, 1, tag, strlen(tag));
  put_field(&v, 2, FIXED32);
  put_little_endian(&v, bits, 4);
  if (summary->room - summary->length >= v.length + VALUE_BYTES) put_bytes(summary, 1, inner, v.length);
}

/* ---- records ---- */

/* CRC-32C (Castagnoli), masked as in TFRecords. Without a table, because records are small and few. */
static uint32_t masked_crc(const unsigned char *bytes, size_t count)
{
  uint32_t crc = 0xffffffffu;
  for (size_t i = 0; i < count; i++) {
    crc ^= bytes[i];
    for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* Adds head and tail to the message, and appends it to the file. */
static brim_status append(brim_tensorboard *t, const message *event)
{
  unsigned char *record = event->out - HEAD_BYTES;
  message head = {record, 0, HEAD_BYTES}, tail = {event->out + event->length, 0, TAIL_BYTES};
  put_little_endian(&head, event->length, 8);
  put_little_endian(&head, masked_crc(record, 8), 4);
  put_little_endian(&tail, masked_crc(event->out, event->length), 4);
  const size_t all = HEAD_BYTES + event->length + TAIL_BYTES;
  for (size_t done = 0; done < all;) {
    const ssize_t n = write(t->fd, record + done, all - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return brim_fail(BRIM_EIO, "cannot write '%s': %s", t->path, strerror(n < 0 ? errno : ENOSPC));
    done += (size_t)n;
  }
  return BRIM_OK;
}

static brim_status append_version(brim_tensorboard *t)
{
  static const char version[] = "brain.Event:2"; /* the format version that supports restarts */
  message event = begin_event(t, 0);
  put_bytes(&event, 3, version, sizeof version - 1);
  return append(t, &event);
}

brim_status brim_tensorboard_rewind(brim_tensorboard *t, int64_t from_step)
{
  static const unsigned char start[] = {1 << 3 | VARINT, 1};
  message event = begin_event(t, from_step);
  put_bytes(&event, 7, start, sizeof start);
  return append(t, &event);
}

brim_status brim_tensorboard_summary(brim_tensorboard *t, int64_t step, const void *summary, size_t bytes)
{
  const size_t room = bytes + SUMMARY_ROOM;
  unsigned char *record = brim_try_malloc(room);
  if (!record) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for an event of TensorBoard (%zu bytes)", bytes);
  message event = begin_event_in(record, room, step);
  put_bytes(&event, 5, summary, bytes);
  const brim_status status = append(t, &event);
  free(record);
  return status;
}

/* ---- lines of metrics.jsonl ---- */

/* Skips a string that begins at `s` with its quotation mark. */
static const char *after_string(const char *s, const char *end)
{
  for (s++; s < end && *s != '"'; s++) s += *s == '\\';
  return s < end ? s + 1 : end;
}

/* Finds the next field of an object without nested objects. False: there is none. */
static bool next_field(const char **at, const char *end, const char **key, size_t *key_bytes, const char **value)
{
  const char *s = memchr(*at, '"', (size_t)(end - *at));
  if (!s) return false;
  const char *after = after_string(s, end);
  *key = s + 1;
  *key_bytes = (size_t)(after - s - 2);
  *value = after + 1; /* skips the colon */
  if (after >= end || *value >= end) return false;
  const char *comma = **value == '"' ? after_string(*value, end) : memchr(*value, ',', (size_t)(end - *value));
  *at = comma ? comma : end;
  return true;
}

static bool is_key(const char *key, size_t bytes, const char *name)
{
  return bytes == strlen(name) && memcmp(key, name, bytes) == 0;
}

brim_status brim_tensorboard_add(brim_tensorboard *t, const char *line, size_t length)
{
  const char *at = line, *end = line + length, *key, *value;
  char split[SPLIT_BYTES] = "", tag[TAG_BYTES];
  size_t bytes;
  message summary = {t->scalars, 0, sizeof t->scalars};
  int64_t step = -1;
  while (next_field(&at, end, &key, &bytes, &value)) {
    char *after = NULL;
    if (is_key(key, bytes, "step")) step = strtoll(value, NULL, 10);
    if (is_key(key, bytes, "split"))
      snprintf(split, sizeof split, "%.*s", (int)(after_string(value, end) - value - 2), value + 1);
    const double number = *value == '"' ? 0 : strtod(value, &after);
    if (!after || after == value || !split[0] || step < 0) continue;
    snprintf(tag, sizeof tag, "%.*s/%s", (int)bytes, key, split);
    put_value(&summary, tag, (float)number);
  }
  if (summary.length == 0) return BRIM_OK;
  message event = begin_event(t, step);
  put_bytes(&event, 5, summary.out, summary.length);
  return append(t, &event);
}

/* ---- files ---- */

/* Readers process a run's files in the order of their names. */
static brim_status create(brim_tensorboard *t, const char *dir)
{
  const int64_t now = (int64_t)time(NULL);
  for (int64_t i = 0; i < ATTEMPTS_MAX; i++) {
    const int length = snprintf(t->path, sizeof t->path, "%s/events.out.tfevents.%010" PRId64 ".brim", dir, now + i);
    if (length < 0 || (size_t)length >= sizeof t->path)
      return brim_fail(BRIM_EINVAL, "path '%.100s...' is too long", dir);
    t->fd = open(t->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (t->fd >= 0) return BRIM_OK;
    if (errno != EEXIST) break;
  }
  return brim_fail(BRIM_EIO, "cannot make '%s': %s", t->path, strerror(errno));
}

brim_status brim_tensorboard_open(brim_tensorboard *t, const char *dir, int64_t from_step)
{
  t->fd = -1;
  brim_status status = create(t, dir);
  if (status == BRIM_OK) status = append_version(t);
  if (status == BRIM_OK && from_step >= 0) status = brim_tensorboard_rewind(t, from_step);
  if (status != BRIM_OK) brim_tensorboard_close(t);
  return status;
}

void brim_tensorboard_give_up(brim_tensorboard *t)
{
  brim_log(BRIM_LOG_WARN, "the run continues without TensorBoard's events: %s", brim_error_text());
  brim_tensorboard_close(t);
}

void brim_tensorboard_close(brim_tensorboard *t)
{
  if (t->fd >= 0) close(t->fd); /* every record is written already */
  t->fd = -1;
}
