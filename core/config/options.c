/* Groups and their options: lists and finds them, determines choices, and reports missing ones. Used by composition and
 * interpolation. */
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "brim/backend.h"
#include "brim/model.h"
#include "config/compose.h"
#include "config/gguf_config.h"
#include "param/json.h"
#include "plugin/instance.h"

/* ---- files ---- */

static const brim_source *load_source(brim_composition *c, const char *path)
{
  for (size_t i = 0; i < c->source_count; i++)
    if (strcmp(c->source[i]->path, path) == 0) return c->source[i];
  brim_source *s = BRIM_ARENA_NEW(c->arena, brim_source, 1);
  BRIM_ARENA_GROW(c->arena, c->source, c->source_count, c->source_room);
  c->source[c->source_count++] = s;
  s->path = brim_arena_string(c->arena, path);
  const char *suffix = strrchr(path, '.');
  const bool is_json = suffix && strcmp(suffix, ".json") == 0;
  s->status = brim_is_gguf(path) ? brim_gguf_config(c->arena, path, &s->node)
              : is_json          ? brim_json_parse_file(c->arena, path, &s->node)
                                 : brim_yaml_parse_file(c->arena, path, &s->node);
  if (s->status == BRIM_OK && brim_yaml_is_null(s->node)) s->node = brim_yaml_map(c->arena, s->node->origin);
  if (s->status == BRIM_OK && s->node->kind != BRIM_YAML_MAP)
    s->status = brim_fail(BRIM_ECONFIG, "a configuration is a map of keys\n  %s:%d:%d", path, s->node->origin.line,
                          s->node->origin.column);
  if (s->status != BRIM_OK) {
    s->node = NULL;
    s->problem = brim_arena_string(c->arena, brim_error_text());
  }
  return s;
}

brim_yaml *brim_compose_source(brim_composition *c, const char *path)
{
  const brim_source *s = load_source(c, path);
  if (!s->node) brim_problem(&c->problems, s->status, "%s", s->problem);
  return s->node;
}

/* ---- groups ---- */

static const brim_group *group_of(const char *name)
{
  return brim_group_find(name, strlen(name));
}

uint32_t brim_compose_group_kind(const char *group)
{
  const brim_group *g = group_of(group);
  return g ? g->kind : 0;
}

brim_chosen *brim_compose_chosen(const brim_composition *c, const char *group)
{
  for (size_t i = 0; i < c->chosen_count; i++)
    if (strcmp(c->chosen[i]->group, group) == 0) return c->chosen[i];
  return NULL;
}

bool brim_compose_is_broken(const brim_composition *c, const char *path)
{
  const brim_group *g = brim_group_find(path, strcspn(path, "."));
  return g && c->group_broken[g - brim_config_groups];
}

bool brim_compose_is_list(const char *group)
{
  const brim_group *g = group_of(group);
  return g && g->list;
}

const char *brim_compose_fallback(const brim_composition *c, const char *group)
{
  const brim_group *g = group_of(group);
  return g && g->list && brim_registry_find(c->registry, g->kind, g->list) ? g->list : NULL;
}

const char *brim_compose_option_text(const brim_composition *c, const char *group, const brim_yaml *value)
{
  const char *text = "";
  if (value->kind == BRIM_YAML_SCALAR) return value->scalar;
  if (value->kind != BRIM_YAML_LIST || !brim_compose_is_list(group)) return NULL;
  for (size_t i = 0; i < value->count; i++) {
    if (value->item[i]->kind != BRIM_YAML_SCALAR) return NULL;
    text = brim_arena_printf(c->arena, "%s%s%s", text, i ? "," : "", value->item[i]->scalar);
  }
  return text;
}

/* Whether a folder on the search path is not a group: name maps for model.weights_map, families of language models, and
 * the scenarios of `brim simulate`. */
static bool is_folder_of_others(const char *name)
{
  return strcmp(name, "weights") == 0 || strcmp(name, "family") == 0 || strcmp(name, "scenario") == 0;
}

bool brim_compose_is_group(const brim_composition *c, const char *key)
{
  if (brim_compose_group_kind(key) || strcmp(key, "experiment") == 0) return true;
  if (key[0] == '\0' || strpbrk(key, "./") || brim_setting_find("", key, strlen(key)) || is_folder_of_others(key))
    return false;
  for (size_t i = 0; i < c->request->search_count; i++) {
    struct stat info;
    const char *path = brim_arena_printf(c->arena, "%s/%s", c->request->search[i], key);
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return true;
  }
  return false;
}

/* Returns the folder of options that a group shares with another one: a backbone may be any of the models, a server's
 * optimizer any of the optimizers. NULL: none. */
static const char *shared_folder(const char *group)
{
  const brim_group *second = group_of(group);
  for (const brim_group *g = brim_config_groups; second && second->is_optional && g->name; g++)
    if (!g->is_optional && g->kind == second->kind) return g->name;
  return NULL;
}

static const char *file_in(const brim_composition *c, const char *folder, const char *option)
{
  const char *suffix = brim_ends_with(option, ".yaml") ? "" : ".yaml";
  for (size_t i = 0; i < c->request->search_count; i++) {
    const char *path =
        brim_arena_printf(c->arena, "%s/%s%s%s%s", c->request->search[i], folder, folder[0] ? "/" : "", option, suffix);
    if (access(path, F_OK) == 0) return path;
  }
  return NULL;
}

const char *brim_compose_option_file(const brim_composition *c, const char *group, const char *option)
{
  if (option[0] == '\0' || option[0] == '/' || strstr(option, "..")) return NULL;
  const char *path = file_in(c, group, option), *shared = shared_folder(group);
  return path || !shared ? path : file_in(c, shared, option);
}

static bool has_option(const brim_composition *c, const char *group, const char *option)
{
  const uint32_t kind = brim_compose_group_kind(group);
  return brim_compose_option_file(c, group, option) || (kind && brim_registry_find(c->registry, kind, option));
}

bool brim_compose_has_options(const brim_composition *c, const char *group, const char *names)
{
  if (!names || !brim_compose_is_list(group)) return names && has_option(c, group, names);
  for (const char *s = names; *s; s += strcspn(s, ","), s += *s == ',')
    if (!has_option(c, group, brim_arena_string_n(c->arena, s, strcspn(s, ",")))) return false;
  return true;
}

/* Adds the names of the *.yaml files in a folder. */
static void add_files(brim_arena *arena, const char *folder, brim_yaml *names)
{
  const char **file;
  size_t count;
  if (!brim_folder_names(arena, folder, &file, &count)) return;
  for (size_t i = 0; i < count; i++) {
    if (!brim_ends_with(file[i], ".yaml")) continue;
    const char *name = brim_arena_string_n(arena, file[i], strlen(file[i]) - strlen(".yaml"));
    brim_yaml_append(arena, names, brim_yaml_scalar(arena, name, (brim_yaml_origin){0}));
  }
}

bool brim_is_wrapper(const brim_plugin *plugin)
{
  const brim_model_ops *ops = plugin && plugin->kind == BRIM_MODEL ? plugin->ops : NULL;
  return ops && ops->size >= offsetof(brim_model_ops, wraps) + sizeof ops->wraps && ops->wraps != BRIM_WRAPS_NOTHING;
}

/* Whether the group may use the plugin: a wrapped model cannot be a wrapper itself. */
static bool suits(const char *group, const brim_plugin *plugin)
{
  const brim_group *g = group_of(group);
  return g && plugin->kind == (uint32_t)g->kind && !(g->is_optional && brim_is_wrapper(plugin));
}

size_t brim_compose_options(const brim_composition *c, const char *group, const char ***out)
{
  brim_arena *arena = c->arena;
  brim_yaml *found = brim_yaml_list(arena, (brim_yaml_origin){0});
  const char *const folder[] = {group, shared_folder(group)};
  for (size_t i = 0; i < 2 * c->request->search_count; i++)
    if (folder[i % 2])
      add_files(arena, brim_arena_printf(arena, "%s/%s", c->request->search[i / 2], folder[i % 2]), found);
  const uint32_t kind = brim_compose_group_kind(group);
  const size_t plugins = kind ? brim_registry_count(c->registry) : 0;
  for (size_t i = 0; i < plugins; i++) {
    const brim_plugin *plugin = brim_registry_at(c->registry, i)->plugin;
    if (suits(group, plugin))
      brim_yaml_append(arena, found, brim_yaml_scalar(arena, plugin->id, (brim_yaml_origin){0}));
  }
  if (kind == BRIM_BACKEND) brim_yaml_append(arena, found, brim_yaml_scalar(arena, "auto", (brim_yaml_origin){0}));
  const char **name = BRIM_ARENA_NEW(arena, const char *, found->count);
  for (size_t i = 0; i < found->count; i++) name[i] = found->item[i]->scalar;
  if (found->count) qsort(name, found->count, sizeof *name, brim_compare_strings);
  size_t count = 0;
  for (size_t i = 0; i < found->count; i++)
    if (count == 0 || strcmp(name[count - 1], name[i]) != 0) name[count++] = name[i];
  *out = name;
  return count;
}

void brim_compose_hint_available(brim_composition *c, const char *group, const char *written)
{
  const char **name = NULL;
  const size_t count = brim_compose_options(c, group, &name);
  const char *meant = written ? brim_suggest_of(written, name, count) : NULL;
  brim_text searched = {0};
  if (meant) brim_problem_hint(&c->problems, "did you mean '%s'?", meant);
  for (size_t i = 0; i < c->request->search_count; i++)
    brim_text_printf(&searched, "%s %s", i ? "" : "searched:", c->request->search[i]);
  brim_problem_hint_names(&c->problems, count ? "available:" : "available: none", name, count,
                          searched.length ? searched.s : NULL);
  brim_text_release(&searched);
}

/* Reports why the plugin of that name could not be loaded; false: it was not found. */
static bool report_failure(brim_composition *c, const char *group, const char *id, const brim_yaml_origin *origin)
{
  const uint32_t kind = brim_compose_group_kind(group);
  const brim_registry_failure *failure = kind ? brim_registry_failure_of(c->registry, kind, id) : NULL;
  if (!failure) return false;
  brim_text reason = {0};
  for (const char *s = failure->reason; *s; s++) brim_text_add_n(&reason, *s == '\n' ? "\n  " : s, *s == '\n' ? 3 : 1);
  c->problems.load = true;
  brim_problem_at(&c->problems, origin, "%s '%s' could not be loaded\n  %s: %s", group, id, failure->file,
                  brim_text_str(&reason));
  brim_text_release(&reason);
  return true;
}

static const brim_yaml_origin *file_of(const brim_yaml_origin *origin)
{
  return origin && !origin->text ? origin : NULL;
}

void brim_compose_no_option(brim_composition *c, const char *group, const char *option, const brim_yaml_origin *origin)
{
  if (report_failure(c, group, option, file_of(origin))) return;
  brim_problem_at(&c->problems, file_of(origin), "no option '%s' in group '%s'", option, group);
  if (brim_compose_group_kind(group) == BRIM_BACKEND && strcmp(option, "cuda") == 0)
    brim_problem_hint(&c->problems, "brim was built without it: it needs the CUDA toolkit and cuDNN to be built");
  brim_compose_hint_available(c, group, option);
}

/* Adds the file from which the run loaded the plugin. */
static void hint_former_file(brim_composition *c, const char *group, const char *id)
{
  const brim_config_request *r = c->request;
  const char *file = r->file && r->plugin_file ? r->plugin_file(c->arena, r->file, group, id) : NULL;
  if (!file) return;
  if (access(file, R_OK) == 0)
    brim_problem_hint(&c->problems, "the run loaded it from %s: add --plugin-path %s", file, file);
  else
    brim_problem_hint(&c->problems,
                      "the run loaded it from %s, which no longer exists: pass its new path with --plugin-path FILE",
                      file);
}

void brim_compose_no_plugin(brim_composition *c, const char *group, const char *id, const brim_yaml_origin *origin)
{
  if (report_failure(c, group, id, file_of(origin))) return;
  brim_text found = {0};
  const char *meant = NULL;
  int distance = INT_MAX;
  for (size_t i = 0; i < brim_registry_count(c->registry); i++) {
    const brim_plugin *plugin = brim_registry_at(c->registry, i)->plugin;
    if (plugin->kind != brim_compose_group_kind(group)) continue;
    brim_text_printf(&found, " %s", plugin->id);
    brim_suggest(id, plugin->id, &distance, &meant);
  }
  brim_problem_at(&c->problems, file_of(origin), "no plugin '%s' for group '%s' was found", id, group);
  if (meant) brim_problem_hint(&c->problems, "did you mean '%s'?", meant);
  hint_former_file(c, group, id);
  brim_problem_hint(&c->problems, "found:%s   (brim plugins says where)", found.length > 0 ? found.s : " none");
  brim_text_release(&found);
}

/* Returns the value of `device` if the command line or the root file sets it without interpolation; else "auto". */
static const char *wanted_device(brim_composition *c)
{
  static const char key[] = "device=";
  for (size_t i = c->request->override_count; i-- > 0;) {
    const char *word = c->request->overrides[i] + strspn(c->request->overrides[i], "+");
    if (strncmp(word, key, sizeof key - 1) == 0) return word + sizeof key - 1;
  }
  const char *path = c->request->file;
  if (!path) path = brim_compose_option_file(c, "", c->request->name ? c->request->name : "config");
  const brim_yaml *root = path ? brim_compose_source(c, path) : NULL;
  const brim_yaml *device = root ? brim_yaml_get(root, "device") : NULL;
  return device && device->kind == BRIM_YAML_SCALAR ? device->scalar : "auto";
}

/* Whether a backend has a device. If not, sets c->auto_reason. */
static bool has_device(brim_composition *c, const brim_plugin *plugin)
{
  void *self = NULL;
  if (brim_instance_default(plugin, c->arena, &self) != BRIM_OK) {
    c->auto_reason = brim_arena_string(c->arena, brim_error_text());
    return false;
  }
  const int count = ((const brim_backend_ops *)plugin->ops)->device_count(self);
  if (plugin->destroy) plugin->destroy(self);
  if (count < 1) c->auto_reason = "there is no device for it on this host";
  return count > 0;
}

/* Finds a backend in its file backend/ID.so. NULL if there is no such file, or, with *failure set, if the file cannot
 * be loaded. Searches other files only if no backend has a file of this form, because brim would have to load every
 * plugin to learn that none of them is this backend. */
static const brim_registry_entry *find_in_file(const brim_registry *registry, const char *backend,
                                               const brim_registry_failure **failure)
{
  const char *id;
  size_t i = 0;
  *failure = NULL;
  while ((id = brim_registry_home(registry, BRIM_BACKEND, i)) && strcmp(id, backend) != 0) i++;
  const bool searches = id || i == 0;
  const brim_registry_entry *entry = searches ? brim_registry_find(registry, BRIM_BACKEND, backend) : NULL;
  if (searches && !entry) *failure = brim_registry_failure_of(registry, BRIM_BACKEND, backend);
  return entry;
}

static const char *choose_backend(brim_composition *c)
{
  const char *device = wanted_device(c);
  const char *named = brim_arena_string_n(c->arena, device, strcspn(device, ":"));
  if (strcmp(named, "auto") != 0 && brim_registry_find(c->registry, BRIM_BACKEND, named)) return named;
  if (strcmp(named, "cuda") == 0) return named; /* if cuda cannot be loaded or was not built, the error will say so */
  const brim_registry_failure *failure;
  const brim_registry_entry *gpu = find_in_file(c->registry, "cuda", &failure);
  if (gpu && has_device(c, gpu->plugin)) return "cuda";
  if (failure) c->auto_reason = brim_arena_printf(c->arena, "%s: %s", failure->file, failure->reason);
  const bool cpu = find_in_file(c->registry, "cpu", &failure) != NULL;
  if (failure)
    brim_log(BRIM_LOG_WARN, "backend=auto uses 'reference', which is slow, as 'cpu' could not be loaded\n%s: %s",
             failure->file, failure->reason);
  return cpu ? "cpu" : "reference";
}

const char *brim_compose_auto_backend(brim_composition *c)
{
  if (!c->auto_backend) c->auto_backend = choose_backend(c);
  return c->auto_backend;
}
