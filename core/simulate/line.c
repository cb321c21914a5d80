/* The line of those who wait for a device: runs of the scenario, and jobs. */
#include <stdlib.h>

#include "simulate/world_parts.h"

static int by_number(const void *a, const void *b)
{
  const brim_scene_waiter *x = a, *y = b;
  return (x->number > y->number) - (x->number < y->number);
}

static size_t count_waiters_max(const brim_scene *s)
{
  return s->scenario->run_count + BRIM_SCENE_JOBS_MAX;
}

/* All of them in their order; `out` has room for all. */
static size_t list_waiters(const brim_scene *s, brim_scene_waiter *out)
{
  size_t count = 0;
  for (size_t i = 0; i < s->scenario->run_count; i++) {
    const brim_scene_run *r = &s->scenario->run[i];
    if (s->run[i].state == BRIM_RUN_WAITS)
      out[count++] =
          (brim_scene_waiter){s->run[i].number, (int64_t)i, 0, (int)r->device, r->memory, s->run[i].visit.since};
  }
  for (size_t i = 0; i < BRIM_SCENE_JOBS_MAX; i++) {
    const brim_scene_ticket *t = &s->ticket[i];
    if (t->is_there) out[count++] = (brim_scene_waiter){t->number, -1, i, t->wish.device, t->wish.bytes, t->since};
  }
  if (count > 1) qsort(out, count, sizeof *out, by_number);
  return count;
}

brim_scene_waiter *brim_scene_waiters(const brim_scene *s, size_t *count)
{
  brim_scene_waiter *all = brim_xcalloc(count_waiters_max(s), sizeof *all);
  *count = list_waiters(s, all);
  return all;
}

static bool accepts(const brim_scene_waiter *w, int device)
{
  return w->device < 0 || w->device == device;
}

/* Does nobody who came before `w` wait for the device? They come first in the list. */
static bool is_free_of_others(const brim_scene_waiter *all, const brim_scene_waiter *w, int device)
{
  for (; all < w; all++)
    if (accepts(all, device)) return false;
  return true;
}

int brim_scene_find(const brim_scene *s, const brim_scene_waiter *all, const brim_scene_waiter *w, bool most_free)
{
  int found = -1;
  uint64_t most = 0;
  for (int d = 0; d < (int)s->scenario->device_count; d++) {
    const uint64_t bytes = brim_scene_free(s, d);
    if (!accepts(w, d) || bytes < w->bytes || !is_free_of_others(all, w, d)) continue;
    if (found >= 0 && (!most_free || bytes <= most)) continue;
    found = d;
    most = bytes;
  }
  return found;
}

/* ---- jobs ---- */

void brim_scene_join(brim_scene *s, size_t job, const brim_scene_wish *wish)
{
  s->ticket[job] = (brim_scene_ticket){true, ++s->numbers, s->now, *wish};
}

void brim_scene_leave(brim_scene *s, size_t job)
{
  s->ticket[job].is_there = false;
  brim_scene_settle(s);
}

static size_t count_ahead(const brim_scene_waiter *all, const brim_scene_waiter *own)
{
  size_t ahead = 0;
  for (; all < own; all++) ahead += all->device < 0 || own->device < 0 || all->device == own->device;
  return ahead;
}

brim_scene_turn brim_scene_try(const brim_scene *s, size_t job)
{
  brim_scene_turn look = {-1, -1, false, 0};
  size_t count, own = 0;
  brim_scene_waiter *all = brim_scene_waiters(s, &count);
  while (own < count && (all[own].run >= 0 || all[own].job != job)) own++;
  if (own < count) {
    look.device = brim_scene_find(s, all, &all[own], s->ticket[job].wish.most_free);
    look.ahead = count_ahead(all, &all[own]);
  }
  for (int d = 0; own < count && d < (int)s->scenario->device_count; d++) {
    if (!accepts(&all[own], d)) continue;
    look.large = look.large || s->scenario->device[d].memory >= all[own].bytes;
    if (look.best < 0 || brim_scene_free(s, d) > brim_scene_free(s, look.best)) look.best = d;
  }
  free(all);
  return look;
}

uint64_t brim_scene_key(const brim_scene *s, int device)
{
  brim_device_info info;
  brim_scene_describe(s, device, &info);
  return brim_device_key(s->scenario->backend, device, (int)s->scenario->device_count, &info);
}

static void describe_ticket(const brim_scene *s, const brim_scene_waiter *w, brim_arena *arena, brim_ticket *out)
{
  uint64_t *key = BRIM_ARENA_NEW(arena, uint64_t, s->scenario->device_count);
  *out = (brim_ticket){.need_bytes = w->bytes,
                       .since = s->scenario->start_seconds + w->since,
                       .device = -1,
                       .process = "",
                       .backend = s->scenario->backend,
                       .wish = "",
                       .key = key};
  for (int d = 0; d < (int)s->scenario->device_count; d++)
    if (accepts(w, d)) key[out->keys++] = brim_scene_key(s, d);
}

void brim_scene_tickets(const brim_scene *s, size_t job, brim_arena *arena, brim_ticket **out, size_t *count)
{
  size_t waiters;
  brim_scene_waiter *all = brim_scene_waiters(s, &waiters);
  *out = BRIM_ARENA_NEW(arena, brim_ticket, waiters + 1);
  *count = 0;
  for (size_t i = 0; i < waiters; i++)
    if (all[i].run >= 0 || all[i].job != job) describe_ticket(s, &all[i], arena, &(*out)[(*count)++]);
  free(all);
}

/* As it was recorded. */
static const brim_scene_line *line_of(const brim_scene *s, int device)
{
  const brim_scene_device *d = &s->scenario->device[device];
  const brim_scene_line *found = NULL;
  for (size_t i = 0; i < d->line_count && d->line[i].at <= s->now; i++) found = &d->line[i];
  return found && found->waiting > 0 ? found : NULL;
}

static void add_recorded(const brim_scene *s, uint64_t key, size_t *count, uint64_t *first_bytes)
{
  for (int d = 0; d < (int)s->scenario->device_count; d++) {
    const brim_scene_line *line = brim_scene_key(s, d) == key ? line_of(s, d) : NULL;
    if (!line) continue;
    if (*count == 0) *first_bytes = line->bytes;
    *count += (size_t)line->waiting;
  }
}

void brim_scene_waiting(const brim_scene *s, size_t job, uint64_t key, size_t *count, uint64_t *first_bytes)
{
  brim_arena arena = {0};
  brim_ticket *all;
  size_t tickets;
  *count = 0;
  *first_bytes = 0;
  brim_scene_tickets(s, job, &arena, &all, &tickets);
  for (size_t i = 0; i < tickets; i++) {
    if (!brim_ticket_accepts(&all[i], key)) continue;
    if (++*count == 1) *first_bytes = all[i].need_bytes;
  }
  brim_arena_release(&arena);
  add_recorded(s, key, count, first_bytes);
}
