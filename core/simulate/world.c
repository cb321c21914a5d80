#include "simulate/world_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MINUTE 60.0

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

uint64_t brim_scene_free(const brim_scene *s, int device)
{
  const brim_scene_device *d = &s->scenario->device[device];
  uint64_t taken = used_by(d->use, d->use_count, d->used, s->now) + s->arena[device];
  for (size_t i = 0; i < s->scenario->program_count; i++)
    if (s->scenario->program[i].device == device) taken += s->program[i].has;
  for (size_t i = 0; i < s->scenario->run_count; i++)
    if (s->run[i].state == BRIM_RUN_PLACED && s->run[i].device == device) taken += s->scenario->run[i].memory;
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
  snprintf(out->name, sizeof out->name, "%s", is_host ? "the host's processors" : "made up");
  out->total_bytes = is_host ? scenario->host.memory : scenario->device[device].memory;
  out->free_bytes = is_host ? left(scenario->host.memory, host_taken(s)) : brim_scene_free(s, device);
}

brim_host_memory brim_scene_host_memory(const brim_scene *s)
{
  return (brim_host_memory){s->scenario->host.memory, left(s->scenario->host.memory, host_taken(s)), 0};
}

uint64_t brim_scene_host_over(const brim_scene *s)
{
  return left(host_taken(s), s->scenario->host.memory);
}

/* ---- who comes and goes ---- */

BRIM_PRINTF(3, 4)
static void tell(brim_scene *s, const char *who, const char *format, ...)
{
  char text[256];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  s->tell(s->context, who, text);
}

static const char *name_of(const brim_scene *s, int device, char *out, size_t room)
{
  if (device == BRIM_SCENE_HOST)
    snprintf(out, room, "the host");
  else
    snprintf(out, room, "%s:%d", s->scenario->backend, device);
  return out;
}

/* It has left: the next time is the first one from now on. */
static void leave(brim_scene_visit *v, double every, double now)
{
  const double passed = every > 0 ? floor((now - v->since) / every) + 1 : 0;
  v->next = every > 0 ? fmax(v->since + passed * every, now + BRIM_SCENE_MOMENT) : INFINITY;
}

static void come(brim_scene_visit *v, double now)
{
  v->since = now;
  v->next = INFINITY;
}

static void move_program(brim_scene *s, size_t i)
{
  char bytes[32], where[64];
  const brim_scene_program *p = &s->scenario->program[i];
  brim_scene_present *at = &s->program[i];
  name_of(s, (int)p->device, where, sizeof where);
  if (at->is_there && at->leaves <= s->now) {
    tell(s, p->name, "leaves %s, with %s", where, brim_format_bytes(bytes, sizeof bytes, at->has));
    at->is_there = false;
    at->wants = at->has = 0;
    at->grows = INFINITY;
    leave(&at->visit, p->every, s->now);
  }
  if (!at->is_there && at->visit.next <= s->now) {
    come(&at->visit, s->now);
    at->is_there = true;
    at->wants = p->memory;
    at->leaves = p->lasts > 0 ? s->now + fmax(p->lasts, BRIM_SCENE_MOMENT) : INFINITY;
    at->grows = p->grows > 0 ? s->now + MINUTE : INFINITY;
    tell(s, p->name, "wants %s of %s", brim_format_bytes(bytes, sizeof bytes, at->wants), where);
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
  brim_scene_trained *at = &s->run[i];
  if (at->state == BRIM_RUN_PLACED && at->leaves <= s->now) {
    tell(s, r->name, "has ended on %s", name_of(s, at->device, where, sizeof where));
    at->state = BRIM_RUN_AWAY;
    leave(&at->visit, r->every, s->now);
  }
  if (at->state != BRIM_RUN_AWAY || at->visit.next > s->now) return;
  come(&at->visit, s->now);
  at->state = BRIM_RUN_WAITS;
  at->number = ++s->numbers;
  tell(s, r->name, "wants %s of %s", brim_format_bytes(bytes, sizeof bytes, r->memory),
       r->device < 0 ? "any device" : name_of(s, (int)r->device, where, sizeof where));
}

/* Programs take what is there; who lacks something takes it when it comes free. */
static void feed_programs(brim_scene *s)
{
  for (size_t i = 0; i < s->scenario->program_count; i++) {
    const int device = (int)s->scenario->program[i].device;
    brim_scene_present *p = &s->program[i];
    if (!p->is_there || p->has >= p->wants) continue;
    const uint64_t there = device == BRIM_SCENE_HOST ? UINT64_MAX : brim_scene_free(s, device),
                   lacks = p->wants - p->has;
    p->has += smaller(there, lacks);
  }
}

/* ---- who is served ---- */

static bool serve_one(brim_scene *s)
{
  char bytes[32], where[64];
  size_t count;
  brim_scene_waiter *all = brim_scene_waiters(s, &count);
  bool served = false;
  for (size_t i = 0; i < count && !served; i++) {
    const int device = all[i].run >= 0 ? brim_scene_find(s, all, &all[i], true) : -1;
    if (device < 0) continue;
    brim_scene_trained *r = &s->run[all[i].run];
    const brim_scene_run *what = &s->scenario->run[all[i].run];
    r->state = BRIM_RUN_PLACED;
    r->device = device;
    r->leaves = s->now + fmax(what->lasts, BRIM_SCENE_MOMENT);
    tell(s, what->name, "is placed on %s, with %s", name_of(s, device, where, sizeof where),
         brim_format_bytes(bytes, sizeof bytes, what->memory));
    served = true;
  }
  free(all);
  return served;
}

static void settle(brim_scene *s)
{
  bool waits = false;
  feed_programs(s);
  for (size_t i = 0; i < s->scenario->run_count; i++) waits = waits || s->run[i].state == BRIM_RUN_WAITS;
  while (waits && serve_one(s)) feed_programs(s);
}

/* ---- time ---- */

static double earliest(double a, double b)
{
  return a < b ? a : b;
}

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
    next = earliest(next, next_use(s->scenario->device[i].use, s->scenario->device[i].use_count, s->now));
  for (size_t i = 0; i < s->scenario->program_count; i++) {
    const brim_scene_present *p = &s->program[i];
    next = earliest(next, p->is_there ? earliest(p->leaves, p->grows) : p->visit.next);
  }
  for (size_t i = 0; i < s->scenario->run_count; i++) {
    const brim_scene_trained *r = &s->run[i];
    if (r->state != BRIM_RUN_WAITS) next = earliest(next, r->state == BRIM_RUN_PLACED ? r->leaves : r->visit.next);
  }
  return next;
}

double brim_scene_slowness(const brim_scene *s, int device)
{
  double slowness = 1;
  for (size_t i = 0; i < s->scenario->program_count; i++)
    if (s->program[i].is_there && s->scenario->program[i].device == device) slowness *= s->scenario->program[i].slows;
  for (size_t i = 0; i < s->scenario->run_count; i++)
    if (s->run[i].state == BRIM_RUN_PLACED && s->run[i].device == device) slowness *= s->scenario->run[i].slows;
  return slowness;
}

static void pass(brim_scene *s, double to)
{
  const double seconds = to - s->now;
  for (size_t i = 0; i < s->scenario->program_count; i++)
    if (s->program[i].has < s->program[i].wants) s->others.lacked += seconds;
  for (size_t i = 0; i < s->scenario->run_count; i++)
    if (s->run[i].state == BRIM_RUN_WAITS) s->others.waited += seconds;
  s->now = to;
  s->clock = s->scenario->start_seconds + to;
}

void brim_scene_advance(brim_scene *s, double to)
{
  for (;;) {
    const double next = brim_scene_next(s);
    if (next > to) break;
    pass(s, next > s->now ? next : s->now);
    for (size_t i = 0; i < s->scenario->program_count; i++) move_program(s, i);
    for (size_t i = 0; i < s->scenario->run_count; i++) move_run(s, i);
    settle(s);
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

/* ---- jobs ---- */

void brim_scene_take(brim_scene *s, int device, uint64_t bytes)
{
  uint64_t *taken = device == BRIM_SCENE_HOST ? &s->host : &s->arena[device];
  *taken += bytes;
}

void brim_scene_give(brim_scene *s, int device, uint64_t bytes)
{
  uint64_t *taken = device == BRIM_SCENE_HOST ? &s->host : &s->arena[device];
  *taken -= bytes < *taken ? bytes : *taken;
}

void brim_scene_settle(brim_scene *s)
{
  settle(s);
}

/* ---- a whole one ---- */

brim_scene *brim_scene_open(const brim_scenario *scenario, brim_scene_tell_fn tell_fn, void *context)
{
  brim_scene *s = brim_xcalloc(1, sizeof *s);
  *s = (brim_scene){.scenario = scenario, .tell = tell_fn, .context = context, .clock = scenario->start_seconds};
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
