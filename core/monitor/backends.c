/* See backends.h. */
#include "monitor/backends.h"

#include <stdlib.h>
#include <string.h>

#include "memory/claims.h"
#include "plugin/instance.h"

static void add(brim_backends *b, brim_arena *arena, brim_backend_seen backend)
{
  BRIM_ARENA_GROW(arena, b->backend, b->count, b->room);
  b->backend[b->count++] = backend;
}

static void add_failure(brim_backends *b, brim_arena *arena, const char *id, const char *reason)
{
  add(b, arena, (brim_backend_seen){.id = brim_arena_string(arena, id), .failure = brim_arena_string(arena, reason)});
}

/* Returns the id of a backend whose file KIND/ID.so could not be loaded. NULL if the file is of another kind. */
static const char *backend_of_file(brim_arena *arena, const char *file)
{
  const char *slash = strrchr(file, '/');
  const size_t folder = slash ? (size_t)(slash - file) : 0;
  static const char kind[] = "backend";
  const size_t length = sizeof kind - 1;
  if (folder < length || strncmp(file + folder - length, kind, length) != 0) return NULL;
  if (folder > length && file[folder - length - 1] != '/') return NULL;
  return brim_arena_string_n(arena, slash + 1, strcspn(slash + 1, "."));
}

static brim_status make_instance(const brim_config *config, const brim_plugin *plugin, brim_arena *arena, void **self)
{
  const brim_config_choice *choice = config ? brim_config_choice_of(config, "backend") : NULL;
  if (!choice || choice->plugin != plugin) return brim_instance_default(plugin, arena, self);
  *self = choice->params;
  return plugin->create ? plugin->create(choice->params, self) : BRIM_OK;
}

static brim_status open_backend(brim_backends *b, const brim_registry_entry *entry, const brim_config *config,
                                brim_arena *arena)
{
  const brim_plugin *plugin = entry->plugin;
  brim_backend_seen seen = {.id = plugin->id, .entry = entry, .ops = plugin->ops};
  BRIM_TRY(make_instance(config, plugin, arena, &seen.self));
  seen.devices = seen.ops->device_count(seen.self);
  if (seen.devices < 1) {
    if (plugin->destroy) plugin->destroy(seen.self);
    return brim_fail(BRIM_ENODEVICE, "there is no device for it on this host");
  }
  add(b, arena, seen);
  return BRIM_OK;
}

void brim_backends_open(const brim_registry *registry, const brim_config *config, brim_arena *arena, brim_backends *out)
{
  *out = (brim_backends){0};
  for (size_t i = 0; i < brim_registry_count(registry); i++) {
    const brim_registry_entry *entry = brim_registry_at(registry, i);
    const brim_plugin *plugin = entry->plugin;
    if (plugin->kind != BRIM_BACKEND) continue;
    if (!brim_registry_find(registry, BRIM_BACKEND, plugin->id))
      continue; /* hidden by a file that failed to load, which is listed below */
    if (open_backend(out, entry, config, arena) != BRIM_OK) add_failure(out, arena, plugin->id, brim_error_text());
  }
  for (size_t i = 0; i < brim_registry_failure_count(registry); i++) {
    const brim_registry_failure *failure = brim_registry_failure_at(registry, i);
    const char *id = backend_of_file(arena, failure->file);
    if (id && !brim_registry_find(registry, BRIM_BACKEND, id)) add_failure(out, arena, id, failure->reason);
  }
}

void brim_backends_close(brim_backends *b)
{
  for (size_t i = 0; i < b->count; i++) {
    const brim_backend_seen *seen = &b->backend[i];
    if (!seen->failure && seen->entry->plugin->destroy) seen->entry->plugin->destroy(seen->self);
  }
  *b = (brim_backends){0};
}

brim_status brim_device_see(const brim_backend_seen *b, int device, brim_arena *arena, brim_device_seen *out)
{
  *out = (brim_device_seen){.has_users = false};
  BRIM_TRY(b->ops->describe(b->self, device, &out->info));
  out->key = brim_device_key(b->id, device, b->devices, &out->info);
  const bool is_host = out->info.on_host && !out->info.limited;
  if (is_host || !BRIM_HAS(brim_backend_ops, b->ops, users)) return BRIM_OK;
  size_t count = 0;
  out->user = BRIM_ARENA_NEW(arena, brim_device_user, BRIM_USERS_MAX);
  out->has_users = b->ops->users(b->self, device, out->user, BRIM_USERS_MAX, &count) == BRIM_OK;
  if (!out->has_users) out->users_failure = brim_arena_string(arena, brim_error_text());
  if (out->has_users) out->users = count < BRIM_USERS_MAX ? count : BRIM_USERS_MAX;
  return BRIM_OK;
}
