/* Lists the files of the sources, loads them on demand, and decides which of several plugins of one name brim uses.
 *
 * A source is a folder or a file that the user named. Each of its files is listed with the kind and id that its path
 * suggests (".../model/cnn.so" is the home of model/cnn). Plugins are kept sorted by kind, id and rank; the rank is the
 * source, then the home file before others, then the file's name. The first plugin of a kind and id wins. find() never
 * returns a plugin if a later load could find one of a higher rank: before it goes to the next source, it has tried
 * this source's home file or loaded the whole source. */
#include "plugin/registry.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/install.h"
#include "base/text.h"
#include "plugin/loader.h"

#define DEPTH_MAX 4    /* sub-folders below a source */
#define FILES_MAX 4096 /* limit for all sources together: a plugin path to a whole disk is a mistake */

enum file_state { FILE_LISTED, FILE_LOADED, FILE_FAILED };

typedef struct plugin_file {
  const char *path;
  uint32_t kind; /* the file is the home of this kind and id; 0: of none */
  const char *id;
  size_t source; /* from 1; 0: the core itself */
  size_t index;  /* in registry->file */
  dev_t device;
  ino_t inode;
  enum file_state state;
  const brim_registry_failure *failure;
  bool warned; /* brim has warned that its home plugin is hidden */
} plugin_file;

typedef struct held_plugin {
  brim_registry_entry entry;
  plugin_file *file; /* NULL: the core's own */
} held_plugin;

struct brim_registry {
  brim_arena arena;
  plugin_file **file;
  size_t file_count, source_count, loaded_count;
  uint32_t only;        /* kind of home files to list; 0: all */
  held_plugin **plugin; /* sorted, hidden ones included */
  size_t plugin_count;
  const brim_registry_failure **failure;
  size_t failure_count;
  const char *configs[BRIM_REGISTRY_CONFIGS_MAX]; /* folders */
  size_t configs_count;
};

/* Makes room for one more pointer in an array that has `count`; its room is the power of two above. */
static void *grown(void *array, size_t count)
{
  if (count & (count - 1)) return array;
  return brim_xrealloc(array, (count ? 2 * count : 1) * sizeof(void *));
}

static void add_failure(brim_registry *r, plugin_file *file, const char *path, const char *reason)
{
  brim_registry_failure *failure = BRIM_ARENA_NEW(&r->arena, brim_registry_failure, 1);
  failure->file = path;
  failure->reason = brim_arena_string(&r->arena, reason);
  r->failure = grown(r->failure, r->failure_count);
  r->failure[r->failure_count++] = failure;
  if (file) {
    file->state = FILE_FAILED;
    file->failure = failure;
  }
}

/* ---- plugins: order, precedence ---- */

static bool is_home(const held_plugin *held)
{
  return held->file && held->file->kind == held->entry.plugin->kind &&
         strcmp(held->file->id, held->entry.plugin->id) == 0;
}

static int compare_names(const brim_plugin *a, const brim_plugin *b)
{
  if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
  return strcmp(a->id, b->id);
}

static int compare_held(const held_plugin *a, const held_plugin *b)
{
  const int names = compare_names(a->entry.plugin, b->entry.plugin);
  if (names != 0) return names;
  const size_t source_a = a->file ? a->file->source : 0, source_b = b->file ? b->file->source : 0;
  if (source_a != source_b) return source_a < source_b ? -1 : 1;
  if (is_home(a) != is_home(b)) return is_home(a) ? -1 : 1;
  if (!a->file || !b->file) return 0;
  return a->file->index < b->file->index ? -1 : 1;
}

static void warn_hidden(const brim_plugin *plugin, const char *winner, const char *hidden)
{
  brim_log(BRIM_LOG_WARN, "%s/%s is taken from %s; the one in %s is hidden", brim_kind_name(plugin->kind), plugin->id,
           winner[0] ? winner : "brim itself", hidden);
}

/* Warns if the plugin at `i` hides others of its kind and id. */
static void warn_of_duplicate(const brim_registry *r, size_t i)
{
  const held_plugin *const added = r->plugin[i];
  const held_plugin *winner = added, *hidden = NULL;
  if (i > 0 && compare_names(r->plugin[i - 1]->entry.plugin, added->entry.plugin) == 0) {
    for (; i > 0 && compare_names(r->plugin[i - 1]->entry.plugin, added->entry.plugin) == 0; i--)
      winner = r->plugin[i - 1];
    hidden = added;
  } else if (i + 1 < r->plugin_count && compare_names(r->plugin[i + 1]->entry.plugin, added->entry.plugin) == 0) {
    hidden = r->plugin[i + 1];
  }
  if (!hidden || !hidden->file) return;
  if (is_home(hidden)) {
    if (hidden->file->warned) return;
    hidden->file->warned = true;
  }
  warn_hidden(added->entry.plugin, winner->entry.file, hidden->entry.file);
}

static void add_plugin(brim_registry *r, const brim_plugin *plugin, const brim_module *module, plugin_file *file)
{
  held_plugin *held = BRIM_ARENA_NEW(&r->arena, held_plugin, 1);
  held->entry = (brim_registry_entry){plugin, module, file ? file->path : ""};
  held->file = file;
  r->plugin = grown(r->plugin, r->plugin_count);
  size_t at = r->plugin_count++;
  for (; at > 0 && compare_held(held, r->plugin[at - 1]) < 0; at--) r->plugin[at] = r->plugin[at - 1];
  r->plugin[at] = held;
  warn_of_duplicate(r, at);
}

static const brim_registry_entry *winner_of(const brim_registry *r, uint32_t kind, const char *id, size_t source)
{
  for (size_t i = 0; i < r->plugin_count; i++) {
    const held_plugin *held = r->plugin[i];
    if (held->entry.plugin->kind != kind || strcmp(held->entry.plugin->id, id) != 0) continue;
    return (held->file ? held->file->source : 0) <= source ? &held->entry : NULL;
  }
  return NULL;
}

/* ---- files: listing, loading ---- */

/* Sets the kind and id that the path suggests, if it ends in KIND/ID.so. */
static void set_home(brim_registry *r, plugin_file *file)
{
  const char *name = strrchr(file->path, '/');
  if (!name) return;
  const char *folder = name;
  while (folder > file->path && folder[-1] != '/') folder--;
  file->kind = brim_kind_by_name(brim_arena_string_n(&r->arena, folder, (size_t)(name - folder)));
  if (file->kind) file->id = brim_arena_string_n(&r->arena, name + 1, strlen(name + 1) - strlen(".so"));
}

/* Lists a file unless it is listed already, perhaps under another name. */
static plugin_file *list_file(brim_registry *r, const char *path, const struct stat *info)
{
  for (size_t i = 0; i < r->file_count; i++)
    if (r->file[i]->device == info->st_dev && r->file[i]->inode == info->st_ino) return r->file[i];
  plugin_file *file = BRIM_ARENA_NEW(&r->arena, plugin_file, 1);
  file->path = brim_arena_string(&r->arena, path);
  file->source = r->source_count;
  file->index = r->file_count;
  file->device = info->st_dev;
  file->inode = info->st_ino;
  if (brim_ends_with(path, ".so")) set_home(r, file);
  r->file = grown(r->file, r->file_count);
  r->file[r->file_count++] = file;
  return file;
}

static void load_file(brim_registry *r, plugin_file *file)
{
  if (file->state != FILE_LISTED) return;
  const brim_module *module = NULL;
  r->loaded_count++;
  if (brim_loader_load(file->path, &module) != BRIM_OK) {
    add_failure(r, file, file->path, brim_error_text());
    return;
  }
  file->state = FILE_LOADED;
  for (size_t i = 0; module->plugins[i]; i++) add_plugin(r, module->plugins[i], module, file);
}

/* Loads all files of a source, or of all sources if it is 0; if the registry is for one kind, only files of that
 * kind. */
static void load_source(const brim_registry *registry, size_t source)
{
  brim_registry *r = (brim_registry *)registry; /* loads files, but does not change which plugins exist */
  if (r->loaded_count == r->file_count) return;
  for (size_t i = 0; i < r->file_count; i++) {
    plugin_file *file = r->file[i];
    const bool is_other = r->only && file->kind && file->kind != r->only;
    if (!is_other && (source == 0 || file->source == source)) load_file(r, file);
  }
}

static brim_status scan(brim_registry *r, const char *folder, int depth)
{
  const char **name = NULL;
  size_t count = 0;
  if (!brim_folder_names(&r->arena, folder, &name, &count))
    return brim_fail(BRIM_ELOAD, "cannot be read: %s", strerror(errno));
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < count && status == BRIM_OK; i++) {
    const char *path = brim_arena_printf(&r->arena, "%s%s%s", folder, brim_ends_with(folder, "/") ? "" : "/", name[i]);
    struct stat info;
    if (stat(path, &info) != 0) {
      if (brim_ends_with(path, ".so")) add_failure(r, NULL, path, "is a link to a file that does not exist");
    } else if (S_ISDIR(info.st_mode)) {
      if (depth < DEPTH_MAX && scan(r, path, depth + 1) != BRIM_OK) add_failure(r, NULL, path, brim_error_text());
    } else if (brim_ends_with(path, ".so")) {
      if (r->file_count == FILES_MAX)
        status = brim_fail(
            BRIM_ELOAD,
            "brings the number of *.so files in all plugin folders to more than %d: is it a folder of plugins?",
            FILES_MAX);
      else
        list_file(r, path, &info);
    }
  }
  return status;
}

/* ---- public functions ---- */

brim_registry *brim_registry_create(const brim_plugin *const *own)
{
  brim_registry *r = brim_xcalloc(1, sizeof *r);
  for (size_t i = 0; own[i]; i++) add_plugin(r, own[i], NULL, NULL);
  return r;
}

void brim_registry_free(brim_registry *registry)
{
  if (!registry) return;
  free(registry->file);
  free(registry->plugin);
  free(registry->failure);
  brim_arena_release(&registry->arena);
  free(registry);
}

brim_status brim_registry_load(brim_registry *registry, const char *file)
{
  struct stat info;
  if (stat(file, &info) != 0) return brim_fail(BRIM_ELOAD, "no plugin file '%s': %s", file, strerror(errno));
  registry->source_count++;
  plugin_file *listed = list_file(registry, file, &info);
  load_file(registry, listed);
  if (listed->state == FILE_FAILED) return brim_fail(BRIM_ELOAD, "the plugin '%s' %s", file, listed->failure->reason);
  return BRIM_OK;
}

brim_status brim_registry_scan(brim_registry *registry, const char *folder)
{
  registry->source_count++;
  if (scan(registry, folder, 0) != BRIM_OK)
    return brim_fail(BRIM_ELOAD, "the plugin folder '%s' %s", folder, brim_error_text());
  return BRIM_OK;
}

/* Adds a file, a folder of plugins, or a folder in the layout of an installation. */
static brim_status add_path(brim_registry *r, const char *path)
{
  struct stat info;
  if (stat(path, &info) == 0 && !S_ISDIR(info.st_mode)) return brim_registry_load(r, path);
  const char *slash = brim_ends_with(path, "/") ? "" : "/";
  const char *plugins = brim_arena_printf(&r->arena, "%s%s%s", path, slash, BRIM_INSTALL_PLUGINS);
  const char *configs = brim_arena_printf(&r->arena, "%s%s%s", path, slash, BRIM_INSTALL_CONFIGS);
  if (!brim_is_folder(plugins)) return brim_registry_scan(r, path);
  if (brim_is_folder(configs)) {
    if (r->configs_count < BRIM_REGISTRY_CONFIGS_MAX)
      r->configs[r->configs_count++] = configs;
    else
      brim_log(BRIM_LOG_WARN, "ignoring configurations in %s: there are more than %d such folders", configs,
               BRIM_REGISTRY_CONFIGS_MAX);
  }
  return brim_registry_scan(r, plugins);
}

brim_status brim_registry_open(const brim_plugin *const *own, const char *const *paths, size_t count,
                               brim_registry **out)
{
  *out = NULL;
  brim_registry *r = brim_registry_create(own);
  for (size_t i = 0; i < count; i++)
    if (add_path(r, paths[i]) != BRIM_OK) {
      brim_registry_free(r);
      return BRIM_ELOAD;
    }
  const char *list = getenv("BRIM_PLUGIN_PATH");
  while (list && *list) {
    const size_t length = strcspn(list, ":");
    if (length > 0 && add_path(r, brim_arena_string_n(&r->arena, list, length)) != BRIM_OK)
      brim_log(BRIM_LOG_WARN, "BRIM_PLUGIN_PATH: %s", brim_error_text());
    list += length + (list[length] == ':');
  }
  char installed[PATH_MAX];
  if (brim_install_dir(installed, sizeof installed, BRIM_INSTALL_PLUGINS) &&
      brim_registry_scan(r, installed) != BRIM_OK)
    brim_log(BRIM_LOG_WARN, "%s", brim_error_text());
  *out = r;
  return BRIM_OK;
}

static plugin_file *home_of(const brim_registry *r, uint32_t kind, const char *id, size_t source)
{
  for (size_t i = 0; i < r->file_count; i++) {
    plugin_file *file = r->file[i];
    if (file->source == source && file->kind == kind && strcmp(file->id, id) == 0) return file;
  }
  return NULL;
}

/* Warns about files KIND/ID.so in later sources, which the user may expect brim to use. They need not be loaded for
 * that. */
static void warn_of_hidden_homes(const brim_registry *r, const brim_registry_entry *winner, size_t source)
{
  for (size_t s = source + 1; s <= r->source_count; s++) {
    plugin_file *file = home_of(r, winner->plugin->kind, winner->plugin->id, s);
    if (!file || file->warned) continue;
    file->warned = true;
    warn_hidden(winner->plugin, winner->file, file->path);
  }
}

const char *brim_registry_configs(const brim_registry *registry, size_t i)
{
  return i < registry->configs_count ? registry->configs[i] : NULL;
}

const char *brim_registry_version(const brim_registry_entry *entry)
{
  return entry->module ? entry->module->version : BRIM_VERSION;
}

const brim_registry_entry *brim_registry_find(const brim_registry *registry, enum brim_kind kind, const char *id)
{
  const brim_registry_entry *entry = winner_of(registry, kind, id, 0);
  for (size_t source = 1; !entry && source <= registry->source_count; source++) {
    plugin_file *home = home_of(registry, kind, id, source);
    if (home) load_file((brim_registry *)registry, home);
    /* Brim must not silently use another plugin than the one the user sees there. */
    if (home && home->state == FILE_FAILED) return NULL;
    entry = winner_of(registry, kind, id, source);
    /* The file does not contain the plugin that its name suggests. */
    if (!home || !entry || entry->file != home->path) {
      load_source(registry, source);
      entry = winner_of(registry, kind, id, source);
    }
    if (entry) warn_of_hidden_homes(registry, entry, source);
  }
  return entry;
}

const brim_registry_failure *brim_registry_failure_of(const brim_registry *registry, enum brim_kind kind,
                                                      const char *id)
{
  if (brim_registry_find(registry, kind, id)) return NULL;
  for (size_t source = 1; source <= registry->source_count; source++) {
    const plugin_file *home = home_of(registry, kind, id, source);
    if (home && home->failure) return home->failure;
  }
  return NULL;
}

const char *brim_registry_home(const brim_registry *registry, enum brim_kind kind, size_t i)
{
  for (size_t k = 0; k < registry->file_count; k++)
    if (registry->file[k]->kind == kind && i-- == 0) return registry->file[k]->id;
  return NULL;
}

void brim_registry_narrow(brim_registry *registry, enum brim_kind kind)
{
  registry->only = kind;
}

size_t brim_registry_count(const brim_registry *registry)
{
  load_source(registry, 0);
  size_t count = 0;
  for (size_t i = 0; i < registry->plugin_count; i++)
    count += i == 0 || compare_names(registry->plugin[i - 1]->entry.plugin, registry->plugin[i]->entry.plugin) != 0;
  return count;
}

const brim_registry_entry *brim_registry_at(const brim_registry *registry, size_t i)
{
  load_source(registry, 0);
  for (size_t k = 0; k < registry->plugin_count; k++) {
    const bool hidden =
        k > 0 && compare_names(registry->plugin[k - 1]->entry.plugin, registry->plugin[k]->entry.plugin) == 0;
    if (!hidden && i-- == 0) return &registry->plugin[k]->entry;
  }
  return NULL;
}

size_t brim_registry_failure_count(const brim_registry *registry)
{
  load_source(registry, 0);
  return registry->failure_count;
}

const brim_registry_failure *brim_registry_failure_at(const brim_registry *registry, size_t i)
{
  load_source(registry, 0);
  return i < registry->failure_count ? registry->failure[i] : NULL;
}
