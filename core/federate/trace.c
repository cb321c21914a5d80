#include "federate/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"

#define COLUMNS_MAX 3

/* A file that is read line by line. */
typedef struct reader {
  const char *path;
  FILE *file;
  char *line; /* the current line, without its end */
  size_t room;
  int64_t number;                /* number of the current line, from 1 */
  const char *name[COLUMNS_MAX]; /* names of the columns */
  int columns;
  double value[COLUMNS_MAX];  /* values of the current line */
  size_t column[COLUMNS_MAX]; /* position at which each value begins, from 1 */
} reader;

/* Returns ECONFIG for a column of the current line. */
static brim_status BRIM_PRINTF(3, 4) complain(const reader *r, size_t column, const char *format, ...)
{
  char text[256];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return brim_fail(BRIM_ECONFIG, "%s:%" PRId64 ":%zu: %s", r->path, r->number, column, text);
}

/* Reads the next line that is not blank; false at the end of the file. */
static bool next_line(reader *r)
{
  ssize_t length;
  while ((length = getline(&r->line, &r->room, r->file)) >= 0) {
    r->number++;
    while (length > 0 && strchr("\r\n \t", r->line[length - 1])) r->line[--length] = '\0';
    if (length > 0) return true;
  }
  return false;
}

static brim_status read_field(reader *r, int k, const char *at, size_t length)
{
  char *end = NULL;
  char text[64];
  r->column[k] = (size_t)(at - r->line) + 1;
  if (length == 0) return complain(r, r->column[k], "'%s' has no value", r->name[k]);
  snprintf(text, sizeof text, "%.*s", (int)(length < sizeof text ? length : sizeof text), at);
  errno = 0;
  r->value[k] = strtod(text, &end);
  if (*end || end == text || length >= sizeof text || !isfinite(r->value[k]))
    return complain(r, r->column[k], "'%s' must be a number, got %s", r->name[k], text);
  if (r->value[k] < 0) return complain(r, r->column[k], "'%s' must not be negative, got %s", r->name[k], text);
  return BRIM_OK;
}

/* Reads the numbers of the current line, and checks that its client is one of `clients`. */
static brim_status read_values(reader *r, int64_t clients)
{
  const char *at = r->line;
  for (int k = 0; k < r->columns; k++) {
    const size_t length = strcspn(at, ",");
    BRIM_TRY(read_field(r, k, at, length));
    at += length;
    if (k + 1 < r->columns && *at != ',')
      return complain(r, (size_t)(at - r->line) + 1, "'%s' is missing: a line must have %d values", r->name[k + 1],
                      r->columns);
    if (k + 1 < r->columns) at++;
  }
  if (*at) return complain(r, (size_t)(at - r->line) + 1, "a line has %d values; this one has more", r->columns);
  if (r->value[0] != floor(r->value[0])) return complain(r, 1, "'client' must be a whole number, got %g", r->value[0]);
  if (r->value[0] >= (double)clients)
    return complain(r, 1, "there is no client %.0f: total_clients is %" PRId64 ", and clients count from 0",
                    r->value[0], clients);
  return BRIM_OK;
}

/* Opens the file, whose first line must be one of the `count` headers. */
static brim_status open_reader(reader *r, const char *path, const char *const *header, int count)
{
  *r = (reader){.path = path, .file = brim_fopen_to_read(path)};
  if (!r->file) return brim_fail(BRIM_ECONFIG, "cannot read '%s': %s", path, brim_open_reason(errno));
  const bool is_empty = !next_line(r);
  for (int i = 0; i < count && !is_empty; i++) {
    if (strcmp(r->line, header[i]) != 0) continue;
    static const char *const names[][COLUMNS_MAX] = {{"client", "start", "end"},
                                                     {"client", "gflops", "bandwidth_mbit"}};
    for (const char *s = header[i]; s; s = strchr(s + 1, ',')) r->columns++;
    memcpy(r->name, names[strstr(header[i], "gflops") != NULL], sizeof r->name);
    return BRIM_OK;
  }
  r->number = 1;
  return complain(r, 1, "the first line must be %s%s%s", header[0], count > 1 ? " or " : "",
                  count > 1 ? header[1] : "");
}

static void close_reader(reader *r)
{
  if (r->file) fclose(r->file);
  free(r->line);
}

/* ---- devices ---- */

/* Reads the next client's line. */
static brim_status read_device(reader *r, int64_t client, int64_t clients, float *gflops, float *mbit)
{
  if (!next_line(r)) {
    r->number++;
    return complain(r, 1, "client %" PRId64 " is missing: the file ends, and total_clients is %" PRId64, client,
                    clients);
  }
  BRIM_TRY(read_values(r, clients));
  if (r->value[0] > (double)client)
    return complain(r, 1, "client %" PRId64 " is missing: this line is client %.0f's", client, r->value[0]);
  if (r->value[0] < (double)client)
    return complain(r, 1, "client %.0f has a line already; client %" PRId64 " is next", r->value[0], client);
  for (int k = 1; k < r->columns; k++)
    if (!((float)r->value[k] > 0) || !isfinite((float)r->value[k]))
      return complain(r, r->column[k], "'%s' must be above 0 and below 3.4e38, got %g", r->name[k], r->value[k]);
  gflops[client] = (float)r->value[1];
  if (mbit) mbit[client] = (float)r->value[2];
  return BRIM_OK;
}

brim_status brim_trace_read_devices(const char *path, int64_t clients, float *gflops, float **mbit)
{
  static const char *const header[] = {"client,gflops", "client,gflops,bandwidth_mbit"};
  reader r;
  *mbit = NULL;
  brim_status status = open_reader(&r, path, header, 2);
  if (status == BRIM_OK && r.columns == 3) {
    *mbit = brim_try_malloc((size_t)clients * sizeof **mbit);
    if (!*mbit) status = brim_fail(BRIM_ENOMEM_HOST, "no host memory for the devices of %s", path);
  }
  for (int64_t i = 0; i < clients && status == BRIM_OK; i++) status = read_device(&r, i, clients, gflops, *mbit);
  if (status == BRIM_OK && next_line(&r)) {
    status = read_values(&r, clients);
    if (status == BRIM_OK) status = complain(&r, 1, "client %.0f has a line already", r.value[0]);
  }
  close_reader(&r);
  return status;
}

/* ---- times ---- */

/* Makes room for one more. */
static brim_status grow(brim_trace_times *t, int64_t count, int64_t *room)
{
  if (count < *room) return BRIM_OK;
  *room = *room ? 2 * *room : 1024;
  brim_trace_time *more = brim_try_malloc((size_t)*room * sizeof *more);
  if (!more) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for a trace of %" PRId64 " lines", *room);
  if (count > 0) memcpy(more, t->time, (size_t)count * sizeof *more);
  free(t->time);
  t->time = more;
  return BRIM_OK;
}

/* Adds the current line after `count` others, of which the last belongs to `client` (-1: none). */
static brim_status add_time(const reader *r, brim_trace_times *t, int64_t count, int64_t client)
{
  const int64_t own = (int64_t)r->value[0];
  const double from = r->value[1], to = r->value[2];
  if (own < client)
    return complain(
        r, 1, "the lines of client %" PRId64 " come after those of client %" PRId64 ": sort them by client and start",
        own, client);
  if (to <= from) return complain(r, r->column[2], "'end' %g is not after 'start' %g", to, from);
  if (own == client && from < t->time[count - 1].to)
    return complain(r, r->column[1], "'start' %g is before the end of the previous line, %g", from,
                    t->time[count - 1].to);
  while (client < own) t->first[++client] = count;
  t->time[count] = (brim_trace_time){from, to};
  if (to > t->period) t->period = to;
  return BRIM_OK;
}

static brim_status read_times(reader *r, int64_t clients, brim_trace_times *t)
{
  int64_t count = 0, room = 0, client = -1;
  while (next_line(r)) {
    BRIM_TRY(read_values(r, clients));
    BRIM_TRY(grow(t, count, &room));
    BRIM_TRY(add_time(r, t, count, client));
    client = (int64_t)r->value[0];
    count++;
  }
  r->number++;
  if (count == 0) return complain(r, 1, "the file has no clients");
  while (client < clients) t->first[++client] = count;
  return BRIM_OK;
}

brim_status brim_trace_read_times(const char *path, int64_t clients, brim_trace_times *t)
{
  static const char *const header[] = {"client,start,end"};
  reader r;
  *t = (brim_trace_times){.first = brim_try_calloc((size_t)clients + 1, sizeof *t->first)};
  if (!t->first) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the times of %" PRId64 " clients", clients);
  brim_status status = open_reader(&r, path, header, 1);
  if (status == BRIM_OK) status = read_times(&r, clients, t);
  close_reader(&r);
  return status;
}

void brim_trace_release(brim_trace_times *t)
{
  free(t->first);
  free(t->time);
  *t = (brim_trace_times){0};
}

bool brim_trace_is_there(const brim_trace_times *t, int64_t client, double seconds)
{
  const double now = fmod(seconds, t->period);
  int64_t from = t->first[client], to = t->first[client + 1];
  while (from < to) { /* finds the first time that has not ended */
    const int64_t middle = from + (to - from) / 2;
    if (t->time[middle].to <= now)
      from = middle + 1;
    else
      to = middle;
  }
  return from < t->first[client + 1] && t->time[from].from <= now;
}
