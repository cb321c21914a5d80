/* For GPUs whose other users do not queue: a device whose memory was taken recently is likely to lose it again, so the
 * policy prefers quiet devices and avoids noisy ones for a while.
 *
 *     at the start      the device with the least noise in the last forget_minutes; if equal, the one with most free
 *                       memory
 *     out of memory     a quiet device with room, or else half the micro-batch
 *     quiet again       the micro-batch that the run began with
 *
 * Noise means that a plan did not get memory that had been free, or that the memory of other programs changed while the
 * run trained. The policy appends a line to a file for each event, so that later runs on this host know of it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <brim/host.h>
#include <brim/plugin.h>
#include <brim/policy.h>

typedef struct noisy_neighbour {
  const char *file;
  double forget_minutes, moved_percent;
} noisy_neighbour;

static const brim_param table[] = {
    BRIM_PARAM(PATH, noisy_neighbour, file, NULL, NULL, "file that records noise; may be deleted at any time"),
    BRIM_PARAM(SECONDS, noisy_neighbour, forget_minutes, "30", "[0,inf)", "how long noise counts against a device"),
    BRIM_PARAM(F64, noisy_neighbour, moved_percent, "5", "(0,100]", "change in others' memory that counts as noise"),
    BRIM_PARAMS_END,
};

typedef struct run {
  const noisy_neighbour *p;
  int64_t had_batch; /* the micro-batch before it was reduced; 0 if it was not */
  double others;     /* bytes of the device that other programs had at the last look; negative before the first */
  uint64_t promised; /* bytes that were free when the device was chosen */
} run;

static brim_status create(const void *params, void **self)
{
  const noisy_neighbour *p = params;
  run *r = brim_try_calloc(1, sizeof *r);
  if (!r) return brim_fail(BRIM_ENOMEM_HOST, "no memory for policy 'noisy_neighbour'");
  *r = (run){.p = p, .others = -1};
  *self = r;
  const brim_status status = brim_make_folders_for(p->file);
  if (status != BRIM_OK) free(r);
  return status;
}

static void write_down(const run *r, const char *device)
{
  FILE *f = fopen(r->p->file, "a"); /* runs append whole lines, so they do not disturb each other */
  if (!f || fprintf(f, "%.3f %s\n", brim_policy_clock(), device) < 0)
    brim_log(BRIM_LOG_WARN, "noisy_neighbour: cannot write '%s'", r->p->file);
  if (f) fclose(f);
}

/* Returns how many times a device was noisy in the last forget_minutes. */
static int noise_of(const run *r, const char *device)
{
  FILE *f = fopen(r->p->file, "r"); /* without a file all devices are quiet */
  char line[128], name[64];
  double when;
  int count = 0;
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "%lf %63s", &when, name) == 2 && strcmp(name, device) == 0)
      count += when > brim_policy_clock() - 60 * r->p->forget_minutes;
  if (f) fclose(f);
  return count;
}

/* Returns the quietest device other than `but` with at least `bytes` free, or NULL. */
static const brim_device_view *find_quietest(const run *r, const brim_device_query *q, uint64_t bytes,
                                             const brim_device_view *but, int *noise)
{
  const brim_device_view *best = NULL;
  for (const brim_device_view *d = q->device; d < q->device + q->count; d++) {
    if (d == but || !d->is_shared || d->free_bytes < bytes) continue;
    const int n = noise_of(r, d->name);
    if (best && (n > *noise || (n == *noise && d->free_bytes <= best->free_bytes))) continue;
    best = d;
    *noise = n;
  }
  return best;
}

static brim_status take(run *r, const brim_device_query *q, const brim_device_view *d, int noise, brim_place *out)
{
  char a[32];
  r->promised = d->free_bytes;
  out->kind = BRIM_PLACE_DEVICE;
  out->device = (int32_t)(d - q->device);
  brim_reason(out->reason, "noise in the last %.3g minutes: %d; %s are free", r->p->forget_minutes, noise,
              brim_format_bytes(a, sizeof a, d->free_bytes));
  return BRIM_OK;
}

static brim_status choose_device(void *self, const brim_device_query *q, brim_place *out)
{
  int noise = 0;
  const brim_device_view *d = find_quietest(self, q, q->demands->min_device_bytes, NULL, &noise);
  if (!d || strcmp(q->demands->device, "auto") != 0 || q->demands->wait)
    return BRIM_ENOTSUP; /* the user or the queue decides */
  return take(self, q, d, noise, out);
}

static brim_status on_oom(void *self, const brim_oom *event, brim_action *out)
{
  run *r = self;
  int noise = 0;
  const brim_plan_query *q = &event->plan;
  const brim_device_view *now = &event->devices.device[event->device];
  if (event->needed_bytes <= r->promised) write_down(r, now->name); /* the room is gone */
  r->others = -1;
  const brim_device_view *other = find_quietest(r, &event->devices, event->needed_bytes, now, &noise);
  if (other && noise == 0 && strcmp(q->demands->device, "auto") == 0) {
    out->kind = BRIM_ACT_PLACE;
    return take(r, &event->devices, other, noise, &out->place);
  }
  if (event->retries >= q->demands->max_retries) return BRIM_ENOTSUP;
  if (r->had_batch == 0) r->had_batch = event->micro_batch;
  out->kind = BRIM_ACT_PLAN;
  for (size_t i = 0; i < q->micro_batch_count && out->plan.micro_batch == 0; i++)
    if (q->micro_batch[i] <= event->micro_batch / 2) out->plan.micro_batch = q->micro_batch[i];
  brim_reason(out->plan.reason, "no room on %s or on a quiet device", now->name);
  return out->plan.micro_batch > 0 ? BRIM_OK : BRIM_ENOTSUP;
}

static brim_status on_step(void *self, const brim_step_view *v, brim_step_plan *out)
{
  run *r = self;
  brim_device_view d;
  uint64_t room, peak;
  BRIM_TRY(v->look(v, &d, &room));
  const double others = (double)d.total_bytes - (double)d.free_bytes - (double)v->planned_bytes;
  if (r->others >= 0 && fabs(others - r->others) >= r->p->moved_percent / 100 * (double)d.total_bytes)
    write_down(r, d.name);
  r->others = others;
  if (r->had_batch == 0 || noise_of(r, d.name) > 0) return BRIM_ENOTSUP;
  BRIM_TRY(v->peak_within(v, r->had_batch, 0, &peak));
  if (peak > room || v->waiting > 0) return BRIM_ENOTSUP;
  out->micro_batch = r->had_batch;
  r->had_batch = 0;
  brim_reason(out->reason, "as %s has been quiet for %.3g minutes", d.name, r->p->forget_minutes);
  return BRIM_OK;
}

static const brim_policy_ops ops = {
    .size = sizeof ops, .choose_device = choose_device, .on_oom = on_oom, .on_step = on_step};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_POLICY,
                                   .id = "noisy_neighbour",
                                   .help = "prefers devices whose free memory is steady",
                                   .params_size = sizeof(noisy_neighbour),
                                   .params = table,
                                   .create = create,
                                   .destroy = free,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("noisy_neighbour", "1.0", plugins)
