#include "simulate/world.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MINUTE 60.0

/* The times at which a program or run of the scenario comes, once or repeatedly. */
typedef struct visit {
  double next, since; /* next: time of the next visit; since: time of the last one */
} visit;
/* A program of the scenario. */
typedef struct program {
  visit visit;
  bool is_there;
  double leaves, grows; /* times */
  uint64_t wants, has;
} program;
/* A run of the scenario. */
enum run_state { RUN_AWAY, RUN_WAITS, RUN_PLACED };
typedef struct run {
  visit visit;
  enum run_state state;
  double leaves;
  int device; /* the device on which it is placed */
  int64_t number;
} run;
/* A job's ticket. */
typedef struct ticket {
  bool is_there;
  int64_t number;
  double since;
  brim_scene_wish wish;
} ticket;

struct brim_scene {
  const brim_scenario *scenario;
  brim_scene_report_fn report;
  void *context;
  double now, clock;
  program *program;
  run *run;
  ticket ticket[BRIM_SCENE_JOBS_MAX];
  uint64_t arena[BRIM_SCENE_DEVICES_MAX], host; /* bytes of jobs */
  int64_t numbers;                              /* tickets so far */
  brim_scene_others others;
};

/* ---- memory ---- */

static uint64_t smaller(uint64_t a, uint64_t b)
{
  return a < b ? a : b;
}

static uint64_t used_by(const brim_scene_use *use, size_t count, uint64_t used, double now)
{
  for (size_t i = 0; i < count && use[i].at <= now; i++) used = use[i].bytes;
  return used;
}

static uint64_t left(uint64_t total, uint64_t taken)
{
  return total > taken ? total - taken : 0;
}

static uint64_t free_of(const brim_scene *s, int device)
{
  const brim_scene_device *d = &s->scenario->device[device];
  uint64_t taken = used_by(d->use, d->use_count, d->used, s->now) + s->arena[device];
  for (size_t i = 0; i < s->scenario->program_count; i++)
    if (s->scenario->program[i].device == device) taken += s->program[i].has;
  for (size_t i = 0; i < s->scenario->run_count; i++)
    if (s->run[i].state == RUN_PLACED && s->run[i].device == device) taken += s->scenario->run[i].memory;
  return left(d->memory, taken);
}

static uint64_t host_taken(const brim_scene *s)
{
  const brim_scene_host *h = &s->scenario->host;
  uint64_t taken = used_by(h->use, h->use_count, h->used, s->now) + s->host;
  for (size_t i = 0; i < s->scenario->program_count; i++)
    if (s->scenario->program[i].device == BRIM_SCENE_HOST) taken += s->program[i].has;
  return taken;
}

void brim_scene_describe(const brim_scene *s, int device, brim_device_info *out)
{
  const brim_scenario *scenario = s->scenario;
  const bool is_host = device == BRIM_SCENE_HOST;
  *out = (brim_device_info){.on_host = is_host || scenario->kind != BRIM_SCENE_GPU,
                            .limited = !is_host && scenario->kind == BRIM_SCENE_SHARE};
  snprintf(out->name, sizeof out->name, "%s", is_host ? "the host's processors" : "simulated");
  out->total_bytes = is_host ? scenario->host.memory : scenario->device[device].memory;
  out->free_bytes = is_host ? left(scenario->host.memory, host_taken(s)) : free_of(s, device);
}

brim_host_memory brim_scene_host_memory(const brim_scene *s)
{
  return (brim_host_memory){s->scenario->host.memory, left(s->scenario->host.memory, host_taken(s)), 0};
}

uint64_t brim_scene_host_over(const brim_scene *s)
{
  return left(host_taken(s), s->scenario->host.memory);
}

void brim_scene_take(brim_scene *s, int device, uint64_t bytes)
{
  uint64_t *taken = device == BRIM_SCENE_HOST ? &s->host : &s->arena[device];
  *taken += bytes;
}

void brim_scene_give(brim_scene *s, int device, uint64_t bytes)
{
  uint64_t *taken = device == BRIM_SCENE_HOST ? &s->host : &s->arena[device];
  *taken -= smaller(bytes, *taken);
}

/* ---- the queue for devices ---- */

typedef struct waiter {
  int64_t number, run; /* run: index in the scenario; -1: a job */
  size_t job;          /* BRIM_SCENE_JOBS_MAX: a run of the scenario */
  int device;
  uint64_t bytes;
  double since;
} waiter;

static int by_number(const void *a, const void *b)
{
  const waiter *x = a, *y = b;
  return (x->number > y->number) - (x->number < y->number);
}

/* Lists all waiting jobs and runs in order; the caller frees the list. */
static waiter *list_waiters(const brim_scene *s, size_t *count)
{
  waiter *all = brim_xcalloc(s->scenario->run_count + BRIM_SCENE_JOBS_MAX, sizeof *all);
  *count = 0;
  for (size_t i = 0; i < s->scenario->run_count; i++) {
    const brim_scene_run *wants = &s->scenario->run[i];
    const run *r = &s->run[i];
    if (r->state == RUN_WAITS)
      all[(*count)++] =
          (waiter){r->number, (int64_t)i, BRIM_SCENE_JOBS_MAX, (int)wants->device, wants->memory, r->visit.since};
  }
  for (size_t i = 0; i < BRIM_SCENE_JOBS_MAX; i++) {
    const ticket *t = &s->ticket[i];
    if (t->is_there) all[(*count)++] = (waiter){t->number, -1, i, t->wish.device, t->wish.bytes, t->since};
  }
  qsort(all, *count, sizeof *all, by_number);
  return all;
}

static bool accepts(const waiter *w, int device)
{
  return w->device < 0 || w->device == device;
}

/* Returns a device that `w`, one of `all`, may have now, because no earlier one in the list waits for it; -1: none. */
static int find_device(const brim_scene *s, const waiter *all, const waiter *w, bool most_free)
{
  int found = -1;
  uint64_t most = 0;
  for (int d = 0; d < (int)s->scenario->device_count; d++) {
    const uint64_t bytes = free_of(s, d);
    bool is_fit = accepts(w, d) && bytes >= w->bytes;
    for (const waiter *before = all; is_fit && before < w; before++) is_fit = !accepts(before, d);
    if (!is_fit || (found >= 0 && (!most_free || bytes <= most))) continue;
    found = d;
    most = bytes;
  }
  return found;
}

/* ---- programs and runs come and go ---- */

BRIM_PRINTF(3, 4)
static void report_change(brim_scene *s, const char *name, const char *format, ...)
{
  char text[256];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  s->report(s->context, name, text);
}

static const char *name_of(const brim_scene *s, int device, char *out, size_t room)
{
  if (device == BRIM_SCENE_HOST)
    snprintf(out, room, "the host");
  else
    snprintf(out, room, "%s:%d", s->scenario->backend, device);
  return out;
}

/* Called when a visitor has left: its next visit is the first one after this time. */
static void leave(visit *v, double every, double now)
{
  const double passed = every > 0 ? floor((now - v->since) / every) + 1 : 0;
  v->next = every > 0 ? fmax(v->since + passed * every, now + BRIM_SCENE_MOMENT) : INFINITY;
}

static void move_program(brim_scene *s, size_t i)
{
  char bytes[32], where[64];
  const brim_scene_program *p = &s->scenario->program[i];
  program *at = &s->program[i];
  name_of(s, (int)p->device, where, sizeof where);
  if (at->is_there && at->leaves <= s->now) {
    report_change(s, p->name, "leaves %s, with %s", where, brim_format_bytes(bytes, sizeof bytes, at->has));
    at->is_there = false;
    at->wants = at->has = 0;
    at->grows = INFINITY;
    leave(&at->visit, p->every, s->now);
  }
  if (!at->is_there && at->visit.next <= s->now) {
    *at = (program){.visit = {INFINITY, s->now},
                    .is_there = true,
                    .wants = p->memory,
                    .leaves = p->lasts > 0 ? s->now + fmax(p->lasts, BRIM_SCENE_MOMENT) : INFINITY,
                    .grows = p->grows > 0 ? s->now + MINUTE : INFINITY};
    report_change(s, p->name, "wants %s of %s", brim_format_bytes(bytes, sizeof bytes, at->wants), where);
  }
  if (at->is_there && at->grows <= s->now) {
    at->wants = smaller(at->wants + p->grows, BRIM_SCENE_BYTES_MAX);
    at->grows += MINUTE;
  }
}

static void move_run(brim_scene *s, size_t i)
{
  char bytes[32], where[64];
  const brim_scene_run *r = &s->scenario->run[i];
  run *at = &s->run[i];
  if (at->state == RUN_PLACED && at->leaves <= s->now) {
    report_change(s, r->name, "has ended on %s", name_of(s, at->device, where, sizeof where));
    at->state = RUN_AWAY;
    leave(&at->visit, r->every, s->now);
  }
  if (at->state != RUN_AWAY || at->visit.next > s->now) return;
  at->visit = (visit){INFINITY, s->now};
  at->state = RUN_WAITS;
  at->number = ++s->numbers;
  report_change(s, r->name, "wants %s of %s", brim_format_bytes(bytes, sizeof bytes, r->memory),
                r->device < 0 ? "any device" : name_of(s, (int)r->device, where, sizeof where));
}

/* Programs take free memory; if a program lacks some, it takes it when it becomes free. */
static void feed_programs(brim_scene *s)
{
  for (size_t i = 0; i < s->scenario->program_count; i++) {
    const int device = (int)s->scenario->program[i].device;
    program *p = &s->program[i];
    if (p->is_there && p->has < p->wants)
      p->has += smaller(device == BRIM_SCENE_HOST ? UINT64_MAX : free_of(s, device), p->wants - p->has);
  }
}

/* Places the first run in the queue that fits a device. Skips jobs, which look for a device themselves. */
static bool serve_run(brim_scene *s)
{
  char bytes[32], where[64];
  size_t count;
  waiter *all = list_waiters(s, &count);
  bool served = false;
  for (size_t i = 0; i < count && !served; i++) {
    const int device = all[i].run >= 0 ? find_device(s, all, &all[i], true) : -1;
    if (device < 0) continue;
    run *r = &s->run[all[i].run];
    const brim_scene_run *what = &s->scenario->run[all[i].run];
    r->state = RUN_PLACED;
    r->device = device;
    r->leaves = s->now + fmax(what->lasts, BRIM_SCENE_MOMENT);
    report_change(s, what->name, "is placed on %s, with %s", name_of(s, device, where, sizeof where),
                  brim_format_bytes(bytes, sizeof bytes, what->memory));
    served = true;
  }
  free(all);
  return served;
}

void brim_scene_settle(brim_scene *s)
{
  bool waits = false;
  feed_programs(s);
  for (size_t i = 0; i < s->scenario->run_count; i++) waits = waits || s->run[i].state == RUN_WAITS;
  while (waits && serve_run(s)) feed_programs(s);
}

/* ---- time ---- */

static double next_use(const brim_scene_use *use, size_t count, double now)
{
  for (size_t i = 0; i < count; i++)
    if (use[i].at > now) return use[i].at;
  return INFINITY;
}

double brim_scene_next(const brim_scene *s)
{
  double next = next_use(s->scenario->host.use, s->scenario->host.use_count, s->now);
  for (size_t i = 0; i < s->scenario->device_count; i++)
    next = fmin(next, next_use(s->scenario->device[i].use, s->scenario->device[i].use_count, s->now));
  for (size_t i = 0; i < s->scenario->program_count; i++) {
    const program *p = &s->program[i];
    next = fmin(next, p->is_there ? fmin(p->leaves, p->grows) : p->visit.next);
  }
  for (size_t i = 0; i < s->scenario->run_count; i++) {
    const run *r = &s->run[i];
    if (r->state != RUN_WAITS) next = fmin(next, r->state == RUN_PLACED ? r->leaves : r->visit.next);
  }
  return next;
}

double brim_scene_slowness(const brim_scene *s, int device)
{
  double slowness = 1;
  for (size_t i = 0; i < s->scenario->program_count; i++)
    if (s->program[i].is_there && s->scenario->program[i].device == device) slowness *= s->scenario->program[i].slows;
  for (size_t i = 0; i < s->scenario->run_count; i++)
    if (s->run[i].state == RUN_PLACED && s->run[i].device == device) slowness *= s->scenario->run[i].slows;
  return slowness;
}

static void pass(brim_scene *s, double to)
{
  const double seconds = to - s->now;
  for (size_t i = 0; i < s->scenario->program_count; i++)
    if (s->program[i].has < s->program[i].wants) s->others.lacked += seconds;
  for (size_t i = 0; i < s->scenario->run_count; i++)
    if (s->run[i].state == RUN_WAITS) s->others.waited += seconds;
  s->now = to;
  s->clock = s->scenario->start_seconds + to;
}

void brim_scene_advance(brim_scene *s, double to)
{
  for (;;) {
    const double next = brim_scene_next(s);
    if (next > to) break;
    pass(s, fmax(next, s->now));
    for (size_t i = 0; i < s->scenario->program_count; i++) move_program(s, i);
    for (size_t i = 0; i < s->scenario->run_count; i++) move_run(s, i);
    brim_scene_settle(s);
  }
  if (to > s->now) pass(s, to);
}

const double *brim_scene_clock(const brim_scene *s)
{
  return &s->clock;
}

double brim_scene_now(const brim_scene *s)
{
  return s->now;
}

brim_scene_others brim_scene_others_of(const brim_scene *s)
{
  return s->others;
}

/* ---- jobs in line ---- */

void brim_scene_join(brim_scene *s, size_t job, const brim_scene_wish *wish)
{
  s->ticket[job] = (ticket){true, ++s->numbers, s->now, *wish};
}

void brim_scene_leave(brim_scene *s, size_t job)
{
  s->ticket[job].is_there = false;
  brim_scene_settle(s);
}

brim_scene_turn brim_scene_try(const brim_scene *s, size_t job)
{
  brim_scene_turn look = {-1, -1, false, 0};
  size_t count, i = 0;
  waiter *all = list_waiters(s, &count);
  while (i < count && all[i].job != job) i++;
  const waiter *own = i < count ? &all[i] : NULL;
  if (own) look.device = find_device(s, all, own, s->ticket[job].wish.most_free);
  for (const waiter *w = all; own && w < own; w++)
    look.ahead += w->device < 0 || own->device < 0 || w->device == own->device;
  for (int d = 0; own && d < (int)s->scenario->device_count; d++) {
    if (!accepts(own, d)) continue;
    look.large = look.large || s->scenario->device[d].memory >= own->bytes;
    if (look.best < 0 || free_of(s, d) > free_of(s, look.best)) look.best = d;
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

void brim_scene_tickets(const brim_scene *s, size_t job, brim_arena *arena, brim_ticket **out, size_t *count)
{
  size_t waiters;
  waiter *all = list_waiters(s, &waiters);
  *out = BRIM_ARENA_NEW(arena, brim_ticket, waiters + 1);
  *count = 0;
  for (const waiter *w = all; w < all + waiters; w++) {
    if (w->job == job) continue;
    uint64_t *key = BRIM_ARENA_NEW(arena, uint64_t, s->scenario->device_count);
    brim_ticket *t = &(*out)[(*count)++];
    *t = (brim_ticket){.need_bytes = w->bytes,
                       .since = s->scenario->start_seconds + w->since,
                       .device = -1,
                       .process = "",
                       .backend = s->scenario->backend,
                       .wish = "",
                       .key = key};
    for (int d = 0; d < (int)s->scenario->device_count; d++)
      if (accepts(w, d)) key[t->keys++] = brim_scene_key(s, d);
  }
  free(all);
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
  for (int d = 0; d < (int)s->scenario->device_count; d++) {
    const brim_scene_device *device = &s->scenario->device[d];
    const brim_scene_line *line = NULL; /* recorded */
    if (brim_scene_key(s, d) != key) continue;
    for (size_t i = 0; i < device->line_count && device->line[i].at <= s->now; i++) line = &device->line[i];
    if (!line || line->waiting == 0) continue;
    if (*count == 0) *first_bytes = line->bytes;
    *count += (size_t)line->waiting;
  }
}

/* ---- the whole scene ---- */

brim_scene *brim_scene_open(const brim_scenario *scenario, brim_scene_report_fn report, void *context)
{
  brim_scene *s = brim_xcalloc(1, sizeof *s);
  *s = (brim_scene){.scenario = scenario, .report = report, .context = context, .clock = scenario->start_seconds};
  s->program = brim_xcalloc(scenario->program_count + 1, sizeof *s->program);
  s->run = brim_xcalloc(scenario->run_count + 1, sizeof *s->run);
  for (size_t i = 0; i < scenario->program_count; i++) {
    s->program[i].visit.next = scenario->program[i].from;
    s->program[i].leaves = s->program[i].grows = INFINITY;
  }
  for (size_t i = 0; i < scenario->run_count; i++) s->run[i].visit.next = scenario->run[i].from;
  return s;
}

void brim_scene_close(brim_scene *s)
{
  if (!s) return;
  free(s->program);
  free(s->run);
  free(s);
}
