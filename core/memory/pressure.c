#include "memory/pressure.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/thread.h"
#include "brim/plugin.h"

#define REARM 0.95 /* part of the lower limit */

struct brim_pressure {
  brim_pressure_options options;
  brim_pressure_watch watch; /* the thread's watch */
  pthread_t thread;
  atomic_int due; /* enum brim_pressure_level */
  /* protects the fields below; the thread holds it while it takes a reading */
  pthread_mutex_t lock;
  pthread_cond_t wake;
  bool stop;
  brim_pressure_device device;
  uint64_t others_before; /* other processes' use at the first reading; UINT64_MAX: none yet */
  brim_pressure_reading reading;
  uint64_t more; /* bytes that the run may want to take, of the host's or the device's memory; 0: none */
  bool on_host;
  int64_t found_room; /* number of consecutive checks that found room for them */
};

/* ---- levels ---- */

double brim_pressure_lower(const brim_pressure_limits *l)
{
  return l->warn_percent > 0 && (l->critical_percent <= 0 || l->warn_percent < l->critical_percent)
             ? l->warn_percent
             : l->critical_percent;
}

enum brim_pressure_level brim_pressure_judge(const brim_pressure_limits *l, brim_pressure_watch *w, double percent,
                                             bool *fell)
{
  *fell = percent < REARM * brim_pressure_lower(l);
  if (*fell) *w = (brim_pressure_watch){0};
  if (w->wait > 0) w->wait--;
  if (l->critical_percent > 0 && percent >= l->critical_percent && w->wait == 0) {
    w->gap = w->gap == 0 ? BRIM_PRESSURE_GAP : w->gap < INT64_MAX / 2 ? 2 * w->gap : w->gap;
    w->wait = w->gap;
    w->warned = true;
    return BRIM_PRESSURE_ACTS;
  }
  if (l->warn_percent <= 0 || percent < l->warn_percent || w->warned) return BRIM_PRESSURE_CALM;
  w->warned = true;
  return BRIM_PRESSURE_WARNS;
}

double brim_pressure_percent(const brim_pressure_reading *r)
{
  return r->device_grew && r->device_percent > r->host.ram_percent ? r->device_percent : r->host.ram_percent;
}

static bool stays_low(double used, double total, uint64_t more, double percent)
{
  return total > 0 && 100 * (used + (double)more) < percent * total;
}

bool brim_pressure_has_room(const brim_pressure_limits *l, const brim_pressure_reading *r, uint64_t more, bool on_host)
{
  const double percent = REARM * brim_pressure_lower(l), left = (double)r->device_left_bytes;
  const brim_host_use *h = &r->host;
  if (!stays_low((double)h->ram_used_bytes, (double)h->ram_total_bytes, on_host ? more : 0, percent)) return false;
  if (r->device_left_bytes == 0) return true;
  return more < r->device_left_bytes && stays_low((double)r->device_others_bytes, left - (double)more, 0, percent);
}

/* ---- readings ---- */

static void look_at_device(brim_pressure *p, brim_pressure_reading *out)
{
  const brim_pressure_device *d = &p->device;
  uint64_t used = 0, total = 0;
  if (!d->ops || !BRIM_HAS(brim_backend_ops, d->ops, usage)) return;
  if (d->ops->usage(d->backend, d->device, &used, &total) != BRIM_OK || total <= d->own_bytes) return;
  out->device_left_bytes = total - d->own_bytes;
  out->device_others_bytes = used > d->own_bytes ? used - d->own_bytes : 0;
  if (p->others_before == UINT64_MAX) p->others_before = out->device_others_bytes;
  out->device_grew = out->device_others_bytes > p->others_before;
  out->device_percent = 100 * (double)out->device_others_bytes / (double)out->device_left_bytes;
}

/* Needs the lock. */
static void look_at_memory(brim_pressure *p)
{
  bool fell;
  brim_pressure_reading r = {.host = brim_host_use_read(p->options.proc, p->options.mount)};
  const brim_host_use *before = &p->reading.host, *now = &r.host;
  if (before->cpu_ticks > 0 && now->cpu_ticks > before->cpu_ticks)
    r.cpu_percent =
        100 * (double)(now->cpu_busy_ticks - before->cpu_busy_ticks) / (double)(now->cpu_ticks - before->cpu_ticks);
  look_at_device(p, &r);
  p->reading = r;
  p->found_room =
      p->more > 0 && brim_pressure_has_room(&p->options.limits, &r, p->more, p->on_host) ? p->found_room + 1 : 0;
  const int level = (int)brim_pressure_judge(&p->options.limits, &p->watch, brim_pressure_percent(&r), &fell);
  if (fell || level > atomic_load(&p->due)) atomic_store(&p->due, level);
}

static void *work(void *context)
{
  brim_pressure *p = context;
  pthread_mutex_lock(&p->lock);
  while (!p->stop) {
    look_at_memory(p);
    const struct timespec until = brim_time_in(p->options.interval_seconds);
    while (!p->stop && pthread_cond_timedwait(&p->wake, &p->lock, &until) != ETIMEDOUT) continue;
  }
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

/* ---- opening and closing ---- */

static void release(brim_pressure *p)
{
  pthread_cond_destroy(&p->wake);
  pthread_mutex_destroy(&p->lock);
  free(p);
}

brim_status brim_pressure_open(const brim_pressure_options *options, brim_pressure **out)
{
  pthread_condattr_t attr;
  *out = NULL;
  if (options->limits.warn_percent <= 0 && options->limits.critical_percent <= 0) return BRIM_OK;
  brim_pressure *p = brim_xcalloc(1, sizeof *p);
  p->options = *options;
  if (!p->options.proc) p->options.proc = "/proc";
  if (!p->options.mount) p->options.mount = "/sys/fs/cgroup";
  pthread_mutex_init(&p->lock, NULL);
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&p->wake, &attr);
  pthread_condattr_destroy(&attr);
  const int failed = brim_thread_start(&p->thread, "brim-pressure", work, p);
  if (failed) {
    release(p);
    return brim_fail(BRIM_ENOMEM_HOST,
                     "cannot start the thread that watches memory: %s\nto run without it, set memory.warn_percent=0 "
                     "memory.critical_percent=0",
                     strerror(failed));
  }
  *out = p;
  return BRIM_OK;
}

void brim_pressure_close(brim_pressure *p)
{
  if (!p) return;
  pthread_mutex_lock(&p->lock);
  p->stop = true;
  pthread_cond_signal(&p->wake);
  pthread_mutex_unlock(&p->lock);
  pthread_join(p->thread, NULL);
  release(p);
}

void brim_pressure_aim(brim_pressure *p, const brim_pressure_device *device)
{
  if (!p) return;
  pthread_mutex_lock(&p->lock);
  p->device = device ? *device : (brim_pressure_device){0};
  p->others_before = UINT64_MAX;
  pthread_mutex_unlock(&p->lock);
}

/* ---- taking ---- */

bool brim_pressure_is_due(const brim_pressure *p)
{
  return p && atomic_load_explicit(&p->due, memory_order_relaxed) != BRIM_PRESSURE_CALM;
}

enum brim_pressure_level brim_pressure_take(brim_pressure *p, brim_pressure_reading *reading)
{
  if (!brim_pressure_is_due(p)) return BRIM_PRESSURE_CALM;
  pthread_mutex_lock(&p->lock);
  *reading = p->reading;
  const int level = atomic_exchange(&p->due, BRIM_PRESSURE_CALM);
  pthread_mutex_unlock(&p->lock);
  return (enum brim_pressure_level)level;
}

int64_t brim_pressure_checks_with_room(brim_pressure *p, uint64_t more, bool on_host)
{
  if (!p) return 0;
  pthread_mutex_lock(&p->lock);
  if (p->more != more || p->on_host != on_host) p->found_room = 0;
  p->more = more;
  p->on_host = on_host;
  const int64_t checks = p->found_room;
  pthread_mutex_unlock(&p->lock);
  return checks;
}
