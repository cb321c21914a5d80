/* Predicts when runs in the queue start, by the rules of memory/claims.c. A ticket starts on a device that it accepts,
 * that no earlier ticket waits for, and that has room; room becomes free when runs end, at the times that they predict.
 * The time at which a waiting run would end is not known, so a waiting run never makes room here. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "brim/backend.h"
#include "monitor/look.h"

typedef struct release {
  double time;
  size_t device;
  uint64_t bytes;
} release;

static uint64_t known(uint64_t bytes)
{
  return bytes == BRIM_BYTES_UNKNOWN ? 0 : bytes;
}

static int by_time(const void *a, const void *b)
{
  const release *x = a, *y = b;
  return (x->time > y->time) - (x->time < y->time);
}

/* Lists the ends of runs that predict their end. A run that predicts 0 is about to end. */
static size_t list_releases(const brim_look *look, size_t host, release *out)
{
  size_t count = 0;
  for (size_t i = 0; i < look->runs; i++) {
    const brim_look_run *run = &look->run[i];
    if (run->host != host || run->device == BRIM_LOOK_NONE || run->state == BRIM_LOOK_WAITING) continue;
    if (!brim_look_is_live(run->state) || !(run->seconds_left >= 0) || isinf(run->seconds_left)) continue;
    out[count++] = (release){look->host[host].time + run->seconds_left, run->device,
                             known(run->device_bytes) + known(run->libraries_bytes)};
  }
  qsort(out, count, sizeof *out, by_time);
  return count;
}

static bool accepts(const brim_look_ticket *t, size_t device)
{
  for (size_t i = 0; i < t->accept_count; i++)
    if (t->accepts[i] == device) return true;
  return false;
}

static bool has_earlier(const brim_look *look, size_t ticket, size_t device)
{
  const brim_look_ticket *t = look->ticket;
  for (size_t i = 0; i < ticket; i++)
    if (t[i].host == t[ticket].host && t[i].device == BRIM_LOOK_NONE && isnan(t[i].starts) && accepts(&t[i], device))
      return true;
  return false;
}

/* Returns the device with the most room, as device=auto chooses. */
static size_t find_device(const brim_look *look, size_t ticket, const uint64_t *room)
{
  const brim_look_ticket *t = &look->ticket[ticket];
  size_t best = BRIM_LOOK_NONE;
  for (size_t i = 0; i < t->accept_count; i++) {
    const size_t d = t->accepts[i];
    if (room[d] < t->need_bytes || has_earlier(look, ticket, d)) continue;
    if (best == BRIM_LOOK_NONE || room[d] > room[best]) best = d;
  }
  return best;
}

static void serve(brim_look *look, size_t host, double time, uint64_t *room)
{
  for (size_t i = 0; i < look->tickets; i++) {
    brim_look_ticket *t = &look->ticket[i];
    if (t->host != host || t->device != BRIM_LOOK_NONE || !isnan(t->starts)) continue;
    const size_t device = find_device(look, i, room);
    if (device == BRIM_LOOK_NONE) continue;
    t->starts = time;
    room[device] -= t->need_bytes;
  }
}

void brim_look_expect(brim_look *look)
{
  uint64_t *room = BRIM_ARENA_NEW(&look->arena, uint64_t, look->devices);
  release *end = BRIM_ARENA_NEW(&look->arena, release, look->runs);
  for (size_t i = 0; i < look->devices; i++) room[i] = known(look->device[i].free_bytes);
  for (size_t i = 0; i < look->tickets; i++) { /* a claimed device is about to be used */
    const brim_look_ticket *t = &look->ticket[i];
    look->ticket[i].starts = NAN;
    if (t->device != BRIM_LOOK_NONE)
      room[t->device] -= t->need_bytes < room[t->device] ? t->need_bytes : room[t->device];
  }
  for (size_t host = 0; host < look->hosts; host++) {
    const size_t ends = list_releases(look, host, end);
    serve(look, host, look->host[host].time, room);
    for (size_t i = 0; i < ends; i++) {
      room[end[i].device] += end[i].bytes;
      serve(look, host, end[i].time, room);
    }
  }
}
