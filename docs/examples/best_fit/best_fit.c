/* Packs small runs together, so that large runs find a free device: chooses the fullest device that still has
 * min_gpu_memory_mb. */
#include <string.h>

#include <brim/plugin.h>
#include <brim/policy.h>

static brim_status choose_device(void *self, const brim_device_query *q, brim_place *out)
{
  (void)self;
  if (strcmp(q->demands->device, "auto") != 0 || q->demands->min_device_bytes == 0) return BRIM_ENOTSUP;
  for (size_t i = 0; i < q->count; i++) {
    const uint64_t free_bytes = q->device[i].free_bytes;
    if (free_bytes < q->demands->min_device_bytes) continue;
    if (out->kind == BRIM_PLACE_DEVICE && free_bytes >= q->device[out->device].free_bytes) continue;
    out->kind = BRIM_PLACE_DEVICE;
    out->device = (int32_t)i;
  }
  brim_reason(out->reason, "the fullest of %zu devices with min_gpu_memory_mb free", q->count);
  return out->kind == BRIM_PLACE_DEVICE ? BRIM_OK : BRIM_ENOTSUP;
}

static const brim_policy_ops ops = {.size = sizeof ops, .choose_device = choose_device};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_POLICY,
                                   .id = "best_fit",
                                   .help = "the fullest device that still has min_gpu_memory_mb",
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("best_fit", "1.0", plugins)
