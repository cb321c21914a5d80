#include "config/instance.h"

#include "config/value.h"

static brim_status fill_defaults(const brim_plugin *plugin, brim_arena *arena, void **out)
{
  *out = brim_arena_alloc(arena, plugin->params_size);
  for (const brim_param *row = plugin->params; row && row->key; row++) {
    brim_text problem = {0};
    const brim_yaml *value = brim_value_default(row, arena);
    brim_status status = BRIM_ECONFIG;
    if (!value)
      brim_fail(BRIM_ECONFIG, "its parameter '%s' must be given", row->key);
    else if ((status = brim_value_parse(row, value, *out, arena, &problem)) != BRIM_OK)
      brim_fail(status, "'%s' %s", row->key, brim_text_str(&problem));
    brim_text_release(&problem);
    BRIM_TRY(status);
  }
  return BRIM_OK;
}

brim_status brim_instance_default(const brim_plugin *plugin, brim_arena *arena, void **out)
{
  BRIM_TRY(fill_defaults(plugin, arena, out));
  if (!plugin->create) return BRIM_OK;
  void *params = *out;
  *out = NULL;
  return plugin->create(params, out);
}
