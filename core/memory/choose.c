#include "memory/choose.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "brim/plugin.h"

#define DEVICES_TOLD 16

/* Returns the number in a text that consists only of it, or -1. */
static long number_of(const char *text)
{
  char *end = NULL;
  const long value = strtol(text, &end, 10);
  return end == text || *end || value < 0 ? -1 : value;
}

bool brim_device_is_shared(const brim_device_info *info)
{
  return !info->on_host || info->limited;
}

/* Finds, among devices with enough free memory, the one with the most, or just the first; ENODEVICE if there is
 * none. */
static brim_status find_free(const char *id, const brim_backend_ops *ops, void *self, const brim_device_wish *wish,
                             int *out)
{
  const int count = ops->device_count(self);
  uint64_t most = 0;
  *out = -1;
  for (int i = 0; i < count; i++) {
    brim_device_info info = {0};
    BRIM_TRY(ops->describe(self, i, &info));
    if (brim_device_is_shared(&info) && info.free_bytes < wish->min_bytes) continue;
    if (*out >= 0 && (!wish->most_free || info.free_bytes <= most)) continue;
    most = info.free_bytes;
    *out = i;
  }
  if (*out >= 0) return BRIM_OK;
  char a[32], b[32];
  brim_text text = {0};
  brim_text_printf(&text, "no device of backend '%s' has %s free (min_gpu_memory_mb)", id,
                   brim_format_bytes(a, sizeof a, wish->min_bytes));
  for (int i = 0; i < count && i < DEVICES_TOLD; i++) {
    brim_device_info info = {0};
    if (ops->describe(self, i, &info) != BRIM_OK) continue;
    brim_text_printf(&text, "\n  %s:%d has %s of %s", id, i, brim_format_bytes(a, sizeof a, info.free_bytes),
                     brim_format_bytes(b, sizeof b, info.total_bytes));
  }
  const brim_status status = brim_fail(BRIM_ENODEVICE, "%s", brim_text_str(&text));
  brim_text_release(&text);
  return status;
}

brim_status brim_device_named(const char *id, const brim_backend_ops *ops, void *self, const brim_device_wish *wish,
                              int *device)
{
  const int count = ops->device_count(self);
  const char *environment = getenv("GPU_DEVICE_ID");
  brim_device_info first = {0};
  *device = -1;
  if (strcmp(wish->device, "auto") != 0) {
    const size_t n = strlen(id);
    const char *name = wish->device;
    const bool named = strncmp(name, id, n) == 0 && (name[n] == '\0' || name[n] == ':');
    const long index = !named ? -1 : name[n] ? number_of(name + n + 1) : 0;
    if (index < 0 || index >= count)
      return brim_fail(BRIM_ENODEVICE, "no device '%s': backend '%s' has %d (%s:0%s); device=auto chooses one of them",
                       name, id, count, id, count > 1 ? " and up" : "");
    *device = (int)index;
    return BRIM_OK;
  }
  if (count < 1) return brim_fail(BRIM_ENODEVICE, "backend '%s' has no device on this host", id);
  BRIM_TRY(ops->describe(self, 0, &first));
  if (!environment || !environment[0] || !brim_device_is_shared(&first)) return BRIM_OK;
  const long index = number_of(environment);
  if (index < 0 || index >= count)
    return brim_fail(BRIM_ENODEVICE, "GPU_DEVICE_ID is '%s', but backend '%s' has %d device%s, numbered from 0",
                     environment, id, count, brim_plural(count));
  *device = (int)index;
  return BRIM_OK;
}

brim_status brim_device_select(const brim_backend_ops *ops, void *self, int device, brim_device_info *info)
{
  if (BRIM_HAS(brim_backend_ops, ops, select)) BRIM_TRY(ops->select(self, device));
  return ops->describe(self, device, info);
}

brim_status brim_device_choose(const char *id, const brim_backend_ops *ops, void *self, const brim_device_wish *wish,
                               int *device, brim_device_info *info)
{
  BRIM_TRY(brim_device_named(id, ops, self, wish, device));
  if (*device < 0) BRIM_TRY(find_free(id, ops, self, wish, device));
  return brim_device_select(ops, self, *device, info);
}

void brim_device_log_choice(const char *id, const brim_backend_ops *ops, void *self, const brim_device_wish *wish,
                            int device)
{
  char a[32], b[32];
  int named;
  brim_device_info now = {0};
  const int count = ops->device_count(self);
  if (count < 2 || strcmp(wish->device, "auto") != 0) return;
  if (brim_device_named(id, ops, self, wish, &named) != BRIM_OK || ops->describe(self, device, &now) != BRIM_OK) return;
  brim_log(BRIM_LOG_INFO, "device=auto chooses %s:%d of %d%s: %s of %s free", id, device, count,
           named >= 0        ? ", as GPU_DEVICE_ID says"
           : wish->most_free ? ", which has the most free memory"
                             : ", the first with room",
           brim_format_bytes(a, sizeof a, now.free_bytes), brim_format_bytes(b, sizeof b, now.total_bytes));
}
