/* Loads a configuration: parses the overrides, composes the files, finds the plugins, applies the overrides, and checks
 * everything against the schema once, while filling the settings and the plugins' parameters. If possible, loading
 * continues after an error, so that all errors are reported together. */
#include "config/config.h"

#include <assert.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "config/alias.h"
#include "config/apply.h"
#include "config/batch.h"
#include "config/compose.h"
#include "config/federation.h"
#include "config/find_plugins.h"
#include "config/interpolate.h"
#include "config/schema.h"
#include "param/value.h"

#define RUN_NAME_BYTES_MAX 200 /* a folder's name contains it and the time, and has at most 255 bytes */

typedef struct loading {
  brim_config *config;
  brim_composition c;
  brim_schema schema;
  brim_schema_plugins plugins;
  brim_override *override;
  size_t override_count;
} loading;

static void read_overrides(loading *l, const brim_config_request *request)
{
  brim_arena *arena = &l->config->arena;
  const char **copy = BRIM_ARENA_NEW(arena, const char *, request->override_count);
  l->override = BRIM_ARENA_NEW(arena, brim_override, request->override_count);
  for (size_t i = 0; i < request->override_count; i++) {
    const int number = request->argument ? request->argument[i] : request->first_argument + (int)i;
    copy[i] = brim_arena_string(arena, request->overrides[i]);
    brim_override *o = &l->override[l->override_count];
    if (!brim_override_parse(arena, copy[i], number, &l->c.problems, o)) continue;
    if (o->value) brim_old_value_replace(o->key, o->value, &l->c.notes);
    if (brim_override_is_choice(&l->c, o)) brim_compose_choose(&l->c, o);
    l->override_count++;
  }
  l->c.override = l->override;
  l->c.override_count = l->override_count;
  l->config->overrides = copy;
  l->config->override_count = request->override_count;
}

/* Whether a part of the value could not be replaced: the problem was added already, and the value cannot be checked
 * further. */
static bool has_failed(const brim_yaml *node)
{
  if (node->interpolation == BRIM_YAML_FAILED) return true;
  for (size_t i = 0; i < node->count; i++)
    if (has_failed(node->item[i])) return true;
  return false;
}

/* ---- keys that are in no table ---- */

/* Ignores a file's values for a policy that is not in the list, because another run may use that policy. */
static bool is_of_unlisted(loading *l, const char *path, const brim_yaml *node)
{
  const size_t length = strcspn(path, ".");
  const char *group = brim_arena_string_n(l->c.arena, path, length);
  if (!path[length] || !brim_compose_is_list(group) || node->origin.text) return false;
  const char *id = brim_arena_string_n(l->c.arena, path + length + 1, strcspn(path + length + 1, "."));
  if (brim_schema_is_section(&l->schema, brim_arena_printf(l->c.arena, "%s.%s", group, id))) return false;
  if (!brim_registry_find(l->c.registry, brim_compose_group_kind(group), id)) return false;
  brim_log(BRIM_LOG_INFO, "'%s' of %s has no effect: '%s' is not in the list of '%s'", path, node->origin.file, id,
           group);
  return true;
}

static void unknown_key(loading *l, const char *path, const brim_yaml *node)
{
  if (is_of_unlisted(l, path, node)) return;
  const brim_yaml_origin origin = brim_yaml_key_origin(node);
  const char *meant = brim_schema_suggest(&l->schema, path);
  brim_problem_at(&l->c.problems, &origin, "unknown key '%s'", path);
  if (meant) brim_problem_hint(&l->c.problems, "did you mean '%s'?", meant);
  brim_schema_hint_keys(&l->schema, meant && strchr(meant, '.') ? meant : path, &l->c.problems);
}

/* Reports a mandatory value that is missing; `row` NULL: for a key that the user added. `brim config` may show
 * incomplete configurations. */
static void missing_value(loading *l, const char *path, const brim_schema_row *row, const brim_yaml *node)
{
  if (l->c.request->allow_missing) return;
  /* An interpolation gave this value: brim reports the missing value where it is defined. */
  if (node && node->origin.from) return;
  brim_text where = {0};
  if (node) brim_yaml_print_origin(&node->origin, &where);
  if (node && row) brim_text_add(&where, "   ");
  if (row)
    brim_text_printf(&where, "(%s%s%s)", row->plugin ? row->plugin->id : "", row->plugin ? ": " : "", row->row->help);
  brim_problem(&l->c.problems, BRIM_ECONFIG, "'%s' is mandatory and has no value: write %s=VALUE\n  %s", path, path,
               brim_text_str(&where));
  brim_text_release(&where);
}

/* Keys that the user added need values too. */
static void find_missing(loading *l, const char *path, const brim_yaml *node)
{
  if (brim_yaml_is_missing(node)) missing_value(l, path, NULL, node);
  for (size_t i = 0; i < node->count; i++)
    find_missing(l,
                 node->kind == BRIM_YAML_MAP ? brim_arena_printf(l->c.arena, "%s.%s", path, node->key[i])
                                             : brim_arena_printf(l->c.arena, "%s.%zu", path, i),
                 node->item[i]);
}

static void check_keys(loading *l, const brim_yaml *node, const char *path)
{
  for (size_t i = 0; i < node->count; i++) {
    const char *key = node->key[i];
    const brim_yaml *child = node->item[i];
    const bool added = key[0] == '+';
    const char *full = path[0] ? brim_arena_printf(l->c.arena, "%s.%s", path, key + added) : key + added;
    const bool declared = brim_schema_find(&l->schema, full) || brim_schema_is_section(&l->schema, full);
    if (brim_compose_is_broken(&l->c, full)) continue;
    if (added && declared) {
      const brim_yaml_origin origin = brim_yaml_key_origin(child);
      brim_problem_at(&l->c.problems, &origin, "'%s' exists already: write it without '+'", full);
    } else if (added) {
      find_missing(l, full, child);
    } else if (brim_schema_find(&l->schema, full) || (strcmp(key, "id") == 0 && brim_compose_group_kind(path)) ||
               strcmp(full, "dataset.option") == 0) {
      continue; /* the value is checked when it is stored */
    } else if (!declared) {
      unknown_key(l, full, child);
    } else if (child->kind == BRIM_YAML_MAP) {
      check_keys(l, child, full);
    } else if (!brim_yaml_is_null(child)) {
      brim_problem_at(&l->c.problems, &child->origin, "'%s' holds keys and is not a value itself", full);
    }
  }
}

/* ---- values ---- */

/* Reports "configs/model/vit.yaml:7:12   (vit: number of blocks; default 12)". */
static void value_problem(loading *l, const brim_schema_row *row, const brim_yaml *node, const char *problem)
{
  const char *def = row->row->def;
  brim_text where = {0};
  brim_yaml_print_origin(&node->origin, &where);
  brim_problem(&l->c.problems, BRIM_ECONFIG, "'%s' %s\n  %s   (%s%s%s; %s%s)", row->path, problem,
               brim_text_str(&where), row->plugin ? row->plugin->id : "", row->plugin ? ": " : "", row->row->help,
               def ? "default " : "required",
               !def     ? ""
               : def[0] ? def
                        : "''");
  brim_text_release(&where);
}

/* Returns the node of a row: from the tree, else the one that an earlier row of the same path used, else the
 * default. */
static const brim_yaml *node_of(const loading *l, const brim_schema_row *row)
{
  const brim_yaml *node = brim_yaml_get_path(l->c.root, row->path);
  if (!node) node = brim_yaml_get_path(l->config->root, row->path);
  return node ? node : brim_value_default(row->row, l->c.arena);
}

static void *params_of(const loading *l, const brim_schema_row *row)
{
  for (size_t i = 0; row->plugin && i < l->config->choice_count; i++) {
    const brim_config_choice *choice = &l->config->choice[i]; /* two groups may choose the same plugin */
    const size_t length = strlen(choice->group);
    if (choice->plugin == row->plugin && strncmp(row->path, choice->group, length) == 0 && row->path[length] == '.')
      return choice->params;
  }
  assert(row->section);
  return (char *)&l->config->settings + row->section->offset;
}

/* Parses the value into its field. False, with a problem added, if it is invalid. */
static bool take_value(loading *l, const brim_schema_row *row, const brim_yaml *node)
{
  brim_text problem = {0};
  const brim_status status = brim_value_parse(row->row, node, params_of(l, row), l->c.arena, &problem);
  if (status != BRIM_OK) value_problem(l, row, node, brim_text_str(&problem));
  brim_text_release(&problem);
  return status == BRIM_OK;
}

static void put(const loading *l, const brim_schema_row *row, brim_yaml *node)
{
  brim_yaml *root = l->config->root;
  brim_yaml_set(l->c.arena, brim_yaml_make_parent(l->c.arena, root, row->path, root->origin), brim_yaml_leaf(row->path),
                node);
}

/* Returns the home folder of the user in "~name", or of the current user; NULL: the user has no home folder. */
static const char *home_of(const char *name)
{
  if (!name[0]) return getenv("HOME");
  const struct passwd *user = getpwnam(name);
  return user ? user->pw_dir : NULL;
}

/* Expands "~/x" and "~user/x" at the start of a path: shells do that only at the start of a word. As in a shell,
 * "~name" is a file name if there is no such user. */
static const brim_yaml *expand_home(loading *l, const brim_schema_row *row, const brim_yaml *node)
{
  if (!node || !brim_schema_holds_path(row, node) || node->scalar[0] != '~') return node;
  const size_t length = strcspn(node->scalar, "/");
  const char *name = brim_arena_printf(l->c.arena, "%.*s", (int)length - 1, node->scalar + 1), *home = home_of(name);
  if (name[0] && !home) return node;
  if (!home || !home[0]) {
    brim_problem_at(&l->c.problems, &node->origin, "'%s': $HOME is not set, so '~' cannot be replaced", row->path);
    return node;
  }
  brim_yaml *expanded = brim_yaml_clone(l->c.arena, node);
  const char *rest = node->scalar + length;
  expanded->scalar = brim_arena_printf(l->c.arena, "%s%s", home, rest + (brim_ends_with(home, "/") && rest[0] == '/'));
  return expanded;
}

static bool is_default(const brim_yaml *node)
{
  return node->origin.file && strcmp(node->origin.file, "default") == 0;
}

/* Whether a file or the command line sets the number of clients. */
static bool has_clients(const loading *l)
{
  const brim_yaml *node = brim_yaml_get_path(l->c.root, "total_clients");
  return node && !is_default(node);
}

static void fill_row(loading *l, const brim_schema_row *row)
{
  const brim_yaml *node = expand_home(l, row, node_of(l, row));
  if (brim_schema_find(&l->schema, row->path) != row && !brim_yaml_get_path(l->config->root, row->path))
    return; /* the problem was added for an earlier row of the same path */
  if (node && has_failed(node)) return;
  if (!node || brim_yaml_is_missing(node)) {
    missing_value(l, row->path, row, node);
    put(l, row, brim_yaml_scalar(l->c.arena, "???", node ? node->origin : (brim_yaml_origin){.file = "default"}));
    return;
  }
  if (!take_value(l, row, node)) return;
  if (is_default(node) && row->section && row->section->of_clients && !has_clients(l)) return;
  put(l, row, brim_yaml_clone(l->c.arena, node));
}

/* Copies keys that the user added to the resolved configuration. */
static void keep_added(const loading *l, const brim_yaml *from, brim_yaml *to)
{
  for (size_t i = 0; i < from->count; i++) {
    brim_yaml *below = brim_yaml_get(to, from->key[i]);
    if (from->key[i][0] == '+')
      brim_yaml_set(l->c.arena, to, from->key[i], brim_yaml_clone(l->c.arena, from->item[i]));
    else if (below && below->kind == BRIM_YAML_MAP && from->item[i]->kind == BRIM_YAML_MAP)
      keep_added(l, from->item[i], below);
  }
}

/* Returns the name of a dataset's option in the tree; NULL: it was chosen by the plugin's name. */
static brim_yaml *option_of(const loading *l, const char *group)
{
  brim_yaml *option = brim_yaml_get_path(l->c.root, "dataset.option");
  const bool is_name =
      option && option->kind == BRIM_YAML_SCALAR && option->scalar[0] && !brim_has_control(option->scalar);
  return strcmp(group, "dataset") == 0 && is_name ? option : NULL;
}

static void add_choice(loading *l, const char *name, uint32_t kind, const brim_plugin *plugin)
{
  brim_config_choice *choice = &l->config->choice[l->config->choice_count++];
  *choice = (brim_config_choice){.group = name, .plugin = plugin};
  if (!plugin) return;
  const brim_yaml *option = option_of(l, name);
  choice->name = option ? option->scalar : plugin->id;
  const brim_registry_entry *entry = brim_registry_find(l->c.registry, kind, plugin->id);
  choice->file = brim_arena_string(l->c.arena, entry->file);
  choice->version = brim_arena_string(l->c.arena, brim_registry_version(entry));
  choice->params = brim_arena_alloc(l->c.arena, plugin->params_size);
}

/* Adds a group's choices, and its node in the resolved configuration with the id or ids. */
static void add_choices(loading *l, int g)
{
  const brim_group *group = &brim_config_groups[g];
  const brim_schema_plugins *p = &l->plugins;
  const bool empty = brim_config_is_empty(&l->c, p, g);
  if (!group->list && !empty) add_choice(l, group->name, group->kind, p->group[g]);
  for (size_t i = 0; group->list && i < p->listed_count; i++)
    if (p->listed[i]->kind == group->kind)
      add_choice(l, brim_arena_printf(l->c.arena, "%s.%s", group->name, p->listed[i]->id), group->kind, p->listed[i]);
  if (l->c.group_broken[g]) return;
  brim_yaml *node = brim_yaml_map(l->c.arena, l->c.root->origin);
  if (!empty) brim_yaml_set(l->c.arena, node, "id", brim_yaml_get(brim_yaml_get(l->c.root, group->name), "id"));
  brim_yaml *option = option_of(l, group->name);
  if (option) brim_yaml_set(l->c.arena, node, "option", option);
  brim_yaml_set(l->c.arena, l->config->root, group->name, node);
}

/* Copies the list of augmentations into the settings, which all code that prepares samples uses. */
static void set_augmentations(brim_config *config)
{
  brim_augment_choice *chosen = BRIM_ARENA_NEW(&config->arena, brim_augment_choice, BRIM_POLICIES_MAX);
  config->settings.augment.chosen = chosen;
  for (size_t i = 0; i < config->choice_count; i++) {
    const brim_config_choice *choice = &config->choice[i];
    if (choice->plugin && choice->plugin->kind == BRIM_AUGMENT)
      chosen[config->settings.augment.chosen_count++] = (brim_augment_choice){choice->plugin, choice->params};
  }
}

static void fill(loading *l)
{
  brim_config *config = l->config;
  config->root = brim_yaml_map(l->c.arena, l->c.root->origin);
  size_t i = 0;
  for (; i < l->schema.count && !strchr(l->schema.row[i].path, '.'); i++) fill_row(l, &l->schema.row[i]);
  for (int g = 0; brim_config_groups[g].name; g++) add_choices(l, g);
  for (; i < l->schema.count; i++)
    if (!brim_compose_is_broken(&l->c, l->schema.row[i].path)) fill_row(l, &l->schema.row[i]);
  set_augmentations(config);
  keep_added(l, l->c.root, config->root);
}

/* ---- loading ---- */

/* Adds defaults to the tree, so that interpolations find them. */
static void complete(const loading *l)
{
  brim_arena *arena = l->c.arena;
  for (size_t i = 0; i < l->schema.count; i++) {
    const brim_schema_row *row = &l->schema.row[i];
    const char *name = brim_yaml_leaf(row->path);
    brim_yaml *parent = brim_yaml_make_parent(arena, l->c.root, row->path, (brim_yaml_origin){.file = "default"});
    brim_yaml *value = parent && !brim_yaml_get(parent, name) ? brim_value_default(row->row, arena) : NULL;
    if (value) brim_yaml_set(arena, parent, name, value);
  }
}

/* Checks the name of a run, which is displayed and used in the name of a folder. */
static void check_run(loading *l)
{
  const brim_yaml *name = brim_yaml_get_path(l->config->root, "run.name");
  if (!name || brim_yaml_is_missing(name)) return;
  const size_t length = strlen(l->config->settings.run.name);
  if (brim_has_control(l->config->settings.run.name))
    brim_problem_at(&l->c.problems, &name->origin, "'run.name' must not contain control characters");
  if (length > RUN_NAME_BYTES_MAX)
    brim_problem_at(&l->c.problems, &name->origin, "'run.name' has %zu bytes; at most %d are allowed", length,
                    RUN_NAME_BYTES_MAX);
}

static void load(loading *l, const brim_config_request *request)
{
  read_overrides(l, request);
  brim_compose(&l->c);
  if (l->c.broken) return;
  brim_config_find_plugins(&l->c, &l->plugins);
  brim_schema_build(&l->schema, l->c.arena, &l->plugins);
  for (size_t i = 0; i < l->override_count; i++)
    if (!brim_override_is_choice(&l->c, &l->override[i])) brim_override_apply(&l->c, &l->schema, &l->override[i]);
  brim_compose_note_left_out(&l->c);
  complete(l);
  brim_interpolate(&l->c, &l->schema);
  check_keys(l, l->c.root, "");
  fill(l);
  if (l->c.problems.count == 0) check_run(l);
  if (l->c.problems.count == 0) brim_batch_resolve(&l->c, &l->schema, l->config);
  if (l->c.problems.count == 0) brim_federation_resolve(&l->c, &l->schema, l->config);
}

/* Keeps the request from which a configuration was made, so that it can be made again. */
static void keep_request(brim_config *config, const brim_config_request *request, const brim_registry *registry)
{
  brim_arena *arena = &config->arena;
  const char **search = BRIM_ARENA_NEW(arena, const char *, request->search_count);
  int *argument = BRIM_ARENA_NEW(arena, int, request->override_count);
  for (size_t i = 0; i < request->search_count; i++) search[i] = brim_arena_string(arena, request->search[i]);
  for (size_t i = 0; i < request->override_count; i++)
    argument[i] = request->argument ? request->argument[i] : request->first_argument + (int)i;
  config->request = *request;
  config->request.search = search;
  config->request.argument = argument;
  config->request.overrides = config->overrides;
  config->request.name = request->name ? brim_arena_string(arena, request->name) : NULL;
  config->request.file = request->file ? brim_arena_string(arena, request->file) : NULL;
  config->registry = registry;
}

brim_status brim_config_load(const brim_config_request *request, const brim_registry *registry, brim_config **out)
{
  *out = NULL;
  loading l = {.config = brim_xcalloc(1, sizeof(brim_config))};
  l.c = (brim_composition){.arena = &l.config->arena, .request = request, .registry = registry};
  l.c.problems.arena = l.c.notes.arena = &l.config->arena;
  load(&l, request);
  for (size_t i = 0; i < l.c.notes.count; i++) brim_log(BRIM_LOG_INFO, "%s", l.c.notes.text[i]);
  l.config->auto_reason = l.c.auto_reason;
  keep_request(l.config, request, registry);
  const brim_status status = brim_problems_status(&l.c.problems);
  if (status == BRIM_OK)
    *out = l.config;
  else
    brim_config_free(l.config);
  return status;
}

/* ---- loading again with other choices ---- */

/* Whether a request chooses another option of a group than the current one. */
static bool changes_option(const brim_config *config, const char *other)
{
  const size_t length = strcspn(other, "=");
  for (size_t i = 0; i < config->choice_count; i++) {
    const brim_config_choice *c = &config->choice[i];
    if (strlen(c->group) == length && strncmp(c->group, other, length) == 0)
      return strcmp(c->plugin->id, other + length + 1) != 0;
  }
  return false;
}

/* Whether the core reads this key of the backend, so that it is valid for any backend: "backend.strict=true". */
static bool is_of_any_backend(const char *key)
{
  static const char group[] = "backend.";
  if (!brim_starts_with(key, group)) return false;
  const char *name = key + sizeof group - 1;
  return brim_setting_find("backend", name, strcspn(name, "=")) != NULL;
}

/* Whether a word of the command line sets the same key as `other`, or a key of an option that belongs to it. */
static bool is_about(const brim_config *config, const char *word, const char *other)
{
  const char *key = word + strspn(word, "+~");
  const size_t length = strcspn(other, "=");
  if (strncmp(key, other, length) != 0) return false;
  return key[length] == '=' || key[length] == '\0' ||
         (key[length] == '.' && changes_option(config, other) && !is_of_any_backend(key));
}

brim_status brim_config_load_again(const brim_config *config, const char *const *word, size_t count, brim_config **out)
{
  brim_arena arena = {0};
  brim_config_request request = config->request;
  const char **words = BRIM_ARENA_NEW(&arena, const char *, request.override_count + count);
  int *argument = BRIM_ARENA_NEW(&arena, int, request.override_count + count);
  size_t kept = 0;
  for (size_t i = 0; i < request.override_count; i++) {
    bool replaced = false;
    for (size_t k = 0; k < count; k++) replaced = replaced || is_about(config, request.overrides[i], word[k]);
    if (replaced) continue;
    words[kept] = request.overrides[i];
    argument[kept++] = request.argument[i];
  }
  for (size_t k = 0; k < count; k++) words[kept++] = word[k];
  request.overrides = words;
  request.override_count = kept;
  request.argument = argument;
  const brim_status status = brim_config_load(&request, config->registry, out);
  brim_arena_release(&arena);
  return status;
}

void brim_config_free(brim_config *config)
{
  if (!config) return;
  brim_arena arena = config->arena;
  brim_arena_release(&arena);
  free(config);
}

const brim_config_choice *brim_config_find_choice(const brim_config *config, const char *group)
{
  for (size_t i = 0; i < config->choice_count; i++)
    if (strcmp(config->choice[i].group, group) == 0) return &config->choice[i];
  return NULL;
}

const brim_config_choice *brim_config_choice_of(const brim_config *config, const char *group)
{
  const brim_config_choice *choice = brim_config_find_choice(config, group);
  assert(choice || !"a group of brim_config_groups");
  return choice;
}

const char *brim_config_group_of(uint32_t kind)
{
  const brim_group *group = brim_config_groups;
  while (group->name && group->kind != kind) group++;
  assert(group->name);
  return group->name;
}

const brim_config_choice *brim_config_backbone(const brim_config *config)
{
  if (!brim_is_wrapper(brim_config_choice_of(config, "model")->plugin)) return NULL;
  return brim_config_choice_of(config, "backbone");
}

const brim_config_choice *brim_config_method(const brim_config *config)
{
  return brim_config_find_choice(config, "method");
}

const brim_config_choice *brim_config_aggregator(const brim_config *config)
{
  return brim_config_find_choice(config, "aggregator");
}

const brim_config_choice *brim_config_server_optimizer(const brim_config *config)
{
  return brim_config_find_choice(config, "server_optimizer");
}
