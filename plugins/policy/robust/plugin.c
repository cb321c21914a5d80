/* For runs on shared GPUs that should shrink or move instead of failing:
 *
 *     device: the one with the most free memory among those with min_gpu_memory_mb, else the CPU
 *     a plan that does not fit: the largest micro-batch that fits
 *     a plan that fits but does not get its memory: half the micro-batch, max_retries times
 *     then: another device -> the CPU
 *
 * If a device is a share of the host, the user has set its limit, so the run does not move from it to the CPU. The
 * effective batch stays the same: accumulation grows as the micro-batch shrinks. This policy does not wait for devices;
 * the queue does (wait_for_gpu). */
#include <string.h>

#include "brim/brim.h"

typedef struct robust {
  bool allow_cpu;
} robust;

static const brim_param table[] = {
    BRIM_PARAM(BOOL, robust, allow_cpu, "true", NULL, "train on the host's processors if no device fits"),
    BRIM_PARAMS_END,
};

/* Returns a device other than `but`: the one with the most free memory, among those that are untried and have enough.
 * Returns NULL if there is none. */
static const brim_device_view *find_free(const brim_device_query *q, const brim_device_view *but)
{
  const brim_device_view *best = NULL;
  for (size_t i = 0; i < q->count; i++) {
    const brim_device_view *d = &q->device[i];
    if (d == but || !d->is_shared || d->tried || d->free_bytes < q->demands->min_device_bytes) continue;
    if (!best || d->free_bytes > best->free_bytes) best = d;
  }
  return best;
}

static bool is_free_to_choose(const brim_device_query *q)
{
  return strcmp(q->demands->device, "auto") == 0 && q->device[0].is_shared;
}

static void take_device(const brim_device_query *q, const brim_device_view *d, brim_place *out)
{
  char a[32], b[32];
  out->kind = BRIM_PLACE_DEVICE;
  out->device = (int32_t)(d - q->device);
  brim_reason(out->reason, "%s of %s are free, the most of %zu device%s", brim_format_bytes(a, sizeof a, d->free_bytes),
              brim_format_bytes(b, sizeof b, d->total_bytes), q->count, q->count == 1 ? "" : "s");
}

static brim_status choose_device(void *self, const brim_device_query *q, brim_place *out)
{
  const robust *p = self;
  char bytes[32];
  const brim_device_view *best = find_free(q, NULL);
  if (!is_free_to_choose(q) || q->demands->wait) return BRIM_ENOTSUP; /* the user or the queue chooses the device */
  if (!best && (!p->allow_cpu || q->device[0].on_host)) return BRIM_ENOTSUP;
  if (best) {
    take_device(q, best, out);
  } else {
    out->kind = BRIM_PLACE_HOST;
    brim_reason(out->reason, "no device has the %s free that min_gpu_memory_mb requires",
                brim_format_bytes(bytes, sizeof bytes, q->demands->min_device_bytes));
  }
  return BRIM_OK;
}

/* Returns the largest micro-batch that is at most half the present one, or 0. */
static int64_t find_half(const brim_oom *event)
{
  const brim_plan_query *q = &event->plan;
  for (size_t i = 0; i < q->micro_batch_count; i++)
    if (q->micro_batch[i] <= event->micro_batch / 2) return q->micro_batch[i];
  return 0;
}

/* Finds the largest smaller micro-batch whose plan fits, or 0. */
static brim_status find_fitting(const brim_oom *event, int64_t *out, uint64_t *peak)
{
  const brim_plan_query *q = &event->plan;
  *out = 0;
  for (size_t i = 0; i < q->micro_batch_count && *out == 0; i++) {
    if (q->micro_batch[i] >= event->micro_batch) continue;
    BRIM_TRY(q->peak(q, q->micro_batch[i], peak));
    if (*peak <= event->room_bytes) *out = q->micro_batch[i];
  }
  return BRIM_OK;
}

/* Chooses another micro-batch on the same device. Returns ENOTSUP if none fits. */
static brim_status shrink(const brim_oom *event, const char *device, brim_plan_choice *out)
{
  const brim_demands *demands = event->plan.demands;
  char a[32], b[32], c[32];
  uint64_t peak = 0;
  brim_format_bytes(a, sizeof a, event->needed_bytes);
  brim_format_bytes(b, sizeof b, event->room_bytes);
  if (event->needed_bytes > event->room_bytes) {
    BRIM_TRY(find_fitting(event, &out->micro_batch, &peak));
    brim_reason(out->reason, "the largest that fits; it needs %s, %s has room for %s, and the last plan needed %s",
                brim_format_bytes(c, sizeof c, peak), device, b, a);
  } else if (event->retries < demands->max_retries) {
    out->micro_batch = find_half(event);
    brim_reason(out->reason, "retry %lld of %lld, as %s could not be allocated on %s", (long long)event->retries + 1,
                (long long)demands->max_retries, a, device);
  }
  return out->micro_batch > 0 ? BRIM_OK : BRIM_ENOTSUP;
}

static brim_status on_oom(void *self, const brim_oom *event, brim_action *out)
{
  const robust *p = self;
  const brim_device_query *devices = &event->devices;
  const brim_device_view *now = &devices->device[event->device];
  char a[32], b[32];
  out->kind = BRIM_ACT_PLAN;
  const brim_status status = shrink(event, now->name, &out->plan);
  if (status != BRIM_ENOTSUP) return status;
  out->kind = BRIM_ACT_PLACE;
  const brim_device_view *other = is_free_to_choose(devices) ? find_free(devices, now) : NULL;
  if (other) {
    take_device(devices, other, &out->place);
    return BRIM_OK;
  }
  if (!p->allow_cpu || !now->is_shared || now->on_host || event->plan.demands->stays) return BRIM_ENOTSUP;
  out->place.kind = BRIM_PLACE_HOST;
  brim_reason(out->place.reason, "%s are still needed, and %s has room for %s",
              brim_format_bytes(a, sizeof a, event->needed_bytes), now->name,
              brim_format_bytes(b, sizeof b, event->room_bytes));
  return BRIM_OK;
}

static const brim_policy_ops ops = {.size = sizeof ops, .choose_device = choose_device, .on_oom = on_oom};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_POLICY,
                                   .id = "robust",
                                   .help =
                                       "when memory runs out: smaller micro-batches, then another device, then the CPU",
                                   .params_size = sizeof(robust),
                                   .params = table,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-policies", "1.0", plugins)
