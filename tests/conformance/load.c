/* Loads plugins for tests: calls dlopen and the entry function, and parses parameters with the core's own parser. */
#include "conformance/load.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "param/value.h"
#include "param/yaml.h"

/* Fills the parameter struct from `settings` and the defaults. */
static void *fill_params(loaded *out, const char *settings)
{
  const brim_plugin *plugin = out->plugin;
  brim_yaml *given = NULL;
  if (settings && brim_yaml_parse(&out->arena, settings, strlen(settings), "test", &given) != BRIM_OK)
    fail_msg("%s: %s", settings, brim_error_text());
  char *params = brim_arena_alloc(&out->arena, plugin->params_size + 1);
  for (const brim_param *row = plugin->params; row && row->key; row++) {
    const brim_yaml *node = given ? brim_yaml_get(given, row->key) : NULL;
    brim_text problem = {0};
    if (!node) node = brim_value_default(row, &out->arena);
    if (!node || brim_value_parse(row, node, params, &out->arena, &problem) != BRIM_OK)
      fail_msg("%s.%s: %s", plugin->id, row->key, node ? brim_text_str(&problem) : "is required");
    brim_text_release(&problem);
  }
  return params;
}

bool load_plugin(loaded *out, const char *folder, const char *id, const char *settings)
{
  return load_plugin_from(out, "", folder, id, settings);
}

bool load_plugin_from(loaded *out, const char *root, const char *folder, const char *id, const char *settings)
{
  *out = (loaded){0};
  const char *moved = getenv("BRIM_BUILD_DIR"); /* set when the tests run in a copy of the build */
  char *file = brim_arena_printf(&out->arena, "%s/%s/lib/brim/plugins/%s/%s.so", moved ? moved : BRIM_BUILD_DIR, root,
                                 folder, id);
  if (access(file, R_OK) != 0) {
    brim_arena_release(&out->arena);
    return false;
  }
  void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!handle) fail_msg("%s", dlerror());
  brim_module_entry_fn entry;
  void *symbol = dlsym(handle, "brim_module_entry");
  assert_non_null(symbol);
  memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from object to function pointers */
  out->plugin = entry()->plugins[0];
  assert_string_equal(out->plugin->id, id);
  void *params = fill_params(out, settings);
  out->self = params;
  if (out->plugin->create && out->plugin->create(params, &out->self) != BRIM_OK)
    fail_msg("%s: %s", id, brim_error_text());
  return true;
}

void load_core_plugin(loaded *out, const brim_plugin *plugin, const char *settings)
{
  *out = (loaded){.plugin = plugin};
  out->self = fill_params(out, settings);
}

void unload_plugin(loaded *plugin)
{
  if (plugin->plugin && plugin->plugin->create && plugin->plugin->destroy) plugin->plugin->destroy(plugin->self);
  brim_arena_release(&plugin->arena);
  *plugin = (loaded){0};
}
