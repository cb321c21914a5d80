/* Chooses the best device of all backends. See brim_device_best in brim/memory.h. Every device is a candidate, except
 * those without enough free memory and those whose backend cannot be used; the reasons are recorded. A GPU comes before
 * the host, even if it has less free memory; among equal kinds, the device with the most free memory wins. */
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/text.h"
#include "brim/memory.h"
#include "builtin/builtin.h"
#include "memory/choose.h"
#include "plugin/instance.h"
#include "plugin/registry.h"

/* The kinds of devices, in ascending order of preference. RANK_CPU: the host with backend cpu; RANK_HOST: with another
 * backend. */
enum rank { RANK_NONE, RANK_HOST, RANK_CPU, RANK_GPU };

typedef struct search {
  const brim_device_search *wanted;
  brim_arena arena;
  enum rank rank; /* rank of the best device so far */
  brim_device_choice best;
  int count;        /* candidates of that rank */
  bool named;       /* GPU_DEVICE_ID names the best */
  brim_text passed; /* devices and backends that were rejected, with the reasons */
} search;

static bool is_any(const brim_device_search *q)
{
  return !q->backend || strcmp(q->backend, "auto") == 0;
}

/* Adds an entry as one line, even if the reason has several lines. */
static void pass_over(search *s, const char *what, const char *reason)
{
  brim_text_printf(&s->passed, "%s%s", s->passed.length ? "; " : "", what);
  for (; *reason; reason++) brim_text_add_n(&s->passed, *reason == '\n' ? ", " : reason, *reason == '\n' ? 2 : 1);
}

static void pass_over_backend(search *s, const char *id, const char *reason)
{
  pass_over(s, brim_arena_printf(&s->arena, "%s: ", id), reason);
}

static void consider(search *s, const char *backend, int index, const brim_device_info *info, bool named)
{
  const enum rank rank = !info->on_host ? RANK_GPU : strcmp(backend, "cpu") == 0 ? RANK_CPU : RANK_HOST;
  const char *name = brim_arena_printf(&s->arena, "%s:%d", backend, index);
  if (brim_device_is_shared(info) && info->free_bytes < s->wanted->min_bytes) {
    char free_bytes[32], total[32];
    brim_format_bytes(free_bytes, sizeof free_bytes, info->free_bytes);
    brim_format_bytes(total, sizeof total, info->total_bytes);
    pass_over(s, name, brim_arena_printf(&s->arena, " has %s of %s free", free_bytes, total));
    return;
  }
  if (rank < s->rank) return;
  s->count = rank > s->rank ? 1 : s->count + 1;
  if (rank == s->rank && info->free_bytes <= s->best.info.free_bytes) return;
  s->rank = rank;
  s->named = named;
  s->best.info = *info;
  snprintf(s->best.name, sizeof s->best.name, "%s", name);
}

/* Considers all devices of a backend, or none: if one cannot be described, brim does not trust the driver. */
static brim_status consider_devices(search *s, const brim_plugin *plugin, void *self)
{
  static const brim_device_wish any = {.device = "auto", .most_free = true};
  const brim_backend_ops *ops = plugin->ops;
  const int count = ops->device_count(self);
  int named = -1;
  brim_device_info *info = count > 0 ? BRIM_ARENA_NEW(&s->arena, brim_device_info, count) : NULL;
  brim_status status = count > 0 ? BRIM_OK : brim_fail(BRIM_ENODEVICE, "the backend has no device on this host");
  for (int i = 0; i < count && status == BRIM_OK; i++) status = ops->describe(self, i, &info[i]);
  if (status != BRIM_OK) {
    pass_over_backend(s, plugin->id, brim_error_text());
    return BRIM_OK;
  }
  BRIM_TRY(brim_device_named(plugin->id, ops, self, &any, &named));
  for (int i = 0; i < count; i++)
    if (named < 0 || i == named) consider(s, plugin->id, i, &info[i], named >= 0);
  return BRIM_OK;
}

static brim_status consider_backend(search *s, const brim_plugin *plugin)
{
  const brim_device_search *q = s->wanted;
  void *self = NULL;
  brim_status status = brim_instance_with(plugin, q->option, q->option_count, &s->arena, &self);
  if (status == BRIM_ECONFIG && !is_any(q)) return brim_fail_add(status, "in a parameter of backend '%s'", plugin->id);
  if (status != BRIM_OK) {
    pass_over_backend(s, plugin->id, brim_error_text());
    return BRIM_OK;
  }
  status = consider_devices(s, plugin, self);
  if (plugin->destroy) plugin->destroy(self);
  return status;
}

static brim_status consider_named(search *s, const brim_registry *registry, const char *id)
{
  const brim_registry_entry *entry = brim_registry_find(registry, BRIM_BACKEND, id);
  if (entry) return consider_backend(s, entry->plugin);
  const brim_registry_failure *failure = brim_registry_failure_of(registry, BRIM_BACKEND, id);
  if (failure)
    return brim_fail(BRIM_ELOAD, "backend '%s' could not be loaded\n%s: %s", id, failure->file, failure->reason);
  brim_fail(BRIM_EINVAL, "there is no backend '%s'", id);
  for (size_t i = 0; i < brim_registry_count(registry); i++) {
    const brim_plugin *plugin = brim_registry_at(registry, i)->plugin;
    if (plugin->kind == BRIM_BACKEND) brim_fail_add(BRIM_EINVAL, "there is %s: %s", plugin->id, plugin->help);
  }
  return BRIM_EINVAL;
}

static brim_status consider_all(search *s, const brim_registry *registry)
{
  if (s->wanted->option_count > 0)
    return brim_fail(BRIM_EINVAL, "'%s' needs a backend: name the one that the parameter belongs to",
                     s->wanted->option[0]);
  for (size_t i = 0; i < brim_registry_count(registry); i++) {
    const brim_plugin *plugin = brim_registry_at(registry, i)->plugin;
    if (plugin->kind != BRIM_BACKEND) continue;
    if (!brim_registry_find(registry, BRIM_BACKEND, plugin->id)) continue; /* hidden by a file that failed to load */
    BRIM_TRY(consider_backend(s, plugin));
  }
  /* brim's own backends that need external libraries */
  static const char *const own[] = {"cuda", "cpu"};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    const brim_registry_failure *failure = brim_registry_failure_of(registry, BRIM_BACKEND, own[i]);
    if (failure) pass_over_backend(s, own[i], failure->reason);
  }
  return BRIM_OK;
}

static void explain(search *s)
{
  char *reason = s->best.reason;
  const size_t room = sizeof s->best.reason;
  const char *what = s->rank == RANK_GPU ? "GPU" : "device";
  const char *passed = s->passed.length ? brim_arena_printf(&s->arena, " (%s)", brim_text_str(&s->passed)) : "";
  if (s->named)
    snprintf(reason, room, "GPU_DEVICE_ID names it");
  else if (s->rank != RANK_GPU && is_any(s->wanted))
    snprintf(reason, room, "the host, since no GPU can be used%s", passed);
  else if (s->count > 1)
    snprintf(reason, room, "the most free memory of %d %ss%s", s->count, what, passed);
  else
    snprintf(reason, room, "the only %s that can be used%s", what, passed);
}

brim_status brim_device_best(const brim_device_search *wanted, brim_device_choice *out)
{
  search s = {.wanted = wanted};
  brim_registry *registry = NULL;
  BRIM_TRY(brim_registry_open(brim_core_plugins, wanted->plugin_path, wanted->plugin_path_count, &registry));
  brim_status status = is_any(wanted) ? consider_all(&s, registry) : consider_named(&s, registry, wanted->backend);
  if (status == BRIM_OK && s.rank == RANK_NONE) {
    char bytes[32], need[64] = "";
    brim_format_bytes(bytes, sizeof bytes, wanted->min_bytes);
    if (wanted->min_bytes > 0) snprintf(need, sizeof need, " with %s free", bytes);
    status = brim_fail(BRIM_ENODEVICE, "no device%s can be used: %s", need, brim_text_str(&s.passed));
  }
  if (status == BRIM_OK) {
    explain(&s);
    *out = s.best;
  }
  brim_text_release(&s.passed);
  brim_arena_release(&s.arena);
  brim_registry_free(registry);
  return status;
}
